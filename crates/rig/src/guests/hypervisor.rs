//! A guest's hypervisor and its threads. QEMU itself says which threads run the virtual CPUs and the
//! I/O threads (QMP `query-cpus-fast`, `query-iothreads`); the pool that does blocking I/O for
//! `aio=threads` is known by the name of its threads ([`vmio_look::qemu::threads`]).

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use vmio_look::qemu::threads::Role;
use vmio_node::Reader;
use vmio_node::linux::process;
use vmio_node::qmp::Qmp;

use super::{Error, Result};

/// Where devices with an id are in QEMU's object tree.
pub(super) const PERIPHERAL: &str = "/machine/peripheral/";

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
    /// Disk id, or tap -> id of its device in the hypervisor ([`PERIPHERAL`] in QEMU).
    pub devices: BTreeMap<String, String>,
    known: BTreeMap<u32, Role>,
}

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
        let tid = |entry: &Value| entry["thread-id"].as_u64().and_then(|t| u32::try_from(t).ok());
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

    /// A property of the device of a disk or a tap; `None` where it has none of that name, or nobody answers.
    pub fn property(&self, of: &str, property: &str) -> Option<Value> {
        let device = self.devices.get(of)?;
        let stream = UnixStream::connect(&self.monitor).ok()?;
        Qmp::over(of, stream).ok()?.property(&format!("{PERIPHERAL}{device}"), property)
    }

    /// Its threads now, by thread id. Pool threads come and go, so ask again for each sample.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn threads(&self, host: &dyn Reader) -> Result<Vec<Thread>> {
        let tids = process::threads(host, self.pid).map_err(Error::Node)?;
        let role = |tid| self.known.get(&tid).cloned().unwrap_or_else(|| by_name(host, self.pid, tid));
        let mut threads: Vec<Thread> = tids.into_iter().map(|tid| Thread { tid, role: role(tid) }).collect();
        threads.sort_by_key(|t| t.tid);
        Ok(threads)
    }

    /// How many threads the kernel has that carry its packets, one for each queue of each of its cards with vhost: QEMU's
    /// own since Linux 6.4, before that the kernel's, which are named for it (`vhost_dev_set_owner` of
    /// drivers/vhost/vhost.c).
    pub fn vhost_threads(&self, host: &dyn Reader) -> usize {
        let threads = self.threads(host).unwrap_or_default();
        let named = format!("vhost-{}", self.pid);
        let is_named = |pid: &&u32| process::comm(host, **pid).is_ok_and(|comm| comm == named);
        let of_kernel = process::all(host).unwrap_or_default().iter().filter(is_named).count();
        threads.iter().filter(|thread| thread.role == Role::Vhost).count() + of_kernel
    }
}

fn by_name(host: &dyn Reader, pid: u32, tid: u32) -> Role {
    // A pool thread may end between the listing and here.
    let name = process::thread_comm(host, pid, tid).unwrap_or_default();
    match Role::of_name(&name) {
        Some(role @ (Role::Worker | Role::Vhost)) => role,
        _ => Role::Other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_look::qemu::threads::MONITOR;
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

        // Its own thread, a thread of the kernel, another QEMU's.
        assert_eq!(hypervisor.vhost_threads(&host), 0);
        let own = |host: Fake, tid: u32| host.file(format!("/proc/10/task/{tid}/comm"), "vhost-10\n");
        assert_eq!(hypervisor.vhost_threads(&own(own(host, 16), 17)), 2);
        let of_kernel = |host: Fake, pid: u32, comm: &str| host.file(format!("/proc/{pid}/comm"), comm);
        let kernel = of_kernel(of_kernel(Fake::new("fake"), 7, "vhost-10\n"), 8, "vhost-11\n");
        assert_eq!(hypervisor.vhost_threads(&kernel), 1);
        assert_eq!(hypervisor.vhost_threads(&of_kernel(kernel, 9, "vhost-10\n")), 2);
    }
}
