//! Processors and memory of a running QEMU: its command line, its threads and its control group.

use std::path::Path;

use vmio_model::facts::{Fact, HostCpu, PlacedThread, Processors, Source, Subject, Unread};
use vmio_model::result::Accel;
use vmio_node::linux;
use vmio_node::linux::mounts::Mount;
use vmio_node::linux::process::Status;

use super::super::process::{DEFAULT, Process, unread};
use super::super::quota;
use super::system;
use crate::qemu::options::{Opt, size};
use crate::qemu::threads::{MONITOR, Role};

/// QEMU's default memory (hw/core/machine.c).
const MEMORY: u64 = 128 << 20;
const MIB: u64 = 1 << 20;
/// Longest id of an I/O thread that fits in a thread's name of 15 bytes, after `IO `.
const LONGEST_ID: usize = 12;

/// Name of QEMU's RCU thread. It has one or not, since it may start before QEMU knows that it is to name threads
/// (util/rcu.c; both were seen with the same command line).
const RCU: &str = "call_rcu";

/// Most threads of a guest that are read; QEMU has at most 64 workers, and a few hundred vCPUs.
const MOST_THREADS: usize = 4096;

/// The processors of a process. What is unreadable is added to `missing`.
pub fn processors(process: &Process<'_>, host: &[HostCpu], missing: &mut Vec<Unread>) -> Processors {
    let mut own = Processors::unknown(Subject::guest(&process.name), process.provenance());
    if !host.is_empty() {
        own.host = Fact::read(host.to_vec(), "/sys/devices/system/cpu");
    }
    threads(process, &mut own, missing);
    vcpus(process, &mut own);
    accel(process, &mut own);
    model(process, &mut own);
    if let Some((windows, from)) = system::windows(process, &own.flags) {
        own.windows = Fact::read(Some(windows), from);
    }
    if let Some((on, from)) = system::hpet(process) {
        own.hpet = Fact::read(Some(on), from);
    }
    memory(process, &mut own);
    quota::fill(process, &mut own);
    own
}

/// Its threads: what each is for, by its name, and its affinity.
fn threads(process: &Process<'_>, own: &mut Processors, missing: &mut Vec<Unread>) {
    let tids = match linux::process::threads(process.reader(), process.pid) {
        Ok(tids) => tids,
        Err(e) => return missing.push(unread(process.reader(), format!("threads of guest {}", process.name), &e)),
    };
    own.threads = Fact::read(Vec::new(), format!("/proc/{}/task/*/status", process.pid));
    let mut unnamed = Vec::new();
    let mut program = String::new();
    for tid in tids.into_iter().take(MOST_THREADS) {
        let Ok(status) = Status::of_thread(process.reader(), process.pid, tid) else { continue }; // it has ended
        let (comm, cpus) = (status.name(), status.cpus().unwrap_or_default());
        let role = match Role::of_name(comm) {
            // An I/O thread of the guest may have the name of the monitor's thread.
            Some(Role::Other) if comm == MONITOR && serves(process, &MONITOR[3..]) => {
                Role::Iothread(MONITOR[3..].to_owned())
            }
            Some(role) => role,
            None if tid == process.pid => Role::Main,
            None => Role::Other,
        };
        match role {
            Role::Main => comm.clone_into(&mut program),
            Role::Other => unnamed.push((tid, comm.to_owned())),
            _ => {}
        }
        let name = match &role {
            Role::Vcpu(n) => n.to_string(),
            Role::Iothread(id) => id.clone(),
            _ => String::new(),
        };
        own.threads.amend().push(PlacedThread { role: role.key().to_owned(), name, tid, cpus });
    }
    let rcu = unnamed.iter().all(|(_, comm)| comm != RCU);
    unnamed.retain(|(_, comm)| *comm == program);
    long_names(process, own, unnamed.into_iter().map(|(tid, _)| tid).collect(), usize::from(rcu), missing);
    // Before Linux 6.4 a vhost thread is a kernel thread (kernel/vhost_task.c).
    let kernel = format!("vhost-{}", process.pid);
    for seen in process.host.processes().iter().filter(|p| p.comm == kernel && p.args.iter().all(Vec::is_empty)) {
        let status = Status::of(process.reader(), seen.pid).unwrap_or_default();
        let cpus = status.cpus().unwrap_or_default();
        own.threads.amend().push(PlacedThread { role: "vhost".into(), name: String::new(), tid: seen.pid, cpus });
    }
    if !own.threads.iter().any(|t| t.role == "vcpu") && !own.threads.is_empty() {
        let named = process.line.get("name", "debug-threads").is_some_and(|on| on == "on");
        let (why, mend) = if named {
            ("it has none yet: it is starting", "look again")
        } else {
            ("QEMU does not name its threads", "start it with -name NAME,debug-threads=on")
        };
        missing.push(Unread {
            what: format!("which threads of guest {} run its vCPUs", process.name),
            why: why.into(),
            mend: mend.into(),
        });
    }
}

