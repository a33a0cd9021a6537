//! How the stand-in for `qm` starts a guest: options of QEMU in the form that Proxmox VE gives them
//! (qemu-server 8, `PVE/QemuServer.pm`, `config_to_command`), under emulation and stopped.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;

use super::monitor;
use super::qm::{Config, path_of, slot, socket};
use super::test_host::run;
use super::wrong::{Wrong, refused};

type Settings = BTreeMap<String, String>;

/// Stands for `-id VMID`, which Debian's QEMU does not know: as long, and harmless.
const LIKE_ID: &[u8] = b"-m\x0000064\0";

/// Parts of a value after the first.
fn parts(value: &str) -> BTreeMap<&str, &str> {
    value.split(',').skip(1).filter_map(|part| part.split_once('=')).collect()
}

pub fn options(vmid: &str, conf: &Settings) -> Result<Vec<String>, Wrong> {
    let get = |key: &str| conf.get(key).map(String::as_str);
    let number = |key: &str| get(key).and_then(|v| v.parse::<u32>().ok()).unwrap_or(1);
    let name = get("name").unwrap_or("vm");
    let machine = get("machine").unwrap_or("pc");
    let text = format!(
        "-m 00064 -name {name},debug-threads=on -S -display none -nodefaults -machine {machine},accel=tcg -cpu max \
         -smp {} -qmp unix:{},server=on,wait=off -pidfile /run/qemu-server/{vmid}.pid -daemonize",
        number("sockets") * number("cores"),
        socket(vmid).display()
    );
    let mut all: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let mut say = |option: &str, value: String| all.extend([option.to_owned(), value]);
    let hardware = get("scsihw").unwrap_or("lsi");
    let has = |bus: &str| conf.keys().any(|key| slot(key).is_some_and(|(b, _)| b == bus));
    if has("sata") {
        say("-device", "ahci,id=ahci0,multifunction=on".into());
    }
    if has("scsi") && hardware != "virtio-scsi-single" {
        say("-device", if hardware == "lsi" { "lsi,id=scsihw0".into() } else { format!("{hardware},id=scsihw0") });
    }
    for (key, value) in conf {
        let Some((bus, n)) = slot(key) else { continue };
        let settings = parts(value);
        if bus == "net" {
            card(vmid, key, value, &mut say)?;
            continue;
        }
        if !matches!(bus, "ide" | "sata" | "scsi" | "virtio") {
            continue;
        }
        let volume = value.split(',').next().unwrap_or_default();
        let file = path_of(volume).ok_or_else(|| refused(format!("no such volume: {volume}")))?;
        let format = if file.ends_with(".qcow2") { "qcow2" } else { "raw" };
        let cache = settings.get("cache").unwrap_or(&"none");
        let mut drive = format!(
            "file={file},if=none,id=drive-{key},format={format},cache={cache},aio={}",
            settings.get("aio").unwrap_or(&"io_uring")
        );
        for (name, value) in &settings {
            match *name {
                "discard" => drive.push_str(&format!(",discard={}", if *value == "on" { "on" } else { "ignore" })),
                "snapshot" if *value == "1" => drive.push_str(",snapshot=on"),
                "iops" => drive.push_str(&format!(",throttling.iops-total={value}")),
                "mbps" => drive.push_str(&format!(
                    ",throttling.bps-total={}",
                    value.parse::<f64>().unwrap_or(0.0) as u64 * (1 << 20)
                )),
                _ => {}
            }
        }
        say(
            "-drive",
            format!("{drive},detect-zeroes={}", if settings.get("discard") == Some(&"on") { "unmap" } else { "on" }),
        );
        let thread = settings.get("iothread") == Some(&"1");
        let mut more = String::new();
        match bus {
            "virtio" => {
                if thread {
                    say("-object", format!("iothread,id=iothread-{key}"));
                    more = format!(",iothread=iothread-{key}");
                }
                say("-device", format!("virtio-blk-pci,drive=drive-{key},id={key}{more}"));
            }
            "scsi" => {
                let hba = if hardware == "virtio-scsi-single" {
                    if thread {
                        say("-object", format!("iothread,id=iothread-virtioscsi{n}"));
                        more = format!(",iothread=iothread-virtioscsi{n}");
                    }
                    let queues = settings.get("queues").map(|q| format!(",num_queues={q}")).unwrap_or_default();
                    say("-device", format!("virtio-scsi-pci,id=virtioscsi{n}{more}{queues}"));
                    format!("virtioscsi{n}")
                } else {
                    "scsihw0".to_owned()
                };
                say("-device", format!("scsi-hd,bus={hba}.0,scsi-id={n},drive=drive-{key},id={key}"));
            }
            "sata" => say("-device", format!("ide-hd,bus=ahci0.{n},drive=drive-{key},id={key}")),
            _ => say("-device", format!("ide-hd,bus=ide.{},unit={},drive=drive-{key},id={key}", n / 2, n % 2)),
        }
    }
    all.extend(get("args").unwrap_or_default().split_whitespace().map(str::to_owned));
    Ok(all)
}

