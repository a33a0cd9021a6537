//! All tests from outside, in one program. A file has its line here.

#![allow(missing_docs)]

mod common;

mod agent_binary;
mod contract;
mod cpu_binary;
mod decoder;
mod killed_owner;
mod planted_journal;
mod root_tc;
mod root_undo;
mod session;
mod udp_binary;
