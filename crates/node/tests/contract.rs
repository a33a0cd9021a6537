//! One list of checks for every kind of machine.

mod common;

use vmio_node::Local;

#[test]
fn local() {
    common::check_all(&Local::new());
}
