//! What Hadoop's own TestDFSIO says of a write or a read of one file (version 3.3.6, jars by `scripts/hadoop-jars`).
//!
//! Its summary has rates with two places and MB of 1,048,576 bytes. The task that moved the file logs bytes and
//! milliseconds, so these are taken. The time ends before anything is flushed: only a file of twice the side's memory
//! measures the disk.

use std::time::Duration;

use vmio_model::result::DiskWork;

use crate::workloads::Unusable;
use crate::workloads::error::{cut, start_of};

/// `-bufferSize` that it is to be given: bytes of one call. Its default, 1,000,000, is no multiple of a sector.
pub const BUFFER: u64 = 1 << 20;

/// Ends the name of the class in front of what it logs (slf4j-simple, on standard error).
const LOGGED: &str = "fs.TestDFSIO - ";

/// What it did, of its log: one file of so many bytes, moved once in this direction.
///
/// # Errors
/// When that is not in it, or it did something else.
pub fn work(log: &str, writes: bool, asked: u64) -> Result<DiskWork, Unusable> {
    let (direction, told) = (only(log, "----- TestDFSIO ----- :")?, if writes { "write" } else { "read" });
    if direction != told {
        return Err(Unusable::Amount(format!("it was to {told}, and its summary is of {:?}", cut(direction))));
    }
    let bytes = number(log, "Number of bytes processed =")?;
    if bytes != asked {
        return Err(Unusable::Amount(format!("it moved {bytes} bytes of {asked}")));
    }
    let seconds = Duration::from_millis(number(log, "Exec time =")?).as_secs_f64();
    if seconds <= 0.0 {
        return Err(Unusable::Amount("it took less than a millisecond".into()));
    }
    let (read_bytes, write_bytes) = if writes { (0, bytes) } else { (bytes, 0) };
    Ok(DiskWork { read_bytes, write_bytes, ios: bytes.div_ceil(BUFFER), seconds, latency: None })
}

/// What follows a key in the only line that has it.
fn only<'a>(log: &'a str, key: &'static str) -> Result<&'a str, Unusable> {
    let mut found = log.lines().filter_map(|line| line.split_once(LOGGED)?.1.trim().strip_prefix(key));
    match (found.next(), found.next()) {
        (Some(value), None) => Ok(value.trim()),
        (None, _) => Err(Unusable::NoPart { what: key, start: start_of(log) }),
        (Some(_), Some(_)) => Err(Unusable::Amount(format!("`{key}` is in it more than once: it moved several files"))),
    }
}

fn number(log: &str, key: &'static str) -> Result<u64, Unusable> {
    let text = only(log, key)?;
    text.parse().map_err(|_| Unusable::Lacks { lack: format!("no number after `{key}`"), text: cut(text) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // Of real runs: the lines that it logged itself, and those of others that look like them. The path was made short.
    const WRITE: &str = include_str!("../../../tests/fixtures/dfsio/write.err");
    const READ: &str = include_str!("../../../tests/fixtures/dfsio/read.err");
    const ASKED: u64 = 16 << 20;

    fn complaint(log: &str, writes: bool, asked: u64) -> String {
        work(log, writes, asked).unwrap_err().to_string()
    }

    #[test]
    fn bytes_and_time_are_those_of_the_task() {
        let write = work(WRITE, true, ASKED).unwrap();
        assert_eq!((write.read_bytes, write.write_bytes, write.ios), (0, ASKED, 16));
        assert!((write.seconds - 0.012).abs() < 1e-9, "{}", write.seconds);
        let read = work(READ, false, ASKED).unwrap();
        assert_eq!((read.read_bytes, read.write_bytes, read.ios), (ASKED, 0, 16));
        assert!((read.seconds - 0.006).abs() < 1e-9, "{}", read.seconds);
    }

    #[test]
    fn what_it_was_not_told_is_no_result() {
        assert_eq!(complaint(READ, true, ASKED), "it was to write, and its summary is of \"read\"");
        assert_eq!(complaint(WRITE, true, ASKED + 1), "it moved 16777216 bytes of 16777217");
        let twice = format!("{WRITE}{WRITE}");
        assert!(complaint(&twice, true, ASKED).contains("more than once"), "{twice}");
        let short = WRITE.replace("Exec time = 12", "Exec time = 0");
        assert_eq!(complaint(&short, true, ASKED), "it took less than a millisecond");
    }

    #[test]
    fn a_log_without_a_result_is_quoted() {
        let said = complaint("java.io.IOException: Job failed!\n", true, ASKED);
        assert!(said.contains("no ----- TestDFSIO ----- :") && said.contains("Job failed!"), "{said}");
        let (bytes, _) = WRITE.split_once("[LocalJobRunner Map Task Executor #0] INFO org.apache.hadoop.fs").unwrap();
        let summary = WRITE.lines().find(|line| line.ends_with("----- : write")).unwrap();
        let said = complaint(&format!("{bytes}{summary}\n"), true, ASKED);
        assert!(said.contains("no Number of bytes processed ="), "{said}");
        let bad = WRITE.replace("Exec time = 12", "Exec time = 1e3");
        assert_eq!(complaint(&bad, true, ASKED), "no number after `Exec time =` in \"1e3\"");
    }
}
