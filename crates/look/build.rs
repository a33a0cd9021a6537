//! Compiles the eBPF program that traces block requests.

#[path = "../../scripts/bpf_build.rs"]
mod bpf_build;

fn main() {
    bpf_build::compile("blocktrace", &["bpf/kernel.h", "bpf/bucket.h"]);
}
