//! A real libvirt daemon with a guest under TCG, as `scan` sees it. Its files lie in tmpfs, in mount, network and
//! process namespaces that end with the test.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use vmio_look::{HostView, scan};
use vmio_model::facts::{Overridden, PlacedThread, Setting};
use vmio_model::result::Accel;
use vmio_model::rules;
use vmio_node::{Exec, Local, Node};
use vmio_testbed::libvirt::{self, Libvirtd};
use vmio_testbed::must_be_root;
use vmio_testbed::process::in_namespaces;

/// Set for the test's child process in the namespaces.
const INSIDE: &str = "VMIO_TEST_IN_NAMESPACES";

/// With planted faults: IDE, the host's page cache, an emulated network card.
const DOMAIN: &str = r#"<domain type='qemu'>
  <name>shop &amp; "co"</name>
  <uuid>4f1d8a52-6b1c-4a7e-9d0f-7c7f0b9d5a11</uuid>
  <title>shop front</title>
  <metadata>
    <libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0">
      <libosinfo:os id="http://microsoft.com/win/10"/>
    </libosinfo:libosinfo>
  </metadata>
  <memory unit='MiB'>64</memory>
  <vcpu cpuset='0'>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='writeback'/>
      <source file='/var/lib/libvirt/images/a.qcow2'/><target dev='vda' bus='virtio'/>
      <iotune><total_iops_sec>500</total_iops_sec></iotune>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/var/lib/libvirt/images/b.raw'/><target dev='hda' bus='ide'/>
    </disk>
    <interface type='user'><mac address='52:54:00:00:00:07'/><model type='e1000'/></interface>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>"#;

