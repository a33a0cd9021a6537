//! `vmio tax`: how much of this host's speed a reference guest gets, and why not more.

use clap::builder::{PossibleValue, PossibleValuesParser};
use vmio_model::cell::Kind;
use vmio_model::failure::{Exit, Failure};
use vmio_model::rules::{Rule, Severity};
use vmio_model::study::{HostResource, Study, WordError};
use vmio_node::Local;
use vmio_rig::disks::targets::elsewhere::DEVICE;
use vmio_rig::guests;

use crate::context::{Context, Outcome};
use crate::report::Forms;
use crate::run::{self, Mode, RunOptions};
use crate::store::RunId;

const EXAMPLES: &str = "\
Examples:
  vmio tax --dry-run             the plan: where, how long, how much is written
  vmio tax --quick --yes         the quick study, without asking
  vmio tax --minutes 3           at most 3 minutes; shares may stay open
  vmio tax --only storage,cpu    only these, in less time
  vmio tax --guests qemu,container
                                 also a container, in every part
  vmio tax --light               writes 5 GiB at most: for disks that others use,
                                 and flash that wears
  vmio tax --full --on /srv/vms  every mode, on the storage of the guests' images
  vmio tax --prove               measure, make the costliest finding's change,
                                 and measure again
  vmio tax --like web1 --dry-run a reference guest set up like web1, then with
                                 those fixes that can be measured
  vmio tax --noise               how small a difference this machine can show
  vmio tax --on ssh://root@host  what another machine has, by your own ssh
  vmio tax --on libvirt://web1   what a running guest has, by its guest agent
  vmio tax --peer ssh://host     what the network to it carries
  vmio tax --resume              continue the last interrupted run";

/// Measure how much of this host's speed a guest gets, and what costs most: storage, network, processor, memory
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The quick study: whole device and sparse file, emulated and virtio disk and network card, processor and
    /// memory. The default; on storage that other guests use and on flash with a volatile write cache, --light is
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The quick study with at most 5 GiB written in all
    #[arg(long, conflicts_with_all = ["full", "quick"])]
    light: bool,
    /// The full study: every driver, target, cache mode and AIO mode
    #[arg(long)]
    full: bool,
    /// Measure only these of storage, network, cpu and memory [default: all]; shortens the time limit
    #[arg(long, value_name = "WHAT", value_delimiter = ',', conflicts_with_all = ["like", "resume", "of"])]
    only: Vec<HostResource>,
    /// What to measure against the host: reference guests under QEMU, containers (namespaces and a control group, no
    /// engine), or both [default: qemu]; changes the time limit
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds(), conflicts_with_all = ["like", "resume", "of"])]
    guests: Vec<String>,
    /// Measure a reference guest set up like this running guest, then with the fixes of its findings that can be
    /// measured (driver, cache and AIO, I/O thread, queues, image); the running guest is only read
    #[arg(long, value_name = "GUEST", conflicts_with_all = ["full", "quick", "light", "noise"])]
    like: Option<String>,
    /// With --like: which disk, by target, slot, id or path [default: the first]
    #[arg(long, value_name = "DISK", requires = "like")]
    disk: Option<String>,
    /// A/A test: measure each cell against itself, to find the smallest detectable difference
    #[arg(long, conflicts_with = "prove")]
    noise: bool,
    /// Measure a finding's setup with and without its change; the costliest finding
    /// unless RULE names one
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "", value_parser = rule)]
    prove: Option<String>,
    /// With --prove: use the findings of this stored run instead of measuring first
    #[arg(long, value_name = "RUN", requires = "prove")]
    of: Option<RunId>,
    /// Exit with code 5 if a finding is at or above this severity
    #[arg(long, value_name = "SEVERITY", value_parser = super::severity())]
    fail_on: Option<Severity>,
    #[command(flatten)]
    options: Box<RunOptions>,
    #[command(flatten)]
    forms: Forms,
}

