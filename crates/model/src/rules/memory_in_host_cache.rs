//! The host's page cache answers reads that the guest's own would answer if the guest had the memory. Each of them
//! still takes the whole path through the hypervisor, and the processor time of that path; a read from the guest's own
//! cache does not. So the same memory is worth more in the guest: by its balloon at once, else from its next start on.
//!
//! Storage reads for a guest are its process's (`read_bytes`, proc_pid_io(5)), what it asked for is its block layer's
//! (QMP `query-blockstats`). Both count from its start, so a guest that read its disk once, at boot, from an image that
//! the host had just written, would be taken for one that lacks memory: it must have read what is cached several times.

use serde_json::json;

use super::change::{AppliesAt, Names, comment, qmp};
use super::live::{bytes_shown, seen};
use super::{Change, Check, Cited, Evidence, Finding, Need, Rule, Severity};
use crate::facts::{CachedReads, Disk, Facts, Processors};

/// Least percentage of the reads.
const HITS_PERCENT: u64 = 50;
/// How often it must have read what the cache holds of its disks.
const TIMES: u64 = 2;
/// Memory is given in whole multiples of this, and at least two.
const STEP_BYTES: u64 = 128 << 20;
/// The part of the host's memory that stays available, as a divisor: the host's own needs grow with it.
const HOST_KEEPS: u64 = 16;

pub(super) const RULE: Rule = Rule {
    id: "memory-in-host-cache",
    title: "The host's memory caches what the guest's own could",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "lu2016, section 3.2, and section 4, \"Allocating DRAM resources directly to VMs\"",
        "QEMU, qapi/machine.json (balloon), qapi/block-core.json (query-blockstats)",
        "man 1 virsh (setmem, setmaxmem)",
        "https://pve.proxmox.com/wiki/Dynamic_Memory_Management",
    ],
    checks: &[Check::Guests(live)],
    // Silent: the disk served it.
    #[cfg(test)]
    fixture: (|| fixture::guest(8 << 30), || fixture::guest(40 << 30)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    facts.processors.iter().filter_map(|p| of_guest(rule, p, &facts.disks)).collect()
}

/// Memory that a guest should be given.
struct Gift {
    /// How much more than now.
    more_bytes: u64,
    /// What it has then.
    to_bytes: u64,
    /// What the host could give all its guests together.
    spare_bytes: u64,
    /// Whether its balloon can give it while it runs.
    by_balloon: bool,
}

fn of_guest(rule: &Rule, p: &Processors, disks: &[Disk]) -> Option<Finding> {
    let own: Vec<&Disk> = disks.iter().filter(|d| d.subject.guest == p.subject.guest && d.is_host_cached()).collect();
    let reads = CachedReads::of(p, &own)?;
    let hits = reads.hits_percent().filter(|percent| *percent >= HITS_PERCENT)?;
    let held = own.iter().filter_map(|d| *d.details.host_cached_bytes).fold(0, u64::saturating_add);
    if reads.asked_bytes / TIMES < held {
        return None;
    }
    let gift = gift(p, held)?;
    let leaves = match *p.balloon {
        Some(balloon) => format!(" Its balloon leaves it {}.", bytes_shown(balloon.actual_bytes)),
        None => String::new(),
    };
    let cause = format!(
        "{hits} % of what it read since its start came from the host's page cache, which holds {} of its disks. Each \
         of these reads takes the whole path through the hypervisor; from the guest's own cache it would not.{leaves}",
        bytes_shown(held)
    );
    let what = format!(
        "Give {} {} more memory, of {} that the host can spare for all guests: {hits} % of its reads hit the host's \
         cache. Programs in it that bypass its own cache (direct I/O) have to be given the memory.",
        comment(p.subject.guest.name()),
        bytes_shown(gift.more_bytes),
        bytes_shown(gift.spare_bytes)
    );
    let socket = own.iter().find_map(|d| d.place.monitor.as_deref());
    // Amounts that change from moment to moment would be other settings to a comparison of two scans.
    let shown = |setting: &str, value: String, from: String| Some(Evidence { setting: setting.into(), value, from });
    let from_cache = own.iter().find(|d| d.details.read_bytes.is_some()).and_then(|d| {
        let least = format!("at least {} %", hits / 10 * 10);
        let from = format!("{}; {}", d.details.read_bytes.source_or(&d.from), p.storage_read_bytes.source_or(&p.from));
        shown("of its reads, from the host's page cache", least, from)
    });
    let in_cache = own.iter().find(|d| d.details.host_cached_bytes.is_some()).and_then(|d| {
        let least = format!("at least {}", bytes_shown(1u64 << held.ilog2()));
        shown("of its disks, in the host's page cache", least, d.details.host_cached_bytes.source_or(&d.from))
    });
    let [size] = seen![p; memory_bytes];
    let mut finding = rule.advice(p, &[from_cache, in_cache, size], &cause, change(p, socket, &gift, what));
    let figure = |label: &str, value: f64, unit: &str| Cited {
        label: format!("{label}: {}", p.subject),
        value,
        unit: unit.into(),
        interval: None,
        from: p.from.clone(),
    };
    finding.figures.push(figure("of its reads, from the host's page cache", hits as f64 / 100.0, "ratio"));
    finding.figures.push(figure("memory to give it", gift.more_bytes as f64, "bytes"));
    Some(finding)
}

