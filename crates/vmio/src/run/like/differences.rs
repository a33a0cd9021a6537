//! In what a guest that runs here differs from the reference guest of `vmio tax`: the settings that
//! the findings recommend, on raw storage that is all there.

use vmio_model::facts::{Disk, Guest};
use vmio_model::rules::change;
use vmio_model::study::{MIB, Resources};

use super::short;

/// The differences, a sentence each. What could not be read is no difference.
pub fn differences(guest: &Guest, reference: Resources) -> Vec<String> {
    let mut all: Vec<String> = guest.disks.iter().filter_map(|d| disk(d, &guest.name)).collect();
    if let Some(p) = &guest.processors {
        let mut words = Vec::new();
        if let Some(n) = p.vcpus.filter(|n| *n != reference.vcpus) {
            words.push(format!("{n} vCPUs instead of {}", reference.vcpus));
        }
        let mib = u64::from(reference.memory_mib);
        if let Some(bytes) = p.memory_bytes.filter(|b| b / MIB != mib) {
            words.push(format!("{} MiB of memory instead of {mib}", bytes / MIB));
        }
        if !words.is_empty() {
            all.push(words.join(", "));
        }
    }
    all
}

/// `disk vda: ahci instead of virtio-blk, no I/O thread`.
fn disk(disk: &Disk, guest: &str) -> Option<String> {
    let best = change::recommended();
    let mut words = Vec::new();
    let mut other = |name: &str, found: &Option<String>, wanted: &str| {
        if let Some(found) = found.as_deref().filter(|f| *f != wanted) {
            words.push(format!("{name}{found} instead of {wanted}"));
        }
    };
    other("", &disk.driver, &best.driver);
    other("cache=", &disk.cache, &best.cache.to_string());
    other("aio=", &disk.aio, &best.aio.to_string());
    other("", &disk.details.format, "raw");
    if disk.iothread == Some(false) {
        words.push("no I/O thread".to_owned());
    }
    if disk.sparse == Some(true) {
        words.push("a file with holes".to_owned());
    }
    match disk.details.backing_files {
        Some(n) if n > 0 => words.push(format!("a chain with {n} {} below", if n == 1 { "image" } else { "images" })),
        _ => {}
    }
    (!words.is_empty()).then(|| format!("{}: {}", short(disk, guest), words.join(", ")))
}
