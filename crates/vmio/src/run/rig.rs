//! The real machine under the measuring loop: targets, control group, guests, probes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use vmio_host::backing::{Backing, write_cache};
use vmio_host::drivers;
use vmio_host::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use vmio_host::image::Image;
use vmio_host::limits::{Limits, OOM_SCORE_ADJ};
use vmio_host::places::{Health, Place};
use vmio_host::probes::foreign::{self, Circumstances};
use vmio_host::probes::{Qemu, Subject, Watch};
use vmio_host::targets::{self, Prepared, State, TargetCtx};
use vmio_host::workloads::{self, Gentle, WorkCtx};
use vmio_model::result::{Environment, Run, Sample, WorkloadTraits};
use vmio_model::setup::{Attachment, Setup};
use vmio_model::study::{MIB, Study};
use vmio_model::summary::durability::WRITE_CACHE;
use vmio_node::{Change, Exec, Journal, Node};

use super::engine::Rig;
use super::gentle::Watcher;
use super::plan::REFILLED;
use crate::store::Store;

/// How long a guest may take to boot: ten times what emulation takes here.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// Length of the look at the device before a cell.
const LOOK_BEFORE: Duration = Duration::from_millis(150);
/// Length of the probe that a cap of `--gentle` comes from.
const PROBE_SECONDS: f64 = 0.5;
/// How a target is written for steady state: in large requests from its start to its end (SNIA SSS
/// PTS, "workload independent preconditioning": 128 KiB sequential writes).
const PRECONDITION: &str = "seq-write-128k-d8";
/// Slowest rate at which that is expected to go on, in bytes a second.
const PRECONDITION_LEAST_RATE: u64 = 1 << 20;
/// Memory that QEMU may use beside the guest's.
const QEMU_OWN_MIB: u64 = 512;

/// What is there for the length of a run.
pub struct Machine<'a> {
    study: &'a Study,
    store: &'a Store,
    run: i64,
    local: Arc<dyn Node>,
    journal: Arc<Journal>,
    backing: Backing,
    targets: BTreeMap<String, Box<dyn Prepared>>,
    limits: Result<Limits, String>,
    /// `None` where the study has no guest.
    image: Option<Image>,
    run_dir: PathBuf,
    state_dir: PathBuf,
    environment: Environment,
    attachments: Vec<(String, String, Attachment)>,
    guests: BTreeMap<String, Running>,
    /// `--gentle`: the share of the native speed that a workload may use, and the cap of each
    /// workload that was probed.
    cap_ratio: Option<f64>,
    caps: BTreeMap<String, Gentle>,
    refilled: u64,
    qemu_limits: Option<Limits>,
    watcher: Option<Watcher>,
    /// Whether the storage answers and takes writes.
    health: Health,
    /// Why it does not: the run ends.
    sick: Option<String>,
    progress: &'a dyn Fn(&str),
}

/// A guest and which of its disks serves which target and attachment.
struct Running {
    guest: Box<dyn Guest>,
    disks: BTreeMap<(String, Attachment), String>,
    qemu: Option<Qemu>,
}

/// What [`Machine::prepare`] needs to know.
pub struct Parts<'a> {
    /// The study.
    pub study: &'a Study,
    /// Where results go.
    pub store: &'a Store,
    /// This machine, owned by the journal.
    pub local: Arc<dyn Node>,
    /// Journal of the run.
    pub journal: Arc<Journal>,
    /// The disks below the targets.
    pub backing: Backing,
    /// Where targets are made.
    pub place: Place,
    /// Directory in which the scratch directory is made.
    pub dir: PathBuf,
    /// The user's own device.
    pub device: Option<PathBuf>,
    /// Use it whatever it holds.
    pub force: bool,
    /// `--gentle`: share of the time in which writing targets out keeps the disk busy.
    pub pace: Option<f64>,
    /// Sockets of the guests.
    pub run_dir: PathBuf,
    /// Images, and whether KVM works.
    pub state_dir: PathBuf,
    /// Told what is being done.
    pub progress: &'a dyn Fn(&str),
}

