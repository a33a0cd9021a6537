//! Hadoop's own TestDFSIO (version 3.3.6, jars of `crate::hadoop`) in local mode: one file is written and read back,
//! which is our reading of shafer2010 (section 3.3), who names no program. It works on a file system, so one is made on the disk, ext4, and
//! mounted in a mount namespace of the command's own: whatever ends the command ends the mount, too. Between write and
//! read it is mounted anew, so that nothing of the file is in the page cache of its side.
//!
//! It counts as one that writes, since the disk's data is lost. Its requests at the device are those of both directions.
//!
//! The summary of TestDFSIO has rates with two places and MB of 1,048,576 bytes. The task that moved the file logs bytes
//! and milliseconds, so these are taken. The time ends before anything is flushed: only a file of twice the side's memory
//! measures the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use vmio_look::require::{self, Missing, Requirement, program};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{DiskTraits, DiskWork, WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Node, Output, Reader};

use super::{DiskWorkload, Error, Result, WorkCtx, Workload};
use crate::hadoop::{self, Jars};
use crate::workloads::error::{cut, start_of, succeeded};
use crate::workloads::{Role, Stage, Unusable};

/// Entry `dfsio`.
pub const ENTRY: Dfsio = Dfsio;

/// `-bufferSize` that it is given: bytes of one call. Its default, 1,000,000, is no multiple of a sector.
const BUFFER: u64 = 1 << 20;
/// Smallest file: below that, Java's start weighs more than the disk.
const LEAST_BYTES: u64 = 512 << 20;
/// What the file system takes beside the file, and a thirty-second part of that: inodes, journal, and the job's own files.
const BESIDE_BYTES: u64 = 160 << 20;

/// Bytes a second for the rates of the two directions.
const WRITE_RATE: &str = "write-rate";
const READ_RATE: &str = "read-rate";

/// Ends the name of the class in front of what it logs (slf4j-simple, on standard error).
const LOGGED: &str = "fs.TestDFSIO - ";

const MKE2FS: &str = "/usr/sbin/mke2fs";
pub(super) const UNSHARE: &str = "/usr/bin/unshare";
/// Where Debian's package openjdk-17-jre-headless has it.
pub(super) const JAVA: &str = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";

/// What it takes beside programs that are found by their names. Hadoop runs those from bash to readlink
/// for owners, modes, links and groups (its class util.Shell).
pub(super) const FILES: &[&str] = &[
    UNSHARE,
    MKE2FS,
    "/usr/bin/bash",
    "/usr/bin/chmod",
    "/usr/bin/id",
    "/usr/bin/ls",
    "/usr/bin/readlink",
    JAVA,
    "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
    "/usr/lib/jvm/java-17-openjdk-amd64/lib",
    "/usr/lib/jvm/java-17-openjdk-amd64/conf",
    hadoop::INSTALLED,
];

pub(super) const ROOT: Requirement = Requirement {
    name: "root",
    why: "makes and mounts the file system of the workloads dfsio and dfsio-hdfs",
    fix: "run as root, or leave out the workloads dfsio and dfsio-hdfs",
    check: require::root,
};

pub(super) const MOUNT: Requirement = Requirement {
    name: "mount",
    why: "mounts the file system of the workloads dfsio and dfsio-hdfs",
    fix: "apt install mount",
    check: |reader| program(reader, "mount"),
};

pub(super) const TOOLS: Requirement = Requirement {
    name: "mke2fs, unshare",
    why: "make the file system of the workloads dfsio and dfsio-hdfs, and keep its mount apart",
    fix: "apt install e2fsprogs util-linux",
    check: |reader| there(reader, &[MKE2FS, UNSHARE]),
};

pub(super) const JRE: Requirement = Requirement {
    name: "Java 17",
    why: "runs the workloads dfsio and dfsio-hdfs",
    fix: "apt install openjdk-17-jre-headless",
    check: |reader| there(reader, &[JAVA]),
};

/// Whether all of these are there.
fn there(reader: &dyn Reader, paths: &[&str]) -> std::result::Result<(), Missing> {
    for path in paths {
        if reader.stat(Path::new(path))?.is_none() {
            return Err(Missing::Unlike(format!("{path} is missing")));
        }
    }
    Ok(())
}

/// The write and the read of a file.
#[derive(Debug, Clone, Copy)]
pub struct Dfsio;

