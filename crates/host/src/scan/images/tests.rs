#![allow(clippy::unwrap_used)]
use super::*;
use std::path::PathBuf;
use vmio_model::facts::Place;
use vmio_node::fake::{Fake, says};
use vmio_node::{FileStat, Output};

const TOP: &str = include_str!("../../../tests/fixtures/qemu-img/top.json");
const MID: &str = include_str!("../../../tests/fixtures/qemu-img/mid.json");
const BASE: &str = include_str!("../../../tests/fixtures/qemu-img/base.json");
const ENCRYPTED: &str = include_str!("../../../tests/fixtures/qemu-img/encrypted.json");

fn guest(look: &Look<'_>, name: &str, pid: u32, disks: &[(&str, Option<&str>)]) -> Guest {
    let disk = |(source, format): &(&str, Option<&str>)| {
        let mut disk = Disk::unknown(format!("guest {name}, disk"), look.from(name, "a test"));
        disk.place = Place { source: Some((*source).into()), ..Place::default() };
        disk.details.format = format.map(Into::into);
        disk
    };
    Guest { name: name.into(), pid: Some(pid), disks: disks.iter().map(disk).collect(), ..Guest::default() }
}

fn stat(size: u64, allocated: u64) -> FileStat {
    FileStat { mode: 0o100_644, size, allocated, dev: (8, 1), rdev: (0, 0) }
}

/// qemu-img that knows these files by the last argument; fincore that says 4096 bytes of each.
fn tools(fake: Fake, images: &'static [(&'static str, &'static str)]) -> Fake {
    let refuse = || Output { end: vmio_node::End::Exit(1), ..says("") };
    fake.installed("qemu-img").installed("fincore").file("/proc/self/status", "Uid:\t0\t0\t0\t0\n").command(
        move |cmd| match cmd.program.as_str() {
            "qemu-img" => {
                let path = cmd.args.last()?;
                let found = images.iter().find(|(name, _)| name == path);
                Some(
                    found.map_or_else(
                        || Output { stderr: b"Could not open".into(), ..refuse() },
                        |(_, json)| says(*json),
                    ),
                )
            }
            "fincore" => {
                let lines: Vec<String> = (cmd.args.iter().filter(|a| a.starts_with('/')))
                    .map(|f| format!("{{\"res\": 4096, \"pages\": 1, \"size\": 1048576, \"file\": \"{f}\"}}"))
                    .collect();
                Some(says(format!("{{\"fincore\": [{}]}}", lines.join(","))))
            }
            _ => None,
        },
    )
}

#[test]
fn raw_files_need_no_tool_and_holes_show() {
    let fake = tools(Fake::new("fake"), &[])
        .node("/i/sparse", stat(10 << 20, 1 << 20))
        .node("/i/full", stat(10 << 20, 10 << 20))
        .node("/dev/vg/a", FileStat { mode: 0o060_660, rdev: (253, 3), ..stat(0, 0) })
        .file("/sys/dev/block/253:3/dm/uuid", "LVM-x\n")
        .file("/sys/dev/block/253:3/size", "8\n");
    let look = Look::new(&fake);
    let raw = Some("raw");
    let mut guests =
        [guest(&look, "a", 8, &[("/i/sparse", raw), ("/i/full", raw), ("/dev/vg/a", raw), ("rbd:pool/x", raw)])];
    fill(&look, &mut guests);
    let [sparse, full, volume, remote] = &guests[0].disks[..] else { panic!("four disks") };
    assert_eq!((sparse.sparse, full.sparse, volume.sparse), (Some(true), Some(false), None));
    assert_eq!(sparse.details.allocated_bytes, Some(1 << 20));
    assert_eq!((volume.details.storage.as_deref(), volume.details.virtual_bytes), (Some("lvm"), Some(4096)));
    assert_eq!(volume.details.thin, Some(false));
    assert_eq!(sparse.details.host_cached_bytes, Some(4096));
    assert_eq!(sparse.read["sparse"], "stat /i/sparse");
    assert_eq!(remote.details.storage, None);
    assert!(fake.ran().iter().all(|c| c.program == "fincore"), "{:?}", fake.ran());
    assert_eq!(guests[0].unread, []);
}

