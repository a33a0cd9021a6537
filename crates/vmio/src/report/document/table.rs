//! The tables of a document. All forms have the same order of columns and rows; a form may leave out columns, and a
//! table says how a terminal, which is narrow, lays it out.

use vmio_model::rules::Severity;
use vmio_model::stats::Interval;

use super::{In, Text};

/// Alignment of a column: numbers to the right, words to the left, long texts in several lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Right,
    Left,
    Words,
}

/// A column; that of the labels is none.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its head in Markdown and on a page, and a word below that.
    pub head: String,
    pub small: &'static str,
    /// Its head on a terminal; a line feed separates two lines.
    pub narrow: String,
    pub align: Align,
    /// Spaces before it on a terminal, and its width.
    pub gap: usize,
    pub width: usize,
    /// Whether a terminal has no space before a percent sign.
    pub tight: bool,
    /// The forms that show it.
    pub shown: In,
    /// Whether a page has a bar beside each cell.
    pub bars: bool,
    /// Whether a terminal shows its cells on a line of their own below the row, labelled by its head: the text in the
    /// column of bars, the remark in the next one.
    pub below: bool,
    /// A terminal without room for the table leaves it out, that with the highest rank first; 0: never.
    pub rank: u8,
}

impl Column {
    /// A column of numbers, with that width on a terminal.
    pub fn new(head: impl Into<String>, width: usize) -> Self {
        let head = head.into();
        let (narrow, small, align, shown) = (head.clone(), "", Align::Right, In::ALL);
        Self { head, small, narrow, align, gap: 0, width, tight: false, shown, bars: false, below: false, rank: 0 }
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

    pub fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    pub fn only(self, shown: In) -> Self {
        Self { shown, ..self }
    }
}

/// A bar beside a figure: `from` is where it begins, `scale` is the value at full width, `series` whose colour it has,
/// and the title is for readers who do not see it.
#[derive(Debug, Clone)]
pub struct Bar {
    pub from: f64,
    pub value: f64,
    pub interval: Option<Interval>,
    pub scale: f64,
    pub series: usize,
    pub title: String,
}

/// A cell.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub text: Text,
    /// Another text for a terminal, and a shorter one for a narrow terminal.
    pub narrow: Option<String>,
    pub short: Option<String>,
    /// A remark beside it.
    pub aside: String,
    /// Severity.
    pub chip: Option<Severity>,
    /// Its bar, where the column has them.
    pub bar: Option<Bar>,
    /// How many columns it spans; the spanned cells are empty. 0 is the same as 1.
    pub span: usize,
}

impl Cell {
    /// With another text on a terminal.
    pub fn narrow(self, text: impl Into<String>) -> Self {
        Self { narrow: Some(text.into()), ..self }
    }

    /// A cell over `span` columns, with the empty cells that it spans.
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

/// A row: its label, a cell for each column (the last ones may be missing), rows of its parts, and notes. Without cells
/// only the label is shown.
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

/// How a terminal shows a label that is wider than its column: above its row, indented as the row or not at all, or
/// shortened in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Long {
    Above,
    Outside,
    Shortened,
}

/// How a terminal shows a cell that is wider than its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    /// It pushes the following cells to the right.
    Pushes,
    /// It takes room from the cells before it.
    Takes,
    /// It takes room from the first column only; where that is full, the other cells are on the next line.
    Breaks,
}

/// A step to fit a table into a terminal, taken where the steps before it did not suffice: a column gets its short
/// texts, is left out, or is narrowed to at least so much. The first number is the column; that of the labels is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Short(usize),
    Drop(usize),
    Least(usize, usize),
}

/// How a table is laid out on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Width of the labels.
    pub label: usize,
    /// Indentation of the label of a row, and of a part.
    pub indents: [usize; 2],
    pub long: Long,
    pub wide: Wide,
    /// Lead of a note and indentation of its further lines; whether notes come before the parts of their row.
    pub note: (&'static str, usize),
    pub early: bool,
    /// The steps by which columns as wide as their cells are fitted; where it is empty, columns have their own width.
    pub fit: &'static [Fit],
}

impl Layout {
    /// A layout as most tables have it.
    pub const fn new(label: usize) -> Self {
        let (long, wide) = (Long::Above, Wide::Pushes);
        Layout { label, indents: [2, 4], long, wide, note: ("    ", 4), early: false, fit: &[] }
    }

    /// The same without indentation of labels.
    pub const fn flush(label: usize) -> Self {
        Layout { indents: [0, 2], ..Layout::new(label) }
    }
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Head of the labels in Markdown and on a page, and on a terminal.
    pub head: &'static str,
    pub narrow: String,
    /// The columns without that of the labels.
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub layout: Layout,
    /// The forms that show the heads.
    pub heads: In,
    /// Head of the column of notes in Markdown; where it is empty, only a terminal shows notes.
    pub marks: &'static str,
    /// Its name for screen readers; mostly empty.
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

    /// The columns that a form shows, with their indices.
    pub fn columns_in(&self, form: In) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(move |(_, column)| column.shown.has(form))
    }
}
