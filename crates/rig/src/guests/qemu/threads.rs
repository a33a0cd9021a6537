//! QEMU's threads and what each is for. QEMU itself says which threads run the virtual CPUs and the
//! I/O threads (QMP `query-cpus-fast`, `query-iothreads`); the pool that does blocking I/O for
//! `aio=threads` is known by the name of its threads ([`vmio_look::qemu::threads`]).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vmio_look::qemu::threads::Role;
use vmio_node::Reader;
use vmio_node::linux::process;
use vmio_node::qmp::Qmp;

use super::super::{Error, Result};

/// The threads of a QEMU that runs.
pub struct Threads {
    /// Process id on the host.
    pub pid: u32,
    known: BTreeMap<u32, Role>,
}

impl Threads {
    /// Asks a running QEMU.
    pub fn of(qmp: &mut Qmp, pid: u32) -> Result<Self> {
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
        Ok(Self { pid, known })
    }

    /// What each is for now, by thread id. Pool threads come and go.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn now(&self, host: &dyn Reader) -> Result<BTreeMap<u32, Role>> {
        let tids = process::threads(host, self.pid).map_err(Error::Node)?;
        let role = |tid| self.known.get(&tid).cloned().unwrap_or_else(|| by_name(host, self.pid, tid));
        Ok(tids.into_iter().map(|tid| (tid, role(tid))).collect())
    }

    /// How many threads the kernel has that carry the guest's packets, one for each queue of each of its cards with
    /// vhost: QEMU's own since Linux 6.4, before that the kernel's, which are named for it (`vhost_dev_set_owner` of
    /// drivers/vhost/vhost.c).
    pub fn vhost(&self, host: &dyn Reader) -> usize {
        let threads = self.now(host).unwrap_or_default();
        let named = format!("vhost-{}", self.pid);
        let is_named = |pid: &&u32| process::comm(host, **pid).is_ok_and(|comm| comm == named);
        let of_kernel = process::all(host).unwrap_or_default().iter().filter(is_named).count();
        threads.values().filter(|role| **role == Role::Vhost).count() + of_kernel
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
        let qemu = Threads { pid: 10, known };
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
        let roles: Vec<_> = qemu.now(&host).unwrap().into_iter().map(|(tid, role)| (tid, role.key())).collect();
        assert_eq!(roles, [(10, "main"), (11, "iothread"), (12, "vcpu"), (13, "worker"), (14, "other"), (15, "other")]);
        assert!(qemu.now(&Fake::new("fake")).is_err());

        // Its own thread, a thread of the kernel, another QEMU's.
        assert_eq!(qemu.vhost(&host), 0);
        let own = |host: Fake, tid: u32| host.file(format!("/proc/10/task/{tid}/comm"), "vhost-10\n");
        assert_eq!(qemu.vhost(&own(own(host, 16), 17)), 2);
        let of_kernel = |host: Fake, pid: u32, comm: &str| host.file(format!("/proc/{pid}/comm"), comm);
        let kernel = of_kernel(of_kernel(Fake::new("fake"), 7, "vhost-10\n"), 8, "vhost-11\n");
        assert_eq!(qemu.vhost(&kernel), 1);
        assert_eq!(qemu.vhost(&of_kernel(kernel, 9, "vhost-10\n")), 2);
    }
}
