//! Fits texts into columns of a terminal: their width as it is shown, names that are shortened so that they still
//! differ, and paragraphs.
//!
//! Foreign texts (names of guests, paths) are shown as [`plain`] makes them, and their width is that of the result.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use vmio_model::sanitize;

/// Columns of every text, unless a table may use a wider terminal.
pub const WIDTH: usize = 80;

/// Fewest columns of a text behind its lead in a terminal that is narrower than [`WIDTH`].
const LEAST: usize = 24;

static ROOM: AtomicUsize = AtomicUsize::new(WIDTH);

/// Columns of texts: [`WIDTH`], or those of a narrower terminal.
pub fn room() -> usize {
    ROOM.load(Ordering::Relaxed)
}

/// Sets them by the columns of the terminal.
pub fn set_room(columns: usize) {
    ROOM.store(columns.min(WIDTH), Ordering::Relaxed);
}

/// Stands for what is left out of a shortened text.
const MARK: &str = "…";

/// How many tenths of a shortened name are its end; the first value that keeps names apart is taken. Names of Nova's
/// guests differ only at the end (`instance-0000abcd`).
const ENDS: [usize; 5] = [6, 5, 4, 8, 2];

/// A foreign text as one line without control characters.
pub fn plain(text: &str) -> Cow<'_, str> {
    sanitize::line(text)
}

/// Columns of a text without escape sequences on a terminal; a hidden character has that of its replacement.
pub fn columns(text: &str) -> usize {
    // As nearly all are, and a table may have thousands of rows.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    plain(text).width()
}

fn column(c: char) -> usize {
    if sanitize::is_hidden(c) { 1 } else { c.width().unwrap_or(0) }
}

/// The longest beginning that fits.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += column(*c);
        used > width
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// The longest end that fits.
fn tail(text: &str, width: usize) -> &str {
    let mut used = 0;
    let begin = text.char_indices().rev().find(|(_, c)| {
        used += column(*c);
        used > width
    });
    &text[begin.map_or(0, |(at, c)| at + c.len_utf8())..]
}

/// At most `width` columns of a text: its beginning, and a mark where it was cut.
pub fn cut(text: &str, width: usize) -> String {
    let text = plain(text);
    if columns(&text) <= width {
        return text.into_owned();
    }
    if width == 0 { String::new() } else { format!("{}{MARK}", head(&text, width - 1)) }
}

/// At most `width` columns of a text: its first words, and a mark where others are left out. A first word that is
/// longer itself is cut.
pub fn first_words(text: &str, width: usize) -> String {
    let text = plain(text);
    if columns(&text) <= width {
        return text.into_owned();
    }
    let begun = head(&text, width.saturating_sub(2));
    let is_whole = text[begun.len()..].starts_with(' ');
    let whole = if is_whole { begun } else { begun.rfind(' ').map_or("", |at| &begun[..at]) };
    match whole.trim_end() {
        "" => cut(&text, width),
        whole => format!("{whole} {MARK}"),
    }
}

/// At most `width` columns of a name: its beginning and its end.
pub fn name(text: &str, width: usize) -> String {
    middle(text, width, ENDS[0])
}

fn middle(text: &str, width: usize, end_tenths: usize) -> String {
    let text = plain(text);
    if columns(&text) <= width {
        return text.into_owned();
    }
    let Some(left) = width.checked_sub(1) else { return String::new() };
    let end = left * end_tenths / 10;
    format!("{}{MARK}{}", head(&text, left - end), tail(&text, end))
}

/// Names in at most `width` columns each that differ as they did, if any place to cut them does that.
pub fn names(all: &[&str], width: usize) -> Vec<String> {
    let before = all.iter().collect::<BTreeSet<_>>().len();
    let ways = ENDS.map(|end| all.iter().map(|text| middle(text, width, end)).collect::<Vec<_>>());
    let differ = |way: &&Vec<String>| way.iter().collect::<BTreeSet<_>>().len() == before;
    ways.iter().find(differ).unwrap_or(&ways[0]).clone()
}

/// A text in a column, with spaces after it.
pub fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// A text in a column, with spaces before it.
pub fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Columns of the widest text that has at most `most`; at least `least`.
pub fn widest<'a>(all: impl Iterator<Item = &'a str>, most: usize, least: usize) -> usize {
    all.map(columns).filter(|n| *n <= most).max().unwrap_or(0).max(least)
}

/// A text in lines of at most [`WIDTH`] columns: the first begins with `lead`, the others with `indent` spaces.
/// `lead` takes `indent` columns, whatever escape sequences are in it.
pub fn paragraph(lead: &str, indent: usize, text: &str) -> String {
    let width = room();
    let further = room_for(&[text], indent, width);
    led(lead, indent, further, &lines(text, width.saturating_sub(further)))
}

/// The same for a text with paths or commands to paste: a path is never broken, nor a command between backticks that
/// fits on a line.
pub fn notice(lead: &str, indent: usize, text: &str) -> String {
    notice_at(lead, indent, text, room())
}

