//! Keys of a text that is no TOML, by its lines: the last `[header]` at or above a line, and the text before `=`. With
//! them a message names a key where the parser cannot.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::problem::Source;

/// Keys of lines.
pub struct Outline<'a> {
    source: &'a Source<'a>,
    /// By line: whether it is a header, and its key.
    keys: Vec<(bool, String)>,
    /// `file:line:column` of the first line with each header and key.
    first: BTreeMap<(bool, String), (usize, String)>,
}

impl<'a> Outline<'a> {
    pub fn new(source: &'a Source<'a>) -> Outline<'a> {
        let (mut keys, mut first, mut path) = (Vec::new(), BTreeMap::new(), String::new());
        for (number, line) in (1..).zip(source.text.split('\n')) {
            let text = line.trim();
            let (head, assigned) = (header(text), assigned(text));
            if let Some(name) = head {
                path = name.to_owned();
            }
            let key = match assigned.filter(|_| head.is_none()) {
                Some(key) if path.is_empty() => key.to_owned(),
                Some(key) => format!("{path}.{key}"),
                None => path.clone(),
            };
            if head.is_some() || assigned.is_some() {
                let column = line.chars().take_while(|c| c.is_whitespace()).count() + 1;
                let place = || (number, format!("{}:{number}:{column}", source.file));
                first.entry((head.is_some(), key.clone())).or_insert_with(place);
            }
            keys.push((head.is_some(), key));
        }
        Outline { source, keys, first }
    }

    /// The key of the line where a byte range begins; empty without header or `=`.
    pub fn key(&self, span: &Range<usize>) -> &str {
        self.keys.get(self.source.line_of(span.start) - 1).map_or("", |(_, key)| key)
    }

    /// The place of an earlier line with the same header or key.
    pub fn before(&self, span: &Range<usize>) -> Option<&str> {
        let line = self.source.line_of(span.start);
        let (number, place) = self.first.get(self.keys.get(line - 1)?)?;
        (*number < line).then_some(place)
    }
}

/// The name in a line `[name]` or `[[name]]`, with or without its `]`.
fn header(line: &str) -> Option<&str> {
    let name = line.strip_prefix('[')?;
    let name = name.strip_prefix('[').unwrap_or(name);
    let name = name.split([']', '#']).next().unwrap_or("").trim();
    // A line of a multi-line list is no header.
    (!name.is_empty() && !name.contains([',', '=', '[', '{'])).then_some(name)
}

/// The text before `=`.
fn assigned(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    Some(key.trim()).filter(|key| !key.is_empty() && !key.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_keys_and_know_where_they_stood_first() {
        let text = "top = 1\n[class.gold] # x\nmin = 5\n\n  min = 6\n# a = 1\n[[interface]]\n[1, 2]\n[uplink.e\n=\n[class.gold]";
        let source = Source::new("a", text);
        let outline = Outline::new(&source);
        let at = |n: usize| {
            let start = text.split('\n').take(n - 1).map(|l| l.len() + 1).sum();
            start..start
        };
        let keys: Vec<&str> = (1..=11).map(|n| outline.key(&at(n))).collect();
        let (gold, min) = ("class.gold", "class.gold.min");
        assert_eq!(keys, ["top", gold, min, gold, min, gold, "interface", "interface", "uplink.e", "uplink.e", gold]);
        assert_eq!(outline.before(&at(5)), Some("a:3:1"));
        assert_eq!(outline.before(&at(11)), Some("a:2:1"));
        assert_eq!(outline.before(&at(3)), None);
        assert_eq!(Outline::new(&Source::new("a", "")).key(&(0..9)), "");
    }
}
