//! What the three programs are told, on a made-up host, and what comes of what TestDFSIO says.

#![allow(clippy::unwrap_used)]
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use vmio_model::figure::check;
use vmio_node::fake::Fake;
use vmio_node::linux::kind;
use vmio_node::{End as Ended, FileStat, Output};

use super::*;
use crate::workloads::At;
use crate::workloads::disk::WorkCtx;
use crate::workloads::disk::tests::ctx;

const LIST: &str = include_str!("../../../../../scripts/hadoop-jars.list");
// Of real runs of 16 MiB.
const WRITE: &str = include_str!("../../../tests/fixtures/dfsio/write.err");
const READ: &str = include_str!("../../../tests/fixtures/dfsio/read.err");

/// A host with so many of the jars, and a disk.
fn host(jars: usize) -> Fake {
    let block = FileStat { mode: kind::BLOCK | 0o600, size: 0, allocated: 0, dev: (0, 5), rdev: (8, 0) };
    LIST.lines().take(jars).fold(Fake::new("here").node("/scratch/target", block), |host, line| {
        let words: Vec<&str> = line.split(' ').collect();
        let below = words.get(3).copied().unwrap_or_default();
        host.file(Path::new(hadoop::INSTALLED).join(below).join(words[2].rsplit('/').next().unwrap()), "")
    })
}

/// What the engine prepares there, in a network of the cell's own.
fn stage(node: Arc<Fake>) -> Stage {
    let mut stage = Stage::on_disk(node.clone(), WorkCtx { bytes: 1 << 30, ..ctx() });
    for role in [NAME_NODE, DATA_NODE] {
        stage.ends.insert(role, End::here(node.clone(), At::address(Ipv4Addr::LOCALHOST.into())));
    }
    for end in stage.ends.values_mut() {
        end.enter = ["nsenter", "--net=/own", "--"].map(str::to_owned).into();
    }
    stage
}

fn served(role: &Role, stage: &Stage) -> Service {
    ENTRY.serve(role, stage).unwrap().unwrap()
}

/// What TestDFSIO says in either direction, as if it were of a file of this many bytes; others say nothing.
fn says(cmd: &Exec, asked: u64) -> Option<Output> {
    let log = match cmd.args[9].as_str() {
        "-write" => WRITE,
        "-read" => READ,
        _ => "",
    };
    let stderr = log.replace("processed = 16777216", &format!("processed = {asked}")).into_bytes();
    (cmd.program == "nsenter").then(|| Output { end: Ended::Exit(0), stdout: Vec::new(), stderr, truncated: false })
}

#[test]
fn each_is_told_where_the_name_node_is_and_listens_at_a_port_of_its_actor() {
    let (mut stage, roles) = (stage(Arc::new(host(8))), ENTRY.roles());
    for (place, names, blocks) in [(0, 8020, 9866), (2, 8022, 9868)] {
        stage.place = place;
        let (first, second) = (served(&roles[0], &stage), served(&roles[1], &stage));
        assert_eq!((first.ready, second.ready), (Ready::Listens(names), Ready::Listens(blocks)));
        for exec in [&first.exec, &second.exec] {
            assert_eq!(exec.program, "nsenter");
            assert_eq!(exec.args[..6], ["--net=/own", "--", UNSHARE, "--mount", "--uts", "sh"]);
            let script = &exec.args[7];
            assert!(script.contains(&format!("-Dfs.defaultFS=hdfs://127.0.0.1:{names} ")), "{script}");
            assert!(!script.contains('\n'), "it is shown in one line");
        }
        assert_eq!(first.exec.args[8..], ["sh", hadoop::INSTALLED]);
        assert_eq!(second.exec.args[8..], ["sh", "/scratch/target", "1048576k", hadoop::INSTALLED]);
        assert!(second.exec.args[7].contains(&format!("-Ddfs.datanode.address=127.0.0.1:{blocks} ")));
    }
}

#[test]
fn the_data_node_alone_has_its_data_on_the_disk() {
    let at = |port: u16| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    assert_eq!(
        arguments(&of_data_node(at(8020), at(9866))),
        "-Dfs.defaultFS=hdfs://127.0.0.1:8020 -Dhadoop.tmp.dir=/mnt/tmp \
         -Ddfs.datanode.data.dir=file:///mnt/disk/blocks -Ddfs.datanode.address=127.0.0.1:9866 \
         -Ddfs.datanode.ipc.address=127.0.0.1:0 -Ddfs.datanode.http.address=127.0.0.1:0 \
         -Ddfs.datanode.hostname=localhost -Ddfs.block.scanner.volume.bytes.per.second=0 \
         -Ddfs.datanode.directoryscan.interval=-1 -Ddfs.datanode.metrics.logger.period.seconds=0"
    );
    let names = name_node(at(8020));
    assert!(names.contains("-Ddfs.namenode.name.dir=file:///mnt/name") && !names.contains("ext4"), "{names}");
    // Once to format, once to serve.
    assert_eq!(names.matches("server.namenode.NameNode -D").count(), 2);
    let [format, serve] = ["-format -force -nonInteractive; exec ", "metrics.logger.period.seconds=0"];
    assert!(names.contains(format) && names.ends_with(serve), "{names}");
    // Both are one address in the host's own network, and nothing listens at all of its addresses.
    for told in [of_name_node(at(8020)), of_data_node(at(8020), at(9866))] {
        let addresses: Vec<&String> =
            told.iter().filter(|(key, _)| key.ends_with("address")).map(|(_, value)| value).collect();
        assert!(!addresses.is_empty() && addresses.iter().all(|value| value.starts_with("127.0.0.1:")), "{told:?}");
    }
}

