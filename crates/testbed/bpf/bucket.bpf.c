/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A token bucket that drops, at the ingress of a guest's interface: what act_police does (net/sched/act_police.c,
 * tcf_police_act), and Cilium's limit of what a pod receives (bpf/lib/token_bucket.h, accept). Like Cilium's it takes
 * no lock. */
#include "limits.h"

/* Bytes a second, and of the bucket. */
static const volatile u64 settings[3] = { SETTINGS };
#define RATE settings[1]
#define BURST settings[2]

static u64 tokens, last;

__attribute__((section("classifier"), used)) int bucket(struct __sk_buff *skb)
{
	u64 now = ktime_get_ns(), rate = RATE, burst = BURST, waited = now - last, have = tokens;

	/* Also at first, when it has waited since the machine's start. */
	if (waited >= burst * SECOND / rate)
		have = burst;
	else
		have += rate * waited / SECOND;
	if (have > burst)
		have = burst;
	last = now;
	if (have < skb->len) {
		tokens = have;
		return DROP;
	}
	tokens = have - skb->len;
	return PASS;
}
