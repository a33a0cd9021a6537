//! `vmio volume policy`: what to write into the guard's policy for volumes of other hosts, which are told apart by
//! their ports.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::flow::{MOST_FLOWS, MOST_LETTERS, REST};
use vmio_model::policy::{DEFAULT, HOST, units};
use vmio_model::rate::BitRate;
use vmio_rig::volumes::Reach;

use super::{Chosen, failed, open};
use crate::context::Outcome;
use crate::term;

/// Arguments of `vmio volume policy`.
#[derive(Debug, clap::Args)]
pub struct Policy {
    /// The network namespace in which `vmio volume serve NAME` runs
    #[arg(long, value_name = "NAME", value_parser = netns)]
    netns: String,
    /// Guaranteed rate of each volume, in both directions, as in 200Mbit
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    min: BitRate,
}

fn netns(text: &str) -> Result<String, String> {
    let is_one = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if is_one { Ok(text.to_owned()) } else { Err("a name has letters, digits, -, _ and . alone".to_owned()) }
}

/// Prints the class, with a flow class for each volume that another host may have.
pub fn policy(args: &Policy, chosen: &Chosen) -> Outcome {
    let pool = open(chosen)?;
    let failed = |why| failed(&format!("the volumes in {} cannot be listed", chosen.name.display()), why);
    let refused = |why: String| Failure::new(Exit::Precondition, why);
    let mut volumes = BTreeMap::new();
    for (name, there) in pool.attached().map_err(failed)? {
        let Reach::To { at, .. } = there.reach else { continue };
        // That passes no interface.
        if at.ip().is_loopback() {
            continue;
        }
        if let Some(first) = volumes.insert(at.port(), name.to_string()) {
            let why = format!("volumes {first} and {name} have the same port, by which the guard tells them apart");
            return Err(refused(why).help("serve one at another port").into());
        }
    }
    if volumes.is_empty() {
        let help = "serve one: vmio volume serve NAME --listen ADDRESS:PORT --tls-key FILE";
        return Err(refused(format!("no volume in {} is for another host", chosen.name.display())).help(help).into());
    }
    if volumes.len() > MOST_FLOWS {
        let why = format!("{} volumes are for other hosts, and a class has at most {MOST_FLOWS}", volumes.len());
        return Err(refused(why).help("serve some from another pool, in another network namespace").into());
    }
    term::print(&text(&args.netns, args.min, &volumes))?;
    Ok(Exit::Done)
}

/// The lines for volumes by their ports.
fn text(netns: &str, min: BitRate, volumes: &BTreeMap<u16, String>) -> String {
    let all = BitRate::of_sum(volumes.keys().map(|_| u128::from(min.bits())).sum());
    // Each namespace has a class of its own, and these two are the guard's.
    let class = if [HOST, DEFAULT].contains(&netns) { format!("volumes-{netns}") } else { netns.to_owned() };
    let mut text = format!("[class.\"{class}\"]\nmin = \"{all}\"\n");
    for (port, volume) in volumes {
        let is_name = volume.len() <= MOST_LETTERS && volume != REST;
        let name = if is_name { volume.clone() } else { format!("port-{port}") };
        let matched = format!("{{ protocol = \"tcp\", ports = [{port}] }}");
        let _ = write!(text, "\n[[class.\"{class}\".flow]]\nname = \"{name}\"\nmatch = {matched}\nmin = \"{min}\"\n");
    }
    let _ = write!(text, "\n[[interface]]\nmatch = {{ netns = \"{netns}\" }}\nclass = \"{class}\"\n");
    let _ = writeln!(text, "rx_class = \"{class}\"");
    text
}
