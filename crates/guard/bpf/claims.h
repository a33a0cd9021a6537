/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which addresses a guest claims in ARP (RFC 826) and in neighbour discovery (RFC 4861), by which its neighbours
 * would send it what is for others; and how much of both it sends, since each is work for all neighbours.
 *
 * Included by classify.bpf.c, behind struct tenant and what it counts with. */
#ifndef VMIO_GUARD_CLAIMS_H
#define VMIO_GUARD_CLAIMS_H

/* Further flags of a tenant. */
#define CHECK_CLAIMS 0x100
/* All its IP addresses are in `owned`. */
#define ADDRESSES_KNOWN 0x200
#define DROP_CLAIMS 0x400
/* It routes for others, so it may announce itself and use any IP address. */
#define ROUTER 0x800

#define ETH_P_ARP 0x0806
#define ARP_REPLY 2
#define IPPROTO_HOPOPTS 0
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define ND_ROUTER_SOLICIT 133
#define ND_ROUTER_ADVERT 134
#define ND_NEIGHBOR_SOLICIT 135
#define ND_NEIGHBOR_ADVERT 136
#define ND_REDIRECT 137

/* Headers and options that are looked through; no honest packet has more. */
#define MOST_HEADERS 4
/* Packets of ARP and neighbour discovery that may come in a window. In 5 s, for which the kernel keeps an entry at
 * least (net/core/neighbour.c, neigh_forced_gc), they cannot fill its table of 1024. */
#define WINDOW_NS 2000000000ull
#define MOST_IN_WINDOW 200

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ON_WIRE(type) __builtin_bswap16(type)
#else
#define ON_WIRE(type) (type)
#endif

/* By slot, one cache line each. */
struct claims {
	__u64 forged;         /* packets that claim what is not the guest's */
	__u64 forged_dropped; /* of those */
	__u64 floods;         /* packets beyond what may come in a window, all dropped */
	__u64 begun;          /* when the window began */
	__u64 asked;          /* packets in it */
	__u64 room[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct claims);
} claims SEC(".maps");

/* An IP address that the guest behind an interface may claim; IPv4 as ::ffff:a.b.c.d. With interface 0: an address
 * that some guest has. */
struct owned {
	__u32 interface;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__type(key, struct owned);
	__type(value, __u32);
} owned SEC(".maps");

/* No interface's slot: all packets of all guests that are counted here, or dropped for their source address. */
#define ALL_CLAIMS 16383

static __always_inline void count_claim(void)
{
	__u32 slot = ALL_CLAIMS;
	struct claims *all = bpf_map_lookup_elem(&claims, &slot);

	if (all)
		add(&all->forged, 1);
}

static __always_inline int is_zero(const __u8 *address)
{
	__u8 any = 0;
	int i;

#pragma unroll
	for (i = 0; i < 16; i++)
		any |= address[i];
	return !any;
}

/* Whether the guest may claim an IP address. Link-local ones need not be in its list, but those are another's that are
 * made of another's Ethernet address (RFC 4291, appendix A). */
static __always_inline int owns(const struct tenant *tenant, struct owned *who)
{
	const __u8 *ip = who->address, *mac = tenant->address;
	__u32 interface = who->interface;
	int local = ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80, others;

	if (local && tenant->flags & CHECK_ADDRESS && ip[11] == 0xff && ip[12] == 0xfe &&
	    (ip[8] != (mac[0] ^ 2) || ip[9] != mac[1] || ip[10] != mac[2] || ip[13] != mac[3] || ip[14] != mac[4] ||
	     ip[15] != mac[5]))
		return 0;
	if (tenant->flags & ROUTER || bpf_map_lookup_elem(&owned, who))
		return 1;
	if (!local && tenant->flags & ADDRESSES_KNOWN)
		return 0;
	/* What is not in its list may be what is in nobody's. */
	who->interface = 0;
	others = bpf_map_lookup_elem(&owned, who) != 0;
	who->interface = interface;
	return !others;
}

static __always_inline int other_mac(struct __sk_buff *skb, const struct tenant *tenant, __u32 at)
{
	__u8 mac[6];

	return tenant->flags & CHECK_ADDRESS && !bpf_skb_load_bytes(skb, at, mac, 6) && !same(mac, tenant->address);
}

/* A probe (sender 0.0.0.0) claims nothing yet (RFC 5227). */
static __always_inline int forged_arp(struct __sk_buff *skb, const struct tenant *tenant, __u32 at, struct owned *who)
{
	__u8 head[8];

	if (bpf_skb_load_bytes(skb, at, head, 8) || big(head + 2) != ETH_P_IP || head[4] != 6 || head[5] != 4)
		return 0;
	if (other_mac(skb, tenant, at + 8))
		return 1;
	if (bpf_skb_load_bytes(skb, at + 14, who->address + 12, 4))
		return 0;
	if (!(who->address[12] | who->address[13] | who->address[14] | who->address[15]))
		return 0;
	who->address[10] = who->address[11] = 0xff;
	return !owns(tenant, who);
}

/* Whether a header of IPv6 is followed by another one, as far as they are looked through. */
static __always_inline int is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_DSTOPTS || header == IPPROTO_ROUTING ||
	       header == IPPROTO_FRAGMENT;
}

/* Where the ICMPv6 message of a packet begins, whose IPv6 header is there; 0 where it has none, -1 where it is hidden
 * behind more headers than are looked through. */
