//! A store over HTTP: requests are signed, bodies are streamed, and each request ends within a limit of time.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ureq::http::{Method, Request, Response};
use ureq::{Body, SendBody};
use vmio_node::Reader;

use super::address::{Endpoint, Url};
use super::credentials::Credentials;
use super::digest::Sha256;
use super::manifest::MOST_PARTS;
use super::sign::{Signed, authorization, date, encoded};
use super::{AT_ONCE, Error, Part, PartToSend, Result, Span, Stat, Store, local, xml};
use crate::https::{self, Fault, NoRoots, Origin, shown};

/// The header `x-amz-content-sha256` of bodies that are checked by `x-amz-checksum-sha256`, which is signed, or that
/// name digests.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Longest answer that is no image: a list of 1000 parts has 400 KiB.
const MOST_ANSWER_BYTES: u64 = 4 << 20;
/// Longest answer that tells of an error.
const MOST_ERROR_BYTES: u64 = 64 << 10;
/// Most letters of what a server says that are shown.
const MOST_LETTERS: usize = 60;
/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time in which something must come or go.
const STALL: Duration = Duration::from_secs(30);
/// Time for a request without a body.
const LIMIT: Duration = Duration::from_secs(60);
/// The slowest link, in bytes a second: a part may take that much longer.
const SLOWEST: u64 = 256 << 10;
/// How fast a server makes an object of its parts at least, in bytes a second. It may copy them, and says nothing
/// meanwhile.
const SLOWEST_COPY: u64 = 16 << 20;
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The server.
    pub endpoint: Endpoint,
    /// The region that requests are signed for.
    pub region: String,
    /// Who asks.
    pub credentials: Credentials,
    /// Certificates to trust instead of the host's.
    pub ca_file: Option<PathBuf>,
    /// Another host may be asked without TLS.
    pub allows_clear: bool,
    /// Where the objects are, if the server leaves it to others to sync them.
    pub directory: Option<PathBuf>,
}

/// A bucket of a server.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    origin: Origin,
    region: String,
    credentials: Credentials,
    bucket: String,
    directory: Option<PathBuf>,
}

/// A request.
struct Asked<'a> {
    method: Method,
    /// The object; without one it is about the bucket.
    key: Option<&'a str>,
    /// In order of the names.
    query: &'a [(&'a str, &'a str)],
    headers: &'a [(&'a str, &'a str)],
    /// Bytes of the body.
    bytes: Option<u64>,
    limit: Duration,
    stall: Duration,
}

impl<'a> Asked<'a> {
    fn new(method: Method, key: &'a str, query: &'a [(&'a str, &'a str)]) -> Self {
        Asked { method, key: Some(key), query, headers: &[], bytes: None, limit: LIMIT, stall: STALL }
    }
}

impl Client {
    /// The bucket of an image. Nothing is asked yet.
    ///
    /// # Errors
    /// Why the server may not be asked.
    pub fn new(connection: Connection, url: &Url, reader: &dyn Reader) -> Result<Self> {
        let Connection { endpoint: Endpoint(origin), region, credentials, ca_file, allows_clear, directory } =
            connection;
        if origin.is_clear() && !origin.is_this_host() && !allows_clear {
            return Err(Error::InClear(origin.to_string()));
        }
        let roots = if origin.is_clear() {
            Vec::new()
        } else {
            https::roots(ca_file.as_deref(), reader).map_err(|why| match why {
                NoRoots::Nowhere => Error::NoRoots,
                NoRoots::Bad { path, why } => Error::BadRoots { path, why },
            })?
        };
        let agent = https::agent(roots, AT_ONCE);
        Ok(Client { agent, origin, region, credentials, bucket: url.bucket.clone(), directory })
    }

    /// The file of an object, where its server is the store of this host.
    pub(super) fn file(&self, key: &str) -> Result<File> {
        local::open(self.directory.as_deref().ok_or(Error::NotHere)?, &self.bucket, key)
    }

