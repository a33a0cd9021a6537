//! An image is stored: one thread reads it and computes the digests, others send the parts that the server lacks from
//! the file, so no part is ever in memory.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::OFlags;

use super::digest::{Hasher, Sha256};
use super::manifest::{self, Manifest};
use super::retry::with_retries;
use super::{AT_ONCE, Callbacks, Error, Part, PartToSend, Result, Span, Store, Transfer, file_error};

/// Bytes that are read at once for the digests.
const BUFFER: usize = 1 << 20;

/// An image that is sent, and what of it has gone.
struct Sending<'a> {
    store: &'a dyn Store,
    key: &'a str,
    upload: &'a str,
    image: &'a File,
    path: &'a Path,
    size_bytes: u64,
    callbacks: &'a Callbacks<'a>,
    sent: Mutex<BTreeMap<u32, Part>>,
    done_bytes: AtomicU64,
    failed: Mutex<Option<Error>>,
    is_over: AtomicBool,
}

/// Stores an image: a file or a block device. It becomes an object only as a whole, and its manifest is written last.
///
/// # Errors
/// Why it was not stored. What was sent is kept by the server, and the next push of the image goes on from there.
pub fn push(store: &dyn Store, key: &str, path: &Path, callbacks: &Callbacks<'_>) -> Result<Transfer> {
    // Does not wait at a pipe.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let image = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(file_error("open", path))?;
    let before = image.metadata().map_err(file_error("read", path))?;
    let size_bytes = (&image).seek(SeekFrom::End(0)).map_err(file_error("read", path))?;
    if size_bytes == 0 {
        return Err(Error::Empty { path: path.into() });
    }
    let pause = callbacks.pause;
    let upload = match with_retries(pause, |_| store.unfinished(key))? {
        Some(upload) => upload,
        None => with_retries(pause, |_| store.begin(key))?,
    };
    let there: BTreeMap<u32, Part> =
        with_retries(pause, |_| store.parts(key, &upload))?.into_iter().map(|part| (part.number, part)).collect();
    let sending = Sending {
        store,
        key,
        upload: &upload,
        image: &image,
        path,
        size_bytes,
        callbacks,
        sent: Mutex::default(),
        done_bytes: AtomicU64::new(0),
        failed: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let (manifest, kept) = sending.all(there)?;
    let kept_bytes: u64 = kept.iter().map(|part| part.size_bytes).sum();
    let mut parts = sending.sent.into_inner().unwrap_or_else(PoisonError::into_inner);
    parts.extend(kept.into_iter().map(|part| (part.number, part)));
    let parts: Vec<Part> = parts.into_values().collect();
    let after = image.metadata().map_err(file_error("read", path))?;
    if state(&before) != state(&after) {
        return Err(Error::Changed { path: path.into() });
    }
    with_retries(pause, |_| store.complete(key, &upload, &parts))?;
    let mut is_synced = store.sync(key)?;
    let stored = with_retries(pause, |_| store.stat(key))?.size_bytes;
    if stored != size_bytes {
        let why = format!("{stored} bytes instead of {size_bytes}");
        return Err(Error::Corrupt { what: key.to_owned(), why });
    }
    let text =
        serde_json::to_vec(&manifest).map_err(|e| Error::Manifest { what: key.to_owned(), why: e.to_string() })?;
    let name = manifest::key(key);
    with_retries(pause, |_| store.put(&name, &text))?;
    is_synced &= store.sync(&name)?;
    let manifest_sha256 = Sha256::of(&text).hex();
    Ok(Transfer { moved_bytes: size_bytes - kept_bytes, kept_bytes, is_synced, manifest, manifest_sha256 })
}

/// What changes when an image is written.
fn state(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

impl Sending<'_> {
    /// Sends all parts that are not there yet; the manifest, and the parts that are.
    fn all(&self, there: BTreeMap<u32, Part>) -> Result<(Manifest, Vec<Part>)> {
        // As many are ready to be sent as are on their way: the digests are never far ahead of what the cache has.
        let (ready, waiting) = sync_channel::<PartToSend>(AT_ONCE);
        let waiting = Mutex::new(waiting);
        let read = thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| self.send_each(&waiting));
            }
            // The threads end when the sender of the channel does.
            let ready = ready;
            self.read(there, |part| ready.send(part).is_ok())
        });
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(why) => Err(why),
            None => read,
        }
    }

    /// Reads the image once, and hands on each part that is not there.
    fn read(
        &self,
        mut there: BTreeMap<u32, Part>,
        hand_on: impl Fn(PartToSend) -> bool,
    ) -> Result<(Manifest, Vec<Part>)> {
        let part_bytes = manifest::part_bytes(self.size_bytes);
        let (mut whole, mut digests, mut kept) = (Hasher::new(), Vec::new(), Vec::new());
        let mut buffer = vec![0; BUFFER];
        let mut from = 0;
        for number in 1.. {
            if from == self.size_bytes || self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let span = Span { from, bytes: part_bytes.min(self.size_bytes - from) };
            let (mut part, mut bytes) = (Hasher::new(), Bytes::new(self.image, span));
            loop {
                let read = bytes.read(&mut buffer).map_err(|e| self.unread(bytes.failed.take().unwrap_or(e)))?;
                if read == 0 {
                    break;
                }
                part.update(&buffer[..read]);
                whole.update(&buffer[..read]);
            }
            let digest = part.finish();
            digests.push(digest.hex());
            from += span.bytes;
            match there.remove(&number).filter(|part| part.is(span.bytes, &digest)) {
                Some(part) => {
                    self.tell(part.size_bytes);
                    kept.push(part);
                }
                None if hand_on(PartToSend { number, span, digest }) => {}
                None => break,
            }
        }
        Ok((Manifest::new(self.size_bytes, whole.finish().hex(), part_bytes, digests), kept))
    }

    /// Sends parts until there are no more, or one cannot be sent.
    fn send_each(&self, waiting: &Mutex<Receiver<PartToSend>>) {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(part) = next else { return };
            // The channel is emptied to its end, so that the reader never waits for nobody.
            if self.is_over.load(Ordering::Relaxed) {
                continue;
            }
            match self.send(&part) {
                Ok(sent) => {
                    self.sent.lock().unwrap_or_else(PoisonError::into_inner).insert(part.number, sent);
                    self.tell(part.span.bytes);
                }
                Err(why) => {
                    self.is_over.store(true, Ordering::Relaxed);
                    self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                }
            }
        }
    }

    fn send(&self, part: &PartToSend) -> Result<Part> {
        with_retries(self.callbacks.pause, |_| {
            let mut bytes = Bytes::new(self.image, part.span);
            let sent = self.store.put_part(self.key, self.upload, part, &mut bytes);
            match (sent, bytes.failed) {
                (Ok(sent), _) => Ok(sent),
                // Not the server is at fault.
                (Err(_), Some(why)) => Err(self.unread(why)),
                (Err(Error::Damaged { .. }), None) if self.has_changed(part) => Err(self.changed()),
                (Err(why), None) => Err(why),
            }
        })
    }

    /// Whether a part is no longer what it was when its digest was computed.
    fn has_changed(&self, part: &PartToSend) -> bool {
        let (mut hasher, mut bytes, mut buffer) = (Hasher::new(), Bytes::new(self.image, part.span), vec![0; BUFFER]);
        while let Ok(read @ 1..) = bytes.read(&mut buffer) {
            hasher.update(&buffer[..read]);
        }
        bytes.failed.is_some() || hasher.finish() != part.digest
    }

    fn changed(&self) -> Error {
        Error::Changed { path: self.path.into() }
    }

    /// The error of an image that cannot be read. One that became shorter was changed.
    fn unread(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof { self.changed() } else { file_error("read", self.path)(error) }
    }

    fn tell(&self, bytes: u64) {
        let done = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.callbacks.progress)(done, self.size_bytes);
    }
}