fn card(vmid: &str, key: &str, value: &str, say: &mut dyn FnMut(&str, String)) -> Result<(), Wrong> {
    let first = value.split(',').next().and_then(|first| first.split_once('='));
    let (model, mac) = first.ok_or_else(|| refused("a card without an address"))?;
    let settings = parts(value);
    let device = if model == "virtio" { "virtio-net-pci" } else { model };
    let mut more = String::new();
    if let Some(bridge) = settings.get("bridge") {
        let tap = format!("tap{vmid}i{}", key.trim_start_matches("net"));
        let own = |file: &str| {
            fs::read_to_string(format!("/sys/class/net/{bridge}/{file}"))
                .map_err(|_| refused(format!("bridge '{bridge}' does not exist")))
        };
        let mtu = own("mtu")?.trim().to_owned();
        // PVE/QemuServer.pm, print_netdevice_full: without `mtu` or with 1 it is the bridge's.
        let asked = settings.get("mtu").filter(|m| **m != "1").map_or(mtu.as_str(), |m| m).to_owned();
        let _ = run("ip", &["link", "del", &tap]);
        let queues = settings.get("queues").and_then(|n| n.parse::<u32>().ok()).filter(|n| *n > 1);
        let kind: &[&str] = if queues.is_some() { &["multi_queue"] } else { &[] };
        run("ip", &[&["tuntap", "add", &tap, "mode", "tap"][..], kind].concat())?;
        run("ip", &["link", "set", &tap, "mtu", &mtu])?;
        run("ip", &["link", "set", &tap, "master", bridge])?;
        let many = queues.map(|n| format!(",queues={n}")).unwrap_or_default();
        say("-netdev", format!("type=tap,id={key},ifname={tap},script=no,downscript=no{many}"));
        more.extend(queues.map(|n| format!(",mq=on,vectors={}", 2 * n + 2)));
        if model == "virtio" && asked != "1500" {
            more.push_str(&format!(",host_mtu={asked}"));
        }
    } else {
        say("-netdev", format!("type=user,id={key}"));
    }
    say("-device", format!("{device},mac={mac},netdev={key},id={key}{more}"));
    Ok(())
}

pub fn start(vmid: &str, conf: &Settings) -> Result<String, Wrong> {
    let mut words = options(vmid, conf)?;
    let cpus = conf.get("affinity").cloned();
    let mut program = "qemu-system-x86_64".to_owned();
    if let Some(cpus) = cpus {
        words.splice(0..0, ["-c".to_owned(), cpus, program]);
        program = "taskset".into();
    }
    run(&program, &words.iter().map(String::as_str).collect::<Vec<&str>>())
        .map_err(|e| refused(format!("start failed: {e}")))?;
    bear_its_number(vmid)?;
    limit(vmid, conf)?;
    Ok(String::new())
}

