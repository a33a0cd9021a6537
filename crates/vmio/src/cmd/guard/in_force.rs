//! What vmio's own guard of this network namespace limits now, for `vmio scan` and `guard check --host`. Its daemon is
//! asked; without one the kernel says it, by the numbers of the ledger. Nothing is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_guard::api::client::{Client, ClientError};
use vmio_guard::manager::document::{MemberDocument, PoolDocument, Status};
use vmio_guard::planes::linux::{self, Left};
use vmio_guard::planes::observe;
use vmio_guard::undo_log::UndoLog;
use vmio_look::{HostView, limits};
use vmio_model::facts::{Fact, GUARD, Guarded, Guest, Nic, RateLimit, Remedy, Unread};
use vmio_model::policy::Direction;
use vmio_model::policy::pool::called;
use vmio_node::tap::{self, HolderState, NetworkNamespace, Process};

use super::record;
use crate::context::Context;
use crate::paths::Paths;

/// How long the guard may take to answer.
const LIMIT: Duration = Duration::from_secs(1);

/// A limit that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The interface.
    pub interface: String,
    /// Its index, where the kernel was asked.
    index: Option<u32>,
    /// The guest, if the guard knows it.
    pub guest: Option<String>,
    /// The limit.
    pub limit: RateLimit,
    /// Send buffer of its tap that is in force, in bytes.
    send_buffer_bytes: Option<u32>,
}

/// All that it holds, and what could not be asked.
#[derive(Debug, Default)]
pub struct InForce {
    /// By interface and direction.
    pub held: Vec<Held>,
    /// Why that is not all.
    pub unread: Option<Unread>,
}

/// Socket of the guard of this network namespace, whatever its state directory is; else that of one which observes.
pub fn socket(context: &Context) -> PathBuf {
    socket_of(record::directory().as_deref(), context)
}

fn socket_of(recorded: Option<&Path>, context: &Context) -> PathBuf {
    recorded.map_or_else(|| context.paths.guard_socket(), Paths::guard_socket_of)
}

/// The limits of the guard of this network namespace; none where no guard was started here.
pub fn of_guard(context: &Context) -> InForce {
    let recorded = record::directory();
    let state = recorded.as_deref().filter(|dir| !Paths::option_of(dir).is_empty());
    match Client::at(&socket_of(recorded.as_deref(), context)).within(LIMIT).get::<Status>("/v1/status") {
        Ok(status) => InForce { held: of_status(&status, state), unread: None },
        Err(ClientError::Nobody(_)) => left(state),
        Err(e) => InForce { held: Vec::new(), unread: Some(unread(&e, state)) },
    }
}

