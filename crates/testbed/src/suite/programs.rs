//! The test programs that cargo built, and the tests in them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde::Deserialize;

/// A line of `cargo test --no-run --message-format=json` (cargo's reference, "External tools"), as far as it is needed.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// What a test needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Boots guests, which takes root.
    Guest,
    /// Root.
    Root,
    /// Nothing.
    Plain,
}

/// One test.
#[derive(Clone, Debug)]
pub struct Test {
    /// Crate, program and the test's name in it: `vmio::rooted root_guard::a_second_one_is_refused`.
    pub name: String,
    /// Name in its program.
    pub path: String,
    pub program: PathBuf,
    /// Where it is run: its crate's directory, as cargo does it.
    pub dir: PathBuf,
    pub kind: Kind,
    /// Among the long forms.
    pub long: bool,
    pub ignored: bool,
}

/// All tests of the programs that cargo names in this file.
pub fn tests(built: &Path) -> io::Result<Vec<Test>> {
    let text = fs::read_to_string(built)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}; run `make test`", built.display())))?;
    let mut all = Vec::new();
    for line in text.lines() {
        let message: Message = serde_json::from_str(line)?;
        let (Some(manifest), Some(target), Some(program), Some(profile)) =
            (message.manifest_path, message.target, message.executable, message.profile)
        else {
            continue;
        };
        let benchmark = target.kind.iter().any(|kind| kind == "bench");
        if message.reason != "compiler-artifact" || !profile.test || benchmark {
            continue;
        }
        let dir = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        all.extend(of_program(&program, &dir, &target.name)?);
    }
    Ok(all)
}

fn of_program(program: &Path, dir: &Path, target: &str) -> io::Result<Vec<Test>> {
    let ignored = names(program, dir, &["--ignored"])?;
    let package = dir.file_name().unwrap_or_default().to_string_lossy();
    let test = |path: String| {
        let ignored = ignored.contains(&path);
        let last = path.rsplit("::").next().unwrap_or(&path);
        let home = path.split("::").next().filter(|first| *first != last).unwrap_or(target);
        let kind = if ignored && home.starts_with("guest_") {
            Kind::Guest
        } else if ignored && (home.starts_with("root_") || last.starts_with("root_")) {
            Kind::Root
        } else {
            Kind::Plain
        };
        let long = last.starts_with("long_");
        let name = format!("{package}::{target} {path}");
        // What is ignored and neither of these is started by other tests.
        let helper = last.starts_with("helper_") || ignored && kind == Kind::Plain && !long;
        (!helper).then(|| Test { name, path, program: program.to_owned(), dir: dir.to_owned(), kind, long, ignored })
    };
    Ok(names(program, dir, &[])?.into_iter().filter_map(test).collect())
}

/// Names by libtest's terse list: `path: test`, a line each.
fn names(program: &Path, dir: &Path, more: &[&str]) -> io::Result<Vec<String>> {
    let output = Command::new(program).args(["--list", "--format", "terse"]).args(more).current_dir(dir).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
