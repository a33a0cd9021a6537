//! The guard's daemon as a user meets it: in force on a bridge with an uplink, asked, changed, killed, run again, undone. Each
//! test in a network namespace of its own, which goes with the thread that made it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::Value;

use crate::help::schema::fits;

pub const POLICY: &str = r#"[uplink.u0]
capacity = "100Mbit"
[class.gold]
min = "40Mbit"
[[interface]]
match = { name = "t*" }
class = "gold"
rx_class = "gold"
"#;

pub struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    /// Runs this with a bed, in a network namespace of its own.
    pub fn with(work: impl FnOnce(&Bed) + Send) {
        let run = || {
            // SAFETY: a network namespace alone: no memory, descriptors or file system is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            let bed = Bed { dir: tempfile::tempdir().unwrap() };
            ip("link add br0 type bridge");
            ip("link add u0 type veth peer name u1");
            for link in ["br0", "u0", "u1"] {
                ip(&format!("link set {link} up"));
            }
            ip("link set u0 master br0");
            bed.write(POLICY);
            bed.plug("t1");
            // The kernel tells that a link is up some time after it is.
            let up = |link: &str| {
                let output = Command::new("ip").args(["-o", "link", "show", "dev", link]).output().unwrap();
                String::from_utf8_lossy(&output.stdout).contains("state UP")
            };
            until("its links are up", || ["u0", "u1", "br0"].iter().all(|link| up(link)));
            work(&bed);
        };
        if let Err(panic) = thread::scope(|s| s.spawn(run).join()) {
            std::panic::resume_unwind(panic);
        }
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

    fn plug(&self, name: &str) {
        ip(&format!("link add {name} type veth peer name p-{name}"));
        ip(&format!("link set {name} master br0 up"));
    }

    fn policy(&self) -> PathBuf {
        self.dir.path().join("guard.toml")
    }

    pub fn write(&self, text: &str) {
        fs::write(self.policy(), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.env("VMIO_STATE", self.dir.path().join("state")).args(args);
        command
    }

    pub fn vmio(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn ends(&self, args: &[&str], code: i32) -> (String, String) {
        let output = self.vmio(args);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {out}\n{err}");
        (out, err)
    }

    fn status(&self) -> Value {
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

    fn run_with(&self, args: &[&str]) -> Daemon {
        let mut daemon = self.start(args);
        let answers = || self.vmio(&["guard", "status"]).status.success();
        until("the daemon answers or has ended", || answers() || daemon.has_ended());
        if daemon.has_ended() {
            panic!("it ended by itself: {:?}", daemon.end(None));
        }
        daemon
    }

    /// Does not wait for it.
    pub fn start(&self, args: &[&str]) -> Daemon {
        let policy = self.policy();
        let mut command = self.command(&["guard", "run", "--config", policy.to_str().unwrap()]);
        let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Daemon(Some(command.spawn().unwrap()))
    }
}

/// Ended with the test, whatever becomes of that.
pub struct Daemon(Option<Child>);

impl Daemon {
    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some())
    }

    /// Its exit code, and what it said.
    pub fn end(self, signal: Option<Signal>) -> (Option<i32>, String) {
        let (code, _, said) = self.end_with(signal);
        (code, said)
    }

    /// And what it printed before.
    fn end_with(mut self, signal: Option<Signal>) -> (Option<i32>, String, String) {
        let child = self.0.take().unwrap();
        if let Some(signal) = signal {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// All queues, filters and interfaces of the namespace, counters apart.
pub fn host() -> String {
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
    all
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        thread::sleep(Duration::from_millis(50));
    }
}

/// By the queues alone: of interfaces that come and go meanwhile nothing more can be asked.
pub fn limits() -> bool {
    let output = Command::new("tc").arg("qdisc").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().contains("htb 7a00: dev u0")
}

#[test]
#[ignore = "root"]
fn a_policy_is_in_force_changed_and_taken_off() {
    Bed::with(|bed| {
        let before = host();
        let (_, err) = bed.ends(&["guard", "status"], 3);
        assert!(err.contains("no guard runs here") && err.contains("vmio guard run"), "{err}");
        let (out, _) = bed.ends(&["guard", "run", "--dry-run", "--config", bed.policy().to_str().unwrap()], 0);
        assert!(out.contains("t1: class gold, 40 Mbit/s guaranteed") && host() == before, "{out}");

        let daemon = bed.run();
        assert!(limits());
        let named =
            |all: &[(&str, u64)]| -> Vec<(String, u64)> { all.iter().map(|(n, m)| ((*n).into(), *m)).collect() };
        assert_eq!(bed.members(), named(&[("host", 2), ("t1", 40), ("default", 0)]));
        // Another one is refused, and the first goes on.
        let (_, err) = bed.ends(&["guard", "run", "--config", bed.policy().to_str().unwrap()], 3);
        assert!(err.contains("in use by process") && err.contains("vmio guard undo"), "{err}");
        bed.plug("t2");
        until("t2 is limited", || bed.members().iter().any(|(name, _)| name == "t2"));
        assert!(bed.status()["appeared"]["p99_seconds"].as_f64().unwrap() > 0.0);
        ip("link del t2");
        until("t2 is gone", || bed.members().len() == 3);

        // Whole or not at all.
        bed.write(&POLICY.replace("40Mbit", "forty"));
        let (_, err) = bed.ends(&["guard", "apply"], 2);
        assert!(err.contains("guard.toml:4") && err.contains("nothing was changed"), "{err}");
        assert!(bed.status()["policy"]["refused"].is_string());
        bed.write(&POLICY.replace("40Mbit", "30Mbit"));
        bed.ends(&["guard", "apply"], 0);
        assert_eq!(bed.members()[1].1, 30);
        let (_, err) = bed.ends(&["guard", "set", "class", "gold", "--min", "20Mbit", "--confirm", "1s"], 0);
        assert!(err.contains("vmio guard confirm"), "{err}");
        until("it is taken back", || bed.members()[1].1 == 30);
        bed.ends(&["guard", "set", "class", "gold", "--min", "10Mbit", "--confirm", "60s"], 0);
        bed.ends(&["guard", "confirm"], 0);
        bed.ends(&["guard", "confirm"], 2);
        bed.ends(&["guard", "set", "class", "gald", "--min", "10Mbit"], 2);
        let (out, _) = bed.ends(&["guard", "status"], 0);
        assert!(out.contains("set over the files") && out.lines().all(|l| l.chars().count() <= 80), "{out}");

        bed.ends(&["guard", "undo"], 0);
        let (code, said) = daemon.end(None);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("the limits are off"), "{said}");
        assert_eq!(host(), before);
    });
}

#[test]
#[ignore = "root"]
fn limits_outlive_a_daemon_that_is_killed_and_what_cleans_up_after_runs() {
    Bed::with(|bed| {
        let before = host();
        let daemon = bed.run();
        bed.ends(&["guard", "set", "class", "gold", "--min", "25Mbit"], 0);
        let limited = host();
        assert_eq!(daemon.end(Some(Signal::KILL)).0, None);
        // Every start of a run looks for what killed ones left.
        let left = vmio_node::recover(&bed.dir.path().join("state/journals"));
        assert!(left.failed.is_empty(), "{left:?}");
        assert_eq!(host(), limited);
        bed.ends(&["guard", "status"], 3);

        let daemon = bed.run();
        assert_eq!(bed.members()[1], ("t1".to_owned(), 25), "what was set is in force");
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert!(code == Some(0) && said.contains("vmio guard undo"), "{said}");
        assert!(limits());
        bed.ends(&["guard", "undo"], 0);
        assert_eq!(host(), before);
        // Doing it again finds nothing to do.
        bed.ends(&["guard", "undo"], 0);
        assert_eq!(host(), before);
    });
}

#[test]
#[ignore = "root"]
fn a_queue_that_somebody_deletes_is_put_back() {
    Bed::with(|bed| {
        let daemon = bed.run();
        let output = Command::new("tc").args(["qdisc", "del", "dev", "u0", "root"]).output().unwrap();
        assert!(output.status.success());
        assert!(!limits());
        // Within a second is promised; a busy machine may take as long again to run the daemon and this test.
        let end = Instant::now() + Duration::from_secs(2);
        until("it is put back", limits);
        assert!(Instant::now() < end, "put back too late");
        until("it is counted", || bed.status()["loop"]["put_right_total"].as_u64().unwrap() > 0);
        // An uplink that goes down, and one that comes again under its name.
        ip("link set u0 down");
        ip("link set u0 up");
        assert_eq!(bed.members().len(), 3);
        ip("link del u0");
        until("it is told", || bed.status()["trouble"].is_string());
        ip("link add u0 type veth peer name u1");
        ip("link set u0 master br0 up");
        until("it is limited again", || limits() && bed.status()["trouble"].is_null());
        bed.ends(&["guard", "undo"], 0);
        assert!(!limits(), "{}", host());
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

#[test]
#[ignore = "root"]
fn without_room_for_the_ledger_nothing_is_changed() {
    Bed::with(|bed| {
        // What a guard writes before its changes finds no room.
        let state = bed.dir.path().join("state");
        fs::create_dir(&state).unwrap();
        let mount = |args: &[&str]| assert!(Command::new("mount").args(args).status().unwrap().success());
        mount(&["-t", "tmpfs", "-o", "size=16k,mode=700", "none", state.to_str().unwrap()]);
        fs::create_dir(state.join("guard")).unwrap();
        fs::create_dir(state.join("run")).unwrap();
        (0..8).for_each(|n| drop(fs::write(state.join(format!("fill{n}")), [0; 4096])));
        let before = host();
        let policy = bed.policy();
        let (_, err) = bed.ends(&["guard", "run", "--config", policy.to_str().unwrap()], 3);
        assert!(err.contains("No space left"), "{err}");
        assert_eq!(host(), before);
        assert!(Command::new("umount").arg(&state).status().unwrap().success());
    });
}

/// A guard was killed, and nothing can be written any more: another one takes over what is in force, and undo takes all off,
/// with a daemon and without one.
#[test]
#[ignore = "root"]
fn on_a_full_disk_limits_are_taken_over_and_taken_off() {
    Bed::with(|bed| {
        let state = bed.dir.path().join("state");
        fs::create_dir(&state).unwrap();
        let mount = |args: &[&str]| assert!(Command::new("mount").args(args).status().unwrap().success());
        mount(&["-t", "tmpfs", "-o", "size=64k,mode=700", "none", state.to_str().unwrap()]);
        // Another's queue and a clsact qdisc of ours are in the ledger, too.
        let tc = Command::new("tc").args("qdisc add dev u0 root handle 11: bfifo limit 9000".split(' ')).status();
        assert!(tc.unwrap().success());
        let before = host();
        let ledger = state.join("guard/guard.ledger");
        let full = || {
            // Nothing more fits into the ledger's last page: a line that speaks of nothing, and is as long.
            let text = fs::read_to_string(&ledger).unwrap();
            let line = "{\"undone\":99999}";
            let pad = (text.len() + line.len() + 1).next_multiple_of(4096) - text.len() - 1;
            fs::write(&ledger, format!("{text}{line:pad$}\n")).unwrap();
            let mut fill = fs::File::create(state.join("fill")).unwrap();
            while std::io::Write::write(&mut fill, &[0; 512]).is_ok() {}
            assert!(fs::write(state.join("more"), [0; 4096]).is_err());
        };
        for has_daemon in [false, true] {
            let daemon = bed.run_with(&["--takeover"]);
            // The next one's programs take the place of these, under other numbers.
            let queues = || host().lines().filter(|line| !line.contains(" direct-action ")).collect::<String>();
            let limited = queues();
            assert!(limits());
            assert_eq!(daemon.end(Some(Signal::KILL)).0, None);
            full();
            let daemon = has_daemon.then(|| bed.run_with(&["--takeover"]));
            assert_eq!(queues(), limited);
            if has_daemon {
                // What would have to be written down first is refused, and what is in force stays.
                bed.plug("t2");
                until("it is told", || bed.status().to_string().contains("No space left"));
                ip("link del t2");
                until("it is well again", || bed.status()["trouble"].is_null());
            }
            bed.ends(&["guard", "undo"], 0);
            if let Some(daemon) = daemon {
                assert_eq!(daemon.end(None).0, Some(0));
            }
            assert_eq!(host(), before);
            // What is struck out in its place is not done again.
            let text = fs::read_to_string(&ledger).unwrap();
            assert!(text.contains("{\"no\":") && !text.contains("{\"do\":"), "{text}");
            assert_eq!(bed.kept(), [""; 0]);
            bed.ends(&["guard", "undo"], 0);
            assert_eq!(host(), before);
            for name in ["fill", "more"] {
                fs::remove_file(state.join(name)).unwrap();
            }
        }
        assert!(Command::new("umount").arg(&state).status().unwrap().success());
    });
}

/// What the kernel tells of changes in this namespace while it runs.
struct Monitors([Child; 2]);

impl Monitors {
    fn start() -> Monitors {
        let start = |program: &str, args: &[&str]| {
            Command::new(program).args(args).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
        };
        // Neighbours and addresses change by themselves; links only tell of changes, not of counters.
        Monitors([start("tc", &["monitor"]), start("ip", &["monitor", "link", "netconf"])])
    }

    fn end(self) -> String {
        let ended = |mut child: Child| {
            child.kill().unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        };
        self.0.map(ended).concat()
    }
}

#[test]
#[ignore = "root"]
fn observing_changes_nothing_and_proposes_a_policy() {
    Bed::with(|bed| {
        for line in ["addr add 10.9.0.1/24 dev p-t1", "link set p-t1 up"] {
            ip(line);
        }
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev p-t1 nud permanent");
        bed.write(&POLICY.replace("min = \"40Mbit\"", "min = \"1Mbit\"\nmax = \"2Mbit\""));
        until("the bridge has settled", || {
            let before = host();
            thread::sleep(Duration::from_millis(500));
            before == host()
        });
        let before = host();
        let monitors = Monitors::start();
        let daemon = bed.run_with(&["--observe", "--json"]);
        // More than t1's class has at most, as a guest sends it.
        let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
        let held = |status: &Value| {
            let members = status["observed"]["pools"][0]["members"].as_array().unwrap().clone();
            members.iter().find(|m| m["name"] == "t1").map_or(0, |m| m["above_max_seconds"].as_u64().unwrap())
        };
        until("it is told that t1 would be held", || {
            for _ in 0..100 {
                socket.send_to(&[0; 1400], "10.9.0.2:9").unwrap();
            }
            let status = bed.status();
            assert_eq!(status["plane"], "observe");
            status["observed"]["pools"][0].is_object() && held(&status) > 0
        });
        assert_eq!(host(), before);
        let (out, _) = bed.ends(&["guard", "status"], 0);
        assert!(out.contains("would have been held at its maximum"), "{out}");
        assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
        let (code, out, said) = daemon.end_with(Some(Signal::INT));
        assert!(code == Some(0) && said.contains("nothing was changed"), "{said}");
        assert_eq!(host(), before);
        assert_eq!(monitors.end(), "");
        fits("guard-status", &out);
        let status: Value = serde_json::from_str(&out).unwrap();
        let proposal = status["observed"]["proposal"].as_str().unwrap();
        assert!(proposal.contains("match = { name = \"t1\" }\nclass = \"seen-"), "{proposal}");
        bed.write(proposal);
        bed.ends(&["guard", "check", "--config", bed.policy().to_str().unwrap()], 0);

        // Without a policy, for a time; a guard that enforces is not run beside it.
        let (out, said) = bed.ends(&["guard", "run", "--observe", "--uplink", "u0", "--for", "2500ms"], 0);
        assert!(said.contains("observed, with nothing in force: 3 interfaces of 1 uplink"), "{said}");
        assert!(out.contains("Proposed policy") && out.contains("[uplink.u0]"), "{out}");
        assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
        let (_, said) = bed.ends(&["guard", "run", "--observe", "--uplink", "u7"], 2);
        assert!(said.contains("there is no interface u7"), "{said}");
        assert_eq!(host(), before);
    });
}
