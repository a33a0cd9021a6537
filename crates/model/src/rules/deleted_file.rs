//! A file of the disk that was deleted, or replaced under its name, while the guest has it open. The kernel keeps it
//! until the last descriptor is closed (unlink(2)): the guest continues as if nothing were wrong, and its data are lost
//! when its process ends: at its shutdown, its crash, a migration, a restart of the host.
//!
//! The file can be copied out of `/proc/PID/fd`, but not as it is: QEMU keeps tables of a qcow2 image in memory, so a
//! copy may lack the last writes. A pause (`stop`) makes QEMU write them (softmmu/cpus.c, `do_vm_stop`:
//! `bdrv_drain_all`, `bdrv_flush_all`). After that the guest must not continue, or it would write to the old file.

use super::change::{AppliesAt, Change, Names, qmp, shell, thrown_away};
use super::{Check, Evidence, Finding, Need, Rule, Severity};
use crate::facts::{DeletedFile, Disk, Place};

pub(super) const RULE: Rule = Rule {
    id: "deleted-file",
    title: "The disk's file was deleted while the guest runs",
    needs: Need::Settings,
    severity: Severity::Severe,
    references: &[
        "https://man7.org/linux/man-pages/man2/unlink.2.html (the file stays while a process has it open)",
        "QEMU, docs/interop/qmp: stop",
    ],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    // QEMU itself deletes the name of a temporary image.
    let own = |file: &DeletedFile| thrown_away(disk) && disk.place.source.as_deref() == Some(file.path.as_str());
    let files: Vec<&DeletedFile> = disk.details.deleted.iter().filter(|file| !own(file)).collect();
    if files.is_empty() {
        return None;
    }
    let other = if files.iter().any(|file| file.replaced) { " or belongs to another file now" } else { "" };
    let cause = format!(
        "The guest has a file open whose name is gone{other}. It works on, and all that it wrote is lost when its \
         process ends: do not shut it down, restart or migrate it before the file is copied."
    );
    let mut finding = rule.advice(disk, &[], &cause, save(disk, &files));
    finding.evidence = files.iter().map(|file| evidence(file)).collect();
    Some(finding)
}

fn evidence(file: &DeletedFile) -> Evidence {
    let value = format!("{}{}", file.path, if file.replaced { " (another file now)" } else { " (deleted)" });
    Evidence { setting: "file".into(), value, from: format!("/proc/{}/fd/{}", file.pid, file.fd) }
}

/// Copies each file out of the process: to its own name where that is unused, else beside it.
fn save(disk: &Disk, files: &[&DeletedFile]) -> Change {
    let names = Names(&disk.place);
    let (domain, vmid) = (names.domain(), names.vmid());
    let (mut checks, mut copies, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let (open, path) = (format!("/proc/{}/fd/{}", file.pid, file.fd), shell(&file.path));
        let saved = shell(&format!("{}.saved", file.path));
        // The descriptor may be another file's by now, and no file may be overwritten.
        checks.push(format!(
            "[ \"$(readlink {open})\" = {} ] && [ ! -e {saved} ]",
            shell(&format!("{} (deleted)", file.path))
        ));
        copies.push(format!("cp --preserve=mode,ownership {open} {saved}"));
        if file.replaced {
            taken.push(format!(
                "# {} is another file now: the guest's is {};\n# put the right one there, and restart the guest: it \
                 stays paused",
                super::change::comment(&path),
                super::change::comment(&saved)
            ));
        } else {
            copies.push(format!("[ ! -e {path} ] && mv -n {saved} {path}"));
        }
    }
    let joined = |steps: Vec<String>| steps.join(" && \\\n");
    // Only with its file back under its own name may the guest be started.
    let again = |steps: &[String]| if taken.is_empty() { steps.to_vec() } else { Vec::new() };
    let tail = if taken.is_empty() { String::new() } else { format!("\n{}", taken.join("\n")) };
    let whole = |pause: &[String], start: &[String]| {
        let steps = [checks.clone(), pause.to_vec(), copies.clone(), again(start)].concat();
        format!("# run sync in the guest first; it needs as much space as the file takes\n{}{tail}", joined(steps))
    };
    let (pause, end) = qemu(&disk.place, files[0].pid);
    Change {
        what: "Run sync in the guest, pause it, copy the file out of its process, and restart it from the copy; what \
               it has in memory is lost as in a power failure."
            .into(),
        qemu: if taken.is_empty() {
            format!("{}\n# and start it as before", whole(&pause, &[end]))
        } else {
            whole(&pause, &[])
        },
        libvirt: whole(
            &[format!("virsh dominfo {domain} | grep -q '^Persistent: *yes'"), format!("virsh suspend {domain}")],
            &[format!("virsh destroy {domain}"), format!("virsh start {domain}")],
        ),
        proxmox: whole(&[format!("qm suspend {vmid}")], &[format!("qm stop {vmid}"), format!("qm start {vmid}")]),
        takes: AppliesAt::Running,
        sets: None,
    }
}

