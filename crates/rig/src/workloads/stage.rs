//! Where a workload runs: its roles, and the end of each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::Requirement;
use vmio_model::rate::ByteRate;
use vmio_node::{Exec, Node};

use super::{Error, Result};
use crate::nodes::NodeId;

/// A part of a workload that runs on one machine.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// Its name: `worker`, `server`, `client`.
    pub name: &'static str,
    /// What it must be given.
    pub wants: Wants,
    /// Programs that it runs. A guest of vmio's own gets them with its image.
    pub programs: &'static [&'static str],
    /// What its machine must have. That is looked at on the host alone, since a guest has the host's own programs.
    pub requirements: &'static [Requirement],
}

/// What of a workload on a disk is on another host than the disk.
#[derive(Debug, Clone, Copy)]
pub struct OtherHost {
    /// The network that leads there, one with the peer [`crate::nets::REMOTE`].
    pub network: &'static str,
    /// The ends there: roles that serve, and others that the workload asks its stage for.
    pub ends: &'static [&'static str],
}

/// What a role must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// A file or block device.
    Path,
    /// An address to serve on, or to reach.
    Address,
    /// The machine alone.
    Nothing,
}

/// Where something is: a machine of the run, and what is meant there. A role runs at one.
#[derive(Clone)]
pub struct End {
    /// The machine.
    pub on: NodeId,
    /// Where commands run in it.
    pub node: Arc<dyn Node>,
    /// What of it.
    pub at: At,
    /// What goes before a command so that it runs there: that of a network namespace; empty where the machine
    /// itself is meant.
    pub enter: Vec<String>,
    /// Prototype of commands: control group files, `oom_score_adj`, environment.
    pub exec_base: Exec,
}

/// What is meant of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// A file or block device.
    Path(PathBuf),
    /// An address.
    Address {
        /// The one that leads there.
        reached: IpAddr,
        /// The one that servers listen at there: another where addresses are translated on the way to another machine.
        serves: IpAddr,
    },
    /// Nothing but itself.
    Nothing,
}

impl At {
    /// An address that is not translated on the way.
    pub fn address(address: IpAddr) -> Self {
        Self::Address { reached: address, serves: address }
    }
}

/// How much of a disk a workload may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Bytes from its start.
    pub bytes: u64,
    /// Memory of the side in bytes.
    pub memory_bytes: u64,
    /// Bandwidth cap.
    pub gentle: Option<Gentle>,
    /// The page cache of its side holds the span, and is to serve it: nothing is dropped first.
    pub warm: bool,
}

/// The cap of `--gentle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gentle {
    /// Reads and writes each.
    pub cap: ByteRate,
}

/// What a workload runs with.
#[derive(Clone)]
pub struct Stage {
    /// The end of each role, by its name.
    pub ends: BTreeMap<&'static str, End>,
    /// Longest time of the measured part.
    pub seconds: f64,
    /// How much of a disk may be used; `None` where there is none.
    pub span: Option<Span>,
    /// Which actor of its cell it is for, from 0.
    pub place: u16,
}

impl Stage {
    /// A stage of one role.
    pub fn of(role: &'static str, end: End, seconds: f64) -> Self {
        Self { ends: BTreeMap::from([(role, end)]), seconds, span: None, place: 0 }
    }

    /// The port of a server whose usual one is `first`: actors of a cell may have one address.
    pub fn port(&self, first: u16) -> u16 {
        first.saturating_add(self.place)
    }

    /// How long a program that is told its time may take in all.
    pub fn limit(&self) -> Duration {
        allowed(self.seconds)
    }

    /// The end of a role.
    ///
    /// # Errors
    /// When there is none.
    pub fn end(&self, role: &str) -> Result<&End> {
        self.ends.get(role).ok_or_else(|| Error::Unfit {
            workload: "the workload".into(),
            reason: format!("nothing was prepared for its role {role}"),
        })
    }
}

/// A time as programs are told it that count whole seconds: one at least.
pub(super) fn whole_seconds(seconds: f64) -> String {
    format!("{:.0}", seconds.ceil().max(1.0))
}

/// How long it may take in all what should take so many seconds.
pub(super) fn allowed(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * 2.0 + 60.0)
}

impl End {
    /// An end of this host's, held to nothing.
    pub fn here(node: Arc<dyn Node>, at: At) -> Self {
        Self { on: NodeId::Host, node, at, enter: Vec::new(), exec_base: Exec::default() }
    }

    /// A command that runs there, under its limits.
    pub fn command(&self, program: &str) -> Exec {
        Exec { program: program.to_owned(), args: Vec::new(), ..self.exec_base.clone() }.behind(&self.enter)
    }

    /// The file or block device that is meant.
    pub fn path(&self) -> Option<&Path> {
        if let At::Path(path) = &self.at { Some(path) } else { None }
    }

    /// The address that leads there.
    pub fn address(&self) -> Option<IpAddr> {
        if let At::Address { reached, .. } = self.at { Some(reached) } else { None }
    }

    /// The address that a server listens at there.
    pub fn serves(&self) -> Option<IpAddr> {
        if let At::Address { serves, .. } = self.at { Some(serves) } else { None }
    }

    /// The address that leads there, where it is another machine.
    pub(super) fn elsewhere(&self) -> Option<IpAddr> {
        self.address().filter(|_| self.on.is_elsewhere())
    }
}
