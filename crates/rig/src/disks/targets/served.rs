//! A disk that another process of the host's user space serves, as the papers' "tap" does
//! (shafer2010, section 3: Xen's blktap): a request leaves the hypervisor for a second process,
//! which does the I/O. Here that is `qemu-storage-daemon`, over a written-out raw file:
//! - as **vhost-user-blk** for virtio-blk: the daemon takes the requests from the guest's own
//!   queue in shared memory (QEMU's docs/interop/vhost-user.rst);
//! - as **NBD on a Unix socket** for every other driver, which vhost-user does not know: QEMU's
//!   device model hands each request on as an NBD client.
//!
//! The native side opens the file itself. No native program could open the server, and the
//! question is what a guest gets of the storage that the host has: the way through the server is
//! part of the price. So `native()` compares with `preallocated`, to which it is equal.
//!
//! Each attachment that is asked for has a daemon of its own, with that cache mode and AIO
//! engine, started with the first guest and kept for the run: an export accepts a new guest after
//! the last one has left, or died. One that has died is started again with the next guest.
//!
//! Where another host serves it (`nbd`) the daemons are that host's, and all of them speak NBD over TCP.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_look::require::{self, Requirement};
use vmio_model::cell;
use vmio_node::{ChangeId, Journal, Local};

use super::raw_file::RawFile;
use super::scratch::{self, Scratch};
use super::{Demands, Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT, own_client};
use crate::disks::Storage;
use crate::disks::places::Pool;
use crate::nets::{NetPath, REMOTE};

mod daemon;
pub mod nbd_client;

use daemon::Daemon;
pub use daemon::{DAEMON, how};
use nbd_client::KernelClient;

/// Entry `served`.
pub struct Served;

impl Target for Served {
    fn name(&self) -> &'static str {
        "served"
    }
    fn about(&self) -> &'static str {
        "fully written raw file served by another process: vhost-user-blk for virtio-blk, else NBD"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: DAEMON,
            why: "serves the disk in place of QEMU",
            fix: "apt install qemu-system-common (on Proxmox it comes with pve-qemu-kvm), or leave out the target `served`",
            check: |reader| require::program(reader, DAEMON),
        }]
    }
    /// What a guest reads of it nobody counts from outside.
    fn can_be(&self, state: State, native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            _ if state.is_warm() && !native => Err("its server reads for the guest, uncounted; use preallocated"),
            _ => Ok(()),
        }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(ServedFile::make(ctx, self.name(), None)?))
    }
}

/// The file and its servers.
pub struct ServedFile {
    /// Name of the target.
    name: &'static str,
    file: RawFile,
    /// Where it is, and as what programs open it.
    path: PathBuf,
    open: PathBuf,
    journal: Arc<Journal>,
    /// Daemons are started here: they bear the run's mark.
    node: Local,
    /// Directory of their sockets, made with the first of them.
    sockets: Option<(PathBuf, ChangeId)>,
    servers: Vec<(cell::Attachment, Daemon)>,
    /// From the host that serves it, where that is another one.
    link: Option<NetPath>,
    /// This host's own kernel as its client, and from where.
    native: Option<(KernelClient, Vec<String>)>,
}

impl ServedFile {
    /// Makes the file, and writes it out.
    pub fn make(ctx: &TargetCtx<'_>, name: &'static str, link: Option<NetPath>) -> Result<Self> {
        let scratch = Scratch::make_with(ctx, name, Scratch::fill)?;
        let (path, open) = (scratch.path.clone(), scratch.open.clone());
        Ok(Self {
            name,
            file: RawFile::new(scratch, false),
            path,
            open,
            journal: Arc::clone(ctx.journal),
            node: Local::owned(Arc::clone(ctx.journal)),
            sockets: None,
            servers: Vec::new(),
            link,
            native: None,
        })
    }

    /// Has this host's own kernel be a client, from where `enter` leads: native workloads then open its device.
    pub fn reach_natively(&mut self, enter: Vec<String>) -> Result<()> {
        let storage = self.attach(&own_client::asked())?;
        let client = KernelClient::connect(&self.node, &enter, &storage, self.file.bytes())?;
        self.native = Some((client, enter));
        Ok(())
    }

