#![allow(clippy::unwrap_used)]
use vmio_node::End;

use super::*;
use crate::workloads::disk::{DURABLE_APPEND, RAND_READ_32, SEQ_READ, SEQ_WRITE, tests::ctx};

fn output(stdout: &str, stderr: &str, code: i32) -> Output {
    Output { end: End::Exit(code), stdout: stdout.into(), stderr: stderr.into(), truncated: false }
}

fn fixture(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/fixtures/fio/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn figures_are_fios_own() {
    let text = fixture("rand-read-32.json");
    let got = RAND_READ_32.result("local", "fio".into(), &output(&text, "", 0)).unwrap();
    let doc: Value = serde_json::from_str(&text).unwrap();
    let read = &doc["jobs"][0]["read"];
    let work = got.disk_work();
    assert_eq!(work.read_bytes, read["io_bytes"].as_u64().unwrap());
    assert_eq!(work.write_bytes, 0);
    assert!((work.iops() - read["iops"].as_f64().unwrap()).abs() < 0.01, "{}", work.iops());
    assert!((work.bandwidth() - read["bw_bytes"].as_f64().unwrap()).abs() < 1.0);
    let latency = work.latency.unwrap();
    let p99 = read["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap();
    assert!((latency.at(99.0).unwrap() - p99 * 1e-9).abs() < 1e-12);
    assert!(latency.percentiles.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    assert_eq!(got.raw, doc, "the document is kept whole");
}

#[test]
fn a_job_with_a_rate_tells_what_came_late_and_whether_it_lags() {
    let text = fixture("paced.json");
    let job = |word: &str| crate::workloads::disk::family::parse(word).unwrap().unwrap().job();
    let paced = job("rand-read-4k-d10-2000iops-buffered");
    let args = paced.args(&ctx());
    for arg in ["--numjobs=10", "--iodepth=1", "--rate_iops=200", "--rate_process=poisson", "--time_based=1"] {
        assert_eq!(args.iter().filter(|own| *own == arg).count(), 1, "{arg}: {args:?}");
    }
    let got = paced.result("local", "fio".into(), &output(&text, "", 0)).unwrap();
    assert_eq!(vmio_model::figure::check(&paced.traits().figures, &got.figures), Ok(()));
    // 2,081 requests of 11.3 us each in 1.003 s by 10 threads.
    assert!((got.figure(LATE).unwrap() - 0.002_343).abs() < 1e-6, "{:?}", got.figure(LATE));
    assert!(!paced.is_saturated(&got));
    assert!(!job("rand-read-4k-d10-2250iops-buffered").is_saturated(&got), "chance explains so few");
    assert!(job("rand-read-4k-d10-2500iops-buffered").is_saturated(&got));
    assert!(paced.can_be_gentle().is_err() && !RAND_READ_32.is_saturated(&got));
}

#[test]
fn the_longest_request_is_told() {
    let result = |job: &FioJob, name: &str, stderr: &str| {
        job.result("local", "fio".into(), &output(&fixture(name), stderr, 0)).unwrap()
    };
    let reads = result(&RAND_READ_32, "rand-read-32.json", "");
    assert!((RAND_READ_32.longest_seconds(&reads).unwrap() - 0.005_478_376).abs() < 1e-9);
    // Of a durable append the flush is the longer part.
    let appends = result(&DURABLE_APPEND, "durable-append.json", &fixture("durable-append.err"));
    assert!((DURABLE_APPEND.longest_seconds(&appends).unwrap() - 0.004_947_8).abs() < 1e-9);
    assert_eq!(RAND_READ_32.longest_seconds(&WorkloadResult::default()), None);
}

#[test]
fn warnings_around_the_document_do_no_harm() {
    let text = format!("fio: file hash not empty on exit\nnote {{x}}\n{}\nfio: bye\n", fixture("seq-write.json"));
    let got = SEQ_WRITE.result("local", "fio".into(), &output(&text, "", 0)).unwrap();
    let work = got.disk_work();
    assert!(work.write_bytes > 0 && work.read_bytes == 0);
}

#[test]
fn failures_are_errors_that_quote_fio() {
    let missing = output(&fixture("missing-file.json"), &fixture("missing-file.err"), 1);
    let said = SEQ_READ.result("guest0", "fio --x".into(), &missing).unwrap_err().to_string();
    assert!(said.contains("guest0") && said.contains("fio --x") && said.contains("refusing extend of file"), "{said}");

    // An error of the job with exit code 0, as some versions leave it.
    let text = fixture("seq-write.json").replacen("\"error\" : 0", "\"error\" : 5", 1);
    let said = SEQ_WRITE.result("local", "fio".into(), &output(&text, "", 0)).unwrap_err().to_string();
    assert!(said.contains("Input/output error"), "{said}");

    for (text, word) in [("", "no JSON"), ("fio: bad option\n", "bad option"), ("{\"jobs\": [", "EOF"), ("{}", "error")]
    {
        let said = SEQ_READ.result("local", "fio".into(), &output(text, "", 0)).unwrap_err().to_string();
        assert!(said.contains(word), "{text:?}: {said}");
    }
    // A job that did nothing must not become 0 MB/s.
    let text = fixture("rand-read-32.json")
        .replace("\"io_bytes\"", "\"x\"")
        .replace("\"total_ios\"", "\"io_bytes\" : 0, \"total_ios\"");
    let said = RAND_READ_32.result("local", "fio".into(), &output(&text, "", 0)).unwrap_err().to_string();
    assert!(said.contains("too little"), "{said}");
}

#[test]
fn both_sides_differ_in_the_path_alone() {
    let mut guest = ctx();
    guest.path = "/dev/vda".into();
    let (a, b) = (SEQ_WRITE.args(&ctx()), SEQ_WRITE.args(&guest));
    let differ: Vec<_> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
    assert_eq!(a.len(), b.len());
    assert_eq!(differ.len(), 1);
    assert!(differ[0].0.starts_with("--filename="));
}

#[test]
fn no_run_hangs_for_ever() {
    let paced = crate::workloads::disk::family::parse("rand-read-4k-d10-2000iops").unwrap().unwrap().job();
    for job in [&SEQ_READ, &SEQ_WRITE, &RAND_READ_32, &DURABLE_APPEND, &paced] {
        let command = job.command(&ctx());
        assert_eq!(command.limit, Some(Duration::from_secs(124)), "{}", job.name);
        assert!(!command.args.iter().any(|arg| arg.contains("io_submit_mode")), "{:?}", command.args);
    }
}

#[test]
fn what_is_warm_is_kept_and_gone_over_for_the_whole_time() {
    let of = |warm: bool| SEQ_READ.args(&WorkCtx { warm, ..ctx() });
    let more: Vec<String> = of(true).into_iter().filter(|arg| !of(false).contains(arg)).collect();
    assert_eq!(more, ["--invalidate=0", "--time_based=1"]);
}

#[test]
fn the_log_of_appends_is_bounded() {
    let mut huge = ctx();
    huge.bytes = 1 << 40;
    assert!(DURABLE_APPEND.args(&huge).contains(&format!("--size={}", append::MOST * 4096)));
    assert!(SEQ_READ.args(&huge).contains(&format!("--size={}", 1u64 << 40)));
}
