//! The agent: serves one client at a time over a byte stream.
//!
//! A session begins with a client's hello and ends with its goodbye, with the stream, with a
//! fault in it, or with the next hello. Whatever ends it, what was changed in it is undone: its
//! commands are killed, the files that it made are removed, values of `/proc` and `/sys` that it
//! wrote are put back. (A file that was there before and was overwritten stays as it is.)

mod client;
pub mod container;
pub mod init;
mod message;
pub(crate) mod remote;
mod session;
pub mod stream;

use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Journal;
use crate::agent::message::{Failure, NO_REQUEST, PIECE_BYTES, Reply, Request};
use crate::agent::session::Session;
use crate::helper::proto::{Decoder, Frame, HEADER_BYTES, Hello, Item, Kind, MAX_PAYLOAD, READY, VERSION, encode};
use crate::machine::lock;

/// An agent and what it may do.
pub struct Agent {
    /// Where the journals of the sessions are.
    pub state: PathBuf,
    /// Switches the machine off; only an agent that is init has this.
    pub poweroff: Option<fn() -> io::Result<()>>,
    /// Gets errors that no client can receive.
    pub log: fn(&str),
    /// Silence of the client after which the agent ends, checked at the stream's timeouts. `None`: never.
    pub silence: Option<Duration>,
}

impl Agent {
    /// Serves clients until the stream ends. What earlier agents of the same state directory left
    /// behind is undone first.
    pub fn serve(&self, mut input: impl Read, output: Box<dyn Write + Send>) {
        for failure in crate::recover(&self.state).failed {
            (self.log)(&failure);
        }
        let mut serving = Serving {
            agent: self,
            wire: Arc::new(Mutex::new(output)),
            decoder: Decoder::new(),
            session: Err("no hello"),
        };
        serving.say_hello(READY);
        let mut buffer = vec![0u8; PIECE_BYTES];
        let mut heard = Instant::now();
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    heard = Instant::now();
                    serving.decoder.push(&buffer[..n]);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                    if self.silence.is_some_and(|silence| heard.elapsed() > silence) {
                        (self.log)("its client is silent");
                        break;
                    }
                    // The rest of a frame was lost with an earlier client.
                    if serving.decoder.in_the_middle() {
                        serving.break_off("its client stopped within a frame");
                        serving.decoder.resync();
                    }
                }
                Err(e) => {
                    (self.log)(&format!("cannot read from the client: {e}"));
                    break;
                }
            }
            serving.take_items();
        }
        serving.end("the stream ended");
    }
}

/// One stream being served.
struct Serving<'a> {
    agent: &'a Agent,
    wire: Wire,
    decoder: Decoder,
    /// The session, or why there is none.
    session: Result<Session, &'static str>,
}

