//! Sessions with an agent in this process: how they begin, what goes on at once, and that
//! whatever ends them, nothing is left.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{sh, start_agent};
use vmio_node::proto::{Decoder, Hello, Item, Kind, READY, VERSION, encode};
use vmio_node::{At, Error, FileStat, Local, Node, Reader, Remote, SamplePlan};
use vmio_testbed::poll_until;

const SECOND: Duration = Duration::from_secs(1);

/// Makes all sorts of changes through `node`; returns a check that they are gone.
fn change_things(node: &Remote, dir: &Path) -> impl Fn() -> bool + use<> {
    let file = dir.join("made");
    node.write(&file, b"x", None).unwrap();
    let process = node.spawn(&sh("sleep 1000 & setsid sleep 1000 & wait")).unwrap();
    let pid = process.pid();
    std::mem::forget(process);
    let sampling = node.sample(&SamplePlan { paths: vec!["/proc/stat".into()], interval: SECOND }).unwrap();
    std::mem::forget(sampling);
    let children = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let count = || std::fs::read_to_string(&children).unwrap_or_default().split_whitespace().count();
    poll_until("both children run", || count() == 2);
    let pids: Vec<String> = std::fs::read_to_string(&children)
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .chain([pid.to_string()])
        .collect();
    move || {
        !file.exists()
            && pids.iter().all(|p| {
                std::fs::read(format!("/proc/{p}/cmdline")).is_ok_and(|c| c.is_empty())
                    || !Path::new(&format!("/proc/{p}")).exists()
            })
    }
}

#[test]
fn closed_stream_undoes_everything() {
    let dir = tempfile::tempdir().unwrap();
    let agent = start_agent();
    let node = agent.connect();
    let old = dir.path().join("old");
    std::fs::write(&old, "before").unwrap();
    node.write(&old, b"after", None).unwrap();
    let undone = change_things(&node, dir.path());
    assert!(!undone());
    agent.end();
    assert!(undone());
    assert_eq!(std::fs::read(old).unwrap(), b"after", "what was there before is not removed");
    let error = node.read(Path::new("/proc/uptime")).unwrap_err();
    assert!(matches!(&error, Error::Gone { node, .. } if node == "guest0"), "{error:?}");
}

#[test]
fn goodbye_undoes_everything() {
    let dir = tempfile::tempdir().unwrap();
    let agent = start_agent();
    for _ in 0..2 {
        let node = agent.connect();
        let undone = change_things(&node, dir.path());
        // The forgotten process and sampling still hold the session: close it in so many words.
        node.close().unwrap();
        assert!(undone());
    }
    agent.end();
}

#[test]
fn next_hello_ends_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let agent = start_agent();
    let first = agent.connect();
    let undone = change_things(&first, dir.path());
    // The second client comes while the first one never said goodbye, as after a SIGKILL. (Both
    // read the same socket here, so the first is not used any more.)
    let (mut wire, nonce) = (agent.stream.try_clone().unwrap(), 7);
    wire.write_all(&Hello { version: VERSION, nonce }.encode()).unwrap();
    poll_until("the first session is undone", &undone);
    agent.end();
    drop(first);
}

#[test]
fn waiting_requests_fail_when_the_agent_is_gone() {
    let agent = start_agent();
    let node = agent.connect();
    let mut process = node.spawn(&sh("sleep 1000")).unwrap();
    let waits = std::thread::spawn(move || process.wait(None));
    std::thread::sleep(Duration::from_millis(50));
    agent.end();
    assert!(matches!(waits.join().unwrap(), Err(Error::Gone { .. })));
    assert!(matches!(node.spawn(&sh("true")).err().unwrap(), Error::Gone { .. }));
}

#[test]
fn silence_and_closed_stream() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let halves = || -> vmio_node::Halves { (Box::new(ours.try_clone().unwrap()), Box::new(ours.try_clone().unwrap())) };
    let error = Remote::connect("guest0", halves(), Duration::from_millis(100)).err().unwrap().to_string();
    assert_eq!(error, "guest0: the agent is gone: no answer within 0.1 s");
    drop(theirs);
    let error = Remote::connect("guest0", halves(), SECOND).err().unwrap().to_string();
    assert!(error.contains("cannot send") || error.contains("stream ended"), "{error}");
}

