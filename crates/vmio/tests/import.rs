//! Exports come in again, whole or not at all, whoever wrote them.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::recorded;
use crate::help::state_dir::{StateDir, unfolded};

use std::fs;
use std::time::Instant;

use common::Noise;
use serde_json::{Value, json};
use vmio::report::export::{Format, export};
use vmio::report::{Report, html, json as report_json, markdown, text};
use vmio::store::{Imported, Store, StoreError};
use vmio::term::Style;
use vmio_testbed::limit;

/// An export with a few samples, some by two actors, with short raw outputs, so that a change hits something else.
fn made() -> Value {
    let mut export = recorded::json("quick.json");
    let samples = export["samples"].as_array_mut().unwrap();
    samples.retain(|s| s["round"].as_u64().unwrap() < 1);
    for sample in samples {
        sample["result"]["raw"] = json!({"jobs": [1, 2.5, null]});
        if sample["cell"]["workload"] == "seq-read" {
            let lead: Value = ["side", "subject", "workload"]
                .iter()
                .map(|key| (key.to_string(), sample["cell"][key].clone()))
                .collect();
            sample["cell"]["beside"] = json!([lead]);
            sample["beside"] = json!([sample["result"]]);
        }
    }
    export
}

#[test]
fn exports_come_in_once_and_none_while_it_is_measured() {
    let state = StateDir::new();
    let file = state.path().join("run.json");
    let import = || state.vmio(&["runs", "import", file.to_str().unwrap(), "--json"]).with(0);
    for number in [1, 2] {
        let mut other = made();
        other["command"] = json!([number.to_string()]);
        let mut running = other.clone();
        running["state"] = json!({"state": "running"});
        fs::write(&file, running.to_string()).unwrap();
        let ended = import().says(&["run 1 is still being measured there"]);
        assert_eq!(ended.json()["imported"], json!([]));
        for wanted in [json!([number]), json!([])] {
            // Formatted otherwise, as an editor may do.
            fs::write(&file, format!("\n {other:#}\n\n")).unwrap();
            let known = if wanted == json!([]) { "already here as run" } else { "imported as run" };
            let ended = import().says(&[&format!("{known} {number}")]);
            assert_eq!(ended.json()["imported"], wanted);
        }
        let run = state.store().load_whole(number).unwrap();
        assert_eq!((run.samples.len(), run.samples[0].result.raw["jobs"][1].as_f64()), (18, Some(2.5)));
    }
}

