//! The rules: from facts to findings. An extension point: one file for each rule, one line in [`RULES`];
//! `docs/rules.md` explains how to add one.
//!
//! A rule cites a measured figure only with enough pairs and an interval that excludes the rule's threshold; else it
//! abstains. From settings alone (a guest that was not measured) it may give advice, marked as not measured.

mod about;
mod backing_chain;
mod bridge_netfilter;
mod bsd_queues;
mod cache_aio_pair;
pub mod change;
mod conntrack_full;
mod copy_on_write_below;
mod cpu_quota;
mod deleted_file;
mod depth_one_latency;
mod depth_one_reads;
mod direct_io_on_checksums;
mod discard_goes_nowhere;
mod discard_storm;
mod disk_full_depth;
mod disk_in_memory;
mod disk_remedy;
mod emulated_driver;
mod emulated_nic;
mod emulation_though_kvm;
#[cfg(test)]
mod example;
mod exchange_format;
pub mod expect;
mod guest_drops;
mod guest_faster_than_host;
mod guest_in_swap;
mod host_cache_hits;
mod host_clock_source;
mod host_page_cache;
mod hpet_left_on;
mod hyperv;
mod idle_disk;
mod io_uring_hangs;
mod io_weight_ignored;
mod iothread_on_vcpu_core;
mod iothread_saturated;
mod ksm;
mod limit_in_force;
mod limit_on_card;
mod live;
mod memory_in_host_cache;
mod missing_iothread;
mod mtu_mismatch;
mod native_aio_that_waits;
mod network_disk_on_host;
mod nic_queues;
mod no_discard;
mod no_vhost;
mod numa_split;
mod offloads_off;
mod old_cpu_model;
mod one_way_slow;
mod placement;
pub mod proof;
mod qcow2_l2_cache;
mod sector_size_not_passed;
mod setting_overridden;
mod severity;
mod shared_iothread;
mod shared_journal;
mod single_queue;
mod slow_governor;
mod small_requests;
mod sparse_file;
pub mod support;
mod threads_with_direct;
mod unsafe_cache;
mod uplink_trouble;
mod user_network;
mod vcpus_over_cores;
mod virtio_choice;
mod windows_no_enlightenments;
pub mod withheld;
mod zfs_volblocksize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Vmm;
use crate::facts::{Disk, Facts, Measured, Nic, Processors, Provenance};
use crate::paper;
use crate::stats::{Interval, Ratio};
use crate::summary::{CellRow, Share};
pub use about::About;
pub use change::{Change, InFields};
pub use disk_remedy::DiskRemedy;
pub use live::Live;
pub use proof::{Proof, Proven};
pub use severity::Severity;

/// A figure in a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cited {
    /// Its description.
    pub label: String,
    /// The figure.
    pub value: f64,
    /// Its unit: `ratio`, `bytes`, `requests`, `samples`, `seconds`.
    pub unit: String,
    /// Its 95 % interval; `None` for a count or a setting.
    pub interval: Option<Interval>,
    /// Its source.
    pub from: Provenance,
}

/// A setting in a finding, with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The setting: `driver`, `vCPU threads`.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// Its source: `/proc/812/cmdline, -device`.
    pub from: String,
}

/// Expected gain of a change, known from elsewhere than the guest itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// In words: `4 KiB random reads at depth 32 were 9.4 times faster by virtio-blk`.
    pub text: String,
    /// The factor; `None` where there is no single figure.
    pub times: Option<f64>,
    /// Its source: `run 12 on this host, 2026-11-21`, `shafer2010, Table 1`.
    pub source: String,
}

/// A workload for which a change was measured and does not pay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unpaid {
    /// The workload.
    pub workload: String,
    /// With the change over without: the interval includes 1 or is below it, and both shares converged.
    pub ratio: Ratio,
    /// Whether it certainly lost by the change; else no difference was found.
    pub loses: bool,
}

/// A finding of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// Title of the rule.
    pub title: String,
    /// How much it matters.
    pub severity: Severity,
    /// Its subject.
    pub subject: About,
    /// The cause in plain sentences, with figures.
    pub cause: String,
    /// The figures it rests on.
    pub figures: Vec<Cited>,
    /// The settings it rests on, with their sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Workloads of the same run for which the change does not pay, also named in the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpaid: Vec<Unpaid>,
    /// Expected gain of the change, where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// The change.
    pub change: Change,
    /// The change by what manages the guest and writes its set-up itself, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_manager: Option<InFields>,
    /// Where to read more.
    pub references: Vec<String>,
    /// Measured gain of the change, by which findings are sorted. `None` when nothing was measured or there is nothing
    /// to gain.
    pub cost_ratio: Option<Ratio>,
    /// What `--prove` re-runs.
    pub proof: Option<Proof>,
    /// Whether its cause is the host's: a report tells it once for all guests that have it.
    #[serde(skip)]
    pub of_host: bool,
}

