/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a kworker works on. */
#ifndef VMIO_WORKER_H
#define VMIO_WORKER_H

/* `flush-254:0`, `loop0`. Its hash tells it from other work of the thread. */
static __always_inline __u32 working_on(struct task_struct *task, char (*work)[24])
{
	struct kthread *thread = task->worker_private;
	__u64 words[3] = {};
	struct worker *worker;
	__u64 hash;

	if (!bpf_core_field_exists(task->worker_private))
		return 0;
	worker = BPF_CORE_READ(thread, data);
	bpf_core_read_str(words, sizeof(words), &worker->desc);
	__builtin_memcpy(work, words, sizeof(words));
	/* FNV-1a, by words. */
	hash = (0xcbf29ce484222325ull ^ words[0]) * 0x100000001b3ull;
	hash = (hash ^ words[1]) * 0x100000001b3ull;
	hash = (hash ^ words[2]) * 0x100000001b3ull;
	return hash >> 32 ^ hash;
}

#endif
