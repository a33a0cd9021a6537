//! The change of a guest's own disk, with what it requires. `qemu.rs`, `libvirt.rs` and `slot.rs` write the texts.
//! Unrelated settings stay and are not written.

use super::to::{DeviceChange, DiskChange};
use super::{AppliesAt, Change, libvirt, qemu, slot};
use crate::cell::{Aio, Cache};
use crate::facts::{CommandLineOption, Disk, Source};
use crate::rules::withheld::{self, Advice};

/// The cache mode that is advised for this disk: O_DIRECT, unless its file system breaks it.
pub fn cache_mode(disk: &Disk) -> Cache {
    if withheld::of_disk(disk, Advice::CacheNone).is_some() { Cache::Writeback } else { Cache::None }
}

/// The AIO engine for that cache mode on this disk: Linux AIO with O_DIRECT where all blocks are allocated. A sparse
/// file or a growing image would block during allocation (kubevirt 4077), and an unknown image may be one.
pub fn engine(disk: &Disk) -> Aio {
    let raw = disk.details.format.as_deref() == Some("raw");
    let native = raw && disk.sparse != Some(true) && cache_mode(disk).direct();
    if native { Aio::Native } else { uring_or_threads(disk) }
}

/// The engine for requests that may block: io_uring, or threads where it is known to hang.
pub fn uring_or_threads(disk: &Disk) -> Aio {
    if withheld::of_disk(disk, Advice::IoUring).is_some() { Aio::Threads } else { Aio::IoUring }
}

