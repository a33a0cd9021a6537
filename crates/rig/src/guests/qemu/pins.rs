//! Processors of the host that a guest is held to: by taskset(1), which becomes QEMU, whose threads all inherit
//! it (sched_setaffinity(2)).

use std::path::Path;

use vmio_look::require::program;
use vmio_node::linux::process::Status;
use vmio_node::{Exec, Reader};

use super::super::Unfit;
use crate::limits;

const TASKSET: &str = "taskset";

/// Whether guests can be held to these processors here, else why not.
pub fn can_be_had(pins: &[u32], host: &dyn Reader) -> Result<(), Unfit> {
    if pins.is_empty() {
        return Ok(());
    }
    program(host, TASKSET).map_err(Unfit::NoTaskset)?;
    let Some(usable) = limits::own_cpus(host) else { return Ok(()) };
    match pins.iter().find(|pin| !usable.contains(pin)) {
        None => Ok(()),
        Some(&pin) => Err(Unfit::Processor { pin, usable }),
    }
}

/// QEMU, held to them; on any where there are none.
pub fn held(qemu: &Path, pins: &[u32]) -> Exec {
    if pins.is_empty() {
        return Exec::new(qemu.to_string_lossy());
    }
    let list: Vec<String> = pins.iter().map(u32::to_string).collect();
    Exec::new(TASKSET).args(["-c".to_owned(), list.join(","), qemu.to_string_lossy().into_owned()])
}

/// Whether a QEMU is held to them and to no others. A control group could have less.
pub fn read_back(host: &dyn Reader, pid: u32, pins: &[u32]) -> Result<(), Unfit> {
    if pins.is_empty() {
        return Ok(());
    }
    let mut asked = pins.to_vec();
    asked.sort_unstable();
    asked.dedup();
    let found = Status::of(host, pid).map_err(|e| Unfit::Unreadable(e.to_string()))?.cpus();
    if found.as_ref() == Some(&asked) { Ok(()) } else { Err(Unfit::HeldElsewhere { found, asked }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

    use super::*;

    fn host() -> Fake {
        Fake::new("fake").file("/proc/self/status", "Name:\tvmio\nCpus_allowed_list:\t0,2-3\n")
    }

    #[test]
    fn a_guest_is_held_to_processors_that_vmio_may_use() {
        let has = host().installed("taskset");
        assert_eq!(can_be_had(&[], &host()), Ok(()));
        assert_eq!((can_be_had(&[3, 0], &has), can_be_had(&[2], &has)), (Ok(()), Ok(())));
        let said = can_be_had(&[0, 1], &has).unwrap_err().to_string();
        assert!(said.contains("processor 1: vmio may use 0, 2, 3"), "{said}");
        let said = can_be_had(&[0], &host()).unwrap_err().to_string();
        assert!(said.contains("no program taskset") && said.contains("util-linux"), "{said}");
    }

    #[test]
    fn taskset_becomes_qemu() {
        assert_eq!(held(Path::new("/usr/bin/qemu"), &[]).shown(), "/usr/bin/qemu");
        assert_eq!(held(Path::new("/usr/bin/qemu"), &[3, 0]).args(["-S"]).shown(), "taskset -c 3,0 /usr/bin/qemu -S");
    }

    #[test]
    fn what_is_in_force_is_read_back() {
        let host = host().file("/proc/77/status", "Name:\tqemu\nCpus_allowed_list:\t0-1\n");
        assert_eq!((read_back(&host, 77, &[1, 0, 1]), read_back(&host, 78, &[])), (Ok(()), Ok(())));
        let found = Some(vec![0, 1]);
        assert_eq!(read_back(&host, 77, &[1]), Err(Unfit::HeldElsewhere { found, asked: vec![1] }));
        assert!(read_back(&host, 78, &[1]).is_err());
    }
}
