//! The programs that run on both sides: the host's own files with the libraries they load, put
//! into a read-only file system image, so that native and guest run the very same code.
//!
//! The image is an extra disk and not part of the initramfs: fio as distributions build it loads
//! some 80 MB of libraries, which in an initramfs would stay in the guest's memory; from a disk
//! only the pages that are used come in (docs/image.md has the figures). Its format is ext2,
//! which `mke2fs -d` (e2fsprogs, on every Debian) writes without root and the ext4 driver reads
//! without any further module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::find_program;
use vmio_node::{Exec, Node, Output};

use super::{Error, Result, file_error, fnv1a, identity, run};
use crate::hadoop;
use crate::ours::{self, Own};

/// Block size of the image in bytes: the page size, so that a page is one block.
const BLOCK: u64 = 4096;

/// How long a program may take to tell its version or its libraries.
const ASK_LIMIT: Duration = Duration::from_secs(20);

/// The programs and their libraries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    /// All files to carry: path below the guest's `/usr` -> file on the host.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// The programs among them, each with its version.
    pub programs: BTreeMap<String, String>,
    /// Programs that cannot be carried, each with why. What needs them does not run in a guest.
    pub left_out: BTreeMap<String, String>,
    /// Paths on the host of what workloads take beside programs, as far as it is carried.
    pub beside: BTreeSet<String>,
}

impl Tools {
    /// Finds the programs and, through `ldd`, their libraries and loader. One that this host lacks, or that a guest
    /// has no place for, is left out.
    pub fn find(node: &dyn Node, programs: &[&'static str]) -> Result<Self> {
        let mut this = Self::default();
        for &name in programs {
            let found = ours::program(node.reader(), name).ok_or(Error::NoProgram { name });
            match found.and_then(|program| this.add(node, place_of(name, &program)?, program)) {
                Ok(()) => {
                    let version = version(node, name).unwrap_or_else(|| "it reports no version".into());
                    this.programs.insert(name.to_owned(), version);
                }
                Err(e @ (Error::NoProgram { .. } | Error::NoLibrary { .. } | Error::Misplaced { .. })) => {
                    this.left_out.insert(name.to_owned(), e.to_string());
                }
                Err(other) => return Err(other),
            }
        }
        Ok(this)
    }

    /// Adds a program of the host, at this place below `/usr`, and its libraries: all of them or nothing.
    pub fn add(&mut self, node: &dyn Node, at: PathBuf, program: PathBuf) -> Result<()> {
        let listed = node.exec(&Exec::new("ldd").args([program.to_string_lossy()]).limit(ASK_LIMIT))?;
        // ldd ends with 1 for a static program, which needs nothing.
        let libraries = libraries(&program, &listed.out())?;
        let placed: Vec<(PathBuf, PathBuf)> =
            libraries.into_iter().map(|file| Ok((place(&file)?, file))).collect::<Result<_>>()?;
        self.files.extend(placed);
        self.files.insert(at, program);
        Ok(())
    }

    /// Adds what a workload takes beside its programs, files with their libraries and whole directories: all of it, or
    /// nothing where this host lacks a part.
    pub fn add_beside(&mut self, node: &dyn Node, paths: &[&str]) -> Result<()> {
        let mut with = self.clone();
        for path in paths {
            let from = Path::new(hadoop::on_host(node.reader(), path));
            let added = match node.reader().stat(from)? {
                Some(found) if found.is_directory() => place(Path::new(path)).and_then(|at| with.add_below(from, &at)),
                Some(found) if found.is_file() => with.add(node, place(from)?, from.to_owned()),
                _ => return Ok(()),
            };
            match added {
                Ok(()) => {}
                Err(Error::NoLibrary { .. } | Error::Misplaced { .. }) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
        with.beside.extend(paths.iter().map(|path| (*path).to_owned()));
        *self = with;
        Ok(())
    }

    /// Adds all files below a directory, at this place below `/usr`. A link to a file is that file in a guest; one that
    /// leads nowhere is left out, and so is one to a directory.
    fn add_below(&mut self, dir: &Path, at: &Path) -> Result<()> {
        for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
            let entry = entry.map_err(file_error("list", dir))?;
            let (path, at) = (entry.path(), at.join(entry.file_name()));
            if entry.file_type().map_err(file_error("look at", &path))?.is_dir() {
                self.add_below(&path, &at)?;
            } else if fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                self.files.insert(at, path);
            }
        }
        Ok(())
    }

    /// What tells these files from others, and what is carried from what is left out.
    pub fn identity(&self) -> Result<String> {
        let mut text = format!("{:?}\n{:?}\n", self.programs, self.left_out);
        for (place, file) in &self.files {
            // One of our own is the same wherever it was built.
            let own = place.file_name().and_then(|name| Own::of_workload(name.to_str()?));
            let identity = match own {
                Some(_) => format!("{:032x}", fnv1a(&fs::read(file).map_err(file_error("read", file))?)),
                None => identity(file)?,
            };
            text += &format!("{} {identity}\n", place.display());
        }
        Ok(text)
    }

    /// Copies all files into a tree that becomes the guest's `/usr`; what is there already stays.
    pub fn copy_into(&self, tree: &Path) -> Result<()> {
        for (place, file) in &self.files {
            let to = tree.join(place);
            if to.exists() {
                continue;
            }
            let parent = to.parent().unwrap_or(tree);
            fs::create_dir_all(parent).map_err(file_error("make", parent))?;
            fs::copy(file, &to).map_err(file_error("copy", file))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(file_error("set the mode of", &to))?;
        }
        Ok(())
    }

    /// Writes the image. `scratch` takes the tree in passing.
    pub fn write(&self, node: &dyn Node, scratch: &Path, image: &Path) -> Result<()> {
        let tree = scratch.join("tools");
        self.copy_into(&tree)?;
        write_disk(node, &tree, image)
    }
}

/// What a program of this host says of its version, in one line; `None` where it says nothing.
pub(crate) fn version(node: &dyn Node, name: &str) -> Option<String> {
    let own = Own::of_workload(name).and_then(|own| own.on(node.reader()));
    let program = own.map_or(name.to_owned(), |own| own.display().to_string());
    // Some know the word, and not the option.
    ["--version", "version", "-V"].iter().find_map(|&word| {
        let asked = node.exec(&Exec::new(&program).args([word]).limit(ASK_LIMIT)).ok().filter(Output::ok)?;
        asked.out().lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    })
}

/// Makes a read-only disk image of a tree, which is removed.
pub(crate) fn write_disk(node: &dyn Node, tree: &Path, image: &Path) -> Result<()> {
    let (blocks, entries) = extent(tree)?;
    // Inodes, directories and indirect blocks (one for each 1024 blocks) beside the content.
    let inodes = entries + 64;
    let size = blocks + blocks / 64 + inodes + 1024;
    let mke2fs = find_program(node.reader(), "mke2fs").ok_or(Error::NoProgram { name: "mke2fs" })?;
    let cmd = Exec::new(mke2fs.to_string_lossy())
        .args(["-q", "-F", "-t", "ext2", "-m", "0", "-L", "vmio-tools", "-b"])
        .args([BLOCK.to_string(), "-N".into(), inodes.to_string(), "-d".into()])
        .args([tree.to_string_lossy(), image.to_string_lossy()])
        .args([size.to_string()])
        .limit(Duration::from_secs(120));
    run(node, &cmd)?;
    fs::remove_dir_all(tree).map_err(file_error("remove", tree))
}

/// Blocks of all files below a directory, and how many entries there are.
fn extent(dir: &Path) -> Result<(u64, u64)> {
    let (mut blocks, mut entries) = (0, 1);
    for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
        let path = entry.map_err(file_error("list", dir))?.path();
        let meta = fs::symlink_metadata(&path).map_err(file_error("look at", &path))?;
        if meta.is_dir() {
            let below = extent(&path)?;
            blocks += below.0 + 1;
            entries += below.1;
        } else {
            blocks += meta.len().div_ceil(BLOCK);
            entries += 1;
        }
    }
    Ok((blocks, entries))
}

