//! Messages for bad studies.

use proptest::prelude::*;
use vmio_model::study::Study;

use super::{QUICK, SMALL, names, problems, shipped_names, study, whole};

#[test]
fn workloads_of_a_family_are_known_by_their_names() {
    let with = |words: &str| QUICK.replacen("\"durable-append\"", words, 1);
    let read = study(&with("\"job-7\", \"durable-append\", \"job-8\""));
    assert_eq!(read.matrix[0].workloads[..3], ["job-7", "durable-append", "job-8"]);
    let problem = |words: &str| {
        let refused = Study::parse("x.toml", &with(words), &shipped_names()).unwrap_err();
        assert_eq!(refused.problems.len(), 1);
        refused.problems[0].clone()
    };
    let zero = problem("\"job-0\"");
    assert_eq!((zero.key.as_str(), zero.what.as_str()), ("matrix.workloads", "`job-0`: no job is called 0 (job-<n>)"));
    let other = problem("\"durable-apend\"").what;
    assert!(other.contains("did you mean `durable-append`?") && other.ends_with("and job-<n> like job-7"), "{other}");
    assert!(problem("\"job-7\", \"job-7\"").what.contains("twice"));
}

#[test]
fn every_problem_names_file_line_key_and_the_mend() {
    let text = SMALL
        .replace("memory_mib = 256", "memory_mb = 256")
        .replace("half_width = 0.05", "half_width = \"5 %\"")
        .replace("seconds = 2", "seconds = 0")
        .replace("[\"seq-write\", \"rand-read-1\"]", "[\"seq-wrte\", \"rand-read-1\"]")
        .replace("sides = [\"qemu\"]", "sides = []")
        .replace("[\"native\", \"qemu\"]", "\"qemu\"");
    assert_eq!(
        problems(&text),
        [
            // The misspelt key comes before the missing one.
            "bad.toml:5: guest.memory_mb: unknown key; did you mean `memory_mib`? (there is vcpus, memory_mib)",
            "bad.toml:3: guest.memory_mib: missing",
            "bad.toml:12: repeat.half_width: must be a number, not a string",
            "bad.toml:13: repeat.seconds: 0 is out of range: 0.1 to 3600",
            "bad.toml:17: matrix.sides: is empty; name at least one",
            "bad.toml:20: matrix.workloads: unknown entry `seq-wrte`; did you mean `seq-write`? (there is dd-write, \
             dd-read, seq-write, seq-read, rand-read-1, rand-read-32, rand-write-1, rand-write-32, durable-append), \
             and job-<n> like job-7",
            "bad.toml:22: matrix.sides: must be a list, not a string",
        ]
    );
}

/// What a run counts beside its cells is kept with its study.
#[test]
fn components_and_layers_are_asked_for() {
    let asked = |study: &Study| (study.components, study.layers);
    assert_eq!(asked(&study(SMALL)), (false, false));
    assert_eq!(asked(&whole("components = true\n".to_owned(), SMALL)), (true, false));
    assert_eq!(asked(&whole("layers = true\n".to_owned(), SMALL)), (false, true));
    let wrong = problems(&format!("layers = 1\n{SMALL}"));
    assert!(wrong[0].contains("layers: must be true or false"), "{wrong:?}");
}

/// In each table, also in those with parsers of their own.
#[test]
fn unknown_keys_come_before_all_else() {
    for (right, wrong) in [("name = ", "nam = "), ("max_minutes", "max_minuts"), ("workloads = ", "worklods = ")] {
        let said = problems(&SMALL.replacen(right, wrong, 1));
        let near = right.trim_end_matches(" = ");
        assert!(said[0].contains(&format!("unknown key; did you mean `{near}`?")), "{said:?}");
        assert!(said[1..].iter().any(|problem| problem.contains(&format!("{near}: missing"))), "{said:?}");
    }
}

#[test]
fn problems_of_sense() {
    let one = |from: &str, to: &str| {
        let all = problems(&SMALL.replace(from, to));
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    assert!(
        one("max_pairs = 8", "max_pairs = 4").contains("bad.toml:10: repeat.max_pairs: 4 is less than min_pairs (5)")
    );
    assert!(one("target_mib = 1024", "target_mib = 500").contains("bad.toml:7: size.target_mib: 500 is too small"));
    assert!(one("min_boots = 3", "min_boots = 6").contains("repeat.min_boots: 6 boots need at least as many pairs"));
    assert!(one("min_pairs = 5", "min_pairs = -5").contains("repeat.min_pairs: -5 is out of range: 1 to 1000"));
    assert!(
        one("min_pairs = 5\nmax_pairs = 8\nmin_boots = 3", "min_pairs = 1\nmax_pairs = 8\nmin_boots = 1")
            .contains("one pair has no interval")
    );
    assert!(one("half_width = 0.05", "half_width = nan").contains("out of range"));
    assert!(one("name = \"small\"", "name = \"\"").contains("bad.toml:1: name: must not be empty"));
    assert!(
        one("[\"qemu\"]\ndisks.targets = [\"device\"]", "[\"qemu\"]\ndisks.targets = [\"device\", \"device\"]")
            .contains("named twice")
    );
    assert!(one("vcpus = 1", "vcpus 1").contains("bad.toml:4: invalid TOML"));
    assert!(one("vcpus = 1", "vcpus = 1\nvcpus = 2").contains("bad.toml:5"));
    assert!(
        one("drivers = [\"virtio-blk\"]", "drivers = [\"virtio-blk\"]\ndisks.aios = [\"uring\"]")
            .contains("`io_uring`")
    );
    assert!(
        one("drivers = [\"virtio-blk\"]", "drivers = [\"virtio-blk\"]\ndisks.iothreads = [1]")
            .contains("must be true or false")
    );
    let none = problems("name = \"x\"\ntitle = \"y\"\n");
    assert!(none.iter().any(|p| p.contains("matrix: missing")) && none.len() == 4, "{none:?}");
}

#[test]
fn a_study_of_native_cells_needs_no_drivers() {
    let text = SMALL
        .replace("sides = [\"qemu\"]", "sides = [\"native\"]")
        .replace("disks.drivers = [\"lsi53c895a\", \"virtio-blk\"]\n", "");
    assert_eq!(study(&text).cells().iter().filter(|c| c.is_native()).count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Study::parse("x", &text, &names());
    }

    /// A good study with a piece cut out or doubled: accepted, or refused with a line of the file.
    #[test]
    fn a_damaged_study_is_read_or_refused_by_line(from in 0usize..QUICK.len(), length in 1usize..80) {
        let to = (from + length).min(QUICK.len());
        prop_assume!(QUICK.is_char_boundary(from) && QUICK.is_char_boundary(to));
        let text = format!("{}{}", &QUICK[..from], &QUICK[to..]);
        if let Err(error) = Study::parse("x", &text, &names()) {
            prop_assert!(!error.problems.is_empty());
            prop_assert!(error.problems.iter().all(|p| p.line >= 1 && p.line <= text.lines().count() + 1));
        }
    }
}
