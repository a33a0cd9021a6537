//! `vmio guard`: the bandwidth guarantee. Here are `check` and `plan`, which need no host; the daemon is in `run`, its
//! client in `ask`.

mod ask;
mod dry;
mod files;
mod gateways;
mod host;
pub mod in_force;
mod links;
mod observed;
mod record;
mod run;
mod set;
mod settings;
mod simulate;
mod status;
mod table;
mod texts;
mod told;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::plan::{self, Algorithm, Ask, Plan};
use vmio_model::policy::{DEFAULT, HOST, Kind, Links, Loaded, Matcher, Policy, PolicyError, label};
use vmio_model::problem::Problem;

use crate::context::{Context, Outcome};
use crate::term::{self, Style};

pub use set::Changed;

/// Guarantee guests their bandwidth: check and simulate a policy, put it in force
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio guard check --config guard.toml   every problem, with line and caret
  vmio guard check --config guard.toml --host
                                         and other tools' limits on this host
  vmio guard plan --config guard.toml    who gets what if all want everything
  vmio guard plan --config guard.d --demand vnet0=200Mbit vm:web1:rx=unbounded
  vmio guard plan --config guard.toml --algorithm dba --json
  vmio guard simulate --study amamou2012 --html amamou2012.html
  vmio guard run --config guard.toml --dry-run
  vmio guard run --config guard.toml     puts it in force (root)
  vmio guard status --watch              who gets what now
  vmio guard undo                        removes all limits")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check a policy; exit code 2 if it is refused
    ///
    /// Where a policy states no capacity, the link speed known to the kernel is used.
    Check(host::Args),
    /// Show what each interface would get; reads no host and changes nothing
    Plan {
        #[command(flatten)]
        config: Config,
        /// What an interface demands: a rate, or `all` it can get; :rx for receiving
        ///
        /// NAME is as in the policy: vnet0, vm:web1, netns:blue, mac:52:54:00:12:34:56, host, default. Without a
        /// demand an interface wants everything; host and default want nothing.
        #[arg(long, value_name = "NAME[:rx]=RATE", num_args = 1.., value_parser = Ask::parse)]
        demand: Vec<Ask>,
        /// How rates are computed
        #[arg(long, value_enum, default_value = "exact")]
        algorithm: How,
    },
    /// Run the guard on a simulated uplink, in virtual time
    Simulate(Box<simulate::Args>),
    /// Put a policy in force and keep it there: the daemon
    Run(Box<run::Args>),
    /// Show what the daemon has in force, and who gets what
    Status(ask::StatusArgs),
    /// Have the daemon reread its files, all or nothing
    Apply(ask::ApplyArgs),
    /// Keep a change that waits for it (apply --confirm, set --confirm)
    Confirm,
    /// Change a class over the files, until it is cleared or the host boots
    Set(Box<set::Args>),
    /// Remove all limits, with or without the daemon, which ends
    Undo,
}

#[derive(Debug, clap::Args)]
struct Config {
    /// Policy files, or directories whose *.toml are read in order and combined
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = "/etc/vmio/guard.d")]
    config: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum How {
    /// vmio's own: minima first, then the rest by priority and weight
    Exact,
    /// The published loop (amamou2012, section V.A), for comparison
    Dba,
    /// The shares of `exact` by a loop that only sets limits, for comparison
    ExactLoop,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.verb {
        Verb::Check(args) => check(args, context),
        Verb::Plan { config, demand, algorithm } => plan(config, demand, *algorithm, context),
        Verb::Simulate(args) => simulate::run(args, context),
        Verb::Run(args) => run::run(args, context),
        Verb::Status(args) => ask::status(args, context),
        Verb::Apply(args) => ask::apply(args, context),
        Verb::Confirm => ask::confirm(context),
        Verb::Set(args) => set::set(args, context),
        Verb::Undo => ask::undo(context),
    }
}

fn check(args: &host::Args, context: &Context) -> Outcome {
    let read = read(&args.config.config, &links::of_kernel(None))?;
    let host = match &read {
        Ok(loaded) if args.host => Some(host::check(&loaded.policy, context)?),
        _ => None,
    };
    let refused = host.as_ref().is_some_and(|host| !host.refused.is_empty());
    let exceeded: Vec<String> = match (&read, &host) {
        (_, Some(host)) => host.exceeded_locally.clone(),
        (Ok(Loaded { policy, .. }), None) => {
            policy.exceeded_locally(|_| false).into_iter().map(str::to_owned).collect()
        }
        (Err(_), None) => Vec::new(),
    };
    if context.json {
        let (problems, warnings) = match &read {
            Ok(loaded) => (&[][..], &loaded.warnings),
            Err(error) => (&error.problems[..], &error.warnings),
        };
        let list = |all| -> Vec<Entry> { <[Problem]>::iter(all).map(Entry::of).collect() };
        let (problems, warnings) = (list(problems), list(warnings));
        let policy = read.as_ref().ok().map(|loaded| settings::Settings::of(&loaded.policy));
        let (accepted, not_limited_locally, host) = (read.is_ok(), &exceeded, host.as_ref());
        let schema_version = "1.0";
        term::json(&Checked { schema_version, accepted, problems, warnings, policy, not_limited_locally, host })?;
    }
    let policy = accepted(read)?;
    if !context.json {
        term::print(&settings::text(&policy, &exceeded, refused))?;
        if let Some(host) = &host {
            term::print(&host::text(host, context.style))?;
        }
    }
    if refused {
        let failure = Failure::new(Exit::Usage, "this host cannot hold the policy");
        return Err(failure.help("docs/guard-linux.md says what this plane holds").into());
    }
    Ok(Exit::Done)
}

