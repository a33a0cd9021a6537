//! What was measured and concluded before cells had actors and workloads their figures is concluded today as
//! well: the exports of three studies are imported, and what is said of them is compared, field by field, with
//! what the vmio said that measured them.
#![allow(clippy::unwrap_used)]

use crate::help::bed;
use crate::help::old;

use std::collections::{BTreeMap, BTreeSet};

use bed::{Bed, problems};
use serde_json::{Value, json};
use vmio::store::{Imported, NewRun, Store};
use vmio::studies;
use vmio_model::result::{BANDWIDTH, IOPS, LATENCY, Run, RunState};
use vmio_model::summary::explain::Differs;

/// The runs, with the numbers that they had.
const RUNS: [(&str, i64); 3] = [("quick", 2), ("shafer2010-storage", 5), ("async-reads", 6)];

/// What is new within a document, by the names of the keys that lead to it.
const ADDED: [&str; 17] = [
    "cells/cpu/clock",
    "cells/cpu/kernel_seconds_per_gigabyte",
    "cells/cpu/kernel_seconds_per_request",
    "cells/figures",
    "explained/guest",
    "explained/links",
    "explained/links_enough",
    "explained/share_ratio",
    "headline/about_interval",
    "headline/nature",
    "headline/side",
    "paper_tables/readings",
    "paper_tables/rows/ours/cache",
    "shares/figures",
    "shares/graded",
    "tells_apart",
    "shares/stalled_rounds",
];

/// What a document of then would be, were only cells written as they are now.
fn today(then: &Value) -> Value {
    match then {
        Value::Array(all) => all.iter().map(today).collect(),
        Value::Object(all)
            if ["guest", "target", "attachment", "workload"].iter().all(|key| all.contains_key(*key)) =>
        {
            cell_of(then)
        }
        Value::Object(all) => {
            let now = |(key, value): (&String, &Value)| {
                let key = if key == "setup" { "cell" } else { key };
                (key.to_owned(), today(value))
            };
            Value::Object(all.iter().map(now).collect())
        }
        plain => plain.clone(),
    }
}

/// A cell as one called `setup` would be written now.
fn cell_of(setup: &Value) -> Value {
    json!({
        "side": {"kind": setup["guest"]},
        "subject": {"disk": {"target": setup["target"], "attachment": setup["attachment"]}},
        "workload": setup["workload"],
    })
}

/// Of cells; the shares of latencies are what they were.
const TIMES: [&str; 2] = ["latency_p50_seconds", "latency_p99_seconds"];

/// Compares a document of then with one of now: all that was there is there with exactly the same value.
#[derive(Default)]
struct Compared {
    /// The keys that lead to where it is.
    at: Vec<String>,
    differ: Vec<String>,
    added: BTreeSet<String>,
    values: usize,
}

impl Compared {
    fn of(then: &Value, now: &Value) -> Compared {
        let mut compared = Compared::default();
        compared.both(&today(then), now);
        compared
    }

    fn both(&mut self, then: &Value, now: &Value) {
        match (then, now) {
            (Value::Object(then), Value::Object(now)) => {
                let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
                for key in keys {
                    self.at.push(key.clone());
                    match (then.get(key), now.get(key)) {
                        _ if key == "schema_version" => {}
                        (Some(then), Some(now)) if TIMES.contains(&key.as_str()) => self.times(then, now),
                        (Some(then), Some(now)) => self.both(then, now),
                        (Some(_), None) => self.differ.push(format!("{}: is missing", self.at.join("/"))),
                        _ => drop(self.added.insert(self.at.join("/"))),
                    }
                    self.at.pop();
                }
            }
            (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
                then.iter().zip(now).for_each(|(then, now)| self.both(then, now));
            }
            _ => {
                self.values += 1;
                if then != now {
                    self.differ.push(format!("{}: was {then}, is {now}", self.at.join("/")));
                }
            }
        }
    }

