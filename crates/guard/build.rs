//! Compiles the eBPF program that tells classes apart.

#[path = "../../scripts/bpf_build.rs"]
mod bpf_build;

fn main() {
    bpf_build::compile("classify", &["bpf/kernel.h"]);
}
