//! Transports to machines that exist already (ssh, libvirt): their addresses on the command line, how they are opened,
//! and how their errors are shown.

use std::env::consts::ARCH;

use vmio_model::failure::{Exit, Failure};
use vmio_model::study::WordError;
use vmio_node::reach::{Error, Machine, Program};
use vmio_node::{Local, libvirt, ssh};
use vmio_rig::ours::AGENT;

use crate::term;

/// How a machine is reached: by ssh, or by libvirt through a guest's agent.
pub struct Transport {
    /// Prefix of its addresses.
    pub scheme: &'static str,
    /// Form of its addresses, for messages.
    pub form: &'static str,
    /// Its page of the documentation.
    pub page: &'static str,
    /// Checks an address.
    pub check: fn(&str) -> Result<(), WordError>,
    /// Connects, starts the agent there, and tells the user so.
    pub open: fn(&str) -> Result<AgentMachine, Failure>,
}

/// Every transport.
pub static TRANSPORTS: [Transport; 2] = [
    Transport {
        scheme: ssh::SCHEME,
        form: "ssh://[USER@]HOST[:PORT][/DIR]",
        page: "docs/ssh.md",
        check: |text| text.parse::<ssh::Address>().map(|_| ()).map_err(|e| WordError(e.to_string())),
        open: |text| Ok(AgentMachine { machine: by_ssh(&read(text)?)?, guest: None }),
    },
    Transport {
        scheme: libvirt::SCHEME,
        form: "libvirt://DOMAIN[/DIR]",
        page: "docs/libvirt.md",
        check: |text| text.parse::<libvirt::Domain>().map(|_| ()).map_err(|e| WordError(e.to_string())),
        open: |text| {
            let domain = read(text)?;
            let opened = libvirt::open(&command(VIRSH), &domain, &agents(text)?);
            let libvirt::Guest { machine, uuid } = opened.map_err(|e| failure(&e))?;
            Ok(AgentMachine { machine: noted(text, machine), guest: Some(uuid) })
        },
    },
];

/// An address of any transport, with no directory, as a user writes it.
///
/// # Errors
/// What is wrong with it, and how addresses are written.
pub fn address(text: &str) -> Result<String, WordError> {
    let forms = || TRANSPORTS.each_ref().map(|transport| transport.form.trim_end_matches("[/DIR]")).join(" or ");
    let transport = TRANSPORTS.iter().find(|transport| text.starts_with(transport.scheme));
    let none = || WordError("not an address of a machine".to_owned());
    let checked = transport.ok_or_else(none).and_then(|transport| (transport.check)(text));
    checked.map(|()| text.to_owned()).map_err(|why| WordError(format!("{why}: give {}", forms())))
}

/// Whether `--on` names another machine.
pub fn names_machine(on: Option<&str>) -> bool {
    on.is_some_and(|on| TRANSPORTS.iter().any(|transport| on.starts_with(transport.scheme)))
}

/// Connects to the machine of an address.
///
/// # Errors
/// Why it cannot be reached, and what to do.
pub fn to(text: &str) -> Result<AgentMachine, Failure> {
    let transport = TRANSPORTS.iter().find(|transport| text.starts_with(transport.scheme));
    transport.map_or_else(
        || Err(Failure::new(Exit::Usage, format!("invalid address {text}"))),
        |transport| (transport.open)(text),
    )
}

/// A machine with an agent on it.
pub struct AgentMachine {
    /// The machine.
    pub machine: Machine,
    /// Its UUID, where it is a guest.
    pub guest: Option<String>,
}

/// An environment variable with the command of a transport and its options, and the default.
type Variable = (&'static str, &'static str);
const SSH: Variable = ("VMIO_SSH", "ssh");
const VIRSH: Variable = ("VMIO_VIRSH", "virsh");

/// Connects to a machine by `ssh`, and tells the user what runs there.
pub fn by_ssh(address: &ssh::Address) -> Result<Machine, Failure> {
    let text = address.to_string();
    ssh::open(&command(SSH), address, &agents(&text)?).map(|machine| noted(&text, machine)).map_err(|e| failure(&e))
}

/// The host behind an address, by the user's own configuration.
pub fn host(address: &ssh::Address) -> std::io::Result<ssh::Host> {
    ssh::Host::of(&command(SSH), address)
}

fn read<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|why: T::Err| Failure::new(Exit::Usage, why.to_string()))
}

fn failure(e: &Error) -> Failure {
    Failure::new(Exit::Precondition, e.to_string()).help(&e.help)
}

/// The agents that may be sent.
fn agents(address: &str) -> Result<[Program; 1], Failure> {
    let agent = AGENT.find(&Local::new()).map_err(|tried| {
        let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        Failure::new(
            Exit::Precondition,
            format!("no vmio-agent to send to {address}: none of {} exists", tried.join(", ")),
        )
        .help("make agent (a package has it in /usr/lib/vmio), or name it by VMIO_AGENT")
    })?;
    Ok([Program { machine: ARCH.to_owned(), file: agent }])
}

fn noted(address: &str, machine: Machine) -> Machine {
    let (place, in_memory) = machine.place();
    let from = if in_memory { "from memory" } else { "from a disk, since no memory file system there allows programs" };
    term::note(&format!("{address}: vmio-agent runs there {from} ({}) and is removed afterwards", place.display()));
    machine
}

fn command((variable, usual): Variable) -> Vec<String> {
    let words = std::env::var(variable).unwrap_or_default();
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { vec![usual.to_owned()] } else { words }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The contract of a transport.
    #[test]
    fn every_transport_reads_its_own_addresses_and_no_options() {
        for transport in &TRANSPORTS {
            let Transport { scheme, form, page, check, open } = transport;
            assert!(form.starts_with(scheme) && form.ends_with("[/DIR]") && scheme.ends_with("://"), "{form}");
            assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page).is_file(), "{page}");
            check(&format!("{scheme}web1")).unwrap();
            let others =
                TRANSPORTS.iter().filter(|other| other.scheme != *scheme).map(|other| format!("{}web1", other.scheme));
            for wrong in others.chain([
                "".into(),
                "web1".into(),
                format!("{scheme}-x"),
                format!("{scheme}a\nb"),
                (*scheme).into(),
            ]) {
                assert!(check(&wrong).is_err(), "{scheme} takes {wrong:?}");
                assert_eq!(open(&wrong).err().unwrap().exit, Exit::Usage, "{wrong:?}");
            }
            assert_eq!(address(&format!("{scheme}web1")).unwrap(), format!("{scheme}web1"));
            assert!(names_machine(Some(&format!("{scheme}h"))) && !names_machine(Some("ssh")) && !names_machine(None));
            for wrong in [format!("{scheme}-x"), "web1".into(), "http://web1".into()] {
                let said = address(&wrong).unwrap_err().to_string();
                assert!(said.contains("ssh://[USER@]HOST[:PORT] or libvirt://DOMAIN"), "{said}");
                assert_eq!(to(&wrong).err().unwrap().exit, Exit::Usage, "{wrong:?}");
            }
        }
    }
}
