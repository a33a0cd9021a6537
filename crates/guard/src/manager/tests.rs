#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vmio_model::policy::{Abilities, Links};
use vmio_model::rate::MBIT as M;

use super::*;
use crate::planes::fake::Fake;
use crate::testing::{POLICY, tap};

/// A file, and the speed of eth0 in Mbit/s.
#[derive(Clone)]
struct Files(Arc<Mutex<String>>, Arc<Mutex<u64>>);

impl Files {
    fn write(&self, text: &str) {
        *self.0.lock().unwrap() = text.to_owned();
    }
}

impl Texts for Files {
    fn files(&self) -> Result<Vec<(String, String)>, FilesError> {
        Ok(vec![("guard.toml".into(), self.0.lock().unwrap().clone())])
    }
    fn links(&self, _: Option<&std::collections::BTreeSet<String>>) -> Links {
        Links { speeds: [("eth0".to_owned(), *self.1.lock().unwrap() * M)].into(), ..Links::default() }
    }
}

fn start_with(files: &Files, log: &UndoLog) -> Result<Manager, ManagerError> {
    start_on(Fake::new(Abilities::HTB), files, log)
}

fn start_on(plane: Fake, files: &Files, log: &UndoLog) -> Result<Manager, ManagerError> {
    Manager::start(Start {
        texts: Box::new(files.clone()),
        log: log.clone(),
        plane: Box::new(move || Ok(Box::new(plane))),
        plane_name: "fake",
        allocator: Allocator::Exact,
        groups: None,
        look: Box::new(|_| Ok(vec![tap(1)])),
    })
}

fn started() -> (Files, UndoLog, Manager) {
    let (files, log) = (Files(Arc::new(Mutex::new(POLICY.into())), Arc::default()), UndoLog::memory());
    let manager = start_with(&files, &log).unwrap();
    (files, log, manager)
}

fn min(manager: &Manager) -> u64 {
    let status = manager.status().unwrap();
    status.pools[0].members.iter().find(|m| m.name == "tap1").unwrap().min_effective_bps / M
}

fn set(value: &str) -> Change {
    Change::Set { class: "gold".into(), keys: [(Key::Min, value.to_owned())].into() }
}

#[test]
fn refused_file_is_in_the_status() {
    let (files, _, mut manager) = started();
    files.write(&POLICY.replace("40Mbit", "400Mbit").replace("tap*", "tap1"));
    let refused = manager.apply(None).unwrap_err();
    assert_eq!(refused.problems().len(), 1, "{refused}");
    let status = manager.status().unwrap();
    assert_eq!((status.policy.revision, status.policy.files_differ, min(&manager)), (1, true, 40));
    assert!(status.policy.refused.unwrap().contains("one problem"));
    files.write(&POLICY.replace("40Mbit", "30Mbit"));
    manager.apply(None).unwrap();
    let status = manager.status().unwrap();
    assert_eq!((status.policy.revision, status.policy.files_differ, status.policy.refused), (2, false, None));
    assert_eq!(min(&manager), 30);
}

#[test]
fn unconfirmed_change_is_taken_back() {
    let (files, _, mut manager) = started();
    files.write(&POLICY.replace("40Mbit", "30Mbit"));
    manager.apply(Some(Duration::from_secs(600))).unwrap();
    assert_eq!(min(&manager), 30);
    assert!(manager.status().unwrap().policy.taken_back_in_seconds.unwrap() > 500.0);
    assert!(!manager.expire().unwrap(), "not yet");
    files.write(&POLICY.replace("40Mbit", "20Mbit"));
    manager.apply(Some(Duration::ZERO)).unwrap();
    assert_eq!(min(&manager), 20);
    assert!(manager.expire().unwrap());
    assert_eq!(min(&manager), 40, "what was in force before the first of both");
    assert!(manager.confirm().unwrap_err().to_string().contains("nothing to confirm"));
    manager.apply(Some(Duration::from_secs(600))).unwrap();
    manager.confirm().unwrap();
    assert!(!manager.expire().unwrap());
    assert_eq!(min(&manager), 20);
}

#[test]
fn later_change_does_not_confirm() {
    let (files, log, mut manager) = started();
    files.write(&POLICY.replace("40Mbit", "30Mbit"));
    manager.apply(Some(Duration::from_millis(200))).unwrap();
    // As by SIGHUP, and by `guard set` of somebody who knows of nothing.
    files.write(&POLICY.replace("40Mbit", "20Mbit"));
    manager.apply(None).unwrap();
    manager.set(&set("10Mbit"), None).unwrap();
    assert_eq!(min(&manager), 10);
    std::thread::sleep(Duration::from_millis(200));
    assert!(manager.expire().unwrap());
    assert_eq!(min(&manager), 40);
    // The files, which nobody has confirmed, are put in force by who asks for them anew.
    manager.apply(None).unwrap();
    drop(manager);
    assert_eq!(min(&start_with(&files, &log).unwrap()), 20);
}

