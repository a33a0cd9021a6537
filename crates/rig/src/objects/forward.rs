//! One object over HTTP on a Unix socket, for `nbdkit`'s curl plugin. The plugin asks for the size (HEAD) and for ranges
//! (GET), which a signed URL cannot do both, since a signature is for one method. Here each request is signed as it
//! is made, so that neither the key nor a URL that works without it is told to another program.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::mem::{Discriminant, discriminant};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::retry::with_retries;
use super::{Error, Result, Span, Stat, Store, file_error};

/// Most connections at once. The plugin has one for each of its clients.
const MOST_CONNECTIONS: usize = 16;
/// Longest head of a request.
const MOST_HEAD_BYTES: usize = 8 << 10;
/// Before a connection is taken again after none could be.
const PAUSE: Duration = Duration::from_millis(100);
const NOT_UNDERSTOOD: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const NOT_READ: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";

/// Told why bytes cannot be had.
pub type Tell = Box<dyn Fn(&Error) + Send + Sync>;

/// The object that is asked for.
pub(super) struct Object {
    store: Arc<dyn Store + Send>,
    key: String,
    size_bytes: u64,
    /// Its bytes are of one object, also if another takes its name.
    etag: String,
    pause: fn(Duration),
    tell: Tell,
    /// Which kinds of errors were told: neither a guest that reads again and again nor a server that says something
    /// else each time fills the terminal.
    told: Mutex<HashSet<Discriminant<Error>>>,
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Size,
    Bytes(Span),
}

impl Object {
    /// The object as it is now.
    pub(super) fn find(store: Arc<dyn Store + Send>, key: &str, pause: fn(Duration), tell: Tell) -> Result<Self> {
        let Stat { size_bytes, etag } = with_retries(&pause, |_| store.stat(key))?;
        let nameless = || Error::Nonsense { server: store.server(), why: "an object without ETag".to_owned() };
        let etag = etag.ok_or_else(nameless)?;
        Ok(Object { store, key: key.to_owned(), size_bytes, etag, pause, tell, told: Mutex::default() })
    }

