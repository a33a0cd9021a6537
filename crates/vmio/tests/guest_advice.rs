//! Advice is code, tested by pasting it: guests with a fault are started, what `vmio scan` tells their owner is
//! applied word for word, they are started again, the setting is in force and the finding is gone.
//!
//! It brings a `main` of its own, since the same program stands in for Proxmox VE's `qm`. For one rule's rows
//! alone: `VMIO_ADVICE=backing-chain cargo test --test guest_advice -- --ignored long`.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

#[path = "common/advice/mod.rs"]
mod advice;
#[path = "common/found.rs"]
mod found;
#[path = "common"]
mod help {
    pub mod schema;
}

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use advice::guest::Guest;
use advice::options::Own;
use advice::test_host::{self, INSIDE, TestHost};
use advice::wrong::{Wrong, differs};
use advice::{Row, TOGETHER, Way, guest_name, qm, shows, table};
use found::rules;
use serde_json::Value;

const SHORT: &str = "advice_is_right_when_it_is_pasted";
const OTHERS: &str = "limits_of_others_are_taken_off_as_printed";
const LONG: &str = "long_every_row_of_advice_is_applied";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let program = Path::new(&args[0]).file_name().unwrap().to_string_lossy().into_owned();
    if program == "qm" || program == "pvesm" {
        return ExitCode::from(qm::main(&program, &args[1..]) as u8);
    }
    let has = |word: &str| args.iter().any(|a| a == word);
    if has("--list") {
        println!("{SHORT}: test\n{OTHERS}: test\n{LONG}: test");
        return ExitCode::SUCCESS;
    }
    let skipped = |test: &str| args.windows(2).any(|two| two[0] == "--skip" && test.contains(&two[1]));
    let filters = args.iter().enumerate().skip(1).filter(|(at, a)| !a.starts_with('-') && args[at - 1] != "--skip");
    let filters: Vec<&str> = filters.map(|(_, a)| a.as_str()).collect();
    let wanted = |test: &str| !skipped(test) && (filters.is_empty() || filters.iter().any(|f| test.contains(f)));
    for test in [SHORT, OTHERS, LONG] {
        if !wanted(test) || !(has("--ignored") || has("--include-ignored")) {
            println!("test {test} ... ignored, guest");
            continue;
        }
        let inside = std::env::var_os(INSIDE).is_some();
        let run = || if test == OTHERS { advice::others::limits_of_others() } else { all(test == LONG) };
        let done = if inside { run() } else { test_host::enter(&["--ignored".into(), test.into()]) };
        if !inside {
            println!("test {test} ... {}", if done { "ok" } else { "FAILED" });
        }
        if !done {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The rows of a run.
fn rows(long: bool) -> Vec<&'static Row> {
    let only = std::env::var("VMIO_ADVICE").unwrap_or_default();
    let wanted = |row: &&Row| {
        let named = only
            .split_once('/')
            .map_or(row.rule == only, |(rule, way)| (row.rule == rule || rule.is_empty()) && row.way.key() == way);
        (long || row.short) && (only.is_empty() || named)
    };
    table::all_rows().filter(wanted).collect()
}

/// Applies all rows and says what went wrong.
fn all(long: bool) -> bool {
    let begun = Instant::now();
    let rows = rows(long);
    let mut host = TestHost::new();
    if rows.iter().any(|row| row.way == Way::Libvirt) {
        host.libvirt();
    }
    let mut wrong: Vec<(String, String)> = Vec::new();
    let mut guests: Vec<Guest> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        guests.push(Guest::new(row, at));
    }
    let mut tell = |guest: &Guest, e: String| {
        wrong.push((format!("{}, {}, {}", guest.row.rule, guest.row.way.title(), guest.row.how), e))
    };
    let mut up: Vec<Guest> = Vec::new();
    let started: Vec<Result<(), Wrong>> = guests.iter_mut().map(Guest::start).collect();
    for (mut guest, started) in guests.into_iter().zip(started) {
        match started.and_then(|()| guest.up()).and_then(|()| guest.fault()) {
            Ok(()) => up.push(guest),
            Err(e) => tell(&guest, format!("the guest with the fault: {e}")),
        }
    }
    let before = scan(&up);
    let mut changed: Vec<(Guest, Told)> = Vec::new();
    for mut guest in up {
        let done = told(&before, &guest).and_then(|told| {
            as_on_the_page(&guest, &told)?;
            guest
                .change(&told.text, &told.takes, &told.own)
                .map_err(|e| e.told(|said| format!("{said}\n--- as printed:\n{}", told.text)))?;
            Ok(told)
        });
        match done {
            Ok(told) => changed.push((guest, told)),
            Err(e) => tell(&guest, e.said),
        }
    }
    let (guests, all_told): (Vec<Guest>, Vec<Told>) = changed.into_iter().unzip();
    let after = scan(&guests);
    for (guest, told) in guests.iter().zip(&all_told) {
        if let Err(e) = right(&after, guest, told) {
            tell(guest, format!("{e}\n--- as printed:\n{}", told.text));
        }
    }
    drop(guests);
    drop(host);
    for (row, why) in &wrong {
        eprintln!("=== {row}\n{}\n", why.trim_end());
    }
    println!("{} rows, {} wrong, {:.1} s", rows.len(), wrong.len(), begun.elapsed().as_secs_f64());
    wrong.is_empty() && !rows.is_empty()
}

