//! One `tgtd` (tgtd(8), tgtadm(8)): started, given its one target by `tgtadm`, read back, ended. Its control socket is
//! one of the run's own (`TGT_IPC_SOCKET`), so that a daemon which this host runs is another one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::find_program;
use vmio_node::{End, Exec, Node, Output, Process, held};

use super::super::served::how;
use super::super::{Error, Result, facts};
use crate::disks::Storage;
use crate::limits::OOM_SCORE_ADJ;
use crate::nets::NetEnd;
use crate::qemu::waiting;

/// The server.
pub const DAEMON: &str = "tgtd";
/// What it is set up by.
pub const ADMIN: &str = "tgtadm";
/// The serial number of its disk, by which a guest finds it.
pub const SERIAL: &str = "vmio-iscsi";
/// How names of vmio's begin (RFC 7143, 4.2.7): of a domain that nobody has (RFC 2606).
pub const AUTHORITY: &str = "iqn.2026-11.invalid.vmio";
/// The disk there: `tgtd` keeps 0 for a device of its own.
const LUN: u32 = 1;
/// The port of iSCSI (IANA).
const PORT: u16 = 3260;
/// Where it is told its control socket, to whose path it adds the number of its control port, which is 0.
const SOCKET_VARIABLE: &str = "TGT_IPC_SOCKET";
/// How long a killed one may take to end, and one that is asked to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A server. It is killed when this goes out of scope.
pub struct Server {
    /// Its process.
    pub pid: u32,
    /// What a client opens.
    pub storage: Storage,
    /// What it is, as read back.
    pub told: BTreeMap<String, String>,
    process: Box<dyn Process>,
}

impl Server {
    /// Starts one that serves `file` at this end of a path, and waits until it does. Its control socket is in `dir`.
    pub fn start(node: &dyn Node, file: &Path, dir: &Path, end: &NetEnd) -> Result<Self> {
        let fail = |reason: String| Error::Server { path: held::shown(file), reason };
        let program = |name: &str| {
            let found = find_program(node.reader(), name).map(|found| found.display().to_string());
            found.ok_or_else(|| fail(format!("no program {name}")))
        };
        let (daemon, admin) = (program(DAEMON)?, Admin::new(program(ADMIN)?, dir));
        let version = node.exec(&Exec::new(&daemon).args(["--version"]).limit(LIMIT))?.out();
        let portal = SocketAddr::new(end.address, PORT);
        let command = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), env: admin.env.clone(), ..Exec::new(daemon) };
        let process = node.spawn(&command.args(arguments(portal)).behind(&end.enter))?;
        let target = format!("{AUTHORITY}:disk");
        let words = set_up(&target, file);
        let storage = Storage::Iscsi { portal, target, lun: LUN };
        let mut started = Self { pid: process.pid(), storage, told: BTreeMap::new(), process };
        started.listens(dir).map_err(fail)?;
        for words in &words {
            admin.run(node, words)?;
        }
        // Before it obeyed it had exempted itself from being ended when memory runs out (usr/tgtd.c, `oom_adjust`).
        let score = format!("/proc/{}/oom_score_adj", started.pid);
        node.write(Path::new(&score), OOM_SCORE_ADJ.to_string().as_bytes(), None)?;
        let shown = admin.run(node, &["--op", "show", "--mode", "target"].map(str::to_owned))?;
        started.told = told(&version, &shown);
        Ok(started)
    }

    /// Waits until it takes commands.
    ///
    /// # Errors
    /// What became of it instead, in words.
    fn listens(&mut self, dir: &Path) -> Result<(), String> {
        let (socket, process) = (control_socket(dir), &mut self.process);
        let mut ended = || process.try_wait().ok().flatten();
        let up = match waiting::connect(&socket, &mut ended) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!("it does not listen on {}", socket.display())),
            Err(e) => Err(format!("cannot connect to {}: {e}", socket.display())),
        };
        // If it ended, how says more.
        up.map_err(|e| waiting::ended_soon(ended).map_or(e, how_it_ended))
    }

    /// How it ended, in words, if it has.
    pub fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.process.try_wait()?.map(how_it_ended))
    }

    /// Ends it. All that was written is in the file: it keeps nothing back.
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

/// What it said while it started has nothing to do with a signal.
fn how_it_ended(output: Output) -> String {
    match output.end {
        End::Signal(_) => how(&Output { stderr: Vec::new(), ..output }),
        End::Exit(_) | End::TimedOut => how(&output),
    }
}

/// `tgtadm` for the server whose control socket is in a directory.
struct Admin {
    program: String,
    env: BTreeMap<String, String>,
}

impl Admin {
    fn new(program: String, dir: &Path) -> Self {
        let env = [(SOCKET_VARIABLE.to_owned(), dir.join(DAEMON).display().to_string())].into();
        Self { program, env }
    }

