//! Sensors of power and energy of the kernel's hardware monitoring (`/sys/class/hwmon`, Linux
//! Documentation/hwmon/sysfs-interface.rst): `powerN_average` and `powerN_input` in microwatts, `energyN_input` in
//! microjoules, `*_label`; of each channel the counter of energy where there is one, else the average, else the power
//! now.
//!
//! Which sensor is of the whole machine is known by its driver: `power_meter` (ACPI 4.0, section 10.4, Documentation/
//! hwmon/acpi_power_meter.rst) measures the machine, as does the sensor `System` of `ibmpowernv`. `amd_energy` counts
//! sockets, and the cores in them. All others are of a part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{number, word};
use crate::Reader;

/// All chips, each as a directory.
pub const DIR: &str = "/sys/class/hwmon";
/// Most letters of a chip's name or a label; drivers have fewer.
const MOST_LETTERS: usize = 40;
/// Power above which a reading is none, in microwatts: 1 MW. ACPI has 2^32 - 1 mW for "unknown".
const MOST_UW: u64 = 1_000_000_000_000;

/// What a sensor tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The power now, in microwatts.
    Now,
    /// Its average, in microwatts.
    Average {
        /// Over how many milliseconds, where the driver says so (`powerN_average_interval`).
        interval_ms: Option<u64>,
    },
    /// Energy in microjoules since an unknown start.
    Energy,
}

/// What a sensor is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    /// The machine.
    Machine,
    /// A package of processors, which power capping may count, too.
    Package,
    /// Another part, such as a graphics card or a power supply.
    Part,
}

/// A sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// `machine`, `package-0`, or chip and label of a part: `amdgpu PPT`.
    pub domain: String,
    /// What is read.
    pub file: PathBuf,
    /// What is in it.
    pub counts: Counts,
    /// What it is of.
    pub covers: Covers,
}

impl Sensor {
    /// A content of its file, in microwatts or microjoules; `None` where it is not a reading.
    pub fn parse(&self, text: &str) -> Option<u64> {
        let value: u64 = text.trim().parse().ok()?;
        (self.counts == Counts::Energy || value <= MOST_UW).then_some(value)
    }
}

/// What is measured here, each domain once.
pub fn sensors(reader: &dyn Reader) -> Vec<Sensor> {
    let mut all: BTreeMap<String, Sensor> = BTreeMap::new();
    let mut chips = reader.list(Path::new(DIR)).unwrap_or_default();
    chips.sort_by_key(|name| name.strip_prefix("hwmon").and_then(|n| n.parse::<u32>().ok()));
    for (name, sensor) in chips.iter().flat_map(|chip| of_chip(reader, chip).into_iter().map(move |s| (chip, s))) {
        let domain = if all.contains_key(&sensor.domain) {
            format!("{} ({})", sensor.domain, device(reader, name))
        } else {
            sensor.domain.clone()
        };
        all.entry(domain.clone()).or_insert(Sensor { domain, ..sensor });
    }
    all.into_values().collect()
}

/// The device of a chip: `0000:03:00.0`; `hwmon3` where it has none.
fn device(reader: &dyn Reader, chip: &str) -> String {
    let link = reader.link(&Path::new(DIR).join(chip).join("device")).ok().flatten();
    link.and_then(|to| Some(short(to.file_name()?.to_str()?))).unwrap_or_else(|| chip.to_owned())
}

/// The sensors of a chip. Drivers of the older interface have their files in `device/`.
fn of_chip(reader: &dyn Reader, chip: &str) -> Vec<Sensor> {
    let own = Path::new(DIR).join(chip);
    let dirs = [own.clone(), own.join("device")];
    let Some(name) = dirs.iter().find_map(|dir| word(reader, &dir.join("name"))).map(|name| short(&name)) else {
        return Vec::new();
    };
    // By label: a counter of energy is exact, and comes before the power of the same.
    let mut channels: BTreeMap<String, Sensor> = BTreeMap::new();
    for dir in &dirs {
        let files = reader.list(dir).unwrap_or_default();
        let mut found: Vec<(Counts, &str)> = files.iter().filter_map(|file| channel(file)).collect();
        found.sort_by_key(|(counts, channel)| (rank(*counts), channel.len(), *channel));
        let only = found.iter().map(|(_, channel)| channel).collect::<BTreeSet<_>>().len() == 1;
        for (counts, channel) in found {
            let label = word(reader, &dir.join(format!("{channel}_label"))).map(|label| short(&label));
            let Some((domain, covers)) = known(&name, label.as_deref(), if only { "" } else { channel }) else {
                continue;
            };
            let (file, counts) = match counts {
                Counts::Average { .. } => {
                    let interval_ms = number(reader, &dir.join(format!("{channel}_average_interval")));
                    (format!("{channel}_average"), Counts::Average { interval_ms })
                }
                counts => (format!("{channel}_input"), counts),
            };
            let sensor = Sensor { domain: domain.clone(), file: dir.join(file), counts, covers };
            channels.entry(domain).or_insert(sensor);
        }
    }
    channels.into_values().collect()
}

/// What is taken first of a channel.
fn rank(counts: Counts) -> u8 {
    match counts {
        Counts::Energy => 0,
        Counts::Average { .. } => 1,
        Counts::Now => 2,
    }
}

