//! A store of this host's own: versitygw (Apache-2.0), a program of its own, over a directory. Only this host reaches
//! it. Objects are files there, `DIR/BUCKET/NAME`, which it does not sync: who stores an image there does ([`sync`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, fsync, openat, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vmio_look::require::find_program;
use vmio_node::linux::{process, sockets};
use vmio_node::{Exec, Node, Output, Process, Reader, trusted_dir};

use super::address::Endpoint;
use super::credentials::Credentials;
use super::{Error, Result, file_error};

/// The program.
const PROGRAM: &str = "versitygw";
/// Key and secret of the store.
const CREDENTIALS: &str = "credentials";
/// What is served, by who holds its lock.
const SERVED: &str = "served.json";
/// Longest record of what is served.
const MOST_BYTES: u64 = 64 << 10;
/// How long the server may take to start. It takes some 0.1 s.
const START: Duration = Duration::from_secs(20);
/// How long it may take to end.
const END: Duration = Duration::from_secs(10);
/// How often it is looked at while it starts.
const POLL: Duration = Duration::from_millis(20);
/// How an object is opened: a pipe in its place is not waited for.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Nothing leads out of the store.
const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
/// What is kept of its messages.
const KEPT_BYTES: usize = 64 << 10;

/// A store of this host that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    address: SocketAddr,
    /// Where its objects are, by bucket and name.
    pub directory: PathBuf,
}

impl Served {
    /// The one that is served with this directory of `vmio image serve`, and its key; `None` where none is.
    ///
    /// # Errors
    /// What the server left cannot be read, or others may have written it.
    pub fn find(home: &Path) -> Result<Option<(Served, Credentials)>> {
        let path = home.join(SERVED);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let failed = |e: io::Error| file_error("read", &path)(e);
        let file = match openat(CWD, &path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => File::from(opened.map_err(|e| failed(e.into()))?),
        };
        trusted_dir(home).map_err(Error::Untrusted)?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            // Who served was ended before it could remove this.
            locked => return locked.map(|()| None).map_err(|e| failed(e.into())),
        }
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).map_err(failed)?;
        match serde_json::from_slice(&text) {
            Ok(served) => Ok(Some((served, Credentials::find(Some(&home.join(CREDENTIALS)))?))),
            // It starts just now.
            Err(_) => Ok(None),
        }
    }

    /// Its address.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::of_this_host(self.address)
    }
}

/// A server that runs. It is ended where this goes out of scope.
pub struct Server {
    /// What it serves.
    pub served: Served,
    /// The file with its key and secret.
    pub credentials: PathBuf,
    process: Box<dyn Process>,
    /// Locked as long as it runs.
    record: File,
}

