//! The points at which programs are attached, and how.

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint};
use libbpf_sys::{BPF_F_AFTER, BPF_F_BEFORE};
use serde::Serialize;

/// Where clsact's filters hang (TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS) and TC_H_MIN_EGRESS of pkt_sched.h).
pub(super) const INGRESS: u32 = 0xffff_fff2;
pub(super) const EGRESS: u32 = 0xffff_fff3;

/// How the program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachMode {
    /// A TCX link, from Linux 6.6.
    Tcx,
    /// A filter of a clsact qdisc.
    Clsact,
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    /// Ingress of a guest's interface.
    Arrives = 1,
    /// Egress of an uplink, before its queues.
    Leaves = 2,
    /// Ingress of an uplink, after others' programs.
    Enters = 3,
}

impl Point {
    pub(super) const ALL: [Point; 3] = [Point::Arrives, Point::Leaves, Point::Enters];

    /// Name of its link's pin.
    pub(super) fn pin(self, index: u32) -> String {
        format!("{}-{index}", self.program())
    }

    /// Parent of its filters of clsact.
    pub(super) fn parent(self) -> u32 {
        match self {
            Point::Arrives | Point::Enters => INGRESS,
            Point::Leaves => EGRESS,
        }
    }

    pub(super) fn program(self) -> &'static str {
        match self {
            Point::Arrives => "classify",
            Point::Leaves => "leave",
            Point::Enters => "receive",
        }
    }

    pub(super) fn hook(self) -> TcAttachPoint {
        match self {
            Point::Arrives | Point::Enters => TC_INGRESS,
            Point::Leaves => TC_EGRESS,
        }
    }

    /// Place among others' programs.
    pub(super) fn place(self) -> u32 {
        match self {
            Point::Arrives | Point::Leaves => BPF_F_BEFORE,
            Point::Enters => BPF_F_AFTER,
        }
    }
}
