//! Three live guests to look at with `vmio scan` and `vmio top`: `db1` on an emulated controller, a
//! sparse file and the host's page cache, `web1` set up well and reading a little, and `backup1`, which
//! floods the disk on which all three lie. They end after the given seconds, or when this is
//! interrupted (a SIGKILL of this program leaves them).
//!
//! `VMIO_STATE=DIR cargo run -p vmio --example three_guests -- 60` (DIR holds the guest image; it is
//! built there where it is missing). Root is not needed.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;
use vmio_rig::nodes::Nodes;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const DISK_MIB: u64 = 512;
/// A file with holes is larger: below a GiB of them nobody is told.
const SPARSE_MIB: u64 = 4096;

/// A guest and what it does.
struct Wanted {
    name: &'static str,
    attachment: Attachment,
    sparse: bool,
    /// fio's arguments for its load.
    load: [&'static str; 4],
}

fn main() -> Result<()> {
    let seconds: u32 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(60);
    let state = std::env::var_os("VMIO_STATE").map(PathBuf::from).ok_or("VMIO_STATE names no directory")?;
    let dir = tempfile::Builder::new().prefix("three").tempdir_in(&state)?;
    let journal = Arc::new(Journal::open(&dir.path().join("journal"), "three-guests")?);
    // Without an owner's mark: to those who look these are guests of somebody else.
    let node: Arc<dyn Node> = Arc::new(Local::new());
    let image = Image::load_or_build(node.as_ref(), &state, &|what| println!("{what}"))?;
    let wanted = [
        Wanted {
            name: "db1",
            attachment: Attachment::new("lsi53c895a", Cache::Writeback, Aio::Threads),
            sparse: true,
            load: ["--rw=randwrite", "--bs=8k", "--iodepth=4", "--rate_iops=100"],
        },
        Wanted {
            name: "web1",
            attachment: Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true),
            sparse: false,
            load: ["--rw=randread", "--bs=4k", "--iodepth=1", "--rate_iops=200"],
        },
        Wanted {
            name: "backup1",
            attachment: Attachment::new("virtio-blk", Cache::None, Aio::Native),
            sparse: false,
            // The others have the disk to themselves for a while: a quiet moment to compare with.
            load: ["--rw=write", "--bs=1m", "--iodepth=64", "--startdelay=20"],
        },
    ];
    let run_dir = dir.path().join("run");
    let ctx = LaunchCtx {
        enter: Vec::new(),
        node: Arc::clone(&node),
        journal: Arc::clone(&journal),
        image: Some(&image),
        run_dir: &run_dir,
        state_dir: &state,
        accel: None,
        nodes: &Nodes::default(),
        boot_limit: Duration::from_secs(120),
        oom_score_adj: 1000,
        cgroup_procs: Vec::new(),
        progress: &|what| println!("{what}"),
    };
    let signalled = Signalled::listen()?;
    let mut running: Vec<(&Wanted, Box<dyn Guest>)> = Vec::new();
    let launched = wanted.iter().try_for_each(|w| -> Result<()> {
        signalled.check()?;
        let disk = DiskSpec {
            id: "data".into(),
            storage: Storage::File(file(dir.path(), w)?),
            attachment: Some(w.attachment.clone()),
        };
        let spec = GuestSpec { disks: vec![disk], ..GuestSpec::of(w.name, 1, 256) };
        let guest = guests::find("qemu").ok_or("no entry qemu")?.launch(&ctx, &spec)?;
        let pid = guest.hypervisor()?.map(|h| h.pid);
        println!("{} runs as pid {}", w.name, pid.map_or_else(|| "?".to_owned(), |p| p.to_string()));
        signalled.pids().extend(pid);
        running.push((w, guest));
        Ok(())
    });
    let worked = launched.and_then(|()| signalled.check()).and_then(|()| {
        println!("they work for {seconds} s: look at them now");
        let places: Vec<(Arc<dyn Node>, PathBuf)> =
            running.iter().map(|(_, guest)| Ok((guest.node(), guest.disk_path("data")?))).collect::<Result<_>>()?;
        std::thread::scope(|scope| {
            let with = running.iter().map(|(w, _)| *w).zip(&places);
            let works: Vec<_> =
                with.map(|(w, (node, path))| scope.spawn(move || work(w, node.as_ref(), path, seconds))).collect();
            works.into_iter().try_for_each(|w| w.join().map_err(|_| "a load ended in a panic")?)
        })
    });
    signalled.pids().clear();
    for (_, guest) in running {
        guest.stop()?;
    }
    worked
}

/// Ctrl-C, SIGTERM and SIGHUP: they end the guests that run; the loads in them then fail, no further
/// guest is started, and the rest ends as it would after the last second.
#[derive(Clone, Default)]
struct Signalled {
    pids: Arc<Mutex<Vec<u32>>>,
    came: Arc<AtomicBool>,
}

impl Signalled {
    fn listen() -> Result<Self> {
        let own = Self::default();
        let listener = own.clone();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        std::thread::spawn(move || {
            for _ in signals.forever() {
                listener.came.store(true, Ordering::SeqCst);
                for pid in listener.pids().iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
                    let _ = kill_process(pid, Signal::KILL); // it may have ended
                }
            }
        });
        Ok(own)
    }

    fn pids(&self) -> MutexGuard<'_, Vec<u32>> {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<()> {
        if self.came.load(Ordering::SeqCst) { Err("interrupted".into()) } else { Ok(()) }
    }
}

/// A disk's file.
fn file(dir: &Path, w: &Wanted) -> Result<PathBuf> {
    let path = dir.join(format!("{}.raw", w.name));
    let mut file = File::create(&path)?;
    if w.sparse {
        file.set_len(SPARSE_MIB << 20)?;
    } else {
        (0..DISK_MIB).try_for_each(|_| file.write_all(&[0x5a; 1 << 20]))?;
    }
    file.sync_all()?;
    Ok(path)
}

/// Runs a guest's load to its end, and prints what it got.
fn work(w: &Wanted, node: &dyn Node, path: &Path, seconds: u32) -> Result<()> {
    let fixed = ["--name=load", "--ioengine=libaio", "--direct=1", "--time_based", "--minimal"];
    let fio = Exec::new("fio")
        .args(fixed)
        .args(w.load)
        .args([format!("--filename={}", path.display()), format!("--runtime={seconds}")])
        .limit(Duration::from_secs(u64::from(seconds) + 60));
    let output = node.exec(&fio)?;
    if !output.ok() {
        return Err(format!("fio in {}: {:?} {}", w.name, output.end, output.err()).into());
    }
    // fio's terse form 3, HOWTO section 6.4: IOPS of reads are the 8th field, of writes the 49th.
    let text = output.out();
    let fields: Vec<&str> = text.trim().split(';').collect();
    let field = |i: usize| fields.get(i - 1).copied().unwrap_or("?");
    println!("{}: {} reads/s, {} writes/s", w.name, field(8), field(49));
    Ok(())
}
