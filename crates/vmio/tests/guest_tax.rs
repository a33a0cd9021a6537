//! Whole runs with real guests: what is stored and shown, and what a run that is broken off by
//! whatever means keeps and leaves behind (nothing).
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::schema;
use crate::help::state_dir;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use schema::fits;
use serde_json::Value;
use state_dir::{StateDir, fixture, signal};
use vmio_model::result::{Accel, RunState, Sample};
use vmio_model::run::Run;
use vmio_testbed::process::Companion;

/// The command that measures a study of `tests/fixtures/` without a question. Other guests on
/// the machine are not spared, so that neighbours do not change what is tested.
fn measure(state: &StateDir, study: &str, more: &[&str]) -> Command {
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture(study)).args(["--yes", "--no-gentle", "--on"]).arg(state.path()).args(more);
    command
}

fn keys(run: &Run) -> Vec<(String, u32)> {
    run.samples.iter().map(|s| (s.cell.key(), s.round)).collect()
}

/// Every cell of `one.toml` in both of its rounds, each once.
fn is_whole(run: &Run) {
    let distinct: BTreeSet<_> = keys(run).into_iter().collect();
    assert_eq!((run.samples.len(), distinct.len()), (8, 8), "{:?}", keys(run));
    assert_eq!(run.state, RunState::Done);
    assert!(run.skipped.is_empty(), "{:?}", run.skipped);
}

/// Says on standard error how long a part took.
fn timed<T>(what: &str, part: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = part();
    eprintln!("  {what}: {:.1} s", began.elapsed().as_secs_f64());
    result
}