#[test]
#[ignore = "root"]
fn a_guest_of_a_real_daemon() {
    must_be_root();
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let output = in_namespaces()
        .args(["--ignored", "--exact", "root_libvirt::a_guest_of_a_real_daemon", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare (util-linux) is installed");
    let said = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    assert!(output.status.success(), "{}\n{}", said[0], said[1]);
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Local::new().exec(&Exec::new(program).args(args.iter().copied())).unwrap();
    assert!(output.ok(), "{program} {args:?}: {}\n{}", output.err(), libvirt::log());
    output.out()
}

fn inside() {
    run("sh", &["-c", libvirt::HIDE]);
    let images = "/var/lib/libvirt/images";
    std::fs::create_dir_all(images).unwrap();
    run("qemu-img", &["create", "-q", "-f", "qcow2", &format!("{images}/a.qcow2"), "64M"]);
    run("qemu-img", &["create", "-q", "-f", "raw", &format!("{images}/b.raw"), "16M"]);

    let look = |monitor| {
        let node = Local::new();
        let mut look = HostView::new(&node);
        look.monitor = monitor;
        scan::scan(&look)
    };
    assert_eq!(look(false).guests, [], "no other guest is in these namespaces");

    let daemon = Libvirtd::start();
    let virsh = |args: &[&str]| run("virsh", &[&["--quiet", "--connect", "qemu:///system"], args].concat());
    placeholders_are_refused();
    let domain = "/etc/libvirt/domain.xml";
    std::fs::write(domain, DOMAIN).unwrap();
    virsh(&["define", domain]);
    let name = "shop & \"co\"";
    virsh(&["start", name]);
    // Configured, and not in force before the next start.
    let better = DOMAIN.replace("cache='writeback'", "cache='none'").replace("cpuset='0'>1<", "cpuset='0'>2<");
    std::fs::write(domain, better).unwrap();
    virsh(&["define", domain]);

    let found = look(false);
    assert_eq!(found.unread, []);
    let [guest] = &found.guests[..] else { panic!("{:?}", found.guests) };
    assert_eq!((guest.name.as_str(), guest.kind.as_str(), guest.manager.as_deref()), (name, "qemu", Some("libvirt")));
    assert_eq!((guest.ids["domain"].as_str(), guest.ids["title"].as_str()), (name, "shop front"));
    assert_eq!(guest.os.as_deref(), Some("windows"));
    // The pid file has another name (`&amp;`): the guest is found by its UUID.
    let record = || std::fs::read_to_string(format!("/run/libvirt/qemu/{name}.xml")).unwrap();
    assert!(record().contains(&format!("pid='{}'", guest.pid.unwrap())), "{:?}", guest.pid);
    assert_eq!(virsh(&["domuuid", name]).trim(), guest.uuid.as_deref().unwrap());

    assert_eq!(guest.disks.len(), 2);
    let disk = |target: &str| guest.disks.iter().find(|d| d.place.target.as_deref() == Some(target)).unwrap();
    let (vda, hda) = (disk("vda"), disk("hda"));
    assert_eq!((vda.driver.as_deref(), hda.driver.as_deref()), (Some("virtio-blk"), Some("ide")));
    assert_eq!((vda.cache.as_deref(), hda.cache.as_deref()), (Some("writeback"), Some("writeback")));
    assert_eq!((vda.aio.as_deref(), vda.details.format.as_deref()), (Some("threads"), Some("qcow2")));
    assert_eq!(vda.place.domain.as_deref(), Some(name));
    assert_eq!(vda.place.source.as_deref(), Some("/var/lib/libvirt/images/a.qcow2"));
    assert_eq!(vda.place.device_id.as_deref(), Some("virtio-disk0"));
    assert_eq!(vda.details.virtual_bytes, Some(64 << 20));
    assert_eq!(vda.details.limits.len(), 1, "{:?}", vda.details.limits);
    let waits = |setting: Setting, asked: &str, found: &str| Overridden {
        setting,
        asked: asked.into(),
        found: found.into(),
        why: None,
    };
    assert_eq!(vda.details.overridden, [waits(Setting::Cache, "none", "writeback")]);
    assert_eq!(hda.details.overridden, []);

    let nic = &guest.nics[0];
    assert_eq!((nic.model.as_deref(), nic.backend.as_deref(), *nic.windows), (Some("e1000"), Some("user"), Some(true)));
    assert_eq!(nic.place.target.as_deref(), Some("52:54:00:00:00:07"));
    assert_eq!(nic.place.domain.as_deref(), Some(name));
    let processors = guest.processors.as_ref().unwrap();
    assert_eq!((*processors.vcpus, *processors.accel), (Some(1), Some(Accel::Tcg)));
    assert_eq!(processors.place.domain.as_deref(), Some(name));
    assert_eq!(processors.overridden, [waits(Setting::Vcpus, "2", "1")]);
    // All threads are bound to one processor, also the monitor's, which serves no disk.
    let comm = |tid: u32| std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", guest.pid.unwrap())).unwrap();
    let monitors: Vec<&PlacedThread> =
        processors.threads.iter().filter(|t| comm(t.tid).trim() == "IO mon_iothread").collect();
    assert_eq!(monitors.iter().map(|t| (&*t.role, &t.cpus[..])).collect::<Vec<_>>(), [("other", &[0][..])]);
    let rules: Vec<String> = rules::findings(&guest.facts()).into_iter().map(|f| f.rule).collect();
    assert!(!rules.contains(&"iothread-on-vcpu-core".to_owned()), "{rules:?}");

    // With permission to query the monitor the result is the same, and no query left a taint.
    assert_eq!(look(true).guests[0].disks[0].cache, vda.cache);
    assert!(!record().contains("custom-monitor"), "libvirt marks the guest");

    // The printed commands remove a limit with a burst, now and for the next start.
    let burst = "--total-iops-sec 0 --read-iops-sec 100 --read-iops-sec-max 200 --read-iops-sec-max-length 3";
    virsh(
        &[&["blkdeviotune", name, "vda", "--live", "--config"], &burst.split(' ').collect::<Vec<&str>>()[..]].concat(),
    );
    let limit = |guests: &[vmio_model::facts::Guest]| {
        rules::findings(&guests[0].facts()).into_iter().find(|f| f.rule == "limit-in-force")
    };
    let found = limit(&look(false).guests).unwrap();
    assert!(found.cause.contains("100 read IOPS"), "{}", found.cause);
    run("sh", &["-ec", &found.change.libvirt]);
    assert_eq!(limit(&look(false).guests), None);
    assert!(!virsh(&["dumpxml", "--inactive", name]).contains("iotune"), "it comes back at the next start");

    moved_as_printed();

    // A guest that ends during a scan is no error.
    virsh(&["destroy", name]);
    assert_eq!(look(false).guests, []);
    drop(daemon);
    // A socket without a daemon is reported.
    let left = look(false);
    assert!(left.unread.iter().any(|u| u.what.contains("qemu:///system")), "{:?}", left.unread);
}

/// The printed element has placeholders for the reader's own disk: libvirt refuses the domain as long as one is left.
fn placeholders_are_refused() {
    let element = rules::change::libvirt(&rules::change::recommended());
    let (threads, disk) = element.split_once("\n").unwrap();
    let defined = |disk: &str| {
        let file = "/etc/libvirt/placeholder.xml";
        let xml = format!(
            "<domain type='qemu'><name>own</name><memory unit='MiB'>64</memory>{threads}<os><type arch='x86_64' \
             machine='pc'>hvm</type></os><devices>{disk}</devices></domain>"
        );
        std::fs::write(file, xml).unwrap();
        let out = Command::new("virsh").args(["--connect", "qemu:///system", "define", file]).output().unwrap();
        String::from_utf8_lossy(&if out.status.success() { out.stdout } else { out.stderr }).into_owned()
    };
    let own = |from: &[&str], disk: &str| {
        let all = [("'KIND'", "'file'"), ("'FORMAT'", "'qcow2'"), ("SOURCE='OWN'", "file='/a.qcow2'")];
        let mine = all.iter().filter(|(what, _)| from.contains(what));
        mine.fold(disk.to_owned(), |text, (what, with)| text.replace(what, with))
    };
    let refused = [
        (&[][..], "'type' in element 'disk': 'KIND'"),
        (&["'KIND'"], "unknown driver format value 'FORMAT'"),
        (&["'FORMAT'", "SOURCE='OWN'"], "'type' in element 'disk': 'KIND'"),
        (&["'KIND'", "SOURCE='OWN'"], "unknown driver format value 'FORMAT'"),
        (&["'KIND'", "'FORMAT'"], "missing source information"),
    ];
    for (from, why) in refused {
        let said = defined(&own(from, disk));
        assert!(said.contains(why), "{from:?}: {said}");
    }
    let said = defined(&own(&["'KIND'", "'FORMAT'", "SOURCE='OWN'"], disk));
    assert!(said.contains("defined"), "{said}");
    run("virsh", &["--connect", "qemu:///system", "undefine", "own"]);
}

const MOVED: &str = "5f1d8a52-6b1c-4a7e-9d0f-7c7f0b9d5a12";

/// A system disk on IDE beside a virtio disk, with all changes as one. After the next start they are in force and the
/// guest boots from the same disk.
fn moved_as_printed() {
    let images = "/var/lib/libvirt/images";
    for (name, size) in [("system", "300G"), ("data", "1M")] {
        run("qemu-img", &["create", "-q", "-f", "qcow2", &format!("{images}/{name}.qcow2"), size]);
    }
    let disk = |name: &str, driver: &str, target: &str| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='qcow2'{driver}<source file='{images}/{name}.qcow2'/>\
             {target}</disk>"
        )
    };
    let domain = |top: &str, boot: &str, system: String| {
        let file = "/etc/libvirt/moved.xml";
        let data = disk("data", " cache='none'/>", "<target dev='vda' bus='virtio'/>");
        let xml = format!(
            "<domain type='qemu'><name>moved</name><uuid>{MOVED}</uuid><memory unit='MiB'>64</memory>{top}<os><type arch='x86_64' \
             machine='pc'>hvm</type>{boot}</os><devices>{system}{data}<controller type='usb' model='none'/>\
             <memballoon model='none'/></devices></domain>"
        );
        std::fs::write(file, xml).unwrap();
        run("virsh", &["define", file]);
        run("virsh", &["start", "moved"]);
        let node = Local::new();
        let found = scan::scan(&HostView::new(&node)).guests;
        let guest = found.into_iter().find(|g| g.name == "moved").unwrap();
        run("virsh", &["destroy", "moved"]);
        guest
    };
    let before =
        domain("", "<boot dev='hd'/>", disk("system", " cache='writeback'/>", "<target dev='hda' bus='ide'/>"));
    let findings = rules::findings(&before.facts());
    let all = rules::change::together(&before, &findings);
    let all = all.iter().find(|t| t.subject.device_name() == "hda").unwrap_or_else(|| panic!("{findings:#?}"));
    for rule in ["emulated-driver", "qcow2-l2-cache", "host-page-cache"] {
        assert!(all.rules.contains(&rule.to_owned()), "{:?}", all.rules);
    }
    let text = all.change.libvirt.replace("'N'", "'1'").replace(">N<", ">1<");
    let line =
        |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("no {start}: {text}"));
    let driver = format!(" {}>{}</driver>", line("cache="), line("<metadata_cache>"));
    let target = format!("{}{}", line("<target"), line("<boot order="));
    assert!(target.contains("dev='vdb'"), "{target}");
    let after = domain(line("<iothreads>"), "", disk("system", &driver, &target));
    let left: Vec<String> = rules::findings(&after.facts())
        .into_iter()
        .filter(|f| f.subject.within() == "disk vdb" && all.rules.contains(&f.rule))
        .map(|f| format!("{}: {}", f.rule, f.cause))
        .collect();
    assert_eq!(left, [] as [&str; 0]);
    let started = run("virsh", &["domxml-to-native", "qemu-argv", "--domain", "moved"]);
    let boots: Vec<&str> = started.split(' ').filter(|word| word.contains("bootindex")).collect();
    // The data disk comes first in libvirt's order of names, and would have been booted from.
    assert!(boots.len() == 1 && boots[0].contains("virtio-disk1"), "{boots:?}");
    run("virsh", &["undefine", "moved"]);
}
