/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Token buckets in place of a queue: what a member, or a flow class of it, sends or receives above its maximum is
 * dropped. Each is one number, the time at which it is full again (the generic cell rate algorithm: ITU-T I.371,
 * annex A, as virtual scheduling), changed by compare and swap: no lock, and packets on several processors are never
 * counted as one.
 *
 * Included by classify.bpf.c, behind what it counts with. src/planes/linux/classifier/buckets.rs mirrors the structs.
 */
#ifndef VMIO_GUARD_BUCKET_H
#define VMIO_GUARD_BUCKET_H

/* Of an index: what the member receives. Below it, the number of its class. */
#define RECEIVED 0x4000

#define MOST_FLOWS 8
#define MOST_PORTS 4
/* Of a second: 16 a nanosecond, since a frame at the highest rate takes some ten nanoseconds. They last 36 years. */
#define UNITS 16000000000ull
#define UNITS_A_NS 16
/* In place of a port; in no range. */
#define NO_PORT 0x10000
#define MOST_TRIES 4

#define HAS_DSCP 1
#define HAS_PROTOCOL 2
#define HAS_PORTS 4

#define IPPROTO_UDP 17
#define IPPROTO_SCTP 132

/* By index. */
struct limit {
	__u64 rate;       /* bytes a second; 0 where the member itself has no bucket */
	__u64 lasts;      /* how long a full bucket lasts, in units */
	__u16 overhead;   /* as of the tenant */
	__u16 least;
	__u32 flows;      /* how many flow classes are looked at */
};

