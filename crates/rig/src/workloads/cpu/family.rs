//! The four of STREAM by their names, each with the size of its arrays: `stream-triad-128m`. What size says something
//! depends on the caches of the machine: STREAM asks for arrays of four times the last level each.

use std::borrow::Cow;

use vmio_look::require::Requirement;
use vmio_model::figure::Unit;
use vmio_model::study::{Family, SubjectKind, WordError};
use vmio_node::cpu::STREAM_ARRAYS;

use super::STREAM;
use super::kernels::{KERNELS, Kernel};

/// How the names are made.
pub const GRAMMAR: &str = "stream-<copy|scale|add|triad>-<n>m";

/// The family as the reader of studies needs it.
pub const FAMILY: Family = Family {
    grammar: GRAMMAR,
    example: "stream-triad-128m",
    recognise: |word| Some(parse(word)?.map(|_| ())),
    works_on: SubjectKind::Machine,
};

/// The family's kinds as `doctor` shows them: name, one line, what they need.
pub const KINDS: &[(&str, &str, &[Requirement])] = &[(
    GRAMMAR,
    "vmio-cpu: a kernel of STREAM over three arrays of n MiB, one core, such as stream-triad-128m",
    &[KERNELS],
)];

/// The word of each in a name, the program's kernel, and what it does.
pub(super) const OPERATIONS: [(&str, &str, &str); 4] = [
    ("copy", "stream-copy", "vmio-cpu: STREAM's copy, c = a, one core"),
    ("scale", "stream-scale", "vmio-cpu: STREAM's scale, b = s c, one core"),
    ("add", "stream-add", "vmio-cpu: STREAM's add, c = a + b, one core"),
    ("triad", "stream-triad", "vmio-cpu: STREAM's triad, a = b + s c, one core"),
];

/// Largest array.
const MOST_MIB: u64 = 16384;

/// The workload of that name: `None` when the word is not of the family at all, `Some(Err)` when it is meant to be, with
/// what is wrong.
pub fn parse(word: &str) -> Option<Result<Kernel, WordError>> {
    let rest = word.strip_prefix("stream-")?;
    let (operation, size) = rest.split_once('-').unwrap_or((rest, ""));
    Some(kernel(operation, size).and_then(|found| {
        let other = WordError(format!("write it as `{}`: each has exactly one name", found.name));
        if found.name == word { Ok(found) } else { Err(other) }
    }))
}

fn kernel(operation: &str, size: &str) -> Result<Kernel, WordError> {
    let lower = operation.to_ascii_lowercase();
    let found = OPERATIONS.iter().find(|(word, ..)| *word == lower);
    let unknown = || WordError(format!("`{operation}`: one of copy, scale, add and triad"));
    let (_, kernel, about) = found.ok_or_else(unknown)?;
    let digits = size.to_ascii_lowercase().strip_suffix('m').map(str::to_owned);
    let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let mib: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        WordError(format!(
            "invalid size `{size}`: whole MiB of each of the {STREAM_ARRAYS} arrays, as in stream-{lower}-128m"
        ))
    })?;
    if !(1..=MOST_MIB).contains(&mib) {
        return Err(WordError(format!("the size is out of range: 1m to {MOST_MIB}m")));
    }
    Ok(Kernel {
        name: Cow::Owned(format!("{kernel}-{mib}m")),
        about,
        group: STREAM,
        kernel,
        bytes: Some(mib << 20),
        unit: Unit::BytesPerSecond,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workloads::find;

    #[test]
    fn a_name_says_it_all() {
        for (word, ..) in OPERATIONS {
            let name = format!("stream-{word}-32m");
            let kernel = parse(&name).unwrap().unwrap();
            assert_eq!((&*kernel.name, kernel.bytes), (&*name, Some(32 << 20)));
            assert_eq!(find(&name).unwrap().traits().group.as_deref(), Some(STREAM));
        }
    }

    #[test]
    fn near_misses_are_told_what_is_wrong() {
        for (word, says) in [
            ("stream-", "``: one of copy"),
            ("stream-read-4m", "`read`: one of copy"),
            ("stream-copy", "invalid size ``"),
            ("stream-copy-4", "invalid size `4`"),
            ("stream-copy-4k", "invalid size `4k`"),
            ("stream-copy-m", "invalid size `m`"),
            ("stream-copy-0m", "out of range"),
            ("stream-copy-16385m", "out of range"),
            ("stream-copy-04m", "write it as `stream-copy-4m`"),
            ("stream-Copy-4M", "write it as `stream-copy-4m`"),
        ] {
            let WordError(said) = parse(word).unwrap().unwrap_err();
            assert!(said.contains(says), "{word}: {said}");
            assert!(find(word).is_none(), "{word}");
        }
        assert!(["streams", "lu", "udp-1mbit-64"].iter().all(|other| parse(other).is_none()));
    }
}
