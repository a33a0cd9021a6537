//! The programs that guests of another processor run: Debian's packages of the same names, downloaded for that processor,
//! of which the programs and the libraries that they load are taken. `ldd` would run a program, which this host cannot;
//! what it loads is read from the ELF files (elf(5), `DT_NEEDED`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use vmio_model::cell::Arch;
use vmio_node::Node;

use super::own;
use super::packages::{Packages, Wanted};
use super::tools::{Tools, place_of, write_disk};
use super::{Error, Progress, Result, elf, file_error, fnv1a};
use crate::ours;

/// Each program that guests run, with the package that has it; vmio's own are built.
const PROGRAMS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("dd", "coreutils"),
    ("dmsetup", "dmsetup"),
    ("ethtool", "ethtool"),
    ("fio", "fio"),
    ("hdparm", "hdparm"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("iscsistart", "open-iscsi"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("nbd-client", "nbd-client"),
    ("nc.openbsd", "netcat-openbsd"),
    ("openssl", "openssl"),
    ("sh", "dash"),
    ("sockperf", "sockperf"),
    ("stress-ng", "stress-ng"),
    ("umount", "mount"),
    ("unshare", "util-linux"),
    ("zstd", "zstd"),
];

/// Those packages.
const ARM64: Wanted = Wanted {
    what: "guests of aarch64",
    by: "vmio image build --arch arm64",
    packages: &[
        "coreutils",
        "curl",
        "dash",
        "dmsetup",
        "ethtool",
        "fio",
        "hdparm",
        "iperf3",
        "iproute2",
        "mount",
        "nbd-client",
        "netcat-openbsd",
        "open-iscsi",
        "openssl",
        "sockperf",
        "stress-ng",
        "util-linux",
        "zstd",
    ],
    arch: Arch::Aarch64,
    dir: "packages-arm64",
    megabytes: 60,
};

/// The programs of an image for another processor.
pub(super) struct Foreign {
    arch: Arch,
    packages: Packages,
    /// vmio's own, by name.
    own: BTreeMap<&'static str, PathBuf>,
    /// What an image says that it carries; where the files are is known when they are unpacked.
    pub tools: Tools,
}

impl Foreign {
    /// Kept or downloaded packages, and vmio's own programs where they are built.
    pub fn find(node: &dyn Node, arch: Arch, state_dir: &Path, progress: Progress) -> Result<Self> {
        let packages = ARM64.find(node, state_dir, progress)?;
        let mut tools = Tools::default();
        for (program, package) in PROGRAMS {
            let version = packages.version(package).unwrap_or_else(|| "of no version".to_owned());
            tools.programs.insert((*program).to_owned(), format!("{package} {version} ({})", arch.debian()));
        }
        let mut ours = BTreeMap::new();
        for program in ours::of_workloads() {
            let path = own::path(node, program, arch)?;
            own::read_static(&path, arch)?;
            let version = format!("{} {} ({arch})", program.name, env!("CARGO_PKG_VERSION"));
            tools.programs.insert(program.name.to_owned(), version);
            ours.insert(program.name, path);
        }
        Ok(Self { arch, packages, own: ours, tools })
    }

    /// What tells these programs from others.
    pub fn identity(&self) -> Result<String> {
        let mut text = self.packages.identity();
        for (name, path) in &self.own {
            let content = fs::read(path).map_err(file_error("read", path))?;
            text += &format!("{name} {:032x}\n", fnv1a(&content));
        }
        Ok(text)
    }

    /// Unpacks the packages and writes the disk of the programs and their libraries.
    pub fn write(&self, node: &dyn Node, scratch: &Path, image: &Path) -> Result<()> {
        let unpacked = scratch.join("packages");
        self.packages.unpack(node, scratch, &unpacked)?;
        let mut files = picked(&unpacked.join("usr"), self.arch)?;
        for (name, path) in &self.own {
            files.insert(place_of(name, path)?, path.clone());
        }
        let tree = scratch.join("tools");
        Tools { files, ..Tools::default() }.copy_into(&tree)?;
        write_disk(node, &tree, image)?;
        fs::remove_dir_all(&unpacked).map_err(file_error("remove", &unpacked))
    }
}

/// The programs below an unpacked `/usr` with all that they load: file by its place.
fn picked(usr: &Path, arch: Arch) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut libraries = BTreeMap::new();
    index(&usr.join("lib"), &mut libraries)?;
    let mut files = BTreeMap::new();
    for (program, package) in PROGRAMS {
        let places = ["bin", "sbin"].map(|dir| usr.join(dir).join(program));
        let found = places.into_iter().find(|path| path.is_file());
        let mut wanted = vec![found.ok_or_else(|| Error::Unpack {
            what: format!("{package} for {arch}").into(),
            reason: format!("it holds no program {program}"),
        })?];
        while let Some(file) = wanted.pop() {
            let place = file.strip_prefix(usr).unwrap_or(&file).to_owned();
            let content = fs::read(&file).map_err(file_error("read", &file))?;
            if files.insert(place, file.clone()).is_some() {
                continue;
            }
            if let Some(is) = elf::arch(&content).filter(|is| *is != arch) {
                let mend = format!("remove the kept packages ({})", ARM64.dir);
                return Err(Error::WrongArch { path: file, is, wanted: arch, mend });
            }
            for asked in elf::needed(&content) {
                let name = asked.rsplit('/').next().unwrap_or(&asked);
                let none = || Error::NoLibrary { program: file.clone(), library: asked.clone() };
                wanted.push(libraries.get(name).cloned().ok_or_else(none)?);
            }
        }
    }
    Ok(files)
}

/// The libraries below a directory by their names; of two with a name the one that is nearer.
fn index(dir: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let mut below = Vec::new();
    for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
        let entry = entry.map_err(file_error("list", dir))?;
        let path = entry.path();
        if entry.file_type().map_err(file_error("look at", &path))?.is_dir() {
            below.push(path);
        } else if let Ok(name) = entry.file_name().into_string() {
            all.entry(name).or_insert(path);
        }
    }
    below.sort();
    below.iter().try_for_each(|dir| index(dir, all))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_program_that_guests_run_has_its_package() {
        for name in super::super::programs() {
            let own = ours::Own::of_workload(name).is_some();
            let packaged = PROGRAMS.iter().any(|(program, _)| *program == name);
            assert!(own != packaged, "{name}");
        }
        for (_, package) in PROGRAMS {
            assert!(ARM64.packages.contains(package), "{package}");
        }
    }

    #[test]
    fn a_package_that_lacks_its_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("lib/aarch64-linux-gnu")).unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        let said = picked(dir.path(), Arch::Aarch64).unwrap_err().to_string();
        let (program, package) = PROGRAMS[0];
        assert!(said.contains(&format!("{package} for aarch64: it holds no program {program}")), "{said}");
    }

    /// The running program is one of this host: no guest of another processor can run it.
    #[test]
    fn packages_of_another_processor_are_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("lib")).unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        let program = Path::new("bin").join(PROGRAMS[0].0);
        fs::copy(std::env::current_exe().unwrap(), dir.path().join(&program)).unwrap();
        let said = picked(dir.path(), Arch::Aarch64).unwrap_err().to_string();
        let is = format!("{} is for x86_64", program.display());
        assert!(said.contains(&is) && said.contains("packages-arm64"), "{said}");
    }
}
