//! `vmio top`: who uses the disks, the wire and the processors now, and who suffers for it.

use std::ops::RangeInclusive;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use vmio_model::study::WordError;

use super::guard::in_force;
use crate::context::{Context, Outcome};
use crate::top::columns::{self, Column, Set};
use crate::top::{self, Options};

const EXAMPLES: &str = "\
Examples:
  vmio top                 verdicts first, then disks, guests and other processes
  vmio top --once          one interval as text
  vmio top --json          one JSON object per interval and line, until Ctrl-C
  vmio top --json --count 6 --interval 10
                           the same for one minute
  vmio top --sort latency --columns disk --filter db
  vmio top --calls --columns disk
                           also the host's part of each guest's requests

Changes no guest and no setting. As root it loads eBPF programs at tracepoints
of the block layer and of ext4, to see which process sends which requests to
which disk and who waits in fsync; they are removed when vmio exits. With
--no-ebpf there are no latency percentiles, only means for guests whose
requests libvirt counts, and waits in fsync are not seen.";

/// Show who uses the disks, network and processors now, and which guest suffers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print one interval and exit (as JSON with --json); the default without a terminal
    #[arg(long)]
    once: bool,
    /// Print N intervals and exit; without it --json continues until interrupted
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Length of an interval in seconds [default: 1, with --once 3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<f64>,
    /// Show these columns of guests
    #[arg(long, value_name = "SET", value_parser = sets(), ignore_case = true, default_value = "overview")]
    columns: Set,
    /// Sort guests by this column
    #[arg(long, value_name = "COLUMN", value_parser = sorts(), ignore_case = true, default_value = "load")]
    sort: &'static Column,
    /// Show only guests whose name contains this text; verdicts cover all
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Do not load eBPF programs
    #[arg(long)]
    no_ebpf: bool,
    /// Also time what each hypervisor asks of the host; that makes each system call of the host a little slower
    #[arg(long, conflicts_with = "no_ebpf")]
    calls: bool,
}

/// Shortest and longest interval.
const SECONDS: RangeInclusive<f64> = 0.1..=3600.0;

fn seconds(text: &str) -> Result<f64, WordError> {
    seconds_within(text, &SECONDS, "3")
}

/// A time in seconds, with or without an `s`. The error has the example.
pub fn seconds_within(text: &str, range: &RangeInclusive<f64>, example: &str) -> Result<f64, WordError> {
    let number = text.strip_suffix('s').unwrap_or(text).trim().parse::<f64>().ok();
    let wrong = || WordError(format!("seconds from {} to {}, for example {example}", range.start(), range.end()));
    number.filter(|s| range.contains(s)).ok_or_else(wrong)
}

/// Columns by their names, and by their titles.
fn sorts() -> impl TypedValueParser<Value = &'static Column> {
    let aliases = |c: &Column| [c.title].into_iter().chain(c.former());
    let names = columns::ALL.iter().map(|c| PossibleValue::new(c.name).aliases(aliases(c)));
    PossibleValuesParser::new(names).try_map(|name| columns::find(&name).ok_or("no such column"))
}

/// Sets of columns by their names.
fn sets() -> impl TypedValueParser<Value = Set> {
    PossibleValuesParser::new(Set::ALL.map(Set::name)).try_map(|name| Set::find(&name).ok_or("no such set"))
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let options = Options {
        count: args.count.or(args.once.then_some(1)),
        interval: args.interval.unwrap_or(if args.once { 3.0 } else { 1.0 }),
        set: args.columns,
        sort: args.sort,
        filter: args.filter.clone(),
        no_ebpf: args.no_ebpf,
        calls: args.calls,
        guard: in_force::socket(context),
    };
    top::run(&options, context)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn intervals_and_columns() {
        assert_eq!((seconds("3"), seconds("0.5s")), (Ok(3.0), Ok(0.5)));
        for wrong in ["0", "-1", "nan", "inf", "", "s", "4000", "3m"] {
            assert!(seconds(wrong).unwrap_err().to_string().contains("0.1 to 3600"), "{wrong}");
        }
        let sorted = |by: &str| Only::try_parse_from(["top", "--sort", by]).map(|only| only.args.sort.key);
        assert_eq!((sorted("latency").unwrap(), sorted("p99").unwrap(), sorted("MB/s").unwrap()), ('l', 'l', 'b'));
        assert_eq!((sorted("steal").unwrap(), sorted("HELD%").unwrap()), ('s', 'y'));
        assert_eq!((sorted("STEAL%").unwrap(), sorted("WAIT%").unwrap()), ('s', 's'), "a former title");
        let set = |name: &str| Only::try_parse_from(["top", "--columns", name]).map(|only| only.args.columns);
        assert_eq!((set("Disk").unwrap(), Only::parse_from(["top"]).args.columns), (Set::Disk, Set::Overview));
        assert!(set("all").is_err());
        assert!(sorted("nothing").unwrap_err().to_string().contains("latency"));
    }
}
