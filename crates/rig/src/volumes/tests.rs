//! Pools of volumes, in directories of their own.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

pub fn pool() -> (tempfile::TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let pool = Pool::open(dir.path()).unwrap();
    (dir, pool)
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn a_name_cannot_leave_the_pool() {
    for bad in ["", ".", "..", "a/b", "../a", ".unfinished", "-a", "a b", "a\n", "ä", "a.raw", &"a".repeat(65)] {
        assert!(matches!(bad.parse::<Name>(), Err(Error::Name(_))), "{bad:?}");
    }
    assert_eq!(name("db-1_data").to_string(), "db-1_data");
}

#[test]
fn a_pool_is_of_this_user_alone() {
    let (dir, _) = pool();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(Pool::open(dir.path()), Err(Error::Mode { .. })));
    assert!(matches!(Pool::open(&dir.path().join("none")), Err(Error::File { what: "open", .. })));
}

#[test]
fn volumes_are_made_listed_and_deleted() {
    let (dir, pool) = pool();
    let (a, b) = (name("a"), name("b"));
    fs::write(dir.path().join(".unfinished"), "left by a crash").unwrap();
    pool.create(&b, 8192).unwrap();
    let made = pool.create(&a, 4096).unwrap();
    assert!(matches!(pool.create(&a, 8192), Err(Error::Exists(_))));
    for bad in [0, 512, 4097] {
        assert!(matches!(pool.create(&name("c"), bad), Err(Error::Size(_))));
    }
    assert!(!dir.path().join(".unfinished").exists());
    assert_eq!(pool.list().unwrap(), [made, Volume { name: b.clone(), bytes: 8192 }]);
    assert!(fs::read(dir.path().join("a.raw")).unwrap().iter().all(|byte| *byte == 0));
    pool.delete(&a).unwrap();
    assert!(matches!(pool.delete(&a), Err(Error::Missing(_))));
    assert_eq!(pool.list().unwrap().len(), 1);
}

#[test]
fn what_has_no_space_leaves_nothing() {
    let (dir, pool) = pool();
    assert!(matches!(pool.create(&name("big"), 1 << 62), Err(Error::NoSpace { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_link_is_no_volume() {
    let (dir, pool) = pool();
    symlink("/etc/hostname", dir.path().join("out.raw")).unwrap();
    fs::create_dir(dir.path().join("folder.raw")).unwrap();
    assert!(pool.list().unwrap().is_empty());
    for none in ["out", "folder"] {
        assert!(matches!(pool.delete(&name(none)), Err(Error::Missing(_))), "{none}");
    }
    assert!(dir.path().join("out.raw").is_symlink());
}

/// The lock is the one that QEMU takes: shared, on a byte from 100 on, of an open file description.
#[test]
fn what_qemu_has_open_is_not_deleted() {
    let (dir, pool) = pool();
    let a = name("a");
    pool.create(&a, 4096).unwrap();
    let open = fs::File::open(dir.path().join("a.raw")).unwrap();
    // SAFETY: `flock` is a record of numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (libc::F_RDLCK as libc::c_short, 100, 1);
    // SAFETY: the descriptor is open, and the kernel only reads the record.
    let locked = unsafe { libc::fcntl(open.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(locked, 0, "{}", io::Error::last_os_error());
    assert!(matches!(pool.delete(&a), Err(Error::InUse(_))));
    assert!(matches!(pool.snapshot(&a, &name("b")), Err(Error::InUse(_))));
    assert!(matches!(pool.resize(&a, 8192), Err(Error::InUse(_))));
    assert_eq!(pool.list().unwrap().len(), 1);
    drop(open);
    pool.delete(&a).unwrap();
}

#[test]
fn a_snapshot_keeps_its_bytes_and_a_volume_grows_only() {
    let (dir, pool) = pool();
    let (a, b) = (name("a"), name("b"));
    pool.create(&a, 8192).unwrap();
    let (mut first, file) = (vec![7; 8192], dir.path().join("a.raw"));
    fs::write(&file, &first).unwrap();
    assert_eq!(pool.snapshot(&a, &b).unwrap(), Volume { name: b.clone(), bytes: 8192 });
    fs::write(&file, vec![8; 8192]).unwrap();
    assert_eq!(fs::read(dir.path().join("b.raw")).unwrap(), first);
    assert!(matches!(pool.snapshot(&a, &b), Err(Error::Exists(_))));
    assert!(matches!(pool.snapshot(&a, &a), Err(Error::Exists(_))));
    assert!(matches!(pool.snapshot(&name("none"), &name("c")), Err(Error::Missing(_))));
    assert!(matches!(pool.resize(&b, 4096), Err(Error::Smaller { bytes: 8192, .. })));
    assert!(matches!(pool.resize(&b, 8193), Err(Error::Size(8193))));
    assert!(matches!(pool.resize(&b, 1 << 62), Err(Error::NoSpace { .. })));
    assert_eq!(pool.resize(&b, 12288).unwrap().bytes, 12288);
    first.resize(12288, 0);
    assert_eq!(fs::read(dir.path().join("b.raw")).unwrap(), first);
}
