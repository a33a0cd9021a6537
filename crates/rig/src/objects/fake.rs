//! A store in memory, for tests: it keeps what S3 promises, and fails when it is told to.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;

use super::digest::Sha256;
use super::{Callbacks, Error, Part, PartToSend, Result, Span, Stat, Store};

type Parts = BTreeMap<u32, (Part, Vec<u8>)>;
type Hook = Box<dyn Fn() + Send>;

#[derive(Default)]
struct Kept {
    objects: BTreeMap<String, Vec<u8>>,
    /// Uploads that were begun, by key and identifier.
    uploads: BTreeMap<(String, String), Parts>,
    begun: u32,
    /// Parts that may still pass, either way, before the link is cut for good.
    left: Option<u32>,
    /// Bytes after which an answer breaks off.
    answer_bytes: Option<u64>,
    failures: VecDeque<Error>,
    before_part: Option<Hook>,
}

/// The store.
#[derive(Default)]
pub(super) struct Fake(Mutex<Kept>);

/// An image whose blocks differ.
pub(super) fn image(path: &Path, size_bytes: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size_bytes).unwrap()];
    for (at, block) in bytes.chunks_mut(4096).enumerate() {
        let mark = (at as u64 + 1).wrapping_mul(0x9e37_79b9).wrapping_add(seed).to_le_bytes();
        let length = mark.len().min(block.len());
        block[..length].copy_from_slice(&mark[..length]);
    }
    fs::write(path, &bytes).unwrap();
    bytes
}

/// Without waiting, and telling nothing.
pub(super) fn callbacks() -> Callbacks<'static> {
    Callbacks { pause: &|_| (), progress: &|_, _| () }
}

impl Fake {
    pub(super) fn find(&self, key: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().objects.get(key).cloned()
    }

    pub(super) fn object(&self, key: &str) -> Vec<u8> {
        self.find(key).unwrap()
    }

    pub(super) fn is_tidy(&self) -> bool {
        self.0.lock().unwrap().uploads.is_empty()
    }

    pub(super) fn cut_after(&self, parts: u32) {
        self.0.lock().unwrap().left = Some(parts);
    }

    pub(super) fn end_answers_after(&self, bytes: Option<u64>) {
        self.0.lock().unwrap().answer_bytes = bytes;
    }

    pub(super) fn mend(&self) {
        self.0.lock().unwrap().left = None;
    }

    /// The next parts that are sent fail.
    pub(super) fn fail_next(&self, times: usize, error: fn() -> Error) {
        self.0.lock().unwrap().failures = (0..times).map(|_| error()).collect();
    }

    pub(super) fn before_part(&self, hook: impl Fn() + Send + 'static) {
        self.0.lock().unwrap().before_part = Some(Box::new(hook));
    }

    pub(super) fn spoil(&self, key: &str) {
        self.0.lock().unwrap().objects.get_mut(key).unwrap()[0] ^= 1;
    }

    pub(super) fn shorten(&self, key: &str) {
        self.0.lock().unwrap().objects.get_mut(key).unwrap().pop();
    }

    fn absent(&self, key: &str) -> Error {
        Error::NotThere { server: self.server(), what: key.to_owned() }
    }

    fn gone(&self) -> Error {
        Error::NoUpload { server: self.server() }
    }

