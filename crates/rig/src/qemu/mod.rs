//! QEMU's programs, for whoever starts one: where they are, which version, whether they listen yet.

mod program;
pub(crate) mod waiting;

pub use program::{Error, QemuVersion, TooOld, ask as ask_version, find_qemu, there};
