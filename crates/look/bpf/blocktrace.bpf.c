/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Who uses which disk, and how long each request takes, counted where requests are handed in,
 * handed to the device and completed (include/trace/events/block.h, block/blk-mq.c).
 *
 * A request is noted at first sight, in the context of whoever hands it in: block_io_start (from
 * 6.5), else block_rq_insert, or block_rq_issue where no scheduler queues it. It is counted when it
 * ends. Requests that were under way before the programs were attached are unknown here, and ignored.
 *
 * src/trace/read.rs reads `flows` and mirrors struct key and struct counts. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "bucket.h"
#include "worker.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Whether the kernel has this tracepoint; a constant once the program is loaded. */
#define has_io_start bpf_core_type_exists(btf_trace_block_io_start)

/* What could not be counted because a map was full. */
__u64 lost;

/* Whose requests, on which disk, which way. */
struct key {
	__u32 pid;     /* process; thread of the kernel */
	__u32 work;    /* hash of what a kworker works on, else 0 */
	__u32 device;  /* major << 20 | minor of the whole disk */
	__u32 write;
};

struct name {
	__u32 kernel;   /* 1: a thread of the kernel */
	char comm[16];
	char work[24];  /* what a kworker works on */
};

struct counts {
	__u64 bytes;
	__u64 device_ns;
	__u64 queued_ns;
	__u64 cgroup;
	struct name name;
	__u32 latency[BUCKETS];
	/* The parts of the latency. */
	__u32 in_queue[BUCKETS];
	__u32 at_device[BUCKETS];
};

/* A request under way: one cache line. */
struct pending {
	__u64 request;   /* its address; whoever finds 0 may take the place */
	__u64 issue_ns;  /* 0: not handed to the device yet */
	__u64 cgroup;
	__u64 comm[2];
	__u32 pid;
	__u32 work;
	__u32 bytes;
	__u32 kernel;
} __attribute__((aligned(64)));

/* Requests under way, by address: a table of sets, a request being anywhere in its set. It serves as
 * a hash map at a fraction of the cost of the kernel's own: no lock, no list of free entries, and
 * with few under way each finds its own place first. */
#define SET_BITS 12
#define SETS (1 << SET_BITS)
#define WAYS 8

struct set {
	struct pending pending[WAYS];
	char work[WAYS][24];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SETS);
	__type(key, __u32);
	__type(value, struct set);
} under_way SEC(".maps");

/* Not allocated beforehand: an entry is of the size of `counts` on every CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct counts);
} flows SEC(".maps");

/* What a new entry of `flows` starts from. */
static const struct counts empty;

static __always_inline __u32 operation(struct request *rq)
{
	return rq->cmd_flags & REQ_OP_MASK;
}

/* Requests of programs that talk past the block layer are not in /proc/diskstats either. The block
 * layer's own flush serves all the requests that wait for it: those are counted, it is not. Kernels
 * without block_io_start do not show them, so there the flush itself is counted. */
static __always_inline _Bool counts_as_request(struct request *rq)
{
	__u32 op = operation(rq);

	return op < REQ_OP_PASSTHROUGH && !(has_io_start && op == REQ_OP_FLUSH);
}

static __always_inline __u32 device_of(struct request *rq)
{
	struct request___with_disk *old = (void *)rq;

	if (bpf_core_field_exists(rq->q->disk))
		return rq->q->disk->major << 20 | rq->q->disk->first_minor;
	return old->rq_disk->major << 20 | old->rq_disk->first_minor;
}

/* The control group that a bio is charged to: pages that the kernel writes back bear that of the
 * process that wrote them (version 2 only). 0 where there is none. */
static __always_inline __u64 charged_to(struct request *rq)
{
	struct cgroup *group;

	if (!bpf_core_field_exists(rq->bio->bi_blkg))
		return 0;
	group = rq->bio->bi_blkg->blkcg->css.cgroup;
	/* Version 2 is the first hierarchy that a kernel makes. */
	return group->root->hierarchy_id == 0 ? group->kn->id : 0;
}

static __always_inline struct set *set_of(__u64 id)
{
	__u32 at;

	/* Half of a pointer is a number to the verifier, and may be reckoned with. */
	asm volatile("%0 = %1" : "=w"(at) : "w"((__u32)id));
	/* Fibonacci hashing: requests lie at even distances. */
	at = at * 0x9e3779b1 >> (32 - SET_BITS);
	return bpf_map_lookup_elem(&under_way, &at);
}

/* The request's place in its set; WAYS where it is unknown. */
static __always_inline __u32 find(struct set *set, __u64 id)
{
	__u32 way;

#pragma unroll
	for (way = 0; way < WAYS; way++)
		if (set->pending[way].request == id)
			break;
	barrier_var(way);
	return way;
}

/* A place for it: the one that it had, should its end have been missed, or the first that is free. */
static __always_inline __u32 claim(struct set *set, __u64 id)
{
	__u32 way;

#pragma unroll
	for (way = 0; way < WAYS; way++) {
		__u64 *request = &set->pending[way].request;

		if (*request == id || (!*request && !__sync_val_compare_and_swap(request, 0, id)))
			break;
	}
	barrier_var(way);
	return way;
}

static __always_inline void release(struct set *set, __u32 way)
{
	/* With a barrier: what was read from the place was read before another may take it. */
	if (way < WAYS)
		__sync_lock_test_and_set(&set->pending[way].request, 0);
}

