//! Standard output and standard error: colours only on a terminal and never against NO_COLOR (no-color.org), and
//! writing that survives a reader that has gone away.

use std::borrow::Cow;
use std::io::{self, IsTerminal, StderrLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use vmio_model::problem::Problem;
use vmio_model::sanitize;

use crate::document::{self, Document};
use crate::fit;

mod closed;

/// ANSI styles, or nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    on: bool,
}

impl Style {
    /// No escape sequences.
    pub const PLAIN: Style = Style { on: false };
    /// With escape sequences, whatever the output is.
    pub const COLOUR: Style = Style { on: true };

    /// For standard output.
    pub fn stdout() -> Style {
        Style { on: io::stdout().is_terminal() && colours_wanted() }
    }
    /// For standard error.
    pub fn stderr() -> Style {
        Style { on: io::stderr().is_terminal() && colours_wanted() }
    }
    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
    /// Dim: what is secondary.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
    /// Red: errors.
    pub fn red(self, text: &str) -> String {
        self.wrap("31;1", text)
    }
    /// Yellow: words of caution.
    pub fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }
    /// Cyan: help, commands.
    pub fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }
    /// The text with control characters replaced, save line feeds, tabs and this style's own sequences. Names of
    /// guests, paths and messages come from others, and a terminal would obey the sequences in them.
    pub fn clean(self, text: &str) -> Cow<'_, str> {
        let foreign = |c: char| sanitize::is_hidden(c) && c != '\n' && c != '\t';
        if !text.contains(foreign) {
            return Cow::Borrowed(text);
        }
        let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(foreign) {
            clean += &rest[..at];
            rest = &rest[at..];
            let own = OWN.into_iter().find(|own| self.on && rest.starts_with(own));
            clean += own.unwrap_or("\u{fffd}");
            rest = &rest[own.map_or_else(|| rest.chars().next().map_or(0, char::len_utf8), str::len)..];
        }
        Cow::Owned(clean + rest)
    }
    /// The same on one line, with line feeds and tabs replaced, too.
    pub fn line(self, text: &str) -> String {
        self.clean(text).replace(['\n', '\t'], "\u{fffd}")
    }
    fn wrap(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The sequences of [`Style`].
const OWN: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31;1m", "\x1b[33m", "\x1b[36m"];

/// Columns of the terminal that standard output is, within reason; where it is none, those of the variable COLUMNS, or
/// [`crate::fit::WIDTH`].
pub fn width() -> usize {
    columns_of(io::stdout())
}

fn columns_of(output: impl std::os::fd::AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(output).ok().map(|size| usize::from(size.ws_col));
    let variable = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    let columns = size.filter(|columns| *columns > 0).or_else(variable).filter(|columns| *columns > 0);
    columns.map_or(fit::WIDTH, |columns| columns.clamp(40, 180))
}

/// Whether standard error ends with a line that the next one replaces.
static TRANSIENT: AtomicBool = AtomicBool::new(false);

/// A line on standard error that whatever is written next replaces; nothing where there is no terminal.
pub fn transient(text: &str) {
    if !io::stderr().is_terminal() {
        return;
    }
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{}", fit::cut(text, columns_of(io::stderr()) - 1));
    let _ = err.flush();
    TRANSIENT.store(true, Ordering::Relaxed);
}

/// Takes that line away, so that what is written next has a line of its own.
pub fn end_transient() {
    clear(&mut io::stderr().lock());
}

fn clear(err: &mut StderrLock<'_>) {
    if TRANSIENT.swap(false, Ordering::Relaxed) {
        let _ = err.write_all(b"\r\x1b[K");
    }
}

fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// The output could not be written to standard output: a full disk, a closed descriptor, a reader that has gone away.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {}", .0)]
pub struct Unwritten(#[source] io::Error);

impl Unwritten {
    /// The error of an output without a reader, seen before anything was written.
    pub fn no_reader() -> Unwritten {
        Unwritten(io::ErrorKind::BrokenPipe.into())
    }

    /// Whether the reader of a pipe went away, as in `vmio runs list | head -1`.
    pub fn is_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes a text for people whole to standard output, [cleaned](Style::clean).
pub fn print(text: &str) -> Result<(), Unwritten> {
    print_exact(&Style::stdout().clean(text))
}

/// Writes output for programs to standard output as it is; its maker has replaced control characters
/// ([`document::text`] for JSON).
pub fn print_exact(text: &str) -> Result<(), Unwritten> {
    pass_on(text.as_bytes())
}

/// Writes another program's output to standard output as it is.
pub fn pass_on(bytes: &[u8]) -> Result<(), Unwritten> {
    if closed::stdout() {
        return Err(Unwritten(io::Error::other("it was closed before vmio began")));
    }
    end_transient();
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Unwritten)
}

/// Writes a JSON document to standard output; of JSON Lines, one line.
pub fn json(document: &impl Document) -> Result<(), Unwritten> {
    print_exact(&document::text(document))
}

/// The causes of an error whose text the one before does not contain: libraries often repeat their causes.
pub fn new_causes<'a>(said: &str, causes: impl Iterator<Item = &'a (dyn std::error::Error + 'static)>) -> Vec<String> {
    let (mut last, mut new) = (said.to_lowercase(), Vec::new());
    for cause in causes.map(ToString::to_string) {
        let lower = cause.to_lowercase();
        if !last.contains(&lower) && !lower.contains(&last) {
            last = lower;
            new.push(cause);
        }
    }
    new
}

/// Lines for the person on standard error: plan, progress, warnings, errors; [folded](fit::folded) where they are
/// too long. Never fails.
pub fn note(text: &str) {
    note_exact(&fit::folded_at(&Style::stderr().clean(text), columns_of(io::stderr()).min(fit::WIDTH)));
}

/// The same without folding, for lines of a file with a caret below.
pub fn note_exact(text: &str) {
    let mut err = io::stderr().lock();
    clear(&mut err);
    let _ = writeln!(err, "{}", Style::stderr().clean(text));
}

/// A problem of a text that a person wrote, like a compiler's message; `label` is its first word.
pub fn problem(problem: &Problem, label: &str) {
    let width = columns_of(io::stderr()).min(fit::WIDTH);
    note_exact(&problem.snippet_in(label, width, &|text| fit::folded_at(text, width)));
}

/// Asks for yes or no on a terminal; `None` when nobody can answer.
pub fn confirm(question: &str) -> Option<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return None;
    }
    end_transient();
    let _ = write!(io::stderr().lock(), "{} [y/N] ", Style::stderr().clean(question));
    let mut line = String::new();
    io::stdin().read_line(&mut line).ok()?;
    Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_control_characters_only_our_own_styles_line_feeds_and_tabs_are_left() {
        let styled = |style: Style| format!("{}\tb\n{}", style.bold("a"), style.red("c"));
        assert_eq!(Style::COLOUR.clean(&styled(Style::COLOUR)), styled(Style::COLOUR));
        assert!(matches!(Style::PLAIN.clean("a\tb\n"), Cow::Borrowed("a\tb\n")));
        let hostile = "a\x1b]0;owned\x07\x1b[2J\u{9b}31mb\r\x7f";
        let clean = "a\u{fffd}]0;owned\u{fffd}\u{fffd}[2J\u{fffd}31mb\u{fffd}\u{fffd}";
        assert_eq!((Style::PLAIN.clean(hostile), Style::COLOUR.clean(hostile)), (clean.into(), clean.into()));
        assert_eq!(Style::PLAIN.clean("\x1b[1mbold"), "\u{fffd}[1mbold");
    }
}
