//! `queue-length`: how many packets may wait to be sent at each interface of a path. They are in namespaces of vmio's
//! own and in its guests, so nothing of the host is changed.

use vmio_model::cell::Actor;
use vmio_model::study::WordError;

use super::ports::{OfPorts, over_a_wire};
use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::nets::Port;

/// Entry `queue-length`.
pub struct QueueLength;

impl Setting for QueueLength {
    fn name(&self) -> &'static str {
        "queue-length"
    }
    fn about(&self) -> &'static str {
        "how many packets may wait to be sent at each interface of the actor's path"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["1000", "64"]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| packets(text).map(|n| n.to_string())
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        over_a_wire(actor, "it is", "wait")
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let wanted = packets(value)?;
        OfPorts { found, set, shown }.put(value, |_| wanted, on, undos)
    }
}

/// One spelling for each number.
fn packets(text: &str) -> Result<u32, WordError> {
    let number = text.parse::<u32>().ok().filter(|n| (1..=100_000).contains(n) && n.to_string() == text);
    number.ok_or_else(|| WordError(format!("invalid number of packets {text:?}: 1 to 100000, such as 1000")))
}

/// `2: eth0: <BROADCAST,…> mtu 1500 qdisc fq_codel state UP mode DEFAULT group default qlen 1000\ …`
fn found(port: &Port) -> Result<u32> {
    let text = port.ask("ip", &["-oneline", "link", "show", "dev", &port.interface])?;
    let length = text.split([' ', '\\']).skip_while(|word| *word != "qlen").nth(1).and_then(|word| word.parse().ok());
    length.ok_or_else(|| Error::Failed(format!("`ip link` shows no queue length of {}", port.interface)))
}

fn set(port: &Port, to: u32) -> Result<()> {
    port.tell("ip", &["link", "set", "dev", &port.interface, "txqueuelen", &to.to_string()])
}

fn shown(port: &Port, now: u32) -> String {
    format!("{now} ({})", port.interface)
}
