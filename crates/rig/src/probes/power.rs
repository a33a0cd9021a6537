//! Where energy and power of a machine come from here. Nothing is reckoned: where there is no meter there is no figure.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement};
use vmio_node::linux::powercap::{DIR, Zone, zones};
use vmio_node::{Node, Reader};

use super::command::{self, LIMIT};
use super::power_command::PowerCommand;
use super::{ProbeSubject, Unseen};

/// What is needed to tell the energy of a cell, where nobody names a meter.
pub const METER: Requirement = Requirement {
    name: "power meter",
    why: "energy and power of cells",
    fix: "name your own meter with --power-command (docs/probes.md)",
    check: |reader| counted(reader).map(drop),
};

/// What is counted here and may be read.
fn counted(reader: &dyn Reader) -> Result<Vec<Zone>, Missing> {
    let (mut all, mut refused) = (zones(reader), false);
    all.retain(|zone| match reader.read(&zone.energy_file) {
        Ok(_) => true,
        Err(e) => {
            refused |= e.kind() == Some(ErrorKind::PermissionDenied);
            false
        }
    });
    match (all.is_empty(), refused) {
        (false, _) => Ok(all),
        (true, true) => Err(Missing::RootOnly("/sys/class/powercap/*/energy_uj")),
        (true, false) => Err(Missing::Unlike(format!("no power meter: nothing in {DIR} counts energy"))),
    }
}

/// What is watched of the power of this machine: what it counts itself, and what a meter of the user's tells.
///
/// # Errors
/// When that meter tells too little of a cell of so many seconds.
pub fn subjects(node: &Arc<dyn Node>, command: Option<&str>, cell_seconds: f64) -> Result<Vec<ProbeSubject>, Unseen> {
    let own = counted(node.reader()).ok().map(ProbeSubject::Energy);
    let meter = command.map(|command| ProbeSubject::Meter { command: command.to_owned() });
    if let Some(meter) = &meter {
        tells(node, meter, cell_seconds)?;
    }
    Ok(own.into_iter().chain(meter).collect())
}

/// Watches a meter as it is watched in a cell, so that no run ends without what it was to tell.
fn tells(node: &Arc<dyn Node>, meter: &ProbeSubject, seconds: f64) -> Result<(), Unseen> {
    let watched = |time: Duration| {
        let mut notes = Vec::new();
        let seen = command::start(&PowerCommand, meter, node).and_then(|looking| {
            thread::sleep(time);
            looking.stop(&mut notes)
        });
        seen.map(drop).map_err(|why| match why {
            // Why a run ends is stored, and its command may have a password in it.
            Unseen::Command { said, .. } => Unseen::Command { command: "--power-command".to_owned(), said },
            Unseen::FewReadings | Unseen::SeldomTold { .. } => {
                notes.insert(0, why.to_string());
                Unseen::TooSlow { seconds, why: notes.join("; ") }
            }
            why => why,
        })
    };
    // A long cell is waited out only where less does not do.
    let cell = Duration::from_secs_f64(seconds);
    let first = watched(cell.min(LIMIT));
    if first.is_ok() || cell <= LIMIT { first } else { watched(cell) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Local;
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn who_may_not_read_the_counters_is_told_so() {
        let package = |fake: Fake| fake.file(format!("{DIR}/intel-rapl:0/name"), "package-0\n");
        let energy = format!("{DIR}/intel-rapl:0/energy_uj");
        let found = |fake: Fake| (METER.check)(&fake).map_err(|missing| missing.to_string());
        let counts = package(Fake::new("fake")).file(&energy, "17\n");
        assert_eq!(found(counts), Ok(()));
        let refused = found(package(Fake::new("fake")).file(&energy, "17\n").refused(&energy));
        assert_eq!(refused, Err("/sys/class/powercap/*/energy_uj may be read by root only".into()));
        let none = found(Fake::new("fake").file(format!("{DIR}/intel-rapl/enabled"), "1\n")).unwrap_err();
        assert!(none.starts_with("no power meter"), "{none}");
        let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
        assert_eq!(subjects(&node, None, 1.0).unwrap(), []);
    }

    #[test]
    fn a_meter_that_tells_too_little_is_refused_before_anything_is_measured() {
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let of = |command: &str, seconds: f64| {
            let meter = ProbeSubject::Meter { command: command.into() };
            subjects(&node, Some(command), seconds).map(|all| all.contains(&meter))
        };
        assert!(of("while :; do echo 12.5; sleep 0.05; done", 1.5).unwrap());
        // It is run again each second.
        assert!(of("echo 12.5", 3.0).unwrap());
        let said = |command: &str, seconds: f64| of(command, seconds).unwrap_err().to_string();
        for slow in ["while :; do sleep 3; echo 12.5; done", "echo 12.5; sleep 60"] {
            let said = said(slow, 1.0);
            assert!(said.starts_with("it is too slow for cells of 1 s, "), "{said}");
        }
        assert_eq!(said("echo no such meter >&2; exit 3", 2.0), "`--power-command` failed: no such meter");
        let words = said("echo 12 W", 2.0);
        assert!(words.contains("some lines contain no watts"), "{words}");
    }
}