fn unread(error: &ClientError, state: Option<&Path>) -> Unread {
    let denied =
        matches!(error, ClientError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
    let state = state.map(Paths::option_of).unwrap_or_default();
    let mend = if denied { Remedy::Root } else { format!("look there: vmio guard status{state}").into() };
    Unread { what: "limits of vmio guard".into(), why: error.to_string(), mend }
}

/// Those of a guard that enforces, of members behind interfaces.
fn of_status(status: &Status, state: Option<&Path>) -> Vec<Held> {
    if status.plane == observe::NAME {
        return Vec::new();
    }
    let in_force = status.pools.iter().filter(|pool| pool.not_in_force.is_none());
    in_force.flat_map(|pool| pool.members.iter().filter_map(move |member| of_member(pool, member, state))).collect()
}

fn of_member(pool: &PoolDocument, member: &MemberDocument, state: Option<&Path>) -> Option<Held> {
    // The host and what is in no class have none.
    let excess = member.excess.as_ref().filter(|excess| excess.waits != "none")?;
    // Without queues only a bucket limits.
    let limit_bps = member.limit_bps.or((!pool.queueless).then_some(member.max_bps))?;
    let rate_bps = limit_bps.min(member.max_bps);
    let guard = Guarded {
        uplink: pool.uplink.clone(),
        class: Some(member.class.clone()),
        min_bps: member.min_effective_bps,
        waits: Some(excess.waits.clone()),
        runs: true,
        state: state.map(|dir| dir.to_string_lossy().into_owned()),
    };
    let limit = RateLimit {
        dropped_packets: Some(member.dropped_packets_total),
        guard: Some(guard),
        ..RateLimit::new(GUARD, pool.direction, rate_bps, false)
    };
    let send_buffer_bytes = excess.send_buffer_bytes;
    Some(Held { interface: member.name.clone(), index: None, guest: member.guest.clone(), limit, send_buffer_bytes })
}

/// Those that a guard without a daemon has left.
fn left(state: Option<&Path>) -> InForce {
    // Anew: a guard that has ended meanwhile leaves no record.
    let Some(dir) = record::directory() else { return InForce::default() };
    let read = UndoLog::look(&Paths::guard_ledger(&dir)).map_err(|e| e.to_string());
    match read.and_then(|log| linux::left(&log).map_err(|e| e.to_string())) {
        Ok(left) => InForce { held: left.into_iter().map(|left| of_left(left, state)).collect(), unread: None },
        Err(why) => {
            let why = format!("no daemon runs, and what it left in force could not be read: {why}");
            let state = Paths::option_of(&dir);
            let mend = if rustix::process::geteuid().is_root() {
                format!("`vmio guard run{state}` resumes them, `vmio guard undo{state}` removes them").into()
            } else {
                Remedy::Root
            };
            InForce { held: Vec::new(), unread: Some(Unread { what: "limits of vmio guard".into(), why, mend }) }
        }
    }
}

fn of_left(left: Left, state: Option<&Path>) -> Held {
    let guard = Guarded {
        uplink: left.at,
        class: None,
        min_bps: left.rate_bps,
        waits: None,
        runs: false,
        state: state.map(|dir| dir.to_string_lossy().into_owned()),
    };
    let limit = RateLimit { guard: Some(guard), ..RateLimit::new(GUARD, left.direction, left.ceiling_bps, false) };
    let name = called(&left.interface).into_owned();
    Held { interface: name, index: Some(left.index), guest: None, limit, send_buffer_bytes: None }
}

/// Adds them to the cards of guests, with the send buffer of a tap that holds its guest back.
pub fn add(host: &HostView<'_>, held: &[Held], guests: &mut [Guest]) {
    if held.is_empty() {
        return;
    }
    let mut by_name: BTreeMap<&str, Vec<&Held>> = BTreeMap::new();
    held.iter().for_each(|held| by_name.entry(&held.interface).or_default().push(held));
    for guest in guests {
        let passed: Vec<_> = guest.nics.iter().map(|nic| limits::passed_here(host, guest, nic)).collect();
        let pid = guest.pid;
        for (nic, passed) in guest.nics.iter_mut().zip(passed) {
            let Some((name, is_end)) = passed else { continue };
            for held in by_name.get(&*called(&name)).into_iter().flatten() {
                let interface = is_end.then(|| name.clone());
                add_limit(nic, RateLimit { interface, ..held.limit.clone() });
                // It holds back what the guest sends; at a pod's end here there is no tap.
                if is_end || held.limit.direction != Direction::GuestTx {
                    continue;
                }
                let buffer = held.send_buffer_bytes.or_else(|| send_buffer(held.index?, pid?, nic));
                if let Some(bytes) = buffer {
                    nic.send_buffer_bytes = Fact::read(Some(bytes.into()), "the tap itself");
                }
            }
        }
    }
}

fn add_limit(nic: &mut Nic, limit: RateLimit) {
    if nic.rate_limits.is_empty() {
        nic.rate_limits = Fact::read(vec![limit], "vmio guard");
    } else {
        nic.rate_limits.amend().push(limit);
    }
}

/// The send buffer of a tap that the guest's process holds, read by a copy of its descriptor that is closed at once.
fn send_buffer(index: u32, pid: u32, nic: &Nic) -> Option<u32> {
    if nic.backend.as_deref() != Some("tap") {
        return None;
    }
    let interface = tap::Interface { namespace: NetworkNamespace::own().ok()?, index };
    match tap::send_buffer(interface, Process::now(pid)?, None).ok()? {
        HolderState::Held { before, .. } => before.iter().filter(|queue| queue.on).map(|queue| queue.bytes).min(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::facts::{Provenance, Subject};
    use vmio_model::rate::MBIT as M;
    use vmio_node::fake::Fake;

    use super::*;

    /// A guest `web1` behind tap3, and limits of an example's status.
    fn guest() -> Guest {
        let from = Provenance::Transcript { name: "test".into() };
        let nic = Nic { interface: "tap3".into(), ..Nic::unknown(Subject::net("web1", "tap3"), from) };
        Guest { name: "web1".into(), nics: vec![nic], ..Guest::default() }
    }

    fn example() -> Status {
        serde_json::from_str(include_str!("status/example.json")).unwrap()
    }

    #[test]
    fn what_the_daemon_says_is_at_its_guests_card() {
        let held = of_status(&example(), Some(Path::new("/x")));
        let names: Vec<&str> = held.iter().map(|held| held.interface.as_str()).collect();
        assert!(!names.contains(&"host") && !names.contains(&"default"), "{names:?}");
        let fake = Fake::new("fake");
        let mut guests = [guest()];
        add(&HostView::new(&fake), &held, &mut guests);
        let nic = &guests[0].nics[0];
        let sent = nic.rate_limits.iter().find(|limit| limit.direction == Direction::GuestTx).unwrap();
        assert_eq!((sent.by.as_str(), sent.rate_bps), (GUARD, 600 * M));
        let guard = sent.guard.as_ref().unwrap();
        assert_eq!(
            (guard.class.as_deref(), guard.min_bps, guard.state.as_deref()),
            (Some("gold"), 300 * M, Some("/x"))
        );
        assert_eq!(*nic.send_buffer_bytes, Some(750_000));
    }

    #[test]
    fn what_is_not_in_force_or_only_observed_is_no_limit() {
        let mut status = example();
        status.pools.iter_mut().for_each(|pool| pool.not_in_force = Some("gone".into()));
        assert_eq!(of_status(&status, None), []);
        let observed = Status { plane: observe::NAME.into(), ..example() };
        assert_eq!(of_status(&observed, None), []);
    }

    #[test]
    fn without_queues_only_a_bucket_limits() {
        let mut status = example();
        let sent = |status: &Status| {
            let held = of_status(status, None).into_iter().filter(|held| held.limit.direction == Direction::GuestTx);
            held.map(|held| held.interface).collect::<Vec<_>>()
        };
        status.pools[0].members[2].limit_bps = None;
        assert_eq!(sent(&status), ["tap3", "vnet7"]);
        status.pools[0].queueless = true;
        assert_eq!(sent(&status), ["tap3"]);
    }

    #[test]
    fn what_a_killed_daemon_left_has_no_class() {
        let left = Left {
            interface: "tap3".into(),
            index: 7,
            direction: Direction::GuestRx,
            ceiling_bps: 20 * M,
            rate_bps: M,
            at: "vmiorx2".into(),
        };
        let held = of_left(left, None);
        let guard = held.limit.guard.as_ref().unwrap();
        assert_eq!((held.limit.rate_bps, guard.runs, &guard.class), (20 * M, false, &None));
    }
}
