//! Machines that are reached by `ssh`: what is looked at and measured there, on a real sshd on loopback that plays the other
//! machine.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use vmio_node::{Exec, Node};
use vmio_testbed::scratch;

use crate::help::disk::{Disk, tool as run};
use crate::help::live;
use crate::help::schema::fits;
use crate::help::sshd::{ON_A_DISK, Server, agents, only_agents, study};
use crate::help::state_dir::StateDir;
use crate::root_scan::{NOBODY, guest, stand_in};

#[test]
#[ignore = "root"]
fn another_host_is_looked_at_and_nothing_stays_there() {
    let (server, state, before) = (Server::start(), StateDir::new(), agents());
    let guest = stand_in(NOBODY, &guest("seen", &[]));
    let scan = |on: Option<&str>| {
        let mut command = state.command(&["scan", "--json"]);
        command.args(on.into_iter().flat_map(|on| ["--on", on]));
        command.env("VMIO_SSH", server.ssh("known", "user"));
        state.finish(&mut command).with(0)
    };
    let address = server.address().to_string();
    let there = scan(Some(&address));
    fits("scan", &there.out);
    let said: Value = serde_json::from_str(&there.out).unwrap();
    assert_eq!(said["on"], address.as_str());
    assert!(there.err.contains("vmio-agent runs there from memory"), "{}", there.err);
    // The other machine is this one, so the same guest is there.
    let here: Value = serde_json::from_str(&scan(None).out).unwrap();
    assert_eq!(here["on"].as_str(), None);
    assert_eq!(live::guest(&said, "seen")["kind"], live::guest(&here, "seen")["kind"]);
    drop(guest);
    only_agents(&before);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_machine_that_cannot_be_reached_says_why_and_what_to_do() {
    let (server, state) = (Server::start(), StateDir::new());
    let address = server.address().to_string();
    let scan = |ssh: &str, address: &str| {
        let mut command = state.command(&["scan", "--on", address]);
        state.finish(command.env("VMIO_SSH", ssh)).with(3)
    };
    scan(&server.ssh("unknown", "user"), &address).says(&["Host key verification failed", "connect once manually"]);
    scan(&server.ssh("changed", "user"), &address).says(&["IDENTIFICATION HAS CHANGED", "ssh-keygen -R 127.0.0.1"]);
    scan(&server.ssh("known", "other"), &address).says(&["Permission denied", "ssh-copy-id"]);
    let nobody = format!("ssh://127.0.0.1:{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    scan(&server.ssh("known", "user"), &nobody).says(&["Connection refused", "whether sshd runs there"]);
    scan("no-such-ssh", &address).says(&["cannot start no-such-ssh", "install openssh-client"]);
    // What answers is no shell, or one of a machine that no agent is for.
    let fake = |name: &str, text: &str| {
        let file = server.dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    let other = fake("other-machine", "echo Welcome; echo vmio-there is Linux riscv64; cat > /dev/null");
    scan(&other, &address).says(&["it is Linux riscv64", "this vmio-agent is only for Linux", "docs/ssh.md"]);
    scan(&fake("talks", "yes welcome"), &address).says(&["a shell printed", "without the expected answer"]);
    scan(&fake("noexec", "echo vmio-there is Linux $(uname -m); echo vmio-there at; cat > /dev/null"), &address)
        .says(&["no directory there allows programs", "noexec"]);
    scan(
        &fake("silent", "echo vmio-there is Linux $(uname -m); echo vmio-there at /tmp; head -c 100000 >/dev/null"),
        &address,
    )
    .says(&["try it manually"]);
    let option = state.finish(&mut state.command(&["scan", "--on", "ssh://-oProxyCommand=x"])).with(2);
    option.says(&["does not begin with `-`"]);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn what_was_done_there_is_undone_when_the_connection_breaks() {
    let (server, before) = (Server::start(), agents());
    let made = server.dir.path().join("made-there");
    let machine = server.open();
    let node = machine.shared();
    let held = node.make_file(&made, 0).unwrap();
    assert_eq!(fs::metadata(held.path()).unwrap().len(), 0, "what the agent has open");
    assert!(node.make_file(&made, 0).unwrap_err().to_string().contains("File exists"));
    node.write(&held.path(), b"here", None).unwrap();
    assert_eq!(fs::read(&made).unwrap(), b"here");
    let process = node.spawn(&Exec::new("sleep").args(["1000"])).unwrap();
    let (pid, at) = (process.pid(), machine.place().0.to_owned());
    assert!(made.exists() && at.exists() && machine.place().1);
    let ssh = server.ssh("known", "user");
    run("pkill", &["-KILL", "-f", &format!("^{ssh}")]);
    server.until("the agent has undone it", || !made.exists() && !Path::new(&format!("/proc/{pid}")).exists());
    server.until("nothing is left of the agent", || !at.exists());
    assert!(node.reader().read(Path::new("/proc/version")).is_err(), "the connection is gone");
    drop((process, machine));
    // An agent that is killed is begun once more to undo it.
    let machine = server.open();
    machine.node().write(&made, b"here", None).unwrap();
    let (program, at) = (machine.place().0.join("vmio-agent"), machine.place().0.to_owned());
    run("pkill", &["-KILL", "-f", &format!("^{}", program.display())]);
    server.until("it is undone by another", || !made.exists() && !at.exists());
    drop(machine);
    only_agents(&before);
}

#[test]
#[ignore = "root"]
fn another_machine_is_measured_and_nothing_stays_there() {
    let (server, state, before) = (Server::start(), StateDir::new(), agents());
    let there = scratch();
    let study = study(server.dir.path(), ON_A_DISK);
    let on = format!("{}{}", server.address(), there.path().display());
    let run = |on: &str, more: &[&str]| {
        let mut command = state.command(&["study", "run", &study, "--yes", "--on", on]);
        command.args(more).env("VMIO_SSH", server.ssh("known", "user"));
        command
    };
    let done = state.finish(&mut run(&on, &["--json"])).with(0);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    fits("tax", &done.out);
    assert_eq!(said["environment"]["afar"]["address"], server.address().to_string());
    let cells = said["cells"].as_array().unwrap();
    let workloads: Vec<&str> = cells.iter().map(|cell| cell["cell"]["workload"].as_str().unwrap()).collect();
    for wanted in ["seq-write", "rand-read-1", "openssl-aes-256-cbc", "lu"] {
        assert!(workloads.contains(&wanted), "{workloads:?}");
    }
    let followed = |cell: &Value| cell["over_time"]["moments"].as_array().unwrap().len();
    assert!(cells.iter().all(|cell| followed(cell) == 2), "{}", done.out);
    // What goes through the memory of a machine that nothing holds is not measured, and that is said.
    assert!(done.out.contains("the memory of another machine is not held"), "{}", done.out);
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 0, "its file is gone");
    let shown = state.finish(&mut run(&on, &["--dry-run"])).with(0);
    shown.says(&["measures", "this host's probes do not see it"]);
    // Impossible combinations are refused before anything is made.
    state.finish(&mut run(&format!("{}/nowhere", server.address()), &[])).with(3).says(&["/nowhere is not there on"]);
    state.finish(&mut run(&format!("{}/dev/shm", server.address()), &[])).with(3).says(&["which is memory"]);
    state.finish(&mut run(&on, &["--gentle"])).with(2).says(&["--gentle concerns this host"]);
    let mut none = state.command(&["study", "run", &study, "--yes"]);
    state.finish(&mut none).with(3).says(&["no machine is named for the side ssh"]);
    only_agents(&before);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_remote_device_is_judged_as_a_local_one() {
    let (server, state, before, disk) = (Server::start(), StateDir::new(), agents(), Disk::new(600));
    let rows = ON_A_DISK.replace("preallocated", "device").replace(", \"dd-read\"", "");
    let (study, on) = (study(server.dir.path(), &rows), server.address().to_string());
    let run_on = |on: &str, devices: &[&str], more: &[&str]| {
        let mut command = state.command(&["study", "run", &study, "--yes", "--on", on]);
        command.args(devices.iter().flat_map(|device| ["--device", device]));
        state.finish(command.args(more).env("VMIO_SSH", server.ssh("known", "user")))
    };
    let device = disk.device.as_str();
    let twice = |more: &[&str]| run_on(&on, &[device, device], more);
    run_on(&on, &[device], &[]).with(2).says(&["named exactly twice"]);
    run_on(&on, &["/dev/null", "/dev/null"], &[]).with(3).says(&["is not a block device"]);
    let mut file = state.command(&["tax", "--yes", "--on", &format!("{on}{device}")]);
    let file = state.finish(file.env("VMIO_SSH", server.ssh("known", "user"))).with(3);
    file.says(&["is a device, and all data on it would be lost", "name it twice"]);
    run_on(&on, &[], &["--dry-run"]).with(0).says(&["device is one of its own that you name twice"]);
    // Somebody has it open there.
    let open = fs::File::open(device).unwrap();
    for more in [&[][..], &["--force"]] {
        twice(more).with(3).says(&["has it open", "--force does not change that"]);
    }
    drop(open);
    assert_eq!(disk.written(), 0);
    // It holds something.
    run("mkfs.ext4", &["-q", device]);
    let held = disk.written();
    twice(&[]).with(3).says(&["it holds ext", "all of it would be overwritten", "--force"]);
    let planned = twice(&["--force", "--dry-run", "--json"]).with(0);
    fits("tax-plan", &planned.out);
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    assert_eq!(planned["device"]["path"], device);
    assert_eq!(disk.written(), held, "nothing is written that was not confirmed");
    twice(&["--force", "--dry-run"]).with(0).says(&["ALL DATA in its first 384 MiB WILL BE LOST"]);
    let done = twice(&["--force", "--json"]).with(0);
    fits("tax", &done.out);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    let told = said["environment"]["afar"]["device"].as_str().unwrap();
    assert!(told.starts_with(device) && told.contains("600 MiB"), "{told}");
    let cells = said["cells"].as_array().unwrap().iter();
    assert_eq!(cells.filter(|cell| cell["cell"]["subject"]["disk"]["target"] == "device").count(), 2, "{}", done.out);
    assert!(disk.written() >= 384 << 20);
    // A study that has no use for it.
    let mut idle = state.command(&["tax", "--yes", "--only", "cpu", "--on", &on, "--force"]);
    idle.args(["--device", device, "--device", device]).env("VMIO_SSH", server.ssh("known", "user"));
    state.finish(&mut idle).with(2).says(&["works on the target device"]);
    only_agents(&before);
    state.is_clean();
}
