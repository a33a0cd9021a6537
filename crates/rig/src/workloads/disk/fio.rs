//! fio jobs: one description, one command line, one reader of fio's `json+` output. An entry
//! is a constant of type [`FioJob`] in a file of its own.
//!
//! fio's traps, each met here (fio 3.33; see its HOWTO):
//! - a missing path is made as a plain file, even under /dev: `allow_file_create=0`;
//! - a job that failed can still print a result and 0 MB/s: the `error` field is read;
//! - a sparse file could be allocated before the job: `fallocate=none`;
//! - the commit of a durable append is counted apart from its write: see [`super::append`];
//! - buffered reads would find the page cache of the job before: fio drops the file's own pages
//!   first (`invalidate=1`, its default), the machine's other caches are left alone; what is to be warm
//!   is kept, and gone over again and again, since memory is through with it in a moment;
//! - buffered writes end in memory: `end_fsync=1`, whose time fio counts;
//! - an open loop by `io_submit_mode=offload` was seen to hang at its start: on two processors 3 of 6 starts with 16
//!   workers began, and none of 6 with 64; why was not found. Without it fio waits for what is in flight before
//!   it sleeps to the next request (`rate_ddir` of io_u.c). So a job with a rate is threads with a Poisson process each,
//!   whose sum is one, too;
//! - it may hang for other reasons: each run has a time limit, and is ended after it.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;
use vmio_model::figure::{Distribution, Figure, Reading};
use vmio_model::result::{DiskTraits, DiskWork, LATE, LATENCY, WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Output};

use super::{DiskWorkload, Error, Result, WorkCtx, Workload, append};
use crate::workloads::{Role, Stage, Unusable};

/// One fio job.
#[derive(Debug, Clone)]
pub struct FioJob {
    /// Entry name.
    pub name: Cow<'static, str>,
    /// One line.
    pub about: Cow<'static, str>,
    /// fio's `rw=`.
    pub rw: Rw,
    /// Request size in bytes.
    pub block_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// How requests are submitted.
    pub engine: Engine,
    /// Through the page cache of its own kernel.
    pub buffered: bool,
    /// Requests a second that are asked for, at random intervals (Poisson) and whether or not earlier ones have ended
    /// (open loop); `None`: as fast as they go.
    pub rate: Option<u32>,
}

/// How requests are submitted (fio's `ioengine=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Linux AIO: asynchronous past the page cache only.
    Libaio,
    /// io_uring: asynchronous through the page cache, too.
    IoUring,
    /// pwrite and `fdatasync` after each write, synchronous.
    Durable,
    /// A thread for each request in flight, each with pread.
    Threads,
}

impl Engine {
    fn word(self) -> &'static str {
        match self {
            Engine::Libaio => "libaio",
            Engine::IoUring => "io_uring",
            Engine::Durable | Engine::Threads => "psync",
        }
    }
}

/// Patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes, each block at most once.
    RandWrite,
}

impl Rw {
    fn word(self) -> &'static str {
        match self {
            Rw::Read => "read",
            Rw::Write => "write",
            Rw::RandRead => "randread",
            Rw::RandWrite => "randwrite",
        }
    }
    /// Whether it reads.
    pub fn reads(self) -> bool {
        matches!(self, Rw::Read | Rw::RandRead)
    }
    /// Whether its offsets rise one after the other.
    pub fn sequential(self) -> bool {
        matches!(self, Rw::Read | Rw::Write)
    }
}

/// Smallest span: so many blocks that 32 in flight seldom meet, and more than a disk's own cache
/// of small size.
const SPAN_LEAST: u64 = 64 << 20;
const MIB: u64 = 1 << 20;
/// fio measures its clock 50 times for more than 1.2 ms (`gettime.c`, `calibrate_cpu_clock`), and sleeps 100 ms between
/// making its threads and letting them run (`backend.c`, `run_threads`). Seen here: the first request after 0.26 s.
const QUIET_START: Duration = Duration::from_millis(160);
/// What of its rate a job reaches that is not saturated.
const REACHED: f64 = 0.95;
/// How far chance may take a Poisson count from its mean, in standard deviations.
const CHANCE: f64 = 2.0;
/// What fio may take beside its time: for its start, and for what is in flight at its end.
const LIMIT: Duration = Duration::from_secs(120);
/// Where values are missed.
const IN_RESULT: &str = "in its result";

impl FioJob {
    fn durable(&self) -> bool {
        self.engine == Engine::Durable
    }