#[test]
fn a_backing_file_of_many_guests_is_read_once() {
    const IMAGES: &[(&str, &str)] = &[("/i/top.qcow2", TOP), ("/i/mid.qcow2", MID), ("/i/base.qcow2", BASE)];
    let fake = IMAGES.iter().fold(tools(Fake::new("fake"), IMAGES), |fake, (path, _)| fake.node(*path, stat(9, 9)));
    let look = Look::new(&fake);
    let mut guests: Vec<Guest> = (0..200)
        .map(|i| {
            guest(
                &look,
                &format!("g{i}"),
                1000 + i,
                &[(["/i/top.qcow2", "/i/mid.qcow2"][i as usize % 2], Some("qcow2"))],
            )
        })
        .collect();
    fill(&look, &mut guests);
    for (i, guest) in guests.iter().enumerate() {
        let details = &guest.disks[0].details;
        assert_eq!(details.backing_files, Some(2 - i as u32 % 2), "{i}");
        assert_eq!(details.l2_cache_bytes, Some(DEFAULT_L2_CACHE_BYTES));
        assert_eq!(details.host_cached_bytes, Some(4096 * (3 - i as u64 % 2)));
        assert_eq!(guest.unread, []);
    }
    let asked = fake.ran().iter().filter(|c| c.program == "qemu-img").count();
    assert_eq!(asked, 3, "{:?}", fake.ran());
}

#[test]
fn a_broken_chain_leaves_what_the_top_says_and_names_the_mend() {
    const IMAGES: &[(&str, &str)] = &[("/i/top.qcow2", TOP), ("/i/mid.qcow2", MID), ("/i/locked.qcow2", ENCRYPTED)];
    let fake = IMAGES.iter().fold(tools(Fake::new("fake"), IMAGES), |fake, (path, _)| fake.node(*path, stat(9, 9)));
    let look = Look::new(&fake);
    let disks = [("/i/top.qcow2", Some("qcow2")), ("/i/gone.raw", Some("raw")), ("/i/locked.qcow2", Some("qcow2"))];
    let mut guests = [guest(&look, "a", 8, &disks)];
    fill(&look, &mut guests);
    let top = &guests[0].disks[0];
    assert_eq!((top.details.format.as_deref(), top.details.virtual_bytes), (Some("qcow2"), Some(1 << 30)));
    assert_eq!(top.details.backing_files, None);
    let unread = &guests[0].unread;
    assert!(unread[0].why.contains("backing file /i/base.qcow2 is missing") && unread[0].mend.contains("rebase"));
    assert_eq!(unread[1].why, "there is no image /i/gone.raw");
    assert!(unread[2].why.contains("encrypted"), "{unread:?}");
    assert_eq!(unread.len(), 3);
}

#[test]
fn paths_are_those_of_the_guests_own_mount_namespace() {
    const IMAGES: &[(&str, &str)] =
        &[("/proc/8/root/i/top.qcow2", TOP), ("/proc/8/root/i/mid.qcow2", MID), ("/proc/8/root/i/base.qcow2", BASE)];
    let fake = tools(Fake::new("fake"), IMAGES)
        .symlink("/proc/self/ns/mnt", "mnt:[1]")
        .symlink("/proc/8/ns/mnt", "mnt:[2]")
        .symlink("/proc/8/root", "/")
        .symlink("/proc/8/cwd", "/var/disks")
        // Absolute links count from the root of that process.
        .symlink("/proc/8/root/var", "/i/../i")
        .symlink("/proc/8/root/i/disks", "/i")
        .node("/proc/8/root/i/top.qcow2", stat(9, 9))
        .node("/proc/8/root/i/r", stat(9, 9));
    let look = Look::new(&fake);
    let mut guests = [guest(&look, "a", 8, &[("/var/disks/top.qcow2", Some("qcow2")), ("r", Some("raw"))])];
    fill(&look, &mut guests);
    assert_eq!(guests[0].unread, []);
    assert_eq!(guests[0].disks[0].details.backing_files, Some(2));
    assert_eq!(guests[0].disks[1].details.storage.as_deref(), Some("file"));
}

