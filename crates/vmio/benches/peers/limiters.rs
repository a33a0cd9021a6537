//! The limiters, each set as its users set it, with where that is written.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::TempDir;
use vmio_testbed::net::tried;
use vmio_testbed::{limits, poll_until};

use super::bed::{Bed, Guest, queues};

/// What limits, while it lives.
#[derive(Default)]
pub struct Held {
    /// What differs from `how` on this kernel.
    pub note: Option<String>,
    daemon: Option<Daemon>,
}

/// Sets it, at the bed's scale; an error is why it cannot be here.
type Set = fn(&Bed) -> Result<Held, String>;

/// An entry.
pub struct Limiter {
    /// Its name.
    pub name: &'static str,
    /// How it is set, and by whom.
    pub how: &'static str,
    /// Puts it in force in a bed.
    pub set: Set,
    /// Whether its own processor time is what its users have.
    pub has_cost: bool,
}

/// All, in the order of the table.
pub const ALL: &[Limiter] = &[
    Limiter {
        name: "none",
        how: "one queue for all, at the wire's port",
        set: |_| Ok(Held::default()),
        has_cost: true,
    },
    Limiter {
        name: "vmio",
        how: "`vmio guard run`, the daemon, with min and max of each guest; all else as it is by default",
        set: |bed| vmio(bed, Asks::Contracts),
        has_cost: true,
    },
    Limiter {
        name: "vmio-drop",
        how: "the daemon with max and `excess = \"drop\"` of each guest and nothing else: a token bucket in the classifier, \
              burst as by default (128 KiB), and no queue, so it keeps no minimum",
        set: |bed| vmio(bed, Asks::Maxima),
        has_cost: true,
    },
    Limiter {
        name: "htb",
        how: "HTB at the uplink by hand (tc-htb(8); LARTC HOWTO 9.5.5.1): a class a guest with `rate` = min, `ceil` = \
              max, `burst 15k`, u32 filters by source address. HTB's bare leaves, a fifo as long as the interface's \
              queue, as by default; that chapter puts SFQ there: `htb-sfq`",
        set: |bed| htb(bed, by_address, None),
        has_cost: true,
    },
    Limiter {
        name: "htb-sfq",
        how: "the same with `sfq perturb 10` as leaves (LARTC HOWTO 9.5.5.1)",
        set: |bed| htb(bed, by_address, Some("sfq perturb 10")),
        has_cost: true,
    },
    Limiter {
        name: "htb-fq_codel",
        how: "the same with fq_codel as leaves (tc-fq_codel(8)), as it is by default",
        set: |bed| htb(bed, by_address, Some("fq_codel")),
        has_cost: true,
    },
    Limiter {
        name: "htb-classified",
        how: "HTB as in `htb`, behind a classifier of stock tc parts that does for these guests what the guard's does: \
              at each guest's interface (clsact, tc-u32(8)) only packets from its own Ethernet and IP address pass, in \
              ARP too (of other packets the guard checks the Ethernet address alone), and all else is dropped before \
              the bridge learns from it; at the uplink the interface by which a packet came in is its class (`indev`). \
              What it counts are its classes' own counters; the guard counts at the interface, too",
        set: |bed| Ok(Held { note: checked(bed)?, ..htb(bed, by_interface, None)? }),
        has_cost: true,
    },
    Limiter {
        name: "tbf",
        how: "TBF on an IFB of each guest, rate = max, as older versions of the CNI plugin `bandwidth` set it: latency \
              25 ms (containernetworking/plugins before PR 921, plugins/meta/bandwidth/ifb_creator.go, `createTBF`), \
              burst 128 KiB of the configuration. Who limits by Kubernetes' annotations has a burst of hundreds of \
              megabytes, which limits nothing for the first tens of seconds",
        set: |bed| ifb(bed, by_tbf),
        has_cost: true,
    },
    Limiter {
        name: "cni-htb",
        how: "HTB on an IFB of each guest, rate = max, `ceil` twice that, as the CNI plugin `bandwidth` sets it since \
              PR 921 (ifb_creator.go, `createHTB`; a class at the root borrows from none, so `ceil` gives nothing), \
              burst 128 KiB of the configuration, its bare leaf of 1000 packets (`CreateIfb`). Its second class, for \
              subnets without a limit, is left out",
        set: |bed| ifb(bed, by_htb),
        has_cost: true,
    },
    Limiter {
        name: "policer-ovs",
        how: "a policer of each guest, rate = max, burst 8000 kbit, the default of Open vSwitch's \
              ingress_policing_burst (lib/netdev-linux.c, `netdev_linux_set_policing`)",
        set: |bed| policer(bed, |_| bed.scale.bytes(1_000_000)),
        has_cost: true,
    },
    Limiter {
        name: "policer-second",
        how: "a policer of each guest, rate = max, burst of one second: libvirt's `<outbound average>` without `burst` \
              (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`), and Cilium's token bucket in eBPF \
              (bpf/lib/token_bucket.h, `accept`; there for what a pod receives)",
        set: |bed| policer(bed, |rate| (rate as f64 * bed.scale.times_longer()) as u64),
        has_cost: true,
    },
    Limiter {
        name: "edt",
        how: "departure times by eBPF at the uplink's egress and fq at its root, rate = max, as Cilium limits what a \
              pod sends (bpf/lib/edt.h, `edt_sched_departure`); the horizon of both 2 s, fq with 32768 buckets \
              (pkg/datapath/linux/bandwidth, `FqDefaultHorizon`, `FqDefaultBuckets`). The program is ours and knows \
              a guest by its address",
        set: edt,
        has_cost: true,
    },
    Limiter {
        name: "sender-max",
        how: "the VMM takes no more than max from its guest (Firecracker, src/vmm/src/rate_limiter; here with a bucket \
              of 100 ms). A stand-in: TBF with such a bucket in the guest's own namespace, so its processor time is \
              not Firecracker's",
        set: sender_max,
        has_cost: false,
    },
];

