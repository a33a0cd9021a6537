//! Reads guests' images: each file once, within the guest's time budget.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use vmio_model::facts::{Fact, Guest, Unread};
use vmio_node::{At, FileLayout};

use super::below::{self, Pools};
use super::cached::{Span, cached_of};
use super::header::{self, HEADER_BYTES};
use super::info::{self, Error, Image};
use super::open::{self, Files, OpenRefusal};
use super::view::{Located, View};
use super::{DiskFile, DiskStorage};
use crate::host_view::HostView;
use crate::storage;

/// Most images of one guest that are read.
const MOST_IMAGES: usize = 400;

/// Start of a VHD's footer.
const VHD: &[u8] = b"conectix";

/// An image that is read once for all guests.
type Once = Arc<OnceLock<Result<Read, Error>>>;

/// What makes a file unique: its device's number, its inode, a block device's number, and the format.
type Key = ((u32, u32), u64, (u32, u32), String);

/// An image that was read.
#[derive(Debug, Clone)]
struct Read {
    image: Image,
    data_file: Option<String>,
    /// How its file system keeps it, where that may copy on write.
    layout: Option<FileLayout>,
    cached: Result<Option<u64>, Unread>,
}

/// What was found of a guest's disks.
#[derive(Debug, Default)]
pub struct OfGuest {
    /// By index of the disk in the guest.
    pub disks: Vec<(usize, DiskStorage)>,
    pub unread: Vec<Unread>,
}

/// Images that were read, so that one that many guests share is read once.
pub struct Images<'a> {
    host: &'a HostView<'a>,
    seen: Mutex<BTreeMap<Key, Once>>,
    /// Mount points of servers that did not answer and are not queried again.
    dead: Mutex<BTreeSet<PathBuf>>,
    pools: Pools,
}

/// A guest whose images are read.
struct Reading<'a> {
    host: &'a HostView<'a>,
    all: &'a Images<'a>,
    view: &'a View,
    pid: Option<u32>,
    files: Files,
    left: RefCell<usize>,
}

/// An image of a chain.
struct Member {
    read: Read,
    stat: vmio_node::FileStat,
    at: At,
    deleted: Option<vmio_model::facts::DeletedFile>,
}

impl<'a> Images<'a> {
    /// An empty cache.
    pub fn new(host: &'a HostView<'a>) -> Self {
        Self { host, seen: Mutex::default(), dead: Mutex::default(), pools: Pools::default() }
    }

    /// Reads a guest's images.
    pub fn of(&self, guest: &Guest, view: &View) -> OfGuest {
        let host = self.host;
        let files = Files::of(host, guest);
        let reading = Reading { host, all: self, view, pid: guest.pid, files, left: RefCell::new(MOST_IMAGES) };
        let mut of = OfGuest::default();
        for (d, disk) in guest.disks.iter().enumerate() {
            match host.charged(guest.pid, || DiskFile::of(host, view, disk)) {
                Some(Some(Ok(want))) => of.disks.push((d, reading.disk(&want))),
                Some(Some(Err(unread))) => of.unread.push(unread),
                Some(None) => {}
                None => {
                    of.unread.push(too_long(guest.disks.len() - d));
                    break;
                }
            }
        }
        of
    }

    fn is_dead(&self, point: &Path) -> bool {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).contains(point)
    }
}

fn too_long(left: usize) -> Unread {
    Unread {
        what: format!("{left} of the guest's disks"),
        why: "reading the others used up the time limit for one guest".into(),
        mend: "check whether their storage is slow".into(),
    }
}

