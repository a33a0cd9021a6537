//! The file with findings to ignore: `/etc/vmio/scan.toml` for root, `vmio/scan.toml` in the XDG configuration
//! directory for others, or the one that `--config` names.
//!
//! What it says decides what an operator gets to see. So it is read only if it belongs to root or to
//! this user and nobody else may write it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags, open};
use vmio_model::failure::{Exit, Failure};
use vmio_model::ignores;

use super::pick::Ignore;

/// Largest configuration file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The findings that the configuration ignores. `named` is the file of the command line; the default one may be
/// missing.
pub fn read(named: Option<&Path>, default: Option<&Path>) -> anyhow::Result<Vec<Ignore>> {
    let Some(path) = named.or(default) else { return Ok(Vec::new()) };
    let text = match text(path, MOST_BYTES) {
        Err(e) if named.is_none() && is_not_ours(&e) => return Ok(Vec::new()),
        found => found?,
    };
    let file = path.display().to_string();
    let words = ignores::parse(&file, &text, &Ignore::problem)
        .map_err(|e| Failure::new(Exit::Usage, e.to_string()).help("docs/scan.md describes this file"))?;
    let entry = |word: String| Ok(Ignore { from: file.clone(), ..word.parse::<Ignore>()? });
    words.into_iter().map(entry).collect::<Result<_, Failure>>().map_err(Into::into)
}

/// The default file is missing, or in the home of another user (`su` keeps HOME): nothing is ignored then.
fn is_not_ours(e: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    e.downcast_ref::<std::io::Error>().is_some_and(|e| matches!(e.kind(), NotFound | PermissionDenied))
}

/// The text of a file that belongs to root or this user and that nobody else may write.
pub fn text(path: &Path, most_bytes: u64) -> anyhow::Result<String> {
    let name = path.display();
    let refused = |why: &str, help: &str| Failure::new(Exit::Usage, format!("{name} {why}")).help(help);
    // O_NONBLOCK: opening a pipe would block otherwise.
    let opened = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
    let file = File::from(
        opened
            .map_err(std::io::Error::from)
            .with_context(|| refused("cannot be read", "name a file that this user may read"))?,
    );
    let stat = file.metadata().with_context(|| format!("cannot read {name}"))?;
    if !stat.is_file() {
        return Err(refused("is not a regular file", "name a file").into());
    }
    let user = rustix::process::geteuid().as_raw();
    if stat.uid() != 0 && stat.uid() != user {
        let why = format!("belongs to another user ({})", stat.uid());
        return Err(refused(&why, "it must belong to root or to the user who runs vmio: chown it").into());
    }
    if stat.mode() & 0o022 != 0 {
        let help = format!("only its owner may write it: chmod go-w {name}");
        return Err(refused("can be written by others", &help).into());
    }
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > most_bytes {
        return Err(refused("is too large", "name the right file").into());
    }
    String::from_utf8(bytes).map_err(|_| refused("is not UTF-8 text", "name the right file").into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_file_of_our_own_that_nobody_else_may_write_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scan.toml");
        assert_eq!(read(None, Some(&path)).unwrap(), []);
        assert!(read(Some(&path), None).unwrap_err().to_string().contains("scan.toml cannot be read"));
        fs::write(&path, "ignore = ['no-discard', 'sparse-file@db*']\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let found = read(None, Some(&path)).unwrap();
        assert_eq!((found.len(), found[1].rule.as_str(), found[1].guest.as_deref()), (2, "sparse-file", Some("db*")));
        assert_eq!(found[0].from, path.display().to_string());
        for mode in [0o664, 0o646] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(read(None, Some(&path)).unwrap_err().to_string().contains("written by others"), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "\nignore = ['no-discards']\n").unwrap();
        let e = read(None, Some(&path)).unwrap_err().to_string();
        assert!(e.contains("scan.toml:2: ignore: ") && e.contains("did you mean no-discard?"), "{e}");
        assert!(read(Some(dir.path()), None).unwrap_err().to_string().contains("is not a regular file"));
    }
}
