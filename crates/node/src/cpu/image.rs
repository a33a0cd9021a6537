//! An image filter: sharpening by the Laplacian, a convolution with `0 -1 0 / -1 5 -1 / 0 -1 0`, cut off to 0 to 1 (R.
//! Gonzalez, R. Woods, Digital Image Processing, third edition, section 3.6.2). Single precision, one channel.

use std::hint::black_box;
use std::io;

use super::{Kernel, Kind, Numbers, WrongResult};

/// 512 by 512 pixels: 1 MiB of the image and as much of the result.
pub const SHARPEN: Kind = Kind {
    name: "sharpen",
    counts: "pixels",
    size: "the width and height of the image",
    usual: 512,
    range: (8, 8192),
    bytes: |n| 2 * n * n * size_of::<f32>(),
    make: |n| Ok(Box::new(Sharpen::new(n))),
};

struct Sharpen {
    n: usize,
    image: Vec<f32>,
    sharp: Vec<f32>,
}

impl Sharpen {
    fn new(n: usize) -> Self {
        let mut numbers = Numbers(2);
        let image = (0..n * n).map(|_| (0.5 + 0.2 * numbers.unit()) as f32).collect();
        Self { n, image, sharp: vec![0.0; n * n] }
    }

    /// What a pixel that is not at the border must become.
    fn wanted(&self, x: usize, y: usize) -> f32 {
        let at = |x: usize, y: usize| self.image[y * self.n + x];
        (5.0 * at(x, y) - at(x - 1, y) - at(x + 1, y) - at(x, y - 1) - at(x, y + 1)).clamp(0.0, 1.0)
    }
}

impl Kernel for Sharpen {
    fn amount(&self) -> f64 {
        ((self.n - 2) * (self.n - 2)) as f64
    }

    fn run(&mut self) -> io::Result<()> {
        let n = self.n;
        let image = black_box(&self.image);
        for y in 1..n - 1 {
            let [up, row, down] = [y - 1, y, y + 1].map(|y| &image[y * n..(y + 1) * n]);
            let sharp = &mut self.sharp[y * n + 1..(y + 1) * n - 1];
            let around = up[1..n - 1].iter().zip(&down[1..n - 1]).zip(row.windows(3));
            for (out, ((up, down), row)) in sharp.iter_mut().zip(around) {
                *out = (5.0 * row[1] - row[0] - row[2] - up - down).clamp(0.0, 1.0);
            }
        }
        black_box(&mut self.sharp);
        Ok(())
    }

    fn check(&self) -> Result<(), WrongResult> {
        for (x, y) in (1..self.n - 1).flat_map(|x| [(x, 1), (x, self.n / 2), (x, self.n - 2)]) {
            let (found, wanted) = (self.sharp[y * self.n + x], self.wanted(x, y));
            if (found - wanted).abs() > 1e-5 || found.is_nan() {
                return Err(WrongResult::Pixel { x, y, found, wanted });
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
    fn sharpening() {
        let mut filter = Sharpen::new(16);
        filter.image = (0..256).map(|i| if i % 16 < 8 { 0.4 } else { 0.6 }).collect();
        filter.run().unwrap();
        filter.check().unwrap();
        let row: Vec<f32> = filter.sharp[5 * 16 + 5..5 * 16 + 11].iter().map(|x| (x * 10.0).round()).collect();
        assert_eq!(row, [4.0, 4.0, 2.0, 8.0, 6.0, 6.0]);
        filter.sharp[8 * 16 + 3] += 0.1;
        assert!(filter.check().unwrap_err().to_string().contains("pixel 3, 8"));
    }
}
