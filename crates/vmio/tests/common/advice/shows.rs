//! Whether a setting is in force: asked of QEMU's monitor, of the process and of /sys.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};
use vmio_node::linux::net::{IFF_VNET_HDR, NETFILTER};

use super::guest::Guest;
use super::options::Own;
use super::test_host::{group, run};
use super::wrong::{Wrong, differs, refused};
use super::{Expect, Shows, Threads};

/// Says what is not as it should be.
pub fn check(guest: &Guest, own: &Own, shows: Shows) -> Result<(), Wrong> {
    let is = |what: &str, found: &Value, wanted: Value| {
        if *found == wanted { Ok(()) } else { Err(differs(format!("{what} is {found}, not {wanted}"))) }
    };
    match shows {
        Shows::Disk(model) => is("the disk's model", &get(guest, &device(guest, own)?, "type")?, json!(model)),
        Shows::OwnIothread => own_threads(guest),
        Shows::Cache { direct, no_flush } => {
            let cache = &entry(guest, own)?["inserted"]["cache"];
            is("direct", &cache["direct"], json!(direct))?;
            is("no-flush", &cache["no-flush"], json!(no_flush))
        }
        Shows::WriteCache => is("write cache", &entry(guest, own)?["inserted"]["cache"]["writeback"], json!(true)),
        Shows::Aio(engine) => aio(guest, engine),
        Shows::Queues(wanted) => {
            let device = device(guest, own)?;
            let found = get(guest, &device, "num-queues")
                .or_else(|_| get(guest, &controller(guest, &device)?, "num_queues"))?;
            is("queues", &found, json!(wanted))
        }
        Shows::Discard => discards(guest, own),
        Shows::NoLimit => {
            let inserted = &entry(guest, own)?["inserted"];
            ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"]
                .iter()
                .try_for_each(|key| is(key, &inserted[*key], json!(0)))
        }
        Shows::Chain(files) => is("files below", &entry(guest, own)?["inserted"]["backing_file_depth"], json!(files)),
        Shows::Format(format) => is("format", &entry(guest, own)?["inserted"]["drv"], json!(format)),
        Shows::NoHoles => {
            let path = file(guest, own)?;
            let meta = fs::metadata(&path).map_err(|e| refused(format!("{path}: {e}")))?;
            let (there, size) = (meta.blocks() * 512, meta.size());
            if there >= size { Ok(()) } else { Err(differs(format!("{path}: {there} of {size} bytes are there"))) }
        }
        Shows::Told(option) => {
            let line = fs::read_to_string(format!("/proc/{}/cmdline", guest.pid()?))?;
            if line.contains(option) { Ok(()) } else { Err(differs(format!("{option} is not on the command line"))) }
        }
        Shows::Card(model) => is("the card's model", &get(guest, &card(guest, own)?, "type")?, json!(model)),
        Shows::OfCard(property, expect) => {
            let wanted = match expect {
                Expect::On => json!(true),
                Expect::Off => json!(false),
                Expect::Number(n) => json!(n),
            };
            is(property, &get(guest, &card(guest, own)?, property)?, wanted)
        }
        Shows::InBridge => {
            let tap = tap(guest)?;
            let master = fs::canonicalize(format!("/sys/class/net/{tap}/master"));
            let master = master.map_err(|e| refused(format!("{tap}: {e}")))?;
            if master.ends_with("br0") || master.ends_with("vmbr0") {
                Ok(())
            } else {
                Err(differs(format!("{tap} is in {}", master.display())))
            }
        }
        Shows::TapMtu(wanted) => {
            let path = format!("/sys/class/net/{}/mtu", tap(guest)?);
            let found = fs::read_to_string(&path).map_err(|e| refused(format!("{path}: {e}")))?;
            is(&path, &json!(found.trim()), json!(wanted.to_string()))
        }
        Shows::TapHeader => {
            let path = format!("/sys/class/net/{}/tun_flags", tap(guest)?);
            let flags = fs::read_to_string(&path).map_err(|e| refused(format!("{path}: {e}")))?;
            let bits = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
            if bits & IFF_VNET_HDR != 0 { Ok(()) } else { Err(differs(format!("{path} is {flags}"))) }
        }
        Shows::NoQueue => {
            let shown = run("tc", &["qdisc", "show", "dev", &tap(guest)?])?;
            if shown.contains("tbf") { Err(differs(format!("tc shows {shown}"))) } else { Ok(()) }
        }
        Shows::NoNetfilter => {
            let tap = tap(guest)?;
            let [whole, _, _] = NETFILTER;
            for path in [whole.to_owned(), format!("/sys/class/net/{tap}/master/bridge/nf_call_iptables")] {
                let now = fs::read_to_string(&path).map_err(|e| refused(format!("{path}: {e}")))?;
                if now.trim() != "0" {
                    return Err(differs(format!("{path} is {}", now.trim())));
                }
            }
            Ok(())
        }
        Shows::Elsewhere(of) => {
            let threads = guest.threads(of)?;
            let bound =
                |tid: &u64| run("taskset", &["-cp", &tid.to_string()]).is_ok_and(|said| said.trim().ends_with(": 0"));
            match threads.iter().find(|tid| bound(tid)) {
                _ if threads.is_empty() => Err(differs(format!("no thread ({of:?})"))),
                Some(tid) => Err(differs(format!("thread {tid} is on processor 0"))),
                None => Ok(()),
            }
        }
        Shows::AsTheHost => {
            let vcpus = guest.say("{\"execute\": \"query-cpus-fast\"}")?.as_array().map_or(0, Vec::len);
            if vcpus == super::test_host::cpus() { Ok(()) } else { Err(differs(format!("{vcpus} vCPUs"))) }
        }
        Shows::NoQuota => {
            let dir = group(&guest.name);
            let [v1, v2] = ["cpu.cfs_quota_us", "cpu.max"].map(|f| fs::read_to_string(dir.join(f)).unwrap_or_default());
            if v1.trim() == "-1" || v2.starts_with("max") { Ok(()) } else { Err(differs(format!("quota {v1}{v2}"))) }
        }
        Shows::Quota(cpus) => {
            let dir = group(&guest.name);
            let [v1, v2] = ["cpu.cfs_quota_us", "cpu.max"].map(|f| fs::read_to_string(dir.join(f)).unwrap_or_default());
            let wanted = (cpus * 100_000).to_string();
            if v1.trim() == wanted || v2.trim() == format!("{wanted} 100000") {
                Ok(())
            } else {
                Err(differs(format!("quota {v1}{v2}")))
            }
        }
        Shows::Xml(text) => {
            let live = run("virsh", &["dumpxml", &guest.name])?;
            if live.contains(text) { Ok(()) } else { Err(differs(format!("{text} is not in\n{live}"))) }
        }
    }
}

