//! The images of one qcow2 target: making them, giving each attachment the one that a cell needs,
//! and taking them away.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use vmio_look::images::info::{self, DEFAULT_L2_CACHE_BYTES};
use vmio_model::cell::Attachment;
use vmio_model::rate::ByteRate;
use vmio_node::{ChangeId, Exec, Journal, Local, Node, held};

use super::super::raw_file::RawFile;
use super::super::scratch::{self, MIB};
use super::super::{Demands, Error, Exchange, Prepared, Result, State, facts};
use super::{FORMAT, L2, L2_PIECE, Life, Qcow2};
use crate::disks::Storage;

/// What images are made with.
pub struct Maker {
    /// qemu-img.
    pub tool: PathBuf,
    /// Journal of the run.
    pub journal: Arc<Journal>,
    /// `--gentle`: for writing images out.
    pub pace: Option<ByteRate>,
}

/// An image file of ours.
struct Layer {
    /// Where it is, for people.
    path: PathBuf,
    /// As what programs open it: by the descriptor of `file`.
    open: PathBuf,
    file: File,
    change: ChangeId,
}

/// The images of one attachment.
struct Disk {
    /// What a hypervisor has open, or opens next.
    open: Layer,
    /// Whether every cluster of it was written by us.
    full: bool,
    /// Whether no cell has used it yet.
    unused: bool,
    /// The full one while another is open.
    kept: Option<Layer>,
    /// What a hypervisor may still have open.
    old: Option<Layer>,
    effective: BTreeMap<String, String>,
}

/// The images of a target, for all its attachments.
pub struct Images {
    kind: Qcow2,
    dir: PathBuf,
    /// The native side's file.
    twin: RawFile,
    node: Local,
    journal: Arc<Journal>,
    tool: PathBuf,
    /// `--gentle`: for writing images out.
    pace: Option<ByteRate>,
    /// What overlays lie on, the nearest first.
    below: Vec<Layer>,
    disks: Vec<(Attachment, Disk)>,
    /// Number of images made.
    made: u32,
}

impl Images {
    /// Over a written-out raw file; what all attachments share is made now.
    pub fn prepare(kind: Qcow2, dir: PathBuf, twin: RawFile, maker: Maker) -> Result<Self> {
        let Maker { tool, journal, pace } = maker;
        let mut images = Self {
            kind,
            dir,
            twin,
            node: Local::owned(Arc::clone(&journal)),
            journal: Arc::clone(&journal),
            tool,
            pace,
            below: Vec::new(),
            disks: Vec::new(),
            made: 0,
        };
        match images.begin() {
            Ok(()) => Ok(images),
            Err(e) => {
                let _ = Box::new(images).remove(&journal);
                Err(e)
            }
        }
    }

    /// Makes what all attachments share.
    fn begin(&mut self) -> Result<()> {
        if self.kind.extended_l2 {
            let help = self.run(&["create", "-f", FORMAT, "-o", "help", "x"])?;
            self.kind.extended_l2 = help.contains("extended_l2=");
        }
        if self.kind.life == Life::Overlay {
            let base = self.make_full()?;
            self.below.push(base);
            let middle = self.make_empty()?;
            self.below.insert(0, middle);
        }
        Ok(())
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let limit = Duration::from_secs(120 + self.twin.bytes() / MIB);
        let command = Exec::new(self.tool.display().to_string()).args(args.iter().copied()).limit(limit);
        let output = self.node.exec(&command)?;
        if output.ok() {
            return Ok(output.out());
        }
        let reason = format!("{:?}: {}", output.end, output.err().trim());
        Err(Error::Tool { command: command.shown(), reason })
    }

    /// Makes an image; its file is in the journal first.
    fn make(&mut self, with: impl FnOnce(&Self, &str) -> Result<()>) -> Result<Layer> {
        self.made += 1;
        let path = self.dir.join(format!("vmio-{}-{}.qcow2", self.kind.name, self.made));
        let (file, change) = self.journal.scratch_file(&path)?;
        let made = held::by_descriptor(&file).map_err(scratch::io("open", &path)).and_then(|open| {
            with(self, &open.display().to_string())?;
            Ok(open)
        });
        match made {
            Ok(open) => Ok(Layer { path, open, file, change }),
            Err(e) => Err(scratch::undone(&self.journal, change, e)),
        }
    }

    fn options(&self, preallocation: bool) -> String {
        let mut options = format!("cluster_size={}", self.kind.cluster_bytes);
        if self.kind.extended_l2 {
            options.push_str(",extended_l2=on");
        }
        if let (Some(mode), true) = (self.kind.preallocation, preallocation) {
            options.push_str(",preallocation=");
            options.push_str(mode);
        }
        options
    }

