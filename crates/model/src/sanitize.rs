//! Makes others' words safe to show: names of guests, paths, serials, output of monitors and programs. They may contain
//! characters that a terminal executes, or that show a reader a different text: control characters (C0, DEL, C1:
//! ECMA-48, section 5), line and paragraph separators, and those that change the writing direction (Unicode Standard
//! Annex 9, section 2; the "Trojan Source" attacks of Boucher and Anderson, 2021).
//!
//! The only list of them, used by every output: terminal, HTML, CSV, Markdown, check plugins, Prometheus, plans, and
//! JSON, which keeps the text exact by escapes.

use std::borrow::Cow;

/// Replaces a hidden character.
pub const INSTEAD: char = '\u{fffd}';

/// Whether a character must not be shown as it is. Line feeds and tabs are included; callers that need them ask for it.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' // marks of direction
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' // embeddings, overrides, isolates
            | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{feff}' // no width: two names look like one
            | '\u{2028}' | '\u{2029}' // separators of lines and paragraphs
        )
}

/// A text on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden)
}

/// A text that may have lines and tabs of its own.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_hidden(c) && c != '\n' && c != '\t')
}

/// A text to quote, without terminal sequences and control characters except line feeds and tabs.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.next() == Some('[') {
                // A control sequence ends with a byte from @ to ~ (ECMA-48, 5.4).
                chars.by_ref().find(|end| ('@'..='~').contains(end));
            }
        } else if c == '\n' || c == '\t' || !is_hidden(c) {
            out.push(c);
        }
    }
    out
}

fn replaced(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if hidden(c) { INSTEAD } else { c }).collect())
}

/// JSON with escapes in place of hidden characters in its strings: outside of strings a JSON text has none except line
/// feeds and tabs (RFC 8259, sections 2 and 7).
pub fn json(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t' | '\r');
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) {
            // All are in the Basic Multilingual Plane: one escape of four digits each.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_a_text_is_not_shown() {
        let hostile = "a\u{202e}b\u{9b}31m\u{1b}[2J\u{2066}c\u{2069}\u{200f}\u{61c}\u{7f}\r\u{2028}d\0";
        let shown = line(hostile);
        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert_eq!(shown.chars().count(), hostile.chars().count());
        assert_eq!(line("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(lines("a\nb\tc\u{202e}"), "a\nb\tc\u{fffd}");
        // Other scripts and their joiners are harmless.
        for good in ["größe", "میخواهم\u{200c}", "नमस्ते", "日本", "👩\u{200d}💻", "–…"]
        {
            assert!(matches!(line(good), Cow::Borrowed(_)), "{good}");
        }
    }

    #[test]
    fn json_keeps_the_text_and_shows_none_of_it() -> Result<(), serde_json::Error> {
        let hostile = "a\u{202e}\u{9b}\u{1b}\u{7f}\u{2028}\u{200e}\n\t\"\\";
        let plain = serde_json::to_string_pretty(&serde_json::json!({ hostile: [hostile] }))?;
        let safe = json(&plain);
        assert!(!safe.contains(|c| is_hidden(c) && c != '\n'), "{safe:?}");
        let back: serde_json::Value = serde_json::from_str(&safe)?;
        assert_eq!(back[hostile][0], hostile);
        Ok(())
    }
}
