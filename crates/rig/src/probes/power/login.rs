//! User and password of a management controller: they come from a file or the environment, and go nowhere but to it.

use vmio_node::Reader;
use vmio_node::machine::LOGIN_VARIABLES;

use super::choice::{PowerChoice, Refused};
use crate::redfish::Login;

/// Most bytes of a file with them.
const MOST_LOGIN_BYTES: usize = 4096;
/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// User and password of a controller: of the file that is named, else of the environment. `None` where neither has any.
pub(super) fn read(choice: &PowerChoice, reader: &dyn Reader) -> Result<Option<Login>, Refused> {
    let Some(path) = &choice.login else {
        let [user, password] = LOGIN_VARIABLES.map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        return match (user, password) {
            (Some(user), Some(password)) => Ok(Some(Login::new(&user, &password))),
            (None, None) => Ok(None),
            _ => Err(Refused::HalfLogin),
        };
    };
    let refused = |why: String| Refused::Login { path: path.clone(), why };
    let stat = reader.stat(path).map_err(|e| refused(e.to_string()))?;
    let stat = stat.ok_or_else(|| refused("it is not there".to_owned()))?;
    if stat.mode & OTHERS != 0 {
        return Err(refused("others may read it; help: chmod 600 it".to_owned()));
    }
    let bytes = reader.read_start(path, MOST_LOGIN_BYTES).map_err(|e| refused(e.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        [user, password] if !user.is_empty() && !user.contains(':') => Ok(Some(Login::new(user, password))),
        _ => Err(refused("it has to hold two lines, a user and a password".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use vmio_node::Local;

    use super::*;

    #[test]
    fn a_login_is_read_from_a_file_of_the_users_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login");
        let of = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let choice = PowerChoice { login: Some(path.clone()), ..PowerChoice::default() };
            read(&choice, &Local::new()).map_err(|why| why.to_string().replace(&path.display().to_string(), "FILE"))
        };
        assert_eq!(of("operator\nsec ret\n", 0o600), Ok(Some(Login::new("operator", "sec ret"))));
        assert_eq!(of("operator\nsecret\n", 0o640), Err("FILE: others may read it; help: chmod 600 it".into()));
        for bad in ["", "operator", "a:b\nsecret", "a\nb\nc"] {
            assert_eq!(of(bad, 0o600), Err("FILE: it has to hold two lines, a user and a password".into()), "{bad}");
        }
    }
}
