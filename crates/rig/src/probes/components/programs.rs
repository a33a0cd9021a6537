//! Which part of a program an address is of: the file that is mapped there, by `/proc/PID/maps`. Files are not opened.

use std::collections::{BTreeSet, HashMap};

use vmio_node::Reader;
use vmio_node::linux::maps::Executable;
use vmio_node::linux::process;

/// Code that a program made itself.
const GENERATED: &str = "generated code";
/// The same of a hypervisor: it emulates its guest's processor (QEMU's TCG).
const TRANSLATED: &str = "translated guest code";
/// Addresses at which nothing is mapped, and processes that ended before they were looked at.
const UNKNOWN: &str = "program, not known";
/// Files beyond [`MOST_FILES`].
const OTHER_FILES: &str = "other files";

/// Different names of files. A process may map any number.
const MOST_FILES: usize = 128;
/// Processes whose mappings are kept.
const MOST_PROCESSES: usize = 1024;
/// Bytes of `maps` that are looked at: QEMU with all of its libraries has 60 KiB.
const MAPS_BYTES: usize = 1 << 20;
/// Letters of a file's name that are told.
const MOST_LETTERS: usize = 32;

/// The mapped files of the processes that were sampled.
#[derive(Debug, Default)]
pub struct Programs {
    all: HashMap<u32, Mapped>,
    names: BTreeSet<String>,
}

/// What a process has mapped.
#[derive(Debug)]
struct Mapped {
    areas: Vec<(u64, u64, String)>,
    /// Whether this was read since the last [`Programs::again`].
    fresh: bool,
}

impl Programs {
    /// What is mapped may have changed: an address at which nothing is mapped is looked for once more.
    pub fn again(&mut self) {
        self.all.values_mut().for_each(|mapped| mapped.fresh = false);
    }

    /// The number is another process's from now on.
    pub fn forget(&mut self, process: u32) {
        self.all.remove(&process);
    }

    /// The component of an address of a process.
    pub fn component(&mut self, reader: &dyn Reader, process: u32, is_hypervisor: bool, address: u64) -> String {
        let known = self.all.get(&process);
        if let Some(found) = known.and_then(|mapped| mapped.at(address)) {
            return found.to_owned();
        }
        if known.is_some_and(|mapped| mapped.fresh) {
            return UNKNOWN.to_owned();
        }
        if self.all.len() >= MOST_PROCESSES {
            self.all.clear();
        }
        let areas = self.read(reader, process, is_hypervisor);
        let mapped = Mapped { areas, fresh: true };
        let found = mapped.at(address).unwrap_or(UNKNOWN).to_owned();
        self.all.insert(process, mapped);
        found
    }

    fn read(&mut self, reader: &dyn Reader, process: u32, is_hypervisor: bool) -> Vec<(u64, u64, String)> {
        let maps = reader.read_start(&process::file(process, "maps"), MAPS_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&maps);
        let areas = text.lines().filter_map(Executable::parse);
        areas.map(|area| (area.from, area.to, self.name(area.name, is_hypervisor))).collect()
    }

    fn name(&mut self, name: &str, is_hypervisor: bool) -> String {
        let Some(name) = file(name) else { return (if is_hypervisor { TRANSLATED } else { GENERATED }).to_owned() };
        if !self.names.contains(&name) && self.names.len() >= MOST_FILES {
            return OTHER_FILES.to_owned();
        }
        self.names.insert(name.clone());
        name
    }
}

impl Mapped {
    fn at(&self, address: u64) -> Option<&str> {
        let area = self.areas.iter().find(|(from, to, _)| (*from..*to).contains(&address));
        area.map(|(.., component)| component.as_str())
    }
}

