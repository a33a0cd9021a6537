//! Libvirt domains that are in use, reached through their guest's own agent (qemu-guest-agent) by the user's own `virsh`.
//! vmio's agent is written into the guest's memory, is run there, and is gone afterwards ([`crate::reach`]).
//!
//! What the guest's agent answers is the guest's word: every answer is bounded in size and time, and nothing of it is run here.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::reach::{self, Error, LIMIT, MOST_SAID, Machine, NO_PLACE, OURS, Program, SILENCE};

mod base64;
mod pump;
mod virsh;

use pump::{Ends, Pump, WRITE_BYTES};
use virsh::Virsh;

/// What an address begins with.
pub const SCHEME: &str = "libvirt://";
/// Longest name of a domain.
const MOST_BYTES: usize = 255;
/// How a shell in the guest makes the place for the agent.
const PLACE: &str = concat!(reach::place!(), include_str!("place.sh"));
/// How it runs the agent.
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

impl FromStr for Domain {
    type Err = String;

    /// Nothing in it can become an option of `virsh`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` is no address like libvirt://web1: {what}");
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with libvirt://"))?;
        let name = rest.strip_suffix('/').unwrap_or(rest);
        if name.is_empty() || name.starts_with('-') || name.len() > MOST_BYTES {
            return Err(wrong("a domain's name has 1 to 255 bytes, and does not begin with `-`"));
        }
        if name.chars().any(|c| c.is_control() || c == '/') {
            return Err(wrong("a domain's name has no `/` and no control characters"));
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

/// What `virsh` said, and what to do: the first that fits.
const MENDS: [(&str, &str); 10] = [
    ("cannot start", "install libvirt-clients, which has virsh (docs/libvirt.md)"),
    ("failed to connect to the hypervisor", "see whether libvirtd runs; VIRSH_DEFAULT_CONNECT_URI names another one"),
    ("failed to get domain", "virsh list --all names the domains"),
    ("domain is not running", "virsh start DOMAIN"),
    (
        "QEMU guest agent is not configured",
        "it has no channel for one: virsh edit DOMAIN, <channel type='unix'><target type='virtio' \
         name='org.qemu.guest_agent.0'/></channel>, and start it anew",
    ),
    ("agent is not connected", "in the guest: apt install qemu-guest-agent, and see that it runs"),
    ("agent is not responding", "in the guest: systemctl restart qemu-guest-agent"),
    ("read only access", "be root here, or a member of the group libvirt"),
    ("has been disabled", "in the guest: allow it in /etc/qemu/qemu-ga.conf (/etc/sysconfig/qemu-ga)"),
    ("Failed to execute child process", "only guests with Linux and /bin/sh can be worked on"),
];

/// Goes into the domain by this command (`virsh`, with options of its own), with the agent among these that is for its
/// processor.
///
/// # Errors
/// When the domain is off or its guest has no agent that takes files and commands.
pub fn open(virsh: &[String], domain: &Domain, agents: &[Program]) -> Result<Guest, Error> {
    let until = Instant::now() + LIMIT;
    let failed = |said: String| {
        let (what, help) = reach::told("virsh", &said, &said, &MENDS);
        let help = help.unwrap_or("try it by hand: virsh qemu-agent-command DOMAIN '{\"execute\":\"guest-info\"}'");
        let name = &domain.name;
        Error { address: domain.to_string(), what, help: help.replace("DOMAIN", name) }
    };
    let cannot = |what: &'static str| move |e: io::Error| format!("cannot {what}: {e}");
    let uuid = virsh::run(virsh, &["domuuid", "--", &domain.name]).map_err(failed)?.trim().to_owned();
    let state = virsh::run(virsh, &["domstate", "--", &uuid]).map_err(failed)?.trim().to_owned();
    if state != "running" {
        return Err(failed(format!("domain is not running: it is {state}")));
    }
    let mut asked = Virsh::start(virsh, &uuid).map_err(cannot("start virsh")).map_err(failed)?;
    able(&mut asked).map_err(failed)?;
    let said = run(&mut asked, &PLACE.replace("SILENCE", &SILENCE.as_secs().to_string()), until).map_err(failed)?;
    let word = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(OURS)?.strip_prefix(name));
        line.map(|rest| rest.trim().to_owned()).ok_or_else(|| failed(format!("a shell in the guest said: {said:.200}")))
    };
    let (machine, place) = (word("is")?, word("at")?);
    if place.is_empty() {
        return Err(Error { address: domain.to_string(), what: NO_PLACE[0].into(), help: NO_PLACE[1].into() });
    }
    // It is written into a script there.
    if !place.starts_with('/') || !place.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)) {
        return Err(failed(format!("a directory whose name a shell would not leave as it is: {place:.200}")));
    }
    let program =
        Program::among(agents, &machine).map_err(|[what, help]| Error { address: domain.to_string(), what, help })?;
    let agent = std::fs::read(&program.file).map_err(cannot("read the agent")).map_err(failed)?;
    let ends = begin(&mut asked, &place, &agent).map_err(failed)?;
    let (stream, theirs) = UnixStream::pair().map_err(cannot("make a socket")).map_err(failed)?;
    let pump = Pump::start(asked, ends, theirs).map_err(cannot("start a thread")).map_err(failed)?;
    Machine::greet(&domain.to_string(), place.into(), stream, pump, until)
        .map(|machine| Guest { machine, uuid })
        .map_err(|(pump, why)| failed(pump.ended().unwrap_or(why)))
}

