//! `vmio tax --like` beside a real guest: that guest is only looked at, and what is measured is set up
//! as it is, then as its findings advise.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::live;
use crate::help::state_dir;

use std::fs;

use serde_json::Value;
use state_dir::StateDir;
use vmio_model::result::RunState;
use vmio_testbed::process::Companion;
use vmio_testbed::skip;

const MACHINE: &str = "-machine q35 -accel tcg -cpu max -smp 1";

/// A guest whose disk has no I/O thread, and nothing else that vmio measures.
fn guest(dir: &std::path::Path) -> Companion {
    let disk = live::raw(dir, "like");
    let args = format!(
        "{MACHINE} -drive file={},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0",
        disk.display()
    );
    let mut guest = live::start("like", "", &args);
    live::wait("like", &mut guest);
    guest
}

/// What the guest was started with, and where its disk stands.
fn untouched(guest: &Companion) -> (Vec<u8>, String) {
    let of = |file: &str| fs::read(format!("/proc/{}/{file}", guest.pid())).unwrap();
    let io = String::from_utf8(of("io")).unwrap();
    let written = io.lines().find(|l| l.starts_with("write_bytes")).unwrap();
    (of("cmdline"), written.to_owned())
}

#[test]
#[ignore = "guest: needs QEMU"]
fn the_plan_of_a_guest_that_runs_has_its_set_up_and_its_mend() {
    let state = StateDir::with_image();
    let scratch = live::scratch();
    let guest = guest(scratch.path());
    let before = untouched(&guest);
    let on = state.path();
    let like = ["tax", "--like", &live::name("like"), "--dry-run", "--on", on.to_str().unwrap()];
    let plan = state.vmio(&[&like[..], &["--json"]].concat()).with(0);
    let plan: Value = serde_json::from_str(&plan.out).unwrap();
    let told = plan["told"].to_string();
    let found = "virtio-blk,none,native+discard, on preallocated";
    assert!(told.contains(found) && told.contains("itself is only read"), "{told}");
    assert!(told.contains("missing-iothread: virtio-blk,none,native+iothread+discard"), "{told}");
    assert!(plan["other_guests"].to_string().contains(&live::name("like")), "{plan:#}");
    // The plan that was asked for is what is printed.
    let text = state.vmio(&like).with(0).out;
    assert!(text.contains("missing-iothread"), "{text}");
    // Where KVM was tried in vain, it is no warning that it is not used.
    let tried = fs::read_to_string(on.join("accelerator.json")).unwrap_or_default();
    if tried.contains("\"tcg\"") {
        let seen = live::scan(&on, &[&live::name("like")]);
        let findings = live::guest(&seen, "like")["findings"].as_array().unwrap();
        let found = findings.iter().find(|f| f["rule"] == "emulation-though-kvm").unwrap();
        assert_eq!(found["severity"], "note", "{found:#}");
    } else {
        skip("what is said of KVM where it was tried in vain: it was not tried, or it works");
    }
    assert_eq!(untouched(&guest), before);
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_study_like_a_guest_is_measured() {
    let state = StateDir::with_image();
    let scratch = live::scratch();
    let guest = guest(scratch.path());
    let before = untouched(&guest);
    let on = state.path();
    let args = ["tax", "--like", &live::name("like"), "--yes", "--no-gentle", "--minutes", "2", "--json"];
    let ended = state.vmio(&[&args[..], &["--on", on.to_str().unwrap()]].concat());
    // In two minutes not every share may have its pairs.
    assert!(matches!(ended.code, Some(0 | 4)), "{}", ended.err);
    let run = state.last().unwrap();
    assert_eq!(run.state, RunState::Done);
    let attachments: std::collections::BTreeSet<String> =
        run.samples.iter().filter_map(|s| s.cell.attachment()).map(|a| a.label()).collect();
    assert_eq!(
        Vec::from_iter(attachments),
        ["virtio-blk,none,native+discard", "virtio-blk,none,native+iothread+discard"]
    );
    assert!(run.samples.iter().any(|s| s.cell.is_native()));
    let page: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(page["shares"].as_array().is_some_and(|s| !s.is_empty()), "{page:#}");
    let text = state.vmio(&["runs", "show", "last", "--verbose"]).with(0).out;
    assert!(text.contains(&live::name("like")) && text.contains("iothread"), "{text}");
    assert_eq!(untouched(&guest), before);
    state.is_clean();
}
