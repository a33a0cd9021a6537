//! Disk traffic by guest where the block layer is not traced, the best source first: libvirt's
//! counters, the guest's control group, `/proc/PID/io`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vmio_model::top::load::{Device, DiskLoad, DiskSource, Transfer};
use vmio_model::top::reading::{DiskReading, Sides};

use super::files::{Files, Kept};
use super::parse;
use super::roster::Member;
use crate::backing::Backing;
use crate::look::{Look, Question};
use crate::managers::libvirt;

/// libvirt asks every guest's monitor: not more often than this, in seconds, and never more than
/// this part of the time.
const LIBVIRT_SECONDS: f64 = 5.0;
const SHARE: f64 = 0.02;
/// After a failure it is asked again after so many seconds.
const AGAIN_SECONDS: f64 = 60.0;

/// Counters of control groups, by guest.
#[derive(Default)]
pub(super) struct Groups {
    files: BTreeMap<u32, Group>,
    version: u64,
}

enum Group {
    /// `io.stat`.
    Two(Kept),
    /// Requests and bytes.
    One(Kept, Kept),
}

impl Groups {
    /// Finds the files anew after guests came or went.
    pub fn refresh(&mut self, members: &[Member], files: &Files<'_>, version: u64) {
        if std::mem::replace(&mut self.version, version) == version {
            return;
        }
        let mounts = crate::backing::mounts(files.reader()).unwrap_or_default();
        let v2 = mounts.iter().find(|m| m.filesystem == "cgroup2").map(|m| m.point.clone());
        let there = |path: &Path| files.reader().read(path).is_ok();
        let find = |m: &Member| {
            let inside = |root: &Path, path: &String| root.join(path.trim_start_matches('/'));
            if let Some(path) = m.groups.get("blkio").filter(|p| p.as_str() != "/") {
                let dir = inside(Path::new("/sys/fs/cgroup/blkio"), path);
                let (requests, bytes) =
                    (dir.join("blkio.throttle.io_serviced"), dir.join("blkio.throttle.io_service_bytes"));
                return there(&bytes).then(|| Group::One(Kept::new(requests), Kept::new(bytes)));
            }
            let file = inside(v2.as_ref()?, m.groups.get("").filter(|p| p.as_str() != "/")?).join("io.stat");
            there(&file).then(|| Group::Two(Kept::new(file)))
        };
        let alone = members.iter().filter(|m| m.alone);
        self.files = alone.filter_map(|m| Some((m.pid(), find(m)?))).collect();
    }

    fn read(&mut self, pid: u32, files: &mut Files<'_>, leaves: &BTreeSet<Device>) -> Option<DiskReading> {
        let all: BTreeMap<Device, Sides> = match self.files.get_mut(&pid)? {
            Group::Two(file) => parse::io_stat(files.read(file)?),
            Group::One(requests, bytes) => {
                let requests = parse::blkio(files.read(requests)?);
                let both = |(d, b): (&Device, &(u64, u64))| {
                    let n = requests.get(d).copied().unwrap_or_default();
                    (*d, [(Some(n.0), b.0), (Some(n.1), b.1)])
                };
                parse::blkio(files.read(bytes)?).iter().map(both).collect()
            }
        };
        // The same bytes are counted at each device of a stack: the lowest ones count.
        let lowest: Vec<(Option<Device>, Sides)> =
            all.iter().filter(|(d, _)| leaves.contains(d)).map(|(d, s)| (Some(*d), *s)).collect();
        let found = if lowest.is_empty() { all.values().map(|s| (None, *s)).take(1).collect() } else { lowest };
        Some(DiskReading::Counters(DiskSource::ControlGroup, found))
    }
}

