//! A disk that another machine serves over the network that joins it with this host, as it is: a written-out file of the
//! machine that `--peer` names, by NBD over TCP. A guest's hypervisor is its client. Nothing of the network is built or set.
//!
//! File and server belong to that machine's agent, which removes and ends them with the connection, also where vmio was
//! killed. The server takes no client but one with the run's key (nbdkit-tls(1), pre-shared keys), and what is sent is
//! encrypted: TLS is part of what is measured. There is no way without it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vmio_look::require::{Missing, Requirement, program};
use vmio_model::cell;
use vmio_node::{Exec, Journal, Node, Output, Process};

use super::elsewhere::{self, NoFile};
use super::served::how;
use super::{Asked, Demands, Error, OfPeer, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT, facts, memory};
use crate::disks::places::Pool;
use crate::disks::space::gib;
use crate::disks::{BlockClient, Storage};
use crate::qemu::waiting;

mod psk;

use psk::Psk;

/// Entry `nbd-wire`.
pub struct NbdWire;

/// The program that serves it there.
const SERVER: &str = "nbdkit";
/// The port of NBD (IANA).
const PORT: u16 = 10809;
/// Name of the export. The server has only one, by any name.
const EXPORT: &str = "disk";
const MIB: u64 = 1 << 20;
/// How long the server may take to listen, to end, and to say its version.
const LIMIT: Duration = Duration::from_secs(15);
/// How long one connection may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How long that machine may take to write out what its page cache holds of the file.
const WRITE_OUT_LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// What the machine that serves it must have.
const OF_PEER: &OfPeer = &OfPeer {
    requirements: &[
        Requirement {
            name: SERVER,
            why: "serves the target `nbd-wire`",
            fix: "apt install nbdkit",
            check: |reader| program(reader, SERVER),
        },
        Requirement {
            name: "fio",
            why: "writes the file of the target `nbd-wire`",
            fix: "apt install fio",
            check: |reader| program(reader, "fio"),
        },
        Requirement {
            name: "dd",
            why: "writes the key of the target `nbd-wire`, and takes its file out of the page cache",
            fix: "apt install coreutils",
            check: |reader| program(reader, "dd"),
        },
        memory::REQUIREMENT,
    ],
    asked: Asked {
        name: "nbdkit with TLS",
        fix: "install an nbdkit that is built with GnuTLS: Debian's is",
        check: has_tls,
    },
};

/// Whether the server was built with TLS (nbdkit(1), `--dump-config`).
fn has_tls(node: &dyn Node) -> Result<(), Missing> {
    let output = node.exec(&Exec::new(SERVER).args(["--dump-config"]).limit(LIMIT))?;
    if output.ok() && output.out().lines().any(|line| line.trim() == "tls=yes") {
        return Ok(());
    }
    Err(Missing::Unlike("`nbdkit --dump-config` does not say tls=yes".to_owned()))
}

impl Target for NbdWire {
    fn name(&self) -> &'static str {
        "nbd-wire"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another machine (--peer ssh://HOST) serves by NBD over TCP with TLS to a guest's hypervisor"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[memory::REQUIREMENT]
    }
    fn by_peer(&self) -> Option<&'static OfPeer> {
        Some(OF_PEER)
    }
    fn block_client(&self) -> Option<BlockClient> {
        Some(BlockClient::NbdTls)
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some("only a hypervisor is its client: use preallocated there, or nbd")
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost => Err("what its hypervisor opens is on another host; use preallocated or device"),
            _ => Ok(()),
        }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let alone = || Error::Server { path: ctx.dir.clone(), reason: "no machine is named that serves it".to_owned() };
        let (machine, own) = ctx.peer.ok_or_else(alone)?;
        let (node, dir) = (&machine.node, own.dir.as_path());
        let bytes = ctx.bytes.max(1).next_multiple_of(MIB);
        elsewhere::look(&**node, dir, bytes).map_err(|why| no_room(dir, &why))?;
        let path = dir.join(format!("vmio-{}-{}", self.name(), ctx.journal.cookie()));
        let shown = PathBuf::from(format!("{}{}", machine.address, path.display()));
        let file = elsewhere::file_at(node, path, bytes)?;
        let version = node.exec(&Exec::new(SERVER).args(["--version"]).limit(LIMIT))?;
        Ok(Box::new(OnPeer {
            node: Arc::clone(node),
            file,
            shown,
            reached: SocketAddr::new(own.ends.0, PORT),
            serves: own.serves,
            psk: Psk::make(ctx.journal, &**node, self.name())?,
            server: None,
            version: version.out().lines().next().unwrap_or_default().trim().to_owned(),
        }))
    }
}

