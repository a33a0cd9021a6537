#![allow(clippy::unwrap_used)]
use super::*;

fn parsed(line: &str) -> Result<Command, WrongUse> {
    parse(line.split_whitespace().map(str::to_owned))
}

fn job(line: &str) -> Job {
    match parsed(line) {
        Ok(Command::Work(job)) => job,
        Ok(Command::Version) => panic!("{line} is the version"),
        Err(why) => panic!("{line}: {why}"),
    }
}

/// Each kernel works at its smallest size, is right, counts what it did, and is told of in the usage.
#[test]
fn contract_of_every_kernel() {
    for (i, kind) in ALL.iter().enumerate() {
        assert!(ALL[..i].iter().all(|other| other.name != kind.name), "{} twice", kind.name);
        assert!(USAGE.contains(kind.name) && (kind.range.0..=kind.range.1).contains(&kind.usual), "{}", kind.name);
        let size = kind.range.0;
        let report = work(&job(&format!("{} --size {size} --seconds 0.01", kind.name))).unwrap();
        assert_eq!((report.kernel.as_str(), report.counts.as_str(), report.size), (kind.name, kind.counts, size));
        assert!(report.runs > 0 && report.seconds >= 0.01 && report.done > 0.0, "{report:?}");
        // The fastest run is no slower than the mean one.
        assert!(report.best_per_second >= report.done / report.seconds * 0.999, "{report:?}");
        let read: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(read.kernel, report.kernel);
    }
}

#[test]
fn arguments_and_their_errors() {
    assert_eq!(job("lu --seconds 2").size, 256);
    assert_eq!(job("stream-add --seconds 0.5 --size 1048576").size, 1 << 20);
    assert!(matches!(parsed("--version"), Ok(Command::Version)));
    for (line, says) in [
        ("", "no kernel is named"),
        ("fft --seconds 1", "vmio-cpu has no fft"),
        ("lu", "--seconds is missing"),
        ("lu --seconds", "--seconds needs a value"),
        ("lu --seconds 0", "more than 0"),
        ("lu --seconds nan", "more than 0"),
        ("lu --seconds 1 --seconds 2", "twice"),
        ("lu --seconds 1 --size 4", "the order of the matrix is a whole number, 8 to 4096"),
        ("lu --seconds 1 --threads 2", "unknown option --threads"),
        ("--version --seconds 1", "stands alone"),
    ] {
        let error = parsed(line).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{line}: {error}");
    }
}

#[test]
fn too_little_memory_is_refused() {
    let error = has_memory(usize::MAX / 2).unwrap_err().to_string();
    assert!(error.contains("MiB of memory and may take"), "{error}");
    has_memory(1 << 20).unwrap();
}
