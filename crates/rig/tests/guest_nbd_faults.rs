//! What faults of server and link do to a disk by NBD whose server is on another host, the target `nbd`: without a guest, by
//! QEMU's own client, and once in a run. Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bed, cells, guest, set_link};
use crate::guest_nbd::server;
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_node::{End, Exec, Node, Output};
use vmio_rig::disks::Storage;
use vmio_rig::disks::targets::{self, Prepared, TargetCtx};
use vmio_rig::engine::measure::Event;
use vmio_rig::guests::DiskSpec;
use vmio_rig::nets::Namespace;
use vmio_testbed::{limit, must_be_root, poll_for, poll_until, slowness};

const MIB: usize = 1 << 20;

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// The target without a guest: its client is QEMU's own in `qemu-io`, in the namespace that plays this host.
struct Remote {
    host: Arc<Namespace>,
    target: Box<dyn Prepared>,
    asked: Attachment,
    storage: Storage,
}

impl Remote {
    fn on(ctx: TargetCtx<'_>) -> Self {
        let host = Arc::new(Namespace::make(ctx.node).unwrap());
        let ctx = TargetCtx { native: false, host: Some(Arc::clone(&host)), ..ctx };
        let mut target = targets::find("nbd").unwrap().prepare(&ctx).unwrap();
        let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
        let storage = target.attach(&asked).unwrap();
        Self { host, target, asked, storage }
    }

    /// A client of this export, and what it does there (commands of `qemu-io`).
    fn client(&self, export: &str, commands: &[&str]) -> Exec {
        let Storage::NbdTcp { server, .. } = &self.storage else { panic!("{:?}", self.storage) };
        let opened = format!("json:{}", Storage::nbd_over_tcp(*server, export));
        let commands = commands.iter().flat_map(|command| ["-c", *command]);
        self.host.exec("qemu-io").args(commands).args([opened]).limit(limit())
    }

    /// Its whole work.
    fn work(&self, bed: &Bed, commands: &[&str]) -> Output {
        bed.node.exec(&self.client("disk", commands)).unwrap()
    }

    /// The same, not waited for.
    fn start(&self, bed: &Bed, commands: &[&str]) -> JoinHandle<Output> {
        let (node, client) = (bed.shared(), self.client("disk", commands));
        thread::spawn(move || node.exec(&client).unwrap())
    }

    /// The file as the server has it.
    fn file(&self) -> Vec<u8> {
        std::fs::read(self.target.native()).unwrap()
    }

    /// Whether this MiB of it is that byte throughout.
    fn holds(&self, mib: usize, byte: u8) -> bool {
        self.file()[mib * MIB..(mib + 1) * MIB].iter().all(|found| *found == byte)
    }

    /// Kills the server, and waits until its end is noticed.
    fn kill_server(&mut self) -> u32 {
        let pid = self.target.servers(&self.asked)[0];
        kill(pid);
        let noticed = poll_for("its end is noticed", || self.target.sound(&self.asked).err().ok_or("it is sound"));
        assert!(noticed.to_string().contains("killed by signal 9"), "{noticed}");
        pid
    }
}

/// Whether it went well. (`qemu-io` writes its errors to standard output.)
fn is_good(output: &Output) -> bool {
    output.ok() && !output.out().contains("failed")
}

/// In the middle of its client's work: what was acknowledged before is there, and the work goes on.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_server_that_is_killed_and_restarted_has_all_that_it_acknowledged() {
    must_be_root();
    let bed = Bed::new();
    let mut remote = Remote::on(bed.ctx(4));
    let before = remote.file();
    let flushed = remote.work(&bed, &["write -P 0x5a 0 1M", "flush"]);
    assert!(is_good(&flushed), "{flushed:?}");
    let commands = ["write -P 0x77 2M 1M", "sleep 3000", "read -P 0x5a 0 1M", "write -P 0x33 1M 1M", "flush"];
    let client = remote.start(&bed, &commands);
    poll_until("the client is at work", || remote.holds(2, 0x77));
    let killed = remote.kill_server();
    assert_eq!(remote.target.attach(&remote.asked).unwrap(), remote.storage, "it is where it was");
    assert_ne!(remote.target.servers(&remote.asked)[0], killed);
    let done = client.join().unwrap();
    assert!(is_good(&done), "{done:?}");
    assert!(remote.holds(0, 0x5a) && remote.holds(1, 0x33) && remote.holds(2, 0x77));
    assert!(remote.file()[3 * MIB..] == before[3 * MIB..], "nothing else was written");
    remote.target.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

