//! Why a cell that the study names does not run here, and why its target is not made there.

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell::{Cache, Cell, Millis};
use vmio_model::result::Skipped;
use vmio_node::Node;

use crate::disks::targets::elsewhere::{DEVICE, NoFile, PREALLOCATED};
use crate::disks::{modelled, targets};
use crate::guests::{self, NO_MACHINE};
use crate::nets::NO_PEER;
use crate::nics;

/// A cell that is left out of a run before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The cell.
    pub cell: Cell,
    /// Why.
    pub why: WhyNot,
}

impl From<&LeftOut> for Skipped {
    fn from(left_out: &LeftOut) -> Skipped {
        Skipped { cell: left_out.cell.clone(), reason: left_out.why.to_string() }
    }
}

/// The kinds of reasons; what they say names what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum WhyNot {
    #[error("{name}: {found}; {fix}")]
    Requirement { name: &'static str, found: Missing, fix: &'static str },
    #[error("on {address}: {why}")]
    OnOtherMachine { address: String, why: Box<WhyNot> },
    /// It runs with `--no-gentle`.
    #[error("{unfit}; gentle is on because other guests run here or it was asked for (--no-gentle)")]
    Gentle { unfit: String },
    #[error(transparent)]
    Target(targets::Unfit),
    #[error(transparent)]
    Guest(guests::Unfit),
    #[error(transparent)]
    Card(nics::Unfit),

    #[error("{NO_MACHINE}")]
    NoMachine,
    #[error(
        "{DEVICE} is one of its own that you name twice, --device /dev/sdX --device /dev/sdX: all data on it is lost"
    )]
    DeviceOnOtherMachine,
    #[error("vmio cannot create {target} on another machine: use {PREALLOCATED} or {DEVICE}")]
    TargetOnOtherMachine { target: String },
    #[error("{workload} goes through the page cache, and the memory of another machine is not held")]
    PageCacheOfOtherMachine { workload: String },
    #[error("paths begin on this host: use the side native")]
    PathFromOtherMachine,
    #[error("another machine is measured as it is: leave its shape out")]
    ShapeOfOtherMachine,
    #[error("vmio changes no settings on another machine: leave them out")]
    SettingOnOtherMachine,
    #[error("vmio brings no disk of another machine into a state, nor its page cache: leave the state out")]
    StateOnOtherMachine,
    #[error("targets are made on {address}, where only the side ssh works")]
    TargetsElsewhere { address: String },

    #[error("{NO_PEER}")]
    NoPeer,
    #[error("no machine is named that serves it: name one with --peer ssh://[USER@]HOST[:PORT][/DIR]")]
    NoServer,
    #[error(
        "{side} has a network of vmio's own, too, from where no other machine is reached: measure {target} in a study of \
         its own"
    )]
    ServerOutOfReach { side: String, target: String },
    #[error("only the host itself works over the network wire: use the side native")]
    WireOfHostAlone,
    #[error("unknown network {0}")]
    NoNetwork(String),
    #[error("{network} has no end {peer}: it has {}", .peers.join(", "))]
    NoEnd { network: String, peer: String, peers: Vec<&'static str> },
    #[error("no end {end} can send to {path} at the same time as the actor: use {}", .instead.join(" or "))]
    NoCoSender { path: String, end: String, instead: Vec<&'static str> },
    #[error("{workload} has one sender: use udp-<rate>-<bytes>, or leave co_sender out")]
    OneSender { workload: String },
    #[error("no guest can be plugged into {network}: use {}", .others.join(" or "))]
    NoGuests { network: String, others: Vec<&'static str> },
    #[error("unknown network device {0}")]
    NoCard(String),
    #[error(
        "{side} would work on {network} by {} and by {} at once, and a guest sends by one card there: \
         name one, or let another guest have the other (nth = 2)", cards[0], cards[1]
    )]
    TwoCards { side: String, network: String, cards: [String; 2] },
    #[error("a guest of {vcpus} vcpus has no use for {queues} queues: give it as many vcpus, or less queues")]
    Queues { vcpus: u32, queues: u32 },
    #[error(
        "a guest with a network device lies in a namespace of vmio's own, from where {hypervisor} reaches no Ceph: \
         measure networks in a study of their own"
    )]
    NetworkOnCeph { hypervisor: String },

    #[error("{workload} works for whole multiples of {tick}, and {time} are asked for: give it those")]
    Tick { workload: String, tick: Millis, time: Millis },
    #[error("unknown setting {0}")]
    NoSetting(String),
    #[error("{name}: {why}")]
    Setting { name: String, why: String },
    #[error("two actors work on the target {target} at once, and one of them writes to it")]
    WritesToOthersTarget { target: String },
    #[error("two actors work on the target {target} at once, and are to find it in different states")]
    OtherState { target: String },
    #[error("{workload} reads, and what was never written is read from no disk: use filled")]
    ReadsFresh { workload: String },
    #[error("{workload} writes, but a warm disk is only read: use filled or fresh")]
    WritesWarm { workload: String },
    #[error("{workload} goes past the page cache of its side: use dd-read, or seq-read-64k-d1-buffered")]
    PastPageCache { workload: String },
    #[error("{workload} drops what its page cache has before it reads: use dd-read, or seq-read-64k-d1-buffered")]
    DropsPages { workload: String },
    #[error("with cache={cache} the guest's disk goes past the host's page cache: use writeback")]
    PastHostCache { cache: Cache },
}

/// The first of these that this machine does not have.
pub(super) fn missing<'a>(needs: impl IntoIterator<Item = &'a Requirement>, local: &dyn Node) -> Option<WhyNot> {
    needs.into_iter().find_map(|r| {
        let found = (r.check)(local.reader()).err()?;
        Some(WhyNot::Requirement { name: r.name, found, fix: r.fix })
    })
}

/// Why what the targets take is not there, or not to be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NoRoom {
    #[error(transparent)]
    Target(#[from] targets::Error),
    #[error(transparent)]
    Modelled(#[from] modelled::NoRoom),
    #[error(transparent)]
    Elsewhere(#[from] NoFile),
}
