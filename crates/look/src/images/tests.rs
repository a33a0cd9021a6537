#![allow(clippy::unwrap_used)]
use std::path::{Path, PathBuf};

use vmio_model::facts::{Place, Remedy, Subject};
use vmio_node::fake::{Fake, says};
use vmio_node::{At, FileStat};

use super::header::tests::made;
use super::*;

/// A chain of three images.
const CHAIN: [(&str, Option<&str>); 3] =
    [("/i/top.qcow2", Some("/i/mid.qcow2")), ("/i/mid.qcow2", Some("/i/base.qcow2")), ("/i/base.qcow2", None)];

fn guest(host: &HostView<'_>, name: &str, pid: u32, disks: &[(&str, Option<&str>)]) -> Guest {
    let disk = |(source, format): &(&str, Option<&str>)| {
        let mut disk = Disk::unknown(Subject::disk(name, ""), host.from(name, "a test"));
        disk.place = Place { source: Some((*source).into()).into(), ..Place::default() };
        disk.details.format = format.map(Into::into).into();
        disk
    };
    Guest { name: name.into(), pid: Some(pid), disks: disks.iter().map(disk).collect(), ..Guest::default() }
}

fn stat(size: u64, allocated: u64) -> FileStat {
    FileStat { mode: 0o100_644, size, allocated, dev: (8, 1), rdev: (0, 0) }
}

/// Root, with a fincore that reports 4096 bytes for each file.
fn tools(fake: Fake) -> Fake {
    fake.installed("fincore").file("/proc/self/status", "Uid:\t0\t0\t0\t0\n").command(move |cmd| {
        let lines: Vec<String> = (cmd.args.iter().filter(|a| a.starts_with('/')))
            .map(|f| format!("{{\"res\": 4096, \"pages\": 1, \"size\": 1048576, \"file\": \"{f}\"}}"))
            .collect();
        (cmd.program == "fincore").then(|| says(format!("{{\"fincore\": [{}]}}", lines.join(","))))
    })
}

/// Images of a chain below `root`.
fn images(fake: Fake, root: &str, chain: &[(&str, Option<&str>)]) -> Fake {
    let image = |below: &Option<&str>| made(below.map(|below| (below, Some("qcow2"))));
    chain.iter().fold(fake, |fake, (path, below)| fake.file(format!("{root}{path}"), image(below)))
}

/// Files that a process has open.
fn opens(fake: Fake, pid: u32, files: &[&str]) -> Fake {
    let numbered = files.iter().enumerate();
    numbered.fold(fake, |fake, (n, file)| fake.symlink(format!("/proc/{pid}/fd/{}", n + 10), *file))
}

#[test]
fn raw_files_need_no_tool_and_holes_show() {
    let fake = opens(tools(Fake::new("fake")), 8, &["/i/sparse", "/i/full", "/dev/vg/a"])
        .node("/i/sparse", stat(10 << 20, 1 << 20))
        .node("/i/full", stat(10 << 20, 10 << 20))
        .node("/dev/vg/a", FileStat { mode: 0o060_660, rdev: (253, 3), ..stat(0, 0) })
        .file("/sys/dev/block/253:3/dm/uuid", "LVM-x\n")
        .file("/sys/dev/block/253:3/size", "8\n");
    let host = HostView::new(&fake);
    let raw = Some("raw");
    let mut guests =
        [guest(&host, "a", 8, &[("/i/sparse", raw), ("/i/full", raw), ("/dev/vg/a", raw), ("rbd:pool/x", raw)])];
    fill(&host, &mut guests);
    let [sparse, full, volume, remote] = &guests[0].disks[..] else { panic!("four disks") };
    assert_eq!((*sparse.sparse, *full.sparse, *volume.sparse), (Some(true), Some(false), None));
    assert_eq!(sparse.details.allocated_bytes, Some(1 << 20));
    assert_eq!((volume.details.storage.as_deref(), *volume.details.virtual_bytes), (Some("lvm"), Some(4096)));
    assert_eq!(volume.details.thin, Some(false));
    assert_eq!(sparse.details.host_cached_bytes, Some(4096));
    assert_eq!(sparse.read()["sparse"], "stat /i/sparse");
    assert_eq!(remote.details.storage, None);
    assert!(fake.ran().iter().all(|c| c.program == "fincore"), "{:?}", fake.ran());
    assert_eq!(guests[0].unread, []);
}

