//! Which thread of QEMU does what. QEMU itself says which threads run the virtual CPUs and the
//! I/O threads (QMP `query-cpus-fast`, `query-iothreads`); the pool that does blocking I/O for
//! `aio=threads` is known by the name that QEMU gives its threads (`debug-threads=on`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use vmio_node::Reader;

use super::super::{Error, Result};
use super::qmp::Qmp;

/// What a thread of the hypervisor is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Runs this virtual CPU.
    Vcpu(u32),
    /// I/O thread with this id.
    Iothread(String),
    /// The main loop: monitor, and I/O of disks without an I/O thread.
    Main,
    /// Pool thread that does blocking I/O. These come and go.
    Worker,
    /// Moves packets or blocks for a vhost device (a thread of QEMU since Linux 6.4).
    Vhost,
    /// Anything else (RCU, the monitor's own thread, [`MONITOR`]).
    Other,
}

impl Role {
    /// The key of [`vmio_model::result::CpuUse::by_role`].
    pub fn key(&self) -> &'static str {
        match self {
            Role::Vcpu(_) => "vcpu",
            Role::Iothread(_) => "iothread",
            Role::Main => "main",
            Role::Worker => "worker",
            Role::Vhost => "vhost",
            Role::Other => "other",
        }
    }

    /// What a thread of that name is for; `None` where its name does not say. QEMU names its
    /// threads with `-name debug-threads=on` (`CPU 0/KVM`, `IO iothread0`); the kernel keeps 15 bytes.
    pub fn of_name(name: &str) -> Option<Role> {
        if let Some(cpu) = name.strip_prefix("CPU ") {
            return Some(Role::Vcpu(cpu.split('/').next()?.parse().ok()?));
        }
        if name == MONITOR {
            return Some(Role::Other);
        }
        if let Some(id) = name.strip_prefix("IO ") {
            return Some(Role::Iothread(id.to_owned()));
        }
        match name {
            POOL => Some(Role::Worker),
            "ALL CPUs/TCG" => Some(Role::Vcpu(0)), // one for all (tcg,thread=single)
            // vhost-PID of the process that owns it (drivers/vhost/vhost.c).
            _ if name.strip_prefix("vhost-").is_some_and(|pid| pid.parse::<u32>().is_ok()) => Some(Role::Vhost),
            _ => None,
        }
    }
}

/// A thread of the hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Thread id on the host.
    pub tid: u32,
    /// What it is for.
    pub role: Role,
}

/// The hypervisor of a guest, as seen from the host.
#[derive(Debug, Clone)]
pub struct Hypervisor {
    /// Process id on the host.
    pub pid: u32,
    /// Version, `QEMU 7.2.22`.
    pub version: String,
    /// Socket of a monitor that nobody else holds, for whoever watches the guest.
    pub monitor: PathBuf,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Disk id -> id of its device in the hypervisor (`/machine/peripheral/ID` in QEMU).
    pub devices: BTreeMap<String, String>,
    known: BTreeMap<u32, Role>,
}

/// Name of the thread in which QEMU reads from its QMP monitors (monitor/monitor.c, `monitor_iothread_init`): it
/// is made like an I/O thread and named like one, but no disk's, and neither QMP nor libvirt knows it as one.
pub const MONITOR: &str = "IO mon_iothread";
/// Name of QEMU's pool threads (util/thread-pool.c).
const POOL: &str = "worker";

impl Hypervisor {
    /// Asks a running QEMU for its threads.
    pub(super) fn of(
        qmp: &mut Qmp,
        pid: u32,
        monitor: PathBuf,
        memory_mib: u32,
        devices: BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut known = BTreeMap::from([(pid, Role::Main)]);
        let tid = |entry: &serde_json::Value| entry["thread-id"].as_u64().and_then(|t| u32::try_from(t).ok());
        for cpu in qmp.execute("query-cpus-fast", json!({}))?.as_array().into_iter().flatten() {
            if let (Some(tid), Some(index)) = (tid(cpu), cpu["cpu-index"].as_u64()) {
                known.insert(tid, Role::Vcpu(index as u32));
            }
        }
        for thread in qmp.execute("query-iothreads", json!({}))?.as_array().into_iter().flatten() {
            if let (Some(tid), Some(id)) = (tid(thread), thread["id"].as_str()) {
                known.insert(tid, Role::Iothread(id.to_owned()));
            }
        }
        Ok(Self { pid, version: format!("QEMU {}", qmp.version), monitor, memory_mib, devices, known })
    }

    /// Its threads now, by thread id. Pool threads come and go, so ask again for each sample.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn threads(&self, host: &dyn Reader) -> Result<Vec<Thread>> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid));
        let mut threads: Vec<Thread> = host
            .list(&tasks)
            .map_err(Error::Node)?
            .iter()
            .filter_map(|name| {
                let tid = name.parse().ok()?;
                let role = self.known.get(&tid).cloned().unwrap_or_else(|| by_name(host, &tasks.join(name)));
                Some(Thread { tid, role })
            })
            .collect();
        threads.sort_by_key(|t| t.tid);
        Ok(threads)
    }
}

fn by_name(host: &dyn Reader, task: &Path) -> Role {
    // A pool thread may end between the listing and here.
    let name = host.read_text(&task.join("comm")).unwrap_or_default();
    match Role::of_name(name.trim()) {
        Some(role @ (Role::Worker | Role::Vhost)) => role,
        _ => Role::Other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn pool_threads_are_known_by_name_and_the_rest_by_what_qemu_said() {
        let known = BTreeMap::from([(10, Role::Main), (12, Role::Vcpu(0)), (11, Role::Iothread("io0".into()))]);
        let hypervisor = Hypervisor {
            pid: 10,
            version: String::new(),
            monitor: PathBuf::new(),
            memory_mib: 256,
            devices: BTreeMap::new(),
            known,
        };
        let host = [
            (10, "qemu-system-x86"),
            (11, "IO io0"),
            (12, "CPU 0/TCG"),
            (13, "worker"),
            (14, "call_rcu"),
            (15, MONITOR),
        ]
        .iter()
        .fold(Fake::new("fake"), |f, (tid, comm)| f.file(format!("/proc/10/task/{tid}/comm"), format!("{comm}\n")));
        let roles: Vec<_> = hypervisor.threads(&host).unwrap().into_iter().map(|t| (t.tid, t.role.key())).collect();
        assert_eq!(roles, [(10, "main"), (11, "iothread"), (12, "vcpu"), (13, "worker"), (14, "other"), (15, "other")]);
        assert!(hypervisor.threads(&Fake::new("fake")).is_err());
    }
}
