//! Scores of the processor and memory suite in every form of the report, and against the paper.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::{StateDir, is_narrow, unfolded};

use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::result::Accel;
use vmio_model::run::Run;

/// The forms that a person reads, as words without markup.
fn words(report: &Report<'_>) -> [(&'static str, String); 3] {
    let html = report::html(report).replace("</td>", " ").replace("</th>", " ");
    let tagless: String = html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
    let plain = report::text(report, Style::PLAIN);
    is_narrow(&plain);
    [("text", plain), ("markdown", report::markdown(report)), ("html", tagless)]
        .map(|(form, text)| (form, unfolded(&text.replace(['\\', '*', '|'], " "))))
}

/// What a run of this study is beside the paper's figures.
fn compared(study: &str, run: &Run) -> String {
    let state = StateDir::new();
    common::store_run(&state.store(), run);
    state.vmio(&["study", "compare", study, "paper"]).with(0).out
}

#[test]
fn every_form_has_each_group_and_the_papers_figure() {
    for (accel, verdicts) in [
        (Accel::Kvm, ["paper 68 %: holds", "paper 68 %: fails", "paper 97 %: not decidable", "paper 97 %: holds"]),
        (Accel::Tcg, ["not decidable"; 4]),
    ] {
        let run = common::suite::run(accel);
        let report = Report::of(&run);
        let [scores] = report.summary.scores.as_slice() else { panic!("{:#?}", report.summary.scores) };
        let groups: Vec<&str> = scores.groups.iter().map(|score| score.group.as_str()).collect();
        assert_eq!(groups, ["integer", "floating-point", "memory", "stream"]);
        assert_eq!(scores.groups[2].lacks, ["stress-ng-vm"], "it is not passed over");
        for (form, text) in words(&report) {
            for score in &scores.groups {
                assert!(text.contains(&score.group.replace('-', " ")), "{form}: {}", score.group);
                for member in &score.members {
                    let percent = member.share_ratio.value * 100.0;
                    let mut told = [0, 1].map(|digits| format!("{} {percent:.digits$} %", member.workload)).into_iter();
                    assert!(told.any(|told| text.contains(&told)), "{form}: {}\n{text}", member.workload);
                }
            }
            assert!(text.contains("whole system") && text.contains("without stress-ng-vm"), "{form}: {text}");
            assert!(verdicts.iter().all(|verdict| text.contains(verdict)), "{form}: {text}");
            let emulated = "integer, floating point, memory, stream not decidable: the guest's processor was emulated";
            let said = text.replace("&#39;", "'").contains(emulated);
            assert_eq!(said, accel == Accel::Tcg, "{form}: {text}");
        }
    }
}

#[test]
fn the_study_is_compared_with_the_paper() {
    let text = compared("rasmusson2013", &common::suite::run(Accel::Tcg));
    assert_eq!(text.matches("not decidable").count(), 4, "{text}");
    for says in ["Cortex-A15", "published: 68 % (rasmusson2013, section 4)", "here: 39.", "Geekbench2"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!text.contains("0 hold"), "there are no effects to count: {text}");
}

#[test]
fn runs_on_end_stand_beside_those_that_are_printed() {
    let run = common::suite::disk(Accel::Kvm);
    // 2 x 10^9 bytes and 4 % more, in MB of 1,048,576 bytes.
    let told = "KVM, /dev/vda 765 7-84 1907-1984 954-992";
    for (form, text) in words(&Report::of(&run)) {
        assert!(text.contains(told) && text.contains("VE, /dev/sda 723 8.94 1907-1984 954-992"), "{form}: {text}");
        assert!(text.contains("KVM, /dev/loop0 on nfs 770 7-115 – –"), "{form}: {text}");
        assert!(text.contains("VE, /dev/loop0 on nfs: not run: ") && text.contains("93 percent"), "{form}: {text}");
    }
    let text = compared("hdparm", &run);
    is_narrow(&text);
    assert!(unfolded(&text).contains(told) && text.matches("93 percent").count() == 1, "{text}");
}

#[test]
fn transfers_stand_beside_those_that_are_printed() {
    let text = compared("rasmusson2013-network", &common::suite::network(Accel::Kvm));
    is_narrow(&text);
    for title in ["To itself, one at a time (figure 4, column 2)", "The guest to the host, alone (not in the paper)"] {
        assert!(text.contains(title), "{title}: {text}");
    }
    // Seven rows for each of five columns, two more for each of the three at once, and three of the guest alone.
    let row = |line: &&str| line.starts_with("  0 ") || line.starts_with("  1 ") || line.starts_with("  0+1 ");
    assert_eq!(text.lines().filter(row).count(), 5 * 7 + 3 * 2 + 3, "{text}");
    let fluctuates = text.lines().find(|line| line.contains("6.5-46")).unwrap();
    assert!(fluctuates.starts_with("  0+1   0+1") && fluctuates.ends_with("100 %"), "{fluctuates}");
}
