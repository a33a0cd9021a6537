//! Words of a document, and what stands out among them.

/// A piece of a text, as it was said: renderers escape it.
#[derive(Debug, Clone, PartialEq)]
pub enum Span {
    Plain(String),
    /// Stands out where there is room; on a terminal it does not.
    Strong(String),
    /// Stands out everywhere.
    Bold(String),
    /// Says less than the others.
    Dim(String),
    /// A word of caution.
    Tag(String),
    /// Leads to the heading of that name: the name, and the words.
    Link(String, String),
    /// A new line on a page; elsewhere this stands between what was said and what follows.
    Break(&'static str),
}

impl Span {
    /// Its words.
    pub fn said(&self) -> &str {
        match self {
            Span::Plain(said) | Span::Strong(said) | Span::Bold(said) | Span::Dim(said) | Span::Tag(said) => said,
            Span::Link(_, said) => said,
            Span::Break(instead) => instead,
        }
    }
}

/// Words in one line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Text(pub Vec<Span>);

impl Text {
    /// With more behind it.
    pub fn and(mut self, span: Span) -> Self {
        self.0.push(span);
        self
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.said().is_empty())
    }

    /// All of its words.
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
