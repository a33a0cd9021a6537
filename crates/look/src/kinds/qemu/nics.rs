//! Network devices of a running QEMU: `-device` with `-netdev`, `-nic`, the old `-net`, and the host's devices passed
//! through (vfio). The interface of a tap that a manager opened for QEMU is found by its descriptor.

use std::collections::BTreeSet;
use std::path::Path;

use vmio_model::facts::{Fact, Nic, Remedy, Subject, ToGuest, Unread};
use vmio_model::rules::change::shell;
use vmio_node::linux::{bus, net, process};

use super::super::process::{DEFAULT, Process, unread};
use super::disks::is_q35;
use super::plain;
use crate::qemu::options::{Opt, size};
use crate::require::root;
use crate::way;

/// Offloads of virtio-net that can be turned off (QEMU, hw/net/virtio-net.c); all are on by default.
const OFFLOADS: [&str; 12] = [
    "csum",
    "gso",
    "guest_csum",
    "guest_tso4",
    "guest_tso6",
    "guest_ecn",
    "guest_ufo",
    "host_tso4",
    "host_tso6",
    "host_ecn",
    "host_ufo",
    "mrg_rxbuf",
];
/// Ring of virtio-net for receiving, where nothing else is said (QEMU, hw/net/virtio-net.c,
/// `VIRTIO_NET_RX_QUEUE_DEFAULT_SIZE`).
const RING: u32 = 256;
/// Cards whose drivers begin with [`ETHERNET_MTU`], unless the device reports another (QEMU's `host_mtu`, which is 0 by
/// default: then VIRTIO_NET_F_MTU is not offered; hw/net/virtio-net.c, `virtio_net_device_realize`).
const ETHERNET: [&str; 9] =
    ["virtio-net", "e1000", "e1000-82544gc", "e1000-82545em", "e1000e", "igb", "rtl8139", "vmxnet3", "pcnet"];
/// `ETH_DATA_LEN` of include/uapi/linux/if_ether.h.
const ETHERNET_MTU: u64 = 1500;
/// Send buffer that QEMU sets for a tap (net/tap-linux.c, `tap_set_sndbuf`): no limit.
const SEND_BUFFER: u64 = i32::MAX as u64;

/// The network devices of a process. What is unreadable is added to `missing`.
pub fn nics(
    process: &Process<'_>,
    vcpus: Option<u32>,
    windows: Option<bool>,
    most: usize,
    missing: &mut Vec<Unread>,
) -> Vec<Nic> {
    let vhost_here = process.reader().stat(Path::new("/dev/vhost-net")).ok().map(|s| s.is_some());
    let pairs = pairs(process);
    if pairs.len() > most {
        missing.push(super::too_many("network devices", process, most));
    }
    let mut reported = Vec::new();
    let mut nics: Vec<Nic> = pairs
        .into_iter()
        .take(most)
        .enumerate()
        .map(|(i, pair)| {
            let id = pair.device.id().or(pair.backend.id()).or(pair.device.get("mac").or(pair.device.get("macaddr")));
            let name = id.map_or_else(|| i.to_string(), str::to_owned);
            let mut nic = Nic::unknown(Subject::net(&process.name, name), process.provenance());
            device(process, &mut nic, &pair);
            reported.extend(backend(process, &mut nic, &pair, missing));
            nic.vhost_here = Fact::read(vhost_here, "/dev/vhost-net");
            (nic.vcpus, nic.windows) = (vcpus.into(), windows.into());
            nic
        })
        .collect();
    leftover(process, &mut nics, &reported, missing);
    for nic in &mut nics {
        host_interface(process, nic, missing);
    }
    nics.extend(handed_over(process));
    nics
}

/// A device and its back end.
struct Pair {
    device: Opt,
    backend: Opt,
    /// QEMU's name of the model.
    model: Option<String>,
    /// Options that name them.
    options: (&'static str, &'static str),
    /// The options, where they are not `-device` and `-netdev`.
    given: Option<Vec<String>>,
}

