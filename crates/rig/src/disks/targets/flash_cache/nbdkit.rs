//! One `nbdkit` with its cache filter (nbdkit(1), nbdkit-cache-filter(1), nbdkit-file-plugin(1)): started, waited for
//! until it listens, ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::find_program;
use vmio_node::{Exec, Node, Process, held};

use super::super::served::how;
use super::super::{Error, Result, facts};
use crate::disks::Storage;
use crate::limits::OOM_SCORE_ADJ;
use crate::qemu::waiting;

/// The program.
pub const NBDKIT: &str = "nbdkit";
/// Least block of the cache in bytes: the filter reads whole ones from the disk, and knows none smaller than 4 KiB.
const BLOCK_BYTES: u32 = 4096;
/// How long a killed one may take to end, and one that is asked for its version to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A server. It is killed when this goes out of scope.
pub struct Server {
    /// Its process.
    pub pid: u32,
    /// What it is, for results.
    pub told: BTreeMap<String, String>,
    socket: PathBuf,
    process: Box<dyn Process>,
}

impl Server {
    /// Starts one over a file, and waits until it listens. `number` is in the name of its socket in `dir`, where its
    /// cache, which is empty, lies without a name. `keeps`: whether that keeps what is read.
    pub fn start(node: &dyn Node, file: &Path, (dir, number): (&Path, usize), keeps: bool) -> Result<Self> {
        let fail = |reason: String| Error::Server { path: held::shown(file), reason };
        let program = find_program(node.reader(), NBDKIT).ok_or_else(|| fail(format!("no program {NBDKIT}")))?;
        let program = program.display().to_string();
        let version = node.exec(&Exec::new(&program).args(["--version"]).limit(LIMIT))?;
        let told = told(&version.out());
        let socket = dir.join(format!("{number}-{}.sock", if keeps { "hits" } else { "misses" }));
        // One that was killed leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let env = [("TMPDIR".to_owned(), dir.display().to_string())].into();
        let command = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), env, ..Exec::new(program) };
        let process = node.spawn(&command.args(arguments(file, &socket, keeps)))?;
        let mut started = Self { pid: process.pid(), told, socket, process };
        started.listens().map_err(fail)?;
        Ok(started)
    }

    /// Waits until it listens.
    ///
    /// # Errors
    /// What became of it instead, in words.
    fn listens(&mut self) -> Result<(), String> {
        let Self { socket, process, .. } = self;
        let mut ended = || process.try_wait().ok().flatten();
        let up = match waiting::connect(socket, &mut ended) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!("it does not listen on {}", socket.display())),
            Err(e) => Err(format!("cannot connect to {}: {e}", socket.display())),
        };
        // If it ended, how says more.
        up.map_err(|e| waiting::ended_soon(ended).map_or(e, |output| how(&output)))
    }

    /// What a hypervisor opens.
    pub fn storage(&self) -> Storage {
        Storage::CachedNbd { socket: self.socket.clone() }
    }

    /// How it ended, in words, if it has.
    pub fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.process.try_wait()?.map(|output| how(&output)))
    }

    /// Ends it; its cache goes with it. Nothing that was written is lost: writes go through.
    pub fn stop(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait(Some(LIMIT))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The command line. The file is read without read-ahead, so that a miss costs the disk what was asked for.
fn arguments(file: &Path, socket: &Path, keeps: bool) -> Vec<String> {
    vec![
        "--foreground".into(),
        "--unix".into(),
        socket.display().to_string(),
        "--filter=cache".into(),
        "file".into(),
        format!("file={}", file.display()),
        "fadvise=random".into(),
        "cache=writethrough".into(),
        format!("cache-on-read={keeps}"),
        format!("cache-min-block-size={BLOCK_BYTES}"),
    ]
}

/// What it is and how it was asked to cache. Whether it does, the counters of a cell tell.
fn told(version: &str) -> BTreeMap<String, String> {
    let version = version.lines().next().unwrap_or_default().trim();
    facts([
        ("server", format!("{version}, NBD over a Unix socket")),
        ("server.cache", "modelled: in memory".to_owned()),
        ("server.cache.block_bytes", BLOCK_BYTES.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_keeps_what_is_read_or_nothing_and_the_plugin_reads_nothing_ahead() {
        let line = |keeps| arguments(Path::new("/proc/7/fd/9"), Path::new("/dev/shm/d/3.sock"), keeps).join(" ");
        assert_eq!(
            line(true),
            "--foreground --unix /dev/shm/d/3.sock --filter=cache file file=/proc/7/fd/9 fadvise=random \
             cache=writethrough cache-on-read=true cache-min-block-size=4096"
        );
        assert_eq!(line(false), line(true).replace("cache-on-read=true", "cache-on-read=false"));
    }

    #[test]
    fn the_version_is_told_as_it_says_it() {
        let told = told("nbdkit 1.32.5\n");
        assert_eq!(told["server"], "nbdkit 1.32.5, NBD over a Unix socket");
        assert_eq!((told["server.cache.block_bytes"].as_str(), told.len()), ("4096", 3));
    }
}
