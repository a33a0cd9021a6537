//! The guest's kernel: the host's own where it can be read and has every module that a guest
//! needs; else Debian's kernel package, kept as `STATE/kernels/*.deb` and downloaded when there is
//! none. It is unpacked in passing and never installed; the package is kept (70 MB) and not what
//! is in it (400 MB).

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use vmio_node::linux::system;
use vmio_node::{Exec, Node};

use super::modules::{Module, Modules};
use super::unpack::unpack;
use super::{Error, Progress, Result, file_error, run};

/// Debian's metapackage of the current kernel. The smaller cloud kernel lacks sym53c8xx and ahci.
const METAPACKAGE: &str = "linux-image-amd64";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);
const UNPACK_LIMIT: Duration = Duration::from_secs(300);

/// A kernel that can be given to a guest.
#[derive(Debug)]
pub struct Kernel {
    /// As `uname -r` says in the guest.
    pub release: String,
    /// The compressed kernel.
    pub vmlinuz: PathBuf,
    /// Where it is from, for people.
    pub origin: String,
    /// Directory with `kernel/` and `modules.builtin`.
    modules: PathBuf,
    /// The file that stays: the package, or the host's kernel.
    source: PathBuf,
}

impl Kernel {
    /// The kernel that runs the host.
    fn of_host(release: &str) -> Self {
        let vmlinuz = PathBuf::from(format!("/boot/vmlinuz-{release}"));
        Self {
            release: release.to_owned(),
            modules: Path::new("/lib/modules").join(release),
            origin: format!("the host's kernel {release}"),
            source: vmlinuz.clone(),
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
            modules: lib.unwrap_or_default().join(&release),
            origin: deb.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            source: deb.to_owned(),
            release,
        })
    }

    /// Path, size and time of last change: what tells one kernel from the next.
    pub fn identity(&self) -> Result<String> {
        super::identity(&self.source)
    }

    /// The modules named and those that they need, unpacked, in the order of loading.
    pub fn modules(&self, node: &dyn Node, names: &[&str], scratch: &Path) -> Result<Vec<Module>> {
        Modules::open(&self.modules)?.closure(names, &mut |path| {
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

/// Finds a kernel with all these modules. Downloads one only when none is here.
pub fn find(node: &dyn Node, state_dir: &Path, names: &[&str], scratch: &Path, progress: Progress) -> Result<Kernel> {
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
    let release = system::release(node.reader())?;
    if let Some(own) = usable(Ok(Kernel::of_host(&release)), &format!("the host's kernel {release}")) {
        return Ok(own);
    }
    let downloaded =
        packages(&kept).into_iter().map(Ok).chain(std::iter::once_with(|| download(node, &kept, scratch, progress)));
    for deb in downloaded {
        let shown = deb.as_ref().map_or_else(|_| METAPACKAGE.to_owned(), |d| d.display().to_string());
        if let Some(kernel) = usable(deb.and_then(|d| Kernel::of_package(node, &d, scratch)), &shown) {
            return Ok(kernel);
        }
    }
    Err(Error::NoKernel { refused: refused.join("; "), kept })
}

/// Kept packages, newest version first.
fn packages(kept: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(kept) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| n.ends_with(".deb")).collect();
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
fn download(node: &dyn Node, kept: &Path, scratch: &Path, progress: Progress) -> Result<PathBuf> {
    let cmd = Exec::new("apt-cache").args(["depends", METAPACKAGE]).limit(UNPACK_LIMIT);
    let package = image_package(&run(node, &cmd)?).ok_or(Error::NoPackage { name: METAPACKAGE })?;
    let work = scratch.join("download");
    for dir in [kept, work.as_path()] {
        fs::create_dir_all(dir).map_err(file_error("make", dir))?;
    }
    progress(&format!("downloading {package} (about 70 MB) for the guests; it is kept in {}", kept.display()));
    // apt-get writes into the current directory.
    let fetch = Exec::new("sh").args(["-c", "cd \"$1\" && exec apt-get download \"$2\"", "sh"]);
    run(node, &fetch.args([work.to_string_lossy(), package.as_str().into()]).limit(DOWNLOAD_LIMIT))?;
    let got = packages(&work).into_iter().next().ok_or(Error::NoPackage { name: METAPACKAGE })?;
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
        for file in versions.map(name).iter().chain(&["notes.txt".to_owned()]) {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let found: Vec<_> =
            packages(dir.path()).iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(found, [versions[1], versions[0], versions[2]].map(name));
    }

    #[test]
    fn without_kernel_and_apt_it_is_said_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let node = vmio_node::Fake::new("fake").file("/proc/sys/kernel/osrelease", "9.9.9-none\n");
        let said = find(&node, dir.path(), &["virtio_blk"], dir.path(), &|_| {}).unwrap_err().to_string();
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
