//! The guest's kernel: the host's own where it can be read and has every module that a guest
//! needs; else one that vmio unpacked before; else Debian's kernel package, downloaded and
//! unpacked into the state directory (nothing is installed).

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use vmio_node::{Exec, Node};

use super::modules::{Module, Modules};
use super::unpack::unpack;
use super::{Error, Progress, Result, file_error, run};

/// Debian's metapackage of the current kernel. The smaller cloud kernel lacks sym53c8xx and ahci.
const METAPACKAGE: &str = "linux-image-amd64";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

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
}

impl Kernel {
    fn below(root: &Path, release: &str, origin: String) -> Self {
        Self {
            release: release.to_owned(),
            vmlinuz: root.join(format!("boot/vmlinuz-{release}")),
            modules: root.join("lib/modules").join(release),
            origin,
        }
    }

    /// Path, size and time of last change: what tells one kernel from the next.
    pub fn identity(&self) -> Result<String> {
        super::identity(&self.vmlinuz)
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
    let mut refused = Vec::new();
    let mut usable = |kernel: Kernel| match kernel.check(node, names, scratch) {
        Ok(()) => Some(kernel),
        Err(e) => {
            refused.push(format!("{}: {e}", kernel.origin));
            None
        }
    };
    let release = node.read_text(Path::new("/proc/sys/kernel/osrelease"))?;
    let release = release.trim();
    if let Some(own) = usable(Kernel::below(Path::new("/"), release, format!("the host's kernel {release}"))) {
        return Ok(own);
    }
    let kept = state_dir.join("kernels");
    for root in unpacked(&kept) {
        if let Some(kernel) = release_in(&root).and_then(|r| usable(Kernel::below(&root, &r, format!("package {r}")))) {
            return Ok(kernel);
        }
    }
    let no_kernel = |refused: &[String], why: String| Error::NoKernel { refused: refused.join("; "), why };
    let root = match download(node, &kept, scratch, progress) {
        Ok(root) => root,
        Err(e) => return Err(no_kernel(&refused, e.to_string())),
    };
    let found = release_in(&root).and_then(|r| usable(Kernel::below(&root, &r, format!("package {r}"))));
    found.ok_or_else(|| no_kernel(&refused, format!("{} does not fit", root.display())))
}

/// Unpacked kernels, newest version first.
fn unpacked(kept: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(kept) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| !n.starts_with('.')).collect();
    names.sort_by(|a, b| by_version(b, a));
    names.into_iter().map(|n| kept.join(n)).collect()
}

/// The release of the kernel below an unpacked package.
fn release_in(root: &Path) -> Option<String> {
    let boot = fs::read_dir(root.join("boot")).ok()?;
    boot.filter_map(|e| e.ok()?.file_name().into_string().ok())
        .find_map(|n| n.strip_prefix("vmlinuz-").map(str::to_owned))
}

/// Compares names with numbers in them by the numbers: 6.1.0-9 comes before 6.1.0-56.
fn by_version(a: &str, b: &str) -> Ordering {
    let parts = |s: &str| -> Vec<(u64, String)> {
        s.split(['.', '-']).map(|p| (p.parse().unwrap_or(0), p.to_owned())).collect()
    };
    parts(a).cmp(&parts(b))
}

/// Downloads Debian's kernel package and unpacks it below `kept`.
fn download(node: &dyn Node, kept: &Path, scratch: &Path, progress: Progress) -> Result<PathBuf> {
    let minute = Duration::from_secs(60);
    let cmd = Exec::new("apt-cache").args(["depends", METAPACKAGE]).limit(minute);
    let package = image_package(&run(node, &cmd)?).ok_or(Error::NoPackage { name: METAPACKAGE })?;
    let to = kept.join(&package);
    let work = scratch.join("kernel");
    for dir in [kept, work.as_path()] {
        fs::create_dir_all(dir).map_err(file_error("make", dir))?;
    }
    progress(&format!("downloading {package} (about 70 MB) for the guests; it is unpacked in {}", kept.display()));
    // apt-get writes into the current directory.
    let fetch = Exec::new("sh").args(["-c", "cd \"$1\" && exec apt-get download \"$2\"", "sh"]);
    run(node, &fetch.args([work.to_string_lossy(), package.as_str().into()]).limit(DOWNLOAD_LIMIT))?;
    let deb = fs::read_dir(&work)
        .map_err(file_error("list", &work))?
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.extension().is_some_and(|x| x == "deb"))
        .ok_or(Error::NoPackage { name: METAPACKAGE })?;
    let tree = work.join("tree");
    let cmd = Exec::new("dpkg-deb").args(["-x".into(), deb.to_string_lossy(), tree.to_string_lossy()]);
    run(node, &cmd.limit(5 * minute))?;
    merge_usr(&tree)?;
    match fs::rename(&tree, &to) {
        // Another vmio was quicker.
        Err(_) if to.is_dir() => Ok(to),
        moved => moved.map(|()| to).map_err(file_error("move the kernel into place from", &tree)),
    }
}

/// Since Debian 13 packages hold `usr/lib/modules`, not `lib/modules`.
fn merge_usr(tree: &Path) -> Result<()> {
    let (old, new) = (tree.join("lib"), tree.join("usr/lib"));
    if old.exists() || !new.exists() {
        return Ok(());
    }
    std::os::unix::fs::symlink("usr/lib", &old).map_err(file_error("link", &old))
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
    fn newest_kernel_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["linux-image-6.1.0-9-amd64", "linux-image-6.1.0-56-amd64", ".building", "linux-image-5.10.0-56-amd64"]
        {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let names: Vec<_> =
            unpacked(dir.path()).iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["linux-image-6.1.0-56-amd64", "linux-image-6.1.0-9-amd64", "linux-image-5.10.0-56-amd64"]);
    }
}
