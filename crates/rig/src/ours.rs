//! vmio's own static programs, and where they are: the agent, which is the init of its guests, the generator of
//! datagrams, which runs at both ends of a path, and the kernels that keep a processor busy. `make agent` builds all.

use std::env;
use std::path::{Path, PathBuf};

use vmio_look::require::Missing;
use vmio_model::cell::Arch;
use vmio_node::{Reader, cpu, find_program, libvirt, ssh, udp};

use crate::elf;

/// Where `make` builds them, below the directory `target`.
fn built(arch: Arch) -> String {
    format!("{arch}-unknown-linux-gnu/agent")
}
const INSTALLED: [&str; 2] = ["/usr/lib/vmio", "/usr/local/lib/vmio"];

/// What builds them.
pub fn make(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "make agent",
        Arch::Aarch64 => "make agent-arm64",
    }
}

/// A static program of vmio's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub name: &'static str,
    /// The variable that names its file.
    pub variable: &'static str,
}

/// The init of guests.
pub const AGENT: Own = Own { name: "vmio-agent", variable: "VMIO_AGENT" };
/// The generator of datagrams and its receiver.
pub const UDP: Own = Own { name: udp::PROGRAM, variable: "VMIO_UDP" };

/// The kernels that keep a processor busy.
pub const CPU: Own = Own { name: cpu::PROGRAM, variable: "VMIO_CPU" };

/// What workloads run of them.
const WORKING: [Own; 2] = [UDP, CPU];

/// What workloads run of vmio's own.
pub fn of_workloads() -> impl Iterator<Item = Own> {
    WORKING.into_iter()
}

impl Own {
    /// The one of that name that workloads run.
    pub fn of_workload(name: &str) -> Option<Own> {
        WORKING.into_iter().find(|own| own.name == name)
    }

    /// Where it is on this host: the file that its variable names, else beside the running program, else in the
    /// directory of cargo that the program was built into, else where it is installed. Beside a program in
    /// `target/debug` there may be one of `cargo test`, which is not static: one that is goes first.
    ///
    /// # Errors
    /// Where it was looked for.
    pub fn find(&self, reader: &dyn Reader) -> Result<PathBuf, Vec<PathBuf>> {
        self.find_for(Arch::default(), reader)
    }

    /// The same for guests of a kind of processor. Of another than this host's there is none beside vmio, and none has
    /// its plain name where programs are installed: they are in a directory of its own there.
    ///
    /// # Errors
    /// Where it was looked for.
    pub fn find_for(&self, arch: Arch, reader: &dyn Reader) -> Result<PathBuf, Vec<PathBuf>> {
        let tried = match env::var_os(self.variable_for(arch)) {
            Some(path) => vec![PathBuf::from(path)],
            None => self.candidates(arch, &env::current_exe().unwrap_or_default()),
        };
        choose(reader, &tried).ok_or(tried)
    }

    /// The variable that names its file for guests of a kind of processor.
    pub fn variable_for(&self, arch: Arch) -> String {
        if arch.is_own() {
            return self.variable.to_owned();
        }
        format!("{}_{}", self.variable, arch.name().to_uppercase())
    }

    /// Where it is on a machine that may be a guest, or another one, which has it in its `PATH`: as a part of a guest's image,
    /// or as what was sent there. A container has this host's own; on another machine what lies at that place is not vmio's.
    pub fn on(&self, reader: &dyn Reader) -> Option<PathBuf> {
        let here = if is_afar(reader.name()) { None } else { self.find(reader).ok() };
        here.or_else(|| find_program(reader, self.name))
    }

    /// What it is called by there: vmio's own file on this host, what the image carries in a guest.
    pub fn call(&self, reader: &dyn Reader) -> String {
        self.on(reader).map_or(self.name.to_owned(), |path| path.display().to_string())
    }

    /// Whether it is there, for requirements.
    ///
    /// # Errors
    /// That it is not.
    pub fn there(&self, reader: &dyn Reader) -> Result<(), Missing> {
        self.on(reader).map(drop).ok_or(Missing::OwnProgram(self.name))
    }

    fn candidates(&self, arch: Arch, exe: &Path) -> Vec<PathBuf> {
        let beside = exe.parent().filter(|_| arch.is_own()).map(Path::to_owned);
        // target/debug/vmio, target/debug/deps/test-…; an installed program has no such directory above it.
        let of_cargo = exe.ancestors().skip(1).take(2).any(|dir| dir.ends_with("debug") || dir.ends_with("release"));
        let built = exe.ancestors().skip(2).take(2).filter(|_| of_cargo).map(|a| a.join(built(arch)));
        let installed = INSTALLED.map(|dir| if arch.is_own() { dir.into() } else { Path::new(dir).join(arch.name()) });
        beside.into_iter().chain(built).chain(installed).map(|dir| dir.join(self.name)).collect()
    }
}

