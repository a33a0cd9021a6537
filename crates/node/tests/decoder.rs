//! Properties of the frame decoder: what is encoded comes back however it is cut, and no bytes
//! whatever make it panic or hold more than it may.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use vmio_node::proto::{
    Decoder, Fault, Frame, HEADER_BYTES, HELLO_BYTES, Hello, Item, Kind, MAGIC, MAX_PAYLOAD, VERSION, encode,
};

fn frame() -> impl Strategy<Value = Frame> {
    let kind =
        prop::sample::select(vec![Kind::Request, Kind::Data, Kind::End, Kind::Reply, Kind::Stdout, Kind::Stderr]);
    (kind, any::<u32>(), vec(any::<u8>(), 0..600)).prop_map(|(kind, id, payload)| Frame { kind, id, payload })
}

/// Bytes that look like parts of the protocol more often than chance would have it.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => vec(any::<u8>(), 0..80),
        2 => Just(MAGIC.to_vec()),
        1 => (0..MAGIC.len()).prop_map(|n| MAGIC[..n].to_vec()),
        2 => any::<u64>().prop_map(|nonce| Hello { version: VERSION, nonce }.encode().to_vec()),
        2 => (0..2 * MAX_PAYLOAD as u32, 0..9u8).prop_map(|(length, kind)| [&length.to_le_bytes()[..], &[kind]].concat()),
        2 => frame().prop_map(|f| wire(&[f])),
        1 => Just(vec![0; 40]),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn wire(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode(frame.kind, frame.id, &frame.payload, &mut bytes).unwrap();
    }
    bytes
}

/// Feeds `bytes` in pieces of the sizes in `cuts` and checks the bound after each.
fn decode(decoder: &mut Decoder, mut bytes: &[u8], cuts: &[usize]) -> Vec<Result<Item, Fault>> {
    let mut items = Vec::new();
    let mut cuts = cuts.iter().copied().cycle();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, bytes.len()));
        bytes = rest;
        decoder.push(piece);
        while let Some(item) = decoder.next_item().transpose() {
            items.push(item);
        }
        assert!(decoder.held() < HEADER_BYTES + MAX_PAYLOAD.max(HELLO_BYTES));
    }
    items
}

fn round_trip(before: &[u8], nonce: u64, frames: &[Frame], cuts: &[usize]) {
    let hello = Hello { version: VERSION, nonce };
    let bytes = [before, &hello.encode(), &wire(frames)].concat();
    let items = decode(&mut Decoder::new(), &bytes, cuts);
    let expected: Vec<_> =
        std::iter::once(Item::Hello(hello)).chain(frames.iter().cloned().map(Item::Frame)).map(Ok).collect();
    assert_eq!(items, expected);
}

fn no_harm(bytes: &[u8], cuts: &[usize]) {
    let mut decoder = Decoder::new();
    let cut = decode(&mut decoder, bytes, cuts);
    // How the stream is cut changes nothing.
    assert_eq!(cut, decode(&mut Decoder::new(), bytes, &[]));
    // And whatever it was, the next client is heard, if what has begun is given up as often as the
    // line falls silent. (Its first hello may complete a torn one: the noise before stands for that.)
    let hello = Hello { version: VERSION, nonce: 42 };
    let mut items = decode(&mut decoder, &[&[0xff; HELLO_BYTES][..], &hello.encode()].concat(), cuts);
    while items.last() != Some(&Ok(Item::Hello(hello))) {
        assert!(decoder.in_the_middle(), "the hello was thrown away");
        decoder.resync();
        items = std::iter::from_fn(|| decoder.next_item().transpose()).collect();
    }
}

/// Noise that holds no magic, nor the beginning of one at its end.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300).prop_map(|bytes| bytes.into_iter().map(|b| if b == MAGIC[0] { 0 } else { b }).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_comes_back(
        before in noise(), nonce: u64, frames in vec(frame(), 0..20), cuts in vec(1usize..700, 0..20)
    ) {
        round_trip(&before, nonce, &frames, &cuts);
    }

    #[test]
    fn garbage_does_no_harm(bytes in garbage(), cuts in vec(1usize..100, 0..20)) {
        no_harm(&bytes, &cuts);
    }
}

/// The same for half a million inputs.
#[test]
#[ignore = "long"]
fn long_form() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 250_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cuts = || vec(1usize..700, 0..20);
    runner
        .run(&(noise(), any::<u64>(), vec(frame(), 0..20), cuts()), |(before, nonce, frames, cuts)| {
            round_trip(&before, nonce, &frames, &cuts);
            Ok(())
        })
        .unwrap();
    runner
        .run(&(garbage(), cuts()), |(bytes, cuts)| {
            no_harm(&bytes, &cuts);
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_bounds_of_a_frame() {
    let mut bytes = Hello { version: VERSION, nonce: 1 }.encode().to_vec();
    let largest = Frame { kind: Kind::Data, id: u32::MAX, payload: vec![7; MAX_PAYLOAD] };
    bytes.extend(wire(std::slice::from_ref(&largest)));
    let items = decode(&mut Decoder::new(), &bytes, &[65536]);
    assert_eq!(items[1], Ok(Item::Frame(largest)));
    let too_long = encode(Kind::Data, 1, &vec![0; MAX_PAYLOAD + 1], &mut Vec::new());
    assert_eq!(too_long, Err(Fault::TooLong { length: MAX_PAYLOAD + 1 }));

    let hello = Hello { version: VERSION, nonce: 1 }.encode();
    let length = (MAX_PAYLOAD as u32 + 1).to_le_bytes();
    let mut decoder = Decoder::new();
    let items = decode(&mut decoder, &[&hello[..], &length, &[2, 0, 0, 0, 0], &hello].concat(), &[]);
    assert_eq!(items[1], Err(Fault::TooLong { length: MAX_PAYLOAD + 1 }));
    assert!(matches!(items[2], Ok(Item::Hello(_))), "after a fault the next hello counts");
    assert_eq!(decoder.skipped(), 9);
    let items = decode(&mut Decoder::new(), &[&hello[..], &[0; 9]].concat(), &[]);
    assert_eq!(items[1], Err(Fault::UnknownKind { kind: 0 }));
}
