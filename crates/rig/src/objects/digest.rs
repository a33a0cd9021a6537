//! SHA-256, as requests and manifests have it.

use data_encoding::{BASE64, HEXLOWER};
use ring::digest::{Context, SHA256};

/// A digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sha256([u8; 32]);

impl Sha256 {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// As `sha256sum` prints it.
    pub(crate) fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// As the header `x-amz-checksum-sha256` has it.
    pub(super) fn base64(&self) -> String {
        BASE64.encode(&self.0)
    }
}

/// A digest in the making.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Hasher(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256 {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        Sha256(digest)
    }
}