impl Server {
    /// Starts one over a directory, at a port of this host (0: any that is free). Key and secret are made once, in
    /// `home`. Both directories are there, and nobody else may write them.
    ///
    /// # Errors
    /// The program is missing, another vmio serves, or it does not start.
    pub fn start(node: &dyn Node, directory: &Path, home: &Path, port: u16) -> Result<Self> {
        let program = find_program(node.reader(), PROGRAM).ok_or(Error::NoServer)?;
        let path = home.join(SERVED);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let record = options.open(&path).map_err(file_error("open", &path))?;
        match flock(&record, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::Serving { home: home.into() }),
            locked => locked.map_err(|e| file_error("lock", &path)(e.into()))?,
        }
        record.set_len(0).map_err(file_error("write", &path))?;
        let credentials = home.join(CREDENTIALS);
        let key = key(&credentials)?;
        let failed = |why: String| Error::NotStarted { why };
        // Which one is free, or why the one that was named is not.
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| failed(format!("port {port}: {e}")))?;
        let address = probe.local_addr().map_err(|e| failed(e.to_string()))?;
        drop(probe);
        let mut command = Exec { keep_bytes: KEPT_BYTES, ..Exec::new(program.display().to_string()) };
        command = command.args(["--port", &address.to_string(), "--quiet", "posix"]);
        // A disk of a guest is nothing for this host's other users.
        command = command.args(["--dir-perms", "0700", "--file-perms", "0600"]);
        command = command.args([directory.display().to_string()]);
        command.env.insert("ROOT_ACCESS_KEY_ID".into(), key.access);
        command.env.insert("ROOT_SECRET_ACCESS_KEY".into(), key.secret);
        let process = node.spawn(&command).map_err(|e| failed(e.to_string()))?;
        let served = Served { address, directory: directory.into() };
        let mut server = Server { served, credentials, process, record };
        let until = Instant::now() + START;
        while !listens(node.reader(), server.process.pid(), address.port()) {
            server.still_runs()?;
            if Instant::now() >= until {
                return Err(failed(format!("it takes no connections after {} s", START.as_secs())));
            }
            std::thread::sleep(POLL);
        }
        server.tell(&path)?;
        Ok(server)
    }

    /// Writes what is served where a push and a pull look.
    fn tell(&mut self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(&self.served).map_err(|e| Error::NotStarted { why: e.to_string() })?;
        self.record.rewind().and_then(|()| self.record.write_all(&text)).map_err(file_error("write", path))
    }

    /// Fails once it has ended, with what it said.
    ///
    /// # Errors
    /// It ended.
    pub fn still_runs(&mut self) -> Result<()> {
        let ended = self.process.try_wait().map_err(|e| Error::NotStarted { why: e.to_string() })?;
        ended.map_or(Ok(()), |output| Err(Error::NotStarted { why: ended_with(PROGRAM, &output) }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.terminate();
        let _ = self.process.wait(Some(END));
        let _ = self.record.set_len(0);
    }
}

/// How a program ended, with the last that it said.
pub(super) fn ended_with(program: &str, output: &Output) -> String {
    let (out, err) = (output.out(), output.err());
    let said = out.lines().chain(err.lines()).rfind(|line| !line.trim().is_empty()).unwrap_or("without a word");
    format!("{program} ended: {}", crate::https::shown(said.trim(), 200))
}

/// Whether a process takes connections at a port. That somebody does is not enough: another user could have taken it.
fn listens(reader: &dyn Reader, pid: u32, port: u16) -> bool {
    let own = process::sockets(reader, pid).unwrap_or_default();
    sockets::tcp_files(pid).iter().any(|file| {
        let text = reader.read_text(file).unwrap_or_default();
        sockets::inet_sockets(&text).any(|socket| socket.listens && socket.port == port && own.contains(&socket.inode))
    })
}

/// Key and secret of the store, which are made where they are missing.
fn key(path: &Path) -> Result<Credentials> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Ok(mut file) => {
            let failed = file_error("write", path);
            let written = text().and_then(|text| file.write_all(text.as_bytes())).and_then(|()| file.sync_all());
            if let Err(e) = written {
                // Half of a secret would be found by the next start.
                let _ = fs::remove_file(path);
                return Err(failed(e));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(file_error("make", path)(e)),
    }
    Credentials::find(Some(path))
}

/// A new key with its secret, as clients of S3 read them.
fn text() -> io::Result<String> {
    let Credentials { access, secret, .. } = Credentials::made()?;
    Ok(format!("[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"))
}

/// Opens the file of an object, to read it. It stays the same one if another takes its name.
pub(super) fn open(directory: &Path, bucket: &str, key: &str) -> Result<File> {
    let path = Path::new(bucket).join(key);
    let failed = |e: io::Error| file_error("open", &directory.join(&path))(e);
    let root = openat(CWD, directory, FLAGS | OFlags::DIRECTORY, Mode::empty()).map_err(|e| failed(e.into()))?;
    let opened = openat2(&root, &path, FLAGS, Mode::empty(), BELOW).map_err(|e| failed(e.into()))?;
    let file = File::from(opened);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    Ok(file)
}

/// Forces an object to the disk, with the directories that name it.
pub(super) fn sync(directory: &Path, bucket: &str, key: &str) -> Result<()> {
    let failed = |path: &Path, e: Errno| file_error("sync", &directory.join(path))(e.into());
    let root =
        openat(CWD, directory, FLAGS | OFlags::DIRECTORY, Mode::empty()).map_err(|e| failed(Path::new(""), e))?;
    let path = Path::new(bucket).join(key);
    for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        let opened = openat2(&root, part, FLAGS, Mode::empty(), BELOW).map_err(|e| failed(part, e))?;
        fsync(&opened).map_err(|e| failed(part, e))?;
    }
    fsync(&root).map_err(|e| failed(Path::new(""), e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn key_and_secret_are_made_once_for_the_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CREDENTIALS);
        let made = key(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!((made.access.len(), made.secret.len()), (20, 64));
        assert_eq!(key(&path).unwrap(), made);
        let other = key(&dir.path().join("other")).unwrap();
        assert!(other.secret != made.secret && other.access != made.access);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(key(&path), Err(Error::Credentials { .. })));
    }

    #[test]
    fn only_a_store_that_is_served_now_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Served::find(dir.path()).unwrap(), None);
        let served = Served { address: "127.0.0.1:7070".parse().unwrap(), directory: "/srv".into() };
        fs::write(dir.path().join(SERVED), serde_json::to_vec(&served).unwrap()).unwrap();
        let key = key(&dir.path().join(CREDENTIALS)).unwrap();
        assert_eq!(Served::find(dir.path()).unwrap(), None, "nobody holds the lock");
        let held = File::open(dir.path().join(SERVED)).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(Served::find(dir.path()).unwrap(), Some((served.clone(), key)));
        assert_eq!(served.endpoint().to_string(), "http://127.0.0.1:7070");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Served::find(dir.path()), Err(Error::Untrusted(_))), "others could name another server");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(dir.path().join(SERVED), "").unwrap();
        assert_eq!(Served::find(dir.path()).unwrap(), None, "it starts just now");
    }

    #[test]
    fn only_the_server_itself_is_taken_for_it() {
        let (node, own) = (vmio_node::Local::new(), std::process::id());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(&node, own, port) && !listens(&node, own, 1));
        assert!(!listens(&node, std::os::unix::process::parent_id(), port), "another one's");
    }

    #[test]
    fn only_an_object_of_the_store_is_synced_or_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("images/a")).unwrap();
        fs::write(dir.path().join("images/a/disk"), "bytes").unwrap();
        sync(dir.path(), "images", "a/disk").unwrap();
        assert!(matches!(sync(dir.path(), "images", "a/none"), Err(Error::File { what: "sync", .. })));
        symlink("/", dir.path().join("images/out")).unwrap();
        assert!(sync(dir.path(), "images", "out/etc/hostname").is_err());
        let mut text = String::new();
        open(dir.path(), "images", "a/disk").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "bytes");
        for none in ["a", "none", "out/etc/hostname", "../../etc/hostname"] {
            assert!(matches!(open(dir.path(), "images", none), Err(Error::File { what: "open", .. })), "{none}");
        }
    }
}
