//! The client's end of the wire: greets the agent, numbers requests, and hands what comes back to
//! those who wait for it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::agent::message::{NO_REQUEST, Reply, Request};
use crate::agent::stream::Halves;
use crate::helper::proto::{Decoder, Fault, Frame, HEADER_BYTES, Hello, Item, Kind, READY, VERSION, encode};
use crate::machine::{lock, random};
use crate::{Error, Result};

/// Silence of an agent, while an answer is due, after which it is gone. An emulated guest under load answers within a
/// second.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// How long a goodbye waits for the agent to undo the session's changes.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Largest answer in bytes, since the other machine is not trusted.
const MOST_DATA: usize = 256 << 20;

/// Most bytes that are skipped before the agent's hello.
const SKIP_BYTES: u64 = 16 << 20;

/// When the hello is sent again: at first often, for a guest that is just starting and loses what
/// comes too early, then seldom enough for the agent to notice that a frame before was cut off.
const HELLO_AGAIN: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(1), Duration::from_secs(5)];

/// A session with an agent.
pub(crate) struct Client {
    name: String,
    output: Mutex<Box<dyn Write + Send>>,
    waiters: Arc<Waiters>,
    next: AtomicU32,
}

/// Events of the reading thread while the client sends its hello.
enum Greeting {
    /// The agent has just begun to listen.
    Ready,
    Answer(Result<()>),
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("its stream ended")]
    Stream,
    #[error("cannot read: {0}")]
    Read(std::io::Error),
    #[error("this side said goodbye")]
    Goodbye,
    #[error("no agent in {SKIP_BYTES} bytes; is this its port?")]
    NoAgent,
    #[error("it was restarted and has lost this session")]
    StartedAgain,
    /// The agent's own message.
    #[error("{0}")]
    Message(String),
    #[error("it ended the session")]
    Session,
    #[error("it sent {0}")]
    Sent(Fault),
}

/// Requests that wait for frames; shared with the reading thread.
struct Waiters {
    name: String,
    state: Mutex<State>,
}

struct State {
    calls: HashMap<u32, Sender<Frame>>,
    /// The agent has answered the hello.
    begun: bool,
    /// Why the session ended.
    gone: Option<String>,
    /// The request to end the session: its answer is the last frame.
    goodbye: Option<u32>,
}

impl Client {
    pub fn connect(name: &str, (input, output): Halves, limit: Duration) -> Result<Arc<Self>> {
        let state = Mutex::new(State { calls: HashMap::new(), begun: false, gone: None, goodbye: None });
        let waiters = Arc::new(Waiters { name: name.into(), state });
        let client =
            Self { name: name.into(), output: Mutex::new(output), waiters, next: AtomicU32::new(NO_REQUEST + 1) };
        let nonce = random().map_err(|e| client.gone(format!("no random number: {e}")))?;
        let hello = Hello { version: VERSION, nonce: u64::from_ne_bytes(nonce).max(READY + 1) };
        let (greeted, greeting) = mpsc::channel();
        let waiters = Arc::clone(&client.waiters);
        std::thread::Builder::new()
            .name(format!("agent {name}"))
            .spawn(move || waiters.read(input, hello, &greeted))
            .map_err(|e| client.gone(format!("cannot start a thread: {e}")))?;
        if let Err(e) = client.greet(hello, &greeting, limit) {
            // There is no session to end.
            client.waiters.end(&e.to_string());
            return Err(e);
        }
        Ok(Arc::new(client))
    }