/// Runs these; the first that fails is the reason.
fn all(lines: &[String]) -> Result<(), String> {
    lines.iter().try_for_each(|line| match tried(line) {
        (true, _) => Ok(()),
        (false, said) => Err(format!("`{line}`: {}", said.trim().replace('\n', "; "))),
    })
}

struct Daemon {
    child: Child,
    _dir: TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the daemon is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Minima and maxima.
    Contracts,
    /// Maxima alone, which need no queue.
    Maxima,
}

/// The daemon.
fn vmio(bed: &Bed, asks: Asks) -> Result<Held, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let guest = |guest: &Guest| {
        let (name, contract) = (guest.contract.name, guest.contract);
        let beside = match asks {
            Asks::Contracts => format!("min = \"{}bit\"", contract.min_bps),
            Asks::Maxima => "excess = \"drop\"".to_owned(),
        };
        format!(
            "[class.{name}]\n{beside}\nmax = \"{}bit\"\n[[interface]]\nmatch = {{ name = \"{}\" }}\nclass = \"{name}\"\n",
            contract.max_bps, guest.device
        )
    };
    let mut guests: String = bed.guests.iter().map(guest).collect();
    if asks == Asks::Maxima {
        guests += "[class.host]\nmin = \"0bit\"\npriority = 4\n[class.default]\npriority = 4\n";
    }
    let policy = dir.path().join("guard.toml");
    fs::write(&policy, format!("[uplink.u0]\ncapacity = \"{}bit\"\n{guests}", bed.scale.uplink_bps()))
        .map_err(|e| e.to_string())?;
    let state = dir.path().join("state");
    let mut command = program(&state, &["guard", "run", "--config"]);
    command.arg(&policy);
    // If the bench is killed, so is the daemon, which would hold its namespace. The thread that starts it outlives it.
    // SAFETY: between fork and exec the closure makes one plain system call.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from));
    }
    let child = command.spawn().map_err(|e| e.to_string())?;
    let mut daemon = Daemon { child, _dir: dir };
    let has_queues = || queues().iter().any(|queue| queue["dev"] == "u0" && queue["kind"] == "htb");
    let answers = || program(&state, &["guard", "status"]).status().is_ok_and(|status| status.success());
    let mut ended = false;
    poll_until("the guard is in force", || {
        ended = daemon.child.try_wait().is_ok_and(|status| status.is_some());
        ended || answers() && has_queues() == (asks == Asks::Contracts)
    });
    if ended { Err("the daemon ended".to_owned()) } else { Ok(Held { note: None, daemon: Some(daemon) }) }
}