    /// A new image, over what lies below.
    fn make_empty(&mut self) -> Result<Layer> {
        let below = self.below.first().map(|l| l.open.display().to_string());
        let (options, size) = (self.options(true), self.twin.bytes().to_string());
        self.make(|this, path| {
            let mut args = vec!["create", "-q", "-f", FORMAT, "-o", &options];
            if let Some(below) = &below {
                args.extend(["-F", FORMAT, "-b", below]);
            }
            args.extend([path, &size]);
            this.run(&args).map(drop)
        })
    }

    /// An image with every cluster written, with the twin's data (which no disk can shrink).
    fn make_full(&mut self) -> Result<Layer> {
        let (options, bytes) = (self.options(false), self.twin.bytes());
        let rate = self.pace.map(|rate| rate.bytes().max(MIB).to_string());
        let from = self.twin.native().display().to_string();
        let layer = self.make(|this, path| {
            // -S 0: blocks of zeroes, which a native cell may have left in the twin, are written too.
            let mut args = vec!["convert", "-q", "-f", "raw", "-T", "none", "-t", "none", "-S", "0", "-O", FORMAT];
            args.extend(["-o", &options]);
            if let Some(rate) = &rate {
                args.extend(["-r", rate]);
            }
            args.extend([from.as_str(), path]);
            this.run(&args).map(drop)
        })?;
        let allocated = layer.file.metadata().map_err(scratch::io("look at", &layer.path))?.blocks() * 512;
        if allocated < bytes {
            let reason = format!(
                "of {bytes} bytes written, {allocated} are allocated; its file system compresses or shares data; use --on \
                 another directory"
            );
            let failure = Error::NotAsAsked { path: layer.path, reason };
            return Err(scratch::undone(&self.journal, layer.change, failure));
        }
        Ok(layer)
    }

    fn take_away(&self, layer: Layer) -> Result<()> {
        let Layer { file, change, .. } = layer;
        // A file server keeps what is deleted and open under another name.
        drop(file);
        Ok(self.journal.undo(change)?)
    }

    /// Bytes of its L2 tables, and of the cache for them where it is said to QEMU.
    fn l2(&self) -> (u64, Option<u64>) {
        let all = info::l2_bytes(self.twin.bytes(), self.kind.cluster_bytes, self.kind.extended_l2).unwrap_or(0);
        let cache = match self.kind.l2 {
            L2::Default => None,
            L2::Full => Some(all.next_multiple_of(self.kind.cluster_bytes)),
            L2::Eighth => Some((all / 8 / L2_PIECE * L2_PIECE).max(2 * L2_PIECE)),
        };
        (all, cache)
    }

    /// What a hypervisor opens for this image.
    fn storage(&self, layer: &Layer, asked: &Attachment) -> Storage {
        let mut options = Map::new();
        if let (_, Some(cache)) = self.l2() {
            options.insert("l2-cache-size".into(), json!(cache));
        }
        if self.kind.l2 == L2::Eighth {
            options.insert("l2-cache-entry-size".into(), json!(L2_PIECE));
        }
        if !self.below.is_empty() {
            // Said in full: what QEMU opens by the name in an image's header has QEMU's own
            // choice of AIO engine.
            let cache = json!({"direct": asked.cache.direct(), "no-flush": asked.cache.no_flush()});
            let image = |layer: &Layer, below: Value| {
                let file = json!({
                    "driver": "file", "filename": layer.open, "aio": asked.aio.to_string(), "cache": cache,
                    "locking": "off", "read-only": true,
                });
                json!({"driver": FORMAT, "file": file, "cache": cache, "read-only": true, "backing": below})
            };
            let backing = self.below.iter().rev().fold(Value::Null, |below, layer| image(layer, below));
            options.insert("backing".into(), backing);
        }
        Storage::Image { path: layer.open.clone(), format: FORMAT, options }
    }

    /// What the image is like, as qemu-img reads it.
    fn describe(&self, layer: &Layer) -> Result<BTreeMap<String, String>> {
        let open = layer.open.display().to_string();
        let top = info::parse(&layer.path, &self.run(&["info", "-U", "--output=json", "-f", FORMAT, &open])?)?;
        let (all, cache) = self.l2();
        let cache = cache.unwrap_or(DEFAULT_L2_CACHE_BYTES);
        Ok(facts([
            ("image.format", top.format.clone()),
            ("image.cluster_bytes", top.cluster_bytes.unwrap_or(0).to_string()),
            ("image.extended_l2", top.extended_l2.to_string()),
            ("image.preallocation", self.kind.preallocation.unwrap_or("off").to_owned()),
            ("image.chain", (1 + self.below.len()).to_string()),
            ("image.l2_bytes", all.to_string()),
            ("image.l2_cache_bytes", cache.to_string()),
            ("image.l2_coverage_ratio", format!("{:.3}", top.l2_coverage_ratio(cache).unwrap_or(1.0))),
        ]))
    }

