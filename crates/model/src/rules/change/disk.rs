//! A disk as text to paste: options of QEMU, elements of libvirt's XML, Proxmox's commands. Either a
//! disk of a study, with placeholders for the reader's own, or a guest's own disk, in which only
//! what a rule is about differs from what is in force.
//!
//! Syntax: QEMU's manual, "Block device options"; libvirt, `formatdomain.html`, "Hard drives, floppy
//! disks, CDROMs", "Controllers" (an I/O thread of virtio-scsi is the controller's) and "IOThreads
//! Allocation". Proxmox's commands are in `slot.rs`.

use super::names::{Names, option, shell, xml};
use super::{Change, Sets, Takes, slot};
use crate::facts::{Disk, Place};
use crate::setup::{Aio, Attachment, Cache, DetectZeroes};

/// What is to differ from the disk as it is; what is not said stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct To {
    /// Driver.
    pub driver: Option<&'static str>,
    /// Cache mode.
    pub cache: Option<Cache>,
    /// AIO engine.
    pub aio: Option<Aio>,
    /// Whether it gets an I/O thread of its own.
    pub iothread: bool,
    /// Request queues.
    pub queues: Option<u32>,
    /// Whether discards are passed on from now on.
    pub discard: bool,
}

impl To {
    /// Both; where both say something else, the first.
    pub(super) fn and(self, other: &To) -> To {
        To {
            driver: self.driver.or(other.driver),
            cache: self.cache.or(other.cache),
            aio: self.aio.or(other.aio),
            iothread: self.iothread || other.iothread,
            queues: self.queues.or(other.queues),
            discard: self.discard || other.discard,
        }
    }
}

/// A disk to be written down: what is known of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) driver: Option<String>,
    pub(super) cache: Option<String>,
    pub(super) aio: Option<String>,
    /// Name of its I/O thread, and whether that is new.
    pub(super) iothread: Option<(String, bool)>,
    pub(super) queues: Option<u32>,
    pub(super) discard: bool,
    pub(super) zeroes: DetectZeroes,
    format: String,
    pub(super) place: Place,
}

impl From<&Attachment> for Draft {
    fn from(a: &Attachment) -> Self {
        Draft {
            driver: Some(a.driver.clone()),
            cache: Some(a.cache.to_string()),
            aio: Some(a.aio.to_string()),
            iothread: a.iothread.then(|| ("iothread0".to_owned(), true)),
            queues: a.options.queues,
            discard: a.options.discard,
            zeroes: a.options.detect_zeroes,
            format: "raw".to_owned(),
            place: Place::default(),
        }
    }
}

impl From<&Disk> for Draft {
    fn from(disk: &Disk) -> Self {
        let named = || disk.details.iothread_name.clone().unwrap_or_else(|| "iothread0".to_owned());
        Draft {
            driver: disk.driver.clone(),
            cache: disk.cache.clone(),
            aio: disk.aio.clone(),
            iothread: disk.iothread.filter(|on| *on).map(|_| (named(), false)),
            queues: disk.details.queues,
            discard: disk.details.discard == Some(true),
            zeroes: DetectZeroes::Off,
            // A qcow2 image that is started as raw is destroyed: never a guess.
            format: disk.details.format.clone().unwrap_or_else(|| "FORMAT".to_owned()),
            place: disk.place.clone(),
        }
    }
}

/// The engine that suits O_DIRECT on this disk: Linux AIO where all blocks are there; on a file
/// with holes or a qcow2 image it would block while blocks are allocated (kubevirt 4077).
pub fn engine(disk: &Disk) -> Aio {
    let grows = disk.sparse == Some(true) || disk.details.format.as_deref() == Some("qcow2");
    if grows { Aio::IoUring } else { Aio::Native }
}

/// Another driver, cache mode, engine, I/O thread or the like for a guest's own disk. What is in
/// force and loses data or keeps QEMU from starting is not written down again.
pub fn own_disk(what: impl Into<String>, disk: &Disk, asked: &To) -> Change {
    let mut to = asked.clone();
    let cache = to.cache.map(|c| c.to_string()).or_else(|| disk.cache.clone());
    let aio = to.aio.map(|a| a.to_string()).or_else(|| disk.aio.clone());
    let direct = cache.as_deref().map(|c| matches!(c, "none" | "directsync"));
    let native = aio.as_deref() == Some("native");
    if cache.as_deref() == Some("unsafe") || (native && direct == Some(false)) || (to.aio.is_some() && direct.is_none())
    {
        to.cache = Some(Cache::None);
    }
    if to.cache == Some(Cache::None) && to.aio.is_none() && aio.as_deref() != Some("io_uring") {
        to.aio = Some(engine(disk));
    }
    let before = Draft::from(disk);
    let mut after = before.clone();
    if let Some(driver) = to.driver {
        after.driver = Some(driver.to_owned());
    }
    after.cache = to.cache.map(|c| c.to_string()).or(after.cache);
    after.aio = to.aio.map(|a| a.to_string()).or(after.aio);
    after.queues = to.queues.or(after.queues);
    after.discard |= to.discard;
    if to.iothread {
        let thread = Names(&disk.place).target(&Names(&disk.place).id("disk0"));
        after.iothread = Some((format!("iothread-{thread}"), true));
    }
    Change {
        what: what.into(),
        qemu: qemu(&after),
        libvirt: edit(&before, &after),
        proxmox: slot::set(&before, &after, &to),
        takes: Takes::NextStart,
        sets: Some(Sets::Disk(asked.clone())),
    }
}