/// vmio, which keeps its state there: the one that was built with the bench, or the lab host's.
fn program(state: &Path, args: &[&str]) -> Command {
    let built = env!("CARGO_BIN_EXE_vmio");
    let mut command = Command::new(if Path::new(built).exists() { built } else { "vmio" });
    command.env("VMIO_STATE", state).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What a filter at the uplink knows a guest's packets by: its protocol and match.
type Match = fn(&Guest) -> String;

fn by_address(guest: &Guest) -> String {
    format!("protocol ip u32 match ip src {}", guest.address)
}

fn by_interface(guest: &Guest) -> String {
    format!("protocol all u32 match u32 0 0 indev {}", guest.device)
}

fn htb(bed: &Bed, matches: Match, leaf: Option<&str>) -> Result<Held, String> {
    let (uplink, burst) = (bed.scale.uplink_bps(), bed.scale.bytes(15 << 10));
    let mut lines = vec![
        "tc qdisc add dev u0 root handle 1: htb default 30".to_owned(),
        format!("tc class add dev u0 parent 1: classid 1:1 htb rate {uplink}bit burst {burst}b"),
    ];
    for (number, guest) in (1..).zip(&bed.guests) {
        let (class, contract) = (number * 10, guest.contract);
        let (min, max) = (contract.min_bps, contract.max_bps);
        let rates = format!("rate {min}bit ceil {max}bit burst {burst}b");
        lines.push(format!("tc class add dev u0 parent 1:1 classid 1:{class} htb {rates}"));
        lines.extend(leaf.map(|leaf| format!("tc qdisc add dev u0 parent 1:{class} handle {class}: {leaf}")));
        lines.push(format!("tc filter add dev u0 parent 1:0 prio 1 {} flowid 1:{class}", matches(guest)));
    }
    all(&lines).map(|()| Held::default())
}

/// Drops at each guest's interface what is not from its addresses; returns what differs on this kernel.
fn checked(bed: &Bed) -> Result<Option<String>, String> {
    let mut note = None;
    for guest in &bed.guests {
        let Guest { device, mac, address, .. } = guest;
        let ip = u32::from(address.parse::<Ipv4Addr>().map_err(|e| format!("{address}: {e}"))?);
        // In ARP the sender's address begins at byte 14 (RFC 826), and u32 compares words of four bytes.
        let sender = format!("match u16 {:#06x} 0xffff at 14 match u16 {:#06x} 0xffff at 16", ip >> 16, ip & 0xffff);
        let filter = format!("tc filter add dev {device} ingress");
        all(&[
            format!("tc qdisc add dev {device} clsact"),
            format!("{filter} protocol ip prio 1 u32 match ether src {mac} match ip src {address} flowid 1:1"),
            format!("{filter} protocol arp prio 2 u32 match ether src {mac} {sender} flowid 1:1"),
        ])?;
        let rest = format!("{filter} protocol all prio 3 u32 match u32 0 0 flowid 1:1 action");
        if !tried(&format!("{rest} drop")).0 {
            note = Some("this kernel has no act_gact: what is dropped is led to an IFB whose queue is full".to_owned());
            let ifb = format!("drop-{device}");
            all(&[
                format!("ip link add {ifb} type ifb"),
                format!("ip link set {ifb} up"),
                format!("tc qdisc add dev {ifb} root pfifo limit 0"),
                format!("{rest} mirred egress redirect dev {ifb}"),
            ])?;
        }
    }
    Ok(note)
}

/// What limits at this device to so many bit/s, with this burst in bytes.
fn by_tbf(bed: &Bed, device: &str, rate: u64, burst: u64) -> Vec<String> {
    let latency = bed.scale.long(Duration::from_millis(25)).as_micros();
    vec![format!("tc qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst}b latency {latency}us")]
}

/// The same.
fn by_htb(_: &Bed, device: &str, rate: u64, burst: u64) -> Vec<String> {
    // The plugin gives both buckets the same time.
    let (ceil, cburst) = (2 * rate, 2 * burst);
    vec![
        format!("tc qdisc add dev {device} root handle 1: htb default 30"),
        format!(
            "tc class add dev {device} parent 1: classid 1:30 htb rate {rate}bit burst {burst}b ceil {ceil}bit cburst \
             {cburst}b"
        ),
    ]
}

/// On an IFB of each guest.
fn ifb(bed: &Bed, limit: fn(&Bed, &str, u64, u64) -> Vec<String>) -> Result<Held, String> {
    let burst = bed.scale.bytes(128 << 10);
    for (number, guest) in (1..).zip(&bed.guests) {
        let device = &guest.device;
        let ifb = format!("ifb{number}");
        all(&[format!("ip link add {ifb} txqueuelen 1000 type ifb"), format!("ip link set {ifb} up")])?;
        all(&limit(bed, &ifb, guest.contract.max_bps, burst))?;
        all(&[
            format!("tc qdisc add dev {device} handle ffff: ingress"),
            format!(
                "tc filter add dev {device} parent ffff: protocol all prio 1 u32 match u32 0 0 flowid 1:1 action \
                 mirred egress redirect dev {ifb}"
            ),
        ])?;
    }
    Ok(Held::default())
}

/// The kernel's where it has one, else an eBPF program with the same bucket.
fn policer(bed: &Bed, burst: impl Fn(u64) -> u64) -> Result<Held, String> {
    let mut note = None;
    for guest in &bed.guests {
        let (device, bits) = (&guest.device, guest.contract.max_bps);
        let bytes = burst(bits / 8);
        all(&[format!("tc qdisc add dev {device} clsact")])?;
        let filter = format!("tc filter add dev {device} ingress protocol all");
        let by_kernel =
            format!("{filter} u32 match u32 0 0 police rate {bits}bit burst {bytes}b mtu 64kb drop flowid :1");
        if !tried(&by_kernel).0 {
            note = Some("this kernel has no act_police: the same token bucket in eBPF (cls_bpf)".to_owned());
            load(&filter, limits::BUCKET, &[bits / 8, bytes])?;
        }
    }
    Ok(Held { note, daemon: None })
}

/// Has `tc` load one of the testbed's programs, which it reads at once.
fn load(filter: &str, object: &[u8], settings: &[u64]) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = dir.path().join("limit.o");
    fs::write(&file, limits::set(object, settings)).map_err(|e| e.to_string())?;
    all(&[format!("{filter} bpf direct-action obj {} sec classifier", file.display())])
}

