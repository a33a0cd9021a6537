//! The directories of vmio: `/var/lib/vmio` and `/run/vmio` for root, the XDG directories for others (XDG Base
//! Directory Specification 0.8), or one directory named by `--state`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vmio_model::failure::{Exit, Failure};
use vmio_model::rules::change::shell;

/// The directories of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The store, images, journals.
    pub state: PathBuf,
    /// Sockets, and files that need not survive a boot.
    pub runtime: PathBuf,
    /// The runtime directory of the host's guard, which is root's.
    guard: PathBuf,
    /// Whether the user named the state directory.
    is_named: bool,
}

/// Where root's state is.
const STATE: &str = "/var/lib/vmio";
/// Where root's sockets are.
const RUNTIME: &str = "/run/vmio";

impl Paths {
    /// The directories of this process's user; `state` replaces the state directory, and the
    /// runtime directory goes into it, so that two states never share a socket (root's own keeps its own).
    pub fn of_this_user(state: Option<&Path>) -> Result<Paths, Failure> {
        Paths::resolve(rustix::process::geteuid().is_root(), state, |name| std::env::var_os(name))
    }

    fn resolve(root: bool, state: Option<&Path>, var: impl Fn(&str) -> Option<OsString>) -> Result<Paths, Failure> {
        // A relative path in an XDG variable is to be ignored (specification, "Basics").
        let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = |name: &str, below: &str| -> Result<PathBuf, Failure> {
            absolute(name).or_else(|| Some(absolute("HOME")?.join(below))).map(|p| p.join("vmio")).ok_or_else(|| {
                Failure::new(Exit::Precondition, format!("neither {name} nor HOME names a directory"))
                    .help("choose a directory for vmio's state: --state DIR or VMIO_STATE=DIR")
            })
        };
        if let Some(dir) = state {
            let state = std::path::absolute(dir).map_err(|e| {
                Failure::new(Exit::Usage, format!("cannot make an absolute path of {}: {e}", dir.display()))
            })?;
            // Root's own directory is the same one whether it is named or not: a guard there has its socket in
            // /run/vmio.
            let runtime = Paths::runtime_of(&state);
            return Ok(Paths { guard: runtime.clone(), runtime, state, is_named: true });
        }
        if root {
            let (state, runtime) = (STATE.into(), PathBuf::from(RUNTIME));
            return Ok(Paths { state, guard: runtime.clone(), runtime, is_named: false });
        }
        let state = home("XDG_STATE_HOME", ".local/state")?;
        let runtime = absolute("XDG_RUNTIME_DIR").map(|p| p.join("vmio")).unwrap_or_else(|| state.join("run"));
        Ok(Paths { state, runtime, guard: RUNTIME.into(), is_named: false })
    }

    /// Socket of a guard of this user.
    pub fn own_guard_socket(&self) -> PathBuf {
        self.runtime.join("guard.sock")
    }

    /// Socket of the guard to ask: this user's where one observes, else the host's.
    pub fn guard_socket(&self) -> PathBuf {
        Some(self.own_guard_socket()).filter(|own| own.exists()).unwrap_or_else(|| self.guard.join("guard.sock"))
    }

    /// Socket of a guard with that state directory.
    pub fn guard_socket_of(state: &Path) -> PathBuf {
        Paths::runtime_of(state).join("guard.sock")
    }

    fn runtime_of(state: &Path) -> PathBuf {
        if state == Path::new(STATE) { RUNTIME.into() } else { state.join("run") }
    }

    /// Directory of the guard's ledger in a state directory, apart from the journals of runs.
    pub fn guard_ledger(state: &Path) -> PathBuf {
        state.join("guard")
    }

    /// File that names the state directory with the ledger of the guard of a network namespace (its inode), which is
    /// root's whatever that directory is.
    pub fn guard_record(namespace: u64) -> PathBuf {
        Path::new(RUNTIME).join(format!("guard-{namespace}.state"))
    }