/// Bytes of the file for a side with this much memory.
pub(super) fn file_bytes(memory_bytes: u64) -> u64 {
    (2 * memory_bytes).max(LEAST_BYTES).next_multiple_of(1 << 20)
}

/// Makes the file system, of this size, on `$disk`.
pub(super) fn make_ext4(size: &str) -> String {
    format!("{MKE2FS} -q -F -t ext4 -m 0 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 \"$disk\" \"{size}\"")
}

/// The size of a file system over so many bytes of a disk, as mke2fs takes it.
pub(super) fn ext4_size(bytes: u64) -> String {
    format!("{}k", bytes >> 10)
}

/// TestDFSIO with these settings, which say where the file is, for `$jars`, the direction `$1` and the file's `$size`.
/// Without the two directories below /mnt it works in names in /tmp that others may take; sort buffers of the default
/// size, 100 MB, do not fit into the heap.
pub(super) fn job(settings: &str) -> String {
    format!(
        "{JAVA} -Xmx96m -XX:-UsePerfData -cp \"$jars/*\" org.apache.hadoop.fs.TestDFSIO \
         {settings} -Dhadoop.tmp.dir=/mnt/tmp \
         -Dmapreduce.jobtracker.staging.root.dir=/mnt/tmp/staging -Dmapreduce.task.io.sort.mb=4 \
         \"$1\" -nrFiles 1 -size \"$size\" -bufferSize {BUFFER} -resFile /mnt/result"
    )
}

/// What is run, for a disk, the size of its file system, the size of the file, and where the jars are. The write's log
/// goes to standard output, the read's to standard error. Hadoop looks up the host's name, and only `localhost` needs
/// no name server.
fn script() -> String {
    let (make, job) = (make_ext4("$2"), job("-Dtest.build.data=/mnt/data"));
    format!(
        "set -eu; disk=$1 size=$3 jars=$4; {make}; echo localhost > /proc/sys/kernel/hostname; \
         dfsio() {{ mount -t ext4 \"$disk\" /mnt; {job}; umount /mnt; }}; dfsio -write 2>&1; dfsio -read"
    )
}

/// The command, in namespaces of its own for mounts and for the host's name.
fn command(ctx: &WorkCtx, bytes: u64, jars: &str) -> Exec {
    let disk = ctx.path.display().to_string();
    let mut exec = Exec {
        program: UNSHARE.into(),
        // 1 MiB a second each way is slower than any disk that still works; Java starts twice.
        limit: Some(Duration::from_secs(300 + 2 * (bytes >> 20))),
        ..ctx.exec_base.clone()
    }
    .args(["--mount", "--uts", "sh", "-c"])
    .args([script(), "sh".into(), disk])
    .args([ext4_size(ctx.bytes), format!("{}MB", bytes >> 20), jars.to_owned()]);
    exec.env.insert("LC_ALL".into(), "C".into());
    exec
}

/// The figures of what it said: the write's log and the read's.
pub(super) fn result(node: &str, command: String, asked: u64, output: &Output) -> Result<WorkloadResult> {
    succeeded(node, &command, output)?;
    let (writing, reading) = (output.out(), output.err());
    let unusable = |reason: Unusable| reason.of(node, &command);
    let written = work(&writing, true, asked).map_err(unusable)?;
    let read = work(&reading, false, asked).map_err(unusable)?;
    let rates = [(WRITE_RATE, written.bandwidth()), (READ_RATE, read.bandwidth())];
    let both = DiskWork {
        read_bytes: read.read_bytes,
        write_bytes: written.write_bytes,
        ios: written.ios + read.ios,
        seconds: written.seconds + read.seconds,
        latency: None,
    };
    let own = |log: &str| -> Vec<String> {
        log.lines().filter_map(|line| Some(line.split_once(LOGGED)?.1.trim().to_owned())).collect()
    };
    let mut result = both.result(json!({ "write": own(&writing), "read": own(&reading) }), command);
    result.figures.extend(rates.map(|(name, rate)| Reading::scalar(name, rate)));
    Ok(result)
}

