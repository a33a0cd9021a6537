//! A seeded generator: SplitMix64 (G. Steele, D. Lea, C. Flood, *Fast Splittable Pseudorandom Number Generators*,
//! OOPSLA 2014). Its stream makes outcomes repeatable.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end`, exclusive; 0 for 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Exponentially distributed with this mean, by comparisons only (J. von Neumann, *Various Techniques Used in
    /// Connection with Random Digits*, 1951): without a logarithm every machine gives the same.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0u64;
        loop {
            let first = self.next();
            let (mut last, mut falling) = (first, 1u32);
            loop {
                let next = self.next();
                if next > last {
                    break;
                }
                (last, falling) = (next, falling + 1);
            }
            if falling % 2 == 1 {
                let part = ((u128::from(first) * u128::from(mean)) >> 64) as u64;
                return mean.saturating_mul(whole).saturating_add(part);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_their_mean_and_their_tail() {
        let mut random = Random::new(7);
        let n = 100_000u32;
        let times: Vec<u64> = (0..n).map(|_| random.exponential(1_000_000)).collect();
        let mean = times.iter().sum::<u64>() as f64 / f64::from(n) / 1e6;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        for (at, beyond) in [(1u64, 0.3679), (3, 0.0498)] {
            let got = times.iter().filter(|t| **t > at * 1_000_000).count() as f64 / f64::from(n);
            assert!((got - beyond).abs() < 0.01, "{at}: {got}");
        }
    }
}
