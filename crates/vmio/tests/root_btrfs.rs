//! `vmio scan` of images on btrfs, with and without copy on write.
#![allow(clippy::unwrap_used)]

use crate::help::live;
use crate::root_scan::{NOBODY, guest, inherited, stand_in};

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use vmio_testbed::{skip, slowness};

/// A btrfs on a loop device, taken away at the end.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where this machine has no btrfs.
    fn below(dir: &Path) -> Option<Self> {
        let (image, point) = (dir.join("fs.img"), dir.join("btrfs"));
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        fs::create_dir(&point).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().is_ok_and(|status| status.success());
        let mount = || Command::new("mount").args(["-o", "loop"]).args([&image, &point]).status().unwrap().success();
        (made && mount()).then(|| Self(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
#[ignore = "root"]
fn images_that_are_copied_on_write_are_told() {
    let dir = live::scratch();
    let Some(btrfs) = Mounted::below(dir.path()) else {
        return skip("this machine has no mkfs.btrfs, or its kernel no btrfs");
    };
    let [copied, pieces, kept] = ["copied", "pieces", "kept"].map(|name| btrfs.0.join(name));
    fs::write(&copied, vec![7; 1 << 20]).unwrap();
    // Each other block is written for itself.
    let file = File::create(&pieces).unwrap();
    for block in 0..2500 {
        file.write_all_at(&[7; 4096], block * 8192).unwrap();
        if block % 50 == 0 {
            file.sync_data().unwrap();
        }
    }
    file.sync_all().unwrap();
    File::create(&kept).unwrap();
    assert!(Command::new("chattr").arg("+C").arg(&kept).status().unwrap().success());
    fs::write(&kept, vec![7; 1 << 20]).unwrap();
    let open = [&copied, &pieces, &kept].map(|image| inherited(image, OFlags::RDWR));
    let running = stand_in(NOBODY, &guest("btrfs", &[(&copied, "raw"), (&pieces, "raw"), (&kept, "raw")]));
    drop(open);
    let begun = Instant::now();
    let seen = live::scan(dir.path(), &[]);
    assert!(begun.elapsed() < Duration::from_secs(10).mul_f64(slowness()), "{:?}", begun.elapsed());
    let found = live::guest(&seen, "btrfs");
    let layout = |n: usize| &found["disks"][n]["details"]["below"]["layout"];
    let copies = [0, 1, 2].map(|n| layout(n)["copy_on_write"].as_bool());
    assert_eq!(copies, [Some(true), Some(true), Some(false)], "{found:#}");
    assert!(layout(1)["extents"]["seen"].as_u64().unwrap() >= 1000, "{}", layout(1));
    let of = |rule: &str| {
        let all = found["findings"].as_array().unwrap().iter().filter(|f| f["rule"] == rule);
        all.map(|f| (f["subject"].to_string(), f["severity"].to_string())).collect::<Vec<_>>()
    };
    let told = of("copy-on-write-below");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|(subject, severity)| subject.contains("d1") && severity.contains("warning")), "{told:?}");
    drop((running, btrfs));
}
