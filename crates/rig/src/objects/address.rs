//! What the user names: an image (`s3://BUCKET/NAME`) and the server that has it.

use std::net::SocketAddr;
use std::str::FromStr;

use super::{Error, Result, manifest};
use crate::https::Origin;

/// Longest name. S3 takes 1024 bytes, of which the manifest's end needs some.
const MOST_KEY_BYTES: usize = 900;

/// An image in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) bucket: String,
    pub(super) key: String,
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::Url(text.to_owned());
        let (bucket, key) = text.strip_prefix("s3://").and_then(|rest| rest.split_once('/')).ok_or_else(refused)?;
        // Amazon S3 User Guide, "General purpose bucket naming rules".
        let is_edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let of_bucket = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
        let bytes = bucket.as_bytes();
        let is_bucket = (3..=63).contains(&bytes.len())
            && bucket.bytes().all(of_bucket)
            && is_edge(bytes.first())
            && is_edge(bytes.last());
        // A server may have objects as files: no name leads out of the bucket, none is hidden there.
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.');
        let is_key = key.len() <= MOST_KEY_BYTES
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b))
            && key.split('/').all(is_name)
            && !key.ends_with(manifest::END);
        if !is_bucket || !is_key {
            return Err(refused());
        }
        Ok(Url { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

impl Url {
    /// The name of the image in its bucket.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(pub(super) Origin);

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Origin::parse(text).map(Endpoint).map_err(Error::Endpoint)
    }
}

impl Endpoint {
    /// A server of this host.
    pub(super) fn of_this_host(address: SocketAddr) -> Self {
        Endpoint(Origin::of_this_host(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_bucket_and_a_name() {
        let of = |text: &str| text.parse::<Url>().map(|url| (url.bucket.clone(), url.key.clone(), url.to_string()));
        for good in ["s3://images/web1.qcow2", "s3://my.images-2/debian/12/disk_1.raw"] {
            assert!(matches!(of(good), Ok((_, _, shown)) if shown == good), "{good}");
        }
        assert!(matches!(of("s3://abc/a/b"), Ok((bucket, key, _)) if bucket == "abc" && key == "a/b"));
        let long = format!("s3://images/{}", "x".repeat(MOST_KEY_BYTES + 1));
        for bad in [
            "",
            "images/web1",
            "s3://images",
            "s3://images/",
            "s3://im/a",
            "s3://Images/a",
            "s3://-images/a",
            "s3://a b/c",
            "s3://images//a",
            "s3://images/../a",
            "s3://images/a/./b",
            "s3://images/a b",
            "s3://images/a\u{1b}[2J",
            "s3://images/.sgwtmp/x",
            "s3://images/a?b",
            "s3://images/a.vmio.json",
            "https://images/a",
            &long,
        ] {
            assert!(matches!(of(bad), Err(Error::Url(_))), "{bad}");
        }
    }

    #[test]
    fn a_server_has_neither_path_nor_password() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|server| server.to_string());
        assert!(matches!(shown("http://127.0.0.1:7070/"), Ok(text) if text == "http://127.0.0.1:7070"));
        assert!(matches!(shown("s3.example.org"), Err(Error::Endpoint(_))));
        assert!(
            matches!(shown("https://key:secret@s3.example.org"), Err(Error::Endpoint(text)) if !text.contains("secret"))
        );
    }
}
