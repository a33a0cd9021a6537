//! `guard`: a policy of the study's kept in force around a cell by the real `vmio guard run`, this very program, in the
//! namespace that plays the host. It has a state directory, a socket and a bpffs of its own, so that a guard of the
//! host and this one know nothing of each other, and nothing of it outlives it.
//!
//! A disk that a guest reaches over the link by itself has its guest's interface there, as a path has. Where the
//! hypervisor is its client, its packets are the host's own: the class `host`.
//!
//! What the uplink carries is what the setting `rate` has made of it. That queue the guard replaces (`--takeover`) and puts
//! back at the end. A policy with `by = "tc"` is put by tc(8) once, as by hand ([`super::by_hand`]).

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmio_look::require::{Requirement, program, root};
use vmio_model::cell::{Actor, Subject};
use vmio_model::study::WordError;
use vmio_model::study::guard::{KeptBy, Plugged};
use vmio_node::{Exec, Journal, Output, Process};

use super::ports::is_linked;
use super::uplink::{ends, plugged};
use super::{Error, Fit, Result, Setting, Undos, Where, by_hand};
use crate::nets::{self, Port};

/// Entry `guard`.
pub struct Guard;

/// How long it may take until the policy is in force, and until it is off.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// Longest name of a policy.
const NAME_MOST: usize = 40;
/// Gives the command behind it a bpffs of its own where it can (what is pinned there ends with it), and becomes it.
const OWN_PINS: &str = "mount -t bpf bpf /sys/fs/bpf 2>/dev/null; exec \"$@\"";

const ROOT: Requirement =
    Requirement { name: "root", why: "puts a policy in force", fix: "run vmio as root", check: root };
const MOUNT: Requirement = Requirement {
    name: "mount",
    why: "keeps what a guard pins apart from the host's",
    fix: "apt install mount",
    check: |reader| program(reader, "mount"),
};

impl Setting for Guard {
    fn name(&self) -> &'static str {
        "guard"
    }
    fn about(&self) -> &'static str {
        "a policy of the study ([guard.NAME]) that `vmio guard run` keeps in force on the actors' interfaces"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["exact", "dba-100ms"]
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[ROOT, MOUNT]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        name
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        let Subject::Path { network, peer, co_sender, .. } = &actor.subject else {
            // Of a disk over the link its guest's interface, or the host's own packets, where its hypervisor is the client.
            let nothing =
                || Fit::Nothing("it is for actors that share an uplink, and none uses one: leave it out".into());
            return if is_linked(actor) { Fit::Sets } else { nothing() };
        };
        // The host itself sends by no interface of a guest's.
        if co_sender.as_ref().is_some_and(|end| end != nets::HOST) {
            return Fit::Refused(
                "a policy has one interface of each actor, and a second sender its own: leave it out, or co_sender, or \
                 have the host send (co_sender = \"host\")"
                    .into(),
            );
        }
        if is_linked(actor) {
            return Fit::Sets;
        }
        Fit::Nothing(format!(
            "there is no uplink between the actor and {network}.{peer}: use the network shared with the peer remote"
        ))
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let (all, place) = on.cell;
        let policy = on.guards.get(value).ok_or_else(|| Error::Refused(format!("no section [guard.{value}]")))?;
        if policy.by == KeptBy::Tc {
            return by_hand::put(policy, on, undos).map(|found| format!("{value}: {found}"));
        }
        // One guard is for all of them.
        if place > 0 {
            return Ok(value.to_owned());
        }
        let plugged: Vec<Plugged> = all.iter().map(|ports| plugged(ports)).collect::<Result<_>>()?;
        let text = policy.whole(&plugged).map_err(|why| Error::Refused(why.to_string()))?;
        let (_, here) = ends(on.ports)?;
        let (dir, scratch) = directory(on)?;
        let file = dir.join("policy.toml");
        let (mut made, _) = on.journal.scratch_file(&file)?;
        std::io::Write::write_all(&mut made, text.as_bytes())
            .map_err(|e| failed(format!("{}: {e}", file.display())))?;
        let guard = Running { port: here.clone(), state: dir, process: None };
        let told = [
            &["guard", "run", "--takeover", "--config", &file.display().to_string()].map(String::from)[..],
            &policy.options[..],
        ];
        let process = here.node.spawn(&guard.in_own_mounts(&told.concat()))?;
        let mut guard = Running { process: Some(process), ..guard };
        let named = plugged.iter().enumerate().filter(|(place, _)| policy.names(*place));
        let names: Vec<&str> = named.filter_map(|(_, p)| p.interface.as_deref()).collect();
        let in_force = guard.wait_until_in_force(&names);
        undos.on_host(move |journal: &Journal| {
            let ended = guard.end();
            let removed = journal.undo(scratch).map_err(Error::from);
            ended.and(removed)
        });
        Ok(format!("{value}: {}", in_force?))
    }
}

