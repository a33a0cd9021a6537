//! libvirt's XML: the element of a study's disk, and the edits for a guest's own disk.
//!
//! Syntax: `formatdomain.html`, "Hard drives, floppy disks, CDROMs", "Controllers" (an I/O thread of
//! virtio-scsi is the controller's) and "IOThreads Allocation".

use super::names::{Names, bus};
use super::to::DiskChange;
use crate::cell::{Attachment, DetectZeroes};
use crate::facts::Disk;

/// Attributes of a disk's `<driver>`. With virtio-scsi I/O thread and queues are the controller's.
fn attributes(to: &DiskChange, driver: Option<&str>, thread: &str) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(to.cache.map(|cache| format!("cache='{cache}'")));
    all.extend(to.aio.map(|aio| format!("io='{aio}'")));
    if driver == Some("virtio-blk") {
        all.extend(served(to, thread));
    }
    all.extend(to.discard.then(|| "discard='unmap'".to_owned()));
    all
}

/// Attributes for the disk's queues.
fn served(to: &DiskChange, thread: &str) -> Vec<String> {
    let thread = to.iothread.then(|| format!("iothread='{thread}'"));
    thread.into_iter().chain(to.queues.map(|n| format!("queues='{n}'"))).collect()
}

/// Placeholder for the reader's kind of storage, image format and source. libvirt refuses each part that is left in,
/// since a wrong one destroys data: a qcow2 image opened as raw is destroyed by the guest's first write.
const OWN: &str = "<!-- KIND (file, block, network), FORMAT (qcow2, raw) and <source>: as the disk's own element has \
                   them now. A qcow2 image that is opened as raw is destroyed by its first write. -->";

/// The whole element of a study's disk, with placeholders.
pub(super) fn element(a: &Attachment) -> String {
    let Some((bus, name, _)) = bus(Some(&a.driver)) else {
        return format!("<!-- libvirt has no emulated {} disk: use virtio -->", a.driver);
    };
    let to = DiskChange::from(a);
    let threads = if a.iothread { "<iothreads>1</iothreads>  <!-- directly below <domain> -->\n" } else { "" };
    let controller = match (&*a.driver, served(&to, "1").join(" ")) {
        ("virtio-scsi", served) if served.is_empty() => {
            "<controller type='scsi' index='0' model='virtio-scsi'/>\n".to_owned()
        }
        ("virtio-scsi", served) => {
            format!("<controller type='scsi' index='0' model='virtio-scsi'>\n  <driver {served}/>\n</controller>\n")
        }
        _ => String::new(),
    };
    let mut driver: String =
        attributes(&to, Some(&a.driver), "1").iter().map(|attribute| format!(" {attribute}")).collect();
    if a.options.detect_zeroes != DetectZeroes::Off {
        driver.push_str(&format!(" detect_zeroes='{}'", a.options.detect_zeroes));
    }
    format!(
        "{threads}{controller}{OWN}\n<disk type='KIND' device='disk'>\n  <driver name='qemu' type='FORMAT'{driver}/>\n  \
         <source SOURCE='OWN'/>\n  <target dev='{name}' bus='{bus}'/>\n</disk>"
    )
}

/// Placeholder for the number of a new I/O thread: another disk's would be shared, and a count below the domain's would
/// remove threads.
const NEW: &str = "N";

