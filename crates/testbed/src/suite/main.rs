//! `suite`: runs the tests that cargo has built, each in a process and, with root, in namespaces of its own, several at
//! a time; names what failed, why and how to repeat it at the end. The Makefile calls it.
//!
//! | file | has |
//! |---|---|
//! | `programs.rs` | which tests there are, and what each needs |
//! | `run.rs` | the lanes, a test's process, its result |
//! | `inside.rs` | the process around a test: its surroundings, and what it left behind |
//! | `times.rs` | how long each took last |
//! | `report.rs` | what is printed |
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod inside;
mod programs;
mod report;
mod run;
mod times;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{fs, io};

use clap::{Args, Parser, Subcommand};

use programs::{Kind, Test};

#[derive(Parser)]
#[command(name = "suite", about = "Runs vmio's tests")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs tests.
    Run(RunArgs),
    /// Runs one command in surroundings of its own (a test, for `run`).
    Inside {
        /// Where its end is told, as JSON.
        result: PathBuf,
        /// A mount and a network namespace of its own.
        #[arg(long)]
        namespaces: bool,
        /// Seconds after which it is killed.
        #[arg(long, default_value_t = 900)]
        limit: u64,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args)]
struct RunArgs {
    /// What cargo said while it built them (--message-format=json).
    #[arg(long)]
    built: PathBuf,
    /// Where logs and times are kept.
    #[arg(long)]
    dir: PathBuf,
    /// The long forms alone.
    #[arg(long)]
    long: bool,
    /// Tests that need neither root nor guests alone.
    #[arg(long)]
    plain: bool,
    /// Only tests of these crates.
    #[arg(long)]
    package: Vec<String>,
    /// How often the whole is run; then with a table of all runs.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Runs up to three tests with root and guests that failed beside others once more, alone, and names them.
    #[arg(long)]
    again: bool,
    /// Where that table is written, too.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Seconds of what went before (a line each, then the name), to be told at the end.
    #[arg(long)]
    phases: Option<PathBuf>,
    /// Tests at a time; half of them may boot guests.
    #[arg(long, default_value_t = 2 * std::thread::available_parallelism().map_or(2, usize::from))]
    lanes: usize,
    /// Only tests whose names contain this.
    name: Option<String>,
}

fn main() -> ExitCode {
    let ended = match Cli::parse().verb {
        Verb::Run(args) => run_all(&args),
        Verb::Inside { result, namespaces, limit, command } => inside(&result, namespaces, limit, &command),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("suite: {e}");
            ExitCode::FAILURE
        }
    }
}

fn inside(result: &std::path::Path, namespaces: bool, limit: u64, command: &[OsString]) -> io::Result<bool> {
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let outcome = inside::run(Command::new(program).args(args), namespaces, Duration::from_secs(limit))?;
    outcome.left.iter().for_each(|line| println!("left behind: {line}"));
    fs::write(result, serde_json::to_string(&outcome)?)?;
    Ok(outcome.left.is_empty() && outcome.ended == inside::Ended::Code(0))
}

fn run_all(args: &RunArgs) -> io::Result<bool> {
    fs::create_dir_all(&args.dir)?;
    // Tests are run in the directories of their crates.
    let dir = fs::canonicalize(&args.dir)?;
    let tests: Vec<Test> = programs::tests(&args.built)?.into_iter().filter(|test| args.wants(test)).collect();
    let root = rustix::process::geteuid().is_root();
    let (tests, without): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| root || test.kind == Kind::Plain);
    if tests.is_empty() {
        return Err(io::Error::other("no such test"));
    }
    println!(
        "{} tests in {} lanes; this machine counts as {:.1} times slower than the one that limits are made for",
        tests.len(),
        args.lanes,
        vmio_testbed::slowness()
    );
    if !without.is_empty() {
        println!("SKIPPED: {} tests that need root (loop devices, control groups): sudo make test", without.len());
    }
    let mut runs = Vec::new();
    for number in 1..=args.repeat {
        if args.repeat > 1 {
            println!("\nrun {number} of {}", args.repeat);
        }
        let begin = Instant::now();
        let done = run::run(tests.clone(), args.lanes, args.again, &dir, report::told)?;
        let phases = args.phases.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        report::end(&done, args.lanes, begin.elapsed().as_secs_f64(), &phases);
        runs.push(done);
        // Whoever breaks it off has what was run.
        args.table.as_ref().map_or(Ok(()), |file| fs::write(file, report::table(&runs)))?;
    }
    if args.repeat > 1 {
        println!("\n{}", report::table(&runs));
    }
    Ok(runs.iter().flatten().all(|done| done.failure.is_none()))
}

impl RunArgs {
    fn wants(&self, test: &Test) -> bool {
        // Who names a long form wants it.
        let form = test.long == self.long || self.name.as_ref().is_some_and(|name| name.contains("long_"));
        let package = |name: &String| test.name.starts_with(&format!("{name}::"));
        form && (!self.plain || test.kind == Kind::Plain)
            && (self.package.is_empty() || self.package.iter().any(package))
            && self.name.as_ref().is_none_or(|name| test.name.contains(name.as_str()))
    }
}
