//! What standard output and standard error are: colours only on a terminal and never against
//! NO_COLOR (no-color.org), and writing that survives a reader who has gone away.

use std::io::{self, IsTerminal, Write};

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
        Style { on: io::stdout().is_terminal() && wanted() }
    }
    /// For standard error.
    pub fn stderr() -> Style {
        Style { on: io::stderr().is_terminal() && wanted() }
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
    fn wrap(self, code: &str, text: &str) -> String {
        match self.on && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Columns of the terminal that standard output is, within reason; of a report where it is none.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 0).map_or(crate::report::WIDTH, |columns| columns.clamp(60, 180))
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Writes `text` whole to standard output. A closed pipe comes back as an error that
/// [`crate::cli::main`] takes for a quiet end (`vmio runs list | head`).
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A line for the person on standard error: plan, progress, warnings. Never fails.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks for yes or no on a terminal; `None` when nobody can answer.
pub fn confirm(question: &str) -> Option<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return None;
    }
    let _ = write!(io::stderr().lock(), "{question} [y/N] ");
    let mut line = String::new();
    io::stdin().read_line(&mut line).ok()?;
    Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
