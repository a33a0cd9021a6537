//! The interfaces of a path, and what is asked and told of them.

use std::time::Duration;

use vmio_model::cell::{Actor, Subject};
use vmio_model::study::WordError;
use vmio_node::{End, Exec, Journal};

use super::{Error, Fit, Result, Undos, Where};
use crate::disks::targets;
use crate::nets::{self, Port};

/// How long `ip` and `tc` may take: a guest under emulation is slow.
const LIMIT: Duration = Duration::from_secs(20);

impl Port {
    /// What a program prints where the interface is.
    ///
    /// # Errors
    /// When it cannot be run, or fails.
    pub(super) fn ask(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self.run(program, args)?;
        if output.ok() { Ok(output.out()) } else { Err(Error::Failed(said(program, args, &output))) }
    }

    /// Has a program change something where the interface is.
    ///
    /// # Errors
    /// When it refuses, or cannot be run.
    pub(super) fn tell(&self, program: &str, args: &[&str]) -> Result<()> {
        let output = self.run(program, args)?;
        match output.end {
            _ if output.ok() => Ok(()),
            End::Exit(_) => Err(Error::Refused(said(program, args, &output))),
            // One that did not come to its end may another time.
            _ => Err(Error::Failed(said(program, args, &output))),
        }
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<vmio_node::Output> {
        Ok(self.node.exec(&Exec::new(program).args(args.iter().copied()).limit(LIMIT).behind(&self.enter))?)
    }
}

fn said(program: &str, args: &[&str], output: &vmio_node::Output) -> String {
    let how = if matches!(output.end, End::Exit(_)) { String::new() } else { format!(" ({:?})", output.end) };
    format!("`{program} {}` failed{how}: {}", args.join(" "), output.err().trim())
}

/// What each interface of a path has, on both ends and between them: how it is read, set and shown.
pub(super) struct OfPorts<T> {
    pub found: fn(&Port) -> Result<T>,
    pub set: fn(&Port, T) -> Result<()>,
    /// As it is told where it is not what was asked for.
    pub shown: fn(&Port, T) -> String,
}

impl<T: Copy + PartialEq + Send + 'static> OfPorts<T> {
    /// Sets on each of them what is wanted of it, together spelled as `value`, and reads it back.
    ///
    /// # Errors
    /// When one cannot be set, or reads back otherwise.
    pub fn put(&self, value: &str, wanted: impl Fn(&Port) -> T, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        // Ports before their bridge, which takes no more than the least of them; the actor's own last.
        let own = on.own_port()?;
        // A container's end is in a namespace that outlives it.
        let stays = on.actor.side.shares_kernel();
        for (port, on_host) in on.ports.iter().map(|port| (port, true)).chain(own.iter().map(|port| (port, stays))) {
            let (before, changed, set) = ((self.found)(port)?, port.clone(), self.set);
            let wanted = wanted(port);
            let undo = move |_: &Journal| set(&changed, before);
            if on_host {
                undos.on_host(undo)
            } else {
                undos.in_guest(undo)
            }
            set(port, wanted)?;
            let found = (self.found)(port)?;
            if found != wanted {
                return Err(Error::NotAsAsked { asked: value.to_owned(), found: (self.shown)(port, found) });
            }
        }
        Ok(value.to_owned())
    }
}

/// `on` or `off`; `it_is` is what is either, for the error.
pub(super) fn is_on(text: &str, it_is: &str) -> Result<bool, WordError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(WordError(format!("{text:?} is neither: {it_is} on or off"))),
    }
}

/// Whether an actor works over interfaces that can be set; `it` is what is set, `cannot` what packets without a wire cannot.
pub(super) fn over_a_wire(actor: &Actor, it: &str, cannot: &str) -> Fit {
    match &actor.subject {
        Subject::Path { network, .. } if !nets::find(network).is_some_and(|n| n.has_wire()) => {
            Fit::Refused(format!("{network} has no wire whose packets {cannot}: use another network"))
        }
        Subject::Path { co_sender: Some(_), .. } => {
            Fit::Refused("the second sender would not have it: leave it out, or co_sender".to_owned())
        }
        Subject::Path { .. } if actor.neighbour().is_some() => {
            Fit::Refused("vmio sets nothing between two guests: use the peer host, or leave it out".to_owned())
        }
        Subject::Path { .. } => Fit::Sets,
        Subject::Disk { .. } if is_served_over_link(actor) => Fit::Sets,
        _ => Fit::Nothing(format!("{it} for a network path, and no actor uses one: leave it out")),
    }
}

/// Whether a link between hosts lies between the actor and its peer, or the host that serves its disk.
pub(super) fn is_linked(actor: &Actor) -> bool {
    let Subject::Path { network, peer, .. } = &actor.subject else { return is_served_over_link(actor) };
    nets::find(network).is_some_and(|n| n.linked().contains(&peer.as_str()))
}

/// Whether another host serves the actor's disk, over a link of the run's own.
pub(super) fn is_served_over_link(actor: &Actor) -> bool {
    actor.target().and_then(targets::find).is_some_and(|target| target.over_link())
}

impl Where<'_> {
    /// The interface that has the actor's address: `2: eth0    inet 198.18.0.2/24 …` (ip-address(8), `-oneline`); none of
    /// who works on a disk, unless its guest reaches that by itself.
    ///
    /// # Errors
    /// When there is none over a path.
    fn own_port(&self) -> Result<Option<Port>> {
        if self.actor.subject.is_disk() {
            return Ok(self.card.cloned());
        }
        let none = || Error::Refused("the actor was given no address".into());
        let address = self.end.address().ok_or_else(none)?.to_string();
        let (node, enter) = (self.end.node.clone(), self.end.enter.clone());
        let mut port = Port { node, enter, interface: String::new(), is_link: false, is_plug: false };
        let text = port.ask("ip", &["-oneline", "address", "show", "to", &address])?;
        let missing = || Error::Failed(format!("no interface of {} has the address {address}", port.node.name()));
        port.interface = text.split_whitespace().nth(1).map(str::to_owned).ok_or_else(missing)?;
        Ok(Some(port))
    }
}
