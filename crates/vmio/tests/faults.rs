//! Bad input, and hosts that lack what a run needs: each is a clear error with its exit code,
//! before anything is changed. Neither root nor QEMU is needed for these.
#![allow(clippy::unwrap_used)]

use crate::help::state_dir;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use state_dir::{StateDir, fixture, problems, unfolded};

/// A directory with links to the programs of these names, to serve as the whole `PATH`.
fn programs(state: &StateDir, names: &[&str]) -> PathBuf {
    let dir = state.path().join("images");
    fs::create_dir(&dir).unwrap();
    for name in names {
        let path = dir.join(name);
        if *name == "qemu-system-x86_64" {
            // A plan asks QEMU for its version alone.
            fs::write(&path, "#!/bin/sh\necho 'QEMU emulator version 7.2.0'\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        } else {
            symlink("/bin/true", &path).unwrap();
        }
    }
    dir
}

#[test]
fn every_bad_study_is_refused_in_words() {
    let state = StateDir::new();
    let dir = fixture("bad_studies");
    let mut seen = 0;
    for path in fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()) {
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        seen += 1;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut command = state.command(&["study", "run", &format!("./{name}"), "--dry-run"]);
        let ended = state.finish(command.current_dir(&dir)).with(2);
        assert!(ended.out.is_empty(), "{name}: {}", ended.out);
        let (said, help) = ended.err.split_once("\n  help: ").unwrap_or_else(|| panic!("{name}: {}", ended.err));
        assert!(help.contains("docs/study.md"), "{name}: {help}");
        // The choice there is grows with every entry of an extension point.
        assert!(ended.err.lines().all(|line| line.chars().count() <= 80), "{}", ended.err);
        let problems = problems(said);
        let said: Vec<&str> = problems
            .iter()
            .map(|l| l.trim_start_matches("./"))
            .map(|l| l.split(" (there is ").next().unwrap().split("; there is ").next().unwrap())
            .collect();
        let wanted = fs::read_to_string(path.with_extension("err")).unwrap();
        assert_eq!(said, wanted.lines().collect::<Vec<_>>(), "{name}");
    }
    assert!(seen >= 15, "{seen} fixtures in {}", dir.display());
    state.is_clean();
}

#[test]
fn a_study_that_is_not_there_is_named() {
    let state = StateDir::new();
    state.vmio(&["study", "run", "qick"]).with(2).says(&["no study is called qick", "one of quick, full, sparse"]);
    let said = ["./not/there.toml", "No such file", "help: `vmio study list`", "`vmio study show quick`"];
    state.vmio(&["study", "run", "./not/there.toml"]).with(2).says(&said);
}

#[test]
fn without_a_terminal_nothing_is_measured_unasked() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio"]);
    let mut command = state.command(&["study", "run"]);
    let ended = state.finish(command.arg(fixture("file.toml")).env("PATH", path)).with(2);
    let ended = ended.says(&["Plan: For the tests of faults, without root", "no terminal to ask on", "--yes"]);
    assert!(ended.out.is_empty());
    assert!(state.last().is_none(), "not even a run was begun");
    state.is_clean();
}

#[test]
fn what_the_host_lacks_is_named_with_its_mend() {
    for (there, missing, mend) in [
        (&["fio"][..], "QEMU: none of qemu-system-x86_64", "apt install qemu-system-x86"),
        (&["qemu-system-x86_64"][..], "fio: no program fio in PATH", "apt install fio"),
    ] {
        let state = StateDir::new();
        let path = programs(&state, there);
        let mut command = state.command(&["study", "run"]);
        let ended = state.finish(command.arg(fixture("file.toml")).arg("--yes").env("PATH", path)).with(3);
        ended.says(&["not run", "error: nothing can be measured here", missing, mend, "vmio doctor"]);
        assert!(state.last().is_none());
        state.is_clean();
    }
}

