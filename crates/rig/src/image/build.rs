//! Builds an image and keeps it: found again by a digest over all that goes into it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use vmio_model::cell::Arch;
use vmio_node::Node;
use vmio_node::linux::system;

use super::tools::Tools;
use super::{
    BASE_MODULES, Error, Image, OwnKernel, Progress, Result, elf, file_error, fnv1a, identity, is_optional, kernel,
    own, unpack,
};

/// Raised when the layout of an image changes, so that older ones are not used.
const FORMAT: u32 = 3;
/// How many images of a kind are kept; the one just built is the newest.
const KEEP: usize = 2;

/// Writes a disk image: a directory for files in passing, and where the image goes.
type WriteDisk<'a> = &'a dyn Fn(&Path, &Path) -> Result<()>;

/// What an image is made of beside kernel and agent.
pub(crate) struct Recipe<'a> {
    /// What is built, for people.
    pub what: &'static str,
    /// Directory of the state directory in which images of this kind are kept.
    pub dir: &'static str,
    /// The processor of its guests.
    pub arch: Arch,
    /// The kernel, where the user names it.
    pub kernel: Option<&'a OwnKernel>,
    /// Modules that it carries beside [`BASE_MODULES`].
    pub modules: &'a [&'static str],
    /// Those of them that each guest loads.
    pub always: &'a [&'static str],
    /// Programs that guests run.
    pub tools: &'a Tools,
    /// What tells one disk with tools from the next.
    pub inputs: String,
    /// Writes the disk that the guest mounts at `/usr`.
    pub disk: WriteDisk<'a>,
}

impl Recipe<'_> {
    /// The image for this host as it is now: the kept one, or a new one.
    pub fn load_or_build(&self, node: &dyn Node, state_dir: &Path, progress: Progress) -> Result<Image> {
        let images = state_dir.join(self.dir);
        fs::create_dir_all(&images).map_err(file_error("make", &images))?;
        remove_leftovers(&images);
        let scratch = Scratch::new(&images)?;
        let agent = own::agent(node, self.arch)?;

        let base = match self.kernel {
            Some(wanted) => {
                let kernel = wanted.found()?;
                match Base::of_sibling(&images, &kernel.identity()?, &self.carried()) {
                    Some(base) => base,
                    None => Base::of_kernel(node, &kernel, self.arch, &self.carried(), &scratch.0)?,
                }
            }
            None => self.usual(node, state_dir, &images, &scratch.0, progress)?,
        };
        let dir = images.join(self.digest(&agent, &base.identity));
        let image = match Image::load(&dir) {
            Some(image) => image,
            None => {
                let with = self.tools.programs.get("fio").map(|fio| format!(" and {fio}")).unwrap_or_default();
                progress(&format!("building the {} from {}{with}", self.what, base.origin));
                self.build(&base, &agent, &scratch.0, dir)?
            }
        };
        keep_newest(&images, &image.dir);
        Ok(image)
    }

    /// The host's kernel, or a distribution's.
    fn usual(
        &self,
        node: &dyn Node,
        state_dir: &Path,
        images: &Path,
        scratch: &Path,
        progress: Progress,
    ) -> Result<Base> {
        // With the kernel of last time neither the host's modules nor a package are looked through.
        let remembered = images.join(format!("kernel-of-{}", host_release(node)?));
        let same = fs::read_to_string(&remembered).ok().filter(|kernel| {
            kernel.split(' ').next().is_some_and(|p| identity(Path::new(p)).is_ok_and(|now| now == *kernel))
        });
        let base = match same.and_then(|kernel| Base::of_sibling(images, &kernel, &self.carried())) {
            Some(base) => base,
            None => {
                let kernel = kernel::find(node, self.arch, state_dir, &self.required(), scratch, progress)?;
                Base::of_kernel(node, &kernel, self.arch, &self.carried(), scratch)?
            }
        };
        fs::write(&remembered, &base.identity).map_err(file_error("write", &remembered))?;
        Ok(base)
    }

    fn carried(&self) -> Vec<&'static str> {
        BASE_MODULES.into_iter().chain(self.modules.iter().copied()).collect()
    }

    /// Those without which there is no image.
    fn required(&self) -> Vec<&'static str> {
        self.carried().into_iter().filter(|module| !is_optional(module)).collect()
    }

    /// Digest over all that goes in and the kernel's identity.
    fn digest(&self, agent: &[u8], kernel: &str) -> String {
        let text = format!(
            "{FORMAT}\n{kernel}\n{:032x}\n{:?}{:?}\n{}",
            fnv1a(agent),
            self.carried(),
            self.always,
            self.inputs
        );
        format!("{:032x}", fnv1a(text.as_bytes()))
    }

    /// Builds below `scratch` and moves the whole into place, so that there is never half an image.
    fn build(&self, base: &Base, agent: &[u8], scratch: &Path, to: PathBuf) -> Result<Image> {
        let dir = scratch.join("image");
        let modules_dir = dir.join("modules");
        fs::create_dir_all(&modules_dir).map_err(file_error("make", &modules_dir))?;
        let write = |name: &str, content: &[u8]| {
            let path = dir.join(name);
            fs::write(&path, content).map_err(file_error("write", &path))
        };
        write("kernel", &base.kernel)?;
        write("agent", agent)?;
        for (name, content) in &base.files {
            write(&format!("modules/{name}.ko"), content)?;
        }
        (self.disk)(scratch, &dir.join("tools.ext2"))?;

        let image = Image {
            arch: self.arch,
            digest: to.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            kernel_release: base.release.clone(),
            kernel_origin: base.origin.clone(),
            compressed_because: base.compressed_because.clone(),
            fio_version: self.tools.programs.get("fio").cloned().unwrap_or_default(),
            programs: self.tools.programs.clone(),
            left_out: self.tools.left_out.clone(),
            beside: self.tools.beside.clone(),
            kernel_identity: base.identity.clone(),
            modules: base.modules.clone(),
            lacking: base.lacking.clone(),
            always: self.always.iter().map(|m| (*m).to_owned()).collect(),
            dir: to,
        };
        write("image.json", &serde_json::to_vec_pretty(&image).expect("an image is plain data"))?;
        match fs::rename(&dir, &image.dir) {
            // Another vmio was quicker with the same image.
            Err(_) if Image::load(&image.dir).is_some() => Ok(image),
            moved => moved.map(|()| image).map_err(file_error("move the image into place from", &dir)),
        }
    }
}

