/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Who waits in fsync on an ext4 (include/trace/events/ext4.h, ext4_sync_file_enter and _exit), and who dirties the
 * pages that are written there (include/trace/events/writeback.h, writeback_dirty_folio: where the kernel itself counts
 * write_bytes of /proc/PID/io, mm/page-writeback.c, folio_account_dirtied).
 *
 * src/trace/syncs.rs reads `users` and mirrors struct user and struct use. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "worker.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* include/uapi/linux/magic.h; ext2 and ext3 have the same one, and the same driver. */
#define EXT4_SUPER_MAGIC 0xef53

/* What could not be counted because a map was full. */
__u64 lost;

/* Who uses which file system. */
struct user {
	__u32 pid;     /* process; thread of the kernel */
	__u32 kernel;  /* 1: a thread of the kernel */
	__u32 work;    /* hash of what a kworker works on, else 0 */
	__u32 device;  /* major << 20 | minor of the file system */
	__u64 inode;   /* what a thread of the kernel flushes, else 0 */
};

struct use {
	__u64 pages;     /* dirtied */
	__u64 syncs;
	__u64 wait_ns;   /* of all of them */
	__u64 worst_ns;  /* of one */
	__u64 cgroup;
	char comm[16];
	char work[24];   /* what a kworker works on */
};

/* Threads in fsync, and since when. The oldest ones make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} waiting SEC(".maps");

/* Not allocated beforehand: an entry is of the size of `use` on every CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct user);
	__type(value, struct use);
} users SEC(".maps");

/* What a new entry of `users` starts from. */
static const struct use empty;

/* Of the thread that runs, on this file system. */
static __always_inline struct use *use_of(__u32 device, __u64 inode)
{
	struct task_struct *task = bpf_get_current_task_btf(), *named = task;
	struct user key = { .device = device };
	char work[24] = {};
	struct use *use;

	key.kernel = !!(task->flags & PF_KTHREAD);
	if (key.kernel) {
		key.pid = task->pid;
		key.inode = inode;
		if (task->flags & PF_WQ_WORKER)
			key.work = working_on(task, &work);
	} else {
		key.pid = task->tgid;
		named = task->group_leader;
	}
	use = bpf_map_lookup_elem(&users, &key);
	if (!use) {
		/* Once a second for each, since the counts are removed when they are read. */
		bpf_map_update_elem(&users, &key, &empty, BPF_NOEXIST);
		use = bpf_map_lookup_elem(&users, &key);
		if (!use) {
			__sync_fetch_and_add(&lost, 1);
			return use;
		}
	}
	if (!use->comm[0]) {
		use->cgroup = bpf_core_field_exists(task->cgroups) ? task->cgroups->dfl_cgrp->kn->id : 0;
		__builtin_memcpy(use->comm, named->comm, sizeof(use->comm));
		__builtin_memcpy(use->work, work, sizeof(work));
	}
	return use;
}

SEC("tp_btf/ext4_sync_file_enter")
int sync_enter(__u64 *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	bpf_map_update_elem(&waiting, &thread, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int sync_exit(__u64 *ctx)
{
	struct inode *inode = (struct inode *)ctx[0];
	__u64 thread = bpf_get_current_pid_tgid(), took;
	__u64 *began = bpf_map_lookup_elem(&waiting, &thread);
	struct use *use;

	if (!began)
		return 0;
	took = bpf_ktime_get_ns() - *began;
	bpf_map_delete_elem(&waiting, &thread);
	use = use_of(inode->i_sb->s_dev, inode->i_ino);
	if (!use)
		return 0;
	use->syncs++;
	use->wait_ns += took;
	if (took > use->worst_ns)
		use->worst_ns = took;
	return 0;
}

static __always_inline int dirtied(__u64 *ctx, __u64 pages)
{
	struct address_space *mapping = (struct address_space *)ctx[1];
	struct super_block *sb;
	struct use *use;

	/* The verifier of newer kernels knows that it may be missing, of a truncated page. */
	if (!mapping)
		return 0;
	sb = mapping->host->i_sb;
	if (sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	use = use_of(sb->s_dev, 0);
	if (use)
		use->pages += pages;
	return 0;
}

static __always_inline __u64 pages_of(struct folio *folio)
{
	struct folio___typed *typed = (void *)folio;
	__u64 flags;

	if (!bpf_core_field_exists(folio->_flags_1) || !bpf_core_enum_value_exists(enum pageflags, PG_head))
		return 1;
	if (bpf_core_field_exists(typed->flags.f))
		flags = typed->flags.f;
	else
		flags = folio->flags;
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;
	return 1ull << (folio->_flags_1 & 31);
}

/* From 5.18; before, it is of a page. */
SEC("tp_btf/writeback_dirty_folio")
int dirty_folio(__u64 *ctx)
{
	return dirtied(ctx, pages_of((struct folio *)ctx[0]));
}

SEC("tp_btf/writeback_dirty_page")
int dirty_page(__u64 *ctx)
{
	return dirtied(ctx, 1);
}