#[test]
fn a_chain_of_many_guests_is_read_for_each() {
    let fake = images(tools(Fake::new("fake")), "", &CHAIN);
    let open = ["/i/top.qcow2", "/i/mid.qcow2", "/i/base.qcow2"];
    let fake = (0..200).fold(fake, |fake, i| opens(fake, 1000 + i, &open));
    let host = HostView::new(&fake);
    let mut guests: Vec<Guest> = (0..200)
        .map(|i| {
            guest(
                &host,
                &format!("g{i}"),
                1000 + i,
                &[(["/i/top.qcow2", "/i/mid.qcow2"][i as usize % 2], Some("qcow2"))],
            )
        })
        .collect();
    fill(&host, &mut guests);
    for (i, guest) in guests.iter().enumerate() {
        let details = &guest.disks[0].details;
        assert_eq!(details.backing_files, Some(2 - i as u32 % 2), "{i}");
        assert_eq!(details.l2_cache_bytes, Some(DEFAULT_L2_CACHE_BYTES));
        assert_eq!(details.host_cached_bytes, Some(4096 * (3 - i as u64 % 2)));
        assert_eq!(guest.unread, []);
    }
    assert!(fake.ran().iter().all(|c| c.program == "fincore"), "{:?}", fake.ran());
}

#[test]
fn a_broken_chain_leaves_what_the_top_says_and_names_the_mend() {
    let mut locked = made(None);
    locked[35] = 2;
    let fake = images(tools(Fake::new("fake")), "", &CHAIN[..2]).file("/i/locked.qcow2", locked);
    let fake = opens(fake, 8, &["/i/top.qcow2", "/i/mid.qcow2", "/i/locked.qcow2"]);
    let host = HostView::new(&fake);
    let disks = [("/i/top.qcow2", Some("qcow2")), ("/i/gone.raw", Some("raw")), ("/i/locked.qcow2", Some("qcow2"))];
    let mut guests = [guest(&host, "a", 8, &disks)];
    fill(&host, &mut guests);
    let top = &guests[0].disks[0];
    assert_eq!((top.details.format.as_deref(), *top.details.virtual_bytes), (Some("qcow2"), Some(1 << 30)));
    assert_eq!(top.details.backing_files, None);
    let unread = &guests[0].unread;
    assert!(unread[0].why.contains("backing file /i/base.qcow2 is missing") && unread[0].mend.contains("rebase"));
    assert_eq!(unread[1].why, "no such image: /i/gone.raw");
    assert!(unread[2].why.contains("encrypted"), "{unread:?}");
    assert_eq!(unread.len(), 3);
}

#[test]
fn paths_are_those_of_the_guests_own_mount_namespace() {
    let fake = images(tools(Fake::new("fake")), "/proc/8/root", &CHAIN)
        .symlink("/proc/self/ns/mnt", "mnt:[1]")
        .symlink("/proc/8/ns/mnt", "mnt:[2]")
        .symlink("/proc/8/root", "/")
        .symlink("/proc/8/cwd", "/var/disks")
        // Absolute links count from the root of that process.
        .symlink("/proc/8/root/var", "/i/../i")
        .symlink("/proc/8/root/i/disks", "/i")
        .node("/proc/8/root/i/r", stat(9, 9));
    let open = ["top.qcow2", "mid.qcow2", "base.qcow2", "r"].map(|name| format!("/proc/8/root/i/{name}"));
    let fake = opens(fake, 8, &open.each_ref().map(String::as_str));
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/var/disks/top.qcow2", Some("qcow2")), ("r", Some("raw"))])];
    fill(&host, &mut guests);
    assert_eq!(guests[0].unread, []);
    assert_eq!(guests[0].disks[0].details.backing_files, Some(2));
    assert_eq!(guests[0].disks[1].details.storage.as_deref(), Some("file"));
}

