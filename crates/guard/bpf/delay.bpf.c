/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How long packets wait in the guard's queues: from the tracepoint at which a root queue has taken a packet to the one
 * at which it has given it up (include/trace/events/qdisc.h, qdisc_enqueue and qdisc_dequeue, both under the lock of
 * the queue, so that what belongs to one queue is changed by one processor at a time).
 *
 * qdisc_enqueue is left out where a packet was taken and another dropped for it (NET_XMIT_CN, dev_qdisc_enqueue of
 * net/core/dev.c), as fq_codel does. So that such a packet is not taken for an earlier one at the same address, what is
 * dropped is forgotten at once (include/trace/events/skb.h, kfree_skb).
 *
 * Packets are drawn at random, each with a chance that falls as packets come faster, and count as many as they stand
 * for (Horvitz and Thompson, A generalization of sampling without replacement from a finite universe, 1952): a class
 * that sends little is measured packet by packet, and one that floods costs a few hundred samples a second. The chance
 * depends on what came before, never on the packet itself, so the sum of what they stand for is right.
 *
 * src/planes/linux/delays.rs mirrors struct place and struct delay; a test compares sizes. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "../../look/bpf/bucket.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The guard's queue (src/planes/linux/htb), and the class of what is in no other. */
#define HANDLE 0x7a000000
#define DEFAULT_NUMBER 3

#define PLACE_BITS 14
/* In place of a packet's address while the entry is written; no packet is there. */
#define TAKEN 1
/* A sample that is older may give way to another, in ns: hardly any queue holds a packet for so long. */
#define STALE 60000000000ull
/* A class has a sample more often than every FEW ns and less often than every MANY ns where it sends enough. */
#define FEW 1000000ull
#define MANY 8000000ull
/* One that had none for so long is measured packet by packet again. */
#define PAUSE 100000000ull
#define MOST_DOUBLINGS 12
/* More than numbers of classes, so that those of an interface share nothing. */
#define DRAWS 32768
/* Packets that a driver takes together, of which more are not looked at. */
#define MOST_AT_ONCE 64

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The kernel's types, as far as they are used (CO-RE). */
struct sk_buff {
	struct sk_buff *next;
	__u32 priority;
};

struct ns_common {
	__u32 inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct netdev_queue {
	struct net_device *dev;
};

struct Qdisc {
	__u32 handle;
	struct netdev_queue *dev_queue;
};

#pragma clang attribute pop

/* A class of a queue. */
struct place {
	__u32 namespace;  /* inode of the network namespace */
	__u32 index;      /* of the interface */
	__u32 number;     /* of the class */
};

/* What its packets have waited. */
struct delay {
	__u64 samples;
	/* Of all packets for which they stand, in us: in ns, a queue that is always full would be past 64 bits in days. */
	__u64 wait_us;
	__u64 counts[BUCKETS];  /* of these packets */
};

/* The classes that are measured; user space adds them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct place);
	__type(value, struct delay);
} delays SEC(".maps");

/* A packet that was drawn and waits. */
struct waiting {
	__u64 packet;     /* its address; 0 where there is none */
	__u64 since;
	struct place place;
	__u32 stands_for;
};

/* By a hash of the address. Where two packets fall on one entry, the later one is not measured, and the next one that
 * is drawn stands for it, too. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << PLACE_BITS);
	__type(key, __u32);
	__type(value, struct waiting);
} waiting SEC(".maps");

/* How packets of a class are drawn: one of 2 to the power of `doublings`. Classes of two interfaces may share an
 * entry. */
struct draw {
	__u64 last;
	__u32 doublings;
	__u32 owed;       /* packets for which the next one that is drawn stands, beside its own */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DRAWS);
	__type(key, __u32);
	__type(value, struct draw);
} draws SEC(".maps");

static __always_inline struct waiting *waiting_at(__u64 packet)
{
	__u32 at = packet * 0x9e3779b97f4a7c15ull >> (64 - PLACE_BITS);

	return bpf_map_lookup_elem(&waiting, &at);
}

static __always_inline void pace(struct draw *draw, __u64 now)
{
	__u64 since = now - draw->last;

	draw->last = now;
	if (since < FEW && draw->doublings < MOST_DOUBLINGS)
		draw->doublings++;
	else if (since > MANY && draw->doublings)
		draw->doublings--;
}

/* An argument of a tracepoint as a number: the verifier lets nobody calculate with pointers. */
static __always_inline __u64 argument(const __u64 *ctx, int at)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), ctx + at);
	return value;
}

