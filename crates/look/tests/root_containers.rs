//! A running container: a process in its own namespaces and control group.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vmio_look::HostView;
use vmio_look::kinds;
use vmio_model::facts::Guest;
use vmio_node::Local;
use vmio_testbed::{must_be_root, poll_for, poll_until};

/// A process in its own namespaces; it and its control group end when this is dropped.
struct Container {
    child: Child,
    group: Option<PathBuf>,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Some(group) = &self.group else { return };
        if !std::thread::panicking() {
            poll_until("its group is empty", || std::fs::remove_dir(group).is_ok() || !group.exists());
        }
        let _ = group.parent().map(std::fs::remove_dir); // the engine's own, where it is empty now
    }
}

fn containers() -> Vec<Guest> {
    let node = Local::new();
    kinds::find("container").unwrap().running(&HostView::new(&node)).guests
}

fn found(what: &str, wanted: impl Fn(&Guest) -> bool) -> Guest {
    poll_for(what, || {
        let mut all = containers();
        let at = all.iter().position(&wanted).ok_or_else(|| all.iter().map(|guest| guest.pid).collect::<Vec<_>>())?;
        Ok::<_, Vec<_>>(all.swap_remove(at))
    })
}

fn children(pid: u32) -> Vec<u32> {
    let all = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[test]
#[ignore = "root"]
fn a_process_in_namespaces_and_a_group_of_its_own_is_a_container() {
    must_be_root();
    let before = containers();
    let child = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc", "sleep", "60"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let parent = child.id();
    let mut container = Container { child, group: None };
    // `unshare` itself is in the namespaces until it executes the program.
    let runs = |g: &Guest| g.pid.is_some_and(|pid| children(parent).contains(&pid) && comm(pid) == "sleep\n");
    let new = |g: &Guest| g.ids["engine"] == "namespaces" && before.iter().all(|b| b.name != g.name);
    let guest = found("a container of this test", |g| new(g) && runs(g));
    let pid = guest.pid.unwrap();
    assert!(guest.disks[0].place.source.is_some(), "{:?}", guest.disks);
    assert_eq!(guest.nics.len(), 0);
    assert!(!guest.processors.unwrap().threads[0].cpus.is_empty());
    // In a group named as an engine names it, it has that name.
    let roots = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"];
    let root = roots.iter().map(Path::new).find(|r| r.join("cgroup.procs").exists()).unwrap();
    let name = format!("vmio-test-{}", std::process::id());
    let group = root.join("lxc").join(&name);
    std::fs::create_dir_all(&group).unwrap();
    container.group = Some(group.clone());
    std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
    let guest = found("a container of that group", |g| g.name == name);
    assert_eq!((guest.ids["engine"].as_str(), guest.pid), ("lxc", Some(pid)));
}

#[test]
#[ignore = "root"]
fn a_pipe_and_an_endless_file_of_a_container_hold_nobody() {
    must_be_root();
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
    let guest = found("the container", |g| g.pid.is_some_and(|pid| children(parent).contains(&pid)));
    assert_eq!(guest.nics, []);
}
