//! The image that vmio's own guests start from: a kernel, its modules, the agent, and a disk with
//! the host's own dd and fio. `docs/image.md` says why it is made like this, with figures.
//!
//! An image is kept under `STATE/images/DIGEST`, where the digest is over all that goes into it:
//! when the host's kernel, its fio or a library of it, or the agent changes, another one is built.
//! What differs from guest to guest (which modules it loads) goes into the initramfs, which is put
//! together at each launch from the image and costs a few milliseconds.

mod agent;
mod cpio;
mod elf;
mod error;
mod kernel;
mod modules;
mod tools;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vmio_node::{Exec, Node};

use crate::require::{Requirement, program};
use cpio::Cpio;
use error::file_error;
pub use error::{Error, Result};
pub(crate) use kernel::identity;

/// Raised when the layout of an image changes, so that older ones are not used.
const FORMAT: u32 = 1;
/// How many images are kept; the one just built is the newest.
const KEEP: usize = 2;
/// Label and serial number by which the guest finds the disk with the tools.
pub const TOOLS_SERIAL: &str = "vmio-tools";
/// Name of the virtio-serial port on which the agent listens when its kernel is told no other.
pub const AGENT_PORT: &str = "vmio.0";
/// Modules that every guest loads: the bus, the agent's channel, the disk with the tools.
pub const BASE_MODULES: [&str; 4] = ["virtio_pci", "virtio_console", "virtio_blk", "ext4"];
/// Modules that an image carries for the devices a guest may have.
pub const DEVICE_MODULES: [&str; 7] = ["virtio_scsi", "sym53c8xx", "sd_mod", "ahci", "nvme", "virtio_net", "e1000"];
/// Programs that an image carries.
pub const PROGRAMS: [&str; 2] = ["dd", "fio"];

/// What is needed to build an image.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "fio",
        why: "runs in the guest as on the host",
        mend: "apt install fio",
        check: |n| program(n, "fio"),
    },
    Requirement {
        name: "dd",
        why: "runs in the guest as on the host",
        mend: "apt install coreutils",
        check: |n| program(n, "dd"),
    },
    Requirement {
        name: "ldd",
        why: "finds the libraries of dd and fio",
        mend: "apt install libc-bin",
        check: |n| program(n, "ldd"),
    },
    Requirement {
        name: "mke2fs",
        why: "writes the disk that carries dd and fio",
        mend: "apt install e2fsprogs",
        check: |n| program(n, "mke2fs"),
    },
];

/// Told what is being done; called a few times a build.
pub type Progress<'a> = &'a dyn Fn(&str);

/// An image that is ready to be booted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Directory that holds it.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Digest of all that went into it.
    pub digest: String,
    /// `uname -r` of its kernel.
    pub kernel_release: String,
    /// Where the kernel is from, for people.
    pub kernel_origin: String,
    /// `None`: an ELF kernel that is started by PVH. Else the reason why it is the compressed
    /// kernel, which takes about 2.5 s longer to boot under emulation.
    pub compressed_because: Option<String>,
    /// `fio --version` of the fio that it carries.
    pub fio_version: String,
    /// Modules to load, in order, by the module asked for; empty when it is built in.
    modules: BTreeMap<String, Vec<String>>,
}

impl Image {
    /// The image for this host as it is now: the kept one, or a new one. `node` is the machine
    /// that vmio runs on; `state_dir` is made when it is missing.
    pub fn load_or_build(node: &dyn Node, state_dir: &Path, progress: Progress) -> Result<Image> {
        let images = state_dir.join("images");
        fs::create_dir_all(&images).map_err(file_error("make", &images))?;
        remove_leftovers(&images);
        let scratch = Scratch::new(&images)?;
        let agent = agent::read(&agent::find()?)?;
        let tools = tools::Tools::find(node, &PROGRAMS)?;
        let fio_version = run(node, &Exec::new("fio").args(["--version"]).limit(TOOL_LIMIT))?.trim().to_owned();

        // A kept image whose kernel is still there spares the look through the host's modules.
        let inputs = Inputs { agent: &agent, tools: &tools, fio_version: &fio_version };
        let remembered = images.join(format!("kernel-of-{}", host_release(node)?));
        if let Ok(kernel) = fs::read_to_string(&remembered)
            && kernel.split(' ').next().is_some_and(|p| identity(Path::new(p)).is_ok_and(|now| now == kernel))
            && let Some(image) = Image::load(&images.join(inputs.digest(&kernel)?))
        {
            return Ok(image);
        }

        let wanted: Vec<&str> = BASE_MODULES.into_iter().chain(DEVICE_MODULES).collect();
        let kernel = kernel::find(node, state_dir, &wanted, &scratch.0, progress)?;
        let kernel_identity = kernel.identity()?;
        let dir = images.join(inputs.digest(&kernel_identity)?);
        let image = match Image::load(&dir) {
            Some(image) => image,
            None => {
                progress(&format!("building the guest image from {} and {fio_version}", kernel.origin));
                build(node, &kernel, &inputs, &scratch.0, dir)?
            }
        };
        fs::write(&remembered, kernel_identity).map_err(file_error("write", &remembered))?;
        keep_newest(&images, &image.dir);
        Ok(image)
    }

