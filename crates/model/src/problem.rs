//! Problems in a text that a person wrote: file, line and column, key, and what would be right. One type for every kind
//! of text (studies, the guard's policy), shown in one line or like a compiler's message, with the line and a caret.

use std::fmt::{self, Write as _};
use std::ops::Range;

/// Columns of a source line that a snippet shows; longer lines are cut around the caret.
const SHOWN: usize = 92;

/// A mistake, or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File as named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Dotted key, for example `matrix.drivers`; may be empty where the text is no TOML.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
    /// Further lines, shown as notes: the arithmetic, other places, what to do.
    pub notes: Vec<String>,
    /// Whether the key is unknown.
    pub(crate) is_unknown_key: bool,
    /// Whether a person wrote the text in which it stands, and can look at that line.
    is_placed: bool,
    /// The source line (cut where long), the caret's column in it, and its width.
    excerpt: (String, usize, usize),
}

impl Problem {
    /// Adds a note.
    pub fn note(mut self, note: impl Into<String>) -> Problem {
        self.notes.push(printable(&note.into()));
        self
    }

    /// Names the argument of a command in place of a line and key in a text that was made of it.
    pub fn of_argument(mut self, argument: &str) -> Problem {
        self.file = printable(argument);
        self.key.clear();
        self.is_placed = false;
        self
    }

    /// Names the argument of a command that makes a text wrong which was right before; the place in the text follows.
    pub fn caused_by(mut self, argument: &str) -> Problem {
        self.file =
            if self.is_placed { format!("{}: {}", printable(argument), self.place()) } else { printable(argument) };
        self.is_placed = false;
        self
    }

    /// The file, with the line where a person can look at that.
    fn place(&self) -> String {
        if self.is_placed { format!("{}:{}", self.file, self.line) } else { self.file.clone() }
    }

    /// The problem like a compiler's message; `label` is its first word (`error`, `warning`), which may have escape
    /// sequences.
    pub fn snippet(&self, label: &str) -> String {
        self.snippet_in(label, usize::MAX, &str::to_owned)
    }

    /// The same in so many columns: the line of the file is cut around the caret, and `fold` puts sentences in lines.
    pub fn snippet_in(&self, label: &str, columns: usize, fold: &dyn Fn(&str) -> String) -> String {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        if !self.is_placed {
            let notes = self.notes.iter().map(|note| fold(&format!("  = {note}")) + "\n");
            return fold(&format!("{label}: {}: {key}{}", self.file, self.what)) + "\n" + &notes.collect::<String>();
        }
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let (line, before, width) = self.excerpt_in(columns.saturating_sub(number.len() + 3));
        let (before, carets) = (" ".repeat(before), "^".repeat(width));
        let mut text = fold(&format!("{label}: {key}{}", self.what)) + "\n";
        let _ = writeln!(text, "{gutter} --> {}:{}:{}", self.file, self.line, self.column);
        let _ = writeln!(text, "{gutter} |");
        let _ = writeln!(text, "{}", format!("{number} | {line}").trim_end());
        let _ = writeln!(text, "{gutter} | {before}{carets}");
        for note in &self.notes {
            let _ = writeln!(text, "{}", fold(&format!("{gutter} = {note}")));
        }
        text
    }

    /// The excerpt in at most so many columns.
    fn excerpt_in(&self, shown: usize) -> (String, usize, usize) {
        let (line, before, width) = &self.excerpt;
        let length = line.chars().count();
        if length.max(before + width) <= shown.max(1) {
            return (line.clone(), *before, *width);
        }
        let skipped = if before + 20 > shown { before.saturating_sub(shown / 2) } else { 0 };
        let taken = if length > skipped + shown { shown.saturating_sub(1) } else { shown };
        let mut cut: String = line.chars().skip(skipped).take(taken).collect();
        if taken < shown {
            cut.push('…');
        }
        let before = before - skipped;
        (cut, before, (*width).min(shown.saturating_sub(before).max(1)))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.place(), self.what),
            key => write!(f, "{}: {key}: {}", self.place(), self.what),
        }
    }
}

/// All problems of a text, in its order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct TextError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
}

/// A text with its name: converts byte ranges to problems.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Name of the file, for display.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
    /// Byte offset of each line.
    starts: Vec<usize>,
    is_placed: bool,
}

