//! A host for a guard: a bridge with an uplink and a guest's interface, in a network namespace of its own that goes with the
//! thread that made it; the daemon, and all that it may have changed.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vmio_testbed::net::{self, tried};
use vmio_testbed::poll_until;

use super::schema::fits;
use super::state_dir::{Companion, Ended, built};

#[path = "../../../guard/tests/common/state.rs"]
mod state;

pub const POLICY: &str = r#"[uplink.u0]
capacity = "100Mbit"
[class.gold]
min = "40Mbit"
[[interface]]
match = { name = "t*" }
class = "gold"
rx_class = "gold"
"#;

pub struct TestHost {
    pub dir: tempfile::TempDir,
}

impl TestHost {
    /// Runs this with a test host, in a network namespace of its own.
    pub fn with(work: impl FnOnce(&TestHost) + Send) {
        net::apart(|| work(&TestHost::set_up()));
    }

    /// As [`TestHost::with`], and with a bpffs of its own: programs are attached by TCX and pinned there, where the
    /// kernel can do that.
    pub fn with_bpffs(work: impl FnOnce(&TestHost) + Send) {
        net::apart_with_bpffs(true, || work(&TestHost::set_up()));
    }

    fn set_up() -> TestHost {
        let host = TestHost { dir: tempfile::tempdir().unwrap() };
        ip("link add br0 type bridge");
        ip("link add u0 type veth peer name u1");
        for link in ["br0", "u0", "u1"] {
            ip(&format!("link set {link} up"));
        }
        ip("link set u0 master br0");
        host.write(POLICY);
        host.plug("t1");
        ["u0", "u1", "br0"].into_iter().for_each(is_up);
        host
    }

    /// What the guard keeps outside of the network: its pins, and what its ledger has in force.
    pub fn kept(&self) -> Vec<String> {
        let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let pins = fs::read_dir(format!("/sys/fs/bpf/vmio/{namespace}")).into_iter().flatten();
        let pins = pins.map(|pin| pin.unwrap().path().display().to_string());
        let ledger = fs::read_to_string(self.dir.path().join("state/guard/guard.ledger")).unwrap_or_default();
        let mut live = BTreeMap::new();
        for line in ledger.lines().skip(1) {
            let line: Value = serde_json::from_str(line).unwrap();
            match line["do"].as_u64() {
                Some(id) => drop(live.insert(id, line["what"].to_string())),
                None => drop(line["undone"].as_u64().and_then(|id| live.remove(&id))),
            }
        }
        pins.chain(live.into_values()).collect()
    }

    pub fn plug(&self, name: &str) {
        ip(&format!("link add {name} type veth peer name p-{name}"));
        ip(&format!("link set {name} master br0 up"));
    }

    pub fn policy(&self) -> PathBuf {
        self.dir.path().join("guard.toml")
    }