    /// Answers at a socket until the process ends.
    pub(super) fn serve(self, socket: &Path) -> Result<()> {
        let listener = UnixListener::bind(socket).map_err(file_error("listen at", socket))?;
        let (object, open) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let (object, open) = (Arc::clone(&object), Arc::clone(&open));
                if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                thread::spawn(move || {
                    // Who asked has gone.
                    let _ = object.talk(stream);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(())
    }

    /// Answers one request after the other.
    fn talk(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut said = Vec::new();
        while let Some(head) = head(&mut stream, &mut said)? {
            match asked(&head, self.size_bytes) {
                Some(Asked::Size) => {
                    let size = self.size_bytes;
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nAccept-Ranges: bytes\r\n\r\n");
                    stream.write_all(answer.as_bytes())?;
                }
                Some(Asked::Bytes(span)) => {
                    if !self.answer(span, &mut stream)? {
                        return Ok(());
                    }
                }
                None => return stream.write_all(NOT_UNDERSTOOD.as_bytes()),
            }
        }
        Ok(())
    }

    /// Passes on bytes as they come. Where some are missing nothing takes their place: an answer that has begun is cut
    /// off, and this is false.
    fn answer(&self, span: Span, stream: &mut UnixStream) -> io::Result<bool> {
        let Span { from, bytes } = span;
        let range = format!("{from}-{}/{}", from + bytes - 1, self.size_bytes);
        let size = format!("Content-Length: {bytes}\r\nContent-Range: bytes {range}\r\n");
        let begin = format!("HTTP/1.1 206 Partial Content\r\n{size}\r\n");
        let (mut sent, mut gone) = (0, None);
        let done = with_retries(&self.pause, |_| {
            let left = Span { from: from + sent, bytes: bytes - sent };
            if left.bytes == 0 {
                return Ok(());
            }
            self.store.range(&self.key, left, Some(&self.etag), &mut |some| {
                let head = if sent == 0 { begin.as_bytes() } else { &[] };
                match stream.write_all(head).and_then(|()| stream.write_all(some)) {
                    Ok(()) => {
                        sent += some.len() as u64;
                        Ok(())
                    }
                    Err(e) => {
                        gone = Some(e.kind());
                        Err(file_error("answer", Path::new("nbdkit"))(e))
                    }
                }
            })
        });
        if let Some(kind) = gone {
            return Err(kind.into());
        }
        let Err(why) = done else { return Ok(true) };
        self.tell_once(&why);
        if sent == 0 {
            stream.write_all(NOT_READ.as_bytes())?;
        }
        Ok(sent == 0)
    }

    fn tell_once(&self, why: &Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(discriminant(why)) {
            (self.tell)(why);
        }
    }
}

/// The head of the next request; `None` when there is no more.
fn head(stream: &mut UnixStream, said: &mut Vec<u8>) -> io::Result<Option<String>> {
    let mut some = [0; 4096];
    loop {
        if let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(String::from_utf8(said.drain(..end + 4).collect()).ok());
        }
        if said.len() > MOST_HEAD_BYTES {
            return Ok(None);
        }
        match stream.read(&mut some)? {
            0 => return Ok(None),
            read => said.extend_from_slice(&some[..read]),
        }
    }
}

/// What a request asks of an object of that size (RFC 9110, section 14.1.2); `None` for all that the plugin never asks.
fn asked(head: &str, size_bytes: u64) -> Option<Asked> {
    let mut lines = head.lines();
    let method = lines.next()?.split(' ').next()?;
    let range = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("range").then(|| value.trim())
    });
    match (method, range) {
        ("HEAD", _) => Some(Asked::Size),
        ("GET", Some(range)) => {
            let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
            let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
            (from <= to && to < size_bytes).then(|| Asked::Bytes(Span { from, bytes: to - from + 1 }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::fake::Fake;
    use super::*;

    /// A connection with an object of a store, and what was told.
    fn connected(store: &Arc<Fake>, key: &str) -> (tempfile::TempDir, UnixStream, Arc<Mutex<Vec<String>>>) {
        let (dir, told) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let list = Arc::clone(&told);
        let tell: Tell = Box::new(move |why| list.lock().unwrap().push(why.to_string()));
        let socket = dir.path().join("s");
        Object::find(store.clone(), key, |_| (), tell).unwrap().serve(&socket).unwrap();
        let stream = UnixStream::connect(&socket).unwrap();
        (dir, stream, told)
    }

    /// Sends a request; the head of its answer, and so many bytes behind it.
    fn ask(stream: &mut UnixStream, line: &str, bytes: usize) -> (String, Vec<u8>) {
        stream.write_all(format!("{line}\r\nHost: image\r\n\r\n").as_bytes()).unwrap();
        let (mut said, mut one) = (Vec::new(), [0]);
        while !said.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut one).unwrap();
            said.push(one[0]);
        }
        let mut body = vec![0; bytes];
        stream.read_exact(&mut body).unwrap();
        (String::from_utf8(said).unwrap(), body)
    }

    fn stored() -> (Arc<Fake>, Vec<u8>) {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let store = Arc::new(Fake::default());
        store.put("disk", &bytes).unwrap();
        (store, bytes)
    }

    #[test]
    fn size_and_ranges_are_answered_on_one_connection() {
        let (store, bytes) = stored();
        let (_dir, mut stream, told) = connected(&store, "disk");
        let (head, _) = ask(&mut stream, "HEAD /disk HTTP/1.1", 0);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 400000\r\nAccept-Ranges: bytes\r\n"), "{head}");
        let (head, body) = ask(&mut stream, "GET /disk HTTP/1.1\r\nRange: bytes=5-350004", 350_000);
        assert!(head.contains("206 ") && head.contains("Content-Range: bytes 5-350004/400000\r\n"), "{head}");
        assert_eq!(body, bytes[5..350_005]);
        let (_, body) = ask(&mut stream, "GET /disk HTTP/1.1\r\nrange: bytes=399999-399999", 1);
        assert_eq!(body, bytes[399_999..]);
        let (head, _) = ask(&mut stream, "GET /disk HTTP/1.1\r\nRange: bytes=0-400000", 0);
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is closed");
        assert!(told.lock().unwrap().is_empty());
        let nowhere = Object::find(Arc::new(Fake::default()), "disk", |_| (), Box::new(|_| ()));
        assert!(matches!(nowhere.err(), Some(Error::NotThere { .. })));
    }

    #[test]
    fn bytes_that_cannot_be_had_are_an_error_that_is_told_once() {
        let (store, _) = stored();
        store.cut_after(0);
        let (_dir, mut stream, told) = connected(&store, "disk");
        for _ in 0..2 {
            let (head, _) = ask(&mut stream, "GET /disk HTTP/1.1\r\nRange: bytes=0-9", 0);
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        }
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && told[0].contains("it is cut"), "{told:?}");
    }

    #[test]
    fn a_server_that_says_something_else_each_time_is_told_of_once() {
        let (store, _) = stored();
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        let tell: Tell = Box::new(move |why| list.lock().unwrap().push(why.to_string()));
        let object = Object::find(store, "disk", |_| (), tell).unwrap();
        for code in ["One", "Two"] {
            object.tell_once(&Error::Status { server: "S".into(), status: 400, code: code.into() });
        }
        object.tell_once(&Error::Late { server: "S".into() });
        let told = told.lock().unwrap();
        assert!(told.len() == 2 && told[0].contains("One") && told[1].contains("in time"), "{told:?}");
    }

    #[test]
    fn an_answer_that_breaks_off_goes_on_or_is_cut_and_never_is_of_another_object() {
        let (store, bytes) = stored();
        let (dir, mut stream, told) = connected(&store, "disk");
        store.end_answers_after(Some(90_000));
        let all = "GET /disk HTTP/1.1\r\nRange: bytes=0-399999";
        let (head, body) = ask(&mut stream, all, 400_000);
        assert!(head.contains("Content-Length: 400000\r\n") && body == bytes, "{head}");
        // Six answers do not have all of it.
        store.end_answers_after(Some(50_000));
        stream.write_all(format!("{all}\r\n\r\n").as_bytes()).unwrap();
        let mut cut = Vec::new();
        stream.read_to_end(&mut cut).unwrap();
        assert!(cut.ends_with(&bytes[250_000..300_000]), "{} bytes", cut.len());
        assert_eq!(told.lock().unwrap().len(), 1);
        // Another connection, and an object of the same size.
        store.end_answers_after(None);
        let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
        store.put("disk", &vec![1; bytes.len()]).unwrap();
        let (head, _) = ask(&mut stream, all, 0);
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert!(told.lock().unwrap()[1].contains("has another object as disk now"));
    }
}