    /// Times are geometric means today: never above the arithmetic ones, and no interval reaches below 0.
    fn times(&mut self, then: &Value, now: &Value) {
        self.values += 1;
        let holds = match (then["value"].as_f64(), now["value"].as_f64()) {
            (Some(was), Some(is)) => {
                let interval = &now["interval"];
                let positive = interval["low"].as_f64().is_none_or(|low| low > 0.0 && low <= is);
                let near = is > 0.0 && is <= was * (1.0 + 1e-9);
                near && positive && interval.is_null() == then["interval"].is_null() && then["n"] == now["n"]
            }
            (was, is) => was == is,
        };
        if !holds {
            self.differ.push(format!("{}: was {then}, is {now}", self.at.join("/")));
        }
    }

    /// Asserts that nothing differs, and that nothing is added but this.
    #[track_caller]
    fn holds(&self, what: &str, added: &[&str], least: usize) {
        let some: Vec<&String> = self.differ.iter().take(20).collect();
        assert!(some.is_empty(), "{what}: {} differ: {some:#?}", self.differ.len());
        let unknown: Vec<&String> = self.added.iter().filter(|a| !added.contains(&a.as_str())).collect();
        assert!(unknown.is_empty(), "{what}: added {unknown:?}");
        assert!(self.values >= least, "{what}: only {} values", self.values);
    }
}

/// The findings of a document of then as they are today: a gain is not cited any more where the share of either side did
/// not converge (docs/rules.md). That was one of reads in `quick`, with the share that it was explained by, and all that
/// `async-reads` found.
fn still_cited(name: &str, then: &Value) -> Value {
    let unknown = then["shares"].as_array().unwrap().iter().filter(|s| s["converged"] == false);
    let unknown: Vec<&str> = unknown.map(|s| s["key"].as_str().unwrap()).collect();
    let mut findings = then["findings"].clone();
    match name {
        "quick" => {
            assert_eq!(unknown, ["device/qemu/virtio-blk,none,native/seq-read"]);
            let figures = findings[0]["figures"].as_array_mut().unwrap();
            let before = figures.len();
            figures.retain(|f| {
                let label = f["label"].as_str().unwrap();
                !label.starts_with("seq-read: ") && !label.ends_with("lsi53c895a,none,native/seq-read")
            });
            assert_eq!(figures.len() + 2, before);
        }
        "async-reads" => {
            assert!(unknown.contains(&"device/qemu/virtio-blk,none,native/seq-read-64k-d1-uring"));
            findings = json!([]);
        }
        _ => {}
    }
    findings
}

/// The findings of today without what they say since of workloads for which their change does not pay (docs/rules.md): a
/// sentence in the cause, and `unpaid`.
fn without_unpaid(name: &str, now: &Value) -> Value {
    let mut findings = now.clone();
    let mut named = Vec::new();
    for finding in findings.as_array_mut().unwrap() {
        let Some(unpaid) = finding.as_object_mut().unwrap().remove("unpaid") else { continue };
        let cause = finding["cause"].as_str().unwrap();
        let begin = cause.find(" The change ").unwrap();
        let end = begin + cause[begin..].rfind(" as fast).").unwrap() + " as fast).".len();
        for one in unpaid.as_array().unwrap() {
            let workload = one["workload"].as_str().unwrap();
            assert!(cause[begin..end].contains(workload) && one["ratio"]["interval"]["low"].as_f64().unwrap() <= 1.0);
            named.push(workload.to_owned());
        }
        finding["cause"] = json!(format!("{}{}", &cause[..begin], &cause[end..]));
    }
    match name {
        "quick" => assert_eq!(named, ["durable-append", "rand-read-1"]),
        "shafer2010-storage" => assert_eq!(named, ["dd-read"]),
        _ => assert_eq!(named, [] as [&str; 0], "{name}"),
    }
    findings
}

