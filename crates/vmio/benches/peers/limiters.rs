//! The limiters, each set as its users set it, with where that is written.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use vmio_testbed::net::tried;
use vmio_testbed::poll_until;

use super::bed::{Bed, Guest, UPLINK_MBIT, queues};

/// What limits, while it lives.
#[derive(Default)]
pub struct Held {
    /// What differs from `how` on this kernel.
    pub note: Option<String>,
    daemon: Option<Daemon>,
}

/// Sets it, all rates times a factor; an error is why it cannot be here.
type Set = fn(&Bed, u64) -> Result<Held, String>;

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
        set: |_, _| Ok(Held::default()),
        has_cost: true,
    },
    Limiter {
        name: "vmio",
        how: "`vmio guard run`, the daemon, with min and max of each guest; all else as it is by default",
        set: vmio,
        has_cost: true,
    },
    Limiter {
        name: "htb",
        how: "HTB at the uplink by hand (tc-htb(8); LARTC HOWTO 9.5.5.1): a class a guest with `rate` = min, `ceil` = \
              max, `burst 15k`, the default leaf, u32 filters by source address",
        set: htb,
        has_cost: true,
    },
    Limiter {
        name: "tbf",
        how: "TBF on an IFB of each guest, rate = max, as the CNI plugin `bandwidth` sets it: latency 25 ms \
              (containernetworking/plugins, plugins/meta/bandwidth/ifb_creator.go, `createTBF`), burst 128 KiB of the \
              configuration. Who limits by Kubernetes' annotations has a burst of hundreds of megabytes, which \
              limits nothing for the first tens of seconds",
        set: tbf,
        has_cost: true,
    },
    Limiter {
        name: "policer-ovs",
        how: "a policer of each guest, rate = max, burst 8000 kbit, the default of Open vSwitch's \
              ingress_policing_burst (lib/netdev-linux.c, `netdev_linux_set_policing`)",
        set: |bed, scale| policer(bed, scale, |_| 1_000_000),
        has_cost: true,
    },
    Limiter {
        name: "policer-second",
        how: "a policer of each guest, rate = max, burst of one second: libvirt's `<outbound average>` without `burst` \
              (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`), and Cilium's token bucket in eBPF \
              (bpf/lib/token_bucket.h, `accept`; there for what a pod receives)",
        set: |bed, scale| policer(bed, scale, |bytes_a_second| bytes_a_second),
        has_cost: true,
    },
    Limiter {
        name: "edt",
        how: "departure times by eBPF and sch_fq, as Cilium limits what a pod sends (bpf/lib/edt.h, \
              `edt_sched_departure`)",
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

fn vmio(bed: &Bed, scale: u64) -> Result<Held, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let guest = |guest: &Guest| {
        let (name, contract) = (guest.contract.name, guest.contract);
        format!(
            "[class.{name}]\nmin = \"{}Mbit\"\nmax = \"{}Mbit\"\n[[interface]]\nmatch = {{ name = \"{}\" }}\nclass = \
             \"{name}\"\n",
            contract.min_mbit * scale,
            contract.max_mbit * scale,
            guest.device
        )
    };
    let guests: String = bed.guests.iter().map(guest).collect();
    let policy = dir.path().join("guard.toml");
    fs::write(&policy, format!("[uplink.u0]\ncapacity = \"{}Mbit\"\n{guests}", UPLINK_MBIT * scale))
        .map_err(|e| e.to_string())?;
    let state = dir.path().join("state");
    let child = program(&state, &["guard", "run", "--config"]).arg(&policy).spawn().map_err(|e| e.to_string())?;
    let mut daemon = Daemon { child, _dir: dir };
    let in_force = || queues().iter().any(|queue| queue["dev"] == "u0" && queue["kind"] == "htb");
    let answers = || program(&state, &["guard", "status"]).status().is_ok_and(|status| status.success());
    let mut ended = false;
    poll_until("the guard is in force", || {
        ended = daemon.child.try_wait().is_ok_and(|status| status.is_some());
        ended || in_force() && answers()
    });
    if ended { Err("the daemon ended".to_owned()) } else { Ok(Held { note: None, daemon: Some(daemon) }) }
}

