//! An image is fetched: several threads ask for parts and write them where they belong. Each part is checked as it
//! comes, one that is there from an earlier try as it lies on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::digest::{Hasher, Sha256};
use super::manifest::{self, Manifest};
use super::partial::Partial;
use super::retry::with_retries;
use super::{AT_ONCE, Callbacks, Error, Result, Span, Store, Transfer, file_error};

/// Bytes that are read at once of a part that is there.
const BUFFER: usize = 1 << 20;

/// An image that is fetched, and what of it is there.
struct Fetching<'a> {
    store: &'a dyn Store,
    key: &'a str,
    manifest: &'a Manifest,
    file: &'a File,
    path: &'a Path,
    /// Behind them nothing was ever written.
    known_bytes: u64,
    callbacks: &'a Callbacks<'a>,
    next: AtomicUsize,
    moved_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    failed: Mutex<Option<Error>>,
    is_over: AtomicBool,
}

/// Fetches an image to a file that is not there yet. Blocks of zeros become holes. The file appears only when all of it
/// has the digests of the manifest, and is on the disk. `pinned` is the SHA-256 of the only manifest that is taken.
///
/// # Errors
/// Why there is no file. What was fetched is kept beside it, and the next pull goes on from there.
pub fn pull(
    store: &dyn Store,
    key: &str,
    target: &Path,
    pinned: Option<&str>,
    callbacks: &Callbacks<'_>,
) -> Result<Transfer> {
    let name = manifest::key(key);
    let text = with_retries(callbacks.pause, |_| store.get(&name, manifest::MOST_BYTES))?;
    let manifest_sha256 = Sha256::of(&text).hex();
    if pinned.is_some_and(|pinned| !pinned.eq_ignore_ascii_case(&manifest_sha256)) {
        return Err(Error::OtherManifest { what: name, found: manifest_sha256 });
    }
    let manifest = Manifest::read(&text).map_err(|why| Error::Manifest { what: name.clone(), why })?;
    let size_bytes = with_retries(callbacks.pause, |_| store.stat(key))?.size_bytes;
    if size_bytes != manifest.size_bytes {
        let why = format!("{size_bytes} bytes instead of {}", manifest.size_bytes);
        return Err(Error::Corrupt { what: key.to_owned(), why });
    }
    let partial = Partial::open(target)?;
    let fetching = Fetching {
        store,
        key,
        manifest: &manifest,
        file: &partial.file,
        path: &partial.path,
        known_bytes: partial.known_bytes,
        callbacks,
        next: AtomicUsize::new(0),
        moved_bytes: AtomicU64::new(0),
        kept_bytes: AtomicU64::new(0),
        failed: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| fetching.each());
        }
    });
    let Fetching { moved_bytes, kept_bytes, failed, .. } = fetching;
    if let Some(why) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(why);
    }
    partial.publish(size_bytes)?;
    let [moved_bytes, kept_bytes] = [moved_bytes, kept_bytes].map(AtomicU64::into_inner);
    Ok(Transfer { moved_bytes, kept_bytes, is_synced: true, manifest, manifest_sha256 })
}

