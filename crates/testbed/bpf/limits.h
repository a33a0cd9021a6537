/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What both programs share. Each is loaded by `tc filter add` with maps of its own. */
#ifndef VMIO_TESTBED_LIMITS_H
#define VMIO_TESTBED_LIMITS_H

typedef unsigned int u32;
typedef unsigned long long u64;

#define SECOND 1000000000ull
#define NEXT (-1) /* TC_ACT_UNSPEC */
#define PASS 0	  /* TC_ACT_OK */
#define DROP 2	  /* TC_ACT_SHOT */

/* As far as it is used (include/uapi/linux/bpf.h); where each field stands is part of the kernel's interface. */
struct __sk_buff {
	u32 len;
	u32 unused[37];
	u64 tstamp;
	u32 wire_len;
};

static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;

/* The first of the settings, which whoever loads the object finds in the file: those behind it are written there. */
#define SETTINGS 0x766d696f73657473ull

__attribute__((section("license"), used)) char LICENSE[] = "Dual MIT/GPL";

#endif
