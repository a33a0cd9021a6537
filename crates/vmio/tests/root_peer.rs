//! The network to another machine that `ssh` reaches: on loopback, and in network namespaces behind a translation of
//! addresses, as clouds have it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::Value;
use vmio_model::cell::{Aio, Attachment, Cache, State};
use vmio_node::{Journal, Local, Node};
use vmio_rig::disks::Storage;
use vmio_rig::disks::targets::{self, TargetCtx};
use vmio_rig::engine::environment;
use vmio_rig::nets::Namespace;
use vmio_rig::nodes::{Is, Nodes};

use crate::help::disk::tool as run;
use crate::help::schema::fits;
use crate::help::sshd::{Server, agents, only_agents, rounds, stand_in, study};
use crate::help::state_dir::{Ended, StateDir, signal};

/// Cells of the host itself over the network `wire`.
fn over_wire(dir: &Path, workloads: &[&str]) -> String {
    let rows = format!(
        " }}\n[[matrix]]\nsides = [\"native\"]\npaths.networks = [\"wire\"]\npaths.peers = [\"peer\"]\n\
         workloads = {workloads:?}\n"
    );
    study(dir, &rows)
}

#[test]
#[ignore = "root"]
fn the_network_to_another_machine_is_measured() {
    let (server, state, before) = (Server::start(), StateDir::new(), agents());
    // The other ways are measured behind a translation of addresses, below.
    let study = over_wire(server.dir.path(), &["iperf3-tcp", "sockperf-tcp"]);
    let address = server.address().to_string();
    let mut command = state.command(&["study", "run", &study, "--yes", "--no-gentle", "--json", "--peer", &address]);
    let done = state.finish(command.env("VMIO_SSH", server.ssh("known", "user"))).with(0);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    fits("tax", &done.out);
    assert_eq!(said["environment"]["peer"], format!("{address} (127.0.0.1)"));
    for program in ["iperf3", "sockperf"] {
        let versions = ["programs", "peer_programs"].map(|end| said["environment"][end][program].as_str());
        assert!(versions[0].is_some() && versions[0] == versions[1], "{program}: {versions:?}");
    }
    assert_eq!(said["cells"].as_array().unwrap().len(), 2, "{}\n{}", said["skipped"], done.err);
    let mut planned =
        state.command(&["study", "run", &study, "--dry-run", "--no-gentle", "--json", "--peer", &address]);
    let planned = state.finish(planned.env("VMIO_SSH", server.ssh("known", "user"))).with(0);
    fits("tax-plan", &planned.out);
    assert!(planned.out.contains(&format!("\"peer\": \"{address} (127.0.0.1)\"")), "{}", planned.out);
    let mut none = state.command(&["study", "run", &study, "--yes"]);
    state.finish(&mut none).with(3).says(&["no machine is named for the network wire"]);
    let mut idle = state.command(&["tax", "--quick", "--yes", "--peer", &address]);
    state.finish(idle.env("VMIO_SSH", server.ssh("known", "user"))).with(2).says(&["works over the network wire"]);
    only_agents(&before);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_run_without_its_peer_can_be_resumed() {
    let (server, state, before) = (Server::start(), StateDir::new(), agents());
    let study = over_wire(server.dir.path(), &["iperf3-tcp", "iperf3-tcp-reverse"]);
    rounds(&study, 3);
    let (address, ssh) = (server.address().to_string(), server.ssh("known", "user"));
    let started = |more: &[&str]| {
        let mut command = state.command(&["study", "run", &study, "--yes", "--no-gentle", "--peer", &address]);
        state.spawn(command.args(more).env("VMIO_SSH", &ssh))
    };
    let running = started(&[]);
    server.until("it measures", || state.samples() >= 2);
    run("pkill", &["-KILL", "-f", &format!("^{ssh}")]);
    let ended = state.end(running).with(4);
    ended.says(&["at the other end of the network wire does not answer", "continue with --resume and the same --peer"]);
    let run = state.last().unwrap();
    assert!((2..6).contains(&run.samples.len()) && run.skipped.is_empty(), "{} {:?}", run.samples.len(), run.skipped);
    only_agents(&before);
    server.until("its server is gone", || TcpStream::connect(("127.0.0.1", 5201)).is_err());
    state.end(started(&["--resume"])).came_to_its_end().says(&["resuming run"]);
    let resumed = state.last().unwrap();
    assert_eq!((resumed.id, resumed.samples.len(), resumed.skipped), (run.id, 6, Vec::new()));
    only_agents(&before);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn of_two_addresses_of_a_peer_the_one_is_taken_that_ssh_took() {
    let (server, state) = (Server::start(), StateDir::new());
    let study = over_wire(server.dir.path(), &["iperf3-tcp"]);
    let hosts = server.dir.path().join("hosts");
    fs::write(&hosts, "::1 twofold\n127.0.0.1 twofold\n").unwrap();
    let address = format!("ssh://root@twofold:{}", server.port);
    let command = state.command(&["study", "run", &study, "--dry-run", "--no-gentle", "--json", "--peer", &address]);
    let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let mut command = behind(&["unshare", "--mount", "--", "sh", "-c", &script, "sh"].map(str::to_owned), &command);
    let planned = state.finish(command.env("VMIO_SSH", server.ssh("known", "user"))).with(0);
    assert!(planned.out.contains(&format!("\"peer\": \"{address} (127.0.0.1)\"")), "{}", planned.out);
}

#[test]
#[ignore = "root"]
fn programs_of_another_version_at_the_peer_are_told() {
    let (state, dir) = (StateDir::new(), tempfile::tempdir().unwrap());
    let script = "[ \"$1\" = --version ] && echo iperf 3.9 && exit\nexec /usr/bin/iperf3 \"$@\"";
    stand_in(dir.path(), "iperf3", script);
    run("ip", &["link", "set", "lo", "up"]);
    let server = Server::at(&[], "127.0.0.1", &format!("SetEnv PATH={}\n", dir.path().display()));
    let study = over_wire(server.dir.path(), &["iperf3-tcp", "iperf3-udp"]);
    let address = server.address().to_string();
    let run_with = |more: &[&str]| {
        let mut command = state.command(&["study", "run", &study, "--yes", "--no-gentle", "--peer", &address]);
        state.finish(command.args(more).env("VMIO_SSH", server.ssh("known", "user"))).with(0)
    };
    let differs = "here and 3.9 there";
    run_with(&["--dry-run"]).says(&["iperf3 is 3", differs]);
    let planned = run_with(&["--dry-run", "--json"]);
    fits("tax-plan", &planned.out);
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    assert!(planned["peer_told"][0].as_str().unwrap().ends_with(differs), "{planned}");
    let done = run_with(&["--json"]);
    fits("tax", &done.out);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    let environment = &said["environment"];
    assert_eq!(environment["peer_programs"]["iperf3"], "iperf 3.9");
    assert_ne!(environment["programs"]["iperf3"], "iperf 3.9");
    state.vmio(&["runs", "show", "-v"]).with(0).says(&["peer runs", "iperf3: iperf 3.9", "differs", differs]);
    state.is_clean();
}

/// A command with these words before it.
fn behind(words: &[String], command: &Command) -> Command {
    let mut all = Command::new(&words[0]);
    all.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    all.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    all
}

/// A machine whose only address is a private one, and a host that reaches it by a public one, which no interface of the
/// machine has: it is translated on the way.
struct Cloud {
    here: Namespace,
    there: Namespace,
    server: Server,
    state: StateDir,
}

const PUBLIC: &str = "203.0.113.7";

impl Cloud {
    fn new() -> Cloud {
        let node = Local::new();
        let [here, there] = [0; 2].map(|_| Namespace::make(&node).unwrap());
        let joined = format!("link add out type veth peer name eth0 netns {}", there.path());
        here.ip(&node, &[&joined, "address add 10.0.0.1/24 dev out", "link set out up"]).unwrap();
        there.ip(&node, &["address add 10.0.0.5/24 dev eth0", "link set eth0 up"]).unwrap();
        here.ip(&node, &["route add 203.0.113.0/24 via 10.0.0.5"]).unwrap();
        let server = Server::at(&there.enter(), "10.0.0.5", "");
        let cloud = Cloud { here, there, server, state: StateDir::new() };
        let translated = ["-t", "nat", "-A", "OUTPUT", "-d", PUBLIC, "-j", "DNAT", "--to-destination", "10.0.0.5"];
        rule(&cloud.here, &translated);
        cloud
    }

    fn address(&self) -> String {
        format!("ssh://root@{PUBLIC}:{}", self.server.port)
    }

    /// Runs a study over the way to it.
    fn run(&self, workloads: &[&str], more: &[&str]) -> Ended {
        self.state.end(self.start(&self.state, workloads, more))
    }

    fn start(&self, state: &StateDir, workloads: &[&str], more: &[&str]) -> Child {
        let dir = self.server.dir.path().join(workloads[0]);
        fs::create_dir_all(&dir).unwrap();
        let study = over_wire(&dir, workloads);
        let address = self.address();
        let mut command = state.command(&["study", "run", &study, "--yes", "--no-gentle", "--peer", &address]);
        let mut command = behind(&self.here.enter(), command.args(more));
        state.spawn(command.env("VMIO_SSH", self.server.ssh("known", "user")))
    }
}

/// A rule of iptables in a namespace.
fn rule(at: &Namespace, words: &[&str]) {
    let done = Local::new().exec(&at.exec("iptables").args(words.iter().copied())).unwrap();
    assert!(done.ok(), "iptables {words:?}: {}", done.err());
}

#[test]
#[ignore = "root"]
fn a_peer_whose_address_is_translated_on_the_way_is_measured() {
    let (cloud, before) = (Cloud::new(), agents());
    let workloads =
        ["iperf3-tcp", "iperf3-tcp-reverse", "iperf3-udp", "sockperf-tcp", "dd-nc", "udp-10mbit-1472-within100ms"];
    let told =
        format!("{PUBLIC} is not one of the machine's own addresses: servers listen at 10.0.0.5, where ssh arrives");
    cloud.run(&workloads, &["--dry-run"]).with(0).says(&[&told]);
    let done = cloud.run(&workloads, &["--json"]).with(0);
    fits("tax", &done.out);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(said["environment"]["peer"], format!("{} ({PUBLIC})", cloud.address()));
    assert_eq!(said["cells"].as_array().unwrap().len(), workloads.len(), "{}\n{}", said["skipped"], done.err);
    only_agents(&before);
    cloud.state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_port_of_a_peer_that_a_firewall_shuts_is_named() {
    let (cloud, before) = (Cloud::new(), agents());
    rule(&cloud.there, &["-A", "INPUT", "-p", "tcp", "--dport", "5201", "-j", "DROP"]);
    rule(&cloud.there, &["-A", "INPUT", "-p", "udp", "--dport", "5401", "-j", "DROP"]);
    let reset = ["-A", "INPUT", "-p", "tcp", "--dport", "11111", "-j", "REJECT", "--reject-with", "tcp-reset"];
    rule(&cloud.there, &reset);
    // At the same time, since each waits for an answer that does not come.
    let other = StateDir::new();
    let mut datagrams = cloud.start(&other, &["udp-10mbit-1472-within100ms"], &[]);
    let ended = cloud.run(&["iperf3-tcp", "sockperf-tcp"], &[]).with(3);
    ended.says(&["nothing could be measured"]);
    // The first refusal is told; there is no second try.
    let (mut said, mut lines) = (String::new(), BufReader::new(datagrams.stderr.take().unwrap()).lines());
    while !said.contains("Open UDP port 5401 for this host") {
        let line = lines.next().unwrap_or_else(|| panic!("it ended: {said}")).unwrap();
        said += &format!(" {}", line.trim());
    }
    for words in ["datagrams may not get through to 203.0.113.7", "does not answer", "is a firewall between?"] {
        assert!(said.contains(words), "{said}");
    }
    signal(datagrams.id(), Signal::INT);
    lines.for_each(drop);
    datagrams.wait().unwrap();
    other.is_clean();
    let run = cloud.state.last().unwrap();
    let reason = |workload: &str| {
        let found = run.skipped.iter().find(|skipped| skipped.cell.lead.workload.starts_with(workload));
        found.unwrap_or_else(|| panic!("{workload}: {:?}", run.skipped)).reason.clone()
    };
    for (workload, words) in [
        // No program was waited for.
        (
            "iperf3-tcp",
            ["nothing gets through to 203.0.113.7", "connection timed out;", "Open TCP port 5201 for this host"],
        ),
        ("sockperf", ["nothing gets through to 203.0.113.7", "though a server listens there", "Open TCP port 11111"]),
    ] {
        let said = reason(workload);
        assert!(words.iter().all(|word| said.contains(word)), "{workload}: {said}");
        assert!(said.contains("is a firewall between?"), "{said}");
    }
    only_agents(&before);
    cloud.state.is_clean();
}

/// QEMU's own client works on it from here, nobody without the key of the run does, and nothing is left when the connection
/// ends.
#[test]
#[ignore = "root"]
fn a_peer_serves_a_disk_to_this_host_alone() {
    let (server, dir, before) = (Server::start(), vmio_testbed::scratch(), agents());
    let held = server.open();
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let mut there = environment::peer("ssh://there", held.shared(), (loopback, loopback), &[]);
    let Is::Peer(own) = &mut there.is else { panic!("it is no peer") };
    own.dir = dir.path().to_owned();
    let nodes = Nodes::from(there);
    let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
    let node = Local::owned(Arc::clone(&journal));
    let ctx = TargetCtx {
        node: &node,
        journal: &journal,
        dir: dir.path().to_owned(),
        pool: None,
        bytes: 4 << 20,
        device: None,
        force: false,
        pace: None,
        native: false,
        host: None,
        peer: nodes.peer(),
    };
    let mut target = targets::find("nbd-wire").unwrap().prepare(&ctx).unwrap();
    let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
    let Storage::NbdTls { server: at, export, keys } = target.attach(&asked).unwrap() else { panic!("not by TLS") };
    let told = target.attached(&asked);
    assert!(told["server"].starts_with("nbdkit ") && told["server"].ends_with("NBD over TCP with TLS"), "{told:?}");
    assert_eq!(told["tls"], "pre-shared key");
    let file = dir.path().join(format!("vmio-nbd-wire-{}", journal.cookie()));
    assert_eq!(told["server.file"], format!("ssh://there{}", file.display()));

    let key_there = Path::new("/dev/shm").join(format!("vmio-nbd-wire-{}.psk", journal.cookie()));
    let key = fs::read(keys.join("keys.psk")).unwrap();
    assert!(key.starts_with(b"vmio:") && fs::read(&key_there).unwrap() == key);
    let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((rights(&keys), rights(&keys.join("keys.psk")), rights(&key_there)), (0o700, 0o600, 0o600));

    let by_key = |dir: &Path| {
        format!("tls-creds-psk,id=tls,endpoint=client,dir={},username={}", dir.display(), Storage::TLS_USER)
    };
    let (mut node, own_key) = (Storage::nbd_over_tcp(at, &export), by_key(&keys));
    let without = format!("json:{node}");
    node["tls-creds"] = "tls".into();
    let opened = format!("json:{node}");
    run("qemu-io", &["--object", &own_key, "-c", "write -P 0x5a 0 1M", "-c", "flush", &opened]);
    assert_eq!(target.reset(State::Filled).unwrap(), 0);
    let said = run("qemu-io", &["--object", &own_key, "-c", "read -P 0x5a 0 1M", &opened]);
    assert!(!said.contains("failed"), "{said}");
    assert!(fs::read(&file).unwrap()[..1 << 20].iter().all(|byte| *byte == 0x5a));
    target.intact().unwrap();
    target.sound(&asked).unwrap();
    let pid = target.server_at_peer().unwrap();
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "nbdkit\n");

    let wrong = dir.path().join("wrong");
    fs::create_dir(&wrong).unwrap();
    fs::write(wrong.join("keys.psk"), format!("{}:{}\n", Storage::TLS_USER, "00".repeat(32))).unwrap();
    let refused = |args: &[&str]| {
        let output = Command::new("qemu-io").args(["-c", "read 0 512"]).args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = (refused(&[&without]), refused(&["--object", &by_key(&wrong), &opened]));
    assert!(said.0.contains("TLS negotiation required") && said.1.contains("TLS handshake failed"), "{said:?}");

    // As when vmio is killed: the target is not removed.
    drop(held);
    server.until("the server over there is gone", || TcpStream::connect(at).is_err());
    server.until("its files are gone", || !file.exists() && !key_there.exists());
    only_agents(&before);
    assert_eq!((journal.close(), keys.exists()), (Vec::new(), false));
}
