//! `vmio guard check --host`: checks the policy against this host. Lists limits that others have set on its interfaces,
//! with the policy that takes their place and the commands that take them off; and what the Linux plane could not hold.
//! Changes nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_guard::desired::{Desired, Numbers, Strictness, desired, is_queueless};
use vmio_guard::groups;
use vmio_guard::observed::uplink;
use vmio_guard::planes::linux;
use vmio_guard::source::guests::Once;
use vmio_guard::source::{DiscoveredInterface, Source};
use vmio_look::{HostView, limits, policing};
use vmio_model::facts::{Guarded, Guest, Nic, Place, RateLimit, Unread};
use vmio_model::others::{Conflict, Limited, conflicts, replaced};
use vmio_model::policy::assign::{Interface, assign};
use vmio_model::policy::compile::Refusal;
use vmio_model::policy::text::text as as_toml;
use vmio_model::policy::{Direction, Policy};
use vmio_model::rules::change::unlimited_by_guard;
use vmio_node::Local;

use super::in_force::{self, Held, InForce};
use super::{Config, gateways};
use crate::context::Context;
use crate::fit;
use crate::report::format::count;
use crate::term::Style;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub config: Config,
    /// Also check this host: limits set by other tools, and what cannot be enforced
    ///
    /// libvirt, Proxmox VE, Open vSwitch and the kernel (tc) are asked what they limit. Nothing is changed; root sees
    /// all guests.
    #[arg(long)]
    pub host: bool,
}

/// What a policy meets on this host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostChecked {
    /// Interfaces that may be a guest's.
    interfaces: usize,
    /// Those of them that are in a class.
    in_a_class: usize,
    /// Limits that others have set.
    limits: Vec<Conflict>,
    /// Limits of vmio's own guard that are in force here now, by the policy that it was started with.
    in_force: Vec<InForceHere>,
    /// A policy that holds in their place, as TOML; null where there are none.
    proposal: Option<String>,
    /// What the proposal leaves out, and why.
    left_out: Vec<String>,
    /// What the Linux plane cannot hold here; `guard run` would refuse the policy.
    pub refused: Vec<String>,
    /// What deserves a word: interfaces that two entries mean, what is held less exactly than written, gateways that
    /// guests may claim.
    notes: Vec<String>,
    /// What could not be read, so that limits may be missing above.
    unread: Vec<Unread>,
    /// Classes that local traffic may exceed, with the queues where they are here.
    #[serde(skip)]
    pub exceeded_locally: Vec<String>,
}

/// A limit of vmio's own guard.
#[derive(Debug, Serialize, JsonSchema)]
struct InForceHere {
    /// The interface.
    interface: String,
    /// Its guest, if known.
    guest: Option<String>,
    /// The limit.
    limit: RateLimit,
}

/// Checks the policy against this host.
pub fn check(policy: &Policy, context: &Context) -> anyhow::Result<HostChecked> {
    let node = Local::new();
    let view = HostView::new(&node);
    let Once { mut guests, mut unread } = Once::here(&view);
    unread.extend(limits::settle(&view, &mut guests));
    let InForce { held, unread: not_asked } = in_force::of_guard(context);
    unread.extend(not_asked);
    let shown = |held: Held| InForceHere { interface: held.interface, guest: held.guest, limit: held.limit };
    let in_force = held.into_iter().map(shown).collect();
    let uplinks: BTreeSet<String> = policy.uplinks.keys().cloned().collect();
    let once = Once { guests: guests.clone(), unread: Vec::new() };
    let found = Source::open(Box::new(once))?.look(&uplinks)?;
    // Those of guests are known; a port may be of none.
    let ports = policing::policed(&view).unwrap_or_else(|why| {
        if !unread.contains(&why) {
            unread.push(why);
        }
        Default::default()
    });
    let mut limited = of_guests(policy, &guests, &found);
    for (port, limit) in ports {
        if limited.iter().all(|known| known.interface.name != port) {
            limited.extend(of_port(policy, &found, &port, limit));
        }
    }
    // What nobody's manager knows may be limited by hand.
    let in_class = |found: &&DiscoveredInterface| {
        let entry = assign(policy, &found.interface).map(|assigned| assigned.entry);
        entry.is_some_and(|entry| entry.class.is_some() || entry.rx_class.is_some())
    };
    let unlimited = |found: &&DiscoveredInterface| limited.iter().all(|l| l.interface.name != found.interface.name);
    let others: Vec<&DiscoveredInterface> = found.iter().filter(in_class).filter(unlimited).collect();
    if !others.is_empty() {
        let named = others.iter().map(|found| (found.interface.name.as_str(), found.interface.index));
        let (limits, more) = limits::at_interfaces(&view, named);
        let more: Vec<Unread> = more.into_iter().filter(|why| !unread.contains(why)).collect();
        unread.extend(more);
        let of = |found: &&DiscoveredInterface| {
            let limits = limits.get(&found.interface.name)?.clone();
            Some(by_hand(policy, found, limits))
        };
        let more: Vec<Limited> = others.iter().filter_map(of).collect();
        limited.extend(more);
    }
    let mut there: Vec<Interface> = found.iter().map(|f| f.interface.clone()).collect();
    let unlisted = limited.iter().map(|l| &l.interface).filter(|i| there.iter().all(|t| t.name != i.name));
    there.extend(unlisted.cloned().collect::<Vec<_>>());
    there.sort_unstable();
    let (next, left_out) = replaced(policy, &limited, &there);
    let here = here(policy, &found);
    let in_a_class = match &here {
        Ok(here) => in_a_class(here),
        Err(_) => there.iter().filter(|i| assign(policy, i).is_some()).count(),
    };
    let exceeded_locally = match &here {
        Ok(here) => here.exceeded_locally(policy),
        Err(_) => policy.exceeded_locally(|_| false),
    };
    let exceeded_locally = exceeded_locally.into_iter().map(str::to_owned).collect();
    let (mut refused, mut notes): (Vec<String>, Vec<String>) = match here {
        Ok(here) => (Vec::new(), here.all_notes().cloned().collect()),
        Err(Refusal(why)) => (why, Vec::new()),
    };
    let queueless = |uplink: &str| is_queueless(policy, uplink, &linux::ENTRY.abilities);
    refused.extend(linux::in_the_way(&uplinks, false, queueless)?);
    notes.extend(groups::lacking(policy, &found)?);
    // A router's table may be too long to be listed.
    notes.extend(gateways::notes(policy, &found, &linux::gateways(&uplinks).unwrap_or_default()));
    Ok(HostChecked {
        interfaces: there.len(),
        in_a_class,
        limits: conflicts(policy, &limited),
        in_force,
        proposal: (next != *policy).then(|| as_toml(&next)),
        left_out,
        refused,
        notes,
        unread,
        exceeded_locally,
    })
}

