//! The host's processors as facts.

use vmio_model::facts::HostCpu;
use vmio_node::Reader;
use vmio_node::linux::cpu;

/// Processors that are online, by number; empty where /sys does not say.
pub fn host_cpus(reader: &dyn Reader) -> Vec<HostCpu> {
    let fact = |c: cpu::Cpu| HostCpu { cpu: c.cpu, core: c.core, package: c.package, node: c.node };
    cpu::online(reader).into_iter().map(fact).collect()
}
