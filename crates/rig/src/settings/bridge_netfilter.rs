//! `bridge-netfilter`: whether the bridges of a path hand the packets that they pass on to the firewall of their host
//! (the module br_netfilter; Linux, Documentation/networking/ip-sysctl.rst). It is that of a whole network namespace,
//! and set only in those of vmio's own. Off where a cell does not name it: the kernel has it on in each new one,
//! whatever the host itself has, and a figure would hold a firewall that nobody asked for.

use vmio_model::cell::{Actor, Subject};
use vmio_model::result::WorkloadTraits;
use vmio_model::study::WordError;
use vmio_node::linux::net::NETFILTER;

use super::ports::{is_on, is_served_over_link};
use super::{ByDefault, Error, Fit, Result, Setting, Undos, Where};
use crate::nets::{self, Port};

/// Entry `bridge-netfilter`.
pub struct BridgeNetfilter;

const OFF: &str = "off";
/// What a kernel without it is told by.
const NONE: &str = "this kernel has no netfilter of bridges: load the module br_netfilter (modprobe br_netfilter)";

impl Setting for BridgeNetfilter {
    fn name(&self) -> &'static str {
        "bridge-netfilter"
    }
    fn about(&self) -> &'static str {
        "whether the host's firewall sees what the bridge of the actor's path passes on (br_netfilter)"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["on", OFF]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| is_on(text, "netfilter of bridges is").map(|_| text.to_owned())
    }
    fn by_default(&self, actor: &Actor, _workload: &WorkloadTraits) -> Option<ByDefault> {
        over_a_bridge(actor).then_some(ByDefault { value: OFF, otherwise: None })
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        match &actor.subject {
            _ if over_a_bridge(actor) => Fit::Sets,
            Subject::Path { network, .. } => {
                Fit::Refused(format!("{network} has no bridge: use bridge, uplink or shared"))
            }
            _ => Fit::Nothing("it is for a network path, and no actor uses one: leave it out".into()),
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let wanted = is_on(value, "netfilter of bridges is")?;
        // Where nobody is plugged in the bridge comes last, behind its ports.
        let last = on.ports.last().filter(|_| is_served_over_link(on.actor));
        let port = on.ports.iter().find(|port| port.is_plug).or(last);
        let port = port.ok_or_else(|| Error::Failed("the actor is plugged into no bridge".into()))?;
        if port.enter.is_empty() {
            return Err(Error::Refused("the bridge is the host's own, and vmio does not change its firewall".into()));
        }
        let Some(before) = found(port)? else {
            // Without the module no firewall sees a bridge's packets.
            return if wanted { Err(Error::Refused(NONE.into())) } else { Ok(OFF.into()) };
        };
        let wanted = [wanted; 3];
        if before != wanted {
            let changed = port.clone();
            undos.on_host(move |_| set(&changed, before));
            set(port, wanted)?;
        }
        match found(port)? {
            Some(now) if now == wanted => Ok(value.to_owned()),
            now => Err(Error::NotAsAsked { asked: value.to_owned(), found: shown(now) }),
        }
    }
}

/// Whether the path, or the link to what serves the actor's disk, has a bridge: what guests are plugged into.
fn over_a_bridge(actor: &Actor) -> bool {
    let network = |name: &String| nets::find(name).is_some_and(|network| network.takes_guests());
    matches!(&actor.subject, Subject::Path { network: name, .. } if network(name)) || is_served_over_link(actor)
}

/// What is in force in the bridge's namespace, as [`NETFILTER`] has it; `None` without the module.
fn found(port: &Port) -> Result<Option<[bool; 3]>> {
    let each = format!("for f in {}; do [ ! -e $f ] || cat $f; done", NETFILTER.join(" "));
    let text = port.ask("sh", &["-c", &each])?;
    read(&text).ok_or_else(|| Error::Failed(format!("cannot read {}: {}", NETFILTER.join(", "), text.trim())))
}

fn read(text: &str) -> Option<Option<[bool; 3]>> {
    let each: Vec<bool> = text.split_whitespace().map(|on| on != "0").collect();
    if each.is_empty() { Some(None) } else { Some(Some(each.try_into().ok()?)) }
}

fn set(port: &Port, to: [bool; 3]) -> Result<()> {
    let each = NETFILTER.iter().zip(to).map(|(file, on)| format!("echo {} > {file}", u8::from(on)));
    port.tell("sh", &["-c", &each.collect::<Vec<_>>().join(" && ")])
}

/// `iptables on, ip6tables on, arptables off`.
fn shown(now: Option<[bool; 3]>) -> String {
    let Some(now) = now else { return NONE.into() };
    let each = ["iptables", "ip6tables", "arptables"].iter().zip(now);
    each.map(|(which, on)| format!("{which} {}", if on { "on" } else { OFF })).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        assert_eq!(read("1\n1\n0\n"), Some(Some([true, true, false])));
        assert_eq!(read(""), Some(None), "no module");
        assert_eq!(read("1\n"), None);
        assert!(shown(None).contains("br_netfilter"));
        assert_eq!(shown(Some([true, true, false])), "iptables on, ip6tables on, arptables off");
    }
}
