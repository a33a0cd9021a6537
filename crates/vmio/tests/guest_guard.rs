//! Three real guests on taps of a bridge, which send what they can over one uplink: the daemon gives each its share, and
//! what is too much waits in the guests: no packet is dropped on the host. A guest that is started anew keeps its class.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmio_model::cell::Nic;
use vmio_model::result::Accel;
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::guests::{self, Guest, GuestSpec, LaunchCtx, NicSpec};
use vmio_rig::image::Image;
use vmio_rig::nets::{Namespace, Plug, bring_up};

use crate::help::bed::Bed;
use crate::help::schema::fits;

const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// What each guest offers: more than its share of the uplink, which a guest under emulation can send on a busy machine.
const OFFERED: &str = "15000000";
const POLICY: &str = r#"[uplink.u0]
capacity = "20Mbit"
framing = "none"
[class.gold]
min = "8Mbit"
cpu_weight = 200
[class.silver]
min = "4Mbit"
[class.tin]
max = "2Mbit"
[[interface]]
match = { mac = "52:54:00:09:00:10" }
class = "gold"
[[interface]]
match = { mac = "52:54:00:09:00:11" }
class = "silver"
[[interface]]
match = { mac = "52:54:00:09:00:12" }
class = "tin"
"#;

/// Guests, and what each is to get in Mbit/s: 8 and 4 are their own, tin has its maximum, and of the 6 that are left
/// gold and silver each have a half.
const GUESTS: [(&str, f64); 3] = [("gold", 11.0), ("silver", 7.0), ("tin", 2.0)];
/// How far from it a guest may be.
const NEAR: f64 = 0.02;
/// A guest that the machine did not let run for a while may send so much later at once: windows of two or three looks until
/// all are near.
const LOOKS: usize = 10;

/// A control group for one guest, of the version that this host has.
struct Group(PathBuf);