/// Why the file is not made there.
fn no_room(dir: &Path, why: &NoFile) -> Error {
    let reason = match why {
        NoFile::Memory { machine, filesystem, .. } => {
            format!("on {machine} it is {filesystem}, which is memory; name another directory, --peer ADDRESS/DIR")
        }
        NoFile::Space { machine, needed_bytes, free_bytes, .. } => format!(
            "{} are needed on {machine} (20 % to spare included), {} are left; free some, name another \
             directory, --peer ADDRESS/DIR, or use a study with a smaller size.target_mib",
            gib(*needed_bytes),
            gib(*free_bytes)
        ),
        NoFile::Device { machine, .. } | NoFile::NoDirectory { machine, .. } | NoFile::NotThere { machine, .. } => {
            format!("on {machine} it is no directory: name one, --peer ADDRESS/DIR")
        }
        NoFile::Unknown(why) => why.to_string(),
    };
    Error::NotAsAsked { path: dir.to_owned(), reason }
}

/// The file and its server, both on another machine.
struct OnPeer {
    node: Arc<dyn Node>,
    /// The file, as that machine's agent has it open.
    file: Box<dyn Prepared>,
    /// Machine and file, as results name them. Nothing of this host has such a path.
    shown: PathBuf,
    /// Where this host reaches the server.
    reached: SocketAddr,
    /// The address that it listens at.
    serves: IpAddr,
    /// The key of who may connect.
    psk: Psk,
    server: Option<Box<dyn Process>>,
    version: String,
}

impl OnPeer {
    fn fail(&self, reason: String) -> Error {
        Error::Server { path: self.shown.clone(), reason }
    }

    /// How the server ended, if it has.
    fn ended(&mut self) -> Result<Option<Output>> {
        Ok(self.server.as_mut().map(|server| server.try_wait()).transpose()?.flatten())
    }

    fn start(&mut self) -> Result<()> {
        let command = Exec::new(SERVER).args(arguments(self.file.native(), self.serves, &self.psk.there));
        let mut server = self.node.spawn(&command)?;
        if let Err(why) = listens(self.reached, || server.try_wait().ok().flatten()) {
            let _ = server.kill();
            let _ = server.wait(Some(LIMIT));
            return Err(self.fail(why));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Has that machine write out what its page cache holds of the file, and let go of it (dd(1), `nocache`).
    fn forget_pages(&self) -> Result<()> {
        let of = format!("of={}", self.file.native().display());
        let args = [of.as_str(), "oflag=nocache", "conv=notrunc,fdatasync", "count=0"];
        let command = Exec::new("dd").args(args).limit(WRITE_OUT_LIMIT);
        let output = self.node.exec(&command)?;
        if output.ok() {
            return Ok(());
        }
        Err(Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() })
    }
}

/// The command line. The file goes through that machine's page cache, which keeps as little of it as the plugin can
/// (nbdkit-file-plugin(1), `cache=none`).
fn arguments(file: &Path, serves: IpAddr, key: &Path) -> Vec<String> {
    let mut args = vec!["--foreground".to_owned()];
    if !serves.is_unspecified() {
        args.extend(["--ipaddr".to_owned(), serves.to_string()]);
    }
    args.extend([
        "--port".to_owned(),
        PORT.to_string(),
        "--tls=require".to_owned(),
        "--tls-psk".to_owned(),
        key.display().to_string(),
        "file".to_owned(),
        format!("file={}", file.display()),
        "cache=none".to_owned(),
    ]);
    args
}

/// Waits until the server answers this host.
///
/// # Errors
/// What became of it instead, in words.
fn listens(at: SocketAddr, mut ended: impl FnMut() -> Option<Output>) -> Result<(), String> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(output) = ended() {
            return Err(how(&output));
        }
        match TcpStream::connect_timeout(&at, ANSWERS_WITHIN) {
            // Where another program has the port, it is that which answers, and the server ends.
            Ok(_) => return waiting::ended_soon(ended).map_or(Ok(()), |output| Err(how(&output))),
            Err(e) if Instant::now() >= until => {
                return Err(format!("nothing gets through to {at} from here ({e}): open TCP port {PORT} there"));
            }
            Err(_) => thread::sleep(POLL),
        }
    }
}