    /// What a request is about, for errors.
    fn what(&self, asked: &Asked<'_>) -> String {
        match asked.key {
            Some(key) => format!("s3://{}/{key}", self.bucket),
            None => format!("s3://{}", self.bucket),
        }
    }

    /// Sends a request; its answer, if that is a good one.
    fn send(&self, asked: &Asked<'_>, body: SendBody<'_>) -> Result<Response<Body>> {
        let path = match asked.key {
            Some(key) => encoded(&format!("/{}/{key}", self.bucket), true),
            None => encoded(&format!("/{}", self.bucket), true),
        };
        let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name, false), encoded(value, false));
        let query = asked.query.iter().map(pair).collect::<Vec<_>>().join("&");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let date = date(i64::try_from(now).unwrap_or(i64::MAX));
        let mut headers =
            vec![("host", self.origin.authority()), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", &*date)];
        headers.extend(self.credentials.token.as_deref().map(|token| ("x-amz-security-token", token)));
        headers.extend(asked.headers);
        headers.sort_unstable();
        let method = asked.method.as_str();
        let signed = Signed { method, path: &path, query: &query, headers: &headers, payload: UNSIGNED };
        let authorization = authorization(&signed, &self.credentials, &self.region, &date);
        let mark = if query.is_empty() { "" } else { "?" };
        let mut request =
            Request::builder().method(asked.method.clone()).uri(format!("{}{path}{mark}{query}", self.origin));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request = request.header("authorization", authorization);
        if let Some(bytes) = asked.bytes {
            request = request.header("content-length", bytes.to_string());
        }
        let request = request.body(body).map_err(|e| self.nonsense(&e.to_string()))?;
        let request = self
            .agent
            .configure_request(request)
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(asked.stall))
            .timeout_per_write(Some(STALL))
            .timeout_global(Some(asked.limit))
            .build();
        let mut answer = self.agent.run(request).map_err(|e| self.fault(e))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // What cannot be read has no code.
        let said = answer.body_mut().with_config().limit(MOST_ERROR_BYTES).read_to_vec().unwrap_or_default();
        let code = xml::code(&String::from_utf8_lossy(&said)).unwrap_or_default();
        Err(self.refusal(self.what(asked), status.as_u16(), shown(&code, MOST_LETTERS)))
    }

    /// Sends a request with a body that is in memory; its answer.
    fn send_bytes(&self, asked: &Asked<'_>, mut body: &[u8]) -> Result<Response<Body>> {
        let asked = Asked { method: asked.method.clone(), bytes: Some(body.len() as u64), ..*asked };
        self.send(&asked, SendBody::from_reader(&mut body))
    }

    /// What an answer that is no good one means.
    fn refusal(&self, what: String, status: u16, code: String) -> Error {
        let server = self.server();
        match (status, &*code) {
            (_, "RequestTimeTooSkewed") => Error::Clock { server },
            (_, "InsufficientStorage" | "QuotaExceeded" | "XMinioStorageFull") | (507, _) => {
                Error::Full { server, code }
            }
            (_, "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch") => Error::Damaged { server, code },
            (_, "NoSuchBucket") => Error::NoBucket { server, bucket: self.bucket.clone() },
            (_, "NoSuchUpload" | "InvalidPart") => Error::NoUpload { server },
            (404, _) => Error::NotThere { server, what },
            (401 | 403, _) => {
                let code = if code.is_empty() { status.to_string() } else { code };
                Error::Refused { server, what, code }
            }
            _ => Error::Status { server, status, code },
        }
    }

    fn fault(&self, error: ureq::Error) -> Error {
        let server = self.server();
        match https::fault(error) {
            Fault::Late => Error::Late { server },
            Fault::TooLarge => Error::Nonsense { server, why: "it is longer than was asked for".to_owned() },
            Fault::NotTrusted(why) => Error::NotTrusted { server, why },
            Fault::Unreachable(why) => Error::Unreachable { server, why },
            Fault::Nonsense(why) => Error::Nonsense { server, why },
        }
    }

    fn nonsense(&self, why: &str) -> Error {
        Error::Nonsense { server: self.server(), why: shown(why, 200) }
    }

    /// An answer that is no image.
    fn read(&self, mut answer: Response<Body>, most_bytes: u64) -> Result<Vec<u8>> {
        answer.body_mut().with_config().limit(most_bytes).read_to_vec().map_err(|e| self.fault(e))
    }

    /// What an answer in XML says.
    fn parsed<T>(&self, answer: Response<Body>, parse: fn(&str) -> Result<T, String>) -> Result<T> {
        let bytes = self.read(answer, MOST_ANSWER_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|e| self.nonsense(&e.to_string()))?;
        parse(&text).map_err(|why| self.nonsense(&why))
    }
}

