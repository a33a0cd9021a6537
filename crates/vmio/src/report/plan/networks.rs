//! The networks of a plan.

use std::collections::BTreeSet;

use vmio_model::cell::{Cell, Subject};

/// Words for actors without a network card of a guest.
const NATIVELY: &str = "natively";
const CONTAINED: &str = "a container";
/// These words in the order in which they are shown.
const OWN: [&str; 3] = [INSIDE, CONTAINED, NATIVELY];
const INSIDE: &str = "inside of guests";

/// The networks that cells work over, each with who does: `bridge: guests by virtio-net, e1000`, `veth: natively`.
pub(super) fn networks(cells: &[Cell]) -> Vec<String> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for actor in cells.iter().flat_map(Cell::actors) {
        let Subject::Path { network, .. } = &actor.subject else { continue };
        let own = match &actor.side {
            side if side.is_native() => NATIVELY,
            side if side.shares_kernel() => CONTAINED,
            _ => INSIDE,
        };
        let who = actor.subject.seen_by().unwrap_or_else(|| own.to_owned());
        match all.iter_mut().find(|(name, _)| name == network) {
            Some((_, seen)) if !seen.contains(&who) => seen.push(who),
            Some(_) => {}
            None => all.push((network, vec![who])),
        }
    }
    let line = |(network, who): &(&str, Vec<String>)| {
        let guests: Vec<&str> = who.iter().map(String::as_str).filter(|who| !OWN.contains(who)).collect();
        let guests = (!guests.is_empty()).then(|| format!("guests by {}", guests.join(", ")));
        let others = OWN.into_iter().filter(|word| who.iter().any(|who| who == word)).map(str::to_owned);
        format!("{network}: {}", guests.into_iter().chain(others).collect::<Vec<_>>().join(" and "))
    };
    all.iter().map(line).collect()
}

/// The paths that have a second sender.
pub(super) fn of_two_senders(cells: &[Cell]) -> BTreeSet<String> {
    let two_senders = |subject: &Subject| match subject {
        Subject::Path { network, peer, co_sender: Some(end), .. } => {
            Some(format!("{network}.{peer} has two senders: the actor and {end}"))
        }
        _ => None,
    };
    cells.iter().flat_map(Cell::actors).filter_map(|actor| two_senders(&actor.subject)).collect()
}
