//! Libvirt domains that are in use, reached through their guest's own agent (qemu-guest-agent) by the user's own
//! `virsh`. vmio's agent is written into the guest's memory, is run there, and is gone afterwards ([`crate::reach`]).
//!
//! What the guest's agent answers is the guest's word: every answer is bounded in size and time, and nothing of it is
//! run here.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::reach::{self, Error, LIMIT, MOST_SAID, Machine, NO_PLACE, OURS, Program, SILENCE};

mod error;
mod pump;
mod virsh;

use error::{BY_HAND, Trouble};
use pump::{Ends, Pump, WRITE_BYTES};
use virsh::Virsh;

/// What an address begins with.
pub const SCHEME: &str = "libvirt://";
/// Longest name of a domain.
const MOST_BYTES: usize = 255;
/// Script that makes the agent's directory in the guest.
const PLACE: &str = concat!(reach::place!(), include_str!("place.sh"));
/// Script that runs the agent.
const SCRIPT: &str = include_str!("script.sh");
/// What is asked of the guest's agent.
const NEEDED: [&str; 7] = [
    "guest-exec",
    "guest-exec-status",
    "guest-file-open",
    "guest-file-close",
    "guest-file-read",
    "guest-file-write",
    "guest-file-flush",
];
const POLL: Duration = Duration::from_millis(50);

/// A domain as users write it: `libvirt://DOMAIN`, by its name or UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    name: String,
}

/// Why a text names no domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{text}`, expected for example libvirt://web1: {wrong}")]
pub struct NoDomain {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// What is wrong with an address of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Wrong {
    #[error("it does not begin with libvirt://")]
    Scheme,
    #[error("a domain's name has 1 to {MOST_BYTES} bytes, and does not begin with `-`")]
    Name,
    #[error("a domain's name has no `/` and no control characters")]
    Characters,
}

impl FromStr for Domain {
    type Err = NoDomain;

    /// Nothing in it can become an option of `virsh`.
    fn from_str(text: &str) -> Result<Self, NoDomain> {
        let wrong = |wrong| NoDomain { text: text.to_owned(), wrong };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong(Wrong::Scheme))?;
        let name = rest.strip_suffix('/').unwrap_or(rest);
        if name.is_empty() || name.starts_with('-') || name.len() > MOST_BYTES {
            return Err(wrong(Wrong::Name));
        }
        if name.chars().any(|c| c.is_control() || c == '/') {
            return Err(wrong(Wrong::Characters));
        }
        Ok(Self { name: name.to_owned() })
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.name)
    }
}

/// A domain with an agent in its guest.
pub struct Guest {
    /// The guest.
    pub machine: Machine,
    /// The domain's UUID, in small letters.
    pub uuid: String,
}

/// Goes into the domain by this command (`virsh`, with options of its own), with the agent among these that is for its
/// processor.
///
/// # Errors
/// When the domain is off or its guest has no agent that takes files and commands.
pub fn open(virsh: &[String], domain: &Domain, agents: &[Program]) -> Result<Guest, Error> {
    let until = Instant::now() + LIMIT;
    let failed = |trouble: Trouble| {
        let (what, help) = trouble.told();
        Error { address: domain.to_string(), what, help: help.unwrap_or(BY_HAND).replace("DOMAIN", &domain.name) }
    };
    let cannot = |what: &'static str| move |source: io::Error| Trouble::Cannot { what, source };
    let uuid = virsh::run(virsh, &["domuuid", "--", &domain.name]).map_err(failed)?.trim().to_owned();
    let state = virsh::run(virsh, &["domstate", "--", &uuid]).map_err(failed)?.trim().to_owned();
    if state != "running" {
        return Err(failed(Trouble::NotRunning(state)));
    }
    let mut asked = Virsh::start(virsh, &uuid).map_err(Trouble::NotStarted).map_err(failed)?;
    able(&mut asked).map_err(failed)?;
    let said = run(&mut asked, &PLACE.replace("SILENCE", &SILENCE.as_secs().to_string()), until).map_err(failed)?;
    let word = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(OURS)?.strip_prefix(name));
        let other = || failed(Trouble::Shell(format!("said: {said:.200}")));
        line.map(|rest| rest.trim().to_owned()).ok_or_else(other)
    };
    let (machine, place) = (word("is")?, word("at")?);
    if place.is_empty() {
        return Err(Error { address: domain.to_string(), what: NO_PLACE[0].into(), help: NO_PLACE[1].into() });
    }
    // It becomes a part of a script.
    if !place.starts_with('/') || !place.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)) {
        return Err(failed(Trouble::Place(place)));
    }
    let program =
        Program::among(agents, &machine).map_err(|[what, help]| Error { address: domain.to_string(), what, help })?;
    let agent = std::fs::read(&program.file).map_err(cannot("read the agent")).map_err(failed)?;
    let ends = begin(&mut asked, &place, &agent).map_err(failed)?;
    let (stream, theirs) = UnixStream::pair().map_err(cannot("make a socket")).map_err(failed)?;
    let pump = Pump::start(asked, ends, theirs).map_err(cannot("start a thread")).map_err(failed)?;
    Machine::greet(&domain.to_string(), place.into(), stream, pump, until)
        .map(|machine| Guest { machine, uuid })
        .map_err(|(pump, why)| failed(pump.ended().unwrap_or(why.into())))
}