/// Whether the disk's writes go to a temporary image (`-snapshot`, `snapshot=on`), whose cache mode is "unsafe"
/// whatever was configured.
pub fn thrown_away(disk: &Disk) -> bool {
    // QEMU's name of such an image (block.c, create_tmp_file), which the monitor reports as the disk's file.
    let temporary = |source: &str| {
        let name = source.rsplit('/').next().and_then(|name| name.strip_prefix("vl."));
        name.is_some_and(|rest| rest.len() == 6 && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    let by_option = |o: &CommandLineOption| o.name == "snapshot" || o.keys == Some("snapshot=on");
    disk.cache.as_deref() == Some("unsafe")
        && (disk.cache.source().and_then(Source::option).is_some_and(by_option)
            || disk.place.source.as_deref().is_some_and(temporary))
}

/// Changes of driver, cache mode, engine, I/O thread and the like for a guest's own disk.
pub fn own_disk(what: impl Into<String>, disk: &Disk, asked: &DiskChange) -> Change {
    let to = made_safe(disk, asked);
    Change {
        what: what.into(),
        qemu: qemu::edit(disk, &to),
        libvirt: libvirt::edit(disk, &to),
        proxmox: slot::set(disk, &to),
        takes: AppliesAt::NextStart,
        sets: Some(DeviceChange::Disk(asked.clone())),
    }
}

/// The requested changes with those that they require: a cache mode that loses data, or with which QEMU refuses the
/// engine, is replaced.
fn made_safe(disk: &Disk, asked: &DiskChange) -> DiskChange {
    let mut to = asked.clone();
    if thrown_away(disk) {
        // The image's own cache mode is not known, and the disk must not begin to keep its writes.
        to.cache = None;
        return to;
    }
    let cache = to.cache.map(|c| c.to_string()).or_else(|| disk.cache.value().clone());
    let aio = to.aio.map(|a| a.to_string()).or_else(|| disk.aio.value().clone());
    let direct = cache.as_deref().map(|c| matches!(c, "none" | "directsync"));
    let native = aio.as_deref() == Some("native");
    let replaced = cache.as_deref() == Some("unsafe")
        || (native && direct == Some(false))
        || (to.aio.is_some() && direct.is_none())
        || to.cache == Some(Cache::None);
    if replaced {
        to.cache = Some(cache_mode(disk));
    }
    let fits = match to.cache {
        Some(Cache::None) => to.aio.is_some() || aio.as_deref() == Some("io_uring"),
        Some(other) => !native || other.direct(),
        None => true,
    };
    if !fits {
        to.aio = Some(engine(disk));
    } else if to.aio == Some(Aio::IoUring) {
        to.aio = Some(uring_or_threads(disk));
    }
    to
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Details, Fact, Place};
    use crate::testing::{live_disk, on_filesystem};

    fn web1(driver: &str, place: Place) -> Disk {
        let details = Details { format: "raw".into(), ..Details::default() };
        Disk { driver: Some(driver.into()).into(), iothread: Some(false).into(), place, ..live_disk(details) }
    }

    fn place() -> Place {
        Place {
            domain: Some("web1".into()),
            vmid: Some("101".into()),
            source: "/dev/vg0/web1".into(),
            target: Some("sdb".into()),
            slot: Some("scsi1".into()),
            device_id: Some("scsi0-0-0-1".into()),
            ..Place::default()
        }
    }

    #[test]
    fn an_iothread_leaves_driver_and_cache_alone() {
        let disk = Disk { cache: "writeback".into(), aio: "threads".into(), ..web1("virtio-scsi", place()) };
        let change = own_disk("x", &disk, &DiskChange { iothread: true, ..DiskChange::default() });
        assert_eq!(
            change.qemu,
            "# one more option\n-object iothread,id=iothread-sdb\n# in the -device virtio-scsi-pci that its bus= names: \
             set these, keep all else\niothread=iothread-sdb"
        );
        assert!(change.libvirt.starts_with("virsh edit web1\n"), "{}", change.libvirt);
        // Only what is new: other attributes stay.
        assert!(!change.libvirt.contains("cache=") && !change.libvirt.contains("model="), "{}", change.libvirt);
        assert!(change.libvirt.contains("(add one where it has none)\niothread='N'\n"), "{}", change.libvirt);
        let direct = own_disk("x", &disk, &DiskChange { cache: Some(Cache::None), ..DiskChange::default() });
        assert_eq!(
            direct.libvirt,
            "virsh edit web1\n# in the <disk> with <target dev='sdb' .../>, in its <driver .../>: set these, keep all \
             else\ncache='none' io='native'"
        );
        assert_eq!(
            change.proxmox.lines().collect::<Vec<&str>>(),
            [
                "# --scsihw is the controller of all SCSI disks of the guest",
                "disk=\"$(qm config 101 | sed -nE '/^scsi1: /{s///;s/,(iothread)=[^,]*//g;p}')\" && [ -n \"$disk\" ] && \\",
                "{ qm config 101 | grep '^scsihw: virtio-scsi-single$' || qm set 101 --scsihw virtio-scsi-single; } && \\",
                "qm set 101 --scsi1 \"$disk,iothread=1\"",
                "# takes effect after the guest is shut down and started"
            ]
        );
    }

    #[test]
    fn qemus_options_are_edited_as_the_disk_was_given() {
        let of = |option: &str| Disk {
            cache: "writethrough".into(),
            iothread: Fact::read(Some(false), CommandLineOption::new(812, option)),
            ..web1("virtio-blk", place())
        };
        let to = DiskChange { cache: Some(Cache::None), discard: true, ..DiskChange::default() };
        let device = "# in its own -device: set these, keep all else\nwrite-cache=on";
        assert_eq!(
            own_disk("x", &of("drive"), &to).qemu,
            format!(
                "# in its own -drive: set these in place of its cache= and cache.*=, keep all else\n\
                 cache=none,aio=native,discard=unmap\n{device}"
            )
        );
        assert_eq!(
            own_disk("x", &of("blockdev"), &to).qemu,
            format!(
                "# in each of its own -blockdev: set these, keep all else\n\
                 cache.direct=on,cache.no-flush=off,discard=unmap\n\
                 # in that of driver file or host_device (where it is written as file.driver=, with file. before it): \
                 set this, keep all else\naio=native\n{device}"
            )
        );
        // -drive if=ide has no -device to edit.
        let option = CommandLineOption::new(1, "drive");
        let bare = Disk { driver: Fact::read(Some("ide".into()), option), ..web1("ide", place()) };
        let moved = own_disk("x", &bare, &DiskChange { driver: Some("virtio-blk"), ..DiskChange::default() }).qemu;
        assert!(
            moved.ends_with("\nif=none,id=disk-sdb\n# one more option\n-device virtio-blk-pci,drive=disk-sdb"),
            "{moved}"
        );
    }

    #[test]
    fn an_iothread_that_is_shared_is_not_left_by_its_controller() {
        let mut disk = Disk { iothread: Some(true).into(), ..web1("virtio-scsi", place()) };
        disk.details.iothread_name = "iothread1".into();
        let change = own_disk("x", &disk, &DiskChange { iothread: true, ..DiskChange::default() });
        assert!(change.qemu.contains("-device virtio-scsi-pci,id=hba-sdb,iothread=iothread-sdb\n"), "{}", change.qemu);
        assert!(change.qemu.ends_with("set these, keep all else\nbus=hba-sdb.0"), "{}", change.qemu);
        // libvirt's I/O threads are not known: there is nothing to paste unchanged.
        assert_eq!(
            change.libvirt,
            "virsh edit web1\n# in the <disk> with <target dev='sdb' .../>, in its <address type='drive' .../>: set this, \
             keep all else\ncontroller='M'\n# one more controller; M: an index that none has yet\n<controller type='scsi' \
             index='M' model='virtio-scsi'>\n  <driver iothread='N'/>\n</controller>\n# N, here and above: one more I/O \
             thread than there are, 1 where there are none\n<iothreads>N</iothreads>  <!-- directly below <domain> -->"
        );
    }

    #[test]
    fn a_disk_moves_to_virtio_under_a_like_name() {
        let place = Place { slot: Some("sata2".into()), target: Some("sdc".into()), ..place() };
        let to = DiskChange { driver: Some("virtio-blk"), iothread: true, ..DiskChange::default() };
        let change = own_disk("x", &web1("ahci", place), &to);
        assert!(
            change
                .qemu
                .contains("keep drive=, id=, serial=, bootindex= and all else\nvirtio-blk-pci,iothread=iothread-sdc")
        );
        assert!(change.libvirt.contains("<target dev='vdc' bus='virtio'/>"), "{}", change.libvirt);
        assert!(change.proxmox.contains("\nqm set 101 --delete sata2 && \\\n"), "{}", change.proxmox);
        assert!(change.proxmox.contains("\nqm set 101 --virtio2 \"$disk,iothread=1\" && \\\n"), "{}", change.proxmox);
        // An emulated SCSI controller is replaced without moving the disk.
        let scsi = own_disk("x", &web1("lsi53c895a", self::place()), &to).proxmox;
        assert!(scsi.contains("|| qm set 101 --scsihw virtio-scsi-single; }") && !scsi.contains("delete"), "{scsi}");
    }

    #[test]
    fn a_disk_moves_to_a_name_and_a_slot_that_are_free() {
        let to = DiskChange { driver: Some("virtio-blk"), ..DiskChange::default() };
        let moved = |target: &str, slot: &str, taken: &[&str], first: bool| {
            let place = Place {
                target: Some(target.into()),
                slot: Some(slot.into()),
                taken: taken.iter().map(|name| (*name).to_owned()).collect(),
                boots_as_first: Some(first),
                ..place()
            };
            own_disk("x", &web1("ide", place), &to)
        };
        let free = moved("hda", "ide0", &["hda", "ide0"], true);
        assert!(free.libvirt.ends_with("<target dev='vda' bus='virtio'/>"), "{}", free.libvirt);
        assert!(free.proxmox.contains("--virtio0 \"$disk"), "{}", free.proxmox);
        let taken = moved("hda", "ide0", &["hda", "vda", "vdb", "ide0", "virtio0"], false);
        assert!(taken.libvirt.ends_with("<target dev='vdc' bus='virtio'/>"), "{}", taken.libvirt);
        assert!(taken.proxmox.contains("--virtio1 \"$disk"), "{}", taken.proxmox);
        // The guest still boots from its first disk.
        let first = moved("hda", "ide0", &["hda", "vda"], true);
        assert!(first.libvirt.ends_with("<target dev='vdb' bus='virtio'/>\n# and, since another disk would come first and be booted from: this in its <disk>, and the\n# <boot dev='hd'/> goes from <os> (other <boot dev=.../> there become such orders, too)\n<boot order='1'/>"), "{}", first.libvirt);
        // Proxmox has sixteen of these slots; a disk without one would stay detached.
        assert!(moved("sdc", "sata20", &[], false).proxmox.contains("--virtio0 \"$disk"));
        let names: Vec<String> = (0..16).map(|n| format!("virtio{n}")).collect();
        let none = moved("hda", "ide0", &names.iter().map(String::as_str).collect::<Vec<_>>(), false);
        assert!(none.proxmox.lines().all(|line| line.starts_with('#')), "{}", none.proxmox);
        // Older guests have their boot disk in a line of its own.
        let step = "bootdisk=\"$(qm config 101 | sed -nE 's/^bootdisk: ide0$/virtio0/p')\" && \\\n";
        let last = "{ [ -z \"$bootdisk\" ] || qm set 101 --bootdisk \"$bootdisk\"; } && \\\n";
        assert!(free.proxmox.contains(step) && free.proxmox.contains(last), "{}", free.proxmox);
    }

    /// The commands that a shell runs from the text, with this output of `qm config`.
    fn commands(text: &str, config: &str) -> Vec<String> {
        let qm = "qm() { if [ $1 = config ]; then printf '%s\\n' \"$config\"; else echo \"qm $*\" >&2; fi; }";
        let script = format!("config='{config}'\n{qm}\n{text}\n");
        let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(out.stderr).unwrap().lines().map(str::to_owned).collect()
    }

    /// Whatever names Proxmox's boot disk names it afterwards, too (qemu-server, `device_bootorder`).
    #[test]
    fn proxmox_goes_on_booting_from_a_disk_that_moves() {
        let place = Place { slot: Some("ide0".into()), taken: vec!["ide0".into(), "virtio0".into()], ..place() };
        let to = DiskChange { driver: Some("virtio-blk"), ..DiskChange::default() };
        let text = own_disk("x", &web1("ide", place), &to).proxmox;
        let disks = "ide0: local:101/vm-101-disk-0.raw,size=4G,ssd=1\nvirtio0: local:101/vm-101-disk-1.raw";
        let moved =
            ["qm shutdown 101", "qm set 101 --delete ide0", "qm set 101 --virtio1 local:101/vm-101-disk-0.raw,size=4G"];
        let of = |boot: &str| commands(&text, &format!("{boot}{disks}"));
        let all = |last: &[&'static str]| [&moved[..], last, &["qm start 101"]].concat();
        assert_eq!(of("boot: cdn\nbootdisk: ide0\n"), all(&["qm set 101 --bootdisk virtio1"]));
        assert_eq!(of("boot: order=net0;ide0;ide2\n"), all(&["qm set 101 --boot order=net0;virtio1;ide2"]));
        assert_eq!(of("bootdisk: virtio0\n"), all(&[]));
        // A slot that was taken in the meantime stops the commands at the start.
        assert_eq!(commands(&text, &format!("virtio1: x\n{disks}")), [] as [&str; 0]);
    }

    #[test]
    fn what_is_dangerous_does_not_stay() {
        let disk = Disk { cache: "unsafe".into(), aio: "threads".into(), ..web1("virtio-blk", place()) };
        let change = own_disk("x", &disk, &DiskChange { iothread: true, ..DiskChange::default() });
        assert!(change.qemu.contains("\ncache=none,aio=native\n"), "{}", change.qemu);
        assert!(change.libvirt.contains("\ncache='none' io='native' iothread='N'\n"), "{}", change.libvirt);
        assert!(change.proxmox.contains(",cache=none,aio=native,"), "{}", change.proxmox);
    }

    #[test]
    fn a_file_system_that_breaks_direct_io_keeps_the_page_cache() {
        let on = |filesystem: &str, cache: &str, aio: &str| {
            let mut disk = web1("virtio-blk", place());
            disk.details.below = on_filesystem(filesystem);
            Disk { cache: Some(cache.into()).into(), aio: Some(aio.into()).into(), ..disk }
        };
        let to = |disk: &Disk, cache: Option<Cache>| {
            let set = made_safe(disk, &DiskChange { cache, discard: true, ..DiskChange::default() });
            (set.cache, set.aio)
        };
        let none = Some(Cache::None);
        let (writeback, uring) = (Some(Cache::Writeback), Some(Aio::IoUring));
        assert_eq!(to(&on("ext4", "unsafe", "threads"), None), (none, Some(Aio::Native)));
        assert_eq!(to(&on("btrfs", "unsafe", "threads"), None), (writeback, None));
        assert_eq!(to(&on("btrfs", "writeback", "native"), None), (writeback, uring));
        assert_eq!(to(&on("btrfs", "directsync", "native"), writeback), (writeback, uring));
        assert_eq!(to(&on("zfs", "writethrough", "threads"), none), (writeback, None));
        // What is there already is not taken back.
        assert_eq!(to(&on("btrfs", "none", "native"), None), (None, None));
    }

    #[test]
    fn the_engine_suits_the_image() {
        let of = |format: &str, sparse| {
            let details = Details { format: Some(format.into()).into(), ..Details::default() };
            engine(&Disk { sparse, ..live_disk(details) })
        };
        assert_eq!(
            [
                of("raw", None.into()),
                of("raw", Some(true).into()),
                of("qcow2", None.into()),
                of("vmdk", Some(false).into())
            ],
            [Aio::Native, Aio::IoUring, Aio::IoUring, Aio::IoUring]
        );
        assert_eq!(engine(&live_disk(Details::default())), Aio::IoUring, "nobody says what it is");
    }
}
