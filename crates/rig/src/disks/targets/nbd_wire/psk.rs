//! The key of a run, by which the server on the other machine and this host's QEMU know each other: TLS with a pre-shared key
//! (RFC 4279; psktool(1)).
//!
//! It is in two files of mode 0600 in memory: here in a directory of mode 0700, there in one where only its owner can
//! exchange it. They go with the run, and with the agent.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;
use vmio_node::{ChangeId, Exec, Journal, Node, machine};

use super::super::{Error, Result, memory, scratch};
use crate::disks::Storage;

/// The file that QEMU looks for in its directory (qemu(1), `tls-creds-psk`).
const FILE: &str = "keys.psk";
/// As long as the keys of psktool(1).
const KEY_BYTES: usize = 32;
/// How long that machine may take to write the key.
const LIMIT: Duration = Duration::from_secs(15);

/// The files of a run's key.
pub struct Psk {
    /// The directory here in which QEMU finds it.
    pub dir: PathBuf,
    made: ChangeId,
    /// The file on the other machine.
    pub there: PathBuf,
}

impl Psk {
    /// Makes a key for the target of this name, here and on the other machine.
    ///
    /// # Errors
    /// When there is no random number, or a file cannot be made or written.
    pub fn make(journal: &Journal, node: &dyn Node, target: &str) -> Result<Self> {
        let there = Path::new(memory::MEMORY).join(format!("vmio-{target}-{}.psk", journal.cookie()));
        guarded(node)?;
        let line = line().map_err(scratch::io("make", &there))?;
        let (dir, made) = memory::dir(journal, target)?;
        match write_here(&dir, &line).and_then(|()| write_there(node, &there, line)) {
            Ok(()) => Ok(Self { dir, made, there }),
            Err(failure) => Err(scratch::undone(journal, made, failure)),
        }
    }

    /// Takes away the one here. That machine's agent removes its own at the end of the session.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(self, journal: &Journal) -> Result<()> {
        Ok(journal.undo(self.made)?)
    }
}

/// A line with a new key, as both ends read it.
fn line() -> io::Result<String> {
    let key: [u8; KEY_BYTES] = machine::random()?;
    Ok(format!("{}:{}\n", Storage::TLS_USER, HEXLOWER.encode(&key)))
}

/// Sees to it that nobody else can put another file in its place there: nbdkit opens it by its name for each client.
fn guarded(node: &dyn Node) -> Result<()> {
    let dir = Path::new(memory::MEMORY);
    match node.stat(dir)? {
        Some(found) if found.mode & 0o022 == 0 || found.mode & 0o1000 != 0 => Ok(()),
        _ => Err(Error::NotAsAsked {
            path: dir.into(),
            reason: format!(
                "other users of {} could exchange the key of the run in it; run `chmod 1777 {}` there",
                node.name(),
                dir.display()
            ),
        }),
    }
}

fn write_here(dir: &Path, line: &str) -> Result<()> {
    let path = dir.join(FILE);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(&path).and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(scratch::io("write", &path))
}

/// The key is on no command line: other users see those.
fn write_there(node: &dyn Node, path: &Path, line: String) -> Result<()> {
    let made = node.make_file(path, 0)?;
    let of = format!("of={}", made.path().display());
    let mut command = Exec::new("dd").args([of.as_str(), "conv=notrunc"]).limit(LIMIT);
    command.stdin = line.into_bytes();
    let output = node.exec(&command)?;
    if output.ok() {
        return Ok(());
    }
    Err(Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn each_key_is_another() {
        let (one, other) = (line().unwrap(), line().unwrap());
        assert_ne!(one, other);
        let hex = one.strip_prefix("vmio:").unwrap().strip_suffix('\n').unwrap();
        assert!(hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hex}");
    }

    #[test]
    fn only_its_owner_reads_the_key_and_a_file_that_is_there_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        write_here(dir.path(), "vmio:00\n").unwrap();
        let file = dir.path().join("keys.psk");
        assert_eq!(fs::read_to_string(&file).unwrap(), "vmio:00\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(write_here(dir.path(), "vmio:11\n").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "vmio:00\n");
    }

    #[test]
    fn the_key_goes_where_nobody_else_can_exchange_it() {
        let told = |mode: u32| {
            let node = Fake::new("b");
            node.write(Path::new(memory::MEMORY), b"", Some(mode)).unwrap();
            guarded(&node).map_err(|why| why.to_string())
        };
        assert_eq!((told(0o1777), told(0o755)), (Ok(()), Ok(())));
        let said = told(0o777).unwrap_err();
        assert!(said.starts_with("/dev/shm: ") && said.contains("users of b"), "{said}");
        assert!(guarded(&Fake::new("b")).is_err(), "it is not there");
    }
}
