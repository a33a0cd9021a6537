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

#[test]
fn each_is_told_where_the_name_node_is_and_listens_at_a_port_of_its_actor() {
    let mut stage = stage(Arc::new(host(8)));
    for (place, names, blocks) in [(0, 8020, 9866), (2, 8022, 9868)] {
        stage.place = place;
        let (first, second) = (served(&ROLES[0], &stage), served(&ROLES[1], &stage));
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
fn testdfsio_has_the_class_path_of_local_mode_and_waits_for_the_data_node() {
    let script = client(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 8020));
    let (before, after) = script.split_once("dfsio() {").unwrap();
    assert!(before.contains("$jars/hdfs/*") && before.contains("DFSAdmin -D"), "{before}");
    assert!(before.contains("; timeout --foreground 120 /") && before.contains(" -safemode wait 2>&1"), "{before}");
    assert!(!after.contains("$jars/hdfs"), "{after}");
    let place = |words: &str| after.find(words).unwrap_or_else(|| panic!("{words}: {after}"));
    assert!(place("dfsio -write 2>&1") < place("sync -f") && place("sync -f") < place("iflag=nocache"));
    assert!(place("iflag=nocache") < place("dfsio -read"));
}

#[test]
fn what_it_moved_is_the_result_and_the_command_is_shown_without_the_network() {
    let asked = dfsio::file_bytes(ctx().memory_bytes).to_string();
    let sized = |text: &str| text.replace("processed = 16777216", &format!("processed = {asked}")).into_bytes();
    let output = Output { end: Ended::Exit(0), stdout: sized(WRITE), stderr: sized(READ), truncated: false };
    let node = Arc::new(host(8).program("nsenter", output));
    let result = ENTRY.run(&stage(node.clone())).unwrap();
    assert_eq!(check(&ENTRY.traits().figures, &result.figures), Ok(()));
    assert_eq!(result.disk_work().write_bytes.to_string(), asked);
    assert!(result.command.starts_with(UNSHARE), "{}", result.command);
    let ran = node.ran();
    assert_eq!((ran.len(), ran[0].program.as_str()), (1, "nsenter"));
    assert_eq!(ran[0].args[8..], ["sh", "/scratch/target", "512MB", hadoop::INSTALLED]);
    assert!(ran[0].limit.is_some());
}

#[test]
fn nothing_is_started_without_a_disk_of_its_own_or_without_the_jars() {
    let refused = |node: Fake| {
        let (node, name) = (Arc::new(node), &ROLES[0]);
        let said = ENTRY.serve(name, &stage(node.clone())).unwrap_err().to_string();
        assert_eq!(node.ran().len(), 0);
        said
    };
    let said = refused(host(7));
    assert!(said.starts_with("dfsio-hdfs cannot run here: ") && said.contains("lacks Hadoop's jars"), "{said}");
    let file = FileStat { mode: kind::FILE | 0o600, size: 1 << 30, allocated: 0, dev: (0, 5), rdev: (0, 0) };
    assert!(refused(host(8).node("/scratch/target", file)).contains("block devices"));
    // Room for the blocks that the name node has not heard of yet.
    let few = Stage::on_disk(Arc::new(host(8)), ctx());
    let said = ENTRY.serve(&ROLES[0], &few).unwrap_err().to_string();
    assert!(said.contains("944 MiB of storage and 768 MiB"), "{said}");
}

#[test]
fn a_guest_gets_the_jars_of_hdfs_and_what_testdfsio_takes() {
    assert!(dfsio::FILES.iter().chain(&BESIDE).eq(FILES.iter()), "{FILES:?}");
    assert!(FILES.contains(&hadoop::HDFS_INSTALLED) && FILES.contains(&hadoop::INSTALLED));
}