    /// fio's arguments. They are the same on both sides, but for the path.
    fn args(&self, ctx: &WorkCtx) -> Vec<String> {
        // A bounded number of appends bounds the log that their latencies are taken from.
        let most = if self.durable() { append::MOST * self.block_bytes } else { u64::MAX };
        let span = (ctx.bytes / MIB * MIB).min(most);
        let mut args = vec![
            format!("--name={}", self.name),
            format!("--filename={}", ctx.path.display().to_string().replace(':', "\\:")),
            format!("--rw={}", self.rw.word()),
            format!("--bs={}", self.block_bytes),
            format!("--size={span}"),
            format!("--runtime={}ms", (ctx.seconds * 1000.0).round()),
            format!("--iodepth={}", if self.rate.is_some() { 1 } else { self.depth }),
            "--thread".into(),
            "--allow_file_create=0".into(),
            "--fallocate=none".into(),
            "--eta=never".into(),
            "--output-format=json+".into(),
        ];
        args.push(format!("--ioengine={}", self.engine.word()));
        args.push(format!("--direct={}", u8::from(!self.buffered)));
        if self.durable() {
            args.extend(["--fdatasync=1", append::LOG_ARG].map(String::from));
        } else if self.buffered && !self.rw.reads() {
            args.push("--end_fsync=1".into());
        }
        if self.rw.reads() {
            args.push("--readonly".into());
        }
        if ctx.warm {
            args.push("--invalidate=0".into());
        }
        if ctx.warm || self.rate.is_some() {
            args.push("--time_based=1".into());
        }
        if let Some(rate) = self.rate {
            let (threads, each) = (format!("--numjobs={}", self.depth), format!("--rate_iops={}", rate / self.depth));
            args.extend([threads, "--group_reporting=1".into(), each, "--rate_process=poisson".into()]);
        }
        if let Some(gentle) = ctx.gentle {
            args.push(format!("--rate={}", gentle.cap.bytes()));
        }
        args
    }

    fn command(&self, ctx: &WorkCtx) -> Exec {
        Exec {
            program: "fio".into(),
            args: self.args(ctx),
            limit: Some(Duration::from_secs_f64(ctx.seconds * 2.0) + LIMIT),
            ..ctx.exec_base.clone()
        }
    }

    /// Reads what fio said.
    fn result(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        let (log, said) = if self.durable() { append::split(&output.err()) } else { (vec![], output.err()) };
        let failed = |how: String| Error::Failed {
            node: node.into(),
            command: command.clone(),
            how,
            said: if said.trim().is_empty() { "nothing on standard error".into() } else { said.trim().to_owned() },
        };
        let unusable = |reason: Unusable| reason.of(node, &command);
        if !output.ok() {
            return Err(failed(format!("{:?}", output.end)));
        }
        let text = output.out();
        let doc = json(&text).map_err(&unusable)?;
        let job = &doc["jobs"][0];
        match job["error"].as_i64() {
            Some(0) => {}
            Some(code) => {
                return Err(failed(format!("fio's error {code}: {}", std::io::Error::from_raw_os_error(code as i32))));
            }
            None => return Err(unusable(Unusable::NoValue { key: "error", place: "in its first job" })),
        }
        let side = &job[if self.rw.reads() { "read" } else { "write" }];
        let number =
            |key: &'static str| side[key].as_u64().ok_or_else(|| unusable(Unusable::NoValue { key, place: IN_RESULT }));
        let (bytes, ios, millis) = (number("io_bytes")?, number("total_ios")?, number("runtime")?);
        if bytes == 0 || millis == 0 {
            return Err(unusable(Unusable::Amount(format!(
                "{bytes} bytes in {millis} ms: too little to measure; use a longer time or a larger span"
            ))));
        }
        let latency = if self.durable() {
            append::latency(&log, ios).map_err(&unusable)?
        } else {
            completion(side).map_err(&unusable)?
        };
        let (read_bytes, write_bytes) = if self.rw.reads() { (bytes, 0) } else { (0, bytes) };
        let seconds = millis as f64 / 1000.0;
        let work = DiskWork { read_bytes, write_bytes, ios, seconds, latency: Some(latency) };
        let late = self.rate.map(|_| self.late(side, seconds, ios).map_err(&unusable)).transpose()?;
        let mut result = work.result(doc, command);
        result.figures.extend(late.map(|late| Reading::scalar(LATE, late)));
        Ok(result)
    }

