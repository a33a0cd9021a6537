//! Two eBPF programs that limit what guests send as other programs do it, for measuring beside them. They are compiled
//! with the crate: a machine that measures needs no compiler.

/// A token bucket that drops (`bpf/bucket.bpf.c`). Settings: bytes a second, and bytes of the bucket.
pub const BUCKET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bucket.bpf.o"));
/// Departure times (`bpf/edt.bpf.c`). Settings: the horizon in ns; then of each of three guests its IPv4 address as it
/// stands in a packet, and bytes a second.
pub const EDT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/edt.bpf.o"));

/// The first of the settings (`bpf/limits.h`).
const SETTINGS: u64 = 0x766d_696f_7365_7473;

/// The object with its settings filled in: a file for `tc filter add … bpf direct-action obj FILE sec classifier`.
pub fn set(object: &[u8], settings: &[u64]) -> Vec<u8> {
    let mark = SETTINGS.to_ne_bytes();
    let at = object.windows(mark.len()).position(|bytes| bytes == mark).unwrap() + mark.len();
    let settings: Vec<u8> = settings.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let mut object = object.to_vec();
    object[at..at + settings.len()].copy_from_slice(&settings);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_one_place_in_each_object() {
        for (object, count) in [(BUCKET, 2), (EDT, 7)] {
            let mark = SETTINGS.to_ne_bytes();
            assert_eq!(object.windows(mark.len()).filter(|bytes| *bytes == mark).count(), 1);
            // What is not set yet is 0.
            let settings: Vec<u64> = (1..=count).collect();
            let changed = set(object, &settings);
            let differ = object.iter().zip(&changed).filter(|(before, after)| before != after).count();
            assert_eq!((changed.len(), differ as u64), (object.len(), count));
        }
    }
}
