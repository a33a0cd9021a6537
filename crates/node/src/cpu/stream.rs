//! The four kernels of STREAM (J. McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers,
//! IEEE TCCA Newsletter, December 1995), one at a time, on one processor. They count bytes as STREAM does: what is read and
//! what is written, 16 bytes an element for copy and scale, 24 for add and triad. STREAM asks for arrays of at least four
//! times the last-level cache each; its own figure is that of the fastest run, which the report has beside the mean.

use std::hint::black_box;
use std::io;

use super::{Kernel, Kind, WrongResult};

/// Arrays that each of them has.
pub const ARRAYS: usize = 3;

const USUAL: usize = 128 << 20;
const RANGE: (usize, usize) = (1 << 16, 16 << 30);
const SCALAR: f64 = 3.0;

const fn kind(name: &'static str, make: super::Make) -> Kind {
    Kind {
        name,
        counts: "bytes",
        size: "the bytes of each array",
        usual: USUAL,
        range: RANGE,
        bytes: |bytes| ARRAYS * bytes,
        make,
    }
}

/// `c = a`.
pub const COPY: Kind = kind("stream-copy", |bytes| Ok(Box::new(Stream::new(Op::Copy, bytes))));
/// `b = s c`.
pub const SCALE: Kind = kind("stream-scale", |bytes| Ok(Box::new(Stream::new(Op::Scale, bytes))));
/// `c = a + b`.
pub const ADD: Kind = kind("stream-add", |bytes| Ok(Box::new(Stream::new(Op::Add, bytes))));
/// `a = b + s c`.
pub const TRIAD: Kind = kind("stream-triad", |bytes| Ok(Box::new(Stream::new(Op::Triad, bytes))));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Copy,
    Scale,
    Add,
    Triad,
}

struct Stream {
    op: Op,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Stream {
    fn new(op: Op, bytes: usize) -> Self {
        let n = bytes / size_of::<f64>();
        Self { op, a: vec![1.0; n], b: vec![2.0; n], c: vec![4.0; n] }
    }

    /// What is written, and what each element of it must be.
    fn written(&self) -> (&[f64], f64) {
        match self.op {
            Op::Copy => (&self.c, 1.0),
            Op::Scale => (&self.b, SCALAR * 4.0),
            Op::Add => (&self.c, 1.0 + 2.0),
            Op::Triad => (&self.a, 2.0 + SCALAR * 4.0),
        }
    }
}

impl Kernel for Stream {
    fn amount(&self) -> f64 {
        let moved = if matches!(self.op, Op::Copy | Op::Scale) { 2 } else { 3 };
        (moved * self.a.len() * size_of::<f64>()) as f64
    }

    fn run(&mut self) -> io::Result<()> {
        let Self { op, a, b, c } = self;
        let (a, b, c) = black_box((a.as_mut_slice(), b.as_mut_slice(), c.as_mut_slice()));
        match op {
            Op::Copy => c.copy_from_slice(a),
            Op::Scale => b.iter_mut().zip(&*c).for_each(|(b, c)| *b = SCALAR * c),
            Op::Add => c.iter_mut().zip(a.iter().zip(&*b)).for_each(|(c, (a, b))| *c = a + b),
            Op::Triad => a.iter_mut().zip(b.iter().zip(&*c)).for_each(|(a, (b, c))| *a = b + SCALAR * c),
        }
        black_box((a, b, c));
        Ok(())
    }

    fn check(&self) -> Result<(), WrongResult> {
        let (written, wanted) = self.written();
        match written.iter().position(|x| *x != wanted) {
            None => Ok(()),
            Some(at) => Err(WrongResult::Element { at, found: written[at], wanted }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_writes_what_it_should_everywhere() {
        for op in [Op::Copy, Op::Scale, Op::Add, Op::Triad] {
            let mut stream = Stream::new(op, 1 << 16);
            assert!(stream.check().is_err(), "{op:?} had nothing to do");
            stream.run().unwrap();
            stream.check().unwrap();
            let bytes = if matches!(op, Op::Copy | Op::Scale) { 2.0 } else { 3.0 };
            assert_eq!(stream.amount(), bytes * f64::from(1 << 16));
        }
    }
}
