#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use vmio_model::allocate::dba::Measures;
use vmio_model::control::Allocator;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Abilities, Links};

use super::*;
use crate::manager::{FilesError, Start, Texts};
use crate::planes::fake::Fake;
use crate::testing::POLICY;
use crate::undo_log::UndoLog;

const WORD: &str = "0123456789abcdef0123456789abcdef";

struct Files;

impl Texts for Files {
    fn files(&self) -> Result<Vec<(String, String)>, FilesError> {
        Ok(vec![("guard.toml".into(), POLICY.into())])
    }
    fn links(&self, _: Option<&std::collections::BTreeSet<String>>) -> Links {
        Links::default()
    }
}

/// A guard on the fake plane that is served.
struct Served {
    dir: tempfile::TempDir,
    manager: Shared,
    server: Server,
    tcp: SocketAddr,
    _wishes: Receiver<Wish>,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let interface = Interface { index: 1, name: "tap1".into(), ..Interface::default() };
        let manager = Manager::start(Start {
            texts: Box::new(Files),
            log: UndoLog::memory(),
            plane: Box::new(|| Ok(Box::new(Fake::new(Abilities::HTB)))),
            plane_name: "fake",
            allocator: Allocator::Dba(Measures::Passed),
            groups: None,
            look: Box::new(|_| Ok(vec![interface.into()])),
        });
        let manager: Shared = Arc::new(Mutex::new(manager.unwrap()));
        // As Listeners::open does, but for umask(2), which is the whole process's: other tests run beside.
        let unix = std::os::unix::net::UnixListener::bind(dir.path().join("guard.sock")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        unix.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let address = tcp.local_addr().unwrap();
        let file = SocketFile(dir.path().join("guard.sock"));
        let listeners = Listeners { file, unix, tcp: Some((tcp, Token::of(WORD).unwrap())) };
        let (ask, wishes) = mpsc::channel();
        let server = Server::start(listeners, Arc::clone(&manager), ask).unwrap();
        Served { dir, manager, server, tcp: address, _wishes: wishes }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("guard.sock")
    }

    fn unix(&self, request: &str) -> String {
        ask(UnixStream::connect(self.path()).unwrap(), request)
    }

    fn tcp(&self, request: &str) -> String {
        ask(TcpStream::connect(self.tcp).unwrap(), request)
    }
}

fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(path: &str, head: &str) -> String {
    format!("GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n{head}\n")
}

fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn tcp_needs_the_token() {
    let served = Served::new();
    let with = |word: &str| format!("Authorization: Bearer {word}\n");
    for path in ["/v1/status", "/v1/history/eth0/guest_tx/tap1", "/metrics", "/nothing", "/v1/apply"] {
        for head in [String::new(), with("x"), with(&WORD[1..]), format!("Cookie: token={WORD}\n")] {
            let answer = served.tcp(&get(path, &head));
            assert_eq!(code(&answer), "401", "{path} {head}: {answer}");
            assert!(!answer.contains("gold"), "{answer}");
        }
    }
    assert_eq!(code(&served.tcp(&get("/v1/status", &with(WORD)))), "200");
    assert_eq!(code(&served.tcp(&get(&format!("/v1/status?token={WORD}"), ""))), "401");
    for path in ["/", "/page.js", "/page.css"] {
        for answer in [served.tcp(&get(path, "")), served.unix(&get(path, ""))] {
            assert_eq!(code(&answer), "200", "{answer}");
            for part in ["default-src 'none'", "nosniff", "no-referrer", "no-store", "frame-ancestors 'none'"] {
                assert!(answer.contains(part), "{path}: {part}");
            }
            assert!(!answer.contains("gold") && !answer.contains("unsafe"), "{path} tells nothing of this guard");
        }
    }
    let metrics = served.unix(&get("/metrics", ""));
    assert!(
        metrics.contains("content-type: text/plain; version=0.0.4") && metrics.contains("member=\"tap1\""),
        "{metrics}"
    );
}

#[test]
fn the_status_is_one_document() {
    let answer = Served::new().unix(&get("/v1/status", ""));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    let status: crate::manager::document::Status = serde_json::from_str(body).unwrap();
    assert_eq!(status.pools[0].members[1].name, "tap1");
}

#[test]
fn the_last_seconds_of_a_member() {
    let served = Served::new();
    lock(&served.manager).count().unwrap();
    let (uplink, member) = {
        let status = lock(&served.manager).status().unwrap();
        (status.pools[0].uplink.clone(), status.pools[0].members[0].name.clone())
    };
    let of =
        |member: &str, direction: &str| served.unix(&get(&format!("/v1/history/{uplink}/{direction}/{member}"), ""));
    let answer = of(&member, "guest_tx");
    assert_eq!(code(&answer), "200", "{answer}");
    assert!(answer.contains("\"rates_bps\":[") && answer.contains("\"minimums_bps\":["), "{answer}");
    assert_eq!(code(&of("nobody", "guest_tx")), "404");
    assert_eq!(code(&of(&member, "sideways")), "400");
}

#[test]
fn requests_of_other_sites_are_refused() {
    let served = Served::new();
    let to = |host: &str, origin: &str| {
        let request =
            format!("POST /v1/confirm HTTP/1.1\nHost: {host}\n{origin}Connection: close\nContent-Length: 0\n\n");
        code(&served.unix(&request)).to_owned()
    };
    // 409: it is asked, and nothing waits.
    assert_eq!(to("localhost:9127", ""), "409");
    assert_eq!(to("localhost:9127", "Origin: http://localhost:9127\n"), "409");
    for (host, origin) in [
        ("localhost:9127", "Origin: http://evil.example\n"),
        ("localhost:9127", "Origin: null\n"),
        ("localhost:9127", "Origin: http://localhost:80\n"),
        ("evil.example:9127", "Origin: http://evil.example:9127\n"),
        ("evil.example:9127", ""),
    ] {
        assert_eq!(to(host, origin), "403", "{host} {origin}");
    }
}

