//! The guard's daemon as a user meets it: in force on a bridge with an uplink, asked, changed, killed, run again, undone. Each
//! test in a network namespace of its own, which goes with the thread that made it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use vmio_testbed::{net, poll_until};

pub use crate::help::guarded::{POLICY, TestHost, limits, network_state};
use crate::help::guarded::{ip, pinned};
use crate::help::schema::fits;
use crate::help::state_dir::{self, Companion};

#[test]
#[ignore = "root"]
fn a_policy_is_in_force_changed_and_taken_off() {
    TestHost::with_bpffs(|host| {
        let before = network_state();
        let (none, kernels) = pinned();
        assert_eq!(none, 0);
        let (_, err) = host.ends(&["guard", "status"], 3);
        assert!(err.contains("no guard is running") && err.contains("vmio guard run"), "{err}");
        let (out, _) = host.ends(&["guard", "run", "--dry-run", "--config", host.policy().to_str().unwrap()], 0);
        assert!(out.contains("t1: class gold, 40 Mbit/s guaranteed") && network_state() == before, "{out}");
        // A limit that somebody has put at an interface of nobody's guest, with what removes it.
        let policy = host.policy();
        let check = ["guard", "check", "--host", "--config", policy.to_str().unwrap()];
        net::run(&["tc qdisc add dev t1 root tbf rate 5mbit burst 10k latency 50ms"]);
        let (out, _) = host.ends(&check, 0);
        assert!(out.contains("limits what it receives to 5 Mbit/s") && out.contains("dev t1"), "{out}");
        net::run(&["tc qdisc del dev t1 root"]);
        let (out, _) = host.ends(&check, 0);
        assert!(!out.contains("limit: t1"), "{out}");

        let daemon = host.run();
        assert!(limits());
        // At the guest's interface and at both hooks of the uplink; where the kernel has no TCX, none.
        let (programs, pins) = pinned();
        let pins = pins - kernels;
        assert!(programs == 0 || (programs == 3 && pins > programs), "{programs} programs, {pins} pins");
        let named =
            |all: &[(&str, u64)]| -> Vec<(String, u64)> { all.iter().map(|(n, m)| ((*n).into(), *m)).collect() };
        assert_eq!(host.members(), named(&[("host", 2), ("t1", 40), ("default", 0)]));
        // Another one is refused, and the first goes on.
        let (_, err) = host.ends(&["guard", "run", "--config", host.policy().to_str().unwrap()], 3);
        assert!(err.contains("in use by process") && err.contains("vmio guard undo"), "{err}");
        // A look that is under way may find it before it is told.
        poll_until("a guest that was told is limited, and after what time", || {
            host.plug("t2");
            poll_until("t2 is limited", || host.members().iter().any(|(name, _)| name == "t2"));
            let appeared = host.status()["appeared"]["p99_seconds"].as_f64();
            ip("link del t2");
            poll_until("t2 is gone", || host.members().len() == 3);
            appeared.is_some_and(|seconds| seconds > 0.0)
        });

        // Whole or not at all.
        host.write(&POLICY.replace("40Mbit", "forty"));
        let (_, err) = host.ends(&["guard", "apply"], 2);
        assert!(err.contains("guard.toml:4") && err.contains("nothing was changed"), "{err}");
        assert!(host.status()["policy"]["refused"].is_string());
        host.write(&POLICY.replace("40Mbit", "30Mbit"));
        host.ends(&["guard", "apply"], 0);
        assert_eq!(host.members()[1].1, 30);
        let (_, err) = host.ends(&["guard", "set", "class", "gold", "--min", "20Mbit", "--confirm", "1s"], 0);
        assert!(err.contains("vmio guard confirm"), "{err}");
        poll_until("it is taken back", || host.members()[1].1 == 30);
        host.ends(&["guard", "set", "class", "gold", "--min", "10Mbit", "--confirm", "60s"], 0);
        host.ends(&["guard", "confirm"], 0);
        host.ends(&["guard", "confirm"], 2);
        let state = host.dir.path().join("state");
        let meant = format!("did you mean: vmio guard set --state {} class gold --min 10Mbit", state.display());
        for (args, said) in [
            (&["class", "gald", "--min", "10Mbit"][..], "guard set class gald: no file has such a class"),
            (&["class", "gold", "--min", "10Mbps"], "guard set class gold --min: `bps` means bytes in some tools"),
            (&["gold", "min=10Mbit"], meant.as_str()),
        ] {
            let (_, err) = host.ends(&[&["guard", "set"][..], args].concat(), 2);
            assert!(state_dir::unfolded(&err).contains(said), "{said}: {err}");
        }
        let (out, _) = host.ends(&["guard", "set", "class", "gold", "--min", "12Mbit", "--json"], 0);
        fits("guard-set", &out);
        let changed: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((changed["class"].as_str(), changed["set"][0]["value"].as_str()), (Some("gold"), Some("12Mbit")));
        assert_eq!((changed["cleared"].as_bool(), host.members()[1].1), (Some(false), 12));
        let (out, _) = host.ends(&["guard", "status"], 0);
        assert!(out.contains("set over the files") && out.lines().all(|l| l.chars().count() <= 80), "{out}");

        host.ends(&["guard", "undo"], 0);
        let (code, said) = daemon.end(None);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("the limits are off"), "{said}");
        assert_eq!(network_state(), before);
    });
}

