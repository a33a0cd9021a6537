//! A container that vmio starts: namespaces and a control group around the host's own programs, with the agent in it
//! ([`vmio_node::container`]). It needs no image, no daemon and no driver: its disk is the host's own file or device,
//! its network device an end of a veth pair in the network namespace that the path of a cell has.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, net};

use vmio_look::require::{Missing, Requirement, root};
use vmio_model::cell::{Kind, Shape};
use vmio_node::linux::process::{self, Stat};
use vmio_node::linux::system;
use vmio_node::{End, Exec, Node, Process, Reader, Remote, container};

use super::directory::{self, Directory};
use super::{Disks, Error, Guest, GuestKind, GuestSpec, LaunchCtx, Result, Unfit, file_error, listed};
use crate::limits::{self, Share};
use crate::ours::{self, AGENT};

/// Entry `container`.
pub struct Container;

/// Where its disks are in it.
const DISKS: &str = "/run/vmio";
/// Which part of its memory each of its directories in memory may hold: what lies there nobody frees by being killed.
const SCRATCH_PART: u32 = 4;
/// How long it may take to end when its stream has.
const END_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);
/// The kernel that keeps mounts of a container from being written to, all at once (mount_setattr(2)).
const KERNEL: (u32, u32) = (5, 12);

impl GuestKind for Container {
    fn name(&self) -> &'static str {
        Kind::CONTAINER.name
    }
    fn about(&self) -> &'static str {
        "namespaces and a control group around the host's own programs; no image, no daemon"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const REQUIREMENTS: &[Requirement] = &[
            Requirement { name: "root", why: "makes namespaces", fix: "run vmio as root", check: root },
            Requirement {
                name: "vmio-agent",
                why: "runs programs in the container",
                fix: "make agent (a package has it in /usr/lib/vmio), or name it by VMIO_AGENT",
                check: |n| AGENT.find(n).map(drop).map_err(|tried| Missing::NoneOf(listed(&tried))),
            },
            Requirement {
                name: "Linux 5.12",
                why: "keeps the host's files from being written to in a container",
                fix: "use a newer kernel, or leave the side container out",
                check: |n| new_enough(&system::release(n).unwrap_or_default()),
            },
            Requirement {
                name: "control groups",
                why: "hold a container to its processors and its memory",
                fix: "leave the side container out, or mend what is missing",
                check: |n| {
                    let held = limits::forecast(n, &Share::of(1, 64 << 20));
                    held.map(drop).map_err(|why| Missing::Unlike(why.to_string()))
                },
            },
        ];
        REQUIREMENTS
    }
    fn fits(&self, shape: &Shape, host: &dyn Reader) -> Result<(), Unfit> {
        if *shape != shape.natively() {
            return Err(Unfit::OfContainer);
        }
        limits::can_pin(host, &shape.pins).map_err(Unfit::Unheld)
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        directory::fits_a_name(&spec.name)?;
        let command = command(ctx, spec)?;
        let directory = Directory::make(ctx, &spec.name)?;
        let socket = directory.socket("agent")?;
        let listener = UnixListener::bind(&socket).map_err(file_error("listen on", &socket))?;
        listener.set_nonblocking(true).map_err(file_error("listen on", &socket))?;
        let command = Exec { args: with_socket(command.args, &socket), ..command }.behind(&ctx.enter);
        let started = Instant::now();
        let process = ctx.node.spawn(&command)?;
        let pid = process.pid();
        let process = Running { name: spec.name.clone(), process: Mutex::new(process), _directory: directory };
        // From here on, whatever fails is told with what it said.
        let up = || -> Result<(Remote, UnixStream, Processes)> {
            let stream = process.accept(&listener, ctx.boot_limit).map_err(file_error("accept on", &socket))?;
            let stream = stream.ok_or_else(|| process.give_up("did not start"))?;
            stream.set_write_timeout(Some(ctx.boot_limit)).map_err(file_error("set a limit on", &socket))?;
            let share = || stream.try_clone().map_err(file_error("share", &socket));
            let left = ctx.boot_limit.saturating_sub(started.elapsed());
            let remote = Remote::connect(&spec.name, (Box::new(share()?), Box::new(share()?)), left)?;
            let child = |of| child_of(ctx.node.reader(), of).ok_or_else(|| process.give_up("has no processes"));
            let first = child(pid)?;
            Ok((remote, stream, Processes { first, agent: child(first)? }))
        };
        let (node, stream, processes) = match up() {
            Err(e) if !matches!(e, Error::Down { .. }) => {
                return Err(process.give_up(&format!("did not come up: {e}")));
            }
            other => other?,
        };
        let disks = spec.disks.iter().map(|disk| (disk.id.clone(), inside(&disk.id))).collect();
        let (node, boot_seconds) = (Arc::new(node), started.elapsed().as_secs_f64());
        Ok(Box::new(Contained { node, stream, processes, boot_seconds, disks, process }))
    }
}

