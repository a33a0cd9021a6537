//! Which kernel modules a guest needs, and in which order they load.
//!
//! Dependencies are read from the modules themselves (`.modinfo`, keys `depends` and `softdep`;
//! Linux: include/linux/module.h), because `modules.dep` is missing from an unpacked package and
//! the program that makes it may be missing from the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Result, elf, file_error};

/// The modules of one kernel.
#[derive(Debug, Default)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    /// All that is asked for is taken to be built in.
    all_built_in: bool,
}

/// A module, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name with underscores, as `/proc/modules` has it.
    pub name: String,
    /// The ELF file.
    pub content: Vec<u8>,
}

/// Endings of module files, plain and compressed.
const ENDINGS: [&str; 4] = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];

impl Modules {
    /// Lists the modules under `/lib/modules/RELEASE` and the built-in ones.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut all = Self::default();
        all.walk(&dir.join("kernel"))?;
        let list = dir.join("modules.builtin");
        let text = fs::read_to_string(&list).map_err(file_error("read", &list))?;
        all.builtin = text.lines().filter_map(|l| module_name(Path::new(l))).collect();
        Ok(all)
    }

    /// Those of a kernel that has none: what guests need is built into it.
    pub fn none() -> Self {
        Self { all_built_in: true, ..Self::default() }
    }

    fn walk(&mut self, dir: &Path) -> Result<()> {
        for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
            let entry = entry.map_err(file_error("list", dir))?;
            let path = entry.path();
            if entry.file_type().map_err(file_error("look at", &path))?.is_dir() {
                self.walk(&path)?;
            } else if let Some(name) = module_name(&path) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    /// The modules named and all that they depend on, each after what it needs. What is built
    /// into the kernel is left out. `read` reads and unpacks a module file.
    pub fn closure(&self, names: &[&str], read: &mut dyn FnMut(&Path) -> Result<Vec<u8>>) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.add(name, None, read, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn add(
        &self,
        name: &str,
        wanted_by: Option<&str>,
        read: &mut dyn FnMut(&Path) -> Result<Vec<u8>>,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<()> {
        let name = name.replace('-', "_");
        if self.all_built_in || self.builtin.contains(&name) || !seen.insert(name.clone()) {
            return Ok(());
        }
        let path = self.files.get(&name).ok_or_else(|| Error::NoModule {
            name: name.clone(),
            wanted_by: wanted_by.map(|w| format!(" (which {w} needs)")).unwrap_or_default(),
        })?;
        let content = read(path)?;
        let info = ModInfo::of(&content)
            .ok_or_else(|| Error::Unpack { what: path.clone(), reason: "it has no .modinfo".into() })?;
        for dep in &info.depends {
            self.add(dep, Some(&name), read, seen, order)?;
        }
        // A soft dependency names a module or an algorithm (`crypto-NAME`), whose plain
        // implementation is called NAME_generic. ext4 does not mount without crc32c; whatever
        // else is missing is done without.
        for dep in &info.softdep_pre {
            for dep in [dep.clone(), format!("{}_generic", dep.strip_prefix("crypto-").unwrap_or(dep))] {
                if self.files.contains_key(&dep.replace('-', "_")) {
                    self.add(&dep, Some(&name), read, seen, order)?;
                }
            }
        }
        order.push(Module { name, content });
        Ok(())
    }
}

/// What a module says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct ModInfo {
    depends: Vec<String>,
    softdep_pre: Vec<String>,
}

impl ModInfo {
    fn of(module: &[u8]) -> Option<Self> {
        let mut info = Self::default();
        for line in elf::section(module, ".modinfo")?.split(|&b| b == 0) {
            let line = String::from_utf8_lossy(line);
            if let Some(list) = line.strip_prefix("depends=") {
                info.depends.extend(list.split(',').filter(|d| !d.is_empty()).map(str::to_owned));
            } else if let Some(list) = line.strip_prefix("softdep=") {
                let mut before = false;
                for word in list.split_whitespace() {
                    match word {
                        "pre:" => before = true,
                        "post:" => before = false,
                        name if before => info.softdep_pre.push(name.to_owned()),
                        _ => {}
                    }
                }
            }
        }
        Some(info)
    }
}

/// Name of a module from its file name.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    ENDINGS.iter().find_map(|e| file.strip_suffix(e)).map(|n| n.replace('-', "_"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::elf::tests::elf_with_section;

    fn tree(modules: &[(&str, &str)], builtin: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kernel/drivers");
        fs::create_dir_all(&kernel).unwrap();
        for (file, info) in modules {
            fs::write(kernel.join(file), elf_with_section(".modinfo", info.as_bytes())).unwrap();
        }
        fs::write(dir.path().join("modules.builtin"), builtin).unwrap();
        dir
    }

    fn order(dir: &Path, names: &[&str]) -> Result<Vec<String>> {
        let modules = Modules::open(dir)?;
        let closure = modules.closure(names, &mut |p| fs::read(p).map_err(file_error("read", p)))?;
        Ok(closure.into_iter().map(|m| m.name).collect())
    }

    #[test]
    fn each_module_comes_after_what_it_needs() {
        let dir = tree(
            &[
                ("sd_mod.ko", "license=GPL\0depends=scsi-mod,t10-pi\0"),
                ("scsi-mod.ko", "depends=\0"),
                ("t10-pi.ko", "depends=crc-t10dif\0softdep=pre: crct10dif fast crypto-crc32c post: later\0"),
                ("fast.ko.xz", "depends=\0"),
                ("later.ko", "depends=\0"),
                ("crc32c_generic.ko", "depends=\0"),
                ("sym53c8xx.ko", "depends=scsi_mod\0"),
            ],
            "kernel/lib/crc-t10dif.ko\n",
        );
        assert_eq!(
            order(dir.path(), &["sd_mod", "sym53c8xx", "crc_t10dif"]).unwrap(),
            ["scsi_mod", "fast", "crc32c_generic", "t10_pi", "sd_mod", "sym53c8xx"]
        );
    }

    #[test]
    fn a_missing_module_is_named_with_who_needs_it() {
        let dir = tree(&[("a.ko", "depends=b\0")], "");
        let said = order(dir.path(), &["a"]).unwrap_err().to_string();
        assert!(said.contains("module b (which a needs)"), "{said}");
    }
}
