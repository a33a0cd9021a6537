//! QEMU's command line (qemu(1)). Everything is named: no default devices, no user configuration,
//! block back ends as explicit nodes, so that what was measured can be read from it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vmio_model::cell::{Arch, Attachment, DetectZeroes};
use vmio_model::result::Accel;

use super::balloon;
use super::cards::Card;
use super::device::Device;
use super::drivers::{Disk, Model};
use super::machine;
use crate::disks::Storage;
use crate::guests::NicSpec;
use crate::image::{AGENT_PORT, TOOLS_SERIAL};
use crate::qemu::QemuVersion;

/// Parameters of the guest's kernel. None of them touches the path of a request: messages go to
/// the serial port and only when they matter, a panic ends QEMU, and the crypto code is not tested
/// at each boot (a quarter of a second under emulation).
const KERNEL: &str = "quiet panic=-1 cryptomgr.notests";

/// How long an iSCSI request waits for its answer. QEMU then sends it again, a few times, and fails it; its default is
/// to wait for ever.
const ISCSI_SECONDS: u32 = 15;

/// All that a command line is made of.
#[derive(Clone)]
pub struct Plan<'a> {
    /// Name of the guest.
    pub name: &'a str,
    /// The QEMU that will read it.
    pub qemu: QemuVersion,
    /// Accelerator to ask for.
    pub accel: Accel,
    /// What its processors are.
    pub arch: Arch,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Kernel, ELF or compressed.
    pub kernel: PathBuf,
    /// The disk image with the tools.
    pub tools: PathBuf,
    /// Directory of the guest's sockets and logs; see [`Paths`].
    pub paths: Paths,
    /// Its disks.
    pub disks: Vec<PlannedDisk<'a>>,
    /// Its network devices.
    pub nics: Vec<PlannedNic<'a>>,
    /// Whether it has a balloon.
    pub balloon: bool,
}

/// A network device of a plan.
#[derive(Clone)]
pub struct PlannedNic<'a> {
    /// How it is asked for.
    pub spec: &'a NicSpec,
    /// What makes the device.
    pub card: &'static Card,
}

/// A disk of a plan.
#[derive(Clone)]
pub struct PlannedDisk<'a> {
    /// What QEMU opens.
    pub storage: &'a Storage,
    /// How the guest sees it.
    pub attachment: &'a Attachment,
    /// What makes the device.
    pub model: &'static Model,
}

/// The files of a running guest.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Our monitor.
    pub qmp: PathBuf,
    /// The monitor for whoever watches.
    pub watch: PathBuf,
    /// Stream to the agent.
    pub agent: PathBuf,
    /// What the guest wrote on its serial port.
    pub console: PathBuf,
    /// Initial file system.
    pub initramfs: PathBuf,
}

impl Paths {
    /// The files in a directory.
    pub fn below(dir: &Path) -> Self {
        Self {
            qmp: dir.join("qmp"),
            watch: dir.join("watch"),
            agent: dir.join("agent"),
            console: dir.join("console"),
            initramfs: dir.join("initramfs"),
        }
    }
}

/// Where devices with an id are in QEMU's object tree.
pub const PERIPHERAL: &str = "/machine/peripheral/";

/// QOM type of a device of the host's that a guest gets whole.
pub const PASSED_THROUGH: &str = "vfio-pci";

/// Id of a disk's device in QEMU.
pub fn device_id(index: usize) -> String {
    format!("disk{index}")
}
/// Id of a network device in QEMU.
pub fn nic_id(index: usize) -> String {
    format!("net{index}")
}
/// Name of a disk's format node.
pub fn node_name(index: usize) -> String {
    format!("node{index}")
}
/// Ids of a disk's I/O threads.
pub fn iothread_ids(index: usize, asked: &Attachment) -> Vec<String> {
    match asked.options.mapped_iothreads {
        Some(n) => (0..n).map(|k| format!("io{index}-{k}")).collect(),
        None => asked.iothread.then(|| format!("io{index}")).into_iter().collect(),
    }
}
/// Id of the socket to a disk's server.
pub fn chardev_id(index: usize) -> String {
    format!("disk{index}-server")
}
/// Id of what a disk's client opens a server with TLS by.
fn credentials_id(node: &str) -> String {
    format!("{node}-tls")
}
/// Serial number by which the guest finds a disk; virtio-blk keeps 20 bytes of it.
pub fn serial(index: usize) -> String {
    format!("vmio-{index}")
}

