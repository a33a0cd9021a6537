//! What native actors and containers are held to: each side has a control group of its own, with what its guest has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use vmio_model::cell::{Cell, Side};
use vmio_model::study::Study;
use vmio_model::words::first_of;
use vmio_node::{Journal, Node, Reader};

use crate::limits::{self, Limits, Share};

/// Sides that are named where several are held alike.
const NAMED: usize = 3;

/// The native sides and the containers of a run, each with its group or why it has none.
pub type Natives = BTreeMap<Side, Result<Limits, limits::Error>>;

/// The native sides and containers of cells, with what they are held to. The plain native side is always among them:
/// preconditioning and probes for caps run on it. Co-runners, which work in the same cell, get different processors as
/// far as there are enough; sides with fewer processors to choose from choose first.
fn shares(study: &Study, cells: &[Cell], reader: &dyn Reader) -> BTreeMap<Side, Share> {
    let plain = Side::native();
    // By side: the sides that share a cell with it.
    let mut co_runners: BTreeMap<&Side, BTreeSet<&Side>> = BTreeMap::from([(&plain, BTreeSet::new())]);
    for cell in cells {
        let at_once: BTreeSet<&Side> =
            cell.actors().map(|actor| &actor.side).filter(|side| side.shares_kernel() && !side.is_afar()).collect();
        for side in &at_once {
            co_runners.entry(side).or_default().extend(at_once.iter().filter(|other| *other != side));
        }
    }
    let mut order: Vec<&Side> = co_runners.keys().copied().collect();
    // The sort is stable: sides with a free choice stay in the order of their names.
    order.sort_by_key(|side| if side.shape.pins.is_empty() { usize::MAX } else { side.shape.pins.len() });
    let mut shares: BTreeMap<Side, Share> = BTreeMap::new();
    let mut used: BTreeMap<&Side, Vec<u32>> = BTreeMap::new();
    for side in order {
        let has = study.guest.of(side);
        let taken = co_runners[side].iter().filter_map(|other| used.get(other)).flatten().copied().collect();
        let pins = side.shape.pins.clone();
        let share = Share { pins, taken, ..Share::of(has.vcpus, has.memory_bytes()) };
        used.insert(side, limits::chosen(reader, &share));
        shares.insert(side.clone(), share);
    }
    shares
}

/// Makes their groups.
pub fn hold(study: &Study, cells: &[Cell], node: &dyn Node, journal: &Journal) -> Natives {
    let name = format!("vmio-{}", journal.cookie());
    let make = |(number, (side, share)): (usize, (Side, Share))| {
        let name = if number == 0 { name.clone() } else { format!("{name}-{number}") };
        (side, Limits::create(node, journal, &name, &share))
    };
    shares(study, cells, node.reader()).into_iter().enumerate().map(make).collect()
}

/// What they are held to, in words.
pub fn told(natives: &Natives) -> String {
    words(natives.iter().map(|(side, held)| (side, held.as_ref().map(Limits::describe))))
}

/// What they would be held to, in words. Only looks.
pub fn forecast(study: &Study, cells: &[Cell], reader: &dyn Reader) -> String {
    let shares = shares(study, cells, reader);
    let seen: Vec<_> = shares.iter().map(|(side, share)| (side, limits::forecast(reader, share))).collect();
    words(seen.iter().map(|(side, held)| (*side, held.as_deref())))
}

