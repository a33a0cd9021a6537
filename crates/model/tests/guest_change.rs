//! QEMU accepts the options that findings print, and libvirt's schema the elements.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use vmio_model::cell::{Aio, Attachment, Cache, DetectZeroes, Options};
use vmio_model::facts::{CommandLineOption, Details, Disk, Fact, Nic, Place, Provenance, Subject};
use vmio_model::rules::Change;
use vmio_model::rules::change::{DiskChange, NicChange, own_disk, own_nic, recommended, settings};

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("vmio-change-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        Scratch(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts QEMU stopped with these options, split as by a shell, and has it quit.
fn qemu_takes(options: &str) {
    let out = Command::new("sh").args(["-c", &format!("printf '%s\\0' {options}")]).output().unwrap();
    let words = String::from_utf8(out.stdout).unwrap();
    qemu_says(words.split_terminator('\0'), "");
}

/// The monitor's replies of a QEMU started stopped with these options.
fn qemu_says<'a>(options: impl Iterator<Item = &'a str>, ask: &str) -> String {
    let options: Vec<&str> = options.collect();
    let mut qemu = Command::new("qemu-system-x86_64")
        .args("-machine q35,accel=tcg -display none -nodefaults -S -monitor stdio".split(' '))
        .args(&options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // QEMU may have refused and ended; its exit status and message are checked.
    let _ = qemu.stdin.take().unwrap().write_all(format!("{ask}\nquit\n").as_bytes());
    let out = qemu.wait_with_output().unwrap();
    assert!(out.status.success(), "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn from() -> Provenance {
    Provenance::Transcript { name: "change".into() }
}

/// A guest's disks, and the changes of each.
fn own_disks(file: &str) -> Vec<(Disk, DiskChange)> {
    let disk = |driver: &str, target: &str| Disk {
        driver: Some(driver.into()).into(),
        cache: "writeback".into(),
        aio: "threads".into(),
        iothread: Some(false).into(),
        details: Details { format: "raw".into(), ..Details::default() },
        place: Place {
            domain: Some("web1".into()),
            source: Some(file.into()).into(),
            target: Some(target.into()),
            device_id: Some("disk-7".into()),
            ..Place::default()
        },
        ..Disk::unknown(Subject::disk("web1", ""), from())
    };
    let threaded = |driver: &str| {
        let mut disk = Disk { iothread: Some(true).into(), ..disk(driver, "vdb") };
        disk.details.iothread_name = "iothread1".into();
        disk
    };
    let virtio = DiskChange { driver: Some("virtio-blk"), iothread: true, ..DiskChange::default() };
    let scsi = DiskChange { driver: Some("virtio-scsi"), ..DiskChange::default() };
    let thread = DiskChange { iothread: true, queues: Some(2), ..DiskChange::default() };
    let direct = DiskChange { cache: Some(Cache::None), discard: true, ..DiskChange::default() };
    vec![
        (disk("ahci", "sda"), DiskChange { cache: Some(Cache::None), ..virtio.clone() }),
        (disk("lsi53c895a", "sdc"), virtio),
        (disk("virtio-blk", "vda"), thread.clone()),
        (disk("virtio-scsi", "sda"), thread.clone()),
        (threaded("virtio-blk"), thread.clone()),
        (threaded("virtio-scsi"), thread),
        (threaded("virtio-blk"), scsi),
        (disk("virtio-blk", "vda"), direct.clone()),
        (Disk { cache: "writethrough".into(), ..disk("virtio-scsi", "sdb") }, direct),
    ]
}

/// The options of a guest with such a disk, its own device last.
fn options_of(disk: &Disk, nodes: bool) -> Vec<[String; 2]> {
    let file = disk.place.source.as_deref().unwrap().replace(',', ",,");
    let mut all: Vec<[String; 2]> = Vec::new();
    let mut say = |option: &str, value: String| all.push([option.to_owned(), value]);
    if nodes {
        say("-blockdev", format!("driver=file,node-name=f0,filename={file},locking=auto"));
        say("-blockdev", "driver=raw,node-name=d0,file=f0,detect-zeroes=on".to_owned());
    } else {
        let more = "throttling.iops-total=500,file.locking=auto,cache.direct=off";
        say("-drive", format!("file={file},format=raw,if=none,id=d0,cache=writeback,{more}"));
    }
    let thread = disk.details.iothread_name.as_deref().map(|id| format!(",iothread={id}")).unwrap_or_default();
    if !thread.is_empty() {
        say("-object", "iothread,id=iothread1".to_owned());
    }
    let own = match disk.driver.as_deref().unwrap() {
        "ahci" => {
            say("-device", "ahci,id=c0".to_owned());
            "ide-hd,bus=c0.0,unit=0,rotation_rate=1".to_owned()
        }
        "lsi53c895a" => {
            say("-device", "lsi53c895a,id=c0".to_owned());
            "scsi-hd,bus=c0.0,scsi-id=3,lun=0,wwn=0x5000c50015ea71ac".to_owned()
        }
        "virtio-scsi" => {
            say("-device", format!("virtio-scsi-pci,id=c0{thread}"));
            "scsi-hd,bus=c0.0,scsi-id=1".to_owned()
        }
        _ => format!("virtio-blk-pci,addr=0x5{thread}"),
    };
    let through = if disk.cache.as_deref() == Some("writethrough") { ",write-cache=off" } else { "" };
    say("-device", format!("{own},drive=d0,id=disk-7,serial=S-7,bootindex=1,share-rw=on{through}"));
    all
}

/// The options after the edits that a text describes.
fn edited(text: &str, mut options: Vec<[String; 2]>) -> Vec<[String; 2]> {
    let mut said = String::new();
    let mut new = Vec::new();
    let mut comment = false;
    for line in text.lines() {
        if line.starts_with('#') {
            said = if comment { format!("{said} {line}") } else { line.to_owned() };
            comment = true;
            continue;
        }
        comment = false;
        if let Some((option, value)) = line.split_once(' ').filter(|_| line.starts_with('-')) {
            assert!(said.contains("one more option"), "{said}");
            new.push([option.to_owned(), value.to_owned()]);
            continue;
        }
        // Keys to remove are named with their `=`; those after "keep" stay.
        let gone = said.split("; keep").next().unwrap().split([' ', ',', '(', ')']).filter_map(|w| w.strip_suffix('='));
        let gone: Vec<&str> = gone.collect();
        let own = options.iter().rposition(|[option, _]| option == "-device").unwrap_or(usize::MAX);
        let is = |at: usize, [option, value]: &[String; 2]| {
            if said.contains("its own -drive") {
                option == "-drive"
            } else if said.contains("each of its own -blockdev") {
                option == "-blockdev"
            } else if said.contains("that of driver file") {
                option == "-blockdev" && value.starts_with("driver=file")
            } else if said.contains("in its own -device") {
                at == own
            } else if said.contains("in the -device virtio-scsi-pci") {
                value.starts_with("virtio-scsi-pci")
            } else {
                panic!("{said} is nowhere")
            }
        };
        let model = said.contains("in place of its driver");
        let places: Vec<usize> = (0..options.len()).filter(|at| is(*at, &options[*at])).collect();
        assert!(!places.is_empty(), "{said}: {options:?}");
        for at in places {
            options[at][1] = keys_set(&options[at][1], line, &gone, model);
        }
    }
    new.extend(options);
    new
}

fn keys_set(value: &str, keys: &str, gone: &[&str], model: bool) -> String {
    let name = |key: &str| key.split('=').next().unwrap().to_owned();
    let set: Vec<String> = keys.split(',').map(name).collect();
    let stays = |key: &&str| {
        let name = name(key);
        let is_gone = gone.iter().any(|g| *g == name || g.strip_suffix('*').is_some_and(|p| name.starts_with(p)));
        !set.contains(&name) && !is_gone
    };
    // A comma in a value is doubled.
    let whole = value.replace(",,", "\u{1}");
    let kept = whole.split(',').skip(usize::from(model)).filter(stays);
    let parts: Vec<&str> = if model { [keys].into_iter().chain(kept).collect() } else { kept.chain([keys]).collect() };
    parts.join(",").replace('\u{1}', ",,")
}

#[test]
#[ignore = "guest: needs QEMU"]
fn qemu_takes_the_options_that_findings_print() {
    let disk = Scratch::new("study.raw");
    let attachment = |driver: &str, cache, aio| Attachment::new(driver, cache, aio);
    let options = |driver: &str| Attachment {
        driver: driver.into(),
        options: Options { queues: Some(2), discard: true, detect_zeroes: DetectZeroes::Unmap, ..Options::default() },
        ..recommended()
    };
    let all = [
        recommended(),
        Attachment { driver: "virtio-scsi".into(), ..recommended() },
        attachment("lsi53c895a", Cache::None, Aio::Native),
        attachment("ahci", Cache::Directsync, Aio::IoUring),
        attachment("nvme", Cache::None, Aio::Native),
        options("virtio-blk"),
        options("virtio-scsi"),
        attachment("virtio-blk", Cache::Writeback, Aio::Threads),
    ];
    for a in &all {
        let options = settings("x", a).qemu.replace("/dev/DISK", disk.text());
        qemu_takes(&options.replace("format=FORMAT", "format=raw"));
    }
    // The format of the reader's image is not known: raw would destroy a qcow2 image.
    let unknown = settings("x", &recommended()).qemu.replace("/dev/DISK", disk.text()).replace("\\\n", "");
    let out =
        Command::new("qemu-system-x86_64").args(["-S", "-display", "none"]).args(unknown.split_whitespace()).output();
    let words = String::from_utf8(out.unwrap().stderr).unwrap();
    assert!(words.contains("Unknown driver 'FORMAT'"), "{words}");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn qemu_takes_a_guests_own_disk_and_card_changed() {
    // A name with a comma, a space and a quote.
    let file = Scratch::new("web 1's, own.raw");
    for (disk, to) in own_disks(file.text()) {
        for nodes in [false, true] {
            let option = CommandLineOption::new(812, if nodes { "blockdev" } else { "drive" });
            let disk = Disk { iothread: Fact::read(*disk.iothread, option), ..disk.clone() };
            let options = edited(&own_disk("x", &disk, &to).qemu, options_of(&disk, nodes));
            let own = &options.last().unwrap()[1];
            assert!(
                ["drive=d0", "id=disk-7", "serial=S-7", "bootindex=1"].iter().all(|key| own.contains(key)),
                "{own}"
            );
            let said = qemu_says(options.iter().flatten().map(String::as_str), "info block\ninfo iothreads");
            let (threads, direct) = (said.matches("thread_id").count(), said.contains("writeback, direct"));
            let had = usize::from(disk.iothread == Some(true));
            assert_eq!((threads, direct), (had + usize::from(to.iothread), to.cache.is_some()), "{options:?}\n{said}");
        }
    }
    let place = Place { target: Some("52:54:00:12:34:56".into()), device_id: Some("net7".into()), ..Place::default() };
    let nic = Nic { place, ..Nic::unknown(Subject::net("web1", ""), from()) };
    let change = own_nic("x", &nic, NicChange { queues: Some(2), ..NicChange::default() }).qemu;
    // Without a bridge and root there is no tap; only the device's keys are tried.
    let keys = change.lines().last().unwrap();
    assert_eq!(keys, "mq=on,vectors=6");
    qemu_takes(&format!("-netdev hubport,hubid=0,id=hostnet0 -device virtio-net-pci,netdev=hostnet0,{keys}"));
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_disk_without_a_device_of_its_own_gets_one() {
    let file = Scratch::new("bare.raw");
    let place =
        Place { source: Some(file.text().into()).into(), device_id: Some("virtio0".into()), ..Place::default() };
    let driver = Fact::read(Some("virtio-blk".into()), CommandLineOption::new(812, "drive"));
    let disk = Disk { driver, place, ..Disk::unknown(Subject::disk("web1", ""), from()) };
    let change = own_disk("x", &disk, &DiskChange { iothread: true, ..DiskChange::default() });
    let drive = ["-drive".to_owned(), format!("file={},format=raw,if=virtio,index=0,snapshot=on", file.text())];
    let options = edited(&change.qemu, vec![drive]);
    let said = qemu_says(options.iter().flatten().map(String::as_str), "info block\ninfo iothreads");
    assert!(said.contains("thread_id") && said.contains("Backing file"), "{options:?}\n{said}");
}

/// Elements of a libvirt edit, by where they belong.
fn domain(disk: &Disk, change: &Change) -> String {
    let (mut top, mut own) = (String::new(), String::new());
    // Attributes follow the line that names their element.
    let (mut driver, mut controller, mut model) = (String::new(), String::new(), String::new());
    let (mut more, mut address) = (String::new(), String::new());
    let mut said = "";
    // Placeholders: a number of I/O threads, and the number of a new one.
    let text = change.libvirt.replace("'N'", "'2'").replace(">N<", ">2<").replace("'M'", "'1'");
    for line in text.lines().filter(|l| !l.starts_with("virsh ")) {
        if line.starts_with('#') {
            said = line;
            continue;
        }
        let place = if line.starts_with("<iothreads>") {
            &mut top
        } else if line.starts_with("<target") || line.starts_with("<address") {
            &mut own
        } else if said.contains("in its <driver .../>") {
            &mut driver
        } else if said.contains("in the <driver .../> of the <controller>") {
            &mut controller
        } else if said.contains("in the <controller>") {
            &mut model
        } else if said.contains("in its <address") {
            &mut address
        } else if said.contains("one more controller") {
            &mut more
        } else {
            panic!("{line} belongs nowhere")
        };
        place.push_str(line);
        place.push('\n');
    }
    own.insert_str(0, &format!("<driver name='qemu' type='raw' {driver}/>"));
    let scsi = disk.driver.as_deref() == Some("virtio-scsi") || !model.is_empty();
    let model = if model.is_empty() { "model='virtio-scsi'" } else { model.trim() };
    let inner = if controller.is_empty() { String::new() } else { format!("<driver {controller}/>") };
    let devices =
        if scsi { format!("<controller type='scsi' index='0' {model}>{inner}</controller>") } else { String::new() };
    if !own.contains("<target") {
        let name = disk.place.target.as_deref().unwrap();
        let bus = if name.starts_with("sd") { "scsi" } else { "virtio" };
        own.push_str(&format!("<target dev='{name}' bus='{bus}'/>"));
    }
    if !address.is_empty() {
        own.push_str(&format!("<address type='drive' {address} bus='0' target='0' unit='1'/>"));
    }
    format!(
        "<domain type='qemu'><name>web1</name><memory unit='MiB'>64</memory>{top}<os><type>hvm</type></os><devices>\
         {devices}{more}<disk type='file' device='disk'>{own}<source file='/a.raw'/></disk></devices></domain>"
    )
}

#[test]
#[ignore = "guest: needs virsh"]
fn libvirts_schema_takes_the_elements() {
    for (disk, to) in own_disks("/a.raw") {
        let change = own_disk("x", &disk, &to);
        let file = Scratch::new("domain.xml");
        std::fs::write(&file.0, domain(&disk, &change)).unwrap();
        // libvirt's test driver keeps its domains in memory.
        let out = Command::new("virsh")
            .args(["-c", "test:///default", "define", "--validate", file.text()])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}\n{words}", domain(&disk, &change));
    }
}
