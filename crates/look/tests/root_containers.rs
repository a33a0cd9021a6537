//! A container that runs: a process in namespaces and a control group of its own.

// What is tested here is set up by other means than a look has.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vmio_look::Look;
use vmio_look::kinds;
use vmio_model::facts::Guest;
use vmio_node::Local;

mod common;

/// A process in namespaces of its own, ended with this, and its control group with it.
struct Container {
    child: Child,
    group: Option<PathBuf>,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Some(group) = &self.group else { return };
        let end = Instant::now() + Duration::from_secs(10);
        while std::fs::remove_dir(group).is_err() && group.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = group.parent().map(std::fs::remove_dir); // the engine's own, where it is empty now
    }
}

fn containers() -> Vec<Guest> {
    let node = Local::new();
    kinds::find("container").unwrap().running(&Look::new(&node)).guests
}

fn found(wanted: impl Fn(&Guest) -> bool) -> Option<Guest> {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Some(guest) = containers().into_iter().find(&wanted) {
            return Some(guest);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[test]
#[ignore = "root"]
fn a_process_in_namespaces_and_a_group_of_its_own_is_a_container() {
    common::must_be_root();
    let before = containers();
    let child = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc", "sleep", "60"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut container = Container { child, group: None };
    // `unshare` itself is in the namespaces, too, until it has become the program.
    let runs = |g: &Guest| g.pid.is_some_and(|pid| comm(pid) == "sleep\n");
    let new = |g: &Guest| g.ids["engine"] == "namespaces" && before.iter().all(|b| b.name != g.name);
    let guest = found(|g| new(g) && runs(g)).expect("no container in the look");
    let pid = guest.pid.unwrap();
    assert!(guest.disks[0].place.source.is_some(), "{:?}", guest.disks);
    assert_eq!(guest.nics.len(), 0);
    assert!(!guest.processors.unwrap().threads[0].cpus.is_empty());
    // In a group as an engine names it, it has that name.
    let roots = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"];
    let root = roots.iter().map(Path::new).find(|r| r.join("cgroup.procs").exists()).unwrap();
    let name = format!("vmio-test-{}", std::process::id());
    let group = root.join("lxc").join(&name);
    std::fs::create_dir_all(&group).unwrap();
    container.group = Some(group.clone());
    std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
    let guest = found(|g| g.name == name).expect("no container of that group");
    assert_eq!((guest.ids["engine"].as_str(), guest.pid), ("lxc", Some(pid)));
}

#[test]
#[ignore = "root"]
fn a_pipe_and_an_endless_file_of_a_container_hold_nobody() {
    common::must_be_root();
    // Its own /sys/class/net, with interfaces that are a pipe and a link to /dev/zero.
    let script = "mount -t tmpfs none /sys && mkdir -p /sys/class/net/eth0 /sys/class/net/eth1 && \
                  mkfifo /sys/class/net/eth0/iflink && ln -s /dev/zero /sys/class/net/eth1/iflink && echo ready && read x";
    let mut child = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"ready\n");
    let parent = child.id();
    let _container = Container { child, group: None };
    let inner = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let began = Instant::now();
    let guest = found(|g| g.pid == inner.trim().parse().ok()).expect("no container in the look");
    assert_eq!(guest.nics, []);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