/// Whether a release (`uname -r`) is that of a kernel that can keep a container's mounts from being written to.
fn new_enough(release: &str) -> std::result::Result<(), Missing> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= KERNEL => Ok(()),
        _ => Err(Missing::Unlike(format!("this kernel is {release}"))),
    }
}

/// The path of a disk in the container.
fn inside(id: &str) -> PathBuf {
    Path::new(DISKS).join(id)
}

/// The agent's command, but for its socket.
fn command(ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Exec> {
    let wrong = |reason: String| Error::Spec { guest: spec.name.clone(), reason };
    if !spec.nics.is_empty() {
        return Err(wrong("a container has no network device but the end of its path".into()));
    }
    if ctx.cgroup_procs.is_empty() {
        return Err(wrong("a container without its own control group would not be limited".into()));
    }
    let missing = |tried: Vec<PathBuf>| wrong(format!("no vmio-agent: none of {} exists", listed(&tried)));
    let agent = AGENT.find(ctx.node.reader()).map_err(missing)?;
    let scratch = (spec.memory_mib / SCRATCH_PART).max(1).to_string();
    let mut args = vec![container::NAME.to_owned(), spec.name.clone(), container::SCRATCH_MIB.to_owned(), scratch];
    if ctx.enter.is_empty() {
        args.push(container::OWN_NETWORK.to_owned());
    }
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| wrong("a path is not text".into()));
    for disk in &spec.disks {
        if let Some(attachment) = &disk.attachment {
            let why = format!("disk {}: a container has no {}, it gets what is there", disk.id, attachment.driver);
            return Err(wrong(why));
        }
        let served = || wrong(format!("disk {}: no program can open what is served to a hypervisor", disk.id));
        let path = disk.storage.path().ok_or_else(served)?;
        args.extend([container::BIND.to_owned(), text(path)?, text(&inside(&disk.id))?]);
    }
    // Its `/tmp` and `/run` are not the host's.
    for own in ours::of_workloads() {
        if let Ok(path) = own.find(ctx.node.reader()) {
            args.extend([container::SHOW.to_owned(), text(&path)?, text(&path)?]);
        }
    }
    let exec_base = Exec {
        // Where its memory does not suffice, programs go before the agent, which tells of it.
        oom_score_adj: Some(ctx.oom_score_adj / 2),
        cgroup_procs: ctx.cgroup_procs.clone(),
        // What this process may call so is not there: iperf3 makes a file in it.
        env: [("TMPDIR".to_owned(), "/tmp".to_owned())].into(),
        ..Exec::new(text(&agent)?)
    };
    Ok(exec_base.args(args))
}

fn with_socket(args: Vec<String>, socket: &Path) -> Vec<String> {
    [container::WORD.to_owned(), socket.display().to_string()].into_iter().chain(args).collect()
}

