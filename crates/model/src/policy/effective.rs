//! Effective minima: what is guaranteed when interfaces matched by patterns have larger minima, together, than the
//! capacity. Without such interfaces all minima fit, since a policy in which those of the host, `default` and named
//! interfaces do not is refused. With them named interfaces and the host lose, too, when their priority is the same or
//! lower; `check` warns of such patterns.

use crate::rate::BitRate;

/// The effective minimum of each member of `(priority, minimum)`: minima are granted from priority 1 on; the first
/// priority that does not fit shares the rest in proportion to its minima (rounded down), later ones get 0. The order
/// of the members does not matter.
pub fn effective_minima(capacity: BitRate, members: &[(u8, BitRate)]) -> Vec<BitRate> {
    let mut wanted = [0u128; 256];
    for (priority, minimum) in members {
        wanted[usize::from(*priority)] += u128::from(*minimum);
    }
    let mut left = u128::from(capacity);
    // A priority's share of its minima, as a fraction.
    let shares = wanted.map(|wanted| {
        let granted = wanted.min(left);
        // After the first that does not fit, lower ones get nothing.
        left = if granted < wanted { 0 } else { left - granted };
        (granted, wanted)
    });
    let of = |(priority, minimum): &(u8, BitRate)| match shares[usize::from(*priority)] {
        (granted, wanted) if granted < wanted => BitRate::of_sum(u128::from(*minimum) * granted / wanted),
        _ => *minimum,
    };
    members.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::units::MAX_RATE;
    use super::*;
    use proptest::prelude::*;

    /// All in bit/s.
    fn effective(capacity: u64, members: &[(u8, u64)]) -> Vec<u64> {
        let members: Vec<(u8, BitRate)> = members.iter().map(|(p, min)| (*p, BitRate::new(*min))).collect();
        effective_minima(BitRate::new(capacity), &members).into_iter().map(BitRate::bits).collect()
    }

    #[test]
    fn by_hand() {
        assert_eq!(effective(1000, &[(1, 300), (4, 700)]), [300, 700]);
        // 700 are left for the 600 + 300 of priority 4; priority 8 gets nothing, though 1 would fit.
        assert_eq!(effective(1000, &[(8, 1), (4, 600), (1, 300), (4, 300)]), [0, 466, 300, 233]);
        assert_eq!(effective(0, &[(1, 5), (2, 0)]), [0, 0]);
        assert_eq!(effective(10, &[]), [0; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_must_hold(
            capacity in prop_oneof![0u64..1000, 0..=MAX_RATE.bits()],
            members in prop::collection::vec((1u8..=8, prop_oneof![0u64..400, 0..=MAX_RATE.bits()]), 0..40),
        ) {
            let granted = effective(capacity, &members);
            let sum: u128 = granted.iter().map(|g| u128::from(*g)).sum();
            let wanted: u128 = members.iter().map(|m| u128::from(m.1)).sum();
            prop_assert!(sum <= u128::from(capacity));
            prop_assert!(granted.iter().zip(&members).all(|(g, m)| *g <= m.1));
            // All, or (except for rounding) the whole capacity.
            prop_assert!(sum + members.len() as u128 >= wanted.min(u128::from(capacity)));
            // No minimum is cut while a lower priority gets something.
            let cut = (0..members.len()).filter(|i| granted[*i] < members[*i].1).map(|i| members[i].0).min();
            if let Some(cut) = cut {
                prop_assert!(granted.iter().zip(&members).all(|(g, m)| m.0 <= cut || *g == 0));
                prop_assert!(granted.iter().zip(&members).all(|(g, m)| m.0 >= cut || *g == m.1));
                // In proportion, within one bit of rounding: g_i / m_i = g_j / m_j.
                let same: Vec<usize> = (0..members.len()).filter(|i| members[*i].0 == cut).collect();
                for (i, j) in same.iter().zip(same.iter().skip(1)) {
                    let (x, y) = (u128::from(granted[*i]) * u128::from(members[*j].1), u128::from(granted[*j]) * u128::from(members[*i].1));
                    prop_assert!(x.abs_diff(y) <= u128::from(members[*i].1.max(members[*j].1)));
                }
            }
            // Order independence, and more capacity never takes a minimum away.
            let mut turned = members.clone();
            turned.reverse();
            let mut back = effective(capacity, &turned);
            back.reverse();
            prop_assert_eq!(&back, &granted);
            let more = effective(capacity.saturating_add(1000), &members);
            prop_assert!(more.iter().zip(&granted).all(|(m, g)| m >= g));
        }
    }
}
