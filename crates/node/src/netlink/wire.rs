//! Netlink messages as bytes: a header, a fixed part by kind, attributes. Pure; layouts are those of
//! include/uapi/linux/netlink.h (netlink(7), RFC 3549). Numbers are in the machine's own order.
//!
//! No maintained crate round-trips HTB (netlink-packet-route gives its options back as raw bytes), so this writes and
//! reads the few messages that are needed.

/// Bytes of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// The bits of an attribute's kind that are its kind; the others say how its payload is packed.
const KIND: u16 = 0x3fff;

/// The kind of message that says how a request went.
pub const ERROR: u16 = 2;
/// The end of an answer of several messages.
pub const DONE: u16 = 3;
/// The kernel had no room to keep a message.
pub const OVERRUN: u16 = 4;

/// Flags of requests and answers.
pub mod flag {
    /// A request.
    pub const REQUEST: u16 = 0x1;
    /// Say how it went.
    pub const ACK: u16 = 0x4;
    /// Say what came of it also to who asked: for qdiscs, what there is.
    pub const ECHO: u16 = 0x8;
    /// The answer changed while it was given: ask again.
    pub const INTERRUPTED: u16 = 0x10;
    /// All there is (NLM_F_ROOT | NLM_F_MATCH).
    pub const DUMP: u16 = 0x300;
    /// Instead of what is there.
    pub const REPLACE: u16 = 0x100;
    /// Only where nothing is there.
    pub const EXCLUSIVE: u16 = 0x200;
    /// Make it where it is not there.
    pub const CREATE: u16 = 0x400;
    /// Of an acknowledgement: the request is not repeated in it.
    pub const CAPPED: u16 = 0x100;
    /// Of an acknowledgement: attributes follow.
    pub const EXPLAINED: u16 = 0x200;
}

/// Bytes that do not hold together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// Attributes being written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    bytes: Vec<u8>,
    /// One that has more than its length can say.
    overlong: Option<u16>,
}

impl Attributes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// And one more.
    #[must_use]
    pub fn with(mut self, kind: u16, payload: &[u8]) -> Self {
        let Ok(length) = u16::try_from(ATTRIBUTE + payload.len()) else {
            self.overlong = Some(kind);
            return self;
        };
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// A number of 64 bits.
    #[must_use]
    pub fn with_u64(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// A text, with the zero at its end.
    #[must_use]
    pub fn with_text(self, kind: u16, text: &str) -> Self {
        let bytes: Vec<u8> = text.bytes().chain([0]).collect();
        self.with(kind, &bytes)
    }

    /// Attributes in an attribute.
    #[must_use]
    pub fn with_nested(mut self, kind: u16, inside: Attributes) -> Self {
        self.overlong = self.overlong.or(inside.overlong);
        self.with(kind, &inside.bytes)
    }

    /// As they go out.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    kind: u16,
    flags: u16,
    fixed: Vec<u8>,
    attributes: Attributes,
}

impl Request {
    /// A request of a kind: its fixed part and attributes.
    pub fn new(kind: u16, flags: u16, fixed: &[u8], attributes: Attributes) -> Self {
        Self { kind, flags: flags | flag::REQUEST | flag::ACK, fixed: fixed.to_vec(), attributes }
    }

    /// As it goes out, under this number.
    ///
    /// # Errors
    /// When an attribute is longer than 65,531 bytes.
    pub fn encode(&self, sequence: u32) -> Result<Vec<u8>, Malformed> {
        if let Some(kind) = self.attributes.overlong {
            return Err(Malformed(format!("attribute {kind} is longer than 65531 bytes")));
        }
        let start = (HEADER + self.fixed.len()).next_multiple_of(4);
        let length = start + self.attributes.bytes.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(&self.fixed);
        bytes.resize(start, 0);
        bytes.extend(&self.attributes.bytes);
        Ok(bytes)
    }
}

/// A message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// The number of the request that it answers.
    pub sequence: u32,
    /// All behind the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The fixed part of so many bytes, and the attributes behind it.
    ///
    /// # Errors
    /// When it is shorter.
    pub fn split(&self, fixed: usize) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        split(self.payload, fixed)
    }
}

/// A fixed part of so many bytes, and the attributes behind it.
///
/// # Errors
/// When there is less.
pub fn split(payload: &[u8], fixed: usize) -> Result<(&[u8], &[u8]), Malformed> {
    match payload.split_at_checked(fixed) {
        Some((head, _)) => Ok((head, payload.get(fixed.next_multiple_of(4)..).unwrap_or_default())),
        None => Err(Malformed(format!("has {} bytes where {fixed} are fixed", payload.len()))),
    }
}

/// The messages in what was received.
///
/// # Errors
/// When a length leads out of it.
pub fn messages(mut bytes: &[u8]) -> Result<Vec<Message<'_>>, Malformed> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0).unwrap_or(0) as usize;
        if length < HEADER || length > bytes.len() {
            return Err(Malformed(format!("has a message of {length} bytes in {}", bytes.len())));
        }
        all.push(Message {
            kind: u16_at(bytes, 4).unwrap_or(0),
            flags: u16_at(bytes, 6).unwrap_or(0),
            sequence: u32_at(bytes, 8).unwrap_or(0),
            payload: &bytes[HEADER..length],
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

/// Kinds and payloads of attributes, in their order.
///
/// # Errors
/// When a length leads out of them.
pub fn attributes(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Malformed> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = u16_at(bytes, 0).map_or(0, usize::from);
        if length < ATTRIBUTE || length > bytes.len() {
            return Err(Malformed(format!("has an attribute of {length} bytes in {}", bytes.len())));
        }
        all.push((u16_at(bytes, 2).unwrap_or(0) & KIND, &bytes[ATTRIBUTE..length]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

/// The first attribute of a kind.
pub fn find<'a>(attributes: &[(u16, &'a [u8])], kind: u16) -> Option<&'a [u8]> {
    attributes.iter().find(|(k, _)| *k == kind).map(|(_, payload)| *payload)
}

/// A text, up to its zero.
pub fn text(payload: &[u8]) -> String {
    let end = payload.iter().position(|&b| b == 0).unwrap_or(payload.len());
    String::from_utf8_lossy(&payload[..end]).into_owned()
}

/// Two bytes of it, where there are so many.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Four bytes of it, where there are so many.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Eight bytes of it, where there are so many.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// How a request went: the error's number (0: well), and what the kernel said beside it.
///
/// # Errors
/// When it is cut off.
pub fn outcome(message: &Message<'_>) -> Result<(i32, String), Malformed> {
    const SAID: u16 = 1;
    let code = u32_at(message.payload, 0).ok_or_else(|| Malformed("says an error without a number".to_owned()))?;
    let code = (code as i32).saturating_neg();
    if message.flags & flag::EXPLAINED == 0 {
        return Ok((code, String::new()));
    }
    // An acknowledgement repeats the request's header, and the rest of it unless it is capped; the end of a dump
    // repeats nothing.
    let repeated = match (message.kind, message.flags & flag::CAPPED != 0) {
        (ERROR, true) => HEADER,
        (ERROR, false) => u32_at(message.payload, 4).unwrap_or(0) as usize,
        _ => 0,
    };
    let rest = message.payload.get((4 + repeated).next_multiple_of(4)..).unwrap_or_default();
    let said = attributes(rest).ok().and_then(|all| find(&all, SAID).map(text)).unwrap_or_default();
    Ok((code, said))
}