/// What guests start with is looked for before anything is promised: the dry run ends as the run does.
#[test]
fn without_the_agent_a_dry_run_says_what_the_run_says() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio"]);
    for how in ["--dry-run", "--yes"] {
        let mut command = state.command(&["study", "run", how]);
        command.env("PATH", &path).env("VMIO_AGENT", "/nowhere/vmio-agent");
        let ended = state.finish(command.arg(fixture("file.toml"))).with(3);
        let ended = ended.says(&["error: nothing can be measured here: vmio-agent: no vmio-agent", "`make agent`"]);
        assert!(!unfolded(&(ended.out + &ended.err)).contains("a guest image, where none fits"), "{how}");
        assert!(state.last().is_none());
    }
    state.is_clean();
}

/// What is held to no bandwidth: its plan speaks of none, and the mend is not to be found by a look at the host.
#[test]
fn a_study_that_cannot_be_gentle_is_refused_with_the_way_out() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "openssl"]);
    let run = |how: &str, code: i32| {
        let mut command = state.command(&["study", "run", "--dry-run", how]);
        let ended = state.finish(command.arg(fixture("processor.toml")).env("PATH", &path)).with(code);
        unfolded(&(ended.out + &ended.err))
    };
    let said = run("--gentle", 3);
    for words in [
        "no cell is left to run",
        "not run 2 of 2 cells (machine/native/openssl-aes-256-cbc, …): vmio cannot throttle this workload",
        "error: nothing can be measured here: vmio cannot throttle this workload",
        "help: --no-gentle measures it at full speed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("gentle is on because").count(), 1, "{said}");
    // The doctor is named for power, not as the way out.
    let doctor = said.matches("vmio doctor").count();
    assert_eq!(doctor, said.matches("no meter was found (vmio doctor)").count(), "{said}");
    assert!(!said.contains("bandwidth capped"), "{said}");
    let said = run("--no-gentle", 0);
    assert!(!said.contains("not run") && !said.contains("no cell is left"), "{said}");
    state.is_clean();
}

/// Runs as nobody, also where the tests run as root.
#[test]
fn without_root_the_block_device_is_refused_by_name() {
    let place = tempfile::Builder::new().prefix("vmio-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("vmio");
    fs::copy(env!("CARGO_BIN_EXE_vmio"), &program).unwrap();
    let study = place.path().join("one.toml");
    fs::copy(fixture("one.toml"), &study).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["study", "run", "--yes"]).arg(&study).arg("--state").arg(place.path().join("state"));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.current_dir("/").output().unwrap();
    let said = unfolded(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("not root; run as root, or leave out the target `device`"), "{said}");
    assert!(!place.path().join("state").exists());
}

#[test]
fn a_directory_everybody_may_write_is_refused() {
    let state = StateDir::new();
    let open = state.path().join("run");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for how in ["--yes", "--dry-run"] {
        let mut command = state.command(&["study", "run", how, "--on"]);
        let ended = state.finish(command.arg(&open).arg(fixture("file.toml"))).with(3);
        ended.says(&["every user may write it", "no sticky bit", "chmod o-w ", "--on"]);
    }
    assert!(state.last().is_none(), "no run was begun");
    state.is_clean();
}

#[test]
fn a_device_is_named_twice_or_not_at_all() {
    let state = StateDir::new();
    let quick = |devices: &[&str]| {
        let mut command = state.command(&["tax", "--yes"]);
        devices.iter().for_each(|d| {
            command.args(["--device", d]);
        });
        state.finish(&mut command)
    };
    quick(&["/dev/sdx"]).with(2).says(&["everything on /dev/sdx would be lost", "named exactly twice"]);
    quick(&["/dev/sdx", "/dev/sdy"]).with(2).says(&["two devices: /dev/sdx and /dev/sdy"]);
    quick(&["/dev/sdx", "/dev/sdx", "/dev/sdx"]).with(2).says(&["named exactly twice"]);
    quick(&["/dev/not-there", "/dev/not-there"]).with(3).says(&["/dev/not-there"]);
    let file = state.path().join("images");
    fs::write(&file, "x").unwrap();
    quick(&[file.to_str().unwrap(); 2]).with(3).says(&["is not used: it is not a block device"]);
    state.vmio(&["tax", "--force"]).with(2).says(&["--device"]);
    assert!(state.last().is_none());
}

