//! A stand-in for Proxmox VE's `qm` and `pvesm`, as far as printed commands use them. It keeps a guest's file as the
//! real one does and refuses what that refuses; each refusal names the place in qemu-server's source (9.2,
//! folder `src/PVE`) that it is taken after. What the real one makes of a guest is not claimed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::qm_start;
use super::test_host::{IMAGES, run};
use super::wrong::{Wrong, refused};

type Settings = BTreeMap<String, String>;

/// A guest's file: what it was started with, and what waits for its next start.
#[derive(Default)]
pub struct Config {
    pub now: Settings,
    pub pending: Settings,
}

pub fn config_path(vmid: &str) -> PathBuf {
    Path::new("/etc/pve/qemu-server").join(format!("{vmid}.conf"))
}

pub fn socket(vmid: &str) -> PathBuf {
    Path::new("/run/qemu-server").join(format!("{vmid}.qmp"))
}

/// The guest's text with volumes made: `{volume}` is a raw one, `{qcow2-volume}` a qcow2 image.
pub fn with_volumes(text: &str, vmid: &str) -> String {
    let mut text = text.to_owned();
    for key in ["{volume}", "{holes}", "{qcow2-volume}", "{small}", "{chain-volume}"] {
        let format = if matches!(key, "{volume}" | "{holes}") { "raw" } else { "qcow2" };
        if !text.contains(key) {
            continue;
        }
        let volume = format!("local:{vmid}/vm-{vmid}-disk-0.{format}");
        let path = path_of(&volume).unwrap();
        match key {
            "{volume}" => fs::write(&path, vec![0x5a; 1 << 20]).unwrap(),
            "{holes}" => fs::File::create(&path).unwrap().set_len(2 << 30).unwrap(),
            "{small}" => drop(run("qemu-img", &["create", "-q", "-f", format, &path, "512G"]).unwrap()),
            "{chain-volume}" => {
                let mut below: Option<String> = None;
                for path in [format!("{path}.base"), format!("{path}.middle"), path] {
                    let of = below.as_deref().map_or(Vec::new(), |below| vec!["-F", "qcow2", "-b", below]);
                    run("qemu-img", &[&["create", "-q", "-f", format][..], &of, &[&path, "64M"]].concat()).unwrap();
                    below = Some(path);
                }
            }
            _ => drop(run("qemu-img", &["create", "-q", "-f", format, &path, "64M"]).unwrap()),
        }
        text = text.replace(key, &volume);
    }
    text
}

/// Where a volume of a directory lies.
pub fn path_of(volume: &str) -> Option<String> {
    match volume.split_once(':') {
        Some((storage @ ("local" | "other"), name)) => Some(format!("{IMAGES}/{storage}/images/{name}")),
        None if volume.starts_with('/') => Some(volume.to_owned()),
        _ => None,
    }
}

impl Config {
    pub fn read(vmid: &str) -> Result<Config, Wrong> {
        // PVE/AbstractConfig.pm, load_config
        let text = fs::read_to_string(config_path(vmid))
            .map_err(|_| refused(format!("Configuration file 'nodes/pve/qemu-server/{vmid}.conf' does not exist")))?;
        let mut config = Config::default();
        let mut pending = false;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line == "[PENDING]" {
                pending = true;
            } else if let Some((key, value)) = line.split_once(": ") {
                let of = if pending { &mut config.pending } else { &mut config.now };
                of.insert(key.to_owned(), value.trim().to_owned());
            }
        }
        Ok(config)
    }

    fn write(&self, vmid: &str) -> Result<(), Wrong> {
        let lines = |of: &Settings| of.iter().map(|(k, v)| format!("{k}: {v}\n")).collect::<String>();
        let pending =
            if self.pending.is_empty() { String::new() } else { format!("\n[PENDING]\n{}", lines(&self.pending)) };
        Ok(fs::write(config_path(vmid), lines(&self.now) + &pending)?)
    }

    /// As it would be started.
    fn next(&self) -> Settings {
        let mut next = self.now.clone();
        let mut pending = self.pending.clone();
        for key in pending.remove("delete").unwrap_or_default().split(',') {
            next.remove(key);
        }
        next.extend(pending);
        next
    }
}

/// The program: what it does under the name of `qm` or `pvesm`.
pub fn main(program: &str, args: &[String]) -> i32 {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = if program == "pvesm" { storage(&args) } else { guest(&args) };
    match done {
        Ok(said) => {
            print!("{said}");
            0
        }
        Err(e) => {
            eprintln!("{e}");
            255
        }
    }
}