impl Fetching<'_> {
    /// Fetches parts until there are no more, or one cannot be had.
    fn each(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(digest) = self.manifest.part_sha256.get(at) else { return };
            if let Err(why) = self.part(at, digest) {
                self.is_over.store(true, Ordering::Relaxed);
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        }
    }

    fn part(&self, at: usize, digest: &str) -> Result<()> {
        let Manifest { size_bytes, part_bytes, .. } = *self.manifest;
        let from = at as u64 * part_bytes;
        let span = Span { from, bytes: part_bytes.min(size_bytes - from) };
        let counter = if from < self.known_bytes && self.is_there(span, digest)? {
            &self.kept_bytes
        } else {
            with_retries(self.callbacks.pause, |before| self.fetch(at, span, digest, before))?;
            &self.moved_bytes
        };
        counter.fetch_add(span.bytes, Ordering::Relaxed);
        let done = self.kept_bytes.load(Ordering::Relaxed) + self.moved_bytes.load(Ordering::Relaxed);
        (self.callbacks.progress)(done, size_bytes);
        Ok(())
    }

    /// Whether the file has a part already.
    fn is_there(&self, span: Span, digest: &str) -> Result<bool> {
        let (mut hasher, mut buffer, mut at) = (Hasher::new(), vec![0; BUFFER], span.from);
        let end = span.from + span.bytes;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(BUFFER).min(BUFFER);
            match self.file.read_at(&mut buffer[..want], at) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    at += read as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(file_error("read", self.path)(e)),
            }
        }
        Ok(hasher.finish().hex().eq_ignore_ascii_case(digest))
    }

    fn fetch(&self, at: usize, span: Span, digest: &str, before: u32) -> Result<()> {
        // Where something may have been written, zeros have to be, too.
        let is_fresh = before == 0 && span.from >= self.known_bytes;
        let (mut hasher, mut to) = (Hasher::new(), span.from);
        self.store.range(self.key, span, None, &mut |bytes| {
            hasher.update(bytes);
            if !is_fresh || bytes.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(bytes, to).map_err(file_error("write", self.path))?;
            }
            to += bytes.len() as u64;
            Ok(())
        })?;
        if hasher.finish().hex().eq_ignore_ascii_case(digest) {
            return Ok(());
        }
        let why = format!("part {} of {} has another digest", at + 1, self.manifest.part_sha256.len());
        Err(Error::Corrupt { what: self.key.to_owned(), why })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::super::fake::{Fake, callbacks, image};
    use super::super::push;
    use super::*;

    const PART: u64 = 16 << 20;

    /// A store with an image of three parts, the bytes, and a file to fetch it to.
    fn stored() -> (tempfile::TempDir, Fake, Vec<u8>, PathBuf) {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let from = dir.path().join("from");
        let bytes = image(&from, 2 * PART + 9, 1);
        push(&store, "disk", &from, &callbacks()).unwrap();
        let to = dir.path().join("to");
        (dir, store, bytes, to)
    }

    fn partial(to: &Path) -> PathBuf {
        to.with_file_name(".to.vmio-partial")
    }

    #[test]
    fn an_image_is_fetched_whole_and_never_over_another_file() {
        let (_dir, store, bytes, to) = stored();
        let done = pull(&store, "disk", &to, None, &callbacks()).unwrap();
        assert_eq!((done.moved_bytes, done.kept_bytes), (bytes.len() as u64, 0));
        assert_eq!(fs::read(&to).unwrap(), bytes);
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
        assert!(!partial(&to).exists());
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::Exists { .. })));
        let missing = pull(&store, "none", &to.with_file_name("other"), None, &callbacks());
        assert!(matches!(missing, Err(Error::NotThere { .. })), "{missing:?}");
    }

    #[test]
    fn what_is_there_is_not_fetched_again_unless_it_is_wrong() {
        let (_dir, store, bytes, to) = stored();
        store.cut_after(1);
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::Unreachable { .. })));
        assert!(!to.exists() && partial(&to).exists());
        store.mend();
        // Of the three parts two are there, one of them with a byte that is wrong.
        let mut two = bytes[..usize::try_from(2 * PART).unwrap()].to_owned();
        two[7] ^= 1;
        fs::write(partial(&to), &two).unwrap();
        let done = pull(&store, "disk", &to, None, &callbacks()).unwrap();
        assert_eq!((done.moved_bytes, done.kept_bytes), (PART + 9, PART));
        assert_eq!(fs::read(&to).unwrap(), bytes);
    }

    #[test]
    fn an_object_that_is_not_what_its_manifest_says_becomes_no_file() {
        let (_dir, store, _, to) = stored();
        store.spoil("disk");
        let why = pull(&store, "disk", &to, None, &callbacks()).unwrap_err();
        assert!(matches!(&why, Error::Corrupt { why, .. } if why == "part 1 of 3 has another digest"), "{why}");
        store.shorten("disk");
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::Corrupt { .. })));
        store.spoil("disk.vmio.json");
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::Manifest { .. })));
        assert!(!to.exists());
    }

    #[test]
    fn a_manifest_that_is_pinned_is_the_only_one_that_is_taken() {
        let (_dir, store, bytes, to) = stored();
        let pinned = Sha256::of(&store.object("disk.vmio.json")).hex();
        let other = to.with_file_name("other");
        image(&other, 2 * PART + 9, 2);
        let pushed = push(&store, "disk", &other, &callbacks()).unwrap();
        assert_ne!(pushed.manifest_sha256, pinned);
        let why = pull(&store, "disk", &to, Some(&pinned), &callbacks()).unwrap_err();
        assert!(matches!(&why, Error::OtherManifest { found, .. } if *found == pushed.manifest_sha256), "{why}");
        fs::write(&other, &bytes).unwrap();
        push(&store, "disk", &other, &callbacks()).unwrap();
        let done = pull(&store, "disk", &to, Some(&pinned.to_uppercase()), &callbacks()).unwrap();
        assert_eq!(done.manifest_sha256, pinned);
    }

    #[test]
    fn zeros_become_holes_but_not_over_what_was_there() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let zeros = File::create(&from).unwrap();
        zeros.set_len(2 * PART).unwrap();
        push(&store, "disk", &from, &callbacks()).unwrap();
        pull(&store, "disk", &to, None, &callbacks()).unwrap();
        let made = fs::metadata(&to).unwrap();
        assert!(made.len() == 2 * PART && made.blocks() < 16, "{} blocks", made.blocks());
        let again = dir.path().join("again");
        fs::write(again.with_file_name(".again.vmio-partial"), b"left over").unwrap();
        fs::set_permissions(again.with_file_name(".again.vmio-partial"), fs::Permissions::from_mode(0o600)).unwrap();
        pull(&store, "disk", &again, None, &callbacks()).unwrap();
        assert!(fs::read(&again).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_in_the_making_that_is_not_the_users_own_is_refused() {
        let (dir, store, _, to) = stored();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        symlink(&elsewhere, partial(&to)).unwrap();
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::File { .. })));
        fs::remove_file(partial(&to)).unwrap();
        fs::write(partial(&to), "").unwrap();
        fs::set_permissions(partial(&to), fs::Permissions::from_mode(0o644)).unwrap();
        let open = pull(&store, "disk", &to, None, &callbacks()).unwrap_err();
        assert!(matches!(open, Error::Foreign { why: "others may read or write it", .. }), "{open}");
        fs::remove_file(partial(&to)).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&elsewhere, partial(&to)).unwrap();
        let linked = pull(&store, "disk", &to, None, &callbacks()).unwrap_err();
        assert!(matches!(linked, Error::Foreign { why: "it has a second name", .. }), "{linked}");
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
        fs::remove_file(partial(&to)).unwrap();
        let held = Partial::open(&to).unwrap();
        assert!(matches!(pull(&store, "disk", &to, None, &callbacks()), Err(Error::Busy { .. })));
        drop(held);
        pull(&store, "disk", &to, None, &callbacks()).unwrap();
    }
}
