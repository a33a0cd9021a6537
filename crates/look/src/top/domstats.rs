//! libvirt's counters of guests (`virsh domstats --block`), for those whose requests tracing does
//! not see. libvirt asks QEMU's monitor for them, and that asks the storage: a guest with a file on
//! a file server is left alone, since a dead server would halt it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vmio_model::facts::Guest;
use vmio_model::top::load::{Device, DiskLoad, DiskSource, Transfer};
use vmio_model::top::reading::DiskReading;

use super::member::{Member, hidden};
use crate::backing::Backing;
use crate::host_view::{HostView, Question};
use crate::kinds::qemu::on_server;
use crate::managers::libvirt;
use crate::require;

/// libvirt asks the guests' monitors: not more often than this, in seconds, and never more than
/// this part of the time.
const LIBVIRT_SECONDS: f64 = 5.0;
const SHARE: f64 = 0.02;
/// After a failure it is asked again after so many seconds.
const AGAIN_SECONDS: f64 = 60.0;
const VIRSH: &str = "virsh";

/// What `virsh domstats --block` says, asked now and then.
#[derive(Default)]
pub(super) struct Libvirt {
    last: Option<(f64, BTreeMap<String, Vec<Block>>)>,
    recent: BTreeMap<String, (f64, Vec<DiskLoad>)>,
    devices: BTreeMap<PathBuf, Option<Device>>,
    /// UUIDs of the guests that it was asked about.
    known: BTreeSet<String>,
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
    /// What it said of a guest. Another guest may bear the name of one of libvirt's.
    pub fn of(&self, guest: &Guest) -> Option<DiskReading> {
        guest.uuid.as_ref().filter(|uuid| self.known.contains(*uuid))?;
        let (span, disks) = self.recent.get(guest.given_name())?;
        Some(DiskReading::Recent(DiskSource::Libvirt, *span, disks.clone()))
    }

    /// Asks when it is time, about those of the guests that need it and can be asked.
    pub fn refresh(&mut self, look: &HostView<'_>, members: &[Member], traced: bool, now: f64) {
        if now < self.next {
            return;
        }
        let clock = |look: &HostView<'_>| look.reader().clock_seconds().unwrap_or(now);
        let began = clock(look);
        let needs = |m: &&Member| !traced || m.guest.disks.iter().any(hidden);
        let safe = |m: &&Member| on_server(look, &m.guest, m.guest.pid).is_none();
        let with_uuid = members.iter().filter(|m| m.guest.is_qemu() && m.guest.uuid.is_some());
        let wanted: BTreeSet<&str> =
            with_uuid.filter(needs).filter(safe).filter_map(|m| m.guest.uuid.as_deref()).collect();
        if wanted.is_empty() || !libvirt::system_runs(look) {
            return self.rest(None, now + LIBVIRT_SECONDS);
        }
        // Who has no libvirt client misses nothing of it.
        if require::find_program(look.reader(), VIRSH).is_none() {
            return self.rest(None, now + AGAIN_SECONDS);
        }
        let ask = |command: String| look.ask(&Question::Virsh { uri: libvirt::QEMU.into(), commands: vec![command] });
        // Those of users' own daemons are not known to the system's.
        let mut asked = BTreeSet::new();
        let answer = ask("list --uuid".into()).and_then(|list| {
            let known: Vec<String> =
                libvirt::uuids(&list).into_iter().filter(|u| wanted.contains(u.as_str())).collect();
            asked.extend(known.iter().cloned());
            if known.is_empty() {
                return Ok(String::new());
            }
            ask(format!("domstats --block --nowait {}", known.join(" ")))
        });
        let took = clock(look) - began;
        match answer {
            Ok(text) => {
                let found = domstats(&text);
                self.refused = None;
                self.known = asked;
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
            Err(unread) => self.rest(Some(format!("{}; {}", unread.why, unread.mend)), now + AGAIN_SECONDS),
        }
    }

    /// Does without until then.
    fn rest(&mut self, refused: Option<String>, next: f64) {
        (self.last, self.refused, self.next) = (None, refused, next);
        self.recent.clear();
        self.known.clear();
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
fn device(look: &HostView<'_>, path: &Path) -> Option<Device> {
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