/// Where a program goes below the guest's `/usr`: one of our own to the others, wherever it was built.
pub(super) fn place_of(name: &str, program: &Path) -> Result<PathBuf> {
    match Own::of_workload(name) {
        Some(own) => Ok(Path::new("bin").join(own.name)),
        None => place(program),
    }
}

/// Where a host file goes below the guest's `/usr`. `/bin`, `/lib`, `/lib64` and `/sbin` of the
/// guest are links into it, as on every distribution of today; an older host fits just as well.
fn place(file: &Path) -> Result<PathBuf> {
    let inside = file.strip_prefix("/usr").or_else(|_| file.strip_prefix("/")).unwrap_or(file);
    let top = inside.iter().next().and_then(|t| t.to_str()).unwrap_or_default();
    if file.starts_with("/usr") || ["bin", "sbin", "lib", "lib64"].contains(&top) {
        Ok(inside.to_owned())
    } else {
        Err(Error::Misplaced { file: file.into() })
    }
}

/// Library files of a program in the output of ldd(1).
fn libraries(program: &Path, ldd: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in ldd.lines() {
        let line = line.trim();
        let target = match line.split_once(" => ") {
            Some((name, "not found")) => {
                return Err(Error::NoLibrary { program: program.to_owned(), library: name.to_owned() });
            }
            Some((_, target)) => target,
            None => line,
        };
        if target.starts_with('/') {
            found.push(PathBuf::from(target.split(" (").next().unwrap_or(target)));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let recorded = "\tlinux-vdso.so.1 (0x00007f45cc6d7000)\n\
                        \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f45cc4cc000)\n\
                        \t/lib64/ld-linux-x86-64.so.2 (0x00007f45cc6d9000)\n";
        let libraries = |ldd: &str| libraries(Path::new("/usr/bin/fio"), ldd);
        assert_eq!(
            libraries(recorded).unwrap(),
            [Path::new("/lib/x86_64-linux-gnu/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert_eq!(libraries("\tnot a dynamic executable\n").unwrap(), Vec::<PathBuf>::new());
        let missing = libraries("\tlibrbd.so.1 => not found\n");
        assert!(matches!(missing, Err(Error::NoLibrary { library, .. }) if library == "librbd.so.1"));
    }

    /// A host whose programs need the C library alone.
    fn host(installed: &[&str]) -> Fake {
        let host = installed.iter().fold(Fake::new("fake"), |host, program| host.installed(program));
        host.command(|cmd| {
            let asked = cmd.args.first().map(String::as_str);
            match (cmd.program.as_str(), asked) {
                ("ldd", Some(file)) if file.ends_with("broken") => Some(says("\tlibrbd.so.1 => not found\n")),
                ("ldd", Some(file)) if file.ends_with("stray") => Some(says("\tlibx.so => /opt/x/libx.so (0x7f)\n")),
                ("ldd", _) => Some(says("\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n")),
                ("fio", Some("--version")) => Some(says("fio-3.33\n")),
                ("old", Some("version")) => Some(says("\nOld 1.0 of long ago\nbuilt in passing\n")),
                ("old", _) => Some(fails(1, "unknown option")),
                _ => Some(fails(1, "")),
            }
        })
    }

    #[test]
    fn what_a_host_lacks_or_a_guest_has_no_place_for_is_left_out() {
        let tools =
            Tools::find(&host(&["fio", "old", "broken", "stray"]), &["broken", "dd", "fio", "old", "stray"]).unwrap();
        let carried: Vec<(&str, &str)> = tools.programs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(carried, [("fio", "fio-3.33"), ("old", "Old 1.0 of long ago")]);
        let files: Vec<_> = tools.files.keys().map(|f| f.to_str().unwrap()).collect();
        assert_eq!(files, ["bin/fio", "bin/old", "lib/libc.so.6"], "nothing of what is left out");
        for (name, why) in [("broken", "librbd.so.1"), ("dd", "no program dd"), ("stray", "/opt/x/libx.so")] {
            assert!(tools.left_out[name].contains(why), "{:?}", tools.left_out);
        }
        assert_eq!(tools.left_out.len(), 3);
    }

    #[test]
    fn what_is_taken_beside_programs_is_carried_whole_or_not_at_all() {
        let host = host(&["fio", "broken"]);
        let mut tools = Tools::find(&host, &["fio"]).unwrap();
        let before = tools.clone();
        for lacking in [["/usr/bin/fio", "/usr/bin/none"], ["/usr/bin/fio", "/usr/bin/broken"]] {
            tools.add_beside(&host, &lacking).unwrap();
            assert_eq!(tools, before, "{lacking:?}");
        }
        tools.add_beside(&host, &["/usr/bin/fio"]).unwrap();
        assert_eq!(tools.beside, BTreeSet::from(["/usr/bin/fio".to_owned()]));
        assert_eq!(tools.programs, before.programs);
    }

    /// Directories are of this host, whatever the node: a tree of its own, outside of which no guest has a place.
    #[test]
    fn a_directory_that_guests_have_no_place_for_is_not_carried() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let mut tools = Tools::default();
        assert!(matches!(place(dir.path()), Err(Error::Misplaced { .. })));
        tools.add_beside(&vmio_node::Local::new(), &[dir.path().to_str().unwrap()]).unwrap();
        assert_eq!(tools, Tools::default());
        // What a run has fetched has a place that is not its own.
        tools.add_below(dir.path(), Path::new("lib/x")).unwrap();
        assert_eq!(tools.files, BTreeMap::from([(PathBuf::from("lib/x/file"), dir.path().join("file"))]));
    }

    #[test]
    fn another_list_of_programs_is_another_image() {
        // The C library's file need not be there for this.
        let identity = |programs: &[&'static str]| {
            let mut tools = Tools::find(&host(&["fio"]), programs).unwrap();
            tools.files.clear();
            tools.identity().unwrap()
        };
        assert_eq!(identity(&["fio"]), identity(&["fio"]));
        assert_ne!(identity(&["fio"]), identity(&[]));
        // One that is not there yet: the image need not be built again before it is, but says why.
        assert_ne!(identity(&["fio"]), identity(&["dd", "fio"]));
    }

    #[test]
    fn every_file_lands_below_usr() {
        assert_eq!(place(Path::new("/usr/bin/fio")).unwrap(), Path::new("bin/fio"));
        assert_eq!(place(Path::new("/lib64/ld.so")).unwrap(), Path::new("lib64/ld.so"));
        assert_eq!(place(Path::new("/usr/local/lib/x.so")).unwrap(), Path::new("local/lib/x.so"));
        assert!(place(Path::new("/opt/fio")).unwrap_err().to_string().contains("/opt/fio"));
    }
}
