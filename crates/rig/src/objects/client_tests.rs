//! A small server, and what the client sends to it and makes of its answers.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use vmio_node::Local;

use super::*;

/// A request as it came.
struct Got {
    /// Method and path.
    line: String,
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (of, value) = line.split_once(": ")?;
            of.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

type Answers = Arc<dyn Fn(&Got) -> Vec<u8> + Send + Sync>;

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn error(status: &str, code: &str) -> Vec<u8> {
    answer(status, "", format!("<Error><Code>{code}</Code><Message>no</Message></Error>").as_bytes())
}

/// A bucket of a server that answers so until the test's process ends.
fn client(answers: impl Fn(&Got) -> Vec<u8> + Send + Sync + 'static) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answers: Answers = Arc::new(answers);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(std::result::Result::ok) {
            let answers = Arc::clone(&answers);
            thread::spawn(move || talk(stream, &answers));
        }
    });
    connect(&endpoint, false).unwrap()
}

fn connect(endpoint: &str, allows_clear: bool) -> Result<Client> {
    let connection = Connection {
        endpoint: endpoint.parse()?,
        region: "us-east-1".into(),
        credentials: Credentials { access: "AK".into(), secret: "SK".into(), token: Some("TOKEN".into()) },
        ca_file: None,
        allows_clear,
        directory: None,
    };
    Client::new(connection, &"s3://images/a/disk".parse()?, &Local::new())
}

/// One connection, each request answered in turn.
fn talk(mut stream: std::net::TcpStream, answers: &Answers) {
    let (mut said, mut some) = (Vec::new(), vec![0; 64 << 10]);
    let mut more = |said: &mut Vec<u8>, stream: &mut std::net::TcpStream| match stream.read(&mut some) {
        Ok(read) if read > 0 => {
            said.extend(&some[..read]);
            true
        }
        _ => false,
    };
    loop {
        let end = loop {
            match said.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if more(&mut said, &mut stream) => {}
                None => return,
            }
        };
        let head = String::from_utf8(said.drain(..end).collect()).unwrap();
        let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        let mut got = Got { line, head, body: Vec::new() };
        let length = got.header("content-length").map_or(0, |length| length.parse().unwrap());
        while said.len() < length {
            if !more(&mut said, &mut stream) {
                return;
            }
        }
        got.body = said.drain(..length).collect();
        if stream.write_all(&answers(&got)).is_err() {
            return;
        }
    }
}