/// libvirt's number of an existing I/O thread, QEMU's `iothread2`.
fn number(disk: &Disk) -> Option<&str> {
    let number = disk.details.iothread_name.as_deref()?.strip_prefix("iothread")?;
    Some(number).filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Edits in a domain: attributes to set, so that others (error_policy, copy_on_read, ...) stay.
pub(super) fn edit(disk: &Disk, to: &DiskChange) -> String {
    let names = Names(&disk.place);
    let (driver, new) = (to.driver_after(disk), to.new_driver(disk));
    let target = names.target(bus(disk.driver.as_deref()).map_or("vda", |(_, name, _)| name));
    let mut text = format!("virsh edit {}\n# in the <disk> with <target dev='{target}' .../>", names.domain());
    let own = attributes(to, driver, NEW).join(" ");
    let shared = new.is_none() && to.shares_controller(disk);
    // Without an address the disk names no controller.
    let anew = new == Some("virtio-scsi");
    if !own.is_empty() {
        text.push_str(&format!(", in its <driver .../>: set these, keep all else\n{own}"));
    } else if !shared {
        text.push_str(", its own element stays");
    }
    if let Some(bytes) = to.l2_cache {
        // One cache for both kinds of tables: QEMU uses four clusters of it for the other kind.
        let all = bytes + (4 * disk.details.cluster_bytes.unwrap_or(0)).max(4 << 16);
        let and = if own.is_empty() { ": inside of its <driver ...>" } else { "\n# and inside of that <driver ...>" };
        text = text.trim_end_matches(", its own element stays").to_owned();
        text.push_str(&format!(
            "{and} (type='qcow2'): this, keep all else\n\
             <metadata_cache><max_size unit='bytes'>{all}</max_size></metadata_cache>"
        ));
    }
    if let Some(bytes) = to.physical_block {
        let alone = text.ends_with(", its own element stays");
        let and = if alone { ": " } else { "\n# and, " };
        text = text.trim_end_matches(", its own element stays").to_owned();
        text.push_str(&format!(
            "{and}this in its <disk>, in place of a <blockio .../> that it has\n\
             <blockio logical_block_size='512' physical_block_size='{bytes}'/>"
        ));
    }
    if shared {
        let and = if own.is_empty() { "," } else { "\n# and" };
        text.push_str(&format!("{and} in its <address type='drive' .../>: set this, keep all else\ncontroller='M'"));
    }
    if let Some((bus, name, _)) = new.and_then(|driver| bus(Some(driver))) {
        let new = free(&name[..2], &target, &disk.place.taken);
        text.push_str(&format!(
            "\n# and in place of its own <target .../>, without its <address .../>, a name that is free:\n\
             <target dev='{new}' bus='{bus}'/>"
        ));
        if anew {
            text.push_str("\n<address type='drive' controller='M' bus='0' target='0' unit='0'/>");
        }
        // libvirt sorts the disks of a bus by name (virDomainDiskInsert), and boots from the first.
        let before = |other: &String| *other != new && rank(other) < rank(&new) && other.starts_with(&name[..2]);
        if disk.place.boots_as_first == Some(true) && disk.place.taken.iter().any(before) {
            text.push_str(
                "\n# and, since another disk would come first and be booted from: this in its <disk>, and the\n\
                 # <boot dev='hd'/> goes from <os> (other <boot dev=.../> there become such orders, too)\n\
                 <boot order='1'/>",
            );
        }
    }
    if anew && disk.driver.as_deref() == Some("virtio-blk") {
        text.push_str("\n# in its <driver .../>: iothread= and queues= go, they are the controller's");
    }
    if shared || anew {
        let served = served_anew(disk, to).join(" ");
        let inner = if served.is_empty() { String::new() } else { format!("  <driver {served}/>\n") };
        text.push_str(&format!(
            "\n# one more controller; M: an index that none has yet\n\
             <controller type='scsi' index='M' model='virtio-scsi'>\n{inner}</controller>"
        ));
    } else if driver == Some("virtio-scsi") {
        text.push_str(&controller(to));
    }
    if to.iothread {
        text.push_str(&format!(
            "\n# {NEW}, here and above: one more I/O thread than there are, 1 where there are none\n\
             <iothreads>{NEW}</iothreads>  <!-- directly below <domain> -->"
        ));
    }
    text
}

/// An unused name: vda for sda or hda, and the reverse; else the first one.
fn free(prefix: &str, target: &str, taken: &[String]) -> String {
    let same = target.get(2..).filter(|_| ["sd", "hd", "vd"].iter().any(|p| target.starts_with(p)));
    let letters = || (b'a'..=b'z').map(|c| char::from(c).to_string());
    let all = letters().chain(letters().flat_map(|first| letters().map(move |second| format!("{first}{second}"))));
    let names = same.map(str::to_owned).into_iter().chain(all).map(|rest| format!("{prefix}{rest}"));
    names.into_iter().find(|name| !taken.contains(name)).unwrap_or_else(|| format!("{prefix}NAME"))
}

/// Order of names: `vdz` comes before `vdaa`.
fn rank(name: &str) -> (usize, &str) {
    (name.len(), name)
}

/// Attributes of the disk's new queues in place of its old ones.
fn served_anew(disk: &Disk, to: &DiskChange) -> Vec<String> {
    let had = number(disk).filter(|_| !to.iothread).map(|n| format!("iothread='{n}'"));
    let to = DiskChange { queues: to.queues.or(*disk.details.queues), ..to.clone() };
    had.into_iter().chain(served(&to, NEW)).collect()
}

/// Edits in the controller of a virtio-scsi disk.
fn controller(to: &DiskChange) -> String {
    let served = served(to, NEW).join(" ");
    if served.is_empty() {
        return served;
    }
    format!(
        "\n# in the <driver .../> of the <controller> that the disk's <address type='drive' controller=.../> names \
         (add one where it has none)\n{served}"
    )
}
