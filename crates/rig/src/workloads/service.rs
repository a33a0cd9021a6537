//! What serves a workload while it runs: a server in another role, started and ready before the measured
//! part begins, ended after it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::process;
use vmio_node::linux::sockets::{self, InetSocket};
use vmio_node::{Exec, Output, Process, Reader};

use super::error::said;
use super::port_probe::{PortProbe, Ready};
use super::{End, Error, Result, Stage, Workload};

/// How long a server may take until it is ready, where its workload names no other time.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(20);
/// Between two looks whether it is.
const POLL: Duration = Duration::from_millis(20);
/// How long one that was killed may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A command that serves.
#[derive(Debug, Clone)]
pub struct Service {
    /// The command. It runs until it is ended.
    pub exec: Exec,
    /// When it counts as ready.
    pub ready: Ready,
}

/// The servers of a workload. They end with it.
#[derive(Default)]
pub struct Serving {
    servers: Vec<Server>,
}

/// A server that was started.
struct Server {
    role: &'static str,
    process: Box<dyn Process>,
    /// Its machine.
    node: String,
    command: String,
    /// Its port, where it runs on another machine.
    port_probe: Option<PortProbe>,
}

/// Starts what serves a workload, one role after the other, and waits until it is ready.
pub(super) fn start(workload: &(dyn Workload + '_), stage: &Stage) -> Result<Serving> {
    start_within(workload, stage, workload.ready_within())
}

fn start_within(workload: &(dyn Workload + '_), stage: &Stage, limit: Duration) -> Result<Serving> {
    let mut serving = Serving::default();
    // The last role is the one that is measured.
    let serve = workload.roles().split_last().map_or(&[][..], |(_, serve)| serve);
    for role in serve {
        let Some(service) = workload.serve(role, stage)? else { continue };
        let end = stage.end(role.name)?;
        let port_probe = PortProbe::of(end, service.ready);
        port_probe.as_ref().map_or(Ok(()), PortProbe::check_reachable)?;
        let process = end.node.spawn(&service.exec)?;
        let (node, command) = (end.node.name().to_owned(), service.exec.shown());
        serving.servers.push(Server { role: role.name, process, node, command, port_probe });
        if let Some(server) = serving.servers.last_mut() {
            server.wait(end, service.ready, limit)?;
        }
    }
    Ok(serving)
}

/// The sockets that would do, as the network namespace that a process is in shows them.
fn sockets(reader: &dyn Reader, pid: u32, ready: Ready) -> Vec<InetSocket> {
    let of = |files: [PathBuf; 2], fits: &dyn Fn(&InetSocket) -> bool| {
        let text = |file: &PathBuf| reader.read_text(file).unwrap_or_default();
        files.iter().map(text).flat_map(|t| sockets::inet_sockets(&t).filter(fits).collect::<Vec<_>>()).collect()
    };
    match ready {
        Ready::Listens(port) | Ready::Both(port) => of(sockets::tcp_files(pid), &|s| s.listens && s.port == port),
        Ready::Receives(port) => of(sockets::udp_files(pid), &|s| s.port == port),
    }
}

/// Whether a process or one that it started has any of these sockets open.
fn has_any(reader: &dyn Reader, pid: u32, sockets: &[InetSocket]) -> bool {
    let own = process::sockets(reader, pid).unwrap_or_default();
    own.iter().any(|inode| sockets.iter().any(|s| s.inode == *inode))
        || process::children(reader, pid).into_iter().any(|child| has_any(reader, child, sockets))
}

impl Server {
    /// Waits until it is ready.
    fn wait(&mut self, end: &End, ready: Ready, limit: Duration) -> Result<()> {
        let (reader, started) = (end.node.reader(), Instant::now());
        loop {
            if let Some(output) = self.process.try_wait()? {
                return Err(self.failed(format!("it ended before it was used: {:?}", output.end), Some(&output)));
            }
            let sockets = sockets(reader, self.process.pid(), ready);
            if !sockets.is_empty() && has_any(reader, self.process.pid(), &sockets) {
                return Ok(());
            }
            if started.elapsed() > limit {
                let taken = if sockets.is_empty() { "" } else { "; another program has its port" };
                // What it said until now may tell why.
                let output = self.process.kill().and_then(|()| self.process.wait(Some(END_LIMIT))).ok();
                let how = format!("it was not ready after {} s{taken}", limit.as_secs());
                return Err(self.failed(how, output.as_ref()));
            }
            thread::sleep(POLL);
        }
    }

    fn failed(&self, how: String, output: Option<&Output>) -> Error {
        let said = output.map(said).unwrap_or_default();
        Error::Failed { node: self.node.clone(), command: self.command.clone(), how, said }
    }
}

impl Serving {
    /// The error of a failed workload: a server that has ended is its cause, whatever the client says.
    pub(super) fn classify_failure(&mut self, error: Error) -> Error {
        let mut error = error;
        for server in &mut self.servers {
            match server.process.try_wait() {
                Ok(Some(output)) if !output.ok() => {
                    let how = format!("it ended while it was used: {:?}; {error}", output.end);
                    return server.failed(how, Some(&output));
                }
                // One that has served its client may end.
                Ok(Some(_)) => {}
                Ok(None) => error = server.port_probe.iter().fold(error, |error, probe| probe.classify_failure(error)),
                // The machine is gone: no wonder that nothing gets through.
                Err(gone) => return gone.into(),
            }
        }
        error
    }

    /// The error of a failed workload with what its servers said until now; they are ended for that. One that is itself
    /// what failed is quoted already.
    pub(super) fn quote(&mut self, error: Error) -> Error {
        match error {
            Error::Failed { node, command, how, said: mut all } => {
                for server in self.servers.iter_mut().filter(|server| server.command != command) {
                    let output = server.process.kill().and_then(|()| server.process.wait(Some(END_LIMIT)));
                    let log = output.map(|output| said(&output)).unwrap_or_default();
                    if !log.is_empty() {
                        all += &format!("; {} said: {log}", server.role);
                    }
                }
                Error::Failed { node, command, how, said: all }
            }
            other => other,
        }
    }

    /// What they say until they end by themselves, in the order in which they were started. One that does not within the
    /// time is asked to end (SIGTERM), so that it says what it has; then it is killed.
    pub(super) fn hear(&mut self, limit: Duration) -> Result<Vec<Output>> {
        let until = Instant::now() + limit;
        let ended = |server: &mut Server| {
            while Instant::now() < until {
                if let Some(output) = server.process.try_wait()? {
                    return Ok(output);
                }
                thread::sleep(POLL);
            }
            // Where a queue hardly lets anything through, it does not hear that its sender is done.
            server.process.terminate()?;
            Ok(server.process.wait(Some(END_LIMIT))?)
        };
        self.servers.iter_mut().map(ended).collect()
    }

    fn stop(&mut self) {
        while let Some(mut server) = self.servers.pop() {
            // One that has ended by itself is ended.
            if server.process.kill().is_ok() {
                let _ = server.process.wait(Some(END_LIMIT));
            }
        }
    }
}

/// Ends them, the last one first.
impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