impl Group {
    fn make() -> Group {
        let of_v1 = Path::new("/sys/fs/cgroup/cpu");
        let above = if of_v1.exists() { of_v1 } else { Path::new("/sys/fs/cgroup") };
        let group = Group(above.join(format!("vmio-guard-test-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        group
    }

    /// The weight of 100 or 200 in its version's terms.
    fn weight(&self) -> (String, [&'static str; 2]) {
        let (name, values) = match self.0.join("cpu.shares").exists() {
            true => ("cpu.shares", ["1024", "2048"]),
            false => ("cpu.weight", ["100", "200"]),
        };
        (fs::read_to_string(self.0.join(name)).unwrap().trim().to_owned(), values)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its guest has ended a moment ago.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Host {
    bed: Bed,
    /// The first guest's.
    group: Group,
    dir: tempfile::TempDir,
    node: Arc<dyn Node>,
    journal: Arc<Journal>,
    image: Image,
    host: Namespace,
    /// Where they send to.
    sink: Namespace,
}

impl Host {
    fn new() -> Host {
        let bed = Bed::with_image();
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
        let image = Image::load_or_build(&*node, &bed.state(), &|_| {}).unwrap();
        let (host, sink) = (Namespace::make(&*node).unwrap(), Namespace::make(&*node).unwrap());
        let new = Host { bed, group: Group::make(), dir, node, journal, image, host, sink };
        new.ip(&new.host, "link add br0 type bridge mcast_snooping 0");
        new.ip(&new.host, &format!("link add u0 type veth peer name u1 netns {}", new.sink.path()));
        new.ip(&new.host, "link set u0 master br0 up");
        new.ip(&new.host, "link set br0 up");
        new.ip(&new.sink, "address add 10.9.0.1/24 dev u1");
        new.ip(&new.sink, "link set u1 up");
        new
    }

    fn ip(&self, at: &Namespace, line: &str) {
        let output = self.node.exec(&at.exec("ip").args(line.split(' '))).unwrap();
        assert!(output.ok(), "ip {line}: {}", output.err());
    }

    fn policy(&self) -> PathBuf {
        let file = self.dir.path().join("guard.toml");
        fs::write(&file, POLICY).unwrap();
        file
    }

    fn vmio(&self, args: &[&str]) -> Command {
        let enter = self.host.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).arg(env!("CARGO_BIN_EXE_vmio")).args(args);
        command.env("VMIO_STATE", self.dir.path().join("state"));
        command
    }

    fn status(&self) -> Option<Value> {
        let output = self.vmio(&["guard", "status", "--json"]).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| {
            fits("guard-status", &out);
            serde_json::from_str(&out).unwrap()
        })
    }

    fn members(&self) -> Vec<Value> {
        self.status().unwrap()["pools"][0]["members"].as_array().unwrap().clone()
    }

    fn member(&self, number: usize) -> Value {
        let name = format!("tap{number}");
        self.members().into_iter().find(|m| m["name"] == *name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn boot(&self, number: usize) -> Box<dyn Guest> {
        let (name, _) = GUESTS[number];
        let tap = format!("tap{number}");
        let mac = format!("52:54:00:09:00:{:02x}", 16 + number);
        let nic = NicSpec { nic: Nic::new("virtio-net"), tap: tap.clone(), mac: mac.clone() };
        let spec = GuestSpec { nics: vec![nic], ..GuestSpec::of(name, 1, 128) };
        let ctx = LaunchCtx {
            enter: self.host.enter(),
            node: Arc::clone(&self.node),
            journal: Arc::clone(&self.journal),
            image: Some(&self.image),
            run_dir: &self.dir.path().join("run"),
            state_dir: self.dir.path(),
            accel: Some(Accel::Tcg),
            afar: None,
            boot_limit: BOOT_LIMIT,
            oom_score_adj: 1000,
            cgroup_procs: (number == 0).then(|| self.group.0.join("cgroup.procs")).into_iter().collect(),
            progress: &|_| {},
        };
        let guest = guests::find("qemu").unwrap().launch(&ctx, &spec).unwrap();
        let address = format!("10.9.0.{}", 10 + number).parse().unwrap();
        let device = bring_up(&*guest.node(), &Plug { tap, mac, address, prefix: 24 }).unwrap();
        assert!(!device.is_empty());
        guest
    }
}

/// What each guest has sent by now, all at one time.
fn passed(host: &Host) -> (Instant, Vec<f64>) {
    let (asked, members) = (Instant::now(), host.members());
    let of = |number: usize| {
        let tap = format!("tap{number}");
        let member = members.iter().find(|member| member["name"] == *tap);
        member.and_then(|member| member["passed_bytes_total"].as_f64()).unwrap()
    };
    (asked + asked.elapsed() / 2, (0..GUESTS.len()).map(of).collect())
}

/// What each guest sent in Mbit/s between two looks.
fn between(first: &(Instant, Vec<f64>), last: &(Instant, Vec<f64>)) -> Vec<f64> {
    let seconds = (last.0 - first.0).as_secs_f64();
    last.1.iter().zip(&first.1).map(|(last, first)| (last - first) * 8.0 / 1e6 / seconds).collect()
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "{what}: not within 60 s");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn three_guests_get_their_shares_and_nothing_is_dropped_on_the_host() {
    let host = Host::new();
    for (number, _) in GUESTS.iter().enumerate() {
        host.ip(&host.host, &format!("tuntap add tap{number} mode tap"));
        host.ip(&host.host, &format!("link set tap{number} master br0 up"));
    }
    let policy = host.policy();
    let mut run = host.vmio(&["guard", "run", "--config", policy.to_str().unwrap()]);
    let mut daemon = Daemon(run.stdin(Stdio::null()).spawn().unwrap());
    until("the daemon answers", || host.status().is_some());
    // Before its guest runs a tap is in no class: nothing but the guest's address says whose it is.
    assert!(!host.members().iter().any(|m| m["name"] == "tap0"));
    let guests: Vec<Box<dyn Guest>> = (0..GUESTS.len()).map(|number| host.boot(number)).collect();
    for (number, (name, _)) in GUESTS.iter().enumerate() {
        until("the guest's class", || host.members().iter().any(|m| m["class"] == *name));
        until("its tap is held", || host.member(number)["excess"]["waits"] == "held");
    }

    let (weight, [usual, owed]) = host.group.weight();
    assert_eq!(weight, owed, "{}", host.status().unwrap()["guests"]);
    assert_eq!(host.status().unwrap()["guests"][0]["limits"][0]["value"], *owed);

    let sent: Vec<_> = thread::scope(|s| {
        let senders: Vec<_> = guests
            .iter()
            .map(|guest| {
                let node = guest.node();
                let args =
                    ["send", "10.9.0.1", "9", "--rate", OFFERED, "--bytes", "1400", "--seconds", "60", "--blocking"];
                s.spawn(move || node.exec(&Exec::new("vmio-udp").args(args).limit(Duration::from_secs(120))).unwrap())
            })
            .collect();
        // Queues are full by then, and buffers of the guests too.
        thread::sleep(Duration::from_secs(6));
        let (mut looks, mut windows) = (vec![passed(&host)], Vec::new());
        let good = (0..LOOKS).any(|_| {
            thread::sleep(Duration::from_secs(5));
            looks.push(passed(&host));
            looks.iter().rev().skip(2).take(2).any(|first| {
                let rates = between(first, looks.last().unwrap());
                let all: f64 = rates.iter().sum();
                let near = |(rate, (_, share)): (&f64, &(&str, f64))| (rate / all * 20.0 / share - 1.0).abs() < NEAR;
                println!("{rates:.3?} Mbit/s, {all:.3} together");
                windows.push(format!("{rates:.3?}"));
                (19.0..20.2).contains(&all) && rates.iter().zip(&GUESTS).all(near)
            })
        });
        assert!(good, "{windows:?} Mbit/s, where {GUESTS:?} are their own");
        for member in host.members() {
            assert_eq!(member["dropped_packets_total"], 0, "dropped on the host: {member}");
        }
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    for output in &sent {
        assert!(output.ok(), "{}{}", output.out(), output.err());
    }

    // Started anew: another process, perhaps another order.
    let mut guests = guests;
    guests.remove(1).stop().unwrap();
    until("its class is gone", || !host.members().iter().any(|m| m["class"] == "silver"));
    let again = host.boot(1);
    until("its class again", || host.members().iter().any(|m| m["class"] == "silver"));
    until("its tap is held again", || host.member(1)["excess"]["waits"] == "held");
    assert!(host.vmio(&["guard", "undo"]).status().unwrap().success());
    assert_eq!(host.group.weight().0, usual);
    drop((again, guests));
    assert!(daemon.0.wait().unwrap().success());
    host.bed.is_clean();
}
