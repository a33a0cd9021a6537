//! Packages of this host's distribution, downloaded and unpacked, never installed. apt names them with all that they
//! need, as for an empty machine; so it does not matter what is installed here, and nothing here is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_model::cell::Arch;
use vmio_node::{Exec, Node};

use super::apt::Apt;
use super::{Error, Progress, Result, file_error, run};

/// Packages that something is made of.
pub(crate) struct Wanted {
    /// What, for people.
    pub what: &'static str,
    /// The command that downloads them.
    pub by: &'static str,
    /// Their names.
    pub packages: &'static [&'static str],
    /// The processor that they are for.
    pub arch: Arch,
    /// Directory of the state directory in which they are kept.
    pub dir: &'static str,
    /// Their size, about.
    pub megabytes: u32,
}

/// Scripts of these are for installing, or are not used here; together they are a third of all.
const WITHOUT: [&str; 4] = ["perl", "libperl", "python3", "libpython3"];
/// What is not unpacked.
const LEFT_OUT: [&str; 9] = [
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./usr/share/info",
    "./usr/share/lintian",
    "./usr/share/bug",
    "./usr/share/i18n",
    "./usr/lib/udev",
    "./lib/udev",
];
/// What was asked for, then the files; written when all are there.
const LIST: &str = "list";
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// Downloaded packages.
pub struct Packages {
    /// Files, sorted by name. A package's name and version are in the name of its file.
    pub files: Vec<PathBuf>,
}

impl Wanted {
    /// The packages that are kept in the state directory, or downloaded ones.
    pub fn find(&self, node: &dyn Node, state_dir: &Path, progress: Progress) -> Result<Packages> {
        let kept = state_dir.join(self.dir);
        if let Some(packages) = self.kept(&kept) {
            return Ok(packages);
        }
        let none = |reason: String| Error::NoPackages { what: self.what, by: self.by, reason, kept: kept.clone() };
        self.download(node, state_dir, &kept, progress).map_err(|e| none(e.to_string()))?;
        self.kept(&kept).ok_or_else(|| none("apt downloaded too few".into()))
    }

    fn kept(&self, dir: &Path) -> Option<Packages> {
        let text = fs::read_to_string(dir.join(LIST)).ok()?;
        let mut lines = text.lines();
        if lines.next()? != self.packages.join(" ") {
            return None;
        }
        let files: Vec<PathBuf> = lines.map(|name| dir.join(name)).collect();
        (!files.is_empty() && files.iter().all(|f| f.is_file())).then_some(Packages { files })
    }

    fn download(&self, node: &dyn Node, state_dir: &Path, kept: &Path, progress: Progress) -> Result<()> {
        let work = state_dir.join(format!("{}.new", self.dir));
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).map_err(file_error("make", &work))?;
        let apt = Apt::ready(node, self.arch, state_dir)?;
        let wanted = to_install(&apt.simulate(node, self.packages)?);
        progress(&format!(
            "downloading {} packages (about {} MB) for the {}; they are kept in {} and not installed",
            wanted.len(),
            self.megabytes,
            self.what,
            kept.display()
        ));
        apt.download(node, &work, &wanted)?;
        let mut names: Vec<String> = fs::read_dir(&work)
            .map_err(file_error("list", &work))?
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| n.ends_with(".deb"))
            .collect();
        names.sort();
        let list = work.join(LIST);
        let lines = format!("{}\n{}\n", self.packages.join(" "), names.join("\n"));
        fs::write(&list, lines).map_err(file_error("write", &list))?;
        let _ = fs::remove_dir_all(kept);
        fs::rename(&work, kept).map_err(file_error("move the packages into place from", &work))
    }
}

impl Packages {
    /// What tells these packages from others.
    pub fn identity(&self) -> String {
        let names = self.files.iter().filter_map(|f| f.file_name());
        names.map(|n| format!("{}\n", n.to_string_lossy())).collect()
    }

    /// The version of a package, by the name of its file.
    pub fn version(&self, package: &str) -> Option<String> {
        self.files.iter().find_map(|file| {
            let name = file.file_name()?.to_str()?.replace("%3a", ":");
            let (found, rest) = name.split_once('_')?;
            (found == package).then(|| rest.split('_').next().map(str::to_owned))?
        })
    }

