//! Numbers with nouns, names of a list, and suggestions for misspelt words, the same in all outputs.

use std::borrow::Borrow;

/// `guest` for one, `guests` for any other number.
pub fn plural(n: usize, what: &str) -> String {
    format!("{what}{}", if n == 1 { "" } else { "s" })
}

/// `1 guest`, `2 guests`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {}", plural(n, what))
}

/// `runs` of one, `run` of any other number: the verb behind [`count`].
pub fn verb(n: usize, what: &str) -> String {
    format!("{what}{}", if n == 1 { "s" } else { "" })
}

/// The first names of a list, and how many more there are: `a, b`, `a, b and 3 more`.
pub fn first_of<S: Borrow<str>>(names: &[S], most: usize) -> String {
    let (named, more) = names.split_at(names.len().min(most));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", named.join(", "))
}

/// A number with two significant digits: `34`, `2.4`.
pub fn two(x: f64) -> String {
    if x < 9.95 { format!("{x:.1}") } else { format!("{x:.0}") }
}

/// Decimals of a share and the ends of its interval, all in percent: none, unless the interval is too narrow to show
/// with whole numbers; as many as make the ends differ, where two do.
pub fn share_decimals(low: f64, high: f64) -> usize {
    let least = usize::from(high - low < 1.0 || high < 10.0);
    (least..=2).find(|decimals| format!("{low:.decimals$}") != format!("{high:.decimals$}")).unwrap_or(least)
}

/// The nearest candidate, if near enough: one mistake away (two in words of five letters and more), or similar as a
/// whole.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let most = match word.chars().count() {
        ..=1 => 0,
        2..=4 => 1,
        _ => 2,
    };
    let rated = candidates.into_iter().map(|c| {
        let other = c.to_lowercase();
        let slips = strsim::osa_distance(&word, &other);
        // Too many mistakes count as farther than any.
        (if slips <= most { slips } else { usize::MAX }, strsim::jaro_winkler(&word, &other), c)
    });
    rated
        .filter(|(slips, alike, _)| *slips <= most || *alike > 0.75)
        .min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)))
        .map(|(_, _, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_words() {
        assert_eq!([0, 1, 2].map(|n| count(n, "guest")), ["0 guests", "1 guest", "2 guests"]);
        assert_eq!([0, 1, 2].map(|n| plural(n, "stored run")), ["stored runs", "stored run", "stored runs"]);
        assert_eq!([0, 1, 2].map(|n| verb(n, "run")), ["run", "runs", "run"]);
        use crate::rules::Severity;
        let found = |n| Severity::ALL.map(|severity| severity.counted(n)).join(", ");
        assert_eq!(found(1), "1 note, 1 advice, 1 warning, 1 severe");
        assert_eq!(found(2), "2 notes, 2 advice, 2 warnings, 2 severe");
        assert_eq!([2.44, 9.94, 9.96, 33.7, 1234.0].map(two), ["2.4", "9.9", "10", "34", "1234"]);
    }

    #[test]
    fn a_share_has_as_many_decimals_as_its_interval_needs() {
        let of = |low: f64, high: f64| share_decimals(low, high);
        assert_eq!([of(52.0, 61.0), of(2.9, 3.1), of(7.1, 10.8), of(10.9, 11.3)], [0, 1, 0, 1]);
        assert_eq!([of(22.01, 22.04), of(50.0, 50.0), of(52.6, 53.4)], [2, 1, 1]);
    }

    #[test]
    fn short_slips_are_near_too() {
        let keys = ["priority", "min", "max", "weight", "reserve", "over_max"];
        for (word, near) in [
            ("mn", Some("min")),
            ("mx", Some("max")),
            ("mni", Some("min")),
            ("maxx", Some("max")),
            ("MIN", Some("min")),
            ("wieght", Some("weight")),
            ("prio", Some("priority")),
            ("minimum", Some("min")),
            ("q", None),
            ("", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(word, keys), near, "{word}");
        }
    }
}