/* Its arguments: queue, transmit queue, packet. */
SEC("tp_btf/qdisc_enqueue")
int enter(__u64 *ctx)
{
	struct Qdisc *queue = (struct Qdisc *)ctx[0];
	struct sk_buff *skb = (struct sk_buff *)ctx[2];
	__u32 number, at, stands_for;
	struct waiting *waiting;
	struct net_device *device;
	struct place place = {};
	struct draw *draw;
	__u64 packet, before, now;

	if (queue->handle != HANDLE)
		return 0;
	packet = argument(ctx, 2);
	waiting = waiting_at(packet);
	if (!waiting)
		return 0;
	if (waiting->packet == packet)
		waiting->packet = 0;
	device = queue->dev_queue->dev;
	/* As HTB does: a priority of another queue is no class of this one. */
	number = skb->priority;
	number = ((number ^ HANDLE) >> 16) ? DEFAULT_NUMBER : number & 0xffff;
	at = (number ^ (__u32)device->ifindex * 0x9e3779b1u) & (DRAWS - 1);
	draw = bpf_map_lookup_elem(&draws, &at);
	if (!draw)
		return 0;
	/* Else one that sends little after a flood would have no sample for long. A coarse clock would do, but programs at
	 * tracepoints may not read it (Linux 5.16). */
	now = bpf_ktime_get_ns();
	if (now > draw->last + PAUSE)
		draw->doublings = 0;
	stands_for = 1u << (draw->doublings & 31);
	if (stands_for > 1 && bpf_get_prandom_u32() & (stands_for - 1))
		return 0;
	pace(draw, now);
	place.namespace = device->nd_net.net->ns.inum;
	place.index = device->ifindex;
	place.number = number;
	if (!bpf_map_lookup_elem(&delays, &place)) {
		place.number = DEFAULT_NUMBER;
		if (!bpf_map_lookup_elem(&delays, &place))
			return 0;
	}
	stands_for += draw->owed;
	draw->owed = stands_for;
	before = waiting->packet;
	if (before == TAKEN || (before && now < waiting->since + STALE))
		return 0;
	/* Another queue's processor may want the same entry. */
	if (__sync_val_compare_and_swap(&waiting->packet, before, TAKEN) != before)
		return 0;
	draw->owed = 0;
	waiting->since = now;
	waiting->place = place;
	waiting->stands_for = stands_for;
	/* The packet leaves under the lock of its queue, after all this is written. */
	barrier();
	waiting->packet = packet;
	return 0;
}

static __always_inline void left(__u64 packet)
{
	struct waiting *waiting = waiting_at(packet);
	struct delay *delay;
	struct place place;
	__u64 wait_us, since;
	__u32 at, stands_for;

	if (!waiting || waiting->packet != packet)
		return;
	since = waiting->since;
	place = waiting->place;
	stands_for = waiting->stands_for;
	/* From here on the entry may be another's. */
	barrier();
	waiting->packet = 0;
	delay = bpf_map_lookup_elem(&delays, &place);
	if (!delay)
		return;
	wait_us = (bpf_ktime_get_ns() - since) / 1000;
	at = bucket(wait_us);
	/* The compiler leaves out what it knows to be true and the verifier does not. */
	barrier_var(at);
	if (at >= BUCKETS)
		return;
	delay->samples++;
	delay->wait_us += wait_us * stands_for;
	delay->counts[at] += stands_for;
}

/* Its arguments: queue, transmit queue, number of packets, and the first of them or 0. Packets that a driver takes
 * together are chained. */
SEC("tp_btf/qdisc_dequeue")
int leave(__u64 *ctx)
{
	struct Qdisc *queue = (struct Qdisc *)ctx[0];
	int packets = ctx[2], i;
	__u64 packet;

	if (queue->handle != HANDLE)
		return 0;
	packet = argument(ctx, 3);
	for (i = 0; i < MOST_AT_ONCE; i++) {
		if (!packet || i >= packets)
			return 0;
		left(packet);
		/* Most leave alone. */
		if (i + 1 >= packets)
			return 0;
		packet = (__u64)BPF_CORE_READ((struct sk_buff *)packet, next);
	}
	return 0;
}

/* Its first argument: a packet that is dropped, whoever does it. */
SEC("tp_btf/kfree_skb")
int forget(__u64 *ctx)
{
	__u64 packet = argument(ctx, 0);
	struct waiting *waiting = waiting_at(packet);

	if (waiting && waiting->packet == packet)
		waiting->packet = 0;
	return 0;
}
