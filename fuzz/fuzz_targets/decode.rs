//! Any bytes, in pieces of any size, must neither make the decoder panic nor let it hold more
//! than one frame and one piece. Run: `cargo +nightly fuzz run decode`.
//!
//! `crates/node/tests/decoder.rs` checks the same with a stable compiler.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmio_node::proto::{Decoder, HEADER_BYTES, HELLO_BYTES, MAX_PAYLOAD};

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (mut bytes, cuts) = (&input.0[..], input.1);
    let mut decoder = Decoder::new();
    let mut cuts = cuts.into_iter().cycle();
    while !bytes.is_empty() {
        let length = (usize::from(cuts.next().unwrap_or(255)) + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        bytes = rest;
        decoder.push(piece);
        while let Ok(Some(_)) | Err(_) = decoder.next_item() {}
        assert!(decoder.held() <= HEADER_BYTES + MAX_PAYLOAD + HELLO_BYTES);
    }
});
