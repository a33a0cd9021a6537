//! Waiting for a state, with one limit for the whole machine.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Name of the variable by which `suite` hands on what it measured: how many times slower than [`REFERENCE`].
pub const SLOWNESS: &str = "VMIO_TEST_SLOWNESS";
/// What [`work`] takes on the machine that the limits were chosen on, quiet.
const REFERENCE: Duration = Duration::from_millis(20);
/// Limit of a wait there, far above what any state needs, so that no test fails by chance.
const LIMIT: Duration = Duration::from_secs(60);
/// Period of the checks.
const PERIOD: Duration = Duration::from_millis(5);

/// Longest wait for a state on this machine.
pub fn limit() -> Duration {
    LIMIT.mul_f64(slowness())
}

/// How many times slower than the reference this machine is now, at least 1: measured by `suite` before the first test,
/// or by the first who asks.
pub fn slowness() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let told = std::env::var(SLOWNESS).ok().and_then(|text| text.parse().ok());
        told.unwrap_or_else(measure)
    })
}

/// The slowest of some tries of [`work`], as a multiple of the reference.
fn measure() -> f64 {
    let tries = (0..5).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64() / REFERENCE.as_secs_f64()
    });
    tries.fold(1.0, f64::max)
}

/// Some computing, as tests do it: built without optimisation.
fn work() {
    let mut sum = 0u64;
    for n in 0..3_000_000u64 {
        sum = sum.rotate_left(5) ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    std::hint::black_box(sum);
}

/// Waits until it is so. `state` says what is waited for.
#[track_caller]
pub fn poll_until(state: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit();
    while !is_so() {
        assert!(Instant::now() < end, "waited {:?} in vain: {state}", limit());
        sleep(PERIOD);
    }
}

/// Waits until `look` gives something: `Ok` is what was waited for, `Err` what was seen instead.
#[track_caller]
pub fn poll_for<T, E: Debug>(state: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + limit();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "waited {:?} in vain: {state}; seen last: {seen:#?}", limit()),
        }
        sleep(PERIOD);
    }
}
