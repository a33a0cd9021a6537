//! Commands that findings print for a running QEMU's monitor are pasted into a shell as printed: QEMU accepts them,
//! whatever its disks' names, and the finding is gone.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use vmio_look::HostView;
use vmio_look::kinds;
use vmio_model::facts::{Guest, Nic};
use vmio_model::rules::{Finding, change, findings};
use vmio_node::Local;
use vmio_testbed::poll_for;

/// A QEMU of the test's own, ended with it.
struct Qemu {
    child: Child,
    dir: tempfile::TempDir,
}

impl Qemu {
    /// With a raw disk and a chain of qcow2 images, in a directory whose name needs quoting in a shell.
    fn start(options: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("a, 'b' ").tempdir().unwrap();
        let images = "qemu-img create -q -f raw a.raw 4M && cp a.raw 'my, disk.raw' && qemu-img create -q -f qcow2 base.qcow2 4M && qemu-img create \
                      -q -f qcow2 -b base.qcow2 -F qcow2 mid.qcow2 && qemu-img create -q -f qcow2 -b mid.qcow2 -F \
                      qcow2 top.qcow2";
        let made = Command::new("sh").args(["-c", images]).current_dir(&dir).status().unwrap();
        assert!(made.success());
        let socket = dir.path().join("q").display().to_string().replace(',', ",,");
        let child = Command::new("qemu-system-x86_64")
            .args("-accel tcg -S -display none -m 64 -name advice,debug-threads=on".split(' '))
            .args(["-qmp", &format!("unix:{socket},server=on,wait=off")])
            .args(words(options))
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
        poll_for(what, || {
            // Queries without a pause would keep the monitor from its work.
            std::thread::sleep(Duration::from_millis(100));
            if there(self) { Ok(()) } else { Err(Box::new(self.found(true))) }
        });
    }

    /// The guest by its command line, with `ask` also by its monitor.
    fn look(&self, ask: bool) -> Guest {
        self.found(ask).unwrap()
    }