/// vmio, which keeps its state there.
fn program(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    command.env("VMIO_STATE", state).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn htb(bed: &Bed, scale: u64) -> Result<Held, String> {
    let rate = |mbit: u64| format!("{}mbit", mbit * scale);
    let mut lines = vec![
        "tc qdisc add dev u0 root handle 1: htb default 30".to_owned(),
        format!("tc class add dev u0 parent 1: classid 1:1 htb rate {} burst 15k", rate(UPLINK_MBIT)),
    ];
    for (number, guest) in (1..).zip(&bed.guests) {
        let (class, contract) = (number * 10, guest.contract);
        let (min, max) = (rate(contract.min_mbit), rate(contract.max_mbit));
        lines.push(format!("tc class add dev u0 parent 1:1 classid 1:{class} htb rate {min} ceil {max} burst 15k"));
        lines.push(format!(
            "tc filter add dev u0 protocol ip parent 1:0 prio 1 u32 match ip src {} flowid 1:{class}",
            guest.address
        ));
    }
    all(&lines).map(|()| Held::default())
}

fn tbf(bed: &Bed, scale: u64) -> Result<Held, String> {
    for (number, guest) in (1..).zip(&bed.guests) {
        let (device, rate) = (&guest.device, guest.contract.max_mbit * scale);
        all(&[
            format!("ip link add ifb{number} type ifb"),
            format!("ip link set ifb{number} up"),
            format!("tc qdisc add dev ifb{number} root handle 1: tbf rate {rate}mbit burst 128kb latency 25ms"),
            format!("tc qdisc add dev {device} handle ffff: ingress"),
            format!(
                "tc filter add dev {device} parent ffff: protocol all prio 1 u32 match u32 0 0 flowid 1:1 action \
                 mirred egress redirect dev ifb{number}"
            ),
        ])?;
    }
    Ok(Held::default())
}

/// The kernel's where it has one, else an eBPF program with the same bucket.
fn policer(bed: &Bed, scale: u64, burst: fn(u64) -> u64) -> Result<Held, String> {
    let mut note = None;
    for guest in &bed.guests {
        let (device, bits) = (&guest.device, guest.contract.max_mbit * 1_000_000 * scale);
        let bytes = burst(bits / 8);
        all(&[format!("tc qdisc add dev {device} clsact")])?;
        let filter = format!("tc filter add dev {device} ingress protocol all");
        let by_kernel =
            format!("{filter} u32 match u32 0 0 police rate {bits}bit burst {bytes}b mtu 64kb drop flowid :1");
        if !tried(&by_kernel).0 {
            note = Some("this kernel has no act_police: the same token bucket in eBPF (cls_bpf)".to_owned());
            let object = tempfile::tempdir().map_err(|e| e.to_string())?;
            let (source, built) = (object.path().join("bucket.c"), object.path().join("bucket.o"));
            fs::write(&source, include_str!("bucket.c")).map_err(|e| e.to_string())?;
            let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
            let done = Command::new(&clang)
                .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c"])
                .args([format!("-DRATE={}ull", bits / 8), format!("-DBURST={bytes}ull")])
                .arg(&source)
                .arg("-o")
                .arg(&built)
                .output();
            if !done.is_ok_and(|output| output.status.success()) {
                return Err(format!("this kernel has no act_police, and {clang} does not compile the program"));
            }
            all(&[format!("{filter} bpf direct-action obj {} sec classifier", built.display())])?;
        }
    }
    Ok(Held { note, daemon: None })
}

/// Nothing here sets departure times yet.
fn edt(_: &Bed, _: u64) -> Result<Held, String> {
    Err(match tried("tc qdisc add dev u0 root fq") {
        (true, _) => "this kernel has sch_fq, but the bench no program that sets departure times".to_owned(),
        (false, _) => "this kernel has no sch_fq".to_owned(),
    })
}

fn sender_max(bed: &Bed, scale: u64) -> Result<Held, String> {
    for guest in &bed.guests {
        let bits = guest.contract.max_mbit * 1_000_000 * scale;
        // The bucket; and as many full frames as an interface's queue has by default.
        let (burst, queue) = (bits / 8 / 10, bits / 8 / 10 + 1_500_000);
        let line = format!("tc qdisc add dev g0 root tbf rate {bits}bit burst {burst}b limit {queue}b");
        guest.namespace.inside(|| all(&[line]))?;
    }
    Ok(Held::default())
}
