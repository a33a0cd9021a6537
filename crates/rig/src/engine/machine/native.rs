//! What native actors are held to: each side has a control group of its own, with what its guest has.

use std::collections::BTreeMap;

use vmio_model::cell::{Cell, Side};
use vmio_model::study::{MIB, Study};
use vmio_node::{Journal, Node};

use crate::limits::{self, Limits, Share};

/// The native sides of a run, each with its group or why it has none.
pub(super) type Natives = BTreeMap<Side, Result<Limits, String>>;

/// The native sides of cells, with what they are held to. The plain one is there in any case: what is written and
/// probed beside the cells runs on it.
fn shares(study: &Study, cells: &[Cell]) -> BTreeMap<Side, Share> {
    let cores = |side: &Side| side.shape.vcpus.unwrap_or(study.guest.vcpus);
    let mut shares = BTreeMap::new();
    let mut hold = |side: &Side, after: u32| {
        let memory_mib = side.shape.memory_mib.unwrap_or(study.guest.memory_mib);
        let share = shares.entry(side.clone()).or_insert_with(|| Share {
            pins: side.shape.pins.clone(),
            ..Share::of(cores(side), u64::from(memory_mib) * MIB)
        });
        share.after = share.after.max(after);
    };
    hold(&Side::native(), 0);
    for cell in cells {
        let (mut seen, mut taken): (Vec<&Side>, u32) = (Vec::new(), 0);
        for side in cell.actors().map(|actor| &actor.side).filter(|side| side.is_native()) {
            if !seen.contains(&side) {
                hold(side, taken);
                taken = taken.saturating_add(cores(side));
                seen.push(side);
            }
        }
    }
    shares
}

/// Makes their groups.
pub(super) fn hold(study: &Study, cells: &[Cell], node: &dyn Node, journal: &Journal) -> Natives {
    let name = format!("vmio-{}", journal.cookie());
    let make = |(number, (side, share)): (usize, (Side, Share))| {
        let name = if number == 0 { name.clone() } else { format!("{name}-{number}") };
        (side, Limits::create(node, journal, &name, &share))
    };
    shares(study, cells).into_iter().enumerate().map(make).collect()
}

/// What they are held to, in words.
pub(super) fn told(natives: &Natives) -> String {
    words(natives.iter().map(|(side, held)| (side, held.as_ref().map(Limits::describe))))
}

/// What they would be held to, in words. Only looks.
pub fn forecast(study: &Study, node: &dyn Node) -> String {
    let shares = shares(study, &study.cells());
    let seen: Vec<_> = shares.iter().map(|(side, share)| (side, limits::forecast(node.reader(), share))).collect();
    words(seen.iter().map(|(side, held)| (*side, held.as_deref())))
}

/// `cgroup v2: …` of one side; of several each with its name: `cgroup v2: …; native#2: cgroup v2: …`.
fn words<'a>(sides: impl Iterator<Item = (&'a Side, Result<&'a str, &'a String>)>) -> String {
    let word = |(side, held): (&Side, Result<&str, &String>)| {
        let held = held.map_or_else(|why| format!("not held: {why}"), str::to_owned);
        if *side == Side::native() { held } else { format!("{side}: {held}") }
    };
    sides.map(word).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Actor, Shape, Subject};

    use super::*;

    #[test]
    fn each_side_has_what_its_guest_has_and_a_place_of_its_own() {
        let shape = Shape { vcpus: Some(3), memory_mib: Some(512), pins: vec![0, 1], ..Shape::default() };
        let sides = [Side::native(), Side { nth: 1, ..Side::native() }, Side { shape, ..Side::native() }];
        let mut cell = Cell::of(Side::of("qemu"), Subject::Machine, "a");
        let beside = |side: &Side| Actor { side: side.clone(), ..cell.lead.clone() };
        // The second of them twice: who does two things at once has one place.
        cell.beside = [0, 1, 1, 2].map(|i| beside(&sides[i])).into();
        let alone = Cell::of(sides[2].clone(), Subject::Machine, "a");
        let study = super::super::tests::study();
        let (alone, all) = (shares(&study, &[alone]), shares(&study, &[cell]));
        let of = |shares: &BTreeMap<Side, Share>, i: usize| shares.get(&sides[i]).cloned();
        let mib = |mib: u64| mib * MIB;
        assert_eq!(of(&all, 0), Some(Share::of(1, mib(256))));
        assert_eq!(of(&all, 1), Some(Share { after: 1, ..Share::of(1, mib(256)) }));
        let third = Share { pins: vec![0, 1], after: 2, ..Share::of(3, mib(512)) };
        assert_eq!(of(&all, 2), Some(third.clone()));
        assert_eq!((of(&alone, 2), of(&alone, 1)), (Some(Share { after: 0, ..third }), None));
        assert_eq!(of(&alone, 0), of(&all, 0), "what is probed runs there");
        assert_eq!(all.len(), 3, "guests are held elsewhere");
    }

    #[test]
    fn sides_are_told_one_by_one() {
        let second = Side { nth: 1, ..Side::native() };
        let why = "no control groups".to_owned();
        let plain = Side::native();
        assert_eq!(words([(&plain, Ok("cpuset 1"))].into_iter()), "cpuset 1");
        let two = words([(&plain, Ok("cpuset 1")), (&second, Err(&why))].into_iter());
        assert_eq!(two, "cpuset 1; native#2: not held: no control groups");
    }
}
