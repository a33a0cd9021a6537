//! What is set for a cell, and taken back.

use super::*;
use crate::engine::measure::Impossible;

#[test]
fn settings_are_put_for_whom_they_are_and_taken_back_in_reverse() {
    let house = House::new();
    let mut runner = house.runner();
    let actors =
        vec![house.prepared(&mut runner, "ax", 0, 1, How::Well), house.prepared(&mut runner, "ay", 50, 1, How::Well)];
    let (both, one) = (house.set("a"), house.set("y"));
    let sample = run(&mut runner, actors, &[(both, "1"), (one, "2")]).unwrap();
    assert_eq!(
        house.told(),
        [
            "set a=1 for ax",
            "set a=1 for ay",
            "set y=2 for ay",
            "ax begins",
            "ax ends",
            "ay begins",
            "ay ends",
            "undo y=2 for ay",
            "undo a=1 for ay",
            "undo a=1 for ax",
        ]
    );
    assert_eq!(sample.cell.key(), "machine/native/ax & machine/native/ay@0.05s [a=1, y=2]");
    let stored = house.memory.0.lock().unwrap();
    let found: Vec<_> =
        stored.iter().flat_map(|(at, all)| all.iter().map(move |(k, v)| format!("{at}: {k} {v}"))).collect();
    assert_eq!(found, ["machine/native [a=1]: a 1!", "machine/native [y=2]: y 2!"], "as read back");
}

#[test]
fn a_cell_whose_setting_fails_leaves_nothing_set() {
    for (value, impossible, why) in
        [("none", true, "not here"), ("bad", false, "bad was asked for and good is in force")]
    {
        let house = House::new();
        let mut runner = house.runner();
        let actors = vec![
            house.prepared(&mut runner, "ax", 0, 1, How::Well),
            house.prepared(&mut runner, "ay", 0, 1, How::Well),
        ];
        let (first, second) = (house.set("a"), house.set("y"));
        let error = run(&mut runner, actors, &[(first, "1"), (second, value)]).unwrap_err();
        let told = house.told();
        assert_eq!(told, ["set a=1 for ax", "set a=1 for ay", "undo a=1 for ay", "undo a=1 for ax"], "nobody worked");
        assert_eq!(error.is::<Impossible>(), impossible);
        let said = format!("{error:#}");
        assert!(said.contains(&format!("cannot set y to {value} for machine/native/ay: {why}")), "{said}");
        assert!(house.memory.0.lock().unwrap().is_empty());
        assert_eq!(runner.must_stop(), None);
    }
}

#[test]
fn what_cannot_be_set_back_on_the_host_ends_the_run() {
    let house = House::new();
    let mut runner = house.runner();
    let actors = vec![house.prepared(&mut runner, "abc", 0, 1, How::Well)];
    let (a, b, c) = (house.set("a"), house.set("b"), house.set("c"));
    let said = format!("{:#}", run(&mut runner, actors, &[(a, "1"), (b, "stuck"), (c, "3")]).unwrap_err());
    assert!(said.contains("what was set for a cell cannot be set back: it sticks"), "{said}");
    let told = house.told();
    assert_eq!(told[5..], ["undo c=3 for abc", "undo b=stuck for abc", "undo a=1 for abc"], "the others are: {told:?}");
    assert_eq!(runner.must_stop(), Some(StopCause::SettingStuck(said)));
}

#[test]
fn a_guest_that_is_gone_is_no_reason_to_end_the_run() {
    let house = House::new();
    let mut runner = house.runner();
    let mut prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    prepared.actor.side = Side::of("qemu");
    let setting = house.set("a");
    let error = run(&mut runner, vec![prepared], &[(setting, "stuck")]).unwrap_err();
    assert!(format!("{error:#}").contains("cannot be set back"));
    assert_eq!(runner.must_stop(), None, "it is booted anew");
}

/// What is refused is refused again, but a guest that is left with a part of it has to be booted anew.
#[test]
fn what_is_refused_in_the_middle_is_taken_back() {
    let house = House::new();
    let mut runner = house.runner();
    let mut prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    prepared.actor.side = Side::of("qemu");
    let error = run(&mut runner, vec![prepared], &[(house.set("a"), "half")]).unwrap_err();
    assert_eq!(house.told(), ["set a=half for a", "undo a=half for a"]);
    let said = format!("{error:#}");
    assert!(said.contains("half of it") && said.contains("cannot be set back: it sticks"), "both: {said}");
    assert!(!error.is::<Impossible>(), "it is tried again in a guest that is booted anew");
    assert_eq!(runner.must_stop(), None);
}

/// A guest on storage that hangs gives no answer: nothing is asked of it, and the journal takes back the host's.
#[test]
fn nothing_is_set_back_by_way_of_sick_storage() {
    let house = House::new();
    let mut runner = house.runner();
    let prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    runner.bed.stop = Some(StopCause::StorageFailed("the pool is full".into()));
    run(&mut runner, vec![prepared], &[(house.set("a"), "1")]).unwrap();
    assert_eq!(house.told(), ["set a=1 for a", "a begins", "a ends"]);
    assert_eq!(runner.must_stop(), Some(StopCause::StorageFailed("the pool is full".into())));
}