/// Whether a device uses an I/O thread of that id.
fn serves(process: &Process<'_>, id: &str) -> bool {
    process.line.all("device").any(|device| device.get("iothread") == Some(id))
}

/// I/O threads whose names are too long keep the program's name (pthread_setname_np(3) fails). They start in the order
/// of the command line, after the RCU thread, so they are known where exactly `before` other threads have no name.
fn long_names(
    process: &Process<'_>,
    own: &mut Processors,
    mut unnamed: Vec<u32>,
    before: usize,
    missing: &mut Vec<Unread>,
) {
    let of_objects = process.line.all("object").filter(|o| o.get("qom-type") == Some("iothread")).filter_map(Opt::id);
    let long: Vec<&str> = of_objects.filter(|id| id.len() > LONGEST_ID).collect();
    if long.is_empty() {
        return;
    }
    unnamed.sort_unstable();
    let in_order = unnamed.first().is_some_and(|first| *first > process.pid);
    if unnamed.len() != long.len() + before || !in_order {
        return missing.push(Unread {
            what: format!("which threads of guest {} are its I/O threads {}", process.name, long.join(", ")),
            why: "their names are too long for the kernel".into(),
            mend: "ask the guest's monitor (QMP query-iothreads)".into(),
        });
    }
    for (tid, id) in unnamed.into_iter().skip(before).zip(long) {
        if let Some(thread) = own.threads.amend().iter_mut().find(|t| t.tid == tid) {
            (thread.role, thread.name) = ("iothread".into(), id.to_owned());
        }
    }
}

fn vcpus(process: &Process<'_>, own: &mut Processors) {
    let running = own.threads.iter().filter(|t| t.role == "vcpu").count() as u32;
    let asked = smp(process);
    // One thread may run all vCPUs under TCG (`thread=single`).
    let single = running == 1 && asked > Some(1);
    let (vcpus, from) = match (running, asked) {
        (n, _) if n > 0 && !single => (n, format!("/proc/{}/task, threads named CPU", process.pid).into()),
        (_, Some(n)) => (n, process.option("smp")),
        (_, None) => (1, DEFAULT),
    };
    own.vcpus = Fact::read(Some(vcpus), from);
}

/// vCPUs of `-smp`: its first value, or the product of its parts (QEMU, hw/core/machine-smp.c); and those that are
/// devices (docs/system/cpu-hotplug.rst).
fn smp(process: &Process<'_>) -> Option<u32> {
    let is_cpu = |device: &&Opt| device.get("driver").is_some_and(|driver| driver.ends_with("-cpu"));
    let plugged = process.line.all("device").filter(is_cpu).count() as u32;
    let get = |key: &str| process.line.get("smp", key)?.parse::<u32>().ok().filter(|n| *n > 0);
    let parts = ["drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads"];
    let product = parts.iter().filter_map(|p| get(p)).reduce(u32::saturating_mul);
    Some(get("cpus").or(get("maxcpus").filter(|_| product.is_none())).or(product)?.saturating_add(plugged))
}

fn accel(process: &Process<'_>, own: &mut Processors) {
    let alone = process.line.all("accel").next().and_then(|a| a.get("accel"));
    let asked = alone.or(process.line.get("machine", "accel"));
    let said = process.option(if alone.is_some() { "accel" } else { "machine" });
    let program = process.args.first().and_then(|p| p.rsplit('/').next()).unwrap_or_default();
    // A program named kvm tries KVM first (system/vl.c, configure_accelerators).
    let kvm_first = program == "kvm" || program.ends_with("-kvm");
    let names = own.threads.iter().any(|t| t.role == "vcpu");
    let by_name = names.then(|| named_accel(process)).flatten();
    let only = match asked {
        Some("kvm") => Some((Accel::Kvm, said)),
        Some("tcg") => Some((Accel::Tcg, said)),
        None if !kvm_first => Some((Accel::Tcg, DEFAULT)),
        _ => None,
    };
    let by_fd = || {
        let kvm = process.fds().ok()?.iter().any(|(_, to)| to.starts_with("anon_inode:kvm-vm"));
        Some((if kvm { Accel::Kvm } else { Accel::Tcg }, format!("/proc/{}/fd", process.pid).into()))
    };
    if let Some((accel, from)) = by_name.or(only).or_else(by_fd) {
        own.accel = Fact::read(Some(accel), from);
    }
    own.kvm_here = Fact::read(kvm_here(process), "/dev/kvm");
}

/// From the name of a vCPU thread: `CPU 0/KVM`.
fn named_accel(process: &Process<'_>) -> Option<(Accel, Source)> {
    let tids = linux::process::threads(process.reader(), process.pid).ok()?;
    tids.iter().find_map(|tid| {
        let comm = linux::process::thread_comm(process.reader(), process.pid, *tid).ok()?;
        let accel = match comm.split_once('/').filter(|(cpu, _)| cpu.contains("CPU"))?.1 {
            "KVM" => Accel::Kvm,
            "TCG" => Accel::Tcg,
            _ => return None,
        };
        Some((accel, format!("/proc/{}/task/{tid}/comm", process.pid).into()))
    })
}

