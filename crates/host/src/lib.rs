//! All that knows QEMU, fio, dd, disks and control groups. Each folder is an extension point:
//! a trait and one constant list of the entries, a file an entry.

pub mod backing;
pub mod drivers;
pub mod gentle;
pub mod guests;
pub mod image;
pub mod image_info;
pub mod lab;
pub mod limits;
pub mod look;
pub mod managers;
pub mod parallel;
pub mod places;
pub mod probes;
pub mod require;
pub mod scan;
pub mod targets;
pub mod top;
pub mod topology;
pub mod workloads;

#[cfg(test)]
mod testing;
