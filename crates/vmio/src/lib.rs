//! vmio: how much of a host's speed its guests get, and where the rest goes.
//!
//! `cli` reads the command line, `cmd/` holds a file a verb, `store/` keeps every run in SQLite,
//! `report/` shows a run as text, JSON, Markdown or HTML; `document` is the contract of every JSON output.

pub mod cli;
pub mod cmd;
pub mod context;
pub mod document;
pub mod expect;
pub mod files;
pub mod fit;
pub mod papers;
pub mod paths;
pub mod report;
pub mod run;
pub mod store;
pub mod studies;
pub mod supervisor;
pub mod term;
pub mod top;
pub mod transport;
