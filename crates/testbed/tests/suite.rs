//! The program that runs all tests must itself be able to fail, and say so in its last lines.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A test program as `suite` sees it: a list, and a test by its name. `wrong` and `leaves` fail, the latter in other
/// words; `waits` is none of the short form; `helper_inner` is started by others.
const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
  *--list*--ignored*) echo "helper_inner: test"; echo "long_waits: test"; exit ;;
  *--list*) for t in right wrong leaves lacks helper_inner long_waits; do echo "$t: test"; done; exit ;;
esac
case "$2" in
  wrong) echo "thread 'wrong' panicked at here.rs:7:1:" >&2; echo "two is not three" >&2; exit 101 ;;
  leaves) touch "$TMPDIR/forgotten" ;;
  lacks) echo "no such kernel" > "$VMIO_TEST_SKIPPED" ;;
  helper_inner | long_waits) echo "it ran" > "$RAN/$2" ;;
esac
"#;

struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn new(program: &str) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let crate_dir = dir.path().join("made-up");
        fs::create_dir(&crate_dir).unwrap();
        let executable = crate_dir.join("program");
        fs::write(&executable, program).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": crate_dir.join("Cargo.toml"),
            "target": {"kind": ["test"], "name": "some"},
            "profile": {"test": true},
            "executable": executable,
        });
        fs::write(dir.path().join("built"), format!("{message}\n{{\"reason\":\"build-finished\"}}\n")).unwrap();
        Bed { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, more: &[&str]) -> (Output, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_suite"));
        command.args(["run", "--lanes", "2", "--built"]).arg(self.path("built"));
        // As make calls it, by a relative path.
        command.args(["--dir", "kept"]).args(more).env("RAN", self.dir.path()).current_dir(self.dir.path());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output, text)
    }
}

fn last(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

#[test]
fn failures_are_listed_last() {
    let bed = Bed::new(PROGRAM);
    let (output, text) = bed.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(last(&text), "1 passed, 2 failed, 1 skipped");
    let end = text.split_once("slowest, ").unwrap().1;
    for line in [
        "failed: made-up::some wrong\n  here.rs:7:1: two is not three",
        "repeat: make test-one TEST='made-up::some wrong'",
        "failed: made-up::some leaves\n  left behind: temporary file",
        "skipped: no such kernel\n  made-up::some lacks",
    ] {
        assert!(end.contains(line), "{line}: {end}");
    }
    assert!(!Path::new(&bed.path("long_waits")).exists() && !bed.path("helper_inner").exists());
}

#[test]
fn passes_and_long_forms() {
    let bed = Bed::new(PROGRAM);
    let (output, text) = bed.run(&["right"]);
    assert_eq!((output.status.code(), last(&text)), (Some(0), "1 passed, 0 failed, 0 skipped"));
    let (output, text) = bed.run(&["--long"]);
    assert_eq!((output.status.code(), last(&text)), (Some(0), "1 passed, 0 failed, 0 skipped"));
    assert!(bed.path("long_waits").exists());
    let (output, _) = bed.run(&["no such name"]);
    assert_eq!(output.status.code(), Some(1), "nothing was run, so nothing has passed");
}

#[test]
fn table_of_several_runs() {
    // Fails the second time.
    let program =
        PROGRAM.replace("  wrong)", "  right) echo >> \"$RAN/n\"; [ $(wc -l < \"$RAN/n\") != 2 ]; exit ;;\n  wrong)");
    let bed = Bed::new(&program);
    let table = bed.path("table.md");
    let (output, text) = bed.run(&["right", "--repeat", "3", "--table", table.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let table = fs::read_to_string(table).unwrap();
    assert!(table.contains("| made-up::some right | 3 | 1 |"), "{table}");
    assert!(table.contains("1 tests in 3 runs: 1 failures"), "{table}");
}

#[test]
#[ignore = "root"]
fn root_what_failed_beside_others_is_run_again_alone() {
    // `root_once` passes the second time; `wrong` never, and nothing beside it could be why.
    let once = "  root_once) echo >> \"$RAN/once\"; [ $(wc -l < \"$RAN/once\") = 2 ]; exit ;;\n  wrong) echo >> \"$RAN/wrong\";";
    let program = PROGRAM
        .replace("echo \"helper_inner: test\"", "echo \"helper_inner: test\"; echo \"root_once: test\"")
        .replace("for t in right", "for t in root_once right")
        .replace("  wrong)", once);
    let bed = Bed::new(&program);
    let (output, text) = bed.run(&["root_once", "--again"]);
    assert_eq!(
        (output.status.code(), last(&text)),
        (Some(0), "1 passed (1 when run again, alone), 0 failed, 0 skipped")
    );
    assert!(text.contains("failed beside others, passed alone: made-up::some root_once"), "{text}");
    let (output, text) = bed.run(&["wrong", "--again"]);
    assert_eq!((output.status.code(), last(&text)), (Some(1), "0 passed, 1 failed, 0 skipped"));
    assert_eq!(fs::read_to_string(bed.path("wrong")).unwrap(), "\n", "run once");
}