#[test]
fn budgets_and_shares_that_make_no_sense_are_refused() {
    let state = StateDir::new();
    for (args, word) in [
        (["--minutes", "0"], "--minutes must be above 0"),
        (["--minutes", "NaN"], "--minutes must be above 0"),
        (["--gib", "inf"], "--gib must be above 0"),
        (["--gentle-share", "1.5"], "--gentle-share 1.5 is not in 0 to 1"),
        (["--minutes", "soon"], "invalid value 'soon'"),
    ] {
        let all = [&["tax", "--yes"][..], &args].concat();
        state.vmio(&all).with(2).says(&[word]);
    }
    state.vmio(&["tax", "--yes", "--power", "rapl"]).with(2).says(&["give none, powercap, hwmon"]);
    let secret = state.vmio(&["tax", "--yes", "--power", "redfish:https://root:calvin@bmc"]).with(2);
    assert!(!secret.err.contains("calvin"), "{}", secret.err);
    let url = "https://root:calvin@repository.example/maven";
    let secret = state.vmio(&["tax", "--yes", "--maven", url]).with(2).says(&["--maven: not the address of a Maven"]);
    assert!(!secret.err.contains("calvin"), "{}", secret.err);
    state.vmio(&["tax", "--gentle", "--no-gentle"]).with(2).says(&["cannot be used with"]);
    state.vmio(&["tax", "--resume", "--yes"]).with(2).says(&["no run of quick was interrupted"]);
    state.vmio(&["tax", "--prove", "--of", "last", "--yes"]).with(3).says(&["no runs yet"]);
    state.is_clean();
}

#[test]
fn a_place_that_is_not_there_is_made_only_when_asked_for() {
    let state = StateDir::new();
    let typo = state.path().join("images/typo");
    let plan = |more: &[&str]| {
        let mut command = state.command(&["tax", "--quick", "--dry-run", "--on"]);
        state.finish(command.arg(&typo).args(more))
    };
    plan(&[]).with(3).says(&["is not there", typo.to_str().unwrap(), "--make-place"]);
    let mut run = state.command(&["study", "run", "--yes", "--on"]);
    state.finish(run.arg(&typo).arg(fixture("file.toml"))).with(3).says(&["is not there", "--make-place"]);
    assert!(!typo.parent().unwrap().exists() && state.last().is_none(), "nothing was made");
    let made = plan(&["--make-place"]);
    assert!(made.out.contains("(will be made)") && !made.err.contains("is not there"), "{} {}", made.out, made.err);
    // The state directory is made as ever.
    let mut plan = state.command(&["tax", "--quick", "--dry-run", "--state"]);
    let plan = state.finish(plan.arg(state.path().join("images/new")));
    assert!(!plan.err.contains("is not there"), "{}", plan.err);
    state.is_clean();
}