/// Effects are corrected for being judged together, and must exceed the run's noise (docs/papers.md): two that were decided
/// are not. All else of each is as it was; there are more of them.
fn compares_as_it_did(now: &Value) {
    let (mut then, mut now) = (old::json("compare-paper.json"), now.clone());
    let taken = |document: &mut Value| -> Vec<Value> {
        serde_json::from_value(document.as_object_mut().unwrap().remove("effects").unwrap()).unwrap()
    };
    let (were, mut are) = (taken(&mut then), taken(&mut now));
    let circumstances = now["circumstances"].as_array_mut().unwrap();
    circumstances.retain(|c| c["what"] != "cache mode" || c["here"] != "none");
    Compared::of(&then, &now).holds("compare paper", &["judged_together", "readings"], 15);
    let mut changed = Vec::new();
    for mut was in were {
        let at = are.iter().position(|is| is["effect"]["id"] == was["effect"]["id"]).unwrap();
        let mut is = are.remove(at);
        if was["verdict"] != is["verdict"] {
            let why = is["reason"].as_str().unwrap();
            assert!(is["verdict"] == "not-decidable" && why.contains("Holm"), "{is}");
            changed.push(was["effect"]["id"].as_str().unwrap().to_owned());
            for key in ["verdict", "reason"] {
                was[key] = Value::Null;
                is[key] = Value::Null;
            }
        }
        let added = ["p_value", "corrected_p_value", "noise_ratio"];
        Compared::of(&was, &is).holds(was["effect"]["id"].as_str().unwrap(), &added, 15);
    }
    assert_eq!(changed, ["emulated-slower-write", "sparse-write-collapse"]);
    let new: Vec<&str> = are.iter().map(|is| is["effect"]["id"].as_str().unwrap()).collect();
    assert_eq!(
        new,
        [
            "sparse-write-collapse-writethrough",
            "small-requests-own-sizes",
            "emulated-splits-writes",
            "growing-a-file-costs",
            "growing-a-file-costs-writethrough"
        ]
    );
    assert_eq!(are[2]["verdict"], "holds", "the size of requests is decided, old as the run is");
}

/// A state directory in whose store the runs have the numbers that they had, taken over by the program.
fn imported() -> Bed {
    let bed = Bed::new();
    let store = Store::open(&bed.state().join("vmio.db")).unwrap();
    let environment = serde_json::from_value(old::json("quick.json")["environment"].clone()).unwrap();
    let mut next = 1;
    for (name, wanted) in RUNS {
        for number in next..wanted {
            let other = NewRun {
                study: &"other".into(),
                study_toml: "",
                command: &[number.to_string()],
                started_unix: 0.0,
                environment: &environment,
                workloads: &[],
            };
            let id = store.new_run(&other).unwrap();
            store.set_state(id, &RunState::Done).unwrap();
        }
        let path = old::file(&format!("{name}.json"), &bed.state());
        let said = bed.vmio(&["runs", "import", path.to_str().unwrap()]).with(0);
        assert!(said.err.contains(&format!("imported as run {wanted}:")), "{}", said.err);
        std::fs::remove_file(path).unwrap();
        next = wanted + 1;
    }
    bed
}

#[test]
fn summaries_findings_and_comparisons_are_what_they_were() {
    let bed = imported();
    for (name, id) in RUNS {
        let id = id.to_string();
        let shown = |args: &[&str]| -> Value { serde_json::from_str(&bed.vmio(args).with(0).out).unwrap() };
        let mut now = shown(&["runs", "show", &id, "--json"]);
        now["findings"] = without_unpaid(name, &now["findings"]);
        let mut then = old::json(&format!("{name}.show.json"));
        assert!(then["findings"].as_array().is_some_and(|all| !all.is_empty()), "{name}: nothing to compare");
        then["findings"] = still_cited(name, &then);
        Compared::of(&then, &now).holds(name, &ADDED, 1500);
        assert_eq!(then["schema_version"], "1.0");
        assert_eq!(now["schema_version"], "2.0");
        assert_eq!(today(&then["findings"]), now["findings"], "{name}");

        let itself = shown(&["runs", "compare", &id, &id, "--json"]);
        assert_eq!(
            (&itself["differences"], &itself["only_a"], &itself["only_b"]),
            (&json!([]), &json!([]), &json!([]))
        );
        let cells = itself["cells"].as_array().unwrap();
        assert_eq!(cells.len(), then["cells"].as_array().unwrap().len(), "{name}");
        for cell in cells {
            assert_eq!(cell["figure_ratio"]["value"], 1.0, "{cell}");
            assert_eq!(cell["verdict"], "no difference shown", "{cell}");
        }
    }
    let now = bed.vmio(&["study", "compare", "shafer2010-storage", "paper", "--json"]).with(0).out;
    compares_as_it_did(&serde_json::from_str(&now).unwrap());
    bed.is_clean();
}

