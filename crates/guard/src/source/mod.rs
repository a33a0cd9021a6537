//! Discovers the interfaces of this host and the guests behind them: when the kernel reports that an interface came,
//! went or changed, and periodically. It changes nothing.
//!
//! [`interfaces`] puts together what [`guests`] and the kernel say; [`packet_path`] says what lies between an interface
//! and an uplink. Both are pure.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::planes::linux::functions::{self, Function};
use crate::planes::linux::links::{self, Link, Of};
use crate::planes::linux::netlink::events::Events;
use crate::planes::linux::{Error, Netlink};

pub mod cards;
pub mod guests;
pub mod interfaces;
pub mod packet_path;

pub use crate::interface::DiscoveredInterface;
pub use guests::{GuestNetwork, Guests};

/// Time between two looks while things change: a guest's process and its manager's answer come after its tap.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without a difference after which the time between looks grows,
const SETTLED: u32 = 10;
/// up to this: of addresses in containers and rules of a firewall there is no event.
const SELDOM: Duration = Duration::from_secs(10);
/// Least time between two looks, as a multiple of what a look took; less while things change; at most [`LONGEST`].
const PART: u32 = 500;
const CHANGING_PART: u32 = 20;
/// See [`PART`].
const LONGEST: Duration = Duration::from_secs(180);
/// Wait after an event for those that follow it: an interface is made, renamed, made a port, brought up.
const REST: Duration = Duration::from_millis(2);
/// Wait after a failed read of events.
const AGAIN: Duration = Duration::from_millis(200);

/// Looks at interfaces, in the network namespace of the thread that made it.
pub struct Source {
    netlink: Netlink,
    guests: Box<dyn Guests>,
    /// Guests of the last look.
    known_guests: Vec<GuestNetwork>,
    /// Addresses of the other ends of veth pairs by the index of this end, with this end's link as it was when asked.
    asked: BTreeMap<u32, (Link, Option<[u8; 6]>)>,
    /// These addresses as of the last look or glance.
    last: BTreeMap<u32, [u8; 6]>,
}

