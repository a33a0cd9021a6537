//! Waits for one of QEMU's programs: until it listens on a socket, or has ended.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::Output;

/// They make their sockets within some 0.1 s; a host under load needs longer.
const SOCKET_LIMIT: Duration = Duration::from_secs(15);
/// They end that soon after they refused an option or closed a socket.
const SOON: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);

/// Connects to a socket as soon as somebody listens: the file is there a moment before that.
/// `None` when the program ended first, or does not listen within a limit.
pub fn connect(socket: &Path, mut ended: impl FnMut() -> Option<Output>) -> io::Result<Option<UnixStream>> {
    let until = Instant::now() + SOCKET_LIMIT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(Some(stream)),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            Err(e) => return Err(e),
        }
        if ended().is_some() || Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Its output if it has ended, or ends soon: its sockets close a moment before.
pub fn ended_soon(mut ended: impl FnMut() -> Option<Output>) -> Option<Output> {
    let until = Instant::now() + SOON;
    loop {
        let output = ended();
        if output.is_some() || Instant::now() >= until {
            return output;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixListener;

    use vmio_node::End;

    use super::*;

    fn output() -> Output {
        Output { end: End::Exit(1), stdout: vec![], stderr: vec![], truncated: false }
    }

    #[test]
    fn a_socket_is_waited_for_as_long_as_its_program_lives() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("qmp");
        let mut looks = 0;
        let mut listener = None;
        let mut living = || {
            looks += 1;
            if looks == 3 {
                listener = Some(UnixListener::bind(&socket).unwrap());
            }
            None
        };
        assert!(connect(&socket, &mut living).unwrap().is_some());
        assert_eq!(looks, 3);
        assert!(connect(&dir.path().join("other"), || Some(output())).unwrap().is_none());
        assert!(connect(Path::new("/dev/null/qmp"), || None).is_err());
    }

    #[test]
    fn an_end_just_after_is_still_seen() {
        let mut looks = 0;
        let ended = ended_soon(|| {
            looks += 1;
            (looks == 3).then(output)
        });
        assert_eq!(ended, Some(output()));
        assert_eq!(ended_soon(|| None), None);
    }
}
