//! Three real guests and a guard that moves their memory: what one leaves unused goes to the one whose reads the host's
//! page cache answers, and back when a memory hog runs in the giver. The guard takes its host for a small one, whose
//! memory its guests have between them: it finds a file of the test in place of `/proc/meminfo`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmio_look::HostView;
use vmio_look::scan::{self, MemoryOf};
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::memory::{HOST_KEEPS, STEP_BYTES};
use vmio_node::linux::process::Status;
use vmio_node::linux::system;
use vmio_node::{Exec, Local, Process};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{DiskSpec, Guest, GuestSpec};
use vmio_testbed::poll_until;

use crate::guest_guard_host::{GUESTS, Host};

const POLICY: &str = r#"[uplink.u0]
capacity = "1Gbit"
framing = "none"
[class.gold]
memory_min = "256MiB"
memory_move = true
[class.silver]
memory_min = "256MiB"
memory_move = true
[class.tin]
memory_min = "192MiB"
memory_move = true
[[interface]]
match = { mac = "52:54:00:09:00:10" }
class = "gold"
[[interface]]
match = { mac = "52:54:00:09:00:11" }
class = "silver"
[[interface]]
match = { mac = "52:54:00:09:00:12" }
class = "tin"
"#;

/// Leaves memory unused, until the hog runs in it.
const GIVER: usize = 0;
/// Reads more of its disk than its page cache holds.
const READER: usize = 1;
/// Neither has much free nor wants more.
const OTHER: usize = 2;
/// What each is started with, in MiB.
const STARTED_MIB: [u64; GUESTS.len()] = [640, 768, 256];
/// What each has before the guard comes.
const OWN_MIB: [u64; GUESTS.len()] = [640, 384, 256];
/// No guest has less at any time: its minimum by the policy; what it had, where it gives nothing.
const LEAST_MIB: [u64; GUESTS.len()] = [256, 384, 256];
/// The reader's disk: it fits in none of its page caches.
const DISK_MIB: usize = 512;
/// What the host can give at the beginning: less than one step, so that somebody has to give it.
const SPARE_MIB: u64 = 96;
/// What the hog leaves free in its guest: more than its kernel keeps (`min_free_kbytes`, at most a twentieth of its
/// memory with huge pages), and less than what it has the guard give more at.
const LEFT_BYTES: u64 = 44 << 20;
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// How long guests run before the host's memory is counted.
const WARM: Duration = Duration::from_secs(20);
/// The guard waits for a minute before it moves memory, and each move takes it one or two of its checks.
const GIVEN: Duration = Duration::from_secs(300);
/// How long the giver may wait.
const BACK: Duration = Duration::from_secs(120);

/// A guest as its host sees it.
struct Watched {
    guest: Box<dyn Guest>,
    pid: u32,
}

impl Watched {
    fn boot(host: &Host, number: usize, disks: Vec<DiskSpec>) -> Watched {
        let memory_mib = u32::try_from(STARTED_MIB[number]).unwrap();
        let spec = GuestSpec { disks, balloon: true, ..GuestSpec::of(GUESTS[number].0, 1, memory_mib) };
        let guest = host.boot_as(number, spec);
        let pid = guest.hypervisor().unwrap().unwrap().pid;
        let watched = Watched { guest, pid };
        watched.guest.balloon().unwrap().aim_at(OWN_MIB[number] << 20).unwrap();
        poll_until("the balloon has its size", || watched.has_mib() == OWN_MIB[number]);
        watched
    }

    /// What its balloon leaves it.
    fn has_mib(&self) -> u64 {
        self.guest.balloon().unwrap().actual_bytes().unwrap() >> 20
    }

    /// What of the host's memory it has; nothing of it is swapped out.
    fn resident_mib(&self) -> u64 {
        let status = Status::of(&Local::new(), self.pid).unwrap();
        assert_eq!(status.swapped_bytes(), Some(0));
        status.resident_bytes().unwrap() >> 20
    }

    /// Pages that its page cache has lost and read again.
    fn refaults(&self) -> u64 {
        let inside = self.guest.node();
        let counters = inside.reader().read_text(Path::new("/proc/vmstat")).unwrap();
        system::counter(&counters, "workingset_refault_file").unwrap()
    }
}

