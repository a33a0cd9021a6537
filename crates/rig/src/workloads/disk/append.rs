//! Latency of durable appends: write and fdatasync together, each append on its own.
//!
//! fio counts the two apart (`write.lat_ns`, `sync.lat_ns`): their means can be added, their
//! percentiles cannot. fio's I/O log (`write_iolog`, format 3) has the start of every write and
//! of every fdatasync in microseconds. At depth 1 without pauses an append takes from the start
//! of its write to the start of the next write; what fio itself needs in between is included
//! (about a microsecond natively, 50 to 70 in a guest under software emulation). The log goes to
//! standard error, so that no file is left on any side.

use vmio_model::figure::Distribution;

use crate::workloads::Unusable;

/// Sends the log to standard error, which every node keeps apart.
pub const LOG_ARG: &str = "--write_iolog=/proc/self/fd/2";

/// Most appends of a job: bounds the log to about 20 MB.
pub const MOST: u64 = 200_000;

/// Percentiles that are kept: those of fio's own list.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// An action of the log at its microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A write starts.
    Write(u64),
    /// An fdatasync starts.
    Datasync(u64),
}

/// Parts the log from what fio has to say.
pub fn split(stderr: &str) -> (Vec<Action>, String) {
    let (mut log, mut said) = (Vec::new(), String::new());
    for line in stderr.lines() {
        match action(line) {
            Some(Some(action)) => log.push(action),
            Some(None) => {}
            None => {
                said.push_str(line);
                said.push('\n');
            }
        }
    }
    (log, said)
}

/// `1448 PATH write 4096 4096`; the path may hold spaces. `Some(None)` is a line of the log
/// that is not about an append.
fn action(line: &str) -> Option<Option<Action>> {
    if line.starts_with("fio version 3 iolog") {
        return Some(None);
    }
    let (at, rest) = line.split_once(' ')?;
    let at = at.parse().ok()?;
    if rest.ends_with(" add") || rest.ends_with(" open") || rest.ends_with(" close") {
        return Some(None);
    }
    let mut back = rest.rsplitn(4, ' ');
    back.next()?.parse::<u64>().ok()?;
    back.next()?.parse::<u64>().ok()?;
    match back.next()? {
        "write" => Some(Some(Action::Write(at))),
        "datasync" => Some(Some(Action::Datasync(at))),
        _ => None,
    }
}

/// Latency of the appends of a log; `appends` is the number that fio counted.
pub fn latency(log: &[Action], appends: u64) -> Result<Distribution, Unusable> {
    let mut micros: Vec<u64> = log
        .windows(3)
        .filter_map(|w| match *w {
            [Action::Write(start), Action::Datasync(_), Action::Write(next)] => next.checked_sub(start),
            _ => None,
        })
        .collect();
    // The last append has no successor; lines may be torn where fio prints a warning.
    if micros.is_empty() || (micros.len() as f64) < 0.95 * (appends as f64 - 1.0) {
        return Err(Unusable::Gaps { whole: micros.len(), appends });
    }
    micros.sort_unstable();
    let n = micros.len();
    let rank = |p: f64| ((p / 100.0 * n as f64).ceil() as usize).clamp(1, n) - 1;
    Ok(Distribution {
        mean: micros.iter().sum::<u64>() as f64 / n as f64 * 1e-6,
        percentiles: PERCENTILES.iter().map(|&p| (p, micros[rank(p)] as f64 * 1e-6)).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_is_parted_from_messages() {
        let text = "fio version 3 iolog\n20 /d/a b add\n1024 /d/a b write 0 4096\nfio: warning: 3 things\n\
                    1058 /d/a b datasync 0 0\n1448 /d/a b write 4096 4096\n1456 /d/a b datasync 4096 0\n1500 /d/a b close\n";
        let (log, said) = split(text);
        use Action::*;
        assert_eq!(log, [Write(1024), Datasync(1058), Write(1448), Datasync(1456)]);
        assert_eq!(said, "fio: warning: 3 things\n");
        assert!((latency(&log, 2).unwrap().at(50.0).unwrap() - 424e-6).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_of_whole_appends_by_nearest_rank() {
        // Appends of 1, 2, … 100 us.
        let mut log = Vec::new();
        let mut at = 0;
        for i in 1..=101 {
            log.extend([Action::Write(at), Action::Datasync(at)]);
            at += i;
        }
        let got = latency(&log, 101).unwrap();
        assert!((got.at(50.0).unwrap() - 50e-6).abs() < 1e-12);
        assert!((got.at(99.0).unwrap() - 99e-6).abs() < 1e-12);
        assert!((got.mean - 50.5e-6).abs() < 1e-12);
    }

    #[test]
    fn a_log_with_gaps_is_no_basis() {
        let log: Vec<_> = (0..10).flat_map(|i| [Action::Write(i * 10), Action::Datasync(i * 10 + 5)]).collect();
        assert!(latency(&log, 10).is_ok());
        assert!(latency(&log, 20).unwrap_err().to_string().contains("9 whole appends of 20"));
        assert!(latency(&[], 1).is_err());
    }

    /// On a recorded run the mean of the log is the sum of the two means that fio tells.
    #[test]
    fn the_log_agrees_with_fios_own_means() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fio");
        let (log, said) = split(&std::fs::read_to_string(format!("{dir}/durable-append.err")).unwrap());
        assert_eq!(said, "");
        let doc: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(format!("{dir}/durable-append.json")).unwrap()).unwrap();
        let job = &doc["jobs"][0];
        let mean = |at: &serde_json::Value| at["lat_ns"]["mean"].as_f64().unwrap() * 1e-9;
        let both = mean(&job["write"]) + mean(&job["sync"]);
        let got = latency(&log, job["write"]["total_ios"].as_u64().unwrap()).unwrap();
        assert!((got.mean / both - 1.0).abs() < 0.02, "{} against {both}", got.mean);
        assert!(got.at(99.0).unwrap() > got.at(50.0).unwrap());
    }
}