/// A run of the host's that is killed while a container of its works; where its journal lies.
fn killed_run(host: &TestHost) -> PathBuf {
    let whole = fs::read_to_string(state_dir::fixture("container.toml")).unwrap();
    let (head, cell) = (whole.split("[[").next().unwrap(), whole.split("[[cell]]").nth(1).unwrap());
    // Without a disk, and for longer than this takes.
    let head = head.replace("[size]\ntarget_mib = 512\n", "").replace("max_gib_written = 50.0\n", "");
    let study = host.dir.path().join("killed.toml");
    fs::write(&study, format!("{head}[[cell]]{}", cell.replace("seconds = 1.0", "seconds = 60.0"))).unwrap();
    let (state, place) = (host.dir.path().join("state"), study.to_str().unwrap());
    let mut command = host.command(&["study", "run", place, "--yes", "--no-gentle"]);
    let run = Companion::start(command.stderr(Stdio::null()));
    poll_until("its container is there", || fs::exists(state.join("run/container-0")).unwrap());
    // SIGKILL.
    drop(run);
    let journals = state.join("journals");
    // Its helpers end a moment later.
    poll_until("its owner is dead", || {
        vmio_node::leftovers(&journals).iter().any(|left| left.contains("of a dead owner"))
    });
    let journal = fs::read_dir(&journals).unwrap().map(|e| fs::read_to_string(e.unwrap().path()).unwrap());
    assert!(journal.collect::<String>().contains("cgroup"), "it has made a control group");
    journals
}

#[test]
#[ignore = "root"]
fn limits_outlive_a_daemon_that_is_killed_and_what_cleans_up_after_runs() {
    TestHost::with_bpffs(|host| {
        let before = network_state();
        let daemon = host.run();
        host.ends(&["guard", "set", "class", "gold", "--min", "25Mbit"], 0);
        let limited = network_state();
        assert!(limited != before && limits());
        assert_eq!(daemon.end(Some(Signal::KILL)).0, None);
        assert_eq!(network_state(), limited);
        // In the same state directory a run is killed in its middle, and the next one cleans up after it.
        let journals = killed_run(host);
        assert_eq!(network_state(), limited);
        let containers = ["tax", "--quick", "--guests", "container", "--only", "cpu"];
        // In so little time no share has its pairs.
        let (_, said) = host.ends(&[&containers[..], &["--yes", "--no-gentle", "--minutes", "0.1"]].concat(), 4);
        assert!(said.contains("cleaned up after a killed run: control group"), "{said}");
        assert_eq!(vmio_node::leftovers(&journals), [""; 0]);
        assert_eq!(network_state(), limited);
        host.ends(&["guard", "status"], 3);

        let daemon = host.run();
        assert_eq!(host.members()[1], ("t1".to_owned(), 25), "what was set is in force");
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert!(code == Some(0) && said.contains("vmio guard undo"), "{said}");
        assert!(limits());
        host.ends(&["guard", "undo"], 0);
        assert_eq!(network_state(), before);
        // Doing it again finds nothing to do.
        host.ends(&["guard", "undo"], 0);
        assert_eq!(network_state(), before);
    });
}

