//! Guests of 64-bit ARM, emulated: they boot, have their disks and cards by virtio on PCI and on no bus, and give
//! figures that nothing is compared with.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::help::schema;
use crate::help::state_dir;

use schema::fits;
use state_dir::{StateDir, fixture};
use vmio_model::cell::{Cell, Subject};
use vmio_model::result::{Accel, RunState};
use vmio_model::run::Run;
use vmio_testbed::skip;

/// What an image for these guests is made of, and the image.
const KEPT: [&str; 3] = ["images-arm64", "packages-arm64", "kernels"];

/// A state directory with their image as it is kept by the tests; `None`, told with what to do, where it is not there.
fn state_dir(what: &str) -> Option<StateDir> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
    let built = Path::new(env!("CARGO_BIN_EXE_vmio")).ancestors().nth(2).unwrap();
    let agent = built.join("aarch64-unknown-linux-gnu/agent/vmio-agent");
    let emulator = Command::new("qemu-system-aarch64").arg("--version").output().is_ok();
    let lacks = [
        (!emulator, "no qemu-system-aarch64 (apt install qemu-system-arm)"),
        (!agent.is_file(), "no vmio-agent for aarch64 (make agent-arm64)"),
        (!kept.join(KEPT[0]).is_dir(), "no image for aarch64 (make test-long builds one)"),
    ];
    if let Some((_, why)) = lacks.iter().find(|(absent, _)| *absent) {
        skip(&format!("{what}: {why}"));
        return None;
    }
    let state = StateDir::new();
    for name in KEPT {
        fs::create_dir_all(kept.join(name)).unwrap();
        symlink(kept.join(name), state.path().join(name)).unwrap();
    }
    Some(state)
}

/// The run is whole, was emulated for its processor, and says no share of anything.
fn absolute(state: &StateDir) -> Run {
    let run = state.last().unwrap();
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    let environment = &run.environment;
    assert_eq!(environment.accel, Some(Accel::Tcg));
    assert!(environment.accel_reason.contains("processor is aarch64"), "{}", environment.accel_reason);
    assert!(environment.guest_kernel.as_ref().unwrap().ends_with("-arm64"), "{environment:?}");
    assert!(environment.programs.values().all(|said| said.contains("arm64") || said.contains("aarch64")));
    for sample in &run.samples {
        let cell: &Cell = &sample.cell;
        assert!(cell.key().contains("qemu:arch=aarch64"), "{}", cell.key());
        assert!(sample.result.seconds > 0.0, "{}", cell.key());
    }
    let json = state.vmio(&["runs", "show", "--json"]).with(0).out;
    fits("tax", &json);
    let summary: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(summary["shares"], serde_json::json!([]));
    assert!(summary["scores"].is_null(), "{summary:#}");
    assert!(summary["headline"].is_null() && summary["emulated"] == true, "{summary:#}");
    run
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_of_64_bit_arm_boots_and_gives_a_figure() {
    let Some(state) = state_dir("a guest of 64-bit ARM") else { return };
    let dir = tempfile::tempdir().unwrap();
    let study = dir.path().join("one.toml");
    let text = fs::read_to_string(fixture("arm.toml")).unwrap();
    // The first and the last block.
    let head = text.split("[[matrix]]").next().unwrap().replace("[size]\ntarget_mib = 1024\n", "");
    let head = head.replace("max_gib_written = 10.0\n", "").replace("seconds = 1.0", "seconds = 0.2");
    fs::write(&study, format!("{head}[[matrix]]{}", text.rsplit("[[matrix]]").next().unwrap())).unwrap();
    state.finish(state.command(&["study", "run"]).arg(&study).args(["--yes", "--no-gentle"])).with(0);
    let run = absolute(&state);
    assert!(run.samples.iter().all(|sample| sample.result.figure("throughput").unwrap() > 0.0), "{:#?}", run.samples);
    // A kernel for this host's processor is refused.
    let x86 = dir.path().join("bzImage");
    let mut content = vec![0; 0x400];
    content[0x202..0x206].copy_from_slice(b"HdrS");
    content[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    content[0x300..0x318].copy_from_slice(b"6.12.0-1 (me@here) #1 SM");
    fs::write(&x86, content).unwrap();
    let other = state.finish(
        state.command(&["study", "run"]).arg(&study).args(["--yes", "--no-gentle", "--guest-kernel"]).arg(&x86),
    );
    other.says(&["bzImage is for x86_64, and the guest's processor is aarch64: give a kernel for aarch64"]);
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU, and takes some minutes"]
fn long_arm_storage_network_and_suite() {
    let Some(state) = state_dir("storage, network and the suite in a guest of 64-bit ARM") else { return };
    // The study that vmio comes with, whole.
    state.finish(&mut state.command(&["study", "run", "arm", "--yes", "--no-gentle"])).with(0);
    let run = absolute(&state);
    let measured: BTreeSet<String> = run.samples.iter().map(|sample| sample.cell.key()).collect();
    assert_eq!(measured.len(), 10 + 8 + 12, "disks, paths, the suite: {measured:?}");
    let seen = |cell: &Cell| match &cell.lead.subject {
        Subject::Disk { attachment, .. } => attachment.as_ref().map(|a| a.driver.clone()),
        Subject::Path { nic, .. } => nic.as_ref().map(|nic| nic.model.clone()),
        _ => Some("machine".to_owned()),
    };
    let mut all: Vec<String> = run.samples.iter().filter_map(|sample| seen(&sample.cell)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all, ["machine", "virtio-blk", "virtio-blk-mmio", "virtio-net", "virtio-net-mmio"]);
    // What the guest has is what was asked for, by QEMU's own word.
    let device = |at: &str| {
        let found = run.effective.iter().find(|(key, _)| key.contains(at)).unwrap_or_else(|| panic!("{at}")).1;
        found.get("device").cloned().unwrap_or_default()
    };
    assert_eq!(
        [device("virtio-blk-mmio,"), device("virtio-blk,")],
        ["virtio-blk-device".to_owned(), "virtio-blk-pci".to_owned()]
    );
    let text = state.vmio(&["runs", "show", "--verbose"]).with(0).out;
    assert!(!text.contains("Scores of") && text.contains("virtio-net-mmio"), "{text}");
    state.is_clean();
}
