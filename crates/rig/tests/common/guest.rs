//! What the tests that boot guests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::result::Accel;
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;

/// One guest at a time: their time limits hold for a host that is not loaded by another guest.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
pub const DISK_BYTES: u64 = 64 << 20;

/// A host for guests.
pub struct Bed {
    pub node: Arc<dyn Node>,
    pub journal: Arc<Journal>,
    pub image: Image,
    vcpus: u32,
    pub dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    pub fn new() -> Self {
        Self::with_vcpus(1)
    }

    pub fn with_vcpus(vcpus: u32) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
        let image = Image::load_or_build(node.as_ref(), &state, &|_| {}).unwrap();
        fs::File::create(dir.path().join("disk.raw")).unwrap().set_len(DISK_BYTES).unwrap();
        Self { node, journal, image, vcpus, dir, _turn: turn }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn launch(&self, image: &Image, disks: Vec<DiskSpec>, limit: Duration) -> guests::Result<Box<dyn Guest>> {
        let spec = GuestSpec { disks, ..GuestSpec::of("guest0", self.vcpus, 256) };
        self.launch_as(image, &spec, limit)
    }

    pub fn launch_as(&self, image: &Image, spec: &GuestSpec, limit: Duration) -> guests::Result<Box<dyn Guest>> {
        let ctx = LaunchCtx {
            enter: Vec::new(),
            node: Arc::clone(&self.node),
            journal: Arc::clone(&self.journal),
            image: Some(image),
            run_dir: &self.run_dir(),
            state_dir: self.dir.path(),
            accel: Some(Accel::Tcg),
            afar: None,
            boot_limit: limit,
            oom_score_adj: 1000,
            cgroup_procs: Vec::new(),
            progress: &|_| {},
        };
        guests::find("qemu").unwrap().launch(&ctx, spec)
    }

    pub fn disk(&self, id: &str, driver: &str, cache: Cache, aio: Aio, iothread: bool) -> DiskSpec {
        let attachment = Attachment::new(driver, cache, aio).iothread(iothread);
        DiskSpec {
            id: id.into(),
            storage: Storage::File(self.dir.path().join("disk.raw")),
            attachment: Some(attachment),
        }
    }

    /// Nothing of the guest is left: no file, no process with its directory in the command line.
    pub fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.run_dir()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let run = self.run_dir().to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&command).contains(&run), "{} still runs", entry.path().display());
        }
    }
}

pub const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// Runs a program in a guest that must succeed.
pub fn run(guest: &dyn Guest, program: &str, args: &[&str]) -> vmio_node::Output {
    let output =
        guest.node().exec(&Exec::new(program).args(args.iter().copied()).limit(Duration::from_secs(60))).unwrap();
    assert!(output.ok(), "{program} {args:?}: {:?}\n{}{}", output.end, output.out(), output.err());
    output
}
