//! `--gentle`: how a measurement behaves on a host on which other guests run.
//!
//! Three parts, each usable alone: who else is here ([`neighbours`]), how fast the measurement
//! may go ([`cap`]), and when it has to end because the others suffer ([`watch`], with the pure
//! parts [`events`] and [`history`], and [`instance`] for what it makes on the host). `docs/gentle.md` says what each can and cannot see.

pub mod cap;
pub mod events;
pub mod history;
pub mod instance;
pub mod watch;