    /// The kernel to boot.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("kernel")
    }

    /// The read-only disk image (ext2) that the guest mounts at `/usr`.
    pub fn tools(&self) -> PathBuf {
        self.dir.join("tools.ext2")
    }

    /// The initramfs of a guest that loads [`BASE_MODULES`] and those asked for.
    pub fn initramfs(&self, device_modules: &[&str]) -> Result<Vec<u8>> {
        let mut archive = Cpio::default();
        for dir in ["dev", "proc", "sys", "run", "tmp", "etc", "usr", "modules"] {
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
        for asked in BASE_MODULES.iter().chain(device_modules) {
            let order = self.modules.get(*asked).ok_or_else(|| Error::NoModule {
                name: (*asked).to_owned(),
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
        let modules: String = listed.iter().map(|m| format!("/modules/{m}.ko\n")).collect();
        archive.file("etc/vmio-modules", 0o644, modules.as_bytes());
        archive.file("etc/vmio-mounts", 0o644, format!("{TOOLS_SERIAL} /usr ext4\n").as_bytes());
        Ok(archive.finish())
    }

    fn load(dir: &Path) -> Option<Image> {
        let text = fs::read(dir.join("image.json")).ok()?;
        let image: Image = serde_json::from_slice(&text).ok()?;
        Some(Image { dir: dir.to_owned(), ..image })
    }
}

/// All that goes into an image beside the kernel.
struct Inputs<'a> {
    agent: &'a [u8],
    tools: &'a tools::Tools,
    fio_version: &'a str,
}

impl Inputs<'_> {
    /// Digest over the inputs and the kernel's identity.
    fn digest(&self, kernel: &str) -> Result<String> {
        let mut text = format!("{FORMAT}\n{kernel}\n{}\n{:032x}\n", self.fio_version, fnv1a(self.agent));
        text.push_str(&format!("{BASE_MODULES:?}{DEVICE_MODULES:?}\n"));
        for file in self.tools.files.values() {
            text.push_str(&identity(file)?);
            text.push('\n');
        }
        Ok(format!("{:032x}", fnv1a(text.as_bytes())))
    }
}

/// Builds below `scratch` and moves the whole into place, so that there is never half an image.
fn build(node: &dyn Node, kernel: &kernel::Kernel, inputs: &Inputs, scratch: &Path, to: PathBuf) -> Result<Image> {
    let dir = scratch.join("image");
    let modules_dir = dir.join("modules");
    fs::create_dir_all(&modules_dir).map_err(file_error("make", &modules_dir))?;
    let write = |name: &str, content: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, content).map_err(file_error("write", &path))
    };

    let packed = fs::read(&kernel.vmlinuz).map_err(file_error("read", &kernel.vmlinuz))?;
    let (content, compressed_because) = match startable(node, &packed, scratch, &kernel.vmlinuz) {
        Ok(elf) => (elf, None),
        Err(e) => (packed, Some(e.to_string())),
    };
    write("kernel", &content)?;
    write("agent", inputs.agent)?;

    let mut modules = BTreeMap::new();
    let mut written = BTreeSet::new();
    for name in BASE_MODULES.into_iter().chain(DEVICE_MODULES) {
        let closure = kernel.modules(node, &[name], scratch)?;
        for module in closure.iter().filter(|m| written.insert(m.name.clone())) {
            write(&format!("modules/{}.ko", module.name), &module.content)?;
        }
        modules.insert(name.to_owned(), closure.into_iter().map(|m| m.name).collect());
    }
    inputs.tools.write(node, scratch, &dir.join("tools.ext2"))?;

    let image = Image {
        digest: to.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        kernel_release: kernel.release.clone(),
        kernel_origin: kernel.origin.clone(),
        compressed_because,
        fio_version: inputs.fio_version.to_owned(),
        modules,
        dir: to,
    };
    write("image.json", &serde_json::to_vec_pretty(&image).expect("an image is plain data"))?;
    match fs::rename(&dir, &image.dir) {
        // Another vmio was quicker with the same image.
        Err(_) if Image::load(&image.dir).is_some() => Ok(image),
        moved => moved.map(|()| image).map_err(file_error("move the image into place from", &dir)),
    }
}

