//! The image that vmio's own guests start from: a kernel, its modules, the agent, and a disk with
//! the host's own programs for the workloads (fio, dd). `docs/image.md` says why it is made like this,
//! with figures.
//!
//! An image is kept under `STATE/images/DIGEST`, where the digest is over all that goes into it:
//! when the host's kernel, a program or a library of it, the list of programs, or the agent changes, another
//! one is built.
//! What differs from guest to guest (which modules it loads) goes into the initramfs, which is put
//! together at each launch from the image and costs a few milliseconds.

mod ahead;
mod apt;
mod build;
mod cpio;
mod error;
mod foreign;
mod kernel;
mod modules;
mod own;
pub(crate) mod packages;
pub(crate) mod tools;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmio_model::cell::Arch;
use vmio_node::Node;

pub use ahead::{ahead, has_beside};
pub(crate) use build::Recipe;
use cpio::Cpio;
pub use error::{Error, Result};
pub(crate) use error::{file_error, run};
use foreign::Foreign;
pub use kernel::OwnKernel;
pub(crate) use kernel::{fnv1a, identity};
use tools::Tools;
pub(crate) use tools::version;
use vmio_look::require::{Requirement, program};

use crate::disks::drivers;
use crate::disks::targets::own_client::OwnClient;
use crate::disks::targets::{self, CacheAt};
use crate::{elf, nets, nics, workloads};

/// Label and serial number by which the guest finds the disk with the tools.
pub const TOOLS_SERIAL: &str = "vmio-tools";
/// Name of the virtio-serial port on which the agent listens when its kernel is told no other.
pub const AGENT_PORT: &str = "vmio.0";
/// Modules that every guest loads: the bus, the agent's channel, the disk with the tools.
pub const BASE_MODULES: [&str; 4] = ["virtio_pci", "virtio_console", "virtio_blk", "ext4"];

/// The driver of a guest's balloon, which an image carries for those that have one.
pub const BALLOON: &str = "virtio_balloon";

/// What an image for guests of a processor carries for their disks, cards and balloon, beside [`BASE_MODULES`].
pub fn device_modules(arch: Arch) -> Vec<&'static str> {
    let of_drivers = drivers::of(arch).flat_map(|driver| driver.guest_modules);
    let of_cards = nics::of(arch).flat_map(|nic| nic.guest_modules);
    let of_targets = targets::ALL.iter().flat_map(|target| target.guest_modules());
    let of_clients = own_clients().flat_map(|client| client.modules);
    let all = of_drivers.chain(of_cards).chain(of_targets).chain(of_clients).copied().chain([BALLOON]);
    let all: BTreeSet<&str> = all.collect();
    all.into_iter().filter(|module| !BASE_MODULES.contains(module)).collect()
}

/// How guests reach targets by themselves.
fn own_clients() -> impl Iterator<Item = &'static OwnClient> {
    targets::ALL.iter().filter_map(|target| target.own_client())
}

/// Whether an image is made without this module where its kernel has none: guests then lack the targets that need it.
fn is_optional(module: &str) -> bool {
    let in_guest = targets::ALL.iter().filter(|target| matches!(target.flash_cache(), Some(CacheAt::Guest(_))));
    let of_caches = in_guest.flat_map(|target| target.guest_modules());
    let mut optional = of_caches.chain(own_clients().flat_map(|client| client.modules));
    let mut of_drivers = drivers::ALL.iter().flat_map(|driver| driver.guest_modules);
    optional.any(|name| *name == module) && !of_drivers.any(|name| *name == module)
}

/// What targets need that a guest has by a loop device of its own.
const OF_TARGETS: [&str; 3] = ["losetup", "mount", "umount"];

/// Programs that an image carries: those of the workloads, and what vmio itself runs in guests.
pub fn programs() -> Vec<&'static str> {
    let mut all = workloads::programs();
    all.extend(nets::PROGRAMS);
    all.extend(OF_TARGETS);
    all.extend(own_clients().flat_map(|client| client.programs));
    all.extend(targets::ALL.iter().flat_map(|target| target.guest_programs()));
    all.sort_unstable();
    all.dedup();
    all
}

/// What is needed to build an image. The programs that guests run are not: one that the host lacks is left out, and
/// the workloads that need it say so themselves.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "ldd",
        why: "finds the libraries of the programs that guests run",
        fix: "apt install libc-bin",
        check: |n| program(n, "ldd"),
    },
    Requirement {
        name: "mke2fs",
        why: "writes the disk that carries the programs that guests run",
        fix: "apt install e2fsprogs",
        check: |n| program(n, "mke2fs"),
    },
];