impl<'a> Machine<'a> {
    /// Makes all that the cells need but the guests. What was made up to an error is in the
    /// journal and undone by its owner.
    pub fn prepare(parts: Parts<'a>, run: &mut Run) -> anyhow::Result<Machine<'a>> {
        let Parts { study, store, local, journal, progress, .. } = parts;
        let skipped: Vec<String> = run.skipped.iter().map(|s| s.setup.key()).collect();
        let cells: Vec<Setup> = study.cells().into_iter().filter(|c| !skipped.contains(&c.key())).collect();
        let mut attachments = Vec::new();
        for cell in &cells {
            if let Some(attachment) = &cell.attachment {
                let one = (cell.guest.clone(), cell.target.clone(), attachment.clone());
                if !attachments.contains(&one) {
                    attachments.push(one);
                }
            }
        }
        let image = match attachments.is_empty() {
            true => None,
            false => Some(Image::load_or_build(&*local, &parts.state_dir, progress).context("no guest image")?),
        };
        let scratch = parts.dir.join(format!("vmio-scratch-{}", journal.cookie()));
        make_dir(&journal, &parts.dir).with_context(|| format!("cannot make {}", parts.dir.display()))?;
        journal.scratch_dir(&scratch)?;
        let health = Health::of(&parts.place);
        let mut made: BTreeMap<String, Box<dyn Prepared>> = BTreeMap::new();
        for cell in &cells {
            if made.contains_key(&cell.target) {
                continue;
            }
            let target = targets::find(&cell.target).with_context(|| format!("no target {}", cell.target))?;
            progress(&format!("making the target {} ({} MiB)", cell.target, study.size.target_mib));
            let prepared = health
                .during({
                    let (local, journal, dir) = (local.clone(), journal.clone(), scratch.clone());
                    let (pool, device) = (parts.place.ground.pool().cloned(), parts.device.clone());
                    let (bytes, force, pace) = (study.target_bytes(), parts.force, parts.pace);
                    move || {
                        let (node, journal) = (&*local, &journal);
                        target.prepare(&TargetCtx { node, journal, dir, pool, bytes, device, force, pace })
                    }
                })
                .map_err(anyhow::Error::msg)?
                // What a full pool does to a write says less than the pool itself.
                .map_err(|e| health.look().err().map_or_else(|| anyhow::Error::new(e), anyhow::Error::msg))
                .with_context(|| format!("cannot make the target {}", cell.target))?;
            let mut settings = without(&scratch, prepared.effective());
            settings.extend(write_cache(local.reader(), &parts.backing).map(|word| (WRITE_CACHE.to_owned(), word)));
            settings.insert("logical_block_bytes".into(), prepared.demands().logical_block_bytes.to_string());
            let at = format!("{}/native", cell.target);
            store.add_effective(run.id, &at, &settings)?;
            run.effective.insert(at, settings);
            made.insert(cell.target.clone(), prepared);
        }
        let limits = Limits::create(
            &*local,
            &journal,
            &format!("vmio-{}", journal.cookie()),
            study.guest.vcpus,
            u64::from(study.guest.memory_mib) * MIB,
        );
        let mut environment = run.environment.clone();
        environment.fio = match &image {
            Some(image) => Some(image.fio_version.clone()),
            None => fio_version(&*local),
        };
        environment.native_limits = match &limits {
            Ok(limits) => limits.describe().to_owned(),
            Err(why) => {
                progress(&format!("the native side is not held to the guest's resources: {why}"));
                format!("not held: {why}")
            }
        };
        store.set_environment(run.id, &environment)?;
        let host = (environment.cpus, environment.memory_bytes);
        let mut machine = Machine {
            study,
            store,
            run: run.id,
            backing: parts.backing,
            targets: made,
            limits,
            image,
            run_dir: parts.run_dir,
            state_dir: parts.state_dir,
            environment,
            attachments,
            guests: BTreeMap::new(),
            cap_ratio: None,
            caps: BTreeMap::new(),
            refilled: 0,
            qemu_limits: None,
            watcher: None,
            health,
            sick: None,
            local,
            journal,
            progress,
        };
        machine.hold_qemu(host.0.max(1), host.1);
        Ok(machine)
    }

    /// Spares the other guests from now on: each workload is held to this share of what a short
    /// native probe of it reaches, QEMU to one core, and a watch over the others' latency ends
    /// the run.
    pub fn be_gentle(&mut self, share: f64, watcher: Option<Watcher>) -> anyhow::Result<()> {
        self.cap_ratio = Some(share);
        self.watcher = watcher;
        self.hold_qemu(1, (u64::from(self.study.guest.memory_mib) + QEMU_OWN_MIB) * MIB);
        self.environment.cap_ratio = Some(share);
        self.store.set_environment(self.run, &self.environment)?;
        Ok(())
    }

    /// Puts QEMU into a control group of its own. Unless the run is gentle it has all of the host:
    /// a guest of the user's would have it too.
    fn hold_qemu(&mut self, cores: u32, memory_bytes: u64) {
        if self.attachments.is_empty() {
            return;
        }
        if let Some(old) = self.qemu_limits.take() {
            let _ = old.remove(&self.journal);
        }
        let name = format!("vmio-{}-qemu", self.journal.cookie());
        match Limits::create(&*self.local, &self.journal, &name, cores, memory_bytes) {
            Ok(limits) => self.qemu_limits = Some(limits),
            Err(why) => (self.progress)(&format!("QEMU has no control group of its own: {why}")),
        }
    }

    /// The cap of a workload: found by a short native run of it when it is first needed.
    fn cap_of(&mut self, setup: &Setup) -> anyhow::Result<Option<Gentle>> {
        let Some(share) = self.cap_ratio else { return Ok(None) };
        if let Some(&known) = self.caps.get(&setup.workload) {
            return Ok(Some(known));
        }
        let probe =
            self.observe(&setup.baseline(), 0, 0, PROBE_SECONDS, None).context("the short probe for the cap failed")?;
        let cap = vmio_host::gentle::cap::cap(probe.result.bandwidth(), share)?;
        (self.progress)(&format!(
            "gentle: {} is held to {:.2} MB/s",
            setup.workload,
            cap.bytes_per_second as f64 / 1e6
        ));
        let gentle = Gentle { cap_bytes_per_second: cap.bytes_per_second };
        self.caps.insert(setup.workload.clone(), gentle);
        Ok(Some(gentle))
    }

    /// Where the study asks for steady state: writes each target that a cell writes to once more.
    /// The specification writes twice the device's capacity; making a target wrote it once already.
    pub fn precondition(&mut self, traits: &[WorkloadTraits]) -> anyhow::Result<()> {
        let refilled = REFILLED.map(str::to_owned);
        let targets: Vec<String> = self.targets.keys().cloned().collect();
        for target in targets.into_iter().filter(|t| self.study.preconditions(t, traits, &refilled)) {
            (self.progress)(&format!(
                "steady state: writing {} MiB over the target {target}",
                self.study.size.target_mib
            ));
            let setup = Setup { guest: "native".into(), target, attachment: None, workload: PRECONDITION.into() };
            let gentle = self.cap_of(&setup)?;
            let seconds = (self.study.target_bytes() / PRECONDITION_LEAST_RATE).max(60) as f64;
            let written = self.observe(&setup, 0, 0, seconds, gentle).context("cannot write for steady state")?;
            self.refilled += written.result.write_bytes;
        }
        Ok(())
    }

    /// Ends the guests and takes away the targets and the control group. What fails here is
    /// undone by the journal.
    pub fn finish(mut self) {
        for (_, running) in std::mem::take(&mut self.guests) {
            let _ = running.guest.stop();
        }
        for (_, target) in std::mem::take(&mut self.targets) {
            match self.sick {
                None => drop(target.remove(&self.journal)),
                // Even closing a file waits for a server that is gone; the journal removes with a limit.
                Some(_) => std::mem::forget(target),
            }
        }
        if let Some(watcher) = &self.watcher {
            (self.progress)(&watcher.seen());
        }
        for limits in self.limits.into_iter().chain(self.qemu_limits) {
            let _ = limits.remove(&self.journal);
        }
    }

    fn launch(&mut self, kind: &str, boot: u32) -> anyhow::Result<Running> {
        let entry = guests::find(kind).with_context(|| format!("no guest {kind}"))?;
        let mut spec = GuestSpec {
            name: format!("{kind}-{boot}"),
            vcpus: self.study.guest.vcpus,
            memory_mib: self.study.guest.memory_mib,
            disks: Vec::new(),
        };
        let mut disks = BTreeMap::new();
        for (_, target, attachment) in self.attachments.iter().filter(|(guest, ..)| guest == kind) {
            let id = format!("d{}", spec.disks.len());
            let target_there = self.targets.get_mut(target).with_context(|| format!("target {target} is not there"))?;
            let storage = target_there.attach(attachment)?;
            // What serves a disk in QEMU's place is held like QEMU.
            if let Some(limits) = &self.qemu_limits {
                for server in target_there.servers(attachment) {
                    for procs in limits.procs_files() {
                        self.local.write(&procs, server.to_string().as_bytes(), None)?;
                    }
                }
            }
            spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: Some(attachment.clone()) });
            disks.insert((target.clone(), attachment.clone()), id);
        }
        let ctx = LaunchCtx {
            node: self.local.clone(),
            journal: self.journal.clone(),
            image: self.image.as_ref(),
            run_dir: &self.run_dir,
            state_dir: &self.state_dir,
            accel: None,
            boot_limit: BOOT_LIMIT,
            oom_score_adj: OOM_SCORE_ADJ,
            cgroup_procs: self.qemu_limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default(),
            progress: self.progress,
        };
        let guest = entry.launch(&ctx, &spec)?;
        let effective = guest.effective()?;
        for ((target, attachment), id) in &disks {
            let mut found = effective.get(id).cloned().unwrap_or_default();
            if let Some(driver) = drivers::find(&attachment.driver) {
                driver
                    .readback(attachment, &found)
                    .map_err(|e| anyhow::anyhow!("QEMU did not set up {} as asked: {e}", attachment.label()))?;
            }
            found.extend(self.targets.get(target).map(|t| t.attached(attachment)).unwrap_or_default());
            self.store.add_effective(self.run, &format!("{target}/{kind}/{}", attachment.label()), &found)?;
        }
        if let Some(accelerator) = guest.accelerator() {
            self.environment.accel = Some(accelerator.accel);
            self.environment.accel_reason = accelerator.reason.clone();
        }
        self.environment.guest_kernel = self.image.as_ref().map(|i| i.kernel_release.clone());
        self.store.set_environment(self.run, &self.environment)?;
        let qemu = guest.hypervisor().map(|h| Qemu::of(h, self.local.reader())).transpose()?;
        Ok(Running { guest, disks, qemu })
    }

    /// The device for a moment before the cell: what is not ours.
    fn look_before(&self) -> anyhow::Result<Option<vmio_model::result::DeviceUse>> {
        let subject = Subject { backing: Some(self.backing.clone()), qemu: None };
        let watch = Watch::start(self.local.reader(), subject)?;
        thread::sleep(LOOK_BEFORE);
        Ok(watch.stop()?.device)
    }
}

