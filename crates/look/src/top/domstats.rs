//! libvirt's counters of guests (`virsh domstats --block`), for guests whose requests tracing does not see. libvirt
//! queries QEMU's monitor, and that the storage: a guest with a file on a file server is left out, since a dead server
//! would halt it.

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

/// Shortest interval between queries, in seconds, since libvirt queries the guests' monitors.
const LIBVIRT_SECONDS: f64 = 5.0;
/// Largest share of the time that queries may take.
const SHARE: f64 = 0.02;
/// Seconds until the next query after a failure.
const AGAIN_SECONDS: f64 = 60.0;
const VIRSH: &str = "virsh";

/// The results of `virsh domstats --block`.
#[derive(Default)]
pub(super) struct Libvirt {
    last: Option<(f64, BTreeMap<String, Vec<Block>>)>,
    recent: BTreeMap<String, (f64, Vec<DiskLoad>)>,
    devices: BTreeMap<PathBuf, Option<Device>>,
    /// UUIDs of the guests of the last query.
    known: BTreeSet<String>,
    next: f64,
    /// Why it is not queried.
    pub refused: Option<String>,
}

/// A disk of a domain; times in nanoseconds (virsh(1), domstats).
#[derive(Debug, Clone, PartialEq, Default)]
struct Block {
    path: String,
    counts: BTreeMap<String, u64>,
}

impl Libvirt {
    /// The counters of a guest, by UUID: another guest may have a domain's name.
    pub fn of(&self, guest: &Guest) -> Option<DiskReading> {
        guest.uuid.as_ref().filter(|uuid| self.known.contains(*uuid))?;
        let (span, disks) = self.recent.get(guest.given_name())?;
        Some(DiskReading::Recent(DiskSource::Libvirt, *span, disks.clone()))
    }

    /// Queries the guests that need it and can be queried, when it is time.
    pub fn refresh(&mut self, host: &HostView<'_>, members: &[Member], traced: bool, now: f64) {
        if now < self.next {
            return;
        }
        let clock = |host: &HostView<'_>| host.reader().clock_seconds().unwrap_or(now);
        let began = clock(host);
        let needs = |m: &&Member| !traced || m.guest.disks.iter().any(hidden);
        let safe = |m: &&Member| on_server(host, &m.guest, m.guest.pid).is_none();
        let with_uuid = members.iter().filter(|m| m.guest.is_qemu() && m.guest.uuid.is_some());
        let wanted: BTreeSet<&str> =
            with_uuid.filter(needs).filter(safe).filter_map(|m| m.guest.uuid.as_deref()).collect();
        if wanted.is_empty() || !libvirt::system_runs(host) {
            return self.rest(None, now + LIBVIRT_SECONDS);
        }
        // A host without libvirt's client needs no note.
        if require::find_program(host.reader(), VIRSH).is_none() {
            return self.rest(None, now + AGAIN_SECONDS);
        }
        let ask = |command: String| host.ask(&Question::Virsh { uri: libvirt::QEMU.into(), commands: vec![command] });
        // Domains of users' own daemons are not known to the system's.
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
        let took = clock(host) - began;
        match answer {
            Ok(text) => {
                let found = domstats(&text);
                self.refused = None;
                self.known = asked;
                self.next = now + LIBVIRT_SECONDS.max(took / SHARE);
                for block in found.values().flatten() {
                    let path = PathBuf::from(&block.path);
                    self.devices.entry(path.clone()).or_insert_with(|| device(host, &path));
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

    /// Pauses until `next`.
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

/// The block device of a path, if it is one.
fn device(host: &HostView<'_>, path: &Path) -> Option<Device> {
    let backing = Backing::of(host.reader(), path).ok()?;
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
