//! A guard that is killed at any moment while interfaces come in numbers and go, are renamed and give their index to others, and
//! its policy is broken and mended. At the end the host is as it was, and the guard has kept nothing.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::root_guard::{POLICY, TestHost, limits, network_state};

/// Interfaces that come at once.
const AT_ONCE: usize = 100;
/// Indices that are given again and again.
const INDEX: usize = 100_000;

/// Commands of ip(8) of which some fail, as they do where an interface was never there.
fn batch(lines: &str) {
    let mut ip = Command::new("ip");
    ip.args(["-force", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = ip.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait().unwrap();
}

/// A round: all come, some under an index that another had, every third is renamed, all go.
fn round(number: usize) {
    let lines = |line: &dyn Fn(usize) -> String| (0..AT_ONCE).map(|i| line(i) + "\n").collect::<String>();
    let index = |i: usize| if i.is_multiple_of(2) { format!(" index {}", INDEX + i) } else { String::new() };
    let name = |i: usize| format!("tc{}", (i + number) % AT_ONCE);
    batch(&lines(&|i| format!("link add {}{} type veth peer name pc{i}", name(i), index(i))));
    batch(&lines(&|i| format!("link set {} master br0 up", name(i))));
    batch(&lines(&|i| if i.is_multiple_of(3) { format!("link set {} name tr{i}", name(i)) } else { String::new() }));
    batch(&lines(&|i| format!("link del pc{i}")));
}

/// Ends the churn also where an assertion fails: a scope waits for its threads.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A quarter of the kills hits a guard that starts, or takes over what the one before has left; the others one whose policy is in
/// force. Meanwhile it is asked to put another one in force, of which half make no sense.
fn killed_while_interfaces_come_and_go(kills: usize, interfaces: usize) {
    let seed: u64 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    println!("seed {seed}");
    TestHost::with(|host| {
        let before = network_state();
        assert_eq!(host.kept(), [""; 0]);
        let (end, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (mut refused, mut asked) = (0, [0; 4]);
        thread::scope(|s| {
            let ended = End(&end);
            s.spawn(|| {
                while !end.load(Ordering::Relaxed) || rounds.load(Ordering::Relaxed) * AT_ONCE < interfaces {
                    round(rounds.fetch_add(1, Ordering::Relaxed));
                }
            });
            let mut random = seed;
            let mut moment = |below: u64| {
                // Numerical Recipes' linear congruential generator.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                thread::sleep(Duration::from_micros((random >> 33) % below));
            };
            for kill in 0..kills {
                host.write(POLICY);
                let daemon = if kill % 4 == 0 { host.start(&[]) } else { host.run() };
                moment(300_000);
                let other = ["forty", "30Mbit"][kill / 4 % 2];
                host.write(&POLICY.replace("40Mbit", other));
                let apply = s.spawn(|| host.vmio(&["guard", "apply"]));
                moment(200_000);
                let (code, said) = daemon.end(Some(Signal::KILL));
                match code {
                    None => {}
                    // It began to read when the file made no sense any more.
                    Some(2) if kill % 4 == 0 && other == "forty" && said.contains("nothing was changed") => {
                        refused += 1
                    }
                    _ => panic!("it ended by itself with {code:?}: seed {seed}, kill {kill}: {said}"),
                }
                // Done, killed meanwhile, refused, or nobody listened.
                let said = apply.join().unwrap();
                let code = said.status.code().and_then(|code| usize::try_from(code).ok());
                *code.and_then(|code| asked.get_mut(code)).unwrap_or_else(|| panic!("seed {seed}: {said:?}")) += 1;
                if kill % 10 == 9 || kill == 3 {
                    host.ends(&["guard", "undo"], 0);
                    assert!(!limits(), "seed {seed}, kill {kill}");
                    assert_eq!(host.kept(), [""; 0], "seed {seed}, kill {kill}");
                }
            }
            drop(ended);
        });
        println!(
            "{kills} kills, {} interfaces; guards that refused to start: {refused}",
            rounds.into_inner() * AT_ONCE
        );
        println!("changes done, cut off, refused, heard by nobody: {asked:?}");
        // The next one reaches what is desired, and undo what was.
        host.write(POLICY);
        let daemon = host.run();
        let members = host.members();
        let named: Vec<(&str, u64)> = members.iter().map(|(name, min)| (name.as_str(), *min)).collect();
        assert_eq!(named, [("host", 2), ("t1", 40), ("default", 0)], "seed {seed}");
        assert_ne!(host.kept(), [""; 0], "what is to be undone is written down");
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
        assert_eq!(network_state(), before, "seed {seed}");
        assert_eq!(host.kept(), [""; 0], "seed {seed}");
    });
}

#[test]
#[ignore = "root"]
fn killed_8_times_while_400_interfaces_come_and_go() {
    killed_while_interfaces_come_and_go(8, 400);
}

#[test]
#[ignore = "root"]
fn long_killed_200_times_while_1000_interfaces_come_and_go() {
    killed_while_interfaces_come_and_go(200, 1000);
}