    /// What a printed command needs to mean this state directory: ` --state DIR` where the user named it, else nothing.
    pub fn option(&self) -> String {
        if self.is_named { Paths::naming(&self.state) } else { String::new() }
    }

    /// ` --state DIR`, for a command that is printed.
    fn naming(state: &Path) -> String {
        format!(" --state {}", shell(&state.to_string_lossy()))
    }

    /// The same for another state directory; nothing for root's own, where the environment names no other.
    pub fn option_of(state: &Path) -> String {
        let is_overridden = std::env::var_os("VMIO_STATE").is_some_and(|dir| !dir.is_empty());
        if state == Path::new(STATE) && !is_overridden { String::new() } else { Paths::naming(state) }
    }

    /// The configuration of `vmio scan`: `/etc/vmio/scan.toml` for root, in the XDG configuration directory
    /// for others; `None` where the environment names none.
    pub fn scan_config() -> Option<PathBuf> {
        Paths::config(rustix::process::geteuid().is_root(), |name| std::env::var_os(name))
    }

    fn config(root: bool, var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
        if root {
            return Some("/etc/vmio/scan.toml".into());
        }
        let dir = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(dir.join("vmio/scan.toml"))
    }

    /// The last scan that was kept for `vmio scan --diff`.
    pub fn last_scan(&self) -> PathBuf {
        self.state.join("last-scan.json")
    }

    /// The file of the store.
    pub fn db(&self) -> PathBuf {
        self.state.join("vmio.db")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with<'a>(vars: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
    }

    #[test]
    fn root_and_others() {
        let p = Paths::resolve(true, None, with(&[("HOME", "/root")])).unwrap();
        assert_eq!(p.db(), Path::new("/var/lib/vmio/vmio.db"));
        let p = Paths::resolve(false, None, with(&[("HOME", "/home/a")])).unwrap();
        assert_eq!(p.state, Path::new("/home/a/.local/state/vmio"));
        assert_eq!(p.runtime, Path::new("/home/a/.local/state/vmio/run"));
        assert_eq!(p.guard_socket(), Path::new("/run/vmio/guard.sock"), "who is in its group asks root's");
        let vars = [("HOME", "/home/a"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "relative")];
        let p = Paths::resolve(false, None, with(&vars)).unwrap();
        assert_eq!((p.state.as_path(), p.runtime.as_path()), (Path::new("/s/vmio"), Path::new("/s/vmio/run")));
    }

    #[test]
    fn the_configuration_is_in_etc_for_root_and_in_the_home_directory_for_others() {
        let of = |root, vars| Paths::config(root, with(vars));
        assert_eq!(of(true, &[("HOME", "/root")]).unwrap(), Path::new("/etc/vmio/scan.toml"));
        assert_eq!(of(false, &[("HOME", "/home/a")]).unwrap(), Path::new("/home/a/.config/vmio/scan.toml"));
        let both = &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/c")];
        assert_eq!(of(false, both).unwrap(), Path::new("/c/vmio/scan.toml"));
        assert_eq!(of(false, &[]), None);
    }

    #[test]
    fn an_override_wins_and_no_home_is_an_error() {
        let p = Paths::resolve(false, Some(Path::new("/x")), with(&[])).unwrap();
        assert_eq!(p.state, Path::new("/x"));
        assert_eq!(p.runtime, Path::new("/x/run"));
        assert_eq!(p.option(), " --state /x");
        for root in [true, false] {
            let named = Paths::resolve(root, Some(Path::new("/var/lib/vmio/")), with(&[("HOME", "/a")])).unwrap();
            let socket = Path::new("/run/vmio/guard.sock");
            assert_eq!((named.guard_socket().as_path(), named.own_guard_socket().as_path()), (socket, socket));
        }
        assert_eq!(Paths::option_of(Path::new("/a b")), " --state '/a b'");
        assert_eq!(Paths::resolve(true, None, with(&[])).unwrap().option(), "");
        let e = Paths::resolve(false, None, with(&[])).unwrap_err();
        assert_eq!(e.exit, Exit::Precondition);
        assert!(e.help.unwrap().contains("--state"));
    }
}
