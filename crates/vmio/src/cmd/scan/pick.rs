//! Which guests and findings are shown: GUEST and `--ignore` on the command line.

use std::str::FromStr;

use vmio_model::facts::{Guest, called};
use vmio_model::failure::{Exit, Failure};
use vmio_model::rules::RULES;
use vmio_model::sanitize;
use vmio_model::words::{first_of, nearest};

use crate::report::scan::Row;

/// Most names that an error lists.
const LISTED: usize = 12;

/// Leaves out vmio's own guests, unless all are wanted or some are named. Also returns how many it left out.
pub fn own(mut guests: Vec<Guest>, all: bool, names: &[String]) -> (Vec<Guest>, usize) {
    let before = guests.len();
    if !all && names.is_empty() {
        guests.retain(|g| !g.is_vmios_own());
    }
    let left_out = before - guests.len();
    (guests, left_out)
}

/// The guests that the words name; without words all. A word that names no guest is an error that lists those that a
/// scan without words would show.
pub fn named(guests: Vec<Guest>, all: bool, words: &[String]) -> Result<Vec<Guest>, Failure> {
    if words.is_empty() {
        return Ok(guests);
    }
    let mut wanted = vec![false; guests.len()];
    for word in words {
        let places = called(&guests, word);
        if places.is_empty() {
            return Err(unknown(own(guests, all, &[]), word));
        }
        places.into_iter().for_each(|place| wanted[place] = true);
    }
    Ok(guests.into_iter().zip(wanted).filter_map(|(guest, wanted)| wanted.then_some(guest)).collect())
}

fn unknown((guests, left_out): (Vec<Guest>, usize), word: &str) -> Failure {
    let failure = Failure::new(Exit::Usage, format!("no guest {word} runs here"));
    let names: Vec<_> = guests.iter().map(|g| sanitize::line(&g.name)).collect();
    let names: Vec<&str> = names.iter().map(|n| n.as_ref()).collect();
    let listed = first_of(&names, LISTED);
    match nearest(word, names.iter().copied()) {
        _ if word.contains('/') => failure.help("a file is given with an equals sign, as in --prometheus=FILE"),
        _ if names.is_empty() && left_out > 0 => {
            failure.help("only guests of vmio's own measurement run here; `vmio scan --all` shows them")
        }
        _ if names.is_empty() => failure.help("no guest is visible; `vmio scan` lists what was searched for"),
        Some(near) => failure.help(format!("did you mean {near}? These run: {listed}")),
        None => failure.help(format!("these run: {listed}")),
    }
}

/// Where an [`Ignore`] of the command line comes from.
const OPTION: &str = "--ignore";

/// A rule that is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignore {
    /// Id of the rule.
    pub rule: String,
    /// Only in the guests that this word names.
    pub guest: Option<String>,
    /// Its source: [`OPTION`], or a file.
    pub from: String,
}

impl Ignore {
    /// What is wrong with an entry, in words.
    pub fn problem(word: &str) -> Option<String> {
        let failure = word.parse::<Ignore>().err()?;
        let what = failure.message.trim_start_matches("--ignore ");
        Some(failure.help.map_or(what.to_owned(), |help| format!("{what}; {help}")))
    }
}

impl FromStr for Ignore {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        let (rule, guest) = word.split_once('@').map_or((word, None), |(rule, guest)| (rule, Some(guest.to_owned())));
        let ids = || RULES.iter().map(|r| r.id);
        if ids().any(|id| id == rule) {
            return Ok(Ignore { rule: rule.to_owned(), guest, from: OPTION.to_owned() });
        }
        let failure = Failure::new(Exit::Usage, format!("--ignore {word}: unknown rule {rule}"));
        Err(match nearest(rule, ids()) {
            Some(near) => failure.help(format!("did you mean {near}?")),
            None => failure.help(format!("the rules are: {}", ids().collect::<Vec<_>>().join(", "))),
        })
    }
}

/// Removes the findings that are to be ignored, and counts them. A rule may also name a guest that does not run now.
pub fn ignored(rows: &mut [Row], ignore: &[Ignore]) -> usize {
    ignored_by(rows, ignore).iter().map(|(_, n)| n).sum()
}

/// As [`ignored`], counted by source.
pub fn ignored_by(rows: &mut [Row], ignore: &[Ignore]) -> Vec<(String, usize)> {
    let guests: Vec<Guest> = rows.iter().map(|row| row.guest.clone()).collect();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for one in ignore {
        let meant = match &one.guest {
            Some(word) => called(&guests, word),
            None => (0..rows.len()).collect(),
        };
        let mut hit = 0;
        for place in meant {
            let findings = &mut rows[place].findings;
            let before = findings.len();
            findings.retain(|f| f.rule != one.rule);
            hit += before - findings.len();
        }
        match counts.iter_mut().find(|(from, _)| *from == one.from) {
            Some((_, n)) => *n += hit,
            None => counts.push((one.from.clone(), hit)),
        }
    }
    counts.retain(|(_, n)| *n > 0);
    counts
}
