//! Base64 with padding (RFC 4648, section 4), in which a guest agent takes and gives bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let all = group.iter().fold(0, |all, b| all << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let sextet = (all >> (18 - 6 * at)) & 63;
            text.push(if at <= group.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

/// Text as bytes; `None` where it is none of [`encode`]'s.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (groups, rest) = text.as_chunks::<4>();
    for (at, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|c| **c == b'=').count();
        if padding > 2 || (padding > 0 && at + 1 != groups.len()) {
            return None;
        }
        let mut all = 0;
        for c in &group[..4 - padding] {
            all = all << 6 | ALPHABET.iter().position(|own| own == c)? as u32;
        }
        all <<= 6 * padding;
        bytes.extend_from_slice(&all.to_be_bytes()[1..4 - padding]);
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_is_bytes_and_back() {
        // Section 10 of the RFC.
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        for wrong in ["Z", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9\n", "Zm9v "] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
