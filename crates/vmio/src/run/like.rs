//! `--like GUEST`: a study with the settings of a guest that runs now, then with the changes of its findings, each
//! alone and all together. The guest itself is only read: vmio measures its own reference guest on storage of the same
//! kind.

mod differences;
mod storage;
#[cfg(test)]
mod tests;
mod unmeasured;

use vmio_look::scan::scan;
use vmio_look::{HostView, require};
use vmio_model::cell::{Aio, Attachment, Cache, Kind};
use vmio_model::facts::{Disk, Guest, called};
use vmio_model::kind::RunKind;
use vmio_model::rules::{self, DiskRemedy, Finding, Rule, change};
use vmio_model::study::{MIB, Matrix, Size, Study};
use vmio_node::linux::system;
use vmio_node::{Node, Reader};
use vmio_rig::disks::{drivers, places, targets};
use vmio_rig::guests::GuestKind as _;
use vmio_rig::guests::qemu::Qemu;
use vmio_rig::limits;

use crate::report::format;
use vmio_model::failure::{Exit, Failure};

pub use differences::differences;

/// What the reference guest may have, and where storage can be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Processors.
    pub cpus: u32,
    /// Memory that is available (`MemAvailable`), in bytes.
    pub memory_left_bytes: u64,
    /// Places that hold volumes, as `--on` names them.
    pub places: Vec<String>,
    /// Directories of the guest's images that are the same for the guest's process and for vmio.
    pub directories: Vec<String>,
}

/// A study like a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Like {
    /// The study: the guest's set-up first, then one for each remedy, then all remedies together.
    pub study: Study,
    /// Place of the guest's storage, as `--on` names it; `None`: where guest images are.
    pub on: Option<String>,
    /// What is measured, and in what the reference guest differs from the guest.
    pub notes: Vec<String>,
}

/// A set-up of the guest's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SetUp {
    target: String,
    attachment: Attachment,
}

/// Share of the memory that is left which the reference guest may take.
const MEMORY_SHARE: u64 = 2;
/// Most memory of the reference guest. The workloads go round its page cache, and the target has
/// to be twice as large: more would be written and change nothing that is measured.
const MOST_MEMORY_MIB: u32 = 512;
/// Least: see `guest.memory_mib` in docs/study.md.
const LEAST_MEMORY_MIB: u32 = 192;

/// Looks for a guest by its name on this machine and makes its study. `base` gives workloads,
/// repeats and budgets; `on` is the place that the user named.
///
/// # Errors
/// When no guest is called so, and as [`of`].
pub fn find(name: &str, disk: Option<&str>, on: Option<&str>, base: &Study, node: &dyn Node) -> Result<Like, Failure> {
    let view = HostView::new(node);
    let found = scan(&view);
    let guest = named(&found.guests, name).map_err(|failure| match found.unread.first() {
        Some(u) if found.guests.is_empty() => {
            Failure::new(failure.exit, format!("{}; {}: {}", failure.message, u.what, u.why)).help(u.mend.clone())
        }
        _ => failure,
    })?;
    let directories = storage::directories(&view, guest);
    let host = Host { places: volumes(node), directories, ..host(node.reader()) };
    let mut like = of(guest, disk, on, view.at_unix_seconds, &host, base)?;
    // The plan says what is wrong with a place that cannot be used.
    if let Some(place) = on.and_then(|on| places::resolve(node, on).ok()) {
        like.fit(&place.backend);
    }
    Ok(like)
}

impl Like {
    /// Replaces targets that the user's place cannot hold by a device there.
    fn fit(&mut self, backend: &places::PlaceBackend) {
        let mut there: Vec<Matrix> = Vec::new();
        for mut matrix in std::mem::take(&mut self.study.matrix) {
            for target in matrix.disks.iter_mut().flat_map(|disks| &mut disks.targets) {
                if let Some(Err(why)) = targets::find(target).map(|t| t.fits(backend)) {
                    self.notes.push(format!("device instead of {target}: {why}"));
                    *target = "device".to_owned();
                }
            }
            if !there.contains(&matrix) {
                there.push(matrix);
            }
        }
        self.study.matrix = there;
    }
}