fn pairs(process: &Process<'_>) -> Vec<Pair> {
    let line = &process.line;
    let model_here = || {
        let x86 = process.args.first().is_none_or(|p| ["x86", "i386", "kvm"].iter().any(|n| p.contains(n)));
        x86.then(|| (if is_q35(process) { "e1000e" } else { "e1000" }).to_owned())
    };
    let mut pairs = Vec::new();
    for device in line.all("device") {
        let Some(id) = device.get("netdev").filter(|id| !id.is_empty()) else { continue };
        let backend = line.find("netdev", id).cloned().unwrap_or_default();
        let model = device.get("driver").map(str::to_owned);
        pairs.push(Pair { device: device.clone(), backend, model, options: ("device", "netdev"), given: None });
    }
    for nic in line.all("nic").filter(|n| n.get("type") != Some("none")) {
        let model = nic.get("model").map(str::to_owned).or_else(model_here);
        let given = Some(vec![format!("-nic {}", nic.text)]);
        pairs.push(Pair { device: nic.clone(), backend: nic.clone(), model, options: ("nic", "nic"), given });
    }
    // The old `-net` connects all of them to one hub.
    let old = |o: &&Opt| !matches!(o.get("type"), Some("nic" | "none"));
    for nic in line.all("net").filter(|n| n.get("type") == Some("nic")) {
        let named = nic.get("netdev").and_then(|id| line.find("netdev", id));
        let backend = named.or_else(|| line.all("net").find(old)).cloned().unwrap_or_default();
        let model = nic.get("model").map(str::to_owned).or_else(model_here);
        let given = [nic, &backend].iter().filter(|o| o.name == "net").map(|o| format!("-net {}", o.text)).collect();
        pairs.push(Pair { device: nic.clone(), backend, model, options: ("net", "net"), given: Some(given) });
    }
    let silent = ["netdev", "nic", "net", "nodefaults"].iter().all(|n| line.all(n).next().is_none());
    // microvm has no default card.
    let microvm = line.get("machine", "type").is_some_and(|m| m.starts_with("microvm"));
    if let (true, Some(model)) = (silent && !microvm, model_here()) {
        let user = Opt { keys: vec![("type".into(), "user".into())], ..Opt::default() };
        pairs.push(Pair {
            device: Opt::default(),
            backend: user,
            model: Some(model),
            options: ("", ""),
            given: Some(Vec::new()),
        });
    }
    pairs
}

/// The device that the guest sees.
fn device(process: &Process<'_>, nic: &mut Nic, pair: &Pair) {
    let device = &pair.device;
    let said = if pair.options.0.is_empty() { DEFAULT } else { process.option(pair.options.0) };
    let model = pair.model.as_deref().map(|model| match model {
        "virtio" => "virtio-net".to_owned(),
        other => plain(other),
    });
    let is_set = pair.options.0 == "device" || device.get("model").is_some();
    nic.model = Fact::read(model, if is_set { &said } else { &DEFAULT });
    if nic.model.as_deref() == Some("virtio-net") {
        let ring = device.number("rx_queue_size").and_then(|n| u32::try_from(n).ok());
        nic.ring_packets = Fact::read(Some(ring.unwrap_or(RING)), if ring.is_some() { &said } else { &DEFAULT });
    }
    let off: Vec<String> =
        OFFLOADS.iter().filter(|name| device.on(name) == Some(false)).map(|n| (*n).to_owned()).collect();
    let from = if off.is_empty() { DEFAULT } else { said };
    nic.offloads_off = Fact::read(off, from);
    if let Some(mtu) = device.number("host_mtu").filter(|mtu| *mtu > 0) {
        nic.host_mtu_bytes = Fact::read(Some(mtu), process.option(pair.options.0));
        nic.guest_mtu_bytes = nic.host_mtu_bytes.clone();
    } else if nic.model.as_deref().is_some_and(|model| ETHERNET.contains(&model)) {
        nic.guest_mtu_bytes = Fact::read(Some(ETHERNET_MTU), "the default of such a card, without host_mtu");
    }
    nic.place.given.clone_from(&pair.given);
    nic.place.target = device.get("mac").or(device.get("macaddr")).map(str::to_lowercase);
    nic.place.device_id = device.id().map(str::to_owned);
    if process.line.all("id").next().is_some() {
        nic.place.slot = device.id().filter(|id| id.starts_with("net")).map(str::to_owned); // Proxmox
    }
}