/// What a guest's owner is told.
struct Told {
    text: String,
    takes: String,
    own: Own,
    /// Rules that the change answers.
    answered: Vec<String>,
    /// All rules that found something before.
    before: BTreeSet<String>,
}

fn told(scan: &Value, guest: &Guest) -> Result<Told, Wrong> {
    let found = in_scan(scan, guest)?;
    let before: BTreeSet<String> = rules(found).into_iter().map(str::to_owned).collect();
    let (change, subject, answered) = if guest.row.rule == TOGETHER {
        let one = &found["together"][0];
        let rules = one["rules"].as_array().ok_or_else(|| differs("no change that makes them all"))?;
        (&one["change"], &one["subject"], rules.iter().filter_map(|r| r.as_str().map(str::to_owned)).collect())
    } else {
        let finding = found["findings"].as_array().into_iter().flatten().find(|f| f["rule"] == guest.row.rule);
        let none = || differs(format!("the fault is not found; found {before:?}; unread {}", found["unread"]));
        let finding = finding.ok_or_else(none)?;
        (&finding["change"], &finding["subject"], vec![guest.row.rule.to_owned()])
    };
    let device = |list: &str| found[list].as_array().into_iter().flatten().find(|d| d["subject"] == *subject).cloned();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut own = Own::default();
    if let Some(disk) = device("disks") {
        own = Own { id: text(&disk["place"]["device_id"]), source: text(&disk["place"]["source"]), mac: None };
    } else if let Some(card) = device("nics") {
        own = Own { id: text(&card["place"]["device_id"]), source: None, mac: text(&card["place"]["target"]) };
    }
    let printed = text(&change[guest.row.way.key()]).ok_or_else(|| differs("no change for this way"))?;
    Ok(Told { text: printed, takes: text(&change["takes"]).unwrap_or_default(), own, answered, before })
}

fn in_scan<'a>(scan: &'a Value, guest: &Guest) -> Result<&'a Value, Wrong> {
    let all = scan["guests"].as_array().ok_or_else(|| differs("no guests"))?;
    all.iter()
        .find(|g| g["name"] == guest.name.as_str())
        .ok_or_else(|| differs(format!("{} is not found by the scan", guest.name)))
}

/// What the terminal shows is what JSON has, but for where lines end.
fn as_on_the_page(guest: &Guest, told: &Told) -> Result<(), Wrong> {
    if guest.name != guest_name(0) {
        return Ok(());
    }
    let page = vmio(&["scan", &guest.name, "--verbose"]);
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '#' | '\\')).collect::<String>();
    if bare(&page).contains(&bare(&told.text)) {
        Ok(())
    } else {
        Err(differs(format!("the page does not show it:\n{page}")))
    }
}

fn right(scan: &Value, guest: &Guest, told: &Told) -> Result<(), Wrong> {
    let found = in_scan(scan, guest)?;
    let after = rules(found);
    let still: Vec<&String> = told.answered.iter().filter(|rule| after.contains(rule.as_str())).collect();
    let mut wrong = Vec::new();
    if !still.is_empty() {
        wrong.push(format!("still found: {still:?}"));
    }
    // A host without vhost-net is told so with each card that could use it.
    let hosts = |rule: &&str| *rule == "no-vhost" && !Path::new("/dev/vhost-net").exists();
    let opened = |rule: &&str| !told.before.contains(*rule) && !guest.row.opens.contains(rule) && !hosts(rule);
    let new: Vec<&str> = after.into_iter().filter(opened).collect();
    if !new.is_empty() {
        wrong.push(format!("found only since the change: {new:?}"));
    }
    wrong.extend(guest.row.shows.iter().filter_map(|what| Some(shows::check(guest, &told.own, *what).err()?.said)));
    if wrong.is_empty() { Ok(()) } else { Err(differs(wrong.join("\n"))) }
}

fn vmio(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(args)
        .args(["--state", "/srv/vmio/state"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All guests. Those whose monitor had no time to answer, among so many, are looked at again alone.
fn scan(guests: &[Guest]) -> Value {
    let look =
        |names: &[&str]| -> Value { serde_json::from_str(&vmio(&[&["scan", "--json"], names].concat())).unwrap() };
    let late = |seen: &Value, guest: &Guest| {
        in_scan(seen, guest).is_ok_and(|g| g["unread"].to_string().contains("in the time of a look"))
    };
    let mut seen = look(&[]);
    for guest in guests.iter().filter(|guest| late(&seen, guest)).collect::<Vec<&Guest>>() {
        let mut one = Value::Null;
        vmio_testbed::poll_until("a monitor", || {
            one = look(&[&guest.name]);
            !late(&one, guest)
        });
        let all = seen["guests"].as_array_mut().unwrap();
        all.retain(|g| g["name"] != guest.name.as_str());
        all.extend(one["guests"].as_array().into_iter().flatten().cloned());
    }
    seen
}
