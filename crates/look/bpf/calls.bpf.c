/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How long the host takes for what watched hypervisors ask of it for their guests' disks: system calls
 * (include/trace/events/syscalls.h, sys_enter and sys_exit) and requests by io_uring (include/trace/events/io_uring.h,
 * io_uring_submit_req and io_uring_complete), each from its beginning to its end.
 *
 * src/trace/calls.rs fills `kinds` and `watched`, reads `calls` and mirrors enum kind, struct key and struct counts. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "bucket.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* What could not be counted because a map was full. */
__u64 lost;

/* SUBMIT: io_submit(2), which hands several requests over and does not wait for their end. */
enum kind { NONE, READ, WRITE, FLUSH, SUBMIT };

struct key {
	__u32 pid;   /* process */
	__u32 kind;
};

struct counts {
	__u64 ns;
	__u64 done;  /* sum of what they returned: bytes, of SUBMIT requests */
	__u32 latency[BUCKETS];
};

/* What is under way, and since when. */
struct call {
	__u64 began_ns;
	struct key key;
};

/* Kinds of system calls by their number, which differs between architectures. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u32);
} kinds SEC(".maps");

/* Processes that are watched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

/* By thread, of which each has one system call at once, or by the address of io_uring's request. The oldest ones make
 * room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct call);
} under_way SEC(".maps");

/* Not allocated beforehand: an entry is of the size of `counts` on every CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct counts);
} calls SEC(".maps");

/* What a new entry of `calls` starts from. */
static const struct counts empty;

static __always_inline _Bool is_watched(__u32 pid)
{
	return bpf_map_lookup_elem(&watched, &pid) != 0;
}

static __always_inline void begin(__u64 id, __u32 pid, __u32 kind)
{
	struct call call = { .began_ns = bpf_ktime_get_ns(), .key = { .pid = pid, .kind = kind } };

	if (bpf_map_update_elem(&under_way, &id, &call, BPF_ANY))
		__sync_fetch_and_add(&lost, 1);
}

/* Takes out what began under this id; whether anything did. */
static __always_inline _Bool end(__u64 id, struct call *call)
{
	struct call *known = bpf_map_lookup_elem(&under_way, &id);

	if (!known)
		return 0;
	*call = *known;
	bpf_map_delete_elem(&under_way, &id);
	return 1;
}

/* What failed is not counted. */
static __always_inline void count(struct call *call, __s64 result)
{
	__u64 took = bpf_ktime_get_ns() - call->began_ns;
	struct key key = call->key;
	struct counts *counts;
	__u32 slot;

	if (result < 0)
		return;
	counts = bpf_map_lookup_elem(&calls, &key);
	if (!counts) {
		/* Once a reading for each, since the counts are removed when they are read. */
		bpf_map_update_elem(&calls, &key, &empty, BPF_NOEXIST);
		counts = bpf_map_lookup_elem(&calls, &key);
		if (!counts) {
			__sync_fetch_and_add(&lost, 1);
			return;
		}
	}
	counts->ns += took;
	counts->done += result;
	slot = bucket(took / 1000);
	/* The verifier wants to see the bound that the compiler knows. */
	barrier_var(slot);
	if (slot < BUCKETS)
		counts->latency[slot]++;
}

SEC("tp_btf/sys_enter")
int call_begins(__u64 *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 number = ctx[1], pid = thread >> 32;
	__u32 *kind = bpf_map_lookup_elem(&kinds, &number);

	/* All processes of the host come here: most leave without a second look-up. */
	if (!kind || *kind == NONE || !is_watched(pid))
		return 0;
	begin(thread, pid, *kind);
	return 0;
}

SEC("tp_btf/sys_exit")
int call_ends(__u64 *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call call;

	if (is_watched(thread >> 32) && end(thread, &call))
		count(&call, ctx[1]);
	return 0;
}

/* include/uapi/linux/io_uring.h: enum io_uring_op */
static __always_inline __u32 kind_of(__u8 opcode)
{
	switch (opcode) {
	case 1:   /* IORING_OP_READV */
	case 4:   /* IORING_OP_READ_FIXED */
	case 22:  /* IORING_OP_READ */
		return READ;
	case 2:   /* IORING_OP_WRITEV */
	case 5:   /* IORING_OP_WRITE_FIXED */
	case 23:  /* IORING_OP_WRITE */
		return WRITE;
	case 3:   /* IORING_OP_FSYNC */
	case 17:  /* IORING_OP_FALLOCATE */
		return FLUSH;
	}
	return NONE;
}

SEC("tp_btf/io_uring_submit_req")
int ring_begins(__u64 *ctx)
{
	struct io_kiocb *req = (struct io_kiocb *)ctx[0];
	__u32 pid = bpf_get_current_pid_tgid() >> 32, kind;

	if (!is_watched(pid))
		return 0;
	kind = kind_of(req->opcode);
	if (kind != NONE)
		begin(ctx[0], pid, kind);
	return 0;
}

/* The result is not among the arguments of every kernel, but always in the request. */
SEC("tp_btf/io_uring_complete")
int ring_ends(__u64 *ctx)
{
	struct io_kiocb *req = (struct io_kiocb *)ctx[1];
	struct call call;

	if (end(ctx[1], &call))
		count(&call, BPF_CORE_READ(req, cqe.res));
	return 0;
}