#[test]
fn a_path_is_the_same_here_only_on_the_same_mount() {
    const HOST: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:2 / /srv rw - ext4 /dev/sda2 rw\n";
    let same = |namespace: &str, mounts: &str, path: &str| {
        let fake = Fake::new("fake")
            .symlink("/proc/self/ns/mnt", "mnt:[1]")
            .symlink("/proc/8/ns/mnt", namespace)
            .file("/proc/self/mountinfo", HOST)
            .file("/proc/8/mountinfo", mounts);
        let look = Look::new(&fake);
        is_same_here(&look, &guest(&look, "a", 8, &[]), Path::new(path))
    };
    assert!(same("mnt:[1]", "", "/srv/a.raw"), "our own namespace");
    assert!(!same("mnt:[1]", "", "images/a.raw"), "relative to a directory that is not ours");
    // libvirt's: a copy of ours with another /dev.
    let copy = format!("{HOST}24 22 0:9 / /dev rw - tmpfs devfs rw\n");
    assert!(same("mnt:[2]", &copy, "/srv/a.raw") && !same("mnt:[2]", &copy, "/dev/vg/a"));
    for other in ["22 1 0:7 / / rw - overlay overlay rw\n", &HOST.replace("8:2 /", "8:2 /tenant"), ""] {
        assert!(!same("mnt:[2]", other, "/srv/a.raw"), "{other}");
    }
    let hidden = Fake::new("fake").file("/proc/self/mountinfo", HOST);
    let look = Look::new(&hidden);
    assert!(!is_same_here(&look, &guest(&look, "a", 8, &[]), Path::new("/srv/a.raw")), "not readable");
}

#[test]
fn a_dead_file_server_is_asked_once_and_never_by_ourselves() {
    let silent = Output { end: vmio_node::End::TimedOut, ..says("") };
    let fake = Fake::new("fake")
        .installed("qemu-img")
        .program("qemu-img", silent)
        .file("/proc/self/mountinfo", "23 22 0:21 / /srv rw - nfs4 nas:/vm rw\n");
    let look = Look::new(&fake);
    let sources: Vec<String> = (0..20).map(|i| format!("/srv/{i}.raw")).collect();
    let disks: Vec<(&str, Option<&str>)> = sources.iter().map(|s| (s.as_str(), Some("raw"))).collect();
    let mut guests = [guest(&look, "a", 8, &disks)];
    fill(&look, &mut guests);
    assert_eq!(guests[0].unread.len(), 20);
    // Those that were asked while the first answer was waited for.
    assert!(fake.ran().len() <= 4, "{:?}", fake.ran());
    assert!(guests[0].unread.iter().any(|u| u.why.contains("NFS server nas:/vm does not answer")));
}

