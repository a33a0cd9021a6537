//! What is done to a guard in `root_guard_endurance.rs`, and around it: one step after the other, in an order that a
//! seed gives.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::process;
use vmio_testbed::net::{Namespace, run};
use vmio_testbed::{Random, poll_for, poll_until};

use crate::help::attacked::{Bed, raw, stream};
use crate::help::frames::announcement;
use crate::help::guarded::{TestHost, ip, is_up, limits};
use crate::help::state_dir::Companion;
use crate::help::watched::{Step, Watch};
use crate::root_guard_hostile::{address, datagram, mac};

/// Of each policy: minima of both guests in Mbit/s, and what the class of the third has besides.
const POLICIES: [([u64; 2], &str); 4] = [
    ([6, 3], "min = \"2Mbit\"\nreserve = \"hard\""),
    ([8, 2], "max = \"5Mbit\""),
    ([4, 4], "min = \"1Mbit\"\nweight = 3"),
    ([8, 4], "min = \"2Mbit\""),
];
/// The second guest's minimum where it is set over the files.
const SET: u64 = 5;
/// Interfaces that come and go, and indices that some of them have again and again.
const COMING: u64 = 12;
const INDEX: usize = 100_000;
/// More rounds than any time has room for.
const MOST_ROUNDS: usize = 100_000;

pub fn policy(number: usize) -> String {
    let ([first, second], third) = POLICIES[number];
    format!(
        r#"[guard]
spoofing = "drop"
on_conflict = "restore"
[uplink.u0]
capacity = "20Mbit"
framing = "none"
[class.first]
priority = 8
min = "{first}Mbit"
[class.second]
priority = 4
min = "{second}Mbit"
[class.third]
priority = 1
{third}
[class.coming]
min = "100kbit"
max = "2Mbit"
[[interface]]
match = {{ name = "t1" }}
class = "first"
rx_class = "first"
addresses = ["10.9.0.101"]
[[interface]]
match = {{ name = "t2" }}
class = "second"
[[interface]]
match = {{ name = "t3" }}
class = "third"
[[interface]]
match = {{ name = "c*" }}
class = "coming"
rx_class = "coming"
"#
    )
}

fn time(random: &mut Random, most: Duration) -> Duration {
    Duration::from_micros(random.below(most.as_micros() as u64))
}

/// How long all lasts, a pause between two steps at most, and a flood.
#[derive(Clone, Copy)]
pub struct Times {
    pub all: Duration,
    pub pause: Duration,
    pub flood: Duration,
}

pub struct Kind {
    pub name: &'static str,
    /// Nothing can pass meanwhile.
    cuts: bool,
    act: fn(&mut Churn<'_>),
}

/// A round has each of them once, in another order. The first ends the guard.
pub const KINDS: &[Kind] = &[
    Kind { name: "kill", cuts: false, act: kill },
    Kind { name: "come and go", cuts: false, act: come_and_go },
    Kind { name: "rename", cuts: false, act: rename },
    Kind { name: "policy", cuts: false, act: change },
    Kind { name: "refused policy", cuts: false, act: refused },
    Kind { name: "set", cuts: false, act: set },
    Kind { name: "uplink down", cuts: true, act: uplink_down },
    Kind { name: "uplink renamed", cuts: true, act: uplink_renamed },
    Kind { name: "foreign queue", cuts: false, act: foreign_queue },
    Kind { name: "UDP flood", cuts: false, act: udp_flood },
    Kind { name: "TCP flood", cuts: false, act: tcp_flood },
    Kind { name: "forged frames", cuts: false, act: forged },
];

pub struct Churn<'a> {
    host: &'a TestHost,
    bed: &'a Bed,
    watch: &'a Watch,
    times: Times,
    random: Random,
    pub daemon: Option<Companion>,
    /// Which policy is in the files.
    policy: usize,
    /// Whether the second guest's minimum is set over them.
    set: bool,
    /// Interfaces that are there, and whether they have their other name.
    there: BTreeMap<usize, bool>,
    /// Where their other ends are.
    peers: Namespace,
    /// All that any of the guards has had.
    pub maps: BTreeSet<u32>,
    /// How long another program's queue stood at most.
    pub foreign: Duration,
    pub steps: Vec<Step>,
}

