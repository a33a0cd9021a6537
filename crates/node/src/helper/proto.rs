//! The wire between vmio and its agent, and between vmio and its helpers ([`super::Line`]): a hello, then frames.
//!
//! A hello is 18 bytes: [`MAGIC`], version (u16), a number chosen by the client that the agent
//! repeats (u64). A frame is the length of its payload (u32, at most [`MAX_PAYLOAD`]), a kind
//! (u8), the id of the request that it belongs to (u32), and the payload. All numbers are little
//! endian. The first bytes of the magic read as a length are out of range, so that a hello is
//! known for what it is wherever a frame could begin.
//!
//! A serial line keeps bytes of those who used it before: each side skips what precedes the
//! hello of the other, and after a fault looks for the next hello.

use thiserror::Error;

/// First bytes of a hello, the same in all versions.
pub const MAGIC: [u8; 8] = *b"VMIOwire";

/// Version of the frames and messages after the hello. Both sides must speak the same: agent and
/// vmio come from one build.
pub const VERSION: u16 = 1;

/// Nonce of the hello by which an agent says that it listens now: a client that came before says
/// hello again.
pub const READY: u64 = 0;

/// Largest payload of a frame, in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 18;

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 9;

/// The opening of a session by the client, and the agent's answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Version that the sender speaks.
    pub version: u16,
    /// Chosen by the client, repeated by the agent: tells an answer from an old one. Zero
    /// ([`READY`]) in what the agent sends unasked when it begins to listen.
    pub nonce: u64,
}

impl Hello {
    /// The hello as it goes over the wire.
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }
}

/// What the payload of a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: a request in JSON.
    Request = 1,
    /// Bytes of a file, of standard input or of samples.
    Data = 2,
    /// Client: no more data for this request.
    End = 3,
    /// Agent: an answer in JSON.
    Reply = 4,
    /// Agent: standard output of a command.
    Stdout = 5,
    /// Agent: standard error of a command.
    Stderr = 6,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Request, Self::Data, Self::End, Self::Reply, Self::Stdout, Self::Stderr]
            .into_iter()
            .find(|&k| k as u8 == byte)
    }
}

/// One message or piece of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: Kind,
    /// The request that it belongs to.
    pub id: u32,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
}

/// Appends a frame to `out`.
///
/// # Errors
/// When the payload is larger than [`MAX_PAYLOAD`].
pub fn encode(kind: Kind, id: u32, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD);
    let length = length.ok_or(Fault::TooLong { length: payload.len() })?;
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The length is out of range.
    #[error("a frame of {length} bytes; {MAX_PAYLOAD} is the most")]
    TooLong {
        /// Length given, in bytes.
        length: usize,
    },
    /// A kind that this version does not know.
    #[error("a frame of the unknown kind {kind}")]
    UnknownKind {
        /// Kind given.
        kind: u8,
    },
}

/// What a [`Decoder`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A hello; frames follow.
    Hello(Hello),
    /// A frame.
    Frame(Frame),
}

/// Finds hellos and frames in a stream that comes in pieces of any size. It begins by looking for
/// a hello. When it is drained after each piece, it holds at most one frame and one piece.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// What lies before was taken already.
    start: usize,
    hunting: bool,
    skipped: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { buffer: Vec::new(), start: 0, hunting: true, skipped: 0 }
    }
}

impl Decoder {
    /// A decoder that looks for a hello.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next hello or frame; `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are no frame. The decoder then looks for the next hello.
    pub fn next_item(&mut self) -> Result<Option<Item>, Fault> {
        if self.hunting {
            return Ok(self.hunt());
        }
        let bytes = &self.buffer[self.start..];
        if bytes.starts_with(&MAGIC) {
            return Ok(self.take_hello());
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, i0, i1, i2, i3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let kind = match Kind::from_byte(kind) {
            Some(known) if length <= MAX_PAYLOAD => known,
            other => {
                self.hunting = true;
                return Err(other.map_or(Fault::UnknownKind { kind }, |_| Fault::TooLong { length }));
            }
        };
        let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        let frame = Frame { kind, id: u32::from_le_bytes([i0, i1, i2, i3]), payload: payload.to_vec() };
        self.start += HEADER_BYTES + length;
        Ok(Some(Item::Frame(frame)))
    }

    /// Gives up what has begun and looks for a hello, also in what is held already.
    pub fn resync(&mut self) {
        self.hunting = true;
    }

    /// Whether something has begun whose end is missing.
    pub fn in_the_middle(&self) -> bool {
        !self.hunting && self.start < self.buffer.len()
    }

    /// Bytes thrown away so far while looking for a hello.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn hunt(&mut self) -> Option<Item> {
        let bytes = &self.buffer[self.start..];
        // The end may be the beginning of a magic: it stays.
        let end = bytes.len().saturating_sub(MAGIC.len() - 1);
        let found = bytes.windows(MAGIC.len()).position(|w| w == MAGIC);
        let skip = found.unwrap_or(end);
        self.start += skip;
        self.skipped += skip as u64;
        found.and_then(|_| self.take_hello())
    }

    /// A hello at the start of the buffer, once it is whole.
    fn take_hello(&mut self) -> Option<Item> {
        let bytes = self.buffer[self.start..].first_chunk::<HELLO_BYTES>()?;
        let (version, nonce) = bytes[8..].split_first_chunk::<2>()?;
        let nonce = u64::from_le_bytes(*nonce.first_chunk()?);
        let hello = Hello { version: u16::from_le_bytes(*version), nonce };
        self.start += HELLO_BYTES;
        self.hunting = false;
        Some(Item::Hello(hello))
    }
}