/// One that is asked for by a wrong name, and one whose server does not come back.
#[test]
#[ignore = "guest: needs QEMU"]
fn an_export_that_is_not_there_is_an_error_within_seconds() {
    must_be_root();
    let bed = guest::Bed::new();
    let mut remote = Remote::on(bed.ctx(4));
    let refused = bed.node.exec(&remote.client("other", &["read 0 4k"])).unwrap();
    assert!(refused.end == End::Exit(1) && refused.err().contains("export not available"), "{refused:?}");

    let client = remote.start(&bed, &["write -P 0x77 2M 1M", "sleep 1000", "read 0 4k"]);
    poll_until("the client is at work", || remote.holds(2, 0x77));
    remote.kill_server();
    let failed = client.join().unwrap();
    assert!(failed.end == End::Exit(1) && failed.out().contains("read failed"), "no time limit ended it: {failed:?}");
    remote.target.remove(&bed.journal).unwrap();

    // A guest that was to have it says the same.
    let mut target = targets::find("served").unwrap().prepare(&bed.ctx(4)).unwrap();
    let asked = Attachment::new("ahci", Cache::None, Aio::Threads);
    let Storage::Nbd { socket, .. } = target.attach(&asked).unwrap() else { panic!("not by NBD") };
    let storage = Storage::Nbd { socket, export: "other".to_owned() };
    let disk = DiskSpec { id: "disk".to_owned(), storage, attachment: Some(asked) };
    let told = bed.launch(&bed.image, vec![disk], limit()).err().unwrap().to_string();
    assert!(told.contains("export not available"), "{told}");
    target.remove(&bed.journal).unwrap();
}

/// The client waits, and goes on.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_link_that_is_cut_for_a_second_loses_nothing() {
    must_be_root();
    let bed = Bed::new();
    let remote = Remote::on(bed.ctx(4));
    let uplink = remote.target.link().unwrap().uplink.clone().unwrap();
    let set = |state: &str| remote.host.ip(&bed.node, &[&format!("link set {uplink} {state}")]).unwrap();
    // Long enough that the link is cut before its end, on a busy machine, too.
    let pause = Duration::from_millis(1500).mul_f64(slowness());
    let sleep = format!("sleep {}", pause.as_millis());
    let commands = ["write -P 0x5a 0 1M", &sleep, "write -P 0x33 1M 1M", "flush", "read -P 0x5a 0 1M"];
    let client = remote.start(&bed, &commands);
    poll_until("the client is at work", || remote.holds(0, 0x5a));
    set("down");
    // The pause, and a second of its next request.
    thread::sleep(pause + Duration::from_secs(1));
    assert!(!remote.holds(1, 0x33) && !client.is_finished());
    set("up");
    let done = client.join().unwrap();
    assert!(is_good(&done) && remote.holds(1, 0x33), "{done:?}");
    remote.target.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

/// Its file has holes, as on a file system that copies on write, and others have taken the space.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_server_without_space_says_so_and_keeps_what_it_acknowledged() {
    must_be_root();
    let bed = Bed::new();
    let mount = bed.small_filesystem(32);
    let mut ctx = bed.ctx(4);
    ctx.dir.clone_from(&mount);
    let remote = Remote::on(ctx);
    let flushed = remote.work(&bed, &["write -P 0x5a 0 1M", "flush"]);
    assert!(is_good(&flushed), "{flushed:?}");

    bed.run("fallocate", &["-p", "-o", "1M", "-l", "3M", mount.join("vmio-nbd.raw").to_str().unwrap()]);
    let eater = bed.fill(&mount);
    let failed = remote.work(&bed, &["write -P 0x33 1M 1M"]);
    assert!(failed.end == End::Exit(1) && failed.out().contains("No space left"), "{failed:?}");
    let read = remote.work(&bed, &["read -P 0x5a 0 1M"]);
    assert!(is_good(&read), "{read:?}");

    std::fs::remove_file(&eater).unwrap();
    let done = remote.work(&bed, &["write -P 0x33 1M 1M", "flush"]);
    assert!(is_good(&done) && remote.holds(0, 0x5a) && remote.holds(1, 0x33), "{done:?}");
    remote.target.remove(&bed.journal).unwrap();
}

/// Its cell ends by its limit, of twice its time and a minute (`Stage::limit`), and tells the cause.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_link_that_is_cut_for_a_minute_ends_the_cell() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\n\
                disks = { targets = ['nbd'], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }\n\
                workloads = ['seq-write']\n";
    let planned = cells::planned(text, &bed.dir(), &guest::state());
    assert_eq!(planned.skipped(), []);
    let (mut told, mut cut) = (Vec::new(), None);
    cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |event| match event {
        Event::Cell(..) if cut.is_none() => {
            let file = served(&bed);
            let before = written(&file);
            cut = Some(thread::spawn(move || {
                poll_until("the guest writes", || written(&file) > before);
                let down = set_link("up255", "down");
                thread::sleep(Duration::from_secs(60));
                down && set_link("up255", "up")
            }));
        }
        Event::Retry(_, why) | Event::GaveUp(_, why) | Event::LeftOut(_, why) => told.push((*why).to_owned()),
        _ => {}
    });
    assert!(cut.unwrap().join().unwrap(), "there was a link to cut");
    println!("{told:#?}");
    assert!(told[0].contains("of its path went down"), "{told:?}");
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), server(&bed)), (Vec::new(), None));
}

/// The file of the run's target, in the run's own directory.
fn served(bed: &Bed) -> PathBuf {
    let inside = |dir: String| std::fs::read_dir(bed.dir().join(dir)).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = bed.files().into_iter().flat_map(inside).collect();
    let is_it = |file: &&PathBuf| file.file_name().unwrap().to_string_lossy().starts_with("vmio-nbd");
    files.iter().find(is_it).unwrap_or_else(|| panic!("no file of the target: {files:?}")).clone()
}

/// When a file was last written.
fn written(file: &Path) -> SystemTime {
    file.metadata().unwrap().modified().unwrap()
}