    /// Counts a part that passes the link.
    fn pass(&self) -> Result<()> {
        match &mut self.0.lock().unwrap().left {
            Some(0) => Err(Error::Unreachable { server: self.server(), why: "it is cut".into() }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Store for Fake {
    fn server(&self) -> String {
        "FAKE".into()
    }

    fn make_bucket(&self) -> Result<()> {
        Ok(())
    }

    fn unfinished(&self, key: &str) -> Result<Option<String>> {
        let kept = self.0.lock().unwrap();
        Ok(kept.uploads.keys().rfind(|(of, _)| of == key).map(|(_, id)| id.clone()))
    }

    fn begin(&self, key: &str) -> Result<String> {
        let mut kept = self.0.lock().unwrap();
        kept.begun += 1;
        let id = format!("upload {}", kept.begun);
        kept.uploads.insert((key.into(), id.clone()), Parts::new());
        Ok(id)
    }

    fn parts(&self, key: &str, upload: &str) -> Result<Vec<Part>> {
        let kept = self.0.lock().unwrap();
        let parts = kept.uploads.get(&(key.to_owned(), upload.to_owned())).ok_or_else(|| self.gone())?;
        Ok(parts.values().map(|(part, _)| part.clone()).collect())
    }

    fn put_part(&self, key: &str, upload: &str, part: &PartToSend, body: &mut dyn Read) -> Result<Part> {
        if let Some(error) = self.0.lock().unwrap().failures.pop_front() {
            return Err(error);
        }
        if let Some(hook) = self.0.lock().unwrap().before_part.take() {
            hook();
        }
        self.pass()?;
        let mut bytes = Vec::new();
        let broken = |e: std::io::Error| Error::Unreachable { server: self.server(), why: e.to_string() };
        body.read_to_end(&mut bytes).map_err(broken)?;
        if Sha256::of(&bytes) != part.digest || bytes.len() as u64 != part.span.bytes {
            return Err(Error::Damaged { server: self.server(), code: "BadDigest".into() });
        }
        let made = Part {
            number: part.number,
            size_bytes: part.span.bytes,
            etag: format!("\"{}\"", part.digest.hex()),
            sha256: part.digest.base64(),
        };
        let mut kept = self.0.lock().unwrap();
        let parts = kept.uploads.get_mut(&(key.to_owned(), upload.to_owned())).ok_or_else(|| self.gone())?;
        parts.insert(part.number, (made.clone(), bytes));
        Ok(made)
    }

    fn complete(&self, key: &str, upload: &str, parts: &[Part]) -> Result<()> {
        let mut kept = self.0.lock().unwrap();
        let id = (key.to_owned(), upload.to_owned());
        let there = kept.uploads.get(&id).ok_or_else(|| self.gone())?;
        let mut object = Vec::new();
        for part in parts {
            let (same, bytes) =
                there.get(&part.number).filter(|(p, _)| p.etag == part.etag).ok_or_else(|| self.gone())?;
            assert_eq!(same, part);
            object.extend(bytes);
        }
        kept.uploads.remove(&id);
        kept.objects.insert(key.into(), object);
        Ok(())
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().objects.insert(key.into(), bytes.to_owned());
        Ok(())
    }

    fn get(&self, key: &str, most_bytes: u64) -> Result<Vec<u8>> {
        let bytes = self.find(key).ok_or_else(|| self.absent(key))?;
        assert!(bytes.len() as u64 <= most_bytes);
        Ok(bytes)
    }

    fn stat(&self, key: &str) -> Result<Stat> {
        let bytes = self.find(key).ok_or_else(|| self.absent(key))?;
        Ok(Stat { size_bytes: bytes.len() as u64, etag: Some(Sha256::of(&bytes).hex()) })
    }

    fn sync(&self, key: &str) -> Result<bool> {
        self.find(key).map(|_| true).ok_or_else(|| self.absent(key))
    }

    fn range(
        &self,
        key: &str,
        span: Span,
        etag: Option<&str>,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.pass()?;
        let bytes = self.find(key).ok_or_else(|| self.absent(key))?;
        if etag.is_some_and(|etag| etag != Sha256::of(&bytes).hex()) {
            return Err(Error::Replaced { server: self.server(), what: key.to_owned() });
        }
        let from = usize::try_from(span.from).unwrap();
        let answered = self.0.lock().unwrap().answer_bytes.unwrap_or(span.bytes).min(span.bytes);
        bytes[from..from + usize::try_from(answered).unwrap()].chunks(100_000).try_for_each(sink)?;
        if answered < span.bytes {
            return Err(Error::Unreachable { server: self.server(), why: "it ended an answer early".into() });
        }
        Ok(())
    }
}
