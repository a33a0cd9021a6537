//! A made-up host with six guests: plain QEMU, libvirt, Proxmox, KubeVirt, Windows, a container;
//! with findings of every severity, and things that could not be read.

use vmio::report::scan::nagios::nagios;
use vmio::report::scan::{Row, View, detail, overview, prometheus};
use vmio::term::Style;
use vmio_model::facts::{
    Details, Disk, Fact, Guest, HostCpu, Nic, Overridden, Place, PlacedThread, Processors, Provenance, Remedy, Setting,
    Subject, Unread,
};
use vmio_model::result::Accel;
use vmio_model::rules::change::AppliesAt;
use vmio_model::rules::{Change, Evidence, Expected, Finding, Severity};

/// When the made-up host was looked at.
const AT: f64 = 1_795_252_743.0;

fn from(guest: &str, read_from: &str) -> Provenance {
    Provenance::Live { guest: guest.into(), read_from: read_from.into(), at_unix_seconds: AT }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A guest with one disk, one network device and processors.
fn guest(name: &str, manager: Option<&str>, read_from: &str, disk: [&str; 3], nic: &str, vcpus: u32) -> Guest {
    let place = Place {
        domain: manager.filter(|m| *m == "libvirt").map(|_| name.to_owned()),
        vmid: manager.filter(|m| *m == "proxmox").map(|_| name.to_owned()),
        source: Some(format!("/var/lib/images/{name}.img")).into(),
        ..Place::default()
    };
    let [driver, cache, aio] = disk.map(some);
    let from = from(name, read_from);
    Guest {
        name: name.into(),
        kind: "qemu".into(),
        manager: manager.map(Into::into),
        pid: Some(800 + vcpus),
        uuid: Some(format!("5f2b{vcpus:04}-7c11-4e0a-9d53-0242ac120002")),
        version: some("QEMU 7.2.22"),
        disks: vec![Disk {
            driver: driver.into(),
            cache: cache.into(),
            aio: aio.into(),
            iothread: Some(false).into(),
            details: Details {
                storage: some("file").into(),
                format: some("qcow2").into(),
                virtual_bytes: Some(20 << 30).into(),
                allocated_bytes: Some(7 << 30).into(),
                ..Details::default()
            },
            place: place.clone(),
            ..Disk::unknown(Subject::disk(name, "vda"), from.clone())
        }],
        nics: vec![Nic {
            model: some(nic).into(),
            backend: some("tap").into(),
            interface: Some(format!("tap{vcpus}")).into(),
            bridge: some("br0").into(),
            vhost: Some(nic == "virtio-net").into(),
            mtu_bytes: Some(1500).into(),
            send_buffer_bytes: Some(i32::MAX as u64).into(),
            ..Nic::unknown(Subject::net(name, format!("tap{vcpus}")), from.clone())
        }],
        processors: Some(Processors {
            vcpus: Some(vcpus).into(),
            accel: Some(Accel::Kvm).into(),
            model: some("host").into(),
            memory_bytes: Some(4 << 30).into(),
            ..Processors::unknown(Subject::guest(name), from)
        }),
        ..Guest::default()
    }
}

/// A finding about a guest's first disk.
pub fn finding(guest: &Guest, rule: &str, title: &str, severity: Severity, change: Change) -> Finding {
    let disk = &guest.disks[0];
    let evidence = |setting: &str, value: &Option<String>| Evidence {
        setting: setting.into(),
        value: value.clone().unwrap_or_default(),
        from: disk.from.place(),
    };
    Finding {
        rule: rule.into(),
        title: title.into(),
        severity,
        subject: disk.subject.clone().into(),
        cause: "This is what the setting does, in a sentence.".into(),
        figures: Vec::new(),
        evidence: vec![evidence("driver", &disk.driver), evidence("cache", &disk.cache)],
        unpaid: Vec::new(),
        expected: None,
        change,
        by_manager: None,
        references: vec!["shafer2010, section 3.3".into()],
        cost_ratio: None,
        proof: None,
        of_host: false,
    }
}

/// A change in the three ways; the rules' own texts are theirs to alter.
fn change(what: &str, takes: AppliesAt) -> Change {
    Change {
        what: what.into(),
        qemu: "-object iothread,id=iothread0 \\\n-drive file=/dev/DISK,format=raw,if=none,id=disk0,cache=none,aio=native,discard=unmap,detect-zeroes=unmap \\\n\
               -device virtio-blk-pci,drive=disk0,iothread=iothread0"
            .into(),
        libvirt: "<iothreads>1</iothreads>  <!-- directly below <domain> -->\n\
                  <disk type='block' device='disk'>\n  <driver name='qemu' type='raw' cache='none' io='native'/>\n</disk>"
            .into(),
        proxmox: "qm set VMID --virtio0 STORAGE:VOLUME,cache=none    # with the guest shut down".into(),
        takes,
        sets: None,
    }
}

fn virtio() -> Change {
    change("Attach the disk by virtio-blk.", AppliesAt::NextStart)
}

fn row(guest: Guest, findings: Vec<Finding>) -> Row {
    Row { guest, findings, differences: Vec::new() }
}

/// The host.
pub fn view() -> View {
    let plain = guest("bare", None, "/proc/802/cmdline", ["lsi53c895a", "writeback", "threads"], "e1000", 2);
    let mut emulated = finding(&plain, "emulated-driver", "Emulated disk controller", Severity::Severe, virtio());
    emulated.expected = Some(Expected {
        text: "4 KiB random reads at depth 32 were 9.4 times faster by virtio-blk".into(),
        times: Some(9.4),
        source: "run 12 on this host, 2026-11-21".into(),
    });
    let sparse = finding(
        &plain,
        "sparse-file",
        "Disk in a sparse file",
        Severity::Advice,
        change("Give the disk its blocks before it is used.", AppliesAt::ShutDown),
    );

    let mut web =
        guest("web1", Some("libvirt"), "virsh dumpxml web1", ["virtio-scsi", "none", "native"], "virtio-net", 4);
    web.disks.push(Disk {
        driver: some("virtio-scsi").into(),
        ..Disk::unknown(Subject::disk("web1", "sdb"), from("web1", "virsh dumpxml web1"))
    });
    web.disks[0].details.overridden =
        vec![Overridden { setting: Setting::Aio, asked: "io_uring".into(), found: "native".into(), why: None }];
    web.disks[0].cache = Fact::read(web.disks[0].cache.value().clone(), "/proc/804/cmdline, -blockdev");
    let processors = web.processors.as_mut().unwrap();
    processors.host = (0..8).map(|cpu| HostCpu { cpu, core: cpu, package: 0, node: 0 }).collect();
    processors.threads = (0..4)
        .map(|n| PlacedThread { role: "vcpu".into(), name: n.to_string(), tid: 900 + n, cpus: vec![2, 3] })
        .collect();
    let shared = Finding {
        change: Change { takes: AppliesAt::Running, ..virtio() },
        ..finding(&web, "setting-overridden", "A setting is not in force", Severity::Warning, virtio())
    };

    let mut pve = guest(
        "101",
        Some("proxmox"),
        "/etc/pve/qemu-server/101.conf",
        ["virtio-scsi", "none", "io_uring"],
        "virtio-net",
        8,
    );
    pve.ids.insert("title".into(), "mail".into());
    pve.ids.insert("vmid".into(), "101".into());
    let no_discard = finding(
        &pve,
        "no-discard",
        "Discards are not passed on",
        Severity::Advice,
        change("Pass discards on.", AppliesAt::NextStart),
    );

    let mut kube =
        guest("pay-7", Some("kubevirt"), "virt-launcher's domain", ["virtio-blk", "none", "threads"], "virtio-net", 1);
    kube.ids.insert("pod".into(), "virt-launcher-pay-7-x2x9l".into());
    let note = finding(&kube, "cache-aio-pair", "Cache mode and AIO engine do not match", Severity::Note, virtio());

    let mut windows =
        guest("files-2022", Some("libvirt"), "virsh dumpxml files-2022", ["ahci", "none", "native"], "e1000e", 6);
    windows.os = some("windows");
    windows.unread.push(Unread {
        what: "format of /var/lib/images/files-2022.img".into(),
        why: "permission denied".into(),
        mend: Remedy::Root,
    });
    let windows_finding = finding(&windows, "emulated-driver", "Emulated disk controller", Severity::Advice, virtio());

    let container = Guest {
        name: "builder".into(),
        kind: "container".into(),
        pid: Some(4711),
        unread: vec![Unread {
            what: "control group of builder".into(),
            why: "permission denied".into(),
            mend: Remedy::Root,
        }],
        ..Guest::default()
    };

    let mut first = row(plain, vec![emulated, sparse]);
    first.differences = vec!["driver: lsi53c895a, the reference has virtio-blk".into()];
    View {
        at_unix_seconds: AT,
        seconds: 0.412,
        on: None,
        root: false,
        rows: vec![
            row(kube, vec![note]),
            row(pve, vec![no_discard]),
            row(container, Vec::new()),
            row(web, vec![shared]),
            row(windows, vec![windows_finding]),
            first,
        ],
        unread: vec![Unread {
            what: "monitor /run/web9.qmp".into(),
            why: "another program holds it".into(),
            mend: "close the other program's connection".into(),
        }],
        own_guests: 1,
        ignored: 2,
        ignored_by: vec![("--ignore".into(), 2)],
        diff: None,
    }
    .sorted()
}

/// What is printed of it, by the files of `tests/fixtures/scan`; `web1` with where each setting was read.
pub fn golden(view: &View) -> Vec<(String, String)> {
    let mut all = vec![("scan.prom".to_owned(), prometheus(view)), ("nagios.txt".to_owned(), nagios(view, None).0)];
    all.extend([80, 120].map(|width| (format!("scan-{width}.txt"), overview(view, Style::PLAIN, width))));
    all.extend(view.rows.iter().map(|row| {
        let name = &row.guest.name;
        (format!("{name}.txt"), detail(row, Style::PLAIN, name == "web1"))
    }));
    all
}