/// The ELF kernel inside a bzImage, when a hypervisor can start it without the boot code.
fn startable(node: &dyn Node, bzimage: &[u8], scratch: &Path, what: &Path) -> Result<Vec<u8>> {
    let refuse = |reason: &str| Error::Unpack { what: what.into(), reason: reason.into() };
    let payload = unpack::payload(bzimage).ok_or_else(|| refuse("it is no bzImage with a known compression"))?;
    let elf = unpack::unpack(node, payload, scratch, what)?;
    if elf::boots_by_pvh(&elf) { Ok(elf) } else { Err(refuse("it is built without CONFIG_PVH")) }
}

fn host_release(node: &dyn Node) -> Result<String> {
    Ok(node.read_text(Path::new("/proc/sys/kernel/osrelease"))?.trim().to_owned())
}

/// 128-bit FNV-1a (draft-eastlake-fnv): tells inputs apart, guards against nobody.
fn fnv1a(data: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    data.iter().fold(OFFSET, |hash, &b| (hash ^ u128::from(b)).wrapping_mul(PRIME))
}

const BUILDING: &str = ".building-";
const TOOL_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// A directory for files in passing; removed when it goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new(images: &Path) -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = images.join(format!("{BUILDING}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&dir).map_err(file_error("make", &dir))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed by the next build.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).map(|d| d.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect()).unwrap_or_default()
}

/// Removes what a killed build left behind.
fn remove_leftovers(images: &Path) {
    for name in names(images) {
        let owner = name.strip_prefix(BUILDING).and_then(|n| n.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(images.join(name));
        }
    }
}

/// Removes all but the newest images; a running guest keeps the files that it has open.
fn keep_newest(images: &Path, current: &Path) {
    let age = |dir: &Path| fs::metadata(dir.join("image.json")).and_then(|m| m.modified()).ok();
    let mut others: Vec<PathBuf> =
        names(images).into_iter().map(|n| images.join(n)).filter(|d| d != current && age(d).is_some()).collect();
    others.sort_by_key(|d| std::cmp::Reverse(age(d)));
    for old in others.into_iter().skip(KEEP - 1) {
        let _ = fs::remove_dir_all(old);
    }
}

/// Runs a program that must succeed; returns what it printed.
fn run(node: &dyn Node, cmd: &Exec) -> Result<String> {
    let output = node.exec(cmd)?;
    if output.ok() {
        return Ok(output.out());
    }
    Err(Error::Tool { command: cmd.shown(), how: format!("{:?}", output.end), said: output.err().trim().to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_the_published_function() {
        // Test vectors of the draft: the empty string gives the offset, "a" the value below.
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    fn image(dir: &Path) -> Image {
        fs::create_dir_all(dir.join("modules")).unwrap();
        fs::write(dir.join("agent"), "agent").unwrap();
        let mut modules: BTreeMap<String, Vec<String>> =
            BASE_MODULES.iter().map(|m| ((*m).to_owned(), vec!["virtio".to_owned(), (*m).to_owned()])).collect();
        modules.insert("sd_mod".into(), vec!["scsi_mod".into(), "sd_mod".into()]);
        modules.insert("nvme".into(), vec![]);
        for name in modules.values().flatten() {
            fs::write(dir.join(format!("modules/{name}.ko")), name).unwrap();
        }
        Image {
            dir: dir.into(),
            digest: String::new(),
            kernel_release: "6.1".into(),
            kernel_origin: String::new(),
            compressed_because: None,
            fio_version: "fio-3.33".into(),
            modules,
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
        assert!(text.contains("vmio-tools /usr ext4\n"));
    }

    #[test]
    fn a_module_that_the_image_lacks_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let said = image(dir.path()).initramfs(&["floppy"]).unwrap_err().to_string();
        assert!(said.contains("floppy"), "{said}");
    }

    #[test]
    fn old_images_and_dead_builds_go() {
        let dir = tempfile::tempdir().unwrap();
        for (i, name) in ["a", "b", "c"].iter().enumerate() {
            let image = dir.path().join(name);
            fs::create_dir(&image).unwrap();
            let file = fs::File::create(image.join("image.json")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(i as u64)).unwrap();
        }
        fs::create_dir(dir.path().join(format!("{BUILDING}4194305-0"))).unwrap(); // above the kernel's largest pid
        fs::create_dir(dir.path().join(format!("{BUILDING}{}-0", std::process::id()))).unwrap();
        remove_leftovers(dir.path());
        keep_newest(dir.path(), &dir.path().join("a"));
        let mut left = names(dir.path());
        left.sort();
        assert_eq!(left, [format!("{BUILDING}{}-0", std::process::id()), "a".into(), "c".into()]);
    }
}
