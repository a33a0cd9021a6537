/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The buckets of vmio_model::top::latency, counted in the kernel by the same function. A test
 * compiles this file for the host and compares. */
#ifndef VMIO_BUCKET_H
#define VMIO_BUCKET_H

/* Parts of each power of two, as a power of two. */
#define STEP_BITS 2
#define STEPS (1 << STEP_BITS)
#define BUCKETS 96

/* Position of the highest bit that is set; 0 for 0. By halves: BPF has no instruction for it. */
static inline __attribute__((always_inline)) unsigned int highest_bit(unsigned long long v)
{
	unsigned int bit = 0;

	if (v >> 32) { bit += 32; v >>= 32; }
	if (v >> 16) { bit += 16; v >>= 16; }
	if (v >> 8) { bit += 8; v >>= 8; }
	if (v >> 4) { bit += 4; v >>= 4; }
	if (v >> 2) { bit += 2; v >>= 2; }
	if (v >> 1) bit += 1;
	return bit;
}

/* The bucket of a latency in microseconds. */
static inline __attribute__((always_inline)) unsigned int bucket(unsigned long long us)
{
	unsigned int power, at;

	if (us < STEPS)
		return us;
	power = highest_bit(us);
	at = (power - 1) * STEPS + ((us >> (power - STEP_BITS)) & (STEPS - 1));
	return at < BUCKETS ? at : BUCKETS - 1;
}

#endif
