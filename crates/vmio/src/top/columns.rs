//! The columns of the table of guests: title, a guest's cell, and the value to sort by. One list serves the terminal,
//! the text and `--sort`; a narrow terminal leaves out the columns of the highest rank.

use vmio_model::policy::Direction::{self, GuestRx, GuestTx};
use vmio_model::rate::BitRate;
use vmio_model::top::rows::{GuardRow, GuestRow};

/// A column.
pub struct Column {
    /// Key that sorts by it.
    pub key: char,
    /// Name for `--sort` and help.
    pub name: &'static str,
    /// Title, as short as possible.
    pub title: &'static str,
    /// Characters, without the space before.
    pub width: u16,
    /// Columns with a higher number are left out first.
    rank: u8,
    /// Whether only a guard knows it; without a guard the column is left out.
    of_guard: bool,
    /// The value that rows are sorted by, the largest first; unknown ones come last.
    value: fn(&GuestRow) -> Option<f64>,
    /// Formats that value for the cell.
    show: fn(&GuestRow, Option<f64>) -> String,
}

impl Column {
    /// The text of a guest's cell.
    pub fn cell(&self, guest: &GuestRow) -> String {
        (self.show)(guest, (self.value)(guest))
    }
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// `[width, rank]` as in [`Column`].
const fn column(
    key: char,
    name: &'static str,
    title: &'static str,
    [width, rank]: [u8; 2],
    value: fn(&GuestRow) -> Option<f64>,
    show: fn(&GuestRow, Option<f64>) -> String,
) -> Column {
    Column { key, name, title, width: width as u16, rank, of_guard: false, value, show }
}

/// As [`column`], for a value that a guard knows.
const fn guarded(
    key: char,
    name: &'static str,
    title: &'static str,
    size: [u8; 2],
    value: fn(&GuestRow) -> Option<f64>,
    show: fn(&GuestRow, Option<f64>) -> String,
) -> Column {
    Column { of_guard: true, ..column(key, name, title, size, value, show) }
}

/// All columns after the name, from left to right.
pub const ALL: &[Column] = &[
    column('d', "disk", "DISK%", [5, 0], |g| g.disk.device_share_ratio, |_, x| percent(x)),
    column('r', "reads", "R/s", [5, 0], |g| g.disk.read_iops, |_, x| short(x)),
    column('w', "writes", "W/s", [5, 0], |g| g.disk.write_iops, |_, x| short(x)),
    column('b', "bytes", "MB/s", [5, 1], bytes, |_, x| figure(x.map(|x| x / 1e6))),
    column('m', "median", "p50", [6, 5], |g| g.disk.latency_p50_seconds, |g, x| time(x, g.disk.latency_mean_seconds)),
    column('l', "latency", "p99", [6, 0], |g| g.disk.latency_p99_seconds, |_, x| time(x, None)),
    column('z', "size", "SIZE", [5, 6], |g| g.disk.request_bytes, |_, x| size(x)),
    column('e', "depth", "DEPTH", [5, 2], |g| g.disk.queue_depth, |_, x| figure(x)),
    column('i', "received", "RXMb", [5, 3], |g| g.received_bps, |_, x| figure(x.map(|x| x / 1e6))),
    column('o', "sent", "TXMb", [5, 3], |g| g.sent_bps, |_, x| figure(x.map(|x| x / 1e6))),
    column('x', "drops", "DROP", [5, 4], |g| g.drops_per_second, |_, x| short(x)),
    guarded('g', "received-min", "RXMIN", [5, 4], |g| sum(g, GuestRx, |m| Some(m.min_bps)), |_, x| mega(x)),
    guarded('v', "received-limit", "RXLIM", [5, 3], |g| sum(g, GuestRx, now), |_, x| mega(x)),
    guarded('n', "sent-min", "TXMIN", [5, 4], |g| sum(g, GuestTx, |m| Some(m.min_bps)), |_, x| mega(x)),
    guarded('f', "sent-limit", "TXLIM", [5, 3], |g| sum(g, GuestTx, now), |_, x| mega(x)),
    guarded('y', "held", "HELD%", [5, 2], held, |_, x| percent(x)),
    guarded('a', "lost", "LOST", [5, 3], lost, |_, x| short(x)),
    column('c', "cpu", "VCPU%", [5, 1], |g| g.vcpu_ratio, |_, x| percent(x)),
    column('t', "io-threads", "IO%", [4, 2], |g| g.io_ratio, |_, x| percent(x)),
    column('u', "rest", "REST%", [5, 5], |g| g.rest_ratio, |_, x| percent(x)),
    column('s', "steal", "STEAL%", [6, 1], |g| g.steal_ratio, |_, x| percent(x)),
];

/// The column of that name or title.
pub fn find(name: &str) -> Option<&'static Column> {
    ALL.iter().find(|c| c.name == name || c.title.eq_ignore_ascii_case(name))
}