/// The machine, the disk there and the directory of its jars.
///
/// # Errors
/// When it lacks one, or the disk cannot be mounted.
pub(super) fn prepared<'s>(
    workload: &dyn DiskWorkload,
    stage: &'s Stage,
    jars: Jars,
) -> Result<(&'s Arc<dyn Node>, WorkCtx, &'static str)> {
    let (node, ctx) = stage.disk()?;
    super::enough(workload, &ctx)?;
    super::exists(workload, node.reader(), &ctx)?;
    let unfit = |reason: String| Error::Unfit { workload: workload.traits().name, reason };
    if !node.reader().stat(&ctx.path)?.is_some_and(|found| found.is_block()) {
        return Err(unfit(format!(
            "on {} it would mount a file, and it mounts only block devices: natively use the target device",
            node.name()
        )));
    }
    let place = jars.place(node.reader()).ok_or_else(|| unfit(format!("{} lacks Hadoop's jars", node.name())))?;
    Ok((node, ctx, place))
}

impl Workload for Dfsio {
    fn about(&self) -> &str {
        "Hadoop's TestDFSIO, local: a file of twice the memory, on a new file system, and back; block devices only"
    }
    fn traits(&self) -> WorkloadTraits {
        let disk = DiskTraits {
            reads: false,
            writes: true,
            sequential: true,
            block_bytes: BUFFER,
            depth: 1,
            direct: false,
            engine: String::new(),
        };
        let (mut figures, judged_by) = disk.figures(false);
        figures.extend([WRITE_RATE, READ_RATE].map(|name| Figure::rate(name, Unit::BytesPerSecond)));
        WorkloadTraits { name: "dfsio".into(), figures, judged_by: judged_by.into(), disk: Some(disk), group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Disk
    }
    fn roles(&self) -> &'static [Role] {
        const { &super::worker(&["mount", "sh", "umount"], &[ROOT, MOUNT, TOOLS, JRE]) }
    }
    fn files(&self) -> &'static [&'static str] {
        FILES
    }
    fn fetched(&self) -> Option<Jars> {
        Some(Jars::Local)
    }
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        Some(self)
    }
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        Err("TestDFSIO cannot be limited to a bandwidth: use the fio workloads with --gentle")
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (node, ctx, jars) = prepared(self, stage, Jars::Local)?;
        let bytes = file_bytes(ctx.memory_bytes);
        let exec = command(&ctx, bytes, jars);
        let output = node.exec(&exec)?;
        result(node.name(), exec.shown(), bytes, &output)
    }
}

impl DiskWorkload for Dfsio {
    fn moves_twice_the_memory(&self) -> bool {
        true
    }
    fn mounts(&self) -> bool {
        true
    }
    fn bytes_needed(&self, memory_bytes: u64) -> u64 {
        let file = file_bytes(memory_bytes);
        (file + file / 32 + BESIDE_BYTES).next_multiple_of(1 << 20)
    }
}

/// What it did, of its log: one file of so many bytes, moved once in this direction.
fn work(log: &str, writes: bool, asked: u64) -> Result<DiskWork, Unusable> {
    let (direction, told) = (only(log, "----- TestDFSIO ----- :")?, if writes { "write" } else { "read" });
    if direction != told {
        return Err(Unusable::Amount(format!("it was to {told}, and its summary is of {:?}", cut(direction))));
    }
    let bytes = number(log, "Number of bytes processed =")?;
    if bytes != asked {
        return Err(Unusable::Amount(format!("it moved {bytes} bytes of {asked}")));
    }
    let seconds = Duration::from_millis(number(log, "Exec time =")?).as_secs_f64();
    if seconds <= 0.0 {
        return Err(Unusable::Amount("it took less than a millisecond".into()));
    }
    let (read_bytes, write_bytes) = if writes { (0, bytes) } else { (bytes, 0) };
    Ok(DiskWork { read_bytes, write_bytes, ios: bytes.div_ceil(BUFFER), seconds, latency: None })
}

/// What follows a key in the only line that has it.
fn only<'a>(log: &'a str, key: &'static str) -> Result<&'a str, Unusable> {
    let mut found = log.lines().filter_map(|line| line.split_once(LOGGED)?.1.trim().strip_prefix(key));
    match (found.next(), found.next()) {
        (Some(value), None) => Ok(value.trim()),
        (None, _) => Err(Unusable::NoPart { what: key, start: start_of(log) }),
        (Some(_), Some(_)) => Err(Unusable::Amount(format!("`{key}` is in it more than once: it moved several files"))),
    }
}

fn number(log: &str, key: &'static str) -> Result<u64, Unusable> {
    let text = only(log, key)?;
    text.parse().map_err(|_| Unusable::Lacks { lack: format!("no number after `{key}`"), text: cut(text) })
}

#[cfg(test)]
#[path = "dfsio_tests.rs"]
mod tests;
