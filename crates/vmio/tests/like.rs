//! `vmio tax --like`: what its report says, and how it refuses. The study itself is tested where it is
//! made (`run/like/tests.rs`).
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::{StateDir, unfolded};

use vmio::report::{Report, like};
use vmio::studies;
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::result::Accel;
use vmio_model::study::{Matrix, Study};

#[test]
fn the_report_names_the_guest_and_sets_each_mend_against_it() {
    let mut run = common::run(Accel::Kvm);
    let work = ["rand-read-32".to_owned(), "seq-write".to_owned()];
    let on = |target: &str, driver: &str| {
        Matrix::of(target, "qemu", Some(&Attachment::new(driver, Cache::None, Aio::Native)), &work)
    };
    let matrix = vec![on("sparse", "lsi53c895a"), on("sparse", "virtio-blk"), on("device", "virtio-blk")];
    let title = "Like web1 (read at 2026-11-21 12:00:00 UTC): disk sda as it is".to_owned();
    let study = Study { name: "like-web1".into(), title, matrix, ..studies::named("quick").unwrap() };
    (run.kind, run.study) = (study.name.as_str().into(), study.clone());
    let gains = like::gains(&run);
    assert_eq!(gains.len(), 4, "{gains:?}");
    assert!(gains[0].what == "virtio-blk" && gains[0].gain_ratio.value > 5.0, "{gains:?}");
    let report = Report::of(&run);
    for (_, text) in common::page::forms(&report) {
        let text = unfolded(&text);
        assert!(text.contains(&study.title), "{text}");
        assert!(text.contains("times as fast with virtio-blk, the disk on device"), "{text}");
    }
    run.kind = "quick".into();
    assert_eq!((like::gains(&run), like::title(&run)), (Vec::new(), None));
}

#[test]
fn a_guest_that_does_not_run_is_refused() {
    let ended = StateDir::new().vmio(&["tax", "--like", "no-such-guest-here", "--dry-run"]).with(2);
    ended.says(&["no guest called no-such-guest-here runs on this host"]);
}