/// `cgroup v2: …` of one side; of several with their names: `cgroup v2: …; native#2: cgroup v2: …`. Those that are held
/// alike are told together.
fn words<'a, E: Display + 'a>(sides: impl Iterator<Item = (&'a Side, Result<&'a str, &'a E>)>) -> String {
    let mut alike: Vec<(String, Vec<String>)> = Vec::new();
    for (side, held) in sides {
        let held = held.map_or_else(|why| format!("not held: {why}"), str::to_owned);
        match alike.iter_mut().find(|(other, _)| *other == held) {
            Some((_, sides)) => sides.push(side.to_string()),
            None => alike.push((held, vec![side.to_string()])),
        }
    }
    let plain = Side::native().to_string();
    let word = |(held, sides): &(String, Vec<String>)| {
        if sides[..] == [plain.as_str()] { held.clone() } else { format!("{}: {held}", first_of(sides, NAMED)) }
    };
    alike.iter().map(word).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Actor, Shape, Subject};
    use vmio_model::study::MIB;
    use vmio_node::fake::Tree;

    use super::*;
    use crate::engine::runner::tests::study;

    /// Processors 0 to 3, chosen by a group of version 2.
    fn host() -> Tree {
        Tree::of(&[
            ("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/proc/swaps", "Filename Type Size Used Priority\n"),
            ("/sys/fs/cgroup/cgroup.subtree_control", "cpuset memory"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
        ])
    }

    fn native(nth: u32, vcpus: u32, pins: &[u32]) -> Side {
        let shape = Shape { vcpus: Some(vcpus), pins: pins.to_vec(), ..Shape::default() };
        Side { nth, shape, ..Side::native() }
    }

    /// Who works at once, cell by cell.
    fn cells(of: &[&[&Side]]) -> Vec<Cell> {
        let cell = |sides: &&[&Side]| {
            let mut cell = Cell::of(sides[0].clone(), Subject::Machine, "a");
            let co_runner = |side: &&Side| Actor { side: (*side).clone(), ..cell.lead.clone() };
            cell.beside = sides[1..].iter().map(co_runner).collect();
            cell
        };
        of.iter().map(cell).collect()
    }

    /// The processors of each of these.
    fn placed(of: &[&[&Side]], sides: &[&Side]) -> Vec<Vec<u32>> {
        let shares = shares(&study(), &cells(of), &host());
        sides.iter().map(|side| limits::chosen(&host(), &shares[*side])).collect()
    }

    #[test]
    fn each_side_has_what_its_guest_has() {
        let shape = Shape { vcpus: Some(3), memory_mib: Some(512), pins: vec![0, 1], ..Shape::default() };
        let own = Side { shape, ..Side::native() };
        let all = cells(&[&[&Side::of("qemu"), &own, &own]]);
        let shares = shares(&study(), &all, &host());
        assert_eq!(
            shares[&own],
            Share { pins: vec![0, 1], ..Share::of(3, 512 * MIB) },
            "who does two things has one place"
        );
        assert_eq!(shares[&Side::native()], Share::of(1, 256 * MIB), "what is probed runs there");
        assert_eq!(shares.len(), 2, "guests are held elsewhere");
    }

    #[test]
    fn those_that_work_at_once_are_on_processors_of_their_own() {
        let [first, second, third] = [native(0, 1, &[]), native(1, 1, &[]), native(2, 2, &[])];
        let (pinned, wide) = (native(3, 2, &[3]), native(4, 1, &[2, 3]));
        assert_eq!(placed(&[&[&first], &[&second]], &[&first, &second]), [[3], [3]], "one after the other");
        for twice in [&[&first, &second], &[&second, &first]] {
            assert_eq!(placed(&[twice, &[&second, &first]], &[&first, &second]), [[3], [2]], "in whichever order");
        }
        assert_eq!(placed(&[&[&first, &second, &third]], &[&first, &second, &third]), [&[3][..], &[2], &[0, 1]]);
        assert_eq!(placed(&[&[&first, &pinned]], &[&first, &pinned]), [[2], [3]], "who cannot choose goes first");
        assert_eq!(placed(&[&[&first, &wide, &pinned]], &[&first, &wide, &pinned]), [[1], [2], [3]]);
        assert_eq!(placed(&[&[&first], &[&second, &pinned]], &[&first, &second]), [[3], [2]], "only its co-runners");
        let fifth = native(5, 4, &[]);
        assert_eq!(
            placed(&[&[&first, &fifth]], &[&first, &fifth]),
            [&[3][..], &[0, 1, 2, 3]],
            "they share what is left"
        );
    }

    #[test]
    fn sides_are_told_one_by_one() {
        let second = Side { nth: 1, ..Side::native() };
        let why = "no control groups";
        let plain = Side::native();
        assert_eq!(words::<&str>([(&plain, Ok("cpuset 1"))].into_iter()), "cpuset 1");
        let two = words([(&plain, Ok("cpuset 1")), (&second, Err(&why))].into_iter());
        assert_eq!(two, "cpuset 1; native#2: not held: no control groups");
        let all: Vec<Side> = (0..64).map(|nth| Side { nth, ..Side::native() }).collect();
        let told = words::<&str>(all.iter().map(|side| (side, Ok(["cpuset 0", "cpuset 1"][side.nth as usize % 2]))));
        assert!(told.starts_with("native, native#3, "), "{told}");
        assert!(told.contains("; native#2, native#4, ") && told.ends_with(": cpuset 1"), "{told}");
        assert!(told.len() < 160, "{told}");
    }
}