/// vmio's stored figures are fio's own, to the last digit that fio prints.
fn agrees_with_fio(sample: &Sample) {
    let (work, job) = (sample.work(), &sample.result.raw["jobs"][0]);
    let side = &job[if work.read_bytes > 0 { "read" } else { "write" }];
    let own = |key: &str| side[key].as_u64().unwrap();
    assert_eq!(work.read_bytes + work.write_bytes, own("io_bytes"));
    assert_eq!(work.ios, own("total_ios"));
    assert_eq!(work.seconds, own("runtime") as f64 / 1000.0);
    assert_eq!(work.bandwidth() as u64, own("bw_bytes"));
    let iops = side["iops"].as_f64().unwrap();
    assert!((work.iops() - iops).abs() <= 1e-6 + iops * 1e-9, "{} against fio's {iops}", work.iops());
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_whole_run_is_stored_shown_in_every_form_and_leaves_nothing() {
    let state = StateDir::with_image();
    let ended = timed("run", || state.finish(&mut measure(&state, "tiny.toml", &["--json"]))).with(0);
    fits("tax", &ended.out);
    state.is_clean();
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    let run = state.last().unwrap();

    assert_eq!(run.state, RunState::Done);
    let distinct: BTreeSet<_> = keys(&run).into_iter().collect();
    assert_eq!((run.samples.len(), distinct.len()), (16, 16), "8 cells in 2 rounds: {:?}", keys(&run));
    for sample in &run.samples {
        agrees_with_fio(sample);
        let device = sample.device().expect("the disk below has counters");
        assert!(device.seconds > 0.0 && sample.cpu().host_seconds > 0.0, "{}", sample.cell.key());
        assert_eq!(sample.cpu().by_role.contains_key("vcpu"), !sample.cell.is_native());
    }
    for (attachment, key) in [
        ("device/native", "direct_io"),
        ("device/qemu/lsi53c895a,none,native", "aio"),
        ("device/qemu/virtio-blk,none,native", "aio"),
        ("sparse/qemu/virtio-blk,none,native", "aio"),
    ] {
        let settings = run.effective.get(attachment).unwrap_or_else(|| panic!("{attachment}: {:?}", run.effective));
        assert!(settings.get(key).is_some_and(|v| !v.is_empty()), "{attachment}: {settings:?}");
        assert_eq!(json["effective"][attachment][key].as_str(), settings.get(key).map(String::as_str));
    }

    // What is concluded from emulation stands in every form.
    let page = state.path().join("r.html");
    let text = state.vmio(&["runs", "show", "last", "--verbose"]).with(0).out;
    let markdown = state.vmio(&["runs", "show", "last", "--markdown"]).with(0).out;
    state.vmio(&["runs", "show", "last", "--html", page.to_str().unwrap()]).with(0);
    let html = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    let emulated = run.environment.accel.expect("a guest ran") == Accel::Tcg;
    assert_eq!(json["emulated"], emulated);
    assert_eq!(json["statement"].is_string(), emulated);
    for (form, shown) in [("text", &text), ("markdown", &markdown), ("html", &html)] {
        assert_eq!(shown.contains("software emulation"), emulated, "{form}: {shown}");
        assert!(shown.contains("rand-read-32") && shown.contains("lsi53c895a"), "{form}");
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_killed_qemu_is_told_with_its_console() {
    let state = StateDir::with_image();
    let mut child = state.spawn(&mut measure(&state, "one.toml", &[]));
    state.wait_for_samples(&mut child, 1);
    let guests = state.processes("-name vmio-qemu");
    assert_eq!(guests.len(), 1, "{guests:?}");
    signal(guests[0].0, Signal::KILL);
    let ended = timed("rest of the run", || state.end(child)).with(0);
    let ended = ended.says(&["retried once", "killed by signal 9", "end of its console"]);
    assert!(ended.out.contains("virtio-blk"), "{}", ended.out);
    is_whole(&state.last().unwrap());
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn ctrl_c_keeps_what_was_measured_and_resume_finishes_it() {
    let state = StateDir::with_image();
    let mut child = state.spawn(&mut measure(&state, "one.toml", &[]));
    state.wait_for_samples(&mut child, 2);
    signal(child.id(), Signal::INT);
    timed("end", || state.end(child)).with(4).says(&["Ctrl-C", "--resume", "runs show 1"]);
    state.is_clean();
    let before = state.last().unwrap();
    assert_eq!(before.state, RunState::Interrupted("Ctrl-C".into()));
    assert!(before.samples.len() >= 2 && before.samples.len() < 8);
    // And once more while the guest boots.
    let mut child = state.spawn(&mut measure(&state, "one.toml", &["--resume"]));
    state.wait_for(&mut child, || !state.processes("-name vmio-qemu").is_empty());
    signal(child.id(), Signal::TERM);
    let ended = state.end(child).with(4).says(&["SIGTERM"]);
    eprintln!("{}", ended.err);
    state.is_clean();

    let ended = timed("resumed", || state.finish(&mut measure(&state, "one.toml", &["--resume"]))).came_to_its_end();
    ended.says(&["resuming run 1"]);
    let after = state.last().unwrap();
    assert_eq!(after.id, before.id);
    assert_eq!(after.samples[..before.samples.len()], before.samples[..], "what was there is untouched");
    is_whole(&after);
    state.is_clean();
    // Nothing is left to resume.
    state.finish(&mut measure(&state, "one.toml", &["--resume"])).with(2).says(&["no run of one was interrupted"]);
}

/// SIGKILL at random moments; each next start cleans up and goes on, and loses no sample.
fn kills(count: u32) {
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    eprintln!("  seed {random}");
    let state = StateDir::with_image();
    let mut acknowledged: Vec<Sample> = Vec::new();
    let mut cleaned = 0;
    for kill in 0..count {
        let broken_off = state.last().is_some_and(|r| matches!(r.state, RunState::Interrupted(_)));
        let mut command = measure(&state, "one.toml", if broken_off { &["--resume"] } else { &[] });
        let mut child = state.spawn(&mut command);
        if !broken_off {
            acknowledged.clear();
        }
        // xorshift64 (Marsaglia 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if kill == 0 {
            // While the guest boots and nothing is stored, which a random moment seldom hits.
            state.wait_for(&mut child, || !state.processes("-name vmio-qemu").is_empty());
        }
        let until = Instant::now() + Duration::from_millis(if kill == 0 { 0 } else { random % 12_000 });
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(5));
        }
        let seen = if broken_off { state.last().unwrap().samples } else { Vec::new() };
        signal(child.id(), Signal::KILL);
        let ended = state.end(child);
        assert!(matches!(ended.code, None | Some(0 | 4)), "kill {kill}: {:?} {}", ended.code, ended.err);
        cleaned += ended.err.matches("cleaned up after a killed run").count();
        assert!(!ended.err.contains("could not clean up"), "{}", ended.err);
        let stored = state.last().map(|r| r.samples).unwrap_or_default();
        for old in acknowledged.iter().chain(&seen) {
            assert!(stored.contains(old), "kill {kill}: a sample of {} is lost", old.cell.key());
        }
        acknowledged = stored;
    }
    let broken_off = state.last().is_some_and(|r| matches!(r.state, RunState::Interrupted(_)));
    let last =
        state.finish(&mut measure(&state, "one.toml", if broken_off { &["--resume"] } else { &[] })).came_to_its_end();
    cleaned += last.err.matches("cleaned up after a killed run").count();
    eprintln!("  {cleaned} things were cleaned up after {count} kills");
    is_whole(&state.last().unwrap());
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn sigkill_loses_no_sample_and_the_next_start_cleans_up() {
    timed("3 kills", || kills(3));
}

#[test]
#[ignore = "long"]
fn long_fifty_random_kills() {
    kills(50);
}

/// A study in which a rule finds what it is about, and that finding proven by a run of its own; `place` is where both
/// work, as options.
fn is_found_and_proven(state: &StateDir, study: &str, rule: &str, place: &[&str]) {
    let run = |command: &[&str], what: &str| -> Value {
        let ended = timed(what, || state.finish(state.command(command).args(place))).with(0);
        fits("tax", &ended.out);
        serde_json::from_str(&ended.out).unwrap()
    };
    let study = fixture(study);
    let json = run(&["study", "run", study.to_str().unwrap(), "--yes", "--no-gentle", "--json"], "run");
    let rules: Vec<&str> = json["findings"].as_array().unwrap().iter().filter_map(|f| f["rule"].as_str()).collect();
    assert!(rules.contains(&rule), "{rules:?}");
    let json = run(&["tax", "--prove", rule, "--of", "1", "--yes", "--no-gentle", "--json"], "proof");
    assert_eq!(json["run"], 1, "the report is of the run whose finding was proven");
    let proofs = json["proofs"].to_string();
    assert!(proofs.contains("proven: with the change it ran"), "{proofs}");
    let text = state.vmio(&["runs", "show", "1"]).with(0).out;
    assert!(text.contains("--prove, run 2: proven"), "{text}");
    state.is_clean();
}

#[test]
#[ignore = "long"]
fn long_planted_emulated_driver_is_found_and_proven() {
    let state = StateDir::with_image();
    is_found_and_proven(&state, "planted.toml", "emulated-driver", &["--on", state.path().to_str().unwrap()]);
}

#[test]
#[ignore = "long"]
fn long_planted_emulated_card_is_found_and_proven() {
    is_found_and_proven(&StateDir::with_image(), "planted-card.toml", "emulated-nic", &[]);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn beside_another_guest_the_run_is_gentle_and_keeps_to_its_cap() {
    let state = StateDir::with_image();
    let neighbour = Companion::start(Command::new("sleep").arg0("qemu-system-x86_64").args(["600"]));
    let study = fixture("one.toml");
    let dry = ["study", "run", study.to_str().unwrap(), "--dry-run"];
    state.vmio(&dry).with(0).says(&["gentle: bandwidth capped", "dry run: nothing was changed"]);
    // The plan for people names the first few.
    let plan: Value = serde_json::from_str(&state.vmio(&[&dry[..], &["--json"]].concat()).with(0).out).unwrap();
    let named = format!("QEMU guest (pid {})", neighbour.pid());
    assert!(plan["other_guests"].as_array().unwrap().iter().any(|other| *other == named.as_str()), "{plan:#}");
    state.is_clean();

    // A twentieth: less than either side does without a cap.
    let mut command =
        state.command(&["study", "run", study.to_str().unwrap(), "--yes", "--gentle-share", "0.05", "--on"]);
    command.arg(state.path());
    let ended = timed("gentle run", || state.finish(&mut command));
    // On a busy machine the watch may rightly end it early; what was measured keeps to the cap.
    assert!(matches!(ended.code, Some(0 | 4)), "{:?} {}", ended.code, ended.err);
    let cap = |workload: &str| -> f64 {
        let line = ended.err.lines().find_map(|l| l.strip_prefix(&format!("gentle: {workload} is held to ")));
        line.and_then(|l| l.strip_suffix(" MB/s")?.parse().ok()).unwrap_or_else(|| panic!("no cap in: {}", ended.err))
    };
    let run = state.last().unwrap();
    assert!(!run.samples.is_empty(), "{}", ended.err);
    for sample in &run.samples {
        let (rate, cap) = (sample.work().bandwidth() / 1e6, cap(sample.cell.workload()));
        assert!(rate <= cap * 1.1, "{}: {rate:.1} MB/s with a cap of {cap}", sample.cell.key());
    }
    state.is_clean();
}
