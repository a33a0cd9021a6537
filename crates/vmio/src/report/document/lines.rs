//! Lines for a terminal, at most [`WIDTH`] columns wide except for code to paste.

use std::fmt::Write;

use vmio_model::rules::Severity;

use crate::fit::{self, WIDTH};
use crate::report::code::broken;
use crate::term::Style;

/// Lines for a terminal, while they are written.
pub struct Out {
    /// The lines so far.
    pub text: String,
    /// How they are styled.
    pub style: Style,
    /// Columns of texts.
    pub width: usize,
    /// Columns of the terminal, which tables may use.
    pub room: usize,
}

impl Out {
    /// For a terminal of so many columns.
    pub fn new(style: Style, room: usize) -> Out {
        let narrow = fit::room();
        let room = if narrow < WIDTH { room.min(narrow) } else { room };
        Out { text: String::new(), style, width: room.min(WIDTH), room }
    }

    /// Writes a line. All text passes here, so that control characters in names cannot begin further lines.
    pub fn line(&mut self, line: &str) {
        let line = self.style.line(line.trim_end());
        let _ = writeln!(self.text, "{line}");
    }

    /// Breaks `text` at spaces; the first line begins with `lead`, the others with `indent` spaces.
    /// `lead` may hold escape sequences: it takes `indent` columns, whatever its length.
    pub fn paragraph(&mut self, lead: &str, indent: usize, text: &str) {
        let further = fit::room_for(&[text], indent, self.width);
        if further < indent {
            // A word would be broken behind the lead: the text has lines of its own.
            if !lead.trim().is_empty() {
                self.line(lead);
            }
            for line in fit::lines(text, self.width.saturating_sub(further)) {
                self.line(&format!("{:further$}{line}", ""));
            }
            return;
        }
        for (i, line) in fit::lines(text, self.width.saturating_sub(indent)).iter().enumerate() {
            let begin = if i == 0 { lead.to_owned() } else { " ".repeat(indent) };
            self.line(&format!("{begin}{line}"));
        }
    }

    /// Writes a line of code, with its spaces and unbroken, so that it can be pasted. Only comments and XML are broken
    /// where they are too long.
    pub fn code(&mut self, lead: &str, indent: usize, line: &str) {
        let free = line.trim_start().starts_with(['#', '<']);
        let pieces = if free { broken(line, self.width.saturating_sub(indent)) } else { vec![line.to_owned()] };
        for (i, piece) in pieces.iter().enumerate() {
            let fill = " ".repeat(indent);
            self.line(&format!("{}{piece}", if i == 0 { lead } else { &fill }));
        }
    }

    /// Writes a heading, which may be longer than a line.
    pub fn title(&mut self, text: &str, hang: usize) {
        if fit::columns(text) <= self.width {
            self.line(&self.style.bold(text));
            return;
        }
        for (i, line) in fit::lines(text, self.width.saturating_sub(hang)).iter().enumerate() {
            let indent = if i == 0 { 0 } else { hang };
            self.line(&format!("{:indent$}{}", "", self.style.bold(line)));
        }
    }
}

/// A severity in its colour.
pub fn severity(severity: Severity, style: Style) -> String {
    match severity {
        Severity::Severe => style.red(severity.name()),
        Severity::Warning => style.yellow(severity.name()),
        _ => severity.name().to_owned(),
    }
}
