//! Finds `vmio-agent`, the static program that is the init of vmio's own guests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Result, elf, file_error};

const NAME: &str = "vmio-agent";
/// Where `make` builds it, below the directory `target`.
const BUILT: &str = "x86_64-unknown-linux-gnu/agent/vmio-agent";
const INSTALLED: [&str; 2] = ["/usr/lib/vmio/vmio-agent", "/usr/local/lib/vmio/vmio-agent"];

/// The agent: `$VMIO_AGENT`, else beside the running program, else in the directory of cargo that
/// the program was built into, else where it is installed. Beside a program in `target/debug`
/// there may be an agent of `cargo test`, which is not static: one that is goes first.
pub fn find() -> Result<PathBuf> {
    let named = env::var_os("VMIO_AGENT").map(PathBuf::from);
    let exe = env::current_exe().unwrap_or_default();
    let tried = match named {
        Some(path) => vec![path],
        None => candidates(&exe),
    };
    choose(&tried).ok_or_else(|| Error::NoAgent {
        tried: tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn candidates(exe: &Path) -> Vec<PathBuf> {
    let beside = exe.parent().map(|d| d.join(NAME));
    // target/debug/vmio, target/debug/deps/test-…
    let built = exe.ancestors().skip(2).take(2).map(|a| a.join(BUILT));
    beside.into_iter().chain(built).chain(INSTALLED.map(PathBuf::from)).collect()
}

/// The first that is static, else the first that is there, so that its fault can be told.
fn choose(tried: &[PathBuf]) -> Option<PathBuf> {
    let there = || tried.iter().filter(|p| p.is_file());
    let fit = |p: &&PathBuf| fs::read(p).is_ok_and(|program| elf::is_static(&program));
    there().find(fit).or_else(|| there().next()).cloned()
}

/// Reads the agent and checks that it can be the first process of a guest, where there is no
/// library yet.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let program = fs::read(path).map_err(file_error("read", path))?;
    if elf::is_static(&program) { Ok(program) } else { Err(Error::AgentNotStatic { path: path.into() }) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn looks_beside_the_program_and_where_it_was_built() {
        let list = candidates(Path::new("/src/vmio/target/debug/deps/test-1"));
        assert_eq!(list[0], Path::new("/src/vmio/target/debug/deps/vmio-agent"));
        assert!(list.contains(&Path::new("/src/vmio/target").join(BUILT)), "{list:?}");
        let list = candidates(Path::new("/cache/debug/vmio"));
        assert!(list.contains(&Path::new("/cache").join(BUILT)), "{list:?}");
    }

    #[test]
    fn a_static_one_goes_before_one_that_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (dynamic, fixed) = (dir.path().join("a"), dir.path().join("b"));
        fs::copy(env::current_exe().unwrap(), &dynamic).unwrap();
        let both = [dir.path().join("missing"), dynamic.clone(), fixed.clone()];
        assert_eq!(choose(&both), Some(dynamic));
        fs::write(&fixed, elf::tests::elf_with_section("x", b"")).unwrap();
        assert_eq!(choose(&both), Some(fixed));
        assert_eq!(choose(&both[..1]), None);
    }

    #[test]
    fn what_is_not_static_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agent");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(read(&script).unwrap_err().to_string().contains("static"));
    }
}