    /// Directory for sockets, of mode 0700. Their path may have 107 bytes (unix(7)), and the
    /// scratch directory's may be longer or lie on a file system without sockets.
    fn sockets(&mut self) -> Result<PathBuf> {
        if let Some((dir, _)) = &self.sockets {
            return Ok(dir.clone());
        }
        let name = format!("vmio-{}-{}", self.name, self.journal.cookie());
        let dirs = [std::env::temp_dir(), "/tmp".into()].map(|d| d.join(&name));
        let fits = |dir: &PathBuf| daemon::longest_path(dir) <= daemon::SOCKET_PATH;
        let dir = dirs.iter().find(|d| fits(d)).cloned().ok_or_else(|| Error::Server {
            path: self.path.clone(),
            reason: format!("no directory path is short enough for its sockets ({})", dirs[1].display()),
        })?;
        let change = self.journal.scratch_dir(&dir)?;
        self.sockets = Some((dir.clone(), change));
        Ok(dir)
    }

    fn server(&self, asked: &cell::Attachment) -> Option<&Daemon> {
        self.servers.iter().find(|(a, _)| a == asked).map(|(_, d)| d)
    }
}

impl Prepared for ServedFile {
    fn native(&self) -> &Path {
        self.native.as_ref().map_or(&*self.open, |(client, _)| client.device())
    }
    fn lies_on(&self) -> &Path {
        &self.open
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, asked: &cell::Attachment) -> Result<Storage> {
        let at = self.servers.iter().position(|(a, _)| a == asked);
        if let Some(at) = at {
            let (_, daemon) = &mut self.servers[at];
            if daemon.ended()?.is_none() {
                return Ok(daemon.storage.clone());
            }
        }
        let dir = self.sockets()?;
        let number = at.unwrap_or(self.servers.len());
        let end = self.link.as_ref().and_then(|link| link.peers.get(REMOTE));
        let daemon = Daemon::start(&self.node, &self.open, asked, (&dir, number), end)?;
        let storage = daemon.storage.clone();
        match at {
            Some(at) => self.servers[at].1 = daemon,
            None => self.servers.push((asked.clone(), daemon)),
        }
        Ok(storage)
    }
    fn attached(&self, asked: &cell::Attachment) -> BTreeMap<String, String> {
        self.server(asked).map(|d| d.effective.clone()).unwrap_or_default()
    }
    fn link(&self) -> Option<&NetPath> {
        self.link.as_ref()
    }
    fn servers(&self, asked: &cell::Attachment) -> Vec<u32> {
        self.server(asked).map(|d| d.pid).into_iter().collect()
    }
    fn sound(&mut self, asked: &cell::Attachment) -> Result<()> {
        match self.servers.iter_mut().find(|(a, _)| a == asked).map(|(_, d)| d.ended()).transpose()?.flatten() {
            Some(how) => Err(Error::Server { path: self.path.clone(), reason: how }),
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
        let mut all = self.file.effective();
        if self.native.is_some() {
            all.extend(self.attached(&own_client::asked()));
            all.insert("client".to_owned(), "NBD over TCP, in this host's kernel".to_owned());
        }
        all
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        if let Some((client, enter)) = &mut self.native {
            if client.ended()?.is_some() {
                // Its server had died: there is another one for the next cell.
                let enter = enter.clone();
                self.native = None;
                self.reach_natively(enter)?;
            } else {
                let device = client.device();
                let open = File::open(device).map_err(scratch::io("open", device))?;
                scratch::forget_pages(&open, device)?;
            }
        }
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, sockets, servers, native, .. } = *self;
        // Before its server. What its page cache still has is written first: the kernel could not, later.
        if let Some((client, _)) = native {
            let _ = scratch::flush(client.device());
        }
        for (_, mut daemon) in servers {
            daemon.stop()?;
        }
        if let Some((_, change)) = sockets {
            journal.undo(change)?;
        }
        Box::new(file).remove(journal)
    }
}