impl Prepared for OnPeer {
    /// No native program of this host could open it.
    fn native(&self) -> &Path {
        &self.shown
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        if self.server.is_none() || self.ended()?.is_some() {
            self.start()?;
        }
        Ok(Storage::NbdTls { server: self.reached, export: EXPORT.to_owned(), keys: self.psk.dir.clone() })
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        facts([
            ("server", format!("{}, NBD over TCP with TLS", self.version)),
            ("tls", "pre-shared key".to_owned()),
            ("server.file", self.shown.display().to_string()),
            ("server.cache.direct", false.to_string()),
        ])
    }
    fn server_at_peer(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.pid())
    }
    fn settle(&mut self, _asked: &cell::Attachment) -> Result<()> {
        self.forget_pages()
    }
    fn sound(&mut self, _asked: &cell::Attachment) -> Result<()> {
        match self.ended()? {
            Some(output) => Err(self.fail(how(&output))),
            None => Ok(()),
        }
    }
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
    fn demands(&self) -> Demands {
        self.file.demands()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.file.effective()
    }
    /// Every block holds data, whatever was written.
    fn reset(&mut self, _state: State) -> Result<u64> {
        self.forget_pages()?;
        Ok(0)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, server, psk, .. } = *self;
        psk.remove(journal)?;
        if let Some(mut server) = server {
            server.kill()?;
            server.wait(Some(LIMIT))?;
        }
        file.remove(journal)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use vmio_node::End;
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn the_server_listens_at_one_address_and_takes_nobody_without_the_key() {
        let line = |serves: &str| {
            arguments(Path::new("/proc/7/fd/9"), serves.parse().unwrap(), Path::new("/dev/shm/k.psk")).join(" ")
        };
        assert_eq!(
            line("192.0.2.7"),
            "--foreground --ipaddr 192.0.2.7 --port 10809 --tls=require --tls-psk /dev/shm/k.psk file \
             file=/proc/7/fd/9 cache=none"
        );
        let any = line("0.0.0.0");
        assert!(!any.contains("--ipaddr") && any.contains("--tls=require"), "{any}");
    }

    #[test]
    fn a_server_that_was_built_without_tls_is_refused() {
        let told = |said: &'static str| has_tls(&Fake::new("b").program(SERVER, says(said)));
        assert_eq!(told("sysconfdir=/etc\ntls=yes\nversion=1.32.5\n"), Ok(()));
        assert!(matches!(told("tls=no\nversion=1.32.5\n"), Err(Missing::Unlike(_))));
    }

    #[test]
    fn a_server_that_ends_is_told_also_where_another_answers_at_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(listens(at, || None), Ok(()));
        let in_use = || Output { end: End::Exit(1), stdout: vec![], stderr: b"in use\n".to_vec(), truncated: false };
        let mut looks = 0;
        let ends = || {
            looks += 1;
            (looks == 3).then(in_use)
        };
        assert_eq!(listens(at, ends), Err("it ended with exit code 1: in use".to_owned()));
        assert_eq!(listens(at, || Some(in_use())), Err("it ended with exit code 1: in use".to_owned()));
    }

    #[test]
    fn what_is_wrong_with_its_directory_is_told_with_the_option_that_names_one() {
        let (dir, machine) = (PathBuf::from("/srv"), "b".to_owned());
        for why in [
            NoFile::NotThere { dir: dir.clone(), machine: machine.clone() },
            NoFile::Memory { dir: dir.clone(), machine: machine.clone(), filesystem: "tmpfs".to_owned() },
            NoFile::Space { dir, machine, needed_bytes: 2 << 30, free_bytes: 1 << 30 },
        ] {
            let said = no_room(Path::new("/srv"), &why).to_string();
            assert!(said.starts_with("/srv: ") && said.contains("on b") && !said.contains("--on"), "{said}");
            assert!(said.contains("--peer ADDRESS/DIR"), "{said}");
        }
    }
}
