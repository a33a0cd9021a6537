//! A key that two hosts share, as QEMU reads it (`tls-creds-psk`, qapi/crypto.json): a file `keys.psk` with a line
//! `NAME:KEY`. The name is that of the host which may have the volume.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::{Error, OTHERS, Result};

/// Name of the file: QEMU is told the directory alone (`QCRYPTO_TLS_CREDS_PSKFILE`).
const FILE: &str = "keys.psk";
/// Longest file that is read.
const MOST_BYTES: u64 = 4096;
/// Letters of a host's name.
const HOST: std::ops::RangeInclusive<usize> = 1..=64;
/// Hexadecimal digits of a key: 128 bits at least.
const DIGITS: std::ops::RangeInclusive<usize> = 32..=512;

/// Why a file is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unfit {
    #[error("QEMU finds it only by the name keys.psk; help: give each key a directory of its own")]
    Name,
    #[error("it is not a file")]
    NoFile,
    #[error("it belongs to user {0}")]
    Owner(u32),
    #[error("others may read it; help: chmod 600 it")]
    Mode,
    #[error("others may change the directory in which it lies, or one above")]
    Directory,
    #[error(
        "it has to be one line NAME:KEY, with 32 to 512 hexadecimal digits; help: psktool -u NAME -p keys.psk makes \
             one (apt install gnutls-bin)"
    )]
    Content,
}

/// A key, of which only the place is kept: QEMU and its servers read it themselves.
#[derive(Debug, Clone)]
pub struct Key {
    /// Name of the host that may have the volume.
    pub host: String,
    directory: String,
}

impl Key {
    /// The key in a file of this user's alone, in a directory that nobody else can write.
    ///
    /// # Errors
    /// It is none of these.
    pub fn open(path: &Path) -> Result<Self> {
        let unfit = |why| Error::Key { path: path.into(), why };
        let failed = |what, source| Error::File { what, path: path.into(), source };
        if path.file_name() != Some(OsStr::new(FILE)) {
            return Err(unfit(Unfit::Name));
        }
        let path = std::path::absolute(path).map_err(|e| failed("find", e))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = vmio_node::trusted_dir(parent).map_err(|e| match e {
            vmio_node::Error::Untrusted { .. } => unfit(Unfit::Directory),
            e => Error::Node(Box::new(e)),
        })?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, directory.join(FILE), flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP => unfit(Unfit::NoFile),
            e => failed("open", e.into()),
        })?;
        let stat = fstat(&file).map_err(|e| failed("read", e.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(unfit(Unfit::NoFile));
        }
        if stat.st_uid != geteuid().as_raw() {
            return Err(unfit(Unfit::Owner(stat.st_uid)));
        }
        if stat.st_mode & OTHERS != 0 {
            return Err(unfit(Unfit::Mode));
        }
        let mut bytes = Vec::new();
        File::from(file).take(MOST_BYTES).read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| unfit(Unfit::Content))?;
        let host = host(text).ok_or_else(|| unfit(Unfit::Content))?.to_owned();
        // One that is no text would not reach QEMU as it is.
        let directory = directory.to_str().ok_or_else(|| failed("use", ErrorKind::InvalidFilename.into()))?.to_owned();
        Ok(Key { host, directory })
    }

    /// Arguments of a server that lets in a client with the key alone.
    pub(super) fn server(&self) -> [String; 2] {
        // QEMU's options double a comma.
        let directory = self.directory.replace(',', ",,");
        let object = format!("--object=tls-creds-psk,id=tls0,endpoint=server,dir={directory}");
        [object, "--tls-creds=tls0".to_owned()]
    }

    /// What QEMU makes of it for a client.
    pub(super) fn client(&self, id: &str) -> Value {
        json!({
            "qom-type": "tls-creds-psk", "id": id, "endpoint": "client", "dir": self.directory,
            "username": self.host,
        })
    }
}

/// The host of the only line.
fn host(text: &str) -> Option<&str> {
    let (host, key) = text.strip_suffix('\n').unwrap_or(text).split_once(':')?;
    let is_host = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let is_key = key.len().is_multiple_of(2) && key.bytes().all(|b| b.is_ascii_hexdigit());
    (is_host && HOST.contains(&host.len()) && is_key && DIGITS.contains(&key.len())).then_some(host)
}

/// Refuses to send in clear what leaves the host.
pub(super) fn refuse_clear(at: SocketAddr, key: Option<&Key>) -> Result<()> {
    if key.is_some() || at.ip().is_loopback() { Ok(()) } else { Err(Error::Clear { at }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_key_is_one_line_with_a_host_and_128_bits() {
        let key = "0123456789abcdefABCDEF0123456789";
        assert_eq!(host(&format!("web-2.lan:{key}")), Some("web-2.lan"));
        assert_eq!(host(&format!("web2:{key}\n")), Some("web2"));
        let two = format!("web2:{key}\nweb3:{key}\n");
        for bad in ["", "web2", &format!(":{key}"), &format!("web 2:{key}"), &format!("web2:{}", &key[2..]), &two] {
            assert_eq!(host(bad), None, "{bad}");
        }
        for bad in [format!("web2:{key}0"), format!("web2:{}zz", &key[2..]), format!("{}:{key}", "w".repeat(65))] {
            assert_eq!(host(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_that_others_may_read_or_that_lies_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |bits| fs::set_permissions(at(FILE), fs::Permissions::from_mode(bits)).unwrap();
        let unfit = || match Key::open(&at(FILE)) {
            Err(Error::Key { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        fs::write(at(FILE), format!("web2:{}\n", "5a".repeat(32))).unwrap();
        mode(0o640);
        assert_eq!(unfit(), Unfit::Mode);
        mode(0o600);
        let key = Key::open(&at(FILE)).unwrap();
        assert_eq!(key.host, "web2");
        let shown = [key.server().join(" "), key.client("k").to_string()].join(" ");
        assert!(shown.contains("endpoint=server,dir=/") && shown.contains("web2"), "{shown}");
        assert!(!shown.contains("5a5a"), "the key itself is told to nobody: {shown}");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(unfit(), Unfit::Directory);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(at("other.psk"), "").unwrap();
        assert!(matches!(Key::open(&at("other.psk")), Err(Error::Key { why: Unfit::Name, .. })));
        fs::write(at(FILE), "web2:5a\n").unwrap();
        assert_eq!(unfit(), Unfit::Content);
        fs::remove_file(at(FILE)).unwrap();
        symlink("other.psk", at(FILE)).unwrap();
        assert_eq!(unfit(), Unfit::NoFile);
    }

    #[test]
    fn only_this_host_is_served_in_clear() {
        for (at, is_clear) in [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("192.0.2.1:1", false)] {
            assert_eq!(refuse_clear(at.parse().unwrap(), None).is_ok(), is_clear, "{at}");
        }
    }
}
