//! A real sshd, with keys of its own, that plays another machine, and what may be on such a one.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vmio_node::Local;
use vmio_node::reach::{Machine, Program};
use vmio_node::ssh::{self, Address};
use vmio_rig::ours::AGENT;
use vmio_testbed::poll_for;

use super::disk::tool as run;

/// A server, and a user who may go there.
pub struct Server {
    pub dir: tempfile::TempDir,
    pub port: u16,
    child: Child,
}

/// By what it is known: its address, what a public one leads to it, a name that has two.
const NAMES: [&str; 3] = ["127.0.0.1", "203.0.113.7", "twofold"];

/// The system's, or the one that scripts/test-images has unpacked.
fn sshd() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sshd/usr/sbin/sshd");
    let all = [PathBuf::from("/usr/sbin/sshd"), unpacked];
    all.into_iter().find(|path| path.exists()).expect("no sshd: scripts/test-images gets one")
}

impl Server {
    /// On loopback.
    pub fn start() -> Server {
        run("ip", &["link", "set", "lo", "up"]);
        Server::at(&[], "127.0.0.1", "")
    }

    /// One that listens at this address, behind these words, which lead to its network namespace, with more lines in its
    /// configuration.
    pub fn at(enter: &[String], listens: &str, more: &str) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host", "other", "user"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", key, "-f", &at(key)]);
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let public = |key: &str| fs::read_to_string(at(&format!("{key}.pub"))).unwrap();
        fs::write(at("authorized"), public("user")).unwrap();
        for (file, key) in [("known", "host"), ("changed", "other")] {
            let names = NAMES.map(|name| format!("[{name}]:{port}")).join(",");
            fs::write(at(file), format!("{names} {}", public(key))).unwrap();
        }
        fs::write(at("unknown"), "").unwrap();
        let config = format!(
            "ListenAddress {listens}\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPermitRootLogin yes\nUsePAM no\n\
             StrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n{more}",
            at("host"),
            at("authorized")
        );
        fs::write(at("sshd"), config).unwrap();
        // The user that it gives its rights away to, and its directory, for its own eyes.
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        fs::write(at("passwd"), passwd + "\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n").unwrap();
        let script = format!(
            "mount --bind {} /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd && exec {} -D -e -f {}",
            at("passwd"),
            sshd().display(),
            at("sshd")
        );
        let log = fs::File::create(at("log")).unwrap();
        let words = enter.iter().map(String::as_str).chain(["unshare", "--mount", "--", "sh", "-c", &script]);
        let words: Vec<&str> = words.collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let server = Server { dir, port, child };
        let log = server.dir.path().join("log");
        server.until("it listens", || fs::read_to_string(&log).unwrap_or_default().contains("Server listening on"));
        server
    }

    /// Waits for a state; where it does not come, what sshd said is told.
    #[track_caller]
    pub fn until(&self, state: &str, mut is: impl FnMut() -> bool) {
        let log = || fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        poll_for(state, || Some(()).filter(|()| is()).ok_or_else(log));
    }

    pub fn address(&self) -> Address {
        format!("ssh://root@127.0.0.1:{}", self.port).parse().unwrap()
    }

    /// The user's `ssh`, who knows these hosts and has this key.
    pub fn ssh(&self, known: &str, key: &str) -> String {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let file = at(&format!("{known}-{key}"));
        let config = format!(
            "UserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\nIdentityFile {}\nIdentitiesOnly yes\nIdentityAgent none\n",
            at(known),
            at(key)
        );
        // One that runs may read it.
        if !Path::new(&file).exists() {
            fs::write(&file, config).unwrap();
        }
        format!("ssh -F {file}")
    }

    /// It with an agent.
    pub fn open(&self) -> Machine {
        let agent = AGENT.find(&Local::new()).unwrap();
        let words: Vec<String> = self.ssh("known", "user").split(' ').map(str::to_owned).collect();
        let agents = [Program { machine: std::env::consts::ARCH.into(), file: agent }];
        ssh::open(&words, &self.address(), &agents).unwrap()
    }
}

/// Makes a directory with links to all programs but one, and a script in the place of that.
pub fn stand_in(dir: &Path, name: &str, script: &str) {
    programs_but(dir, &[name]);
    let file = dir.join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a directory with links to all programs but these.
pub fn programs_but(dir: &Path, left_out: &[&str]) {
    for from in ["/usr/bin", "/usr/sbin"] {
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if !left_out.iter().any(|out| name == *out) {
                // Both have the same content.
                let _ = std::os::unix::fs::symlink(entry.path(), dir.join(name));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Directories of agents in memory.
pub fn agents() -> Vec<String> {
    let names = fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("vmio.")).collect()
}

/// Waits until there are these again: the shell at the other end takes an agent away when its program has ended.
#[track_caller]
pub fn only_agents(before: &[String]) {
    poll_for("agents at the other end are gone", || match agents() {
        now if now == before => Ok(()),
        now => Err(now),
    });
}

/// A study of few and short cells.
pub fn study(dir: &Path, rows: &str) -> String {
    let text = format!(
        "name = \"away\"\ntitle = \"away\"\nbaseline = \"none\"\nguest = {{ vcpus = 1, memory_mib = 192 }}\n\
         repeat = {{ min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.1, seconds = 1.0, max_minutes = 3.0 {rows}"
    );
    let file = dir.join("away.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Has a study measure each cell so often.
pub fn rounds(study: &str, times: u32) {
    let text = fs::read_to_string(study).unwrap();
    let more = format!("min_pairs = {times}, max_pairs = {times}");
    fs::write(study, text.replace("min_pairs = 2, max_pairs = 2", &more)).unwrap();
}

/// Cells on a disk there and on the machine itself.
pub const ON_A_DISK: &str = ", max_gib_written = 20.0 }\nsize = { target_mib = 384 }\n\
    [[matrix]]\nsides = [\"ssh\"]\ndisks.targets = [\"preallocated\"]\ndisks.drivers = [\"virtio-blk\"]\n\
    workloads = [\"seq-write\", \"rand-read-1\", \"dd-read\"]\n\
    [[matrix]]\nsides = [\"ssh\"]\nmachine = true\nworkloads = [\"openssl-aes-256-cbc\", \"lu\"]\n";
