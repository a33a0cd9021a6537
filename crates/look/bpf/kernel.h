/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The few kernel types that the programs read. Only the fields that are used stand here: with
 * preserve_access_index libbpf moves each access to where the running kernel has the field (CO-RE),
 * so neither order nor size matter. Names with three underscores are other versions of a type; what
 * follows the underscores is ignored when it is looked up. */
#ifndef VMIO_KERNEL_H
#define VMIO_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* include/uapi/linux/bpf.h */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_HASH = 5, BPF_MAP_TYPE_LRU_HASH = 9 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 };

/* include/linux/sched.h */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

/* include/linux/blk_types.h: enum req_op, the low bits of cmd_flags */
#define REQ_OP_MASK 0xff
enum { REQ_OP_READ = 0, REQ_OP_WRITE = 1, REQ_OP_FLUSH = 2, REQ_OP_ZONE_APPEND = 7 };
/* The first of the operations by which a driver or a program talks past the block layer. */
#define REQ_OP_PASSTHROUGH 32

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

/* A task's groups; dfl_cgrp is that of version 2. */
struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct blkcg_gq *bi_blkg;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	__u32 cmd_flags;
	__u32 rq_flags;
	__u32 __data_len;
	struct bio *bio;
	__u64 start_time_ns;
};

/* Until 5.16 the request knew its disk. */
struct request___with_disk {
	struct gendisk *rq_disk;
};

/* From 6.11 the flags are numbered; before, RQF_FLUSH_SEQ was 1 << 4. */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
};
#define RQF_FLUSH_SEQ_OLD (1 << 4)

struct task_struct {
	__u32 flags;
	int pid;
	int tgid;
	char comm[16];
	struct task_struct *group_leader;
	void *worker_private;
	struct css_set *cgroups;
};

/* include/linux/fs.h */
struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct address_space {
	struct inode *host;
};

/* include/linux/mm_types.h: the low byte of _flags_1 is the order of one with PG_head (folio_large_order, from 6.6;
 * ext4 has large ones from 6.16). From 6.18 the flags are a type of their own. */
struct folio {
	unsigned long flags;
	unsigned long _flags_1;
};

struct folio___typed {
	struct {
		unsigned long f;
	} flags;
};

/* include/linux/page-flags.h */
enum pageflags {
	PG_head = 6,
};

/* kernel/kthread.c and kernel/workqueue_internal.h: a kworker's thread says what it works on. */
struct kthread {
	void *data;
};

struct worker {
	char desc[24];
};

/* include/linux/io_uring_types.h */
struct io_cqe {
	__s32 res;
};

struct io_kiocb {
	__u8 opcode;
	struct io_cqe cqe;
};

#pragma clang attribute pop

/* Each tracepoint has a type of this form. */
typedef void (*btf_trace_block_io_start)(void *, struct request *);

#endif
