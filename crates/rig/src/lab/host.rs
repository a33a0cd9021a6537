//! A lab host that runs: its disks, its set-up, commands in it, and what is brought home.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::result::Accel;
use vmio_node::linux::system;
use vmio_node::{ChangeId, Exec, Journal, Node, Process};

use super::SETUP;
use crate::disks::Storage;
use crate::guests::qemu::Qemu;
use crate::guests::{self, DiskSpec, Guest, GuestKind, GuestSpec, LaunchCtx};

/// Name of the guest in messages.
const NAME: &str = "lab";
const VCPUS: u32 = 2;
/// The study lu2016-flash-native takes most of it: a modelled disk and caches, all in memory.
const MEMORY_MIB: u32 = 3072;
/// Size of each of its disks; they are sparse files.
const DISK_BYTES: u64 = 6 << 30;
/// The disk with the volume group, and the one with the file system.
const DISKS: [&str; 2] = ["lvm", "files"];
/// vmio in a lab host takes what it says of its machine from this variable.
pub const NODE_VARIABLE: &str = "VMIO_NODE";
/// State of vmio in a lab host: on its file system, since tmpfs has no O_DIRECT.
const STATE: &str = "/srv/vmio";
/// Where commands run.
const HOME: &str = "/root";
const SETUP_LIMIT: Duration = Duration::from_secs(120);
/// Most that a command may write whose output is brought home, in bytes, and how long it may take.
const MOST_OUTPUT: usize = 256 << 20;
const OUTPUT_LIMIT: Duration = Duration::from_secs(300);

/// Why there is no lab host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guest failed.
    #[error(transparent)]
    Guest(#[from] guests::Error),
    /// This host or the agent in the guest failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    /// The set-up failed.
    #[error("the lab host booted but is not ready: {said}")]
    Setup {
        /// What its set-up said.
        said: String,
    },
    /// A command whose output is needed failed.
    #[error("in the lab host {said}")]
    Command {
        /// What it was, and what it said.
        said: String,
    },
    /// A file failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
}

type Result<T> = std::result::Result<T, Error>;

/// A lab host that runs.
pub struct LabHost {
    guest: Box<dyn Guest>,
    journal: Arc<Journal>,
    disks: ChangeId,
    label: String,
}

impl LabHost {
    /// Boots it and makes a host of it. Its disks lie in `disks`, a directory that is made for it
    /// and goes with it.
    ///
    /// # Errors
    /// When it does not boot or its set-up fails; then nothing of it is left.
    pub fn start(ctx: &LaunchCtx<'_>, disks: &Path) -> Result<Self> {
        let directory = ctx.journal.scratch_dir(disks)?;
        let undo = |e: Error| {
            let _ = ctx.journal.undo(directory);
            e
        };
        let guest = boot(ctx, disks).map_err(undo)?;
        let by = match guest.accelerator().map(|a| a.accel) {
            Some(Accel::Kvm) => "KVM",
            _ => "TCG, software emulation",
        };
        let release = system::release(guest.node().reader()).unwrap_or_default();
        let label = format!("lab host (Linux {} under {by})", release);
        let lab = Self { guest, journal: Arc::clone(&ctx.journal), disks: directory, label };
        match lab.set_up() {
            Ok(()) => Ok(lab),
            Err(e) => {
                let _ = lab.stop();
                Err(e)
            }
        }
    }

    fn set_up(&self) -> Result<()> {
        let paths = DISKS.map(|d| self.guest.disk_path(d).map(|p| p.to_string_lossy().into_owned()));
        let [lvm, files] = paths;
        let setup = Path::new("/usr").join(SETUP);
        let cmd = Exec::new(setup.to_string_lossy()).args([lvm?, files?]).limit(SETUP_LIMIT);
        let output = self.guest.node().exec(&cmd)?;
        if output.ok() {
            return Ok(());
        }
        Err(Error::Setup { said: format!("{} ({:?})", output.err().trim(), output.end) })
    }

