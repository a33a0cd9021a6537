//! Makes what is measured and measures it: storage, guests, load, probes. All that is changed on the
//! machine is journalled before it is made. Each folder that is an extension point has a trait (or a
//! type, where entries are data), one constant list of the entries, and a file an entry.

pub mod disks;
mod elf;
pub mod engine;
pub mod gentle;
pub mod guests;
pub mod hadoop;
mod https;
pub mod image;
pub mod lab;
pub mod limits;
pub mod nets;
pub mod nics;
pub mod nodes;
pub mod objects;
pub mod ours;
pub mod probes;
pub mod qemu;
pub mod redfish;
pub mod settings;
pub mod volumes;
pub mod workloads;

use vmio_model::study::Names;

/// The names that a study may use: those of the entries of each extension point.
pub fn names() -> Names {
    Names {
        guests: guests::ALL.iter().map(|g| g.name().to_owned()).collect(),
        targets: disks::targets::ALL.iter().map(|t| t.name().to_owned()).collect(),
        reached: disks::targets::ALL.iter().filter(|t| t.own_client().is_some()).map(|t| t.name().to_owned()).collect(),
        drivers: disks::drivers::ALL.iter().map(|d| d.name.to_owned()).collect(),
        networks: nets::ALL.iter().map(|n| n.name().to_owned()).collect(),
        inside: nets::inside(),
        peers: nets::peers(),
        nics: nics::ALL.iter().map(|n| n.name.to_owned()).collect(),
        settings: settings::names(),
        workloads: workloads::names(),
        workload_families: workloads::FAMILIES.to_vec(),
        traits: Some(workloads::traits_of),
    }
}
