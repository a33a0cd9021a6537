//! Histories of guests that suffer, and of guests that only look as if.
#![allow(clippy::unwrap_used)]

use super::*;

const LIMITS: fn() -> Limits = Limits::default;

/// `rate` requests in each second of `seconds`, all of the latency that `latency(n)` gives.
fn feed(h: &mut History, who: u32, seconds: std::ops::Range<u64>, rate: u32, latency: impl Fn(u32) -> f64) {
    for second in seconds {
        for n in 0..rate {
            h.add(who, Op::Read, second as f64 + f64::from(n) / f64::from(rate), latency(n), &LIMITS());
        }
    }
}

fn judge(h: &History, now: f64) -> Verdict {
    h.verdict(now, |_, _| None, &LIMITS())
}

#[test]
fn median_is_known_to_a_bucket() {
    for seconds in [1e-6, 37e-6, 1e-3, 0.8, 60.0] {
        let mut l = Latencies::default();
        for _ in 0..9 {
            l.add(seconds);
        }
        l.add(100.0);
        let got = l.median().unwrap();
        assert!((got / seconds - 1.0).abs() < 0.046, "{got} for {seconds}");
    }
    assert_eq!(Latencies::default().median(), None);
}

#[test]
fn a_steady_guest_is_fine_and_a_slower_one_below_the_factor_too() {
    let mut h = History::default();
    feed(&mut h, 1, 0..60, 100, |_| 1e-3);
    assert_eq!(judge(&h, 60.0), Verdict::Fine { compared: 1 });
    feed(&mut h, 1, 60..70, 100, |_| 1.7e-3);
    assert_eq!(judge(&h, 70.0), Verdict::Fine { compared: 1 });
}

#[test]
fn doubling_is_seen_after_two_windows_and_not_after_one() {
    let mut h = History::default();
    feed(&mut h, 7, 0..60, 100, |_| 1e-3);
    feed(&mut h, 7, 60..61, 100, |_| 2.4e-3);
    assert_eq!(judge(&h, 61.0), Verdict::Fine { compared: 1 });
    feed(&mut h, 7, 61..62, 100, |_| 2.4e-3);
    // The second that has only begun does not count.
    assert_eq!(judge(&h, 61.9), Verdict::Fine { compared: 1 });
    let Verdict::Doubled(slower) = judge(&h, 62.0) else { panic!("not seen") };
    assert_eq!((slower.who, slower.op, slower.against), (7, Op::Read, Against::MinuteBefore));
    assert_eq!(slower.before.requests, 6000);
    let Now::Median(now) = slower.now else { panic!("{slower:?}") };
    let ratio = now.median_seconds / slower.before.median_seconds;
    assert!((ratio / 2.4 - 1.0).abs() < 0.1, "{ratio}");
    assert!(slower.to_string().starts_with("its reads took 981 us the minute before and take 2"), "{slower}");
}

#[test]
fn one_bad_second_and_a_slow_tail_end_nothing() {
    let mut h = History::default();
    feed(&mut h, 1, 0..60, 100, |_| 1e-3);
    feed(&mut h, 1, 60..61, 100, |_| 1.0);
    feed(&mut h, 1, 61..62, 100, |_| 1e-3);
    assert_eq!(judge(&h, 61.0), Verdict::Fine { compared: 1 });
    assert_eq!(judge(&h, 62.0), Verdict::Fine { compared: 1 });
    feed(&mut h, 1, 62..66, 100, |n| if n < 30 { 1.0 } else { 1e-3 });
    assert_eq!(judge(&h, 66.0), Verdict::Fine { compared: 1 });
}

#[test]
fn few_requests_must_be_ten_times_slower() {
    let few = |latency: f64, rate: u32| {
        let mut h = History::default();
        feed(&mut h, 1, 0..60, 5, |_| 1e-3);
        // Two windows of five seconds, or of one.
        let end = if rate < 50 { 70 } else { 62 };
        feed(&mut h, 1, 60..end, rate, |_| latency);
        judge(&h, end as f64)
    };
    assert_eq!(few(3e-3, 5), Verdict::Fine { compared: 1 });
    assert!(matches!(few(15e-3, 5), Verdict::Doubled(_)));
    assert!(matches!(few(0.6, 1), Verdict::Doubled(_)));
    // A hundred a second are enough for the plain factor.
    assert!(matches!(few(3e-3, 100), Verdict::Doubled(_)));
}

#[test]
fn a_guest_that_gets_nothing_is_seen_by_what_it_waits_for() {
    let mut h = History::default();
    feed(&mut h, 1, 0..60, 100, |_| 1e-3);
    let wait = |since: f64| h.verdict(66.0, move |_, _| Some(since), &LIMITS());
    assert_eq!(wait(61.5), Verdict::Fine { compared: 1 });
    let Verdict::Doubled(slower) = wait(60.5) else { panic!("not seen") };
    assert_eq!(slower.now, Now::Waiting(5.5));
}

#[test]
fn guests_and_directions_are_judged_apart() {
    let mut h = History::default();
    // Guest 2 is slow and becomes the larger part of all requests; nobody became slower.
    feed(&mut h, 1, 0..60, 1000, |_| 1e-4);
    feed(&mut h, 2, 0..60, 100, |_| 5e-3);
    feed(&mut h, 1, 60..65, 50, |_| 1e-4);
    feed(&mut h, 2, 60..65, 1000, |_| 5e-3);
    assert_eq!(judge(&h, 65.0), Verdict::Fine { compared: 2 });
    for n in 0..500 {
        h.add(1, Op::Write, 65.0 + f64::from(n) / 100.0, 2e-2, &LIMITS());
    }
    feed(&mut h, 1, 65..70, 50, |_| 1e-4);
    assert!(matches!(judge(&h, 70.0), Verdict::Fine { .. }));
}

#[test]
fn a_slow_rise_is_seen_against_the_time_before_the_load() {
    let rise = |mark: bool| {
        let mut h = History::default();
        feed(&mut h, 1, 0..60, 100, |_| 1e-3);
        if mark {
            h.mark_load(60.0, &LIMITS());
        }
        for second in 60..260 {
            let latency = 1e-3 * 1.01f64.powf((second - 60) as f64);
            feed(&mut h, 1, second..second + 1, 100, |_| latency);
            if let Verdict::Doubled(slower) = judge(&h, (second + 1) as f64) {
                return Some((second, slower.against));
            }
        }
        None
    };
    assert_eq!(rise(false), None);
    let (second, against) = rise(true).unwrap();
    assert_eq!(against, Against::BeforeLoad);
    // 1.01^70 is 2; buckets make it a little earlier or later.
    assert!((120..=145).contains(&second), "{second}");
}

#[test]
fn without_requests_it_says_so() {
    let Verdict::NotVisible { why } = judge(&History::default(), 60.0) else { panic!() };
    assert!(why.contains("0 requests"), "{why}");
    let mut h = History::default();
    feed(&mut h, 1, 0..60, 1, |_| 1e-3);
    let Verdict::NotVisible { why } = judge(&h, 60.0) else { panic!() };
    assert!(why.contains("60 requests"), "{why}");
}

#[test]
fn old_seconds_are_forgotten() {
    let mut h = History::default();
    feed(&mut h, 1, 0..1000, 5, |_| 1e-3);
    assert!(h.lines.values().all(|l| l.slots.len() <= 73));
}
