//! The options of a run, as clap reads them, and what the plan gets of them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use vmio_model::failure::{Exit, Failure};
use vmio_model::study::WordError;
use vmio_node::ssh::{Address, NoAddress};
use vmio_rig::disks::places;
use vmio_rig::engine::plan::PlanOptions;
use vmio_rig::gentle::cap::DEFAULT_SHARE;
use vmio_rig::hadoop::Repository;
use vmio_rig::image::OwnKernel;
use vmio_rig::nodes::Nodes;
use vmio_rig::probes::power::{MeterName, PowerChoice};

use crate::context::Context;
use crate::{supervisor, transport};

/// The options of a run beside the study.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunOptions {
    /// Where to create targets: DIR, lvm:VG, lvmthin:VG/POOL, zfs:POOL[/DATASET], rbd:POOL, pve:NAME, or a modelled disk
    /// in memory, modelled:RATE, such as modelled:40MB/s, then any of ,overhead=150us ,seek=8ms ,size=4GiB; default is
    /// where guest images are, else the state directory. vfio:ADDRESS passes a PCI device through to a guest.
    /// ssh://[USER@]HOST[:PORT][/DIR] measures that machine (docs/ssh.md), libvirt://DOMAIN[/DIR] a guest in use
    /// through its guest agent (docs/libvirt.md)
    #[arg(long, value_name = "PLACE", value_hint = clap::ValueHint::AnyPath)]
    pub on: Option<String>,
    /// The machine at the other end of the network `wire`, or that serves the target `nbd-wire` from a file in DIR, by your
    /// own ssh: ssh://[USER@]HOST[:PORT][/DIR] (docs/ssh.md)
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<PeerPlace>,
    /// Use this whole block device as the target `device`; ALL DATA ON IT IS LOST. Give it
    /// twice to confirm
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<PathBuf>,
    /// With --device: use it even if it holds data (never if it is mounted or in use)
    #[arg(long, requires = "device")]
    pub force: bool,
    /// Protect other guests: cap the bandwidth, use one core, stop if they slow down (the
    /// default when others run)
    #[arg(long, conflicts_with = "no_gentle")]
    pub gentle: bool,
    /// Do not protect other guests. While others run, cells on networks and on the machine itself are measured only
    /// with this: they cannot be capped
    #[arg(long)]
    pub no_gentle: bool,
    /// Share of the measured bandwidth that --gentle may use
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = DEFAULT_SHARE,
        value_parser = number,
        allow_negative_numbers = true
    )]
    pub gentle_share: f64,
    /// Measure at most MINUTES, instead of the study's limit
    #[arg(long, value_name = "MINUTES", value_parser = number, allow_negative_numbers = true)]
    pub minutes: Option<f64>,
    /// Write at most GIB GiB in all, including the targets, instead of the study's limit
    #[arg(long, value_name = "GIB", value_parser = number, allow_negative_numbers = true)]
    pub gib: Option<f64>,
    /// Bring flash into its steady state first (SNIA): fill each target once more, and repeat writing cells until
    /// five rounds agree
    #[arg(long)]
    pub steady_state: bool,
    /// The meter of power and energy: powercap, hwmon, ipmi, redfish:https://HOST, or none; several times for several.
    /// Without it, those of the kernel, else the management controller by IPMI (docs/probes.md)
    // Not parsed here: clap repeats what it refuses, and an address may hold a password.
    #[arg(long, value_name = "METER")]
    pub power: Vec<String>,
    /// With --power redfish: a file of yours alone with two lines, user and password; else the environment variables
    /// VMIO_POWER_USER and VMIO_POWER_PASSWORD
    #[arg(long, value_name = "FILE", requires = "power", value_hint = clap::ValueHint::FilePath)]
    pub power_login: Option<PathBuf>,
    /// With --power redfish: the certificates that the controller is verified with, in PEM, instead of this host's
    #[arg(long, value_name = "FILE", requires = "power", value_hint = clap::ValueHint::FilePath)]
    pub power_ca: Option<PathBuf>,
    /// Tell the energy of cells by a meter of your own, a command for the shell. It runs beside each cell; each line
    /// that it prints is WATTS or SECONDS WATTS, and one that ends is run again every second (docs/probes.md)
    #[arg(long, value_name = "CMD", value_hint = clap::ValueHint::CommandString)]
    pub power_command: Option<String>,
    /// Tell the CPU time of cells by component too: guest, each file of QEMU and of programs, each subsystem of the
    /// kernel. Samples the processors about 1,000 times a second (docs/probes.md)
    #[arg(long)]
    pub components: bool,
    /// Time requests at the driver of guests' disks too, so that `vmio explain` tells the guest's block layer from
    /// virtual I/O. The guests' kernels count two events of each request (docs/probes.md)
    #[arg(long)]
    pub layers: bool,
    /// Print the plan and exit; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Start without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Continue the last interrupted run of this study
    #[arg(long)]
    pub resume: bool,
    /// Make the directory that --on names, and those above it that are missing
    #[arg(long)]
    pub make_place: bool,
    /// Boot the guests with this kernel, a bzImage or a vmlinux with PVH, instead of the host's or Debian's
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub guest_kernel: Option<PathBuf>,
    /// With --guest-kernel: its modules, /lib/modules/RELEASE or where that lies; without, all that guests need is
    /// taken to be built in
    #[arg(long, value_name = "DIR", requires = "guest_kernel", value_hint = clap::ValueHint::DirPath)]
    pub guest_modules: Option<PathBuf>,
    /// Where the study needs Hadoop's jars (51 MB, with HDFS 89 MB) and this host lacks them: fetch them from this
    /// Maven repository, https://HOST/PATH; without it, those cells are left out
    // Not parsed here, as with --power.
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    pub maven: Option<String>,
    /// Notes of the plan on the study.
    #[arg(skip)]
    pub notes: Vec<String>,
    /// Why this form of the study was chosen, where nobody named one.
    #[arg(skip)]
    pub form: Option<String>,
    /// What follows the run that is planned.
    #[arg(skip)]
    pub then: Option<String>,
}

