//! Which part of the kernel an address is of: the function at it (`/proc/kallsyms`), and by its name or its module the
//! subsystem. Names of functions are no interface: what no row has is `kernel, other`.

use std::path::Path;

use vmio_node::Reader;
use vmio_node::linux::kallsyms::{FILE, Function};

/// What no row has, or whose name is not known.
pub const OTHER: &str = "kernel, other";

/// Modules by the beginnings of their names; any other is a component by its own name (`kvm`, `kvm_amd`).
const MODULES: &[(&str, &str)] = &[
    ("kernel, block", "nvme virtio_blk virtio_scsi scsi_mod sd_mod dm_ loop libata ahci md_mod raid"),
    ("kernel, files", "ext4 jbd2 xfs btrfs fuse nfs overlay zfs spl"),
    (
        "kernel, network",
        "virtio_net tun tap bridge br_netfilter vhost nf_ nft_ x_tables ip_tables veth openvswitch macv sch_ cls_ \
         act_ ifb",
    ),
    ("kernel, tracing", "bpf"),
];

/// Functions by the beginnings of their names, without underscores before them and without what goes before the name
/// of a system call. The longest beginning counts.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "kernel, block",
        "blk bio_ submit_bio elv_ dd_ bfq_ kyber_ nvme_ virtblk_ virtio_queue_rq loop_ lo_ sd_ scsi_ dm_ md_ \
         sbitmap_ block_ bdev_ disk_ part_ rq_ rwb_ wbt_ iocg_ ioc_ throtl_ tg_ ata_ ahci_",
    ),
    (
        "kernel, files",
        "vfs_ generic_file_ generic_perform_ generic_write_ file_ filemap_ iomap_ read write pread pwrite preadv \
         pwritev readv writev do_iter_ new_sync_ rw_verify fdget fget fput path_ link_path lookup_ d_ dput dget \
         dentry inode_ iput ext4_ jbd2_ xfs_ btrfs_ fuse_ nfs_ ovl_ open do_filp close stat new_stat getname \
         fsnotify fs_ touch_atime atime_ mnt_ mntput mntget dio_ writeback_ wb_ page_cache_ readahead fsync \
         fdatasync file fcntl lseek ksys_ kiocb sync_ import_iovec aops_ simple_ proc_ seq_ kernfs_ shmem_file_ \
         generic_fillattr newfstat newstat faccess access step_into set_root terminate_walk mark_buffer find_get_block \
         es_ drop_buffers",
    ),
    (
        "kernel, network",
        "sock_ sk_ tcp_ udp ip_ ip6_ ipv6_ inet skb_ consume_skb kfree_skb alloc_skb build_skb napi_ net_ netif_ \
         netdev_ dev_ neigh_ fib_ rt_ dst_ eth_ tun_ tap_ br_ veth_ nf_ nft_ ipt_ virtnet_ xdp_ qdisc_ htb_ tbf_ \
         pfifo_ tcf_ cls_ sch_direct unix_ send recv csum_ vhost_ process_backlog validate_xmit sys_send sys_recv \
         packet_ bbr_ xmit_",
    ),
    (
        "kernel, scheduler",
        "schedule sched_ pick_ enqueue_task dequeue_task enqueue_entity dequeue_entit update_curr update_load \
         update_rq update_se update_cfs try_to_wake ttwu_ select_task select_idle finish_task context_switch \
         switch_to switch_mm switch_fpu wake_up wakeup_ set_next_ put_prev_ prepare_task load_balance balance_ \
         newidle place_entity reweight cpuacct psi_ task_tick resched_ cpu_startup set_cpus migrate_task \
         default_wake autoremove_wake prepare_to_ finish_wait kthread worker_thread process_one_work queue_work \
         insert_work queue_delayed wait_for_comp complete avg_vruntime entity_ vruntime_ fair_ rebalance_ calc_ \
         detach_ attach_ cgroup_ yield do_task_dead task_work io_schedule",
    ),
    (
        "kernel, timers",
        "hrtimer tick_ timer ktime_ clockevents nanosleep do_nanosleep clock_ common_timer posix_timer itimer \
         run_timer timekeeping read_tsc kvm_clock pvclock lapic_next native_sched_clock update_process_times \
         sysvec_apic_timer timens next_timer mod_timer sched_clock local_clock delay_",
    ),
    (
        "kernel, memory",
        "alloc_pages alloc_frozen get_page put_page free_ page_ pte_ pmd_ pud_ p4d_ pgd_ handle_mm do_anon do_wp \
         do_fault do_user_addr exc_page_fault asm_exc_page clear_page clear_huge clear_user_page copy_page \
         copy_mc folio lru_ lruvec shmem_ mas_ mt_ vma_ kmem_ kmalloc kfree kvfree kvmalloc slab alloc_slab memcg \
         mem_cgroup mod_memcg mod_node mod_lruvec charge_ try_charge uncharge unmap_ zap_ tlb_ flush_tlb mmap \
         munmap do_mmap vm_ anon_vma rmap gup_ pin_user unpin_ get_user_pages internal_get_user try_grab rmqueue \
         rmap_ swap shrink_ isolate_ migrate_ khugepaged ksm_ damon_ compact_ numa_ mprotect madvise brk pcpu_ \
         percpu_ xas_ xa_ next_uptodate set_pte set_ptes do_brk vmalloc find_vma lock_vma virt_addr_valid \
         check_object wp_page vmf_ mm_ iov_iter_get iov_iter_extract memset unlink_anon release_pages \
         get_mem_cgroup refill_ drain_ native_set_pte pi_memset pi_clear \
         get_vma policy_ count_memcg pfn_ vms_ workingset_ zone_ reclaim_ mab_ arch_check_zapped get_unmapped",
    ),
    (
        "kernel, copying",
        "copy_to_user copy_from_user copy_user rep_movs rep_stos copy_to_iter copy_from_iter copy_page_to_iter \
         copy_page_from_iter copy_folio_from_iter copyin copyout iov_iter memcpy memmove get_user put_user \
         clear_user strncpy_from_user strnlen_user skb_copy_datagram copy_fpstate csum_partial_copy pi_memcpy",
    ),
    ("kernel, asynchronous I/O", "io_ aio_ kioctx lookup_ioctx iocb_ do_io_getevents read_events kiocb_"),
    (
        "kernel, waiting",
        "futex do_futex poll do_poll do_sys_poll ppoll select do_select core_sys_select ep_ epoll do_epoll \
         eventfd pipe_ anon_pipe signal do_signal send_signal sigaction rt_sig get_signal datagram_poll \
         hash_futex wait_woken signalfd timerfd",
    ),
    (
        "kernel, entry and exit",
        "entry_ syscall_ do_syscall x64_sys_call asm_ irqentry_ exc_ exit_to_user sysvec_ error_entry \
         error_return paranoid_ common_interrupt swapgs ret_from_ fpregs_ fpu_ restore_fp save_fp native_iret \
         srso_ retbleed arch_exit audit_ seccomp_ user_exit user_enter ct_ sync_regs",
    ),
    ("kvm", "kvm_ vmx_ svm_ vcpu_ x86_emulate nested_ apic_ kvm"),
    (
        "kernel, locks",
        "raw_spin mutex_ rwsem down_ up_ osq_ queued_ native_queued rt_mutex lock_ ww_ local_bh rwlock raw_read \
         raw_write pv_queued raw_callee_save",
    ),
    (
        "kernel, interrupts",
        "irq_ handle_irq handle_edge handle_fasteoi handle_softirq do_softirq softirq tasklet raise_ ksoftirqd \
         run_ksoftirqd generic_handle msi_ vring_interrupt vp_ apic_eoi native_apic x2apic flush_smp smp_ \
         generic_smp call_function asm_common_interrupt native_send default_send do_idle default_idle \
         pv_native_safe_halt cpuidle send_call virtqueue_ vring_ virtio_ detach_buf io_apic",
    ),
    ("kernel, RCU", "rcu_ call_rcu note_gp srcu_ kfree_rcu invoke_rcu synchronize_"),
    ("kernel, security", "security_ apparmor_ aa_ selinux_ avc_ cap_ landlock_ lockdown ima_ bpf_lsm"),
    ("kernel, tracing", "perf_ bpf_ trace_ ftrace tracing_ ring_buffer_ htab_ btf_"),
    (
        "kernel, processes",
        "fork clone copy_process copy_mm dup_ exec do_exec load_elf do_exit do_group_exit exit_ release_task \
         wait4 do_wait begin_new_exec bprm_ search_binary copy_strings put_task delayed_put pid_ find_task task_ \
         proc_fork setup_arg wait_consider",
    ),
];

