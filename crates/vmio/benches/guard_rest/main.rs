//! What a guard at rest costs: processor time and memory of the daemon, how soon it answers, and how soon a policy and
//! a new interface are in force, for 64, 1,000 and 10,000 interfaces of guests (veth pairs on bridges with one uplink).
//! As root:
//!
//! `cargo bench -p vmio --bench guard_rest [-- [INTERFACES…] [--policies NAME,…] [--seconds N]]`
//!
//! prints a table in Markdown and judges nothing. Policies: `sent`, `hard` (reserves, which need the loop), `both`
//! (directions). Each row takes some three minutes with `--seconds 60`, more with
//! thousands of interfaces. All is in namespaces of its own and ends with it. Run it on a machine that does nothing else.
#![allow(clippy::print_stdout, missing_docs)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

mod bed;
mod daemon;

use bed::Bed;
use daemon::{Daemon, Times};

type Done<T> = Result<T, Box<dyn Error>>;

/// Variable with the directory of who runs inside of the namespaces.
const INSIDE: &str = "VMIO_BENCH_GUARD_REST";
/// Most interfaces: the guard numbers no more, and names in the bed have as many digits.
const MOST: usize = 14_000;
/// Interfaces that come one after the other.
const NEW: usize = 9;
/// A sysfs and a bpffs of the network namespace, with the control groups that were there; `/run` is empty. `$1` is a
/// directory.
const SCRIPT: &str = "mkdir \"$1/groups\"; mount --rbind /sys/fs/cgroup \"$1/groups\"; mount -t sysfs sysfs /sys\n\
                      mount --rbind \"$1/groups\" /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf\n\
                      mount -t tmpfs tmpfs /run; shift; \"$@\"";

const HEAD: &str = "\
| interfaces | policy | in force after | at rest, of a core | one busy, of a core | memory | status, at rest | status, one \
busy | `guard status` | new interface |
|---|---|---|---|---|---|---|---|---|---|";

fn main() -> Done<()> {
    let (mut counts, mut policies, mut seconds) = (Vec::new(), Vec::new(), 60);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--policies" => policies = value()?.split(',').map(str::to_owned).collect(),
            "--seconds" => seconds = value()?.parse()?,
            count => counts.push(count.parse::<usize>().map_err(|_| {
                format!("{count}: neither a number of interfaces nor --policies NAME,… nor --seconds N")
            })?),
        }
    }
    if counts.is_empty() {
        counts = vec![64, 1000, 10_000];
    }
    if policies.is_empty() {
        policies = bed::POLICIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    for name in &policies {
        bed::policy(name)?;
    }
    if let Some(count) = counts.iter().find(|count| !(1..=MOST).contains(*count)) {
        return Err(format!("{count} interfaces: 1 to {MOST}").into());
    }
    if let Some(dir) = std::env::var_os(INSIDE) {
        return row(&PathBuf::from(dir), counts[0], &policies[0], Duration::from_secs(seconds));
    }
    println!("{HEAD}");
    for count in counts {
        for policy in &policies {
            enter(count, policy, seconds)?;
        }
    }
    println!(
        "\nProcessor time of all threads of the daemon over {seconds} s; memory is resident. Status is asked over the \
         socket, `guard status` is the program with its text: medians and worst of {} and {}. New interfaces: median \
         and worst of {NEW}.",
        daemon::ASKED,
        daemon::STARTED
    );
    Ok(())
}

/// Runs this again for one row, in a mount, a network and a process namespace.
fn enter(count: usize, policy: &str, seconds: u64) -> Done<()> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.args(["sh", "-ec", SCRIPT, "sh"]).arg(dir.path()).arg(std::env::current_exe()?);
    command.args([&count.to_string(), "--policies", policy, "--seconds", &seconds.to_string()]);
    let status = command.env(INSIDE, dir.path()).status()?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}; is this root?").into()) }
}

fn row(dir: &Path, count: usize, policy: &str, time: Duration) -> Done<()> {
    let bed = Bed::build(count)?;
    let daemon = Daemon::start(dir, bed::policy(policy)?)?;
    daemon.settle()?;
    let rest = daemon.used_in(time)?;
    let (memory, at_rest) = (daemon.memory_mib()?, daemon.ask()?);
    let program = daemon.run_status()?;
    let (busy, while_busy) = bed.while_one_is_busy(|| Ok((daemon.used_in(time)?, daemon.ask()?)))?;
    let new = bed.plug(NEW, || daemon.appeared())?;
    let share = |used: f64| format!("{:.2} %", used * 100.0);
    println!(
        "| {count} | {policy} | {} | {} | {} | {memory:.0} MiB | {at_rest} | {while_busy} | {program} | {new} |",
        Times::seconds(daemon.in_force),
        share(rest),
        share(busy),
    );
    daemon.end()?;
    bed.remove()
}