#[test]
fn what_fincore_says_is_believed_only_where_it_can_be_true() {
    let answer = |file: &str, res: u64, size: u64| {
        says(format!("{{\"fincore\": [{{\"res\": {res}, \"pages\": 1, \"size\": {size}, \"file\": \"{file}\"}}]}}"))
    };
    let held = |fake: Fake, size: u64| {
        let look = Look::new(&fake);
        cached::held(&look, &[(PathBuf::from("/i/a"), Span { bytes: size, remote: false })].into())
            .remove(Path::new("/i/a"))
    };
    let user = |out| {
        Fake::new("fake").installed("fincore").program("fincore", out).file("/proc/self/status", "Uid:\t7\t7\t7\t7\n")
    };
    // To a user who may not write the file mincore(2) says that all of it is there.
    let all = held(user(answer("/i/a", 8192, 8000)), 8000).unwrap().unwrap_err();
    assert_eq!(all.mend, "run as root");
    assert_eq!(held(user(answer("/i/a", 4096, 8000)), 8000).unwrap().unwrap(), (4096, "fincore"));
    assert_eq!(held(user(answer("/i/a", 0, 0)), 8000), None);
    let large = held(user(answer("/i/a", 1, 2)), 1 << 45).unwrap().unwrap_err();
    assert!(large.mend.contains("6.5"), "{large:?}");
    let refused = held(user(vmio_node::fake::fails(1, "failed to open: Permission denied")), 9).unwrap().unwrap_err();
    assert_eq!((refused.mend.as_str(), refused.what.as_str()), ("run as root", "page cache of /i/a"));
}

#[test]
fn an_image_whose_format_nobody_states_is_not_opened() {
    const IMAGES: &[(&str, &str)] = &[("/i/guessed", TOP), ("/i/top.qcow2", TOP)];
    let fake = tools(Fake::new("fake"), IMAGES).node("/i/guessed", stat(9, 9)).node("/i/top.qcow2", stat(9, 9));
    let look = Look::new(&fake);
    let mut guests = [guest(&look, "a", 8, &[("/i/guessed", None)])];
    fill(&look, &mut guests);
    assert_eq!((guests[0].disks[0].details.format.as_deref(), guests[0].disks[0].details.backing_files), (None, None));
    assert!(guests[0].unread[0].mend.contains("format=raw"), "{:?}", guests[0].unread);
    assert!(fake.ran().iter().all(|c| c.program != "qemu-img"), "{:?}", fake.ran());
}

#[test]
fn a_link_onto_a_file_server_is_left_to_qemu_img() {
    let silent = Output { end: vmio_node::End::TimedOut, ..says("") };
    let fake = Fake::new("fake")
        .installed("qemu-img")
        .installed("prlimit")
        .program("prlimit", silent)
        .symlink("/vm", "/srv/vm")
        .file("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /srv rw - nfs4 nas:/vm rw\n");
    let look = Look::new(&fake);
    let mut guests = [guest(&look, "a", 8, &[("/vm/a.raw", Some("raw"))])];
    fill(&look, &mut guests);
    assert!(guests[0].unread[0].mend.contains("may hang"), "{:?}", guests[0].unread);
    let ran = &fake.ran()[0];
    assert_eq!((ran.program.as_str(), ran.args[2].as_str()), ("prlimit", "qemu-img"));
}

#[test]
fn links_that_go_round_name_nothing() {
    let fake = tools(Fake::new("fake"), &[])
        .symlink("/proc/self/ns/mnt", "mnt:[1]")
        .symlink("/proc/8/ns/mnt", "mnt:[2]")
        .symlink("/proc/8/root/a", "/b")
        .symlink("/proc/8/root/b", "/a");
    let look = Look::new(&fake);
    let mut guests = [guest(&look, "a", 8, &[("/a", Some("qcow2"))])];
    fill(&look, &mut guests);
    assert!(guests[0].unread[0].why.contains("too many links"), "{:?}", guests[0].unread);
    assert_eq!(fake.ran(), []);
}

#[test]
fn on_file_systems_that_compress_few_blocks_are_no_holes() {
    let fake = tools(Fake::new("fake"), &[])
        .node("/tank/a", stat(10 << 20, 1 << 20))
        .file("/proc/self/mountinfo", "23 22 0:21 / /tank rw - zfs tank rw\n");
    let look = Look::new(&fake);
    let mut guests = [guest(&look, "a", 8, &[("/tank/a", Some("raw"))])];
    fill(&look, &mut guests);
    let disk = &guests[0].disks[0];
    assert_eq!((disk.sparse, disk.details.thin, disk.details.allocated_bytes), (None, None, Some(1 << 20)));
}