/// What goes before the name of a system call (Linux arch/x86/include/asm/syscall_wrapper.h and its likes).
const CALLS: [&str; 5] = ["x64_sys_", "ia32_sys_", "arm64_sys_", "se_sys_", "do_sys_"];

/// The functions of the running kernel.
#[derive(Debug)]
pub struct Symbols {
    text: String,
    /// Where each begins, and its line in the text; ascending.
    starts: Vec<(u64, usize)>,
}

impl Symbols {
    /// Reads them; `None` where the kernel hides their addresses, or the file cannot be read.
    pub fn read(reader: &dyn Reader) -> Option<Self> {
        Self::of(reader.read_text(Path::new(FILE)).ok()?)
    }

    fn of(text: String) -> Option<Self> {
        let lines = memchr::memchr_iter(b'\n', text.as_bytes());
        let mut from = 0;
        let mut starts = Vec::new();
        for end in lines.chain([text.len()]) {
            starts.extend(Function::parse(&text[from..end]).map(|function| (function.address, from)));
            from = (end + 1).min(text.len());
        }
        starts.sort_unstable();
        (!starts.is_empty()).then_some(Self { text, starts })
    }

    /// The component of an address.
    pub fn component(&self, address: u64) -> String {
        let Some(at) = self.starts.partition_point(|(start, _)| *start <= address).checked_sub(1) else {
            return OTHER.to_owned();
        };
        let line = self.text[self.starts[at].1..].lines().next().unwrap_or_default();
        Function::parse(line).map_or_else(|| OTHER.to_owned(), |function| component(&function).to_owned())
    }
}

