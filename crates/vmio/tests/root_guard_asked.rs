//! Who may ask a guard, and how: over TCP with a token, over the socket by its group; status that is shown anew, and a change of the
//! files that is taken back.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use vmio_testbed::{net, poll_until};

use crate::help::guarded::{POLICY, TestHost, ip, network_state, promtool};
use crate::help::state_dir::unfolded;

/// A user that no line of /etc/passwd need have.
const NOBODY: &str = "65534";

/// Status and body of a path that is asked for over TCP.
fn get(at: SocketAddr, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{token}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
#[ignore = "root"]
fn over_tcp_it_answers_who_has_the_token() {
    TestHost::with(|host| {
        ip("link set lo up");
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (file, token) = (host.dir.path().join("token"), "0123456789abcdef".repeat(2));
        let (listen, place) = (at.to_string(), file.to_str().unwrap().to_owned());
        let args = ["--listen", &listen, "--token-file", &place];
        let policy = host.policy();
        let refused = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let run = ["guard", "run", "--config", policy.to_str().unwrap()];
            host.ends(&[&run[..], &args].concat(), 2).1
        };
        let said = refused(&token, 0o644);
        assert!(said.contains("others may read the token") && said.contains(&format!("chmod 600 {place}")), "{said}");
        let said = refused(&token[1..], 0o600);
        assert!(said.contains("at least 32 characters"), "{said}");
        assert!(!crate::help::guarded::limits(), "nothing was changed");

        fs::write(&file, format!("{token}\n")).unwrap();
        let daemon = host.run_with(&args);
        for wrong in [None, Some("0123456789abcdef"), Some(&*"0123456789abcdeF".repeat(2))] {
            for path in ["/metrics", "/v1/status"] {
                let (code, body) = get(at, path, wrong);
                assert_eq!(code, 401, "{path} with {wrong:?}: {body}");
                assert!(!body.contains("gold"), "{body}");
            }
        }
        let (code, body) = get(at, "/metrics", Some(&token));
        assert_eq!(code, 200, "{body}");
        assert!(
            body.contains(
                "vmio_guard_min_effective_bytes_per_second{uplink=\"u0\",direction=\"guest_tx\",member=\"t1\""
            )
        );
        // What Prometheus itself says of it.
        let mut check = promtool();
        let mut child = check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The page asks for the token itself.
        let (code, body) = get(at, "/", None);
        assert!(code == 200 && body.contains("<title>") && !body.contains("gold"), "{code}: {body}");
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
        assert!(TcpStream::connect(at).is_err(), "nobody listens any more");
    });
}

