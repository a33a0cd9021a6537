//! The widest difference between two set-ups, and shares that lack pairs.

use super::*;
use crate::cell::Cache;
use crate::kind::RunKind;
use crate::result::RunState;

fn widest(bench: Bench) -> Option<String> {
    let run = bench.run();
    widest_difference(&run, &summarise(&run))
}

#[test]
fn the_widest_difference_in_one_thing_is_named() {
    let text = widest(bench()).unwrap();
    assert!(text.starts_with("virtio-blk writes 1."), "{text}");
    assert!(text.ends_with(") what lsi53c895a does (seq-write, device)"), "{text}");
    let alike = bench().cell(guest("sparse", "virtio-blk", "seq-write"), 320e6);
    assert!(widest(alike).unwrap().contains("lsi53c895a"), "the target differs by less");
    let targets = Bench::new()
        .cell(native("device", "seq-write"), 800e6)
        .cell(virtio("device", "seq-write"), 600e6)
        .cell(virtio("sparse", "seq-write"), 200e6);
    let text = widest(targets).unwrap();
    assert!(text.starts_with("device writes 3.0 times ("), "{text}");
    assert!(text.ends_with(" what sparse does (seq-write, virtio-blk,none,native)"), "{text}");
}

#[test]
fn what_differs_by_chance_or_loses_data_is_not_named() {
    let two = |second: Cell| Bench::new().cell(virtio("device", "seq-write"), 300e6).cell(second, 301e6).scatter(0.05);
    let text = widest(two(guest("device", "virtio-scsi", "seq-write"))).unwrap();
    assert_eq!(text, "no two set-ups differ by more than chance");
    let mut unsafe_disk = virtio("device", "seq-write");
    unsafe_disk.attachment_mut().unwrap().cache = Cache::Unsafe;
    assert_eq!(widest(two(unsafe_disk)), None, "there is nothing else to compare with");
    // Two things differ at once.
    let mut other = guest("device", "lsi53c895a", "seq-write");
    other.attachment_mut().unwrap().cache = Cache::Writeback;
    assert_eq!(widest(two(other)), None);
    let mut run = bench().run();
    run.kind = RunKind::Noise("quick".into());
    assert_eq!(widest_difference(&run, &summarise(&run)), None);
}

#[test]
fn a_share_with_too_few_pairs_makes_a_run_partial() {
    let asked = |rounds: u32| {
        let mut run = bench().rounds(rounds).run();
        let disks = virtio("device", "seq-write").lead.attachment().cloned();
        run.study.matrix = vec![Matrix::of("device", "qemu", disks.as_ref(), &["seq-write".to_owned()])];
        run
    };
    let short = |run: &Run| partial(run, &summarise(run));
    assert_eq!(short(&asked(6)), None);
    let few = Partial { reason: PartialReason::TooFewPairs, short_shares: 1, shares: 1 };
    assert_eq!(short(&asked(2)), Some(few));
    let mut killed = asked(6);
    killed.state = RunState::Running;
    assert_eq!(short(&killed), Some(Partial { reason: PartialReason::NotDone, short_shares: 0, shares: 1 }));
    // What is too wide has its pairs, and what was left out is told by itself.
    let mut wide = asked(6);
    wide.study.repeat.half_width = 1e-9;
    assert_eq!(short(&wide), None);
    let mut skipped = asked(2);
    let cell = virtio("device", "seq-write");
    skipped.skipped.push(crate::result::Skipped { cell, reason: "no room".into() });
    assert_eq!(short(&skipped), None);
    let mut proof = asked(2);
    proof.kind = RunKind::Proof(1);
    assert_eq!(short(&proof), None);
}
