//! What goes wrong with advice, for those who read of a test that failed.

/// The kinds of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The text is of no form that is known, or names nothing that is there.
    Form,
    /// A program, the monitor or the system refused.
    Refused,
    /// What was read back is not as it is to be.
    Differs,
}

/// What went wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{said}")]
pub struct Wrong {
    pub kind: Kind,
    pub said: String,
}

impl Wrong {
    /// The same in other words.
    pub fn told(self, words: impl FnOnce(&str) -> String) -> Wrong {
        Wrong { said: words(&self.said), ..self }
    }
}

pub fn form(said: impl Into<String>) -> Wrong {
    Wrong { kind: Kind::Form, said: said.into() }
}

pub fn refused(said: impl Into<String>) -> Wrong {
    Wrong { kind: Kind::Refused, said: said.into() }
}

pub fn differs(said: impl Into<String>) -> Wrong {
    Wrong { kind: Kind::Differs, said: said.into() }
}

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Wrong {
        refused(error.to_string())
    }
}
