//! Errors of the system, as they cross a pipe.

use std::io;

use serde::{Deserialize, Serialize};

/// An error of the system, as it crosses a pipe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fault {
    os: Option<i32>,
    kind: Kind,
    said: String,
}

/// The kinds that callers tell apart and that no number of the system stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    InvalidInput,
    FileTooLarge,
    PermissionDenied,
    NotFound,
    TimedOut,
    Other,
}

impl From<&io::Error> for Fault {
    fn from(e: &io::Error) -> Self {
        let kind = match e.kind() {
            io::ErrorKind::InvalidInput => Kind::InvalidInput,
            io::ErrorKind::FileTooLarge => Kind::FileTooLarge,
            io::ErrorKind::PermissionDenied => Kind::PermissionDenied,
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::TimedOut => Kind::TimedOut,
            _ => Kind::Other,
        };
        Self { os: e.raw_os_error(), kind, said: e.to_string() }
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        if let Some(number) = fault.os {
            return io::Error::from_raw_os_error(number);
        }
        let kind = match fault.kind {
            Kind::InvalidInput => io::ErrorKind::InvalidInput,
            Kind::FileTooLarge => io::ErrorKind::FileTooLarge,
            Kind::PermissionDenied => io::ErrorKind::PermissionDenied,
            Kind::NotFound => io::ErrorKind::NotFound,
            Kind::TimedOut => io::ErrorKind::TimedOut,
            Kind::Other => io::ErrorKind::Other,
        };
        io::Error::new(kind, fault.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_tell_apart_comes_back() {
        use io::ErrorKind::{FileTooLarge, InvalidInput, NotFound, PermissionDenied, TimedOut};
        let same = |e: &io::Error| io::Error::from(Fault::from(e));
        let gone = same(&io::Error::from_raw_os_error(2));
        assert_eq!((gone.kind(), gone.raw_os_error()), (NotFound, Some(2)));
        for kind in [InvalidInput, FileTooLarge, PermissionDenied, TimedOut, NotFound] {
            let back = same(&io::Error::new(kind, "so it is"));
            assert_eq!((back.kind(), back.to_string().as_str()), (kind, "so it is"));
        }
    }
}
