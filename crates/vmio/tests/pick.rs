//! Which guests of a scan are shown, by the words that people call them, and which rules are left out.
#![allow(clippy::unwrap_used)]

use crate::common::scan::view;

use vmio::cmd::scan::pick::{Ignore, ignored, named, own};
use vmio_model::facts::Guest;
use vmio_model::failure::{Exit, Failure};

fn guests() -> Vec<Guest> {
    view().rows.into_iter().map(|r| r.guest).collect()
}

/// Names of the guests that a word means.
fn find(guests: &[Guest], word: &str) -> Result<Vec<String>, Failure> {
    Ok(named(guests.to_vec(), false, &[word.to_owned()])?.into_iter().map(|g| g.name).collect())
}

#[test]
fn guests_are_found_by_what_people_call_them() {
    let guests = guests();
    for (word, name) in [
        ("web1", "web1"),
        ("101", "101"),
        ("mail", "101"),
        ("4711", "builder"),
        ("5f2b0006", "files-2022"),
        ("5F2B0006-7C11", "files-2022"),
        ("virt-launcher-pay-7-x2x9l", "pay-7"),
    ] {
        assert_eq!(find(&guests, word).unwrap(), [name], "{word}");
    }
    assert_eq!(find(&guests, "5f2b").unwrap().len(), 5, "a beginning that several have");
    assert_eq!(named(guests.clone(), false, &[]).unwrap().len(), 6);
    let unknown = find(&guests, "web2").unwrap_err();
    assert_eq!(unknown.exit, Exit::Usage);
    let help = unknown.help.unwrap();
    assert!(help.contains("did you mean web1?") && help.contains("builder"), "{help}");
    assert!(find(&guests, "5f2").is_err(), "too short for a UUID");
    assert!(find(&guests, "/var/x.prom").unwrap_err().help.unwrap().contains("--prometheus=FILE"));
}

#[test]
fn a_vm_number_beats_a_pid_and_other_numbers_name_nobody() {
    let mut guests = guests();
    let builder = guests.iter().position(|g| g.name == "builder").unwrap();
    guests[builder].ids.insert("processes".into(), "17".into());
    assert!(find(&guests, "17").is_err(), "a number of other things");
    assert_eq!(find(&guests, "4711").unwrap(), ["builder"], "its pid");
    let pve = guests.iter().position(|g| g.name == "101").unwrap();
    guests[pve].ids.insert("vmid".into(), "4711".into());
    assert_eq!(find(&guests, "4711").unwrap(), ["101"]);
}

#[test]
fn vmios_own_guests_are_left_out_unless_they_are_wanted() {
    let mut guests = guests();
    guests[2].ids.insert("owner".into(), "vmio".into());
    let name = guests[2].name.clone();
    let (shown, left_out) = own(guests.clone(), false, &[]);
    assert_eq!((shown.len(), left_out), (5, 1));
    assert!(shown.iter().all(|g| g.name != name));
    assert_eq!(own(guests.clone(), true, &[]).1, 0);
    assert_eq!(own(guests.clone(), false, std::slice::from_ref(&name)).1, 0);
    // The help for a wrong name lists the guests that are shown.
    let help = |guests: &[Guest], all: bool| named(guests.to_vec(), all, &["nosuch".into()]).unwrap_err().help.unwrap();
    assert!(!help(&guests, false).contains(&name) && help(&guests, true).contains(&name));
    let alone = vec![guests.remove(2)];
    assert!(!help(&alone, false).contains("these run") && help(&alone, false).contains("vmio scan --all"));
    assert!(help(&alone, true).contains(&format!("these run: {name}")));
}

#[test]
fn rules_are_ignored_everywhere_or_in_one_guest() {
    let left = |words: &[&str]| {
        let mut rows = view().rows;
        let ignore: Vec<Ignore> = words.iter().map(|w| w.parse().unwrap()).collect();
        let n = ignored(&mut rows, &ignore);
        (n, rows.iter().map(|r| r.findings.len()).sum::<usize>())
    };
    assert_eq!(left(&[]), (0, 6));
    assert_eq!(left(&["emulated-driver"]), (2, 4));
    assert_eq!(left(&["emulated-driver@bare"]), (1, 5));
    assert_eq!(left(&["no-discard@101", "sparse-file"]), (2, 4));
    assert_eq!(left(&["no-discard@999"]), (0, 6), "a guest that does not run now");
    let unknown = "emulated-drivr@bare".parse::<Ignore>().unwrap_err();
    assert_eq!((unknown.exit, unknown.help.as_deref()), (Exit::Usage, Some("did you mean emulated-driver?")));
}
