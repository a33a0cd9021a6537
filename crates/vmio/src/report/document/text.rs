//! Texts of a document: pieces of text, each with how it stands out.

/// A colour of a terminal; other forms have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Cyan,
    Yellow,
    Dim,
}

/// A piece of a text, not escaped: renderers do that.
#[derive(Debug, Clone, PartialEq)]
pub enum Span {
    Plain(String),
    /// Bold in Markdown and on a page.
    Strong(String),
    /// Bold everywhere.
    Bold(String),
    /// Less important than the others.
    Dim(String),
    /// A word of caution.
    Tag(String),
    /// In a colour on a terminal: a cell of a bar, a word of caution.
    Mark(Colour, String),
    /// A link to the heading of that name: the name, and the words.
    Link(String, String),
    /// A new line on a page; the other forms have this separator in its place.
    Break(&'static str),
}

impl Span {
    /// Its text without style.
    pub fn said(&self) -> &str {
        match self {
            Span::Plain(said) | Span::Strong(said) | Span::Bold(said) | Span::Dim(said) | Span::Tag(said) => said,
            Span::Mark(_, said) | Span::Link(_, said) => said,
            Span::Break(instead) => instead,
        }
    }
}

/// A text of one line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Text(pub Vec<Span>);

impl Text {
    /// With one more piece at the end.
    pub fn and(mut self, span: Span) -> Self {
        self.0.push(span);
        self
    }

    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.said().is_empty())
    }

    /// All of it without style.
    pub fn plain(&self) -> String {
        self.0.iter().map(Span::said).collect()
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(said: T) -> Self {
        Text(vec![Span::Plain(said.into())])
    }
}

impl From<Span> for Text {
    fn from(span: Span) -> Self {
        Text(vec![span])
    }
}