/// The same for so many columns. Behind a lead that leaves a word too little room the text has lines of its own.
pub fn notice_at(lead: &str, indent: usize, text: &str, columns: usize) -> String {
    let further = room_for(&[text], indent, columns);
    let width = columns.saturating_sub(further);
    led(lead, indent, further, &in_lines(&commands_whole(words(text), width), width, is_path))
}

/// Lines behind their lead of `indent` columns; below it where they are indented by another number of columns.
fn led(lead: &str, indent: usize, further: usize, lines: &[String]) -> String {
    let line = |(i, line): (usize, &String)| match i {
        0 if further == indent => format!("{lead}{line}\n"),
        _ => format!("{:further$}{line}\n", ""),
    };
    let text: String = lines.iter().enumerate().map(line).collect();
    if further == indent || lead.trim().is_empty() { text } else { format!("{}\n{text}", lead.trim_end()) }
}

/// Whether a word is an absolute path, also in quotes or parentheses.
fn is_path(word: &str) -> bool {
    word.trim_start_matches(['(', '`', '"', '\'']).starts_with('/')
}

/// Joins the words between two backticks to one where they fit on a line.
fn commands_whole(words: Vec<String>, width: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut rest = words.as_slice();
    while let Some(word) = rest.first() {
        let opens = |word: &str| word.matches('`').count() % 2 == 1;
        let end = if opens(word) { rest[1..].iter().position(|word| opens(word)).map(|at| at + 1) } else { None };
        let whole = end.map(|end| rest[..=end].join(" ")).filter(|whole| columns(whole) <= width);
        let taken = whole.as_ref().map_or(1, |_| end.unwrap_or(0) + 1);
        all.push(whole.unwrap_or_else(|| word.clone()));
        rest = &rest[taken..];
    }
    all
}

/// The lines of a text, with long ones broken at spaces and continued further in.
pub fn folded(text: &str) -> String {
    folded_at(text, room())
}

/// The same for so many columns.
pub fn folded_at(text: &str, width: usize) -> String {
    let folded = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let hang = room_for(&[line], indent + 2, width);
        notice_at(&" ".repeat(indent.min(hang)), hang, line.trim_start(), width)
    };
    let one = |line: &str| if columns(&unstyled(line)) > width { folded(line) } else { format!("{line}\n") };
    text.lines().map(one).collect::<String>().trim_end_matches('\n').to_owned()
}

/// The indentation of lines that have to hold these texts: less than wished in a narrow terminal where a word that has
/// room on a line would be broken.
pub fn room_for(texts: &[&str], indent: usize, width: usize) -> usize {
    if width >= WIDTH {
        return indent;
    }
    let all = texts.iter().flat_map(|text| text.split_whitespace()).map(columns);
    let longest = all.filter(|n| n + 2 <= width).max().unwrap_or(0);
    indent.min(width.saturating_sub(longest.max(LEAST)).max(2))
}

/// A text without the sequences of a style, which take no columns.
fn unstyled(text: &str) -> Cow<'_, str> {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(parts.fold(first.to_owned(), |all, part| all + part.split_once('m').map_or(part, |p| p.1)))
}

/// The words of a text, numbers with their units.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 6] = ["s", "min", "MiB", "GiB", "GB/s", "%"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = UNITS.contains(&word.trim_end_matches([',', ';', ')']));
        match words.last_mut() {
            Some(number) if unit && number.ends_with(|c: char| c.is_ascii_digit()) => *number += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// The words of a text in lines of at most `width` columns. A word that is longer itself is broken, after
/// a slash, comma or equals sign where there is one.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    in_lines(&words(text), width, |_| false)
}

