//! Which thread of QEMU does what, by the name that QEMU gives it (`debug-threads=on`); the kernel
//! keeps 15 bytes of it.

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

/// Name of the thread in which QEMU reads from its QMP monitors (monitor/monitor.c, `monitor_iothread_init`): it
/// is made like an I/O thread and named like one, but no disk's, and neither QMP nor libvirt knows it as one.
pub const MONITOR: &str = "IO mon_iothread";
/// Name of QEMU's pool threads (util/thread-pool.c).
const POOL: &str = "worker";