static __always_inline void note(struct request *rq, __u64 issue_ns)
{
	struct task_struct *task = bpf_get_current_task_btf(), *named = task;
	__u64 id = (__u64)rq;
	struct set *set = set_of(id);
	struct pending *new;
	__u32 way;

	if (!set)
		return;
	way = claim(set, id);
	if (way >= WAYS) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	new = &set->pending[way];
	new->issue_ns = issue_ns;
	new->bytes = issue_ns ? rq->__data_len : 0;
	/* As bpf_get_current_cgroup_id does, without the price of a call. */
	new->cgroup = bpf_core_field_exists(task->cgroups) ? task->cgroups->dfl_cgrp->kn->id : 0;
	new->work = 0;
	new->kernel = !!(task->flags & PF_KTHREAD);
	if (new->kernel) {
		__u64 charged = charged_to(rq);

		if (charged)
			new->cgroup = charged;
		new->pid = task->pid;
		if (task->flags & PF_WQ_WORKER)
			new->work = working_on(task, &set->work[way]);
	} else {
		new->pid = task->tgid;
		named = task->group_leader;
	}
	new->comm[0] = *(__u64 *)&named->comm[0];
	new->comm[1] = *(__u64 *)&named->comm[8];
}

SEC("tp_btf/block_io_start")
int io_start(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];

	if (counts_as_request(rq))
		note(rq, 0);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int rq_insert(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct set *set = set_of(ctx[0]);

	/* A request that comes back to the queue keeps its first time. */
	if (set && counts_as_request(rq) && find(set, ctx[0]) >= WAYS)
		note(rq, 0);
	return 0;
}

/* A request that became part of another: it will not end on its own. */
SEC("tp_btf/block_rq_merge")
int rq_merge(__u64 *ctx)
{
	struct set *set = set_of(ctx[0]);

	if (set)
		release(set, find(set, ctx[0]));
	return 0;
}

SEC("tp_btf/block_rq_issue")
int rq_issue(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct set *set = set_of(ctx[0]);
	struct pending *known;
	__u64 now;
	__u32 way;

	if (!set || !counts_as_request(rq))
		return 0;
	now = bpf_ktime_get_ns();
	way = find(set, ctx[0]);
	if (way < WAYS) {
		known = &set->pending[way];
		/* Bytes before any part of it is done; the time of the last handing over, should the
		 * device have sent it back. */
		if (!known->issue_ns)
			known->bytes = rq->__data_len;
		known->issue_ns = now;
	} else if (!has_io_start) {
		note(rq, now);
	}
	return 0;
}

/* Whether this is not the end of the request: the device did a part of it, or it waits for a flush
 * before or after it. */
static __always_inline _Bool goes_on(struct request *rq, __u32 done_bytes)
{
	__u32 flushing = RQF_FLUSH_SEQ_OLD;

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ))
		flushing = 1 << bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
	return rq->__data_len > done_bytes || (has_io_start && rq->rq_flags & flushing);
}

/* Only once a second for each flow, since the counts are removed when they are read. */
static __always_inline struct counts *new_flow(struct key *key)
{
	struct counts *counts;

	bpf_map_update_elem(&flows, key, &empty, BPF_NOEXIST);
	counts = bpf_map_lookup_elem(&flows, key);
	if (!counts)
		__sync_fetch_and_add(&lost, 1);
	return counts;
}

static __always_inline void add(__u32 *buckets, __u64 ns)
{
	__u32 slot = bucket(ns / 1000);

	/* The verifier wants to see the bound that the compiler knows. */
	barrier_var(slot);
	if (slot < BUCKETS)
		buckets[slot]++;
}

static __always_inline void count(struct request *rq, struct pending *known, char (*work)[24])
{
	__u64 now = bpf_ktime_get_ns(), start_ns, issue_ns;
	__u32 op = operation(rq);
	struct counts *counts;
	struct key key = {
		.pid = known->pid,
		.work = known->work,
		.device = device_of(rq),
		.write = op != REQ_OP_READ,
	};

	counts = bpf_map_lookup_elem(&flows, &key);
	if (!counts) {
		counts = new_flow(&key);
		if (!counts)
			return;
	}
	if (!counts->name.comm[0]) {
		counts->cgroup = known->cgroup;
		counts->name.kernel = known->kernel;
		__builtin_memcpy(counts->name.comm, known->comm, sizeof(known->comm));
		if (known->work)
			__builtin_memcpy(counts->name.work, work, sizeof(*work));
	}
	/* The time that /proc/diskstats goes by. It is set by now, not yet at block_io_start. */
	start_ns = rq->start_time_ns;
	/* A flush of nothing is never handed over itself: all its time is the device's. */
	issue_ns = known->issue_ns ?: start_ns;
	/* Where /proc/diskstats is switched off the request has no time; and the clocks of the block
	 * layer and of BPF may be apart by a step of their source. */
	if (!issue_ns || issue_ns > now)
		issue_ns = now;
	if (!start_ns || start_ns > issue_ns)
		start_ns = issue_ns;
	/* What is discarded is not moved. */
	if (op == REQ_OP_READ || op == REQ_OP_WRITE || op == REQ_OP_ZONE_APPEND)
		counts->bytes += known->bytes;
	counts->device_ns += now - issue_ns;
	counts->queued_ns += issue_ns - start_ns;
	add(counts->latency, now - start_ns);
	add(counts->in_queue, issue_ns - start_ns);
	add(counts->at_device, now - issue_ns);
}

SEC("tp_btf/block_rq_complete")
int rq_complete(__u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	struct set *set = set_of(ctx[0]);
	__u32 way;

	if (!set || !counts_as_request(rq) || goes_on(rq, (__u32)ctx[2]))
		return 0;
	way = find(set, ctx[0]);
	if (way < WAYS)
		count(rq, &set->pending[way], &set->work[way]);
	release(set, way);
	return 0;
}