/// Root reads what a guest's process has open, and nothing else.
#[test]
fn what_the_guest_has_not_open_is_not_looked_at() {
    let secret = ("/etc/shadow", None);
    let chain = [("/i/top.qcow2", Some("/etc/shadow")), secret];
    let fake = images(tools(Fake::new("fake")), "", &chain).file("/i/other", "raw");
    let fake = opens(fake, 8, &["/i/top.qcow2"]).symlink("/proc/8/fd/3", "socket:[1]");
    let host = HostView::new(&fake);
    let disks = [("/etc/shadow", Some("qcow2")), ("/i/other", Some("raw")), ("/i/top.qcow2", Some("qcow2"))];
    let mut guests = [guest(&host, "a", 8, &disks)];
    fill(&host, &mut guests);
    let details = |n: usize| &guests[0].disks[n].details;
    for n in [0, 1] {
        assert_eq!((*details(n).virtual_bytes, *details(n).allocated_bytes, &*details(n).storage), (None, None, &None));
    }
    assert_eq!((*details(2).virtual_bytes, *details(2).backing_files), (Some(1 << 30), None));
    let unread = &guests[0].unread;
    assert_eq!(unread.len(), 3, "{unread:?}");
    assert!(unread.iter().all(|u| u.why.contains("does not have it open for reading")), "{unread:?}");
    // A guest without a process, or with one whose descriptors are hidden.
    for pid in [None, Some(9)] {
        let mut guests = [Guest { pid, ..guest(&host, "a", 8, &disks[..1]) }];
        fill(&host, &mut guests);
        assert_eq!(guests[0].disks[0].details.virtual_bytes, None);
        assert_eq!(guests[0].unread.len(), 1, "{:?}", guests[0].unread);
    }
}

#[test]
fn other_users_than_root_look_with_their_own_rights() {
    let fake = images(Fake::new("fake").file("/proc/self/status", "Uid:\t7\t7\t7\t7\n"), "", &CHAIN);
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/i/top.qcow2", Some("qcow2"))])];
    fill(&host, &mut guests);
    assert_eq!(guests[0].disks[0].details.backing_files, Some(2), "{:?}", guests[0].unread);
}

#[test]
fn a_file_that_was_deleted_is_told_and_looked_at_where_it_is_open() {
    let of = |fake: Fake| {
        let fake = opens(tools(fake), 8, &["/i/a (deleted)"]).node("/i/a (deleted)", stat(9 << 20, 1 << 20));
        let host = HostView::new(&fake);
        let mut guests = [guest(&host, "a", 8, &[("/i/a", Some("raw"))])];
        fill(&host, &mut guests);
        assert_eq!(guests[0].unread, []);
        guests[0].disks[0].details.clone()
    };
    let gone = of(Fake::new("fake"));
    let deleted = DeletedFile { path: "/i/a".into(), pid: 8, fd: 10, replaced: false };
    assert_eq!((gone.deleted.value().clone(), *gone.virtual_bytes), (vec![deleted.clone()], Some(9 << 20)));
    let replaced = of(Fake::new("fake").file("/i/a", "another"));
    assert_eq!(*replaced.deleted, [DeletedFile { replaced: true, ..deleted }]);
}

#[test]
fn disks_in_memory_are_told() {
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw\n";
    let fake = opens(tools(Fake::new("fake")), 8, &["/dev/shm/a", "/i/a"])
        .file("/proc/self/mountinfo", mounts)
        .file("/dev/shm/a", "1")
        .file("/i/a", "1");
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/dev/shm/a", Some("raw")), ("/i/a", Some("raw"))])];
    fill(&host, &mut guests);
    let memory = |n: usize| guests[0].disks[n].details.in_memory.as_deref();
    assert_eq!((memory(0), memory(1)), (Some("tmpfs"), None));
}