/// The links of a chain are of the same rounds, so that they multiply up to the share in these: geometric means taken
/// here from the samples alone. There was no job in the guest then, so what is left of each chain is one link.
#[test]
fn the_chains_of_an_old_run_multiply_up_to_its_shares() {
    let bed = imported();
    let run = Store::open_existing(&bed.state().join("vmio.db")).unwrap().load_whole(5).unwrap();
    let summary = vmio_model::summary::summarise(&run);
    assert_eq!(summary.explained.len(), 15);
    let figures = |key: &str| -> BTreeMap<u32, f64> {
        let of = run.samples.iter().filter(|s| s.cell.key() == key);
        of.map(|s| (s.round, s.result.figure(BANDWIDTH).unwrap())).collect()
    };
    for e in &summary.explained {
        assert!(e.is_whole() && e.guest.is_none(), "{}", e.key);
        assert_eq!(e.links.last().unwrap().differs, Differs::Rest);
        let cells: Vec<&String> = std::iter::once(&e.links[0].from).chain(e.links.iter().map(|l| &l.to)).collect();
        assert_eq!((cells[0], cells[cells.len() - 1]), (&e.cell.natively().key(), &e.key));
        let all: Vec<BTreeMap<u32, f64>> = cells.iter().map(|key| figures(key)).collect();
        let rounds: Vec<u32> =
            all[0].keys().copied().filter(|round| all.iter().all(|of| of.contains_key(round))).collect();
        assert_eq!(rounds.len() as u32, e.rounds(), "{}", e.key);
        let (native, guest) = (&all[0], &all[all.len() - 1]);
        let logs = rounds.iter().map(|round| (guest[round] / native[round]).ln()).sum::<f64>() / rounds.len() as f64;
        let product: f64 = e.links.iter().map(|l| l.ratio.unwrap().value).product();
        assert!((product / logs.exp() - 1.0).abs() < 1e-9, "{}: {product} {}", e.key, logs.exp());
        assert!((product / e.share_ratio.unwrap().value - 1.0).abs() < 1e-9, "{}", e.key);
    }
}

/// Nothing is lost on the way in, and what is exported again is taken as the same.
#[test]
fn an_old_export_is_taken_whole_and_exported_in_todays_form() {
    let bed = imported();
    let store = Store::open_existing(&bed.state().join("vmio.db")).unwrap();
    for (name, id) in RUNS {
        let (then, run) = (old::json(&format!("{name}.json")), store.load_whole(id).unwrap());
        for (key, now) in [
            ("study", json!(run.study)),
            ("command", json!(run.command)),
            ("started_unix", json!(run.started_unix)),
            ("state", json!(run.state)),
            ("environment", json!(run.environment)),
            ("effective", json!(run.effective)),
        ] {
            assert_eq!(then[key], now, "{name}: {key}");
        }
        let samples = then["samples"].as_array().unwrap();
        assert_eq!(samples.len(), run.samples.len(), "{name}");
        for (then, now) in samples.iter().zip(&run.samples) {
            assert_eq!(cell_of(&then["setup"]), json!(now.cell));
            let (result, work) = (&then["result"], now.work());
            let latency = now.result.latency().map(|l| json!({"mean_seconds": l.mean, "percentiles": l.percentiles}));
            let again = json!({
                "read_bytes": work.read_bytes, "write_bytes": work.write_bytes, "ios": work.ios,
                "seconds": work.seconds, "latency": latency, "raw": now.result.raw, "command": now.result.command,
            });
            assert_eq!(*result, again, "{name}");
            let around = json!({
                "boot": now.boot, "round": now.round, "started_unix": now.started_unix, "marks": now.marks,
                "foreign": now.foreign, "cpu": now.cpu(), "device": now.device(),
            });
            for (key, value) in around.as_object().unwrap() {
                assert_eq!(then[key], *value, "{name}: {key}");
            }
        }
        for (then, now) in then["workloads"].as_array().unwrap().iter().zip(&run.workloads) {
            assert_eq!((&then["name"], &then["figure"]), (&json!(now.name), &json!(now.judged_by)));
            let disk = json!(now.disk);
            for (key, value) in disk.as_object().unwrap() {
                assert_eq!(then[key], *value, "{name}: {key} of {}", now.name);
            }
            let timed = now.figures.iter().any(|f| f.name == LATENCY);
            assert_eq!(timed, !now.name.starts_with("dd-"), "{}", now.name);
        }
        // The stored study can be taken up again, and has the cells that it had.
        let study = studies::parse(name, &run.study_toml).unwrap();
        let named: BTreeSet<String> = study.cells().iter().map(|cell| cell.key()).collect();
        let ran: BTreeSet<String> = run.samples.iter().map(|s| s.cell.key()).collect();
        assert!(named.is_subset(&ran) && ran.len() >= 18, "{name}: {:?}", named.difference(&ran));

        let path = bed.state().join("again.json");
        std::fs::write(&path, bed.vmio(&["runs", "export", &id.to_string()]).with(0).out).unwrap();
        assert_eq!(store.import_file(&path).unwrap(), [Imported::Known(id)]);
        let other = Bed::new();
        let there = Store::open(&other.state().join("vmio.db")).unwrap();
        assert_eq!(there.import_file(&path).unwrap(), [Imported::New(1)]);
        assert_eq!(Run { id, ..there.load_whole(1).unwrap() }, run, "{name}");
        std::fs::remove_file(path).unwrap();
    }
}

