use super::*;
use crate::allocate::dba::{Loop, Measures, dba};

const M: u64 = 1_000_000;

#[test]
fn figure_4() {
    let at = |first: u64| {
        let demands = [wants(first * M), wants(800 * M), Demand::Unbounded];
        rates(&dba(BitRate::new(1000 * M), &study(), &demands))
    };
    assert_eq!(at(800), [600 * M, 300 * M, 100 * M]);
    // The idle minimum of 300 stays reserved; the remaining 700 are shared, 300 of them 2:1.
    assert_eq!(at(200), [300 * M, 500 * M, 200 * M]);
    assert_eq!(at(500), [500 * M, 366_666_666, 133_333_333]);
    assert_eq!(at(0), [300 * M, 500 * M, 200 * M]);
}

/// By passed traffic alone the loop reaches the same rates some periods later.
#[test]
fn both_measures_end_alike() {
    let capacity = BitRate::new(1000 * M);
    for offered in [[800, 800, 800], [200, 800, 800], [600, 800, 800]].map(|o| o.map(|r| BitRate::new(r * M))) {
        let mut turns = Loop::new(capacity, &study(), Measures::Passed);
        for _ in 0..60 {
            let passed: Vec<BitRate> = offered.iter().zip(turns.rates()).map(|(o, r)| *o.min(r)).collect();
            turns.step(&passed);
        }
        let steady = dba(capacity, &study(), &offered.map(Demand::Rate));
        for (rate, grant) in turns.rates().iter().zip(&steady) {
            assert!(rate.bits().abs_diff(grant.rate.bits()) < M, "{:?} {steady:?}", turns.rates());
        }
    }
}

#[test]
fn minima_that_do_not_fit_go_to_the_first_created() {
    let members = [member(2, 60, 90), member(1, 50, 90), member(2, 60, 90)];
    let capacity = BitRate::new(100);
    assert_eq!(rates(&dba(capacity, &members, &[Demand::Unbounded; 3])), [50, 50, 0]);
    assert_eq!(Loop::new(capacity, &members, Measures::Passed).rates(), [50, 50, 0].map(BitRate::new));
    // Also while the first created are idle: their reservation is not the last one's.
    for idle in [[0, 100, 100], [100, 0, 100], [0, 0, 100]] {
        assert_eq!(rates(&dba(capacity, &members, &idle.map(wants))), [50, 50, 0]);
    }
}

#[test]
fn a_missing_minimum_is_taken_from_the_least_important_first() {
    let members = [member(1, 40, 90), member(2, 10, 90), member(3, 10, 90)];
    let mut turns = Loop::new(BitRate::new(100), &members, Measures::Offered);
    // 30 are missing: class 3 falls to its minimum and frees 35, class 2 is left alone; the remaining 5 are shared by
    // rank among those that offered more.
    assert_eq!(turns.step(&[10, 45, 45].map(BitRate::new)), [40, 45, 15].map(BitRate::new));
}

#[test]
fn a_member_without_a_minimum_can_start() {
    let members = [member(1, 10_000, 50_000), member(2, 0, 50_000)];
    let mut turns = Loop::new(BitRate::new(100_000), &members, Measures::Passed);
    turns.step(&[BitRate::ZERO; 2]);
    for _ in 0..50 {
        let passed = [BitRate::ZERO, turns.rates()[1]];
        turns.step(&passed);
    }
    assert!(turns.rates()[1] >= BitRate::new(50_000), "{:?}", turns.rates());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn keeps_its_promises((capacity, members, demands) in pools()) {
        let grants = dba(capacity, &members, &demands);
        prop_assert!(grants.iter().map(|g| u128::from(g.rate)).sum::<u128>() <= u128::from(capacity), "conservation");
        for ((m, d), g) in members.iter().zip(&demands).zip(&grants) {
            // The minimum is reserved, used or not.
            prop_assert!(g.rate >= m.min);
            prop_assert_eq!(g.guaranteed, m.min);
            prop_assert!(g.rate <= d.up_to(BitRate::MAX).max(m.min), "no more than offered");
        }
        // Nothing is left while a member wants more, except for rounding.
        let used: BitRate = grants.iter().map(|g| g.rate).sum();
        if (capacity - used).bits() >= members.len().max(1) as u64 {
            prop_assert!(demands.iter().zip(&grants).all(|(d, g)| g.rate >= d.up_to(capacity)));
        }
    }

    #[test]
    fn any_measurements_conserve((capacity, members, demands) in pools(), turns in prop::collection::vec(0u64..300, 1..8)) {
        for measures in [Measures::Offered, Measures::Passed] {
            let mut state = Loop::new(capacity, &members, measures);
            for turn in &turns {
                let offered: Vec<BitRate> = demands.iter().map(|d| *turn * (d.up_to(capacity) / 100)).collect();
                let seen: Vec<BitRate> = match measures {
                    Measures::Offered => offered,
                    Measures::Passed => offered.iter().zip(state.rates()).map(|(o, r)| *o.min(r)).collect(),
                };
                let rates = state.step(&seen);
                prop_assert!(rates.iter().copied().sum::<BitRate>() <= capacity);
                prop_assert!(rates.iter().zip(&members).all(|(r, m)| *r >= m.min));
            }
        }
    }

    #[test]
    fn the_steady_state_is_steady((capacity, members, demands) in pools()) {
        let offered: Vec<BitRate> = demands.iter().map(|d| d.up_to(capacity)).collect();
        let mut turns = Loop::new(capacity, &members, Measures::Offered);
        let first = turns.step(&offered).to_vec();
        prop_assert_eq!(turns.step(&offered), first);
    }
}
