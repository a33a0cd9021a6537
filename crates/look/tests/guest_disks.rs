//! Storage of running processes' disks on real files: image chains, holes, the page cache. The processes are stand-ins
//! with QEMU's command line, so that there can be many.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::reads;
use crate::stand_in::StandIn;
use vmio_look::HostView;
use vmio_look::scan::scan;
use vmio_model::facts::Guest;
use vmio_node::Local;
use vmio_testbed::scratch;

/// A stand-in for each disk, named `PREFIX-N`; all have the image `below` open, too.
fn stand_ins(prefix: &str, disks: &[(String, &str)], below: &Path) -> Vec<StandIn> {
    let start = |(i, (path, format)): (usize, &(String, &str))| {
        let (name, drive) = (format!("{prefix}-{i}"), format!("file={path},format={format},if=virtio"));
        StandIn::holding("qemu-system-x86_64", &[Path::new(path), below], ["-name", &name, "-drive", &drive])
    };
    disks.iter().enumerate().map(start).collect()
}

fn create(path: &Path, backing: Option<&Path>) {
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2"]);
    match backing {
        Some(below) => command.args(["-F", "qcow2", "-b"]).arg(below).arg(path),
        None => command.arg(path).arg("64M"),
    };
    assert!(command.status().unwrap().success());
}

fn looked(prefix: &str) -> Vec<Guest> {
    of(prefix, scan(&HostView::new(&Local::new())).guests)
}

fn of(prefix: &str, mut guests: Vec<Guest>) -> Vec<Guest> {
    guests.retain(|g| g.name.starts_with(prefix));
    guests
}

#[test]
#[ignore = "guest: needs QEMU"]
fn real_chains_holes_and_cached_pages_are_read() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    create(&at("base"), None);
    create(&at("top"), Some(&at("base")));
    create(&at("orphan"), Some(&at("base")));
    let rebase = ["rebase", "-u", "-F", "qcow2", "-b", "gone"];
    assert!(Command::new("qemu-img").args(rebase).arg(at("orphan")).status().unwrap().success());
    std::fs::File::create(at("holes")).unwrap().set_len(64 << 20).unwrap();
    let mut full = std::fs::File::create(at("full")).unwrap();
    full.write_all(&vec![1; 4 << 20]).unwrap();
    full.sync_all().unwrap();
    let path = |name: &str| at(name).display().to_string();
    let disks = [("top", "qcow2"), ("orphan", "qcow2"), ("holes", "raw"), ("full", "raw"), ("missing", "raw")];
    let disks: Vec<(String, &str)> = disks.iter().map(|(name, format)| (path(name), *format)).collect();
    let prefix = format!("disks-{}", std::process::id());
    let _running = stand_ins(&prefix, &disks, &at("base"));
    let guests = looked(&prefix);
    let [top, orphan, holes, full, missing] = &guests[..] else { panic!("{guests:?}") };
    let details = |guest: &Guest| guest.disks[0].details.clone();
    assert_eq!((*details(top).backing_files, *details(top).virtual_bytes), (Some(1), Some(64 << 20)));
    assert_eq!((*details(top).cluster_bytes, details(top).storage.as_deref()), (Some(65536), Some("file")));
    let told = |guest: &Guest| guest.unread.iter().find(|u| u.what.starts_with("disk image ")).cloned().unwrap();
    assert!(
        told(orphan).why.contains("gone is missing") && told(orphan).mend.contains("rebase"),
        "{:?}",
        orphan.unread
    );
    assert!(told(missing).why.contains("no such image:"), "{:?}", missing.unread);
    assert_eq!((*holes.disks[0].sparse, *full.disks[0].sparse), (Some(true), Some(false)));
    // Just written and larger than any read-ahead: it is in the page cache.
    assert!(details(full).host_cached_bytes.is_some_and(|b| b >= 4 << 20), "{:?}", full.disks[0]);
    assert_eq!(details(holes).host_cached_bytes, Some(0));
}

#[test]
#[ignore = "guest: needs QEMU"]
fn each_of_two_hundred_guests_takes_what_each_of_fifty_takes() {
    let dir = scratch();
    let base = dir.path().join("base");
    create(&base, None);
    let disk = |i: usize| {
        let path = dir.path().join(i.to_string());
        if i.is_multiple_of(2) {
            create(&path, Some(&base));
            (path.display().to_string(), "qcow2")
        } else {
            std::fs::File::create(&path).unwrap().set_len(8 << 30).unwrap();
            (path.display().to_string(), "raw")
        }
    };
    let disks: Vec<(String, &str)> = (0..200).map(disk).collect();
    let prefix = format!("many-{}", std::process::id());
    let look = || reads::during(|| scan(&HostView::new(&Local::new())).guests, Vec::len);
    let running = stand_ins(&prefix, &disks[..50], &base);
    let (guests, fifty) = look();
    assert_eq!(of(&prefix, guests).len(), 50);
    drop(running);
    let _running = stand_ins(&prefix, &disks, &base);
    let began = Instant::now();
    let (guests, two_hundred) = look();
    println!("{:.1} s; {two_hundred:?}, {fifty:?}", began.elapsed().as_secs_f64());
    let guests = of(&prefix, guests);
    assert_eq!(guests.len(), 200);
    let known = guests.iter().filter(|g| g.disks[0].details.host_cached_bytes.is_some()).count();
    assert_eq!(known, 200);
    assert_eq!(guests.iter().filter(|g| g.disks[0].details.backing_files == Some(1)).count(), 100);
    reads::are_the_same_for_each(fifty, two_hundred);
}