/// Writes `-id VMID` into the command line of the process, where vmio knows a guest of Proxmox's by it.
fn bear_its_number(vmid: &str) -> Result<(), Wrong> {
    let pid = fs::read_to_string(format!("/run/qemu-server/{vmid}.pid"))?;
    let pid = pid.trim();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // proc(5): field 48 is arg_start; the second field may hold spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let begin: u64 = fields.clone().nth(45).and_then(|f| f.parse().ok()).ok_or_else(|| refused("no arg_start"))?;
    let line = fs::read(format!("/proc/{pid}/cmdline"))?;
    let at =
        line.windows(LIKE_ID.len()).position(|w| w == LIKE_ID).ok_or_else(|| refused("no place for the number"))?;
    let number = format!("-id\0{vmid}\0");
    assert_eq!(number.len(), LIKE_ID.len(), "numbers of four digits");
    let memory = fs::File::options().write(true).open(format!("/proc/{pid}/mem"))?;
    Ok(memory.write_all_at(number.as_bytes(), begin + at as u64)?)
}

pub fn stop(vmid: &str) -> Result<String, Wrong> {
    // QEMU takes the file away at its end.
    let pid = fs::read_to_string(format!("/run/qemu-server/{vmid}.pid"))?;
    let _ = monitor::ask(&socket(vmid), "{\"execute\": \"quit\"}");
    vmio_testbed::poll_until("a guest's end", || {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        state.is_empty() || state.contains(") Z")
    });
    let _ = fs::remove_file(format!("/run/qemu-server/{vmid}.pid"));
    let _ = fs::remove_dir(super::test_host::group(&format!("qm{vmid}")));
    Ok(String::new())
}

/// What is set in a running guest at once: limits of a disk (`vmconfig_update_disk`), the quota (`cpulimit`).
pub fn at_once(vmid: &str, config: &Config, key: &str, value: &str) -> Result<bool, Wrong> {
    if key == "cpulimit" {
        limit(vmid, &Settings::from([(key.to_owned(), value.to_owned())]))?;
        return Ok(true);
    }
    let Some(old) = config.now.get(key) else { return Ok(false) };
    if matches!(slot(key), Some(("net", _))) {
        // PVE/QemuServer.pm, vmconfig_update_net: a rate alone is set on the tap as it is.
        let rest =
            |value: &str| value.split(',').filter(|p| !p.starts_with("rate=")).map(str::to_owned).collect::<Vec<_>>();
        return Ok(rest(old) == rest(value));
    }
    let limits = |name: &str| name.starts_with("mbps") || name.starts_with("iops");
    let rest = |value: &str| value.split(',').filter(|part| !limits(part)).map(str::to_owned).collect::<Vec<String>>();
    if !matches!(slot(key), Some(("scsi" | "virtio" | "sata" | "ide", _))) || rest(old) != rest(value) {
        return Ok(false);
    }
    let settings = parts(value);
    let of = |name: &str| settings.get(name).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    let arguments = json!({"device": format!("drive-{key}"), "bps": of("mbps") << 20, "bps_rd": of("mbps_rd") << 20, "bps_wr": of("mbps_wr") << 20, "iops": of("iops"), "iops_rd": of("iops_rd"), "iops_wr": of("iops_wr")});
    monitor::ask(&socket(vmid), &json!({"execute": "block_set_io_throttle", "arguments": arguments}).to_string())?;
    Ok(true)
}

/// The quota of the guest's control group.
fn limit(vmid: &str, conf: &Settings) -> Result<(), Wrong> {
    let Some(cpus) = conf.get("cpulimit").and_then(|n| n.parse::<f64>().ok()) else { return Ok(()) };
    let group = super::test_host::group(&format!("qm{vmid}"));
    fs::create_dir_all(&group)?;
    let quota = if cpus > 0.0 { ((cpus * 100_000.0) as u64).to_string() } else { "-1".to_owned() };
    let v1 = group.join("cpu.cfs_quota_us");
    let (file, text) = if v1.exists() {
        (v1, quota)
    } else {
        (group.join("cpu.max"), format!("{} 100000", quota.replace("-1", "max")))
    };
    fs::write(file, text)?;
    let pid = fs::read_to_string(Path::new("/run/qemu-server").join(format!("{vmid}.pid")))?;
    Ok(fs::write(group.join("cgroup.procs"), pid.trim())?)
}
