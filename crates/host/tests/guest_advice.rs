//! What findings print for the monitor of a QEMU that runs is pasted into a shell as it is printed: QEMU takes
//! it, however its disks were named, and the fault is gone.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use vmio_host::guests;
use vmio_host::look::Look;
use vmio_model::facts::Guest;
use vmio_model::rules::{Finding, change, findings};
use vmio_node::Local;

/// A QEMU of the test's own, ended with it.
struct Qemu {
    child: Child,
    dir: tempfile::TempDir,
}

impl Qemu {
    /// With a raw disk and a chain of qcow2 images, in a directory whose name a shell could stumble over.
    fn start(options: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("a, 'b' ").tempdir().unwrap();
        let images = "qemu-img create -q -f raw a.raw 4M && qemu-img create -q -f qcow2 base.qcow2 4M && qemu-img create \
                      -q -f qcow2 -b base.qcow2 -F qcow2 mid.qcow2 && qemu-img create -q -f qcow2 -b mid.qcow2 -F \
                      qcow2 top.qcow2";
        let made = Command::new("sh").args(["-c", images]).current_dir(&dir).status().unwrap();
        assert!(made.success());
        let socket = dir.path().join("q").display().to_string().replace(',', ",,");
        let child = Command::new("qemu-system-x86_64")
            .args("-accel tcg -S -display none -nodefaults -m 64 -name advice,debug-threads=on".split(' '))
            .args(["-qmp", &format!("unix:{socket},server=on,wait=off")])
            .args(options.split(' '))
            .current_dir(&dir)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut qemu = Self { child, dir };
        qemu.until("a monitor", |qemu| {
            assert!(qemu.child.try_wait().unwrap().is_none(), "QEMU refused {options}");
            qemu.found(true).is_some_and(|guest| guest.version.is_some())
        });
        qemu
    }

    fn until(&mut self, what: &str, mut there: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !there(self) {
            assert!(start.elapsed() < Duration::from_secs(180), "no {what}: {:#?}", self.found(true));
            std::thread::sleep(Duration::from_millis(400));
        }
    }

    /// The guest by its command line, or also by what its monitor says.
    fn look(&self, ask: bool) -> Guest {
        self.found(ask).unwrap()
    }

    /// [`Self::look`], `None` while it begins.
    fn found(&self, ask: bool) -> Option<Guest> {
        let node = Local::new();
        let look = Look::new(&node);
        let kind = guests::find("qemu").unwrap();
        let mut guest = kind.running(&look).guests.into_iter().find(|g| g.pid == Some(self.child.id()))?;
        if ask {
            kind.ask(&look, &mut guest);
        }
        Some(guest)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn of(guest: &Guest, rule: &str) -> Option<Finding> {
    findings(&guest.facts()).into_iter().find(|f| f.rule == rule)
}

/// Pastes what a finding prints, with the keys of the command line left out, which are for the next start.
fn paste(finding: &Finding, dir: &Path) {
    let text = finding.change.qemu.split("\n# from the next start on").next().unwrap();
    let out = Command::new("sh").args(["-c", text]).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && out.stderr.is_empty(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(!said.contains("\"error\"") && said.matches("\"return\"").count() == 2, "{text}\n{said}");
}

fn applied(qemu: Qemu, rule: &str) {
    let mut qemu = qemu;
    let of_line = of(&qemu.look(false), rule);
    // On a busy machine a monitor may be late, and is let go then.
    let mut asked = None;
    qemu.until(rule, |qemu| {
        asked = of(&qemu.look(true), rule);
        asked.is_some()
    });
    let asked = asked.unwrap();
    let dir = qemu.dir.path().to_owned();
    paste(&asked, &dir);
    qemu.until("end of the fault", |qemu| {
        let guest = qemu.look(true);
        guest.version.is_some() && of(&guest, rule).is_none()
    });
    // The command line alone knows enough, too.
    if let Some(finding) = of_line {
        assert!(finding.change.qemu.contains("socat"), "{}", finding.change.qemu);
        paste(&finding, &dir);
    }
}

#[test]
#[ignore = "guest: needs QEMU and socat"]
fn limits_are_taken_away_by_what_is_pasted() {
    let nodes = "-blockdev driver=file,filename=a.raw,node-name=f0 -blockdev driver=raw,file=f0,node-name=n0";
    let group = "-object throttle-group,id=g0,x-iops-total=100,x-iops-total-max=200,x-iops-total-max-length=5 \
                 -blockdev driver=file,filename=a.raw,node-name=f0 -blockdev driver=raw,file=f0,node-name=n0 \
                 -blockdev driver=throttle,throttle-group=g0,file=n0,node-name=t0";
    let given = [
        "-drive file=a.raw,format=raw,if=none,id=d0,iops=100 -device virtio-blk-pci,drive=d0,id=vd0",
        "-drive file=a.raw,format=raw,if=none,id=drive-virtio0,throttling.bps-read=9000000,throttling.bps-read-max=99000000 \
         -device virtio-blk-pci,drive=drive-virtio0",
        "-machine pc -drive file=a.raw,format=raw,bps_wr=5000000",
        &format!("{group} -device virtio-blk-pci,drive=t0,id=vd0"),
        &format!("{group} -device virtio-scsi-pci -device scsi-hd,drive=t0"),
    ];
    // Set while it runs, on devices that only their paths name.
    let set_later = [
        ("virtio-blk-pci,drive=n0", "/machine/peripheral-anon/device[0]/virtio-backend"),
        ("virtio-blk-pci,drive=n0,id=vd0", "/machine/peripheral/vd0/virtio-backend"),
        ("nvme,drive=n0,serial=s", "/machine/peripheral-anon/device[0]"),
    ];
    let later = |(device, path): (&str, &str)| {
        let qemu = Qemu::start(&format!("{nodes} -device {device}"));
        let read = qemu.look(false).disks[0].place.clone();
        assert_eq!((read.qom.as_deref(), read.drive), (Some(path), None));
        let limits = json!({"id": path, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 70, "iops_wr": 0});
        let set = change::qmp(&read.monitor.unwrap(), "block_set_io_throttle", &limits);
        assert!(Command::new("sh").args(["-c", &set]).stdout(Stdio::null()).status().unwrap().success());
        applied(qemu, "limit-in-force");
    };
    // Each waits for seconds, and computes for none.
    std::thread::scope(|scope| {
        for options in given {
            scope.spawn(|| applied(Qemu::start(options), "limit-in-force"));
        }
        for device in set_later {
            scope.spawn(move || later(device));
        }
    });
}

#[test]
#[ignore = "guest: needs QEMU and socat"]
fn chains_are_flattened_by_what_is_pasted() {
    let nodes = "-blockdev driver=file,filename=top.qcow2,node-name=f0 -blockdev driver=qcow2,file=f0,node-name=n0";
    let given = [
        "-drive file=top.qcow2,format=qcow2,if=none,id=drive-virtio0 -device virtio-blk-pci,drive=drive-virtio0,id=virtio0",
        "-machine pc -hda top.qcow2",
        &format!("{nodes} -device virtio-blk-pci,drive=n0"),
        &format!(
            "-object throttle-group,id=g0 {nodes} -blockdev driver=throttle,throttle-group=g0,file=n0,node-name=t0 \
             -device virtio-scsi-pci,id=c0 -device scsi-hd,drive=t0,id=sd0"
        ),
    ];
    std::thread::scope(|scope| {
        for options in given {
            scope.spawn(|| applied(Qemu::start(options), "backing-chain"));
        }
    });
}