/// A kernel with its modules, ready for an image.
struct Base {
    /// [`kernel::Kernel::identity`].
    identity: String,
    release: String,
    origin: String,
    kernel: Vec<u8>,
    compressed_because: Option<String>,
    /// Order of loading by module asked for.
    modules: BTreeMap<String, Vec<String>>,
    /// Modules asked for that the kernel does not have.
    lacking: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

impl Base {
    fn of_kernel(
        node: &dyn Node,
        kernel: &kernel::Kernel,
        arch: Arch,
        carried: &[&str],
        scratch: &Path,
    ) -> Result<Self> {
        let packed = fs::read(&kernel.vmlinuz).map_err(file_error("read", &kernel.vmlinuz))?;
        if let Some(is) = kernel::arch(&packed).filter(|is| *is != arch) {
            let mend = format!("give a kernel for {arch}, or none and vmio takes Debian's");
            return Err(Error::WrongArch { path: kernel.vmlinuz.clone(), is, wanted: arch, mend });
        }
        let (content, compressed_because) = match arch {
            // Debian's is not compressed, and the guest unpacks no other.
            Arch::Aarch64 => (packed, None),
            Arch::X86_64 if elf::is_elf64(&packed) => (packed, None),
            Arch::X86_64 => match startable(node, &packed, scratch, &kernel.vmlinuz) {
                Ok(elf) => (elf, None),
                Err(e) => (packed, Some(e.to_string())),
            },
        };
        let (mut modules, mut files, mut lacking) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for &name in carried {
            let closure = match kernel.modules(node, &[name], scratch) {
                Err(Error::NoModule { .. }) if is_optional(name) => {
                    lacking.push(name.to_owned());
                    continue;
                }
                found => found?,
            };
            modules.insert(name.to_owned(), closure.iter().map(|m| m.name.clone()).collect());
            files.extend(closure.into_iter().map(|m| (m.name, m.content)));
        }
        Ok(Self {
            identity: kernel.identity()?,
            release: kernel.release.clone(),
            origin: kernel.origin.clone(),
            kernel: content,
            compressed_because,
            modules,
            lacking,
            files,
        })
    }

