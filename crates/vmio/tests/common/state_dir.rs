//! What the tests share that run the real program: a state directory of their own, the program
//! with its output, and a look at everything that it might have left on the machine.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;

use vmio::store::Store;
use vmio_model::run::Run;
#[allow(unused_imports)]
pub use vmio_testbed::process::Companion;
use vmio_testbed::{poll_for, scratch};

/// A study of `tests/fixtures/`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A program that `make test` has built beside vmio.
pub fn built(name: &str) -> PathBuf {
    let debug = Path::new(env!("CARGO_BIN_EXE_vmio")).parent().unwrap();
    let triple = format!("../{}-unknown-linux-gnu/agent", std::env::consts::ARCH);
    let places = [debug.join("examples").join(name), debug.join(triple).join(name)];
    let found = places.into_iter().find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("no {name}: run `make agent`, and cargo build -p vmio-guard --examples"))
}

/// What a program of vmio's said and how it ended.
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Of a program that has ended.
    pub fn of(output: &Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ended = Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        ended
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn with(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Asserts that it came to its end. The two sides of a pair that was broken off are of two boots and make no pair, so
    /// the result may be partial.
    #[track_caller]
    pub fn came_to_its_end(self) -> Ended {
        assert!(matches!(self.code, Some(0 | 4)), "{:?}: stdout: {}\nstderr: {}", self.code, self.out, self.err);
        self
    }

    /// Asserts that all of the words are in what was said: errors, helps and warnings on standard error.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Ended {
        // Wherever a line ends.
        let [err, out] = [&self.err, &self.out].map(|text| unfolded(text));
        for word in words {
            let word = unfolded(word);
            let for_stderr = ["error:", "help:", "warning:"].iter().any(|begin| word.starts_with(begin));
            let is_there = err.contains(&word) || (!for_stderr && out.contains(&word));
            assert!(is_there, "no {word:?} in: {}{}", self.out, self.err);
        }
        self
    }

    /// Standard output, which is one JSON document.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}{}", self.out, self.err))
    }
}

