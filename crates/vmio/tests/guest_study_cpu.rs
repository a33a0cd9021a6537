//! The processor and memory suite in real guests, with the scores that it gives.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::help::schema;
use crate::help::state_dir;

use schema::fits;
use state_dir::{StateDir, fixture};
use vmio_model::result::RunState;
use vmio_model::run::Run;
use vmio_model::summary::{Summary, scores::Scores};

/// The scores of the newest run, which is whole, and all that is said of it.
fn scored(state: &StateDir) -> (Run, Scores, String) {
    let run = state.last().unwrap();
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    let json = state.vmio(&["runs", "show", "--json"]).with(0).out;
    fits("tax", &json);
    let summary: Summary = serde_json::from_str(&json).unwrap();
    let [scores] = summary.scores.as_slice() else { panic!("{:#?}", summary.scores) };
    for score in &scores.groups {
        let ratio = score.score_ratio.unwrap_or_else(|| panic!("{score:#?}"));
        assert!(ratio.value > 0.0 && ratio.pairs >= 2 && score.lacks.is_empty(), "{score:#?}");
        // With as many rounds of each, a score lies between its members' shares.
        let of = || score.members.iter().map(|m| m.share_ratio.value);
        let (low, high) = (of().fold(f64::INFINITY, f64::min), of().fold(0.0, f64::max));
        let all = score.members.iter().all(|m| m.share_ratio.pairs == ratio.pairs);
        assert!(!all || (low * 0.999..=high * 1.001).contains(&ratio.value), "{score:#?}");
    }
    assert!(scores.whole_ratio.is_some(), "{scores:#?}");
    let text = state.vmio(&["runs", "show", "--verbose"]).with(0).out;
    assert!(text.contains("Scores of machine/qemu") && text.contains("whole system"), "{text}");
    (run.clone(), scores.clone(), text)
}

#[test]
#[ignore = "guest: needs QEMU"]
fn the_suite_runs_in_a_guest_and_has_scores() {
    let state = StateDir::with_image();
    state.finish(state.command(&["study", "run"]).arg(fixture("suite.toml")).args(["--yes", "--no-gentle"])).with(0);
    let (run, scores, text) = scored(&state);
    println!("{text}");
    let told: Vec<(&str, usize)> = scores.groups.iter().map(|g| (g.group.as_str(), g.members.len())).collect();
    let wanted = [("floating-point", 1), ("memory", 2), ("stream", 2), ("integer", 1)];
    assert_eq!((told.len(), wanted.iter().all(|group| told.contains(group))), (4, true), "{told:?}");
    // The same program on both sides: vmio's own file here, what the image carries there.
    for sample in &run.samples {
        let own = sample.result.command.contains("vmio-cpu");
        assert!(
            !own || sample.cell.is_native() || sample.result.command.starts_with("/usr/bin/vmio-cpu"),
            "{}",
            sample.result.command
        );
        assert!(sample.result.figure("throughput").unwrap() > 0.0 && sample.result.seconds > 0.0);
    }
    let carried: Vec<&str> = run.environment.programs.keys().map(String::as_str).collect();
    assert_eq!(carried, ["openssl", "stress-ng", "vmio-cpu"]);
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU, and takes minutes"]
fn long_the_whole_suite_has_twelve_members() {
    let state = StateDir::with_image();
    state.finish(state.command(&["study", "run", "cpu-quick"]).args(["--yes", "--no-gentle"])).with(0);
    let (_, scores, text) = scored(&state);
    println!("{text}");
    let told: Vec<(&str, usize)> = scores.groups.iter().map(|g| (g.group.as_str(), g.members.len())).collect();
    assert_eq!(told, [("integer", 2), ("floating-point", 2), ("memory", 4), ("stream", 4)]);
    state.is_clean();
}
