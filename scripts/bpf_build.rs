//! Compiles a crate's eBPF programs with clang, for its build script. libbpf adapts the object to the running kernel when it
//! is loaded (CO-RE), so it is built once, wherever.

// It compiles; what it is part of launches nothing.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::env;
use std::path::Path;
use std::process::Command;

/// Compiles `bpf/NAME.bpf.c`, which includes these headers, to `NAME.bpf.o` of `OUT_DIR`.
pub fn compile(name: &str, headers: &[&str]) {
    let source = format!("bpf/{name}.bpf.c");
    for file in headers.iter().chain([&source.as_str(), &"../../scripts/bpf_build.rs"]) {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // Set by libbpf-sys, which brings libbpf's headers.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let object = Path::new(&out).join(format!("{name}.bpf.o"));
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    // -mcpu=v3: compare and swap, from Linux 5.12. -g: CO-RE and the maps need the types (BTF).
    let done = Command::new(&clang)
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I", &include, "-c", &source, "-o"])
        .arg(&object)
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source} ({status}); its messages are above"),
        Err(e) => panic!(
            "cannot run {clang}, which compiles the eBPF programs: {e}\n  help: scripts/setup build \
             (Debian: apt install clang), or name one: CLANG=clang-16 cargo build"
        ),
    }
}