/// `power1_average`: what it counts, and the name of its channel, `power1`.
fn channel(file: &str) -> Option<(Counts, &str)> {
    let (channel, what) = file.split_once('_')?;
    let numbered = |kind: &str| {
        channel
            .strip_prefix(kind)
            .is_some_and(|n| !n.is_empty() && n.len() < 4 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    match what {
        "input" if numbered("energy") => Some((Counts::Energy, channel)),
        "average" if numbered("power") => Some((Counts::Average { interval_ms: None }, channel)),
        "input" if numbered("power") => Some((Counts::Now, channel)),
        _ => None,
    }
}

/// What a sensor of a driver is of; `None` for one that is a part of another sensor of the driver.
fn known(chip: &str, label: Option<&str>, channel: &str) -> Option<(String, Covers)> {
    match (chip, label) {
        ("power_meter", _) | ("ibmpowernv", Some("System")) => Some(("machine".to_owned(), Covers::Machine)),
        ("amd_energy", Some(label)) => {
            let socket: u32 = label.strip_prefix("Esocket")?.parse().ok()?;
            Some((format!("package-{socket}"), Covers::Package))
        }
        (_, Some(label)) => Some((format!("{chip} {label}"), Covers::Part)),
        (_, None) => Some((format!("{chip} {channel}").trim_end().to_owned(), Covers::Part)),
    }
}

/// A name of a driver's, on one line and not endless.
fn short(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(MOST_LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn chip(fake: Fake, at: &str, name: &str, files: &[(&str, &str)]) -> Fake {
        let fake = fake.file(format!("{DIR}/{at}/name"), format!("{name}\n"));
        files.iter().fold(fake, |fake, (file, text)| fake.file(format!("{DIR}/{at}/{file}"), format!("{text}\n")))
    }

    fn told(fake: &Fake) -> Vec<(String, String, Counts, Covers)> {
        let file = |sensor: &Sensor| sensor.file.strip_prefix(DIR).map(|f| f.display().to_string()).unwrap_or_default();
        sensors(fake).iter().map(|s| (s.domain.clone(), file(s), s.counts, s.covers)).collect()
    }

    #[test]
    fn the_machine_is_told_from_its_parts() {
        let meter = [("power1_average", "214000000"), ("power1_average_interval", "1000"), ("power1_cap", "5")];
        let fake = chip(Fake::new("fake"), "hwmon0", "power_meter", &meter);
        let fake = chip(fake, "hwmon1", "k10temp", &[("temp1_input", "40000")]);
        let cores = [
            ("energy1_input", "7"),
            ("energy1_label", "Ecore000"),
            ("energy2_input", "900"),
            ("energy2_label", "Esocket0"),
        ];
        let fake = chip(fake, "hwmon2", "amd_energy", &cores);
        let gpu = [("power1_average", "9000000"), ("power1_label", "PPT"), ("power1_input", "9100000")];
        let fake = chip(chip(fake, "hwmon3", "amdgpu", &gpu), "hwmon10", "amdgpu", &gpu);
        let fake = fake.symlink(format!("{DIR}/hwmon10/device"), "../../../0000:43:00.0");
        let rails = [("power1_input", "1"), ("power2_input", "2")];
        let fake = chip(fake, "hwmon4", "ina3221", &rails);
        let (mean, second) = (Counts::Average { interval_ms: None }, Counts::Average { interval_ms: Some(1000) });
        let wanted = [
            ("amdgpu PPT", "hwmon3/power1_average", mean, Covers::Part),
            ("amdgpu PPT (0000:43:00.0)", "hwmon10/power1_average", mean, Covers::Part),
            ("ina3221 power1", "hwmon4/power1_input", Counts::Now, Covers::Part),
            ("ina3221 power2", "hwmon4/power2_input", Counts::Now, Covers::Part),
            ("machine", "hwmon0/power1_average", second, Covers::Machine),
            ("package-0", "hwmon2/energy2_input", Counts::Energy, Covers::Package),
        ];
        assert_eq!(
            told(&fake),
            wanted.map(|(domain, file, counts, covers)| (domain.into(), file.into(), counts, covers))
        );
        assert_eq!(told(&Fake::new("fake")), []);
    }

    #[test]
    fn a_counter_of_energy_comes_before_the_power_of_the_same() {
        let both =
            [("power2_input", "1"), ("power2_label", "System"), ("energy1_input", "5"), ("energy1_label", "System")];
        let fake = chip(Fake::new("fake"), "hwmon0", "ibmpowernv", &both);
        assert_eq!(told(&fake), [("machine".into(), "hwmon0/energy1_input".into(), Counts::Energy, Covers::Machine)]);
        // Before Linux 6.8 the driver of ACPI's meter had its files at the device.
        let older = chip(Fake::new("fake"), "hwmon0/device", "power_meter", &[("power1_average", "1")]);
        let mean = Counts::Average { interval_ms: None };
        assert_eq!(told(&older), [("machine".into(), "hwmon0/device/power1_average".into(), mean, Covers::Machine)]);
    }

    #[test]
    fn what_is_no_reading_is_none() {
        let sensor = |counts| Sensor { domain: String::new(), file: PathBuf::new(), counts, covers: Covers::Part };
        let now = sensor(Counts::Now);
        assert_eq!(
            (now.parse("17\n"), now.parse("-1"), now.parse(""), now.parse("4294967295000\n")),
            (Some(17), None, None, None)
        );
        assert_eq!(sensor(Counts::Energy).parse("4294967295000\n"), Some(4_294_967_295_000));
    }
}
