//! A flash cache on the host below a guest's disk, as a caching storage server has it: `nbdkit` serves a written-out
//! raw file of the place by the NBD protocol on a Unix socket, behind its cache filter (nbdkit-cache-filter(1)). What
//! was read once is read from the cache from then on.
//!
//! Both devices are modelled: the slow one is the place (`--on modelled:RATE`), whose counters tell hits from misses,
//! and the fast one is memory ([`memory`]). The filter reads and writes its cache through the page cache in any case.
//!
//! Each attachment that is asked for has two servers: one whose cache keeps what is read, for hits, and one whose cache
//! keeps nothing, for misses. The filter forgets nothing, so a guest's disk is pointed at the one or the other before a
//! cell ([`Prepared::exchange`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vmio_look::require::{self, Requirement};
use vmio_model::cell;
use vmio_node::{ChangeId, Journal, Local};

use super::memory;
use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::{
    CacheAt, Demands, Error, Exchange, Prepared, Result, State, Target, TargetCtx, Unfit, WRITTEN_OUT, is_modelled,
};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

mod nbdkit;

use nbdkit::{NBDKIT, Server};

/// Entry `flash-cache`.
pub struct FlashCache;

impl Target for FlashCache {
    fn name(&self) -> &'static str {
        "flash-cache"
    }
    fn about(&self) -> &'static str {
        "raw file on a modelled disk behind nbdkit's cache filter, whose cache is in memory; guests only, only read"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: NBDKIT,
                    why: "serves the disk behind its cache filter",
                    fix: "apt install nbdkit, or leave out the target `flash-cache`",
                    check: |reader| require::program(reader, NBDKIT),
                },
                memory::REQUIREMENT,
            ]
        }
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        is_modelled(backend)
    }
    fn cache_bytes(&self, bytes: u64, disks: u64) -> u64 {
        bytes.saturating_mul(disks)
    }
    fn flash_cache(&self) -> Option<CacheAt> {
        Some(CacheAt::Host)
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost => Err("its cache is nbdkit's; use warm-flash"),
            State::Filled | State::WarmGuest | State::WarmFlash => Ok(()),
        }
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some(
            "flash-cache has its client in a guest's hypervisor: natively it is the kernel's (nbd-client), and vmio \
             loads no module for it; compare it with preallocated",
        )
    }
    fn only_read(&self) -> Option<&'static str> {
        Some("flash-cache is only read: what a cache does with writes is not measured")
    }
    fn exchanges(&self) -> bool {
        true
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        memory::room(ctx.node, ctx.bytes, 1)?;
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        let (open, path) = (scratch.open.clone(), scratch.path.clone());
        let file = Box::new(RawFile::new(scratch, false));
        let (dir, made) = match memory::dir(ctx.journal, self.name()) {
            Ok(made) => made,
            Err(e) => {
                let _ = file.remove(ctx.journal);
                return Err(e);
            }
        };
        let node = Local::owned(Arc::clone(ctx.journal));
        Ok(Box::new(Cached { file, open, path, node, dir, made, servers: Vec::new() }))
    }
}

/// The file, and what serves it.
struct Cached {
    file: Box<RawFile>,
    /// As what programs open it, and where it is.
    open: PathBuf,
    path: PathBuf,
    /// Servers are started here: they bear the run's mark.
    node: Local,
    /// Directory of the caches and sockets, of mode 0700.
    dir: PathBuf,
    made: ChangeId,
    servers: Vec<(cell::Attachment, Pair)>,
}

/// The servers of an attachment: one whose cache keeps what is read, and one whose cache keeps nothing.
struct Pair {
    keeps: Server,
    misses: Server,
}

impl Pair {
    fn both(&mut self) -> [&mut Server; 2] {
        [&mut self.keeps, &mut self.misses]
    }

    /// How one of them ended, if one has.
    fn ended(&mut self) -> Result<Option<String>> {
        for server in self.both() {
            if let Some(how) = server.ended()? {
                return Ok(Some(how));
            }
        }
        Ok(None)
    }
}

impl Cached {
    /// Starts the servers of the nth attachment. Those that it had are gone.
    fn start(&self, nth: usize) -> Result<Pair> {
        let start = |keeps| Server::start(&self.node, &self.open, (&self.dir, nth), keeps);
        Ok(Pair { keeps: start(true)?, misses: start(false)? })
    }

    fn pair(&self, asked: &cell::Attachment) -> Option<&Pair> {
        self.servers.iter().find(|(of, _)| of == asked).map(|(_, pair)| pair)
    }
}

impl Prepared for Cached {
    fn native(&self) -> &Path {
        &self.open
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, asked: &cell::Attachment) -> Result<Storage> {
        let at = self.servers.iter().position(|(of, _)| of == asked);
        if let Some(at) = at {
            let (_, pair) = &mut self.servers[at];
            if pair.ended()?.is_none() {
                return Ok(pair.keeps.storage());
            }
            for server in pair.both() {
                server.stop()?;
            }
        }
        if at.is_none() {
            // None takes what it may before the first cell.
            memory::room(&self.node, self.bytes(), self.servers.len() + 1)?;
        }
        let pair = self.start(at.unwrap_or(self.servers.len()))?;
        let storage = pair.keeps.storage();
        match at {
            Some(at) => self.servers[at].1 = pair,
            None => self.servers.push((asked.clone(), pair)),
        }
        Ok(storage)
    }
    fn attached(&self, asked: &cell::Attachment) -> BTreeMap<String, String> {
        self.pair(asked).map(|pair| pair.keeps.told.clone()).unwrap_or_default()
    }
    fn servers(&self, asked: &cell::Attachment) -> Vec<u32> {
        self.pair(asked).map(|pair| vec![pair.keeps.pid, pair.misses.pid]).unwrap_or_default()
    }
    fn sound(&mut self, asked: &cell::Attachment) -> Result<()> {
        let pair = self.servers.iter_mut().find(|(of, _)| of == asked);
        match pair.map(|(_, pair)| pair.ended()).transpose()?.flatten() {
            Some(reason) => Err(Error::Server { path: self.path.clone(), reason }),
            None => Ok(()),
        }
    }
    /// Which of its servers a guest has is not known here: it gets the one that the state needs, again where it has it.
    fn exchange(&mut self, asked: &cell::Attachment, state: State) -> Result<Option<Exchange>> {
        self.sound(asked)?;
        let needed = |pair: &Pair| match state {
            State::Filled => pair.misses.storage(),
            State::Fresh | State::WarmGuest | State::WarmHost | State::WarmFlash => pair.keeps.storage(),
        };
        Ok(self.pair(asked).map(|pair| Exchange { storage: needed(pair), wrote_bytes: 0 }))
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
    fn reset(&mut self, state: State) -> Result<u64> {
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, made, mut servers, .. } = *self;
        for server in servers.iter_mut().flat_map(|(_, pair)| pair.both()) {
            server.stop()?;
        }
        journal.undo(made)?;
        file.remove(journal)
    }
}