/// Where a disk hangs: libvirt's bus and name, Proxmox's slot. The emulated NVMe device has no place
/// in either.
pub(super) fn bus(driver: Option<&str>) -> Option<(&'static str, &'static str, &'static str)> {
    match driver {
        Some("virtio-scsi" | "lsi53c895a") => Some(("scsi", "sda", "scsi0")),
        Some("ahci" | "sata") => Some(("sata", "sda", "sata0")),
        Some("ide") => Some(("ide", "hda", "ide0")),
        Some("nvme") => None,
        _ => Some(("virtio", "vda", "virtio0")),
    }
}

/// Whether libvirt and Proxmox know such a disk.
pub fn known_everywhere(a: &Attachment) -> bool {
    bus(Some(&a.driver)).is_some()
}

/// QEMU's options of the whole disk.
pub(super) fn qemu(d: &Draft) -> String {
    let names = Names(&d.place);
    let mut drive = format!(
        "file={},format={},if=none,id=disk0",
        option(d.place.source.as_deref().unwrap_or("/dev/DISK")),
        d.format
    );
    for (name, value) in [("cache", &d.cache), ("aio", &d.aio)] {
        if let Some(value) = value {
            drive.push_str(&format!(",{name}={value}"));
        }
    }
    if d.discard {
        drive.push_str(",discard=unmap");
    }
    if d.zeroes != DetectZeroes::Off {
        drive.push_str(&format!(",detect-zeroes={}", d.zeroes));
    }
    let mut more = String::new();
    let mut object = String::new();
    if let Some((thread, new)) = &d.iothread {
        more.push_str(&format!(",iothread={thread}"));
        if *new {
            object = format!("-object iothread,id={thread} \\\n");
        }
    }
    if let Some(n) = d.queues {
        let name = if d.driver.as_deref() == Some("virtio-scsi") { "num_queues" } else { "num-queues" };
        more.push_str(&format!(",{name}={n}"));
    }
    let id = d.place.device_id.as_ref().map(|_| format!(",id={}", option(&names.id("")))).unwrap_or_default();
    let under = |controller: &str, more: &str, disk: &str| {
        let device = shell(&format!("{disk},bus=hba0.0,drive=disk0{id}"));
        format!("-device {controller},id=hba0{more} \\\n-device {device}")
    };
    let device = match d.driver.as_deref() {
        Some("virtio-scsi") => under("virtio-scsi-pci", &more, "scsi-hd"),
        Some("lsi53c895a") => under("lsi53c895a", "", "scsi-hd"),
        Some("ahci" | "sata") => under("ahci", "", "ide-hd"),
        Some("ide") => format!("-device {}", shell(&format!("ide-hd,drive=disk0{id}"))),
        Some("nvme") => format!("-device nvme,serial=disk0,drive=disk0{id}"),
        Some("virtio-blk") => format!("-device {}", shell(&format!("virtio-blk-pci,drive=disk0{more}{id}"))),
        Some(other) => format!("-device {}", shell(&format!("{other},drive=disk0{id}"))),
        None => "-device DRIVER,drive=disk0".to_owned(),
    };
    format!("{object}-drive {} \\\n{device}", shell(&drive))
}

/// Attributes of libvirt's `<driver>` of a disk. An I/O thread and queues of virtio-scsi are its
/// controller's.
fn attributes(d: &Draft) -> Vec<String> {
    let mut all = Vec::new();
    for (name, value) in [("cache", &d.cache), ("io", &d.aio)] {
        all.extend(value.as_ref().map(|value| format!("{name}='{value}'")));
    }
    if d.driver.as_deref() == Some("virtio-blk") {
        all.extend(served(d));
    }
    all.extend(d.discard.then(|| "discard='unmap'".to_owned()));
    all.extend((d.zeroes != DetectZeroes::Off).then(|| format!("detect_zeroes='{}'", d.zeroes)));
    all
}

