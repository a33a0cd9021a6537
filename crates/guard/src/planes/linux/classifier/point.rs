//! Where a program looks at packets, and how it is attached there.

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

/// Where a program of the object looks at packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    /// What arrives at a guest's interface.
    Arrives = 1,
    /// What leaves by an uplink, before its queues.
    Leaves = 2,
    /// What arrives at an uplink, behind what others have there: it ends here, led away.
    Enters = 3,
}

impl Point {
    pub(super) const ALL: [Point; 3] = [Point::Arrives, Point::Leaves, Point::Enters];

    /// What its link is called where it is pinned.
    pub(super) fn pin(self, index: u32) -> String {
        format!("{}-{index}", self.program())
    }

    /// Where filters of clsact hang there.
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

    /// Where among others' programs.
    pub(super) fn place(self) -> u32 {
        match self {
            Point::Arrives | Point::Leaves => BPF_F_BEFORE,
            Point::Enters => BPF_F_AFTER,
        }
    }
}