/// The machine of `--peer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerPlace {
    /// How it is reached.
    pub address: Address,
    /// The directory there in which files are made, where one is named.
    pub dir: Option<PathBuf>,
}

impl FromStr for PeerPlace {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let host = text.find("://").map_or(0, |at| at + "://".len());
        let end = text[host..].find('/').map_or(text.len(), |at| host + at);
        let (address, dir) = text.split_at(end);
        let dir = Some(dir).filter(|dir| !matches!(*dir, "" | "/")).map(PathBuf::from);
        Ok(Self { address: address.parse()?, dir })
    }
}

/// The absolute path.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Parses a number.
fn number(text: &str) -> Result<f64, WordError> {
    text.parse().map_err(|_| WordError("give a number, for example 5 or 0.5".to_owned()))
}

impl RunOptions {
    /// Whether `--on` names another machine.
    pub fn is_afar(&self) -> bool {
        transport::names_machine(self.on.as_deref())
    }

    /// Does the run under a supervisor where its storage may not answer ([`crate::supervisor`]).
    pub fn supervise(&self, context: &Context) {
        if !self.is_afar() {
            let device = self.device.first().map(PathBuf::as_path);
            supervisor::supervise(self.on.as_deref(), device, &context.paths.state);
        }
    }

    /// The options of the plan, with the other machines that were reached.
    pub(super) fn for_plan(&self, context: &Context, nodes: &Nodes) -> PlanOptions {
        let here = !self.is_afar();
        let kernel = self
            .guest_kernel
            .as_deref()
            .map(|file| OwnKernel { file: absolute(file), modules: self.guest_modules.as_deref().map(absolute) });
        PlanOptions {
            on: self.on.clone().filter(|_| here),
            nodes: nodes.clone(),
            device: self.device.first().filter(|_| here).cloned(),
            force: self.force,
            gentle: self.gentle,
            no_gentle: self.no_gentle,
            make_place: self.make_place,
            kernel,
            // What `check` has let through.
            maven: self.maven.as_deref().and_then(|url| url.parse().ok()),
            power: PowerChoice {
                // What `check` has let through.
                meters: self.power.iter().filter_map(|name| name.parse().ok()).collect(),
                command: self.power_command.clone(),
                login: self.power_login.as_deref().map(absolute),
                ca_file: self.power_ca.as_deref().map(absolute),
            },
            told: self.notes.clone(),
            form: self.form.clone(),
            state_dir: context.paths.state.clone(),
        }
    }

    /// Refuses options that contradict each other, before anything is looked at.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |message: String, help: &str| Err(Failure::new(Exit::Usage, message).help(help));
        match self.device.as_slice() {
            [] => {}
            [a, b] if a == b => {}
            [a, b] => {
                return refuse(
                    format!("--device names two devices: {} and {}", a.display(), b.display()),
                    "name the same device twice; everything on it is lost",
                );
            }
            [a, ..] => {
                return refuse(
                    format!("everything on {} would be lost, so it must be named exactly twice", a.display()),
                    "for example: --device /dev/sdX --device /dev/sdX",
                );
            }
        }
        let not_there = [
            ("--gentle", self.gentle),
            ("--make-place", self.make_place),
            ("--steady-state", self.steady_state),
            ("--power", !self.power.is_empty()),
            ("--power-command", self.power_command.is_some()),
            ("--components", self.components),
            ("--maven", self.maven.is_some()),
            ("--layers", self.layers),
        ];
        if let Some((name, _)) = not_there.iter().find(|(_, given)| *given && self.is_afar()) {
            return refuse(format!("{name} concerns this host, and --on names another machine"), "leave it out");
        }
        if let (Some(device), Some(on)) = (self.device.first(), &self.on)
            && places::names_volumes(on)
        {
            return refuse(
                format!("--device {} and --on {on} both specify the target `device`", device.display()),
                "use only one of them",
            );
        }
        for name in &self.power {
            if let Err(why) = name.parse::<MeterName>() {
                return refuse(format!("--power: {why}"), "docs/probes.md has the meters and what they need");
            }
        }
        if let Some(Err(why)) = self.maven.as_deref().map(str::parse::<Repository>) {
            return refuse(format!("--maven: {why}"), "docs/workloads.md has what is fetched");
        }
        if !(self.gentle_share > 0.0 && self.gentle_share <= 1.0) {
            return refuse(format!("--gentle-share {} is not in 0 to 1", self.gentle_share), "0.25 is a quarter");
        }
        for (name, value) in [("--minutes", self.minutes), ("--gib", self.gib)] {
            if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
                return refuse(format!("{name} must be above 0"), "leave it out to use the study's own budget");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_peer_may_have_a_directory() {
        let read = |text: &str| {
            let PeerPlace { address, dir } = text.parse().unwrap();
            (address.to_string(), dir)
        };
        for bare in ["ssh://root@b:22", "ssh://root@b:22/"] {
            assert_eq!(read(bare), ("ssh://root@b:22".to_owned(), None));
        }
        let named = ("ssh://root@b:22".to_owned(), Some(PathBuf::from("/srv/disks")));
        assert_eq!(read("ssh://root@b:22/srv/disks"), named);
        assert!("/srv".parse::<PeerPlace>().is_err() && "ssh:///srv".parse::<PeerPlace>().is_err());
    }
}
