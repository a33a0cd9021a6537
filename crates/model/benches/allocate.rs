//! How long `exact` takes: as a whole, and kept with one member's demand changing, side by side.
//! `cargo bench -p vmio-model --bench allocate`

// Fixtures are files, and times are measured around the model.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vmio_model::allocate::dba::dba;
use vmio_model::allocate::incremental::Pool;
use vmio_model::allocate::{Demand, Member, exact};
use vmio_model::rate::BitRate;

const CAPACITY: BitRate = BitRate::new(100_000_000_000);

/// Members with all kinds of contracts, demands of which most are not met, so that a level must be found.
fn pool(n: u64) -> (Vec<Member>, Vec<Demand>) {
    let random = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let fair = CAPACITY.bits() / n;
    let member = |i: u64| Member {
        priority: (random(i) % 8) as u8 + 1,
        min: BitRate::new(random(i + n) % (fair / 2)),
        max: BitRate::new(fair / 2 + random(i + 2 * n) % (3 * fair)),
        weight: (random(i + 3 * n) % 4) as u32 + 1,
        hard: i.is_multiple_of(16),
        over_max: i.is_multiple_of(4),
    };
    let demand = |i: u64| {
        if i.is_multiple_of(5) { Demand::Unbounded } else { Demand::Rate(BitRate::new(random(i + 4 * n) % (2 * fair))) }
    };
    ((0..n).map(member).collect(), (0..n).map(demand).collect())
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("allocate");
    group.sample_size(20);
    for n in [1_000u64, 10_000, 100_000] {
        let (members, demands) = pool(n);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(BenchmarkId::new("exact, whole", n), &n, |b, _| {
            b.iter(|| exact(CAPACITY, black_box(&members), black_box(&demands)))
        });
        group.bench_with_input(BenchmarkId::new("dba, whole", n), &n, |b, _| {
            b.iter(|| dba(CAPACITY, black_box(&members), black_box(&demands)))
        });
        group.throughput(Throughput::Elements(1));
        let mut kept = Pool::new(CAPACITY, &members, &demands);
        let mut turn = 0u64;
        group.bench_with_input(BenchmarkId::new("exact, one demand changes", n), &n, |b, _| {
            b.iter(|| {
                turn += 1;
                let i = (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % n;
                kept.set(i as usize, Demand::Rate(BitRate::new(turn * 7_919 % (2 * CAPACITY.bits() / n))));
                black_box(kept.grant(i as usize))
            })
        });
        group.bench_with_input(BenchmarkId::new("exact, one grant read", n), &n, |b, _| {
            b.iter(|| black_box(kept.grant(black_box(n as usize / 2))))
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
