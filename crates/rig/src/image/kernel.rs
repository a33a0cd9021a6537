//! The guest's kernel: the host's own where it can be read and has every module that a guest
//! needs; else Debian's kernel package, kept as `STATE/kernels/*.deb` and downloaded when there is
//! none. It is unpacked in passing and never installed; the package is kept (70 MB) and not what
//! is in it (400 MB).

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use vmio_model::cell::Arch;
use vmio_node::linux::system;
use vmio_node::{Exec, Node};

use super::apt::Apt;
use super::modules::{Module, Modules};
use super::unpack::{release, unpack};
use super::{Error, Progress, Result, elf, file_error, run};

/// Debian's metapackage of the current kernel. The smaller cloud kernel lacks sym53c8xx and ahci.
fn metapackage(arch: Arch) -> String {
    format!("linux-image-{}", arch.debian())
}
const UNPACK_LIMIT: Duration = Duration::from_secs(300);

/// A kernel of the user's, for the guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKernel {
    /// A bzImage, or a vmlinux that is built with `CONFIG_PVH`; of aarch64 an `Image`.
    pub file: PathBuf,
    /// Its modules: `/lib/modules/RELEASE`, or the directory that this is in. None: all that guests need is built in.
    pub modules: Option<PathBuf>,
}

impl OwnKernel {
    /// Its release.
    ///
    /// # Errors
    /// When it cannot be read, or is no kernel that a guest can be started with.
    pub fn release(&self) -> Result<String> {
        let content = fs::read(&self.file).map_err(file_error("read", &self.file))?;
        let refuse = |reason: &str| Error::NotAKernel { file: self.file.clone(), reason: reason.into() };
        let is_elf = elf::is_elf64(&content);
        if is_elf && !elf::boots_by_pvh(&content) {
            let why = "it is an ELF file without the PVH entry (CONFIG_PVH): give the bzImage of the same kernel";
            return Err(refuse(why));
        }
        if is_elf || arch(&content) == Some(Arch::Aarch64) {
            return elf::kernel_release(&content).ok_or_else(|| refuse("no Linux version is written in it"));
        }
        release(&content)
            .ok_or_else(|| refuse("it is neither a bzImage (as /boot/vmlinuz-RELEASE is) nor a vmlinux for x86-64"))
    }

    /// The kernel with its modules.
    pub(super) fn found(&self) -> Result<Kernel> {
        let release = self.release()?;
        let modules = match &self.modules {
            None => None,
            Some(dir) => {
                let own = [dir.clone(), dir.join(&release)].into_iter().find(|d| d.join("modules.builtin").is_file());
                let none = || Error::NoModules { dir: dir.clone(), release: release.clone() };
                Some(own.ok_or_else(none)?)
            }
        };
        Ok(Kernel {
            origin: self.file.display().to_string(),
            vmlinuz: self.file.clone(),
            source: self.file.clone(),
            beside: modules.as_ref().map(|dir| dir.join("modules.builtin")),
            modules,
            release,
        })
    }
}

/// What a kernel is for; `None` where that is not seen. By the first bytes: ELF; Linux Documentation/x86/boot.rst
/// (`header`); Documentation/arm64/booting.rst (`magic`).
pub(super) fn arch(kernel: &[u8]) -> Option<Arch> {
    let says = |at: usize, magic: &[u8]| kernel.get(at..at + magic.len()) == Some(magic);
    if elf::is_elf64(kernel) {
        return elf::arch(kernel);
    }
    let x86_64 = says(0x202, b"HdrS").then_some(Arch::X86_64);
    x86_64.or_else(|| says(0x38, b"ARM\x64").then_some(Arch::Aarch64))
}

/// A kernel that can be given to a guest.
#[derive(Debug)]
pub struct Kernel {
    /// As `uname -r` says in the guest.
    pub release: String,
    /// The compressed kernel.
    pub vmlinuz: PathBuf,
    /// Where it is from, for people.
    pub origin: String,
    /// Directory with `kernel/` and `modules.builtin`; none: all is built in.
    modules: Option<PathBuf>,
    /// The file that stays: the package, or the kernel itself.
    source: PathBuf,
    /// What tells its modules from others, where they are not of the same package: the list of what is built in.
    beside: Option<PathBuf>,
}

impl Kernel {
    /// The kernel that runs the host.
    fn of_host(release: &str) -> Self {
        let vmlinuz = PathBuf::from(format!("/boot/vmlinuz-{release}"));
        Self {
            release: release.to_owned(),
            modules: Some(Path::new("/lib/modules").join(release)),
            origin: format!("the host's kernel {release}"),
            source: vmlinuz.clone(),
            beside: None,
            vmlinuz,
        }
    }