    fn greet(&self, hello: Hello, greeting: &Receiver<Greeting>, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let mut pauses = HELLO_AGAIN.into_iter();
        let mut pause = Duration::ZERO;
        loop {
            self.send_raw(&hello.encode())?;
            pause = pauses.next().unwrap_or(pause);
            let left = until.saturating_duration_since(Instant::now());
            match greeting.recv_timeout(pause.min(left)) {
                Ok(Greeting::Answer(answer)) => return answer,
                // It may have been too early for the hello before.
                Ok(Greeting::Ready) => {}
                Err(RecvTimeoutError::Timeout) if left > pause => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.gone(format!("no answer within {} s", limit.as_secs_f64())));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.waiters.why_gone()),
            }
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request; its answers come to the call.
    pub fn call(self: &Arc<Self>, request: &Request) -> Result<Call> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::channel();
        self.waiters.add(id, sender)?;
        let call = Call { client: Arc::clone(self), id, frames };
        let json = serde_json::to_vec(request).map_err(|e| self.protocol(format!("cannot be asked: {e}")))?;
        call.send(Kind::Request, &json)?;
        Ok(call)
    }

    /// What a frame answers; a failure as an error.
    pub fn reply(&self, frame: &Frame) -> Result<Reply> {
        if frame.kind != Kind::Reply {
            return Err(self.protocol(format!("a frame of kind {:?} in place of an answer", frame.kind)));
        }
        match serde_json::from_slice(&frame.payload) {
            Ok(Reply::Failed { failure }) => Err(failure.into_error(&self.name)),
            Ok(reply) => Ok(reply),
            Err(e) => Err(self.protocol(format!("an answer that cannot be read: {e}"))),
        }
    }

    /// Ends the session and waits until the agent has undone it.
    pub fn goodbye(&self) -> Result<()> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, frames) = mpsc::channel();
        self.waiters.add(id, sender)?;
        lock(&self.waiters.state).goodbye = Some(id);
        let json = serde_json::to_vec(&Request::Bye).map_err(|e| self.protocol(e.to_string()))?;
        self.send(Kind::Request, id, &json)?;
        match frames.recv_timeout(GOODBYE_LIMIT) {
            Ok(frame) => self.reply(&frame).map(|_| ()),
            Err(_) => Err(self.gone("it did not answer a goodbye".into())),
        }
    }

    fn send(&self, kind: Kind, id: u32, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + HEADER_BYTES);
        encode(kind, id, payload, &mut bytes).map_err(|fault| self.protocol(fault.to_string()))?;
        self.send_raw(&bytes)
    }

    /// Ends the session for all requests.
    pub fn give_up(&self, reason: String) {
        self.waiters.end(&reason);
    }

    pub fn gone(&self, reason: String) -> Error {
        Error::Gone { node: self.name.clone(), reason }
    }

    pub fn protocol(&self, reason: String) -> Error {
        Error::Protocol { node: self.name.clone(), reason }
    }

    fn send_raw(&self, bytes: &[u8]) -> Result<()> {
        let mut output = lock(&self.output);
        output.write_all(bytes).and_then(|()| output.flush()).map_err(|e| {
            // Half a frame may have gone out: nothing may follow it.
            let reason = format!("cannot send: {e}");
            self.waiters.end(&reason);
            self.gone(reason)
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if lock(&self.waiters.state).gone.is_none() {
            // An agent that does not answer undoes everything when the stream ends.
            let _ = self.goodbye();
        }
    }
}

impl Waiters {
    fn add(&self, id: u32, sender: Sender<Frame>) -> Result<()> {
        let mut state = lock(&self.state);
        if state.gone.is_some() {
            drop(state);
            return Err(self.why_gone());
        }
        state.calls.insert(id, sender);
        Ok(())
    }

    /// Tells all waiting requests that the session has ended.
    fn end(&self, reason: &str) {
        let mut state = lock(&self.state);
        state.gone.get_or_insert_with(|| reason.to_owned());
        state.calls.clear();
    }

    fn why_gone(&self) -> Error {
        let reason = lock(&self.state).gone.clone().unwrap_or_else(|| "it sends nothing".into());
        Error::Gone { node: self.name.clone(), reason }
    }

    /// Reads the stream to its end.
    fn read(&self, mut input: Box<dyn Read + Send>, hello: Hello, greeted: &Sender<Greeting>) {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0u8; 64 << 10];
        let reason = loop {
            match input.read(&mut buffer) {
                Ok(0) => break Ended::Stream,
                Ok(n) => decoder.push(&buffer[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => break Ended::Read(e),
            }
            match self.take_items(&mut decoder, hello, greeted) {
                Ok(true) => {}
                Ok(false) => break Ended::Goodbye,
                Err(reason) => break reason,
            }
        };
        self.end(&reason.to_string());
    }

    /// Hands a frame to its request; `false` after the answer to a goodbye.
    fn take_items(&self, decoder: &mut Decoder, hello: Hello, greeted: &Sender<Greeting>) -> Result<bool, Ended> {
        loop {
            match decoder.next_item() {
                Ok(None) if decoder.skipped() > SKIP_BYTES => {
                    return Err(Ended::NoAgent);
                }
                Ok(None) => return Ok(true),
                Ok(Some(Item::Hello(theirs))) if theirs.nonce == hello.nonce => {
                    lock(&self.state).begun = true;
                    let _ = greeted.send(Greeting::Answer(same_version(&self.name, theirs.version)));
                }
                Ok(Some(Item::Hello(theirs))) => {
                    if theirs.nonce == READY && lock(&self.state).begun {
                        return Err(Ended::StartedAgain);
                    }
                    if theirs.nonce == READY {
                        let _ = greeted.send(Greeting::Ready);
                    }
                    decoder.resync();
                }
                Ok(Some(Item::Frame(frame))) if frame.id == NO_REQUEST => {
                    return Err(match serde_json::from_slice(&frame.payload) {
                        Ok(Reply::Failed { failure }) => Ended::Message(failure.text().to_owned()),
                        _ => Ended::Session,
                    });
                }
                Ok(Some(Item::Frame(frame))) => {
                    let mut state = lock(&self.state);
                    let last = state.goodbye == Some(frame.id);
                    // Its call was given up.
                    if let Some(sender) = state.calls.get(&frame.id) {
                        let _ = sender.send(frame);
                    }
                    if last {
                        state.goodbye = None;
                        return Ok(false);
                    }
                }
                Err(fault) => return Err(Ended::Sent(fault)),
            }
        }
    }
}

fn same_version(node: &str, theirs: u16) -> Result<()> {
    if theirs == VERSION {
        return Ok(());
    }
    Err(Error::Protocol {
        node: node.into(),
        reason: format!("it speaks version {theirs}, this vmio speaks {VERSION}; use the agent of this build"),
    })
}

/// A request under way.
pub(crate) struct Call {
    client: Arc<Client>,
    id: u32,
    frames: Receiver<Frame>,
}

impl Call {
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Sends more of the request.
    pub fn send(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        self.client.send(kind, self.id, payload)
    }

    /// The next frame; `None` when none comes within `limit`.
    pub fn frame(&self, limit: Option<Duration>) -> Result<Option<Frame>> {
        let frame = match limit {
            None => self.frames.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => self.frames.recv_timeout(limit),
        };
        match frame {
            Ok(frame) => Ok(Some(frame)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.client.waiters.why_gone()),
        }
    }

    fn due_frame(&self) -> Result<Frame> {
        let silent = || self.client.gone(format!("no answer in {} s", ANSWER_LIMIT.as_secs()));
        self.frame(Some(ANSWER_LIMIT))?.ok_or_else(silent)
    }

    /// The answer, a failure as an error.
    pub fn answer(&self) -> Result<Reply> {
        self.client.reply(&self.due_frame()?)
    }

    /// Waits for `Done`.
    pub fn done(&self) -> Result<()> {
        match self.answer()? {
            Reply::Done => Ok(()),
            other => Err(self.client.protocol(format!("an unexpected answer: {other:?}"))),
        }
    }

    /// Collects data up to `Done`.
    pub fn data(&self) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        loop {
            let frame = self.due_frame()?;
            if frame.kind != Kind::Data {
                return self.client.reply(&frame).map(|_| data);
            }
            if data.len() + frame.payload.len() > MOST_DATA {
                return Err(self.client.protocol(format!("more than {MOST_DATA} bytes of data")));
            }
            data.extend_from_slice(&frame.payload);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        lock(&self.client.waiters.state).calls.remove(&self.id);
    }
}