/// Bytes of an image, read where they are. Why they cannot be read stays here: a client takes it for a failure of the
/// link.
struct Bytes<'a> {
    image: &'a File,
    left: Span,
    failed: Option<io::Error>,
}

impl<'a> Bytes<'a> {
    fn new(image: &'a File, span: Span) -> Self {
        Bytes { image, left: span, failed: None }
    }
}

impl Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left.bytes).unwrap_or(usize::MAX).min(buffer.len());
        if want == 0 {
            return Ok(0);
        }
        let read = match self.image.read_at(&mut buffer[..want], self.left.from) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        match read {
            Ok(read) => {
                self.left.from += read as u64;
                self.left.bytes -= read as u64;
                Ok(read)
            }
            Err(e) => {
                let kind = e.kind();
                self.failed = Some(e);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::super::fake::{Fake, callbacks, image};
    use super::*;

    const PART: u64 = 16 << 20;

    #[test]
    fn an_image_is_stored_whole_with_its_manifest() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let path = dir.path().join("disk");
        let bytes = image(&path, 2 * PART + 5, 1);
        let done = push(&store, "a/disk", &path, &callbacks()).unwrap();
        assert_eq!((done.moved_bytes, done.kept_bytes), (2 * PART + 5, 0));
        assert_eq!(store.object("a/disk"), bytes);
        let manifest = Manifest::read(&store.object("a/disk.vmio.json")).unwrap();
        assert_eq!((manifest.part_sha256.len(), &manifest), (3, &done.manifest));
        assert_eq!(manifest.sha256, Sha256::of(&bytes).hex());
        assert!(store.is_tidy() && done.is_synced, "no upload is left");
    }

    #[test]
    fn what_the_server_has_is_not_sent_again() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let path = dir.path().join("disk");
        let bytes = image(&path, 3 * PART, 1);
        // Cut for good after two parts.
        store.cut_after(2);
        assert!(matches!(push(&store, "disk", &path, &callbacks()), Err(Error::Unreachable { .. })));
        assert!(
            store.find("disk").is_none() && store.find("disk.vmio.json").is_none(),
            "only whole images have a name"
        );
        store.mend();
        let done = push(&store, "disk", &path, &callbacks()).unwrap();
        assert_eq!((done.moved_bytes, done.kept_bytes), (PART, 2 * PART));
        assert_eq!(store.object("disk"), bytes);
        // Parts of another image are not taken for those of this one.
        store.cut_after(2);
        push(&store, "disk", &path, &callbacks()).unwrap_err();
        store.mend();
        let other = image(&path, 3 * PART, 2);
        assert_eq!(push(&store, "disk", &path, &callbacks()).unwrap().kept_bytes, 0);
        assert_eq!(store.object("disk"), other);
    }

    #[test]
    fn a_short_cut_is_waited_for_and_a_full_server_is_not() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let path = dir.path().join("disk");
        let bytes = image(&path, 2 * PART, 1);
        store.fail_next(2, || Error::Late { server: "S".into() });
        push(&store, "disk", &path, &callbacks()).unwrap();
        assert_eq!(store.object("disk"), bytes);
        store.fail_next(99, || Error::Full { server: "S".into(), code: "InsufficientStorage".into() });
        assert!(matches!(push(&store, "new", &path, &callbacks()), Err(Error::Full { .. })));
        assert!(store.find("new").is_none());
    }

    #[test]
    fn an_image_that_changes_meanwhile_is_not_stored() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let path = dir.path().join("disk");
        let other = vec![7_u8; usize::try_from(PART).unwrap()];
        for written in [b"shorter".as_slice(), &other] {
            image(&path, PART, 1);
            let (file, bytes) = (path.clone(), written.to_owned());
            store.before_part(move || fs::write(&file, &bytes).unwrap());
            let why = push(&store, "disk", &path, &callbacks()).unwrap_err();
            assert!(matches!(why, Error::Changed { .. }), "{why}");
            assert!(store.find("disk").is_none());
        }
        fs::write(&path, "").unwrap();
        assert!(matches!(push(&store, "disk", &path, &callbacks()), Err(Error::Empty { .. })));
    }

    #[test]
    fn a_pipe_is_no_image_and_is_not_waited_for() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Fake::default());
        let path = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(matches!(push(&store, "disk", &path, &callbacks()), Err(Error::File { what: "read", .. })));
        assert!(store.is_tidy());
    }
}
