//! What libvirt tells of guests' memory and reads (virsh(1), domstats): `balloon.*` in KiB, `block.N.rd.bytes`.

use std::collections::BTreeMap;

use vmio_model::facts::{Balloon, Fact, Guest, GuestMemory};

use crate::host_view::HostView;

/// Oldest report of a guest's driver that counts: whoever had it polled may have stopped.
const FRESH_SECONDS: f64 = 300.0;

/// A domain: its numbers of memory by name, and the bytes that it read by target.
#[derive(Debug, Default)]
struct Domain<'a> {
    balloon: BTreeMap<&'a str, u64>,
    read: BTreeMap<&'a str, u64>,
}

/// Fills in what `domstats --block --balloon` told of these guests.
pub fn put(host: &HostView<'_>, text: &str, virsh: &str, guests: &mut [Guest]) {
    let told = domains(text);
    for guest in guests.iter_mut().filter(|guest| guest.is_qemu()) {
        let Some(domain) = told.get(guest.name.as_str()) else { continue };
        let from = format!("{virsh} domstats {}", guest.name);
        for disk in &mut guest.disks {
            if let Some(bytes) = disk.place.target.as_deref().and_then(|target| domain.read.get(target)) {
                disk.details.read_bytes = Fact::read(Some(*bytes), &from);
            }
        }
        // One that has no balloon is told of as if it had.
        let own = guest.processors.as_mut().filter(|own| own.balloon.is_some());
        if let (Some(own), Some(balloon)) = (own, balloon(host, domain)) {
            own.balloon = Fact::read(Some(balloon), &from);
        }
    }
}

fn balloon(host: &HostView<'_>, domain: &Domain<'_>) -> Option<Balloon> {
    let bytes = |name: &str| domain.balloon.get(name)?.checked_mul(1024);
    let statistics = || {
        let at_unix_seconds = *domain.balloon.get("last-update")?;
        let memory = GuestMemory {
            free_bytes: bytes("unused")?,
            available_bytes: bytes("usable"),
            cache_bytes: bytes("disk_caches"),
            at_unix_seconds,
            major_faults: domain.balloon.get("major_fault").copied(),
            swapped_in_bytes: bytes("swap_in"),
        };
        (host.at_unix_seconds - at_unix_seconds as f64 <= FRESH_SECONDS).then_some(memory)
    };
    Some(Balloon::reporting(bytes("current")?, statistics()))
}

fn domains(text: &str) -> BTreeMap<&str, Domain<'_>> {
    let mut all: BTreeMap<&str, Domain<'_>> = BTreeMap::new();
    let (mut name, mut target) = ("", "");
    for line in text.lines().map(str::trim) {
        if let Some(domain) = line.strip_prefix("Domain: ") {
            (name, target) = (domain.trim_matches('\''), "");
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let own = all.entry(name).or_default();
        if let Some(key) = key.strip_prefix("balloon.") {
            own.balloon.extend(value.parse().ok().map(|number: u64| (key, number)));
        } else if let Some((_, key)) = key.strip_prefix("block.").and_then(|key| key.split_once('.')) {
            match key {
                "name" => target = value,
                "rd.bytes" => own.read.extend(value.parse().ok().map(|bytes: u64| (target, bytes))),
                _ => {}
            }
        }
    }
    all
}
