//! Shell patterns for names (`*`, `?`, `[a-z]`, `[!0-9]`; glob(7) without character classes), and whether two of them
//! can match the same name, with an example.

use std::collections::{BTreeMap, VecDeque};

/// Steps that a position of the search counts for.
const STEP_OF_PATH: u64 = 64;

/// Positions in two patterns.
type Positions = (usize, usize);
/// The predecessor of each position, and the character between.
type Predecessors = BTreeMap<Positions, (Positions, Option<char>)>;

/// A pattern, or a plain name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<Part>,
    /// Whether it has a star.
    starred: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Char(char),
    Any,
    Star,
    Set { not: bool, ranges: Vec<(char, char)> },
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Part::Char(own) => *own == c,
            Part::Any | Part::Star => true,
            Part::Set { not, ranges } => ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *not,
        }
    }

    /// A character that both match, if any.
    fn common(&self, other: &Part) -> Option<char> {
        match (self, other) {
            (Part::Char(c), p) | (p, Part::Char(c)) => p.takes(*c).then_some(*c),
            (Part::Any | Part::Star, Part::Any | Part::Star) => Some('a'),
            (Part::Set { not: false, ranges: x }, Part::Set { not: false, ranges: y }) => {
                let both = |(a, b): &(char, char)| y.iter().map(|(c, d)| (*a.max(c), *b.min(d))).find(|(a, b)| a <= b);
                x.iter().find_map(both).map(|(first, _)| first)
            }
            (x, y) => x.candidates().into_iter().chain(y.candidates()).find(|c| x.takes(*c) && y.takes(*c)),
        }
    }

    /// Characters among which is a common one with any other part if there is one: the first of each interval that its
    /// ranges cut the characters into, and a few that are readable.
    fn candidates(&self) -> Vec<char> {
        let mut all: Vec<char> = ('a'..='z').chain('0'..='9').collect();
        match self {
            Part::Char(c) => all.push(*c),
            Part::Any | Part::Star => {}
            Part::Set { ranges, .. } => {
                all.extend(ranges.iter().flat_map(|(a, b)| [Some(*a), char::from_u32(*b as u32 + 1)]).flatten());
            }
        }
        all.push('\u{0}');
        all
    }
}

