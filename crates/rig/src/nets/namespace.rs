//! A network namespace of vmio's own (network_namespaces(7)). Nothing names it but a descriptor that vmio holds:
//! when vmio ends, by whatever cause, and with it the processes that it started there, the kernel takes the
//! namespace down with all interfaces in it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::{Exec, Node};

use super::{Error, Result, ip};

/// How long making one may take.
const LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    held: File,
    /// The number of the next link to another host.
    next_link: AtomicU8,
}

impl Namespace {
    /// Makes one, with its loopback interface up.
    ///
    /// # Errors
    /// When the kernel or `unshare` refuses.
    pub fn make(node: &dyn Node) -> Result<Self> {
        let seconds = LIMIT.as_secs().to_string();
        let mut process = node.spawn(&Exec::new("unshare").args(["--net", "--", "sleep", &seconds]))?;
        let held = Self::of(process.pid(), || {
            let ended = process.try_wait().ok().flatten()?;
            Some(ended.err().trim().to_owned())
        });
        // The descriptor holds it from now on.
        let _ = process.kill();
        let _ = process.wait(Some(LIMIT));
        let namespace = Self { held: held?, next_link: AtomicU8::new(u8::MAX) };
        namespace.ip(node, &["link set lo up"])?;
        Ok(namespace)
    }

    /// That of a process, once it has one of its own. Until then it is in ours: nothing may be done there.
    fn of(pid: u32, mut ended: impl FnMut() -> Option<String>) -> Result<File> {
        let failed = |what: String| Error::Namespace(what);
        let identity = |file: &File| file.metadata().map(|m| (m.dev(), m.ino()));
        let open = |path: &str| File::open(path).map_err(|e| failed(format!("cannot open {path}: {e}")));
        let ours = identity(&open("/proc/self/ns/net")?).map_err(|e| failed(e.to_string()))?;
        let path = format!("/proc/{pid}/ns/net");
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(said) = ended() {
                return Err(failed(format!("unshare ended: {said}")));
            }
            let file = open(&path)?;
            if identity(&file).map_err(|e| failed(e.to_string()))? != ours {
                return Ok(file);
            }
            if Instant::now() > until {
                return Err(failed(format!("unshare did not make one within {} s", LIMIT.as_secs())));
            }
            thread::sleep(POLL);
        }
    }

    /// A number for a further link from it to another host: paths count from 0, and these from the last down.
    pub(super) fn link_number(&self) -> u8 {
        self.next_link.fetch_sub(1, Ordering::Relaxed)
    }

    /// A path by which other programs reach it while vmio lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.held.as_raw_fd())
    }

    /// What goes before a command so that it runs in it.
    pub fn enter(&self) -> Vec<String> {
        ["nsenter".to_owned(), format!("--net={}", self.path()), "--".to_owned()].into()
    }

    /// A command that runs in it.
    pub fn exec(&self, program: &str) -> Exec {
        Exec::new(program).behind(&self.enter())
    }

    /// Has `ip` (ip(8)) do each of these lines in it; it stops at the first that fails.
    ///
    /// # Errors
    /// Which line failed, and what `ip` said.
    pub fn ip(&self, node: &dyn Node, lines: &[&str]) -> Result<()> {
        ip(node, &self.exec("ip"), lines)
    }
}