#[test]
fn every_plan_bounds_what_is_written() {
    let state = StateDir::new();
    for study in ["quick", "light", "full", "sparse", "shafer2010-storage", "durability", "async-reads"] {
        // Where other guests run, some could measure nothing gently.
        let plan = state.vmio(&["study", "run", study, "--no-gentle", "--dry-run"]).out;
        assert!(plan.contains("writes     at most ") && plan.contains(" in all, "), "{study}: {plan}");
        assert!(!plan.contains("shares will not converge"), "{study}: {plan}");
        // A long path may stick out.
        let long = plan.lines().filter(|l| l.chars().count() > 80).find(|l| l.split(' ').all(|w| w.len() < 60));
        assert_eq!(long, None, "{study}: {plan}");
    }
    let json = |args: &[&str]| -> serde_json::Value {
        let out = state.vmio(&[args, &["--dry-run", "--json"]].concat()).out;
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    };
    let light = json(&["tax", "--light"]);
    assert!(light["cost"]["max_bytes_written"].as_u64().unwrap() <= 5 << 30, "{light}");
    let little = json(&["tax", "--quick", "--gib", "8"]);
    assert_eq!(little["cost"]["max_bytes_written"], 8_u64 << 30);
    assert!(little["cost"]["spans"]["seq-write"].as_u64().unwrap() < 1 << 30);
    // Other tests' guests may come and go, which would make it gentle.
    // The least --gib that is told is enough, and a tenth less is not.
    let with = |gib: &str| unfolded(&state.vmio(&["tax", "--quick", "--no-gentle", "--gib", gib, "--dry-run"]).out);
    let little = with("2");
    let least = little.split_once("too little for 5 rounds").unwrap().1.split_once("(--gib, at least ").unwrap().1;
    let least = least.split(')').next().unwrap();
    assert!(!with(least).contains("too little for"), "{least}");
    assert!(with(&format!("{:.1}", least.parse::<f64>().unwrap() - 0.1)).contains("too little for"), "{least}");
    let help = format!("at least {least} for 5 rounds");
    let refused = state.vmio(&["tax", "--quick", "--no-gentle", "--gib", "0.5", "--dry-run"]).with(3);
    let refused = refused.says(&["creating the targets", "--gib", &help]);
    // The plan says nothing else.
    let plan = unfolded(&refused.out);
    assert!(plan.contains(" writes creating the targets writes 1."), "{plan}");
    assert!(plan.contains(" GiB, more than --gib 512 MiB "), "{plan}");
    assert!(!plan.contains(" in all") && !plan.contains("likely"), "{plan}");
    // Where the time ends it first, less is written than by the fewest rounds.
    let short = unfolded(&state.vmio(&["tax", "--quick", "--minutes", "0.1", "--dry-run"]).out);
    assert!(short.contains(" of measuring: the first round takes about "), "{short}");
    assert!(short.contains("cut short the time budget of 6 s will probably end the run"), "{short}");
    assert!(short.contains(" likely less than ") && short.contains(" GiB, what 5 rounds write (rates "), "{short}");
    state.is_clean();
}

#[test]
fn an_unwritable_directory_is_named_at_once() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio"]);
    // Even root cannot make directories there.
    let mut command = state.command(&["study", "run", "--yes", "--state", "/proc/sys/vmio"]);
    let ended = state.finish(command.arg(fixture("file.toml")).env("PATH", path).arg("--on").arg(state.path())).with(3);
    ended.says(&["cannot make the directory /proc/sys/vmio", "--state DIR"]);
    assert!(!Path::new("/proc/sys/vmio").exists());
}

/// Each kind of file target on a file system without direct I/O: refused before anything is made.
#[test]
fn a_place_in_memory_is_refused_for_every_kind_of_file() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio", "qemu-img", "qemu-storage-daemon"]);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let study = fs::read_to_string(fixture("file.toml")).unwrap();
    for target in ["sparse", "preallocated", "served", "qcow2", "qcow2-chain"] {
        let file = state.path().join("images/study.toml");
        fs::write(&file, study.replace("\"sparse\"", &format!("\"{target}\""))).unwrap();
        let mut command = state.command(&["study", "run", "--yes", "--on"]);
        let ended = state.finish(command.arg(memory.path()).arg(&file).env("PATH", &path)).with(3);
        ended.says(&["Plan:", "error: ", "tmpfs has no direct I/O (O_DIRECT)", "--on a directory on a disk"]);
        assert!(state.last().is_none(), "{target}: no run was begun");
        assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0, "{target}");
    }
    state.is_clean();
}