/// Whether a node of this name is a machine that was gone to, and neither this host nor what vmio started on it.
fn is_afar(name: &str) -> bool {
    [ssh::SCHEME, libvirt::SCHEME].iter().any(|scheme| name.starts_with(scheme))
}

/// A program that workloads run, of vmio's own or the host's.
pub fn program(reader: &dyn Reader, name: &str) -> Option<PathBuf> {
    match Own::of_workload(name) {
        Some(own) => own.on(reader),
        None => find_program(reader, name),
    }
}

/// The first that is static, else the first that is there, so that its fault can be told.
fn choose(reader: &dyn Reader, tried: &[PathBuf]) -> Option<PathBuf> {
    let there = || tried.iter().filter(|p| matches!(reader.stat(p), Ok(Some(found)) if found.is_file()));
    let fit = |p: &&PathBuf| reader.read(p).is_ok_and(|program| elf::is_static(&program));
    there().find(fit).or_else(|| there().next()).cloned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use vmio_node::{Fake, Local, Node};

    use super::*;

    #[test]
    fn looks_beside_the_program_and_where_it_was_built() {
        for own in [AGENT, UDP, CPU] {
            let list = own.candidates(Arch::X86_64, Path::new("/src/vmio/target/debug/deps/test-1"));
            assert_eq!(list[0], Path::new("/src/vmio/target/debug/deps").join(own.name));
            assert!(list.contains(&Path::new("/src/vmio/target").join(built(Arch::X86_64)).join(own.name)), "{list:?}");
            let list = own.candidates(Arch::X86_64, Path::new("/cache/debug/vmio"));
            assert!(list.contains(&Path::new("/cache").join(built(Arch::X86_64)).join(own.name)), "{list:?}");
            // One for another processor is never taken from where this host's own lies.
            let list = own.candidates(Arch::Aarch64, Path::new("/cache/debug/vmio"));
            let dirs = ["/cache/aarch64-unknown-linux-gnu/agent", "/usr/lib/vmio/aarch64"].map(Path::new);
            assert!(dirs.iter().all(|dir| list.contains(&dir.join(own.name))), "{list:?}");
            assert!(list.iter().all(|path| path.to_string_lossy().contains("aarch64")), "{list:?}");
            assert_eq!(own.variable_for(Arch::Aarch64), format!("{}_AARCH64", own.variable));
            // Of an installed program nothing is looked for at `/`.
            let list = own.candidates(Arch::X86_64, Path::new("/usr/bin/vmio"));
            let dirs = ["/usr/bin", "/usr/lib/vmio", "/usr/local/lib/vmio"].map(|dir| Path::new(dir).join(own.name));
            assert_eq!(list, dirs);
        }
    }

    #[test]
    fn a_static_one_goes_before_one_that_is_not() {
        let local = Local::new();
        let dir = tempfile::tempdir().unwrap();
        let (dynamic, fixed) = (dir.path().join("a"), dir.path().join("b"));
        fs::copy(env::current_exe().unwrap(), &dynamic).unwrap();
        let both = [dir.path().join("missing"), dynamic.clone(), fixed.clone()];
        assert_eq!(choose(local.reader(), &both), Some(dynamic));
        fs::write(&fixed, elf::tests::elf_with_section("x", b"")).unwrap();
        assert_eq!(choose(local.reader(), &both), Some(fixed));
        assert_eq!(choose(local.reader(), &both[..1]), None);
    }

    #[test]
    fn a_guest_has_it_in_its_path() {
        let guest = Fake::new("guest0").installed("vmio-udp").installed("fio");
        assert_eq!(program(&guest, "vmio-udp"), Some("/usr/bin/vmio-udp".into()));
        assert_eq!(program(&guest, "fio"), Some("/usr/bin/fio".into()));
        assert_eq!(program(&Fake::new("bare"), "vmio-udp"), None);
        // A file where this host has its own is another's on another machine.
        let beside = env::current_exe().unwrap().parent().unwrap().join("vmio-cpu");
        let with = |name: &str| Fake::new(name).file(&beside, "x");
        assert_eq!(CPU.on(&with("ssh://away")), None);
        for here in [vmio_node::LOCAL, "container"] {
            assert!(CPU.on(&with(here)).is_some(), "{here}");
        }
    }
}