    /// Unpacks all into one tree, in which `bin`, `sbin` and `lib*` are links into `usr`.
    pub fn unpack(&self, node: &dyn Node, scratch: &Path, tree: &Path) -> Result<()> {
        for name in ["bin", "sbin", "lib", "lib64"] {
            let dir = tree.join("usr").join(name);
            fs::create_dir_all(&dir).map_err(file_error("make", &dir))?;
            let link = tree.join(name);
            std::os::unix::fs::symlink(Path::new("usr").join(name), &link).map_err(file_error("make", &link))?;
        }
        let passing = scratch.join("package.tar");
        for deb in &self.files {
            // In two steps: sh has no word for "either side of the pipe failed".
            let script = "deb=$1 tar=$2 tree=$3; shift 3; dpkg-deb --fsys-tarfile \"$deb\" > \"$tar\" && \
                          exec tar -x -f \"$tar\" -C \"$tree\" --keep-directory-symlink --no-same-owner \"$@\"";
            let cmd = Exec::new("sh")
                .args(["-c", script, "sh"])
                .args([deb, &passing, tree].map(|p| p.to_string_lossy().into_owned()))
                .args(LEFT_OUT.map(|p| format!("--exclude={p}")));
            run(node, &cmd.limit(UNPACK_LIMIT))?;
        }
        let _ = fs::remove_file(&passing);
        Ok(())
    }
}

/// `NAME=VERSION` of what apt would install: lines `Inst NAME (VERSION …)`.
fn to_install(simulated: &str) -> Vec<String> {
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
        let version = rest.split([' ', ')']).next()?;
        let wanted = !WITHOUT.iter().any(|w| name.starts_with(w));
        wanted.then(|| format!("{name}={version}"))
    };
    simulated.lines().filter_map(package).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::{Fake, says};

    const WANTED: Wanted = Wanted {
        what: "lab host",
        by: "vmio lab build",
        packages: &["lvm2", "mount"],
        arch: Arch::X86_64,
        dir: "packages",
        megabytes: 45,
    };
    const SIMULATED: &str = "NOTE: This is only a simulation!\n\
        Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []\n\
        Inst perl-base (5.36.0-7+deb12u4 Debian-Security:12/oldstable-security [amd64]) []\n\
        Inst lvm2 (2.03.16-2 Debian:12.15/oldstable [amd64])\n\
        Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])\n";

    #[test]
    fn packages_are_read_from_apt() {
        assert_eq!(to_install(SIMULATED), ["libc6=2.36-9+deb12u14", "lvm2=2.03.16-2"]);
        assert_eq!(to_install("E: Unable to locate package lvm2\n"), Vec::<String>::new());
    }

    #[test]
    fn kept_packages_count_only_when_all_of_them_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join(WANTED.dir);
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("a_1_amd64.deb"), "").unwrap();
        assert!(WANTED.kept(&kept).is_none());
        let list = |asked: &str, files: &str| fs::write(kept.join(LIST), format!("{asked}\n{files}\n")).unwrap();
        list(&WANTED.packages.join(" "), "a_1_amd64.deb");
        assert_eq!(WANTED.kept(&kept).unwrap().identity(), "a_1_amd64.deb\n");
        assert_eq!(WANTED.kept(&kept).unwrap().version("a").as_deref(), Some("1"));
        list(&WANTED.packages.join(" "), "a_1_amd64.deb\nb_2_amd64.deb");
        assert!(WANTED.kept(&kept).is_none());
        list("other packages", "a_1_amd64.deb");
        assert!(WANTED.kept(&kept).is_none());
    }

    #[test]
    fn without_apt_it_is_said_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let said = |node: &Fake| WANTED.find(node, dir.path(), &|_| {}).err().unwrap().to_string();
        let text = said(&Fake::new("fake"));
        assert!(text.contains("apt-get") && text.contains("vmio lab build") && text.contains(WANTED.dir), "{text}");
        // apt names packages, and none comes.
        let offline = Fake::new("fake").program("apt-get", says(SIMULATED)).program("sh", says(""));
        let text = said(&offline);
        assert!(text.contains("too few"), "{text}");
    }
}
