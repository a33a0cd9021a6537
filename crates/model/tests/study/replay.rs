//! The quick study with the shares of runs that were recorded on 26 November 2026 (two cores, emulated guests), with
//! what each cell took there.

use vmio_model::cell::Cell;
use vmio_model::stats::{Pair, Ratio, paired_ratio};
use vmio_model::study::DoneReason;

use super::play::{known, play};
use super::{QUICK, study};

const SEQ_READ: &str = "device/qemu/virtio-blk,none,native/seq-read";
const SEQ_WRITE: &str = "device/qemu/virtio-blk,none,native/seq-write";
const FIRST_WRITE: &str = "sparse/qemu/virtio-blk,none,native/seq-write";

/// Guest against native, in thousandths, round by round: what scatters by more than all else. 09:39, 16:02, 18:42.
const RECORDED: [&[(&str, &[u32])]; 3] = [
    &[
        (SEQ_READ, &[794, 805, 681, 743, 697, 650, 747, 784]),
        (SEQ_WRITE, &[306, 365, 399, 565, 321, 482, 309, 308, 345, 284]),
        (FIRST_WRITE, &[452, 415, 550, 499, 475, 568, 667, 544, 626]),
    ],
    &[
        (SEQ_READ, &[763, 633, 744, 789, 633, 812, 799, 762, 854, 795, 763]),
        (SEQ_WRITE, &[345, 348, 326, 407, 375]),
        (FIRST_WRITE, &[499, 526, 639, 516, 488, 585, 598, 453, 523]),
    ],
    &[
        (SEQ_READ, &[570, 469, 718, 618, 628, 676, 735, 756, 798, 412, 653, 727, 797, 884, 817, 858]),
        (SEQ_WRITE, &[292, 287, 353, 320, 303]),
        (FIRST_WRITE, &[445, 518, 450, 507, 469]),
    ],
];

/// Seconds of a cell with all that is beside its program, as recorded, for half a second on disks and the machine.
fn seconds(cell: &Cell) -> f64 {
    match (cell.disk().is_some(), cell.is_native(), cell.key().starts_with("machine")) {
        (true, true, _) => 0.85,
        (_, _, true) => 0.72,
        _ => 1.15,
    }
}

/// A boot, with the end of the one before.
const BOOT_SECONDS: f64 = 3.3;

/// The ratio after so many pairs: each in a boot of its own, from the sixth on two in one. After the recorded ones they
/// come again.
fn ratio(recorded: &[u32], pairs: u32) -> Option<Ratio> {
    let pair = |(round, share): (u32, &u32)| {
        let boot = if round < 5 { round } else { 5 + (round - 5) / 2 };
        Pair { boot, base: 1000.0, test: f64::from(*share) }
    };
    paired_ratio(&(0..pairs).zip(recorded.iter().cycle()).map(pair).collect::<Vec<_>>())
}

/// The first two end after 251 and 226 s. In the third the host read now at 1.1, now at 1.6 GB/s: 38 pairs, 304 s.
#[test]
fn recorded_shares_are_all_known_in_about_five_minutes() {
    let study = study(QUICK);
    for recorded in RECORDED {
        let share = |key: &str, pairs: u32| {
            let scatters = recorded.iter().find(|(cell, _)| *cell == key);
            scatters.map_or_else(
                || known(pairs).map(|ratio| Ratio { boots: pairs, ..ratio }),
                |(_, shares)| ratio(shares, pairs),
            )
        };
        let (done, reason) = play(&study, share, None);
        assert_eq!(reason, DoneReason::Converged, "all are known");
        let cells = study.cells();
        let of = |key: &str| cells.iter().find(|cell| cell.key() == key).map(seconds).unwrap();
        let boots = f64::from(done.last().unwrap().boot + 1);
        let all: f64 = done.iter().map(|sample| of(&sample.cell)).sum::<f64>() + boots * BOOT_SECONDS;
        let first: f64 = done.iter().filter(|sample| sample.round == 0).map(|sample| of(&sample.cell)).sum();
        assert!(first + BOOT_SECONDS < 45.0 && all <= 305.0, "{first} s, {all} s");
    }
}
