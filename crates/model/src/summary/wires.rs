//! Traffic of a cell's path by the kernel's counters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::figure::{Reading, scalar};
use crate::result::{ProbeResult, SECONDS, Sample, WAY, Watched};
use crate::stats::{Estimate, mean};

/// Traffic of an interface, with all headers, over the samples of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wire {
    /// Name on the host: a guest's tap, the host's end of a veth pair.
    pub link: String,
    /// Received; at a tap the guest sent it.
    pub received: Carried,
    /// What it sent.
    pub sent: Carried,
}

/// Traffic in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// Bytes a second.
    pub bytes_per_second: Estimate,
    /// Packets a second; one that is segmented later counts once.
    pub packets_per_second: Estimate,
    /// Packets of a sample dropped for lack of room.
    pub dropped_packets: Estimate,
}

/// The interfaces of this host, in order of appearance.
pub(crate) fn wires(samples: &[&Sample]) -> Vec<Wire> {
    let mut by_link: Vec<(&str, Vec<&ProbeResult>)> = Vec::new();
    for seen in samples.iter().flat_map(|sample| &sample.seen).filter(|seen| seen.node.is_empty()) {
        let Watched::Link(link) = &seen.watched else { continue };
        match by_link.iter_mut().find(|(known, _)| known == link) {
            Some((_, all)) => all.push(seen),
            None => by_link.push((link, vec![seen])),
        }
    }
    let wire = |(link, all): (&str, Vec<&ProbeResult>)| {
        let carried = |way: &str| carried(&all, way);
        Some(Wire { link: link.to_owned(), received: carried("received")?, sent: carried("sent")? })
    };
    by_link.into_iter().filter_map(wire).collect()
}

fn carried(all: &[&ProbeResult], way: &str) -> Option<Carried> {
    let of = |figure: &str, rate: bool| {
        let is = |reading: &&Reading| reading.figure == figure && reading.labels.get(WAY).is_some_and(|its| its == way);
        let value = |seen: &&ProbeResult| {
            let amount = seen.figures.iter().find(is)?.value.typical();
            let seconds = scalar(&seen.figures, SECONDS).filter(|s| *s > 0.0);
            if rate { Some(amount / seconds?) } else { Some(amount) }
        };
        mean(&all.iter().filter_map(value).filter(|x| x.is_finite()).collect::<Vec<f64>>())
    };
    Some(Carried {
        bytes_per_second: of("bytes", true)?,
        packets_per_second: of("packets", true)?,
        dropped_packets: of("dropped", false)?,
    })
}
