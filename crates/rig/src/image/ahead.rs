//! What the image of a first guest takes, told before anything is measured.

use std::fs;
use std::path::Path;

use vmio_node::Reader;
use vmio_node::linux::system;

use crate::{hadoop, workloads};

/// Whether an image of this host's guests carries what a workload takes beside programs: Java and Hadoop's jars.
pub fn has_beside(reader: &dyn Reader) -> bool {
    let is_there = |path: &&str| matches!(reader.stat(Path::new(hadoop::on_host(reader, path))), Ok(Some(_)));
    workloads::files().any(|files| files.iter().all(is_there))
}

/// What building the image of this host's guests takes, in words; `None` where one is kept. `named`: the user names the
/// kernel; `with_beside`: it will carry what a workload takes beside programs. That a kernel of this host has all
/// modules is seen only when the image is built.
pub fn ahead(reader: &dyn Reader, state_dir: &Path, named: bool, with_beside: bool) -> Option<String> {
    let has = |dir: &str| fs::read_dir(state_dir.join(dir)).is_ok_and(|mut entries| entries.next().is_some());
    if has("images") {
        return None;
    }
    let there = |file: String| matches!(reader.stat(Path::new(&file)), Ok(Some(found)) if found.is_file());
    let of_host = || {
        system::release(reader).is_ok_and(|release| {
            there(format!("/boot/vmlinuz-{release}")) && there(format!("/lib/modules/{release}/modules.builtin"))
        })
    };
    let beside = if with_beside { " (with Java and Hadoop about 240 MB more)" } else { "" };
    let (state, downloads) = (state_dir.display(), !named && !has("kernels") && !of_host());
    Some(if downloads {
        format!(
            "downloads about 70 MB (Debian's kernel, from this host's apt sources) and builds the guest image; keeps \
             about 260 MB{beside} in {state}"
        )
    } else {
        format!("builds the guest image; keeps about 190 MB{beside} in {state}")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_node::Fake;

    use super::*;

    #[test]
    fn a_download_is_told_where_no_kernel_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let bare = Fake::new("bare");
        let told = |named| ahead(&bare, dir.path(), named, has_beside(&bare)).unwrap();
        assert!(told(false).starts_with("downloads about 70 MB"), "{}", told(false));
        assert!(told(true).starts_with("builds the guest image; keeps about 190 MB in /"), "{}", told(true));
        let with_all = workloads::files().flatten().fold(Fake::new("bare"), |host, path| host.file(*path, ""));
        let told_there = ahead(&with_all, dir.path(), true, has_beside(&with_all)).unwrap();
        assert!(told_there.contains("190 MB (with Java and Hadoop about 240 MB more) in /"), "{told_there}");
        fs::create_dir_all(dir.path().join("kernels/linux-image.deb")).unwrap();
        assert_eq!(told(false), told(true));
        fs::create_dir_all(dir.path().join("images/0")).unwrap();
        assert_eq!(ahead(&bare, dir.path(), false, false), None);
    }
}
