//! LU factorisation of a dense matrix of doubles with partial pivoting, by outer products, row by row: algorithm 3.4.1
//! of G. Golub, C. Van Loan, Matrix Computations, fourth edition. It counts 2/3 n³ operations, as LINPACK does for the
//! factorisation (J. Dongarra et al., The LINPACK Benchmark: past, present and future, 2003).

use std::hint::black_box;
use std::io;

use super::{Kernel, Kind, Numbers, WrongResult};

/// 256 rows of 2 KiB: half a MiB, which the second-level caches of servers hold.
pub const LU: Kind = Kind {
    name: "lu",
    counts: "floating-point operations",
    size: "the order of the matrix",
    usual: 256,
    range: (8, 4096),
    bytes: |n| 2 * n * n * size_of::<f64>(),
    make: |n| Ok(Box::new(Lu::new(n))),
};

/// A residual of so many roundings is one of a right factorisation.
const ROUNDINGS: f64 = 16.0;

struct Lu {
    n: usize,
    original: Vec<f64>,
    factors: Vec<f64>,
    /// Which row of the original is where.
    order: Vec<usize>,
}

impl Lu {
    fn new(n: usize) -> Self {
        let mut numbers = Numbers(1);
        let original: Vec<f64> = (0..n * n).map(|_| numbers.unit()).collect();
        Self { n, factors: original.clone(), original, order: (0..n).collect() }
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.factors[i * self.n..(i + 1) * self.n]
    }
}

impl Kernel for Lu {
    fn amount(&self) -> f64 {
        2.0 / 3.0 * (self.n as f64).powi(3)
    }

    fn run(&mut self) -> io::Result<()> {
        let n = self.n;
        self.factors.copy_from_slice(black_box(&self.original));
        self.order = (0..n).collect();
        for k in 0..n - 1 {
            let largest =
                |a: &usize, b: &usize| self.factors[a * n + k].abs().total_cmp(&self.factors[b * n + k].abs());
            let pivot = (k..n).max_by(largest).unwrap_or(k);
            if pivot != k {
                let (above, below) = self.factors.split_at_mut(pivot * n);
                above[k * n..(k + 1) * n].swap_with_slice(&mut below[..n]);
                self.order.swap(k, pivot);
            }
            let (above, below) = self.factors.split_at_mut((k + 1) * n);
            let top = &above[k * n..];
            for row in below.chunks_exact_mut(n) {
                let factor = row[k] / top[k];
                row[k] = factor;
                for (x, y) in row[k + 1..].iter_mut().zip(&top[k + 1..]) {
                    *x -= factor * y;
                }
            }
        }
        black_box(&mut self.factors);
        Ok(())
    }

    /// Three rows multiplied out again: the whole would take longer than what is measured.
    fn check(&self) -> Result<(), WrongResult> {
        let n = self.n;
        let bound = ROUNDINGS * n as f64 * f64::EPSILON * n as f64;
        for i in [0, n / 2, n - 1] {
            let lower = self.row(i);
            for j in 0..n {
                let below = (0..i.min(j + 1)).map(|k| lower[k] * self.row(k)[j]).sum::<f64>();
                let product = below + if j >= i { lower[j] } else { 0.0 };
                let wanted = self.original[self.order[i] * n + j];
                let apart = (product - wanted).abs();
                if apart.is_nan() || apart > bound {
                    return Err(WrongResult::Product { row: i, column: j, found: product, wanted });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn factors_are_checked() {
        let mut lu = Lu::new(33);
        lu.run().unwrap();
        lu.check().unwrap();
        // Partial pivoting: no factor is larger than 1.
        assert!((0..33).all(|i| lu.row(i)[..i].iter().all(|l| l.abs() <= 1.0)));
        lu.factors[5] += 1e-6;
        assert!(lu.check().unwrap_err().to_string().contains("column 5"));
    }
}
