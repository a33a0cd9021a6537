//! Numbers with their words, in the one way in which every output says them.

/// `guest` of one, `guests` of any other number.
pub fn plural(n: usize, what: &str) -> String {
    format!("{what}{}", if n == 1 { "" } else { "s" })
}

/// `1 guest`, `2 guests`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {}", plural(n, what))
}

/// A number that needs no more than two figures: `34`, `2.4`.
pub fn two(x: f64) -> String {
    if x < 9.95 { format!("{x:.1}") } else { format!("{x:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_words() {
        assert_eq!([0, 1, 2].map(|n| count(n, "guest")), ["0 guests", "1 guest", "2 guests"]);
        assert_eq!([0, 1, 2].map(|n| plural(n, "stored run")), ["stored runs", "stored run", "stored runs"]);
        use crate::rules::Severity;
        let found = |n| Severity::ALL.map(|severity| severity.counted(n)).join(", ");
        assert_eq!(found(1), "1 note, 1 advice, 1 warning, 1 severe");
        assert_eq!(found(2), "2 notes, 2 advice, 2 warnings, 2 severe");
        assert_eq!([2.44, 9.94, 9.96, 33.7, 1234.0].map(two), ["2.4", "9.9", "10", "34", "1234"]);
    }
}