impl Finding {
    /// The same, with a cause that is the host's.
    #[must_use]
    pub(in crate::rules) fn of_host(self) -> Self {
        Self { of_host: true, ..self }
    }
}

/// Facts that a rule requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// A run with shares against native.
    Measured,
    /// A run in which the backing device's counters could be read.
    DeviceCounters,
    /// Either a run or a guest's settings.
    MeasuredOrSettings,
    /// A guest's settings.
    Settings,
    /// Settings of a run's guests or of a running guest, without measured figures.
    AnySettings,
}

/// Guests that a rule concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// QEMU's, with its settings.
    Qemu,
    /// Guests of any hypervisor.
    Any,
}

/// A rule.
pub struct Rule {
    /// Stable id, kebab-case: in JSON, in `--prove` and in the docs.
    pub id: &'static str,
    /// A short title.
    pub title: &'static str,
    /// Facts that it requires.
    pub needs: Need,
    /// Severity in a running guest that was not measured.
    pub severity: Severity,
    /// Documents and sections on which it rests.
    pub references: &'static [&'static str],
    /// Its checks.
    pub checks: &'static [Check],
    /// The guests that it concerns.
    pub kinds: Kinds,
    /// Its change to a disk, where that can be measured.
    pub remedy: Option<DiskRemedy>,
    /// Whether a published effect supports it: two disks of one guest, the slower first.
    pub published: Option<fn(&paper::Pattern, &paper::Pattern) -> bool>,
    /// Facts in which it must find something, and similar facts in which it must find nothing, for the contract test.
    #[cfg(test)]
    pub fixture: (MakeFacts, MakeFacts),
}

/// Facts of a test.
#[cfg(test)]
type MakeFacts = fn() -> Facts;

/// A check and the facts that it examines. A missing fact gives no finding.
pub enum Check {
    /// A run.
    Run(fn(&Rule, &Measured) -> Vec<Finding>),
    /// Each cell of a run.
    Cell(fn(&Rule, &Measured, &CellRow) -> Option<Finding>),
    /// Each citable share of a run.
    Share(fn(&Rule, &Measured, &Share) -> Option<Finding>),
    /// Each disk of running guests.
    Disk(fn(&Rule, &Disk) -> Option<Finding>),
    /// Each network device of running guests.
    Nic(fn(&Rule, &Nic) -> Option<Finding>),
    /// The processors of each running guest.
    Processors(fn(&Rule, &Processors) -> Option<Finding>),
    /// All devices of running guests together.
    Guests(fn(&Rule, &Facts) -> Vec<Finding>),
}

impl Check {
    /// Whether it examines running guests.
    pub fn is_live(&self) -> bool {
        !matches!(self, Check::Run(_) | Check::Cell(_) | Check::Share(_))
    }

    fn ask(&self, rule: &Rule, facts: &Facts) -> Vec<Finding> {
        let run = facts.measured.iter();
        match self {
            Check::Run(all) => run.flat_map(|m| all(rule, m)).collect(),
            Check::Cell(one) => run.flat_map(|m| m.cells.iter().filter_map(|c| one(rule, m, c))).collect(),
            Check::Share(one) => {
                let citable = run.flat_map(|m| m.shares.iter().filter(|s| s.converged).map(move |s| (m, s)));
                citable.filter_map(|(m, s)| one(rule, m, s)).collect()
            }
            Check::Disk(one) => facts.disks.iter().filter_map(|d| one(rule, d)).collect(),
            Check::Nic(one) => facts.nics.iter().filter_map(|n| one(rule, n)).collect(),
            Check::Processors(one) => facts.processors.iter().filter_map(|p| one(rule, p)).collect(),
            Check::Guests(all) => all(rule, facts),
        }
    }
}