#[test]
fn next_daemon_starts_with_the_confirmed_policy() {
    let policy = |min: &str| POLICY.replace("40Mbit", min);
    let (files, log, mut manager) = started();
    files.write(&policy("30Mbit"));
    manager.apply(Some(Duration::from_secs(600))).unwrap();
    files.write(&policy("20Mbit"));
    manager.apply(None).unwrap();
    // Killed: limits stay, and the next one begins with what somebody was sure of. As often as it is started.
    drop(manager);
    for _ in 0..2 {
        let manager = start_with(&files, &log).unwrap();
        assert_eq!((min(&manager), manager.began_before()), (40, Some(Unconfirmed::Files)));
        assert!(manager.status().unwrap().policy.files_differ);
    }
    // The files before the last ones waited, too.
    files.write(&policy("30Mbit"));
    assert_eq!(min(&start_with(&files, &log).unwrap()), 40);
    // Those that somebody has written since are what is wanted.
    files.write(&policy("25Mbit"));
    let mut manager = start_with(&files, &log).unwrap();
    assert_eq!((min(&manager), manager.began_before()), (25, None));
    // One that ends takes back what waits: nobody will.
    files.write(&policy("15Mbit"));
    manager.apply(Some(Duration::from_secs(600))).unwrap();
    assert!(manager.give_up().unwrap());
    assert_eq!(min(&manager), 25);
    manager.stop(false).unwrap();
    let mut manager = start_with(&files, &log).unwrap();
    assert_eq!(min(&manager), 25);
    // Confirmed, it stays.
    manager.apply(Some(Duration::from_secs(600))).unwrap();
    manager.confirm().unwrap();
    drop(manager);
    let mut manager = start_with(&files, &log).unwrap();
    assert_eq!((min(&manager), manager.began_before()), (15, None));
    manager.stop(true).unwrap();
    assert!(log.is_empty());
}

#[test]
fn set_keys_outlive_the_daemon() {
    let (files, log, mut manager) = started();
    manager.set(&set("10Mbit"), None).unwrap();
    assert_eq!(
        (min(&manager), manager.status().unwrap().policy.over.as_str()),
        (10, "[class.gold]\nmin = \"10Mbit\"\n")
    );
    assert!(manager.set(&set("10Mbps"), None).unwrap_err().problems()[0].to_string().contains("class gold --min: "));
    manager.set(&set("5Mbit"), Some(Duration::from_secs(600))).unwrap();
    drop(manager);
    let mut manager = start_with(&files, &log).unwrap();
    assert_eq!(min(&manager), 10, "what waited for a confirmation is gone");
    assert_eq!(manager.began_before(), Some(Unconfirmed::Set));
    assert!(!manager.status().unwrap().policy.files_differ);
    manager.set(&Change::Clear { class: None }, None).unwrap();
    assert_eq!(min(&manager), 40);
    manager.set(&set("10Mbit"), None).unwrap();
    manager.stop(true).unwrap();
    assert!(manager.status().is_err());
    drop(manager);
    assert_eq!(min(&start_with(&files, &log).unwrap()), 40);
}

#[test]
fn a_refused_set_leaves_no_entry() {
    let (files, log, mut manager) = started();
    files.write(&POLICY.replace("min = \"40Mbit\"\n", ""));
    manager.apply(None).unwrap();
    let slow = Change::Set { class: "gold".into(), keys: [(Key::Max, "1kbit".to_owned())].into() };
    assert!(matches!(manager.set(&slow, None), Err(ManagerError::Core(_))));
    assert!(log.is_empty());
    manager.over.strikes_fail.store(true, Ordering::Relaxed);
    assert!(matches!(manager.set(&slow, None), Err(ManagerError::SetStays(..))));
    manager.over.strikes_fail.store(false, Ordering::Relaxed);
    assert!(matches!(manager.set(&slow, None), Err(ManagerError::Core(_))));
    assert!(log.is_empty());
    manager.set(&set("10Mbit"), None).unwrap();
    assert_eq!((min(&manager), manager.over.all(()).len()), (10, 1));
}

#[test]
fn interfaces_that_appear_are_timed() {
    let (_, _, mut manager) = started();
    let reported_at = Some(Instant::now());
    manager.set_interfaces(Discovery { interfaces: vec![tap(1), tap(2)], reported_at }).unwrap();
    manager.set_interfaces(Discovery { interfaces: vec![tap(1), tap(2)], reported_at }).unwrap();
    manager.set_interfaces(Discovery { interfaces: vec![tap(2), tap(3)], reported_at: None }).unwrap();
    let status = manager.status().unwrap();
    assert_eq!(status.appeared.total, 1);
    assert!(status.appeared.p99_seconds.unwrap() > 0.0);
    let names: Vec<&str> = status.pools[0].members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["host", "tap2", "tap3", "default"]);
}