    /// The share of requests that came due while their thread was still at the one before: as large as the share of
    /// the time in which a thread is at work, since Poisson arrivals see time averages (Wolff, Operations Research
    /// 30(2), 1982).
    fn late(&self, side: &Value, seconds: f64, ios: u64) -> Result<f64, Unusable> {
        let lacks = Unusable::NoValue { key: "lat_ns.mean", place: IN_RESULT };
        let each = side["lat_ns"]["mean"].as_f64().ok_or(lacks)? * 1e-9;
        Ok((each * ios as f64 / (seconds * f64::from(self.depth))).min(1.0))
    }
}

impl Workload for FioJob {
    fn about(&self) -> &str {
        &self.about
    }
    fn traits(&self) -> WorkloadTraits {
        let disk = DiskTraits {
            reads: self.rw.reads(),
            writes: !self.rw.reads(),
            sequential: self.rw.sequential(),
            block_bytes: self.block_bytes,
            depth: self.depth,
            direct: !self.buffered,
            engine: self.engine.word().into(),
        };
        let (mut figures, mut judged_by) = disk.figures(true);
        if self.rate.is_some() {
            figures.push(Figure::loss(LATE));
            judged_by = LATENCY;
        }
        WorkloadTraits {
            name: self.name.to_string(),
            figures,
            judged_by: judged_by.into(),
            disk: Some(disk),
            group: None,
        }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Disk
    }
    fn roles(&self) -> &'static [Role] {
        match self.engine {
            Engine::IoUring => const { &super::worker(&["fio"], &[super::FIO, super::IO_URING]) },
            Engine::Libaio | Engine::Durable | Engine::Threads => const { &super::worker(&["fio"], &[super::FIO]) },
        }
    }
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        Some(self)
    }
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        if self.rate.is_some() { Err("it keeps a rate of its own") } else { Ok(()) }
    }
    fn quiet_start(&self) -> Duration {
        QUIET_START
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (node, ctx) = stage.disk()?;
        super::enough(self, &ctx)?;
        super::exists(self, node.reader(), &ctx)?;
        let exec = self.command(&ctx);
        let output = node.exec(&exec)?;
        self.result(node.name(), exec.shown(), &output)
    }
}

impl DiskWorkload for FioJob {
    fn bytes_needed(&self, _memory_bytes: u64) -> u64 {
        SPAN_LEAST
    }
    /// What chance alone does to so few requests is no lack.
    fn is_saturated(&self, result: &WorkloadResult) -> bool {
        let work = result.disk_work();
        self.rate.is_some_and(|rate| {
            let asked = f64::from(rate) * work.seconds;
            (work.ios as f64) < REACHED * asked - CHANCE * asked.sqrt()
        })
    }
    /// Of the completion latencies, and of the flushes between.
    fn longest_seconds(&self, result: &WorkloadResult) -> Option<f64> {
        let job = &result.raw["jobs"][0];
        let side = &job[if self.rw.reads() { "read" } else { "write" }];
        let longest = [&side["clat_ns"]["max"], &job["sync"]["lat_ns"]["max"]].map(Value::as_f64);
        longest.into_iter().flatten().reduce(f64::max).map(|ns| ns * 1e-9)
    }
}

/// fio's document, with whatever warnings stand before or behind it.
fn json(text: &str) -> Result<Value, Unusable> {
    let begin = if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) };
    let start: String = text.chars().take(200).collect();
    let found = begin.and_then(|at| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next());
    match found {
        Some(Ok(doc)) => Ok(doc),
        Some(Err(cause)) => Err(Unusable::BadJson { cause, start }),
        None => Err(Unusable::NoJson(start)),
    }
}

/// Completion latency as fio computed it from its own histogram (`clat_ns`).
fn completion(side: &Value) -> Result<Distribution, Unusable> {
    let clat = &side["clat_ns"];
    let lacks = |key| Unusable::NoValue { key, place: IN_RESULT };
    let mean = clat["mean"].as_f64().ok_or_else(|| lacks("clat_ns.mean"))?;
    let list = clat["percentile"].as_object().ok_or_else(|| lacks("clat_ns.percentile"))?;
    let mut percentiles: Vec<(f64, f64)> =
        list.iter().filter_map(|(p, ns)| Some((p.parse().ok()?, ns.as_f64()? * 1e-9))).collect();
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(Distribution { mean: mean * 1e-9, percentiles })
}

#[cfg(test)]
#[path = "fio_tests.rs"]
mod tests;