impl PlannedDisk<'_> {
    /// Whether the guest's memory must be shared for it.
    fn shares_memory(&self) -> bool {
        matches!(self.storage, Storage::VhostUserBlk { .. })
    }
}

/// Slots of the bus for disks, network devices and a balloon. Before them are the host bridge, the agent's channel and
/// the tools, after them the functions of q35's chipset in slot 1f.
const SLOTS: usize = 28;
const SERIAL_SLOT: &str = "01.0";
const TOOLS_SLOT: &str = "02.0";
const FIRST_SLOT: usize = 3;
/// A slot has that many functions (PCI Local Bus 3.0, section 6.2.1).
const FUNCTIONS: usize = 8;
/// Disks, network devices and a balloon that a guest can have: slots are shared where there are more than these.
pub const MOST_DEVICES: usize = SLOTS * FUNCTIONS;

/// Where a disk, or its controller, or a network device is on the bus. It is fixed, so that the guest can find by it
/// a disk that has no serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciAddress {
    slot: usize,
    function: usize,
}

impl PciAddress {
    /// That of a guest's nth disk; its network devices come after the last, and then its balloon.
    pub fn of(index: usize) -> Self {
        Self { slot: FIRST_SLOT + index % SLOTS, function: index / SLOTS }
    }

    /// As the guest has it, whole.
    pub fn in_guest(self) -> String {
        format!("0000:00:{self}")
    }
}

/// `1e.0`, as QEMU and Linux write it.
impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x}.{}", self.slot, self.function)
    }
}

/// Value of `-smp`. With one processor and never more, TCG leaves out the guest's memory barriers and locked instructions
/// (`CF_PARALLEL`, accel/tcg/tcg-accel-ops-mttcg.c; barriers are kept from 8.1 on), though QEMU's other threads share that
/// memory. A doorbell that the guest's driver rings in memory (NVMe's shadow doorbells, virtio's event index) can be missed
/// then, and its requests wait for the driver's timeouts: docs/drivers.md. Room for a second processor, which is never
/// plugged in, keeps them; the second word, for the kernel's command line, says that there will be none, so that the guest
/// is what it would be without it.
fn processors(accel: Accel, vcpus: u32) -> (String, &'static str) {
    match (accel, vcpus) {
        (Accel::Tcg, 1) => ("1,maxcpus=2".to_owned(), " nr_cpus=1"),
        _ => (vcpus.to_string(), ""),
    }
}

