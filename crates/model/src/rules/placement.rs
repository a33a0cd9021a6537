//! Affinity of a guest's threads, as sets of the host's processors.

use std::collections::BTreeSet;

use crate::facts::Processors;

/// A list for `taskset -c` and `virsh`: `0-3,8`.
pub fn list_of(numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let shown = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(shown).collect::<Vec<String>>().join(",")
}

/// Processors that the guest's vCPUs fill when all run: sets to which at least as many vCPUs are bound as the set is
/// large (Hall's condition). vCPUs with affinity to all processors of the host are not bound; without the host's
/// processors none is known to be.
pub fn taken_cpus(p: &Processors) -> BTreeSet<u32> {
    let host: BTreeSet<u32> = p.host.iter().map(|c| c.cpu).collect();
    if host.is_empty() {
        return host;
    }
    let sets = p.threads.iter().filter(|t| t.role == "vcpu").map(|t| t.cpus.iter().copied().collect::<BTreeSet<u32>>());
    let bound: Vec<BTreeSet<u32>> = sets.filter(|s| !s.is_empty() && !host.is_subset(s)).collect();
    let all = bound.iter().flatten().copied().collect::<BTreeSet<u32>>();
    let filled = |set: &BTreeSet<u32>| bound.iter().filter(|s| s.is_subset(set)).count() >= set.len();
    bound.iter().chain([&all]).filter(|set| filled(set)).flatten().copied().collect()
}

/// The host's other processors.
pub fn free_cpus(p: &Processors, taken: &BTreeSet<u32>) -> BTreeSet<u32> {
    p.host.iter().map(|c| c.cpu).filter(|c| !taken.contains(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn lists_are_ranges() {
        let list = |numbers: &[u32]| list_of(&numbers.iter().copied().collect());
        assert_eq!((list(&[0, 1, 2, 8]), list(&[4]), list(&[])), ("0-2,8".into(), "4".into(), String::new()));
    }

    #[test]
    fn taken_is_what_bound_vcpus_fill() {
        let mut p = live_processors();
        assert_eq!(list_of(&taken_cpus(&p)), "2-5");
        // One vCPU on its own processor, three without a binding.
        p.threads.amend().iter_mut().skip(1).for_each(|t| t.cpus = (0..8).collect());
        assert_eq!(list_of(&taken_cpus(&p)), "2");
        p.host.amend().clear();
        assert!(taken_cpus(&p).is_empty());
    }
}
