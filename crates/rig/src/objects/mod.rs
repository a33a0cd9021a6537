//! Guest images in an object store (S3): an image is an object of its bytes, uploaded in parts, and beside it a manifest
//! with the SHA-256 of each part ([`Manifest`]). What was cut off continues: `push` asks the server which parts it
//! has, `pull` checks those that are there. docs/image.md.
//!
//! The server is not vmio's, so its answers are trusted as little as its data: sizes are limited, every request has a
//! limit of time, and an image takes its name only after all of its parts have the digests of the manifest.

mod address;
mod client;
mod credentials;
mod digest;
mod disk;
mod forward;
mod local;
mod manifest;
mod partial;
mod pull;
mod push;
mod retry;
mod sign;
mod xml;

#[cfg(test)]
mod fake;

use std::io;
use std::path::{Path, PathBuf};

pub use address::{Endpoint, Url};
pub use client::{Client, Connection};
pub use credentials::Credentials;
pub use disk::{Disk, Way};
pub use local::{Served, Server};
pub use manifest::Manifest;
pub use pull::pull;
pub use push::push;

pub(crate) use digest::Hasher;
use digest::Sha256;

/// How many parts are on their way at once.
const AT_ONCE: usize = 4;

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image was not stored or fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Error {
    #[error("{0} names no image in an object store: give s3://BUCKET/NAME, the name in letters, digits and ._-/")]
    Url(String),
    #[error("{0} is no address of a server: give https://HOST[:PORT], without a path and without a password")]
    Endpoint(String),
    #[error(
        "no server is named, and `vmio image serve` serves none now: give --endpoint https://HOST[:PORT], or set \
         AWS_ENDPOINT_URL"
    )]
    NoEndpoint,
    #[error("no program versitygw in PATH: `scripts/setup store` builds it (github.com/versity/versitygw, Apache-2.0)")]
    NoServer,
    #[error("the store is not served: {why}")]
    NotStarted { why: String },
    #[error("no program nbdkit in PATH: apt install nbdkit")]
    NoNbdkit,
    #[error("the disk is not served: {why}")]
    NotOpened { why: String },
    #[error(
        "its file is not on this host: without --in-place it is read from the server; with it, the store is the one of \
         `vmio image serve`, and neither --endpoint nor AWS_ENDPOINT_URL names another"
    )]
    NotHere,
    #[error("{server} has another object as {what} now: open it again, and push images under new names")]
    Replaced { server: String, what: String },
    #[error("another vmio serves a store now, with its key in {}: end it, or give this one another --state", home.display())]
    Serving { home: PathBuf },
    #[error(
        "{0} is another host, and images over http:// can be read and changed on the way: give https://, or \
         --insecure-http in a network that you trust"
    )]
    InClear(String),
    #[error(
        "there are no credentials: name a file with --credentials FILE, or set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials,
    #[error("{}: {why}", path.display())]
    Credentials { path: PathBuf, why: String },
    #[error("this host has no file of trusted certificates: name one with --ca FILE")]
    NoRoots,
    #[error("{}: {why}; --ca wants a file of certificates in PEM", path.display())]
    BadRoots { path: PathBuf, why: String },
    #[error("{server} is not trusted: {why}; name the certificate that signed its own with --ca FILE")]
    NotTrusted { server: String, why: String },
    #[error("{server} refuses the credentials ({code}): check the key, its secret, and what it may do with {what}")]
    Refused { server: String, what: String, code: String },
    #[error("{server} says that the clocks differ by too much: set the time of this host and of the server")]
    Clock { server: String },
    #[error("{server} has no bucket {bucket}: make it with --make-bucket, or name another")]
    NoBucket { server: String, bucket: String },
    #[error("{server} has no {what}")]
    NotThere { server: String, what: String },
    #[error("{server} knows the unfinished upload no more: run the same command again")]
    NoUpload { server: String },
    #[error("{server} is out of space ({code}): free some there; the same command then sends only what is missing")]
    Full { server: String, code: String },
    #[error("{server} got other bytes than were sent ({code}): run the same command again; memory or a link is faulty")]
    Damaged { server: String, code: String },
    #[error("{server} answers {status} {code}")]
    Status { server: String, status: u16, code: String },
    #[error("{server} did not answer in time: the same command continues where this one ended")]
    Late { server: String },
    #[error("{server} cannot be reached: {why}; the same command continues where this one ended")]
    Unreachable { server: String, why: String },
    #[error("{server} answered with what S3 does not: {why}")]
    Nonsense { server: String, why: String },
    #[error("{what} is no manifest of an image: {why}; push the image again")]
    Manifest { what: String, why: String },
    #[error("{what} has the SHA-256 {found}, not the one that was named: another image was pushed under this name")]
    OtherManifest { what: String, found: String },
    #[error("{what} is not what its manifest says ({why}): push the image again")]
    Corrupt { what: String, why: String },
    #[error("{} is empty", path.display())]
    Empty { path: PathBuf },
    #[error("{} was changed while it was sent, so nothing was stored: stop the guest that writes it", path.display())]
    Changed { path: PathBuf },
    #[error(transparent)]
    Untrusted(vmio_node::Error),
    #[error("{} exists: name another file, or remove it", path.display())]
    Exists { path: PathBuf },
    #[error("{} is not this user's own ({why}): remove it", path.display())]
    Foreign { path: PathBuf, why: &'static str },
    #[error("another vmio fetches {} now", path.display())]
    Busy { path: PathBuf },
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    /// Whether the same request may succeed later.
    fn is_passing(&self) -> bool {
        match self {
            Error::Late { .. } | Error::Unreachable { .. } => true,
            Error::Status { status, code, .. } => {
                matches!(status, 429 | 500 | 502 | 503 | 504) || code == "RequestTimeout"
            }
            _ => false,
        }
    }

    /// Whether it is about the command line.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Url(_) | Error::NoEndpoint | Error::Endpoint(_) | Error::InClear(_) | Error::NotHere)
    }

    /// Whether something is missing before the first request.
    pub fn is_precondition(&self) -> bool {
        matches!(
            self,
            Error::NoCredentials
                | Error::Credentials { .. }
                | Error::NoRoots
                | Error::BadRoots { .. }
                | Error::NoServer
                | Error::NoNbdkit
                | Error::Untrusted(_)
                | Error::Serving { .. }
        )
    }
}

