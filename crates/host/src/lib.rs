//! All that knows QEMU, fio, dd, disks and control groups. Each folder is an extension point:
//! a trait and one constant list of the entries, a file an entry.

pub mod drivers;
pub mod guests;
pub mod image;
pub mod require;
