//! Figures as short as the columns of a table.

/// Shown for an unknown value.
const DASH: &str = "-";

/// A count in at most five characters: `850`, `12.3k`, `1.2M`.
pub fn short(x: Option<f64>) -> String {
    match x {
        None => DASH.into(),
        Some(x) if x >= 999_500.0 => format!("{:.1}M", x / 1e6),
        Some(x) if x >= 99_950.0 => format!("{:.0}k", x / 1e3),
        Some(x) if x >= 9_999.5 => format!("{:.1}k", x / 1e3),
        Some(x) if x > 0.0 && x < 0.95 => format!("{x:.1}"),
        Some(x) => format!("{x:.0}"),
    }
}

/// A figure in at most five characters: `0.12`, `3.4`, `250`.
pub fn figure(x: Option<f64>) -> String {
    match x {
        None => DASH.into(),
        Some(x) if x >= 99.95 => short(Some(x)),
        Some(x) if x >= 9.995 => format!("{x:.1}"),
        Some(x) if x > 0.0 => format!("{x:.2}"),
        Some(_) => "0".into(),
    }
}

/// A share in percent.
pub fn percent(x: Option<f64>) -> String {
    match x.map(|x| x * 100.0) {
        None => DASH.into(),
        Some(p) if p > 0.0 && p < 0.95 => format!("{p:.1}"),
        Some(p) => format!("{p:.0}"),
    }
}

/// A time in at most six characters: `61µs`, `1.21ms`; a mean carries a tilde.
pub fn time(x: Option<f64>, mean: Option<f64>) -> String {
    let text = |s: f64| match s {
        s if s < 0.9995e-3 => format!("{:.0}µs", s * 1e6),
        s if s < 9.995e-3 => format!("{:.2}ms", s * 1e3),
        s if s < 99.95e-3 => format!("{:.1}ms", s * 1e3),
        s if s < 0.9995 => format!("{:.0}ms", s * 1e3),
        s if s < 99.5 => format!("{s:.1}s"),
        s => format!("{s:.0}s"),
    };
    match (x, mean) {
        (Some(x), _) => text(x),
        (None, Some(mean)) => format!("~{}", text(mean)),
        (None, None) => DASH.into(),
    }
}

/// Bytes of a request: `4.0K`, `512K`, `1.0M`.
pub fn size(x: Option<f64>) -> String {
    match x {
        None => DASH.into(),
        Some(b) if b >= 1_048_576.0 * 0.9995 => format!("{:.1}M", b / 1_048_576.0),
        Some(b) if b >= 10_240.0 => format!("{:.0}K", b / 1024.0),
        Some(b) if b >= 1024.0 => format!("{:.1}K", b / 1024.0),
        Some(b) => format!("{b:.0}"),
    }
}

/// Memory in at most five characters: `512M`, `4.0G`, `1.5T`.
pub fn memory(bytes: Option<f64>) -> String {
    match bytes.map(|b| b / 1_048_576.0) {
        None => DASH.into(),
        Some(mib) if mib >= 1_023_500.0 => format!("{:.1}T", mib / 1_048_576.0),
        Some(mib) if mib >= 99.95 * 1024.0 => format!("{:.0}G", mib / 1024.0),
        Some(mib) if mib >= 999.5 => format!("{:.1}G", mib / 1024.0),
        Some(mib) => format!("{mib:.0}M"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_narrow() {
        let figures = [0.0, 0.004, 0.5, 0.96, 9.996, 99.96, 999.6, 9999.7, 99_960.0, 999_600.0, 12_345_678.0];
        for x in figures {
            assert!(short(Some(x)).chars().count() <= 5, "{}", short(Some(x)));
            assert!(figure(Some(x)).chars().count() <= 5, "{}", figure(Some(x)));
            assert!(size(Some(x)).chars().count() <= 5, "{}", size(Some(x)));
        }
        for seconds in [1e-6, 0.99e-3, 0.9996e-3, 9.996e-3, 0.0999, 0.5, 0.9996, 12.34, 99.6] {
            assert!(time(Some(seconds), None).chars().count() <= 6, "{}", time(Some(seconds), None));
            assert!(time(None, Some(seconds)).chars().count() <= 7);
        }
        assert_eq!((short(None), short(Some(12_345.0))), ("-".into(), "12.3k".into()));
        assert_eq!((time(Some(0.00121), None), time(None, Some(61e-6))), ("1.21ms".into(), "~61µs".into()));
        assert_eq!(
            (size(Some(4096.0)), size(Some(524_288.0)), size(Some(1_048_576.0))),
            ("4.0K".into(), "512K".into(), "1.0M".into())
        );
        assert_eq!((percent(Some(0.834)), percent(Some(0.004))), ("83".into(), "0.4".into()));
    }

    #[test]
    fn memory_is_narrow() {
        let gib = |x: f64| memory(Some(x * 1_073_741_824.0));
        assert_eq!(
            (gib(0.5), gib(4.0), gib(100.0), gib(1536.0)),
            ("512M".into(), "4.0G".into(), "100G".into(), "1.5T".into())
        );
        for x in [0.0, 0.97, 0.98, 1.0, 99.94, 99.96, 999.0, 999.6, 1023.9] {
            assert!(gib(x).chars().count() <= 5, "{}", gib(x));
        }
    }
}