#[test]
fn other_version_is_refused_by_both_sides() {
    // An agent of the future.
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let future = std::thread::spawn(move || {
        let mut hello = [0; 18];
        theirs.read_exact(&mut hello).unwrap();
        let nonce = u64::from_le_bytes(hello[10..].try_into().unwrap());
        theirs.write_all(&Hello { version: VERSION + 1, nonce }.encode()).unwrap();
        // What follows the hello of another version is not understood and must not be read.
        theirs.write_all(&[0xee; 100]).unwrap();
    });
    let halves = (Box::new(ours.try_clone().unwrap()) as _, Box::new(ours) as _);
    let error = Remote::connect("guest0", halves, 20 * SECOND).err().unwrap();
    assert!(matches!(&error, Error::Protocol { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("version {}, this vmio speaks {VERSION}", VERSION + 1)), "{error}");
    future.join().unwrap();

    // A client of the future gets the agent's version, and no session.
    let agent = start_agent();
    let mut wire = agent.stream.try_clone().unwrap();
    wire.write_all(&Hello { version: VERSION + 1, nonce: 5 }.encode()).unwrap();
    let mut answer = [0; 18];
    wire.read_exact(&mut answer).unwrap();
    assert_eq!(answer, Hello { version: VERSION, nonce: READY }.encode(), "the agent says that it is there");
    wire.read_exact(&mut answer).unwrap();
    assert_eq!(answer, Hello { version: VERSION, nonce: 5 }.encode());
    // The agent is still there for others.
    agent.connect().clock_seconds().unwrap();
    agent.end();
}

#[test]
fn restarted_agent_ends_the_session() {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        // The client's first hello came too early: it is lost. It says hello again when told.
        let mut hello = [0; 18];
        theirs.read_exact(&mut hello).unwrap();
        theirs.write_all(&Hello { version: VERSION, nonce: READY }.encode()).unwrap();
        theirs.read_exact(&mut hello).unwrap();
        theirs.write_all(&hello).unwrap();
        // Its first request is never answered; another agent takes over.
        theirs.read_exact(&mut hello).unwrap();
        theirs.write_all(&Hello { version: VERSION, nonce: READY }.encode()).unwrap();
        theirs
    });
    let halves = (Box::new(ours.try_clone().unwrap()) as _, Box::new(ours) as _);
    let node = Remote::connect("guest0", halves, 20 * SECOND).unwrap();
    let error = node.read(Path::new("/proc/uptime")).unwrap_err().to_string();
    assert!(error.contains("restarted"), "{error}");
    drop(agent.join().unwrap());
}

#[test]
fn leftovers_in_the_stream_are_skipped() {
    let agent = start_agent();
    let mut wire = agent.stream.try_clone().unwrap();
    // An earlier client was cut off within a large frame; before it somebody typed something.
    wire.write_all(b"login: root\r\n").unwrap();
    wire.write_all(&Hello { version: VERSION, nonce: 1 }.encode()).unwrap();
    let mut frame = Vec::new();
    encode(Kind::Data, 9, &vec![0; 500_000], &mut frame).unwrap();
    wire.write_all(&frame[..100_000]).unwrap();
    // The answer to that earlier client still lies in the line when this one comes.
    let node = agent.connect();
    assert_eq!(node.exec(&sh("echo here")).unwrap().out(), "here\n");
    node.close().unwrap();
    agent.end();
}

#[test]
fn garbage_ends_the_session_but_not_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let agent = start_agent();
    let node = agent.connect();
    let undone = change_things(&node, dir.path());
    agent.stream.try_clone().unwrap().write_all(&[0xff; 64]).unwrap();
    poll_until("garbage ends the session", &undone);
    let error = node.read(Path::new("/proc/uptime")).unwrap_err();
    assert!(error.to_string().contains("ended the session"), "{error}");
    agent.end();
}

#[test]
fn unknown_and_too_large_requests() {
    let agent = start_agent();
    let mut wire = agent.stream.try_clone().unwrap();
    wire.write_all(&Hello { version: VERSION, nonce: 3 }.encode()).unwrap();
    let mut bytes = Vec::new();
    encode(Kind::Request, 1, b"{\"teleport\":{}}", &mut bytes).unwrap();
    encode(Kind::Data, 77, b"of nobody", &mut bytes).unwrap();
    encode(Kind::End, 77, b"", &mut bytes).unwrap();
    encode(Kind::Request, 2, b"\"poweroff\"", &mut bytes).unwrap();
    wire.write_all(&bytes).unwrap();
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    while frames.len() < 2 {
        let mut piece = [0; 100];
        let n = wire.read(&mut piece).unwrap();
        decoder.push(&piece[..n]);
        while let Some(item) = decoder.next_item().unwrap() {
            if let Item::Frame(frame) = item {
                frames.push((frame.id, String::from_utf8(frame.payload).unwrap()));
            }
        }
    }
    assert!(frames[0].0 == 1 && frames[0].1.contains("does not know"), "{frames:?}");
    assert!(frames[1].0 == 2 && frames[1].1.contains("not the init"), "{frames:?}");
    agent.end();
    let agent = start_agent();
    let node = agent.connect();
    let error = node.exec(&sh("true").args(["x".repeat(2 << 20)])).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    assert!(node.exec(&sh("true")).unwrap().ok(), "the session goes on");
    assert!(node.poweroff().unwrap_err().to_string().contains("not the init"));
    drop(node);
    agent.end();
}