/// The guest that a word names, as for `vmio scan`.
fn named<'a>(guests: &'a [Guest], word: &str) -> Result<&'a Guest, Failure> {
    let names = |of: &mut dyn Iterator<Item = &Guest>| of.map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
    match called(guests, word)[..] {
        [one] => Ok(&guests[one]),
        [] => {
            let mut others = guests.iter().filter(|g| !g.is_vmios_own()).peekable();
            let help = if others.peek().is_none() {
                "no guest runs here; `vmio tax` measures a reference guest without one".to_owned()
            } else {
                format!("guests that run here: {}; `vmio scan` describes them", names(&mut others))
            };
            Err(Failure::new(Exit::Usage, format!("no guest called {word} runs on this host")).help(help))
        }
        ref several => {
            let all = names(&mut several.iter().map(|place| &guests[*place]));
            Err(Failure::new(Exit::Usage, format!("{word} names several guests: {all}")).help("name one of them"))
        }
    }
}

/// The study of a guest that was read.
///
/// # Errors
/// When it is no virtual machine, has no such disk, or the disk's set-up could not be read.
pub fn of(
    guest: &Guest,
    disk: Option<&str>,
    on: Option<&str>,
    read_at: f64,
    host: &Host,
    base: &Study,
) -> Result<Like, Failure> {
    let name = &guest.name;
    if guest.shares_kernel() {
        let what = format!("{name} is a container: it has no virtual disk whose price could be measured");
        return Err(Failure::new(Exit::Usage, what).help("`vmio tax --like` is for virtual machines"));
    }
    if guest.is_vmios_own() {
        let what = format!("{name} is a guest that vmio itself is measuring; name another one");
        return Err(Failure::new(Exit::Usage, what).help("`vmio tax` measures with such a guest"));
    }
    let disk = pick(guest, disk)?;
    let mut notes = Vec::new();
    let (target, beside) = match (storage::of(disk, host, &mut notes), on) {
        (Err(failure), Some(on)) => {
            notes.push(format!("{failure}: using a device on {on}"));
            ("device".to_owned(), None)
        }
        (found, _) => found?,
    };
    let found = SetUp { target, attachment: attachment(disk, &mut notes)? };
    let findings = rules::findings(&guest.facts());
    let remedied = remedied(&found, findings.iter().filter(|f| f.subject.is(&disk.subject)), &mut notes);
    let mut study = base.clone();
    study.guest.vcpus = vcpus(guest, host, &mut notes);
    study.guest.memory_mib = memory_mib(guest, host, &mut notes);
    let least = 2 * study.guest.memory_mib;
    study.size = Some(Size { target_mib: study.size.map_or(least, |size| size.target_mib.max(least)) });
    let mut workloads: Vec<String> = Vec::new();
    for workload in base.matrix.iter().filter(|m| m.disks.is_some()).flat_map(|m| &m.workloads) {
        if !workloads.contains(workload) {
            workloads.push(workload.clone());
        }
    }
    let matrix = |it: &SetUp| Matrix::of(&it.target, Kind::QEMU.name, Some(&it.attachment), &workloads);
    study.matrix = std::iter::once(&found).chain(&remedied).map(matrix).collect();
    study.control = None;
    study.named.clear();
    let more = study.cells().len() as f64 / base.cells().len() as f64;
    study.repeat.max_minutes *= more.max(1.0);
    study.repeat.max_gib_written = study.repeat.max_gib_written.map(|gib| gib * more.max(1.0));
    study.name = RunKind::like(name).to_string();
    study.title = format!("Like {name} (read at {}): {} as it is", format::utc(read_at), disk.subject.within());
    study.title += if remedied.is_empty() { "" } else { ", and with what its findings advise" };
    notes.insert(0, format!("{}, on {}; {name} itself is only read", found.attachment.label(), found.target));
    Ok(Like { study, on: on.map(str::to_owned).or(beside), notes })
}