/// Reads a guest's disks.
pub(super) fn read(
    member: &mut Member,
    groups: &mut Groups,
    libvirt: &Libvirt,
    files: &mut Files<'_>,
    leaves: &BTreeSet<Device>,
) -> DiskReading {
    if let Some(found) = libvirt.of(&member.guest.name) {
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

/// What `virsh domstats --block` says, asked now and then.
#[derive(Default)]
pub(super) struct Libvirt {
    last: Option<(f64, BTreeMap<String, Vec<Block>>)>,
    recent: BTreeMap<String, (f64, Vec<DiskLoad>)>,
    devices: BTreeMap<PathBuf, Option<Device>>,
    next: f64,
    /// Why it is not asked.
    pub refused: Option<String>,
}

/// A disk of a domain; times in nanoseconds (virsh(1), domstats).
#[derive(Debug, Clone, PartialEq, Default)]
struct Block {
    path: String,
    counts: BTreeMap<String, u64>,
}

impl Libvirt {
    fn of(&self, name: &str) -> Option<DiskReading> {
        let (span, disks) = self.recent.get(name)?;
        Some(DiskReading::Recent(DiskSource::Libvirt, *span, disks.clone()))
    }

    /// Asks when it is time.
    pub fn refresh(&mut self, look: &Look<'_>, now: f64) {
        if now < self.next {
            return;
        }
        if !libvirt::system_runs(look) {
            *self = Libvirt { next: now + AGAIN_SECONDS, ..Libvirt::default() };
            return;
        }
        let question = Question::Virsh {
            uri: "qemu:///system".into(),
            commands: vec!["domstats --running --block --nowait".into()],
        };
        let clock = |look: &Look<'_>| look.reader().clock_seconds().unwrap_or(now);
        let (began, answer) = (clock(look), look.ask(&question));
        let took = clock(look) - began;
        match answer {
            Ok(text) => {
                let found = domstats(&text);
                self.refused = None;
                self.next = now + LIBVIRT_SECONDS.max(took / SHARE);
                for block in found.values().flatten() {
                    let path = PathBuf::from(&block.path);
                    self.devices.entry(path.clone()).or_insert_with(|| device(look, &path));
                }
                if let Some((at, before)) = &self.last {
                    let span = now - at;
                    let pairs = found.iter().filter_map(|(name, disks)| Some((name, disks, before.get(name)?)));
                    self.recent =
                        pairs.map(|(name, disks, before)| (name.clone(), (span, self.loads(disks, before)))).collect();
                }
                self.last = Some((now, found));
            }
            Err(unread) => {
                *self = Libvirt {
                    refused: Some(format!("{}; {}", unread.why, unread.mend)),
                    next: now + AGAIN_SECONDS,
                    ..Libvirt::default()
                };
            }
        }
    }

    fn loads(&self, disks: &[Block], before: &[Block]) -> Vec<DiskLoad> {
        let pairs = disks.iter().filter_map(|now| Some((now, before.iter().find(|b| b.path == now.path)?)));
        pairs
            .filter_map(|(now, was)| {
                let since = |key: &str| now.counts.get(key)?.checked_sub(*was.counts.get(key)?);
                let side = |kind: &str| {
                    Some(Transfer {
                        requests: Some(since(&format!("{kind}.reqs"))?),
                        bytes: since(&format!("{kind}.bytes"))?,
                        device_seconds: since(&format!("{kind}.times")).map(|ns| ns as f64 * 1e-9),
                        ..Transfer::default()
                    })
                };
                let device = self.devices.get(Path::new(&now.path)).copied().flatten();
                Some(DiskLoad { device, reads: side("rd")?, writes: side("wr")? })
            })
            .collect()
    }
}

/// The disk that a file lies on, when it is one.
fn device(look: &Look<'_>, path: &Path) -> Option<Device> {
    let backing = Backing::of(look.reader(), path).ok()?;
    let mut leaves = backing.leaves.into_values();
    leaves.next().filter(|_| leaves.next().is_none())
}

fn domstats(text: &str) -> BTreeMap<String, Vec<Block>> {
    let mut domains: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(domain) = line.strip_prefix("Domain: ") {
            name = domain.trim_matches('\'').to_owned();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let mut parts = key.splitn(3, '.');
        let (Some("block"), Some(Ok(i)), Some(field)) =
            (parts.next(), parts.next().map(str::parse::<usize>), parts.next())
        else {
            continue;
        };
        let blocks = domains.entry(name.clone()).or_default();
        if blocks.len() <= i && i < 4096 {
            blocks.resize_with(i + 1, Block::default);
        }
        let Some(block) = blocks.get_mut(i) else { continue };
        match (field, value.parse()) {
            ("path", _) => block.path = value.to_owned(),
            (_, Ok(number)) => drop(block.counts.insert(field.to_owned(), number)),
            _ => {}
        }
    }
    domains
}