/// A text without its line ends: those of a terminal's width may be anywhere.
pub fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that a text fits a terminal of 80 columns.
#[track_caller]
pub fn is_narrow(text: &str) {
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// The problems of a file, a line each, without the word before each.
pub fn problems(said: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in said.lines() {
        match (line.strip_prefix("error: "), all.last_mut()) {
            (Some(problem), _) => all.push(problem.to_owned()),
            (None, Some(last)) if line.starts_with("       ") => *last += &format!(" {}", line.trim_start()),
            _ => panic!("{line:?} begins otherwise: {said}"),
        }
    }
    all
}

/// A state directory on a disk.
pub struct StateDir {
    dir: tempfile::TempDir,
}

impl StateDir {
    /// An empty one.
    pub fn new() -> StateDir {
        StateDir { dir: scratch() }
    }

    /// With the guest image and the answer whether KVM works, both found out once for all tests.
    pub fn with_image() -> StateDir {
        static ONCE: Once = Once::new();
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
        ONCE.call_once(|| {
            let output =
                Command::new(env!("CARGO_BIN_EXE_vmio")).args(["image", "build", "--state"]).arg(&kept).output();
            Ended::of(&output.unwrap()).with(0);
        });
        let state = StateDir::new();
        for name in ["images", "kernels"] {
            fs::create_dir_all(kept.join(name)).unwrap();
            symlink(kept.join(name), state.path().join(name)).unwrap();
        }
        let _ = fs::copy(kept.join("accelerator.json"), state.path().join("accelerator.json"));
        state
    }

    /// With the lab host's image, made once for all tests, and what [`StateDir::with_image`] has.
    pub fn with_lab() -> StateDir {
        static ONCE: Once = Once::new();
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
        ONCE.call_once(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_vmio")).args(["lab", "build", "--state"]).arg(&kept).output();
            Ended::of(&output.unwrap()).with(0);
        });
        let state = StateDir::new();
        for name in ["labs", "packages", "kernels"] {
            symlink(kept.join(name), state.path().join(name)).unwrap();
        }
        let _ = fs::copy(kept.join("accelerator.json"), state.path().join("accelerator.json"));
        state
    }

    /// Keeps what was found out here about KVM for the next one.
    fn keep(&self) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
        // Whole or not at all: others read it meanwhile.
        let new = kept.join(format!("accelerator.{}", std::process::id()));
        if kept.exists() && fs::copy(self.path().join("accelerator.json"), &new).is_ok() {
            let _ = fs::rename(new, kept.join("accelerator.json"));
        }
    }

    /// The state directory.
    pub fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    /// The store that is there, or a new one.
    pub fn store(&self) -> Store {
        Store::open(&self.path().join("vmio.db")).unwrap()
    }

    /// Names of the files that are there, in order.
    pub fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        BTreeSet::from_iter(names).into_iter().collect()
    }

    /// The program, at work in this state directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.args(args).env("VMIO_STATE", self.path()).env_remove("NO_COLOR").env_remove("COLUMNS");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a command of [`StateDir::command`].
    pub fn spawn(&self, command: &mut Command) -> Child {
        command.spawn().unwrap()
    }

    /// Runs a command to its end.
    pub fn finish(&self, command: &mut Command) -> Ended {
        let child = self.spawn(command);
        self.end(child)
    }

    /// Waits for the end of a program.
    pub fn end(&self, child: Child) -> Ended {
        let ended = Ended::of(&child.wait_with_output().unwrap());
        self.keep();
        ended
    }

    /// Runs the program with these arguments.
    pub fn vmio(&self, args: &[&str]) -> Ended {
        self.finish(&mut self.command(args))
    }

    /// The store's newest run, with everything; `None` while there is none.
    pub fn last(&self) -> Option<Run> {
        let store = Store::open_existing(&self.path().join("vmio.db")).ok()?;
        Some(store.load_whole(store.last().unwrap()?).unwrap())
    }

    /// Samples of the newest run.
    pub fn samples(&self) -> usize {
        self.last().map_or(0, |r| r.samples.len())
    }

    /// Waits until so many samples are stored by a program that does not end before.
    #[track_caller]
    pub fn wait_for_samples(&self, child: &mut Child, count: usize) {
        // A run stores many, and each in its time: the limit is that of the next one.
        for count in 1..=count {
            self.wait_for(child, || self.samples() >= count);
        }
    }

    /// Waits until something is so, while the program runs.
    #[track_caller]
    pub fn wait_for(&self, child: &mut Child, is_so: impl Fn() -> bool) {
        let ended =
            poll_for("what this test waits for while vmio runs", || match (is_so(), child.try_wait().unwrap()) {
                (true, _) => Ok(None),
                (false, Some(status)) => Ok(Some(status).filter(|_| !is_so())),
                (false, None) => Err("the program runs"),
            });
        if let Some(status) = ended {
            let mut said = String::new();
            let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            panic!("it ended before, with {status}: {said}");
        }
    }

    /// Processes that were started with a path of this state directory, by pid and command line.
    pub fn processes(&self, program: &str) -> Vec<(u32, String)> {
        let state = self.path().display().to_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let all = pids.filter_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        });
        all.filter(|(_, line)| line.contains(&state) && line.contains(program)).collect()
    }

    /// All that is left on the machine of what the program made.
    fn left(&self) -> Vec<String> {
        let state = self.path();
        let shown = state.display().to_string();
        let mut left = vmio_node::leftovers(&state.join("journals"));
        left.extend(self.processes("").into_iter().map(|p| format!("process {p:?}")));
        for device in fs::read_dir("/sys/block").unwrap().map(|e| e.unwrap().path()) {
            let backing = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            if backing.contains(&shown) {
                left.push(format!("loop device {} over {backing}", device.display()));
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(mounts.lines().filter(|l| l.contains(&shown)).map(|l| format!("mount {l}")));
        // Of this state directory, however it is called: a number of a process may be another one's of long ago.
        let mark = vmio_node::dir_mark(&state.join("journals"));
        for dir in control_groups(Path::new("/sys/fs/cgroup"), 6) {
            let name = dir.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains(&mark) {
                left.push(format!("control group {}", dir.display()));
            }
        }
        let files = |dir: &Path| -> BTreeSet<String> {
            let names = fs::read_dir(dir).map(|d| d.map(|e| e.unwrap().file_name().into_string().unwrap()).collect());
            names.unwrap_or_default()
        };
        // The state directory's own; of guests of another processor, too.
        let own = ["vmio.db", "images", "labs", "packages", "kernels", "accelerator.json", "journals", "run", "store"];
        let known: Vec<&str> = own.into_iter().chain(["images-arm64", "packages-arm64", "volumes"]).collect();
        left.extend(files(&state).into_iter().filter(|f| !known.contains(&f.as_str())).map(|f| format!("file {f}")));
        left.extend(files(&state.join("journals")).into_iter().map(|f| format!("file journals/{f}")));
        left.extend(files(&state.join("run")).into_iter().map(|f| format!("file run/{f}")));
        left
    }

    /// Asserts that nothing is left. The kernel takes a moment to let go of some things.
    #[track_caller]
    pub fn is_clean(&self) {
        poll_for("nothing is left behind", || Some(self.left()).filter(|left| !left.is_empty()).map_or(Ok(()), Err));
    }
}

/// Control groups that vmio made, some levels down.
fn control_groups(dir: &Path, levels: u32) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())) {
        if !path.is_dir() || path.is_symlink() {
            continue;
        }
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmio")) {
            all.push(path);
        } else if levels > 1 {
            all.extend(control_groups(&path, levels - 1));
        }
    }
    all
}

/// Sends a signal to a process that the test started, or that works in its state directory.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}