fn guest(args: &[&str]) -> Result<String, Wrong> {
    match args {
        ["config", vmid] => Ok(Config::read(vmid)?.next().iter().map(|(k, v)| format!("{k}: {v}\n")).collect()),
        ["pending", vmid] => {
            let config = Config::read(vmid)?;
            let cur = config.now.iter().map(|(k, v)| format!("cur {k}: {v}\n"));
            Ok(cur.chain(config.pending.iter().map(|(k, v)| format!("new {k}: {v}\n"))).collect())
        }
        ["status", vmid] => Ok(format!("status: {}\n", if runs(vmid) { "running" } else { "stopped" })),
        ["showcmd", vmid] | ["showcmd", vmid, "--pretty"] => {
            Ok(qm_start::options(vmid, &Config::read(vmid)?.next())?.join(" ") + "\n")
        }
        ["start", vmid] => {
            // PVE/QemuServer.pm, vm_start_nolock
            if runs(vmid) {
                return Err(refused(format!("VM {vmid} already running")));
            }
            let config = Config::read(vmid)?;
            let config = Config { now: config.next(), pending: Settings::new() };
            config.write(vmid)?;
            qm_start::start(vmid, &config.now)
        }
        // A guest without a system does not hear of it: what it would do is done for it.
        ["stop" | "shutdown", vmid] => {
            Config::read(vmid)?;
            if runs(vmid) { qm_start::stop(vmid) } else { Ok(format!("VM {vmid} not running\n")) }
        }
        ["set", vmid, options @ ..] => set(vmid, options),
        ["disk", "move", vmid, slot, to, rest @ ..] => move_disk(vmid, slot, to, rest),
        _ => Err(refused(format!("ERROR: unknown command 'qm {}'", args.join(" ")))),
    }
}

fn runs(vmid: &str) -> bool {
    let pid = fs::read_to_string(format!("/run/qemu-server/{vmid}.pid")).unwrap_or_default();
    !pid.trim().is_empty() && Path::new("/proc").join(pid.trim()).exists()
}

fn set(vmid: &str, options: &[&str]) -> Result<String, Wrong> {
    let mut config = Config::read(vmid)?;
    let (mut set, mut delete) = (Settings::new(), Vec::new());
    for pair in options.chunks(2) {
        let [key, value] = pair else { return Err(refused(format!("400 not enough arguments\n{options:?}"))) };
        let many = || refused(format!("400 too many arguments: {key}"));
        let key = key.strip_prefix("--").or(key.strip_prefix('-')).ok_or_else(many)?;
        if key == "delete" {
            delete.extend(value.split([',', ';', ' ']).map(str::to_owned));
        } else {
            set.insert(key.to_owned(), (*value).to_owned());
        }
    }
    for (key, value) in &set {
        check(key, value).map_err(|why| refused(format!("400 Parameter verification failed.\n{key}: {why}")))?;
    }
    for key in &delete {
        // PVE/API2/Qemu.pm, update_vm_api
        check_key(key).map_err(|_| refused(format!("delete: unknown option '{key}'")))?;
    }
    // PVE/API2/Qemu.pm, update_vm_api: devices of an order must be there.
    let there = |dev: &str| set.contains_key(dev) || config.next().contains_key(dev);
    if let Some(order) = set.get("boot").and_then(|boot| boot.strip_prefix("order=")) {
        if let Some(dev) = order.split([';', ',']).find(|dev| !there(dev) || delete.iter().any(|d| d == dev)) {
            return Err(refused(format!("invalid bootorder: device '{dev}' does not exist'")));
        }
        config.now.remove("bootdisk");
    }
    let running = runs(vmid);
    for key in delete {
        let Some(old) = config.now.get(&key).cloned() else { continue };
        if running {
            config.pending.insert("delete".into(), key);
            continue;
        }
        config.now.remove(&key);
        // PVE/QemuServer.pm, vmconfig_apply_pending: the volume stays as an unused disk, the order loses it.
        if is_disk(&key) {
            config.now.insert("unused0".into(), old.split(',').next().unwrap_or_default().to_owned());
            if let Some(boot) = config.now.get_mut("boot") {
                let order: Vec<&str> = boot.trim_start_matches("order=").split(';').filter(|dev| *dev != key).collect();
                *boot = format!("order={}", order.join(";"));
            }
        }
    }
    for (key, value) in set {
        let volume = value.split(',').next().unwrap_or_default();
        config.now.retain(|k, v| !(k.starts_with("unused") && v == volume));
        if running && !qm_start::at_once(vmid, &config, &key, &value)? {
            config.pending.insert(key, value);
        } else {
            config.now.insert(key, value);
        }
    }
    config.write(vmid)?;
    Ok(format!("update VM {vmid}\n"))
}

