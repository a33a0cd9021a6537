//! Output that nobody gets is no success: standard output closed, on a full disk, or read by nobody; a
//! report's file on a full disk; a state directory on one.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::common;
use crate::help::state_dir::unfolded;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vmio::report::export::{Format, export};
use vmio::store::Store;
use vmio_model::result::Accel;
use vmio_testbed::skip;

fn stocked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    for accel in [Accel::Tcg, Accel::Kvm] {
        let mut run = common::run(accel);
        run.samples.truncate(40);
        common::store_run(&store, &run);
    }
    dir
}

/// Every verb that says something on standard output.
const VERBS: &[&[&str]] = &[
    &[],
    &["--help"],
    &["--version"],
    &["runs", "show", "--help"],
    &["scan"],
    &["scan", "--json"],
    &["scan", "--prometheus"],
    &["top", "--once", "--interval", "0.1", "--no-ebpf"],
    &["top", "--json", "--count", "1", "--interval", "0.1", "--no-ebpf"],
    &["top", "--json", "--interval", "0.1", "--no-ebpf"],
    &["explain", "1"],
    &["explain", "1", "--json"],
    &["scan", "--diff"],
    &["scan", "--diff", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["study", "list"],
    &["study", "list", "--json"],
    &["runs", "list"],
    &["runs", "list", "--json"],
    &["runs", "show", "1"],
    &["runs", "show", "1", "--verbose"],
    &["runs", "show", "1", "--json"],
    &["runs", "show", "1", "--markdown"],
    &["runs", "compare", "1", "2"],
    &["runs", "compare", "1", "2", "--json"],
    &["runs", "export", "1"],
    &["runs", "export", "1", "--format", "csv"],
    &["schema"],
    &["schema", "scan"],
    &["schema", "--json"],
    &["completions", "bash"],
];

/// What a shell does before it becomes vmio: `exec "$@" >&-`.
fn with(redirection: &str, state: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$@\" {redirection}"), "sh", env!("CARGO_BIN_EXE_vmio")]).args(args);
    command.env("VMIO_STATE", state).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn every_verb_fails_where_standard_output_is_closed_or_full() {
    let dir = stocked();
    for args in VERBS {
        for (redirection, why) in
            [(">&-", "it was closed before vmio began"), (">/dev/full", "No space left on device")]
        {
            let output = with(redirection, dir.path(), args);
            let said = unfolded(&String::from_utf8(output.stderr).unwrap());
            assert_eq!(output.status.code(), Some(1), "{args:?} {redirection}: {said}");
            assert!(said.contains(&format!("error: cannot write to standard output: {why}")), "{args:?}: {said}");
            assert!(said.contains("help: "), "{said}");
        }
    }
    // /dev/null is no failure.
    assert_eq!(with(">/dev/null", dir.path(), &["runs", "list"]).status.code(), Some(0));
    assert_eq!(with("<>/dev/null >&0", dir.path(), &["runs", "list"]).status.code(), Some(0));
    // A check plugin has its own codes: 1 would be a warning.
    for redirection in [">&-", ">/dev/full"] {
        assert_eq!(with(redirection, dir.path(), &["scan", "--nagios"]).status.code(), Some(3));
    }
}

/// As every other tool: ended by SIGPIPE, without a word.
#[test]
fn a_reader_who_has_gone_ends_it_quietly_and_not_with_success() {
    let dir = stocked();
    for args in VERBS {
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.args(*args).env("VMIO_STATE", dir.path()).stdin(Stdio::null()).stdout(Stdio::from(write)).arg0("vmio");
        let output = command.output().unwrap();
        let said = unfolded(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.signal(), Some(13), "{args:?}: {:?} {said}", output.status);
        assert!(!said.contains("error"), "{args:?}: {said}");
    }
}

#[test]
fn a_report_on_a_full_disk_is_no_success() {
    let dir = stocked();
    for args in [&["runs", "show", "1", "--html", "/dev/full"][..], &["scan", "--html", "/dev/full"]] {
        let output = with("", dir.path(), args);
        let said = unfolded(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("the disk of /dev is full: /dev/full was not written"), "{said}");
        assert!(said.contains("free some space there") && !said.contains("written to"), "{said}");
    }
}

/// The real thing: a tmpfs that is full, which an unprivileged user too can have in a namespace.
#[test]
fn a_full_state_disk_is_named_with_what_to_do() {
    let (dir, from) = (tempfile::tempdir().unwrap(), stocked());
    let script = "mount -t tmpfs -o size=$3,mode=700 none \"$1\" && cp \"$2\"/* \"$1\" 2>/dev/null; \
                  head -c 10M /dev/zero > \"$1/rest\" 2>/dev/null; shift 3; \"$@\"; code=$?; echo \"ended with $code\" >&2";
    let full = |room: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(dir.path()).arg(from.path()).arg(room).arg(env!("CARGO_BIN_EXE_vmio")).args(args);
        let output = command.env("VMIO_STATE", dir.path()).stdin(Stdio::null()).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), unfolded(&String::from_utf8(output.stderr).unwrap()))
    };
    // What is stored can be shown; nothing can be added.
    let (out, said) = full("4m", &["runs", "list"]);
    if said.contains("unshare failed") || said.contains("mount:") {
        skip("no user namespaces with mounts here");
        return;
    }
    assert!(said.contains("ended with 0") && out.lines().count() == 3, "{out}{said}");
    let other = from.path().join("run.json");
    fs::write(
        &other,
        export(&Store::open_reading(&from.path().join("vmio.db")).unwrap().load_whole(1).unwrap(), Format::Json),
    )
    .unwrap();
    let shown = dir.path().display();
    let (_, said) = full("4m", &["runs", "import", other.to_str().unwrap(), "--state", &format!("{shown}/new")]);
    assert!(said.contains(&format!("the disk of {shown}/new is full")), "{said}");
    assert!(said.contains("help: free some space there") && said.contains("ended with 1"), "{said}");
    let page = format!("{shown}/page.html");
    let (_, said) = full("4m", &["runs", "show", "1", "--html", &page]);
    assert!(said.contains(&format!("the disk of {shown} is full: {page} was not written")), "{said}");
    assert!(said.contains("ended with 1") && !Path::new(&page).exists(), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