/// The server's own name of the bytes that an answer is about.
fn etag(answer: &Response<Body>) -> Option<&str> {
    answer.headers().get("etag")?.to_str().ok()
}

/// The header with a digest.
fn checksum(digest: &str) -> [(&str, &str); 1] {
    [("x-amz-checksum-sha256", digest)]
}

impl Store for Client {
    fn server(&self) -> String {
        self.origin.to_string()
    }

    fn make_bucket(&self) -> Result<()> {
        let asked = Asked { key: None, ..Asked::new(Method::PUT, "", &[]) };
        match self.send_bytes(&asked, &[]) {
            Err(Error::Status { status: 409, code, .. }) if code == "BucketAlreadyOwnedByYou" => Ok(()),
            made => made.map(|_| ()),
        }
    }

    fn unfinished(&self, key: &str) -> Result<Option<String>> {
        let query = [("prefix", key), ("uploads", "")];
        let answer = self.send(&Asked { key: None, ..Asked::new(Method::GET, "", &query) }, SendBody::none())?;
        let all = self.parsed(answer, xml::unfinished)?;
        Ok(all.into_iter().rfind(|upload| upload.key == key && upload.has_digests).map(|upload| upload.id))
    }

    fn begin(&self, key: &str) -> Result<String> {
        let headers = [("x-amz-checksum-algorithm", "SHA256"), ("x-amz-checksum-type", "COMPOSITE")];
        let asked = Asked { headers: &headers, ..Asked::new(Method::POST, key, &[("uploads", "")]) };
        let answer = self.send_bytes(&asked, &[])?;
        self.parsed(answer, xml::begun)
    }

    fn parts(&self, key: &str, upload: &str) -> Result<Vec<Part>> {
        let (mut all, mut behind) = (Vec::new(), 0_u32);
        loop {
            let marker = behind.to_string();
            let query = [("part-number-marker", &*marker), ("uploadId", upload)];
            let answer = self.send(&Asked::new(Method::GET, key, &query), SendBody::none())?;
            let listed = self.parsed(answer, xml::parts)?;
            all.extend(listed.parts);
            let is_bounded = all.len() as u64 <= MOST_PARTS;
            match listed.next {
                Some(next) if next > behind && is_bounded => behind = next,
                Some(_) => return Err(self.nonsense("its list of parts has no end")),
                None => return Ok(all),
            }
        }
    }

    fn put_part(&self, key: &str, upload: &str, part: &PartToSend, body: &mut dyn Read) -> Result<Part> {
        let PartToSend { number, span: Span { bytes, .. }, digest } = *part;
        let (number_text, sha256) = (number.to_string(), digest.base64());
        let query = [("partNumber", &*number_text), ("uploadId", upload)];
        let headers = checksum(&sha256);
        let limit = LIMIT + Duration::from_secs(bytes / SLOWEST);
        let asked = Asked { headers: &headers, bytes: Some(bytes), limit, ..Asked::new(Method::PUT, key, &query) };
        let answer = self.send(&asked, SendBody::from_reader(body))?;
        let etag = etag(&answer).map(str::to_owned).ok_or_else(|| self.nonsense("a part without ETag"))?;
        self.read(answer, MOST_ANSWER_BYTES)?;
        Ok(Part { number, size_bytes: bytes, etag, sha256 })
    }

