//! What happens to a guard in a long life, at random and one thing after the other: interfaces that come, go and are
//! renamed, policies that are changed, refused and set over, kills, an uplink that fails or is called something else,
//! another program's queue in place of the guard's, floods and forged frames. Meanwhile the sink counts what arrives of
//! two guests that want more than their minima. At the end all that the guard holds is what it was at the beginning,
//! and after `undo` the host is as before.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::process;
use vmio_testbed::{CHURN_SECONDS, churn_seconds, poll_for, poll_until};

use crate::help::attacked::Bed;
use crate::help::guarded::{TestHost, is_up, network_state, objects};
use crate::help::state_dir::{Companion, built};
use crate::help::watched::{AT, Bucket, Judged, Step, Watch};
use crate::root_guard_churn::End;
use crate::root_guard_steps::{Churn, KINDS, Times, maps_of, policy};

/// What both guests send, in Mbit/s of payload: more than any of their minima.
const OFFERED: [u64; 2] = [11, 7];
/// How long a guest that wants something may have nothing.
const SILENT: Duration = Duration::from_secs(3);
/// Of how many seconds a median is asserted, and what it must be at least: a busy machine leaves single ones short.
const SECONDS: usize = 20;
const MEDIAN: f64 = 0.9;
/// What a guard may have grown by: of memory what its allocator keeps, of descriptors those of its helpers, of which
/// there are more once it has seen many guests of other tests.
const GROWN_BYTES: u64 = 24 << 20;
const GROWN_DESCRIPTORS: usize = 20;

/// What a guard holds.
#[derive(Debug)]
struct Figures {
    at: Instant,
    run_seconds: f64,
    resident_bytes: u64,
    descriptors: usize,
    maps: usize,
    objects: BTreeMap<&'static str, usize>,
}

impl Figures {
    fn of(churn: &mut Churn<'_>) -> Figures {
        let pid = churn.pid();
        let text = |name: &str| fs::read_to_string(process::file(pid, name)).unwrap();
        let maps = maps_of(pid);
        churn.maps.extend(&maps);
        Figures {
            at: Instant::now(),
            run_seconds: process::Stat::parse(&text("stat")).unwrap().run_seconds().unwrap(),
            resident_bytes: process::Status::of_text(text("status")).resident_bytes().unwrap(),
            descriptors: fs::read_dir(process::file(pid, "fd")).unwrap().count(),
            maps: maps.len(),
            objects: objects(),
        }
    }
}

/// Whether the kernel still has a map. Numbers are not given again before all have been.
fn is_there(map: u32) -> bool {
    // SAFETY: no memory is handed over.
    let descriptor = unsafe { libbpf_sys::bpf_map_get_fd_by_id(map) };
    if descriptor < 0 {
        return false;
    }
    // SAFETY: it was just opened, and is nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    true
}

/// What one of the two guests sends, to the end.
fn sender(bed: &Bed, guest: usize) -> Companion {
    let (port, rate) = (AT.1.to_string(), (OFFERED[guest] * 1_000_000).to_string());
    let mut command = Command::new(built("vmio-udp"));
    command.args(["send", AT.0, &port, "--rate", &rate, "--bytes", "1472", "--seconds", "80000"]);
    bed.guests[guest].inside(|| Companion::start(&mut command))
}

/// The figures as a table; and what was asserted of them held.
fn churned(times: Times, seed: u64, told: impl FnOnce(&str) + Send) {
    println!("seed {seed}");
    TestHost::with_bpffs(|host| {
        let bed = Bed::set_up(host);
        host.write(&policy(0));
        let (end, watch) = (AtomicBool::new(false), bed.sink.inside(Watch::new));
        thread::scope(|s| {
            let ended = End(&end);
            let counted = s.spawn(|| watch.count(&end));
            let senders = [0, 1].map(|guest| sender(&bed, guest));
            poll_until("both guests' packets arrive", || watch.arrived().iter().all(|packets| *packets > 0));
            ["u0", "t1", "t2", "t3", "t4"].iter().for_each(|link| is_up(link));
            let before = network_state();
            let mut churn = Churn::new(host, &bed, &watch, times, seed);
            churn.start();
            churn.done("start", true, Duration::ZERO);
            churn.rest();
            let (begin, first) = (Instant::now(), Figures::of(&mut churn));
            churn.rounds(KINDS, begin + times.all / 2);
            churn.rest();
            // From here on one guard lives to the end.
            churn.step(&KINDS[0]);
            churn.rest();
            let middle = Figures::of(&mut churn);
            churn.rounds(&KINDS[1..], begin + times.all);
            churn.rest();
            poll_for("the guard holds what it held at the beginning", || {
                let now = Figures::of(&mut churn);
                let same = now.objects == first.objects && now.maps == middle.maps;
                let grown = now.descriptors > middle.descriptors + GROWN_DESCRIPTORS;
                if same && !grown { Ok(()) } else { Err((now, &middle, &first)) }
            });
            let last = Figures::of(&mut churn);

            drop(ended);
            let judged = Judged::of(&counted.join().unwrap(), &churn.steps);
            drop(senders);
            let text = table(&churn, &judged, [&first, &middle, &last], seed);
            println!("{text}");
            told(&text);
            assert!(judged.silent < SILENT, "seed {seed}: a guest had nothing for {:?}", judged.silent);
            let median = judged.median().filter(|_| judged.seconds() >= SECONDS);
            assert!(median.is_none_or(|median| median >= MEDIAN), "seed {seed}: {median:?} of a minimum");
            let grown = last.resident_bytes.saturating_sub(middle.resident_bytes);
            assert!(grown < GROWN_BYTES, "seed {seed}: it has grown by {grown} bytes");

            host.ends(&["guard", "undo"], 0);
            assert!(churn.daemon.take().unwrap().0.wait().unwrap().success());
            poll_for("the host is as it was", || {
                let now = network_state();
                if now == before { Ok(()) } else { Err((now, &before)) }
            });
            assert_eq!(host.kept(), [""; 0], "seed {seed}");
            poll_for("no guard's map is left", || {
                let left: Vec<u32> = churn.maps.iter().copied().filter(|map| is_there(*map)).collect();
                if left.is_empty() { Ok(()) } else { Err(left) }
            });
        });
    });
}

