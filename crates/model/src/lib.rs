//! The pure part of vmio: no I/O, no async, no clock. What a study is, what a result is,
//! statistics, and the rules that turn facts into findings. Everything here can be tested
//! with no machine at all.

// What is tested is set up by other means; the build without tests is held to clippy.toml all the same.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod allocate;
pub mod best;
pub mod cell;
pub mod control;
pub mod facts;
pub mod failure;
pub mod figure;
pub mod holding;
pub mod ignores;
pub mod kind;
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
pub mod words;

mod schema;
#[cfg(test)]
mod testing;
mod toml_reader;
