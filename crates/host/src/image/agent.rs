//! Finds `vmio-agent`, the static program that is the init of vmio's own guests.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Result, elf, file_error};

const NAME: &str = "vmio-agent";
/// Where `make` builds it, below the directory `target`.
const BUILT: &str = "x86_64-unknown-linux-gnu/agent/vmio-agent";
const INSTALLED: [&str; 2] = ["/usr/lib/vmio/vmio-agent", "/usr/local/lib/vmio/vmio-agent"];

/// The agent: `$VMIO_AGENT`, else beside the running program, else in the `target` directory that
/// the program was built into, else where it is installed.
pub fn find() -> Result<PathBuf> {
    let named = env::var_os("VMIO_AGENT").map(PathBuf::from);
    let exe = env::current_exe().unwrap_or_default();
    let tried = match named {
        Some(path) => vec![path],
        None => candidates(&exe),
    };
    let found = tried.iter().find(|p| p.is_file()).cloned();
    found.ok_or_else(|| Error::NoAgent {
        tried: tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn candidates(exe: &Path) -> Vec<PathBuf> {
    let beside = exe.parent().map(|d| d.join(NAME));
    // target/debug/vmio, target/debug/deps/test-…
    let built = exe.ancestors().find(|a| a.file_name().is_some_and(|n| n == "target")).map(|t| t.join(BUILT));
    beside.into_iter().chain(built).chain(INSTALLED.map(PathBuf::from)).collect()
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
        assert_eq!(list[1], Path::new("/src/vmio/target").join(BUILT));
    }

    #[test]
    fn what_is_not_static_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agent");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(read(&script).unwrap_err().to_string().contains("static"));
    }
}
