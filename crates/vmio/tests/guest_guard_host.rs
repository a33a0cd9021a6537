//! A host with three guests on taps of a bridge, which send over one uplink, and a guard: what the tests of real guests
//! share.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmio_model::cell::Nic;
use vmio_model::result::Accel;
use vmio_node::{Exec, Journal, Local, Node, Process};
use vmio_rig::guests::{self, Guest, GuestSpec, LaunchCtx, NicSpec};
use vmio_rig::image::Image;
use vmio_rig::nets::{Namespace, Plug, bring_up};
use vmio_rig::nodes::Nodes;
use vmio_testbed::process::Companion;
use vmio_testbed::{limit, poll_until};

use crate::help::schema::fits;
use crate::help::state_dir::{StateDir, built};

/// What each guest offers: more than its share of the uplink, which a guest under emulation can send on a busy machine.
const OFFERED: &str = "15000000";
pub const POLICY: &str = r#"[uplink.u0]
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

/// Guests, and what each is to get in Mbit/s while nobody else sends: 8 and 4 are their own, tin has its maximum, and
/// of the 6 that are left gold and silver each have a half.
pub const GUESTS: [(&str, f64); 3] = [("gold", 11.0), ("silver", 7.0), ("tin", 2.0)];
/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(200);
/// How long a guest sends if nobody ends it.
const SENDS: Duration = Duration::from_secs(600);

/// A control group for one guest, of the version that this host has.
pub struct Group(PathBuf);