fn plan(config: &Config, asks: &[Ask], how: How, context: &Context) -> Outcome {
    let policy = accepted(read(&config.config, &Links::default())?)?;
    let algorithm = match how {
        How::Exact | How::ExactLoop => Algorithm::Exact,
        How::Dba => Algorithm::Dba,
    };
    let mut plan = planned(&policy, asks, algorithm)?;
    if matches!(how, How::ExactLoop) {
        // That loop sets limits of queues.
        plan.pools.iter_mut().for_each(|pool| pool.queueless = false);
    }
    if context.json {
        term::json(&plan)?;
    } else {
        term::print(&table::text(&plan, context.style))?;
        if let Some(patterns) = unseen_patterns(&policy, &plan) {
            term::note(&patterns);
        }
    }
    Ok(Exit::Done)
}

/// The patterns of the policy of which the plan has no interface, and how to have one in it.
fn unseen_patterns(policy: &Policy, plan: &Plan) -> Option<String> {
    let names = || plan.interfaces.iter().map(|row| row.name.as_str()).filter(|name| ![HOST, DEFAULT].contains(name));
    let plain = |kind: Kind, name: &str| match kind {
        Kind::Name => Some(name.to_owned()),
        kind => Some(name.strip_prefix(kind.word())?.strip_prefix(':')?.to_owned()),
    };
    let has_row = |matcher: &Matcher| {
        names().filter_map(|name| plain(matcher.kind, name)).any(|name| matcher.matches(matcher.kind, &name))
    };
    let is_unseen = |matcher: &Matcher| !matcher.is_exact() && !has_row(matcher);
    let unseen: Vec<_> = policy.entries.iter().filter(|entry| is_unseen(&entry.matcher)).collect();
    let first = &unseen.first()?.matcher;
    let class = |class: &Option<String>| class.clone().unwrap_or_else(|| "no class".to_owned());
    let mut named: Vec<String> =
        unseen.iter().take(3).map(|e| format!("{} ({})", e.matcher, class(&e.class))).collect();
    named.extend(unseen.len().checked_sub(3).filter(|n| *n > 0).map(|n| format!("{n} more")));
    let is = if unseen.len() == 1 { "is a pattern" } else { "are patterns" };
    let one = if first.text.contains(['?', '[']) { "NAME".to_owned() } else { first.text.replace('*', "0") };
    Some(format!("Not shown: {} {is}; try --demand {}=all", named.join(", "), label(first.kind, &one)))
}

/// The plan; its warnings go to standard error.
fn planned(policy: &Policy, asks: &[Ask], algorithm: Algorithm) -> anyhow::Result<Plan> {
    let plan = plan::plan(policy, asks, algorithm)
        .map_err(|e| Failure::new(Exit::Usage, e.to_string()).help("docs/guard.md describes how demands are named"))?;
    for warning in &plan.warnings {
        term::note(&format!("{}: {warning}", Style::stderr().yellow("warning")));
    }
    Ok(plan)
}

fn read(paths: &[PathBuf], links: &Links) -> anyhow::Result<Result<Loaded, PolicyError>> {
    let files = files::read(paths)?;
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    Ok(Policy::read(&files, links))
}

/// Shows warnings and problems on standard error; a refused policy is a usage error.
fn accepted(read: Result<Loaded, PolicyError>) -> anyhow::Result<Policy> {
    let style = Style::stderr();
    let show = |label: &str, all: &[Problem]| all.iter().for_each(|p| term::problem(p, label));
    match read {
        Ok(loaded) => {
            show(&style.yellow("warning"), &loaded.warnings);
            Ok(loaded.policy)
        }
        Err(error) => {
            show(&style.red("error"), &error.problems);
            show(&style.yellow("warning"), &error.warnings);
            let count = error.problems.len();
            let count = if count == 1 { "one problem".to_owned() } else { format!("{count} problems") };
            Err(Failure::new(Exit::Usage, format!("the policy is refused: {count}"))
                .help("docs/guard.md lists the keys and units")
                .into())
        }
    }
}

/// Whether a policy is accepted, and why not.
#[derive(Serialize, JsonSchema)]
pub struct Checked<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// Whether it is.
    accepted: bool,
    /// What is wrong with it; empty when it is accepted.
    problems: Vec<Entry<'a>>,
    /// What is likely not meant so.
    warnings: Vec<Entry<'a>>,
    /// What it says, with what holds where it says nothing; null where it is refused.
    policy: Option<settings::Settings<'a>>,
    /// Classes whose maximum holds for what leaves by the uplink, and not for local traffic (`local = "limit"`); with
    /// `--host` not those whose queues stand before the uplink here.
    not_limited_locally: &'a [String],
    /// What it meets on this host; null unless that was asked (`--host`).
    host: Option<&'a host::HostChecked>,
}

/// A problem for programs.
#[derive(Serialize, JsonSchema)]
struct Entry<'a> {
    /// The file, as it was named.
    file: &'a str,
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// Dotted key; empty where the text is no TOML.
    key: &'a str,
    /// What is wrong and what would be right.
    message: &'a str,
    /// More about it: other places, arithmetic, what to do.
    notes: &'a [String],
}

impl<'a> Entry<'a> {
    fn of(problem: &'a Problem) -> Self {
        let Problem { file, line, column, key, what: message, notes, .. } = problem;
        Self { file, line: *line, column: *column, key, message, notes }
    }
}
