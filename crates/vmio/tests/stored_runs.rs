//! What was measured once is concluded today as well: the exports of three studies are imported, and what is said of
//! them is compared, byte by byte, with what was said when they were kept (fixtures/runs/README.md).
#![allow(clippy::unwrap_used)]

use crate::help::recorded;
use crate::help::state_dir;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use state_dir::{StateDir, is_narrow};
use vmio::store::{Imported, Store};
use vmio::studies;
use vmio_model::result::{BANDWIDTH, IOPS};
use vmio_model::run::Run;
use vmio_model::summary::explain::Differs;

/// The runs, in the order of their numbers.
const RUNS: [&str; 3] = ["quick", "shafer2010-storage", "async-reads"];

/// A state directory in whose store the runs are, taken over by the program.
fn imported() -> StateDir {
    let state = StateDir::new();
    for (n, name) in RUNS.iter().enumerate() {
        let path = recorded::file(&format!("{name}.json"), &state.path());
        let said = state.vmio(&["runs", "import", path.to_str().unwrap()]).with(0);
        assert!(said.err.contains(&format!("imported as run {}:", n + 1)), "{}", said.err);
        std::fs::remove_file(path).unwrap();
    }
    state
}

/// Where two texts part.
#[track_caller]
fn same(what: &str, then: &str, now: &str) {
    let parts = then.lines().zip(now.lines()).enumerate().find(|(_, (then, now))| then != now);
    if let Some((at, (then, now))) = parts {
        panic!("{what}, line {}:\nwas {then}\nis  {now}", at + 1);
    }
    assert_eq!(then.lines().count(), now.lines().count(), "{what}");
}

#[test]
fn summaries_findings_and_comparisons_are_what_they_were() {
    let state = imported();
    for (n, name) in RUNS.iter().enumerate() {
        let id = (n + 1).to_string();
        let now = state.vmio(&["runs", "show", &id, "--json"]).with(0).out;
        same(name, &String::from_utf8(recorded::bytes(&format!("{name}.show.json"))).unwrap(), &now);

        let short = state.vmio(&["runs", "show", &id]).with(0).out;
        assert!(short.lines().count() <= vmio::report::LINES, "{name}: {short}");

        let now: Value = serde_json::from_str(&now).unwrap();
        let itself: Value =
            serde_json::from_str(&state.vmio(&["runs", "compare", &id, &id, "--json"]).with(0).out).unwrap();
        assert_eq!(
            (&itself["differences"], &itself["only_a"], &itself["only_b"]),
            (&json!([]), &json!([]), &json!([]))
        );
        let cells = itself["cells"].as_array().unwrap();
        assert_eq!(cells.len(), now["cells"].as_array().unwrap().len(), "{name}");
        for cell in cells {
            assert_eq!(cell["figure_ratio"]["value"], 1.0, "{cell}");
            assert_eq!(cell["verdict"], "no difference shown", "{cell}");
        }
    }
    let now = state.vmio(&["study", "compare", "shafer2010-storage", "paper", "--json"]).with(0).out;
    same("compare", &String::from_utf8(recorded::bytes("compare-paper.json")).unwrap(), &now);
    state.is_clean();
}

