//! The differences of a running guest from the reference guest of `vmio tax`, in words.

use vmio_model::facts::Guest;
use vmio_model::reference;
use vmio_model::study::{MIB, Resources};

/// The differences, a sentence a device, and one of processors and memory. What could not be read is no
/// difference.
pub fn differences(guest: &Guest, resources: Resources) -> Vec<String> {
    let each = reference::differences(guest);
    let one = |of_device: &[reference::Difference]| {
        let words: Vec<String> =
            of_device.iter().map(|d| format!("{} {} instead of {}", d.setting, d.guest, d.reference)).collect();
        format!("{}: {}", of_device[0].subject.within(), words.join(", "))
    };
    let mut all: Vec<String> = each.chunk_by(|a, b| a.subject == b.subject).map(one).collect();
    let Some(p) = &guest.processors else { return all };
    let mut words = Vec::new();
    if let Some(n) = p.vcpus.filter(|n| *n != resources.vcpus) {
        words.push(format!("{n} vCPUs instead of {}", resources.vcpus));
    }
    let mib = u64::from(resources.memory_mib);
    if let Some(bytes) = p.memory_bytes.filter(|b| b / MIB != mib) {
        words.push(format!("{} MiB of memory instead of {mib}", bytes / MIB));
    }
    if !words.is_empty() {
        all.push(words.join(", "));
    }
    all
}