impl Source {
    /// One for this namespace, and these guests.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open(guests: Box<dyn Guests>) -> Result<Source, Error> {
        let netlink = Netlink::open()?;
        Ok(Source { netlink, guests, known_guests: Vec::new(), asked: BTreeMap::new(), last: BTreeMap::new() })
    }

    /// Whether an answer is awaited that no event reports.
    fn awaits(&self) -> bool {
        self.guests.awaits()
    }

    /// The interfaces and guests now.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn look(&mut self, uplinks: &BTreeSet<String>) -> Result<Vec<DiscoveredInterface>, Error> {
        self.known_guests = self.guests.look();
        self.asked.clear();
        self.glance(uplinks)
    }

    /// As [`Source::look`], with the guests of the last look, and for unchanged interfaces with the addresses at their
    /// other ends, since these two take most of the time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn glance(&mut self, uplinks: &BTreeSet<String>) -> Result<Vec<DiscoveredInterface>, Error> {
        let links = links::all(&mut self.netlink)?;
        let guests = std::mem::take(&mut self.known_guests);
        let namespaces = self.namespaces(&links, &guests);
        self.known_guests = guests;
        let (namespaces, addresses) = (namespaces?, self.addresses(&links)?);
        let addresses = self.without_taken(&links, addresses);
        let functions = self.functions(&links)?;
        let mut all =
            interfaces::found(&links, &self.known_guests, &namespaces, &addresses, &packet_path::Host::here(), uplinks);
        all.extend(interfaces::assigned_vfs(&self.known_guests, &functions));
        Ok(all)
    }

    /// Names of the namespaces that interfaces lead to, by the numbers that the kernel has for them here.
    fn namespaces(&mut self, links: &[Link], guests: &[GuestNetwork]) -> Result<BTreeMap<i32, String>, Error> {
        let mut names = BTreeMap::new();
        if links.iter().all(|link| link.tied_in.is_none()) {
            return Ok(names);
        }
        for guest in guests.iter().filter(|guest| guest.apart) {
            for pid in &guest.pids {
                if let Some(number) = links::namespace_number(&mut self.netlink, Of::Process(*pid))? {
                    names.insert(number, guest.name.clone());
                }
            }
        }
        // Names of `ip netns` take precedence.
        for (name, file) in guests::named_namespaces(Path::new("/run/netns")) {
            if let Some(number) = links::namespace_number(&mut self.netlink, Of::File(file.as_fd()))? {
                names.insert(number, name);
            }
        }
        Ok(names)
    }

    /// Functions of cards that a guest drives, by the card's name.
    fn functions(&mut self, links: &[Link]) -> Result<BTreeMap<String, BTreeMap<u32, Function>>, Error> {
        let cards: BTreeSet<&str> =
            self.known_guests.iter().flat_map(|guest| &guest.assigned_vfs).map(|vf| vf.card.as_str()).collect();
        let mut all = BTreeMap::new();
        for card in links.iter().map(|link| &link.device).filter(|card| cards.contains(card.name.as_str())) {
            all.insert(card.name.clone(), functions::of(&mut self.netlink, card)?);
        }
        Ok(all)
    }

    /// Addresses of the other ends of what leads to other namespaces, by the index of this end.
    fn addresses(&mut self, links: &[Link]) -> Result<BTreeMap<u32, [u8; 6]>, Error> {
        let mut before = std::mem::take(&mut self.asked);
        for link in links.iter().filter(|link| link.kind == "veth") {
            let (Some(namespace), Some(index)) = (link.tied_in, link.tied_to) else { continue };
            let asked = match before.remove(&link.device.index).filter(|(was, _)| was == link) {
                Some(asked) => asked,
                None => (link.clone(), self.address(namespace, index)?),
            };
            self.asked.insert(link.device.index, asked);
        }
        Ok(self.asked.iter().filter_map(|(index, (_, address))| Some((*index, (*address)?))).collect())
    }

    /// A container may change its address, but not to one that another guest or this host has: it keeps the one before.
    fn without_taken(&mut self, links: &[Link], mut now: BTreeMap<u32, [u8; 6]>) -> BTreeMap<u32, [u8; 6]> {
        for (index, address) in &mut now {
            let claimed = *address;
            let Some(before) = self.last.get(index).copied().filter(|before| *before != claimed) else { continue };
            let of_end = self.last.iter().any(|(other, its)| other != index && *its == claimed);
            let of_host = links.iter().any(|link| link.address == Some(claimed));
            let text = interfaces::text(&claimed);
            let mut nics = self.known_guests.iter().flat_map(|guest| &guest.nics);
            let is_given = |given: &String| given.eq_ignore_ascii_case(&text);
            if of_end || of_host || nics.any(|nic| nic.place.target.as_ref().is_some_and(is_given)) {
                *address = before;
            }
        }
        self.last.clone_from(&now);
        now
    }

    fn address(&mut self, namespace: i32, index: u32) -> Result<Option<[u8; 6]>, Error> {
        match links::by_index_in(&mut self.netlink, namespace, index) {
            Ok(link) => Ok(link.and_then(|link| link.address)),
            // Another user's namespace, or an old kernel: the address stays unknown.
            Err(Error::Refused { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The interfaces of the host, as of one look.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// The interfaces.
    pub interfaces: Vec<DiscoveredInterface>,
    /// When the kernel reported the change that caused the look; `None` without one.
    pub reported_at: Option<Instant>,
}

/// The thread that looks. Dropped, it ends.
#[derive(Debug)]
pub struct Watch {
    /// Can be read when the thread is to end (eventfd(2)).
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts it. `tell` is called with the result of each look, and returns the uplinks for the next one.
    ///
    /// # Errors
    /// When the system gives no thread, or the kernel no socket.
    pub fn start(
        open: impl FnOnce() -> Result<Source, Error> + Send + 'static,
        mut tell: impl FnMut(Result<Discovery, Error>) -> BTreeSet<String> + Send + 'static,
        mut uplinks: BTreeSet<String>,
    ) -> std::io::Result<Watch> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ended = Arc::clone(&end);
        let run = move || {
            let opened = open().and_then(|source| Ok((source, Events::open()?)));
            let (mut source, mut events) = match opened {
                Ok(opened) => opened,
                Err(e) => {
                    tell(Err(e));
                    return;
                }
            };
            let mut reported_at = None;
            let mut pace = Pace::default();
            while rustix::io::read(&*ended, &mut [0u8; 8]).is_err() {
                if reported_at.is_some() {
                    // Interfaces that are matched by name or namespace need not wait for the look at guests.
                    let found = source.glance(&uplinks);
                    if matches!(found, Err(Error::Changing { .. })) {
                        // Interfaces come and go too fast to be listed: the event is still pending.
                        thread::sleep(AGAIN);
                        continue;
                    }
                    uplinks = tell(found.map(|interfaces| Discovery { interfaces, reported_at }));
                }
                if reported_at.is_some() || pace.is_due() {
                    let began = Instant::now();
                    let found = source.look(&uplinks);
                    pace.looked(began.elapsed(), found.as_ref().ok(), reported_at.is_some() || source.awaits());
                    if !matches!(found, Err(Error::Changing { .. })) {
                        uplinks = tell(found.map(|interfaces| Discovery { interfaces, reported_at }));
                    }
                }
                reported_at = match events.wait(pace.rests(), ended.as_fd()) {
                    Ok(None) => None,
                    Ok(Some(first)) => {
                        thread::sleep(REST);
                        // The look that follows sees what these report; the next wait returns an error.
                        let _ = events.wait(Duration::ZERO, ended.as_fd());
                        Some(first)
                    }
                    Err(e) => {
                        uplinks = tell(Err(e));
                        thread::sleep(AGAIN);
                        None
                    }
                };
            }
        };
        let thread = thread::Builder::new().name("guard-look".into()).spawn(run)?;
        Ok(Watch { end, thread: Some(thread) })
    }
}

/// Paces the looks that are made without an event.
#[derive(Debug, Default)]
struct Pace {
    at: Option<Instant>,
    rest: Duration,
    /// Looks in a row with the same result.
    same: u32,
    last: Vec<DiscoveredInterface>,
}

impl Pace {
    fn is_due(&self) -> bool {
        self.rests().is_zero()
    }

    /// The time until the next look.
    fn rests(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| self.rest.saturating_sub(at.elapsed()))
    }

    /// Records the time and result of a look; `pending` where an event or an answer was the reason or is awaited.
    fn looked(&mut self, took: Duration, found: Option<&Vec<DiscoveredInterface>>, pending: bool) {
        let same = !pending && found.is_some_and(|found| *found == self.last);
        self.same = if same { self.same.saturating_add(1) } else { 0 };
        if let Some(found) = found.filter(|_| !same) {
            self.last.clone_from(found);
        }
        self.at = Some(Instant::now());
        let (rest, part) = match self.same {
            0..SETTLED => (LOOK, CHANGING_PART),
            same => (LOOK.saturating_mul(same - SETTLED + 2).min(SELDOM), PART),
        };
        self.rest = rest.max(took.saturating_mul(part).min(LONGEST));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It takes 8 bytes, native order, and cannot be full here.
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_model::policy::assign::Interface;

    #[test]
    fn pace_follows_changes() {
        let found = |index| vec![DiscoveredInterface::from(Interface { index, ..Interface::default() })];
        let (mut pace, took) = (Pace::default(), Duration::from_micros(300));
        assert!(pace.is_due());
        let rests = |pace: &mut Pace, looks: u32, index| -> Vec<u64> {
            let rest = |_| {
                pace.looked(took, Some(&found(index)), false);
                pace.rest.as_secs()
            };
            (0..looks).map(rest).collect()
        };
        assert_eq!(rests(&mut pace, 20, 1), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
        assert_eq!(rests(&mut pace, 1, 2), [1], "another interface");
        rests(&mut pace, 30, 2);
        pace.looked(took, Some(&found(2)), true);
        assert_eq!(pace.rest, LOOK, "an event, or a manager that was asked");
        pace.looked(took, None, false);
        assert_eq!(pace.rest, LOOK, "it failed");
        // A look that takes long is not begun anew at once.
        pace.looked(Duration::from_millis(100), Some(&found(2)), true);
        assert_eq!(pace.rest, Duration::from_secs(2));
        (0..30).for_each(|_| pace.looked(Duration::from_millis(100), Some(&found(2)), false));
        assert_eq!(pace.rest, Duration::from_secs(50));
        pace.looked(Duration::from_secs(10), Some(&found(2)), true);
        assert_eq!(pace.rest, LONGEST);
    }
}