impl<'a> Churn<'a> {
    /// Before anything was done.
    pub fn new(host: &'a TestHost, bed: &'a Bed, watch: &'a Watch, times: Times, seed: u64) -> Self {
        let (random, peers) = (Random::new(seed), Namespace::make());
        let (daemon, policy, set, there, maps, foreign, steps) = Default::default();
        Churn { host, bed, watch, times, random, daemon, policy, set, there, peers, maps, foreign, steps }
    }

    /// Starts a guard, and waits until it answers.
    pub fn start(&mut self) {
        let (host, file) = (self.host, self.host.policy());
        // Its log is this test's: of an hour it is more than a pipe has room for.
        let mut command = host.command(&["guard", "run", "--config", file.to_str().unwrap()]);
        self.daemon = Some(Companion::start(&mut command));
        let answers = || host.vmio(&["guard", "status"]).status.success();
        poll_until("the guard answers, or has ended", || answers() || self.has_ended());
        self.runs();
        self.maps.extend(maps_of(self.pid()));
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().pid()
    }

    fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().unwrap().0.try_wait().unwrap().is_some()
    }

    fn runs(&mut self) {
        let ended = self.has_ended();
        assert!(!ended, "the guard ended by itself");
    }

    fn apply(&mut self, policy: usize) {
        self.policy = policy;
        self.host.write(&self::policy(policy));
        self.host.ends(&["guard", "apply"], 0);
    }

    fn in_force(&self) {
        poll_for("all is in force", || {
            let status = self.host.status();
            let pools = status["pools"].as_array().unwrap();
            if pools.iter().all(|pool| pool["not_in_force"].is_null()) && limits() { Ok(()) } else { Err(status) }
        });
    }

    /// One that is not there comes, another goes.
    fn toggle(&mut self, number: usize) {
        if let Some(renamed) = self.there.remove(&number) {
            return ip(&format!("link del {}", name(number, renamed)));
        }
        let index = if number.is_multiple_of(2) { format!(" index {}", INDEX + number) } else { String::new() };
        let (new, peers) = (name(number, false), self.peers.path());
        ip(&format!("link add {new}{index} type veth peer name p{number} netns {peers}"));
        ip(&format!("link set {new} master br0 up"));
        self.there.insert(number, false);
    }

    pub fn step(&mut self, kind: &Kind) {
        thread::sleep(time(&mut self.random, self.times.pause));
        let began = self.watch.now();
        println!("{:.3} s: {}", began.as_secs_f64(), kind.name);
        (kind.act)(self);
        self.runs();
        self.done(kind.name, kind.cuts, began);
    }

    pub fn done(&mut self, kind: &'static str, cuts: bool, began: Duration) {
        let [first, second] = POLICIES[self.policy].0;
        let minima = [first, if self.set { SET } else { second }].map(|mbit| mbit as f64 * 1e6 / 8.0);
        self.steps.push(Step { kind, cuts, began, ended: self.watch.now(), minima });
    }

    /// Each of these once, and again until the time is over.
    pub fn rounds(&mut self, kinds: &[Kind], until: Instant) {
        for round in 0..MOST_ROUNDS {
            let mut order: Vec<&Kind> = kinds.iter().collect();
            for last in (1..order.len()).rev() {
                order.swap(last, self.random.below(last as u64 + 1) as usize);
            }
            for kind in order {
                if round > 0 && Instant::now() > until {
                    return;
                }
                self.step(kind);
            }
        }
    }

    /// Back to what there was at the beginning.
    pub fn rest(&mut self) {
        let began = self.watch.now();
        let there: Vec<usize> = self.there.keys().copied().collect();
        there.into_iter().for_each(|number| self.toggle(number));
        if self.set {
            set(self);
        }
        self.apply(0);
        poll_for("the members are those of the beginning", || {
            let mut names: Vec<String> = self.host.members().into_iter().map(|(name, _)| name).collect();
            names.sort();
            if names == ["default", "host", "t1", "t2", "t3"] { Ok(()) } else { Err(names) }
        });
        self.in_force();
        self.done("rest", false, began);
    }
}

fn name(number: usize, renamed: bool) -> String {
    format!("{}{number}", if renamed { 'd' } else { 'c' })
}

