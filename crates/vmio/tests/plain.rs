//! All tests that need neither root nor guests, in one program: a program for each file would take as long to build as
//! all of them together. A file has its line here.

#![allow(missing_docs)]

mod common;
#[path = "common/plain.rs"]
mod help;

mod advice;
mod cli;
mod examples;
mod expect;
mod faults;
mod figures;
mod guard;
mod hadoop_jars;
mod hostile;
mod import;
mod import_runs;
mod layout;
mod licences;
mod like;
mod names;
mod object_store;
mod outputs;
mod pages;
mod paper;
mod pick;
mod plan;
mod report;
mod scan;
mod scan_changes;
mod schema;
mod schema_real;
mod seen;
mod setup_script;
mod simulate;
mod store;
mod store_file;
mod stored_runs;
mod suite;
mod volumes;
mod width;
mod wording;