fn get(guest: &Guest, path: &str, property: &str) -> Result<Value, Wrong> {
    guest.ask("qom-get", &json!({"path": path, "property": property}))
}

/// What `query-block` says of the disk that the row is about.
fn entry(guest: &Guest, own: &Own) -> Result<Value, Wrong> {
    let all = guest.say("{\"execute\": \"query-block\"}")?;
    let disks: Vec<&Value> =
        all.as_array().into_iter().flatten().filter(|e| e["inserted"].is_object() && e["qdev"].is_string()).collect();
    let mine = |e: &&&Value| {
        e["inserted"]["file"].as_str().is_some_and(|f| own.source.as_deref().is_some_and(|s| f.contains(s)))
    };
    let id = own.id.as_deref().unwrap_or_default();
    let by_id = |e: &&&Value| {
        e["qdev"].as_str().is_some_and(|q| q.trim_end_matches("/virtio-backend").rsplit('/').next() == Some(id))
    };
    let found =
        if let [one] = disks[..] { Some(one) } else { disks.iter().find(mine).or(disks.iter().find(by_id)).copied() };
    found.cloned().ok_or_else(|| differs(format!("none of these is {own:?}: {all}")))
}

fn device(guest: &Guest, own: &Own) -> Result<String, Wrong> {
    let entry = entry(guest, own)?;
    let path = entry["qdev"].as_str().unwrap_or_default().trim_end_matches("/virtio-backend").to_owned();
    // A device with an id is told by it alone.
    Ok(if path.starts_with('/') { path } else { format!("/machine/peripheral/{path}") })
}

/// What a SCSI disk's bus belongs to.
fn controller(guest: &Guest, device: &str) -> Result<String, Wrong> {
    let bus = get(guest, device, "parent_bus")?.as_str().unwrap_or_default().to_owned();
    let parent = Path::new(&bus).parent().map(|p| p.display().to_string()).unwrap_or_default();
    Ok(parent.trim_end_matches("/virtio-backend").to_owned())
}