fn here(policy: &Policy, found: &[DiscoveredInterface]) -> Result<Desired, Refusal> {
    let numbers = Numbers::default().of(found.iter().map(|f| &f.interface))?;
    desired(policy, found, &numbers, &linux::ENTRY.abilities, Strictness::Policy)
}

fn in_a_class(here: &Desired) -> usize {
    let seats = here.pools.iter().flat_map(|pool| &pool.seats);
    seats.filter_map(|seat| seat.interface.as_ref().map(|i| &i.name)).collect::<BTreeSet<_>>().len()
}

/// Devices that their managers or the kernel limit. Where the kernel confirms that an interface is the guest's, its
/// data is used; else that of the manager alone.
fn of_guests(policy: &Policy, guests: &[Guest], found: &[DiscoveredInterface]) -> Vec<Limited> {
    let of_nic = |(guest, nic): (&Guest, &Nic)| {
        // What is shared is at an uplink or a bridge: `refused` says where that is in the way. What each flow may have
        // limits no guest as a whole.
        let whole = nic.rate_limits.iter().filter(|limit| !limit.shared && !limit.per_flow);
        let limits: Vec<RateLimit> = whole.cloned().collect();
        if limits.is_empty() {
            return None;
        }
        // A pod's limits are at its end of the veth pair here, which is what a policy names.
        let at = limits.iter().find_map(|limit| limit.interface.clone());
        let name = at.or_else(|| (*nic.interface).clone())?;
        let discovered = found.iter().find(|f| f.interface.name == name);
        let interface =
            discovered.filter(|f| f.nic.is_some()).map(|f| f.interface.clone()).unwrap_or_else(|| Interface {
                index: discovered.map_or(0, |f| f.interface.index),
                name,
                macs: nic.place.target.clone().into_iter().collect(),
                vms: std::iter::once(guest.name.clone())
                    .chain(guest.uuid.clone())
                    .chain(guest.ids.values().cloned())
                    .collect(),
                netns: None,
            });
        let uplink = discovered.and_then(|f| uplink(f, policy)).or_else(|| single_uplink(policy));
        let (guest, place) = (Some(guest.name.clone()), nic.place.clone());
        Some(Limited { interface, guest, uplink, place, limits })
    };
    guests.iter().flat_map(|guest| guest.nics.iter().map(move |nic| (guest, nic))).filter_map(of_nic).collect()
}

/// A port of Open vSwitch that is an interface of this host.
fn of_port(policy: &Policy, found: &[DiscoveredInterface], port: &str, limit: RateLimit) -> Option<Limited> {
    let discovered = found.iter().find(|f| f.interface.name == port)?;
    Some(by_hand(policy, discovered, vec![limit]))
}

/// An interface with limits that are in no configuration of a guest.
fn by_hand(policy: &Policy, found: &DiscoveredInterface, limits: Vec<RateLimit>) -> Limited {
    let interface = &found.interface;
    Limited {
        interface: interface.clone(),
        guest: interface.vms.first().or(interface.netns.as_ref()).cloned(),
        uplink: uplink(found, policy),
        place: found.nic.as_ref().map_or_else(Place::default, |nic| nic.place.clone()),
        limits,
    }
}