/// How much memory it should have: as much more as the cache holds of its disks, as the host can spare, and as its
/// balloon took where that is enough. `None` where that is little, where it would not be used, or where the host is
/// short of it.
fn gift(p: &Processors, held: u64) -> Option<Gift> {
    // Reserved pages are the guest's alone, and a guest in swap shows that the host has too little.
    if p.huge_pages == Some(true) || p.swapped_bytes.is_some_and(|bytes| bytes > 0) {
        return None;
    }
    let host = p.host_state.as_ref()?;
    let spare = host.available_bytes?.checked_sub(host.memory_bytes? / HOST_KEEPS)?;
    let memory = p.memory_bytes.filter(|bytes| *bytes > 0)?;
    let now = p.balloon.map_or(memory, |balloon| balloon.actual_bytes);
    let room = memory.saturating_sub(now);
    let by_balloon = room >= 2 * STEP_BYTES;
    let most = held.min(spare).min(if by_balloon { room } else { u64::MAX });
    let more_bytes = most - most % STEP_BYTES;
    let idle = p.balloon.and_then(|balloon| balloon.statistics).map_or(0, |guest| guest.free_bytes);
    // Nothing is in the way of its own cache while it has memory that it uses for nothing.
    if more_bytes < 2 * STEP_BYTES || idle >= more_bytes {
        return None;
    }
    let from = if by_balloon { now } else { memory };
    Some(Gift { more_bytes, to_bytes: from.checked_add(more_bytes)?, spare_bytes: spare, by_balloon })
}