/// The disk that was named, else the first.
fn pick<'a>(guest: &'a Guest, wanted: Option<&str>) -> Result<&'a Disk, Failure> {
    let unread = || match guest.unread.first() {
        Some(u) => format!("{}: {}; {}", u.what, u.why, u.mend),
        None => "`vmio scan` says what could be read of it".to_owned(),
    };
    let Some(first) = guest.disks.first() else {
        let what = format!("no disk of {} could be read", guest.name);
        return Err(Failure::new(Exit::Precondition, what).help(unread()));
    };
    let Some(wanted) = wanted else { return Ok(first) };
    let is = |d: &&Disk| {
        let place = &d.place;
        let names = [&place.target, &place.slot, &place.device_id, &place.source, &place.volume];
        names.into_iter().flatten().any(|n| n == wanted) || d.subject.device_name() == wanted
    };
    guest.disks.iter().find(is).ok_or_else(|| {
        let all: Vec<String> = guest.disks.iter().map(|d| d.subject.within()).collect();
        Failure::new(Exit::Usage, format!("{} has no disk {wanted}", guest.name))
            .help(format!("it has {}", all.join(", ")))
    })
}

/// The attachment of the guest's disk, or the nearest that vmio's drivers allow.
fn attachment(disk: &Disk, notes: &mut Vec<String>) -> Result<Attachment, Failure> {
    let Some(driver) = disk.driver.as_deref() else {
        let what = format!("the device that {} is attached to could not be read", disk.subject);
        return Err(Failure::new(Exit::Precondition, what).help("`vmio scan` says what would let it be read"));
    };
    let nearest = nearest(driver);
    if nearest != driver {
        notes.push(format!("vmio has no driver {driver}; using {nearest}"));
    }
    let mut usual = |what: &str, value: &str| notes.push(format!("{what} not read: {value}, QEMU's own default"));
    let cache = match disk.cache.as_deref() {
        Some(word) => Cache::ALL.into_iter().find(|c| c.to_string() == word),
        None => None,
    };
    let cache = cache.unwrap_or_else(|| {
        usual("cache mode", "writeback");
        Cache::Writeback
    });
    let aio = disk.aio.as_deref();
    let aio = [Aio::Threads, Aio::Native, Aio::IoUring].into_iter().find(|a| Some(a.to_string().as_str()) == aio);
    let aio = aio.unwrap_or_else(|| {
        usual("AIO engine", "threads");
        Aio::Threads
    });
    let mut like = Attachment::new(nearest, cache, aio).iothread(disk.iothread == Some(true));
    like.options.queues = *disk.details.queues;
    like.options.mapped_iothreads = *disk.details.mapped_iothreads;
    like.options.discard = disk.details.discard == Some(true);
    Ok(fitted(like, notes))
}

/// The driver that is nearest to a device model.
fn nearest(driver: &str) -> &str {
    const SCSI: [&str; 6] = ["lsi", "lsi53c810", "am53c974", "megasas", "mptsas1068", "pvscsi"];
    match driver {
        known if drivers::find(known).is_some() => known,
        "ide" | "sata" | "usb-storage" => "ahci",
        scsi if SCSI.contains(&scsi) || scsi.starts_with("megasas") => "lsi53c895a",
        _ => "virtio-blk",
    }
}

/// The set-up without what QEMU cannot have with its driver.
fn fitted(mut a: Attachment, notes: &mut Vec<String>) -> Attachment {
    while let Err(why) = Qemu.fits_disk(&a, None) {
        let plain = Attachment::new(&a.driver, a.cache, a.aio);
        a = if a.aio == Aio::Native && !a.cache.direct() {
            Attachment { aio: Aio::Threads, ..a }
        } else if a != plain {
            plain
        } else {
            return a;
        };
        notes.push(format!("not as found: {why}"));
    }
    a
}

/// The set-ups with the findings' changes: each one alone where that is possible, then all together.
fn remedied<'a>(found: &SetUp, findings: impl Iterator<Item = &'a Finding>, notes: &mut Vec<String>) -> Vec<SetUp> {
    let mut remedied: Vec<SetUp> = Vec::new();
    let mut all = found.clone();
    let fits = |set_up: &SetUp| Qemu.fits_disk(&set_up.attachment, None);
    for finding in findings {
        let Some(remedy) = Rule::find(&finding.rule).and_then(|rule| rule.remedy) else {
            notes.push(format!("not measured: the change of {}: {}", finding.rule, unmeasured::why(finding)));
            continue;
        };
        let alone = with_remedy(remedy, found);
        all = with_remedy(remedy, &all);
        if remedy == DiskRemedy::Discard {
            notes.push(format!("{}: no effect on speed alone; part of the combined change", finding.rule));
        } else if fits(&alone).is_err() {
            notes.push(format!("{} cannot be tested alone; part of the combined change", finding.rule));
        } else if alone != *found && !remedied.contains(&alone) {
            notes.push(format!("{}: {}, on {}", finding.rule, alone.attachment.label(), alone.target));
            remedied.push(alone);
        }
        notes.extend(unmeasured::part(finding));
    }
    // An emulated controller takes no I/O thread; with the paravirtual one it costs nothing to have it.
    if all.attachment.driver != found.attachment.driver {
        all = with_remedy(DiskRemedy::Iothread, &all);
    }
    if let Err(why) = fits(&all) {
        notes.push(format!("not measured: all together: {why}"));
    } else if all != *found && !remedied.contains(&all) {
        notes.push(format!("all together: {}, on {}", all.attachment.label(), all.target));
        remedied.push(all);
    }
    remedied
}

