//! Starts QEMU and waits until the agent in the guest answers; ends it again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vmio_model::result::Accel;
use vmio_node::qmp::Qmp;
use vmio_node::{End, Exec, Node, Output, Reader, Remote, machine};

use super::super::directory::{self, Directory};
use super::super::{Error, GuestSpec, LaunchCtx, Result, file_error};
use super::args::{MOST_DEVICES, Paths, PciAddress, Plan, PlannedDisk, PlannedNic, arguments, chardev_id, serial};
use super::guard::{Guard, Process, Served};
use super::threads::Threads;
use super::unfit::Unfit;
use super::{SharedQmp, balloon, cards, console, disks, drivers, pins, running_accel};
use crate::disks::Storage;
use crate::image::Image;
use crate::qemu::{ask_version, find_qemu, waiting};

/// How long the disks may take to show after the guest answers: SCSI is scanned in the background.
const DISK_LIMIT: Duration = Duration::from_secs(15);
/// How long the storage of a disk may take to say that it is there.
const LOOK_LIMIT: Duration = Duration::from_secs(45);
/// How long QEMU may take to close its disks and end.
const END_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// A guest that answers.
pub struct Booted {
    /// Commands run here.
    pub node: Arc<dyn Node>,
    /// Our monitor.
    pub qmp: Arc<SharedQmp>,
    /// Its threads.
    pub threads: Threads,
    /// What really runs it.
    pub accel: Accel,
    /// Seconds from QEMU's start to the agent's first answer.
    pub boot_seconds: f64,
    /// QEMU itself.
    pub process: Running,
    disks: BTreeMap<String, PathBuf>,
    guard: Option<Guard>,
}

/// Boots a guest with this accelerator.
pub fn boot(ctx: &LaunchCtx<'_>, image: &Image, spec: &GuestSpec, accel: Accel) -> Result<Booted> {
    let qemu = find_qemu(ctx.node.reader(), spec.arch)?;
    let paths = Paths::below(&ctx.run_dir.join(&spec.name));
    let plan = plan(ctx, image, spec, accel, &paths, &qemu)?;
    let directory = Directory::make(ctx, &spec.name)?;
    let mut modules: Vec<&str> = plan.disks.iter().flat_map(|d| d.model.driver.guest_modules).copied().collect();
    modules.extend(plan.nics.iter().flat_map(|n| n.card.model.guest_modules));
    modules.extend(&spec.modules);
    modules.extend(spec.balloon.then_some(balloon::MODULE));
    modules.sort_unstable();
    modules.dedup();
    let initramfs = image.initramfs(&modules)?;
    fs::write(&paths.initramfs, initramfs).map_err(file_error("write", &paths.initramfs))?;

    let command = Exec {
        oom_score_adj: Some(ctx.oom_score_adj),
        cgroup_procs: ctx.cgroup_procs.clone(),
        ..pins::held(&qemu, &spec.pins).behind(&ctx.enter).args(arguments(&plan))
    };
    let started = Instant::now();
    let process = ctx.node.spawn(&command)?;
    let pid = process.pid();
    let process = Running {
        name: spec.name.clone(),
        console: paths.console.clone(),
        process: Arc::new(Process { process: Mutex::new(process), because: Mutex::new(None) }),
        _directory: directory,
    };

    // From here on, whatever fails is told with the end of the console.
    let up = (|| {
        let mut qmp = Qmp::over(&spec.name, process.connect(&paths.qmp)?).map_err(|e| {
            // The monitor listens before the disks are opened; when QEMU refuses one it ends.
            if waiting::ended_soon(|| process.ended()).is_some() { process.give_up("did not start") } else { e.into() }
        })?;
        let stream = process.connect(&paths.agent)?;
        stream.set_write_timeout(Some(ctx.boot_limit)).map_err(file_error("set a limit on", &paths.agent))?;
        let other = stream.try_clone().map_err(file_error("share", &paths.agent))?;
        let left = ctx.boot_limit.saturating_sub(started.elapsed());
        let remote = Remote::connect(&spec.name, (Box::new(stream), Box::new(other)), left)?;
        let boot_seconds = started.elapsed().as_secs_f64();
        let disks = find_disks(remote.reader(), spec)?;
        let accel = running_accel(&mut qmp)?;
        pins::read_back(ctx.node.reader(), pid, &spec.pins).map_err(|why| process.give_up(&why.to_string()))?;
        let threads = Threads::of(&mut qmp, pid)?;
        Ok((remote, qmp, threads, accel, boot_seconds, disks))
    })();
    match up {
        Ok((remote, qmp, threads, accel, boot_seconds, disks)) => {
            let qmp = Arc::new(Mutex::new(qmp));
            let guard = Guard::start(&qmp, &process.process, servers(spec));
            Ok(Booted { node: Arc::new(remote), qmp, threads, accel, boot_seconds, process, disks, guard })
        }
        Err(e @ Error::Down { .. }) => Err(e),
        Err(e) => Err(process.give_up(&format!("did not come up: {e}"))),
    }
}

