//! Disk traffic by guest without block tracing, from the best source: libvirt's counters, the guest's control group,
//! `/proc/PID/io`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vmio_model::top::load::{Device, DiskSource};
use vmio_model::top::reading::{DiskReading, Sides};

use vmio_node::linux::cgroup::{self, Hierarchies, dir_of};

use super::domstats::Libvirt;
use super::files::{Files, PolledFile};
use super::member::Member;
use super::parse;

/// Counters of control groups, by guest.
#[derive(Default)]
pub(super) struct Groups {
    files: BTreeMap<u32, Group>,
    version: u64,
}

enum Group {
    /// `io.stat`.
    Two(PolledFile),
    /// Requests and bytes.
    One(PolledFile, PolledFile),
}

impl Groups {
    /// Finds the files again after guests came or went.
    pub fn refresh(&mut self, members: &[Member], files: &Files<'_>, version: u64) {
        if std::mem::replace(&mut self.version, version) == version {
            return;
        }
        let hierarchies = Hierarchies::of(files.reader()).unwrap_or_default();
        let there = |path: &Path| files.reader().read(path).is_ok();
        let find = |m: &Member| {
            let own = |controller: &str| m.groups.get(controller).filter(|p| p.as_str() != "/");
            if let Some(path) = own("blkio") {
                let dir = dir_of(hierarchies.v1("blkio")?, path)?;
                let (requests, bytes) =
                    (dir.join("blkio.throttle.io_serviced"), dir.join("blkio.throttle.io_service_bytes"));
                return there(&bytes).then(|| Group::One(PolledFile::new(requests), PolledFile::new(bytes)));
            }
            let file = dir_of(hierarchies.v2()?, own("")?)?.join("io.stat");
            there(&file).then(|| Group::Two(PolledFile::new(file)))
        };
        let alone = members.iter().filter(|m| m.alone);
        self.files = alone.filter_map(|m| Some((m.pid(), find(m)?))).collect();
    }

    fn read(&mut self, pid: u32, files: &mut Files<'_>, leaves: &BTreeSet<Device>) -> Option<DiskReading> {
        let all: BTreeMap<Device, Sides> = match self.files.get_mut(&pid)? {
            Group::Two(file) => parse::io_stat(files.read(file)?),
            Group::One(requests, bytes) => {
                let requests = cgroup::blkio(files.read(requests)?);
                let both = |(d, b): (&Device, &(u64, u64))| {
                    let n = requests.get(d).copied().unwrap_or_default();
                    (*d, [(Some(n.0), b.0), (Some(n.1), b.1)])
                };
                cgroup::blkio(files.read(bytes)?).iter().map(both).collect()
            }
        };
        // A stack of devices counts the same bytes at each level: use the lowest.
        let lowest: Vec<(Option<Device>, Sides)> =
            all.iter().filter(|(d, _)| leaves.contains(d)).map(|(d, s)| (Some(*d), *s)).collect();
        let found = if lowest.is_empty() { all.values().map(|s| (None, *s)).take(1).collect() } else { lowest };
        Some(DiskReading::Counters(DiskSource::ControlGroup, found))
    }
}

/// Reads the disk counters of a guest.
pub(super) fn read(
    member: &mut Member,
    groups: &mut Groups,
    libvirt: &Libvirt,
    files: &mut Files<'_>,
    leaves: &BTreeSet<Device>,
) -> DiskReading {
    if let Some(found) = libvirt.of(&member.guest) {
        return found;
    }
    if let Some(found) = groups.read(member.pid(), files, leaves) {
        return found;
    }
    match files.read(&mut member.io).and_then(parse::process_io) {
        Some(sides) => DiskReading::Counters(DiskSource::Process, vec![(None, sides)]),
        None => DiskReading::None,
    }
}