/// The guests by their time.
struct Course<'a> {
    host: &'a Host,
    guests: &'a [Watched; GUESTS.len()],
    /// What reads the reader's disk.
    reading: Box<dyn Process>,
    /// What the guard finds in place of `/proc/meminfo`.
    meminfo: fs::File,
    total_mib: u64,
    began: Instant,
    /// Seconds, what each guest has in MiB, pages that each has read again so far.
    rows: String,
}

/// Has the guest read its whole disk again and again. It is open all the time: the last one that closes a device drops
/// what is cached of it.
fn read(reader: &Watched) -> Box<dyn Process> {
    let script = "exec 3<\"$0\" 2>/dev/null; while dd if=\"$0\" of=/dev/null bs=1M; do :; done";
    let disk = reader.guest.disk_path("disk0").unwrap().display().to_string();
    reader.guest.node().spawn(&Exec::new("sh").args(["-c", script, &disk])).unwrap()
}

impl Course<'_> {
    /// What each guest has now, in MiB.
    fn look(&mut self) -> [u64; GUESTS.len()] {
        assert_eq!(self.reading.try_wait().unwrap(), None, "the reader reads all the time");
        let resident: u64 = self.guests.iter().map(Watched::resident_mib).sum();
        let available = self.total_mib.checked_sub(resident).expect("guests touch more than the host has");
        // In place and of one length: the guard may read at any time.
        let (total_kib, free_kib) = (self.total_mib << 10, available << 10);
        let told = format!("MemTotal: {total_kib:>12} kB\nMemAvailable: {free_kib:>12} kB\n");
        self.meminfo.write_all_at(told.as_bytes(), 0).unwrap();
        let has = self.guests.each_ref().map(Watched::has_mib);
        for number in [GIVER, READER, OTHER] {
            let (least, most) = (LEAST_MIB[number], STARTED_MIB[number]);
            assert!((least..=most).contains(&has[number]), "{has:?} MiB\n{}", self.state());
        }
        let refaults = self.guests.each_ref().map(Watched::refaults);
        let row: Vec<String> = has.iter().chain(&refaults).map(u64::to_string).collect();
        writeln!(self.rows, "{:.1},{}", self.began.elapsed().as_secs_f64(), row.join(",")).unwrap();
        has
    }

    /// Looks until that is so.
    fn until(&mut self, what: &str, limit: Duration, is_so: impl Fn(&[u64; GUESTS.len()]) -> bool) {
        let end = Instant::now() + limit;
        while !is_so(&self.look()) {
            assert!(Instant::now() < end, "not within {limit:?}: {what}\n{}", self.state());
            thread::sleep(LOOK);
        }
    }

    /// What a course that is wrong would be asked about: what the guard says, what it sees of each guest by its monitor,
    /// its files and the host's page cache, and what the guest itself says.
    fn state(&self) -> String {
        let said = |how: &str| self.host.vmio(&["guard", "status", how]).output().unwrap().stdout;
        let memory = serde_json::from_slice::<Value>(&said("--json")).map(|status| status["memory"].to_string());
        let mut text = format!("{}\n{}\n{memory:?}\n", self.rows, String::from_utf8_lossy(&said("--verbose")));
        let (node, pids) = (Local::new(), self.guests.iter().map(|one| one.pid).collect::<BTreeSet<u32>>());
        let is_ours = |found: &MemoryOf| found.guest.pid.is_some_and(|pid| pids.contains(&pid));
        for MemoryOf { guest, unread } in scan::memory(&HostView::new(&node), &pids).into_iter().filter(is_ours) {
            let own = guest.processors.as_ref().map(|own| (*own.balloon, *own.storage_read_bytes));
            let disks = guest.disks.iter().map(|disk| (*disk.details.read_bytes, *disk.details.host_cached_bytes));
            let disks: Vec<_> = disks.collect();
            writeln!(text, "{}: {own:?}, disks {disks:?}, not read: {unread:?} {:?}", guest.name, guest.unread)
                .unwrap();
        }
        for (watched, (name, _)) in self.guests.iter().zip(GUESTS) {
            let inside = watched.guest.node().reader().read_text(Path::new("/proc/meminfo")).unwrap_or_default();
            let inside: Vec<&str> = inside.lines().take(5).collect();
            writeln!(text, "{name}: of the host's {} MiB; {inside:?}", watched.resident_mib()).unwrap();
        }
        text
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_idle_memory_goes_to_who_reads_from_the_hosts_cache_and_back() {
    let host = Host::new();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, meminfo) = (dir.path().join("disk.raw"), dir.path().join("meminfo"));
    fs::write(&disk, vec![1u8; DISK_MIB << 20]).unwrap();
    let attachment = Some(Attachment::new("virtio-blk", Cache::Writeback, Aio::Threads));
    let disk = DiskSpec { id: "disk0".into(), storage: Storage::File(disk), attachment };
    let guests = [
        Watched::boot(&host, GIVER, Vec::new()),
        Watched::boot(&host, READER, vec![disk]),
        Watched::boot(&host, OTHER, Vec::new()),
    ];
    let mut course = Course {
        host: &host,
        guests: &guests,
        reading: read(&guests[READER]),
        meminfo: fs::File::create(&meminfo).unwrap(),
        // Until it is counted.
        total_mib: 2 * STARTED_MIB.iter().sum::<u64>(),
        began: Instant::now(),
        rows: "seconds,gold_mib,silver_mib,tin_mib,gold_refaults,silver_refaults,tin_refaults\n".to_owned(),
    };
    let warm = Instant::now() + WARM;
    course.until("guests have touched what they use", WARM * 2, |_| Instant::now() > warm);
    let used: u64 = guests.iter().map(|one| one.has_mib().max(one.resident_mib())).sum();
    course.total_mib = (used + SPARE_MIB) * HOST_KEEPS / (HOST_KEEPS - 1);
    course.look();

    let before = ["unshare", "--mount", "--", "sh", "-c", "mount --bind \"$0\" /proc/meminfo && exec \"$@\""];
    let small = [&before[..], &[meminfo.to_str().unwrap()]].concat();
    let step_mib = STEP_BYTES >> 20;
    let is_given = |has: &[u64; GUESTS.len()]| {
        has[GIVER] <= OWN_MIB[GIVER] - step_mib && has[READER] > OWN_MIB[READER] && has[OTHER] == OWN_MIB[OTHER]
    };
    let is_undone = |has: &[u64; GUESTS.len()]| *has == OWN_MIB;
    let undo = || host.vmio(&["guard", "undo"]).status().unwrap().success();

    // Given, and undone.
    let mut daemon = host.guard_behind(&small, POLICY);
    course.until("the reader has what the giver had", GIVEN, is_given);
    assert!(undo() && daemon.0.wait().unwrap().success(), "{}", course.state());
    assert!(is_undone(&course.look()), "{}", course.state());

    // Given, and taken back when the giver needs it: its programs run on.
    let mut daemon = host.guard_behind(&small, POLICY);
    course.until("the reader has what the giver had, again", GIVEN, is_given);
    let given_mib = course.look()[GIVER];
    let inside = guests[GIVER].guest.node();
    let block = system::memory_bytes(inside.reader(), "MemFree").unwrap() - LEFT_BYTES;
    let block = format!("bs={block}");
    let mut hog = inside.spawn(&Exec::new("dd").args(["if=/dev/zero", "of=/dev/null", &block])).unwrap();
    // It gets what it needs, which need not be all that it had.
    let is_back = |has: &[u64; GUESTS.len()]| has[GIVER] > given_mib && has[READER] == OWN_MIB[READER];
    course.until("the giver has what it needs, by what the reader was given", BACK, is_back);
    assert_eq!(hog.try_wait().unwrap(), None, "the hog runs to the end");
    hog.kill().unwrap();
    assert!(undo() && daemon.0.wait().unwrap().success(), "{}", course.state());
    assert!(is_undone(&course.look()), "{}", course.state());

    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-memory.csv");
    fs::write(&file, &course.rows).unwrap();
    println!("{}", file.display());
    drop(course);
    drop((inside, hog, guests));
    host.state.is_clean();
}
