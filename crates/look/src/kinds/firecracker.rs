//! Running Firecracker guests: the configuration file where there is one (docs/getting-started.md of Firecracker,
//! "configuration file"; fields as in its `firecracker.yaml`), threads and taps by /proc. Its API socket is not
//! queried.

use serde::Deserialize;
use vmio_model::facts::{FIRECRACKER, Guest, RateLimit, Unread};
use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;
use vmio_model::result::Accel;

use super::process::Process;
use super::{GuestKind, host_cpus, seen};
use crate::Managed;
use crate::host_view::HostView;
use crate::neighbours::Kind;
use crate::require::Fix;

/// Entry `firecracker`.
pub struct Firecracker;

impl GuestKind for Firecracker {
    fn name(&self) -> &'static str {
        vmio_model::cell::Kind::FIRECRACKER.name
    }
    fn about(&self) -> &'static str {
        "a running Firecracker guest (read only)"
    }
    fn running(&self, host: &HostView<'_>) -> Managed {
        seen::guests(host, Kind::Firecracker, guest)
    }
}

/// The fields of a configuration that are used.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Config {
    drives: Vec<Drive>,
    machine_config: Machine,
    network_interfaces: Vec<Interface>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Drive {
    drive_id: String,
    path_on_host: Option<String>,
    is_read_only: bool,
    cache_type: Option<String>,
    io_engine: Option<String>,
    socket: Option<String>,
    rate_limiter: Option<Limiter>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Machine {
    vcpu_count: Option<u32>,
    mem_size_mib: Option<u64>,
    huge_pages: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Interface {
    iface_id: String,
    host_dev_name: Option<String>,
    guest_mac: Option<String>,
    rx_rate_limiter: Option<Limiter>,
    tx_rate_limiter: Option<Limiter>,
}

/// A token bucket: `size` tokens are added every `refill_time` milliseconds.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Limiter {
    bandwidth: Option<Bucket>,
    ops: Option<Bucket>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Bucket {
    size: u64,
    refill_time: u64,
    one_time_burst: Option<u64>,
}

impl Bucket {
    /// What is added in a second; `None` for no limit.
    fn rate(&self) -> Option<u64> {
        (self.size > 0 && self.refill_time > 0).then(|| self.size.saturating_mul(1000) / self.refill_time)
    }
}

impl Limiter {
    /// The same of a network card, where it has one of bytes: excess stays in the guest, or at its tap.
    fn of_card(&self, direction: Direction) -> Option<RateLimit> {
        let bucket = self.bandwidth.as_ref()?;
        let rate = ByteRate::new(bucket.rate()?).bits();
        let burst_bytes = Some(bucket.size.saturating_add(bucket.one_time_burst.unwrap_or(0)));
        Some(RateLimit { burst_bytes, ..RateLimit::new(FIRECRACKER, direction, rate, false) })
    }

    fn shown(&self) -> Vec<String> {
        let rate = |bucket: &Option<Bucket>, unit: &str| {
            let rate = bucket.as_ref()?.rate()?;
            Some(format!("{rate} {unit} by Firecracker's rate limiter"))
        };
        [rate(&self.ops, "IOPS"), rate(&self.bandwidth, "bytes/s")].into_iter().flatten().collect()
    }
}

fn guest(host: &HostView<'_>, pid: u32, args: &[String]) -> Option<Guest> {
    let one = |option: &str| seen::values(args, option).first().map(|v| (*v).to_owned());
    if ["version", "help", "snapshot-version"].iter().any(|o| args.iter().any(|a| a.strip_prefix("--") == Some(o))) {
        return None;
    }
    let mut process = Process::new(host, pid, &[]);
    if let Some(id) = one("id") {
        process.name = id;
    }
    let mut guest = seen::guest(&process, Firecracker.name());
    let role = |name: &str| Some(("vcpu", name.strip_prefix("fc_vcpu ")?.to_owned()));
    let cpus = host_cpus(host.reader());
    let mut own = seen::processors(&process, &cpus, seen::threads(&process, role));
    let vcpus = own.threads.iter().filter(|t| t.role == "vcpu").count();
    own.vcpus = u32::try_from(vcpus).ok().filter(|n| *n > 0).into();
    own.accel = Some(Accel::Kvm).into(); // it has no other
    match one("config-file").map(|path| (seen::file(&process, &path), path)) {
        Some((at, path)) => {
            let text = host.reader().read_foreign_text(&at).map_err(|e| (e.to_string(), Fix::Root));
            let read = text.and_then(|t| {
                let broken = |e: serde_json::Error| (format!("it cannot be parsed: {e}"), Fix::Do("report this"));
                serde_json::from_str::<Config>(&t).map_err(broken)
            });
            match read {
                Ok(config) => {
                    if let Some(mib) = config.machine_config.mem_size_mib {
                        own.memory_bytes = Some(mib << 20).into();
                    }
                    own.huge_pages = config.machine_config.huge_pages.as_deref().map(|p| p != "None").into();
                    own.vcpus = own.vcpus.or(config.machine_config.vcpu_count).into();
                    devices(&process, &mut guest, &config, &path, *own.vcpus);
                }
                Err((why, fix)) => {
                    let (what, mend) = (format!("configuration {path}"), fix.remedy(host.reader()));
                    guest.unread.push(Unread { what, why, mend });
                }
            }
        }
        None => {
            let socket = one("api-sock").unwrap_or_else(|| "/run/firecracker.socket".into());
            guest.unread.push(Unread {
                what: format!("disks and network devices of guest {}", process.name),
                why: "they were set through its API, and vmio queries no API socket".into(),
                mend: format!("curl --unix-socket {socket} http://localhost/vm/config").into(),
            });
        }
    }
    guest.processors = Some(own);
    process.runs().then_some(guest)
}

fn devices(process: &Process<'_>, guest: &mut Guest, config: &Config, path: &str, vcpus: Option<u32>) {
    let from = format!("{path} (--config-file)");
    // A read-only drive has no writes to lose or wait for: like a CD-ROM, it is left out.
    for drive in config.drives.iter().filter(|d| !d.is_read_only) {
        let mut disk = seen::disk(process, &drive.drive_id, &from);
        disk.driver = "virtio-blk".into();
        disk.details.queues = Some(1).into();
        if drive.socket.is_some() {
            disk.details.storage = "vhost-user".into();
            disk.place.source = drive.socket.clone().into();
        } else {
            disk.place.source = drive.path_on_host.clone().into();
            disk.details.format = "raw".into();
            // By default the guest is not offered flushes.
            let unsafe_cache = drive.cache_type.as_deref() != Some("Writeback");
            disk.cache = Some((if unsafe_cache { "unsafe" } else { "writeback" }).into()).into();
            let asynchronous = drive.io_engine.as_deref() == Some("Async");
            disk.aio = Some((if asynchronous { "io_uring" } else { "sync" }).into()).into();
        }
        disk.details.limits = drive.rate_limiter.iter().flat_map(Limiter::shown).collect();
        guest.disks.push(disk);
    }
    for interface in &config.network_interfaces {
        let tap = interface.host_dev_name.as_deref();
        let mut nic = seen::nic(process, &interface.iface_id, tap, &from, &mut guest.unread);
        nic.model = "virtio-net".into();
        nic.backend = "tap".into();
        (nic.vhost, nic.queues, nic.vcpus) = (Some(false).into(), Some(1).into(), vcpus.into());
        let limits = [
            interface.rx_rate_limiter.as_ref().and_then(|limiter| limiter.of_card(Direction::GuestRx)),
            interface.tx_rate_limiter.as_ref().and_then(|limiter| limiter.of_card(Direction::GuestTx)),
        ];
        nic.rate_limits = limits.into_iter().flatten().collect();
        nic.place.target = interface.guest_mac.as_deref().map(str::to_lowercase);
        guest.nics.push(nic);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    const CONFIG: &str = r#"{
        "boot-source": {"kernel_image_path": "vmlinux"},
        "drives": [
            {"drive_id": "rootfs", "path_on_host": "/rootfs.ext4", "is_root_device": true, "is_read_only": false,
             "cache_type": "Unsafe", "io_engine": "Sync",
             "rate_limiter": {"bandwidth": {"size": 1048576, "refill_time": 100}, "ops": {"size": 50, "refill_time": 1000}}},
            {"drive_id": "data", "path_on_host": "/data.raw", "is_root_device": false, "cache_type": "Writeback", "io_engine": "Async"},
            {"drive_id": "tools", "path_on_host": "/tools.squashfs", "is_root_device": false, "is_read_only": true}
        ],
        "machine-config": {"vcpu_count": 2, "mem_size_mib": 256, "smt": false, "huge_pages": "2M"},
        "network-interfaces": [{"iface_id": "eth0", "guest_mac": "AA:FC:00:00:00:01", "host_dev_name": "tap7",
            "tx_rate_limiter": {"bandwidth": {"size": 1250000, "refill_time": 100, "one_time_burst": 5000}}}]
    }"#;

    fn process(args: &[&str]) -> Fake {
        Fake::new("fake")
            .file("/proc/40/comm", "firecracker\n")
            .file("/proc/40/cmdline", args.join("\0") + "\0")
            .file("/proc/40/task/40/status", "Name:\tfirecracker\nCpus_allowed_list:\t0-3\n")
            .file("/proc/40/task/41/status", "Name:\tfc_api\nCpus_allowed_list:\t0-3\n")
            .file("/proc/40/task/42/status", "Name:\tfc_vcpu 0\nCpus_allowed_list:\t2\n")
            .file("/sys/class/net/tap7/mtu", "1500\n")
            .symlink("/sys/class/net/tap7/master", "../../br0")
            .file("/sys/class/net/br0/mtu", "1500\n")
    }

    fn guests(fake: &Fake) -> Vec<Guest> {
        Firecracker.running(&HostView::new(fake)).guests
    }

    #[test]
    fn a_configuration_file_says_all() {
        // In a jail paths count from the jail's root.
        let fake = process(&["/usr/bin/firecracker", "--id", "fc1", "--config-file", "/vm.json", "--no-api"])
            .file("/proc/40/root/vm.json", CONFIG);
        let [guest] = &guests(&fake)[..] else { panic!("one guest") };
        assert_eq!((guest.name.as_str(), guest.kind.as_str(), &guest.unread[..]), ("fc1", "firecracker", &[][..]));
        let [root, data] = &guest.disks[..] else { panic!("two disks") };
        assert_eq!((root.cache.as_deref(), root.aio.as_deref()), (Some("unsafe"), Some("sync")));
        assert_eq!((data.cache.as_deref(), data.aio.as_deref()), (Some("writeback"), Some("io_uring")));
        assert_eq!(root.place.source.as_deref(), Some("/rootfs.ext4"));
        let limits = ["50 IOPS by Firecracker's rate limiter", "10485760 bytes/s by Firecracker's rate limiter"];
        assert_eq!(*root.details.limits, limits);
        let nic = &guest.nics[0];
        assert_eq!((nic.interface.as_deref(), nic.bridge.as_deref()), (Some("tap7"), Some("br0")));
        let [sent] = &nic.rate_limits[..] else { panic!("{nic:?}") };
        assert_eq!(sent.words(), "100 Mbit/s from the guest by Firecracker's rate limiter");
        assert_eq!(sent.burst_bytes, Some(1_255_000));
        let own = guest.processors.as_ref().unwrap();
        assert_eq!((*own.vcpus, *own.memory_bytes, *own.huge_pages), (Some(1), Some(256 << 20), Some(true)));
        assert_eq!(own.threads.iter().find(|t| t.role == "vcpu").unwrap().cpus, [2]);
    }

    #[test]
    fn what_the_api_or_a_broken_file_hides_is_told() {
        let api = guests(&process(&["firecracker", "--api-sock", "/run/fc.sock"]));
        assert!(api[0].unread[0].mend.contains("/run/fc.sock http://localhost/vm/config"), "{:?}", api[0].unread);
        assert_eq!(api[0].name, "pid 40");
        let args = ["firecracker", "--config-file", "/vm.json"];
        assert!(guests(&process(&args))[0].unread[0].what.contains("configuration /vm.json"));
        let broken = process(&args).file("/proc/40/root/vm.json", "{\"drives\": 3}");
        assert!(guests(&broken)[0].unread[0].why.contains("cannot be parsed"));
        assert_eq!(guests(&process(&["firecracker", "--version"])), []);
    }
}