fn is_disk(key: &str) -> bool {
    slot(key).is_some_and(|(bus, _)| matches!(bus, "ide" | "sata" | "scsi" | "virtio"))
}

pub fn slot(key: &str) -> Option<(&str, u32)> {
    let bus = key.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((bus, key[bus.len()..].parse().ok()?))
}

/// Keys that the stand-in knows, and how many of each there are.
fn check_key(key: &str) -> Result<(), Wrong> {
    // PVE/QemuServer/Drive.pm, $MAX_IDE_DISKS and the like; PVE/QemuServer/Network.pm, $MAX_NETS
    let most = |bus: &str| match bus {
        "ide" => 4,
        "scsi" => 31,
        "virtio" => 16,
        "sata" => 6,
        "net" => 32,
        "unused" => 256,
        _ => 0,
    };
    let plain = [
        "boot", "bootdisk", "scsihw", "kvm", "cpu", "cores", "sockets", "affinity", "cpulimit", "ostype", "memory",
        "args", "machine", "name", "numa",
    ];
    let known = plain.contains(&key) || slot(key).is_some_and(|(bus, n)| n < most(bus));
    if known {
        Ok(())
    } else {
        Err(refused("property is not defined in schema and the schema does not allow additional properties"))
    }
}

/// Whether a value would be taken.
pub fn check(key: &str, value: &str) -> Result<(), Wrong> {
    check_key(key)?;
    let one_of = |all: &[&str], value: &str| {
        if all.contains(&value) {
            Ok(())
        } else {
            Err(refused(format!("value '{value}' does not have a value in the enumeration '{}'", all.join(", "))))
        }
    };
    match (key, slot(key)) {
        // PVE/QemuServer.pm, $confdesc
        ("scsihw", _) => {
            one_of(&["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"], value)
        }
        ("kvm", _) => one_of(&["0", "1"], value),
        ("cpulimit", _) => value
            .parse::<f64>()
            .ok()
            .filter(|n| (0.0..=128.0).contains(n))
            .map(drop)
            .ok_or_else(|| refused("type check ('number') failed")),
        ("affinity", _) => {
            let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b == b',' || b == b'-');
            plain.then_some(()).ok_or_else(|| refused("invalid format - value does not look like a valid cpu set"))
        }
        ("ostype", _) => one_of(
            &[
                "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26",
                "solaris",
            ],
            value,
        ),
        (_, Some(("ide" | "sata" | "scsi" | "virtio", _))) => check_disk(key, value),
        (_, Some(("net", _))) => check_card(value),
        _ => Ok(()),
    }
}

/// PVE/QemuServer/Drive.pm: `%drivedesc_base`, `%iothread_fmt`, `%queues_fmt`, `%ssd_fmt`, `%model_fmt`, `%wwn_fmt`.
fn check_disk(key: &str, value: &str) -> Result<(), Wrong> {
    let bus = slot(key).map_or("", |(bus, _)| bus);
    let mut parts = value.split(',');
    let volume = parts.next().unwrap_or_default();
    let invalid = |why: String| refused(format!("invalid format - {why}"));
    for part in parts {
        let keyless = || invalid(format!("value without key, but schema does not define a default key: {part}"));
        let (name, value) = part.split_once('=').ok_or_else(keyless)?;
        let allowed: &[&str] = match name {
            "cache" => &["none", "writethrough", "writeback", "unsafe", "directsync"],
            "aio" => &["native", "threads", "io_uring"],
            "discard" => &["ignore", "on"],
            "iothread" if matches!(bus, "scsi" | "virtio") => &["0", "1"],
            "ssd" if bus != "virtio" => &["0", "1"],
            "backup" | "replicate" | "snapshot" | "detect_zeroes" | "shared" => &["0", "1"],
            "queues" if bus == "scsi" && value.parse::<u32>().is_ok_and(|n| n >= 2) => &[],
            "format" | "size" | "serial" | "media" => &[],
            _ if name.starts_with("mbps") || name.starts_with("iops") || name.starts_with("bps") => &[],
            _ => return Err(invalid(format!("format error\n{key}.{name}: property is not defined in schema"))),
        };
        if !allowed.is_empty() && !allowed.contains(&value) {
            return Err(invalid(format!("{name}: value '{value}' does not have a value in the enumeration")));
        }
    }
    // PVE/API2/Qemu.pm, create_disks
    match path_of(volume) {
        Some(path) if Path::new(&path).exists() => Ok(()),
        _ => Err(refused(format!("volume {volume} does not exist"))),
    }
}