/// Version line of the host's fio.
fn fio_version(local: &dyn Node) -> Option<String> {
    let asked = Exec::new("fio").args(["--version"]).limit(Duration::from_secs(10));
    local.exec(&asked).ok().filter(vmio_node::Output::ok).map(|o| o.out().trim().to_owned())
}

/// Makes a directory and those above it that are missing; each goes again when it is empty.
fn make_dir(journal: &Journal, dir: &Path) -> anyhow::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|d| !d.exists()).collect();
    for dir in missing.into_iter().rev() {
        journal.make(Change::Dir { path: dir.to_owned() }, || std::fs::create_dir(dir))??;
    }
    Ok(())
}

impl Rig for Machine<'_> {
    fn boot(&mut self, boot: u32) -> anyhow::Result<()> {
        for (_, running) in std::mem::take(&mut self.guests) {
            // One that died is no reason to stop; what it left is in the journal.
            if let Err(e) = running.guest.stop() {
                (self.progress)(&format!("the guest did not end in order: {e}"));
            }
        }
        let mut kinds: Vec<String> = self.attachments.iter().map(|(kind, ..)| kind.clone()).collect();
        kinds.dedup();
        for kind in kinds {
            let running = self.launch(&kind, boot)?;
            self.guests.insert(kind, running);
        }
        Ok(())
    }

    fn cell(&mut self, setup: &Setup, round: u32, boot: u32) -> anyhow::Result<Sample> {
        let measured =
            self.cap_of(setup).and_then(|gentle| self.observe(setup, round, boot, self.study.repeat.seconds, gentle));
        // Whatever a tool said: if the storage is sick, that is why.
        if measured.is_err()
            && self.sick.is_none()
            && let Err(reason) = self.health.look()
        {
            self.sick = Some(reason);
        }
        measured
    }

    fn written_beside(&self) -> u64 {
        self.refilled
    }

    fn ending(&self) -> bool {
        self.journal.is_closed()
    }

    fn must_stop(&mut self) -> Option<String> {
        if let Some(reason) = &self.sick {
            return Some(reason.clone());
        }
        self.watcher.as_mut()?.must_stop()
    }
}