impl Reading<'_> {
    fn disk(&self, want: &DiskFile) -> DiskStorage {
        let mut found = DiskStorage::default();
        let mount = self.view.server(&want.at);
        if let Some(mount) = mount.as_ref().filter(|m| self.all.is_dead(&m.point)) {
            let what = format!("disk image {}", want.named.display());
            let mend = "look whether the server is reachable".into();
            found.unread.push(Unread { what, why: format!("{} does not answer", mount.server), mend });
            return found;
        }
        let top = match self.member(&want.at, &want.named, want.format.as_deref().unwrap_or("raw")) {
            Ok(top) => top,
            Err(OpenRefusal::RequestDevice) => return found,
            Err(OpenRefusal::Error(e)) => {
                if let Some(mount) = mount.filter(|_| matches!(e, Error::Hangs { .. })) {
                    self.all.dead.lock().unwrap_or_else(PoisonError::into_inner).insert(mount.point);
                }
                if want.format.as_deref() == Some("vpc") {
                    found.below.grows = self.grows(want);
                }
                found.unread.push(e.unread(&want.named));
                return found;
            }
        };
        let storage = match &mount {
            Some(mount) => storage::on_server(&mount.server),
            None => storage::of(self.host.reader(), &top.stat),
        };
        let allocated = (!storage.block_device).then_some(top.stat.allocated);
        let on = self.view.mount(&want.at);
        let filesystem = on.map(|on| on.filesystem.as_str()).filter(|_| !storage.block_device);
        found.below = match &mount {
            Some(_) => below::on_server(on),
            None => below::of(self.host, &self.all.pools, want, self.pid, (&top.stat, &storage, on), top.read.layout),
        };
        found.memory = ["tmpfs", "ramfs"].into_iter().find(|memory| filesystem == Some(*memory));
        found.deleted.extend(top.deleted.clone());
        let bytes = storage.bytes.unwrap_or(top.stat.size);
        found.read_from = format!("stat {}", want.at.here.display());
        match want.format.as_deref() {
            Some("raw") => {
                found.raw(bytes, allocated);
                self.cached(&mut found, &want.at.here, &top, bytes);
            }
            Some(format) => self.chain(want, format, &mut found, top),
            None => {
                found.unread.push(probed(&want.named));
                found.allocated_bytes = allocated;
                self.cached(&mut found, &want.at.here, &top, bytes);
            }
        }
        if matches!(filesystem, Some("zfs" | "btrfs")) {
            // ZFS and btrfs compress: fewer allocated bytes do not mean holes.
            (found.sparse, found.thin) = (None, None);
        }
        found.storage = Some(storage);
        found
    }

    /// Whether a VHD grows: a fixed one has its footer at its end alone, a growing one also at its start (QEMU,
    /// block/vpc.c, `vpc_open`).
    fn grows(&self, want: &DiskFile) -> Fact<Option<bool>> {
        let look = || {
            let found = self.files.find(self.host, &want.named, &want.at, self.view).ok()?;
            let peek = self.host.reader().peek(&found.at, VHD.len()).ok()?;
            Some(peek.start == VHD)
        };
        let grows = self.host.charged(self.pid, look).flatten();
        grows.map_or_else(Fact::default, |grows| {
            Fact::read(Some(grows), format!("header of {}", want.at.here.display()))
        })
    }

    fn cached(&self, found: &mut DiskStorage, here: &Path, member: &Member, bytes: u64) {
        let span = Span { bytes, at: member.at.clone(), counted: member.read.cached.clone() };
        found.files.push((here.to_owned(), span));
    }

    /// An image that is not raw, and its backing chain.
    fn chain(&self, want: &DiskFile, format: &str, found: &mut DiskStorage, top: Member) {
        found.read_from = format!("header of {}", want.at.here.display());
        found.format = Some((top.read.image.format.clone(), found.read_from.clone()));
        found.virtual_bytes = Some(top.read.image.virtual_bytes);
        found.cluster_bytes = top.read.image.cluster_bytes;
        let allocated = top.read.image.allocated_bytes;
        // How much of a block device an image uses is not known.
        let allocated = Some(allocated).filter(|_| top.stat.rdev == (0, 0));
        found.thin = allocated.map(|bytes| bytes < top.read.image.virtual_bytes);
        if let Some(data) = &top.read.data_file {
            found.thin = None;
            found.unread.push(Unread {
                what: format!("data of the disk image {}", want.named.display()),
                why: format!("it is in another file, {data}, which vmio does not read"),
                mend: "run qemu-img info -U as the guest's user".into(),
            });
        }
        let places = RefCell::new(BTreeMap::from([(want.at.here.clone(), want.at.clone())]));
        let members = RefCell::new(Vec::new());
        let here = |path: PathBuf| -> Result<PathBuf, Error> {
            let at = self.charged(&path, || self.view.locate(self.host, &path))?;
            let at = at.map_err(|lost| Error::NotReadable { path, why: lost.to_string(), mend: None })?;
            let here = at.here.clone();
            places.borrow_mut().insert(here.clone(), at);
            Ok(here)
        };
        let first = RefCell::new(Some(top));
        // Only the first image may lack a stated format, and this one has it.
        let image = |path: &Path, named: Option<&str>| {
            let member = match first.borrow_mut().take() {
                Some(top) => top,
                None => {
                    let places = places.borrow();
                    let at = places.get(path).ok_or_else(|| Error::Missing { path: path.into() })?;
                    match self.member(at, path, named.unwrap_or(format)) {
                        Ok(member) => member,
                        Err(OpenRefusal::Error(e)) => return Err(e),
                        Err(OpenRefusal::RequestDevice) => {
                            return Err(Error::NotReadable {
                                path: path.into(),
                                why: "it is a device of requests".into(),
                                mend: None,
                            });
                        }
                    }
                }
            };
            let image = Image { path: path.into(), ..member.read.image.clone() };
            members.borrow_mut().push((path.to_owned(), member));
            Ok(image)
        };
        let followed = info::follow(&want.at.here, Some(format), image, &here);
        let members = members.into_inner();
        for (n, (path, member)) in members.iter().enumerate() {
            let raw = member.read.image.format == "raw";
            let bytes = if raw { member.read.image.virtual_bytes } else { member.read.image.allocated_bytes };
            self.cached(found, path, member, bytes);
            if n > 0 {
                found.deleted.extend(member.deleted.clone());
            }
        }
        match followed {
            Ok(chain) => {
                found.backing_files = Some((chain.len() - 1) as u32);
                found.allocated_bytes = Some(chain.iter().map(|i| i.allocated_bytes).sum());
                if let Some(below) = chain.last().and_then(|last| last.backing.as_deref()) {
                    found.unread.push(Unread {
                        what: format!("what lies below the disk image {}", want.named.display()),
                        why: format!("{below} is not a local file; skipped"),
                        mend: "look at it on the machine that has it".into(),
                    });
                }
            }
            Err(e) => {
                found.allocated_bytes = allocated;
                found.unread.push(e.unread(&want.named));
            }
        }
    }

    /// Works within the guest's remaining time.
    fn charged<T>(&self, named: &Path, work: impl FnOnce() -> T) -> Result<T, Error> {
        let late = || Error::NotReadable {
            path: named.into(),
            why: too_long(1).why,
            mend: Some("their storage may be slow".into()),
        };
        self.host.charged(self.pid, work).ok_or_else(late)
    }

    /// Finds a file and reads it.
    fn member(&self, at: &Located, named: &Path, format: &str) -> Result<Member, OpenRefusal> {
        let too_many = || Error::NotReadable {
            path: named.into(),
            why: format!("the guest has more than {MOST_IMAGES} images"),
            mend: Some("the rest is not read, see qemu-img info".into()),
        };
        {
            let mut left = self.left.borrow_mut();
            *left = left.checked_sub(1).ok_or_else(too_many)?;
        }
        // The time budget may also run out below the first image.
        let found = self.charged(named, || self.files.find(self.host, named, at, self.view))??;
        let is = found.is;
        let key: Key = (is.stat.dev, is.inode, is.stat.rdev, format.to_owned());
        let once = Arc::clone(self.all.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let read =
            self.charged(named, || once.get_or_init(|| self.read(&found, &at.here, named, format)).clone())??;
        Ok(Member { read, stat: is.stat, at: found.at, deleted: found.deleted })
    }

    fn read(&self, found: &open::ImageFile, here: &Path, named: &Path, format: &str) -> Result<Read, Error> {
        let reader = self.host.reader();
        let peek = |most: usize| reader.peek(&found.at, most);
        match format {
            "raw" => {
                let storage = storage::of(reader, &found.is.stat);
                let image = Image {
                    path: here.into(),
                    format: "raw".into(),
                    virtual_bytes: storage.bytes.unwrap_or(found.is.stat.size),
                    allocated_bytes: found.is.stat.allocated,
                    cluster_bytes: None,
                    extended_l2: false,
                    encrypted: false,
                    corrupt: false,
                    backing: None,
                    backing_format: None,
                };
                let peek = peek(0);
                let layout = peek.as_ref().ok().and_then(|peek| peek.layout);
                Ok(Read { image, data_file: None, layout, cached: cached_of(reader, here, peek) })
            }
            "qcow2" => {
                let peek = peek(HEADER_BYTES).map_err(|e| open::unreadable(self.host, named, &e))?;
                let header = header::qcow2(named, &peek.start)?;
                let image = Image { allocated_bytes: found.is.stat.allocated, ..header.image };
                let layout = peek.layout;
                let cached = cached_of(reader, here, Ok(peek));
                Ok(Read { image, data_file: header.data_file, layout, cached })
            }
            "luks" => Err(Error::Encrypted { path: named.into() }),
            other => Err(Error::NotReadable {
                path: named.into(),
                why: format!("{other} images can refer to other files; vmio reads only raw and qcow2"),
                mend: Some("run qemu-img info -U as the guest's user".into()),
            }),
        }
    }
}

/// A raw image without a stated format. Its content is not probed: a guest can write a header of any format on its
/// disk, with any file of this machine as backing file.
fn probed(named: &Path) -> Unread {
    Unread {
        what: format!("format of the disk image {}", named.display()),
        why: "the guest's configuration does not state it. Probing the format would mean trusting guest-written data"
            .into(),
        mend: "state it: format=raw or format=qcow2 (QEMU itself warns when it has to guess)".into(),
    }
}

impl DiskStorage {
    /// Sizes of a raw disk; `allocated` where it is a file.
    fn raw(&mut self, bytes: u64, allocated: Option<u64>) {
        self.virtual_bytes = Some(bytes).filter(|b| *b > 0);
        self.allocated_bytes = allocated;
        self.sparse = allocated.map(|allocated| allocated < bytes);
        self.thin = self.sparse;
        self.backing_files = Some(0);
    }
}
