//! Makes what is measured and measures it: storage, guests, load, probes. All that is changed on the
//! machine is journalled before it is made. Each folder that is an extension point has a trait (or a
//! type, where entries are data), one constant list of the entries, and a file an entry.

pub mod disks;
mod elf;
pub mod engine;
pub mod gentle;
pub mod guests;
pub mod image;
pub mod lab;
pub mod limits;
pub mod nets;
pub mod nics;
pub mod nodes;
pub mod ours;
pub mod probes;
pub mod qemu;
pub mod settings;
pub mod workloads;
