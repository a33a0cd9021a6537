//! Disks of native and of guests: where they are made ([`places`]), what is made ([`targets`]), and the
//! device by which a guest sees it ([`drivers`]).

pub mod drivers;
pub mod modelled;
pub mod places;
pub mod space;
pub mod storage;
pub mod targets;

pub use storage::{BlockClient, Storage};