#[test]
fn requests_are_signed_and_bodies_are_checked() {
    let store = client(|got| {
        let authorization = got.header("authorization").unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AK/"), "{authorization}");
        assert!(authorization.contains(";x-amz-date;x-amz-security-token"), "{authorization}");
        assert!(got.header("host").unwrap().starts_with("127.0.0.1:"));
        assert_eq!(got.header("x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));
        assert_eq!(got.header("x-amz-security-token"), Some("TOKEN"));
        match &*got.line {
            "POST /images/a/disk?uploads=" => {
                assert_eq!(got.header("x-amz-checksum-algorithm"), Some("SHA256"));
                let xml = b"<InitiateMultipartUploadResult><UploadId>u/1</UploadId></InitiateMultipartUploadResult>";
                answer("200 OK", "", xml)
            }
            "PUT /images/a/disk?partNumber=2&uploadId=u%2F1" => {
                let digest = Sha256::of(&got.body).base64();
                assert_eq!(got.header("x-amz-checksum-sha256"), Some(&*digest));
                assert!(!authorization.contains("content-length") && authorization.contains("x-amz-checksum-sha256"));
                answer("200 OK", "ETag: \"e2\"\r\n", b"")
            }
            "POST /images/a/disk?uploadId=u%2F1" => {
                let xml = String::from_utf8(got.body.clone()).unwrap();
                assert!(xml.contains("<PartNumber>2</PartNumber><ETag>&quot;e2&quot;</ETag>"), "{xml}");
                answer("200 OK", "", b"  <CompleteMultipartUploadResult/>")
            }
            "GET /images?prefix=a%2Fdisk&uploads=" => {
                let one =
                    |id: &str, more: &str| format!("<Upload><Key>a/disk</Key><UploadId>{id}</UploadId>{more}</Upload>");
                let digests = one("u/1", "<ChecksumAlgorithm>SHA256</ChecksumAlgorithm>");
                let all = format!("{digests}{}{}", one("u/2", ""), digests.replace("a/disk", "a/disk2"));
                let xml = format!("<ListMultipartUploadsResult>{all}</ListMultipartUploadsResult>");
                answer("200 OK", "", xml.as_bytes())
            }
            "PUT /images" => error("409 Conflict", "BucketAlreadyOwnedByYou"),
            other => panic!("{other}"),
        }
    });
    store.make_bucket().unwrap();
    assert_eq!(store.begin("a/disk").unwrap(), "u/1");
    assert_eq!(store.unfinished("a/disk").unwrap().as_deref(), Some("u/1"));
    let bytes = vec![7; 300_000];
    let span = Span { from: 0, bytes: 300_000 };
    let part = PartToSend { number: 2, span, digest: Sha256::of(&bytes) };
    let sent = store.put_part("a/disk", "u/1", &part, &mut &bytes[..]).unwrap();
    assert!(sent.etag == "\"e2\"" && sent.is(300_000, &part.digest));
    store.complete("a/disk", "u/1", &[sent]).unwrap();
}

#[test]
fn a_range_is_all_that_was_asked_for_or_an_error() {
    let bytes: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    let kept = bytes.clone();
    let store = client(move |got| match &*got.line {
        "GET /images/good" => {
            let range = got.header("range").unwrap().strip_prefix("bytes=").unwrap().to_owned();
            let (from, to) = range.split_once('-').unwrap();
            let [from, to] = [from, to].map(|at| at.parse::<usize>().unwrap());
            answer("206 Partial Content", "", &kept[from..=to])
        }
        "GET /images/short" => answer("206 Partial Content", "", b"abc"),
        "GET /images/whole" => answer("200 OK", "", &kept),
        _ => error("404 Not Found", "NoSuchKey"),
    });
    let read = |key: &str, from: u64, bytes: u64| {
        let mut all: Vec<u8> = Vec::new();
        store.range(key, Span { from, bytes }, None, &mut |some| {
            all.extend(some);
            Ok(())
        })?;
        Ok::<_, Error>(all)
    };
    assert_eq!(read("good", 5, 1_000_001).unwrap(), bytes[5..1_000_006]);
    assert_eq!(read("good", 0, 1).unwrap(), [0]);
    assert!(matches!(read("short", 0, 9), Err(Error::Unreachable { .. })));
    assert!(matches!(read("short", 0, 2), Err(Error::Nonsense { .. })));
    assert!(matches!(read("whole", 0, 9), Err(Error::Nonsense { .. })));
    assert!(matches!(read("none", 0, 9), Err(Error::NotThere { what, .. }) if what == "s3://images/none"));
}

#[test]
fn bytes_of_an_object_that_took_the_place_of_another_are_not_taken() {
    let store = client(|got| match &*got.line {
        "HEAD /images/disk" => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"one\"\r\n\r\n".to_vec(),
        "GET /images/disk" => answer("206 Partial Content", "ETag: \"one\"\r\n", b"abc"),
        "GET /images/replaced" => answer("206 Partial Content", "ETag: \"two\"\r\n", b"abc"),
        _ => answer("206 Partial Content", "", b"abc"),
    });
    let stat = store.stat("disk").unwrap();
    assert_eq!(stat, Stat { size_bytes: 9, etag: Some("\"one\"".into()) });
    let read = |key: &str| {
        let mut all: Vec<u8> = Vec::new();
        store.range(key, Span { from: 0, bytes: 3 }, stat.etag.as_deref(), &mut |some| {
            all.extend(some);
            Ok(())
        })?;
        Ok::<_, Error>(all)
    };
    assert_eq!(read("disk").unwrap(), b"abc");
    assert!(matches!(read("replaced"), Err(Error::Replaced { what, .. }) if what == "s3://images/replaced"));
    assert!(matches!(read("nameless"), Err(Error::Replaced { .. })), "an answer that does not say which object");
}

#[test]
fn what_a_server_refuses_is_a_kind_of_error() {
    let of = |status: &'static str, code: &'static str| {
        let store = client(move |_| error(status, code));
        store.begin("a/disk").unwrap_err()
    };
    let said = of("403 Forbidden", "SignatureDoesNotMatch").to_string();
    assert!(said.contains("refuses the credentials (SignatureDoesNotMatch)") && !said.contains("SK"), "{said}");
    assert!(matches!(of("507 Insufficient Storage", "InsufficientStorage"), Error::Full { .. }));
    assert!(matches!(of("403 Forbidden", "QuotaExceeded"), Error::Full { .. }));
    assert!(matches!(of("404 Not Found", "NoSuchBucket"), Error::NoBucket { bucket, .. } if bucket == "images"));
    assert!(matches!(of("400 Bad Request", "BadDigest"), Error::Damaged { .. }));
    assert!(matches!(of("403 Forbidden", "RequestTimeTooSkewed"), Error::Clock { .. }));
    assert!(of("503 Service Unavailable", "SlowDown").is_passing());
    let hostile = of("418 Teapot", "\u{9b}31m&lt;b&gt;").to_string();
    assert!(!hostile.contains('\u{9b}') && hostile.ends_with("answers 418 31m<b>"), "{hostile}");
    let moved = client(|_| answer("307 Temporary Redirect", "Location: http://127.0.0.1:1/elsewhere\r\n", b""));
    assert!(matches!(moved.get("a/disk", 9), Err(Error::Status { status: 307, .. })), "it is not followed");
    // An error after a good beginning.
    let late = client(|_| answer("200 OK", "", b"\n <Error><Code>InternalError</Code></Error>"));
    let why = late.complete("a/disk", "u", &[]).unwrap_err();
    assert!(matches!(&why, Error::Status { code, .. } if code == "InternalError") && why.is_passing(), "{why}");
    let odd = client(|_| answer("200 OK", "", b"<html>busy</html>"));
    assert!(matches!(odd.begin("a/disk"), Err(Error::Nonsense { .. })));
    let huge = client(|_| answer("200 OK", "", &vec![b' '; 5 << 20]));
    assert!(matches!(huge.get("a/disk", 1 << 20), Err(Error::Nonsense { .. })));
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let store = client(|got| match &*got.line {
        // Three of nine bytes, and no more.
        "GET /images/begun" => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec(),
        _ => {
            thread::sleep(LIMIT);
            Vec::new()
        }
    });
    let (began, short) = (Instant::now(), Duration::from_millis(300));
    let asked = Asked { limit: short, ..Asked::new(Method::GET, "never", &[]) };
    assert!(matches!(store.send(&asked, SendBody::none()), Err(Error::Late { .. })));
    let asked = Asked { stall: short, ..Asked::new(Method::GET, "never", &[]) };
    assert!(matches!(store.send(&asked, SendBody::none()), Err(Error::Late { .. })));
    let asked = Asked { stall: short, ..Asked::new(Method::GET, "begun", &[]) };
    let answer = store.send(&asked, SendBody::none()).unwrap();
    assert!(matches!(store.read(answer, 100), Err(Error::Late { .. })));
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
}

#[test]
fn a_list_of_parts_is_read_to_its_end_and_has_one() {
    let page = |parts: &[u32], more: &str| {
        let one = |number: &u32| {
            format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>e</ETag><Size>5</Size><ChecksumSHA256>x</ChecksumSHA256></Part>"
            )
        };
        let parts: String = parts.iter().map(one).collect();
        answer("200 OK", "", format!("<ListPartsResult>{parts}{more}</ListPartsResult>").as_bytes())
    };
    let cut = |next: u32| format!("<IsTruncated>true</IsTruncated><NextPartNumberMarker>{next}</NextPartNumberMarker>");
    let store = client(move |got| match &*got.line {
        "GET /images/disk?part-number-marker=0&uploadId=u" => page(&[1, 2], &cut(2)),
        "GET /images/disk?part-number-marker=2&uploadId=u" => page(&[3], "<IsTruncated>false</IsTruncated>"),
        _ => page(&[1], &cut(0)),
    });
    let parts = store.parts("disk", "u").unwrap();
    assert_eq!(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(matches!(store.parts("disk", "endless"), Err(Error::Nonsense { .. })));
}

#[test]
fn another_host_is_not_asked_in_clear() {
    assert!(matches!(connect("http://192.0.2.1:7070", false), Err(Error::InClear(_))));
    assert!(connect("http://192.0.2.1:7070", true).is_ok() && connect("http://localhost", false).is_ok());
    assert!(connect("http://[::1]:7070", false).is_ok());
}