/// A name of a policy.
fn name(text: &str) -> Result<String, WordError> {
    let letter = |c: u8| c.is_ascii_lowercase();
    let fits = text.bytes().next().is_some_and(letter)
        && text.len() <= NAME_MOST
        && text.bytes().all(|c| letter(c) || c.is_ascii_digit() || c == b'-');
    let wrong = || {
        WordError(format!(
            "invalid name of a policy {text:?}: small letters, digits and -, a letter first, {NAME_MOST} at most, \
             such as `exact`, `dba-100ms` (the section [guard.exact])"
        ))
    };
    fits.then(|| text.to_owned()).ok_or_else(wrong)
}

fn failed(why: String) -> Error {
    Error::Failed(why)
}

/// A directory of its own: short, since the path of a socket is.
fn directory(on: &Where<'_>) -> Result<(PathBuf, vmio_node::ChangeId)> {
    let dir = on.run_dir.join(format!("guard-{}", on.journal.cookie()));
    std::fs::create_dir_all(on.run_dir).map_err(|e| failed(format!("cannot make {}: {e}", on.run_dir.display())))?;
    let change = on.journal.scratch_dir(&dir)?;
    Ok((dir, change))
}

/// A guard that was started.
struct Running {
    port: Port,
    state: PathBuf,
    process: Option<Box<dyn Process>>,
}

impl Running {
    /// This program, told so, where the interfaces are.
    fn command(&self, told: &[String]) -> Exec {
        let vmio = std::env::current_exe().unwrap_or_else(|_| "vmio".into());
        let state = ["--state".to_owned(), self.state.display().to_string()];
        Exec::new(vmio.display().to_string()).args(state).args(told.to_vec()).limit(LIMIT)
    }

    fn in_own_mounts(&self, told: &[String]) -> Exec {
        let apart = ["unshare", "--mount", "--", "sh", "-c", OWN_PINS, "sh"].map(String::from);
        Exec { limit: None, ..self.command(told).behind(&apart).behind(&self.port.enter) }
    }

    fn ask(&self, told: &[&str]) -> Result<Output> {
        let told: Vec<String> = told.iter().map(|word| (*word).to_owned()).collect();
        Ok(self.port.node.exec(&self.command(&told).behind(&self.port.enter))?)
    }

    /// What it says when it has ended by itself.
    fn ended(&mut self) -> Result<Option<String>> {
        let Some(process) = &mut self.process else { return Ok(Some("it was not started".into())) };
        Ok(process.try_wait()?.map(|output| said(&output)))
    }

    /// Waits until each interface is a member, and says where their excess waits, as read back.
    fn wait_until_in_force(&mut self, interfaces: &[&str]) -> Result<String> {
        let began = Instant::now();
        loop {
            if let Some(said) = self.ended()? {
                return Err(Error::Refused(format!("`vmio guard run` ended: {said}")));
            }
            let output = self.ask(&["guard", "status", "--json"])?;
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if let Some(found) = read_back(&status, interfaces) {
                return Ok(found);
            }
            if began.elapsed() > LIMIT {
                let what = format!("the policy was not in force after {} s: {}", LIMIT.as_secs(), said(&output));
                return Err(failed(what));
            }
            thread::sleep(POLL);
        }
    }

