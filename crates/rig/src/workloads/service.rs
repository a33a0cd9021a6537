//! What serves a workload while it runs: a server in another role, started and ready before the measured
//! part begins, ended after it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::net;
use vmio_node::{Exec, Output, Process};

use super::{End, Error, Result, Stage, Workload};

/// How long a server may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// So often it must be seen ready while it runs.
const READY_LOOKS: u32 = 5;
/// Between two looks whether it is.
const POLL: Duration = Duration::from_millis(20);

/// A command that serves.
#[derive(Debug, Clone)]
pub struct Service {
    /// The command. It runs until it is ended.
    pub exec: Exec,
    /// When it counts as ready.
    pub ready: Ready,
}

/// When a server is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// When something on its machine listens on this TCP port.
    Listens(u16),
    /// When something on its machine has this UDP port.
    Receives(u16),
    /// As soon as it runs.
    Runs,
}

/// The servers of a workload. They end with it.
#[derive(Default)]
pub struct Serving {
    processes: Vec<Box<dyn Process>>,
}

/// Starts what serves a workload, one role after the other, and waits until it is ready.
pub(super) fn start(workload: &(dyn Workload + '_), stage: &Stage) -> Result<Serving> {
    let mut serving = Serving::default();
    for role in workload.roles() {
        let Some(service) = workload.serve(role, stage)? else { continue };
        let end = stage.end(role.name)?;
        let process = end.node.spawn(&service.exec)?;
        serving.processes.push(process);
        serving.wait(end, &service)?;
    }
    Ok(serving)
}

/// Whether a server is ready, as the network namespace that its process is in shows it.
fn is_ready(end: &End, pid: u32, ready: Ready) -> bool {
    let any = |files: [PathBuf; 2], has: &dyn Fn(&str) -> bool| {
        files.iter().any(|file| end.node.reader().read_text(file).is_ok_and(|text| has(&text)))
    };
    match ready {
        Ready::Listens(port) => any(net::tcp_files(pid), &|text| net::listening_ports(text).any(|p| p == port)),
        Ready::Receives(port) => any(net::udp_files(pid), &|text| net::bound_ports(text).any(|p| p == port)),
        Ready::Runs => true,
    }
}

impl Serving {
    /// Waits for the last one.
    fn wait(&mut self, end: &End, service: &Service) -> Result<()> {
        let Some(process) = self.processes.last_mut() else { return Ok(()) };
        let until = Instant::now() + READY_LIMIT;
        let failed = |how: String, output: Option<Output>| Error::Failed {
            node: end.node.name().to_owned(),
            command: service.exec.shown(),
            how,
            said: output.map(|o| o.err().trim().to_owned()).unwrap_or_default(),
        };
        // Where another program has the port, ours ends soon after it was started.
        let mut ready = 0;
        while ready < READY_LOOKS {
            ready += u32::from(is_ready(end, process.pid(), service.ready));
            if let Some(output) = process.try_wait()? {
                return Err(failed(format!("it ended before it was used: {:?}", output.end), Some(output)));
            }
            if Instant::now() > until {
                return Err(failed(format!("it was not ready after {} s", READY_LIMIT.as_secs()), None));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends them, the last one first.
    pub fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        while let Some(mut process) = self.processes.pop() {
            // One that has ended by itself is ended.
            if process.kill().is_ok() {
                let _ = process.wait(Some(Duration::from_secs(5)));
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}