/// Commands that pause and end a QEMU: by its monitor, else by signals, after which a qcow2 image lacks writes that
/// were not flushed, as after a power failure.
fn qemu(place: &Place, pid: u32) -> (Vec<String>, String) {
    let Some(socket) = &place.monitor else {
        return (vec![format!("kill -STOP {pid}")], format!("kill -KILL {pid}"));
    };
    let none = serde_json::json!({});
    let paused = format!("{} | grep -q '\"running\": false'", qmp(socket, "query-status", &none));
    (vec![qmp(socket, "stop", &none), paused], qmp(socket, "quit", &none))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{DeletedFile, Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        let deleted = DeletedFile { path: "/images/a.raw".into(), pid: 812, fd: 31, replaced: false };
        settings(Details { deleted: vec![deleted].into(), ..Details::default() })
    }

    pub fn silent() -> Facts {
        settings(Details::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Facts};
    use crate::testing::live_disk;

    fn found(file: DeletedFile, source: &str, cache: &str) -> Vec<Finding> {
        let mut disk = live_disk(Details { deleted: vec![file].into(), ..Details::default() });
        disk.place.source = Some(source.into()).into();
        disk.place.domain = Some("db1".into());
        disk.cache = Some(cache.into()).into();
        RULE.check(&Facts { disks: vec![disk], ..Facts::default() })
    }

    fn file(path: &str, replaced: bool) -> DeletedFile {
        DeletedFile { path: path.into(), pid: 812, fd: 31, replaced }
    }

    #[test]
    fn nothing_is_overwritten_and_each_step_waits_for_the_one_before() {
        let change = &found(file("/i/it's", false), "/i/it's", "none")[0].change;
        for (text, steps) in [(&change.qemu, 4), (&change.libvirt, 6), (&change.proxmox, 5)] {
            assert!(text.contains("cp --preserve=mode,ownership /proc/812/fd/31 '/i/it'\\''s.saved'"), "{text}");
            assert!(text.contains("[ ! -e '/i/it'\\''s.saved' ]") && text.contains("mv -n "), "{text}");
            assert_eq!(text.matches(" && \\\n").count(), steps, "{text}");
        }
        let change = &found(file("/i/a", true), "/i/a", "none")[0].change;
        for text in [&change.qemu, &change.libvirt, &change.proxmox] {
            assert!(
                !text.contains("mv ")
                    && !text.contains("destroy")
                    && !text.contains("qm stop")
                    && !text.contains("KILL"),
                "{text}"
            );
            assert!(text.contains("\n# /i/a is another file now: the guest's is /i/a.saved;"), "{text}");
        }
    }

    #[test]
    fn what_qemu_throws_away_has_no_name_by_right() {
        assert_eq!(found(file("/var/tmp/vl.LZJGZ3", false), "/var/tmp/vl.LZJGZ3", "unsafe"), []);
        assert_eq!(found(file("/i/base", false), "/var/tmp/vl.LZJGZ3", "unsafe").len(), 1);
    }
}
