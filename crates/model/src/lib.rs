//! The pure part of vmio: no I/O, no async, no clock. What a study is, what a result is,
//! statistics, and the rules that turn facts into findings. Everything here can be tested
//! with no machine at all.

pub mod allocate;
pub mod facts;
pub mod ignores;
pub mod kind;
pub mod paper;
pub mod policy;
pub mod problem;
pub mod reference;
pub mod result;
pub mod rules;

pub mod setup;
pub mod shown;
pub mod simulate;
pub mod stats;
pub mod study;
pub mod summary;
pub mod top;

#[cfg(test)]
mod testing;
mod toml_reader;
