#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::wire::*;

#[test]
fn layout_of_a_request() {
    let inside = Attributes::new().with_u32(1, 0x0102_0304);
    let request =
        Request::new(36, flag::CREATE, &[9; 20], Attributes::new().with_text(1, "htb").with_nested(2, inside));
    let bytes = request.encode(7).unwrap();
    assert_eq!(u32_at(&bytes, 0).unwrap() as usize, bytes.len());
    assert_eq!((u16_at(&bytes, 4), u16_at(&bytes, 6)), (Some(36), Some(0x405)));
    assert_eq!((u32_at(&bytes, 8), u32_at(&bytes, 12)), (Some(7), Some(0)));
    assert_eq!(bytes[16..36], [9; 20]);
    assert_eq!(bytes[36..44], [8, 0, 1, 0, b'h', b't', b'b', 0]);
    assert_eq!(bytes[44..56], [12, 0, 2, 0, 8, 0, 1, 0, 4, 3, 2, 1]);
}

#[test]
fn too_long_attribute_is_refused() {
    let longest = Attributes::new().with(3, &vec![0; 65_531]);
    assert!(Request::new(1, 0, &[], longest.clone()).encode(1).is_ok());
    let nested = Attributes::new().with_nested(4, longest);
    let refused = Request::new(1, 0, &[], nested).encode(1).unwrap_err();
    assert_eq!(refused.to_string(), "attribute 4 is longer than 65531 bytes");
}

#[test]
fn acknowledgement_has_the_reason() {
    let explained = |flags: u16, repeated: &[u8]| {
        let mut payload = (-22i32).to_ne_bytes().to_vec();
        payload.extend(repeated);
        payload.extend(Attributes::new().with_text(1, "HTB class in use").bytes());
        outcome(&Message { kind: ERROR, flags: flags | flag::EXPLAINED, sequence: 1, payload: &payload }).unwrap()
    };
    let request = Request::new(41, 0, &[0; 20], Attributes::new()).encode(1).unwrap();
    let expected = (22, "HTB class in use".to_owned());
    assert_eq!(explained(flag::CAPPED, &request[..HEADER]), expected);
    assert_eq!(explained(0, &request), expected);
    assert!(outcome(&Message { kind: ERROR, flags: 0, sequence: 1, payload: &[1] }).is_err());
}

fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    Request::new(kind, 0, payload, Attributes::new()).encode(sequence).unwrap()
}

proptest! {
    #[test]
    fn attributes_round_trip(
        all in prop::collection::vec((0u16..=0x3fff, prop::collection::vec(any::<u8>(), 0..300)), 0..20)
    ) {
        let written = all.iter().fold(Attributes::new(), |a, (kind, payload)| a.with(*kind, payload));
        let read: Vec<(u16, Vec<u8>)> =
            attributes(written.bytes()).unwrap().into_iter().map(|(k, p)| (k, p.to_vec())).collect();
        prop_assert_eq!(read, all);
    }

    #[test]
    fn messages_round_trip(
        all in prop::collection::vec((any::<u16>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..100)), 0..10)
    ) {
        let bytes: Vec<u8> = all.iter().flat_map(|(kind, sequence, payload)| message(*kind, *sequence, payload)).collect();
        let read = messages(&bytes).unwrap();
        prop_assert_eq!(read.len(), all.len());
        for (read, (kind, sequence, payload)) in read.iter().zip(&all) {
            prop_assert_eq!((read.kind, read.sequence), (*kind, *sequence));
            // What is fixed is padded to four bytes.
            prop_assert_eq!(&read.payload[..payload.len()], payload.as_slice());
        }
    }

    #[test]
    fn hostile_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(all) = messages(&bytes) {
            for message in all {
                let _ = outcome(&message);
                let _ = outcome(&Message { kind: ERROR, flags: flag::EXPLAINED, ..message });
                let _ = message.split(20);
            }
        }
        let _ = attributes(&bytes);
    }

    #[test]
    fn truncated_messages_are_errors(
        payload in prop::collection::vec(any::<u8>(), 1..50), cut in 1usize..20
    ) {
        let written = Attributes::new().with(5, &payload);
        let bytes = &written.bytes()[..4 + payload.len()];
        let cut = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(cut.is_empty() || attributes(cut).is_err());
    }
}