    /// The kernel of a package, unpacked below `scratch`.
    fn of_package(node: &dyn Node, deb: &Path, scratch: &Path) -> Result<Self> {
        let tree = scratch.join("kernel");
        if tree.exists() {
            fs::remove_dir_all(&tree).map_err(file_error("remove", &tree))?;
        }
        let cmd = Exec::new("dpkg-deb").args(["-x".into(), deb.to_string_lossy(), tree.to_string_lossy()]);
        run(node, &cmd.limit(UNPACK_LIMIT))?;
        let boot = tree.join("boot");
        let release = fs::read_dir(&boot)
            .map_err(file_error("list", &boot))?
            .find_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned))
            .ok_or_else(|| Error::Unpack { what: deb.into(), reason: "it holds no boot/vmlinuz-RELEASE".into() })?;
        // Since Debian 13 the modules are in usr/lib.
        let lib = ["lib/modules", "usr/lib/modules"].map(|d| tree.join(d)).into_iter().find(|d| d.exists());
        Ok(Self {
            vmlinuz: boot.join(format!("vmlinuz-{release}")),
            modules: Some(lib.unwrap_or_default().join(&release)),
            origin: deb.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            source: deb.to_owned(),
            beside: None,
            release,
        })
    }

    /// Path, size and time of last change: what tells one kernel from the next.
    pub fn identity(&self) -> Result<String> {
        let own = super::identity(&self.source)?;
        match &self.beside {
            Some(list) => Ok(format!("{own} with {}", super::identity(list)?)),
            None => Ok(own),
        }
    }

    /// The modules named and those that they need, unpacked, in the order of loading.
    pub fn modules(&self, node: &dyn Node, names: &[&str], scratch: &Path) -> Result<Vec<Module>> {
        let all = self.modules.as_ref().map_or_else(|| Ok(Modules::none()), |dir| Modules::open(dir))?;
        all.closure(names, &mut |path| {
            let packed = fs::read(path).map_err(file_error("read", path))?;
            unpack(node, &packed, scratch, path)
        })
    }

    /// Can it be read, and has it all these modules? The unpacked modules are thrown away here,
    /// which costs well under a second and happens once a host kernel.
    fn check(&self, node: &dyn Node, names: &[&str], scratch: &Path) -> Result<()> {
        fs::File::open(&self.vmlinuz).map_err(file_error("read", &self.vmlinuz))?;
        self.modules(node, names, scratch).map(drop)
    }
}

/// Finds a kernel with all these modules. Downloads one only when none is here. The host's own can run guests of its
/// own processor alone.
pub fn find(
    node: &dyn Node,
    arch: Arch,
    state_dir: &Path,
    names: &[&str],
    scratch: &Path,
    progress: Progress,
) -> Result<Kernel> {
    let kept = state_dir.join("kernels");
    let mut refused = Vec::new();
    let mut usable =
        |kernel: Result<Kernel>, name: &str| match kernel.and_then(|k| k.check(node, names, scratch).map(|()| k)) {
            Ok(kernel) => Some(kernel),
            Err(e) => {
                refused.push(format!("{name}: {e}"));
                None
            }
        };
    if arch.is_own() {
        let host = system::release(node.reader())?;
        if let Some(own) = usable(Ok(Kernel::of_host(&host)), &format!("the host's kernel {host}")) {
            return Ok(own);
        }
    }
    let fetch = || download(node, arch, state_dir, &kept, scratch, progress);
    for deb in packages(&kept, arch).into_iter().map(Ok).chain(std::iter::once_with(fetch)) {
        let shown = deb.as_ref().map_or_else(|_| metapackage(arch), |d| d.display().to_string());
        if let Some(kernel) = usable(deb.and_then(|d| Kernel::of_package(node, &d, scratch)), &shown) {
            return Ok(kernel);
        }
    }
    Err(Error::NoKernel { refused: refused.join("; "), arch, kept })
}

/// Kept packages for a processor, newest version first.
fn packages(kept: &Path, arch: Arch) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(kept) else { return Vec::new() };
    let ending = format!("_{}.deb", arch.debian());
    let mut names: Vec<String> =
        entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| n.ends_with(&ending)).collect();
    names.sort_by(|a, b| by_version(b, a));
    names.into_iter().map(|n| kept.join(n)).collect()
}

/// Compares names with numbers in them by the numbers: 6.1.0-9 comes before 6.1.0-56.
fn by_version(a: &str, b: &str) -> Ordering {
    let parts = |s: &str| -> Vec<(u64, String)> {
        s.split(['.', '-', '_']).map(|p| (p.parse().unwrap_or(0), p.to_owned())).collect()
    };
    parts(a).cmp(&parts(b))
}