    /// [`Self::look`]; `None` while it starts.
    fn found(&self, ask: bool) -> Option<Guest> {
        let node = Local::new();
        let look = HostView::new(&node);
        let kind = kinds::find("qemu").unwrap();
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

/// Words as a shell splits them.
fn words(options: &str) -> Vec<String> {
    let out = Command::new("sh").args(["-c", &format!("printf '%s\\0' {options}")]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

fn of(guest: &Guest, rule: &str) -> Option<Finding> {
    findings(&guest.facts()).into_iter().find(|f| f.rule == rule)
}

/// Pastes what a finding prints, without the keys of the command line, which are for the next start.
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
    // On a busy machine a monitor may be late, and the scan gives up.
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
    // The command line alone is enough, too.
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
        "-nodefaults -drive file=a.raw,format=raw,if=none,id=d0,iops=100 -device virtio-blk-pci,drive=d0,id=vd0",
        "-nodefaults -drive file=a.raw,format=raw,if=none,id=drive-virtio0,throttling.bps-read=9000000,throttling.bps-read-max=99000000 \
         -device virtio-blk-pci,drive=drive-virtio0",
        "-machine pc -drive file=a.raw,format=raw,bps_wr=5000000",
        &format!("{group} -device virtio-blk-pci,drive=t0,id=vd0"),
        &format!("{group} -device virtio-scsi-pci -device scsi-hd,drive=t0"),
    ];
    // Set while it runs, on devices known by their paths only.
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
    // They wait most of their time, so they run at once.
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

/// The options as a finding changes them. Keys go into the named option; new options replace the named ones.
fn edited(options: &str, text: &str) -> String {
    let mut all = words(options);
    let mut said = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            said = line.to_owned();
        } else if line.starts_with('-') {
            let mut new = line.to_owned();
            while let Some(more) = new.strip_suffix('\\') {
                new = format!("{more}{}", lines.next().unwrap());
            }
            if said.contains("the image without an option") {
                all.retain(|word| word != "a.raw");
            }
            for name in ["-hda", "-hdb", "-nic", "-net"].into_iter().filter(|n| said.contains(&format!("{n} "))) {
                while let Some(at) = all.iter().position(|word| word == name) {
                    all.drain(at..at + 2);
                }
            }
            all.extend(words(&new));
        } else {
            let name = said.split("in its own ").nth(1).unwrap().split([':', ' ']).next().unwrap();
            let at = all.iter().position(|word| word == name).unwrap() + 1;
            let keys: Vec<&str> = line.split(',').map(|key| key.split('=').next().unwrap()).collect();
            let kept = all[at].split(',').filter(|key| !keys.contains(&key.split('=').next().unwrap()));
            all[at] = kept.chain([line]).collect::<Vec<&str>>().join(",");
        }
    }
    all.iter().map(|word| change::shell(word)).collect::<Vec<String>>().join(" ")
}

/// Settings by other options than `-drive` and `-device`, or by none.
#[test]
#[ignore = "guest: needs QEMU"]
fn what_old_options_give_is_changed_where_it_is_given() {
    let tap = |name: &str| format!("tap,ifname={name},script=no,downscript=no");
    let cases = [
        ("-nodefaults -machine pc -hda a.raw".to_owned(), "emulated-driver"),
        ("-nodefaults -machine q35 -hdb 'my, disk.raw'".to_owned(), "emulated-driver"),
        ("-nodefaults -machine q35 a.raw".to_owned(), "emulated-driver"),
        ("-nodefaults -machine pc a.raw".to_owned(), "host-page-cache"),
        ("-nodefaults -machine pc -drive file=a.raw".to_owned(), "emulated-driver"),
        ("-machine pc".to_owned(), "emulated-nic"),
        ("-nic user,model=e1000,mac=52:54:00:aa:bb:cc".to_owned(), "emulated-nic"),
        ("-net nic,model=rtl8139 -net user".to_owned(), "emulated-nic"),
        (format!("-nic {},model=e1000", tap("vmio-adv0")), "emulated-nic"),
        (format!("-net nic,model=pcnet -net {}", tap("vmio-adv1")), "emulated-nic"),
    ];
    std::thread::scope(|scope| {
        for (options, rule) in &cases {
            scope.spawn(move || given_otherwise(options, rule));
        }
    });
}

fn given_otherwise(options: &str, rule: &str) {
    let before = Qemu::start(options);
    let finding = of(&before.look(false), rule).unwrap_or_else(|| panic!("{options}: no {rule}"));
    let card = before.look(false).nics;
    drop(before);
    let after = edited(options, &finding.change.qemu);
    let guest = Qemu::start(&after).look(false);
    assert!(of(&guest, rule).is_none(), "{options}\n{}\n{after}", finding.change.qemu);
    // Nothing is lost.
    assert_eq!(guest.disks.len(), usize::from(rule != "emulated-nic"), "{after}");
    let of_card = |g: &[Nic]| {
        g.iter()
            .map(|n| (n.backend.value().clone(), n.interface.value().clone(), n.place.target.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_card(&guest.nics), of_card(&card), "{after}");
    if rule == "emulated-driver" {
        assert_eq!(guest.disks[0].iothread, Some(true), "{after}");
    }
    // The format is not stated, so no engine that suits only some formats is advised.
    let rules: Vec<String> = findings(&guest.facts()).into_iter().map(|f| f.rule).collect();
    assert!(
        !rules.contains(&"native-aio-that-waits".to_owned()) && !after.contains("aio=native"),
        "{after}: {rules:?}"
    );
}

/// Without PCI there are no ioeventfds under TCG: QEMU refuses such a device with an I/O thread.
#[test]
#[ignore = "guest: needs QEMU"]
fn microvm_is_not_told_what_it_would_not_start_with() {
    let nodes = "-blockdev driver=file,filename=a.raw,node-name=f0 -blockdev driver=raw,file=f0,node-name=n0";
    let microvm = Qemu::start(&format!("-machine microvm {nodes} -device virtio-blk-device,drive=n0"));
    for asked in [false, true] {
        let guest = microvm.look(asked);
        assert_eq!(guest.disks[0].details.transport.as_deref(), Some("mmio"));
        assert!(of(&guest, "missing-iothread").is_none());
        // It also has no default card.
        assert_eq!(guest.nics, []);
    }
    drop(microvm);
    // With PCI it has them, and a drive without a device is no disk.
    let pci = Qemu::start(&format!(
        "-machine microvm,pcie=on {nodes} -device virtio-blk-pci,drive=n0 -drive file=base.qcow2"
    ));
    let finding = of(&pci.look(true), "missing-iothread").unwrap();
    assert!(
        finding.change.qemu.ends_with("in its own -device: set these, keep all else\niothread=iothread-n0"),
        "{}",
        finding.change.qemu
    );
    assert_eq!(pci.look(false).disks.len(), 1);
}