/* One cache line each. */
struct bucket {
	__u64 full;       /* when it is full again, in units of the kernel's monotonic clock */
	__u64 rate;       /* the limit that `full` was counted by */
	__u64 lasts;
	__u64 dropped;    /* packets; of a member also those of its flow classes */
	__u64 arrived;    /* packets that a member receives, whether it has a bucket or not */
	__u64 room[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct ports {
	__u16 low;
	__u16 high;
};

/* A flow class: what a packet must have to belong to it, and its bucket's limit. */
struct flow_limit {
	__u64 rate;       /* 0 where it has no bucket: its packets are no later one's */
	__u64 lasts;
	__u32 address[4]; /* of the other end, as on the wire; only bits of the mask are set */
	__u32 mask[4];
	struct ports ports[MOST_PORTS];
	__u8 family;      /* of the address: 4 or 6; 0 for any */
	__u8 dscp;
	__u8 protocol;
	__u8 has;
	__u32 room;
};

struct flow_limits {
	struct flow_limit all[MOST_FLOWS];
};

struct flow_buckets {
	struct bucket all[MOST_FLOWS];
};

/* By index, of members with such flow classes alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct flow_limits);
} flow_limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct flow_buckets);
} flow_buckets SEC(".maps");

/* Whether a bucket has no room for so many bytes; else takes them. */
static __always_inline int is_empty(struct bucket *bucket, __u64 rate, __u64 lasts, __u64 bytes, __u64 now)
{
	__u64 cost = bytes * UNITS / rate, before, from;
	int i;

	/* Time at another rate says nothing: what was owed then is not owed now. */
	if (bucket->rate != rate || bucket->lasts != lasts) {
		bucket->rate = rate;
		bucket->lasts = lasts;
		bucket->full = now;
	}
#pragma unroll
	for (i = 0; i < MOST_TRIES; i++) {
		before = *(volatile __u64 *)&bucket->full;
		from = before > now ? before : now;
		/* One that is larger than the bucket goes when that is full, and is owed after it. */
		if (before > now && from + cost > now + lasts)
			return 1;
		if (__sync_val_compare_and_swap(&bucket->full, before, from + cost) == before)
			return 0;
	}
	/* Other processors came first each time: it passes, and is counted. */
	add(&bucket->full, cost);
	return 0;
}

/* What is looked at of a packet. */
struct seen {
	__u32 address[4]; /* of the other end */
	__u32 from;       /* ports */
	__u32 to;
	__u8 family;
	__u8 dscp;
	__u8 protocol;
};

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

/* As the filter of the queues does (src/planes/linux/htb/filter.rs); 0 where the packet belongs to no flow class. */
static __always_inline int look(struct __sk_buff *skb, int received, struct seen *seen)
{
	__u8 head[4], two[2], next;
	__u32 at = 0, type = type_behind_tags(skb, &at);
	int i;

	if (type == ETH_P_IP) {
		if (bpf_skb_load_bytes(skb, at, head, 2) || bpf_skb_load_bytes(skb, at + 6, two, 2) ||
		    bpf_skb_load_bytes(skb, at + 9, &seen->protocol, 1) ||
		    bpf_skb_load_bytes(skb, at + (received ? 12 : 16), seen->address, 4))
			return 0;
		seen->family = 4;
		seen->dscp = head[1] >> 2;
		/* Of a later fragment the ports are in the first. */
		if (big(two) & 0x1fff)
			return 1;
		at += (head[0] & 15) * 4;
	} else if (type == ETH_P_IPV6) {
		if (bpf_skb_load_bytes(skb, at, head, 2) || bpf_skb_load_bytes(skb, at + 6, &next, 1) ||
		    bpf_skb_load_bytes(skb, at + (received ? 8 : 24), seen->address, 16))
			return 0;
		seen->family = 6;
		seen->dscp = big(head) >> 6 & 63;
		at += 40;
#pragma unroll
		for (i = 0; i < MOST_HEADERS; i++) {
			if (!is_extension(next))
				break;
			if (bpf_skb_load_bytes(skb, at, head, 4))
				return 0;
			at += next == IPPROTO_FRAGMENT ? 8 : (head[1] + 1) * 8;
			if (next == IPPROTO_FRAGMENT && big(head + 2) & 0xfff8) {
				seen->protocol = head[0];
				return 1;
			}
			next = head[0];
		}
		seen->protocol = next;
	} else {
		return 0;
	}
	if (!has_ports(seen->protocol))
		return 1;
	if (bpf_skb_load_bytes(skb, at, head, 4))
		return 0;
	seen->from = big(head);
	seen->to = big(head + 2);
	return 1;
}

static __always_inline int belongs(const struct flow_limit *flow, const struct seen *seen)
{
	int i;

	if ((flow->has & HAS_DSCP && flow->dscp != seen->dscp) ||
	    (flow->has & HAS_PROTOCOL && flow->protocol != seen->protocol) ||
	    (flow->family && flow->family != seen->family))
		return 0;
	/* Of any address the mask is 0. */
#pragma unroll
	for (i = 0; i < 4; i++)
		if ((seen->address[i] & flow->mask[i]) != flow->address[i])
			return 0;
	if (!(flow->has & HAS_PORTS))
		return 1;
#pragma unroll
	for (i = 0; i < MOST_PORTS; i++)
		if ((seen->from >= flow->ports[i].low && seen->from <= flow->ports[i].high) ||
		    (seen->to >= flow->ports[i].low && seen->to <= flow->ports[i].high))
			return 1;
	return 0;
}

/* Whether a packet is above the maximum of its flow class. */
static __noinline int is_above_flow(struct __sk_buff *skb, __u32 index, __u64 bytes, __u64 now)
{
	struct seen seen = { .from = NO_PORT, .to = NO_PORT };
	struct flow_limits *all = bpf_map_lookup_elem(&flow_limits, &index);
	struct flow_buckets *each = bpf_map_lookup_elem(&flow_buckets, &index);
	int i;

	if (!all || !each || !look(skb, index & RECEIVED, &seen))
		return 0;
	for (i = 0; i < MOST_FLOWS; i++) {
		struct flow_limit *flow = &all->all[i];

		if (!flow->lasts || !belongs(flow, &seen))
			continue;
		if (!flow->rate || !is_empty(&each->all[i], flow->rate, flow->lasts, bytes, now))
			return 0;
		add(&each->all[i].dropped, 1);
		return 1;
	}
	return 0;
}

/* Counts what a member receives, so that who has nothing new need not be asked for. */
static __always_inline void count_arrived(__u32 index)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);

	if (bucket)
		add(&bucket->arrived, 1);
}

/* Whether a packet is dropped for the maximum of its member, or of a flow class of it; counts it. */
static __noinline int is_above(struct __sk_buff *skb, __u32 index)
{
	struct limit *limit = bpf_map_lookup_elem(&limits, &index);
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	__u64 now, bytes;
	__u32 number;

	if (!limit || !bucket || !(limit->rate || limit->flows))
		return 0;
	now = bpf_ktime_get_ns() * UNITS_A_NS;
	bytes = frames(skb, limit->overhead, limit->least, &number);
	/* The flow class first: what is dropped for it takes nothing of what its guest may send. */
	if (!(limit->flows && is_above_flow(skb, index, bytes, now)) &&
	    !(limit->rate && is_empty(bucket, limit->rate, limit->lasts, bytes, now)))
		return 0;
	add(&bucket->dropped, 1);
	return 1;
}

#endif