    pub fn write(&self, text: &str) {
        fs::write(self.policy(), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.env("VMIO_STATE", self.dir.path().join("state")).env_remove("COLUMNS").args(args);
        command
    }

    pub fn vmio(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    #[track_caller]
    pub fn ends(&self, args: &[&str], code: i32) -> (String, String) {
        let ended = Ended::of(&self.vmio(args)).with(code);
        (ended.out, ended.err)
    }

    pub fn status(&self) -> Value {
        let (out, _) = self.ends(&["guard", "status", "--json"], 0);
        fits("guard-status", &out);
        serde_json::from_str(&out).unwrap()
    }

    /// Members of what guests send, with their minima in Mbit/s.
    pub fn members(&self) -> Vec<(String, u64)> {
        let status = self.status();
        let members = status["pools"][0]["members"].as_array().unwrap().clone();
        let min = |m: &Value| m["min_effective_bps"].as_u64().unwrap() / 1_000_000;
        members.iter().map(|m| (m["name"].as_str().unwrap().to_owned(), min(m))).collect()
    }

    pub fn run(&self) -> Daemon {
        self.run_with(&[])
    }

    pub fn run_with(&self, args: &[&str]) -> Daemon {
        let mut daemon = self.start(args);
        let answers = || self.vmio(&["guard", "status"]).status.success();
        poll_until("the daemon answers or has ended", || answers() || daemon.has_ended());
        if daemon.has_ended() {
            panic!("it ended by itself: {:?}", daemon.end(None));
        }
        daemon
    }

    /// Does not wait for it.
    pub fn start(&self, args: &[&str]) -> Daemon {
        let policy = self.policy();
        let mut command = self.command(&["guard", "run", "--config", policy.to_str().unwrap()]);
        let said = tempfile::tempfile_in(self.dir.path()).unwrap();
        let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said.try_clone().unwrap());
        Daemon { child: Some(command.spawn().unwrap()), said }
    }
}

/// Ended with the test, whatever becomes of that.
pub struct Daemon {
    child: Option<Child>,
    said: File,
}

impl Daemon {
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some())
    }

    /// What it has said so far: its log.
    pub fn said(&self) -> String {
        let mut bytes = vec![0; self.said.metadata().unwrap().len() as usize];
        self.said.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Its exit code, and what it said.
    pub fn end(self, signal: Option<Signal>) -> (Option<i32>, String) {
        let (code, _, said) = self.end_with(signal);
        (code, said)
    }

    /// And what it printed before.
    pub fn end_with(mut self, signal: Option<Signal>) -> (Option<i32>, String, String) {
        let child = self.child.take().unwrap();
        if let Some(signal) = signal {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), self.said())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn ip(line: &str) {
    net::run(&[&format!("ip {line}")]);
}

/// Waits until a link is: the kernel tells that some time after it was set.
pub fn is_up(link: &str) {
    poll_until("the link is up", || tried(&format!("ip -o link show dev {link}")).1.contains("state UP"));
}

/// All queues, filters, programs, pins and interfaces of the namespace, counters apart: as tc and ip show them, and what the
/// planes' own tests compare, the kernel's bytes of each queue and class among it.
pub fn network_state() -> String {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let links = said("ip", &["-o", "link"]);
    let mut all = said("tc", &["qdisc"]) + &said("tc", &["class", "show", "dev", "u0"]) + &links;
    for link in links.lines().filter_map(|line| line.split([':', '@']).nth(1)) {
        for hook in ["ingress", "egress"] {
            // It may be gone since it was listed.
            let output = Command::new("tc").args(["filter", "show", "dev", link.trim(), hook]).output().unwrap();
            all += &String::from_utf8_lossy(&output.stdout);
        }
    }
    all + &format!("{:#?}\n", state::State::now())
}

/// How many there are of each kind of what a guard makes, in the namespace and its bpffs.
pub fn objects() -> BTreeMap<&'static str, usize> {
    let (done, queues) = tried("tc qdisc");
    assert!(done, "{queues}");
    let limited = queues.lines().filter_map(|line| line.strip_prefix("qdisc htb 7a00: dev ")?.split(' ').next());
    // Flows of fq_codel are classes, too, while they have something. A device may be gone by now.
    let shown: String = limited.map(|device| tried(&format!("tc class show dev {device}")).1).collect();
    let classes = shown.lines().filter(|line| line.starts_with("class htb ")).count();
    let state = state::State::now();
    [
        ("queues", queues.lines().count()),
        ("classes", classes),
        ("filters", state.filters("")),
        ("attached programs", state.programs),
        ("pins", state::pins().len()),
    ]
    .into()
}

/// Programs that are attached by TCX, at all interfaces of the namespace, and paths of pins.
pub fn pinned() -> (usize, usize) {
    (state::State::now().programs, state::pins().len())
}

/// By the queues alone: of interfaces that come and go meanwhile nothing more can be asked.
pub fn limits() -> bool {
    let output = Command::new("tc").arg("qdisc").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().contains("htb 7a00: dev u0")
}

/// What the guard answers at its socket.
pub fn asked(host: &TestHost, path: &str) -> String {
    let mut socket = UnixStream::connect(host.dir.path().join("state/run/guard.sock")).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

/// A metric of what this member sends.
pub fn metric(host: &TestHost, name: &str, member: &str) -> Option<f64> {
    let all = asked(host, "/metrics");
    let labels = ["direction=\"guest_tx\"".to_owned(), format!("member=\"{member}\"")];
    let mut lines = all.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let line = lines.find(|line| labels.iter().all(|label| line.contains(label)))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// promtool, which `scripts/test-images` gets where it is not installed.
pub fn promtool() -> Command {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("promtool/usr/bin/promtool");
    let all = [PathBuf::from("/usr/bin/promtool"), unpacked];
    Command::new(all.into_iter().find(|path| path.exists()).expect("no promtool: scripts/test-images gets one"))
}

/// A process that has a tap as QEMU has one, under QEMU's name, and floods it (`crates/guard/examples/tap_guest`).
pub fn qemu(name: &str, uuid: &str, tap: &str, mac: &str) -> Companion {
    let mut command = Command::new(built("tap_guest"));
    command.arg0("qemu-system-x86_64").args(["-name", name, "-uuid", uuid, "-nodefaults"]);
    command.args(["-netdev", &format!("tap,id=n0,ifname={tap}")]);
    command.args(["-device", &format!("virtio-net-pci,netdev=n0,mac={mac}")]);
    command.env("GUEST_ADDRESS", "10.9.0.3").env("TO_ADDRESS", "10.9.0.2").env("TO_MAC", "02:00:00:00:00:99");
    Companion::start(command.env("MBIT", "8"))
}
