//! Tests of files and directories by descriptor, with the owner of the directory above as adversary.

#![allow(clippy::unwrap_used)]
use std::os::unix::fs::symlink;

use super::*;
use crate::journal::error::NotUndone;
use crate::journal::removal::{OurDir, remove_file};

fn our(path: &Path, made: Option<Identity>, held: Option<&OwnedFd>) -> Result<(), NotUndone> {
    OurDir { path, cookie: "me", made, same_boot: true, held }.remove()
}

/// A scratch directory with a file in it, the file's directory held, and which they are.
fn scratch(top: &Path) -> (PathBuf, OwnedFd, Identity) {
    let dir = make_scratch_dir(&open_dir(top).unwrap(), "d".as_ref(), "me").unwrap();
    make_file(&dir, "f".as_ref()).unwrap().write_all(b"scratch").unwrap();
    let made = Identity::of(&dir).unwrap();
    (top.join("d"), dir, made)
}

fn top() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

#[test]
fn links_are_not_followed_at_any_level() {
    let (_dir, top) = top();
    fs::create_dir_all(top.join("a/b")).unwrap();
    symlink(top.join("a"), top.join("l")).unwrap();
    assert!(open_dir(&top.join("a/b")).is_ok());
    for link in ["l", "l/b"] {
        assert_eq!(open_dir(&top.join(link)).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{link}");
    }
    let held = open_dir(&top).unwrap();
    assert!(make_dir(&held, "l".as_ref(), 0o755).is_err());
    assert!(make_dir(&held, "new".as_ref(), 0o755).unwrap().1 && !make_dir(&held, "new".as_ref(), 0o755).unwrap().1);
}

#[test]
fn descriptor_survives_renames() {
    let (_dir, top) = top();
    let (path, dir, _) = scratch(&top);
    let file = File::from(openat(&dir, "f", OFlags::RDWR, Mode::empty()).unwrap());
    let by = by_descriptor(&file).unwrap();
    assert_eq!(leads_to(&path.join("f"), &file), Ok(()));
    fs::write(top.join("victim"), "precious").unwrap();
    // As the owner of `top` does it.
    fs::rename(&path, top.join("gone")).unwrap();
    fs::create_dir(&path).unwrap();
    symlink(top.join("victim"), path.join("f")).unwrap();
    fs::write(&by, "SCRATCH").unwrap();
    assert_eq!(fs::read_to_string(top.join("victim")).unwrap(), "precious");
    assert_eq!(fs::read_to_string(top.join("gone/f")).unwrap(), "SCRATCH");
    assert_eq!((shown(&by), shown(&path)), (top.join("gone/f"), path.clone()));
    let said = leads_to(&path.join("f"), &file).unwrap_err().to_string();
    assert!(said.starts_with("a link has taken its place") && said.ends_with("gone/f"), "{said}");
    fs::remove_file(path.join("f")).unwrap();
    assert!(leads_to(&path.join("f"), &file).unwrap_err().to_string().starts_with("its name is gone"));
    fs::write(path.join("f"), "").unwrap();
    let said = leads_to(&path.join("f"), &file).unwrap_err().to_string();
    assert!(said.starts_with("another file has taken its place"), "{said}");
    fs::remove_file(top.join("gone/f")).unwrap();
    assert_eq!(leads_to(&path.join("f"), &file).unwrap_err().to_string(), "it was deleted");
}

#[test]
fn renamed_directory_is_removed_and_its_replacement_stays() {
    for living in [true, false] {
        let (_dir, top) = top();
        let (path, dir, made) = scratch(&top);
        let away = if living { top.join("deep/er") } else { top.join("beside") };
        fs::create_dir_all(away.parent().unwrap()).unwrap();
        fs::rename(&path, &away).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("precious"), "").unwrap();
        our(&path, Some(made), living.then_some(&dir)).unwrap();
        assert!(!away.exists() && path.join("precious").exists(), "{living}");
    }
}

#[test]
fn lost_directory_is_reported_with_a_search() {
    let (_dir, top) = top();
    let (path, _, made) = scratch(&top);
    fs::create_dir(top.join("deep")).unwrap();
    fs::rename(&path, top.join("deep/er")).unwrap();
    let said = our(&path, Some(made), None).unwrap_err().to_string();
    assert!(said.contains("is not there any more") && said.contains(&format!("-xdev -inum {}`", made.ino)), "{said}");
    // As pasted: `find` finds it.
    let command = said.split('`').nth(1).unwrap();
    let command = format!("{command} -path '{}/*'", top.display());
    let found = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), top.join("deep/er").display().to_string());
    // One that was never noted as made may never have been.
    our(&path, None, None).unwrap();
}

#[test]
fn foreign_files_stay() {
    let (_dir, top) = top();
    fs::create_dir(top.join("open")).unwrap();
    fs::set_permissions(top.join("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = top.join("open/f");
    let made = Identity::of(make_file(open_dir(&top.join("open")).unwrap(), "f".as_ref()).unwrap()).unwrap();
    fs::rename(&path, top.join("open/away")).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(remove_file(&path, Some(made), true, None).unwrap_err().to_string().contains("not touched"));
    fs::rename(top.join("open/away"), &path).unwrap();
    remove_file(&path, Some(made), true, None).unwrap();
    assert!(!path.exists());
    remove_file(&path, Some(made), true, None).unwrap();
}

#[test]
fn emptying_follows_no_link() {
    let (_dir, top) = top();
    let (path, _, made) = scratch(&top);
    fs::create_dir_all(top.join("other/sub")).unwrap();
    fs::write(top.join("other/sub/precious"), "").unwrap();
    fs::create_dir_all(path.join("a/b/c")).unwrap();
    symlink(top.join("other"), path.join("a/b/link")).unwrap();
    our(&path, Some(made), None).unwrap();
    assert!(!path.exists() && top.join("other/sub/precious").exists());
}

#[test]
fn unrecorded_directory_is_not_followed_by_a_link() {
    let (_dir, top) = top();
    fs::create_dir_all(top.join("a/d")).unwrap();
    our(&top.join("a/none"), None, None).unwrap();
    fs::rename(top.join("a"), top.join("b")).unwrap();
    symlink(top.join("b"), top.join("a")).unwrap();
    let said = our(&top.join("a/d"), None, None).unwrap_err().to_string();
    assert!(said.contains("symbolic links") && top.join("b/d").exists(), "{said}");
    our(&top.join("b/d"), None, None).unwrap();
    assert!(!top.join("b/d").exists());
    // Another one in its place stays, even an empty one.
    let (path, _, made) = scratch(&top);
    fs::rename(&path, top.join("b/away")).unwrap();
    fs::create_dir(&path).unwrap();
    let said = our(&path, Some(made), None).unwrap_err().to_string();
    assert!(said.contains("is not what vmio made") && path.exists(), "{said}");
}
