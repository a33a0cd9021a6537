//! QEMU's command line (qemu(1)). Everything is named: no default devices, no user configuration,
//! block back ends as explicit nodes, so that what was measured can be read from it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vmio_model::result::Accel;
use vmio_model::setup::Attachment;

use super::exchange;
use crate::drivers::{Disk, Driver};
use crate::image::{AGENT_PORT, TOOLS_SERIAL};
use crate::targets::Storage;

/// Parameters of the guest's kernel. None of them touches the path of a request: messages go to
/// the serial port and only when they matter, a panic ends QEMU, and the crypto code is not tested
/// at each boot (a quarter of a second under emulation).
const KERNEL: &str = "console=ttyS0 quiet panic=-1 cryptomgr.notests";
/// Under emulation the kernel's watchdog may distrust the TSC when the host is busy and fall back
/// to a clock that costs an exit at each reading, in the middle of a measurement.
const KERNEL_TCG: &str = "tsc=reliable";

/// All that a command line is made of.
#[derive(Clone)]
pub struct Plan<'a> {
    /// Name of the guest.
    pub name: &'a str,
    /// Accelerator to ask for.
    pub accel: Accel,
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
}

/// A disk of a plan.
#[derive(Clone)]
pub struct PlannedDisk<'a> {
    /// What QEMU opens.
    pub storage: &'a Storage,
    /// How the guest sees it.
    pub attachment: &'a Attachment,
    /// Entry that makes the device.
    pub driver: &'static dyn Driver,
}

/// The files of a running guest.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Directory of all of them.
    pub dir: PathBuf,
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
            dir: dir.to_owned(),
            qmp: dir.join("qmp"),
            watch: dir.join("watch"),
            agent: dir.join("agent"),
            console: dir.join("console"),
            initramfs: dir.join("initramfs"),
        }
    }
}

/// Id of a disk's device in QEMU.
pub fn device_id(index: usize) -> String {
    format!("disk{index}")
}
/// Name of a disk's format node.
pub fn node_name(index: usize) -> String {
    format!("node{index}")
}
/// Id of a disk's I/O thread.
pub fn iothread_id(index: usize) -> String {
    format!("io{index}")
}
/// Serial number by which the guest finds a disk; virtio-blk keeps 20 bytes of it.
pub fn serial(index: usize) -> String {
    format!("vmio-{index}")
}

/// The arguments, without the program.
pub fn arguments(plan: &Plan<'_>) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| args.extend([format!("-{option}"), value]);
    let text = |path: &Path| escape(&path.to_string_lossy());
    let (accel, cpu, kernel) = match plan.accel {
        Accel::Kvm => ("kvm", "host", KERNEL.to_owned()),
        Accel::Tcg => ("tcg,thread=multi", "max", format!("{KERNEL} {KERNEL_TCG}")),
    };

    add("name", format!("vmio-{},debug-threads=on", plan.name));
    add("machine", "q35".into());
    add("accel", accel.into());
    add("cpu", cpu.into());
    add("smp", plan.vcpus.to_string());
    add("m", plan.memory_mib.to_string());
    add("kernel", plan.kernel.to_string_lossy().into_owned());
    add("initrd", plan.paths.initramfs.to_string_lossy().into_owned());
    add("append", kernel);

    add("chardev", format!("file,id=console,path={}", text(&plan.paths.console)));
    add("serial", "chardev:console".into());
    for (id, path) in [("qmp", &plan.paths.qmp), ("watch", &plan.paths.watch)] {
        add("chardev", format!("socket,id={id},path={},server=on,wait=off", text(path)));
        add("mon", format!("chardev={id},mode=control"));
    }
    add("device", "virtio-serial-pci".into());
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
    add("device", format!("virtio-blk-pci,id=tools,drive=tools,serial={TOOLS_SERIAL}"));

    for (i, disk) in plan.disks.iter().enumerate() {
        let (node, id, serial) = (node_name(i), device_id(i), serial(i));
        for layer in layers(disk, &node) {
            add("blockdev", layer.to_string());
        }
        let iothread = disk.attachment.iothread.then(|| iothread_id(i));
        if let Some(io) = &iothread {
            add("object", format!("iothread,id={io}"));
        }
        let device =
            disk.driver.device_args(&Disk { id: &id, node: &node, serial: &serial, iothread: iothread.as_deref() });
        if let Some(controller) = device.controller {
            add("device", controller);
        }
        add("device", format!("{},share-rw=on", device.device));
    }
    args.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(String::from));
    args.extend(["-display", "none"].map(String::from));
    args
}