/// From what was stored before these probes timed anything: what is not there is told, with its probe, and all adds up.
#[test]
fn the_layers_of_an_old_run_are_told_as_far_as_it_has_them() {
    let state = imported();
    for (n, name) in RUNS.iter().enumerate() {
        let id = (n + 1).to_string();
        let text = state.vmio(&["explain", &id]).with(0).out;
        is_narrow(&text);
        assert!(text.lines().count() <= vmio::report::LINES, "{name}: {text}");
        assert!(text.trim_end().lines().next_back().is_some_and(|line| !line.is_empty()), "{text}");
        let told: Value = serde_json::from_str(&state.vmio(&["explain", &id, "--json"]).with(0).out).unwrap();
        let cells = told["run"]["cells"].as_array().unwrap();
        assert!(!cells.is_empty(), "{name}");
        for cell in cells.iter().filter(|cell| !cell["waterfall"].is_null()) {
            let parts = cell["waterfall"]["parts"].as_array().unwrap();
            let sum: f64 = parts.iter().map(|part| part["seconds"].as_f64().unwrap()).sum();
            let total = cell["waterfall"]["total_seconds"].as_f64().unwrap();
            assert!((sum / total - 1.0).abs() < 1e-9, "{cell}");
            let untimed = cell["untimed"].as_array().unwrap();
            let lacks = untimed.iter().any(|u| u["layer"] == "hypervisor" && u["probe"] == "blockstats");
            assert_eq!(lacks, cell["in_guest"] == true, "{cell}");
        }
    }
    let page = state.path().join("layers.html");
    let cell = ["explain", "1", "--cell", "device/native/rand-read-1", "--html", page.to_str().unwrap()];
    let one = state.vmio(&cell).with(0).out;
    assert!(one.contains("application") && one.contains("host's block layer + device)."), "{one}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("application: ") && html.contains(", begins at 0 µs"), "its waterfall is on the page");
    state.vmio(&["explain", "1", "--html", page.to_str().unwrap()]).with(0);
    let html = std::fs::read_to_string(&page).unwrap().replace("<wbr>", "");
    assert!(html.contains("device/qemu/virtio-blk,none,native/rand-read-1"), "all cells are on the page");
    std::fs::remove_file(page).unwrap();
    state.vmio(&["explain", "1", "--cell", "no-such"]).with(2).says(&["no disk cell of run 1"]);
    state.vmio(&["explain", "no-such-guest"]).with(2).says(&["no guest no-such-guest runs here"]);
    state.is_clean();
}

/// The links of a chain are of the same rounds, so that they multiply up to the share in these: geometric means taken
/// here from the samples alone. This study had no job in the guest, so what is left of each chain is one link.
#[test]
fn the_chains_of_a_run_multiply_up_to_its_shares() {
    let state = imported();
    let run = Store::open_existing(&state.path().join("vmio.db")).unwrap().load_whole(2).unwrap();
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
fn an_export_is_taken_whole_and_exported_as_it_was() {
    let state = imported();
    let store = Store::open_existing(&state.path().join("vmio.db")).unwrap();
    for (n, name) in RUNS.iter().enumerate() {
        let id = n as i64 + 1;
        let again = state.vmio(&["runs", "export", &id.to_string()]).with(0).out;
        same(name, &String::from_utf8(recorded::bytes(&format!("{name}.json"))).unwrap(), &again);
        // The stored study can be taken up again, and has the cells that it had.
        let run = store.load_whole(id).unwrap();
        let study = studies::parse(name, &run.study.to_toml()).unwrap();
        let named: BTreeSet<String> = study.cells().iter().map(|cell| cell.key()).collect();
        let ran: BTreeSet<String> = run.samples.iter().map(|s| s.cell.key()).collect();
        assert!(named.is_subset(&ran) && ran.len() >= 18, "{name}: {:?}", named.difference(&ran));

        let path = state.path().join("again.json");
        std::fs::write(&path, again).unwrap();
        assert_eq!(recorded::import(&store, &[&path]).unwrap(), [Imported::Known(id)]);
        let other = StateDir::new();
        let there = Store::open(&other.path().join("vmio.db")).unwrap();
        assert_eq!(recorded::import(&there, &[&path]).unwrap(), [Imported::New(1)]);
        assert_eq!(Run { id, ..there.load_whole(1).unwrap() }, run, "{name}");
        std::fs::remove_file(path).unwrap();
    }
}

/// By what a workload is judged was its own word, whatever its requests are like.
#[test]
fn a_workload_is_judged_by_the_figure_that_it_was_judged_by() {
    let state = StateDir::new();
    let mut export = recorded::json("quick.json");
    let other = |figure: &Value| if figure == IOPS { BANDWIDTH } else { IOPS };
    for workload in export["workloads"].as_array_mut().unwrap() {
        workload["judged_by"] = json!(other(&workload["judged_by"]));
    }
    let path = state.path().join("turned.json");
    std::fs::write(&path, export.to_string()).unwrap();
    let store = Store::open(&state.path().join("vmio.db")).unwrap();
    assert_eq!(recorded::import(&store, &[&path]).unwrap(), [Imported::New(1)]);
    let summary = vmio_model::summary::summarise(&store.load(1).unwrap());
    for (then, now) in recorded::json("quick.show.json")["cells"].as_array().unwrap().iter().zip(&summary.cells) {
        assert_eq!(now.figure, other(&then["figure"]), "{}", now.key);
    }
}
