//! Where targets are made, on this host or on another machine, and whether there is room for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::failure::{Exit, Failure};
use vmio_node::{Node, Reader, device_safety};

use super::PlanOptions;
use super::why_not::NoRoom;
use crate::disks::places::{self, Place, PlaceBackend};
use crate::disks::space::gib;
use crate::disks::targets::Pinned;
use crate::disks::{modelled, space, targets};
use crate::nodes::{Machine, Measured};

/// Where targets are made.
#[derive(Clone)]
pub struct Placed {
    /// The place.
    pub place: Place,
    /// Where the scratch directory goes: the place, or beside the state where that holds volumes.
    pub dir: PathBuf,
    /// A directory that is not there and was not asked to be made.
    pub missing: Option<PathBuf>,
    /// The user's own device, as the target `device`, held from now on.
    pub device: Option<Arc<Pinned>>,
    /// What could not be seen of its users.
    pub device_told: Vec<String>,
    /// The disks below.
    pub backing: Backing,
    /// Bytes that the targets take.
    pub needed_bytes: u64,
    /// Memory that the guests and caches of targets take, which a modelled disk leaves to them.
    pub guest_bytes: u64,
}

/// Where targets go, as far as that is known before it is known what they take.
pub(super) fn place(options: &PlanOptions, local: &dyn Node) -> anyhow::Result<Placed> {
    let reader = local.reader();
    let place = match &options.on {
        Some(on) => places::resolve(local, on),
        None => places::directory(&space::default_dir(reader, &options.state_dir)),
    }
    .map_err(refused)?;
    let dir = match &place.backend {
        PlaceBackend::Files(dir) => dir.clone(),
        PlaceBackend::Volumes(_) | PlaceBackend::Modelled(_) | PlaceBackend::PassedThrough(_) => {
            options.state_dir.clone()
        }
    };
    let existing = existing_part(reader, &dir);
    if !existing.is_dir() {
        return Err(Failure::new(Exit::Precondition, format!("{} is not a directory", existing.display()))
            .help("name a directory with --on")
            .into());
    }
    let device = options.device.as_deref().map(|device| pin(local, device, options.force)).transpose()?;
    let (device, device_told) = device.unzip();
    let backing = backing_of(local, &place, &existing, device.as_deref())?;
    // For volumes it is the state directory, which is made where it is missing.
    let named = options.on.is_some() && matches!(place.backend, PlaceBackend::Files(_));
    let unmade = named && !options.make_place && existing != dir;
    Ok(Placed {
        missing: unmade.then(|| dir.clone()),
        device_told: device_told.unwrap_or_default(),
        needed_bytes: 0,
        guest_bytes: 0,
        place,
        dir,
        device,
        backing,
    })
}

impl Placed {
    /// Whether what the targets take is there, in words.
    pub(super) fn look_for_room(&self, local: &dyn Node) -> Result<String, NoRoom> {
        let existing = existing_part(local.reader(), &self.dir);
        let space = match &self.place.backend {
            PlaceBackend::Files(_) => {
                let left = space::demand(local, &existing, self.needed_bytes).map_err(targets::Error::from)?;
                if self.needed_bytes > 0 {
                    targets::not_in_memory(&existing)?;
                }
                places::usable(&existing).map_err(targets::Error::from)?;
                left
            }
            PlaceBackend::Volumes(pool) => pool.demand(local, self.needed_bytes).map_err(targets::Error::from)?,
            PlaceBackend::Modelled(disk) => {
                return Ok(modelled::room(local.reader(), disk, self.needed_bytes, self.guest_bytes)?);
            }
            // Nothing is made there, and what it holds its guest sees.
            PlaceBackend::PassedThrough(device) => return Ok(format!("IOMMU group {}", device.group)),
        };
        Ok(format!("{} left ({})", gib(space.free_bytes), space.of))
    }
}

/// Whether what the targets take is there on another machine: what is below its directory, in words.
pub(super) fn room_elsewhere(
    machine: &Machine,
    own: &Measured,
    target_bytes: u64,
    needed_bytes: u64,
) -> Result<String, NoRoom> {
    if let Some(device) = &own.device {
        targets::elsewhere::holds(device, target_bytes)?;
    }
    if needed_bytes == 0 && own.device.is_some() {
        Ok(String::new())
    } else {
        Ok(targets::elsewhere::look(&*machine.node, &own.dir, needed_bytes)?)
    }
}

/// An unmet precondition with what to do about it.
fn refused(e: places::Error) -> Failure {
    let exit = if e.kind == places::Kind::Unknown { Exit::Usage } else { Exit::Precondition };
    Failure::new(exit, e.to_string()).help(e.help)
}

/// Resolves the user's own device once and for all, and sees to it that it may be overwritten.
/// Returns what is to be told of its users.
fn pin(local: &dyn Node, device: &Path, force: bool) -> Result<(Arc<Pinned>, Vec<String>), Failure> {
    let pinned = Pinned::of(local, device).and_then(|pinned| {
        let told = device_safety::check(local, &pinned, force)?;
        Ok((Arc::new(pinned), told))
    });
    pinned.map_err(|e| Failure::new(Exit::Precondition, e.to_string()))
}

/// The disks below the place, or below the user's own device.
fn backing_of(local: &dyn Node, place: &Place, existing: &Path, device: Option<&Pinned>) -> anyhow::Result<Backing> {
    let path = match (device, &place.backend) {
        (Some(device), _) => &*device.node,
        (None, PlaceBackend::Volumes(pool)) => return Ok(pool.backing(local).map_err(refused)?),
        (None, PlaceBackend::Files(_)) => existing,
        // Its counters are the guest's.
        (None, PlaceBackend::PassedThrough(device)) => return Ok(Backing::below(local, &device.dir())?),
        // It is not there yet; its loop device counts what is moved.
        (None, PlaceBackend::Modelled(disk)) => {
            return Ok(Backing { modelled: Some(disk.to_string()), ..Backing::default() });
        }
    };
    Backing::below(local, path).with_context(|| {
        Failure::new(Exit::Precondition, format!("cannot find out which disk is below {}", path.display()))
    })
}

/// The deepest part of the path that exists: what the scratch directory will lie in.
pub(super) fn existing_part(reader: &dyn Reader, dir: &Path) -> PathBuf {
    dir.ancestors().find(|p| matches!(reader.stat(p), Ok(Some(_)))).unwrap_or(Path::new("/")).to_path_buf()
}