#[test]
fn formats_whose_files_name_others_are_not_read() {
    let fake = opens(tools(Fake::new("fake")), 8, &["/i/a.vmdk", "/i/a"]).file("/i/a.vmdk", "# Disk DescriptorFile");
    let fake = fake.file("/i/a", b"\x7fELF".to_vec());
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/i/a.vmdk", Some("vmdk")), ("/i/a", Some("qcow2"))])];
    fill(&host, &mut guests);
    let unread = &guests[0].unread;
    assert!(unread[0].why.contains("vmdk images can refer to other files"), "{unread:?}");
    assert!(unread[1].why.contains("does not begin as a qcow2 image does"), "{unread:?}");
    assert!(fake.ran().is_empty());
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
        let host = HostView::new(&fake);
        is_same_here(&host, &guest(&host, "a", 8, &[]), Path::new(path))
    };
    assert!(same("mnt:[1]", "", "/srv/a.raw"), "our own namespace");
    assert!(!same("mnt:[1]", "", "images/a.raw"), "relative to a directory that is not ours");
    // libvirt's mount namespace: a copy of ours with another /dev.
    let copy = format!("{HOST}24 22 0:9 / /dev rw - tmpfs devfs rw\n");
    assert!(same("mnt:[2]", &copy, "/srv/a.raw") && !same("mnt:[2]", &copy, "/dev/vg/a"));
    for other in ["22 1 0:7 / / rw - overlay overlay rw\n", &HOST.replace("8:2 /", "8:2 /tenant"), ""] {
        assert!(!same("mnt:[2]", other, "/srv/a.raw"), "{other}");
    }
    let hidden = Fake::new("fake").file("/proc/self/mountinfo", HOST);
    let host = HostView::new(&hidden);
    assert!(!is_same_here(&host, &guest(&host, "a", 8, &[]), Path::new("/srv/a.raw")), "not readable");
}

#[test]
fn what_fincore_says_is_believed_only_where_it_can_be_true() {
    let answer = |file: &str, res: u64, size: u64| {
        says(format!("{{\"fincore\": [{{\"res\": {res}, \"pages\": 1, \"size\": {size}, \"file\": \"{file}\"}}]}}"))
    };
    let held = |fake: Fake, size: u64| {
        let host = HostView::new(&fake);
        let span = Span { bytes: size, at: At::Path("/i/a".into()), counted: Ok(None) };
        cached::held(&host, [(PathBuf::from("/i/a"), span)].into()).remove(Path::new("/i/a"))
    };
    let user = |out| {
        Fake::new("fake").installed("fincore").program("fincore", out).file("/proc/self/status", "Uid:\t7\t7\t7\t7\n")
    };
    // mincore(2) calls all pages resident for a user who may not write the file.
    let all = held(user(answer("/i/a", 8192, 8000)), 8000).unwrap().unwrap_err();
    assert_eq!(all.mend, Remedy::Root);
    assert_eq!(held(user(answer("/i/a", 4096, 8000)), 8000).unwrap().unwrap(), (4096, "fincore"));
    assert_eq!(held(user(answer("/i/a", 0, 0)), 8000), None);
    let large = held(user(answer("/i/a", 1, 2)), 1 << 45).unwrap().unwrap_err();
    assert!(large.mend.contains("6.5"), "{large:?}");
    let refused = held(user(vmio_node::fake::fails(1, "failed to open: Permission denied")), 9).unwrap().unwrap_err();
    assert_eq!((&refused.mend, refused.what.as_str()), (&Remedy::Root, "page cache of /i/a"));
}

#[test]
fn an_image_whose_format_nobody_states_is_not_looked_into() {
    let fake = opens(images(tools(Fake::new("fake")), "", &CHAIN), 8, &["/i/top.qcow2"]);
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/i/top.qcow2", None)])];
    fill(&host, &mut guests);
    assert_eq!((guests[0].disks[0].details.format.as_deref(), *guests[0].disks[0].details.backing_files), (None, None));
    assert!(guests[0].unread[0].mend.contains("format=raw"), "{:?}", guests[0].unread);
}

/// A machine with a file server that does not answer.
struct Dead(Fake, std::sync::atomic::AtomicUsize);

impl vmio_node::Reader for Dead {
    vmio_node::made_up_others!();

    fn name(&self) -> &str {
        "dead"
    }
    fn read(&self, path: &Path) -> vmio_node::Result<Vec<u8>> {
        self.0.read(path)
    }
    fn list(&self, dir: &Path) -> vmio_node::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn stat(&self, path: &Path) -> vmio_node::Result<Option<FileStat>> {
        self.0.stat(path)
    }
    fn link(&self, path: &Path) -> vmio_node::Result<Option<PathBuf>> {
        assert!(!path.starts_with("/srv"), "that would hang");
        self.0.link(path)
    }
    fn clock_seconds(&self) -> vmio_node::Result<f64> {
        self.0.clock_seconds()
    }
    fn sample(&self, plan: &vmio_node::SamplePlan) -> vmio_node::Result<Box<dyn vmio_node::Sampling>> {
        self.0.sample(plan)
    }
    fn identity(&self, path: &Path) -> vmio_node::Result<Option<vmio_node::FileIdentity>> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "it gave no answer within 1 s");
        Err(vmio_node::Error::File { node: "dead".into(), what: "look at", path: path.into(), source })
    }
}

