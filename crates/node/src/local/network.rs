//! What is asked of the kernel about this machine's network, in the network namespace of vmio.

use crate::ethtool;
use crate::netlink::{Socket, tc};
use crate::node::question::{NetworkAnswer, NetworkQuestion, Unanswered};

/// The most that one dump may hold: a qdisc has some 500 bytes.
const DUMP: usize = 16 << 20;

/// Answers a question.
pub(super) fn answer(question: &NetworkQuestion) -> Result<NetworkAnswer, Unanswered> {
    let of = |name: &str| {
        let name = name.to_owned();
        move |source| Unanswered::Interface { name, source }
    };
    Ok(match question {
        NetworkQuestion::Qdiscs => {
            let all = Socket::open(DUMP)?.dump("list qdiscs", &tc::all_qdiscs(), |m| tc::qdisc(m).map(Some))?;
            NetworkAnswer::Qdiscs(all)
        }
        NetworkQuestion::Classes { index } => {
            NetworkAnswer::Classes(Socket::open(DUMP)?.dump("list classes", &tc::classes_of(*index), tc::class)?)
        }
        NetworkQuestion::Filters { index, parent } => {
            let request = tc::filters_of(*index, *parent);
            NetworkAnswer::Filters(Socket::open(DUMP)?.dump("list filters", &request, tc::filter)?)
        }
        NetworkQuestion::Offloads { name } => NetworkAnswer::Offloads(ethtool::offloads(name).map_err(of(name))?),
        NetworkQuestion::Rings { name } => NetworkAnswer::Rings(ethtool::rings(name).map_err(of(name))?),
    })
}