/// Parses the id of a rule; empty is the costliest finding. An unknown id is refused before anything is measured.
fn rule(id: &str) -> Result<String, WordError> {
    if id.is_empty() || Rule::find(id).is_some() {
        return Ok(id.to_owned());
    }
    let near = Rule::nearest(id).map(|near| format!("; did you mean `{near}`?"));
    Err(WordError(format!("no rule has this name{} (docs/rules.md lists all)", near.unwrap_or_default())))
}

/// The kinds of guests that vmio starts.
fn kinds() -> PossibleValuesParser {
    let started = guests::ALL.iter().filter(|kind| Kind::of(kind.name()).is_guest());
    started.map(|kind| PossibleValue::new(kind.name()).help(kind.about())).collect::<Vec<_>>().into()
}

/// The study with these kinds of guests; where none is named, with its own.
fn with_guests(kinds: &[String], study: Study) -> Result<Study, Failure> {
    let mut named: Vec<&str> = kinds.iter().map(String::as_str).collect();
    named.dedup();
    if named.is_empty() {
        return Ok(study);
    }
    let Some(other) = study.with_guests(&named) else {
        let failure = Failure::new(Exit::Usage, format!("the study {} has no guests that vmio starts", study.name));
        return Err(failure.help("leave --guests out: another machine is measured as it is"));
    };
    Ok(Study { title: format!("{} ({})", other.title, named.join(", ")), ..other })
}

/// The part of a study that `--only` names; without it all.
fn only(resources: &[HostResource], study: Study) -> Result<Study, Failure> {
    if resources.is_empty() {
        return Ok(study);
    }
    let names = vmio_rig::names();
    let lacks = resources.iter().find(|resource| study.only(&[**resource], &names).is_none());
    match (lacks, study.only(resources, &names)) {
        (None, Some(part)) => {
            let what: Vec<&str> = resources.iter().map(|resource| resource.word()).collect();
            Ok(Study { title: format!("{} (only {})", part.title, what.join(", ")), ..part })
        }
        (lacks, _) => {
            let what = lacks.map_or_else(String::new, ToString::to_string);
            Err(Failure::new(Exit::Usage, format!("the study {} does not measure {what}", study.name)))
        }
    }
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let mode = match (&args.prove, args.noise) {
        (Some(rule), _) => Mode::Prove { rule: rule.clone(), of: args.of },
        (None, true) => Mode::Noise,
        (None, false) => Mode::Study,
    };
    let mut options = (*args.options).clone();
    options.supervise(context);
    let name = match (args.full, args.quick || args.like.is_some(), args.light) {
        (true, ..) => "full",
        (_, true, _) => "quick",
        (.., true) => "light",
        // Not measured: with --of the stored run is taken.
        _ if args.of.is_some() => "quick",
        _ if options.is_afar() => "remote",
        _ if options.peer.is_some() => "wire",
        _ => {
            let (name, why) = run::form::choose(&options, &mode, context, &Local::new());
            options.form = why;
            name
        }
    };
    let mut study = crate::studies::named(name)?;
    if name == "remote" && !options.device.is_empty() {
        for disks in study.matrix.iter_mut().filter_map(|matrix| matrix.disks.as_mut()) {
            disks.targets = vec![DEVICE.to_owned()];
        }
    }
    let Some(guest) = &args.like else {
        let study = only(&args.only, with_guests(&args.guests, study)?)?;
        return run::start(&study, mode, &options, &args.forms, args.fail_on, context);
    };
    // Only the disk is set up like the guest's.
    let study = only(&[HostResource::Storage], study)?;
    let like = run::like::find(guest, args.disk.as_deref(), options.on.as_deref(), &study, &Local::new())?;
    options.on = like.on;
    options.supervise(context);
    options.notes = like.notes;
    run::start(&like.study, mode, &options, &args.forms, args.fail_on, context)
}
