//! TestDFSIO (`dfsio`) on an HDFS of a name node and a data node, which run on the actor's own machine for the time of
//! the workload. No other program reaches them, since an HDFS without Kerberos authenticates nobody: on the host they
//! listen in a network namespace of the cell's own, in a guest at its loopback interface.
//!
//! The data node's blocks lie in a new ext4 on the disk; whatever else the three programs keep lies in memory, in a
//! mount namespace of each. So nothing of them outlasts their processes, whatever ends those.
//!
//! The servers are there before TestDFSIO starts; the name node says itself when a data node has come (safe mode).
//! Between write and read the pages of the blocks are dropped from the page cache of the disk's side: the data node's
//! file system is mounted there once more, which is the same one to the kernel.
//!
//! `dfsio-hdfs-remote` has the data node alone on the actor's side. The name node and TestDFSIO are on another host, a
//! namespace behind the uplink of a bridge.

use std::net::SocketAddr;
use std::time::Duration;

use vmio_look::require::Requirement;
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Output};

use super::dfsio::{self, ENTRY as LOCAL, JAVA, JRE, MOUNT, ROOT, TOOLS, UNSHARE};
use super::{DD, DiskWorkload, Error, Result, WORKER, Workload};
use crate::hadoop::{self, Jars};
use crate::nets;
use crate::workloads::error::succeeded;
use crate::workloads::{End, OtherHost, Ready, Role, Service, Stage, Wants};

/// Entry `dfsio-hdfs`.
pub const ENTRY: Hdfs = Hdfs { remote: false };
/// Entry `dfsio-hdfs-remote`.
pub const REMOTE: Hdfs = Hdfs { remote: true };

const NAME_NODE: &str = "name-node";
const DATA_NODE: &str = "data-node";
/// The end where TestDFSIO runs, where that is not the worker's.
const CLIENT: &str = "client";

/// The ports that Hadoop's documentation names: of the name node, and of blocks at the data node.
const NAMES: u16 = 8020;
const BLOCKS: u16 = 9866;
/// Bytes of a block, as by default.
const BLOCK_BYTES: u64 = 128 << 20;
/// A name node gives a data node a block where it has room for it and for those that it has not reported yet.
const SPARE_BLOCKS: u64 = 2;
/// How long a server may take until it is ready, and the data node until the name node has it. Java starts twice for
/// the name node, in a guest under emulation for 10 s and more each time.
const READY: Duration = Duration::from_secs(120);
/// MiB of Java's heap of each server.
const HEAP_MIB: u64 = 128;

/// What goes before each of the three in its namespaces: a directory of its own in memory, and a name of the host that
/// no name server is asked for.
const OWN: &str = "mount -t tmpfs -o size=64m,mode=0700 vmio /mnt; mkdir /mnt/tmp /mnt/disk; \
                   echo localhost > /proc/sys/kernel/hostname";

const NEEDS: &[Requirement] = &[ROOT, MOUNT, TOOLS, JRE, DD, nets::IP, nets::NSENTER, nets::UNSHARE];

/// The same, and what plugs a guest into a network.
const NEEDS_REMOTE: &[Requirement] = &[ROOT, MOUNT, TOOLS, JRE, DD, nets::IP, nets::NSENTER, nets::UNSHARE, nets::TUN];

const fn roles(requirements: &'static [Requirement]) -> [Role; 3] {
    [
        Role { name: NAME_NODE, wants: Wants::Address, programs: &["mount", "sh"], requirements },
        Role { name: DATA_NODE, wants: Wants::Address, programs: &["mount", "sh"], requirements },
        Role { name: WORKER, wants: Wants::Path, programs: &["dd", "mount", "sh", "umount"], requirements },
    ]
}

/// What it takes beside what `dfsio` does: programs that no guest needs otherwise, and the jars of HDFS. Hadoop runs df
/// and du itself.
const BESIDE: [&str; 6] =
    ["/usr/bin/df", "/usr/bin/du", "/usr/bin/mkdir", "/usr/bin/sync", "/usr/bin/timeout", hadoop::HDFS_INSTALLED];

/// All of that.
const FILES: [&str; dfsio::FILES.len() + BESIDE.len()] = {
    let own = dfsio::FILES.len();
    let mut all = [""; dfsio::FILES.len() + BESIDE.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < own { dfsio::FILES[i] } else { BESIDE[i - own] };
        i += 1;
    }
    all
};

/// The write and the read of a file through a name node and a data node.
#[derive(Debug, Clone, Copy)]
pub struct Hdfs {
    /// Whether the name node and TestDFSIO are on another host than the data node.
    remote: bool,
}