/// Makes the error of a file operation.
fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}

/// A part of an upload, as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    number: u32,
    size_bytes: u64,
    /// The server's own name of these bytes.
    etag: String,
    /// Its SHA-256 in base64; empty where the server has none.
    sha256: String,
}

impl Part {
    /// Whether it is what an image has there.
    fn is(&self, size_bytes: u64, digest: &Sha256) -> bool {
        self.size_bytes == size_bytes && self.sha256 == digest.base64()
    }
}

/// An object, as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    size_bytes: u64,
    /// The server's own name of these bytes: another one once the object is replaced.
    etag: Option<String>,
}

/// Bytes of an object or of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where they begin.
    from: u64,
    /// How many they are.
    bytes: u64,
}

/// What is asked of a store: a bucket of a server. Each call is one request, which ends within a limit of time.
pub trait Store: Sync {
    /// The server, for errors.
    fn server(&self) -> String;
    /// Makes the bucket, unless this user has it.
    ///
    /// # Errors
    /// As all of these: what the server says, or that it says nothing.
    fn make_bucket(&self) -> Result<()>;
    /// The upload of an object that began last and whose parts have digests.
    fn unfinished(&self, key: &str) -> Result<Option<String>>;
    /// Begins an upload.
    fn begin(&self, key: &str) -> Result<String>;
    /// Parts that the server has of an upload.
    fn parts(&self, key: &str, upload: &str) -> Result<Vec<Part>>;
    /// Sends a part, which the server checks.
    fn put_part(&self, key: &str, upload: &str, part: &PartToSend, body: &mut dyn io::Read) -> Result<Part>;
    /// Makes an object of its parts.
    fn complete(&self, key: &str, upload: &str, parts: &[Part]) -> Result<()>;
    /// Stores a small object.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()>;
    /// A small object.
    fn get(&self, key: &str, most_bytes: u64) -> Result<Vec<u8>>;
    /// What an object is, without its bytes.
    fn stat(&self, key: &str) -> Result<Stat>;
    /// Forces an object to the disk, where that is not the server's own matter; whether it did.
    fn sync(&self, key: &str) -> Result<bool>;
    /// Bytes of an object, in order; all of them, or an error. With an ETag only those of the object that has it.
    fn range(&self, key: &str, span: Span, etag: Option<&str>, sink: &mut dyn FnMut(&[u8]) -> Result<()>)
    -> Result<()>;
}

/// A part that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct PartToSend {
    number: u32,
    span: Span,
    digest: Sha256,
}

/// What was done, beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What the image is.
    pub manifest: Manifest,
    /// SHA-256 of the manifest as it is stored: it stands for all parts, so for all bytes of the image.
    pub manifest_sha256: String,
    /// Bytes that went over the link.
    pub moved_bytes: u64,
    /// Bytes that were there from an earlier try.
    pub kept_bytes: u64,
    /// Whether it is known to be on a disk: a file that was fetched, or an object of a store of this host.
    pub is_synced: bool,
}

/// How a transfer waits and tells.
pub struct Callbacks<'a> {
    /// Waits before a request is repeated.
    pub pause: &'a (dyn Fn(std::time::Duration) + Sync),
    /// Told how many bytes are done, of how many.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}