    /// What it says to such a command.
    fn run(&self, node: &dyn Node, words: &[String]) -> Result<String> {
        let command = Exec { env: self.env.clone(), ..Exec::new(&self.program) };
        let command = command.args(["--lld", "iscsi"]).args(words.iter().cloned()).limit(LIMIT);
        let output = node.exec(&command)?;
        if output.ok() {
            return Ok(output.out());
        }
        Err(Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() })
    }
}

fn control_socket(dir: &Path) -> PathBuf {
    dir.join(format!("{DAEMON}.0"))
}

/// The server's command line. In the foreground it says what it has to say, and starts no further process.
fn arguments(portal: SocketAddr) -> [String; 3] {
    ["-f".to_owned(), "--iscsi".to_owned(), format!("portal={portal}")]
}

/// What `tgtadm` is told so that the file is served. It works past the page cache, as the servers of `nbd` work for a
/// guest that reaches them by itself. Whoever reaches its portal may have it: only vmio's own guests are on the link.
fn set_up(target: &str, file: &Path) -> Vec<Vec<String>> {
    let (lun, file, serial) = (LUN.to_string(), file.to_string_lossy(), format!("scsi_sn={SERIAL}"));
    let of_target = |operation: &str| ["--op", operation, "--mode", "target", "--tid", "1"].map(str::to_owned);
    let of_disk =
        |operation: &str| ["--op", operation, "--mode", "logicalunit", "--tid", "1", "--lun", &*lun].map(str::to_owned);
    let with = |words: &[String], more: &[&str]| {
        words.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    vec![
        with(&of_target("new"), &["--targetname", target]),
        with(&of_disk("new"), &["--backing-store", &*file, "--bstype", "rdwr", "--bsoflags", "direct"]),
        with(&of_disk("update"), &["--params", &*serial]),
        with(&of_target("bind"), &["--initiator-address", "ALL"]),
    ]
}

/// What it is, with how it opened the file, of which it says this below the disk's number.
fn told(version: &str, shown: &str) -> BTreeMap<String, String> {
    let lun = format!("LUN: {LUN}");
    let mut of_disk = shown.lines().map(str::trim).skip_while(|line| *line != lun);
    let flags = of_disk.find_map(|line| line.strip_prefix("Backing store flags:")).unwrap_or_default();
    let direct = flags.split(':').any(|flag| flag.trim() == "direct");
    facts([
        ("server", format!("{DAEMON} {}, iSCSI", version.trim())),
        // Its backing store `rdwr`.
        ("server.aio", "threads".to_owned()),
        ("server.cache.direct", direct.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_listens_at_its_end_and_serves_one_disk_past_the_page_cache() {
        let line = arguments(SocketAddr::from(([198, 18, 255, 3], PORT))).join(" ");
        assert_eq!(line, "-f --iscsi portal=198.18.255.3:3260");
        let words = set_up("iqn.x:disk", Path::new("/proc/7/fd/9"));
        let lines: Vec<String> = words.iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "--op new --mode target --tid 1 --targetname iqn.x:disk",
                "--op new --mode logicalunit --tid 1 --lun 1 --backing-store /proc/7/fd/9 --bstype rdwr \
                 --bsoflags direct",
                "--op update --mode logicalunit --tid 1 --lun 1 --params scsi_sn=vmio-iscsi",
                "--op bind --mode target --tid 1 --initiator-address ALL",
            ]
        );
        let admin = Admin::new("/usr/sbin/tgtadm".to_owned(), Path::new("/dev/shm/d"));
        let named = format!("{}.0", admin.env[SOCKET_VARIABLE]);
        assert_eq!(Path::new(&named), control_socket(Path::new("/dev/shm/d")));
    }

    #[test]
    fn what_it_said_is_told_where_it_ended_by_itself() {
        let output = |end| Output { end, stdout: vec![], stderr: b"tgtd: unable to bind\n".to_vec(), truncated: false };
        assert_eq!(how_it_ended(output(End::Exit(1))), "it ended with exit code 1: tgtd: unable to bind");
        assert_eq!(how_it_ended(output(End::Signal(9))), "it was killed by signal 9");
    }

    #[test]
    fn how_the_file_is_open_is_read_of_the_disk_not_of_the_controller_before_it() {
        let shown = |flags: &str| {
            format!(
                "Target 1: iqn.x:disk\n    LUN information:\n        LUN: 0\n            Type: controller\n\
                 \x20           Backing store flags: direct\n        LUN: 1\n            Type: disk\n\
                 \x20           Backing store path: /proc/7/fd/9\n            Backing store flags: {flags}\n"
            )
        };
        let direct = told("1.0.85\n", &shown("direct"));
        assert_eq!(direct["server"], "tgtd 1.0.85, iSCSI");
        assert_eq!(direct["server.cache.direct"], "true");
        assert_eq!(told("1.0.85\n", &shown("sync:direct"))["server.cache.direct"], "true");
        assert_eq!(told("1.0.85\n", &shown(""))["server.cache.direct"], "false");
        assert_eq!(told("1.0.85\n", "")["server.cache.direct"], "false");
    }
}
