//! Opens eBPF objects of vmio's own, and returns libbpf's messages in the error instead of printing them. The guard
//! loads its classifier with it, too.

// The one place of this crate that loads something; it ends with this process.
#![allow(clippy::disallowed_types)]

use std::mem;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{Error, ObjectBuilder, OpenObject, PrintLevel, Result};

/// An object's bytes as built, aligned for libelf.
#[repr(C, align(16))]
pub struct Aligned<T: ?Sized>(pub T);

/// Opens an object; the kernel shows its programs and maps under this name.
///
/// # Errors
/// libbpf's error.
pub fn open(name: &str, object: &Aligned<[u8]>) -> Result<OpenObject> {
    ObjectBuilder::default().name(name)?.open_memory(&object.0)
}

/// Messages of libbpf.
static LOG: Mutex<String> = Mutex::new(String::new());

/// Calls libbpf.
///
/// # Errors
/// The error of `work`, with the messages of libbpf and the verifier.
pub fn loudly<T>(work: impl FnOnce() -> Result<T>) -> std::result::Result<T, (Error, String)> {
    // libbpf has one log for the process: one call at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let keep = |_: PrintLevel, text: String| LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let done = work();
    libbpf_rs::set_print(before);
    let log = mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
    done.map_err(|source| (source, log))
}
