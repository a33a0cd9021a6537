//! `vmio guard simulate`: a policy's pools, a scenario from a file, or a published experiment, on
//! a simulated uplink in virtual time. Looks at no host and changes nothing.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::allocate::dba::Measures;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::compile::Refusal;
use vmio_model::policy::plan::{Algorithm, Ask, Plan, Pool, Row};
use vmio_model::policy::units::{self, UnitError};
use vmio_model::policy::{Direction, Links};
use vmio_model::simulate::{
    self, Allocator, Enforcement, MILLISECOND, SECOND, Scenario, Service, Settings, Source, Vif, scenario,
};

use crate::context::{Context, Outcome};
use crate::report::simulation::{self, Report, Simulated, Study};
use crate::{papers, term};

/// Run the guard on a simulated uplink, in virtual time
///
/// Reads no host and changes nothing; the same input gives the same figures. It simulates a policy's uplinks
/// (--config), a scenario from a file, or a published experiment.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio guard simulate --study amamou2012 --html amamou2012.html
  vmio guard simulate --config guard.toml --demand vnet0=200Mbit --seconds 5
  vmio guard simulate --scenario mine.toml --algorithm dba --period 100ms --json")]
#[command(override_usage = "vmio guard simulate [OPTIONS] <--config PATH|--scenario FILE|--study ID>")]
#[command(group(clap::ArgGroup::new("what").required(true).args(["config", "scenario", "study"])))]
pub struct Args {
    /// Policy files, or directories whose *.toml are read in order
    #[arg(long, value_name = "PATH", num_args = 1..)]
    config: Vec<PathBuf>,
    /// What an interface of the policy sends [default: as much as the uplink takes]
    #[arg(long, value_name = "NAME[:rx]=RATE", num_args = 1.., value_parser = Ask::parse, requires = "config")]
    demand: Vec<Ask>,
    /// A scenario: docs/guard-simulate.md lists its keys
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// A published experiment, compared with its printed figures; takes minutes
    #[arg(long, value_enum, conflicts_with_all = ["algorithm", "measures", "enforcement", "service", "period"])]
    study: Option<PublishedStudy>,
    /// Who sets the limits
    #[arg(long, value_enum, default_value = "exact")]
    algorithm: How,
    /// What the dba algorithm counts as a member's traffic
    #[arg(long, value_enum, default_value = "offered")]
    measures: Measured,
    /// Where the limits are enforced
    #[arg(long, value_enum, default_value = "held")]
    enforcement: Where,
    /// How the wire serves what waits for it when nobody sets limits (--algorithm none)
    #[arg(long, value_enum, default_value = "fifo")]
    service: Served,
    /// Period of the loop, such as 10ms [default: of the policy or scenario]
    #[arg(long, value_name = "TIME", value_parser = period)]
    period: Option<Duration>,
    /// Seconds of virtual time [default: of the scenario, 10 for a policy]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,
    /// Write the plots to FILE as HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PublishedStudy {
    /// Unshaped, the published loop at 100 ms, exact at 10 ms; loss by period, 1 ms to 1 s
    Amamou2012,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum How {
    /// Nobody
    None,
    /// The published loop (amamou2012, section V.A)
    Dba,
    /// vmio's own
    Exact,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Measured {
    /// What the guest tried to send
    Offered,
    /// What passed the limit
    Passed,
}

impl From<Measured> for Measures {
    fn from(measured: Measured) -> Measures {
        match measured {
            Measured::Offered => Measures::Offered,
            Measured::Passed => Measures::Passed,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Served {
    /// One queue for all, first in, first out
    Fifo,
    /// A queue each, one packet of each in turn
    Turns,
}

impl From<Served> for Service {
    fn from(served: Served) -> Service {
        match served {
            Served::Fifo => Service::Fifo,
            Served::Turns => Service::Turns,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Where {
    /// Before the copy: excess stays in the guest; what guests receive is queued on the host
    Held,
    /// Behind the host's queue
    Queued,
    /// The host's scheduler shares by contract; the loop does what that cannot
    Hierarchy,
}

fn period(text: &str) -> Result<Duration, UnitError> {
    let time = units::time(text)?;
    let fits = (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time);
    if fits { Ok(time) } else { Err(UnitError(format!("{text} is out of range: 1ms to 10s"))) }
}

fn picoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let command = context.command.join(" ");
    let report = match (&args.study, &args.scenario) {
        (Some(PublishedStudy::Amamou2012), _) => amamou2012(args, command)?,
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|e| {
                anyhow::Error::new(e).context(Failure::new(Exit::Usage, format!("cannot read {}", file.display())))
            })?;
            let scenario = read(&file.display().to_string(), &text)?;
            Report { runs: all(vec![(file.display().to_string(), scenario, false)], args)?, study: None, command }
        }
        (None, None) => Report { runs: all(pools(args)?, args)?, study: None, command },
    };
    if let Some(file) = &args.html {
        crate::files::write(file, &simulation::html(&report))?;
        term::note(&format!("Plots: {}", file.display()));
    }
    if context.json {
        term::json(&simulation::json(&report))?;
    } else {
        term::print(&simulation::text(&report, context.style))?;
    }
    Ok(Exit::Done)
}

fn read(file: &str, text: &str) -> anyhow::Result<Scenario> {
    Scenario::from_toml(file, text).map_err(|error| {
        error.problems.iter().for_each(|p| term::problem(p, "error"));
        Failure::new(Exit::Usage, format!("the scenario {file} is refused"))
            .help("docs/guard-simulate.md lists its keys")
            .into()
    })
}

/// A scenario with its name, and whether it is of what guests receive, which no ring of theirs holds back.
type Named = (String, Scenario, bool);

/// Each pool of the policy as a scenario.
fn pools(args: &Args) -> anyhow::Result<Vec<Named>> {
    let policy = super::accepted(super::read(&args.config, &Links::default())?)?;
    // The plan says which members take part, and with which minimum.
    let algorithm = match (args.algorithm, args.enforcement) {
        (How::Dba, Where::Held | Where::Queued) => Algorithm::Dba,
        _ => Algorithm::Exact,
    };
    let plan = super::planned(&policy, &args.demand, algorithm)?;
    let of = |pool: &Pool| {
        let scenario = Scenario {
            capacity: pool.capacity_bps,
            packet_bytes: policy
                .uplinks
                .get(&pool.uplink)
                .map_or(scenario::PACKET_BYTES, |uplink| uplink.framing.wire_bytes(scenario::PACKET_BYTES)),
            duration: 10 * SECOND,
            period: picoseconds(policy.guard.period),
            vifs: vifs(&plan, pool),
        };
        let receives = pool.direction == Direction::GuestRx;
        (format!("{} {}", pool.uplink, pool.direction.word()), scenario, receives)
    };
    let busy = |pool: &&Pool| !plan.rows(pool).all(Row::is_idle_implicit);
    let busy: Vec<Named> = plan.pools.iter().filter(busy).map(of).collect();
    if busy.is_empty() {
        let error = Failure::new(Exit::Usage, "nothing is sent on any uplink of the policy");
        return Err(error.help("name an interface that a pattern matches, or the host, with --demand").into());
    }
    Ok(busy)
}

fn vifs(plan: &Plan, pool: &Pool) -> Vec<Vif> {
    let vif = |row: &Row| {
        let source = Source::OpenLoop(vec![(0, row.demand_bps.unwrap_or(pool.capacity_bps))]);
        Some(Vif { name: row.name.clone(), contract: row.member?, source })
    };
    plan.rows(pool).filter_map(vif).collect()
}

fn all(scenarios: Vec<Named>, args: &Args) -> anyhow::Result<Vec<Simulated>> {
    let allocator = match (args.algorithm, args.measures) {
        (How::None, _) => Allocator::None,
        (How::Dba, measured) => Allocator::Dba(measured.into()),
        (How::Exact, _) => Allocator::Exact,
    };
    let one = |(subject, mut scenario, receives): Named| {
        let enforcement = match args.enforcement {
            Where::Held if receives => Enforcement::Queued,
            Where::Held => Enforcement::Held,
            Where::Queued => Enforcement::Queued,
            Where::Hierarchy => Enforcement::Hierarchy,
        };
        shorten(&mut scenario, args);
        let period = args.period.map_or(scenario.period, picoseconds);
        let settings = Settings { enforcement, service: args.service.into(), ..Settings::new(allocator, period) };
        let outcome = simulate::run(&scenario, &settings).map_err(refused)?;
        Ok(Simulated { subject, scenario, settings, outcome })
    };
    scenarios.into_iter().map(one).collect()
}

/// The plane cannot hold what the policy promises.
fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::Error::new(refusal).context(Failure::new(Exit::Usage, "the plane cannot hold this"))
}

fn shorten(scenario: &mut Scenario, args: &Args) {
    if let Some(seconds) = args.seconds {
        scenario.duration = u64::from(seconds) * SECOND;
    }
}

/// The periods of the study's last figure.
const PERIODS_MS: [u64; 7] = [1, 5, 10, 50, 100, 500, 1000];

fn amamou2012(args: &Args, command: String) -> anyhow::Result<Report> {
    let (paper, mut scenario) = papers::experiment("amamou2012").context("amamou2012 is not in this vmio")?;
    shorten(&mut scenario, args);
    let (offered, passed) = (Allocator::Dba(Measures::Offered), Allocator::Dba(Measures::Passed));
    let settings = |allocator, ms: u64| Settings::new(allocator, ms * MILLISECOND);
    let mut jobs = vec![
        settings(Allocator::None, 100),
        Settings { service: Service::Turns, ..settings(Allocator::None, 100) },
        settings(offered, 100),
        settings(passed, 100),
        settings(Allocator::Exact, 10),
    ];
    let shown = jobs.len();
    for allocator in [offered, passed, Allocator::Exact] {
        jobs.extend(PERIODS_MS.map(|ms| settings(allocator, ms)));
    }
    let mut done = in_parallel(&scenario, &jobs)?;
    let loss = |outcome: &simulate::Outcome| outcome.totals.iter().map(simulate::Totals::loss_ratio).collect();
    let by_period = done.split_off(shown);
    let periods = jobs[shown..].iter().zip(&by_period).map(|(s, o)| (s.allocator, s.period, loss(o))).collect();
    let run =
        |(settings, outcome)| Simulated { subject: paper.key.clone(), scenario: scenario.clone(), settings, outcome };
    let runs = jobs.into_iter().zip(done).map(run).collect();
    Ok(Report { runs, study: Some(Study { paper, periods }), command })
}

/// Runs every job, as many at once as there are CPUs; jobs that are alike run once.
fn in_parallel(scenario: &Scenario, jobs: &[Settings]) -> anyhow::Result<Vec<simulate::Outcome>> {
    let mut different: Vec<Settings> = Vec::new();
    for job in jobs {
        if !different.contains(job) {
            different.push(*job);
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Result<simulate::Outcome, Refusal>>>> =
        different.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some(i) =
            Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).filter(|i| *i < different.len())
        {
            let outcome = simulate::run(scenario, &different[i]);
            *outcomes[i].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(outcome);
            term::note(&format!("simulated {} of {}", i + 1, different.len()));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let of = |job: &Settings| {
        let i = different.iter().position(|d| d == job).expect("every job is among the different ones");
        let outcome = outcomes[i].lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        outcome.expect("every outcome was set before the threads ended").map_err(refused)
    };
    jobs.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// Each is measured, too.
    #[test]
    fn studies_know_what_is_simulated() {
        let known: Vec<String> = PublishedStudy::value_variants()
            .iter()
            .filter_map(|k| Some(k.to_possible_value()?.get_name().to_owned()))
            .collect();
        assert!(!known.is_empty() && known.iter().all(|name| papers::experiments().any(|study| study == name)));
    }
}
