//! What a program asks of its machine's memory: blocks from the C library's allocator, writes that no cache holds, and
//! pages that the kernel gives it as they are touched.

use std::hint::black_box;
use std::io;
use std::ptr;

use super::{Kernel, Kind, Numbers, WrongResult};

/// 1,024 blocks of 16 bytes to 64 KiB, each as often as twice as large ones.
pub const ALLOCATE: Kind = Kind {
    name: "allocate",
    counts: "allocations",
    size: "how many blocks are held at a time",
    usual: 1024,
    range: (16, 1 << 20),
    bytes: |blocks| blocks * MEAN_BLOCK,
    make: |blocks| Ok(Box::new(Allocate::new(blocks))),
};

/// 64 MiB, written whole again and again.
pub const WRITE: Kind = Kind {
    name: "write",
    counts: "bytes",
    size: "the bytes of the buffer",
    usual: 64 << 20,
    range: (1 << 16, 16 << 30),
    bytes: |bytes| bytes,
    make: |bytes| Ok(Box::new(Write { buffer: vec![1; bytes], value: 1 })),
};

/// 16 MiB of pages that are mapped, touched one by one and given back.
pub const FAULTS: Kind = Kind {
    name: "page-faults",
    counts: "page faults",
    size: "the bytes that are mapped at a time",
    usual: 16 << 20,
    range: (1 << 16, 16 << 30),
    bytes: |bytes| bytes,
    make: |bytes| Ok(Box::new(Faults::new(bytes)?)),
};

/// Smallest block.
const LEAST: usize = 16;
/// How many times it may be doubled.
const DOUBLED: u64 = 13;
/// What a block has on average, and some more.
const MEAN_BLOCK: usize = 16 << 10;

/// Blocks by the allocator that programs use: the C library's, which is Rust's own here.
struct Allocate {
    numbers: Numbers,
    held: Vec<Vec<u8>>,
    made: u64,
    freed: u64,
}

impl Allocate {
    fn new(blocks: usize) -> Self {
        Self { numbers: Numbers(3), held: (0..blocks).map(|_| Vec::new()).collect(), made: 0, freed: 0 }
    }
}

impl Kernel for Allocate {
    fn amount(&self) -> f64 {
        self.held.len() as f64
    }

    fn run(&mut self) -> io::Result<()> {
        for place in 0..self.held.len() {
            let size = LEAST << (self.numbers.next() % DOUBLED);
            let mut block: Vec<u8> = Vec::with_capacity(size);
            // The first byte alone: writing all of it is another kernel.
            block.push(1);
            self.made += 1;
            let old = std::mem::replace(&mut self.held[place], black_box(block));
            self.freed += old.len() as u64;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), WrongResult> {
        let held = self.held.iter().filter(|block| block.first() == Some(&1)).count() as u64;
        if self.freed + held == self.made {
            return Ok(());
        }
        Err(WrongResult::Blocks { whole: held, freed: self.freed, made: self.made })
    }
}

struct Write {
    buffer: Vec<u8>,
    value: u8,
}

impl Kernel for Write {
    fn amount(&self) -> f64 {
        self.buffer.len() as f64
    }

    fn run(&mut self) -> io::Result<()> {
        self.value = self.value.wrapping_add(1);
        black_box(&mut self.buffer).fill(self.value);
        black_box(&mut self.buffer);
        Ok(())
    }

    fn check(&self) -> Result<(), WrongResult> {
        match self.buffer.iter().position(|byte| *byte != self.value) {
            None => Ok(()),
            Some(at) => Err(WrongResult::Byte { at, found: self.buffer[at], wanted: self.value }),
        }
    }
}

/// Bytes of a page as it is touched: what is larger is touched more often than it faults, which the check finds.
const PAGE: usize = 4096;

struct Faults {
    bytes: usize,
    touched: u64,
    /// Faults of this process before the first run.
    before: u64,
}

impl Faults {
    fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes / PAGE * PAGE;
        Ok(Self { bytes, touched: 0, before: minor_faults()? })
    }
}

impl Kernel for Faults {
    fn amount(&self) -> f64 {
        (self.bytes / PAGE) as f64
    }

    fn run(&mut self) -> io::Result<()> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where the kernel likes, of no file; nothing else knows of it (mmap(2)).
        let start = unsafe { libc::mmap(ptr::null_mut(), self.bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A fault for each page, and none for 512 at once. A kernel without huge pages refuses the word: it has none.
        // SAFETY: the mapping above, whole; it changes how it is backed alone (madvise(2)).
        unsafe { libc::madvise(start, self.bytes, libc::MADV_NOHUGEPAGE) };
        for offset in (0..self.bytes).step_by(PAGE) {
            // SAFETY: within the mapping, which may be written; a byte has no alignment.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        self.touched += (self.bytes / PAGE) as u64;
        // SAFETY: the mapping above, whole; nothing refers to it any more.
        match unsafe { libc::munmap(start, self.bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn check(&self) -> Result<(), WrongResult> {
        let counted = minor_faults()? - self.before;
        if counted >= self.touched { Ok(()) } else { Err(WrongResult::Faults { touched: self.touched, counted }) }
    }
}

/// Page faults of this process without input or output (getrusage(2)).
fn minor_faults() -> io::Result<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the structure that it is given, whole, or says that it did not.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, as the call said.
    Ok(unsafe { usage.assume_init() }.ru_minflt as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn blocks_are_checked() {
        let mut blocks = Allocate::new(64);
        blocks.run().unwrap();
        blocks.run().unwrap();
        blocks.check().unwrap();
        assert!(blocks.held.iter().all(|block| (16..=64 << 10).contains(&block.capacity())));
        blocks.held[3].clear();
        assert!(blocks.check().unwrap_err().to_string().contains("63 blocks are whole"));
    }

    #[test]
    fn every_byte_is_written() {
        let mut write = Write { buffer: vec![1; 1 << 16], value: 1 };
        write.run().unwrap();
        write.check().unwrap();
        write.buffer[70] = 0;
        assert!(write.check().unwrap_err().to_string().contains("byte 70"));
    }

    #[test]
    fn each_page_is_a_fault() {
        let mut faults = Faults::new(1 << 20).unwrap();
        faults.run().unwrap();
        faults.check().unwrap();
        assert_eq!((faults.amount(), faults.touched), (256.0, 256));
        faults.touched += 1 << 40;
        assert!(faults.check().is_err());
    }
}