/// vmio's own program that is the first process of a guest.
pub const OWN_AGENT: Requirement = Requirement {
    name: "vmio-agent",
    why: "is the first process of a guest",
    fix: "build it with `make agent` (a package has it in /usr/lib/vmio), or name it by VMIO_AGENT",
    check: own::check,
};

/// Told what is being done; called a few times a build.
pub type Progress<'a> = &'a dyn Fn(&str);

/// An image that is ready to be booted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Directory that holds it.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The processor of its guests.
    #[serde(default)]
    pub arch: Arch,
    /// Digest of all that went into it.
    pub digest: String,
    /// `uname -r` of its kernel.
    pub kernel_release: String,
    /// Where the kernel is from, for people.
    pub kernel_origin: String,
    /// `None`: an ELF kernel that is started by PVH. Else the reason why it is the compressed
    /// kernel, which takes about 2.5 s longer to boot under emulation.
    pub compressed_because: Option<String>,
    /// What tells its kernel from others: path, size and time of last change.
    #[serde(default)]
    kernel_identity: String,
    /// `fio --version` of the fio that it carries; empty where it carries none.
    pub fio_version: String,
    /// The programs of workloads that it carries, each with its version.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Programs of workloads that it does not carry, each with why.
    #[serde(default)]
    pub left_out: BTreeMap<String, String>,
    /// What it carries for workloads beside programs, by its path there.
    #[serde(default)]
    pub beside: BTreeSet<String>,
    /// Modules to load, in order, by the module asked for; empty when it is built in.
    modules: BTreeMap<String, Vec<String>>,
    /// Modules that its kernel does not have.
    #[serde(default)]
    lacking: Vec<String>,
    /// Modules that a guest of this image loads beside [`BASE_MODULES`] whatever its devices.
    #[serde(default)]
    always: Vec<String>,
}

impl Image {
    /// The image for this host as it is now: the kept one, or a new one. `node` is the machine
    /// that vmio runs on; `state_dir` is made when it is missing.
    pub fn load_or_build(node: &dyn Node, state_dir: &Path, progress: Progress) -> Result<Image> {
        Self::with_kernel(Arch::default(), None, node, state_dir, progress)
    }

    /// The same for guests of a processor, with a kernel that the user names.
    pub fn with_kernel(
        arch: Arch,
        kernel: Option<&OwnKernel>,
        node: &dyn Node,
        state_dir: &Path,
        progress: Progress,
    ) -> Result<Image> {
        let modules = device_modules(arch);
        if !arch.is_own() {
            let foreign = Foreign::find(node, arch, state_dir, progress)?;
            let recipe = Recipe {
                what: "guest image for aarch64",
                dir: "images-arm64",
                arch,
                kernel,
                modules: &modules,
                always: &[],
                tools: &foreign.tools,
                inputs: foreign.identity()?,
                disk: &|scratch, to| foreign.write(node, scratch, to),
            };
            return recipe.load_or_build(node, state_dir, progress);
        }
        let mut tools = Tools::find(node, &programs())?;
        workloads::files().try_for_each(|files| tools.add_beside(node, files))?;
        let recipe = Recipe {
            what: "guest image",
            dir: "images",
            arch,
            kernel,
            modules: &modules,
            always: &[],
            tools: &tools,
            inputs: tools.identity()?,
            disk: &|scratch, to| tools.write(node, scratch, to),
        };
        recipe.load_or_build(node, state_dir, progress)
    }

    /// Why a program, or what is taken beside programs, is not there in a guest of this image; `None` where it is.
    pub fn lacks(&self, taken: &str) -> Option<&str> {
        let why = || self.left_out.get(taken).map_or("the guests' image does not carry it", String::as_str);
        (!self.programs.contains_key(taken) && !self.beside.contains(taken)).then(why)
    }

    /// Whether its kernel has no such module.
    pub fn lacks_module(&self, name: &str) -> bool {
        self.lacking.iter().any(|module| module == name)
    }

