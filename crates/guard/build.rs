//! Compiles the eBPF program of `bpf/` with clang, as crates/look does with its own.

// It compiles; what it is part of launches nothing.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/classify.bpf.c";

fn main() {
    for file in [SOURCE, "bpf/kernel.h"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // Set by libbpf-sys, which brings libbpf's headers.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let object = Path::new(&out).join("classify.bpf.o");
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    // -g: maps are declared by their types (BTF).
    let done = Command::new(&clang)
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I", &include, "-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {SOURCE} ({status}); its messages are above"),
        Err(e) => panic!(
            "cannot run {clang}, which compiles the eBPF programs: {e}\n  help: scripts/setup build \
             (Debian: apt install clang), or name one: CLANG=clang-16 cargo build"
        ),
    }
}
