//! A report independent of its form. A run, a comparison, a plan, a scan and a simulation become a [`Document`]:
//! headings, paragraphs, tables, findings and plots, which three renderers draw: for a terminal, as Markdown, as a
//! page. Texts are not escaped: renderers do that. A number becomes a text once, where its cell or sentence is made.
//! JSON has types of its own (`crate::document`).
//!
//! What a form leaves out is said with the block or the column ([`In`]); how far in a text stands on a terminal
//! ([`At`]) and how wide a column is there ([`Layout`]) concern a terminal alone.

mod fitted;
mod html;
mod lines;
mod markdown;
mod narrow;
mod table;
mod terminal;
mod text;

use vmio_model::rules::Severity;
use vmio_model::stats::Interval;

use super::plot::Plot;
use super::svg::Curve;
use crate::term::Style;

pub use lines::Out;
pub use table::{Align, Bar, Cell, Column, Fit, Layout, Long, Row, Table, Wide};
pub use terminal::blocks as on_terminal;
pub use text::{Colour, Span, Text};

/// A set of forms. `ROOM` are those with room (Markdown and a page), `SOURCE` those read as plain text (a terminal and
/// Markdown), `SHOWN` a terminal and a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct In(u8);

impl In {
    pub const NONE: In = In(0);
    pub const TERMINAL: In = In(1);
    pub const MARKDOWN: In = In(2);
    pub const HTML: In = In(4);
    pub const SOURCE: In = In(3);
    pub const ROOM: In = In(6);
    pub const SHOWN: In = In(5);
    pub const ALL: In = In(7);

    /// Whether a form is among them.
    pub fn has(self, form: In) -> bool {
        self.0 & form.0 != 0
    }
}

/// A report: its title, which a page and Markdown show, and its blocks in order.
pub struct Document {
    pub title: String,
    pub blocks: Vec<(In, Block)>,
}

impl Document {
    /// An empty document.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a block to all forms.
    pub fn put(&mut self, block: Block) {
        self.only(In::ALL, block);
    }

    /// Adds a block to these forms only.
    pub fn only(&mut self, forms: In, block: Block) {
        self.blocks.push((forms, block));
    }

    /// Adds the blocks of another document, in these forms only.
    pub fn add(&mut self, part: Document, forms: In) {
        self.blocks.extend(part.blocks.into_iter().map(|(there, block)| (In(there.0 & forms.0), block)));
    }

    /// Adds an empty line on a terminal; other forms have their own spacing.
    pub fn gap(&mut self) {
        self.only(In::TERMINAL, Block::Gap);
    }

    /// As text for a terminal of `width` columns; paragraphs have at most [`crate::fit::WIDTH`].
    pub fn text(&self, style: Style, width: usize) -> String {
        let mut out = Out::new(style, width);
        on_terminal(&mut out, &self.blocks);
        out.text
    }

    /// As Markdown (GitHub's flavour).
    pub fn markdown(&self) -> String {
        markdown::whole(self)
    }

    /// As one page that loads nothing else.
    pub fn html(&self) -> String {
        html::whole(self)
    }
}

/// Indentation of the first line on a terminal, and of the others.
pub type At = (usize, usize);

/// A part of a document.
pub enum Block {
    /// An empty line on a terminal.
    Gap,
    Heading(Heading),
    Paragraph(Paragraph),
    List(List),
    Pairs(Pairs),
    Table(Box<Table>),
    Head(Box<Head>),
    Card(Box<Card>),
    /// Code to paste.
    Code(String),
    /// Drawings, which only a page shows.
    Plots(Plots),
    /// Blocks that a page folds away below a summary line.
    Folded(String, Vec<(In, Block)>),
}

/// A heading. Its level is 2 or 3: the title is 1.
#[derive(Default)]
pub struct Heading {
    pub level: u8,
    pub text: String,
    /// A remark beside it, on its line where that has room.
    pub aside: Option<String>,
    /// Indentation on a terminal, and that of further lines.
    pub indent: usize,
    pub hang: usize,
    /// Target of links.
    pub id: Option<String>,
}

/// The kinds of paragraphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// An explanation; dim on a page.
    Aside,
    /// Less important; dim everywhere.
    Dim,
    /// To be read before the figures; in a box on a page.
    Notice,
    /// The same with a warning sign: the limits of what may be concluded.
    Warning,
    /// A caution on the figures above.
    Doubt,
}