impl<'a> Source<'a> {
    /// A text and its name.
    pub fn new(file: &'a str, text: &'a str) -> Source<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { file, text, starts, is_placed: true }
    }

    /// A text that no person wrote: its problems have a name and a key, and no line.
    pub fn made(name: &'a str, text: &'a str) -> Source<'a> {
        Source { is_placed: false, ..Source::new(name, text) }
    }

    /// `file:line:column` of a byte range's start; of a text that was made, its name.
    pub fn place(&self, span: &Range<usize>) -> String {
        if !self.is_placed {
            return self.file.to_owned();
        }
        let (line, column, _) = self.locate(span.start);
        format!("{}:{line}:{column}", self.file)
    }

    /// A problem at a byte range; a range outside of the text is moved to its end.
    pub fn problem(&self, span: &Range<usize>, key: &str, what: impl AsRef<str>) -> Problem {
        let (line, column, start) = self.locate(span.start);
        let whole = self.text[start..].lines().next().unwrap_or("");
        let from = self.boundary(span.start) - start;
        let to = self.boundary(span.end).saturating_sub(start).clamp(from, whole.len().max(from));
        let width = self.text[start + from..start + to].trim_end().chars().count().max(1);
        // A long line is cut so that the caret stays visible.
        let skipped = if column + 20 > SHOWN { column - SHOWN / 2 } else { 0 };
        let mut line_text: String = printable(whole).chars().skip(skipped).take(SHOWN).collect();
        if whole.chars().count() > skipped + SHOWN {
            line_text.push('…');
        }
        let before = column - 1 - skipped;
        let excerpt = (line_text, before, width.min((SHOWN - before.min(SHOWN - 1)).max(1)));
        let (file, key, what) = (printable(self.file), printable(key), printable(what.as_ref()));
        let is_placed = self.is_placed;
        Problem { file, line, column, key, what, notes: Vec::new(), is_unknown_key: false, is_placed, excerpt }
    }

    /// The line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|s| *s <= self.boundary(at))
    }

    /// Line and column from 1, and the line's byte offset.
    fn locate(&self, at: usize) -> (usize, usize, usize) {
        let at = self.boundary(at);
        let line = self.starts.partition_point(|s| *s <= at);
        let start = self.starts[line - 1];
        (line, self.text[start..at].chars().count() + 1, start)
    }

    /// The nearest character boundary at or before a byte.
    fn boundary(&self, at: usize) -> usize {
        (0..=at.min(self.text.len())).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0)
    }
}

/// Replaces control characters, which a terminal would execute, by a visible one.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\t' {
                ' '
            } else if crate::sanitize::is_hidden(c) {
                crate::sanitize::INSTEAD
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_points_at_the_value() {
        let text = "[class.gold]\nmin\t= \"3 µ\" # \u{1b}[31m\n";
        let at = text.find("\"3").unwrap_or(0);
        let problem =
            Source::new("a.toml", text).problem(&(at..at + 6), "class.gold.min", "is wrong").note("help: mend it");
        assert_eq!(
            problem.snippet("error"),
            "error: class.gold.min: is wrong\n  --> a.toml:2:7\n  |\n2 | min = \"3 µ\" # \u{fffd}[31m\n  |       ^^^^^\n  = help: mend it\n"
        );
        assert_eq!(problem.to_string(), "a.toml:2: class.gold.min: is wrong");
    }

    #[test]
    fn long_lines_and_ranges_outside_the_text_are_cut() {
        let text = format!("{}x = 1{}", " ".repeat(500), "y".repeat(500));
        let source = Source::new("a", &text);
        for span in [500..505, 0..2000, 900..901, 5000..9000] {
            let shown = source.problem(&span, "", "w").snippet("error");
            assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
            assert!(shown.contains('^'));
        }
        let shown = source.problem(&(500..501), "", "w").snippet("error");
        let lines: Vec<Vec<char>> = shown.lines().map(|l| l.chars().collect()).collect();
        let caret = lines[4].iter().position(|c| *c == '^').unwrap_or(0);
        assert_eq!(lines[3][caret], 'x', "{shown}");
        assert_eq!(Source::new("a", "").problem(&(3..9), "", "empty").line, 1);
    }

    #[test]
    fn in_a_narrow_terminal_the_caret_stays_under_its_value() {
        let text = format!("{}x = 1{}", " ".repeat(70), "y".repeat(90));
        let source = Source::new("a", &text);
        for columns in [24, 40, 80] {
            for at in [0, 30, 70, 100, 150] {
                let shown = source.problem(&(at..at + 3), "", "w").snippet_in("error", columns, &str::to_owned);
                let lines: Vec<Vec<char>> = shown.lines().map(|l| l.chars().collect()).collect();
                assert!(lines.iter().all(|line| line.len() <= columns), "{shown}");
                let caret = lines[4].iter().position(|c| *c == '^').unwrap_or(0);
                assert_eq!(lines[3].get(caret).copied().unwrap_or(' '), text.as_bytes()[at] as char, "{shown}");
            }
        }
    }

    #[test]
    fn a_text_that_nobody_wrote_has_no_lines() {
        let source = Source::made("guard set", "[class.gold]\nmax = 3\n");
        assert_eq!(source.place(&(14..15)), "guard set");
        let problem = source.problem(&(14..15), "class.gold.max", "is wrong").note("help: mend it");
        assert_eq!(problem.to_string(), "guard set: class.gold.max: is wrong");
        let problem = problem.of_argument("guard set class gold --max");
        assert_eq!(problem.to_string(), "guard set class gold --max: is wrong");
        assert_eq!(problem.snippet("error"), "error: guard set class gold --max: is wrong\n  = help: mend it\n");
        let of_a_file =
            Source::new("a.toml", "[class.gold]\nmin = 9\n").problem(&(14..15), "class.gold.min", "is above");
        let caused = of_a_file.caused_by("guard set class gold --max").to_string();
        assert_eq!(caused, "guard set class gold --max: a.toml:2: class.gold.min: is above");
    }
}
