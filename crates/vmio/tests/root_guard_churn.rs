//! A guard that is killed at any moment while interfaces come in numbers and go, are renamed and give their index to others, and
//! its policy is broken and mended. At the end the host is as it was.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::root_guard::{Bed, POLICY, host};

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

fn killed_while_interfaces_come_and_go(kills: usize, interfaces: usize) {
    let seed: u64 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    println!("seed {seed}");
    Bed::with(|bed| {
        let before = host();
        let (end, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|s| {
            s.spawn(|| {
                while !end.load(Ordering::Relaxed) || rounds.load(Ordering::Relaxed) * AT_ONCE < interfaces {
                    round(rounds.fetch_add(1, Ordering::Relaxed));
                }
            });
            let mut random = seed;
            for kill in 0..kills {
                bed.write(POLICY);
                let daemon = bed.start(&[]);
                // Numerical Recipes' linear congruential generator.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                thread::sleep(Duration::from_micros((random >> 33) % 700_000));
                bed.write(&POLICY.replace("40Mbit", ["forty", "30Mbit"][kill % 2]));
                // It may not listen yet, and half of the files make no sense.
                let said = bed.vmio(&["guard", "apply"]);
                assert!(matches!(said.status.code(), Some(0..=3)), "{said:?}");
                let (code, said) = daemon.end(Some(Signal::KILL));
                assert_eq!(code, None, "it ended by itself: seed {seed}, kill {kill}: {said}");
                if kill % 10 == 9 {
                    bed.ends(&["guard", "undo"], 0);
                }
            }
            end.store(true, Ordering::Relaxed);
        });
        // The next one reaches what is desired, and undo what was.
        bed.write(POLICY);
        let daemon = bed.run();
        let members = bed.members();
        let named: Vec<(&str, u64)> = members.iter().map(|(name, min)| (name.as_str(), *min)).collect();
        assert_eq!(named, [("host", 2), ("t1", 40), ("default", 0)], "seed {seed}");
        bed.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
        assert_eq!(host(), before, "seed {seed}");
    });
}

#[test]
#[ignore = "root"]
fn killed_a_few_times_while_interfaces_come_and_go() {
    killed_while_interfaces_come_and_go(5, 200);
}

#[test]
#[ignore = "root"]
fn long_killed_200_times_while_1000_interfaces_come_and_go() {
    killed_while_interfaces_come_and_go(200, 1000);
}