/// A paragraph.
pub struct Paragraph {
    pub kind: Kind,
    pub at: At,
    pub text: Text,
}

/// A list of entries, each a lead (mostly empty) and a text. With `aside` it is an explanation.
pub struct List {
    pub at: At,
    pub aside: bool,
    pub entries: Vec<(String, Text)>,
}

/// How a terminal shows a name or value that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The name is on a line above its value.
    Above,
    /// The name pushes its value to the right.
    Pushes,
    /// The name is a command: it is not broken, and is on a line above.
    Command,
    /// Name and value have one line, which is cut.
    Cut,
}

/// Names with their values. A pair with an empty name continues the one before.
pub struct Pairs {
    /// Indentation of names on a terminal, and columns of a name with the gap behind it.
    pub indent: usize,
    pub width: usize,
    pub long: Name,
    pub pairs: Vec<(In, Text, String)>,
}

/// A headline. Those that follow each other with a scale are on one axis of a page.
#[derive(Default)]
pub struct Head {
    /// Its subject, where there are several headlines.
    pub name: Option<String>,
    /// The figure that a page shows large, and a text beside it in small letters.
    pub figure: Option<(String, Text)>,
    /// The same in a sentence, an explanation, and its parts.
    pub text: String,
    pub about: Option<String>,
    pub lines: Vec<String>,
    /// The figure on a scale: its value and interval, and the meaning of the scale's end.
    pub gauge: Option<(f64, Option<Interval>, &'static str)>,
}

/// Ways to make a change: for whom, and how.
pub type Ways = Vec<(&'static str, String)>;

/// A finding or a change: what to change, and why.
#[derive(Default)]
pub struct Card {
    pub title: String,
    /// Severity and rule.
    pub found: Option<(Severity, String)>,
    /// Subject and cause.
    pub cause: Option<(String, String)>,
    /// The settings that it rests on, each with its source.
    pub evidence: Vec<(String, String)>,
    /// The expected gain, and its source.
    pub expected: Option<(String, String)>,
    /// The change in words, and how it is made.
    pub change: Option<String>,
    pub made: Option<Made>,
    /// References.
    pub references: Vec<String>,
    /// The run of `--prove`, and its verdict.
    pub proof: Option<(i64, String)>,
}

/// How a change is made.
pub struct Made {
    /// The ways that are shown, that of the guest's own manager first, and those that a page folds away.
    pub ways: Ways,
    pub elsewhere: Ways,
    /// A remark on those ways.
    pub remark: Option<&'static str>,
    /// When the change takes effect.
    pub takes: &'static str,
}

/// Drawings: the names of the series, and each drawing with its caption; a single one without a caption is as wide as
/// the page.
pub struct Plots {
    pub legend: Vec<(usize, String)>,
    pub drawings: Vec<(String, Drawing)>,
}

/// A drawing, as data.
pub enum Drawing {
    /// Latency by percentile: the curves, a title, and what was timed.
    Latency(Vec<Curve>, String, &'static str),
    Lines(Plot),
}

/// A heading without a remark.
pub fn heading(level: u8, text: impl Into<String>) -> Block {
    Block::Heading(Heading { level, text: text.into(), hang: 2, ..Heading::default() })
}

/// A paragraph of that kind.
pub fn paragraph(kind: Kind, at: At, text: impl Into<Text>) -> Block {
    Block::Paragraph(Paragraph { kind, at, text: text.into() })
}

/// A paragraph.
pub fn say(at: At, text: impl Into<Text>) -> Block {
    paragraph(Kind::Plain, at, text)
}

/// A paragraph of [`Kind::Aside`].
pub fn aside(at: At, text: impl Into<Text>) -> Block {
    paragraph(Kind::Aside, at, text)
}

/// A list.
pub fn list<T: Into<Text>>(at: At, entries: impl IntoIterator<Item = T>) -> Block {
    let entries = entries.into_iter().map(|text| (String::new(), text.into())).collect();
    Block::List(List { at, aside: false, entries })
}

/// A list of explanations, each a lead and a text.
pub fn remarks<T: Into<Text>>(at: At, entries: impl IntoIterator<Item = (String, T)>) -> Block {
    let entries = entries.into_iter().map(|(lead, text)| (lead, text.into())).collect();
    Block::List(List { at, aside: true, entries })
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Block::Table(Box::new(table))
    }
}