/// Why a text is no pattern; appended to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum GlobError {
    #[error("has a `[` without its `]` (a plain `[` is written `[[]`)")]
    Open,
    #[error("has the range `{0}-{1}`, which runs backwards")]
    Backwards(char, char),
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A `[` without its `]`, or a range that runs backwards.
    pub fn new(text: &str) -> Result<Glob, GlobError> {
        let chars: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while at < chars.len() {
            match chars[at] {
                '*' if parts.last() == Some(&Part::Star) => {}
                '*' => parts.push(Part::Star),
                '?' => parts.push(Part::Any),
                '[' => {
                    let (set, end) = set(&chars, at + 1)?;
                    parts.push(set);
                    at = end;
                }
                c => parts.push(Part::Char(c)),
            }
            at += 1;
        }
        Ok(Glob { starred: parts.contains(&Part::Star), parts })
    }

    /// Whether it matches one name only.
    pub fn is_literal(&self) -> bool {
        self.parts.iter().all(|p| matches!(p, Part::Char(_)))
    }

    /// Literal prefix of all its names.
    pub fn prefix(&self) -> String {
        self.parts.iter().map_while(|p| if let Part::Char(c) = p { Some(*c) } else { None }).collect()
    }

    /// Whether it matches a whole name. Time is at most the product of both lengths.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut part) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::Star) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(p) if p.takes(name[at]) => (at, part) = (at + 1, part + 1),
                _ => match &mut star {
                    // The last star takes one more character.
                    Some((from, taken)) => {
                        *taken += 1;
                        (at, part) = (*taken, *from + 1);
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|p| *p == Part::Star)
    }

    /// A name that both match, if any, in at most `steps` steps, which are subtracted. With none left the answer is
    /// unknown.
    ///
    /// Most pairs differ at an end, or have no star, which one pass shows. Otherwise it is a shortest path through
    /// pairs of positions.
    pub fn overlap_within(&self, other: &Glob, steps: &mut u64) -> Option<String> {
        let (a, b) = (&self.parts, &other.parts);
        *steps = steps.saturating_sub(1);
        if !self.starred && !other.starred && a.len() != b.len() {
            return None;
        }
        if !ends_may_meet(a.iter().rev(), b.iter().rev(), steps) || !ends_may_meet(a.iter(), b.iter(), steps) {
            return None;
        }
        for (name, pattern) in [(self, other), (other, self)] {
            if name.is_literal() {
                let name = name.prefix();
                *steps = steps.saturating_sub((a.len() * b.len()) as u64);
                return pattern.matches(&name).then_some(name);
            }
        }
        let mut came = Predecessors::new();
        let mut queue = VecDeque::from([(0, 0)]);
        while let Some((i, j)) = queue.pop_front() {
            if *steps == 0 {
                return None;
            }
            // A position costs more than a part in a pass: a look-up, and perhaps two sets.
            *steps = steps.saturating_sub(STEP_OF_PATH);
            if (i, j) == (a.len(), b.len()) {
                return Some(name_on_path(&came, (i, j)));
            }
            let mut go = |to: Positions, c: Option<char>| {
                if to != (0, 0) && !came.contains_key(&to) {
                    came.insert(to, ((i, j), c));
                    queue.push_back(to);
                }
            };
            let (x, y) = (a.get(i), b.get(j));
            if x == Some(&Part::Star) {
                go((i + 1, j), None);
            }
            if y == Some(&Part::Star) {
                go((i, j + 1), None);
            }
            if let (Some(x), Some(y)) = (x, y) {
                let after = |p: &Part, at: usize| if *p == Part::Star { at } else { at + 1 };
                if let Some(c) = x.common(y) {
                    go((after(x, i), after(y, j)), Some(c));
                }
            }
        }
        None
    }
}

/// Whether two patterns, from one end to the first star, have common characters part by part.
fn ends_may_meet<'a>(a: impl Iterator<Item = &'a Part>, b: impl Iterator<Item = &'a Part>, steps: &mut u64) -> bool {
    for (x, y) in a.zip(b).take_while(|(x, y)| **x != Part::Star && **y != Part::Star) {
        *steps = steps.saturating_sub(1);
        if x != y && x.common(y).is_none() {
            return false;
        }
    }
    true
}

fn name_on_path(came: &Predecessors, end: Positions) -> String {
    let mut name: Vec<char> = Vec::new();
    let mut at = end;
    while let Some((from, c)) = came.get(&at) {
        name.extend(c);
        at = *from;
    }
    name.iter().rev().collect()
}

