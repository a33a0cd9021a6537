//! Requests that are repeated: a link that is cut for some seconds ends no transfer.

use std::time::Duration;

use super::{Error, Result};

/// How often a request is made at most. The pauses between add up to 15.5 s.
const ATTEMPTS: u32 = 6;
const FIRST: Duration = Duration::from_millis(500);

/// Repeats a request while its error may pass. The closure is told how often it was made before.
pub(super) fn with_retries<T>(pause: &dyn Fn(Duration), mut request: impl FnMut(u32) -> Result<T>) -> Result<T> {
    let mut wait = FIRST;
    for before in 0..ATTEMPTS - 1 {
        match request(before) {
            Err(why) if Error::is_passing(&why) => pause(wait),
            outcome => return outcome,
        }
        wait *= 2;
    }
    request(ATTEMPTS - 1)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn outcome(passing: u32, last: fn() -> Result<u32>) -> (Result<u32>, Vec<u64>) {
        let waits = RefCell::new(Vec::new());
        let late = || Err(Error::Late { server: "S".into() });
        let pause = |wait: Duration| waits.borrow_mut().push(wait.as_millis() as u64);
        let got = with_retries(&pause, |before| if before < passing { late() } else { last() });
        (got, waits.into_inner())
    }

    #[test]
    fn only_what_may_pass_is_repeated_and_not_for_ever() {
        assert!(matches!(outcome(0, || Ok(7)), (Ok(7), waits) if waits.is_empty()));
        assert!(matches!(outcome(2, || Ok(7)), (Ok(7), waits) if waits == [500, 1000]));
        assert!(
            matches!(outcome(1, || Err(Error::NoCredentials)), (Err(Error::NoCredentials), waits) if waits == [500])
        );
        let (got, waits) = outcome(99, || Ok(7));
        assert!(matches!(got, Err(Error::Late { .. })));
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000]);
    }

    #[test]
    fn errors_of_a_busy_server_may_pass() {
        let status = |status, code: &str| Error::Status { server: "S".into(), status, code: code.into() };
        assert!(status(503, "SlowDown").is_passing() && status(400, "RequestTimeout").is_passing());
        assert!(!status(400, "InvalidArgument").is_passing() && !status(501, "NotImplemented").is_passing());
        assert!(!Error::Full { server: "S".into(), code: "X".into() }.is_passing());
    }
}