fn change(p: &Processors, socket: Option<&str>, gift: &Gift, what: String) -> Change {
    let names = Names(&p.place);
    let (domain, vmid, mib) = (names.domain(), names.vmid(), gift.to_bytes >> 20);
    if gift.by_balloon {
        return Change {
            what: format!("{what} With a passed-through PCI device (VFIO) its balloon does nothing."),
            qemu: match socket {
                Some(socket) => qmp(socket, "balloon", &json!({ "value": mib << 20 })),
                None => format!("# at its monitor (HMP), in MiB:\nballoon {mib}"),
            },
            libvirt: format!("virsh setmem {domain} {mib}MiB --live"),
            proxmox: format!(
                "# shares 0 ends Proxmox's automatic ballooning of this guest, which would take the memory back:\n\
                 qm set {vmid} --shares 0 && \\\nqm set {vmid} --balloon {mib}"
            ),
            takes: AppliesAt::Running,
            sets: None,
        };
    }
    Change {
        what,
        qemu: format!(
            "# a limit of its control group (MemoryMax) has to leave room for it; in place of its own size, and where a\n\
             # memory backend has that, as size= there, too:\n\
             -m {mib}M"
        ),
        libvirt: format!(
            "# <hard_limit> of <memtune> has to leave room for it; where the domain has <numa>, the memory of its cells\n\
             # instead (virsh edit):\n\
             virsh setmaxmem {domain} {mib}MiB --config && \\\nvirsh setmem {domain} {mib}MiB --config"
        ),
        proxmox: format!("qm set {vmid} --memory {mib}"),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use crate::facts::{Balloon, Details, Disk, Facts, HostState, Processors};
    use crate::testing::{live_disk, live_processors};

    /// A guest with 2 of its 4 GiB, that read 40 GiB through the host's page cache, of which storage read so many
    /// bytes; the cache holds 3 GiB of its disk.
    pub fn guest(storage_bytes: u64) -> Facts {
        let details = Details {
            host_cached_bytes: Some(3 << 30).into(),
            read_bytes: Some(40 << 30).into(),
            ..Details::default()
        };
        let disk = Disk { cache: "writeback".into(), aio: "threads".into(), ..live_disk(details) };
        Facts { disks: vec![disk], processors: vec![processors(storage_bytes)], ..Facts::default() }
    }

    pub fn processors(storage_bytes: u64) -> Processors {
        let host = HostState { memory_bytes: Some(64 << 30), available_bytes: Some(16 << 30), ..HostState::default() };
        Processors {
            balloon: Some(Balloon { actual_bytes: 2 << 30, statistics: None }).into(),
            storage_read_bytes: Some(storage_bytes).into(),
            host_state: Some(host).into(),
            ..live_processors()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Balloon, GuestMemory, HostState, Place};
    use crate::testing::on_filesystem;

    /// The finding of the fixture's guest, changed.
    fn with(change: impl FnOnce(&mut Processors, &mut Disk)) -> Option<Finding> {
        let mut facts = fixture::guest(8 << 30);
        change(&mut facts.processors[0], &mut facts.disks[0]);
        live(&RULE, &facts).pop()
    }

    #[test]
    fn how_much_and_how_is_told_to_paste() {
        let found = with(|p, disk| {
            p.place = Place { domain: Some("db 1".into()), vmid: Some("101".into()), ..Place::default() };
            disk.place.monitor = Some("/run/db1.qmp".into());
        });
        let found = found.unwrap();
        let change = &found.change;
        let what =
            "Give db1 2 GiB more memory, of 12 GiB that the host can spare for all guests: 80 % of its reads hit";
        assert!(change.what.starts_with(what), "{}", change.what);
        assert!(
            found.cause.contains("holds 3 GiB of its disks") && found.cause.contains("leaves it 2 GiB"),
            "{found:?}"
        );
        let qemu = &change.qemu;
        assert!(qemu.contains("{\"value\":4294967296}") && qemu.contains("UNIX-CONNECT:/run/db1.qmp"), "{qemu}");
        assert_eq!(change.libvirt, "virsh setmem 'db 1' 4096MiB --live");
        assert!(
            change.proxmox.ends_with("qm set 101 --shares 0 && \\\nqm set 101 --balloon 4096"),
            "{}",
            change.proxmox
        );
        assert_eq!(change.takes, AppliesAt::Running);
        let figures: Vec<(f64, &str)> = found.figures.iter().map(|f| (f.value, f.unit.as_str())).collect();
        assert_eq!(figures, [(0.8, "ratio"), ((2u64 << 30) as f64, "bytes")]);
    }

    #[test]
    fn without_room_in_the_balloon_it_is_for_the_next_start() {
        let told = |balloon: Option<Balloon>| {
            let change = with(|p, _| p.balloon = balloon.into()).unwrap().change;
            (change.takes, change.proxmox)
        };
        let later = (AppliesAt::NextStart, "qm set VMID --memory 7168".to_owned());
        assert_eq!(told(None), later);
        assert_eq!(told(Some(Balloon { actual_bytes: 4 << 30, statistics: None })), later);
        // Memory that was plugged in counts as well.
        assert_eq!(told(Some(Balloon { actual_bytes: 6 << 30, statistics: None })), later);
    }

    #[test]
    fn not_where_it_would_not_help_or_the_host_has_none() {
        let none = |change: &dyn Fn(&mut Processors, &mut Disk)| assert_eq!(with(change), None);
        none(&|p, _| p.huge_pages = Some(true).into());
        none(&|p, _| p.swapped_bytes = Some(4096).into());
        none(&|p, _| p.storage_read_bytes = Some(21 << 30).into());
        none(&|p, _| p.storage_read_bytes = None.into());
        none(&|_, disk| disk.details.read_bytes = None.into());
        // It read what is cached once, at boot.
        none(&|p, disk| {
            p.storage_read_bytes = Some(0).into();
            disk.details.read_bytes = Some(4 << 30).into();
        });
        none(&|_, disk| disk.cache = "none".into());
        none(&|_, disk| disk.details.host_cached_bytes = Some(200 << 20).into());
        none(&|_, disk| disk.details.storage = "rbd".into());
        none(&|_, disk| disk.details.below = on_filesystem("fuse.mergerfs"));
        let spare = |available: u64| HostState {
            memory_bytes: Some(64 << 30),
            available_bytes: Some(available),
            ..HostState::default()
        };
        none(&|p, _| p.host_state = Some(spare((4 << 30) + (255 << 20))).into());
        none(&|p, _| p.host_state = None.into());
        // No more than the host can spare.
        let found = with(|p, _| p.host_state = Some(spare((4 << 30) + (300 << 20))).into()).unwrap();
        assert!(found.change.what.contains("256 MiB more memory"), "{}", found.change.what);
        let idle = |free_bytes| {
            let guest = GuestMemory {
                free_bytes,
                available_bytes: None,
                cache_bytes: None,
                at_unix_seconds: 1,
                major_faults: None,
                swapped_in_bytes: None,
            };
            with(|p, _| p.balloon.amend().as_mut().unwrap().statistics = Some(guest))
        };
        assert!(idle(2 << 30).is_none() && idle(1 << 30).is_some());
    }
}