#[test]
fn status_names_guests_and_what_they_may_claim() {
    let (_, _, mut manager) = started();
    let (mut guest, mut container) = (tap(1), tap(2));
    guest.interface.vms = vec!["web1".into(), "101".into()];
    container.interface.netns = Some("blue".into());
    manager.set_interfaces(Discovery { interfaces: vec![guest, container, tap(3)], reported_at: None }).unwrap();
    let status = manager.status().unwrap();
    let members = &status.pools[0].members;
    let guests: Vec<Option<&str>> = members.iter().map(|m| m.guest.as_deref()).collect();
    assert_eq!(guests, [None, Some("web1"), Some("blue"), None, None]);
    let settings = members[1].settings.as_ref().unwrap();
    let words = (settings.spoofing.as_deref(), settings.local.as_deref(), settings.router);
    assert_eq!(words, (Some("warn"), Some("count"), Some(false)));
    assert!(members[0].settings.is_none());
}

/// The text is that of the document at each time.
#[test]
fn pools_are_written_anew_after_traffic_and_changes_alone() {
    let (files, log, plane) =
        (Files(Arc::new(Mutex::new(POLICY.into())), Arc::default()), UndoLog::memory(), Fake::new(Abilities::HTB));
    let still = Arc::clone(&plane.still);
    let mut manager = start_on(plane, &files, &log).unwrap();
    let is_anew = |manager: &mut Manager| {
        let StatusText { parts, made_of } = manager.status_text().unwrap();
        let text: String = parts.iter().map(|part| std::str::from_utf8(part).unwrap()).collect();
        assert_eq!(text, serde_json::to_string(&manager.status().unwrap()).unwrap());
        !made_of.is_empty()
    };
    still.store(true, Ordering::Relaxed);
    assert!(is_anew(&mut manager) && is_anew(&mut manager), "it was put in force, and not counted since");
    // At the second count nothing has passed for a second, at the third one that is nothing new.
    for anew_after_count in [true, true, false] {
        manager.count().unwrap();
        assert_eq!(is_anew(&mut manager), anew_after_count);
        assert!(!is_anew(&mut manager));
    }
    still.store(false, Ordering::Relaxed);
    assert!(is_anew(&mut manager));
    still.store(true, Ordering::Relaxed);
    assert!(is_anew(&mut manager), "what passed is not in what was written then");
    let settle = |manager: &mut Manager| {
        manager.count().unwrap();
        is_anew(manager);
        assert!(!is_anew(manager));
    };
    settle(&mut manager);
    manager.set(&set("10Mbit"), None).unwrap();
    assert!(is_anew(&mut manager));
    settle(&mut manager);
    let found = || Discovery { interfaces: vec![tap(1), tap(2)], reported_at: None };
    manager.set_interfaces(found()).unwrap();
    assert!(is_anew(&mut manager));
    settle(&mut manager);
    let changes = manager.changes();
    manager.set_interfaces(found()).unwrap();
    assert!(!is_anew(&mut manager) && manager.changes() == changes, "that is nothing new");
}

#[test]
fn capacity_follows_the_link_speed() {
    let (files, log) =
        (Files(Arc::new(Mutex::new(POLICY.replace("capacity = \"100Mbit\"", ""))), Arc::default()), UndoLog::memory());
    *files.1.lock().unwrap() = 1000;
    let mut manager = start_with(&files, &log).unwrap();
    let capacity = |manager: &Manager| manager.status().unwrap().pools[0].capacity_bps / M;
    assert_eq!((capacity(&manager), manager.follow_links().unwrap()), (1000, false));
    // What was written since is not asked for yet.
    files.write(&POLICY.replace("capacity = \"100Mbit\"", "").replace("40Mbit", "30Mbit"));
    *files.1.lock().unwrap() = 100;
    assert!(manager.follow_links().unwrap());
    assert_eq!((capacity(&manager), min(&manager)), (100, 40));
    // What does not fit it changes nothing, and is told once.
    files.write(&POLICY.replace("capacity = \"100Mbit\"", "").replace("tap*", "tap1"));
    manager.apply(None).unwrap();
    *files.1.lock().unwrap() = 10;
    assert_eq!(manager.follow_links().unwrap_err().problems().len(), 1);
    assert!(!manager.follow_links().unwrap());
    assert_eq!(capacity(&manager), 100);
    assert!(manager.status().unwrap().policy.refused.is_some());
    *files.1.lock().unwrap() = 1000;
    assert!(manager.follow_links().unwrap());
    assert_eq!(capacity(&manager), 1000);
    // A link that is down tells no speed, and the same as before when it is up again: nothing is refused then.
    *files.1.lock().unwrap() = 10;
    manager.follow_links().unwrap_err();
    *files.1.lock().unwrap() = 1000;
    assert!(manager.follow_links().unwrap());
    assert_eq!((capacity(&manager), manager.status().unwrap().policy.refused), (1000, None));
}
