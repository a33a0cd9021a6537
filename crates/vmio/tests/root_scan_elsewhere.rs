//! What is told of a guest in a network namespace that has no `/sys` of its own, pasted and run.
#![allow(clippy::unwrap_used)]

use crate::help::live;
use crate::root_scan::{guest, stand_in};

use std::ffi::OsString;
use std::process::{Command, Output};

use vmio_testbed::net::{apart, run};

fn sh(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).output().unwrap()
}

/// The commands ask the kernel by netlink: a `/sys` stays that of the namespace in which it was mounted.
#[test]
#[ignore = "root"]
fn an_interface_in_another_namespace_is_seen_by_the_commands_that_are_told() {
    let dir = live::scratch();
    let tap = format!("vt{}", std::process::id());
    let netdev = format!("tap,id=n0,ifname={tap},script=no,downscript=no");
    let running = apart(|| {
        run(&[&format!("ip tuntap add {tap} mode tap"), &format!("ip link set {tap} mtu 1450")]);
        let mut args = guest("elsewhere", &[]);
        args.extend(["-netdev", netdev.as_str(), "-device", "virtio-net-pci,netdev=n0"].map(OsString::from));
        stand_in(0, &args)
    });
    let seen = live::scan(dir.path(), &[]);
    let found = live::guest(&seen, "elsewhere");
    let told = |what: String| {
        let mut rows = found["unread"].as_array().unwrap().iter();
        let row = rows.find(|row| row["what"].as_str().unwrap().starts_with(&what));
        let mend = row.unwrap_or_else(|| panic!("{what}: {found:#}"))["mend"].as_str().unwrap();
        mend.split_once(": ").unwrap().1.to_owned()
    };
    let look = told(format!("bridge and MTU of {tap}"));
    let shown = sh(&look);
    let out = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success() && out.contains(&tap) && out.contains("mtu 1450"), "{look}: {shown:?}");
    let limits = told(format!("limits (tc) of {tap}"));
    let shown = sh(&limits);
    assert!(shown.status.success(), "{limits}: {shown:?}");
    // What would read a file there sees the host's.
    let (enter, _) = look.split_once(" ip ").unwrap();
    assert!(!sh(&format!("{enter} cat /sys/class/net/{tap}/mtu")).status.success());
    drop(running);
}
