/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a guest sends arrives at the ingress of its interface's host side (tap, veth). There this says which
 * class of the uplink's hierarchy a packet belongs to (HTB takes skb->priority as a classid where its major is
 * the qdisc's handle: net/sched/sch_htb.c, htb_classify), drops what comes under an address that is not the
 * guest's, or above a maximum without a queue (bucket.h), and counts. An address counts for nothing before that.
 *
 * Each verdict that lets a packet pass is TC_ACT_UNSPEC: others' programs and filters behind this one run as
 * they did before.
 *
 * src/planes/linux/classifier mirrors struct tenant, struct counts, struct lead, struct leaver, struct receiver,
 * struct destination and those of bucket.h; a test compares sizes. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Flags of a tenant. */
#define CHECK_ADDRESS 1
#define REDIRECT 2
/* What is above its maximum is dropped here. */
#define POLICED 4

#define ETH_HEADER 14
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_TCP 6

/* By the index of an interface, in two maps: all are in a hash, and the first of each place also in an array by the
 * lower bits of the index, since a look into a hash takes some 25 ns and one into an array 1. What is in the array
 * counts once its `index` says whose it is, which user space writes last (src/planes/linux/classifier/by_index.rs). No
 * interface has the index 0.
 *
 * Whoever finds something copies it: else the verifier goes through all that follows once for each of the two maps. */
