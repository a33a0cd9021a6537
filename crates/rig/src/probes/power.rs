//! Where energy and power of a machine come from here. Nothing is reckoned: where there is no meter there is no figure.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use vmio_look::require::{Missing, Requirement};
use vmio_node::linux::powercap::{DIR, Zone, zones};
use vmio_node::{Error, Exec, Node, Reader};

use super::command::{GLANCE, LIMIT, MOST_BYTES};
use super::{Thing, Unseen, power_command};

/// What is needed to tell the energy of a cell, where nobody names a meter.
pub const METER: Requirement = Requirement {
    name: "power meter",
    why: "energy and power of cells",
    mend: "name a meter of your own with --power-command (docs/probes.md)",
    check: |reader| counted(reader).map(drop),
};

/// What is counted here and may be read.
fn counted(reader: &dyn Reader) -> Result<Vec<Zone>, Missing> {
    let (mut all, mut refused) = (zones(reader), false);
    all.retain(|zone| match reader.read(&zone.energy_file) {
        Ok(_) => true,
        Err(Error::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            refused = true;
            false
        }
        Err(_) => false,
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
/// When that meter tells nothing.
pub fn things(node: &Arc<dyn Node>, command: Option<&str>) -> Result<Vec<Thing>, Unseen> {
    let own = counted(node.reader()).ok().map(Thing::Energy);
    let meter = command.map(|command| {
        told(&**node, command)?;
        Ok::<_, Unseen>(Thing::Meter { command: command.to_owned() })
    });
    Ok(own.into_iter().chain(meter.transpose()?).collect())
}

/// Waits for the first that a meter tells, so that no run ends without what it was to tell.
fn told(node: &dyn Node, command: &str) -> Result<(), Unseen> {
    let exec = Exec { keep_bytes: MOST_BYTES, ..power_command::exec(command) };
    let failed = |said: String| Unseen::Command { command: command.to_owned(), said };
    let mut process = node.spawn(&exec)?;
    let (began, mut said, mut complained) = (Instant::now(), Vec::new(), Vec::new());
    loop {
        let (ended, [out, err]) = match process.try_wait()? {
            Some(output) => (true, [output.stdout, output.stderr]),
            None => (false, process.take_said()?),
        };
        said.extend(out);
        complained.extend(err);
        if String::from_utf8_lossy(&said).lines().any(|line| power_command::parse(line).is_some()) {
            return Ok(());
        }
        if ended || began.elapsed() > LIMIT || said.len() > MOST_BYTES {
            let complaint = String::from_utf8_lossy(&complained).trim().to_owned();
            return Err(failed(if complaint.is_empty() { "it told no watts".to_owned() } else { complaint }));
        }
        thread::sleep(GLANCE);
    }
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
        assert_eq!(things(&node, None).unwrap(), []);
    }

    #[test]
    fn a_meter_that_tells_nothing_is_named_before_anything_is_measured() {
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let of = |command: &str| {
            let meter = Thing::Meter { command: command.into() };
            things(&node, Some(command)).map(|all| all.contains(&meter))
        };
        assert!(of("echo 12.5").unwrap() && of("echo watts; echo 12.5; sleep 60").unwrap());
        let said = |command: &str| of(command).unwrap_err().to_string();
        assert_eq!(said("echo no such meter >&2; exit 3"), "`echo no such meter >&2; exit 3` failed: no such meter");
        assert_eq!(said("echo 12 W"), "`echo 12 W` failed: it told no watts");
    }
}
