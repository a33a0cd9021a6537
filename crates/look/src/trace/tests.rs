#![allow(clippy::unwrap_used)]
use std::process::Command;

use vmio_model::top::latency::{STEPS, bucket};
use vmio_node::fake::Fake;

use super::*;

/// A host like Debian 12: kernel 6.1 has no block_io_start.
fn host() -> Fake {
    Fake::new("host")
        .file("/proc/self/status", "Name:\tvmio\nCapEff:\t000001ffffffffff\n")
        .file(BTF, "\u{1}\0btf_trace_block_rq_issue\0x\0btf_trace_block_rq_complete\0btf_trace_block_rq_insert\0")
}

fn said(fake: &Fake) -> Vec<String> {
    unmet(fake, REQUIREMENTS).into_iter().map(|(_, check)| check.to_string()).collect()
}

#[test]
fn each_need_that_is_unmet_is_named_with_its_mend() {
    assert_eq!(said(&host()), Vec::<String>::new());
    let user = host().file("/proc/self/status", "CapEff:\t0000008000000000\n");
    assert!(said(&user)[0].contains("CapEff 0x8000000000") && said(&user)[0].contains("CAP_PERFMON"));
    let both = host().file("/proc/self/status", "CapEff:\t000000c000000000\n");
    assert_eq!(said(&both), Vec::<String>::new(), "no root, but the two capabilities");
    let locked = host().file(LOCKDOWN, "none integrity [confidentiality]\n");
    assert!(said(&locked)[0].contains("lockdown=integrity"));
    let locked = host().file(LOCKDOWN, "none [integrity] confidentiality\n");
    assert_eq!(said(&locked), Vec::<String>::new());
    let no_types = Fake::new("host").file("/proc/self/status", "CapEff:\t000001ffffffffff\n");
    assert!(said(&no_types)[0].contains("CONFIG_DEBUG_INFO_BTF"));
    let no_points = host().file(BTF, "\0btf_trace_block_rq_issued\0btf_trace_block_rq_complete\0");
    assert!(said(&no_points)[0].contains("no tracepoint block_rq_issue"), "{:?}", said(&no_points));
}

#[test]
fn the_programs_follow_the_tracepoints() {
    let wanted = |t: Tracepoints| {
        let open = open().unwrap();
        let names: Vec<_> = open.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
        let mut wanted: Vec<_> = names.into_iter().filter(|n| t.want(n)).collect();
        wanted.sort();
        wanted
    };
    let old = Tracepoints::of(&host()).unwrap();
    assert_eq!(wanted(old), ["rq_complete", "rq_insert", "rq_issue"]);
    assert_eq!(
        wanted(Tracepoints { io_start: true, merge: true, ..old }),
        ["io_start", "rq_complete", "rq_issue", "rq_merge"]
    );
}

#[test]
fn the_object_and_the_reader_agree_on_the_layout() {
    let open = open().unwrap();
    let map = open.maps().find(|m| m.name() == "flows").unwrap();
    assert_eq!((map.key_size() as usize, map.value_size() as usize), (read::KEY, read::VALUE));
}

fn key(pid: u32, device: (u32, u32), write: u32) -> Vec<u8> {
    [pid, 0, device.0 << 20 | device.1, write].map(u32::to_ne_bytes).concat()
}

/// The value of one CPU: the same number of requests in each of the buckets.
fn value(bytes: u64, name: &[u8], work: &[u8], kernel: u32, counted: &[(usize, u32)]) -> Vec<u8> {
    let mut value = [bytes, 2_000_000_000, 1_000_000_000, 77].map(u64::to_ne_bytes).concat();
    value.extend(kernel.to_ne_bytes());
    for (text, room) in [(name, 16), (work, 24)] {
        value.extend(text);
        value.resize(value.len() + room - text.len(), 0);
    }
    let mut latency = [0u32; BUCKETS];
    counted.iter().for_each(|&(bucket, n)| latency[bucket] = n);
    value.extend(latency.map(u32::to_ne_bytes).concat());
    // All of them a bucket below in the queue, and none at the device but in the last bucket.
    let mut in_queue = [0u32; BUCKETS];
    counted.iter().filter(|(bucket, _)| *bucket > 0).for_each(|&(bucket, n)| in_queue[bucket - 1] = n);
    let mut at_device = [0u32; BUCKETS];
    at_device[BUCKETS - 1] = counted.iter().map(|(_, n)| n).sum();
    value.extend([in_queue, at_device].concat().into_iter().flat_map(u32::to_ne_bytes));
    value.resize(read::VALUE, 0);
    value
}

