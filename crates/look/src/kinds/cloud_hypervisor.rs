//! Running Cloud Hypervisor guests, by their command lines (its docs: device_model.md, cpu.md, memory.md) and /proc.
//! Devices added through its API are not visible.

use vmio_model::cell::Aio;
use vmio_model::facts::{CLOUD_HYPERVISOR, Fact, Guest, RateLimit, Unread};
use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;
use vmio_model::result::Accel;

use super::process::Process;
use super::{GuestKind, host_cpus, seen};
use crate::Managed;
use crate::host_view::HostView;
use crate::neighbours::Kind;
use crate::qemu::options::size;
use crate::qemu::rings::Rings;

/// Entry `cloud-hypervisor`.
pub struct CloudHypervisor;

impl GuestKind for CloudHypervisor {
    fn name(&self) -> &'static str {
        vmio_model::cell::Kind::CLOUD_HYPERVISOR.name
    }
    fn about(&self) -> &'static str {
        "a running Cloud Hypervisor guest (read only)"
    }
    fn running(&self, host: &HostView<'_>) -> Managed {
        seen::guests(host, Kind::CloudHypervisor, guest)
    }
}

/// `key=value,…` of an option; commas in brackets or quotes belong to the value.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    fn of(text: &'a str) -> Self {
        let (mut depth, mut quoted) = (0u32, false);
        let parts = text.split(|c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                '"' => quoted = !quoted,
                _ => {}
            }
            c == ',' && depth == 0 && !quoted
        });
        Self(parts.filter_map(|p| p.split_once('=')).collect())
    }
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }
    fn on(&self, key: &str) -> bool {
        matches!(self.get(key), Some("on" | "true"))
    }
    /// What a limiter adds to its bucket in a second; `None` for no limit.
    fn rate(&self, name: &str) -> Option<u64> {
        let tokens: u64 = self.get(&format!("{name}_size"))?.parse().ok()?;
        let milliseconds: u64 = self.get(&format!("{name}_refill_time"))?.parse().ok().filter(|t| *t > 0)?;
        Some(tokens.saturating_mul(1000) / milliseconds).filter(|rate| *rate > 0)
    }
    fn number(&self, key: &str) -> Option<u32> {
        self.get(key)?.parse().ok()
    }
}