impl Machine<'_> {
    /// Does something that sick storage could hold back for ever; then the run ends.
    fn on_storage<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        self.health.during(work).map_err(|reason| {
            self.sick = Some(reason.clone());
            anyhow::Error::msg(reason)
        })
    }

    /// Runs a workload with the probes around it.
    fn observe(
        &mut self,
        setup: &Setup,
        round: u32,
        boot: u32,
        seconds: f64,
        gentle: Option<Gentle>,
    ) -> anyhow::Result<Sample> {
        let workload = workloads::find(&setup.workload).with_context(|| format!("no workload {}", setup.workload))?;
        let traits = workload.traits();
        let state = workload.needs_state();
        let mut target =
            self.targets.remove(&setup.target).with_context(|| format!("target {} is not there", setup.target))?;
        let reset = move || {
            let wrote = target.reset(state);
            (target, wrote)
        };
        let (target, wrote) = self.on_storage(reset)?;
        if let Err(e @ targets::Error::Place { .. }) = &wrote {
            // The storage has no room for the next cell, so for none.
            self.sick = Some(e.to_string());
        }
        let target = self.targets.entry(setup.target.clone()).or_insert(target);
        self.refilled += wrote?;
        let span = target.bytes();
        let allocates = target.allocates();
        let native = target.native().to_owned();
        if let Some(attachment) = &setup.attachment {
            self.refilled += exchange(&mut **target, self.guests.get(&setup.guest), setup, attachment, state)?;
        }
        let servers = setup.attachment.as_ref().map(|a| target.servers(a)).unwrap_or_default();
        let before = self.look_before()?;

        let mut exec_base = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
        let (node, path, qemu) = match &setup.attachment {
            None => {
                exec_base.cgroup_procs = self.limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default();
                (self.local.clone(), native.clone(), None)
            }
            Some(attachment) => {
                let running =
                    self.guests.get(&setup.guest).with_context(|| format!("no guest {} runs", setup.guest))?;
                let id = running
                    .disks
                    .get(&(setup.target.clone(), attachment.clone()))
                    .with_context(|| format!("guest {} has no disk for {}", setup.guest, setup.key()))?;
                let qemu = running.qemu.clone().map(|q| Qemu { servers, ..q });
                (running.guest.node(), running.guest.disk_path(id)?, qemu)
            }
        };
        let ctx = WorkCtx {
            path,
            bytes: span,
            seconds,
            memory_bytes: u64::from(self.study.guest.memory_mib) * MIB,
            exec_base,
            gentle,
        };
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let watch = Watch::start(self.local.reader(), Subject { backing: Some(self.backing.clone()), qemu })?;
        let result = self.on_storage(move || workload.run(&*node, &ctx))?;
        let seen = watch.stop()?;
        let host_cache = setup.attachment.as_ref().is_some_and(|a| !a.cache.direct());
        if host_cache {
            // What the host's page cache still holds would be written during the next cell. Where it
            // fails, that cell shows it as foreign load.
            let _ = std::fs::File::open(&native).and_then(|f| f.sync_all());
        }
        let result = result.map_err(|e| match (&e, self.guests.get(&setup.guest)) {
            (workloads::Error::Node(vmio_node::Error::Gone { .. }), Some(running)) => {
                anyhow::Error::new(running.guest.give_up(&e.to_string()))
            }
            _ => anyhow::Error::new(e),
        });
        let result = match (result, &setup.attachment, self.targets.get_mut(&setup.target)) {
            // Whatever the guest made of it: a server that is gone is the cause.
            (Err(e), Some(attachment), Some(target)) => match target.sound(attachment) {
                Ok(()) => return Err(e),
                Err(gone) => return Err(anyhow::anyhow!("{gone}; in the guest: {e:#}")),
            },
            (other, ..) => other?,
        };
        let circumstances = Circumstances { first_write: allocates && state == State::Fresh, host_cache };
        let foreign = foreign::foreign(&traits, circumstances, &result, before.as_ref(), seen.device.as_ref());
        let marks = foreign::marks(&traits, &result, seen.device.as_ref(), &foreign);
        Ok(Sample {
            setup: setup.clone(),
            round,
            boot,
            started_unix,
            result,
            device: seen.device,
            cpu: seen.cpu,
            foreign,
            marks,
        })
    }
}

/// Gives the guest other storage where the state that a cell needs cannot be had in place.
/// Returns the bytes that were written for it.
fn exchange(
    target: &mut dyn Prepared,
    running: Option<&Running>,
    setup: &Setup,
    attachment: &Attachment,
    state: State,
) -> anyhow::Result<u64> {
    let id = running.and_then(|r| Some((r, r.disks.get(&(setup.target.clone(), attachment.clone()))?)));
    // Without a guest or a disk the cell says so itself.
    let Some((running, id)) = id else { return Ok(0) };
    let Some(next) = target.exchange(attachment, state)? else { return Ok(0) };
    running
        .guest
        .exchange(id, &next.storage)
        .with_context(|| format!("cannot exchange the image of {}", setup.key()))?;
    target.exchanged(attachment)?;
    Ok(next.wrote_bytes)
}

/// Settings with the name of this run's scratch directory, which is new for every run, taken out.
fn without(scratch: &Path, settings: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let scratch = scratch.display().to_string();
    settings.into_iter().map(|(key, value)| (key, value.replace(&scratch, "SCRATCH"))).collect()
}
