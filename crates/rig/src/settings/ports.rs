//! The interfaces of a path, and what is asked and told of them.

use std::time::Duration;

use vmio_node::{End, Exec};

use super::{Error, Result, Where};
use crate::nets::Port;

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

impl Where<'_> {
    /// The interface that has the actor's address: `2: eth0    inet 198.18.0.2/24 …` (ip-address(8), `-oneline`).
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn own_port(&self) -> Result<Port> {
        let none = || Error::Refused("the actor was given no address".into());
        let address = self.end.address().ok_or_else(none)?.to_string();
        let (node, enter) = (self.end.node.clone(), self.end.enter.clone());
        let mut port = Port { node, enter, interface: String::new(), is_link: false, is_plug: false };
        let text = port.ask("ip", &["-oneline", "address", "show", "to", &address])?;
        let missing = || Error::Failed(format!("no interface of {} has the address {address}", port.node.name()));
        port.interface = text.split_whitespace().nth(1).map(str::to_owned).ok_or_else(missing)?;
        Ok(port)
    }
}
