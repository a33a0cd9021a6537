//! Which processes have a block device open: a guest's QEMU has its disk open without O_EXCL, so
//! that nothing else would show it (proc(5), `/proc/PID/fd`).

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often processes that have a device open are looked for before they count.
const LOOKS: u32 = 4;
/// Time between these looks: udev is done with a device well before the last one.
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);

/// Processes that keep such a device open. Looked at several times: udev opens a device for a
/// moment whenever it changes.
pub(super) fn openers(proc: &Path, ours: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        found = open_now(proc, &ours);
        if found.is_empty() {
            break;
        }
    }
    found
}

fn open_now(proc: &Path, ours: impl Fn(&Path) -> bool) -> Vec<String> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default()
    };
    let pid = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let open = |dir: &Path| {
        // Only what lies in /dev is looked at itself: a file of a dead network mount would hang.
        list(&dir.join("fd"))
            .iter()
            .filter_map(|fd| std::fs::read_link(fd).ok())
            .any(|to| to.starts_with("/dev") && ours(&to))
    };
    let processes = list(proc).into_iter().filter_map(|dir| Some((pid(&dir)?, dir)));
    processes
        .filter(|(_, dir)| open(dir))
        .map(|(pid, dir)| {
            let name = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
            format!("process {pid} ({}) has it open", name.trim())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn processes_that_have_a_device_open_are_named() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, to) in [("812", "/dev/sda1"), ("813", "/dev/sdb"), ("814", "/srv/sda"), ("self", "/dev/sda")] {
            let fd = proc.path().join(pid).join("fd");
            std::fs::create_dir_all(&fd).unwrap();
            std::fs::write(proc.path().join(pid).join("comm"), "kvm\n").unwrap();
            std::os::unix::fs::symlink(to, fd.join("7")).unwrap();
        }
        let sda = |path: &Path| path.to_string_lossy().contains("sda");
        assert_eq!(openers(proc.path(), sda), ["process 812 (kvm) has it open"]);
        assert_eq!(openers(proc.path(), |_| false), Vec::<String>::new());
    }
}