/// The arguments, without the program.
pub fn arguments(plan: &Plan<'_>) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| args.extend([format!("-{option}"), value]);
    let text = |path: &Path| escape(&path.to_string_lossy());
    let machine = machine::of(plan.arch);
    let (accel, cpu, told_emulated) = match plan.accel {
        Accel::Kvm => ("kvm", "host", ""),
        Accel::Tcg => ("tcg,thread=multi", machine.emulated, machine.kernel),
    };

    add("name", format!("vmio-{},debug-threads=on", plan.name));
    let shared = plan.disks.iter().any(PlannedDisk::shares_memory);
    if shared {
        // A vhost-user server reads and writes the guest's memory itself.
        add("object", format!("memory-backend-memfd,id=memory,size={}M,share=on", plan.memory_mib));
    }
    add("machine", format!("{}{}", machine.name, if shared { ",memory-backend=memory" } else { "" }));
    for global in machine.globals {
        add("global", (*global).to_owned());
    }
    add("accel", accel.into());
    add("cpu", cpu.into());
    let (processors, told) = processors(plan.accel, plan.vcpus);
    add("smp", processors);
    add("m", plan.memory_mib.to_string());
    add("kernel", plan.kernel.to_string_lossy().into_owned());
    add("initrd", plan.paths.initramfs.to_string_lossy().into_owned());
    add("append", format!("console={} {KERNEL}{told_emulated}{told}", machine.console));

    add("chardev", format!("file,id=console,path={}", text(&plan.paths.console)));
    add("serial", "chardev:console".into());
    for (id, path) in [("qmp", &plan.paths.qmp), ("watch", &plan.paths.watch)] {
        add("chardev", format!("socket,id={id},path={},server=on,wait=off", text(path)));
        add("mon", format!("chardev={id},mode=control"));
    }
    add("device", Device::new("virtio-serial-pci", "serial").with("addr", SERIAL_SLOT).to_string());
    add("chardev", format!("socket,id=agent,path={},server=on,wait=off", text(&plan.paths.agent)));
    add("device", format!("virtserialport,chardev=agent,name={AGENT_PORT}"));

    add(
        "blockdev",
        json!({"driver": "file", "node-name": "tools-file", "filename": plan.tools, "read-only": true}).to_string(),
    );
    add(
        "blockdev",
        json!({"driver": "raw", "node-name": "tools", "file": "tools-file", "read-only": true}).to_string(),
    );
    let tools = Device::new("virtio-blk-pci", "tools").with("drive", "tools").with("serial", TOOLS_SERIAL);
    add("device", tools.with("addr", TOOLS_SLOT).to_string());

    let devices = plan.disks.len() + plan.nics.len() + usize::from(plan.balloon);
    let place = |i: usize, device: Device| {
        let address = PciAddress::of(i);
        let shared_slot = address.function == 0 && devices > i + SLOTS;
        device.with("addr", address.to_string()).maybe("multifunction", shared_slot.then_some(true))
    };
    for (i, disk) in plan.disks.iter().enumerate() {
        let placed = |device| if disk.model.is_on_pci { place(i, device) } else { device }.to_string();
        let (node, id, serial) = (node_name(i), device_id(i), serial(i));
        if let (Storage::VhostUserBlk { socket }, Some(model)) = (disk.storage, disk.model.vhost_user) {
            add("chardev", format!("socket,id={},path={}", chardev_id(i), text(socket)));
            let device = Device::new(model, id)
                .with("chardev", chardev_id(i))
                // The server's number of queues, which is one where nothing else is asked for.
                .with("num-queues", disk.attachment.options.queues.unwrap_or(1))
                // Else the guest takes the word of qemu-storage-daemon, which says "write through"
                // whatever it does, and sends no flush any more.
                .with("config-wce", false);
            add("device", placed(device));
            continue;
        }
        if let Storage::PassedThrough { address } = disk.storage {
            add("device", placed(Device::new(PASSED_THROUGH, id).with("host", address.as_str())));
            continue;
        }
        if let Storage::NbdTls { keys, .. } = disk.storage {
            let (id, user) = (credentials_id(&node), Storage::TLS_USER);
            add("object", format!("tls-creds-psk,id={id},endpoint=client,dir={},username={user}", text(keys)));
        }
        for layer in layers(disk.storage, disk.attachment, &node) {
            add("blockdev", layer.to_string());
        }
        let iothreads = iothread_ids(i, disk.attachment);
        for io in &iothreads {
            add("object", format!("iothread,id={io}"));
        }
        let asked = disk.attachment;
        let made = Disk { id: &id, node: &node, serial: &serial, iothreads: &iothreads, asked, qemu: plan.qemu };
        for (nth, device) in disk.model.devices(&made).into_iter().enumerate() {
            add("device", if nth == 0 { placed(device) } else { device.to_string() });
        }
    }
    for (i, PlannedNic { spec, card }) in plan.nics.iter().enumerate() {
        let (id, netdev) = (nic_id(i), format!("path{i}"));
        let mut tap = format!("tap,id={netdev},ifname={},script=no,downscript=no", spec.tap);
        // Without `vhostforce` QEMU carries the packets itself where it cannot have vhost, and only warns.
        tap += if spec.nic.vhost { ",vhost=on,vhostforce=on" } else { "" };
        if let Some(n) = spec.nic.queues.filter(|n| *n > 1) {
            tap += &format!(",queues={n}");
        }
        add("netdev", tap);
        let device = card.device(&spec.nic, &id, &netdev, &spec.mac);
        let device = if card.model.is_on_pci { place(plan.disks.len() + i, device) } else { device };
        add("device", device.to_string());
    }
    if plan.balloon {
        add("device", place(devices - 1, Device::new("virtio-balloon-pci", balloon::ID)).to_string());
    }
    args.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
    args.extend(["-display", "none"].map(String::from));
    args
}

/// The block nodes of a disk, the lowest first (QAPI `BlockdevOptions`); the last has this name.
fn layers(storage: &Storage, asked: &Attachment, node: &str) -> Vec<Value> {
    if storage.is_exchanged() { exchanged_layers(storage, asked, node, 0) } else { own_layers(storage, asked, node) }
}