/// The set that starts at `from`, and the position of its `]`.
fn set(chars: &[char], from: usize) -> Result<(Part, usize), GlobError> {
    let not = matches!(chars.get(from), Some('!' | '^'));
    let first = from + usize::from(not);
    let mut ranges = Vec::new();
    let mut at = first;
    loop {
        match (chars.get(at), chars.get(at + 1), chars.get(at + 2)) {
            (None, _, _) => return Err(GlobError::Open),
            (Some(']'), _, _) if at > first => return Ok((Part::Set { not, ranges }, at)),
            (Some(a), Some('-'), Some(b)) if *b != ']' => {
                if a > b {
                    return Err(GlobError::Backwards(*a, *b));
                }
                ranges.push((*a, *b));
                at += 3;
            }
            (Some(c), _, _) => {
                ranges.push((*c, *c));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn glob(text: &str) -> Glob {
        Glob::new(text).unwrap()
    }

    fn overlap(a: &Glob, b: &Glob) -> Option<String> {
        a.overlap_within(b, &mut { u64::MAX })
    }

    #[test]
    fn patterns_match_as_a_shell_does() {
        for (pattern, name, yes) in [
            ("vnet0", "vnet0", true),
            ("vnet*", "vnet", true),
            ("vnet?", "vnet10", false),
            ("*", "", true),
            ("", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("tap[0-3]", "tap3", true),
            ("tap[!0-3]", "tap3", false),
            ("tap[]x]", "tap]", true),
            ("tap[a-]", "tap-", true),
            ("*.example", "web.example", true),
        ] {
            assert_eq!(glob(pattern).matches(name), yes, "{pattern} {name}");
        }
        assert_eq!(Glob::new("tap[0-"), Err(GlobError::Open));
        assert_eq!(Glob::new("tap[9-0]"), Err(GlobError::Backwards('9', '0')));
    }

    #[test]
    fn overlaps_are_proven_by_a_name() {
        for (a, b, yes) in [
            ("vnet*", "vnet1?", true),
            ("web*", "*db", true),
            ("vnet*", "tap*", false),
            ("[a-c]x", "[d-f]x", false),
            ("[!a-y]", "[!z]", true),
            ("[!a-z]", "[a-z]", false),
            ("a?c", "a*d", false),
            ("*a", "*b", false),
            ("*a*", "*b*", true),
        ] {
            let name = overlap(&glob(a), &glob(b));
            assert_eq!(name.is_some(), yes, "{a} {b} {name:?}");
        }
    }

    #[test]
    fn stars_cost_no_exponential_time() {
        let (pattern, name) = ("*a".repeat(60), "a".repeat(250));
        assert!(!glob(&format!("{pattern}b")).matches(&name));
        assert!(overlap(&glob(&format!("{pattern}*")), &glob(&format!("{pattern}b*"))).is_some());
    }

    /// Counts steps, not time: pairs that differ at an end, or have no star, take one pass at most.
    #[test]
    fn most_pairs_cost_a_walk() {
        let cost = |a: &str, b: &str| {
            let mut steps = u64::MAX;
            let _ = glob(a).overlap_within(&glob(b), &mut steps);
            u64::MAX - steps
        };
        let many = "?".repeat(240);
        assert!(cost(&format!("{many}[a][a]"), &format!("{many}[b][a]")) <= 4);
        assert!(cost(&format!("{many}[a]{many}"), &format!("{many}[b]{many}")) <= 300);
        assert_eq!(cost(&many, &format!("{many}?")), 1);
        assert!(cost("web*-[0-4]", "web*-[5-9]") <= 3);
        assert!(cost("[a-m]*x", "[n-z]*x") <= 4);
        // A search is bounded by the product of both lengths, and by the given steps.
        let (a, b) = ("*a".repeat(100), "*b".repeat(100) + "a");
        assert!(cost(&a, &b) <= (a.len() as u64 + 2) * (b.len() as u64 + 2) * STEP_OF_PATH);
        let mut few = 1000;
        assert!(glob(&a).overlap_within(&glob(&b), &mut few).is_none());
        assert_eq!(few, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Compared with all names of up to four letters out of three.
        #[test]
        fn overlap_agrees_with_trying_every_name(a in "[abc*?]{0,4}", b in "([abc*?]|\\[a-b\\]|\\[!b\\]){0,4}") {
            let (a, b) = (glob(&a), glob(&b));
            let mut names = vec![String::new()];
            for at in 0.. {
                if names[at].len() == 4 { break; }
                for c in ['a', 'b', 'c', 'd'] {
                    names.push(format!("{}{c}", names[at]));
                }
            }
            let tried = names.iter().any(|n| a.matches(n) && b.matches(n));
            match overlap(&a, &b) {
                Some(name) => prop_assert!(a.matches(&name) && b.matches(&name), "{name}"),
                None => prop_assert!(!tried),
            }
            prop_assert_eq!(overlap(&a, &b).is_some(), overlap(&b, &a).is_some());
        }

        #[test]
        fn no_pattern_makes_it_panic(text in ".{0,30}", shaped in "[a\\[\\]!^*?-]{0,12}", name in ".{0,10}") {
            for text in [text, shaped] {
                if let Ok(glob) = Glob::new(&text) {
                    let _ = glob.matches(&name);
                    if let Some(name) = overlap(&glob, &glob) {
                        prop_assert!(glob.matches(&name));
                    }
                }
            }
        }
    }
}