/// A file as it is called: a library without what follows `.so`. `None` for memory of no file that lasts, which a
/// program that writes code has made: anonymous, or of memfd_create(2) (as QEMU's `tcg-jit`).
fn file(name: &str) -> Option<String> {
    if let Some(kernels) = name.strip_prefix("[v") {
        return Some(format!("v{}", kernels.trim_end_matches(']')));
    }
    let path = name.strip_suffix(" (deleted)").unwrap_or(name);
    if !path.starts_with('/') || path.starts_with("/memfd:") || path == "/dev/zero" {
        return None;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    let bare = last.split(".so").next().filter(|bare| !bare.is_empty()).unwrap_or(last);
    // Whoever made the file chose its name.
    let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
    Some(bare.chars().map(plain).take(MOST_LETTERS).collect())
}

#[cfg(test)]
mod tests {
    use vmio_node::Fake;

    use super::*;

    /// Of QEMU 7.2 on Debian 12 under TCG, shortened.
    const RECORDED: &str = "\
55a0c0e00000-55a0c15ac000 r-xp 00337000 fe:00 1055               /usr/bin/qemu-system-x86_64
55a0c2f00000-55a0c3f00000 rw-p 00000000 00:00 0                  [heap]
7f2f10000000-7f2f4ffff000 rwxp 00000000 00:00 0 
7f2fa0000000-7f2fa0155000 r-xp 00026000 fe:00 3021               /usr/lib/x86_64-linux-gnu/libc.so.6
7f2fa0200000-7f2fa0290000 r-xp 0001c000 fe:00 3054               /usr/lib/x86_64-linux-gnu/libglib-2.0.so.0.7400.6
7f2fa0300000-7f2fa0310000 rwxs 00000000 00:01 9                  /memfd:tcg-jit (deleted)
7ffd3fbee000-7ffd3fbf0000 r-xp 00000000 00:00 0                  [vdso]
";

    fn components<const N: usize>(is_hypervisor: bool, addresses: [u64; N]) -> [String; N] {
        let (fake, mut programs) = (Fake::new("fake").file("/proc/7/maps", RECORDED), Programs::default());
        addresses.map(|address| programs.component(&fake, 7, is_hypervisor, address))
    }

    #[test]
    fn an_address_is_of_the_file_that_is_mapped_there() {
        let told = components(true, [0x55a0_c0e0_1000, 0x7f2f_a000_0000, 0x7f2f_a020_0010, 0x7ffd_3fbe_e010]);
        assert_eq!(told, ["qemu-system-x86_64", "libc", "libglib-2.0", "vdso"]);
        assert_eq!(components(true, [0x7f2f_1000_0010, 0x7f2f_a030_0000]), [TRANSLATED; 2]);
        assert_eq!(components(false, [0x7f2f_1000_0010]), [GENERATED], "of another program");
        assert_eq!(components(true, [0x55a0_c2f0_0010, 0x7f2f_a015_5000]), [UNKNOWN; 2], "data, and behind an area");
    }

    #[test]
    fn what_is_mapped_later_is_found_the_next_time() {
        let fake = Fake::new("fake").file("/proc/7/maps", RECORDED);
        let mut programs = Programs::default();
        let at = |programs: &mut Programs| programs.component(&fake, 7, false, 0x1000);
        assert_eq!(at(&mut programs), UNKNOWN);
        fake.set("/proc/7/maps", "1000-2000 r-xp 0 fe:00 5 /opt/lib new.so.1\n");
        assert_eq!(at(&mut programs), UNKNOWN, "once a time");
        programs.again();
        assert_eq!(at(&mut programs), "lib?new");
        assert_eq!(programs.component(&fake, 8, false, 0x1000), UNKNOWN, "a process that has ended");
    }

    #[test]
    fn names_are_bounded() {
        let line = |i: u64| format!("{:x}-{:x} r-xp 0 fe:00 5 /x/{}{i}\n", i << 12, (i + 1) << 12, "n".repeat(40));
        let many: String = (1..=2 * MOST_FILES as u64).map(|i| line(i).replace("nnnnnnnnnn", "")).collect();
        let fake = Fake::new("fake").file("/proc/7/maps", many).file("/proc/8/maps", line(1));
        let mut programs = Programs::default();
        assert_eq!(programs.component(&fake, 7, false, 0x1000), "1");
        assert_eq!(programs.component(&fake, 7, false, (2 * MOST_FILES as u64) << 12), OTHER_FILES);
        assert_eq!(Programs::default().component(&fake, 8, false, 0x1000), "n".repeat(MOST_LETTERS));
    }
}