/// Words in lines; one that is longer than a line is broken unless it is to be whole.
fn in_lines(words: &[String], width: usize, whole: fn(&str) -> bool) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words {
        let mut word = word.as_str();
        while columns(word) > width && !whole(word) {
            let room = if used > 0 { width.saturating_sub(used + 1) } else { width };
            let fits = head(word, room);
            let at = fits.rfind(['/', ',', '=']).map_or(0, |at| at + 1);
            // Less than half a line is better begun on the next one.
            let at =
                if at > 0 || used > 0 { at } else { fits.len().max(word.chars().next().map_or(1, char::len_utf8)) };
            let last = lines.len() - 1;
            if at > 0 {
                if used > 0 {
                    lines[last].push(' ');
                }
                lines[last] += &word[..at];
                word = &word[at..];
            }
            lines.push(String::new());
            used = 0;
        }
        let length = columns(word);
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let last = lines.len() - 1;
        if used > 0 {
            lines[last].push(' ');
            used += 1;
        }
        lines[last] += word;
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_keep_their_units() {
        assert_eq!(lines("at most 40.0 GiB in all, 12 s", 16), ["at most 40.0 GiB", "in all, 12 s"]);
        assert_eq!(lines("at most 40.0 GiB in all", 15), ["at most", "40.0 GiB in all"]);
        assert_eq!(lines("", 5), [""]);
    }

    #[test]
    fn no_word_is_broken_where_words_are_left_out() {
        let of = |width| first_words("could not read it", width);
        assert_eq!(
            (of(17), of(16), of(13)),
            ("could not read it".into(), "could not read …".into(), "could not …".into())
        );
        assert_eq!((of(12), of(11), of(10)), ("could not …".into(), "could not …".into(), "could …".into()));
        assert_eq!((of(6), of(1), of(0)), ("could…".into(), "…".into(), String::new()));
    }

    #[test]
    fn names_keep_their_ends() {
        assert_eq!(name("instance-0000abcd", 14), "instan…000abcd");
        assert_eq!((name("web1", 14), name("web1", 1), name("web1", 0)), ("web1".into(), "…".into(), String::new()));
        assert_eq!(name("a\u{1b}[31m\nb", 40), "a\u{fffd}[31m\u{fffd}b");
        let nova: Vec<String> = (0..40).map(|i| format!("instance-0000{i:04x}")).collect();
        let nova: Vec<&str> = nova.iter().map(String::as_str).collect();
        assert_eq!(names(&nova, 12).into_iter().collect::<BTreeSet<_>>().len(), 40);
        assert_eq!(names(&["shop-a-production-1", "shop-b-production-1"], 12), ["shop-a…ion-1", "shop-b…ion-1"]);
    }

    #[test]
    fn width_is_what_a_terminal_shows() {
        assert_eq!(
            (columns("日本"), cut("日本語", 5), left("日", 4), right("日", 3)),
            (4, "日本…".into(), "日  ".into(), " 日".into())
        );
    }

    /// A mark that turns the direction has no width of its own, and is shown as a character that has.
    #[test]
    fn what_is_not_shown_takes_its_column() {
        assert_eq!(columns("a\u{202e}b\u{2066}"), 4);
        assert_eq!(lines("ab \u{202e}c\u{2069}", 5), ["ab", "\u{202e}c\u{2069}"]);
        assert_eq!(lines("\u{202e}\u{202e}ab", 2), ["\u{202e}\u{202e}", "ab"]);
    }

    #[test]
    fn long_words_are_broken_where_they_can_be_read() {
        assert_eq!(lines("a /srv/images/one/two.qcow2 b", 14), ["a /srv/images/", "one/two.qcow2", "b"]);
        assert_eq!(lines("aaaaaaaaaa", 4), ["aaaa", "aaaa", "aa"]);
        assert_eq!(lines("", 4), [""]);
    }

    #[test]
    fn a_narrow_terminal_breaks_no_word_that_has_room() {
        let word = "virtio-blk,none,native+iothread";
        assert_eq!((room_for(&[word], 20, WIDTH), room_for(&[word], 20, 40), room_for(&["a b"], 20, 40)), (20, 9, 16));
        for width in [40, 60, WIDTH] {
            let shown = folded_at(&format!("        one {word} {} {word} two", "and ".repeat(20)), width);
            assert_eq!(shown.matches(word).count(), 2, "{shown}");
            assert!(shown.lines().all(|line| columns(line) <= width), "{shown}");
        }
    }

    #[test]
    fn what_is_too_long_goes_on_further_in_and_what_is_short_stays() {
        assert_eq!(folded("  a\n\nb"), "  a\n\nb");
        let styled = format!("\x1b[31;1merror:\x1b[0m {}", "a".repeat(73));
        assert_eq!(folded(&styled), styled, "what styles it takes no columns");
        let long = format!("  {}", "one two ".repeat(15));
        let lines: Vec<String> = folded(&long).lines().map(str::to_owned).collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| columns(line) <= WIDTH), "{lines:?}");
        assert!(lines[0].starts_with("  one") && lines[1].starts_with("    "), "{lines:?}");
        // What is to be pasted is whole.
        let path = format!("(/srv/{}disk.raw)", "images/".repeat(15));
        let command = "`mount -t tracefs nodev /sys/kernel/tracing`";
        let text =
            format!("{} {path} is {} {command} does it, as {command} did", "gone ".repeat(9), "not there ".repeat(5));
        let shown = folded(&text);
        assert!(shown.lines().any(|line| line.trim() == path), "{shown}");
        assert_eq!(shown.lines().filter(|line| line.contains(command)).count(), 2, "{shown}");
        assert!(shown.lines().all(|line| line.trim() == path || columns(line) <= WIDTH), "{shown}");
        // A backtick that nothing closes, and a command that no line has room for, are words as others are.
        let odd = format!("Assertion `{}", "ret == one two ".repeat(20));
        assert!(folded(&odd).lines().all(|line| columns(line) <= WIDTH), "{odd}");
        let long = format!("`{}`", "find one two ".repeat(20));
        assert!(folded(&long).lines().all(|line| columns(line) <= WIDTH), "{long}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn nothing_is_lost_and_nothing_is_wider(text in "[a-z/=日 ]{0,120}", width in 2usize..40) {
            let all = lines(&text, width);
            prop_assert!(all.iter().all(|line| columns(line) <= width), "{:?}", all);
            let squeezed = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(squeezed(&all.concat()), squeezed(&text));
            prop_assert!(columns(&name(&text, width)) <= width && columns(&cut(&text, width)) <= width);
            prop_assert!(columns(&first_words(&text, width)) <= width);
        }
    }
}