fn single_uplink(policy: &Policy) -> Option<String> {
    policy.uplinks.keys().next().filter(|_| policy.uplinks.len() == 1).cloned()
}

/// For a terminal.
pub fn text(host: &HostChecked, style: Style) -> String {
    let head = format!("This host: {}, {} of them in a class.", count(host.interfaces, "interface"), host.in_a_class);
    let mut out = format!("\n{}", fit::paragraph("", 0, &head));
    for line in &host.notes {
        out += &fit::notice(&format!("{}: ", style.yellow("note")), 6, line);
    }
    for unread in &host.unread {
        let whole = format!("{}: {}; {}", unread.what, unread.why, unread.mend);
        let short = || format!("{} (vmio scan --verbose says why)", unread.what);
        let line = if fit::columns(&whole) <= 2 * fit::WIDTH { whole } else { short() };
        out += &fit::notice(&format!("{}: ", style.yellow("unread")), 8, &line);
    }
    out += &of_guard(&host.in_force, style);
    out += &of_others(host, style);
    for why in &host.refused {
        let mut lines = why.lines();
        let first = format!("this host cannot hold the policy: {}", lines.next().unwrap_or_default());
        out += &fit::notice(&format!("{}: ", style.red("refused")), 9, &first);
        lines.for_each(|line| out += &fit::notice("  ", 8, line.trim_start()));
    }
    out
}

/// Most limits of the guard that are listed; there may be thousands.
const IN_FORCE: usize = 20;

/// Limits of vmio's own guard, and how to see or change them.
fn of_guard(all: &[InForceHere], style: Style) -> String {
    let mut out = String::new();
    for InForceHere { interface, guest, limit } in all.iter().take(IN_FORCE) {
        let guest = guest.as_ref().filter(|guest| *guest != interface);
        let guest = guest.map_or_else(String::new, |guest| format!(" ({guest})"));
        let class = limit.guard.as_ref().and_then(|guard| guard.class.as_ref());
        let class = class.map_or_else(String::new, |class| format!(", class {class}"));
        let (way, rate) = (sends(limit.direction), limit.rate_bps);
        let line = format!("{interface}{guest}: vmio guard limits what it {way} to {rate}{class}");
        out += &fit::notice(&format!("{}: ", style.yellow("in force")), 10, &line);
    }
    if all.len() > IN_FORCE {
        let more = all.len() - IN_FORCE;
        out += &fit::notice(&format!("{}: ", style.yellow("in force")), 10, &format!("and {more} more"));
    }
    let guards: Vec<&Guarded> = all.iter().take(IN_FORCE).filter_map(|here| here.limit.guard.as_ref()).collect();
    if let Some(commands) = unlimited_by_guard(&guards) {
        out += &format!("To see or change these:\n{commands}\n");
    }
    out
}

fn sends(direction: Direction) -> &'static str {
    match direction {
        Direction::GuestTx => "sends",
        Direction::GuestRx => "receives",
    }
}

/// Limits that others have set, and what takes their place.
fn of_others(host: &HostChecked, style: Style) -> String {
    if host.limits.is_empty() {
        return fit::paragraph("", 0, "No limit of libvirt, Proxmox VE, Open vSwitch or tc was found.");
    }
    let mut out = String::new();
    let mut commands: Vec<(&str, &str)> = Vec::new();
    for limit in &host.limits {
        out += &of_limit(limit, style);
        let command = (limit.limit.by.as_str(), limit.take_off.as_str());
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    out += "\nTo remove them:\n";
    for (_, command) in commands {
        let _ = writeln!(out, "{command}");
    }
    for left in &host.left_out {
        out += &fit::notice(&format!("{}: ", style.yellow("left out")), 10, left);
    }
    if let Some(proposal) = &host.proposal {
        let head = fit::paragraph("", 0, "If the limits above are wanted, this policy holds them instead:");
        let _ = write!(out, "\n{head}\n{proposal}");
    }
    out
}

fn of_limit(conflict: &Conflict, style: Style) -> String {
    let limit = &conflict.limit;
    let guest = conflict.guest.as_ref().map_or_else(String::new, |guest| format!(" ({guest})"));
    let way = sends(limit.direction);
    let peak = limit.peak_bps.filter(|peak| *peak != limit.rate_bps);
    let peak = peak.map_or_else(String::new, |peak| format!(", peak {peak}"));
    let head =
        format!("{}{guest}: {} limits what it {way} to {}{peak}", conflict.interface, limit.shown_by(), limit.rate_bps);
    let mut out = fit::notice(&format!("{}: ", style.yellow("limit")), 7, &head);
    for why in &conflict.why {
        out += &fit::paragraph("  ", 2, why);
    }
    out
}