impl Serving<'_> {
    fn take_items(&mut self) {
        loop {
            match self.decoder.next_item() {
                Ok(None) => return,
                Ok(Some(Item::Hello(hello))) => self.take_hello(hello),
                Ok(Some(Item::Frame(frame))) => self.take_frame(&frame),
                Err(fault) => {
                    (self.agent.log)(&format!("the client sent {fault}; waiting for the next hello"));
                    self.break_off("its client sent an invalid frame");
                }
            }
        }
    }

    fn take_hello(&mut self, hello: Hello) {
        // A client repeats its hello while it waits for an answer.
        if self.session.as_ref().map_or(true, |s| s.nonce != hello.nonce) {
            self.end("another client came");
            if hello.version == VERSION {
                self.begin(hello.nonce);
            } else {
                self.decoder.resync();
            }
        }
        self.say_hello(hello.nonce);
    }

    fn say_hello(&self, nonce: u64) {
        let mut wire = lock(&self.wire);
        // Whether a client hears this shows at the next read.
        let _ = wire.write_all(&Hello { version: VERSION, nonce }.encode()).and_then(|()| wire.flush());
    }

    fn take_frame(&mut self, frame: &Frame) {
        let id = frame.id;
        let session = match &mut self.session {
            Ok(session) => session,
            Err(why) if frame.kind == Kind::Request => {
                return Outlet::new(&self.wire).fail(id, &format!("the agent has no session: {why}"));
            }
            Err(_) => return,
        };
        match frame.kind {
            Kind::Data => session.data(id, &frame.payload),
            Kind::End => session.end_of_data(id),
            Kind::Request => match serde_json::from_slice(&frame.payload) {
                Ok(Request::Bye) => {
                    self.end("the client said goodbye");
                    Outlet::new(&self.wire).reply(id, &Reply::Done);
                }
                Ok(Request::Poweroff) => self.power_off(id),
                Ok(request) => session.request(id, request),
                Err(e) => session.out.fail(id, &format!("a request that this agent does not know: {e}")),
            },
            // Only an agent sends these.
            Kind::Reply | Kind::Stdout | Kind::Stderr => {}
        }
    }

    fn power_off(&mut self, id: u32) {
        let out = Outlet::new(&self.wire);
        let Some(off) = self.agent.poweroff else {
            return out.fail(id, "this agent is not the init of its machine and does not switch it off");
        };
        self.end("the machine is being switched off");
        // After that nobody can be answered.
        out.reply(id, &Reply::Done);
        if let Err(e) = off() {
            out.fail(id, &format!("cannot switch off: {e}"));
        }
    }

    fn begin(&mut self, nonce: u64) {
        let owner = format!("agent-{}-{nonce:016x}", std::process::id());
        match Journal::open(&self.agent.state, &owner) {
            Ok(journal) => self.session = Ok(Session::new(nonce, Arc::new(journal), Outlet::new(&self.wire))),
            Err(e) => {
                (self.agent.log)(&e.to_string());
                self.session = Err("it cannot open its journal (see its own output); is its state directory writable?");
            }
        }
    }

    /// Ends the session and says so, since the client's requests would not be understood.
    fn break_off(&mut self, why: &'static str) {
        self.end(why);
        Outlet::new(&self.wire).fail(NO_REQUEST, &format!("it ended the session: {why}"));
    }

    /// Ends the session if there is one, and undoes what it changed.
    fn end(&mut self, why: &'static str) {
        if let Ok(session) = std::mem::replace(&mut self.session, Err(why)) {
            for failure in session.end() {
                (self.agent.log)(&failure);
            }
        }
    }
}

/// The way to the client, shared by all that answer.
pub(crate) type Wire = Arc<Mutex<Box<dyn Write + Send>>>;

/// A session's way to the client; closed with the session, so that late answers never reach the
/// next client.
pub(crate) struct Outlet {
    wire: Wire,
    closed: AtomicBool,
}

impl Outlet {
    fn new(wire: &Wire) -> Arc<Self> {
        Arc::new(Self { wire: Arc::clone(wire), closed: AtomicBool::new(false) })
    }

    /// Nothing is sent any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether the session or the stream has ended.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Sends bytes in pieces, so that others get their turn in between.
    pub fn send(&self, kind: Kind, id: u32, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            self.frame(kind, id, piece);
        }
    }

    pub fn reply(&self, id: u32, reply: &Reply) {
        match serde_json::to_vec(reply) {
            Ok(json) if json.len() <= MAX_PAYLOAD => self.frame(Kind::Reply, id, &json),
            // A directory of very many entries, or names that are not UTF-8.
            Ok(_) => self.fail(id, "the answer is too large for one frame"),
            Err(e) => self.fail(id, &format!("the answer cannot be told: {e}")),
        }
    }

    pub fn fail(&self, id: u32, text: &str) {
        self.reply(id, &Reply::Failed { failure: Failure::other(text) });
    }

    fn frame(&self, kind: Kind, id: u32, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(payload.len() + HEADER_BYTES);
        if encode(kind, id, payload, &mut bytes).is_err() {
            return;
        }
        let mut wire = lock(&self.wire);
        // Checked under the lock, so that the session does not end before the write.
        if !self.closed() && wire.write_all(&bytes).and_then(|()| wire.flush()).is_err() {
            // Half a frame may have gone out: nothing may follow it.
            self.close();
        }
    }
}
