//! The build script of crates with eBPF programs: compiles them with clang. libbpf adapts an object to the running
//! kernel when it is loaded (CO-RE), so it is built once, wherever.

// It compiles; what it is part of launches nothing. What it prints is for cargo.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::print_stdout)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for file in fs::read_dir("bpf").expect("the crate has programs in bpf/").flatten() {
        if file.path().to_string_lossy().ends_with(".bpf.c") {
            compile(&file.path());
        }
    }
}

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o` of `OUT_DIR`.
fn compile(source: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // Set by libbpf-sys, which brings libbpf's headers.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let object = Path::new(&out).join(source.with_extension("o").file_name().expect("it is a file"));
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    // -mcpu=v3: compare and swap, from Linux 5.12. -g: CO-RE and the maps need the types (BTF).
    let done = Command::new(&clang)
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I", &include, "-c"])
        .args([source.as_os_str(), "-o".as_ref(), object.as_os_str()])
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {} ({status}); its messages are above", source.display()),
        Err(e) => panic!(
            "cannot run {clang}, which compiles the eBPF programs: {e}\n  help: scripts/setup build \
             (Debian: apt install clang), or name one: CLANG=clang-16 cargo build"
        ),
    }
}