/// In the units of all else, and once.
#[test]
fn too_little_space_is_told_once() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio"]);
    let study = fs::read_to_string(fixture("file.toml")).unwrap();
    let study = study.replace("target_mib = 512", "target_mib = 50000000");
    let file = state.path().join("images/study.toml");
    fs::write(&file, study.replace("max_gib_written = 50.0", "max_gib_written = 100000.0")).unwrap();
    let mut command = state.command(&["study", "run", "--dry-run"]);
    let ended = state.finish(command.arg(&file).env("PATH", &path)).with(3);
    let said = unfolded(&(ended.out + &ended.err));
    assert_eq!(said.matches("are needed").count(), 1, "{said}");
    assert!(said.contains("not enough space on ") && said.contains(" GiB are needed (20 % to spare"), "{said}");
    assert!(said.contains("at a time; not enough usable space") && !said.contains(" bytes are"), "{said}");
    state.is_clean();
}

/// A plan reckons with all that a target takes: images for each way to see them, and the raw twin.
#[test]
fn a_plan_says_what_images_take() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio", "qemu-img", "qemu-storage-daemon"]);
    let study = fs::read_to_string(fixture("file.toml")).unwrap();
    let file = state.path().join("images/study.toml");
    let plan = |target: &str| {
        fs::write(&file, study.replace("\"sparse\"", &format!("\"{target}\""))).unwrap();
        let mut command = state.command(&["study", "run", "--dry-run", "--json"]);
        let ended = state.finish(command.arg("--on").arg(state.path()).arg(&file).env("PATH", &path)).with(0);
        let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        json["cost"]["peak_space_bytes"].as_f64().unwrap() / 1.2 / f64::from(1 << 20)
    };
    // 512 MiB once; the twin and two images of 512 + 32 MiB; the twin, the base and an overlay.
    let near = |got: f64, want: f64| (got - want).abs() < 1.0;
    assert!(near(plan("served"), 512.0));
    assert!(near(plan("qcow2"), 512.0 + 2.0 * 544.0));
    assert!(near(plan("qcow2-full-l2"), 512.0 + 2.0 * 544.0));
    assert!(near(plan("qcow2-chain"), 512.0 + 2.0 * 544.0));
}

/// What lies in the directory of the journals is obeyed, by root too: where others can write it nothing
/// begins, and nothing of what lies there is done.
#[test]
fn a_state_directory_others_can_write_is_refused() {
    let state = StateDir::new();
    let path = programs(&state, &["qemu-system-x86_64", "fio"]);
    // Another directory for its files, where nothing is wrong.
    let elsewhere = StateDir::new();
    let (journals, precious) = (state.path().join("journals"), state.path().join("images/precious"));
    fs::create_dir(&journals).unwrap();
    fs::write(&precious, "x").unwrap();
    let head = r#"{"vmio_journal":1,"owner":"run","cookie":"c","boot_id":"b","pid":1,"start_ticks":1}"#;
    let lines = [
        head.to_owned(),
        format!(r#"{{"scratch":"{}"}}"#, state.path().display()),
        format!(r#"{{"do":1,"change":{{"file":{{"path":"{}"}}}}}}"#, precious.display()),
    ];
    fs::write(journals.join("planted.journal"), lines.join("\n") + "\n").unwrap();
    fs::set_permissions(journals.join("planted.journal"), fs::Permissions::from_mode(0o600)).unwrap();
    let run = || {
        let mut command = state.command(&["study", "run", "--yes"]);
        state.finish(command.arg(fixture("file.toml")).env("PATH", &path).arg("--on").arg(elsewhere.path()))
    };
    for (dir, mode) in [(&journals, 0o777), (&state.path(), 0o777)] {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        let said = run().with(3).says(&["can be written by everybody", "help: chmod go-w", "--state DIR"]);
        assert!(!said.err.contains("cleaned up"), "{}", said.err);
        assert!(precious.exists() && state.last().is_none());
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