#[test]
fn testdfsio_has_the_class_path_of_local_mode_and_waits_for_the_data_node_before_it_writes() {
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 8020);
    let (write, read) = (client(at, true), client(at, false));
    let (wait, job) = write.split_once(" -safemode wait; ").unwrap();
    assert!(wait.contains("; timeout --foreground 120 /") && wait.contains("$jars/hdfs/*"), "{wait}");
    assert!(!job.contains("$jars/hdfs") && !read.contains("$jars/hdfs"), "{job}, {read}");
    assert!(read.ends_with(job) && job.contains("-Dfs.defaultFS=hdfs://127.0.0.1:8020 "), "{job}, {read}");
}

#[test]
fn what_it_moved_is_the_result_and_the_command_is_shown_without_the_network() {
    let asked = dfsio::file_bytes(ctx().memory_bytes);
    let node = Arc::new(host(8).command(move |cmd| says(cmd, asked)));
    let result = ENTRY.run(&stage(node.clone())).unwrap();
    assert_eq!(check(&ENTRY.traits().figures, &result.figures), Ok(()));
    let work = result.disk_work();
    assert_eq!((work.write_bytes, work.read_bytes), (asked, asked));
    assert!(result.command.starts_with(UNSHARE), "{}", result.command);
    let ran = node.ran();
    let told: Vec<&[String]> = ran.iter().map(|cmd| &cmd.args[8..]).collect();
    assert_eq!(told[0], ["sh", "-write", "512MB", hadoop::INSTALLED]);
    assert_eq!(told[1], ["sh", "/scratch/target"]);
    assert_eq!(told[2], ["sh", "-read", "512MB", hadoop::INSTALLED]);
    assert!(ran[1].args[7].contains("sync -f /mnt/disk") && ran[1].args[7].contains("iflag=nocache"));
    assert!(ran.len() == 3 && ran.iter().all(|cmd| cmd.limit.is_some()));
}

/// The disk's side has the data node and forgets the blocks; the rest is on the other host.
#[test]
fn with_another_host_only_the_data_node_is_on_the_side_of_the_disk() {
    let asked = dfsio::file_bytes(ctx().memory_bytes);
    let [side, other] = [(); 2].map(|()| Arc::new(host(8).command(move |cmd| says(cmd, asked))));
    let mut stage = stage(side.clone());
    let far = End { node: other.clone(), at: At::address([198, 18, 0, 3].into()), ..stage.ends[NAME_NODE].clone() };
    for name in REMOTE.other_host().unwrap().ends {
        stage.ends.insert(*name, far.clone());
    }
    stage.ends.get_mut(DATA_NODE).unwrap().at = At::address([198, 18, 0, 2].into());
    REMOTE.run(&stage).unwrap();
    assert_eq!((side.ran().len(), other.ran().len()), (1, 2));
    assert!(other.ran()[0].args[7].contains("hdfs://198.18.0.3:8020"));
    let data_node = REMOTE.serve(&REMOTE.roles()[1], &stage).unwrap().unwrap();
    for told in ["-Dfs.defaultFS=hdfs://198.18.0.3:8020 ", "-Ddfs.datanode.address=198.18.0.2:9866 "] {
        assert!(data_node.exec.args[7].contains(told), "{told}: {}", data_node.exec.args[7]);
    }
    assert_eq!(ENTRY.other_host().map(|other| other.network), None);
}

#[test]
fn nothing_is_started_without_a_disk_of_its_own_or_without_the_jars() {
    let refused = |node: Fake| {
        let node = Arc::new(node);
        let said = ENTRY.serve(&ENTRY.roles()[0], &stage(node.clone())).unwrap_err().to_string();
        assert_eq!(node.ran().len(), 0);
        said
    };
    let said = refused(host(7));
    assert!(said.starts_with("dfsio-hdfs cannot run here: ") && said.contains("lacks Hadoop's jars"), "{said}");
    let file = FileStat { mode: kind::FILE | 0o600, size: 1 << 30, allocated: 0, dev: (0, 5), rdev: (0, 0) };
    assert!(refused(host(8).node("/scratch/target", file)).contains("block devices"));
    // Room for the blocks that the name node has not heard of yet.
    let few = Stage::on_disk(Arc::new(host(8)), ctx());
    let said = ENTRY.serve(&ENTRY.roles()[0], &few).unwrap_err().to_string();
    assert!(said.contains("944 MiB of storage and 768 MiB"), "{said}");
}

#[test]
fn a_guest_gets_the_jars_of_hdfs_and_what_testdfsio_takes() {
    assert!(dfsio::FILES.iter().chain(&BESIDE).eq(FILES.iter()), "{FILES:?}");
    assert!(FILES.contains(&hadoop::HDFS_INSTALLED) && FILES.contains(&hadoop::INSTALLED));
}
