//! Client of a running guard, over its Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Refusal;

/// Time limit for an answer: removing thousands of limits takes a while.
const LIMIT: Duration = Duration::from_secs(60);
/// Largest answer: a member has some hundred bytes.
const ANSWER: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no guard is running ({0})")]
    Nobody(PathBuf),
    /// Someone else's socket.
    #[error("{0} belongs to user {1}, not to this host's guard")]
    Foreign(PathBuf, u32),
    /// The socket.
    #[error("cannot ask the guard at {path}: {source}")]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It refused; nothing was changed.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// It failed; the message says what is in force.
    #[error("{}", .0.error)]
    Failed(Refusal),
}

/// A guard's socket.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
    limit: Duration,
}

impl Client {
    /// The guard that listens at this path.
    pub fn at(path: &Path) -> Client {
        Client { path: path.to_owned(), limit: LIMIT }
    }

    /// The same, of which an answer may take so long.
    #[must_use]
    pub fn within(self, limit: Duration) -> Client {
        Client { limit, ..self }
    }

    /// Asks for a document.
    ///
    /// # Errors
    /// When nobody answers, or it refuses.
    pub fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, ClientError> {
        let body = self.ask(Method::GET, what, Vec::new())?;
        serde_json::from_slice(&body).map_err(|e| self.io(io::Error::new(io::ErrorKind::InvalidData, e)))
    }

    /// The text of a document.
    ///
    /// # Errors
    /// When nobody answers, or it refuses.
    pub fn text(&self, what: &str) -> Result<String, ClientError> {
        let body = self.ask(Method::GET, what, Vec::new())?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// When nobody answers, or it refuses.
    pub fn post(&self, what: &str, body: &impl Serialize) -> Result<(), ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.io(e.into()))?;
        self.ask(Method::POST, what, body).map(drop)
    }

    fn ask(&self, method: Method, what: &str, body: Vec<u8>) -> Result<Bytes, ClientError> {
        use std::os::unix::fs::MetadataExt;
        let owner = match std::fs::symlink_metadata(&self.path) {
            Ok(meta) => meta.uid(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(ClientError::Nobody(self.path.clone())),
            Err(e) => return Err(self.io(e)),
        };
        if owner != 0 && owner != geteuid().as_raw() {
            return Err(ClientError::Foreign(self.path.clone(), owner));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| self.io(e))?;
        let asked = async {
            let limit = tokio::time::timeout(self.limit, self.exchange(method, what, body));
            limit.await.unwrap_or_else(|_| Err(self.io(io::ErrorKind::TimedOut.into())))
        };
        let (status, body) = runtime.block_on(asked)?;
        if status.is_success() {
            return Ok(body);
        }
        // Or words of the server itself: a path that it does not know, a body that makes no sense.
        let words = || format!("{status}: {}", String::from_utf8_lossy(&body).trim());
        let said = serde_json::from_slice(&body).unwrap_or_else(|_| Refusal { error: words(), problems: Vec::new() });
        Err(if status.is_server_error() { ClientError::Failed(said) } else { ClientError::Refused(said) })
    }

    async fn exchange(&self, method: Method, what: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = match tokio::net::UnixStream::connect(&self.path).await {
            Ok(stream) => stream,
            // Left by one that was killed.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ClientError::Nobody(self.path.clone()));
            }
            Err(e) => return Err(self.io(e)),
        };
        let failed = |e: hyper::Error| self.io(io::Error::other(e));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let served = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(what)
            .header(header::HOST, "vmio")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| self.io(io::Error::other(e)))?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER).collect().await;
        let body = body.map_err(|e| self.io(io::Error::other(e)))?.to_bytes();
        served.abort();
        Ok((status, body))
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io { path: self.path.clone(), source }
    }
}