/// Attributes of what serves the disk's queues.
fn served(d: &Draft) -> Vec<String> {
    let thread = d.iothread.as_ref().map(|(thread, _)| format!("iothread='{}'", number(thread)));
    thread.into_iter().chain(d.queues.map(|n| format!("queues='{n}'"))).collect()
}

/// libvirt's `<driver>` of a disk of a study.
fn driver_element(d: &Draft) -> String {
    let more: String = attributes(d).iter().map(|attribute| format!(" {attribute}")).collect();
    format!("<driver name='qemu' type='{}'{more}/>", xml(&d.format))
}

/// libvirt's number of an I/O thread, which QEMU knows as `iothread2`; a new one is the first.
fn number(thread: &str) -> &str {
    thread
        .strip_prefix("iothread")
        .filter(|n| !n.is_empty() && *n != "0" && n.bytes().all(|b| b.is_ascii_digit()))
        .unwrap_or("1")
}

/// libvirt's controller of a virtio-scsi disk.
fn controller(d: &Draft) -> Option<String> {
    if d.driver.as_deref() != Some("virtio-scsi") {
        return None;
    }
    let served = served(d);
    if served.is_empty() {
        return Some("<controller type='scsi' index='0' model='virtio-scsi'/>".to_owned());
    }
    let driver = format!("<driver {}/>", served.join(" "));
    Some(format!("<controller type='scsi' index='0' model='virtio-scsi'>\n  {driver}\n</controller>"))
}

/// One more I/O thread of a domain.
const THREADS: &str = "<iothreads>1</iothreads>  <!-- directly below <domain> -->";

/// libvirt's whole element of a disk of a study.
pub(super) fn element(d: &Draft) -> String {
    let Some((bus, name, _)) = bus(d.driver.as_deref()) else {
        return format!(
            "<!-- libvirt knows no emulated {} disk: use virtio -->",
            d.driver.as_deref().unwrap_or("such")
        );
    };
    let threads = if d.iothread.is_some() { format!("{THREADS}\n") } else { String::new() };
    let controller = controller(d).map(|c| format!("{c}\n")).unwrap_or_default();
    format!(
        "{threads}{controller}<disk type='block' device='disk'>\n  {}\n  <source dev='/dev/DISK'/>\n  \
         <target dev='{name}' bus='{bus}'/>\n</disk>",
        driver_element(d)
    )
}