#[test]
fn foreign_files_by_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), "0123456789").unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let agent = start_agent();
    let (node, here) = (agent.connect(), Local::new());
    assert_eq!(node.read_start(&at("file"), 4).unwrap(), b"0123");
    assert_eq!(node.read_foreign(&at("file"), 10).unwrap(), b"0123456789");
    // Read without this care a pipe waits for its writer for ever, and /dev/zero has no end.
    for (path, why) in [(at("file"), "longer than 9 bytes"), (at("pipe"), ""), ("/dev/zero".into(), "")] {
        let error = node.read_foreign(&path, 9).unwrap_err();
        let own = here.read_foreign(&path, 9).unwrap_err();
        assert_eq!(error.to_string(), own.to_string().replace("local", "guest0"));
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(node.read_trusted("/etc/passwd".as_ref(), 4).unwrap().len(), 4);
    assert!(node.read_trusted(&at("link"), 4).is_err());
    assert_eq!(node.list_foreign(dir.path()).unwrap(), ["file", "link", "pipe"]);
    assert_eq!(node.stat_foreign(&at("link")).unwrap(), here.stat(&at("file")).unwrap());
    assert_eq!(node.link_foreign(&at("link")).unwrap(), Some("file".into()));
    assert_eq!(node.identity(&at("link")).unwrap(), here.identity(&at("file")).unwrap());
    assert_eq!(node.identity(&at("nothing")).unwrap(), None);
    assert_eq!(node.cached_bytes(&at("file")).unwrap(), here.cached_bytes(&at("file")).unwrap());
    let file = std::fs::File::open(at("file")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as u32;
    assert_eq!(node.opened(std::process::id(), fd).unwrap(), here.opened(std::process::id(), fd).unwrap());
    let error = node.peek(&At::Path(at("file")), 4).unwrap_err();
    assert!(error.to_string().contains("guest0"), "{error}");
    agent.end();
}

#[test]
fn made_file_is_held_by_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside, link) = (dir.path().join("made"), dir.path().join("aside"), dir.path().join("link"));
    std::os::unix::fs::symlink(&aside, &link).unwrap();
    let agent = start_agent();
    let node = agent.connect();
    let made = node.make_file(&path, 4096).unwrap();
    let FileStat { mode, size, allocated, .. } = made.is.stat;
    assert_eq!((mode & 0o170_777, size, allocated), (0o100_600, 4096, 0), "{made:?}");
    for taken in [&path, &link] {
        let error = node.make_file(taken, 0).unwrap_err();
        assert!(
            matches!(&error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists),
            "{error}"
        );
    }
    assert!(!aside.exists(), "no link is followed");
    // Another one puts a file in its place.
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "theirs").unwrap();
    std::fs::write(made.path(), "ours").unwrap();
    assert_eq!(std::fs::read(&aside).unwrap(), b"ours");
    assert!(!node.identity(&path).unwrap().unwrap().is(&made.is));
    std::fs::rename(&aside, &path).unwrap();
    drop(node);
    agent.end();
    assert!(!path.exists(), "it goes with the session");
}

#[test]
fn many_things_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let agent = start_agent();
    let node = agent.connect();
    let data: Vec<u8> = (0..2_000_000u32).map(|i| i as u8).collect();
    std::thread::scope(|s| {
        for i in 0..8 {
            let (node, data, dir) = (&node, &data, dir.path());
            s.spawn(move || {
                let path = dir.join(i.to_string());
                node.write(&path, data, None).unwrap();
                let output = node.exec(&sh(&format!("cat '{}'; exit {i}", path.display()))).unwrap();
                assert_eq!(output.end, vmio_node::End::Exit(i));
                assert!(output.stdout == *data);
                assert!(node.read(&path).unwrap() == *data);
            });
        }
    });
    drop(node);
    agent.end();
}