/// The block nodes of a disk, the lowest first (QAPI `BlockdevOptions`); the last has this name.
fn layers(disk: &PlannedDisk<'_>, node: &str) -> Vec<Value> {
    match disk.storage {
        Storage::Image { .. } => image_layers(disk, node, 0),
        _ => own_layers(disk, node),
    }
}

/// The same for a disk image, which can be exchanged while the guest runs.
pub fn image_layers(disk: &PlannedDisk<'_>, node: &str, generation: u32) -> Vec<Value> {
    exchange::under_raw(own_layers(disk, node), node, generation)
}

/// Protocol, then format.
fn own_layers(disk: &PlannedDisk<'_>, node: &str) -> Vec<Value> {
    let cache = json!({"direct": disk.attachment.cache.direct(), "no-flush": disk.attachment.cache.no_flush()});
    let below = format!("{node}-file");
    let file = |driver: &str, path: &Path| {
        json!({
            "driver": driver,
            "node-name": below,
            "filename": path,
            "aio": disk.attachment.aio.to_string(),
            "cache": cache,
            // The same storage may be attached several times, once for each driver.
            "locking": "off",
        })
    };
    let mut format = json!({"driver": "raw", "node-name": node, "file": below, "cache": cache});
    let protocol = match disk.storage {
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
        Storage::Rbd { pool, image, conf, user } => {
            let mut rbd = json!({"driver": "rbd", "node-name": below, "pool": pool, "image": image, "cache": cache});
            for (key, value) in [("conf", conf.as_ref().map(|c| json!(c))), ("user", user.as_ref().map(|u| json!(u)))] {
                if let Some(value) = value {
                    rbd[key] = value;
                }
            }
            rbd
        }
        Storage::VhostUserBlk { .. } => return Vec::new(),
    };
    vec![protocol, format]
}

/// A comma in the value of an option is doubled.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_model::setup::{Aio, Cache};

    use super::*;
    use crate::drivers;

    #[test]
    fn command_line_is_as_recorded() {
        let attachment = |driver: &str, cache, aio, iothread| Attachment::new(driver, cache, aio).iothread(iothread);
        let a = attachment("lsi53c895a", Cache::Writeback, Aio::Threads, false);
        let b = attachment("virtio-blk", Cache::None, Aio::IoUring, true);
        let (file, device) = (Storage::File("/scratch/a,b.raw".into()), Storage::BlockDevice("/dev/loop7".into()));
        let disk = |storage, attachment| {
            let attachment: &Attachment = attachment;
            PlannedDisk { storage, attachment, driver: drivers::find(&attachment.driver).unwrap() }
        };
        let plan = Plan {
            name: "guest0",
            accel: Accel::Tcg,
            vcpus: 1,
            memory_mib: 256,
            kernel: "/s/kernel".into(),
            tools: "/s/tools.ext2".into(),
            paths: Paths::below(Path::new("/run/v,mio/g")),
            disks: vec![disk(&file, &a), disk(&device, &b)],
        };
        let golden = include_str!("../../../tests/fixtures/qemu/arguments.txt");
        let lines: Vec<&str> = golden.lines().collect();
        let made = arguments(&plan).join("\n").replace("\n-", "\n\u{1}-").replace('\n', " ").replace(" \u{1}", "\n");
        assert_eq!(made.lines().collect::<Vec<_>>(), lines, "made:\n{made}\n");

        let kvm = arguments(&Plan { accel: Accel::Kvm, ..plan });
        let after = |option: &str| kvm[kvm.iter().position(|a| a == option).unwrap() + 1].as_str();
        assert_eq!((after("-accel"), after("-cpu"), after("-append")), ("kvm", "host", KERNEL));
    }
}
