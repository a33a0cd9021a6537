//! A report before it has a form. A run, a comparison, a plan, a scan and a simulation become a [`Document`]: headings,
//! paragraphs, tables, findings and plots, in one order that three renderers keep: a terminal, Markdown, a page. Its
//! texts are as they were said, and what a form has to escape its renderer escapes. A number becomes a text once, where
//! its cell or sentence is made. Programs never see a document: JSON has types of its own (`crate::document`).
//!
//! What a form leaves out is said with the block or the column ([`In`]); how far in a text stands on a terminal
//! ([`At`]) and how wide a column is there ([`Layout`]) concern a terminal alone.

mod fitted;
mod html;
mod lines;
mod markdown;
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
pub use text::{Span, Text};

/// In which forms something appears. There is room in Markdown and on a page; a source is what is
/// read as it is written, a terminal and Markdown; shown is what is not read as Markdown.
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

/// A report: what it is called, which heads a page and Markdown, and what it says, in order.
pub struct Document {
    pub title: String,
    pub blocks: Vec<(In, Block)>,
}

impl Document {
    /// One that says nothing yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    /// Says something everywhere.
    pub fn put(&mut self, block: Block) {
        self.only(In::ALL, block);
    }

    /// Says something in these forms alone.
    pub fn only(&mut self, forms: In, block: Block) {
        self.blocks.push((forms, block));
    }

    /// Says in these forms what another says there.
    pub fn add(&mut self, part: Document, forms: In) {
        self.blocks.extend(part.blocks.into_iter().map(|(there, block)| (In(there.0 & forms.0), block)));
    }

    /// An empty line on a terminal; the other forms keep their own distances.
    pub fn gap(&mut self) {
        self.only(In::TERMINAL, Block::Gap);
    }

    /// For a terminal of so many columns; texts are at most [`crate::fit::WIDTH`] wide.
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

/// Columns of a terminal before the first line of a text, and before the others.
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
    /// What is to be pasted.
    Code(String),
    /// Drawings, of which a page alone has a use.
    Plots(Plots),
    /// What a page folds away below a line.
    Folded(String, Vec<(In, Block)>),
}

/// A heading. Its level is 2 or 3: the title is 1.
#[derive(Default)]
pub struct Heading {
    pub level: u8,
    pub text: String,
    /// What is said beside it, where there is room on its line.
    pub aside: Option<String>,
    /// How far in it stands on a terminal, and its other lines where it has more than one.
    pub indent: usize,
    pub hang: usize,
    /// By what a link leads here.
    pub id: Option<String>,
}

/// What sort of paragraph it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Explains, and says less than the others on a page.
    Aside,
    /// Says less everywhere.
    Dim,
    /// To be seen before the figures; a page has it in a box.
    Notice,
    /// The same with a sign: what may be concluded, and what not.
    Warning,
    /// What must be known of the figures above.
    Doubt,
}

/// A paragraph.
pub struct Paragraph {
    pub kind: Kind,
    pub at: At,
    pub text: Text,
}

/// A list of entries: what each begins with, mostly nothing, and what it says. One aside explains what is beside it.
pub struct List {
    pub at: At,
    pub aside: bool,
    pub entries: Vec<(String, Text)>,
}

/// What becomes of a name that is too long for a terminal, or of what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The name stands above what it is.
    Above,
    /// The name pushes it to the right.
    Pushes,
    /// The name is to be typed: it is not broken, and stands above.
    Command,
    /// Both have one line, and what has no room there is left out.
    Cut,
}

/// Names and what each of them is. A name that says nothing goes on with the one before.
pub struct Pairs {
    /// How far in the names stand on a terminal, and the columns of a name with the gap behind it.
    pub indent: usize,
    pub width: usize,
    pub long: Name,
    pub pairs: Vec<(In, Text, String)>,
}

/// What a reader is told first.
#[derive(Default)]
pub struct Head {
    /// What it is about, where there are several.
    pub name: Option<String>,
    /// The figure that a page has in large letters, and what is said of it in small ones.
    pub figure: Option<(String, Text)>,
    /// The same in a sentence, what explains that, and what it is made of.
    pub text: String,
    pub about: Option<String>,
    pub lines: Vec<String>,
    /// The figure drawn on a scale: its value and interval, and what all of the scale is.
    pub gauge: Option<(f64, Option<Interval>, &'static str)>,
}

/// Ways to make a change: for whom, and how.
pub type Ways = Vec<(&'static str, String)>;

/// What is to be changed, and why.
#[derive(Default)]
pub struct Card {
    pub title: String,
    /// How much it matters, and by which rule.
    pub found: Option<(Severity, String)>,
    /// What it is about, and the cause.
    pub cause: Option<(String, String)>,
    /// The settings that it rests on, each with where it was read.
    pub evidence: Vec<(String, String)>,
    /// What the change may bring, and who says so.
    pub expected: Option<(String, String)>,
    /// The change in words, and how it is made.
    pub change: Option<String>,
    pub made: Option<Made>,
    /// Where more is said.
    pub references: Vec<String>,
    /// In which run `--prove` showed something, and what.
    pub proof: Option<(i64, String)>,
}

/// How a change is made.
pub struct Made {
    /// The ways that are shown, the reader's own first, and those that a page shows on request.
    pub ways: Ways,
    pub elsewhere: Ways,
    /// What must be known of those ways.
    pub remark: Option<&'static str>,
    /// When the change is in force.
    pub takes: &'static str,
}

/// Drawings: each series with its name, and each drawing with what stands above it; one alone may have nothing there,
/// and is as wide as the page.
pub struct Plots {
    pub legend: Vec<(usize, String)>,
    pub drawings: Vec<(String, Drawing)>,
}

/// A drawing, as data.
pub enum Drawing {
    /// Latency by percentile: the curves, a title, and what took so long.
    Latency(Vec<Curve>, String, &'static str),
    Lines(Plot),
}

/// A heading with nothing beside it.
pub fn heading(level: u8, text: impl Into<String>) -> Block {
    Block::Heading(Heading { level, text: text.into(), hang: 2, ..Heading::default() })
}

/// A paragraph of some sort.
pub fn paragraph(kind: Kind, at: At, text: impl Into<Text>) -> Block {
    Block::Paragraph(Paragraph { kind, at, text: text.into() })
}

/// A paragraph.
pub fn say(at: At, text: impl Into<Text>) -> Block {
    paragraph(Kind::Plain, at, text)
}

/// A paragraph that explains.
pub fn aside(at: At, text: impl Into<Text>) -> Block {
    paragraph(Kind::Aside, at, text)
}

/// A list.
pub fn list<T: Into<Text>>(at: At, entries: impl IntoIterator<Item = T>) -> Block {
    let entries = entries.into_iter().map(|text| (String::new(), text.into())).collect();
    Block::List(List { at, aside: false, entries })
}

/// A list that explains what is beside it.
pub fn remarks<T: Into<Text>>(at: At, entries: impl IntoIterator<Item = (String, T)>) -> Block {
    let entries = entries.into_iter().map(|(lead, text)| (lead, text.into())).collect();
    Block::List(List { at, aside: true, entries })
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Block::Table(Box::new(table))
    }
}
