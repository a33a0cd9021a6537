//! The HTTP API of a running guard: over a Unix socket for one group, and over TCP with a token. Paths and documents
//! are in `docs/guard-api.md`.
//!
//! The server is a thread with its own runtime. [`Manager`] does requests one after the other; none holds up the
//! control loop.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot};

use crate::desired::PoolKey;
use crate::manager::{Change, Manager, ManagerError, Senseless, StatusText};
use crate::metrics;
use vmio_model::policy::Direction;
use vmio_model::problem::Problem;

pub mod client;
mod listen;
mod page;
mod parts;

pub use listen::{Listeners, SocketFile, Token};
use parts::Parts;

/// Largest body of a request.
const BODY: usize = 64 << 10;
/// Most connections at once, for the Unix socket and for TCP each, so that TCP clients cannot block the socket. More
/// wait.
const CONNECTIONS: usize = 64;
/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// Time limit for a connection.
const CONNECTION: Duration = Duration::from_secs(60);
/// Longest time for a confirmation, in seconds.
const CONFIRM: f64 = 24.0 * 3600.0;

/// A guard shared by threads.
pub type Shared = Arc<Mutex<Manager>>;

/// Locks the guard.
pub fn lock(manager: &Shared) -> MutexGuard<'_, Manager> {
    // After a panic the state is consistent: each change of it is made last.
    manager.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What whoever asks may want of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Read the files anew.
    Reload,
    /// End; whether the limits are taken off.
    Stop {
        /// They are.
        undo: bool,
    },
}

#[derive(Clone)]
struct Asked {
    manager: Shared,
    wishes: Arc<Mutex<Sender<Wish>>>,
}

/// Time for a confirmation.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Seconds until it is taken back; never without.
    pub confirm_seconds: Option<f64>,
}

/// A change over the files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// What.
    pub change: Change,
    /// As in [`Apply`].
    pub confirm_seconds: Option<f64>,
}

/// Whether limits are taken off.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// They are.
    pub undo: bool,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In a sentence.
    pub error: String,
    /// What is wrong with the policy, each as `file:line: key: what`, or with what was set, as
    /// `guard set class NAME --KEY: what`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl IntoResponse for ManagerError {
    fn into_response(self) -> Response {
        let status = match &self {
            ManagerError::Files(_) | ManagerError::Policy(_) | ManagerError::Refused(_) => StatusCode::CONFLICT,
            ManagerError::Core(crate::core::CoreError::Refused(_)) => StatusCode::CONFLICT,
            ManagerError::Gone(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problems = self.problems().iter().map(Problem::to_string).collect();
        (status, Json(Refusal { error: self.to_string(), problems })).into_response()
    }
}

/// What may be asked.
fn router(asked: Asked) -> Router {
    let changes = Router::new()
        .route("/v1/apply", post(apply))
        .route("/v1/confirm", post(confirm))
        .route("/v1/take-back", post(take_back))
        .route("/v1/set", post(set))
        .route("/v1/stop", post(stop));
    let looks = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/history/{uplink}/{direction}/{member}", get(history))
        .route("/metrics", get(metrics));
    looks.merge(changes).layer(DefaultBodyLimit::max(BODY)).with_state(asked)
}

/// Does it in a thread that may wait.
async fn with<T: Send + 'static>(
    asked: Asked,
    work: impl FnOnce(&mut Manager) -> Result<T, ManagerError> + Send + 'static,
) -> Result<T, Response> {
    match tokio::task::spawn_blocking(move || work(&mut lock(&asked.manager))).await {
        Ok(done) => done.map_err(IntoResponse::into_response),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
    }
}

async fn status(State(asked): State<Asked>) -> Result<Response, Response> {
    let StatusText { parts, made_of } = with(asked, Manager::status_text).await?;
    tokio::task::spawn_blocking(move || drop(made_of));
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::new(Parts::from(parts))).into_response())
}

async fn history(
    State(asked): State<Asked>,
    Path((uplink, direction, member)): Path<(String, Direction, String)>,
) -> Result<Response, Response> {
    let pool = PoolKey { uplink, direction };
    let (asked_of, found) = with(asked, move |manager| {
        let found = manager.history(&pool, &member);
        Ok((format!("{pool} {member}"), found))
    })
    .await?;
    let none = || Refusal { error: format!("no history of {asked_of} is kept"), problems: Vec::new() };
    match found {
        Some(history) => Ok(Json(history).into_response()),
        None => Err((StatusCode::NOT_FOUND, Json(none())).into_response()),
    }
}

