use proptest::sample::Index;

use super::*;
use crate::allocate::incremental::Pool;
use crate::allocate::{cap, exact};

/// Each member's rate in bit/s.
fn shares(capacity: u64, members: &[Member], demands: &[Demand]) -> Vec<u64> {
    rates(&exact(BitRate::new(capacity), members, demands))
}

#[test]
fn figure_4() {
    let m = 1_000_000;
    let at = |first: Demand| shares(1000 * m, &study(), &[first, Demand::Unbounded, Demand::Unbounded]);
    assert_eq!(at(wants(800 * m)), [600 * m, 300 * m, 100 * m]);
    assert_eq!(at(Demand::Unbounded), [600 * m, 300 * m, 100 * m]);
    assert_eq!(at(wants(200 * m)), [200 * m, 500 * m, 200 * m]);
    assert_eq!(at(wants(500 * m)), [500 * m, 300 * m + 66_666_666, 100 * m + 33_333_333]);
}

#[test]
fn levels_the_spare_part_only() {
    // 60 and 0 are guaranteed; the spare 40 is halved, whatever the minima.
    let members = [member(1, 60, 1000), member(1, 0, 1000)];
    assert_eq!(shares(100, &members, &[Demand::Unbounded; 2]), [80, 20]);
    let weighted = [members[0], Member { weight: 3, ..members[1] }];
    assert_eq!(shares(100, &weighted, &[Demand::Unbounded; 2]), [70, 30]);
}

#[test]
fn an_idle_minimum_is_lent_unless_hard() {
    let of = |hard| [Member { hard, ..member(1, 60, 100) }, member(8, 0, 100)];
    let demands = [wants(0), Demand::Unbounded];
    assert_eq!(shares(100, &of(false), &demands), [0, 100]);
    assert_eq!(shares(100, &of(true), &demands), [0, 40]);
}

#[test]
fn a_cap_leaves_the_minimum_free() {
    let members = [member(1, 60, 100), member(2, 0, 100)];
    let grants = exact(BitRate::new(100), &members, &[wants(5), wants(10)]);
    assert_eq!([0, 1].map(|i| cap(&members[i], &grants[i]).bits()), [60, 10]);
}

#[test]
fn minima_that_do_not_fit_lend_nothing() {
    let members = [member(1, 80, 100), member(2, 80, 100)];
    assert_eq!(shares(100, &members, &[Demand::Unbounded; 2]), [80, 80]);
    assert_eq!(exact(BitRate::new(100), &[], &[]), []);
}