    /// What it is, for results: `lab host (Linux 6.1.0-28-amd64 under KVM)`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Seconds from its start to the agent's first answer.
    pub fn boot_seconds(&self) -> f64 {
        self.guest.boot_seconds().unwrap_or_default()
    }

    /// Where commands run in it.
    pub fn node(&self) -> Arc<dyn Node> {
        self.guest.node()
    }

    /// Copies a file of this host into the directory in which commands run.
    ///
    /// # Errors
    /// When it cannot be read, or the lab host is gone.
    pub fn bring(&self, file: &Path) -> Result<()> {
        let name = file.file_name().unwrap_or(file.as_os_str());
        Ok(self.guest.node().put(file, &Path::new(HOME).join(name), None)?)
    }

    /// A command as an administrator of this host would give it: in root's home, with vmio's state
    /// on the file system.
    fn command(&self, program: &str, args: &[String]) -> Exec {
        // The shell gives its place to the command, so that the exit code and signals are its own.
        let script = format!("cd {HOME} && exec \"$@\"");
        let mut cmd = Exec::new("/bin/sh").args(["-c", &script, "sh", program]).args(args);
        for (name, value) in [("HOME", HOME), ("VMIO_STATE", STATE), (NODE_VARIABLE, self.label.as_str())] {
            cmd.env.insert(name.into(), value.into());
        }
        cmd
    }

    /// Starts a command.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, program: &str, args: &[String]) -> vmio_node::Result<Box<dyn Process>> {
        self.guest.node().spawn(&self.command(program, args))
    }

    /// What a command writes to standard output, which may be long.
    ///
    /// # Errors
    /// When it cannot be started, fails, or the lab host is gone.
    pub fn output(&self, program: &str, args: &[String]) -> Result<Vec<u8>> {
        let mut cmd = self.command(program, args).limit(OUTPUT_LIMIT);
        cmd.keep_bytes = MOST_OUTPUT;
        let output = self.guest.node().exec(&cmd)?;
        if output.ok() && !output.truncated {
            return Ok(output.stdout);
        }
        let why = if output.truncated { "it writes too much".to_owned() } else { output.err() };
        Err(Error::Command { said: format!("{program} {}: {} ({:?})", args.join(" "), why.trim(), output.end) })
    }

    /// Why it no longer answers, with the end of its console; it is ended.
    pub fn give_up(&self, seen: &str) -> Error {
        self.guest.give_up(seen).into()
    }

    /// Switches it off and takes its disks away.
    ///
    /// # Errors
    /// When QEMU does not end or a file cannot be removed.
    pub fn stop(self) -> Result<()> {
        let stopped = self.guest.stop();
        let undone = self.journal.undo(self.disks);
        stopped?;
        Ok(undone?)
    }
}

fn boot(ctx: &LaunchCtx<'_>, dir: &Path) -> Result<Box<dyn Guest>> {
    let mut disks = Vec::new();
    for id in DISKS {
        let path = dir.join(format!("{id}.raw"));
        let made = std::fs::File::create(&path).and_then(|f| f.set_len(DISK_BYTES));
        made.map_err(|source| Error::File { what: "make", path: path.clone(), source })?;
        let attachment = Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true);
        disks.push(DiskSpec { id: id.into(), storage: Storage::File(path), attachment: Some(attachment) });
    }
    let spec = GuestSpec { disks, ..GuestSpec::of(NAME, VCPUS, MEMORY_MIB) };
    match Qemu.launch(ctx, &spec) {
        // As in a run: under emulation on a busy host a boot may hang by chance.
        Err(down @ guests::Error::Down { .. }) if !ctx.journal.is_closed() => {
            let what = down.to_string();
            (ctx.progress)(&format!("{}; it is booted once more", what.lines().next().unwrap_or_default()));
            Ok(Qemu.launch(ctx, &spec)?)
        }
        launched => Ok(launched?),
    }
}