/// What to edit in a domain of libvirt: attributes to set where they are, so that those which vmio knows
/// nothing of (error_policy, copy_on_read, ...) stay.
fn edit(before: &Draft, after: &Draft) -> String {
    let names = Names(&after.place);
    // A new I/O thread may get the number of the one before.
    let thread = before.iothread.clone().filter(|_| !after.iothread.as_ref().is_some_and(|(_, new)| *new));
    let before = &Draft { iothread: thread, ..before.clone() };
    let mut text = format!("virsh edit {}\n", names.domain());
    let was = bus(before.driver.as_deref()).map_or("vda", |(_, name, _)| name);
    let target = names.target(was);
    let new = |before: Vec<String>, after: Vec<String>| {
        after.into_iter().filter(|a| !before.contains(a)).collect::<Vec<String>>().join(" ")
    };
    let own = new(attributes(before), attributes(after));
    text.push_str(&format!("# in the <disk> with <target dev='{target}' .../>"));
    match own.is_empty() {
        true => text.push_str(", its own element stays"),
        false => text.push_str(&format!(", in its <driver .../>: set these, keep all else\n{own}")),
    }
    if before.driver != after.driver
        && let Some((bus, name, _)) = bus(after.driver.as_deref())
    {
        // vda for sda, hda, and the other way round; the rest of the name is kept.
        let new = match target.get(2..) {
            Some(rest) if ["sd", "hd", "vd"].iter().any(|p| target.starts_with(p)) => format!("{}{rest}", &name[..2]),
            _ => name.to_owned(),
        };
        text.push_str(&format!(
            "\n# and in place of its own <target .../>, without its <address .../>, a name that is free:\n\
             <target dev='{new}' bus='{bus}'/>"
        ));
    }
    if after.driver.as_deref() == Some("virtio-scsi") {
        let same = before.driver == after.driver;
        let more = new(if same { served(before) } else { Vec::new() }, served(after));
        let which = "the <controller> that the disk's <address type='drive' controller=.../> names";
        if !same {
            text.push_str(&format!("\n# in {which}: set this, keep all else\nmodel='virtio-scsi'"));
        }
        if !more.is_empty() {
            text.push_str(&format!("\n# in the <driver .../> of {which} (add one where it has none)\n{more}"));
        }
    }
    if after.iothread.as_ref().is_some_and(|(_, new)| *new) {
        text.push_str(&format!("\n# with other I/O threads there, one more, and its number above:\n{THREADS}"));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::live_disk;

    fn web1(driver: &str, place: Place) -> Disk {
        let details = Details { format: Some("raw".into()), ..Details::default() };
        Disk { driver: Some(driver.into()), iothread: Some(false), place, ..live_disk(details) }
    }

    fn place() -> Place {
        Place {
            domain: Some("web1".into()),
            vmid: Some("101".into()),
            source: Some("/dev/vg0/web1".into()),
            target: Some("sdb".into()),
            slot: Some("scsi1".into()),
            device_id: Some("scsi0-0-0-1".into()),
            ..Place::default()
        }
    }

    #[test]
    fn an_iothread_leaves_driver_and_cache_alone() {
        let disk =
            Disk { cache: Some("writeback".into()), aio: Some("threads".into()), ..web1("virtio-scsi", place()) };
        let change = own_disk("x", &disk, &To { iothread: true, ..To::default() });
        assert_eq!(
            change.qemu,
            "-object iothread,id=iothread-sdb \\\n\
             -drive file=/dev/vg0/web1,format=raw,if=none,id=disk0,cache=writeback,aio=threads \\\n\
             -device virtio-scsi-pci,id=hba0,iothread=iothread-sdb \\\n\
             -device scsi-hd,bus=hba0.0,drive=disk0,id=scsi0-0-0-1"
        );
        assert!(change.libvirt.starts_with("virsh edit web1\n"), "{}", change.libvirt);
        // Nothing but what is new: what else the elements have stays.
        assert!(!change.libvirt.contains("cache=") && !change.libvirt.contains("model="), "{}", change.libvirt);
        assert!(change.libvirt.contains("(add one where it has none)\niothread='1'\n"), "{}", change.libvirt);
        let direct = own_disk("x", &disk, &To { cache: Some(Cache::None), ..To::default() });
        assert_eq!(
            direct.libvirt,
            "virsh edit web1\n# in the <disk> with <target dev='sdb' .../>, in its <driver .../>: set these, keep all \
             else\ncache='none' io='native'"
        );
        assert_eq!(
            change.proxmox.lines().take(2).collect::<Vec<&str>>(),
            [
                "qm set 101 --scsihw virtio-scsi-single",
                "qm set 101 --scsi1 \"$(qm config 101 | sed -nE '/^scsi1: /{s///;s/,(iothread)=[^,]*//g;p}'),iothread=1\""
            ]
        );
    }

    #[test]
    fn a_disk_moves_to_virtio_under_a_like_name() {
        let place = Place { slot: Some("sata2".into()), target: Some("sdc".into()), ..place() };
        let to = To { driver: Some("virtio-blk"), iothread: true, ..To::default() };
        let change = own_disk("x", &web1("ahci", place), &to);
        assert!(change.libvirt.contains("<target dev='vdc' bus='virtio'/>"), "{}", change.libvirt);
        assert!(change.proxmox.contains("qm set 101 --delete sata2 "), "{}", change.proxmox);
        assert!(change.proxmox.contains("qm set 101 --virtio2 \"$disk,iothread=1\""), "{}", change.proxmox);
        assert!(change.proxmox.starts_with("qm shutdown 101\n"));
        // An emulated SCSI controller is replaced under the disk.
        let scsi = own_disk("x", &web1("lsi53c895a", self::place()), &to).proxmox;
        assert!(scsi.starts_with("qm set 101 --scsihw virtio-scsi-single\n") && !scsi.contains("delete"), "{scsi}");
    }

    #[test]
    fn what_is_dangerous_is_not_written_down_again() {
        let disk = Disk { cache: Some("unsafe".into()), aio: Some("threads".into()), ..web1("virtio-blk", place()) };
        let change = own_disk("x", &disk, &To { iothread: true, ..To::default() });
        for text in [&change.qemu, &change.libvirt, &change.proxmox] {
            assert!(!text.contains("unsafe"), "{text}");
        }
        assert!(change.qemu.contains("cache=none,aio=native") && change.proxmox.contains(",cache=none,aio=native,"));
        // A format that nobody read is not guessed.
        let unread = Disk { details: Details::default(), ..disk };
        assert!(own_disk("x", &unread, &To::default()).qemu.contains("format=FORMAT"));
    }

    #[test]
    fn the_engine_suits_the_image() {
        let of = |format: &str, sparse| {
            let details = Details { format: Some(format.into()), ..Details::default() };
            engine(&Disk { sparse, ..live_disk(details) })
        };
        assert_eq!(
            [of("raw", None), of("raw", Some(true)), of("qcow2", None)],
            [Aio::Native, Aio::IoUring, Aio::IoUring]
        );
    }
}
