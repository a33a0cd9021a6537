//! The tables of a document. Columns and rows are in one order, which all forms have; a column may be left out of a
//! form, and of a terminal, which is narrow, a table says how it is laid out there.

use vmio_model::rules::Severity;
use vmio_model::stats::Interval;

use super::{In, Text};

/// How the cells of a column stand: numbers to the right, words to the left, and those that are long in several lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Right,
    Left,
    Words,
}

/// A column, after that of the labels.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its head where there is room, and a word below that.
    pub head: String,
    pub small: &'static str,
    /// Its head on a terminal, in two lines where a line feed is in it.
    pub narrow: String,
    pub align: Align,
    /// Columns of a terminal that stay empty before it, and those that it has.
    pub gap: usize,
    pub width: usize,
    /// Whether a terminal has no space before a percent sign.
    pub tight: bool,
    /// Where it is shown.
    pub shown: In,
    /// Whether a page has a bar beside each cell.
    pub bars: bool,
    /// Whether a terminal has each of its cells on a line of its own below the row, under this head: in the column that
    /// has bars, and what is said aside in the next.
    pub below: bool,
}

impl Column {
    /// A column of numbers, so wide on a terminal.
    pub fn new(head: impl Into<String>, width: usize) -> Self {
        let head = head.into();
        let (narrow, small, align, shown) = (head.clone(), "", Align::Right, In::ALL);
        Self { head, small, narrow, align, gap: 0, width, tight: false, shown, bars: false, below: false }
    }

    pub fn left(self) -> Self {
        Self { align: Align::Left, ..self }
    }

    pub fn small(self, small: &'static str) -> Self {
        Self { small, ..self }
    }

    pub fn narrow(self, head: impl Into<String>) -> Self {
        Self { narrow: head.into(), ..self }
    }

    pub fn gap(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    pub fn tight(self) -> Self {
        Self { tight: true, ..self }
    }

    pub fn only(self, shown: In) -> Self {
        Self { shown, ..self }
    }
}

/// A bar beside a figure: `scale` is the value at full width, `series` whose colour it has, and the title is for
/// readers who do not see it.
#[derive(Debug, Clone)]
pub struct Bar {
    pub value: f64,
    pub interval: Option<Interval>,
    pub scale: f64,
    pub series: usize,
    pub title: String,
}

/// A cell. Its text is made once, with all numbers that are in it.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub text: Text,
    /// The same for a terminal, where that is another text, and for one that has no room for either.
    pub narrow: Option<String>,
    pub short: Option<String>,
    /// What is said beside it.
    pub aside: String,
    /// How much it matters.
    pub chip: Option<Severity>,
    /// Its bar, where the column has them.
    pub bar: Option<Bar>,
    /// How many columns it takes, itself and cells that say nothing behind it; 0 and 1 are the same.
    pub span: usize,
}

impl Cell {
    /// With another text on a terminal.
    pub fn narrow(self, text: impl Into<String>) -> Self {
        Self { narrow: Some(text.into()), ..self }
    }

    /// A text over so many columns, as as many cells.
    pub fn over(span: usize, text: impl Into<Text>) -> Vec<Cell> {
        let mut all = vec![Cell { text: text.into(), span, ..Cell::default() }];
        all.resize_with(span, Cell::default);
        all
    }
}

impl<T> From<T> for Cell
where
    Text: From<T>,
{
    fn from(text: T) -> Self {
        Cell { text: Text::from(text), ..Cell::default() }
    }
}

/// A row: what it is about, a cell for each column, of which the last ones may be missing, rows about its parts, and
/// what must be known of it. With no cell at all it is its label.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub label: Text,
    pub cells: Vec<Cell>,
    pub parts: Vec<Row>,
    pub notes: Vec<String>,
}

impl Row {
    /// A row without parts and notes.
    pub fn new<C: Into<Cell>>(label: impl Into<Text>, cells: impl IntoIterator<Item = C>) -> Self {
        Row { label: label.into(), cells: cells.into_iter().map(Into::into).collect(), ..Row::default() }
    }
}

/// What becomes of a label that is wider than its column on a terminal: it stands above its row, as far in or from the
/// first column on, or its middle is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Long {
    Above,
    Outside,
    Shortened,
}

/// What becomes of a cell that is wider than its column on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    /// It pushes what follows to the right.
    Pushes,
    /// It takes of the room before it.
    Takes,
    /// The same of the first column alone; where that has none to give, what follows it is on the next line.
    Breaks,
}

/// A step to make a table fit a terminal, each taken where those before it did not suffice: a column has its short
/// texts, is left out, or gives way but keeps so much. Columns are counted from that of the labels, which is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Short(usize),
    Drop(usize),
    Least(usize, usize),
}

/// How a table is laid out on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Columns that the labels have.
    pub label: usize,
    /// How far in the label of a row stands, and that of a part.
    pub indents: [usize; 2],
    pub long: Long,
    pub wide: Wide,
    /// What a note begins with, and how far in it goes on; whether it stands before the parts of its row.
    pub note: (&'static str, usize),
    pub early: bool,
    /// How columns that are as wide as what is in them fit; where it is empty they have their width.
    pub fit: &'static [Fit],
}

impl Layout {
    /// Labels have so many columns; the rest as most tables have it.
    pub const fn new(label: usize) -> Self {
        let (long, wide) = (Long::Above, Wide::Pushes);
        Layout { label, indents: [2, 4], long, wide, note: ("    ", 4), early: false, fit: &[] }
    }
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Head of the labels where there is room, and on a terminal.
    pub head: &'static str,
    pub narrow: String,
    /// The columns after that of the labels.
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub layout: Layout,
    /// Where the heads of its columns are shown.
    pub heads: In,
    /// Head of the notes in Markdown, which has a column for them; empty: a terminal alone shows them.
    pub marks: &'static str,
    /// What it is, for readers who hear it; mostly empty.
    pub label: String,
}

impl Table {
    /// A table without rows yet.
    pub fn new(head: &'static str, layout: Layout, columns: impl IntoIterator<Item = Column>) -> Self {
        let (columns, rows) = (columns.into_iter().collect(), Vec::new());
        let (narrow, label) = (String::new(), String::new());
        Table { head, narrow, columns, rows, layout, heads: In::ALL, marks: "", label }
    }

    /// With these rows.
    pub fn with(self, rows: impl IntoIterator<Item = Row>) -> Self {
        Table { rows: rows.into_iter().collect(), ..self }
    }

    /// The columns of a form, with their places among all.
    pub fn columns_in(&self, form: In) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(move |(_, column)| column.shown.has(form))
    }
}