/// Whether /dev/kvm has a driver. Opening fails with another error without one, and reading fails in any case; a node
/// that this user may not open has one.
fn kvm_here(process: &Process<'_>) -> Option<bool> {
    use std::io::ErrorKind::{InvalidInput, PermissionDenied};
    let device = Path::new("/dev/kvm");
    match process.reader().stat(device) {
        Ok(None) => Some(false),
        Ok(Some(_)) => match process.reader().read(device) {
            Ok(_) => Some(true),
            Err(e) => e.kind().map(|kind| matches!(kind, InvalidInput | PermissionDenied)),
        },
        Err(_) => None,
    }
}

fn model(process: &Process<'_>, own: &mut Processors) {
    let Some(cpu) = process.line.all("cpu").last() else {
        if system::is_x86(process) {
            let program = process.args.first().map_or("", String::as_str);
            let model = if program.ends_with("i386") { "qemu32" } else { "qemu64" };
            own.model = Fact::read(Some(model.to_owned()), DEFAULT);
        }
        return;
    };
    let mut keys = cpu.keys.iter();
    own.model = Fact::read(keys.next().map(|(_, model)| model.clone()), process.option("cpu"));
    own.flags = Fact::read(keys.filter_map(|(key, value)| flag(key, value)).collect(), process.option("cpu"));
}

/// A flag of `-cpu` in a common form: `+aes`, `-vmx`, `hv_relaxed`, `hv_spinlocks=0x1fff`.
fn flag(key: &str, value: &str) -> Option<String> {
    let (on, off) = (matches!(value, "on" | "yes" | "true"), matches!(value, "off" | "no" | "false"));
    let sign = key.starts_with(['+', '-']).then(|| key.chars().next()).flatten();
    let bare = key.trim_start_matches(['+', '-']);
    let negative = off || sign == Some('-');
    let hyper_v = bare.starts_with("hv-") || bare.starts_with("hv_");
    let name = if hyper_v { bare.replace('-', "_") } else { bare.to_owned() };
    match (hyper_v, negative, on) {
        (true, true, _) => None,
        (true, false, true) => Some(name),
        (false, true, _) => Some(format!("-{name}")),
        (false, false, true) => Some(format!("+{name}")),
        (_, false, false) => Some(format!("{name}={value}")),
    }
}

fn memory(process: &Process<'_>, own: &mut Processors) {
    let asked = process.line.get("m", "size").and_then(|text| size(text, MIB));
    let from = if asked.is_some() { process.option("m") } else { DEFAULT };
    own.memory_bytes = Fact::read(Some(asked.unwrap_or(MEMORY)), from);
    let objects = || process.line.all("object").filter(|o| o.get("qom-type").is_some_and(|t| t.starts_with("memory-")));
    let mut paths = objects().filter_map(|o| o.get("mem-path")).chain(process.line.get("mem-path", "value")).peekable();
    let on_huge = paths.peek().is_some() && {
        let own = process.host.mounts().iter();
        let huge: Vec<&Mount> = own.chain(process.mounts()).filter(|m| m.filesystem == "hugetlbfs").collect();
        paths.any(|p| huge.iter().any(|m| Path::new(p).starts_with(&m.point)))
    };
    let memfd = objects().any(|o| o.on("hugetlb") == Some(true));
    let is_huge = on_huge || memfd;
    own.huge_pages = Fact::read(Some(is_huge), if is_huge { process.option("object") } else { DEFAULT });
    // Off unless it is asked for (QEMU, hw/virtio/virtio-balloon.c).
    if let Some(device) = process.line.balloon() {
        let asked = device.on("free-page-reporting");
        let from = if asked.is_some() { process.option("device") } else { DEFAULT };
        own.free_page_reporting = Fact::read(Some(asked == Some(true)), from);
    }
}

/// Bytes of the process's memory by NUMA node, where they are readable without blocking it: `numa_maps` would walk the
/// guest's page tables with their lock held.
pub fn memory_by_node(process: &Process<'_>, own: &mut Processors) {
    let known = if own.host.iter().all(|cpu| cpu.node == 0) {
        let resident = Status::of(process.reader(), process.pid).ok().and_then(|status| status.resident_bytes());
        resident.map(|bytes| ([(0, bytes)].into(), format!("/proc/{}/status", process.pid)))
    } else if own.huge_pages == Some(true) {
        None // reserved pages are in no group's counters
    } else {
        quota::memory_by_node(process)
    };
    if let Some((bytes, from)) = known {
        own.memory_by_node = Fact::read(bytes, from);
    }
}