/// What is wrong with a file is told with its place, and nothing of it is taken.
#[test]
fn what_is_no_export_is_refused_in_words() {
    let state = StateDir::new();
    let with = |export: &Value, at: &str, value: Value| {
        let mut export = export.clone();
        *export.pointer_mut(at).unwrap() = value;
        format!("{export:#}").into_bytes()
    };
    let without = |export: &Value, at: &str, key: &str| {
        let mut export = export.clone();
        export.pointer_mut(at).unwrap().as_object_mut().unwrap().remove(key);
        format!("{export:#}").into_bytes()
    };
    let made = made();
    let text = |export: &Value| export.to_string().into_bytes();
    let read = |sample: &str| json!({"figure": "read", "value": {sample: 1}});
    let figures = "/samples/3/result/figures/0";
    let beside = made["samples"].as_array().unwrap().iter().position(|s| s.get("beside").is_some()).unwrap();
    let replaced = |what: &str, by: &str| made.to_string().replacen(what, by, 1).into_bytes();
    let deep = replaced("2.5", &["[".repeat(200), "]".repeat(200)].concat());
    let mut many = b"{\"schema_version\": \"2.0\", \"samples\": [0".to_vec();
    many.extend(b",0".repeat(16_000_001));
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a table", b"run,study\r\n1,quick\r\n".to_vec(), "it is not a JSON object"),
        ("a list", b"[1, 2]".to_vec(), "it is not a JSON object"),
        ("blanks", b"  \n".to_vec(), "it is not a JSON object"),
        ("an object", b"{}".to_vec(), "it has no `schema_version`"),
        ("two", b"{\"metric\": 1}\n{\"metric\": 2}".to_vec(), ":2:1: not an export of a run"),
        ("cut", text(&made)[..5000].to_vec(), "EOF while parsing"),
        ("newer", with(&made, "/schema_version", json!("2.1")), "its schema version is 2.1, this vmio knows up to 2.0"),
        ("much newer", with(&made, "/schema_version", json!("3.0")), "knows up to 2.0"),
        ("odd", with(&made, "/schema_version", json!("0.9")), "unknown schema version \"0.9\""),
        ("older", with(&made, "/schema_version", json!("1.0")), "unknown schema version \"1.0\""),
        ("odder", with(&made, "/schema_version", json!("two")), "unknown schema version \"two\""),
        ("a number", with(&made, "/schema_version", json!(2.0)), "invalid type: floating point"),
        ("a summary", recorded::bytes("quick.show.json"), "missing field `id`"),
        ("no seconds", without(&made, "/samples/3/result", "seconds"), "missing field `seconds`"),
        ("no cell", without(&made, "/samples/3", "cell"), "missing field `cell`"),
        ("no marks", without(&made, "/samples/0", "marks"), "missing field `marks`"),
        ("no skipped", without(&made, "", "skipped"), "missing field `skipped`"),
        ("negative", with(&made, "/samples/0/round", json!(-1)), "invalid value: integer `-1`, expected u32"),
        ("a word", with(&made, "/samples/0/round", json!("many")), "invalid type: string \"many\", expected u32"),
        ("not finite", with(&made, figures, json!({"figure": "x", "value": {"scalar": null}})), "expected f64"),
        ("odd value", with(&made, figures, read("vector")), "unknown variant `vector`"),
        ("judged", with(&made, "/workloads/0/figures/0/better", json!("both")), "unknown variant `both`"),
        ("a mark", with(&made, "/samples/0/marks", json!(["x\u{1b}[2J\u{202e}"])), "unknown variant `x"),
        ("no study", with(&made, "/study_toml", json!("name = 'x'")), "its study cannot be read: missing field"),
        ("a subject", with(&made, "/samples/0/cell/subject", json!("moon")), "unknown variant `moon`"),
        ("uneven", with(&made, &format!("/samples/{beside}/beside"), json!([])), "one result for each actor"),
        ("deep", deep, "recursion limit"),
        ("many", many, "more than 16000000 values"),
        ("long", b"{".to_vec(), "longer than 256 MiB"),
        ("infinite", replaced("\"seconds\":", "\"seconds\":1e999,\"x\":"), "number out of range"),
    ];
    let file = state.path().join("run.json");
    for (name, bytes, wanted) in &cases {
        fs::write(&file, bytes).unwrap();
        if *name == "long" {
            fs::OpenOptions::new().write(true).open(&file).unwrap().set_len((256 << 20) + 1).unwrap();
        }
        let began = Instant::now();
        let ended = state.vmio(&["runs", "import", file.to_str().unwrap()]);
        let said = unfolded(&ended.err);
        assert_eq!(ended.code, Some(1), "{name}: {said}");
        assert!(said.contains(wanted), "{name}: no {wanted:?} in {said}");
        assert!(said.contains(file.to_str().unwrap()) && said.contains("export N --format json"), "{name}: {said}");
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{name}: {said}");
        let placed = said.contains("run.json:");
        let whole = ["not a JSON object", "schema_version`", "schema version", "actor", "values", "MiB"];
        assert!(placed || whole.iter().any(|w| wanted.contains(w)), "{name}: no place in {said}");
        assert!(began.elapsed() < limit(), "{name}");
        assert!(state.store().list().unwrap().is_empty(), "{name}");
    }
}

/// What waits, and what is no file.
#[test]
fn pipes_and_directories_are_no_exports() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let pipe = dir.path().join("pipe.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    assert!(matches!(recorded::import(&store, &[&pipe]).unwrap_err(), StoreError::Export { .. }));
    assert!(matches!(recorded::import(&store, &[dir.path()]).unwrap_err(), StoreError::Export { .. }));
    assert!(matches!(recorded::import(&store, &[&dir.path().join("none")]).unwrap_err(), StoreError::NoFile { .. }));
}

/// What the store could not hold is told of the file that has it.
#[test]
fn a_text_that_is_too_long_is_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let file = dir.path().join("run.json");
    let long = "x".repeat(65 << 20);
    fs::write(&file, made().to_string().replacen("\"command\":\"fio", &format!("\"command\":\"{long}"), 1)).unwrap();
    let e = recorded::import(&store, &[&file]).unwrap_err();
    assert!(matches!(&e, StoreError::TooMuch { path, .. } if *path == file), "{e:?}");
    assert!(store.list().unwrap().is_empty());
}

