//! Roles of the work that is told by component, beside those of a hypervisor's own threads (`vcpu`, `iothread`, `main`,
//! `worker`).

/// vmio's own process.
pub const VMIO: &str = "vmio";
/// What it started.
pub const PROGRAM: &str = "program";
/// The agent in a container.
pub const AGENT: &str = "agent";
/// A process that serves a disk.
pub const SERVER: &str = "server";
/// Threads of the kernel, for whomever they work.
pub const KERNEL: &str = "kernel";

/// Whether so called work is that of a hypervisor's own process.
pub fn is_of_hypervisor(role: &str) -> bool {
    ![VMIO, PROGRAM, AGENT, SERVER, KERNEL].contains(&role)
}