/// A disk after a rule's change.
fn with_remedy(remedy: DiskRemedy, to: &SetUp) -> SetUp {
    let best = change::recommended();
    let mut set_up = to.clone();
    let a = &mut set_up.attachment;
    match remedy {
        DiskRemedy::Driver => {
            a.driver = best.driver;
            a.iothread = best.iothread && a.options.mapped_iothreads.is_none();
        }
        DiskRemedy::Pair if a.aio == Aio::IoUring => a.cache = best.cache,
        DiskRemedy::Pair => (a.cache, a.aio) = (best.cache, engine(&set_up.target)),
        DiskRemedy::Aio(engine) => a.aio = engine,
        DiskRemedy::Queues => a.options.queues = None,
        DiskRemedy::Discard => a.options.discard = true,
        DiskRemedy::Iothread => a.iothread = a.options.mapped_iothreads.is_none(),
        DiskRemedy::Target(name) => name.clone_into(&mut set_up.target),
    }
    set_up
}

/// The engine that [`change::engine`] gives a disk on such a target.
fn engine(target: &str) -> Aio {
    if target == "sparse" || target.starts_with("qcow2") { Aio::IoUring } else { Aio::Native }
}

fn vcpus(guest: &Guest, host: &Host, notes: &mut Vec<String>) -> u32 {
    let Some(has) = guest.processors.as_ref().and_then(|p| *p.vcpus).filter(|n| *n > 0) else {
        notes.push("number of vCPUs not read: 1".to_owned());
        return 1;
    };
    let most = host.cpus.max(1);
    if has > most {
        notes.push(format!("{most} vCPUs instead of {has}: vmio may use no more processors here"));
    }
    has.min(most)
}

fn memory_mib(guest: &Guest, host: &Host, notes: &mut Vec<String>) -> u32 {
    let left = u32::try_from(host.memory_left_bytes / MEMORY_SHARE / MIB).unwrap_or(u32::MAX);
    let Some(bytes) = guest.processors.as_ref().and_then(|p| *p.memory_bytes) else {
        let usual = 256.min(left).max(LEAST_MEMORY_MIB);
        notes.push(format!("memory not read: {usual} MiB"));
        return usual;
    };
    let has = u32::try_from(bytes / MIB).unwrap_or(u32::MAX);
    let takes = has.min(left).clamp(LEAST_MEMORY_MIB, MOST_MEMORY_MIB);
    if takes < has {
        let why = if left < MOST_MEMORY_MIB {
            "half of the memory that is free here"
        } else {
            "the workloads bypass the guest's page cache, so more would change nothing"
        };
        notes.push(format!("{takes} MiB of memory instead of {has}: {why}"));
    }
    takes
}

/// Usable processors and available memory of this machine.
fn host(reader: &dyn Reader) -> Host {
    let left = system::memory_bytes(reader, "MemAvailable");
    let online = || system::cpus_online(&system::cpuinfo(reader)) as u32;
    let cpus = limits::usable_cpus(reader).unwrap_or_else(online);
    Host { cpus, memory_left_bytes: left.unwrap_or(0), ..Host::default() }
}

/// Places of this machine that hold volumes and can be used; none where vmio is not root.
fn volumes(node: &dyn Node) -> Vec<String> {
    if require::root(node.reader()).is_err() {
        return Vec::new();
    }
    let kinds = places::ALL.iter().filter(|k| !k.prefix().is_empty());
    kinds.flat_map(|k| k.list(node)).filter(|l| l.state.is_ok()).map(|l| l.name).collect()
}