/// Columns that fit beside a name of `name` characters; those of the highest rank are left out, and those of a guard
/// where none runs.
pub fn fitting(width: u16, name: u16, guard: bool) -> Vec<&'static Column> {
    let mut rank = ALL.iter().map(|c| c.rank).max().unwrap_or(0);
    loop {
        let kept: Vec<&Column> = ALL.iter().filter(|c| c.rank <= rank && (guard || !c.of_guard)).collect();
        let needed: u16 = name + kept.iter().map(|c| c.width + 1).sum::<u16>();
        if needed <= width || rank == 0 {
            return kept;
        }
        rank -= 1;
    }
}

/// Sorts guests: the largest first, equal ones by name.
pub fn sort(guests: &mut [GuestRow], by: &Column) {
    let value = |g: &GuestRow| (by.value)(g).unwrap_or(-1.0);
    guests.sort_by(|a, b| value(b).total_cmp(&value(a)).then_with(|| a.name.cmp(&b.name)));
}

/// The sum over all interfaces that a guard limits in this direction; unknown where it limits none.
fn sum(g: &GuestRow, direction: Direction, of: fn(&GuardRow) -> Option<BitRate>) -> Option<f64> {
    let mut all = g.guard.iter().flatten().filter(|m| m.direction == direction).peekable();
    all.peek()?;
    all.map(|m| Some(of(m)?.bits() as f64)).sum()
}

/// The limit, or the maximum where it has none of its own.
fn now(member: &GuardRow) -> Option<BitRate> {
    Some(member.limit_bps.unwrap_or(member.max_bps))
}

/// The value of the interface and direction that was held back most.
fn held(g: &GuestRow) -> Option<f64> {
    g.guard.iter().flatten().filter_map(|m| m.held_ratio).reduce(f64::max)
}

fn lost(g: &GuestRow) -> Option<f64> {
    g.guard.iter().flatten().filter_map(|m| m.drops_per_second).reduce(|sum, more| sum + more)
}

fn mega(x: Option<f64>) -> String {
    figure(x.map(|x| x / 1e6))
}

fn bytes(g: &GuestRow) -> Option<f64> {
    Some(g.disk.read_bytes_per_second? + g.disk.write_bytes_per_second?)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_key_and_a_name_of_its_own() {
        // Keys that the program uses itself.
        let taken = ['q', 'p', '/', '+', '-', 'h', 'j', 'k', ' '];
        for (i, column) in ALL.iter().enumerate() {
            assert!(!taken.contains(&column.key), "{}", column.name);
            assert!(ALL[..i].iter().all(|c| c.key != column.key && c.name != column.name), "{} twice", column.name);
            assert!(column.title.chars().count() <= usize::from(column.width), "{}", column.name);
            assert!(find(column.name).is_some());
        }
        assert!(find("nothing").is_none());
    }

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
    fn what_matters_stays_when_it_gets_narrow() {
        let titles = |w| fitting(w, 12, false).iter().map(|c| c.title).collect::<Vec<_>>();
        assert_eq!(titles(200).len(), ALL.iter().filter(|c| !c.of_guard).count());
        assert_eq!(fitting(200, 12, true).len(), ALL.len());
        assert!(fitting(80, 12, true).iter().any(|c| c.title == "HELD%"));
        let narrow = titles(80);
        for title in ["DISK%", "R/s", "W/s", "MB/s", "p99", "VCPU%", "STEAL%"] {
            assert!(narrow.contains(&title), "{narrow:?}");
        }
        let needed: u16 = 12 + fitting(80, 12, false).iter().map(|c| c.width + 1).sum::<u16>();
        assert!(needed <= 80, "{needed}");
        assert_eq!(titles(20), ["DISK%", "R/s", "W/s", "p99"]);
    }
}
