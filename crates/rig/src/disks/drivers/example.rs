//! LSI 53C810, an emulated SCSI controller older than the paper's.

use super::{Driver, PLAIN};

/// Entry `lsi53c810`.
pub const LSI53C810: Driver = Driver {
    name: "lsi53c810",
    about: "emulated SCSI controller, the first of its family",
    guest_modules: &["sym53c8xx", "sd_mod"],
    ..PLAIN
};