/// By what a workload is judged was its own word, whatever its requests are like.
#[test]
fn a_workload_is_judged_by_the_figure_that_it_was_judged_by() {
    let bed = Bed::new();
    let mut export = old::json("quick.json");
    for workload in export["workloads"].as_array_mut().unwrap() {
        let other = if workload["figure"] == "iops" { "bandwidth" } else { "iops" };
        workload["figure"] = json!(other);
    }
    let path = bed.state().join("turned.json");
    std::fs::write(&path, export.to_string()).unwrap();
    let store = Store::open(&bed.state().join("vmio.db")).unwrap();
    assert_eq!(store.import_file(&path).unwrap(), [Imported::New(1)]);
    let summary = vmio_model::summary::summarise(&store.load(1).unwrap());
    for (then, now) in old::json("quick.show.json")["cells"].as_array().unwrap().iter().zip(&summary.cells) {
        let wanted = if then["figure"] == IOPS { BANDWIDTH } else { IOPS };
        assert_eq!(now.figure, wanted, "{}", now.key);
    }
}

/// A study of the old form is refused, and what is said of each key, put in its place, makes it one of today's.
#[test]
fn an_old_study_is_told_how_each_of_its_keys_is_written_now() {
    let bed = Bed::new();
    let path = bed.state().join("old.toml");
    let text = std::fs::read_to_string(bed::fixture("bad_studies/old_form.toml")).unwrap();
    // Less what is a section, which has no one line.
    let text = text.split("\n[[matrix.options]]").next().unwrap();
    std::fs::write(&path, text).unwrap();
    let run = || bed.vmio(&["study", "run", path.to_str().unwrap(), "--dry-run"]);
    let said = run().with(2).err;
    let mut lines: Vec<&str> = text.lines().collect();
    let keys = ["targets", "guests", "drivers", "caches", "aios", "iothreads", "options"];
    let old = lines.iter().filter(|line| keys.iter().any(|key| line.starts_with(&format!("{key} =")))).count();
    let mut told = 0;
    let problems = problems(said.split("\n  help: ").next().unwrap());
    for problem in problems.iter().filter_map(|l| l.strip_prefix(path.to_str().unwrap())) {
        let (line, what) = problem[1..].split_once(": ").unwrap();
        let spelling = what.split('`').nth(1).unwrap();
        assert!(what.ends_with("` now"), "{what}");
        lines[line.parse::<usize>().unwrap() - 1] = spelling;
        told += 1;
    }
    assert_eq!((told, old), (10, 10), "{said}");
    std::fs::write(&path, lines.join("\n")).unwrap();
    let study = studies::named(path.to_str().unwrap()).unwrap();
    assert_eq!(study.cells().len(), 2 + 8 + 2, "two native ones, theirs, and those of the second block");
    assert!(!run().err.contains("is written"));
    std::fs::remove_file(path).unwrap();
    bed.is_clean();
}