/// A number out of a generator of the tests.
fn below(noise: &mut Noise, most: usize) -> usize {
    (((noise.factor(1.0) / 2.0) * most as f64) as usize).min(most.saturating_sub(1))
}

/// Another value in the place of one, somewhere in the document.
fn change(value: &mut Value, noise: &mut Noise) {
    let inside = match value {
        Value::Array(all) => all.len(),
        Value::Object(all) => all.len(),
        _ => 0,
    };
    // Mostly far down: a change at the top leaves little of the document.
    if inside > 0 && below(noise, 12) > 0 {
        let at = below(noise, inside);
        match value {
            Value::Array(all) => change(&mut all[at], noise),
            Value::Object(all) => change(all.values_mut().nth(at).unwrap(), noise),
            _ => unreachable!(),
        }
        return;
    }
    let whole = [0, 1, 7, i64::MAX as u64, u64::from(u32::MAX), u64::MAX].map(|n| json!(n));
    let real = [0.0, -0.0, -1.0, 1e300, -1e300, 5e-324, 1e16].map(|x| json!(x));
    let words = ["", "native", "seq-read", "bandwidth", "latency", "x\u{202e}\u{1b}[2J\n", "done"].map(|w| json!(w));
    let odd =
        [json!(null), json!(-1), json!(true), json!([]), json!({}), json!({"scalar": 1.0}), json!([[50.0, -1.0]])];
    // Mostly of the same type, else it would mostly be refused.
    let others = match &*value {
        _ if below(noise, 8) == 0 => &odd[..],
        Value::Number(n) if n.is_u64() => &whole[..],
        Value::Number(_) => &real[..],
        Value::String(_) => &words[..],
        _ => &odd[..],
    };
    match (&mut *value, below(noise, 4)) {
        (Value::Array(all), 0) if !all.is_empty() => drop(all.pop()),
        (Value::Array(all), 1 | 2) if !all.is_empty() => all.push(all[0].clone()),
        (Value::Object(all), 0) if !all.is_empty() => {
            let key = all.keys().nth(below(noise, all.len())).unwrap().clone();
            all.remove(&key);
        }
        _ => *value = others[below(noise, others.len())].clone(),
    }
}

/// Changed exports; each that is taken costs a few commits.
const ROUNDS: usize = 400;

/// Whatever is in a file, it is taken whole and can be shown, or refused.
#[test]
fn changed_exports_are_taken_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.json");
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let (mut taken, mut refused) = (0, 0);
    let made = made();
    let whole = made.to_string().into_bytes();
    let mut noise = Noise(4);
    for round in 0..ROUNDS {
        let mut bytes = whole.clone();
        if round % 6 == 0 {
            for _ in 0..=below(&mut noise, 3) {
                let at = below(&mut noise, bytes.len());
                match below(&mut noise, 3) {
                    0 => bytes.truncate(at + 1),
                    1 => bytes[at] = b"{}[],:\"0-9e.\\\x00\xff"[below(&mut noise, 15)],
                    _ => drop(bytes.remove(at)),
                }
            }
        } else {
            let mut other = made.clone();
            (0..=below(&mut noise, 3)).for_each(|_| change(&mut other, &mut noise));
            bytes = other.to_string().into_bytes();
        }
        fs::write(&file, &bytes).unwrap();
        let before = store.list().unwrap().len();
        match recorded::import(&store, &[&file]) {
            Ok(found) => {
                for imported in found {
                    let Imported::New(id) = imported else { continue };
                    let run = store.load_whole(id).unwrap();
                    let report = Report::of(&run);
                    let all = [text(&report, Style::PLAIN), html(&report), markdown(&report), report_json(&report)];
                    assert!(all.iter().all(|text| !text.is_empty()));
                    let others = [Format::Csv, Format::Pkb, Format::GithubActionBenchmark];
                    assert!(others.iter().map(|format| export(&run, *format).len()).sum::<usize>() > 0);
                    fs::write(&file, export(&run, Format::Json)).unwrap();
                    assert_eq!(recorded::import(&store, &[&file]).unwrap(), [Imported::Known(id)], "{round}");
                    vmio_model::summary::noise(&run);
                    store.delete(id).unwrap();
                    taken += 1;
                }
            }
            Err(StoreError::Export { .. }) => refused += 1,
            Err(other) => panic!("{round}: {other:?}"),
        }
        assert!(store.list().unwrap().len() <= before, "{round}: half of it is here");
    }
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}
