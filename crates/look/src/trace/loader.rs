//! How an eBPF object of vmio's own is opened, and how libbpf's messages come to the error instead of the terminal. The
//! guard loads its classifier by it, too.

// The one place where a look loads something: it ends with this process.
#![allow(clippy::disallowed_types)]

use std::mem;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{Error, ObjectBuilder, OpenObject, PrintLevel, Result};

/// An object's bytes as built; libelf wants them aligned.
#[repr(C, align(16))]
pub struct Aligned<T: ?Sized>(pub T);

/// Opens an object; its programs and maps are called by this name in the kernel.
///
/// # Errors
/// What libbpf says.
pub fn open(name: &str, object: &Aligned<[u8]>) -> Result<OpenObject> {
    ObjectBuilder::default().name(name)?.open_memory(&object.0)
}

/// What libbpf says while it works.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Does some work with libbpf.
///
/// # Errors
/// The work's, with what libbpf and the verifier had to say.
pub fn loudly<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, (Error, String)> {
    // libbpf has one place for its messages, so one at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let keep = |_: PrintLevel, text: String| LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let done = work();
    libbpf_rs::set_print(before);
    let log = mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
    done.map_err(|source| (source, log))
}