fn guest(host: &HostView<'_>, pid: u32, args: &[String]) -> Option<Guest> {
    if args.iter().any(|a| ["--version", "--help", "-V", "-h"].contains(&a.as_str())) {
        return None;
    }
    let process = Process::new(host, pid, &[]);
    let mut guest = seen::guest(&process, CloudHypervisor.name());
    let said = |option: &str| format!("/proc/{pid}/cmdline, --{option}");
    let one = |option: &str| Keys::of(seen::values(args, option).first().copied().unwrap_or_default());
    let role = |name: &str| {
        let vcpu = name.strip_prefix("vcpu").filter(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
        let worker = || ["_disk", "_net"].iter().any(|d| name.starts_with(d)).then(|| ("worker", name.to_owned()));
        vcpu.map(|n| ("vcpu", n.to_owned())).or_else(worker)
    };
    let mut own = seen::processors(&process, &host_cpus(host.reader()), seen::threads(&process, role));
    own.accel = Some(Accel::Kvm).into();
    own.vcpus = Fact::read(one("cpus").number("boot").or(Some(1)), said("cpus"));
    let memory = one("memory");
    let bytes = memory.get("size").and_then(|s| size(s, 1)).or(Some(512 << 20));
    own.memory_bytes = Fact::read(bytes, said("memory"));
    own.huge_pages = Fact::read(Some(memory.on("hugepages")), said("memory"));
    let vcpus = *own.vcpus;
    guest.processors = Some(own);

    let rings = Rings::of(host.reader(), pid);
    for (i, text) in seen::values(args, "disk").into_iter().enumerate() {
        let keys = Keys::of(text);
        if keys.on("readonly") {
            continue; // what is only read is no disk here, as with CD-ROMs
        }
        let id = keys.get("id").map_or_else(|| format!("_disk{i}"), str::to_owned);
        let mut disk = seen::disk(&process, &id, &said("disk"));
        disk.driver = "virtio-blk".into();
        disk.details.queues = keys.number("num_queues").or(Some(1)).into();
        if keys.on("vhost_user") {
            disk.details.storage = "vhost-user".into();
            disk.place.source = keys.get("socket").or(keys.get("vhost_socket")).map(str::to_owned).into();
        } else {
            disk.place.source = keys.get("path").map(str::to_owned).into();
            disk.cache = (if keys.on("direct") { "none" } else { "writeback" }).into();
            // It uses io_uring where the kernel permits it, and does not report that.
            let engine = rings.engine(Aio::IoUring, 1).to_string();
            disk.aio = Fact::read(Some(engine), format!("rings of process {pid}"));
        }
        let limit = |name: &str, unit: &str| {
            let rate = keys.rate(name)?;
            Some(format!("{rate} {unit} by Cloud Hypervisor's rate limiter"))
        };
        disk.details.limits = [limit("ops", "IOPS"), limit("bw", "bytes/s")].into_iter().flatten().collect();
        guest.disks.push(disk);
    }
    for (i, text) in seen::values(args, "net").into_iter().enumerate() {
        let keys = Keys::of(text);
        let id = keys.get("id").map_or_else(|| format!("_net{i}"), str::to_owned);
        let tap = keys.get("tap").filter(|t| !t.is_empty());
        let mut nic = seen::nic(&process, &id, tap, &said("net"), &mut guest.unread);
        nic.model = "virtio-net".into();
        nic.backend = (if keys.on("vhost_user") { "vhost-user" } else { "tap" }).into();
        // Queues are counted one by one; a pair receives and sends.
        nic.queues = keys.number("num_queues").map(|n| (n / 2).max(1)).or(Some(1)).into();
        (nic.vhost, nic.vcpus) = (Some(false).into(), vcpus.into());
        nic.place.target = keys.get("mac").map(str::to_lowercase);
        // One bucket for each direction (its vmm/src/config.rs, `NetConfig`; net_util/src/queue_pair.rs).
        let limit = |direction| {
            let rate = ByteRate::new(keys.rate("bw")?).bits();
            let parse = |key: &str| keys.get(key).and_then(|bytes| bytes.parse::<u64>().ok());
            let burst = parse("bw_size").map(|size| size.saturating_add(parse("bw_one_time_burst").unwrap_or(0)));
            Some(RateLimit { burst_bytes: burst, ..RateLimit::new(CLOUD_HYPERVISOR, direction, rate, false) })
        };
        nic.rate_limits = [Direction::GuestRx, Direction::GuestTx].into_iter().filter_map(limit).collect();
        guest.nics.push(nic);
    }
    if seen::values(args, "disk").is_empty() {
        let socket = seen::values(args, "api-socket").first().map_or("SOCKET", |s| s.trim_start_matches("path="));
        guest.unread.push(Unread {
            what: format!("disks of guest {}", process.name),
            why: "the command line names none; they may have been set through the API, which vmio does not query"
                .into(),
            mend: format!("ch-remote --api-socket {socket} info").into(),
        });
    }
    process.runs().then_some(guest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    fn process(args: &[&str]) -> Fake {
        Fake::new("fake")
            .file("/proc/50/comm", "cloud-hyperviso\n")
            .file("/proc/50/cmdline", args.join("\0") + "\0")
            .file("/proc/50/task/50/status", "Name:\tcloud-hyperviso\nCpus_allowed_list:\t0-3\n")
            .file("/proc/50/task/51/status", "Name:\tvcpu0\nCpus_allowed_list:\t1\n")
            .file("/proc/50/task/52/status", "Name:\t_disk0_q0\nCpus_allowed_list:\t0-3\n")
            .file("/proc/50/fdinfo/9", "pos:\t0\nSqMask:\t0x7f\nCqMask:\t0xff\n")
    }

    #[test]
    fn a_command_line_says_all() {
        let fake = process(&[
            "cloud-hypervisor",
            "--cpus",
            "boot=4,affinity=[0@[1,2],1@[3]]",
            "--memory",
            "size=1G,hugepages=on",
            "--disk",
            "path=/a.raw,num_queues=2,queue_size=128,direct=on,ops_size=100,ops_refill_time=500",
            "path=/b.raw",
            "path=/tools.iso,readonly=on",
            "--net",
            "tap=ch0,mac=AA:BB:CC:00:11:22,num_queues=4,bw_size=1250000,bw_refill_time=100",
        ]);
        let guests = CloudHypervisor.running(&HostView::new(&fake)).guests;
        let [guest] = &guests[..] else { panic!("one guest") };
        let [a, b] = &guest.disks[..] else { panic!("two disks") };
        assert_eq!(
            (a.cache.as_deref(), *a.details.queues, a.aio.as_deref()),
            (Some("none"), Some(2), Some("io_uring"))
        );
        assert_eq!(*a.details.limits, ["200 IOPS by Cloud Hypervisor's rate limiter"]);
        assert_eq!((b.cache.as_deref(), *b.details.queues), (Some("writeback"), Some(1)));
        let own = guest.processors.as_ref().unwrap();
        assert_eq!((*own.vcpus, *own.memory_bytes, *own.huge_pages), (Some(4), Some(1 << 30), Some(true)));
        let roles: Vec<&str> = own.threads.iter().map(|t| t.role.as_str()).collect();
        assert_eq!(roles, ["main", "vcpu", "worker"]);
        let nic = &guest.nics[0];
        assert_eq!((*nic.queues, nic.interface.as_deref()), (Some(2), Some("ch0")));
        let limits: Vec<String> = nic.rate_limits.iter().map(|limit| limit.words()).collect();
        let ways = ["to", "from"].map(|way| format!("100 Mbit/s {way} the guest by Cloud Hypervisor's rate limiter"));
        assert_eq!(limits, ways);
        // The tap does not exist on this host.
        assert_eq!(guest.unread.len(), 1);
    }

    #[test]
    fn a_guest_made_through_the_api_says_how_to_ask() {
        let fake = process(&["/usr/bin/cloud-hypervisor", "--api-socket", "path=/run/ch.sock"]);
        let guests = CloudHypervisor.running(&HostView::new(&fake)).guests;
        assert!(guests[0].unread[0].mend.ends_with("--api-socket /run/ch.sock info"), "{:?}", guests[0].unread);
    }
}