#[test]
#[ignore = "root"]
fn the_socket_is_for_root_and_a_group() {
    TestHost::with(|host| {
        // Others may go through both directories, and read neither.
        let state = host.dir.path().join("state");
        fs::DirBuilder::new().mode(0o711).create(&state).unwrap();
        fs::set_permissions(host.dir.path(), Permissions::from_mode(0o711)).unwrap();
        // Where anybody may run it: the build may lie in somebody's home.
        let program = host.dir.path().join("vmio");
        if fs::hard_link(env!("CARGO_BIN_EXE_vmio"), &program).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_vmio"), &program).unwrap();
        }
        let groups = fs::read_to_string("/etc/group").unwrap();
        let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let (name, number) = fields.map(|f| (f[0], f[2])).find(|(_, number)| *number != "0").unwrap();
        let (_, said) = host.ends(&["guard", "run", "--config", "x", "--group", "no-such-group"], 3);
        assert!(said.contains("group no-such-group does not exist") && said.contains("groupadd --system"), "{said}");
        let daemon = host.run_with(&["--group", name]);
        let nobody = |group: &str, args: &[&str]| -> Output {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--groups", group]).arg(&program);
            command.args(args).env("VMIO_STATE", &state).output().unwrap()
        };
        let said = |output: &Output| String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
        let may = nobody(number, &["guard", "status"]);
        assert!(may.status.success() && said(&may).contains("t1"), "{}", said(&may));
        let set = nobody(number, &["guard", "set", "class", "gold", "--min", "30Mbit"]);
        assert!(set.status.success(), "{}", said(&set));
        assert_eq!(host.members()[1], ("t1".to_owned(), 30));
        let other = nobody(NOBODY, &["guard", "set", "class", "gold", "--min", "20Mbit"]);
        assert_eq!(other.status.code(), Some(3), "{}", said(&other));
        assert!(said(&other).contains("in the group that may use the socket"), "{}", said(&other));
        assert_eq!(host.members()[1], ("t1".to_owned(), 30));
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

#[test]
#[ignore = "root"]
fn status_is_shown_anew_until_somebody_ends_it() {
    TestHost::with(|host| {
        let daemon = host.run();
        let mut watch = host.command(&["guard", "status", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
        // Home, and all below is cleared: each time anew.
        const ANEW: &str = "\u{1b}[H\u{1b}[J";
        let (mut shown, mut bytes, mut out) = (String::new(), [0; 4096], watch.stdout.take().unwrap());
        while shown.matches(ANEW).count() < 3 {
            let count = out.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended: {shown}");
            shown += std::str::from_utf8(&bytes[..count]).unwrap();
        }
        kill_process(Pid::from_child(&watch), Signal::INT).unwrap();
        let status = watch.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status:?}");
        for one in shown.split(ANEW).skip(1).take(2) {
            let t1 = one.lines().find(|line| line.starts_with("t1 ")).unwrap_or_else(|| panic!("{one}"));
            assert!(t1.contains("gold") && t1.contains(" 40 "), "{t1}");
        }
        // The guard goes on.
        assert_eq!(host.members().len(), 3);
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

#[test]
#[ignore = "root"]
fn unconfirmed_files_are_taken_back() {
    TestHost::with(|host| {
        let daemon = host.run();
        let class = || Command::new("tc").args(["class", "show", "dev", "u0"]).output().unwrap().stdout;
        let before = class();
        host.write(&POLICY.replace("40Mbit", "30Mbit"));
        let (_, said) = host.ends(&["guard", "apply", "--confirm", "1s"], 0);
        assert!(said.contains("vmio guard confirm"), "{said}");
        poll_until("it is taken back", || host.members()[1].1 == 40 && class() == before);
        let (out, _) = host.ends(&["guard", "status"], 0);
        assert!(out.contains("the files have changed since"), "{out}");
        // The confirmation came too late.
        host.ends(&["guard", "confirm"], 2);
        host.ends(&["guard", "apply", "--confirm", "60s"], 0);
        assert!(host.status()["policy"]["taken_back_in_seconds"].as_f64().unwrap() > 0.0);
        host.ends(&["guard", "confirm"], 0);
        assert_eq!((host.members()[1].1, class() == before), (30, false));
        assert!(host.status()["policy"]["taken_back_in_seconds"].is_null());
        host.ends(&["guard", "undo"], 0);
        let (code, said) = daemon.end(None);
        assert!(code == Some(0) && said.contains("the change was not confirmed"), "{said}");
    });
}

/// Only the state directory that the guard ran with has what it needs to put everything back.
#[test]
#[ignore = "root"]
fn a_killed_guards_record_is_found_from_another_state_directory() {
    TestHost::with(|host| {
        let before = network_state();
        let (state, other) = (host.dir.path().join("state"), host.dir.path().join("other"));
        let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let record = PathBuf::from(format!("/run/vmio/guard-{namespace}.state"));
        let daemon = host.run();
        assert_eq!(fs::read_to_string(&record).unwrap(), state.to_str().unwrap());
        let ends = |args: &[&str], code: i32, words: &str| {
            let output = host.command(args).env("VMIO_STATE", &other).output().unwrap();
            let said = unfolded(&String::from_utf8([output.stdout, output.stderr].concat()).unwrap());
            assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
            assert!(said.contains(words), "{args:?}: no {words:?} in {said}");
        };
        let policy = host.policy();
        let run = ["guard", "run", "--config", policy.to_str().unwrap()];
        let named = format!("with the state directory {}", state.display());
        for args in [&run[..], &["guard", "undo"], &["guard", "status"]] {
            ends(args, 3, &named);
        }
        let (_, said) = daemon.end(Some(Signal::KILL));
        assert!(unfolded(&said).contains(&format!("remove: `vmio guard undo --state {}`", state.display())), "{said}");
        let limited = network_state();
        let undo = format!("vmio guard undo --state {}", state.display());
        for args in [&run[..], &["guard", "undo"], &["guard", "status"]] {
            ends(args, 3, &undo);
        }
        assert!(!other.exists() && network_state() == limited, "nothing was made or changed");
        host.ends(&["guard", "undo"], 0);
        assert_eq!(network_state(), before);
        assert!(!record.exists());
        // A start that is refused leaves no directory behind: another program's queue is in the way.
        ip("link add d0 type veth peer name d1");
        net::run(&["tc qdisc add dev d0 root handle 11: bfifo limit 9000"]);
        host.write(&POLICY.replace("uplink.u0", "uplink.d0"));
        ends(&run, 1, "nothing was changed");
        assert!(!other.exists() && !record.exists());
        ends(&["guard", "run", "--config", "/nonexistent"], 2, "vmio guard run --observe --uplink eth0");
        assert!(!other.exists());
        // A record that is lost with its directory: what the kernel shows goes, and the rest is told.
        ip("link del d0");
        host.write(POLICY);
        drop(host.run().end(Some(Signal::KILL)));
        fs::rename(&state, host.dir.path().join("moved")).unwrap();
        ends(&["guard", "undo"], 1, "is not recorded in this state directory");
        assert!(!crate::help::guarded::limits());
    });
}