/// The back end on the host. Returns the device where `missing` has a note that its interface could not be read.
fn backend(process: &Process<'_>, nic: &mut Nic, pair: &Pair, missing: &mut Vec<Unread>) -> Option<Subject> {
    let backend = &pair.backend;
    let said = match pair.options.1 {
        "" => DEFAULT,
        // A bridge has other keys than a tap.
        "netdev" if backend.get("type") == Some("bridge") => process.option_by("netdev", Some("bridge"), None),
        option => process.option(option),
    };
    let Some(kind) = backend.get("type") else {
        missing.push(Unread {
            what: format!("what {} is connected to", nic.subject),
            why: "the command line does not state it".into(),
            mend: "query the guest's monitor (QMP)".into(),
        });
        return None;
    };
    let path = || backend.get("addr.path").or(backend.get("path")).unwrap_or_default();
    let path = match kind {
        "tap" | "bridge" => "tap".to_owned(),
        "vhost-vdpa" => "vdpa".to_owned(),
        "stream" | "socket" | "dgram" | "mcast" if path().contains("passt") => "passt".to_owned(),
        "stream" | "socket" | "dgram" | "mcast" => "socket".to_owned(),
        other => other.to_owned(),
    };
    nic.backend = Fact::read(Some(path), &said);
    let count = |key: &str| backend.get(key).map(|list| list.split(':').count() as u32);
    let queues = backend.number("queues").map(|n| n as u32).or(count("fds")).or(count("vhostfds"));
    match kind {
        "tap" | "vhost-user" | "vhost-vdpa" => {
            nic.queues = Fact::read(Some(queues.unwrap_or(1)), if queues.is_some() { &said } else { &DEFAULT });
        }
        _ => nic.queues = Some(1).into(),
    }
    if !matches!(kind, "tap" | "bridge") {
        return None;
    }
    let fds = ["vhostfd", "vhostfds"].iter().any(|k| backend.get(k).is_some());
    let vhost = backend.on("vhost").or(backend.on("vhostforce").filter(|on| *on)).or(fds.then_some(true));
    nic.vhost = Fact::read(Some(vhost.unwrap_or(false)), if vhost.is_some() { &said } else { &DEFAULT });
    let buffer = backend.get("sndbuf").and_then(|b| size(b, 1));
    let bytes = buffer.filter(|b| *b > 0).unwrap_or(SEND_BUFFER);
    nic.send_buffer_bytes = Fact::read(Some(bytes), if buffer.is_some() { &said } else { &DEFAULT });
    if let Some(name) = backend.get("ifname") {
        nic.interface = Fact::read(Some(name.to_owned()), said);
        return None;
    }
    // Incus and LXD name descriptors by the device node: `/dev/tap7.0` is a macvtap's.
    let named = backend.get("fds").and_then(|fds| fds.split(':').next());
    if let Some(index) = named.and_then(|name| name.strip_prefix("/dev/tap")?.split('.').next()) {
        nic.backend = Fact::read(Some("macvtap".into()), &said);
        nic.interface = Fact::read(by_index(process, index), said);
        return None;
    }
    let first = backend.get("fd").or(backend.get("fds")).and_then(|fds| fds.split(':').next()?.parse().ok());
    let fd = first?;
    match process.tun(fd) {
        Ok(Some(name)) => {
            nic.interface = Fact::read(Some(name), format!("/proc/{}/fdinfo/{fd}", process.pid));
        }
        Ok(None) => {
            // A macvtap's descriptor is that of its own device node, named by the interface's index.
            let index = process.fd(fd)?.strip_prefix("/dev/tap")?.to_owned();
            nic.backend = Fact::read(Some("macvtap".into()), said);
            nic.interface = Fact::read(by_index(process, &index), format!("/proc/{}/fd/{fd}", process.pid));
        }
        Err(e) => {
            missing.push(unread(process.reader(), format!("interface of {}", nic.subject), &e));
            return Some(nic.subject.clone());
        }
    }
    None
}

/// Interface with that number.
fn by_index(process: &Process<'_>, index: &str) -> Option<String> {
    process.interfaces()?.with_index(index.parse().ok()?)
}

/// A tap named by QEMU or its helper: the one open descriptor that no other device has.
fn leftover(process: &Process<'_>, nics: &mut [Nic], reported: &[Subject], missing: &mut Vec<Unread>) {
    let nameless = |n: &&mut Nic| n.backend.as_deref() == Some("tap") && n.interface.is_none();
    let known: BTreeSet<String> = nics.iter().filter_map(|n| n.interface.value().clone()).collect();
    let mut nameless: Vec<&mut Nic> = nics.iter_mut().filter(nameless).collect();
    // Devices whose descriptor could not be read are already reported.
    nameless.retain(|n| !reported.contains(&n.subject));
    let Some(first) = nameless.first() else { return };
    let what = format!("interface of {}", first.subject);
    let fds = match process.fds() {
        Ok(fds) => fds,
        Err(e) => return missing.push(Unread { what, ..e }),
    };
    let tuns = fds.iter().filter(|(_, to)| to == "/dev/net/tun");
    let found: BTreeSet<(String, u32)> =
        tuns.filter_map(|(fd, _)| Some((process.tun(*fd).ok()??, *fd))).filter(|(n, _)| !known.contains(n)).collect();
    let names: BTreeSet<&String> = found.iter().map(|(n, _)| n).collect();
    match (&mut nameless[..], found.first(), names.len()) {
        ([nic], Some((name, fd)), 1) => {
            nic.interface = Fact::read(Some(name.clone()), format!("/proc/{}/fdinfo/{fd}", process.pid));
        }
        _ => missing.push(Unread {
            what,
            why: format!("the guest has {} taps, and the command line does not show which is which", names.len()),
            mend: "query the guest's monitor (QMP), or name them by ifname=".into(),
        }),
    }
}