fn edt(bed: &Bed) -> Result<Held, String> {
    let horizon = bed.scale.long(Duration::from_secs(2));
    all(&[format!("tc qdisc add dev u0 root fq horizon {}us buckets 32768", horizon.as_micros())])
        .map_err(|said| format!("this kernel has no sch_fq ({said})"))?;
    all(&["tc qdisc add dev u0 clsact".to_owned()])?;
    let mut settings = vec![horizon.as_nanos() as u64];
    for guest in &bed.guests {
        let address = guest.address.parse::<Ipv4Addr>().map_err(|e| format!("{}: {e}", guest.address))?;
        settings.extend([u64::from(u32::from_ne_bytes(address.octets())), guest.contract.max_bps / 8]);
    }
    load("tc filter add dev u0 egress protocol ip", limits::EDT, &settings).map(|()| Held::default())
}

fn sender_max(bed: &Bed) -> Result<Held, String> {
    let bucket = bed.scale.long(Duration::from_millis(100)).as_secs_f64();
    for guest in &bed.guests {
        let bits = guest.contract.max_bps;
        // The bucket; and as many full frames as an interface's queue has by default.
        let burst = (bits as f64 / 8.0 * bucket) as u64;
        let queue = burst + bed.scale.bytes(1_500_000);
        let line = format!("tc qdisc add dev g0 root tbf rate {bits}bit burst {burst}b limit {queue}b");
        guest.namespace.inside(|| all(&[line]))?;
    }
    Ok(Held::default())
}