async fn metrics(State(asked): State<Asked>) -> Result<Response, Response> {
    let status = with(asked, |manager| manager.status()).await?;
    // In a blocking thread, since that takes a while for thousands of members.
    let written = tokio::task::spawn_blocking(move || {
        let written = metrics::text(&status);
        // To free them takes a while, too, and the answer need not wait for it.
        tokio::task::spawn_blocking(move || drop(status));
        written
    });
    let text = written.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn apply(State(asked): State<Asked>, Json(apply): Json<Apply>) -> Result<StatusCode, Response> {
    with(asked, move |manager| manager.apply(confirmation(apply.confirm_seconds)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set(State(asked): State<Asked>, Json(set): Json<Set>) -> Result<StatusCode, Response> {
    with(asked, move |manager| manager.set(&set.change, confirmation(set.confirm_seconds)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn confirm(State(asked): State<Asked>) -> Result<StatusCode, Response> {
    with(asked, Manager::confirm).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn take_back(State(asked): State<Asked>) -> Result<StatusCode, Response> {
    with(asked, Manager::take_back).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stop(State(asked): State<Asked>, Json(stop): Json<Stop>) -> Result<StatusCode, Response> {
    let undo = stop.undo;
    let wishes = Arc::clone(&asked.wishes);
    // Answers when the limits are off. The process ends also when some could not be removed.
    let done = with(asked, move |manager| manager.stop(undo)).await;
    let wish = Wish::Stop { undo: undo && done.is_ok() };
    let sent = wishes.lock().unwrap_or_else(PoisonError::into_inner).send(wish);
    done?;
    sent.map_err(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())?;
    Ok(StatusCode::NO_CONTENT)
}

fn confirmation(seconds: Option<f64>) -> Result<Option<Duration>, ManagerError> {
    match seconds {
        None => Ok(None),
        Some(seconds) if (1.0..=CONFIRM).contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        Some(seconds) => Err(Senseless::Confirmation { most_seconds: CONFIRM, seconds }.into()),
    }
}

/// Requires the token over TCP, except for the page, which has no data of this guard.
async fn with_token(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let authorized = given.and_then(|text| text.strip_prefix("Bearer ")).is_some_and(|given| token.is(given));
    if authorized || page::is_of(request.uri().path()) {
        return next.run(request).await;
    }
    let error = "TCP needs the header `Authorization: Bearer TOKEN`".to_owned();
    let refused = Json(Refusal { error, problems: Vec::new() });
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response()
}

/// The server. Dropped, it ends.
#[derive(Debug)]
pub struct Server {
    _file: SocketFile,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves until it is dropped.
    ///
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub fn start(listeners: Listeners, manager: Shared, wishes: Sender<Wish>) -> io::Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
        let asked = Asked { manager, wishes: Arc::new(Mutex::new(wishes)) };
        let (end, ended) = oneshot::channel();
        let router = router(asked);
        let Listeners { file, unix, tcp } = listeners;
        let serve = async move {
            let unix = accept_unix(unix, router.clone());
            let tcp = accept_tcp(tcp, router);
            tokio::select! {
                _ = ended => {}
                () = unix => {}
                () = tcp => {}
            }
        };
        let thread = thread::Builder::new().name("guard-api".into()).spawn(move || {
            runtime.block_on(serve);
            // Answers in progress are completed.
            runtime.shutdown_timeout(Duration::from_millis(500));
        })?;
        Ok(Server { _file: file, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept_unix(listener: std::os::unix::net::UnixListener, router: Router) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    let router = router.merge(page::router()).layer(middleware::from_fn(page::own));
    let listener = &listener;
    accept(router, move || async move { Ok(listener.accept().await?.0) }).await;
}

async fn accept_tcp(tcp: Option<(std::net::TcpListener, Token)>, router: Router) {
    let Some((listener, token)) = tcp else { return std::future::pending().await };
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let router = router.merge(page::router()).layer(middleware::from_fn_with_state(token, with_token));
    let listener = &listener;
    accept(router, move || async move { Ok(listener.accept().await?.0) }).await;
}

async fn accept<S, F>(router: Router, next: impl Fn() -> F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>>,
{
    let router = router.layer(middleware::from_fn(page::strict));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        match next().await {
            Ok(stream) => answer(stream, router.clone(), permit),
            // No descriptors left, or the client is gone.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    permit: tokio::sync::OwnedSemaphorePermit,
) {
    tokio::spawn(async move {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        // A failure is the client's problem.
        let _ = tokio::time::timeout(CONNECTION, served).await;
        drop(permit);
    });
}

#[cfg(test)]
mod tests;
