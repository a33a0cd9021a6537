//! Kind of a run. Store and exports have one word for it, which is parsed here only.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kind of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// A study by name: `quick`, `shafer2010-storage`, a file's.
    Study(String),
    /// A study compared with itself (A/A) to measure noise; the study's name.
    Noise(String),
    /// A finding's set-up with and without its change; the number of the run with the finding.
    Proof(i64),
    /// A running guest's set-up, and the changes that its findings advise; the guest's name without spaces.
    Like(String),
}

const NOISE: &str = "noise-";
const PROOF: &str = "prove-";
const LIKE: &str = "like-";

impl RunKind {
    /// A run like this guest.
    pub fn like(guest: &str) -> Self {
        RunKind::Like(guest.replace(char::is_whitespace, "-"))
    }

    /// Name of an unchanged study; `None` for runs with another purpose.
    pub fn study(&self) -> Option<&str> {
        match self {
            RunKind::Study(name) => Some(name),
            RunKind::Noise(_) | RunKind::Proof(_) | RunKind::Like(_) => None,
        }
    }

    /// Whether cells can differ by a change; not where each is compared with itself.
    pub fn compares_cells(&self) -> bool {
        match self {
            RunKind::Study(_) | RunKind::Proof(_) | RunKind::Like(_) => true,
            RunKind::Noise(_) => false,
        }
    }
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunKind::Study(name) => f.write_str(name),
            RunKind::Noise(study) => write!(f, "{NOISE}{study}"),
            RunKind::Proof(run) => write!(f, "{PROOF}{run}"),
            RunKind::Like(guest) => write!(f, "{LIKE}{guest}"),
        }
    }
}

impl From<&str> for RunKind {
    /// Parses the word that [`fmt::Display`] writes.
    fn from(word: &str) -> Self {
        let number = |text: &str| text.parse::<i64>().ok().filter(|n| n.to_string() == text);
        let proof = || word.strip_prefix(PROOF).and_then(number).map(RunKind::Proof);
        let noise = || word.strip_prefix(NOISE).map(|study| RunKind::Noise(study.to_owned()));
        let like = || word.strip_prefix(LIKE).map(|guest| RunKind::Like(guest.to_owned()));
        proof().or_else(noise).or_else(like).unwrap_or_else(|| RunKind::Study(word.to_owned()))
    }
}

crate::schema::as_text!(RunKind);

impl Serialize for RunKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|word| word.as_str().into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_the_kind_and_comes_out_as_it_went_in() {
        let words = [
            ("quick", RunKind::Study("quick".into())),
            ("noise-quick", RunKind::Noise("quick".into())),
            ("prove-12", RunKind::Proof(12)),
            ("prove-it", RunKind::Study("prove-it".into())),
            ("prove-012", RunKind::Study("prove-012".into())),
            ("like-web-1", RunKind::like("web 1")),
            ("likely", RunKind::Study("likely".into())),
            ("noise", RunKind::Study("noise".into())),
            ("", RunKind::Study(String::new())),
        ];
        for (word, kind) in words {
            assert_eq!((RunKind::from(word), kind.to_string()), (kind.clone(), word.to_owned()));
            assert_eq!(serde_json::from_value::<RunKind>(serde_json::to_value(&kind).unwrap()).unwrap(), kind);
        }
    }
}