impl Group {
    fn make() -> Group {
        let of_v1 = Path::new("/sys/fs/cgroup/cpu");
        let above = if of_v1.exists() { of_v1 } else { Path::new("/sys/fs/cgroup") };
        let group = Group(above.join(format!("vmio-guard-test-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        group
    }

    /// The weight of 100 or 200 in its version's terms.
    pub fn weight(&self) -> (String, [&'static str; 2]) {
        let (name, values) = if self.0.join("cpu.shares").exists() {
            ("cpu.shares", ["1024", "2048"])
        } else {
            ("cpu.weight", ["100", "200"])
        };
        (fs::read_to_string(self.0.join(name)).unwrap().trim().to_owned(), values)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its guest may still be ending. After a failure the panic is to be seen, not this.
        if thread::panicking() {
            drop(fs::remove_dir(&self.0));
        } else {
            poll_until("the group of the guest is empty", || fs::remove_dir(&self.0).is_ok());
        }
    }
}

fn mac(number: usize) -> String {
    format!("52:54:00:09:00:{:02x}", 16 + number)
}

fn address(number: usize) -> String {
    format!("10.9.0.{}", 10 + number)
}

pub struct Host {
    pub state: StateDir,
    /// The first guest's.
    pub group: Group,
    dir: tempfile::TempDir,
    node: Arc<dyn Node>,
    journal: Arc<Journal>,
    image: Image,
    host: Namespace,
    /// Where they send to.
    sink: Namespace,
}

impl Host {
    /// With the taps of all guests.
    pub fn new() -> Host {
        let state = StateDir::with_image();
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
        let image = Image::load_or_build(&*node, &state.path(), &|_| {}).unwrap();
        let (host, sink) = (Namespace::make(&*node).unwrap(), Namespace::make(&*node).unwrap());
        let new = Host { state, group: Group::make(), dir, node, journal, image, host, sink };
        new.ip(&new.host, "link add br0 type bridge mcast_snooping 0");
        new.ip(&new.host, &format!("link add u0 type veth peer name u1 netns {}", new.sink.path()));
        new.ip(&new.host, "link set u0 master br0 up");
        new.ip(&new.host, "link set br0 up");
        new.ip(&new.sink, "address add 10.9.0.1/24 dev u1");
        new.ip(&new.sink, "link set u1 up");
        for number in 0..GUESTS.len() {
            new.ip(&new.host, &format!("tuntap add tap{number} mode tap"));
            new.ip(&new.host, &format!("link set tap{number} master br0 up"));
        }
        new
    }

    fn ip(&self, at: &Namespace, line: &str) {
        let output = self.node.exec(&at.exec("ip").args(line.split(' '))).unwrap();
        assert!(output.ok(), "ip {line}: {}", output.err());
    }

    /// A program that looks at the host's network.
    pub fn said(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let output = self.node.exec(&self.host.exec(words.next().unwrap()).args(words)).unwrap();
        assert!(output.ok(), "{line}: {}", output.err());
        output.out().to_owned()
    }

    /// A guard with this policy, which answers.
    pub fn guard(&self, policy: &str) -> Companion {
        self.guard_behind(&[], policy)
    }

    /// The same, started by this command.
    pub fn guard_behind(&self, before: &[&str], policy: &str) -> Companion {
        let file = self.dir.path().join("guard.toml");
        fs::write(&file, policy).unwrap();
        let args = ["guard", "run", "--config", file.to_str().unwrap()];
        let daemon = Companion::start(&mut self.vmio_behind(before, &args));
        poll_until("the daemon answers", || self.status().is_some());
        daemon
    }

    pub fn vmio(&self, args: &[&str]) -> Command {
        self.vmio_behind(&[], args)
    }

    fn vmio_behind(&self, before: &[&str], args: &[&str]) -> Command {
        let enter = self.host.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(before).arg(env!("CARGO_BIN_EXE_vmio")).args(args);
        command.env("VMIO_STATE", self.dir.path().join("state"));
        command
    }

    pub fn status(&self) -> Option<Value> {
        let output = self.vmio(&["guard", "status", "--json"]).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        output.status.success().then(|| {
            fits("guard-status", &out);
            serde_json::from_str(&out).unwrap()
        })
    }

    pub fn members(&self) -> Vec<Value> {
        self.status().unwrap()["pools"][0]["members"].as_array().unwrap().clone()
    }

    pub fn member(&self, number: usize) -> Value {
        let name = format!("tap{number}");
        self.members().into_iter().find(|m| m["name"] == *name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// A process as that guest's, which does not run yet.
    pub fn start_anew(&self, number: usize) -> Companion {
        let tap = format!("tap,id=n0,ifname=tap{number},script=no,downscript=no");
        let nic = format!("virtio-net-pci,netdev=n0,mac={}", mac(number));
        let enter = self.host.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "64"]);
        command.args(["-name", GUESTS[number].0, "-accel", "tcg", "-netdev", &tap, "-device", &nic]);
        Companion::start(&mut command)
    }

    /// What the kernel says of the interface of a guest.
    pub fn tap(&self, number: usize) -> Value {
        let links: Value = serde_json::from_str(&self.said(&format!("ip -s -j link show tap{number}"))).unwrap();
        links[0].clone()
    }

    /// A process as that guest's, which sends the sink 15 Mbit/s and wants no limit: it sets its send buffer to
    /// what it was, ten times a second (`crates/guard/examples/tap_guest`).
    pub fn without_limit(&self, number: usize) -> Companion {
        let links = self.node.exec(&self.sink.exec("ip").args(["-j", "link", "show", "u1"])).unwrap();
        let links: Value = serde_json::from_str(&links.out()).unwrap();
        let nic = format!("virtio-net-pci,netdev=n0,mac={}", mac(number));
        let enter = self.host.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(["bash", "-c", "exec -a qemu-system-x86_64 \"$0\" \"$@\""]);
        command.arg(built("tap_guest")).args(["-name", GUESTS[number].0, "-nodefaults"]);
        command.args(["-netdev", &format!("tap,id=n0,ifname=tap{number}"), "-device", &nic]);
        command.env("GUEST_ADDRESS", address(number)).env("TO_ADDRESS", "10.9.0.1").env("MBIT", "15");
        command.env("TO_MAC", links[0]["address"].as_str().unwrap()).env("WITHOUT_LIMIT", "1");
        Companion::start(&mut command)
    }

    /// The sink sends a guest so many Mbit/s, whether it answers or not.
    pub fn flood(&self, number: usize, mbit: u64) -> Companion {
        let (to, mac, rate) = (address(number), mac(number), (mbit * 1_000_000).to_string());
        self.ip(&self.sink, &format!("neigh replace {to} lladdr {mac} dev u1 nud permanent"));
        self.said(&format!("bridge fdb replace {mac} dev tap{number} master static sticky"));
        let enter = self.sink.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).arg(built("vmio-udp")).args(["send", &to, "9", "--rate", &rate]);
        command.args(["--bytes", "1400", "--seconds", &SENDS.as_secs().to_string()]);
        Companion::start(&mut command)
    }

    pub fn boot(&self, number: usize) -> Box<dyn Guest> {
        self.boot_as(number, GuestSpec::of(GUESTS[number].0, 1, 128))
    }

    /// That guest, but for its network device as it is said.
    pub fn boot_as(&self, number: usize, spec: GuestSpec) -> Box<dyn Guest> {
        let tap = format!("tap{number}");
        let mac = mac(number);
        let nic = NicSpec { nic: Nic::new("virtio-net"), tap: tap.clone(), mac: mac.clone() };
        let spec = GuestSpec { nics: vec![nic], ..spec };
        let ctx = LaunchCtx {
            // Before what else the machine has to do: whether a guest sends what it wants is not what is tried.
            enter: [self.host.enter(), ["nice", "-n", "-15"].map(str::to_owned).to_vec()].concat(),
            node: Arc::clone(&self.node),
            journal: Arc::clone(&self.journal),
            image: Some(&self.image),
            run_dir: &self.dir.path().join("run"),
            state_dir: self.dir.path(),
            accel: Some(Accel::Tcg),
            nodes: &Nodes::default(),
            boot_limit: limit() * 2,
            oom_score_adj: 1000,
            cgroup_procs: (number == 0).then(|| self.group.0.join("cgroup.procs")).into_iter().collect(),
            progress: &|_| {},
        };
        let guest = guests::find("qemu").unwrap().launch(&ctx, &spec).unwrap();
        let address = address(number).parse().unwrap();
        let device = bring_up(&*guest.node(), &Plug { tap, mac, address, prefix: 24, mtu: None }).unwrap();
        assert!(!device.is_empty());
        guest
    }
}

/// What the kernel has counted by now in bytes, all at one time: of each guest's class, at the uplink or on the IFB
/// where guests must wait behind their taps; and of the host and all others at the uplink.
pub struct Passed {
    pub at: Instant,
    /// How long it took to look.
    pub took: Duration,
    pub guests: Vec<f64>,
    pub others: f64,
    /// Whether something of each guest waits.
    pub wait: [bool; GUESTS.len()],
    pub all_wait: bool,
}

impl Passed {
    pub fn now(host: &Host) -> Passed {
        let (mut guests, mut others, mut wait) = (vec![None; GUESTS.len()], 0.0, [false; GUESTS.len()]);
        let queues = host.said("tc qdisc");
        let asked = Instant::now();
        for device in queues.lines().filter_map(|line| line.strip_prefix("qdisc htb 7a00: dev ")) {
            let device = device.split(' ').next().unwrap();
            let shown = host.said(&format!("tc -s class show dev {device}"));
            for class in shown.split("class htb ").filter(|class| class.contains(" leaf ")) {
                let bytes: f64 = class.split("Sent ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
                // By what it is owed; the host and what is in no class have numbers of their own.
                let owed =
                    [" rate 8Mbit ", " rate 4Mbit ", " ceil 2Mbit "].iter().position(|owed| class.contains(owed));
                if let Some(number) = owed {
                    wait[number] = !class.contains(" backlog 0b ");
                    assert_eq!(guests[number].replace(bytes), None, "{shown}");
                } else if device == "u0" && (class.starts_with("7a00:2 ") || class.starts_with("7a00:3 ")) {
                    others += bytes;
                }
            }
        }
        let took = asked.elapsed();
        let at = asked + took / 2;
        let guests = guests.into_iter().map(|bytes| bytes.unwrap_or_else(|| panic!("no class of a guest: {queues}")));
        Passed { at, took, guests: guests.collect(), others, wait, all_wait: wait == [true; GUESTS.len()] }
    }
}

/// What a share that is wrong would be asked about.
pub fn state(host: &Host) -> String {
    let status = host.vmio(&["guard", "status"]).output().unwrap().stdout;
    let queues = host.said("tc -s qdisc");
    let devices = queues.lines().filter_map(|line| line.strip_prefix("qdisc htb 7a00: dev ")?.split(' ').next());
    let classes = devices.map(|device| host.said(&format!("tc -s class show dev {device}")));
    format!("{}\n{}\n{queues}", String::from_utf8_lossy(&status), classes.collect::<String>())
}

/// Has a guest send what it can.
pub fn send(guest: &dyn Guest) -> Box<dyn Process> {
    let seconds = SENDS.as_secs().to_string();
    let args = ["send", "10.9.0.1", "9", "--rate", OFFERED, "--bytes", "1400", "--seconds", &seconds, "--blocking"];
    guest.node().spawn(&Exec::new("vmio-udp").args(args)).unwrap()
}