fn table(churn: &Churn<'_>, judged: &Judged, figures: [&Figures; 3], seed: u64) -> String {
    let count = |kind: &str| churn.steps.iter().filter(|step| step.kind == kind).count();
    let each: Vec<String> = KINDS.iter().map(|kind| format!("{} {}", kind.name, count(kind.name))).collect();
    let [first, middle, last] = figures;
    let part = |part: Option<f64>| part.map_or("none".to_owned(), |part| format!("{:.1} %", part * 1e2));
    let (restored, after) = judged.restored;
    let processor = (last.run_seconds - middle.run_seconds) / (last.at - middle.at).as_secs_f64();
    let mut text = format!(
        "| what | figure |\n|---|---|\n\
         | time; seed of the steps | {:.0} s; {seed} |\n\
         | steps | {}: {} |\n\
         | seconds without a step in them or just before | {} |\n\
         | what a guest had of its minimum in the worst of these; in the median | {}; {} |\n\
         | longest without a packet of a guest | {:.1} s |\n\
         | minima there again after a step, at the latest | {:.1} s ({after}) |\n\
         | another program's queue removed, at the latest | {:.2} s |\n\
         | processor time of the last guard, of one processor | {:.2} % |\n\n",
        (last.at - first.at).as_secs_f64(),
        KINDS.iter().map(|kind| count(kind.name)).sum::<usize>(),
        each.join(", "),
        judged.seconds(),
        part(judged.worst()),
        part(judged.median()),
        judged.silent.as_secs_f64(),
        restored.as_secs_f64(),
        churn.foreign.as_secs_f64(),
        processor * 1e2,
    );
    text += "| of the guard | the first, when it began | the last, when it began | at the end |\n|---|---|---|---|\n";
    let mut row = |what: &str, of: &dyn Fn(&Figures) -> String| {
        let _ = writeln!(text, "| {what} | {} | {} | {} |", of(first), of(middle), of(last));
    };
    row("memory", &|of| format!("{:.1} MiB", of.resident_bytes as f64 / f64::from(1 << 20)));
    row("descriptors", &|of| of.descriptors.to_string());
    row("BPF maps", &|of| of.maps.to_string());
    for what in first.objects.keys() {
        row(what, &|of| of.objects[what].to_string());
    }
    text
}

#[test]
#[ignore = "root"]
fn what_a_guard_holds_stays_the_same_through_seconds_of_churn() {
    // A round of all kinds for each half, however long that takes.
    let [all, pause, flood] = [4000, 50, 200].map(Duration::from_millis);
    churned(Times { all, pause, flood }, 1, |_| ());
}

/// For eight minutes, or for as long as the variable says; the table is written beside what the tests are built into.
#[test]
#[ignore = "root"]
fn long_what_a_guard_holds_stays_the_same_through_minutes_of_churn() {
    let all = Duration::from_secs(churn_seconds().unwrap_or(480));
    let [pause, flood] = [4, 1].map(Duration::from_secs);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endurance.md");
    println!("{CHURN_SECONDS}={}, into {}", all.as_secs(), file.display());
    churned(Times { all, pause, flood }, 2, |table| fs::write(file, table).unwrap());
}

/// The judgement itself: a guest that has half of its minimum, and then nothing.
#[test]
fn a_short_second_and_silence_are_seen() {
    let full = Bucket { bytes: [100, 200], looks: 1 };
    let half = Bucket { bytes: [50, 200], looks: 1 };
    let none = Bucket { bytes: [0, 200], looks: 1 };
    let asleep = Bucket::default();
    let parts = [(&full, 20), (&half, 10), (&none, 20), (&asleep, 10), (&none, 15), (&full, 15)];
    let buckets: Vec<Bucket> = parts.iter().flat_map(|(bucket, count)| vec![(*bucket).clone(); *count]).collect();
    let seconds = Duration::from_secs;
    let step = |kind, cuts, began, ended| Step { kind, cuts, began, ended, minima: [1000.0, 2000.0] };
    let start = step("start", true, Duration::ZERO, Duration::ZERO);
    let judged = Judged::of(&buckets, std::slice::from_ref(&start));
    assert_eq!(
        judged.shares[0],
        [1.0, 0.5, 0.0, 0.0, 0.0, 0.5, 1.0],
        "the first second is too near, one was slept through"
    );
    assert_eq!((judged.worst(), judged.median()), (Some(0.0), Some(0.5)));
    assert_eq!(judged.silent, Duration::from_millis(3500));

    let cut = step("cut", true, seconds(3), Duration::from_millis(7450));
    let next = step("next", false, seconds(9), seconds(9));
    let judged = Judged::of(&buckets, &[start, cut, next]);
    assert_eq!(judged.shares[0], [1.0, 0.5]);
    assert_eq!(judged.silent, Duration::ZERO);
    assert_eq!(judged.restored, (Duration::from_millis(50), "cut"));
}