#[test]
#[ignore = "root"]
fn a_queue_that_somebody_deletes_is_put_back() {
    TestHost::with_bpffs(|host| {
        let daemon = host.run();
        net::run(&["tc qdisc del dev u0 root"]);
        assert!(!limits());
        poll_until("it is put back", limits);
        poll_until("it is counted", || host.status()["loop"]["corrected_changes_total"].as_u64().unwrap() > 0);
        // However many queues, classes and filters that were.
        assert_eq!(host.status()["pools"][0]["interruptions_total"], 1);
        // An uplink that goes down, and one that comes again under its name.
        ip("link set u0 down");
        ip("link set u0 up");
        assert_eq!(host.members().len(), 3);
        ip("link del u0");
        let not_in_force = || host.status()["pools"][0]["not_in_force"].clone();
        poll_until("it is told", || not_in_force().is_string());
        ip("link add u0 type veth peer name u1");
        ip("link set u0 master br0 up");
        poll_until("it is limited again", || limits() && not_in_force().is_null());
        assert!(host.status()["trouble"].is_null(), "{}", host.status());
        host.ends(&["guard", "undo"], 0);
        assert!(!limits(), "{}", network_state());
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

/// Whichever directory its ledger lies in: two would put right what the other one does.
#[test]
#[ignore = "root"]
fn a_second_guard_is_refused_whatever_its_directory() {
    TestHost::with(|host| {
        let daemon = host.run();
        let before = network_state();
        let other = host.dir.path().join("other");
        let ends = |args: &[&str]| {
            let output = host.command(args).env("VMIO_STATE", &other).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
            let line = state_dir::unfolded(&said);
            assert!(line.contains("in this network namespace") && line.contains("--state"), "{said}");
        };
        let policy = host.policy();
        ends(&["guard", "run", "--config", policy.to_str().unwrap()]);
        ends(&["guard", "undo"]);
        ends(&["guard", "status"]);
        assert_eq!(network_state(), before);
        // One that only observes may run beside it.
        let observe = ["guard", "run", "--observe", "--uplink", "u0", "--for", "1s"];
        assert!(host.command(&observe).env("VMIO_STATE", &other).output().unwrap().status.success());
        // Of an apply that guarantees nothing it is said.
        host.write("");
        assert!(host.ends(&["guard", "apply"], 0).1.contains("warning"));
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

#[test]
#[ignore = "root"]
fn without_room_for_the_ledger_nothing_is_changed() {
    TestHost::with(|host| {
        // No room for what a guard writes before it changes anything.
        let state = host.dir.path().join("state");
        fs::create_dir(&state).unwrap();
        net::run(&[&format!("mount -t tmpfs -o size=16k,mode=700 none {}", state.display())]);
        fs::create_dir(state.join("guard")).unwrap();
        fs::create_dir(state.join("run")).unwrap();
        (0..8).for_each(|n| drop(fs::write(state.join(format!("fill{n}")), [0; 4096])));
        let before = network_state();
        let policy = host.policy();
        let (_, err) = host.ends(&["guard", "run", "--config", policy.to_str().unwrap()], 3);
        assert!(state_dir::unfolded(&err).contains("No space left"), "{err}");
        assert_eq!(network_state(), before);
        net::run(&[&format!("umount {}", state.display())]);
    });
}

/// A guard was killed, and nothing can be written any more: another one takes over what is in force, and undo takes all off,
/// with a daemon and without one.
#[test]
#[ignore = "root"]
fn on_a_full_disk_limits_are_taken_over_and_taken_off() {
    TestHost::with(|host| {
        let state = host.dir.path().join("state");
        fs::create_dir(&state).unwrap();
        net::run(&[&format!("mount -t tmpfs -o size=64k,mode=700 none {}", state.display())]);
        // Another's queue and a clsact qdisc of ours are in the ledger, too.
        net::run(&["tc qdisc add dev u0 root handle 11: bfifo limit 9000"]);
        let before = network_state();
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
            let daemon = host.run_with(&["--takeover"]);
            // The next one's programs take the place of these, under other numbers.
            let queues =
                || network_state().lines().filter(|line| !line.contains(" direct-action ")).collect::<String>();
            let limited = queues();
            assert!(limits());
            assert_eq!(daemon.end(Some(Signal::KILL)).0, None);
            full();
            let daemon = has_daemon.then(|| host.run_with(&["--takeover"]));
            assert_eq!(queues(), limited);
            if has_daemon {
                // What would have to be written down first is refused, and what is in force stays.
                host.plug("t2");
                poll_until("it is told", || host.status().to_string().contains("No space left"));
                ip("link del t2");
                poll_until("it is well again", || host.status()["trouble"].is_null());
            }
            host.ends(&["guard", "undo"], 0);
            if let Some(daemon) = daemon {
                assert_eq!(daemon.end(None).0, Some(0));
            }
            assert_eq!(network_state(), before);
            // An entry that was crossed out in place is not undone again.
            let text = fs::read_to_string(&ledger).unwrap();
            assert!(text.contains("{\"no\":") && !text.contains("{\"do\":"), "{text}");
            assert_eq!(host.kept(), [""; 0]);
            host.ends(&["guard", "undo"], 0);
            assert_eq!(network_state(), before);
            for name in ["fill", "more"] {
                fs::remove_file(state.join(name)).unwrap();
            }
        }
        net::run(&[&format!("umount {}", state.display())]);
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
    TestHost::with(|host| {
        for line in ["addr add 10.9.0.1/24 dev p-t1", "link set p-t1 up"] {
            ip(line);
        }
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev p-t1 nud permanent");
        host.write(&POLICY.replace("min = \"40Mbit\"", "min = \"1Mbit\"\nmax = \"2Mbit\""));
        poll_until("the bridge has settled", || {
            let before = network_state();
            thread::sleep(Duration::from_millis(500));
            before == network_state()
        });
        let before = network_state();
        let monitors = Monitors::start();
        let daemon = host.run_with(&["--observe", "--json"]);
        // More than t1's class has at most, as a guest sends it.
        let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
        let held = |status: &Value| {
            let members = status["observed"]["pools"][0]["members"].as_array().unwrap().clone();
            members.iter().find(|m| m["name"] == "t1").map_or(0, |m| m["above_max_seconds"].as_u64().unwrap())
        };
        poll_until("it is told that t1 would be held", || {
            for _ in 0..100 {
                socket.send_to(&[0; 1400], "10.9.0.2:9").unwrap();
            }
            let status = host.status();
            assert_eq!(status["plane"], "observe");
            // From less no policy is proposed.
            let seconds = status["observed"]["seconds"].as_u64().unwrap();
            status["observed"]["pools"][0].is_object() && held(&status) > 0 && seconds >= 10
        });
        assert_eq!(network_state(), before);
        let (out, _) = host.ends(&["guard", "status"], 0);
        assert!(out.contains("would have been limited to its maximum"), "{out}");
        assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
        let (code, out, said) = daemon.end_with(Some(Signal::INT));
        assert!(code == Some(0) && said.contains("nothing was changed"), "{said}");
        assert_eq!(network_state(), before);
        assert_eq!(monitors.end(), "");
        fits("guard-status", &out);
        let status: Value = serde_json::from_str(&out).unwrap();
        let proposal = status["observed"]["proposal"].as_str().unwrap();
        assert!(proposal.contains("match = { name = \"t1\" }\nclass = \"seen-"), "{proposal}");
        host.write(proposal);
        host.ends(&["guard", "check", "--config", host.policy().to_str().unwrap()], 0);

        // Without a policy, for a time; a guard that enforces is not run beside it.
        let (out, said) = host.ends(&["guard", "run", "--observe", "--uplink", "u0", "--for", "2s"], 0);
        assert!(said.contains("observing; no limits are set: 3 interfaces of 1 uplink"), "{said}");
        assert!(out.contains("Observed for 2 seconds") && out.contains("No policy is proposed: "), "{out}");
        assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
        let (_, said) = host.ends(&["guard", "run", "--observe", "--uplink", "u7"], 2);
        assert!(said.contains("no such interface: u7"), "{said}");
        assert_eq!(network_state(), before);
    });
}
