//! `aio=io_uring` where it is known to hang: a request is never answered, and the guest waits for its disk for ever.
//! The conditions are those under which it is not advised either ([`super::withheld`]), each with its source.

use super::change::{DiskChange, cache_mode, own_disk};
use super::live::seen;
use super::withheld::hang_of_disk;
use super::{Check, Finding, Need, Rule, Severity};
use crate::cell::Aio;
use crate::facts::Disk;

pub(super) const RULE: Rule = Rule {
    id: "io-uring-hangs",
    title: "aio=io_uring is known to hang here",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "qemu-server, `storage_allows_io_uring_default` (LVM, CIFS, mapped RBD images)",
        "https://github.com/canonical/lxd/issues/10061 (kernels before 5.13)",
        "https://gitlab.com/qemu-project/qemu/-/issues/1193 (QEMU 7.1.0)",
    ],
    checks: &[Check::Disk(live)],
    // Silent: thin LVM, where none was reported to hang.
    #[cfg(test)]
    fixture: (|| fixture::on("lvm"), || fixture::on("lvm-thin")),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.aio.as_deref().filter(|aio| *aio == "io_uring")?;
    let because = hang_of_disk(disk)?.because;
    let cause = format!("aio=io_uring, though {because}: a request may never be answered, and the guest stands still.");
    // Linux AIO needs O_DIRECT, and waits on a file that grows.
    let raw = disk.details.format.as_deref() == Some("raw");
    let native = raw && disk.place.block_device == Some(true) && cache_mode(disk).direct();
    let (aio, what) = match (native, disk.is_direct()) {
        (true, true) => (Aio::Native, "Use aio=native."),
        (true, false) => (Aio::Native, "Use aio=native, with cache=none."),
        (false, _) => (Aio::Threads, "Use aio=threads."),
    };
    let change = own_disk(what, disk, &DiskChange { aio: Some(aio), ..DiskChange::default() });
    Some(rule.advice(disk, &seen![disk; aio, cache, details.format, details.storage], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Disk, Facts};
    use crate::testing::live_disk;

    pub fn on(storage: &str) -> Facts {
        let details = Details { storage: Some(storage.to_owned()).into(), format: "raw".into(), ..Details::default() };
        Facts { disks: vec![Disk { aio: "io_uring".into(), ..live_disk(details) }], ..Facts::default() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Details, HostSeen, Place};
    use crate::testing::live_disk;

    fn found(details: Details, change: impl Fn(&mut Disk)) -> Option<Finding> {
        let mut disk = Disk { aio: "io_uring".into(), ..live_disk(details) };
        change(&mut disk);
        live(&RULE, &disk)
    }

    #[test]
    fn each_condition_is_told_and_its_engine_exchanged() {
        let host = |kernel| HostSeen { kernel: Some(kernel), ..HostSeen::default() };
        let on = |kernel| found(Details { host: Some(host(kernel)).into(), ..Details::default() }, |_| ());
        assert!(on((5, 10)).unwrap().cause.contains("is older than Linux 5.13"));
        assert_eq!(on((5, 13)), None);
        let lvm = || Details { storage: "lvm".into(), format: "raw".into(), ..Details::default() };
        let device = |disk: &mut Disk| disk.place = Place { block_device: Some(true), ..Place::default() };
        assert_eq!(found(lvm(), device).unwrap().change.what, "Use aio=native.");
        let cached = |disk: &mut Disk| {
            device(disk);
            disk.cache = "writeback".into();
        };
        let change = found(lvm(), cached).unwrap().change;
        assert!(change.what == "Use aio=native, with cache=none." && change.qemu.contains("cache=none"), "{change:?}");
        assert_eq!(found(lvm(), |_| ()).unwrap().change.what, "Use aio=threads.");
        assert_eq!(found(lvm(), |disk| disk.aio = "native".into()), None);
    }

    /// QEMU 7.1.0 hung in an I/O thread, not in its main loop.
    #[test]
    fn what_hangs_in_an_io_thread_alone_is_told_there() {
        let qemu = |version: &str, iothread| {
            let details = Details { hypervisor: Some(version.to_owned()).into(), ..Details::default() };
            found(details, |disk| disk.iothread = Some(iothread).into()).is_some()
        };
        assert_eq!((qemu("QEMU 7.1.0", true), qemu("QEMU 7.1.0", false)), (true, false));
        assert!(!qemu("QEMU 7.2.22", true));
        // It would not have started with it.
        assert!(!qemu("QEMU 4.2.1", true));
    }
}