    fn complete(&self, key: &str, upload: &str, parts: &[Part]) -> Result<()> {
        let bytes: u64 = parts.iter().map(|part| part.size_bytes).sum();
        let limit = LIMIT + Duration::from_secs(bytes / SLOWEST_COPY);
        let query = [("uploadId", upload)];
        let asked = Asked { limit, stall: limit, ..Asked::new(Method::POST, key, &query) };
        let answer = self.send_bytes(&asked, xml::complete(parts).as_bytes())?;
        let said = self.read(answer, MOST_ANSWER_BYTES)?;
        let said = String::from_utf8_lossy(&said);
        // An error may come after the answer has begun as a good one.
        match xml::code(said.trim_start()) {
            Some(code) => {
                let what = format!("s3://{}/{key}", self.bucket);
                Err(self.refusal(what, 500, shown(&code, MOST_LETTERS)))
            }
            None => xml::completed(said.trim_start()).map_err(|why| self.nonsense(&why)),
        }
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let sha256 = Sha256::of(bytes).base64();
        let headers = checksum(&sha256);
        let answer = self.send_bytes(&Asked { headers: &headers, ..Asked::new(Method::PUT, key, &[]) }, bytes)?;
        self.read(answer, MOST_ANSWER_BYTES).map(|_| ())
    }

    fn get(&self, key: &str, most_bytes: u64) -> Result<Vec<u8>> {
        let answer = self.send(&Asked::new(Method::GET, key, &[]), SendBody::none())?;
        self.read(answer, most_bytes)
    }

    fn stat(&self, key: &str) -> Result<Stat> {
        let answer = self.send(&Asked::new(Method::HEAD, key, &[]), SendBody::none())?;
        let length = answer.headers().get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        let size_bytes = length.ok_or_else(|| self.nonsense("an object without Content-Length"))?;
        Ok(Stat { size_bytes, etag: etag(&answer).map(str::to_owned) })
    }

    fn sync(&self, key: &str) -> Result<bool> {
        let Some(directory) = &self.directory else { return Ok(false) };
        local::sync(directory, &self.bucket, key).map(|()| true)
    }

    fn range(
        &self,
        key: &str,
        span: Span,
        wanted: Option<&str>,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let range = format!("bytes={}-{}", span.from, span.from + span.bytes.saturating_sub(1));
        let limit = LIMIT + Duration::from_secs(span.bytes / SLOWEST);
        let headers = [("range", &*range)];
        let asked = Asked { headers: &headers, limit, ..Asked::new(Method::GET, key, &[]) };
        let answer = self.send(&asked, SendBody::none())?;
        if answer.status().as_u16() != 206 {
            return Err(self.nonsense("all of an object, where a part was asked for"));
        }
        if wanted.is_some() && etag(&answer) != wanted {
            return Err(Error::Replaced { server: self.server(), what: self.what(&asked) });
        }
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; BUFFER];
        let mut left = span.bytes;
        loop {
            // The byte behind the last one is asked for, too: the answer has to end there.
            let want = usize::try_from(left.max(1)).unwrap_or(BUFFER).min(BUFFER);
            let read = body.read(&mut buffer[..want]).map_err(|e| self.fault(e.into()))?;
            match (read, left) {
                (0, 0) => return Ok(()),
                (0, _) => {
                    return Err(Error::Unreachable {
                        server: self.server(),
                        why: "it ended an answer early".to_owned(),
                    });
                }
                (_, 0) => return Err(self.nonsense("more of an object than was asked for")),
                _ => {}
            }
            sink(&buffer[..read])?;
            left -= read as u64;
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