impl vmio_node::Questions for Dead {
    fn answer(&self, question: &vmio_node::Question) -> Result<vmio_node::Output, vmio_node::Unanswered> {
        self.0.answer(question)
    }
    fn monitor(
        &self,
        guest: &str,
        socket: &Path,
        until: std::time::Instant,
    ) -> Result<vmio_node::qmp::ReadOnly, vmio_node::NoMonitor> {
        self.0.monitor(guest, socket, until)
    }
    fn network(
        &self,
        question: &vmio_node::NetworkQuestion,
    ) -> Result<vmio_node::NetworkAnswer, vmio_node::Unanswered> {
        self.0.network(question)
    }
}

#[test]
fn a_dead_file_server_is_asked_once() {
    let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /srv rw - nfs4 nas:/vm rw\n";
    let fake = opens(tools(Fake::new("fake")), 8, &["/srv/vm/0.raw"]);
    // A link to the mount, far down, is followed only as far as the server is not queried.
    let dir = "/a".repeat(40);
    let fake = fake.symlink(format!("{dir}/vm"), "/srv/vm").file("/proc/self/mountinfo", mounts);
    let dead = Dead(fake, Default::default());
    let host = HostView::new(&dead);
    let sources: Vec<String> = (0..20).map(|i| format!("{dir}/vm/{i}.raw")).collect();
    let disks: Vec<(&str, Option<&str>)> = sources.iter().map(|s| (s.as_str(), Some("raw"))).collect();
    let mut guests = [guest(&host, "a", 8, &disks)];
    fill(&host, &mut guests);
    assert_eq!(guests[0].unread.len(), 20);
    assert_eq!(dead.1.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(guests[0].unread[0].mend.contains("may hang"), "{:?}", guests[0].unread);
    assert!(guests[0].unread[1].why.contains("NFS server nas:/vm does not answer"), "{:?}", guests[0].unread);
}

/// Disks beyond a guest's time budget are reported as unread.
#[test]
fn a_guest_that_takes_too_long_is_left() {
    let fake = tools(Fake::new("fake"));
    let host = HostView::new(&fake);
    assert_eq!(host.charged(Some(8), || std::thread::sleep(std::time::Duration::from_millis(1100))), Some(()));
    assert_eq!((host.charged(Some(8), || 1), host.charged(Some(9), || 1)), (None, Some(1)));
    let mut guests = [guest(&host, "a", 8, &[("/i/a", Some("raw")), ("/i/b", Some("raw"))])];
    fill(&host, &mut guests);
    assert_eq!(guests[0].unread.len(), 1, "{:?}", guests[0].unread);
    assert!(guests[0].unread[0].what.starts_with("2 of the guest's disks"), "{:?}", guests[0].unread);
}

#[test]
fn links_that_go_round_name_nothing() {
    let fake = tools(Fake::new("fake"))
        .symlink("/proc/self/ns/mnt", "mnt:[1]")
        .symlink("/proc/8/ns/mnt", "mnt:[2]")
        .symlink("/proc/8/root/a", "/b")
        .symlink("/proc/8/root/b", "/a");
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/a", Some("qcow2"))])];
    fill(&host, &mut guests);
    assert!(guests[0].unread[0].why.contains("too many links"), "{:?}", guests[0].unread);
    assert_eq!(fake.ran(), []);
}

#[test]
fn on_file_systems_that_compress_few_blocks_are_no_holes() {
    let fake = opens(tools(Fake::new("fake")), 8, &["/tank/a"])
        .node("/tank/a", stat(10 << 20, 1 << 20))
        .file("/proc/self/mountinfo", "23 22 0:21 / /tank rw - zfs tank rw\n");
    let host = HostView::new(&fake);
    let mut guests = [guest(&host, "a", 8, &[("/tank/a", Some("raw"))])];
    fill(&host, &mut guests);
    let disk = &guests[0].disks[0];
    assert_eq!((*disk.sparse, *disk.details.thin, *disk.details.allocated_bytes), (None, None, Some(1 << 20)));
}