    /// The kernel to boot.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("kernel")
    }

    /// The read-only disk image (ext2) that the guest mounts at `/usr`.
    pub fn tools(&self) -> PathBuf {
        self.dir.join("tools.ext2")
    }

    /// The initramfs of a guest that loads [`BASE_MODULES`], those asked for, and those of every
    /// guest of this image.
    pub fn initramfs(&self, device_modules: &[&str]) -> Result<Vec<u8>> {
        let mut archive = Cpio::default();
        for dir in ["dev", "proc", "sys", "run", "tmp", "etc", "usr", "modules", "mnt"] {
            archive.dir(dir);
        }
        for dir in ["bin", "sbin", "lib", "lib64"] {
            archive.link(dir, &format!("usr/{dir}"));
        }
        archive.device("dev/console", 5, 1);
        archive.device("dev/null", 1, 3);
        let agent = self.dir.join("agent");
        archive.file("init", 0o755, &fs::read(&agent).map_err(file_error("read", &agent))?);
        let mut listed = Vec::new();
        let always = self.always.iter().map(String::as_str);
        for asked in BASE_MODULES.into_iter().chain(device_modules.iter().copied()).chain(always) {
            let order = self.modules.get(asked).ok_or_else(|| Error::NoModule {
                name: asked.to_owned(),
                wanted_by: format!(" in the image {}", self.dir.display()),
            })?;
            for name in order {
                if !listed.contains(name) {
                    let path = self.dir.join("modules").join(format!("{name}.ko"));
                    let content = fs::read(&path).map_err(file_error("read", &path))?;
                    archive.file(&format!("modules/{name}.ko"), 0o644, &content);
                    listed.push(name.clone());
                }
            }
        }
        let line = |module: &String| format!("/modules/{module}.ko {}", drivers::module_options(module));
        let modules: String = listed.iter().map(|m| format!("{}\n", line(m).trim_end())).collect();
        archive.file("etc/vmio-modules", 0o644, modules.as_bytes());
        // Hadoop looks up the name of who it runs as, and a data node that of its own machine.
        archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n");
        archive.file("etc/nsswitch.conf", 0o644, b"passwd: files\ngroup: files\nhosts: files\n");
        archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n");
        archive.file("etc/group", 0o644, b"root:x:0:\n");
        archive.file("etc/vmio-mounts", 0o644, format!("{TOOLS_SERIAL} /usr ext4\n").as_bytes());
        Ok(archive.finish())
    }

    fn load(dir: &Path) -> Option<Image> {
        let text = fs::read(dir.join("image.json")).ok()?;
        let image: Image = serde_json::from_slice(&text).ok()?;
        Some(Image { dir: dir.to_owned(), ..image })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn image(dir: &Path) -> Image {
        fs::create_dir_all(dir.join("modules")).unwrap();
        fs::write(dir.join("agent"), "agent").unwrap();
        let mut modules: BTreeMap<String, Vec<String>> =
            BASE_MODULES.iter().map(|m| ((*m).to_owned(), vec!["virtio".to_owned(), (*m).to_owned()])).collect();
        modules.insert("sd_mod".into(), vec!["scsi_mod".into(), "sd_mod".into()]);
        modules.insert("sym53c8xx".into(), vec!["scsi_mod".into(), "sym53c8xx".into()]);
        modules.insert("nvme".into(), vec![]);
        for name in modules.values().flatten() {
            fs::write(dir.join(format!("modules/{name}.ko")), name).unwrap();
        }
        Image {
            dir: dir.into(),
            arch: Arch::X86_64,
            digest: String::new(),
            kernel_release: "6.1".into(),
            kernel_origin: String::new(),
            kernel_identity: String::new(),
            compressed_because: None,
            fio_version: "fio-3.33".into(),
            programs: [("fio".to_owned(), "fio-3.33".to_owned())].into(),
            left_out: [("dd".to_owned(), "no program dd on this host".to_owned())].into(),
            beside: BTreeSet::from(["/usr/lib/jars".to_owned()]),
            modules,
            lacking: Vec::new(),
            always: Vec::new(),
        }
    }

    #[test]
    fn the_initramfs_lists_each_module_once_and_built_in_ones_never() {
        let dir = tempfile::tempdir().unwrap();
        let archive = image(dir.path()).initramfs(&["sd_mod", "nvme"]).unwrap();
        let text = String::from_utf8_lossy(&archive);
        let expected = "/modules/virtio.ko\n/modules/virtio_pci.ko\n/modules/virtio_console.ko\n\
                        /modules/virtio_blk.ko\n/modules/ext4.ko\n/modules/scsi_mod.ko\n/modules/sd_mod.ko\n";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("nvme"));
        let scsi = image(dir.path()).initramfs(&["sym53c8xx"]).unwrap();
        assert!(String::from_utf8_lossy(&scsi).contains("/modules/sym53c8xx.ko settle=0\n"));
        assert!(text.contains("vmio-tools /usr ext4\n"));
    }

    #[test]
    fn a_program_that_the_image_lacks_is_told_with_why() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path());
        assert_eq!(image.lacks("fio"), None);
        assert_eq!(image.lacks("dd"), Some("no program dd on this host"));
        assert!(image.lacks("openssl").unwrap().contains("does not carry it"));
        assert_eq!(image.lacks("/usr/lib/jars"), None);
    }

    #[test]
    fn a_module_that_the_image_lacks_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let said = image(dir.path()).initramfs(&["floppy"]).unwrap_err().to_string();
        assert!(said.contains("floppy"), "{said}");
    }
}
