//! Errors of the system, as they cross a line.

use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};

/// The kinds that callers tell apart and that no number of the system stands for.
const KINDS: [ErrorKind; 5] = [
    ErrorKind::InvalidInput,
    ErrorKind::FileTooLarge,
    ErrorKind::PermissionDenied,
    ErrorKind::NotFound,
    ErrorKind::TimedOut,
];

/// An error of the system, as it crosses a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fault {
    os: Option<i32>,
    /// Of [`KINDS`].
    kind: Option<usize>,
    said: String,
}

impl From<&io::Error> for Fault {
    fn from(e: &io::Error) -> Self {
        let kind = KINDS.iter().position(|kind| *kind == e.kind());
        Self { os: e.raw_os_error(), kind, said: e.to_string() }
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        if let Some(number) = fault.os {
            return io::Error::from_raw_os_error(number);
        }
        let kind = fault.kind.and_then(|n| KINDS.get(n)).copied().unwrap_or(ErrorKind::Other);
        io::Error::new(kind, fault.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_tell_apart_comes_back() {
        let same = |e: &io::Error| io::Error::from(Fault::from(e));
        let gone = same(&io::Error::from_raw_os_error(2));
        assert_eq!((gone.kind(), gone.raw_os_error()), (ErrorKind::NotFound, Some(2)));
        for kind in KINDS.into_iter().chain([ErrorKind::Other]) {
            let back = same(&io::Error::new(kind, "so it is"));
            assert_eq!((back.kind(), back.to_string().as_str()), (kind, "so it is"));
        }
    }
}
