//! Figures and names in verdicts.

/// Three significant figures.
fn three(x: f64) -> String {
    match x.abs() {
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// A time: `61 µs`, `1.21 ms`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.9995 => format!("{} ms", three(s * 1e3)),
        s => format!("{} s", three(s)),
    }
}

/// A share: `83 %`.
pub(super) fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        p if p > 0.0 && p < 0.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// A rate on a wire: `940 Mbit/s`.
pub(super) fn bits(bps: f64) -> String {
    if bps < 1e9 { format!("{} Mbit/s", three(bps / 1e6)) } else { format!("{} Gbit/s", three(bps / 1e9)) }
}

/// An amount of memory: `512M`, `1.2G`.
pub(super) fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / 1_048_576.0;
    if mib < 999.5 { format!("{mib:.0}M") } else { format!("{:.1}G", mib / 1024.0) }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// Name of a disk by its number (major, minor).
pub(super) fn number((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// A text without terminal sequences: processes choose names for themselves and their threads, and containers for
/// interfaces.
pub(super) fn clean(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => ' ',
        c if crate::sanitize::is_hidden(c) => '?',
        c => c,
    };
    text.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!((time(61.2e-6), time(0.00821), time(1.5)), ("61 µs".into(), "8.21 ms".into(), "1.50 s".into()));
        assert_eq!((percent(0.834), percent(0.004), percent(0.0)), ("83 %".into(), "0.4 %".into(), "0 %".into()));
        assert_eq!((bytes(512 << 20), bytes(1200 << 20)), ("512M".into(), "1.2G".into()));
        assert_eq!((bits(9.4e8), bits(2e10)), ("940 Mbit/s".into(), "20.0 Gbit/s".into()));
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!(
            (list(&names[..1]), list(&names[..2]), list(&names)),
            ("a".into(), "a and b".into(), "a, b and c".into())
        );
    }
}