/// Checks the specification and makes the plan of the command line.
fn plan<'a>(
    ctx: &LaunchCtx<'_>,
    image: &Image,
    spec: &'a GuestSpec,
    accel: Accel,
    paths: &Paths,
    qemu: &Path,
) -> Result<Plan<'a>> {
    let wrong = |reason: String| Error::Spec { guest: spec.name.clone(), reason };
    directory::fits_a_name(&spec.name)?;
    directory::fits_a_socket(&spec.name, &paths.watch)?;
    let (disks, nics) = (spec.disks.len(), spec.nics.len());
    let most = MOST_DEVICES - usize::from(spec.balloon);
    if disks + nics > most {
        let all = format!("{disks} disks and {nics} network devices");
        return Err(wrong(format!("{all} were requested, but at most {most} are possible")));
    }
    let qemu = ask_version(ctx.node.as_ref(), qemu)?;
    let mut disks: Vec<PlannedDisk<'a>> = Vec::new();
    for (i, disk) in spec.disks.iter().enumerate() {
        let of = |reason: String| wrong(format!("disk {}: {reason}", disk.id));
        if spec.disks[..i].iter().any(|d| d.id == disk.id) {
            return Err(of("there are two of this name".into()));
        }
        let attachment =
            disk.attachment.as_ref().ok_or_else(|| of("it is not specified how the guest sees it".into()))?;
        let model = drivers::find(&attachment.driver).ok_or_else(|| {
            let known: Vec<&str> = drivers::ALL.iter().map(|m| m.driver.name).collect();
            of(format!("no driver {}; there are {}", attachment.driver, known.join(", ")))
        })?;
        let refused = |unfit: Unfit| of(unfit.to_string());
        model.fits(attachment).map_err(refused)?;
        model.fits_storage(attachment, &disk.storage).map_err(refused)?;
        drivers::needs(attachment).map_or(Ok(()), |need| qemu.meets(need)).map_err(|old| of(old.to_string()))?;
        if let Some(path) = disk.storage.path() {
            let (node, at) = (Arc::clone(&ctx.node), path.to_owned());
            let looked = machine::within(LOOK_LIMIT, move || node.stat(&at));
            let silent = || of(format!("the storage of {} does not answer", path.display()));
            looked.ok_or_else(silent)??.ok_or_else(|| of(format!("{} is not there", path.display())))?;
        }
        if let Some(socket) = socket(&disk.storage) {
            let gone = || of(format!("its server's socket {} is not there", socket.display()));
            ctx.node.stat(socket)?.ok_or_else(gone)?;
        }
        disks.push(PlannedDisk { storage: &disk.storage, attachment, model });
    }
    let mut nics = Vec::new();
    for nic in &spec.nics {
        let card = cards::find(&nic.nic.model).ok_or_else(|| {
            let known: Vec<&str> = cards::ALL.iter().map(|c| c.model.name).collect();
            wrong(format!("no network device {}; there are {}", nic.nic.model, known.join(", ")))
        })?;
        card.fits(&nic.nic).map_err(|why| wrong(why.to_string()))?;
        nics.push(PlannedNic { spec: nic, card });
    }
    Ok(Plan {
        nics,
        name: &spec.name,
        qemu,
        accel,
        arch: spec.arch,
        vcpus: spec.vcpus,
        memory_mib: spec.memory_mib,
        kernel: image.kernel(),
        tools: image.tools(),
        paths: paths.clone(),
        disks,
        balloon: spec.balloon,
    })
}

/// The socket of a disk's server.
fn socket(storage: &Storage) -> Option<&Path> {
    match storage {
        Storage::VhostUserBlk { socket } | Storage::Nbd { socket, .. } | Storage::CachedNbd { socket } => Some(socket),
        Storage::File(_) | Storage::BlockDevice(_) | Storage::Image { .. } => None,
        Storage::NbdTcp { .. } | Storage::Aoe { .. } | Storage::Iscsi { .. } | Storage::NvmeTcp { .. } => None,
        Storage::NbdTls { .. } | Storage::Rbd { .. } | Storage::PassedThrough { .. } => None,
    }
}

