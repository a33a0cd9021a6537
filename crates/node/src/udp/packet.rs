//! A packet of the generator: a header in network byte order, then zeros up to the payload's size.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | `vmU1` |
//! | 4 | 0: a packet of the schedule; 1: the end, whose sequence number is how many were sent; 2: a greeting; 3: its answer |
//! | 5 to 7 | zero |
//! | 8 to 15 | the sender, a random number |
//! | 16 to 23 | sequence number among those that were sent, from 0 |
//! | 24 to 31 | when it was due, in ns of the sender's `CLOCK_MONOTONIC` |
//! | 32 to 39 | when it was sent, likewise |
//! | 40 to 47 | which clock that is; 0 where it is not known |

/// Bytes of the header: the smallest payload.
pub const HEADER_BYTES: usize = 48;
/// The largest payload: 65,535 less the headers of IPv4 and UDP (RFC 768, RFC 791).
pub const MOST_BYTES: usize = 65_507;

const MAGIC: [u8; 4] = *b"vmU1";

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of the schedule.
    Data,
    /// The end: how many were sent.
    End,
    /// Asks whether the receiver is there, before the schedule begins.
    Greeting,
    /// It is: the greeting as it came, with this kind.
    Answer,
}

/// A packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// What it is.
    pub kind: Kind,
    /// Who sent it.
    pub sender: u64,
    /// Its number among those that were sent, from 0; of an end, how many they are.
    pub sequence: u64,
    /// When it was due, in ns of the sender's `CLOCK_MONOTONIC`.
    pub due_ns: u64,
    /// When it was sent, likewise.
    pub sent_ns: u64,
    /// Which clock that is; 0 where it is not known.
    pub clock: u64,
}

/// What each is on the wire, by its place.
const KINDS: [Kind; 4] = [Kind::Data, Kind::End, Kind::Greeting, Kind::Answer];

impl Packet {
    /// Its header as it is sent.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        for (at, field) in [self.sender, self.sequence, self.due_ns, self.sent_ns, self.clock].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// What arrived, if it is a packet of the generator.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let [kind, 0, 0, 0] = header[4..8] else { return None };
        let kind = *KINDS.get(usize::from(kind))?;
        let field = |at: usize| header[8 + 8 * at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        (header[..4] == MAGIC).then_some(Self {
            kind,
            sender: field(0)?,
            sequence: field(1)?,
            due_ns: field(2)?,
            sent_ns: field(3)?,
            clock: field(4)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(fields in any::<[u64; 5]>(), kind in 0usize..4, more in 0usize..100) {
            let [sender, sequence, due_ns, sent_ns, clock] = fields;
            let kind = KINDS[kind];
            let packet = Packet { kind, sender, sequence, due_ns, sent_ns, clock };
            let mut bytes = packet.header().to_vec();
            bytes.resize(HEADER_BYTES + more, 0);
            prop_assert_eq!(Packet::read(&bytes), Some(packet));
        }

        #[test]
        fn whatever_arrives_is_a_packet_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(packet) = Packet::read(&bytes) {
                prop_assert_eq!(&packet.header()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }

    #[test]
    fn packet_layout() {
        let packet = Packet { kind: Kind::End, sender: 1, sequence: 2, due_ns: 3, sent_ns: 4, clock: 5 };
        let header = packet.header();
        assert_eq!(&header[..8], b"vmU1\x01\0\0\0");
        for (at, expected) in (8..48).step_by(8).zip(1u64..) {
            assert_eq!(header[at..at + 8], expected.to_be_bytes());
        }
        assert_eq!(Packet::read(&header), Some(packet));
        assert_eq!(Packet::read(&header[..47]), None, "cut");
        for at in 0..8 {
            let mut other = header;
            other[at] ^= 0x40;
            assert_eq!(Packet::read(&other), None, "byte {at}");
        }
    }
}