fn file(guest: &Guest, own: &Own) -> Result<String, Wrong> {
    Ok(entry(guest, own)?["inserted"]["file"].as_str().unwrap_or_default().to_owned())
}

fn own_threads(guest: &Guest) -> Result<(), Wrong> {
    let all = guest.say("{\"execute\": \"query-block\"}")?;
    let mut threads: Vec<String> = Vec::new();
    for entry in all.as_array().into_iter().flatten().filter(|e| e["inserted"].is_object()) {
        let path = entry["qdev"].as_str().unwrap_or_default().trim_end_matches("/virtio-backend").to_owned();
        let path = if path.starts_with('/') { path } else { format!("/machine/peripheral/{path}") };
        let thread = get(guest, &path, "iothread").or_else(|_| get(guest, &controller(guest, &path)?, "iothread"))?;
        let thread = thread.as_str().unwrap_or_default().to_owned();
        if thread.is_empty() || threads.contains(&thread) {
            return Err(differs(format!("{path} has I/O thread {thread:?} after {threads:?}")));
        }
        threads.push(thread);
    }
    if threads.is_empty() { Err(differs("no disk")) } else { Ok(()) }
}

fn aio(guest: &Guest, engine: &str) -> Result<(), Wrong> {
    let pid = guest.pid()?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let native = maps.contains("/[aio]");
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let rings = links
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .filter(|to| to.to_string_lossy().contains("io_uring"))
        .count();
    // Each event loop has a ring of its own in such a QEMU, used for disks or not.
    let loops = guest.threads(Threads::Io)?.len() + 1;
    let found = if native {
        "native"
    } else if rings > 0 && rings != loops {
        "io_uring"
    } else {
        "threads"
    };
    if found == engine {
        Ok(())
    } else {
        Err(differs(format!("engine {found} ({rings} rings, {loops} loops), not {engine}")))
    }
}

/// Has QEMU discard what was written, and looks whether the file gave it back.
fn discards(guest: &Guest, own: &Own) -> Result<(), Wrong> {
    let entry = entry(guest, own)?;
    let device = entry["qdev"].as_str().unwrap_or_default().to_owned();
    let path = file(guest, own)?;
    let there = || fs::metadata(&path).map(|m| m.blocks()).map_err(|e| refused(format!("{path}: {e}")));
    let io = |command: &str| {
        let line = format!("qemu-io -d {device} \"{command}\"");
        let said = guest.ask("human-monitor-command", &json!({"command-line": line}))?;
        // What it does it tells on QEMU's own output; an answer is an error.
        if said == "" { Ok(()) } else { Err(differs(format!("{line}: {said}"))) }
    };
    io("write -P 7 0 1M")?;
    io("flush")?;
    let before = there()?;
    io("discard 0 1M")?;
    io("flush")?;
    let after = there()?;
    if after + 1024 < before {
        Ok(())
    } else {
        Err(differs(format!("{path} had {before} blocks before a discard and {after} afterwards")))
    }
}

fn card(guest: &Guest, own: &Own) -> Result<String, Wrong> {
    let lists = ["/machine/peripheral", "/machine/peripheral-anon", "/machine/unattached"];
    for list in lists {
        let all = guest.ask("qom-list", &json!({"path": list}))?;
        for child in all.as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()) {
            let path = format!("{list}/{child}");
            let mac = get(guest, &path, "mac").unwrap_or_default();
            let mine =
                own.mac.as_deref().is_none_or(|mac_of| mac.as_str().is_some_and(|m| m.eq_ignore_ascii_case(mac_of)));
            if mac.is_string() && mine {
                return Ok(path);
            }
        }
    }
    Err(differs(format!("no card {own:?}")))
}

/// The tap that the process has open.
fn tap(guest: &Guest) -> Result<String, Wrong> {
    let pid = guest.pid()?;
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"))?;
    let named = |info: fs::DirEntry| {
        let text = fs::read_to_string(info.path()).ok()?;
        text.lines().find_map(|line| line.strip_prefix("iff:").map(|tap| tap.trim().to_owned()))
    };
    infos.flatten().find_map(named).ok_or_else(|| differs("it has no tap open"))
}
