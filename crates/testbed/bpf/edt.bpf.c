/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Departure times, at the egress of the uplink, whose root is sch_fq: each guest's frames leave as far apart as its
 * rate has them, and what would leave later than the horizon is dropped. So Cilium limits what a pod sends
 * (bpf/lib/edt.h, edt_sched_departure); it knows the pod by a number that its program at the pod's interface leaves in
 * queue_mapping, this one by the source address.
 *
 * They cannot be set earlier on a frame's way: between namespaces (net/core/skbuff.c, skb_scrub_packet) and in a bridge
 * (net/bridge/br_forward.c, br_forward_finish) the kernel clears them. At egress what is written stays until fq reads
 * it (net/sched/sch_fq.c, fq_enqueue), which does not ask for the mark of a delivery time (bpf_skb_set_tstamp). */
#include "limits.h"

#define GUESTS 3
#define IP_SOURCE 26 /* behind the Ethernet header */

/* The horizon in ns; then of each guest its address, as it stands in a packet, and bytes a second. */
static const volatile u64 settings[2 + 2 * GUESTS] = { SETTINGS };
#define HORIZON settings[1]
#define ADDRESS(guest) settings[2 + 2 * (guest)]
#define RATE(guest) settings[3 + 2 * (guest)]

/* When the last frame of each leaves. */
static volatile u64 last[GUESTS];

__attribute__((section("classifier"), used)) int edt(struct __sk_buff *skb)
{
	u64 now = ktime_get_ns(), earliest = skb->tstamp, due;
	u32 source;

	if (skb_load_bytes(skb, IP_SOURCE, &source, sizeof(source)))
		return NEXT;
	if (earliest < now)
		earliest = now;
#pragma unroll
	for (int guest = 0; guest < GUESTS; guest++) {
		if (ADDRESS(guest) != source)
			continue;
		due = last[guest] + (u64)skb->wire_len * SECOND / RATE(guest);
		if (due <= earliest) {
			/* It sent less than its rate: at once, and nothing is saved up. */
			last[guest] = earliest;
			return PASS;
		}
		if (due - now >= HORIZON)
			return DROP;
		last[guest] = due;
		skb->tstamp = due;
		return PASS;
	}
	return NEXT;
}