static __always_inline int icmpv6(struct __sk_buff *skb, __u32 at)
{
	__u8 next, head[4];
	int i;

	if (bpf_skb_load_bytes(skb, at + 6, &next, 1))
		return 0;
	at += 40;
#pragma unroll
	for (i = 0; i < MOST_HEADERS; i++) {
		if (next == IPPROTO_ICMPV6)
			return at;
		if (!is_extension(next))
			return 0;
		if (bpf_skb_load_bytes(skb, at, head, 4))
			return 0;
		/* What follows in another fragment than the first is no header. */
		if (next == IPPROTO_FRAGMENT && (head[2] || head[3] & 0xf8))
			return 0;
		at += next == IPPROTO_FRAGMENT ? 8 : (head[1] + 1) * 8;
		next = head[0];
	}
	if (next == IPPROTO_ICMPV6)
		return at;
	return is_extension(next) ? -1 : 0;
}

/* Whether an option from there on names another's Ethernet address as the guest's. */
static __always_inline int forged_option(struct __sk_buff *skb, const struct tenant *tenant, __u32 at)
{
	__u8 head[2];
	int i;

#pragma unroll
	for (i = 0; i < MOST_HEADERS; i++) {
		if (bpf_skb_load_bytes(skb, at, head, 2) || !head[1])
			return 0;
		/* Source and target link-layer address. */
		if ((head[0] == 1 || head[0] == 2) && other_mac(skb, tenant, at + 2))
			return 1;
		at += head[1] * 8;
	}
	return !bpf_skb_load_bytes(skb, at, head, 2);
}

/* A solicitation from :: asks whether an address is free (RFC 4862, 5.4): of its own it may. */
static __always_inline int forged_nd(struct __sk_buff *skb, const struct tenant *tenant, __u32 ip, __u32 at, __u8 type,
				     struct owned *who)
{
	int sender;

	if (type == ND_ROUTER_ADVERT || type == ND_REDIRECT)
		if (!(tenant->flags & ROUTER))
			return 1;
	if (bpf_skb_load_bytes(skb, ip + 8, who->address, 16))
		return 0;
	sender = !is_zero(who->address);
	if (sender && !owns(tenant, who))
		return 1;
	if (type == ND_NEIGHBOR_ADVERT || (type == ND_NEIGHBOR_SOLICIT && !sender)) {
		if (bpf_skb_load_bytes(skb, at + 8, who->address, 16))
			return 0;
		if (!owns(tenant, who))
			return 1;
	}
	/* A router's options are many, and its own matter. */
	if (type == ND_ROUTER_ADVERT || type == ND_REDIRECT)
		return 0;
	return forged_option(skb, tenant, at + (type == ND_ROUTER_SOLICIT ? 8 : 24));
}

/* The type of what follows up to two VLAN tags in the packet itself, and where it begins; 0 where the packet ends. */
static __always_inline __u32 type_behind_tags(struct __sk_buff *skb, __u32 *begin)
{
	__u32 at = ETH_HEADER, type;
	__u8 two[2];
	int i;

	if (bpf_skb_load_bytes(skb, 12, two, 2))
		return 0;
	type = big(two);
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (type != ETH_P_8021Q && type != ETH_P_8021AD)
			break;
		if (bpf_skb_load_bytes(skb, at + 2, two, 2))
			return 0;
		type = big(two);
		at += 4;
	}
	*begin = at;
	return type;
}

/* Whether a packet is dropped for what it claims; counts it. */
static __always_inline int claims_too_much(struct __sk_buff *skb, const struct tenant *tenant)
{
	struct owned who = { .interface = skb->ifindex };
	__u32 at = 0, type = skb->protocol;
	struct claims *seen;
	__u8 two[2];
	__u64 now;
	int forged, answer = 0;

	/* Of all other packets no more than this is looked at. */
	if (type == ON_WIRE(ETH_P_IP))
		return 0;
	type = type_behind_tags(skb, &at);
	if (type == ETH_P_ARP) {
		forged = forged_arp(skb, tenant, at, &who);
		answer = !bpf_skb_load_bytes(skb, at + 6, two, 2) && big(two) == ARP_REPLY;
	} else if (type == ETH_P_IPV6) {
		int message = icmpv6(skb, at);
		__u8 kind = 0;

		if (!message)
			return 0;
		if (message > 0 && (bpf_skb_load_bytes(skb, message, &kind, 1) || kind < ND_ROUTER_SOLICIT ||
				    kind > ND_REDIRECT))
			return 0;
		forged = message < 0 || forged_nd(skb, tenant, at, message, kind, &who);
		answer = kind == ND_NEIGHBOR_ADVERT;
	} else if (type == ETH_P_8021Q || type == ETH_P_8021AD) {
		/* Hidden behind more tags than are looked through. Linux takes off any number of those that name no VLAN. */
		forged = 1;
	} else {
		return 0;
	}
	seen = bpf_map_lookup_elem(&claims, &tenant->slot);
	if (!seen)
		return 0;
	if (forged) {
		add(&seen->forged, 1);
		count_claim();
		if (tenant->flags & DROP_CLAIMS) {
			add(&seen->forged_dropped, 1);
			return 1;
		}
	}
	if (tenant->flags & ROUTER)
		return 0;
	/* An answer to one neighbour is no work for others, and makes no entry in its table (arp_process of
	 * net/ipv4/arp.c, ndisc_recv_na of net/ipv6/ndisc.c). If it counted, a neighbour's questions could use up what
	 * this guest may send. */
	if (answer && !bpf_skb_load_bytes(skb, 0, two, 1) && !(two[0] & 1))
		return 0;
	now = bpf_ktime_get_ns();
	if (now - seen->begun > WINDOW_NS) {
		seen->begun = now;
		seen->asked = 0;
	}
	add(&seen->asked, 1);
	if (seen->asked <= MOST_IN_WINDOW)
		return 0;
	add(&seen->floods, 1);
	count_claim();
	return 1;
}

#endif
