//! Who asks an object store: a key and its secret, from a file of the user's own or from the environment, named as by
//! other clients of S3.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use data_encoding::HEXLOWER;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::process::geteuid;
use vmio_node::machine;

use super::{Error, Result};

/// Most bytes of a file with them.
const MOST_BYTES: u64 = 64 << 10;
/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;
/// The variables that name them.
const VARIABLES: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// A key and its secret. It shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(super) access: String,
    pub(super) secret: String,
    /// That of a session, with a key that is valid for a while.
    pub(super) token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Those of the file, else those of the environment.
    ///
    /// # Errors
    /// There are none, or the file may be read by others.
    pub fn find(file: Option<&Path>) -> Result<Self> {
        match file {
            Some(path) => Self::of_file(path).map_err(|why| Error::Credentials { path: path.into(), why }),
            None => {
                let [access, secret, token] = VARIABLES.map(|name| std::env::var(name).ok());
                Self::of(access, secret, token).ok_or(Error::NoCredentials)
            }
        }
    }

    /// A new key with its secret.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn made() -> io::Result<Self> {
        let random: [u8; 40] = machine::random()?;
        let (access, secret) = (HEXLOWER.encode(&random[..8]), HEXLOWER.encode(&random[8..]));
        Ok(Credentials { access: format!("vmio{access}"), secret, token: None })
    }

    /// The key.
    pub fn access(&self) -> &str {
        &self.access
    }

    /// Its secret.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    fn of(access: Option<String>, secret: Option<String>, token: Option<String>) -> Option<Self> {
        // They become parts of headers.
        let sound = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        Some(Credentials { access: access.filter(sound)?, secret: secret.filter(sound)?, token: token.filter(sound) })
    }

    fn of_file(path: &Path) -> std::result::Result<Self, String> {
        let said = |e: io::Error| e.to_string();
        // Does not wait at a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty()).map_err(|e| said(e.into()))?);
        let stat = fstat(&file).map_err(|e| said(e.into()))?;
        if stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
            return Err(format!("it belongs to user {}; help: name a file of your own", stat.st_uid));
        }
        if stat.st_mode & OTHERS != 0 {
            return Err("others may read it; help: chmod 600 it".to_owned());
        }
        let mut text = String::new();
        file.take(MOST_BYTES).read_to_string(&mut text).map_err(said)?;
        of_text(&text).ok_or_else(|| {
            "it has no aws_access_key_id = KEY and aws_secret_access_key = SECRET in its section [default]".to_owned()
        })
    }
}

/// Those of the section `[default]` (AWS SDKs and Tools Reference Guide, "Shared config and credentials files").
fn of_text(text: &str) -> Option<Credentials> {
    let (mut is_default, mut found) = (true, [None, None, None]);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_default = section.trim() == "default";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_default) {
            let at = VARIABLES.iter().position(|name| name.eq_ignore_ascii_case(key.trim()));
            if let Some(at) = at {
                found[at] = Some(value.trim().to_owned());
            }
        }
    }
    let [access, secret, token] = found;
    Credentials::of(access, secret, token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_default_section_of_a_file_of_the_users_own_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let of = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Credentials::find(Some(&path)).map_err(|why| why.to_string().replace(&path.display().to_string(), "FILE"))
        };
        let good =
            "[other]\naws_access_key_id = no\n[default]\n# mine\naws_access_key_id = AK\naws_secret_access_key=s/e=c\n";
        let read = of(good, 0o600).unwrap();
        assert_eq!((&*read.access, &*read.secret, &read.token), ("AK", "s/e=c", &None));
        assert_eq!(format!("{read:?}"), "Credentials", "it is shown nowhere");
        let session = of(&format!("{good}aws_session_token = T\n"), 0o400).unwrap();
        assert_eq!(session.token.as_deref(), Some("T"));
        assert_eq!(of(good, 0o640).unwrap_err(), "FILE: others may read it; help: chmod 600 it");
        for bad in ["", "[default]\naws_access_key_id = AK", "aws_access_key_id = a b\naws_secret_access_key = s"] {
            let why = of(bad, 0o600).unwrap_err();
            assert!(why.starts_with("FILE: it has no aws_access_key_id = KEY"), "{why}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Credentials::find(Some(&path)), Err(Error::Credentials { .. })));
    }
}