/// Bridge, MTUs and way of the interface, what a tap dropped, and whether the firewall sees the bridge's packets.
pub fn host_interface(process: &Process<'_>, nic: &mut Nic, missing: &mut Vec<Unread>) {
    let Some(name) = nic.interface.value().clone().filter(|name| net::is_name(name)) else { return };
    let Some(all) = process.interfaces().filter(|all| all.has_interface(&name)) else {
        missing.push(Unread {
            what: format!("bridge and MTU of {name} ({})", nic.subject),
            why: "it is in another network namespace, or does not exist".into(),
            mend: look_inside(process, &name),
        });
        return;
    };
    let dir = all.dir.display();
    if let Some(flags) = all.tun_flags(&name) {
        nic.tap_header = Fact::read(Some(flags & net::IFF_VNET_HDR != 0), format!("{dir}/{name}/tun_flags"));
        let counter = |counter| all.counter(&name, counter);
        let to_guest = counter("tx_packets").zip(counter("tx_dropped")).map(|(packets, dropped_packets)| ToGuest {
            packets,
            dropped_packets,
            queue_packets: all.queue_packets(&name),
        });
        nic.to_guest = Fact::read(to_guest, format!("{dir}/{name}/statistics"));
    }
    let mut settle = || way::settle(process.host, all, nic, &name);
    let spent = if all.is_here() {
        settle();
        false
    } else {
        process.host.charged(Some(process.pid), settle).is_none()
    };
    if spent {
        // Its namespace's files may be the guest owner's.
        missing.push(Unread {
            what: format!("bridge and MTU of {name} ({})", nic.subject),
            why: "the guest's files took all the time for it".into(),
            mend: "look again".into(),
        });
    } else if nic.mtu_bytes.is_none() {
        // Every interface has one.
        missing.push(Unread {
            what: format!("bridge and MTU of {name} ({})", nic.subject),
            why: format!("{dir} gave no answer, or the interface is gone"),
            mend: "look again".into(),
        });
    }
    let bridge = nic.bridge.value().clone().filter(|_| nic.bridge_mtu_bytes.is_some());
    if let Some(bridge) = bridge {
        nic.bridge_netfilter = netfilter(process, all, &bridge);
    }
}

/// How its user sees an interface in the namespace of the guest's process: asked of the kernel (rtnetlink(7)), since a
/// `/sys` shows the namespace in which it was mounted, whoever looks (Linux fs/sysfs/mount.c, `sysfs_init_fs_context`).
fn look_inside(process: &Process<'_>, name: &str) -> Remedy {
    if root(process.reader()).is_err() {
        return Remedy::Root;
    }
    format!("look at it there: nsenter -t {} -n ip -d link show dev {}", process.pid, shell(name)).into()
}

/// Whether a bridge's packets pass the firewall: by the bridge's own switch or its network namespace's, which is
/// visible inside of it only. Without the module neither has an effect.
fn netfilter(process: &Process<'_>, all: &net::Interfaces<'_>, bridge: &str) -> Fact<Option<bool>> {
    let reader = process.reader();
    let by_namespace = |on| Fact::read(Some(on), net::NETFILTER[0]);
    match net::has_bridge_netfilter(reader) {
        None => return Fact::default(),
        Some(false) => return by_namespace(false),
        Some(true) => {}
    }
    let same = process::same_namespace(reader, process.pid, "net");
    let whole = same.then(|| net::bridges_call_netfilter(reader)).flatten();
    match (whole, all.bridge_netfilter(bridge)) {
        (Some(true), _) => by_namespace(true),
        (_, Some(true)) => Fact::read(Some(true), format!("{}/{bridge}/bridge/nf_call_iptables", all.dir.display())),
        (Some(false), _) => by_namespace(false),
        (None, _) => Fact::default(),
    }
}

/// Network devices of the host passed through to the guest.
fn handed_over(process: &Process<'_>) -> Vec<Nic> {
    let of = |device: &Opt| {
        device.get("driver")?.starts_with("vfio-pci").then_some(())?;
        let host = device.get("host")?;
        // The command line may omit PCI domain 0.
        let address = if host.matches(':').count() == 1 { format!("0000:{host}") } else { host.to_owned() };
        // Only an address, no path: the text comes from the guest's owner.
        address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.').then_some(())?;
        (bus::pci_class(process.reader(), &address) == Some(bus::PCI_NETWORK)).then_some(())?;
        let id = device.id().unwrap_or(host);
        let mut nic = Nic::unknown(Subject::net(&process.name, id), process.provenance());
        nic.model = Fact::read(Some("vfio".into()), process.option("device"));
        nic.backend = "vfio".into();
        nic.place.device_id = device.id().map(str::to_owned);
        nic.place.source = Some(address).into();
        Some(nic)
    };
    process.line.all("device").filter_map(of).collect()
}
