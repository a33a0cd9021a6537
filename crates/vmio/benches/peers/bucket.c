/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A token bucket that drops, at the ingress of a guest's interface: what act_police does (net/sched/act_police.c,
 * tcf_police_act), and Cilium's limit of what a pod receives (bpf/lib/token_bucket.h, accept). RATE is in bytes a
 * second, BURST in bytes; each `tc filter add` has a bucket of its own. Like Cilium's it takes no lock. */
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECOND 1000000000ull
#define PASS 0 /* TC_ACT_OK */
#define DROP 2 /* TC_ACT_SHOT */

/* Its first field, which is all that is read (include/uapi/linux/bpf.h). */
struct __sk_buff {
	u32 len;
};

static u64 (*const ktime_get_ns)(void) = (void *)5;

static u64 tokens = BURST, last;

__attribute__((section("classifier"), used)) int bucket(struct __sk_buff *skb)
{
	u64 now = ktime_get_ns(), waited = now - last, have = tokens;

	if (waited > SECOND)
		waited = SECOND;
	have += RATE * waited / SECOND;
	if (have > BURST)
		have = BURST;
	last = now;
	if (have < skb->len) {
		tokens = have;
		return DROP;
	}
	tokens = have - skb->len;
	return PASS;
}

__attribute__((section("license"), used)) char LICENSE[] = "Dual MIT/GPL";
