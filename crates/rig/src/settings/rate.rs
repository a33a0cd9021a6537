//! `rate`: what the link to another host carries, each way: a token bucket (tc-tbf(8)) at both of its ends. Both are
//! in namespaces of vmio's own, so nothing of the host is changed: it is taken off for the cells to come, and goes
//! with its owner.
//!
//! What it counts is what the kernel counts of a packet: the frame with its Ethernet header, without preamble, check
//! sum and gap. Large packets of segmentation offload are cut before they are counted.

use serde_json::Value;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::{Actor, Subject};
use vmio_model::rate::{ByteRate, MBIT};
use vmio_model::study::WordError;

use super::ports::is_linked;
use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::nets::Port;

/// Entry `rate`.
pub struct Rate;

/// More is no limit on a link in memory.
const MOST_MBIT: u64 = 100_000;
/// What may go at once, in seconds of the rate: well above the kernel's tick.
const BURST_SECONDS: f64 = 0.002;
/// The least that may: some of the largest frames.
const LEAST_BURST: u64 = 32 << 10;
/// How much may wait for the link, in seconds of the rate, as in a switch's buffer; what comes then is dropped.
const WAIT_SECONDS: f64 = 0.05;

const TC: Requirement = Requirement {
    name: "tc",
    why: "sets the rate of a link",
    fix: "apt install iproute2",
    check: |reader| program(reader, "tc"),
};

impl Setting for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }
    fn about(&self) -> &'static str {
        "what the link between the hosts carries, in Mbit/s each way; 50 ms of it may wait (32 KiB at least)"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["100mbit", "1000mbit"]
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[TC]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| mbit(text).map(spelled)
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        match &actor.subject {
            _ if is_linked(actor) => Fit::Sets,
            Subject::Path { network, peer, .. } => Fit::Nothing(format!(
                "no link between hosts is on the way from the actor to {network}.{peer}: use the network uplink with the \
                 peer remote"
            )),
            _ => Fit::Nothing("it is for a link, and no actor uses one: leave it out".into()),
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let mbit = mbit(value)?;
        let carries = (mbit * MBIT).bytes();
        let bytes = |seconds: f64| ((carries.bytes() as f64 * seconds) as u64).max(LEAST_BURST).to_string();
        let (burst, queue) = (bytes(BURST_SECONDS), bytes(WAIT_SECONDS));
        let ends: Vec<&Port> = on.ports.iter().filter(|port| port.is_link).collect();
        if ends.is_empty() {
            return Err(Error::Refused("the path has no link between hosts".into()));
        }
        for port in ends {
            let (changed, device) = (port.clone(), port.interface.as_str());
            // A `tc` whose answers cannot be read is found before anything is put on; of two actors over one link the
            // first has set it.
            match limit(port)? {
                None => {}
                Some(found) if found == carries => continue,
                Some(found) => {
                    return Err(Error::Failed(format!(
                        "{device} has a token bucket of {} bytes a second already",
                        found.bytes()
                    )));
                }
            }
            undos.on_host(move |_| {
                let removed = changed.tell("tc", &["qdisc", "del", "dev", &changed.interface, "root"]);
                // Where it was not put on there is nothing to take off.
                removed.or_else(|e| if limit(&changed).is_ok_and(|left| left.is_none()) { Ok(()) } else { Err(e) })
            });
            let (rate, limits) = (format!("{mbit}mbit"), ["burst", &burst, "limit", &queue]);
            port.tell(
                "tc",
                &[&["qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate], &limits[..]].concat(),
            )?;
            match limit(port)? {
                Some(found) if found == carries => {}
                found => {
                    let found = found.map_or_else(|| "none".to_owned(), |b| format!("{} bytes a second", b.bytes()));
                    return Err(Error::NotAsAsked { asked: spelled(mbit), found });
                }
            }
        }
        Ok(spelled(mbit))
    }
}

/// `100mbit`, and no other spelling of it.
fn spelled(mbit: u64) -> String {
    format!("{mbit}mbit")
}

fn mbit(text: &str) -> Result<u64, WordError> {
    let wrong = || {
        WordError(format!(
            "invalid rate {text:?}: whole Mbit/s, such as 100mbit or 1000mbit, up to {}",
            spelled(MOST_MBIT)
        ))
    };
    let mbit = text.strip_suffix("mbit").and_then(|digits| digits.parse::<u64>().ok());
    mbit.filter(|mbit| (1..=MOST_MBIT).contains(mbit) && spelled(*mbit) == text).ok_or_else(wrong)
}

/// The rate of the token bucket at an interface's root; `None` without one.
pub(super) fn limit(port: &Port) -> Result<Option<ByteRate>> {
    Ok(at_root(port, "tbf")?.as_ref().and_then(rate_of))
}

/// The queue of a kind at an interface's root, as `tc -json` has it; `None` without one.
pub(super) fn at_root(port: &Port, kind: &str) -> Result<Option<Value>> {
    let text = port.ask("tc", &["-json", "qdisc", "show", "dev", &port.interface, "root"])?;
    let read = queue_in(&text, kind);
    read.map_err(|e| Error::Failed(format!("cannot read what `tc` shows of {}: {e}", port.interface)))
}

fn queue_in(text: &str, kind: &str) -> serde_json::Result<Option<Value>> {
    let all: Value = serde_json::from_str(text)?;
    Ok(all.as_array().into_iter().flatten().find(|q| q["kind"] == kind && q["root"] == true).cloned())
}

fn rate_of(queue: &Value) -> Option<ByteRate> {
    queue["options"]["rate"].as_u64().map(ByteRate::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_one_spelling() {
        assert_eq!((mbit("100mbit"), mbit("1mbit"), mbit("100000mbit")), (Ok(100), Ok(1), Ok(100_000)));
        for wrong in ["", "100", "0100mbit", "0mbit", "100Mbit", "1gbit", "100001mbit", "-1mbit", "1.5mbit"] {
            assert!(mbit(wrong).is_err_and(|why| why.0.contains("such as 100mbit or 1000mbit")), "{wrong}");
        }
    }

    /// As tc of iproute2 6.1 prints it.
    #[test]
    fn what_is_in_force_is_read() {
        let rate_in = |text: &str| queue_in(text, "tbf").map(|queue| queue.as_ref().and_then(rate_of));
        let tbf = r#"[{"kind":"tbf","handle":"802b:","root":true,"refcnt":3,"options":{"rate":12562500,"burst":32763,"lat":53113}}]"#;
        assert_eq!(rate_in(tbf).ok(), Some(Some(ByteRate::new(12_562_500))));
        let none = r#"[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]"#;
        assert_eq!((rate_in(none).ok(), rate_in("[]").ok()), (Some(None), Some(None)));
        assert!(rate_in("Cannot find device").is_err());
    }
}
