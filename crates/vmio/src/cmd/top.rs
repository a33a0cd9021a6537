//! `vmio top`: who uses the disks, the wire and the processors now, and who suffers for it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::cli::{Context, Outcome};
use crate::top::columns::{self, Column};
use crate::top::{self, Wishes};

const EXAMPLES: &str = "\
Examples:
  vmio top                         verdicts first, then disks, guests, and what no guest explains
  vmio top --once                  one interval as text, then the end
  vmio top --json                  one JSON object per interval and line, until Ctrl-C
  vmio top --json --count 6 --interval 10
                                   one minute of it
  vmio top --sort latency --filter db

It only looks: no guest and no setting is changed. As root it loads eBPF programs at the tracepoints
of the block layer, which tell who hands which requests to which disk; they go when vmio ends.
--no-ebpf does without, and then no guest has percentiles of latency: means where libvirt counts them.";

/// Who uses the disks, the wire and the processors now, and which guest suffers for it; only looks
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print one interval as text (with --json as JSON) and end; so it is without a terminal
    #[arg(long)]
    once: bool,
    /// Print N intervals and end; --json alone goes on until it is interrupted
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Length of an interval in seconds [default: 1, with --once 3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<f64>,
    /// Sort guests by this column
    #[arg(long, value_name = "COLUMN", value_parser = sorts(), ignore_case = true, default_value = "disk")]
    sort: &'static Column,
    /// Show only guests with this text in their names; verdicts stay whole
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Load no eBPF programs
    #[arg(long)]
    no_ebpf: bool,
}

/// Shortest and longest interval.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).trim().parse::<f64>().ok();
    number
        .filter(|s| SECONDS.contains(s))
        .ok_or_else(|| format!("seconds from {} to {}, for example 3", SECONDS.start(), SECONDS.end()))
}

/// Columns by their names, and by their titles.
fn sorts() -> impl TypedValueParser<Value = &'static Column> {
    let names = columns::ALL.iter().map(|c| PossibleValue::new(c.name).alias(c.title));
    PossibleValuesParser::new(names).try_map(|name| columns::find(&name).ok_or("no such column"))
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let wishes = Wishes {
        count: args.count.or(args.once.then_some(1)),
        interval: args.interval.unwrap_or(if args.once { 3.0 } else { 1.0 }),
        sort: args.sort,
        filter: args.filter.clone(),
        no_ebpf: args.no_ebpf,
    };
    top::run(&wishes, context)
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
            assert!(seconds(wrong).unwrap_err().contains("0.1 to 3600"), "{wrong}");
        }
        let sorted = |by: &str| Only::try_parse_from(["top", "--sort", by]).map(|only| only.args.sort.key);
        assert_eq!((sorted("latency").unwrap(), sorted("p99").unwrap(), sorted("MB/s").unwrap()), ('l', 'l', 'b'));
        assert!(sorted("nothing").unwrap_err().to_string().contains("latency"));
    }
}