/// Numbers of the maps that a process has open (proc_pid_fdinfo(5), kernel/bpf/syscall.c: `bpf_map_show_fdinfo`).
pub fn maps_of(pid: u32) -> BTreeSet<u32> {
    // A descriptor may be closed since it was listed.
    let number = |info: io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(info.ok()?.path()).ok()?;
        process::fdinfo(&text, "map_id")?.parse().ok()
    };
    fs::read_dir(process::file(pid, "fdinfo")).unwrap().filter_map(number).collect()
}

fn kill(churn: &mut Churn<'_>) {
    churn.maps.extend(maps_of(churn.pid()));
    churn.daemon = None;
    come_and_go(churn);
    churn.start();
}

fn come_and_go(churn: &mut Churn<'_>) {
    for _ in 0..=churn.random.below(6) {
        let number = churn.random.below(COMING) as usize;
        churn.toggle(number);
    }
}

fn rename(churn: &mut Churn<'_>) {
    let number = churn.random.below(COMING) as usize;
    if !churn.there.contains_key(&number) {
        churn.toggle(number);
    }
    let renamed = churn.there[&number];
    called(&name(number, renamed), &name(number, !renamed));
    churn.there.insert(number, !renamed);
}

fn called(from: &str, to: &str) {
    for line in [format!("link set {from} down"), format!("link set {from} name {to}"), format!("link set {to} up")] {
        ip(&line);
    }
}

fn change(churn: &mut Churn<'_>) {
    let other = churn.random.below(POLICIES.len() as u64) as usize;
    churn.apply(other);
}

fn refused(churn: &mut Churn<'_>) {
    let good = policy(churn.policy);
    let bad = match churn.random.below(4) {
        // Less than the minima.
        0 => good.replace("\"20Mbit\"", "\"2Mbit\""),
        1 => good.replace("Mbit\"", "Mbps\""),
        2 => good.replace("priority = 8", "priority = 9"),
        _ => format!("{good}[["),
    };
    churn.host.write(&bad);
    churn.host.ends(&["guard", "apply"], 2);
    churn.host.write(&good);
}

fn set(churn: &mut Churn<'_>) {
    churn.set = !churn.set;
    let min = format!("{SET}Mbit");
    let what = if churn.set { vec!["--min", &min] } else { vec!["--clear"] };
    churn.host.ends(&[&["guard", "set", "class", "second"][..], &what].concat(), 0);
}

fn uplink_down(churn: &mut Churn<'_>) {
    ip("link set u0 down");
    thread::sleep(time(&mut churn.random, Duration::from_millis(200)));
    ip("link set u0 up");
    is_up("u0");
    churn.in_force();
}

fn uplink_renamed(churn: &mut Churn<'_>) {
    called("u0", "w0");
    thread::sleep(time(&mut churn.random, Duration::from_millis(300)));
    called("w0", "u0");
    is_up("u0");
    churn.in_force();
}

/// The policy says that it is to be removed.
fn foreign_queue(churn: &mut Churn<'_>) {
    let began = Instant::now();
    run(&["tc qdisc replace dev u0 root handle 5: pfifo limit 100"]);
    poll_until("it is put right", limits);
    churn.foreign = churn.foreign.max(began.elapsed());
    churn.in_force();
}

/// By the third guest, or by one that is in no policy.
fn udp_flood(churn: &mut Churn<'_>) {
    let guest = 3 + churn.random.below(2) as u8;
    let bytes = [18, 400, 1472][churn.random.below(3) as usize];
    let until = Instant::now() + churn.times.flood;
    raw(churn.bed, guest, until, 8, |_| datagram(mac(guest), address(guest), 0, bytes));
}

fn tcp_flood(churn: &mut Churn<'_>) {
    stream(churn.bed, 3, Instant::now() + churn.times.flood);
}

/// Frames in the first guest's name, and claims of its address.
fn forged(churn: &mut Churn<'_>) {
    raw(churn.bed, 3, Instant::now() + churn.times.flood, 8, |n| {
        if n % 2 == 0 { datagram(mac(1), address(1), 0, 400) } else { announcement(mac(3), mac(3), address(1)) }
    });
}
