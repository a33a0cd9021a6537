//! `vmio tax`: how much of this host's storage a reference guest gets, and why not more.

use vmio_model::rules::Severity;
use vmio_node::Local;

use super::runs::RunId;
use crate::cli::{Context, Outcome};
use crate::report::Forms;
use crate::run::{self, Mode, Wishes};

const EXAMPLES: &str = "\
Examples:
  vmio tax --dry-run               the plan: where, how long, what is written; nothing is done
  vmio tax --quick --yes           about six minutes, without a question
  vmio tax --light                 with at most 5 GiB written: for disks that others use, and flash that wears
  vmio tax --full --on /srv/vms    every mode, on the storage that holds the guests' images
  vmio tax --prove                 measure, then apply the costliest finding's change and measure again
  vmio tax --like web1 --dry-run   a reference guest as web1 is set up, then with the mends that can be measured
  vmio tax --noise                 what difference this machine cannot tell apart
  vmio tax --resume                go on with the last run that was broken off";

/// Measure how much of this host's storage a guest gets, and name the setting that costs most
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The quick study: whole device and sparse file, emulated and virtio disk. The default, but for storage that
    /// other guests use and flash with a volatile write cache: there it is --light
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The quick study with at most 5 GiB written in all
    #[arg(long, conflicts_with_all = ["full", "quick"])]
    light: bool,
    /// The full study: every driver; targets, cache and AIO modes in blocks of their own
    #[arg(long)]
    full: bool,
    /// Give the reference guest the settings of this guest that runs here, then the changes of its findings that
    /// can be measured (driver, cache and AIO, I/O thread, queues, image); the guest itself is only looked at
    #[arg(long, value_name = "GUEST", conflicts_with_all = ["full", "quick", "light", "noise"])]
    like: Option<String>,
    /// With --like: which of its disks, by target, slot, id or path; default is the first
    #[arg(long, value_name = "DISK", requires = "like")]
    disk: Option<String>,
    /// A/A: measure each cell against itself, to show what this machine cannot tell apart
    #[arg(long, conflicts_with = "prove")]
    noise: bool,
    /// Measure a finding's set-up against its change; RULE is a finding's id, else the costliest
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "")]
    prove: Option<String>,
    /// With --prove: take the findings of this stored run instead of measuring first
    #[arg(long, value_name = "RUN", requires = "prove")]
    of: Option<RunId>,
    /// End with code 5 when a finding is at or above this severity
    #[arg(long, value_name = "SEVERITY", value_parser = super::severity())]
    fail_on: Option<Severity>,
    #[command(flatten)]
    wishes: Wishes,
    #[command(flatten)]
    forms: Forms,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut wishes = args.wishes.clone();
    let name = match (args.full, args.quick || args.like.is_some(), args.light) {
        (true, ..) => "full",
        (_, true, _) => "quick",
        (.., true) => "light",
        // A stored run is proven as it was measured.
        _ if args.of.is_some() => "quick",
        _ => {
            let (name, why) = run::form::choose(&wishes, context, &Local::new());
            wishes.form = why;
            name
        }
    };
    let mode = match (&args.prove, args.noise) {
        (Some(rule), _) => Mode::Prove { rule: rule.clone(), of: args.of },
        (None, true) => Mode::Noise,
        (None, false) => Mode::Study,
    };
    let study = run::studies::named(name)?;
    let Some(guest) = &args.like else {
        return run::start(&study, mode, &wishes, &args.forms, args.fail_on, context);
    };
    let like = run::like::find(guest, args.disk.as_deref(), wishes.on.as_deref(), &study, &Local::new())?;
    wishes.on = like.on;
    wishes.told = like.told;
    run::start(&like.study, mode, &wishes, &args.forms, args.fail_on, context)
}