#[test]
fn cpus_are_added_up_and_kernel_threads_have_no_pid() {
    let cpus = [
        value(0, b"", b"", 0, &[]),
        value(4096, b"qemu-system-x86", b"", 0, &[(7, 3)]),
        value(8192, b"qemu-system-x86", b"", 0, &[(7, 1), (BUCKETS - 1, 2)]),
    ]
    .concat();
    let flow = read::flow(&key(42, (259, 1_048_575), 1), &cpus).unwrap();
    assert_eq!(
        (flow.pid, flow.comm.as_str(), flow.device, flow.write),
        (42, "qemu-system-x86", (259, 1_048_575), true)
    );
    // Here the first CPU has times without requests; they are added too.
    assert_eq!((flow.requests, flow.bytes, flow.device_seconds, flow.queued_seconds), (6, 12288, 6.0, 3.0));
    assert_eq!((flow.latency.counts[7], flow.latency.counts[BUCKETS - 1], flow.cgroup), (4, 2, 77));
    let parts = (flow.in_queue.counts[6], flow.in_queue.counts[BUCKETS - 2], flow.at_device.counts[BUCKETS - 1]);
    assert_eq!(parts, (4, 2, 6));

    let worker = value(4096, b"kworker/u8:1", b"flush-254:0", 1, &[(0, 1)]);
    let flow = read::flow(&key(9, (254, 0), 1), &worker).unwrap();
    assert_eq!((flow.pid, flow.comm.as_str()), (0, "kworker/u8:1+flush-254:0"));
    let resync = value(4096, b"md0_resync\0garbage"[..16].try_into().unwrap(), b"", 1, &[(0, 1)]);
    assert_eq!(read::flow(&key(9, (9, 0), 0), &resync).unwrap().comm, "md0_resync");
    assert_eq!(read::flow(&key(9, (9, 0), 0), &value(0, b"", b"", 0, &[])), None, "nothing counted");
    // PR_SET_NAME takes an empty name.
    let nameless = read::flow(&key(42, (254, 0), 1), &value(4096, b"", b"", 0, &[(7, 1)])).unwrap();
    assert_eq!((nameless.pid, nameless.comm.as_str(), nameless.requests), (42, "", 1));
}

/// `bpf/bucket.h` is compiled for this machine and asked for the buckets.
#[test]
fn the_kernel_side_counts_into_the_models_buckets() {
    const PROGRAM: &str = r#"#include <stdio.h>
#include "bucket.h"
int main(void)
{
	unsigned long long us;
	printf("%d %d\n", STEPS, BUCKETS);
	while (scanf("%llu", &us) == 1)
		printf("%u\n", bucket(us));
}
"#;
    let values: Vec<u64> = (0..5000)
        .chain((0..64).flat_map(|p| [(1u64 << p) - 1, 1 << p, (1 << p) + 1, (1 << p) | (1 << p >> 1), u64::MAX >> p]))
        .chain((0..20_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64)))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("buckets.c"), PROGRAM).unwrap();
    std::fs::write(at("in"), values.iter().map(|v| format!("{v}\n")).collect::<String>()).unwrap();
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/bpf");
    let compiled = Command::new(&clang).args(["-O2", include, "-o"]).args([at("buckets"), at("buckets.c")]).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{clang}: {}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(at("buckets")).stdin(std::fs::File::open(at("in")).unwrap()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines();
    assert_eq!(lines.next().unwrap(), format!("{STEPS} {BUCKETS}"));
    let buckets: Vec<usize> = lines.map(|l| l.parse().unwrap()).collect();
    assert_eq!(buckets.len(), values.len());
    for (us, counted) in values.into_iter().zip(buckets) {
        assert_eq!(counted, bucket(us), "{us} us");
    }
}
