//! The pure part of vmio, without I/O, async and clock: studies, results, statistics, the guard's policy, and the rules
//! that turn facts into findings. All of it can be tested without a machine.

// Tests read files; the build without tests obeys clippy.toml.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod allocate;
pub mod best;
pub mod cell;
pub mod civil;
pub mod control;
pub mod facts;
pub mod failure;
pub mod figure;
pub mod holding;
pub mod ignores;
pub mod kind;
pub mod memory;
pub mod modelled;
pub mod others;
pub mod paper;
pub mod picos;
pub mod policy;
pub mod problem;
pub mod rate;
pub mod read_at;
pub mod reference;
pub mod result;
pub mod rules;
pub mod run;
pub mod sanitize;
pub mod simulate;
pub mod stats;
pub mod study;
pub mod summary;
pub mod top;
pub mod versions;
pub mod waterfall;
pub mod words;

mod schema;
#[cfg(test)]
mod testing;
mod toml_reader;