/// The vhost-user servers of a guest. (QEMU itself fails requests when an NBD server goes.)
fn servers(spec: &GuestSpec) -> Vec<Served> {
    let served = spec.disks.iter().enumerate().filter_map(|(i, disk)| match &disk.storage {
        Storage::VhostUserBlk { socket } => {
            Some(Served { chardev: chardev_id(i), label: format!("disk {} ({})", disk.id, socket.display()) })
        }
        _ => None,
    });
    served.collect()
}

/// Waits until the guest sees all of its disks.
fn find_disks(guest: &dyn Reader, spec: &GuestSpec) -> Result<BTreeMap<String, PathBuf>> {
    let end = Instant::now() + DISK_LIMIT;
    loop {
        let mut seen = disks::by_serial(guest);
        let mut find = |i: usize, storage: &Storage| match storage {
            Storage::VhostUserBlk { .. } => disks::by_address(guest, PciAddress::of(i)),
            Storage::PassedThrough { .. } => disks::nvme_by_address(guest, PciAddress::of(i)),
            _ => seen.remove(&serial(i)),
        };
        let found: BTreeMap<String, PathBuf> =
            (spec.disks.iter().enumerate()).filter_map(|(i, d)| Some((d.id.clone(), find(i, &d.storage)?))).collect();
        if found.len() == spec.disks.len() {
            return Ok(found);
        }
        if Instant::now() >= end {
            let missing = spec.disks.iter().find(|d| !found.contains_key(&d.id)).map(|d| d.id.clone());
            return Err(Error::NoDisk {
                guest: spec.name.clone(),
                disk: missing.unwrap_or_default(),
                hint: format!(" after {} s; it has {}", DISK_LIMIT.as_secs(), shown(found.values())),
            });
        }
        thread::sleep(POLL);
    }
}

fn shown<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    let all: Vec<String> = paths.map(|p| p.display().to_string()).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

impl Booted {
    /// Path of a disk in the guest.
    pub fn disk_path(&self, id: &str) -> Result<PathBuf> {
        self.disks.get(id).cloned().ok_or_else(|| Error::NoDisk {
            guest: self.process.name.clone(),
            disk: id.to_owned(),
            hint: format!("; it has {}", shown(self.disks.values())),
        })
    }

    /// Ends QEMU in order (it closes its disks) and takes the guest's directory away.
    pub fn stop(mut self) -> Result<()> {
        self.guard = None;
        {
            let mut qmp = self.qmp.lock().unwrap_or_else(PoisonError::into_inner);
            // QEMU may be gone already; the wait below settles it.
            let _ = qmp.execute("quit", serde_json::json!({}));
        }
        drop(self.node);
        self.process.process.lock().wait(Some(END_LIMIT))?;
        Ok(())
    }
}

/// QEMU's process and what it left. It is killed when this goes out of scope, and then its
/// directory is removed.
pub struct Running {
    name: String,
    console: PathBuf,
    process: Arc<Process>,
    _directory: Directory,
}

impl Running {
    fn connect(&self, socket: &Path) -> Result<UnixStream> {
        let found = waiting::connect(socket, || self.ended()).map_err(file_error("connect to", socket))?;
        found.ok_or_else(|| self.give_up("did not start"))
    }

    /// Its output if it has ended.
    fn ended(&self) -> Option<Output> {
        self.process.lock().try_wait().ok().flatten()
    }

    /// Ends QEMU if it still runs and says what became of it.
    pub fn give_up(&self, seen: &str) -> Error {
        let ended = waiting::ended_soon(|| self.ended());
        let because = self.process.because.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let how = match (because, ended.as_ref().map(|o| o.end)) {
            (Some(reason), _) => format!("; vmio had ended it, since {reason}"),
            (None, Some(End::Exit(code))) => format!("; QEMU had ended with exit code {code}"),
            (None, Some(End::Signal(signal))) => format!("; QEMU had been killed by signal {signal}"),
            (None, Some(End::TimedOut) | None) => "; it was ended".into(),
        };
        let output = ended.or_else(|| {
            let mut process = self.process.lock();
            process.kill().ok()?;
            process.wait(Some(END_LIMIT)).ok()
        });
        let (report, last) = console::report(&self.console, &output.map(|o| o.err()).unwrap_or_default());
        Error::Down { guest: self.name.clone(), what: format!("{seen}{how}"), report, last }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut process = self.process.lock();
        if process.kill().is_ok() {
            let _ = process.wait(Some(END_LIMIT));
        }
    }
}