/// The same for storage that is exchanged while the guest runs: a disk image, a server with a cache.
pub fn exchanged_layers(storage: &Storage, asked: &Attachment, node: &str, generation: u32) -> Vec<Value> {
    under_raw(own_layers(storage, asked, node), node, generation)
}

/// Puts a `raw` node called `node` above the nodes of such storage (the protocol's and the format's), which get names of
/// their own for each exchange.
fn under_raw(mut layers: Vec<Value>, node: &str, generation: u32) -> Vec<Value> {
    let [protocol, image] = &mut layers[..] else { return layers };
    // The first one is called like the file of any other disk.
    let suffix = if generation == 0 { String::new() } else { format!("-{generation}") };
    let (file_name, image_name) = (format!("{node}-file{suffix}"), format!("{node}-image{suffix}"));
    protocol["node-name"] = json!(file_name);
    image["node-name"] = json!(image_name);
    image["file"] = json!(file_name);
    let mut top = json!({"driver": "raw", "node-name": node, "file": image_name, "cache": image["cache"]});
    for key in ["discard", "detect-zeroes"] {
        if let Some(value) = image.get(key) {
            top[key] = value.clone();
        }
    }
    // Zeroes are looked for once, at the top.
    if let Some(image) = image.as_object_mut() {
        image.remove("detect-zeroes");
    }
    layers.push(top);
    layers
}

/// Protocol, then format.
fn own_layers(storage: &Storage, asked: &Attachment, node: &str) -> Vec<Value> {
    let cache = json!({"direct": asked.cache.direct(), "no-flush": asked.cache.no_flush()});
    let below = format!("{node}-file");
    let file = |driver: &str, path: &Path| {
        json!({
            "driver": driver,
            "node-name": below,
            "filename": path,
            "aio": asked.aio.to_string(),
            "cache": cache,
            // The same storage may be attached several times, once for each driver.
            "locking": "off",
        })
    };
    let mut format = json!({"driver": "raw", "node-name": node, "file": below, "cache": cache});
    let protocol = match storage {
        Storage::File(path) => file("file", path),
        Storage::BlockDevice(path) => file("host_device", path),
        Storage::Image { path, format: name, options } => {
            format["driver"] = json!(name);
            for (key, value) in options {
                format[key] = value.clone();
            }
            file("file", path)
        }
        Storage::Nbd { socket, export } => json!({
            "driver": "nbd", "node-name": below, "export": export, "cache": cache,
            "server": {"type": "unix", "path": socket},
        }),
        Storage::CachedNbd { socket } => json!({
            "driver": "nbd", "node-name": below, "cache": cache, "server": {"type": "unix", "path": socket},
        }),
        Storage::NbdTcp { server, export } | Storage::NbdTls { server, export, .. } => {
            let mut nbd = Storage::nbd_over_tcp(*server, export);
            nbd["node-name"] = json!(below);
            nbd["cache"] = json!(cache);
            if matches!(storage, Storage::NbdTls { .. }) {
                nbd["tls-creds"] = json!(credentials_id(node));
            }
            nbd
        }
        Storage::Iscsi { portal, target, lun } => json!({
            "driver": "iscsi", "node-name": below, "transport": "tcp", "portal": portal.to_string(),
            "target": target, "lun": lun, "timeout": ISCSI_SECONDS, "cache": cache,
        }),
        Storage::Rbd { pool, image, conf, user } => {
            let mut rbd = json!({"driver": "rbd", "node-name": below, "pool": pool, "image": image, "cache": cache});
            for (key, value) in [("conf", conf.as_ref().map(|c| json!(c))), ("user", user.as_ref().map(|u| json!(u)))] {
                if let Some(value) = value {
                    rbd[key] = value;
                }
            }
            rbd
        }
        Storage::VhostUserBlk { .. } | Storage::PassedThrough { .. } => return Vec::new(),
        Storage::Aoe { .. } | Storage::NvmeTcp { .. } => {
            unreachable!("a disk that QEMU is no client of was refused ({})", asked.label())
        }
    };
    let mut layers = vec![protocol, format];
    let options = &asked.options;
    if options.discard {
        // Each layer drops discards unless it is told.
        layers.iter_mut().for_each(|layer| layer["discard"] = json!("unmap"));
    }
    if options.detect_zeroes != DetectZeroes::Off {
        layers[1]["detect-zeroes"] = json!(options.detect_zeroes.to_string());
    }
    layers
}

/// A comma in the value of an option is doubled.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