/// xorshift64*, Vigna 2016: the same requests for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, most: usize) -> usize {
        (self.next() >> 33) as usize % most.max(1)
    }
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// Bytes, a request that is nearly right, or one that was damaged.
    fn request(&mut self) -> Vec<u8> {
        if self.below(8) == 0 {
            return self.bytes(4096);
        }
        let method = self.of(&["GET", "POST", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "G\0T", ""]);
        let paths = [
            "/v1/status",
            "/v1/history/eth0/guest_tx/tap1",
            "/v1/history/%00/guest_up/%ff",
            "/v1/set",
            "/v1/apply",
            "/v1/confirm",
            "/v1/take-back",
            "/v1/stop",
            "/metrics",
            "/",
            "/page.js",
            "*",
            "/v1/../../etc/passwd",
            "/%00",
            "//",
            "http://x/v1/status",
            "/v1/set?%ff=\u{7f}",
        ];
        let mut body = match self.below(4) {
            0 => self.bytes(2048),
            1 => "[".repeat(self.below(3000)).into_bytes(),
            2 => {
                format!("{{\"confirm_seconds\":{}}}", self.of(&["1e999", "-1", "0", "null", "\"x\"", "86401", "1e-9"]))
                    .into()
            }
            _ => {
                let keys =
                    self.of(&["\"max\":\"1bps\"", "\"max\":3", "\"new\":\"1\"", "", "\"min\":\"\u{202e}\\u0000\""]);
                let class = self.of(&["gold", "", "host", "a\\\"]\\n[uplink.eth0", "\\ud800"]);
                format!("{{\"change\":{{\"set\":{{\"class\":\"{class}\",\"keys\":{{{keys}}}}}}}}}").into_bytes()
            }
        };
        let length = match self.below(6) {
            0 => usize::MAX.to_string(),
            1 => "-1".to_owned(),
            2 => (body.len() / 2).to_string(),
            _ => body.len().to_string(),
        };
        let kind = self.of(&["application/json", "application/json", "text/plain", "\u{1}"]);
        let more = match self.below(6) {
            0 => "Transfer-Encoding: chunked\r\n".to_owned(),
            1 => format!("X: {}\r\n", "y".repeat(self.below(20_000))),
            2 => "A: b\r\n".repeat(self.below(300)),
            _ => String::new(),
        };
        let mut request = format!(
            "{method} {} HTTP/1.{}\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\r\n",
            self.of(&paths),
            self.below(3)
        )
        .into_bytes();
        request.append(&mut body);
        for _ in 0..self.below(4) {
            let at = self.below(request.len());
            match self.below(3) {
                0 => request[at] = self.next() as u8,
                1 => request.truncate(at),
                _ => drop(request.splice(at..at, [b'\r', b'\n'])),
            }
            if request.is_empty() {
                break;
            }
        }
        request
    }
}

fn pages_of_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends it all and hears what comes; whether there was an answer.
fn throw(path: &Path, request: &[u8]) -> bool {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server may have had enough before the end.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer.starts_with(b"HTTP/1.1 ") || answer.starts_with(b"HTTP/1.0 ")
}

#[test]
fn ten_thousand_random_requests() {
    let served = Served::new();
    let seed = u64::from(std::process::id());
    let before = pages_of_memory();
    let threads: Vec<_> = (0..4_u64)
        .map(|n| {
            let (path, seed) = (served.path(), (seed ^ (n << 32)) | 1);
            println!("seed {seed}");
            thread::spawn(move || {
                let mut dice = Dice(seed);
                (0..2500).filter(|_| throw(&path, &dice.request())).count()
            })
        })
        .collect();
    let answered: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let grown = pages_of_memory().saturating_sub(before) * 4096;
    println!("{answered} of 10000 were answered; {grown} bytes more");
    assert!(answered > 1000, "{answered}: these are requests");
    assert!(grown < 200 << 20, "{grown} bytes");
    assert!(!served.manager.is_poisoned() && !served.server.thread.as_ref().unwrap().is_finished());
    assert_eq!(code(&served.unix(&get("/v1/status", ""))), "200");
    let status = lock(&served.manager).status().unwrap();
    assert_eq!(status.policy.over, "", "nothing of it was a change");
    assert_eq!(status.trouble, None);
}

#[test]
fn slow_clients_do_not_block() {
    let served = Served::new();
    let unix = |text: &str| {
        let mut stream = UnixStream::connect(served.path()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    // Half a head, half a body, and one that never hears the answer.
    let mut slow: Vec<UnixStream> = (0..20).map(|_| unix("GET /v1/sta")).collect();
    let post = "POST /v1/apply HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    slow.extend((0..20).map(|_| unix(post)));
    slow.extend((0..20).map(|_| unix(&get("/v1/status", "").replace('\n', "\r\n"))));
    // More than all connections of TCP: it is full, and the socket is not.
    let full: Vec<TcpStream> = (0..CONNECTIONS + 8)
        .map(|_| {
            let mut stream = TcpStream::connect(served.tcp).unwrap();
            stream.write_all(b"GET / HT").unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(code(&served.unix(&get("/v1/status", ""))), "200");
    }
    drop((slow, full));
}