/// Checks that the guest's agent has the needed commands.
fn able(virsh: &mut Virsh) -> Result<(), Trouble> {
    virsh.ask("guest-ping", &Value::Null)?;
    let info = virsh.ask("guest-info", &Value::Null)?;
    let commands = info["supported_commands"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_enabled = |name: &&str| commands.iter().any(|c| c["name"] == **name && c["enabled"] == true);
    let lacking: Vec<&str> = NEEDED.into_iter().filter(|name| !is_enabled(name)).collect();
    if lacking.is_empty() { Ok(()) } else { Err(Trouble::Forbidden(lacking)) }
}

/// Runs a script in the guest; returns its output.
fn run(virsh: &mut Virsh, script: &str, until: Instant) -> Result<String, Trouble> {
    let pid = start(virsh, script, true)?;
    loop {
        let now = virsh.ask("guest-exec-status", &json!({ "pid": pid }))?;
        if now["exited"] == true {
            let said = BASE64.decode(now["out-data"].as_str().unwrap_or_default().as_bytes()).ok();
            let said = said.filter(|said| said.len() <= MOST_SAID);
            let said = said.ok_or_else(|| Trouble::Shell("said too much".to_owned()))?;
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        if Instant::now() > until {
            return Err(Trouble::Shell(format!("did not end within {} s", LIMIT.as_secs())));
        }
        thread::sleep(POLL);
    }
}

fn start(virsh: &mut Virsh, script: &str, capture: bool) -> Result<i64, Trouble> {
    let arguments = json!({ "path": "/bin/sh", "arg": ["-c", script], "capture-output": capture });
    let said = virsh.ask("guest-exec", &arguments)?;
    let no_number = || Trouble::GuestAgent(format!("started something without a number: {said:.100}"));
    said["pid"].as_i64().ok_or_else(no_number)
}

/// Sends the agent and starts it.
fn begin(virsh: &mut Virsh, place: &str, agent: &[u8]) -> Result<Ends, Trouble> {
    let file = pump::open(virsh, &format!("{place}/vmio-agent"), "w")?;
    for piece in agent.chunks(WRITE_BYTES) {
        pump::write(virsh, file, piece)?;
    }
    pump::close(virsh, file)?;
    // Both of its ends are held until the agent has it: whoever opens it does not wait.
    let input = pump::open(virsh, &format!("{place}/in"), "r+")?;
    let script = SCRIPT
        .replace("PLACE", place)
        .replace("SIZE", &agent.len().to_string())
        .replace("SILENCE", &SILENCE.as_secs().to_string());
    let shell = start(virsh, &script, false)?;
    Ok(Ends { input, spool: format!("{place}/out"), shell })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn domain_names() {
        let is = |text: &str| text.parse::<Domain>().map(|domain| domain.to_string());
        assert_eq!(is("libvirt://shop & \"co\"/").unwrap(), "libvirt://shop & \"co\"");
        for wrong in
            ["libvirt://", "libvirt:///", "libvirt://--all", "libvirt://a/b", "libvirt://a\nb", "ssh://a", "web1"]
        {
            assert!(is(wrong).unwrap_err().to_string().contains("expected for example libvirt://web1"), "{wrong}");
        }
    }
}