/// PVE/QemuServer/Network.pm, `$net_fmt` and `$nic_model_list`.
fn check_card(value: &str) -> Result<(), Wrong> {
    let models = ["e1000", "e1000-82540em", "e1000e", "rtl8139", "virtio", "vmxnet3", "pcnet", "ne2k_pci"];
    let number = |value: &str, least: u32, most: u32| value.parse::<u32>().is_ok_and(|n| (least..=most).contains(&n));
    for part in value.split(',') {
        let (name, value) = part.split_once('=').unwrap_or(("model", part));
        let fits = match name {
            "model" => models.contains(&value),
            "queues" => number(value, 0, 64),
            "mtu" => number(value, 1, 65_520),
            "tag" => number(value, 1, 4094),
            "firewall" | "link_down" => matches!(value, "0" | "1"),
            "bridge" => !value.is_empty(),
            "rate" => value.parse::<f64>().is_ok(),
            "macaddr" => true,
            model => models.contains(&model),
        };
        if !fits {
            return Err(refused(format!("invalid format - format error\n{name}: {value}")));
        }
    }
    Ok(())
}

fn storage(args: &[&str]) -> Result<String, Wrong> {
    // PVE/Storage/DirPlugin.pm (preallocation), ZFSPoolPlugin.pm (blocksize): a plugin takes its own options alone.
    match args {
        ["set", storage @ ("local" | "other"), "--preallocation", "off" | "metadata" | "falloc" | "full"] => {
            fs::write(format!("/etc/pve/preallocation-{storage}"), "full")?;
            Ok(String::new())
        }
        ["set", "local" | "other", option, ..] => {
            Err(refused(format!("400 Parameter verification failed.\n{option}: unexpected property")))
        }
        ["set", storage, ..] => Err(refused(format!("update storage failed: storage '{storage}' does not exist"))),
        _ => Err(refused(format!("ERROR: unknown command 'pvesm {}'", args.join(" ")))),
    }
}

/// PVE/API2/Qemu.pm, move_vm_disk.
fn move_disk(vmid: &str, slot: &str, to: &str, rest: &[&str]) -> Result<String, Wrong> {
    let mut config = Config::read(vmid)?;
    let line = config.now.get(slot).cloned().ok_or_else(|| refused(format!("disk '{slot}' does not exist")))?;
    let (volume, more) = line.split_once(',').map_or((line.as_str(), String::new()), |(v, m)| (v, format!(",{m}")));
    let old = path_of(volume).ok_or_else(|| refused("no such volume"))?;
    let was = old.rsplit_once('.').map_or("raw", |(_, format)| format).to_owned();
    let format = match rest {
        [] => was.clone(),
        ["--format", format @ ("raw" | "qcow2" | "vmdk")] => (*format).to_owned(),
        _ => return Err(refused(format!("400 Parameter verification failed.\n{rest:?}"))),
    };
    if !matches!(to, "local" | "other") {
        return Err(refused(format!("storage '{to}' does not exist")));
    }
    if volume.starts_with(&format!("{to}:")) && format == was {
        return Err(refused("you can't move to the same storage with same format"));
    }
    fs::create_dir_all(format!("{IMAGES}/{to}/images/{vmid}"))?;
    let name = (0..)
        .map(|n| format!("{to}:{vmid}/vm-{vmid}-disk-{n}.{format}"))
        .find(|v| path_of(v).is_some_and(|p| !Path::new(&p).exists()));
    let new = name.ok_or_else(|| refused("no name is free"))?;
    let full = Path::new(&format!("/etc/pve/preallocation-{to}")).exists();
    let path = path_of(&new).ok_or_else(|| refused("no path"))?;
    let allocation = if full { "preallocation=full" } else { "preallocation=off" };
    run("qemu-img", &["convert", "-U", "-f", &was, "-O", &format, "-o", allocation, &old, &path])?;
    let running = runs(vmid);
    if running {
        qm_start::stop(vmid)?;
    }
    config.now.insert(slot.to_owned(), format!("{new}{more}"));
    config.now.insert("unused0".into(), volume.to_owned());
    config.write(vmid)?;
    // The real one moves it under the guest (drive-mirror); this one starts the guest anew.
    if running { qm_start::start(vmid, &config.now) } else { Ok(String::new()) }
}