impl Rule {
    /// Defaults of rules: QEMU's guests, with no change to a disk that can be measured.
    pub(in crate::rules) const PLAIN: Rule = Rule {
        id: "",
        title: "",
        needs: Need::Settings,
        severity: Severity::Note,
        references: &[],
        checks: &[],
        kinds: Kinds::Qemu,
        remedy: None,
        published: None,
        #[cfg(test)]
        fixture: (Facts::default, Facts::default),
    };

    /// The rule of this id.
    pub fn find(id: &str) -> Option<&'static Rule> {
        RULES.iter().copied().find(|rule| rule.id == id)
    }

    /// The id that was probably meant.
    pub fn nearest(id: &str) -> Option<&'static str> {
        crate::words::nearest(id, RULES.iter().map(|rule| rule.id))
    }

    /// Its findings.
    pub fn check(&self, facts: &Facts) -> Vec<Finding> {
        if facts.vmm != Vmm::Qemu && self.kinds == Kinds::Qemu {
            return Vec::new();
        }
        self.checks.iter().flat_map(|check| check.ask(self, facts)).collect()
    }
}

/// All rules.
pub const RULES: &[&Rule] = &[
    &deleted_file::RULE,
    &disk_in_memory::RULE,
    &unsafe_cache::RULE,
    // Of equal severity the earlier comes first: this one costs speed under any load.
    &emulation_though_kvm::RULE,
    &emulated_driver::RULE,
    &sparse_file::RULE,
    &direct_io_on_checksums::RULE,
    &copy_on_write_below::RULE,
    &sector_size_not_passed::RULE,
    &cache_aio_pair::RULE,
    &io_uring_hangs::RULE,
    &missing_iothread::RULE,
    &small_requests::RULE,
    &depth_one_reads::RULE,
    &disk_full_depth::RULE,
    &idle_disk::RULE,
    &guest_faster_than_host::RULE,
    &qcow2_l2_cache::RULE,
    &backing_chain::RULE,
    &exchange_format::RULE,
    &iothread_saturated::RULE,
    &virtio_choice::RULE,
    &depth_one_latency::RULE,
    &host_page_cache::RULE,
    &host_cache_hits::RULE,
    &zfs_volblocksize::RULE,
    &no_discard::RULE,
    &discard_goes_nowhere::RULE,
    &discard_storm::RULE,
    &shared_journal::RULE,
    &setting_overridden::RULE,
    &network_disk_on_host::RULE,
    &limit_in_force::RULE,
    &io_weight_ignored::RULE,
    &native_aio_that_waits::RULE,
    &shared_iothread::RULE,
    &single_queue::RULE,
    &threads_with_direct::RULE,
    &emulated_nic::RULE,
    &user_network::RULE,
    &mtu_mismatch::RULE,
    &no_vhost::RULE,
    &guest_drops::RULE,
    &nic_queues::RULE,
    &bsd_queues::RULE,
    &offloads_off::RULE,
    &conntrack_full::RULE,
    &uplink_trouble::RULE,
    &bridge_netfilter::RULE,
    &one_way_slow::RULE,
    &iothread_on_vcpu_core::RULE,
    &vcpus_over_cores::RULE,
    &numa_split::RULE,
    &guest_in_swap::RULE,
    &memory_in_host_cache::RULE,
    &slow_governor::RULE,
    &cpu_quota::RULE,
    &host_clock_source::RULE,
    &hpet_left_on::RULE,
    &ksm::RULE,
    &old_cpu_model::RULE,
    &windows_no_enlightenments::RULE,
];

/// Findings of all rules whose required facts are known. The most severe come first, among them those with the largest
/// gain.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = RULES.iter().filter(|r| r.needs.met(facts)).flat_map(|r| r.check(facts)).collect();
    let cost = |f: &Finding| f.cost_ratio.map_or(0.0, |r| r.value);
    all.sort_by(|a, b| b.severity.cmp(&a.severity).then(cost(b).total_cmp(&cost(a))));
    all
}

impl Need {
    /// Whether the required facts are known.
    pub fn met(self, facts: &Facts) -> bool {
        match self {
            Need::Measured => facts.measured.is_some(),
            Need::DeviceCounters => facts.measured.as_ref().is_some_and(|m| m.cells.iter().any(|c| c.device.is_some())),
            Need::MeasuredOrSettings | Need::AnySettings => facts.measured.is_some() || facts.has_settings(),
            Need::Settings => facts.has_settings(),
        }
    }
}

#[cfg(test)]
mod best_practice;
#[cfg(test)]
mod contract;
