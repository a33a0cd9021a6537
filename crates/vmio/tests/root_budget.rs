//! What a plan promises is kept: bytes that reach the device, CPUs that the sides have, and which form of the
//! study is chosen where others use the storage.
#![allow(clippy::unwrap_used)]

use crate::help::disk::{Disk, Mounted, tool};
use crate::help::schema;
use crate::help::state_dir;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use schema::fits;
use state_dir::{Companion, StateDir};

/// A disk of the test's own with a file system on it, so that all that is written to it is the run's.
struct Place {
    point: Mounted,
    disk: Disk,
}

impl Place {
    fn new(state: &StateDir, mib: u64) -> Place {
        let disk = Disk::new(mib);
        tool("mke2fs", &["-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device]);
        Place { point: Mounted::device(&disk.device, &state.path().join("run/place")), disk }
    }

    /// Bytes written to it since it was attached.
    fn written(&self) -> u64 {
        tool("sync", &["-f", self.point.0.to_str().unwrap()]);
        let stat =
            fs::read_to_string(format!("/sys/block/{}/stat", self.disk.device.trim_start_matches("/dev/"))).unwrap();
        // Field 7: sectors of 512 bytes (kernel document block/stat.rst).
        stat.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
    }
}

/// A study without guests: a written-out file, written to five times.
fn study(dir: &Path) -> PathBuf {
    let text = "name = \"budget\"\ntitle = \"t\"\n[guest]\nvcpus = 1\nmemory_mib = 192\n[size]\ntarget_mib = 384\n\
                [repeat]\nmin_pairs = 5\nmax_pairs = 5\nmin_boots = 1\nhalf_width = 0.5\nseconds = 5.0\n\
                max_minutes = 10.0\nmax_gib_written = 50.0\n\
                [[matrix]]\nsides = [\"native\"]\ndisks = { targets = [\"preallocated\"] }\nworkloads = [\"seq-write\"]\n";
    let path = dir.join("budget.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
#[ignore = "root"]
fn a_run_keeps_to_the_bytes_and_the_cpus_of_its_plan() {
    let (state, dir) = (StateDir::new(), tempfile::tempdir().unwrap());
    let (disk, study) = (Place::new(&state, 1200), study(dir.path()));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    // The first CPU that there is: left to itself vmio takes the last one.
    let first: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let vmio = |more: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &first, env!("CARGO_BIN_EXE_vmio")]).env("VMIO_STATE", state.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.args(["study", "run", study.to_str().unwrap(), "--no-gentle", "--gib", "1", "--json", "--on"]);
        state.finish(command.arg(&disk.point.0).args(more)).with(0)
    };
    let plan: serde_json::Value = serde_json::from_str(&vmio(&["--dry-run"]).out).unwrap();
    let most = plan["cost"]["max_bytes_written"].as_u64().unwrap();
    assert!(most <= 1 << 30, "{plan}");
    let held = plan["held"]["native"].as_str().unwrap().to_owned();

    let before = disk.written();
    vmio(&["--yes"]);
    let wrote = disk.written() - before;
    assert!(wrote <= most, "{wrote} bytes were written, {most} were planned at most");
    let run = state.last().unwrap();
    assert_eq!(run.samples.len(), 5, "the budget suffices for the fewest rounds");
    let told: u64 = run.samples.iter().map(|sample| sample.work().write_bytes).sum();
    assert!(told > 0 && wrote >= told + (384 << 20), "{wrote} bytes were written, {told} by the cells");
    assert_eq!(run.environment.native_limits, held);
    assert!(held.starts_with("not held") || held.contains(&format!("cpuset {first},")), "{held}");
    // What is taken up again counts from what was written, the making of targets included.
    assert!(run.environment.written_beside_bytes >= 384 << 20);
    drop(disk);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn little_is_written_beside_guests_of_the_storage() {
    let state = StateDir::new();
    let run = state.path().join("run");
    fs::create_dir_all(&run).unwrap();
    let image = run.join("image");
    File::create(&image).unwrap();
    // A process of a hypervisor's name that has an image there open.
    let mut guest = Command::new("bash");
    guest.args(["-c", "exec -a qemu-system-x86_64 sleep 300 3<\"$0\""]).arg(&image);
    let guest = Companion::start(&mut guest);
    let plan = |more: &[&str]| -> serde_json::Value {
        let mut command = state.command(&["tax", "--dry-run", "--json", "--on"]);
        let ended = state.finish(command.arg(&run).args(more));
        fits("tax-plan", &ended.out);
        serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}{}", ended.out, ended.err))
    };
    let light = plan(&[]);
    assert_eq!(light["study"], "light", "{light}");
    let form = light["form"].as_str().unwrap();
    assert!(form.starts_with("light, since QEMU guest") && form.ends_with("this storage"), "{form}");
    assert!(light["cost"]["max_bytes_written"].as_u64().unwrap() <= 5 << 30, "{light}");
    for (word, study) in [("--quick", "quick"), ("--full", "full"), ("--light", "light")] {
        let asked = plan(&[word]);
        assert_eq!((&asked["study"], &asked["form"]), (&study.into(), &serde_json::Value::Null));
    }
    drop(guest);
    fs::remove_file(&image).unwrap();
    state.is_clean();
}