/// The component of a function.
fn component<'a>(function: &Function<'a>) -> &'a str {
    if let Some(module) = function.module {
        return longest(MODULES, module).unwrap_or(module);
    }
    let bare = function.name.trim_start_matches('_');
    let called = CALLS.iter().find_map(|call| bare.strip_prefix(call));
    // `x64_sys_call` is no system call: it calls them.
    called.and_then(|called| longest(FUNCTIONS, called)).or_else(|| longest(FUNCTIONS, bare)).unwrap_or(OTHER)
}

/// The row with the longest beginning of a name.
fn longest(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    let beginnings = table.iter().flat_map(|(row, all)| all.split_ascii_whitespace().map(move |one| (one, *row)));
    let fits = beginnings.filter(|(one, _)| name.starts_with(one));
    fits.max_by_key(|(one, _)| one.len()).map(|(_, row)| row)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    /// Lines of kernels 6.1 and 6.18, not in the order of their addresses.
    const RECORDED: &str = "\
ffffffff81000000 T _stext
ffffffff81203040 t io_submit_one
ffffffff81200000 T __x64_sys_io_submit
ffffffff81300000 T blk_mq_submit_bio
ffffffff81310000 T ext4_file_read_iter
ffffffff81320000 T __raw_spin_unlock_irqrestore
ffffffff81330000 T tcp_sendmsg
ffffffff81340000 t finish_task_switch.isra.0
ffffffff81350000 T asm_exc_page_fault
ffffffff81360000 T clear_page_erms
ffffffff81370000 T strange_function_of_its_own
ffffffff82600000 D jiffies
ffffffffc0800000 t svm_vcpu_run\t[kvm_amd]
ffffffffc0700000 t vcpu_enter_guest\t[kvm]
ffffffffc0600000 t ext4_map_blocks\t[ext4]
ffffffffc0900000 t bpf_prog_1234_x\t[bpf]
";

    #[test]
    fn an_address_is_of_the_function_before_it() {
        let symbols = Symbols::of(RECORDED.to_owned()).unwrap();
        let at = |address: u64| symbols.component(0xffff_ffff_0000_0000 + address);
        assert_eq!(at(0x8120_3050), "kernel, asynchronous I/O");
        assert_eq!(at(0x8120_0000), "kernel, asynchronous I/O", "the first byte of a system call");
        assert_eq!(at(0x8130_1234), "kernel, block");
        assert_eq!(at(0x8131_1234), "kernel, files");
        assert_eq!(at(0x8132_0001), "kernel, locks");
        assert_eq!(at(0x8133_0001), "kernel, network");
        assert_eq!(at(0x8134_0001), "kernel, scheduler");
        assert_eq!([at(0x8135_0001), at(0x8136_0001)], ["kernel, memory"; 2]);
        assert_eq!(at(0x8137_0001), OTHER);
        assert_eq!([at(0xc070_0010), at(0xc080_0010)], ["kvm", "kvm_amd"], "modules by their names");
        assert_eq!(at(0xc060_0010), "kernel, files", "a module of a subsystem");
        assert_eq!(at(0xc090_0010), "kernel, tracing");
        assert_eq!(symbols.component(0x1000), OTHER, "before the first");
    }

    #[test]
    fn a_system_call_is_of_its_own_subsystem() {
        let of = |name| component(&Function { address: 1, name, module: None });
        assert_eq!([of("__x64_sys_pread64"), of("__se_sys_io_submit")], ["kernel, files", "kernel, asynchronous I/O"]);
        assert_eq!([of("x64_sys_call"), of("do_syscall_64")], ["kernel, entry and exit"; 2]);
        assert_eq!([of("__x64_sys_getpid"), of("do_sys_poll")], [OTHER, "kernel, waiting"]);
        // The longest beginning counts, not `sync_` or `send`.
        assert_eq!(
            [of("sync_regs"), of("send_call_function_single_ipi")],
            ["kernel, entry and exit", "kernel, interrupts"]
        );
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Symbols::of("0000000000000000 T _stext\n0000000000000000 t x\n".into()).is_none());
        assert!(Symbols::of(String::new()).is_none());
    }

    /// Of two rows with the same beginning one would never be reached.
    #[test]
    fn each_beginning_is_in_one_row() {
        for table in [MODULES, FUNCTIONS] {
            let mut all = BTreeSet::new();
            for (row, beginnings) in table {
                let mut each = beginnings.split_ascii_whitespace();
                each.try_for_each(|one| all.insert(one).then_some(()).ok_or(one)).unwrap_or_else(|one| {
                    panic!("{one} twice, once in {row}");
                });
            }
        }
    }
}