    /// Takes the limits off and ends it. One that cannot is killed: what it set goes with the namespace.
    fn end(mut self) -> Result<()> {
        let early = self.ended()?;
        let undone = self.ask(&["guard", "undo"]);
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let output = process.wait(Some(LIMIT))?;
        if let Some(said) = early {
            return Err(failed(format!("`vmio guard run` ended before its cell did: {said}")));
        }
        let undone = undone?;
        if undone.ok() && output.ok() {
            return Ok(());
        }
        Err(failed(format!("`vmio guard undo` failed: {}; the guard: {}", said(&undone), said(&output))))
    }
}

/// The end of what a program said: the cause is there.
fn said(output: &Output) -> String {
    let text = output.err();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(6)..].join("; ");
    if last.is_empty() { format!("{:?}", output.end) } else { last }
}

/// What holds each interface in what it sends, and where its excess waits; `None` until all are members.
fn read_back(status: &Value, interfaces: &[&str]) -> Option<String> {
    let pools = status["pools"].as_array()?;
    let members =
        || pools.iter().filter(|pool| pool["direction"] == "guest_tx").filter_map(|p| p["members"].as_array());
    let one = |name: &&str| {
        let member = members().flatten().find(|member| member["name"] == **name)?;
        Some(format!("{} {}, {}", name, member["class"].as_str()?, member["excess"]["waits"].as_str()?))
    };
    let all: Option<Vec<String>> = interfaces.iter().map(one).collect();
    Some(format!("plane {}; {}", status["plane"].as_str()?, all?.join("; ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::{Aio, Attachment, Cache, Cell};

    use super::*;

    #[test]
    fn a_disk_over_a_link_has_a_class() {
        let fits = |target: &str, attachment: Option<Attachment>| {
            Guard.fits("exact", &Cell::on("qemu", target, attachment, "seq-write").lead)
        };
        let driver = Some(Attachment::new("virtio-blk", Cache::None, Aio::Threads));
        assert_eq!((fits("nbd", None), fits("iscsi", driver.clone())), (Fit::Sets, Fit::Sets));
        assert!(matches!(fits("sparse", driver), Fit::Nothing(why) if why.contains("none uses one")));
    }

    #[test]
    fn what_is_in_force_is_read_of_all() {
        let text = r#"{"plane": "linux", "pools": [
            {"direction": "guest_rx", "members": [{"name": "tap0", "class": "x", "excess": {"waits": "queued"}}]},
            {"direction": "guest_tx", "members": [
                {"name": "host", "class": "host", "excess": null},
                {"name": "tap0", "class": "MV1", "excess": {"waits": "held"}},
                {"name": "port1", "class": "MV2", "excess": {"waits": "queued"}}]}]}"#;
        let status: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read_back(&status, &["tap0", "port1"]).unwrap(), "plane linux; tap0 MV1, held; port1 MV2, queued");
        assert_eq!(read_back(&status, &["tap0", "tap2"]), None, "not all are there yet");
        assert_eq!(read_back(&Value::Null, &["tap0"]), None);
    }

    #[test]
    fn it_runs_where_the_interfaces_are_with_a_state_of_its_own() {
        let node = std::sync::Arc::new(vmio_node::Fake::new("host"));
        let enter = ["nsenter", "--net=/n", "--"].map(String::from).to_vec();
        let port = Port { node, enter, interface: "tap0".into(), is_link: false, is_plug: true };
        let guard = Running { port, state: "/run/x".into(), process: None };
        let shown = guard.in_own_mounts(&["guard".into(), "run".into()]).shown();
        assert!(shown.starts_with("nsenter --net=/n -- unshare --mount -- sh -c"), "{shown}");
        assert!(shown.ends_with("--state /run/x guard run"), "{shown}");
    }
}
