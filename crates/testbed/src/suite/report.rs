//! Output of a run: a line for each slow or failed test, and at the end what failed and why.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;

use crate::inside::Ended;
use crate::programs::Kind;
use crate::run::{Done, Failure};

/// From here on a test that passed has a line of its own, in seconds.
const SLOW: f64 = 5.0;
/// Lines of a failed test's log that are shown where it fails; the whole log stays.
const LINES: usize = 60;
/// How many of the slowest tests are named at the end.
const SLOWEST: usize = 20;

/// Prints the result of a test.
pub fn told(done: &Done) {
    let name = &done.test.name;
    match (&done.failure, &done.skipped) {
        (Some(failure), _) => {
            println!("FAILED {:6.1} s  {name}\n{}", done.seconds, reason(done, failure));
            let log = fs::read_to_string(&done.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LINES)..];
            shown.iter().for_each(|line| println!("  | {line}"));
        }
        (None, Some(_)) => println!("skipped {:5.1} s  {name}", done.seconds),
        (None, None) if done.first.is_some() => println!("passed {:6.1} s  {name}, run again, alone", done.seconds),
        (None, None) if done.seconds >= SLOW => println!("passed {:6.1} s  {name}", done.seconds),
        (None, None) => {}
    }
}

/// Why it failed, in a line.
fn reason(done: &Done, failure: &Failure) -> String {
    match failure {
        Failure::Left(left) => format!("left behind: {}", left.join("; ")),
        Failure::NotRun(e) => format!("not run: {e}"),
        Failure::Ended(Ended::TimedOut) => format!("it had not ended after {:.0} s", done.seconds),
        Failure::Ended(Ended::Signal(signal)) => format!("ended by signal {signal}"),
        Failure::Ended(Ended::Code(code)) => {
            // What a panic says begins on the line after its place; it is shown, nothing depends on it.
            let log = fs::read_to_string(&done.log).unwrap_or_default();
            let mut lines = log.lines().skip_while(|line| !line.contains("panicked at "));
            let place = lines.next().and_then(|line| line.split_once("panicked at ")).map_or("", |(_, place)| place);
            let why = lines.next().unwrap_or_default();
            if place.is_empty() { format!("exit code {code}") } else { format!("{place} {why}") }
        }
    }
}

/// The end of a run: what was slow and skipped, what failed with the command that repeats it, and where the time went
/// (`phases` are lines of what came before).
pub fn end(done: &[Done], lanes: usize, wall_seconds: f64, phases: &str) {
    let sum = |kind: Kind| done.iter().filter(|d| d.test.kind == kind).map(|d| d.seconds).fold(0.0, |a, b| a + b);
    let mut slowest: Vec<&Done> = done.iter().collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    println!("\nslowest, with the processor time of all that they started:");
    slowest
        .iter()
        .take(SLOWEST)
        .for_each(|d| println!("  {:6.1} s {:6.1} s  {}", d.seconds, d.cpu_seconds, d.test.name));
    let skipped = done.iter().filter_map(|d| Some((d, d.skipped.as_ref()?)));
    let mut lacks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (d, reasons) in skipped {
        reasons.lines().for_each(|reason| lacks.entry(reason).or_default().push(&d.test.name));
    }
    for (reason, names) in lacks {
        println!("skipped: {reason}");
        names.iter().for_each(|name| println!("  {name}"));
    }
    let firsts = done.iter().filter(|d| d.failure.is_none()).filter_map(|d| d.first.as_ref());
    let firsts: Vec<_> = firsts.filter_map(|first| Some((first, first.failure.as_ref()?))).collect();
    for (d, failure) in &firsts {
        println!("failed beside others, passed alone: {}\n  {}", d.test.name, reason(d, failure));
        println!("  log: {}", d.log.display());
    }
    for (d, failure) in done.iter().filter_map(|d| Some((d, d.failure.as_ref()?))) {
        println!("failed: {}\n  {}\n  log: {}", d.test.name, reason(d, failure), d.log.display());
        println!("  repeat: make test-one TEST='{}'", d.test.name);
    }
    println!("where the time went:");
    phases.lines().for_each(|line| println!("  {line}"));
    println!(
        "  {wall_seconds:6.0} s  tests, in {lanes} lanes: {:.0} s with guests, {:.0} s with root, {:.0} s without",
        sum(Kind::Guest),
        sum(Kind::Root),
        sum(Kind::Plain)
    );
    let failed = done.iter().filter(|d| d.failure.is_some()).count();
    let skipped = done.iter().filter(|d| d.failure.is_none() && d.skipped.is_some()).count();
    let again = if firsts.is_empty() { String::new() } else { format!(" ({} when run again, alone)", firsts.len()) };
    println!("{} passed{again}, {failed} failed, {skipped} skipped", done.len() - failed - skipped);
}

/// One row of the table over several runs.
#[derive(Default)]
struct Row {
    seconds: Vec<f64>,
    failures: usize,
}

/// Over several runs: tests that failed, and the slow ones, as a table in Markdown.
pub fn table(runs: &[Vec<Done>]) -> String {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for done in runs.iter().flatten() {
        let row = rows.entry(&done.test.name).or_default();
        row.seconds.push(done.seconds);
        row.failures += usize::from(done.failure.is_some());
    }
    let failures: usize = rows.values().map(|row| row.failures).sum();
    let mut shown: Vec<(&str, f64, &Row)> = rows
        .iter_mut()
        .map(|(name, row)| {
            row.seconds.sort_by(f64::total_cmp);
            let (lower, upper) = (row.seconds[(row.seconds.len() - 1) / 2], row.seconds[row.seconds.len() / 2]);
            (*name, (lower + upper) / 2.0, &*row)
        })
        .collect();
    let (all, slow) = (shown.len(), shown.iter().filter(|(_, median, _)| *median >= SLOW).count());
    shown.retain(|(_, median, row)| row.failures > 0 || *median >= SLOW);
    shown.sort_by(|a, b| b.2.failures.cmp(&a.2.failures).then(b.1.total_cmp(&a.1)));
    let mut text = String::from("| test | runs | failures | median s | longest s |\n|---|---|---|---|---|\n");
    for (name, median, row) in shown {
        let longest = row.seconds.last().copied().unwrap_or_default();
        text += &format!("| {name} | {} | {} | {median:.1} | {longest:.1} |\n", row.seconds.len(), row.failures);
    }
    text += &format!(
        "\n{all} tests in {} runs: {failures} failures. Shown: what failed, and the {slow} with a median of {SLOW} s or more.\n",
        runs.len()
    );
    text
}
