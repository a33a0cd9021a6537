//! A guard's listening sockets: a Unix socket for its owner and one group, and TCP with a token.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, chmodat, chownat, statat, unlinkat};
use rustix::process::{geteuid, umask};

/// The token that TCP clients must send.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Least length: 128 bits in hexadecimal.
    pub const LEAST: usize = 32;

    /// From a text, which is trimmed; `None` where it is shorter than 128 bits in hexadecimal, or has blanks.
    pub fn of(text: &str) -> Option<Token> {
        let text = text.trim();
        (text.len() >= Token::LEAST && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Token(text.to_owned()))
    }

    /// Compares in constant time.
    pub fn is(&self, given: &str) -> bool {
        let differ = self.0.bytes().zip(given.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        differ == 0 && self.0.len() == given.len()
    }
}

/// A socket's file, removed on drop.
#[derive(Debug)]
pub struct SocketFile(pub(super) PathBuf);

impl SocketFile {
    /// Removes a dead guard's socket at this path; returns whether the path is free. The caller holds the guard's
    /// ledger, so no other guard is alive.
    ///
    /// # Errors
    /// When the system refuses; with what was tried.
    pub fn clear(path: &Path) -> Result<bool, (&'static str, io::Error)> {
        match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_mode & 0o170_000 == 0o140_000 && stat.st_uid == geteuid().as_raw() => {
                unlinkat(CWD, path, AtFlags::empty()).map_err(|e| ("remove the old socket", e.into())).map(|()| true)
            }
            Ok(_) => Ok(false),
            Err(rustix::io::Errno::NOENT) => Ok(true),
            Err(e) => Err(("look at", e.into())),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // On failure the next guard removes it.
        let _ = SocketFile::clear(&self.0);
    }
}

/// Sockets that wait for connections.
#[derive(Debug)]
pub struct Listeners {
    /// Where the first lies.
    pub file: SocketFile,
    /// For the owner and a group.
    pub unix: UnixListener,
    /// For who has the token.
    pub tcp: Option<(TcpListener, Token)>,
}

impl Listeners {
    /// Opens them. A socket at the path is a dead guard's and is replaced: the caller holds the guard's ledger, so no
    /// other guard is alive. Must be called before there are other threads (umask(2)).
    ///
    /// # Errors
    /// When something else than a socket lies there, or the system refuses; with what it was about.
    pub fn open(
        path: &Path,
        group: Option<u32>,
        tcp: Option<(SocketAddr, Token)>,
    ) -> Result<Listeners, (String, io::Error)> {
        let at = |what: &str| format!("{what} {}", path.display());
        if !SocketFile::clear(path).map_err(|(what, e)| (at(what), e))? {
            let why = "something there is not a socket of vmio";
            return Err((at("listen at"), io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        let before = umask(Mode::from_raw_mode(0o177));
        let unix = UnixListener::bind(path);
        umask(before);
        let unix = unix.map_err(|e| (at("listen at"), e))?;
        let file = SocketFile(path.to_owned());
        if let Some(group) = group {
            chownat(CWD, path, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)
                .and_then(|()| chmodat(CWD, path, Mode::from_raw_mode(0o660), AtFlags::empty()))
                .map_err(|e| (at("give the group"), e.into()))?;
        }
        unix.set_nonblocking(true).map_err(|e| (at("listen at"), e))?;
        let tcp = tcp.map(|(address, token)| -> Result<_, (String, io::Error)> {
            let failed = |e| (format!("listen at {address}"), e);
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Ok((listener, token))
        });
        Ok(Listeners { file, unix, tcp: tcp.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    #[test]
    fn token_length_and_comparison() {
        assert_eq!(Token::of("short"), None);
        assert_eq!(Token::of(&format!("{} {}", "a".repeat(20), "b".repeat(20))), None);
        let token = Token::of(&format!("{}\n", "a".repeat(32))).unwrap();
        assert!(token.is(&"a".repeat(32)));
        for other in [String::new(), "a".repeat(31), "a".repeat(33), format!("{}b", "a".repeat(31))] {
            assert!(!token.is(&other), "{other}");
        }
        assert!(!format!("{token:?}").contains("aaa"));
    }

    #[test]
    fn only_dead_sockets_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard.sock");
        drop(Listeners::open(&path, None, None).unwrap());
        assert!(!path.exists(), "nobody listens there any more");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let again = Listeners::open(&path, None, None).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert!(meta.file_type().is_socket());
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        drop(again);
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let (what, why) = Listeners::open(&file, None, None).unwrap_err();
        assert!(what.contains("file") && why.to_string().contains("is not a socket"), "{what}: {why}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
    }
}
