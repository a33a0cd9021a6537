//! What the tests of this folder share.

#![allow(clippy::unwrap_used)]

pub fn must_be_root() {
    let id = std::process::Command::new("id").arg("-u").output().unwrap();
    assert_eq!(id.stdout, b"0\n", "this test is run as root: cargo test -- --ignored");
}