    fn layers<'a>(&'a self) -> impl Iterator<Item = &'a Layer> {
        let of =
            |(_, d): &'a (Attachment, Disk)| [Some(&d.open), d.kept.as_ref(), d.old.as_ref()].into_iter().flatten();
        self.below.iter().chain(self.disks.iter().flat_map(of))
    }

    fn position(&self, asked: &Attachment) -> Option<usize> {
        self.disks.iter().position(|(a, _)| a == asked)
    }
}

impl Prepared for Images {
    fn native(&self) -> &Path {
        self.twin.native()
    }

    fn intact(&self) -> Result<()> {
        self.twin.intact()?;
        self.layers().try_for_each(|layer| scratch::still_there(&layer.path, &layer.file))
    }

    /// No guest runs that has an image of this attachment open.
    fn attach(&mut self, asked: &Attachment) -> Result<Storage> {
        if let Some(at) = self.position(asked) {
            self.exchanged(asked)?;
            let (_, disk) = &self.disks[at];
            if disk.full || disk.unused {
                return Ok(self.storage(&disk.open, asked));
            }
            let full = self.kind.life == Life::Old;
            let fresh = if full { self.make_full()? } else { self.make_empty()? };
            let (_, disk) = &mut self.disks[at];
            (disk.full, disk.unused) = (full, true);
            let used = std::mem::replace(&mut disk.open, fresh);
            self.take_away(used)?;
            return Ok(self.storage(&self.disks[at].1.open, asked));
        }
        let full = self.kind.life == Life::Old;
        let open = if full { self.make_full()? } else { self.make_empty()? };
        let effective = self.describe(&open)?;
        let storage = self.storage(&open, asked);
        self.disks.push((asked.clone(), Disk { open, full, unused: true, kept: None, old: None, effective }));
        Ok(storage)
    }

    fn attached(&self, asked: &Attachment) -> BTreeMap<String, String> {
        self.position(asked).map(|at| self.disks[at].1.effective.clone()).unwrap_or_default()
    }

    fn exchange(&mut self, asked: &Attachment, state: State) -> Result<Option<Exchange>> {
        let Some(at) = self.position(asked) else { return Ok(None) };
        self.exchanged(asked)?;
        let want_full = match self.kind.life {
            Life::Old if self.disks[at].1.full => return Ok(None),
            Life::Old => true,
            Life::New => state != State::Fresh,
            Life::Overlay => false,
        };
        let (_, disk) = &mut self.disks[at];
        let unused = std::mem::replace(&mut disk.unused, false);
        if if want_full { disk.full } else { unused && !disk.full } {
            return Ok(None);
        }
        let kept = if want_full { disk.kept.take() } else { None };
        let wrote_bytes = if want_full && kept.is_none() { self.twin.bytes() } else { 0 };
        let next = match kept {
            Some(kept) => kept,
            None if want_full => self.make_full()?,
            None => self.make_empty()?,
        };
        let storage = self.storage(&next, asked);
        let (_, disk) = &mut self.disks[at];
        let (before, was_full) = (std::mem::replace(&mut disk.open, next), disk.full);
        *(if was_full { &mut disk.kept } else { &mut disk.old }) = Some(before);
        disk.full = want_full;
        Ok(Some(Exchange { storage, wrote_bytes }))
    }

    fn exchanged(&mut self, asked: &Attachment) -> Result<()> {
        let old = self.position(asked).and_then(|at| self.disks[at].1.old.take());
        old.map_or(Ok(()), |old| self.take_away(old))
    }

    fn mark_dirty(&mut self, asked: &Attachment) {
        if let Some(at) = self.position(asked) {
            self.disks[at].1.full = false;
        }
    }

    fn settle(&mut self, asked: &Attachment) -> Result<()> {
        let open = self.position(asked).map(|at| &self.disks[at].1.open);
        open.map_or(Ok(()), |layer| layer.file.sync_all().map_err(scratch::io("flush", &layer.path)))
    }

    fn bytes(&self) -> u64 {
        self.twin.bytes()
    }
    fn demands(&self) -> Demands {
        self.twin.demands()
    }
    fn allocates(&self) -> bool {
        self.kind.life != Life::Old
    }
    fn native_allocates(&self) -> bool {
        self.twin.allocates()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.twin.effective()
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        for layer in self.layers() {
            scratch::forget_pages(&layer.file, &layer.path)?;
        }
        self.twin.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let changes: Vec<ChangeId> = self.layers().map(|l| l.change).collect();
        let Self { twin, below, disks, .. } = *self;
        drop((below, disks));
        for change in changes {
            journal.undo(change)?;
        }
        Box::new(twin).remove(journal)
    }
}
