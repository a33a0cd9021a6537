//! What the tests that boot guests share.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::result::Accel;
use vmio_node::Exec;
use vmio_rig::disks::Storage;
use vmio_rig::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;
use vmio_rig::nodes::Nodes;

pub const DISK_BYTES: u64 = 64 << 20;

/// The guests' image and its kernel are kept here between runs.
pub fn state() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state")
}

/// A host for guests.
pub struct Bed {
    host: super::Bed,
    pub image: Image,
    vcpus: u32,
}

impl Deref for Bed {
    type Target = super::Bed;

    fn deref(&self) -> &super::Bed {
        &self.host
    }
}

impl Bed {
    pub fn new() -> Self {
        Self::with_vcpus(1)
    }

    pub fn with_vcpus(vcpus: u32) -> Self {
        let host = super::Bed::new();
        let image = Image::load_or_build(&host.node, &state(), &|_| {}).unwrap();
        fs::File::create(host.dir().join("disk.raw")).unwrap().set_len(DISK_BYTES).unwrap();
        Self { host, image, vcpus }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir().join("run")
    }

    pub fn launch(&self, image: &Image, disks: Vec<DiskSpec>, limit: Duration) -> guests::Result<Box<dyn Guest>> {
        let spec = GuestSpec { disks, ..GuestSpec::of("guest0", self.vcpus, 256) };
        self.launch_as(image, &spec, limit)
    }

    /// A guest that must come up. As in a run, one that did not is started once more: under emulation one boot in
    /// some thousands was silent until its time was over.
    pub fn boot(&self, disks: Vec<DiskSpec>) -> Box<dyn Guest> {
        match self.launch(&self.image, disks.clone(), limit()) {
            Err(guests::Error::Down { what, report, .. }) => {
                vmio_testbed::skip(&format!("the first start of a guest: {what}; {}", report.replace('\n', " ")));
                self.launch(&self.image, disks, limit()).unwrap()
            }
            started => started.unwrap(),
        }
    }

    pub fn launch_as(&self, image: &Image, spec: &GuestSpec, limit: Duration) -> guests::Result<Box<dyn Guest>> {
        self.launch_by(Some(Accel::Tcg), image, spec, limit)
    }

    /// With an accelerator, or none to have it chosen.
    pub fn launch_by(
        &self,
        accel: Option<Accel>,
        image: &Image,
        spec: &GuestSpec,
        limit: Duration,
    ) -> guests::Result<Box<dyn Guest>> {
        let ctx = LaunchCtx {
            enter: Vec::new(),
            node: self.shared(),
            journal: Arc::clone(&self.journal),
            image: Some(image),
            run_dir: &self.run_dir(),
            state_dir: &self.dir(),
            accel,
            nodes: &Nodes::default(),
            boot_limit: limit,
            oom_score_adj: 1000,
            cgroup_procs: Vec::new(),
            progress: &|_| {},
        };
        guests::find("qemu").unwrap().launch(&ctx, spec)
    }

    pub fn disk(&self, id: &str, driver: &str, cache: Cache, aio: Aio, iothread: bool) -> DiskSpec {
        let attachment = Attachment::new(driver, cache, aio).iothread(iothread);
        DiskSpec { id: id.into(), storage: Storage::File(self.dir().join("disk.raw")), attachment: Some(attachment) }
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

/// Longest time of a boot or a command, on this machine.
pub fn limit() -> Duration {
    vmio_testbed::limit()
}

/// Runs a program in a guest that must succeed.
pub fn run(guest: &dyn Guest, program: &str, args: &[&str]) -> vmio_node::Output {
    let output = guest.node().exec(&Exec::new(program).args(args.iter().copied()).limit(limit())).unwrap();
    assert!(output.ok(), "{program} {args:?}: {:?}\n{}{}", output.end, output.out(), output.err());
    output
}