/// What a program of Hadoop is told: a key of its configuration, and the value.
type Setting = (&'static str, String);

/// Settings as arguments.
fn arguments(settings: &[Setting]) -> String {
    let each: Vec<String> = settings.iter().map(|(key, value)| format!("-D{key}={value}")).collect();
    each.join(" ")
}

/// What all three are told: where the name node is.
fn of_all(names: SocketAddr) -> Vec<Setting> {
    vec![("fs.defaultFS", format!("hdfs://{names}")), ("hadoop.tmp.dir", "/mnt/tmp".into())]
}

/// An address of this machine at a port that the kernel chooses.
fn any_port(at: SocketAddr) -> String {
    SocketAddr::new(at.ip(), 0).to_string()
}

/// What the name node is told. It waits for one data node, and takes one whose address has no name.
fn of_name_node(names: SocketAddr) -> Vec<Setting> {
    let own = [
        ("dfs.namenode.name.dir", "file:///mnt/name".to_owned()),
        ("dfs.namenode.http-address", any_port(names)),
        ("dfs.namenode.safemode.min.datanodes", "1".to_owned()),
        ("dfs.namenode.safemode.extension", "0".to_owned()),
        ("dfs.namenode.datanode.registration.ip-hostname-check", "false".to_owned()),
        // Its directory in memory is smaller than the 100 MiB that it would keep free.
        ("dfs.namenode.resource.du.reserved", "1048576".to_owned()),
        ("dfs.namenode.metrics.logger.period.seconds", "0".to_owned()),
    ];
    of_all(names).into_iter().chain(own).collect()
}

/// What the data node is told. It does not read its blocks by itself.
fn of_data_node(names: SocketAddr, blocks: SocketAddr) -> Vec<Setting> {
    let own = [
        ("dfs.datanode.data.dir", "file:///mnt/disk/blocks".to_owned()),
        ("dfs.datanode.address", blocks.to_string()),
        ("dfs.datanode.ipc.address", any_port(blocks)),
        ("dfs.datanode.http.address", any_port(blocks)),
        ("dfs.datanode.hostname", "localhost".to_owned()),
        ("dfs.block.scanner.volume.bytes.per.second", "0".to_owned()),
        ("dfs.datanode.directoryscan.interval", "-1".to_owned()),
        ("dfs.datanode.metrics.logger.period.seconds", "0".to_owned()),
    ];
    of_all(names).into_iter().chain(own).collect()
}

/// What TestDFSIO is told. A file has one copy, since there is one data node.
fn of_client(names: SocketAddr) -> Vec<Setting> {
    vec![
        ("fs.defaultFS", format!("hdfs://{names}")),
        ("test.build.data", "/data".to_owned()),
        ("dfs.replication", "1".to_owned()),
        ("dfs.blocksize", BLOCK_BYTES.to_string()),
    ]
}

/// A class of HDFS with these settings, for `$jars`.
fn java(class: &str, settings: &[Setting]) -> String {
    format!(
        "{JAVA} -Xmx{HEAP_MIB}m -XX:-UsePerfData -Djava.io.tmpdir=/mnt/tmp -cp \"$jars/*:$jars/{}/*\" \
         org.apache.hadoop.hdfs.{class} {}",
        hadoop::HDFS,
        arguments(settings)
    )
}

/// The name node, formatted first.
fn name_node(names: SocketAddr) -> String {
    let java = java("server.namenode.NameNode", &of_name_node(names));
    format!("set -eu; jars=$1; {OWN}; {java} -format -force -nonInteractive; exec {java}")
}

/// The data node, with a new file system on `$1` of the size `$2`.
fn data_node(names: SocketAddr, blocks: SocketAddr) -> String {
    let java = java("server.datanode.DataNode", &of_data_node(names, blocks));
    let make = dfsio::make_ext4("$2");
    format!("set -eu; disk=$1 jars=$3; {OWN}; {make}; mount -t ext4 \"$disk\" /mnt/disk; exec {java}")
}

/// TestDFSIO in the direction `$1`; before the write it waits until the data node has come.
fn client(names: SocketAddr, writes: bool) -> String {
    let job = dfsio::job(&arguments(&of_client(names)));
    let admin = java("tools.DFSAdmin", &of_all(names));
    let wait = format!("timeout --foreground {} {admin} -safemode wait; ", READY.as_secs());
    let wait = if writes { wait } else { String::new() };
    format!("set -eu; size=$2 jars=$3; {OWN}; {wait}{job}")
}

/// Drops the pages of the blocks on `$1` from the page cache. Where the blocks do not lie as they should, that is a
/// failure.
fn forget() -> String {
    format!(
        "set -eu; {OWN}; mount -t ext4 \"$1\" /mnt/disk; sync -f /mnt/disk; \
         for block in /mnt/disk/blocks/current/BP-*/current/finalized/subdir*/subdir*/blk_*; do \
         dd if=\"$block\" of=/dev/null iflag=nocache count=0 status=none; done; umount /mnt/disk"
    )
}

/// A command in namespaces of its own for mounts and for the host's name.
fn apart(base: &Exec, script: String, args: impl IntoIterator<Item = String>) -> Exec {
    let mut exec = Exec { program: UNSHARE.into(), ..base.clone() }
        .args(["--mount", "--uts", "sh", "-c"])
        .args([script, "sh".to_owned()])
        .args(args);
    exec.env.insert("LC_ALL".into(), "C".into());
    exec
}

impl Hdfs {
    fn name(self) -> &'static str {
        if self.remote { "dfsio-hdfs-remote" } else { "dfsio-hdfs" }
    }

    fn unfit(self, reason: String) -> Error {
        Error::Unfit { workload: self.name().into(), reason }
    }

    /// The address that a role serves at.
    fn served_at(self, stage: &Stage, role: &str, port: u16) -> Result<SocketAddr> {
        let no_address = || self.unfit(format!("its {role} has no address"));
        let address = stage.end(role)?.serves().ok_or_else(no_address)?;
        Ok(SocketAddr::new(address, stage.port(port)))
    }

    /// Where the jars are at an end.
    fn jars(self, end: &End) -> Result<String> {
        let lacks = || self.unfit(format!("{} lacks Hadoop's jars", end.node.name()));
        Jars::Hdfs.place(end.node.reader()).map(str::to_owned).ok_or_else(lacks)
    }
}

