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

use crate::help::bed::{self, Companion};
pub use crate::help::guarded::{Bed, POLICY, host, limits};
use crate::help::guarded::{ip, pinned};
use crate::help::schema::fits;

#[test]
#[ignore = "root"]
fn a_policy_is_in_force_changed_and_taken_off() {
    Bed::with_bpffs(|bed| {
        let before = host();
        let (none, kernels) = pinned();
        assert_eq!(none, 0);
        let (_, err) = bed.ends(&["guard", "status"], 3);
        assert!(err.contains("no guard runs here") && err.contains("vmio guard run"), "{err}");
        let (out, _) = bed.ends(&["guard", "run", "--dry-run", "--config", bed.policy().to_str().unwrap()], 0);
        assert!(out.contains("t1: class gold, 40 Mbit/s guaranteed") && host() == before, "{out}");

        let daemon = bed.run();
        assert!(limits());
        // At the guest's interface and at both hooks of the uplink; where the kernel has no TCX, none.
        let (programs, pins) = pinned();
        let pins = pins - kernels;
        assert!(programs == 0 || (programs == 3 && pins > programs), "{programs} programs, {pins} pins");
        let named =
            |all: &[(&str, u64)]| -> Vec<(String, u64)> { all.iter().map(|(n, m)| ((*n).into(), *m)).collect() };
        assert_eq!(bed.members(), named(&[("host", 2), ("t1", 40), ("default", 0)]));
        // Another one is refused, and the first goes on.
        let (_, err) = bed.ends(&["guard", "run", "--config", bed.policy().to_str().unwrap()], 3);
        assert!(err.contains("in use by process") && err.contains("vmio guard undo"), "{err}");
        // A look that is under way may find it before it is told.
        poll_until("a guest that was told is limited, and after what time", || {
            bed.plug("t2");
            poll_until("t2 is limited", || bed.members().iter().any(|(name, _)| name == "t2"));
            let appeared = bed.status()["appeared"]["p99_seconds"].as_f64();
            ip("link del t2");
            poll_until("t2 is gone", || bed.members().len() == 3);
            appeared.is_some_and(|seconds| seconds > 0.0)
        });

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
        poll_until("it is taken back", || bed.members()[1].1 == 30);
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

/// A run of the bed's that is killed while a container of its works; where its journal lies.
fn killed_run(bed: &Bed) -> PathBuf {
    let whole = fs::read_to_string(bed::fixture("container.toml")).unwrap();
    let (head, cell) = (whole.split("[[").next().unwrap(), whole.split("[[cell]]").nth(1).unwrap());
    // Without a disk, and for longer than this takes.
    let head = head.replace("[size]\ntarget_mib = 512\n", "").replace("max_gib_written = 50.0\n", "");
    let study = bed.dir.path().join("killed.toml");
    fs::write(&study, format!("{head}[[cell]]{}", cell.replace("seconds = 1.0", "seconds = 60.0"))).unwrap();
    let (state, place) = (bed.dir.path().join("state"), study.to_str().unwrap());
    let mut command = bed.command(&["study", "run", place, "--yes", "--no-gentle"]);
    let run = Companion::start(command.stderr(Stdio::null()));
    poll_until("its container is there", || fs::exists(state.join("run/container-0")).unwrap());
    // SIGKILL.
    drop(run);
    let journals = state.join("journals");
    // What worked for it goes a moment after it.
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
    Bed::with_bpffs(|bed| {
        let before = host();
        let daemon = bed.run();
        bed.ends(&["guard", "set", "class", "gold", "--min", "25Mbit"], 0);
        let limited = host();
        assert!(limited != before && limits());
        assert_eq!(daemon.end(Some(Signal::KILL)).0, None);
        assert_eq!(host(), limited);
        // In the same state directory a run is killed in its middle, and the next one cleans up after it.
        let journals = killed_run(bed);
        assert_eq!(host(), limited);
        let containers = ["tax", "--quick", "--guests", "container", "--only", "cpu"];
        let (_, said) = bed.ends(&[&containers[..], &["--yes", "--no-gentle", "--minutes", "0.5"]].concat(), 0);
        assert!(said.contains("cleaned up after a killed run: control group"), "{said}");
        assert_eq!(vmio_node::leftovers(&journals), [""; 0]);
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
    Bed::with_bpffs(|bed| {
        let daemon = bed.run();
        net::run(&["tc qdisc del dev u0 root"]);
        assert!(!limits());
        poll_until("it is put back", limits);
        poll_until("it is counted", || bed.status()["loop"]["put_right_total"].as_u64().unwrap() > 0);
        // An uplink that goes down, and one that comes again under its name.
        ip("link set u0 down");
        ip("link set u0 up");
        assert_eq!(bed.members().len(), 3);
        ip("link del u0");
        poll_until("it is told", || bed.status()["trouble"].is_string());
        ip("link add u0 type veth peer name u1");
        ip("link set u0 master br0 up");
        poll_until("it is limited again", || limits() && bed.status()["trouble"].is_null());
        bed.ends(&["guard", "undo"], 0);
        assert!(!limits(), "{}", host());
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

/// Whichever directory its ledger lies in: two would put right what the other one does.
#[test]
#[ignore = "root"]
fn a_second_guard_is_refused_whatever_its_directory() {
    Bed::with(|bed| {
        let daemon = bed.run();
        let before = host();
        let other = bed.dir.path().join("other");
        let ends = |args: &[&str]| {
            let output = bed.command(args).env("VMIO_STATE", &other).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
            let line = bed::unfolded(&said);
            assert!(line.contains("in this network namespace") && line.contains("--state"), "{said}");
        };
        let policy = bed.policy();
        ends(&["guard", "run", "--config", policy.to_str().unwrap()]);
        ends(&["guard", "undo"]);
        ends(&["guard", "status"]);
        assert_eq!(host(), before);
        // Nobody is kept from looking.
        let observe = ["guard", "run", "--observe", "--uplink", "u0", "--for", "1s"];
        assert!(bed.command(&observe).env("VMIO_STATE", &other).output().unwrap().status.success());
        // Of an apply that guarantees nothing it is said.
        bed.write("");
        assert!(bed.ends(&["guard", "apply"], 0).1.contains("warning"));
        bed.ends(&["guard", "undo"], 0);
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
        net::run(&[&format!("mount -t tmpfs -o size=16k,mode=700 none {}", state.display())]);
        fs::create_dir(state.join("guard")).unwrap();
        fs::create_dir(state.join("run")).unwrap();
        (0..8).for_each(|n| drop(fs::write(state.join(format!("fill{n}")), [0; 4096])));
        let before = host();
        let policy = bed.policy();
        let (_, err) = bed.ends(&["guard", "run", "--config", policy.to_str().unwrap()], 3);
        assert!(err.contains("No space left"), "{err}");
        assert_eq!(host(), before);
        net::run(&[&format!("umount {}", state.display())]);
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
        net::run(&[&format!("mount -t tmpfs -o size=64k,mode=700 none {}", state.display())]);
        // Another's queue and a clsact qdisc of ours are in the ledger, too.
        net::run(&["tc qdisc add dev u0 root handle 11: bfifo limit 9000"]);
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
                poll_until("it is told", || bed.status().to_string().contains("No space left"));
                ip("link del t2");
                poll_until("it is well again", || bed.status()["trouble"].is_null());
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
    Bed::with(|bed| {
        for line in ["addr add 10.9.0.1/24 dev p-t1", "link set p-t1 up"] {
            ip(line);
        }
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev p-t1 nud permanent");
        bed.write(&POLICY.replace("min = \"40Mbit\"", "min = \"1Mbit\"\nmax = \"2Mbit\""));
        poll_until("the bridge has settled", || {
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
        poll_until("it is told that t1 would be held", || {
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
