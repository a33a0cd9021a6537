//! Roles of QEMU's threads by their names (`debug-threads=on`), of which the kernel keeps 15 bytes.

/// Role of a hypervisor's thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Runs this vCPU.
    Vcpu(u32),
    /// I/O thread of this id.
    Iothread(String),
    /// The main loop: monitor, and I/O of disks without an I/O thread.
    Main,
    /// Pool thread for blocking I/O. These come and go.
    Worker,
    /// Serves a vhost device (a thread of QEMU since Linux 6.4).
    Vhost,
    /// Anything else (RCU, the monitor's own thread, [`MONITOR`]).
    Other,
}

impl Role {
    /// Key in [`vmio_model::result::CpuUse::by_role`].
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

    /// Role of a thread of that name; `None` where the name does not say it. QEMU names its threads with `-name
    /// debug-threads=on` (`CPU 0/KVM`, `IO iothread0`).
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

/// Name of the thread in which QEMU reads from its QMP monitors (monitor/monitor.c, `monitor_iothread_init`). It is
/// made and named like an I/O thread but serves no disk, and neither QMP nor libvirt lists it.
pub const MONITOR: &str = "IO mon_iothread";
/// Name of QEMU's pool threads (util/thread-pool.c).
const POOL: &str = "worker";
