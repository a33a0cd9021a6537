//! The superblocks of bcache (include/uapi/linux/bcache.h, `struct cache_sb_disk`; written as `make-bcache` of
//! bcache-tools writes them), so that a guest needs no program for it.

/// Where a superblock lies on a disk, in bytes and in sectors.
const AT: usize = 4096;
const AT_SECTOR: u64 = 8;
/// What is written: what lies before a superblock, and its page.
const WRITTEN: usize = 2 * AT;
/// Sectors of a bucket, 64 KiB: small, so that small disks have enough of them.
const BUCKET_SECTORS: u16 = 128;
/// The same in bytes.
pub const BUCKET_BYTES: u64 = BUCKET_SECTORS as u64 * 512;
/// Sectors of a block, 4 KiB: what is cached and read at least.
const BLOCK_SECTORS: u16 = 8;
/// `BCACHE_SB_VERSION_CDEV` and `BCACHE_SB_VERSION_BDEV`.
const CACHE_DEVICE: u64 = 0;
const BACKING_DEVICE: u64 = 1;
/// The bytes that the checksum is over: all up to the list of journal buckets, which is empty.
const SUMMED: std::ops::Range<usize> = 8..208;
/// `bcache_magic`.
const MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];

/// A UUID (RFC 9562), as bytes in their order.
pub type Uuid = [u8; 16];

/// The beginning of a cache device of so many bytes: `set` is new for each cache, and nothing that an older one left on
/// the device counts.
pub fn cache_device(own: Uuid, set: Uuid, bytes: u64) -> Vec<u8> {
    // The superblock and 8 KiB before it take the first buckets (make-bcache.c).
    let first_bucket = 23 / BUCKET_SECTORS + 1;
    made(CACHE_DEVICE, (own, set), buckets(bytes), first_bucket)
}

/// Buckets of a cache device of so many bytes.
pub fn buckets(bytes: u64) -> u64 {
    bytes / BUCKET_BYTES
}

/// The beginning of a backing device, whose data begin right behind it. It is attached to the set as soon as both are
/// registered.
pub fn backing_device(own: Uuid, set: Uuid) -> Vec<u8> {
    made(BACKING_DEVICE, (own, set), 0, 0)
}

fn made(version: u64, (own, set): (Uuid, Uuid), buckets: u64, first_bucket: u16) -> Vec<u8> {
    let mut all = vec![0u8; WRITTEN];
    let block = &mut all[AT..];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &AT_SECTOR.to_le_bytes());
    put(16, &version.to_le_bytes());
    put(24, &MAGIC);
    put(40, &own);
    put(56, &set);
    // At 72 a label, at 104 flags (write-through; nothing is synchronised or dirty), at 112 a number: all 0.
    put(184, &buckets.to_le_bytes());
    put(192, &BLOCK_SECTORS.to_le_bytes());
    put(194, &BUCKET_SECTORS.to_le_bytes());
    // One device in the set, the first.
    put(196, &1u16.to_le_bytes());
    put(204, &first_bucket.to_le_bytes());
    let sum = crc64(&block[SUMMED]);
    block[..8].copy_from_slice(&sum.to_le_bytes());
    all
}

/// CRC-64 by the polynomial of ECMA-182, as bcache has it (`bch_crc64`): all ones at first, inverted at the end.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x42f0_e1eb_a9ea_3693;
    let step = |crc: u64, _| if crc >> 63 == 1 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
    !bytes.iter().fold(!0u64, |crc, byte| (0..8).fold(crc ^ (u64::from(*byte) << 56), step))
}

/// A UUID from its text, as the kernel writes it: `0f3a…-…`.
pub fn uuid(text: &str) -> Option<Uuid> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    let mut bytes = [0u8; 16];
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(of: &[u8], at: usize, bytes: usize) -> u64 {
        of[AT + at..AT + at + bytes].iter().rev().fold(0, |n, byte| (n << 8) | u64::from(*byte))
    }

    #[test]
    fn the_checksum_is_that_of_the_kernel() {
        // The check value of CRC-64/WE (catalogue of parametrised CRC algorithms).
        assert_eq!(crc64(b"123456789"), 0x62ec_59e3_f1a4_f00a);
    }

    #[test]
    fn a_cache_device_has_all_buckets_that_fit_and_its_own_checksum() {
        let made = cache_device([1; 16], [2; 16], 96 << 20);
        assert_eq!(made.len(), WRITTEN);
        assert!(made[..AT].iter().all(|byte| *byte == 0));
        assert_eq!(&made[AT + 24..AT + 40], b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81");
        assert_eq!((number(&made, 8, 8), number(&made, 16, 8)), (8, CACHE_DEVICE));
        assert_eq!((number(&made, 184, 8), number(&made, 194, 2)), (96 * 16, 128));
        assert_eq!((number(&made, 196, 2), number(&made, 198, 2), number(&made, 204, 2)), (1, 0, 1));
        assert_eq!(number(&made, 0, 8), crc64(&made[AT + 8..AT + 208]));
        assert_ne!(made, cache_device([1; 16], [3; 16], 96 << 20));
    }

    #[test]
    fn a_backing_device_names_the_set_that_it_belongs_to() {
        let made = backing_device([1; 16], [2; 16]);
        assert_eq!((number(&made, 16, 8), number(&made, 192, 2)), (BACKING_DEVICE, 8));
        assert_eq!((&made[AT + 40..AT + 56], &made[AT + 56..AT + 72]), (&[1; 16][..], &[2; 16][..]));
    }

    #[test]
    fn a_uuid_is_read_in_the_order_of_its_digits() {
        let read = uuid("00112233-4455-6677-8899-aabbccddeeff\n").unwrap_or_default();
        assert!(read.iter().enumerate().all(|(i, byte)| usize::from(*byte) == 0x11 * i), "{read:x?}");
        assert_eq!((uuid("00112233"), uuid("")), (None, None));
    }
}
