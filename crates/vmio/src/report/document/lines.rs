//! Lines for a terminal, at most [`WIDTH`] columns wide save what has to be pasted.

use std::fmt::Write;

use vmio_model::rules::Severity;

use crate::fit::{self, WIDTH};
use crate::report::code::broken;
use crate::term::Style;

/// What is written so far.
pub struct Out {
    /// The lines.
    pub text: String,
    /// How they are styled.
    pub style: Style,
    /// Columns that no text exceeds.
    pub width: usize,
    /// Columns of the terminal, which a table may take.
    pub room: usize,
}

impl Out {
    /// For a terminal of so many columns.
    pub fn new(style: Style, room: usize) -> Out {
        Out { text: String::new(), style, width: room.min(WIDTH), room }
    }

    /// A line. Every line comes by here: what others wrote cannot make more of it than a line of text.
    pub fn line(&mut self, line: &str) {
        let line = self.style.line(line.trim_end());
        let _ = writeln!(self.text, "{line}");
    }

    /// Breaks `text` at spaces; the first line begins with `lead`, the others with `indent` spaces.
    /// `lead` may hold escape sequences: it takes `indent` columns, whatever its length.
    pub fn paragraph(&mut self, lead: &str, indent: usize, text: &str) {
        for (i, line) in fit::lines(text, self.width.saturating_sub(indent)).iter().enumerate() {
            let begin = if i == 0 { lead.to_owned() } else { " ".repeat(indent) };
            self.line(&format!("{begin}{line}"));
        }
    }

    /// A line of code keeps its spaces, and is not broken, so that what is pasted is what is meant: a terminal
    /// that is too narrow wraps it by itself. Comments, and XML between its words, may be broken anywhere.
    pub fn code(&mut self, lead: &str, indent: usize, line: &str) {
        let free = line.trim_start().starts_with(['#', '<']);
        let pieces = if free { broken(line, self.width - indent) } else { vec![line.to_owned()] };
        for (i, piece) in pieces.iter().enumerate() {
            let fill = " ".repeat(indent);
            self.line(&format!("{}{piece}", if i == 0 { lead } else { &fill }));
        }
    }

    /// A heading; names that are joined in it may be many.
    pub fn title(&mut self, text: &str, hang: usize) {
        if fit::columns(text) <= WIDTH {
            self.line(&self.style.bold(text));
            return;
        }
        for (i, line) in fit::lines(text, WIDTH - hang).iter().enumerate() {
            let indent = if i == 0 { 0 } else { hang };
            self.line(&format!("{:indent$}{}", "", self.style.bold(line)));
        }
    }
}

/// The word for how much something matters, in its colour.
pub fn severity(severity: Severity, style: Style) -> String {
    match severity {
        Severity::Severe => style.red(severity.name()),
        Severity::Warning => style.yellow(severity.name()),
        _ => severity.name().to_owned(),
    }
}
