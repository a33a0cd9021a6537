//! What a made-up machine says of files that others control: it has no others, so these are as its own.

use std::path::Path;

use crate::{FileIdentity, FileStat};

/// The methods of [`crate::Reader`] for files of others, of a machine that is made up for a test: inside
/// its `impl Reader`. A machine that is real must keep their promise itself.
#[macro_export]
macro_rules! made_up_others {
    () => {
        fn read_start(&self, path: &std::path::Path, most_bytes: usize) -> $crate::Result<Vec<u8>> {
            let mut bytes = $crate::Reader::read(self, path)?;
            bytes.truncate(most_bytes);
            Ok(bytes)
        }
        fn cached_bytes(&self, _path: &std::path::Path) -> $crate::Result<Option<u64>> {
            Ok(None)
        }
        fn read_foreign(&self, path: &std::path::Path, most_bytes: usize) -> $crate::Result<Vec<u8>> {
            let bytes = $crate::Reader::read(self, path)?;
            let source = std::io::ErrorKind::FileTooLarge.into();
            let node = $crate::Reader::name(self).into();
            let error = || $crate::Error::File { node, what: "read", path: path.into(), source };
            if bytes.len() > most_bytes { Err(error()) } else { Ok(bytes) }
        }
        fn read_trusted(&self, path: &std::path::Path, most_bytes: usize) -> $crate::Result<Vec<u8>> {
            $crate::Reader::read_start(self, path, most_bytes)
        }
        fn list_foreign(&self, dir: &std::path::Path) -> $crate::Result<Vec<String>> {
            $crate::Reader::list(self, dir)
        }
        fn stat_foreign(&self, path: &std::path::Path) -> $crate::Result<Option<$crate::FileStat>> {
            $crate::Reader::stat(self, path)
        }
        fn link_foreign(&self, path: &std::path::Path) -> $crate::Result<Option<std::path::PathBuf>> {
            $crate::Reader::link(self, path)
        }
        fn opened(&self, pid: u32, fd: u32) -> $crate::Result<Option<$crate::Opened>> {
            let Some(to) = $crate::Reader::link(self, std::path::Path::new(&format!("/proc/{pid}/fd/{fd}")))? else {
                return Ok(None);
            };
            let stat = $crate::Reader::stat(self, &to)?;
            let is = |stat| $crate::fake::made_identity(&to, stat);
            Ok(stat.map(|stat| $crate::Opened { pid, fd, is: is(stat), readable: true }))
        }
        fn peek(&self, at: &$crate::At, most_bytes: usize) -> $crate::Result<$crate::Peek> {
            let path = match at {
                $crate::At::Path(path) => path.clone(),
                $crate::At::Open(o) => {
                    let link = format!("/proc/{}/fd/{}", o.pid, o.fd);
                    $crate::Reader::link(self, std::path::Path::new(&link))?.unwrap_or_default()
                }
            };
            let mut start = match most_bytes {
                0 => Vec::new(),
                _ => $crate::Reader::read_foreign(self, &path, $crate::FOREIGN_BYTES)?,
            };
            start.truncate(most_bytes);
            Ok($crate::Peek::made_up(start, $crate::Reader::cached_bytes(self, &path), path))
        }
    };
}

/// An identity for a made-up machine, whose files have none but the path.
pub fn made_identity(path: &Path, stat: FileStat) -> FileIdentity {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    let deleted = path.to_string_lossy().ends_with(" (deleted)");
    FileIdentity { stat, inode: hash.finish(), links: u64::from(!deleted) }
}
