//! `vmio guard run --dry-run`: what would be limited on this host. Changes nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use vmio_guard::desired::{DesiredMember, DesiredPool, Numbers, Strictness, desired, is_queueless};
use vmio_guard::groups;
use vmio_guard::manager::document::local_note;
use vmio_guard::planes::{Entry, linux};
use vmio_guard::source::Source;
use vmio_guard::source::guests::Here;
use vmio_model::control::Allocator;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::{Class, Direction, excess, queueless};

use super::{accepted, links, read, settings};
use crate::context::{Context, Outcome};
use crate::fit;
use crate::report::format::count;
use crate::term;

pub fn run(config: &[PathBuf], plane: &Entry, allocator: Allocator, takeover: bool, context: &Context) -> Outcome {
    let policy = accepted(read(config, &links::of_kernel(None))?)?;
    let uplinks: BTreeSet<String> = policy.uplinks.keys().cloned().collect();
    let found = Source::open(Box::new(Here::default()))?.look(&uplinks)?;
    let abilities = allocator.asks_of(plane.abilities);
    if plane.abilities.plane == linux::ENTRY.abilities.plane {
        let in_the_way = linux::in_the_way(&uplinks, takeover, |uplink| is_queueless(&policy, uplink, &abilities))?;
        if let [first, rest @ ..] = in_the_way.as_slice() {
            for other in rest {
                term::note(other);
            }
            return Err(Failure::new(Exit::Usage, first.clone()).into());
        }
    }
    let refused = |e: vmio_model::policy::compile::Refusal| {
        Failure::new(Exit::Usage, format!("plane {} cannot hold this policy: {e}", plane.abilities.plane))
    };
    let numbers = Numbers::default().of(found.iter().map(|found| &found.interface)).map_err(refused)?;
    let next = desired(&policy, &found, &numbers, &abilities, Strictness::Policy).map_err(refused)?;
    let (plane, by) = (plane.abilities.plane, allocator.label());
    let mut text = fit::paragraph("", 0, &format!("Would be limited by plane {plane}, {by}; nothing was changed."));
    for pool in &next.pools {
        let mine = pool.seats.iter().filter(|seat| seat.interface.is_some());
        let queueless = if pool.is_queueless() { format!("; {}", queueless::SHOWN) } else { String::new() };
        let interfaces = count(mine.clone().count(), "interface");
        text += &fit::paragraph("  ", 2, &format!("{}: {interfaces}{queueless}", pool.key));
        for seat in mine {
            let class = policy.class(&seat.class);
            let capacity = policy.uplinks[&pool.key.uplink].capacity;
            let member = class.member(capacity);
            let vms = seat.interface.iter().flat_map(|i| &i.vms).next();
            let guest = vms.map_or_else(String::new, |vm| format!(" ({vm})"));
            let what = format!(
                "class {}, {} guaranteed, at most {}, excess {}{}",
                seat.class,
                member.min,
                member.max,
                if pool.is_queueless() { "not queued" } else { waits(seat) },
                besides(pool, seat, class)
            );
            text += &fit::paragraph("    ", 6, &format!("{}{guest}: {what}", seat.name));
        }
    }
    let notes = next.all_notes().cloned().chain(local_note(&next.exceeded_locally(&policy)));
    let notes = notes.chain(excess::note(&policy)).chain(groups::lacking(&policy, &found)?);
    for note in settings::of_guard(&policy).into_iter().chain(notes) {
        text += &fit::paragraph("  ", 2, &note);
    }
    if next.pools.iter().all(|pool| pool.seats.iter().all(|seat| seat.interface.is_none())) {
        text += &fit::paragraph("", 0, "No interface that is here now is in a class.");
    }
    if context.json {
        term::note("--json: a dry run prints only text; `vmio guard plan --json` prints the plan");
    }
    term::print(&text)?;
    Ok(Exit::Done)
}

fn waits(seat: &DesiredMember) -> &'static str {
    seat.holding.as_ref().map_or("queued", |holding| holding.waits.word())
}

/// What holds for a member besides its rates; what it may claim to be is of what it sends.
fn besides(pool: &DesiredPool, seat: &DesiredMember, class: &Class) -> String {
    let mut said: Vec<String> = class.queue_time().map(settings::queue).into_iter().collect();
    said.extend(class.excess.shown());
    said.extend(class.delay.and_then(|target| target.longest).map(settings::longest));
    if pool.key.direction == Direction::GuestTx {
        let local = if pool.is_staged() || seat.local_max.is_some() { "limited" } else { "not limited" };
        said.push(format!("local traffic {local}"));
        said.extend(settings::identity(&seat.identity.addresses, seat.identity.router));
    }
    said.iter().map(|part| format!(", {part}")).collect()
}
