//! A cell in a paper's file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::{Actor, Aio, Attachment, Cache, Cell, Settings, State, Subject};

/// Message for an incomplete pattern.
pub(super) const PLACE: &str =
    "a cell is on a `target`, or over a `network` to a `peer`, and has only the keys of that";

/// Whether these are printed rates: one above 0, or the lowest and the highest.
pub(super) fn is_printed(mb_s: &[f64]) -> bool {
    matches!(mb_s, [x] if *x > 0.0) || matches!(mb_s, [low, high] if 0.0 < *low && low < high)
}

/// Message for a row with neither or both.
pub(super) const EITHER: &str = "give either `cell` or `not_run`";

/// A cell by what matters to a paper: on a disk (`target`) or over a path (`network`). Other settings are the defaults
/// of studies: native AIO, no I/O thread, one queue. The cache mode is the named one, `none` by default; so are the
/// settings of a path. On a disk any settings do where none are named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PaperCell")]
pub struct Pattern {
    /// Entry of `guests/`.
    pub guest: String,
    /// Entry of `disks/targets/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Entry of `disks/drivers/`; `None` natively.
    pub driver: Option<String>,
    /// The cache mode; `none` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// What is found on the target; none named by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// How many guests do the same at the same time; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// Entry of `nets/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Entry of `nics/`; `None` natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Settings of the cell.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// Processors of the host that it is pinned to, where that matters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<u32>,
    /// An actor that works at the same time, under the cell's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Box<Pattern>>,
}

impl Pattern {
    /// The run's cell of a workload that it matches.
    pub fn find<'a>(&self, workload: &str, cells: impl IntoIterator<Item = &'a Cell>) -> Option<&'a Cell> {
        let fits = |s: &&Cell| {
            let beside = match (&self.beside, &s.beside[..]) {
                (None, others) => {
                    others.len() + 1 == self.count.unwrap_or(1) && others.iter().all(|a| self.is_of(a, workload))
                }
                (Some(pattern), [actor]) => pattern.is_of(actor, workload),
                _ => false,
            };
            let any = self.settings.is_empty() && !matches!(s.lead.subject, Subject::Path { .. });
            let set = any || s.settings == self.settings;
            beside && set && self.is_of(&s.lead, workload)
        };
        cells.into_iter().filter(fits).min_by_key(|s| {
            let unlike = |a: &Attachment| (a.aio != Aio::Native, a.iothread, a.options != Default::default());
            let nic = s.lead.nic().map(|nic| (nic.vhost, nic.queues, nic.ring));
            (s.attachment().map(unlike), nic, s.settings.len(), !s.lead.side.shape.is_plain())
        })
    }

    /// Whether it matches an actor.
    fn is_of(&self, actor: &Actor, workload: &str) -> bool {
        let held = self.pins.is_empty() || actor.side.shape.pins == self.pins;
        let same = actor.side.kind == self.guest && actor.workload == workload && held;
        same && match &actor.subject {
            Subject::Disk { state, .. } if *state != self.state => false,
            Subject::Disk { target, attachment, .. } => {
                let driver = attachment.as_ref().map(|a| &a.driver);
                let cached = attachment.as_ref().is_none_or(|a| a.cache == self.cache.unwrap_or(Cache::None));
                self.target.as_ref() == Some(target) && cached && driver == self.driver.as_ref()
            }
            // A paper's path has no co-sender.
            Subject::Path { co_sender: Some(_), .. } => false,
            Subject::Path { network, peer, nic, co_sender: None } => {
                let named = self.network.as_ref() == Some(network) && self.peer.as_ref() == Some(peer);
                named && nic.as_ref().map(|nic| &nic.model) == self.nic.as_ref()
            }
            Subject::Machine => false,
        }
    }

    /// Whether it names one subject, completely.
    pub(super) fn is_whole(&self) -> bool {
        let alone = |other: &Pattern| other.beside.is_none() && other.is_whole();
        self.beside.as_deref().is_none_or(alone)
            && match (&self.target, &self.network) {
                (Some(_), None) => self.peer.is_none() && self.nic.is_none(),
                (None, Some(_)) => {
                    self.peer.is_some() && self.driver.is_none() && self.cache.is_none() && self.state.is_none()
                }
                _ => false,
            }
    }

    /// The same with another cache mode.
    pub fn cached(&self, cache: Cache) -> Pattern {
        Pattern { cache: Some(cache), ..self.clone() }
    }

    /// `qemu on sparse by lsi53c895a, cache=writethrough`; `qemu on uplink.remote by e1000, rate=1000mbit`.
    pub fn label(&self) -> String {
        let by = self.driver.as_ref().or(self.nic.as_ref()).map_or_else(String::new, |by| format!(" by {by}"));
        let cache = self.cache.map_or_else(String::new, |cache| format!(", cache={cache}"));
        let set: String = self.settings.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        let path = self.network.as_deref().zip(self.peer.as_deref()).map(|(net, peer)| format!("{net}.{peer}"));
        let place = self.target.clone().or(path).unwrap_or_default();
        let place = self.state.map_or_else(|| place.clone(), |state| format!("{place}+{state}"));
        let many = self.count.map_or_else(String::new, |count| format!("{count} "));
        let pins = if self.pins.is_empty() { String::new() } else { format!(":pins={}", listed(&self.pins)) };
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| format!(", beside {}", beside.label()));
        format!("{many}{}{pins} on {place}{by}{cache}{set}{beside}", self.guest)
    }
}

/// `0+1`, as cell names list processors.
fn listed(pins: &[u32]) -> String {
    pins.iter().map(u32::to_string).collect::<Vec<_>>().join("+")
}