#define BY_INDEX(what, name, most, near)				\
	struct {							\
		__uint(type, BPF_MAP_TYPE_HASH);			\
		__uint(max_entries, most);				\
		__type(key, __u32);					\
		__type(value, struct what);				\
	} name SEC(".maps");						\
									\
	struct {							\
		__uint(type, BPF_MAP_TYPE_ARRAY);			\
		__uint(max_entries, near);				\
		__type(key, __u32);					\
		__type(value, struct what);				\
	} near_##name SEC(".maps");					\
									\
	static __always_inline struct what *what##_of(__u32 index)	\
	{								\
		__u32 at = index % near;				\
		struct what *found = bpf_map_lookup_elem(&near_##name, &at);\
									\
		if (found && index && found->index == index)		\
			return found;					\
		return bpf_map_lookup_elem(&name, &index);		\
	}

struct tenant {
	__u32 priority;   /* classid */
	__u32 flags;
	__u32 redirect;   /* index of the IFB */
	__u32 slot;       /* in `counters` */
	__u16 overhead;   /* bytes that each frame takes beside itself */
	__u16 least;      /* and what it takes at least, with them */
	__u8 address[6];
	__u16 room;       /* a list of IP addresses comes by a map of its own */
	__u32 index;      /* of the interface, as in each value by index */
};

BY_INDEX(tenant, tenants, 16384, 4096)

/* One cache line, so that neighbours on other processors do not wait for each other. */
struct counts {
	__u64 packets;        /* as they came: one of many segments is one */
	__u64 frames;         /* as they go out on a wire */
	__u64 bytes;          /* skb->len */
	__u64 wire_bytes;     /* of all frames, with headers of each and framing */
	__u64 spoofed_packets;
	__u64 spoofed_bytes;
	__u64 above_bytes;    /* of `wire_bytes`, what reached an uplink and was dropped there above a maximum */
	__u64 left_bytes;     /* and what left by one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

static __always_inline __u16 big(const __u8 *bytes)
{
	return (__u16)bytes[0] << 8 | bytes[1];
}

/* Bytes of the headers that each segment repeats; 0 where that cannot be told. Tunnels and IPv6 extension headers
 * are taken for payload. */
static __always_inline __u32 headers(struct __sk_buff *skb)
{
	__u8 two[2], one;
	__u32 at = ETH_HEADER;
	__u16 type;

	if (bpf_skb_load_bytes(skb, 12, two, 2))
		return 0;
	type = big(two);
	if (type == ETH_P_8021Q || type == ETH_P_8021AD) {
		if (bpf_skb_load_bytes(skb, 16, two, 2))
			return 0;
		type = big(two);
		at += 4;
	}
	if (type == ETH_P_IP) {
		__u8 protocol;

		if (bpf_skb_load_bytes(skb, at, &one, 1) || bpf_skb_load_bytes(skb, at + 9, &protocol, 1))
			return 0;
		at += (one & 15) * 4;
		one = protocol;
	} else if (type == ETH_P_IPV6) {
		if (bpf_skb_load_bytes(skb, at + 6, &one, 1))
			return 0;
		at += 40;
	} else {
		return 0;
	}
	if (one != IPPROTO_TCP)
		return at + 8;
	if (bpf_skb_load_bytes(skb, at + 12, &one, 1))
		return 0;
	return at + (one >> 4) * 4;
}

/* memcmp would be a call, which there is none of here. */
static __always_inline int same(const __u8 *one, const __u8 *other)
{
	int i;

#pragma unroll
	for (i = 0; i < 6; i++)
		if (one[i] != other[i])
			return 0;
	return 1;
}

/* Whether the source address is not the guest's. The header is in the packet's linear part, where no helper is needed
 * to read it: a call is a good part of what a packet costs here. */
static __always_inline int is_from_another(struct __sk_buff *skb, const struct tenant *tenant)
{
	const __u8 *begin = (const __u8 *)(long)skb->data, *end = (const __u8 *)(long)skb->data_end;
	__u8 from[6];

	if (begin + ETH_HEADER <= end)
		return !same(begin + 6, tenant->address);
	return bpf_skb_load_bytes(skb, 6, from, 6) || !same(from, tenant->address);
}

/* Says that something has passed. Read first: a line that nobody writes is every processor's. */
static __always_inline void stir(__u32 *stirred)
{
	if (!*stirred)
		*stirred = 1;
}

static __always_inline __u64 wire(__u32 overhead, __u32 least, __u32 frame)
{
	__u32 bytes = frame + overhead;

	return bytes < least ? least : bytes;
}

static __always_inline void add(__u64 *counter, __u64 much)
{
	__sync_fetch_and_add(counter, much);
}

#include "claims.h"

/* Bytes of all frames of a packet on a wire, and how many frames. */
static __always_inline __u64 frames(struct __sk_buff *skb, __u32 overhead, __u32 least, __u32 *number)
{
	__u32 len = skb->len, size = skb->gso_size, header, rest, full;

	header = size ? headers(skb) : 0;
	if (!size || !header || header >= len) {
		*number = 1;
		return wire(overhead, least, len);
	}
	/* gso_segs is 0 where the packet comes from a guest (SKB_GSO_DODGY), so they are counted here, as
	 * net/core/dev.c, qdisc_pkt_len_segs_init does. */
	full = (len - header) / size;
	rest = (len - header) % size;
	*number = full + (rest ? 1 : 0);
	return full * wire(overhead, least, header + size) + (rest ? wire(overhead, least, header + rest) : 0);
}

static __always_inline void count(struct __sk_buff *skb, const struct tenant *tenant, struct counts *counts)
{
	__u32 number;
	__u64 bytes = frames(skb, tenant->overhead, tenant->least, &number);

	add(&counts->packets, 1);
	add(&counts->bytes, skb->len);
	add(&counts->frames, number);
	add(&counts->wire_bytes, bytes);
}

/* Which class a packet got at its interface is written down twice: in skb->priority, as HTB takes it, and the number in
 * skb->tc_index, which routing and veth leave alone where they set the priority anew (net/ipv4/ip_forward.c,
 * ____dev_forward_skb of include/linux/netdevice.h). It is overwritten where another's program or filter on the way
 * ends with a verdict that lets the packet pass (tcx_run and tc_run of net/core/dev.c). */
#define NUMBERS 0x3fff
#define IN_INDEX 0x4000

#include "bucket.h"

/* By the number of a class. */
struct lead {
	__u32 through;    /* index of the IFB through which its packets are led; 0 where they are not */
	__u32 counted;    /* its slot in `counters`, and 1; 0 for none */
	__u16 overhead;   /* as of the tenant */
	__u16 least;
	__u32 policed;    /* what is above its maximum is dropped at the uplink */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct lead);
} led SEC(".maps");

/* By the index of an uplink: the classid of the host's own traffic there; where guests' packets were queued in an IFB
 * before, that of all that comes from there; and where no queue of ours counts what leaves, where that is counted. */
struct leaver {
	__u32 host;
	__u32 staged;
	__u32 through;    /* index of that IFB */
	__u32 stirred;    /* something has left since this was 0 */
	__u32 own;        /* slot in `counters` of the host's own, and 1; 0 where there are queues */
	__u32 others;     /* the same of what is in no class */
	__u16 overhead;   /* as of a tenant */
	__u16 least;
	__u32 index;
};

BY_INDEX(leaver, uplinks, 1024, 64)

/* The number of the class that a packet got at a guest's interface, 0 for none. */
static __always_inline __u32 number(struct __sk_buff *skb, __u32 handle)
{
	__u32 index = skb->ingress_ifindex;
	struct tenant *tenant;

	if (!((skb->priority ^ handle) >> 16))
		return skb->priority & NUMBERS;
	/* Straight from the interface: what a guest's neighbour says of itself counts for nothing. */
	tenant = tenant_of(index);
	if (tenant)
		return tenant->priority & NUMBERS;
	if ((skb->tc_index & ~NUMBERS) == IN_INDEX)
		return skb->tc_index & NUMBERS;
	return 0;
}

/* The counters of a slot, by its number and 1; none for 0. */
static __always_inline struct counts *counted(__u32 beyond)
{
	__u32 slot = beyond - 1;

	return beyond ? bpf_map_lookup_elem(&counters, &slot) : 0;
}

/* Counts what leaves an uplink without queues and is no guest's. */
static __always_inline void count_left(struct __sk_buff *skb, const struct leaver *leaver, __u32 beyond)
{
	struct counts *counts = counted(beyond);
	__u32 many;

	if (counts)
		add(&counts->left_bytes, frames(skb, leaver->overhead, leaver->least, &many));
}

/* What leaves by an uplink, before its queues. What came in nowhere is the host's own, whatever priority its
 * programs have set; what came in somewhere keeps the class that it got there, and any other priority (a router's,
 * from the TOS) counts for nothing. Where there are no queues of ours, those of others find no class of ours in the
 * priority, and any other as it was. What a guest sends is counted as at its interface: the rest of what was counted
 * there went elsewhere on this host. */
SEC("tcx/egress")
int leave(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex, class, many;
	struct leaver *found = leaver_of(index), leaver;
	struct counts *counts;
	struct lead *lead;
	__u64 bytes = 0;

	if (!found)
		return TC_ACT_UNSPEC;
	stir(&found->stirred);
	leaver = *found;
	if (!skb->ingress_ifindex) {
		if (leaver.own)
			count_left(skb, &leaver, leaver.own);
		else
			skb->priority = leaver.host;
		return TC_ACT_UNSPEC;
	}
	class = number(skb, leaver.host);
	if (leaver.own && !((skb->priority ^ leaver.host) >> 16))
		skb->priority = 0;
	if (!class) {
		if (leaver.own)
			count_left(skb, &leaver, leaver.others);
		else
			skb->priority = 0;
		return TC_ACT_UNSPEC;
	}
	lead = bpf_map_lookup_elem(&led, &class);
	if (lead) {
		counts = counted(lead->counted);
		if (counts)
			bytes = frames(skb, lead->overhead, lead->least, &many);
		if (lead->policed && is_above(skb, class)) {
			if (counts)
				add(&counts->above_bytes, bytes);
			return TC_ACT_SHOT;
		}
		if (counts)
			add(&counts->left_bytes, bytes);
	}
	if (leaver.own)
		return TC_ACT_UNSPEC;
	if (!leaver.staged) {
		skb->priority = (leaver.host & 0xffff0000) | class;
		return TC_ACT_UNSPEC;
	}
	/* Another uplink's guest has waited for that one. */
	skb->priority = lead && lead->through == leaver.through ? leaver.staged : 0;
	return TC_ACT_UNSPEC;
}

SEC("tcx/ingress")
int classify(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex;
	struct tenant *found = tenant_of(index), tenant;
	struct counts *counts;

	if (!found) {
		/* Nothing that was set before counts: it goes where everything goes that nobody knows. */
		skb->priority = 0;
		skb->tc_index = 0;
		return TC_ACT_UNSPEC;
	}
	tenant = *found;
	counts = bpf_map_lookup_elem(&counters, &tenant.slot);
	if (tenant.flags & CHECK_ADDRESS && is_from_another(skb, &tenant)) {
		if (counts) {
			add(&counts->spoofed_packets, 1);
			add(&counts->spoofed_bytes, skb->len);
			count_claim();
		}
		return TC_ACT_SHOT;
	}
	if (tenant.flags & CHECK_CLAIMS && claims_too_much(skb, &tenant))
		return TC_ACT_SHOT;
	if (tenant.flags & POLICED && is_above(skb, tenant.priority & NUMBERS))
		return TC_ACT_SHOT;
	skb->priority = tenant.priority;
	skb->tc_index = IN_INDEX | (tenant.priority & NUMBERS);
	if (counts)
		count(skb, &tenant, counts);
	if (tenant.flags & REDIRECT)
		return bpf_redirect(tenant.redirect, 0);
	return TC_ACT_UNSPEC;
}

/* By the index of an uplink: what becomes of what arrives there. */
struct receiver {
	__u32 host;       /* classid of what is for the host itself */
	__u32 other;      /* of what is for nobody in `destinations` */
	__u32 redirect;   /* index of the IFB; 0 where a filter behind this leads there */
	__u32 stirred;    /* something has arrived since this was 0 */
	__u32 index;
};

BY_INDEX(receiver, receivers, 1024, 64)

/* An address behind an uplink: a guest's, or the host's own. */
struct destination {
	__u32 uplink;
	__u8 address[6];
	__u16 room;       /* 0: all bytes of a key count */
};

/* Its classid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct destination);
	__type(value, __u32);
} destinations SEC(".maps");

static __always_inline int reserved(const __u8 *to)
{
	return to[0] == 0x01 && to[1] == 0x80 && to[2] == 0xc2 && !to[3] && !to[4] && to[5] < 16;
}

/* What arrives at an uplink, behind the programs that others have there: its class by where it goes. Groups
 * (broadcast, multicast) are nobody's own, but for those that no bridge forwards (01:80:c2:00:00:0x: LACP, STP,
 * LLDP), which are the host's. From the IFB it comes back to where it was led away and is not seen here again. */
SEC("tcx/ingress")
int receive(struct __sk_buff *skb)
{
	struct destination to = { .uplink = skb->ifindex };
	struct receiver *found = receiver_of(to.uplink), receiver;
	__u32 *class, index;

	if (!found)
		return TC_ACT_UNSPEC;
	stir(&found->stirred);
	receiver = *found;
	skb->priority = receiver.other;
	if (!bpf_skb_load_bytes(skb, 0, to.address, 6)) {
		class = bpf_map_lookup_elem(&destinations, &to);
		if (class)
			skb->priority = *class;
		else if (reserved(to.address))
			skb->priority = receiver.host;
	}
	index = RECEIVED | (skb->priority & NUMBERS);
	count_arrived(index);
	if (is_above(skb, index))
		return TC_ACT_SHOT;
	if (receiver.redirect)
		return bpf_redirect(receiver.redirect, 0);
	return TC_ACT_UNSPEC;
}