/// Runs a command at an end. Returns it as it is shown, and what it said.
fn ran(end: &End, exec: Exec) -> Result<(String, Output)> {
    let shown = exec.shown();
    let output = end.node.exec(&exec.behind(&end.enter))?;
    succeeded(end.node.name(), &shown, &output)?;
    Ok((shown, output))
}

impl Workload for Hdfs {
    fn about(&self) -> &str {
        if self.remote {
            "the same with the data node alone on the side; the name node and TestDFSIO on another host"
        } else {
            "Hadoop's TestDFSIO on an HDFS: a name node, a data node with its blocks on the disk; block devices only"
        }
    }
    fn traits(&self) -> WorkloadTraits {
        WorkloadTraits { name: self.name().into(), ..LOCAL.traits() }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Disk
    }
    fn roles(&self) -> &'static [Role] {
        if self.remote { const { &roles(NEEDS_REMOTE) } } else { const { &roles(NEEDS) } }
    }
    fn other_host(&self) -> Option<OtherHost> {
        self.remote.then_some(OtherHost { network: "uplink", ends: &[NAME_NODE, CLIENT] })
    }
    fn files(&self) -> &'static [&'static str] {
        &FILES
    }
    fn fetched(&self) -> Option<Jars> {
        Some(Jars::Hdfs)
    }
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        Some(self)
    }
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        LOCAL.can_be_gentle()
    }
    fn ready_within(&self) -> Duration {
        READY
    }
    fn quotes_servers(&self) -> bool {
        true
    }
    fn serve(&self, role: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (_, ctx, _) = dfsio::prepared(self, stage, Jars::Hdfs)?;
        let names = self.served_at(stage, NAME_NODE, NAMES)?;
        let blocks = self.served_at(stage, DATA_NODE, BLOCKS)?;
        let end = stage.end(role.name)?;
        let jars = self.jars(end)?;
        let (exec, at) = if role.name == NAME_NODE {
            (apart(&end.exec_base, name_node(names), [jars]), names)
        } else {
            let args = [ctx.path.display().to_string(), dfsio::ext4_size(ctx.bytes), jars];
            (apart(&end.exec_base, data_node(names, blocks), args), blocks)
        };
        Ok(Some(Service { exec: exec.behind(&end.enter), ready: Ready::Listens(at.port()) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (_, ctx, _) = dfsio::prepared(self, stage, Jars::Hdfs)?;
        let (names, bytes) = (self.served_at(stage, NAME_NODE, NAMES)?, dfsio::file_bytes(ctx.memory_bytes));
        let worker = stage.end(WORKER)?;
        let at = stage.ends.get(CLIENT).unwrap_or(worker);
        // 1 MiB a second is slower than any disk that still works; Java starts twice before the write.
        let limit = Duration::from_secs(300 + (bytes >> 20));
        let jars = self.jars(at)?;
        let job = |writes: bool| {
            let direction = if writes { "-write" } else { "-read" };
            let args = [direction.to_owned(), format!("{}MB", bytes >> 20), jars.clone()];
            ran(at, apart(&at.exec_base, client(names, writes), args).limit(limit))
        };
        let (command, written) = job(true)?;
        ran(worker, apart(&worker.exec_base, forget(), [ctx.path.display().to_string()]).limit(limit))?;
        let (_, read) = job(false)?;
        // Both log to standard error.
        let both = Output { stdout: written.stderr, ..read };
        dfsio::result(at.node.name(), command, bytes, &both)
    }
}

impl DiskWorkload for Hdfs {
    fn moves_twice_the_memory(&self) -> bool {
        true
    }
    fn mounts(&self) -> bool {
        true
    }
    fn bytes_needed(&self, memory_bytes: u64) -> u64 {
        LOCAL.bytes_needed(memory_bytes) + SPARE_BLOCKS * BLOCK_BYTES
    }
}

#[cfg(test)]
#[path = "hdfs_tests.rs"]
mod tests;
