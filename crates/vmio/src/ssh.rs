//! Machines that are reached by `ssh`: what the command line says of them, and how their errors are told.

use std::env::consts::ARCH;

use vmio_model::failure::{Exit, Failure};
use vmio_node::Local;
use vmio_node::ssh::{Address, Machine, Program};
use vmio_rig::ours::AGENT;

use crate::term;

/// The variable that has the command to go there by, with its options, where that is not `ssh`: `ssh -F FILE`.
const COMMAND: &str = "VMIO_SSH";

/// Goes to a machine, and says what is done there.
pub fn open(address: &Address) -> Result<Machine, Failure> {
    let agent = AGENT.find(&Local::new()).map_err(|tried| {
        let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        Failure::new(
            Exit::Precondition,
            format!("there is no vmio-agent to send to {address}: none of {}", tried.join(", ")),
        )
        .help("make agent (a package has it in /usr/lib/vmio)")
    })?;
    let agents = [Program { machine: ARCH.to_owned(), file: agent }];
    let machine = Machine::open(&command(), address, &agents)
        .map_err(|e| Failure::new(Exit::Precondition, e.to_string()).help(&e.help))?;
    let (place, in_memory) = machine.place();
    let from = if in_memory { "from memory" } else { "from a disk, since no memory there takes programs" };
    term::note(&format!("{address}: vmio-agent runs there {from} ({}) and is gone afterwards", place.display()));
    Ok(machine)
}

/// The name or IP address of the host behind an address, by the user's own configuration.
pub fn host_name(address: &Address) -> std::io::Result<String> {
    vmio_node::ssh::host_name(&command(), address)
}

/// The command to go there by.
fn command() -> Vec<String> {
    let ssh = std::env::var(COMMAND).unwrap_or_default();
    let ssh: Vec<String> = ssh.split_whitespace().map(str::to_owned).collect();
    if ssh.is_empty() { vec!["ssh".to_owned()] } else { ssh }
}