    /// From an image that is kept: of the same kernel, with all these modules as far as that has them.
    fn of_sibling(images: &Path, identity: &str, carried: &[&str]) -> Option<Self> {
        let fits = |i: &Image| {
            let has = |m: &&str| i.modules.contains_key(*m) || i.lacks_module(m);
            i.kernel_identity == identity && carried.iter().all(has)
        };
        let image = names(images).into_iter().filter_map(|n| Image::load(&images.join(n))).find(fits)?;
        let file = |name: &String| {
            let path = image.dir.join("modules").join(format!("{name}.ko"));
            Some((name.clone(), fs::read(path).ok()?))
        };
        Some(Self {
            identity: image.kernel_identity.clone(),
            release: image.kernel_release.clone(),
            origin: image.kernel_origin.clone(),
            kernel: fs::read(image.kernel()).ok()?,
            compressed_because: image.compressed_because.clone(),
            files: image.modules.values().flatten().map(file).collect::<Option<_>>()?,
            modules: image.modules.clone(),
            lacking: image.lacking.clone(),
        })
    }
}

/// The ELF kernel inside a bzImage, when a hypervisor can start it without the boot code.
fn startable(node: &dyn Node, bzimage: &[u8], scratch: &Path, what: &Path) -> Result<Vec<u8>> {
    let refuse = |reason: &str| Error::Unpack { what: what.into(), reason: reason.into() };
    let payload = unpack::payload(bzimage).ok_or_else(|| refuse("it is not a bzImage with a known compression"))?;
    let elf = unpack::unpack(node, payload, scratch, what)?;
    if elf::boots_by_pvh(&elf) { Ok(elf) } else { Err(refuse("it is built without CONFIG_PVH")) }
}

fn host_release(node: &dyn Node) -> Result<String> {
    Ok(system::release(node.reader())?)
}

const BUILDING: &str = ".building-";

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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

    #[test]
    fn the_kernel_of_a_kept_image_is_used_again_when_it_is_the_same_and_has_all_modules() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base {
            identity: "/boot/vmlinuz 1 2".into(),
            release: "6.1".into(),
            origin: "a package".into(),
            kernel: b"kernel".to_vec(),
            compressed_because: None,
            modules: [("nfs".to_owned(), vec!["sunrpc".to_owned(), "nfs".to_owned()])].into(),
            lacking: vec!["bcache".to_owned()],
            files: ["sunrpc", "nfs"].map(|m| (m.to_owned(), m.as_bytes().to_vec())).into(),
        };
        let disk = |_: &Path, to: &Path| fs::write(to, "disk").map_err(file_error("write", to));
        let tools = Tools { programs: [("fio".to_owned(), "fio-3.33".to_owned())].into(), ..Tools::default() };
        let inputs = tools.identity().unwrap();
        let recipe = Recipe {
            what: "test",
            arch: Arch::X86_64,
            dir: "test",
            kernel: None,
            modules: &[],
            always: &[],
            tools: &tools,
            inputs,
            disk: &disk,
        };
        let more = Recipe { inputs: Tools::default().identity().unwrap(), ..recipe };
        assert_ne!(recipe.digest(b"agent", "kernel"), more.digest(b"agent", "kernel"), "a program more");
        let built = recipe.build(&base, b"agent", &dir.path().join("scratch"), dir.path().join("one")).unwrap();
        assert_eq!(fs::read(built.tools()).unwrap(), b"disk");
        assert_eq!((&*built.fio_version, built.lacks("fio"), built.lacks("dd").is_some()), ("fio-3.33", None, true));
        let again = |identity: &str, carried: &[&str]| Base::of_sibling(dir.path(), identity, carried);
        let found = again("/boot/vmlinuz 1 2", &["nfs", "bcache"]).unwrap();
        assert_eq!(found.lacking, ["bcache"], "it is not looked for again");
        assert_eq!((&found.kernel, &found.files, &found.modules), (&base.kernel, &base.files, &base.modules));
        assert!(again("/boot/vmlinuz 1 3", &["nfs"]).is_none(), "the kernel has changed");
        assert!(again("/boot/vmlinuz 1 2", &["nfs", "ext4"]).is_none(), "a module more");
    }
}