/// Whether the guest's agent does what is needed.
fn able(virsh: &mut Virsh) -> Result<(), String> {
    virsh.ask("guest-ping", &Value::Null)?;
    let info = virsh.ask("guest-info", &Value::Null)?;
    let commands = info["supported_commands"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_enabled = |name: &&str| commands.iter().any(|c| c["name"] == **name && c["enabled"] == true);
    let lacking: Vec<&str> = NEEDED.into_iter().filter(|name| !is_enabled(name)).collect();
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(format!("its guest agent forbids {}: it has been disabled there", lacking.join(", "))),
    }
}

/// Runs a script in the guest; its words.
fn run(virsh: &mut Virsh, script: &str, until: Instant) -> Result<String, String> {
    let pid = start(virsh, script, true)?;
    loop {
        let now = virsh.ask("guest-exec-status", &json!({ "pid": pid }))?;
        if now["exited"] == true {
            let said = base64::decode(now["out-data"].as_str().unwrap_or_default());
            let said = said.filter(|said| said.len() <= MOST_SAID).ok_or("a shell in the guest said too much")?;
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        if Instant::now() > until {
            return Err(format!("a shell in the guest did not end within {} s", LIMIT.as_secs()));
        }
        thread::sleep(POLL);
    }
}

fn start(virsh: &mut Virsh, script: &str, capture: bool) -> Result<i64, String> {
    let arguments = json!({ "path": "/bin/sh", "arg": ["-c", script], "capture-output": capture });
    let said = virsh.ask("guest-exec", &arguments)?;
    said["pid"].as_i64().ok_or_else(|| format!("its guest agent started something without a number: {said:.100}"))
}

/// Sends the agent and starts it.
fn begin(virsh: &mut Virsh, place: &str, agent: &[u8]) -> Result<Ends, String> {
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
    fn a_domain_is_no_option_and_no_path() {
        let is = |text: &str| text.parse::<Domain>().map(|domain| domain.to_string());
        assert_eq!(is("libvirt://shop & \"co\"/").unwrap(), "libvirt://shop & \"co\"");
        for wrong in
            ["libvirt://", "libvirt:///", "libvirt://--all", "libvirt://a/b", "libvirt://a\nb", "ssh://a", "web1"]
        {
            assert!(is(wrong).unwrap_err().contains("no address like libvirt://web1"), "{wrong}");
        }
    }
}