/// Every pool of three members with small numbers, compared with the oracle.
#[test]
fn all_small_cases() {
    let mut kinds = Vec::new();
    for (priority, weight) in [(1, 1), (1, 3), (2, 2)] {
        for (min, max) in [(0, 1), (0, 5), (2, 3)] {
            for (hard, over_max) in [(false, false), (true, true)] {
                for demand in [wants(0), wants(1), wants(4), Demand::Unbounded] {
                    kinds.push((Member { weight, hard, over_max, ..member(priority, min, max) }, demand));
                }
            }
        }
    }
    let mut cases = 0;
    for (a, first) in kinds.iter().enumerate() {
        for (b, second) in kinds.iter().enumerate().skip(a) {
            for third in kinds.iter().skip(b).step_by(5) {
                let (members, demands): (Vec<_>, Vec<_>) = [*first, *second, *third].into_iter().unzip();
                for capacity in [6, 7, 11] {
                    let got = shares(capacity, &members, &demands);
                    assert_eq!(got, oracle::rates(capacity, &members, &demands), "{capacity} {members:?} {demands:?}");
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 20_000, "{cases}");
}

/// 100,000 members at 800 Gbit/s with the largest numbers there are: nothing overflows.
#[test]
fn the_largest_pools() {
    let capacity = BitRate::new(800_000_000_000);
    for (min, weight, demand) in [
        (8_000_000, u32::MAX, Demand::Unbounded),
        (0, u32::MAX, Demand::Rate(BitRate::MAX)),
        (0, 1, Demand::Unbounded),
        (8_000_000, 1, wants(1)),
    ] {
        let max = if weight == 1 { u64::MAX } else { 800_000_000_000 };
        let over_max = weight != 1;
        let odd = |i: usize| if i.is_multiple_of(2) { weight } else { 1 };
        let members: Vec<Member> =
            (0..100_000).map(|i| Member { weight: odd(i), over_max, ..member((i % 8) as u8 + 1, min, max) }).collect();
        let demands = vec![demand; members.len()];
        let grants = exact(capacity, &members, &demands);
        let sum: BitRate = grants.iter().map(|g| g.rate).sum();
        assert!(sum <= capacity);
        let asked = demands.iter().map(|d| u128::from(d.up_to(capacity))).sum::<u128>();
        assert!(u128::from(sum) + 100_000 > asked.min(u128::from(capacity)), "{sum}");
        let pool = Pool::new(capacity, &members, &demands);
        assert!((0..members.len()).all(|i| pool.grant(i) == grants[i]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn is_what_the_oracle_says((capacity, members, demands) in pools()) {
        let wanted = oracle::rates(capacity.bits(), &members, &demands);
        prop_assert_eq!(rates(&exact(capacity, &members, &demands)), wanted);
    }

    #[test]
    fn keeps_its_promises((capacity, members, demands) in pools()) {
        let grants = exact(capacity, &members, &demands);
        let used: BitRate = grants.iter().map(|g| g.rate).sum();
        let idle_hard: BitRate =
            members.iter().zip(&demands).filter(|(m, _)| m.hard).map(|(m, d)| m.min - d.up_to(m.min)).sum();
        prop_assert!(used + idle_hard <= capacity, "conservation");
        for ((m, d), g) in members.iter().zip(&demands).zip(&grants) {
            prop_assert_eq!(g.rate, g.guaranteed + g.spare);
            prop_assert_eq!(g.guaranteed, d.up_to(m.min), "minimum");
            prop_assert!(g.rate <= d.up_to(BitRate::MAX), "no more than asked");
            prop_assert!(m.over_max || g.rate <= m.max, "maximum");
            prop_assert!(cap(m, g) >= m.min);
        }
        // Free capacity beyond rounding means that all members have all they may have.
        if (capacity - used - idle_hard).bits() >= members.len().max(1) as u64 {
            for ((m, d), g) in members.iter().zip(&demands).zip(&grants) {
                prop_assert_eq!(g.rate, d.up_to(if m.over_max { BitRate::MAX } else { m.max }));
            }
        }
        // A priority has spare only when all before it are satisfied.
        for (m, g) in members.iter().zip(&grants).filter(|(_, g)| g.spare > BitRate::ZERO) {
            for ((other, d), got) in members.iter().zip(&demands).zip(&grants).filter(|((o, _), _)| o.priority < m.priority) {
                prop_assert!(got.rate >= d.up_to(other.max));
            }
            if g.rate > m.max {
                for ((other, d), got) in members.iter().zip(&demands).zip(&grants) {
                    prop_assert!(got.rate >= d.up_to(other.max), "beyond a maximum before all had theirs");
                }
            }
        }
    }

    #[test]
    fn order_does_not_matter((capacity, members, demands) in pools(), turn in any::<Index>()) {
        let grants = exact(capacity, &members, &demands);
        let mut order: Vec<usize> = (0..members.len()).collect();
        if !order.is_empty() {
            order.rotate_left(turn.index(members.len()));
            order.reverse();
        }
        let shuffled: Vec<Member> = order.iter().map(|i| members[*i]).collect();
        let wanted: Vec<Demand> = order.iter().map(|i| demands[*i]).collect();
        let again = exact(capacity, &shuffled, &wanted);
        prop_assert!(order.iter().zip(&again).all(|(i, g)| *g == grants[*i]));
    }

    #[test]
    fn more_demand_never_lowers_ones_own_rate(
        (capacity, members, mut demands) in pools(), who in any::<Index>(), more in 0u64..4_000_000_000
    ) {
        prop_assume!(!members.is_empty());
        let i = who.index(members.len());
        let before = exact(capacity, &members, &demands)[i];
        demands[i] = match demands[i] {
            Demand::Rate(rate) if more % 3 > 0 => Demand::Rate(rate + BitRate::new(more)),
            _ => Demand::Unbounded,
        };
        prop_assert!(exact(capacity, &members, &demands)[i].rate >= before.rate);
    }

    #[test]
    fn the_incremental_form_says_the_same((capacity, members, mut demands) in pools(), changes in changes()) {
        prop_assume!(!members.is_empty());
        let mut pool = Pool::new(capacity, &members, &demands);
        for (who, demand) in changes {
            let i = who.index(members.len());
            demands[i] = demand.map_or(Demand::Unbounded, wants);
            pool.set(i, demands[i]);
            let whole = exact(capacity, &members, &demands);
            for (i, grant) in whole.iter().enumerate() {
                prop_assert_eq!(&pool.grant(i), grant);
            }
        }
    }
}

/// Blocks are split and removed only with many members.
#[test]
fn the_incremental_form_with_many_members() {
    let n = 3_000usize;
    let members: Vec<Member> = (0..n)
        .map(|i| Member {
            weight: i as u32 % 5 + 1,
            over_max: i.is_multiple_of(7),
            ..member((i % 2) as u8 + 1, i as u64, 5_000)
        })
        .collect();
    let capacity = BitRate::new(9_000_000);
    let mut demands = vec![wants(0); n];
    let mut pool = Pool::new(capacity, &members, &demands);
    let mut random = 1u64;
    for turn in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let i = (random >> 33) as usize % n;
        // Few different values, so that equal levels are common.
        demands[i] = if turn < 10_000 { wants((random >> 20) % 9 * 1_000) } else { wants(0) };
        pool.set(i, demands[i]);
        if turn % 500 == 0 {
            let whole = exact(capacity, &members, &demands);
            assert!((0..n).all(|i| pool.grant(i) == whole[i]), "turn {turn}");
        }
    }
}