/// Downloads Debian's kernel package into `kept`.
fn download(
    node: &dyn Node,
    arch: Arch,
    state_dir: &Path,
    kept: &Path,
    scratch: &Path,
    progress: Progress,
) -> Result<PathBuf> {
    let apt = Apt::ready(node, arch, state_dir)?;
    let none = || Error::NoPackage { name: metapackage(arch) };
    let package = image_package(&apt.depends(node, &metapackage(arch))?).ok_or_else(none)?;
    let work = scratch.join("download");
    for dir in [kept, work.as_path()] {
        fs::create_dir_all(dir).map_err(file_error("make", dir))?;
    }
    progress(&format!("downloading {package} (about 70 MB) for the guests; it is kept in {}", kept.display()));
    apt.download(node, &work, &[package])?;
    let got = packages(&work, arch).into_iter().next().ok_or_else(none)?;
    let to = kept.join(got.file_name().unwrap_or_default());
    fs::rename(&got, &to).map_err(file_error("move the package into place from", &got))?;
    Ok(to)
}

/// The kernel package on which the metapackage depends, from the output of `apt-cache depends`.
fn image_package(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|l| l.trim().strip_prefix("Depends: "))
        .find(|p| p.starts_with("linux-image-"))
        .map(str::to_owned)
}

/// 128-bit FNV-1a (draft-eastlake-fnv): tells inputs apart, guards against nobody.
pub fn fnv1a(data: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    data.iter().fold(OFFSET, |hash, &b| (hash ^ u128::from(b)).wrapping_mul(PRIME))
}

/// Path, size and modification time of a file.
pub fn identity(path: &Path) -> Result<String> {
    let meta = fs::metadata(path).map_err(file_error("look at", path))?;
    let time = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{} {} {}", path.display(), meta.len(), time.as_nanos()))
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

    #[test]
    fn a_kernel_of_the_users_is_known_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kernel");
        let of = |content: &[u8], modules: Option<&Path>| {
            fs::write(&file, content).unwrap();
            OwnKernel { file: file.clone(), modules: modules.map(Path::to_owned) }
        };
        let mut bzimage = vec![0; 0x400];
        bzimage[0x202..0x206].copy_from_slice(b"HdrS");
        bzimage[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        bzimage[0x300..0x318].copy_from_slice(b"6.12.0-1 (me@here) #1 SM");
        assert_eq!(of(&bzimage, None).release().unwrap(), "6.12.0-1");
        let said = |content: &[u8]| of(content, None).release().unwrap_err().to_string();
        assert!(said(b"#!/bin/sh").contains("neither a bzImage"));
        assert!(said(&bzimage[..0x300]).contains("neither a bzImage"), "cut off before its release");
        assert!(said(&elf::tests::elf_with_section(".text", b"Linux version 6.1.0 x")).contains("CONFIG_PVH"));
        assert!(OwnKernel { file: dir.path().join("none"), modules: None }.release().is_err());

        // Its modules: there, or in a directory of its release, and not anywhere.
        let none = of(&bzimage, Some(dir.path())).found().unwrap_err().to_string();
        assert!(none.contains("has no modules of 6.12.0-1"), "{none}");
        let own = dir.path().join("6.12.0-1");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        for named in [dir.path(), own.as_path()] {
            let kernel = of(&bzimage, Some(named)).found().unwrap();
            assert_eq!((kernel.modules.as_deref(), kernel.release.as_str()), (Some(own.as_path()), "6.12.0-1"));
        }
        let with = of(&bzimage, Some(&own)).found().unwrap().identity().unwrap();
        let without = of(&bzimage, None).found().unwrap();
        assert!(with.contains("modules.builtin") && !without.identity().unwrap().contains("modules.builtin"));
        // All is taken to be built in.
        assert_eq!(without.modules(&vmio_node::Local::new(), &["nvme"], dir.path()).unwrap(), []);
    }

    #[test]
    fn the_package_is_read_from_apt() {
        let recorded = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(image_package(recorded).unwrap(), "linux-image-6.1.0-56-amd64");
        assert_eq!(image_package("linux-image-amd64\n"), None);
    }

    #[test]
    fn newest_package_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let name = |version: &str| format!("linux-image-{version}_amd64.deb");
        let versions = ["6.1.0-9-amd64_6.1.27-1", "6.1.0-56-amd64_6.1.192-2", "5.10.0-56-amd64_5.10.9-1"];
        for file in versions.map(name).iter().chain(&["notes.txt", "linux-image-7.0_arm64.deb"].map(str::to_owned)) {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let found: Vec<_> = packages(dir.path(), Arch::X86_64)
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(found, [versions[1], versions[0], versions[2]].map(name));
    }

    #[test]
    fn without_kernel_and_apt_it_is_said_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let node = vmio_node::Fake::new("fake").file("/proc/sys/kernel/osrelease", "9.9.9-none\n");
        let said = find(&node, Arch::X86_64, dir.path(), &["virtio_blk"], dir.path(), &|_| {}).unwrap_err().to_string();
        for part in [
            "/boot/vmlinuz-9.9.9-none",
            "apt-cache",
            "linux-image-amd64",
            &*dir.path().join("kernels").to_string_lossy(),
        ] {
            assert!(said.contains(part), "no {part} in: {said}");
        }
    }
}
