//! Energy by the kernel's power capping framework (`/sys/class/powercap`, Linux
//! Documentation/power/powercap/powercap.rst): counters of microjoules, of packages of processors and of their memory.
//!
//! Root alone may read the counters since Linux 5.10 (commit 949dd0104c49, CVE-2020-8694).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{is_there, number, word};
use crate::Reader;

/// The zones of all control types, each as a directory.
pub const DIR: &str = "/sys/class/powercap";
/// A part that is no part of its package's energy (Intel SDM, volume 3, "RAPL Domains and Platform Specificity").
const MEMORY: &str = "dram";

/// A part of the machine whose energy is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// `package-0`, `psys`; the memory of a package is `package-0 dram`.
    pub domain: String,
    /// Microjoules that it has taken, and since when nobody knows.
    pub energy_file: PathBuf,
    /// Where that counter begins anew from 0, in microjoules.
    pub range_uj: Option<u64>,
}

impl Zone {
    /// Microjoules between two readings with so little time between them that it cannot have come an eighth of the way
    /// round; `None` where the counter went backwards.
    pub fn between_uj(&self, before_uj: u64, after_uj: u64) -> Option<u64> {
        after_uj.checked_sub(before_uj).or_else(|| {
            let range_uj = self.range_uj?;
            let round_uj = range_uj.checked_sub(before_uj)?.checked_add(after_uj)?;
            (round_uj < range_uj / 8).then_some(round_uj)
        })
    }
}

/// A content of its file.
pub fn parse(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// What is counted here, each once, by its domain. A package's cores and what else is in it are left out: the package
/// has them.
pub fn zones(reader: &dyn Reader) -> Vec<Zone> {
    let dir = Path::new(DIR);
    let zone = |name: &String| {
        let of = |zone: &str, file: &str| dir.join(zone).join(file);
        let called = |zone: &str| word(reader, &of(zone, "name"));
        let energy_file = of(name, "energy_uj");
        if !is_there(reader, &energy_file) {
            return None;
        }
        // `intel-rapl:0:1` is a part of `intel-rapl:0`, and that of none.
        let whole = name.rsplit_once(':').map(|(whole, _)| whole).filter(|whole| whole.contains(':'));
        let domain = match (whole, called(name)?) {
            (None, own) => own,
            (Some(whole), own) if own == MEMORY => format!("{} {MEMORY}", called(whole)?),
            (Some(_), _) => return None,
        };
        Some((domain.clone(), Zone { domain, energy_file, range_uj: number(reader, &of(name, "max_energy_range_uj")) }))
    };
    // Sorted, so that of a package with two interfaces `intel-rapl:0` stays, and not `intel-rapl-mmio:0`.
    let names = reader.list(dir).unwrap_or_default();
    names.iter().filter_map(zone).collect::<BTreeMap<String, Zone>>().into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn zone(fake: Fake, name: &str, called: &str, range_uj: u64) -> Fake {
        let file = |file: &str| format!("{DIR}/{name}/{file}");
        fake.file(file("name"), format!("{called}\n"))
            .file(file("energy_uj"), "17\n")
            .file(file("max_energy_range_uj"), format!("{range_uj}\n"))
    }

    #[test]
    fn zones_are_counted_once() {
        let all = [
            ("intel-rapl-mmio:0", "package-0", 1),
            ("intel-rapl:0", "package-0", 262_143_328_850),
            ("intel-rapl:0:0", "core", 262_143_328_850),
            ("intel-rapl:0:1", "dram", 65_712_999_613),
            ("intel-rapl:1", "psys", 262_143_328_850),
        ];
        let fake = all.iter().fold(Fake::new("fake"), |fake, (name, called, range)| zone(fake, name, called, *range));
        // A control type, and a zone that counts power alone.
        let fake = fake.file(format!("{DIR}/intel-rapl/enabled"), "1\n").file(format!("{DIR}/dtpm:0/power_uw"), "9\n");
        let told: Vec<_> = zones(&fake).into_iter().map(|z| (z.domain, z.range_uj)).collect();
        let wanted = [("package-0", 262_143_328_850), ("package-0 dram", 65_712_999_613), ("psys", 262_143_328_850)];
        assert_eq!(told, wanted.map(|(domain, range)| (domain.to_owned(), Some(range))));
        assert_eq!(zones(&Fake::new("fake")), []);
    }

    #[test]
    fn counter_wraps() {
        let zone = |range_uj| Zone { domain: "package-0".into(), energy_file: PathBuf::new(), range_uj };
        assert_eq!(zone(None).between_uj(100, 350), Some(250));
        assert_eq!(zone(Some(1000)).between_uj(960, 50), Some(90));
        // Somebody set it to 0.
        assert_eq!(zone(Some(1000)).between_uj(300, 0), None);
        assert_eq!((zone(None).between_uj(900, 50), zone(Some(1000)).between_uj(2000, 50)), (None, None));
        assert_eq!((parse("17\n"), parse("")), (Some(17), None));
    }
}
