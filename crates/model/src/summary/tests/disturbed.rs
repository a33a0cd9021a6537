//! Pairs in which others were at work, with the figures of a run of 26 November 2026: a build kept both processors of
//! the host busy in its first three rounds.

use super::*;

/// Durable appends a second natively and in a guest by virtio-blk; whether others kept the processors busy.
const RECORDED: [(f64, f64, bool); 10] = [
    (511.0, 1160.0, true),
    (453.0, 1292.0, true),
    (242.0, 1001.0, true),
    (7434.0, 1639.0, false),
    (7652.0, 1645.0, false),
    (7431.0, 1635.0, false),
    (7251.0, 1618.0, false),
    (6575.0, 1522.0, false),
    (6771.0, 1488.0, false),
    (7418.0, 1545.0, false),
];

fn cells() -> (Cell, Cell) {
    (native("device", "durable-append"), virtio("device", "durable-append"))
}

/// So many of the rounds, a boot each.
fn recorded(rounds: usize) -> Run {
    let (base, cell) = cells();
    let bench = Bench::new().cell(base, 1000.0).cell(cell.clone(), 1000.0).scatter(0.0);
    let mut run = bench.rounds(rounds as u32).run();
    for sample in &mut run.samples {
        let (native, guest, busy) = RECORDED[sample.round as usize];
        let in_guest = sample.cell == cell;
        let figure = if in_guest { guest } else { native };
        sample.result.amend(|work| work.seconds *= 1000.0 / figure);
        sample.boot = sample.round;
        sample.marks.extend((in_guest && busy).then_some(Mark::ProcessorsBusy));
    }
    run
}

fn share(run: &Run) -> Share {
    summarise(run).share(&cells().1.key()).unwrap().clone()
}

#[test]
fn disturbed_pairs_are_left_out_where_enough_others_are_there() {
    let run = recorded(10);
    let share = share(&run);
    assert_eq!((share.share_ratio.pairs, share.left_out_rounds.as_slice()), (7, [0, 1, 2].as_slice()));
    assert!((share.share_ratio.value - 0.22).abs() < 0.005 && share.converged, "{share:?}");
    assert_eq!(share.left_out().unwrap(), "3 of 10 pairs left out: other processes used over 20 % of the CPUs");
    // It is told, and all else that is paired has the same rounds.
    assert_eq!(share.graded.as_ref().unwrap().grade, Grade::B);
    let ratios = share.figures.iter().filter_map(|figure| figure.ratio).chain(share.latency_p50_ratio);
    assert!(ratios.map(|ratio| ratio.pairs).all(|pairs| pairs == 7), "{:?}", share.figures);
    assert_eq!(live(&run, &Baseline::Native)[&share.key], share.share_ratio);
    // The cells themselves keep all.
    assert!(summarise(&run).cells.iter().all(|row| row.samples == 10));
}

#[test]
fn without_enough_others_all_pairs_count() {
    let share = share(&recorded(7));
    assert_eq!((share.share_ratio.pairs, share.left_out()), (7, None));
    let mut run = recorded(10);
    run.samples.iter_mut().filter(|s| s.cell == cells().0).for_each(|s| s.marks.push(Mark::ProcessorsBusy));
    assert_eq!(self::share(&run).share_ratio.pairs, 10);
    // A study that asks for more pairs or boots has them.
    for (pairs, boots) in [(8, 5), (5, 8)] {
        let mut run = recorded(10);
        (run.study.repeat.min_pairs, run.study.repeat.min_boots) = (pairs, boots);
        assert_eq!((self::share(&run).share_ratio.pairs, self::share(&run).left_out()), (10, None));
    }
}

/// Dropping the slow ones is how a disk comes to look fast.
#[test]
fn a_stall_is_kept_whoever_was_at_work() {
    let mut run = recorded(10);
    run.samples.iter_mut().find(|s| s.cell == cells().0 && s.round == 1).unwrap().marks.push(Mark::Stalled);
    let share = share(&run);
    assert_eq!((share.share_ratio.pairs, share.left_out_rounds.as_slice()), (8, [0, 2].as_slice()));
    assert_eq!(share.stalled_rounds, [1]);
}