/// The only child of a process.
fn child_of(reader: &dyn Reader, parent: u32) -> Option<u32> {
    let is_child = |pid: &u32| {
        let stat = reader.read_text(&process::file(pid, "stat")).ok();
        stat.and_then(|text| Stat::parse(&text)?.parent()) == Some(parent)
    };
    process::all(reader).ok()?.into_iter().find(is_child)
}

/// The processes of a container that are vmio's own, as the host numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processes {
    /// The first one in it.
    pub first: u32,
    /// The agent.
    pub agent: u32,
}

struct Contained {
    node: Arc<dyn Node>,
    stream: UnixStream,
    processes: Processes,
    boot_seconds: f64,
    disks: BTreeMap<String, PathBuf>,
    process: Running,
}

impl Guest for Contained {
    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node)
    }
    fn processes(&self) -> Option<Processes> {
        Some(self.processes)
    }
    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }
    fn boot_seconds(&self) -> Option<f64> {
        Some(self.boot_seconds)
    }
    fn give_up(&self, seen: &str) -> Error {
        self.process.give_up(seen)
    }
    fn stop(self: Box<Self>) -> Result<()> {
        // The agent undoes what was changed and ends, whoever still has a use of the node.
        let _ = self.stream.shutdown(net::Shutdown::Both);
        self.process.wait()
    }
}

impl Disks for Contained {
    fn path(&self, id: &str) -> Result<PathBuf> {
        self.disks.get(id).cloned().ok_or_else(|| Error::NoDisk {
            guest: self.process.name.clone(),
            disk: id.to_owned(),
            hint: String::new(),
        })
    }
}

/// The container's process on the host. All of it is killed when this goes out of scope, and then its directory is
/// removed.
struct Running {
    name: String,
    process: Mutex<Box<dyn Process>>,
    _directory: Directory,
}

impl Running {
    fn with<T>(&self, work: impl FnOnce(&mut dyn Process) -> T) -> T {
        work(&mut **self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for its agent; `None` when it has ended, or the time has passed.
    fn accept(&self, listener: &UnixListener, limit: Duration) -> io::Result<Option<UnixStream>> {
        let until = Instant::now() + limit;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return stream.set_nonblocking(false).map(|()| Some(stream)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            let ended = self.with(|process| process.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() > until {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    fn wait(&self) -> Result<()> {
        self.with(|process| process.wait(Some(END_LIMIT)))?;
        Ok(())
    }

    /// Ends it if it still runs and says what became of it.
    fn give_up(&self, seen: &str) -> Error {
        let output = self.with(|process| match process.try_wait() {
            Ok(Some(ended)) => Some(ended),
            _ => process.kill().and_then(|()| process.wait(Some(END_LIMIT))).ok(),
        });
        let how = match output.as_ref().map(|o| o.end) {
            Some(End::Exit(code)) => format!("; it had ended with exit code {code}"),
            Some(End::Signal(signal)) => format!("; it was ended by signal {signal}"),
            Some(End::TimedOut) | None => "; it was ended".to_owned(),
        };
        let report = output.map(|o| o.err().trim().to_owned()).unwrap_or_default();
        Error::Down { guest: self.name.clone(), what: format!("{seen}{how}"), report, last: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart() {
        for (release, fits) in
            [("6.1.0-38-amd64", true), ("5.12.0", true), ("5.10.0-1", false), ("", false), ("6", false)]
        {
            assert_eq!(new_enough(release).is_ok(), fits, "{release}");
        }
    }

    #[test]
    fn what_a_container_has_no_part_of_is_refused() {
        let shape =
            |kernel: Option<&str>, vcpus| Shape { kernel: kernel.map(str::to_owned), vcpus, ..Shape::default() };
        let host = vmio_node::fake::Tree::default();
        assert_eq!(Container.fits(&shape(None, Some(2)), &host), Ok(()));
        assert_eq!(Container.fits(&shape(Some("6.1"), None), &host), Err(Unfit::OfContainer));
    }
}
