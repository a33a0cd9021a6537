//! The command line: global options, the verbs (see [`crate::cmd`]), and how errors show.
//!
//! A verb returns an [`Exit`] or an error. An error shows as `error: …`, its causes, and
//! `help: …`, all on standard error; a [`Failure`] in it carries the exit code and the help.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use vmio_model::failure::{Exit, Failure};

use crate::cmd::{Verb, scan};
use crate::context::{Context, Outcome, for_record};
use crate::paths::Paths;
use crate::report::scan::nagios;
use crate::store::StoreError;
use crate::term::{self, Style, Unwritten};
use crate::{files, fit};

const EXAMPLES: &str = "\
Examples:
  vmio                     what is wrong with the guests on this host (vmio scan)
  vmio scan web1           what slows web1 down, and the exact change
  vmio top                 who uses the disks, network and processors now
  vmio doctor              what this host has and what it lacks
  vmio tax --quick         how much of this host's speed a guest gets
  vmio runs show last --html r.html
                           the last run as one HTML file
  vmio runs compare 3 7    what changed between two runs

Exit codes: 0 done, 1 failed, 2 usage error or configuration refused,
3 a requirement is not met, 4 a partial result (interrupted, or too few pairs),
5 a finding at or above --fail-on.";

/// Finds out how much of a host's speed its guests get, and where the rest goes
#[derive(Debug, Parser)]
#[command(name = "vmio", version, max_term_width = 80, after_help = EXAMPLES)]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub globals: Globals,
    /// The command; without one vmio scans the guests on this host.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// Options of every verb.
#[derive(Debug, clap::Args)]
pub struct Globals {
    /// Print only JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// Keep stored runs, images and journals in DIR [env: VMIO_STATE]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

impl Globals {
    /// The state directory that the user names. clap would show an option that a variable sets as a required one in
    /// the usage lines of its errors.
    fn state(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os("VMIO_STATE").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        self.state.clone().or_else(variable)
    }
}

/// The whole command line as clap knows it: for completions and man pages.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommand("runs", |runs| runs.mut_subcommand("show", crate::cmd::runs::instead))
}

/// Parses the command line, runs the verb, prints its error, gives its exit code.
pub fn main() -> ExitCode {
    fit::set_room(term::width());
    let mut command = command();
    let cli = match command.try_get_matches_from_mut(std::env::args_os()).and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        // Exit code 2 of a usage error would be CRITICAL of a check plugin.
        Err(e) if e.use_stderr() && std::env::args_os().any(|a| a == "--nagios") => {
            let why = e.to_string();
            let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let _ = term::print(&nagios::failed(why));
            return ExitCode::from(nagios::State::Unknown as u8);
        }
        Err(e) if e.use_stderr() => {
            // The message quotes the command line, which may hold a name with control characters.
            term::note(e.format(&mut command).to_string().trim_end());
            return ExitCode::from(Exit::Usage.code());
        }
        // Help and version.
        Err(e) => {
            let text = e.format(&mut command).render();
            let text = if Style::stdout() == Style::PLAIN { text.to_string() } else { text.ansi().to_string() };
            return ended(term::print_exact(&text).map(|()| Exit::Done).map_err(Into::into));
        }
    };
    let outcome = context(&cli.globals).and_then(|context| match &cli.verb {
        Some(verb) => verb.run(&context),
        None => scan::bare(&context),
    });
    ended(outcome)
}

/// Shows the error, if any; the exit code.
fn ended(outcome: Outcome) -> ExitCode {
    let exit = match outcome {
        Ok(exit) => exit,
        Err(e) => {
            if e.downcast_ref::<Unwritten>().is_some_and(Unwritten::is_pipe) {
                // Ends by SIGPIPE without a message, as other tools do; a shell shows 141.
                let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
            }
            term::note(render(&e, Style::stderr()).trim_end());
            exit_of(&e)
        }
    };
    crate::supervisor::tell_exit_code(exit.code());
    ExitCode::from(exit.code())
}

fn context(globals: &Globals) -> anyhow::Result<Context> {
    Ok(Context {
        json: globals.json,
        paths: Paths::of_this_user(globals.state().as_deref())?,
        style: Style::stdout(),
        command: for_record(std::env::args_os().map(|a| a.to_string_lossy().into_owned())),
        command_line: command,
    })
}

/// The exit code and help of an error, if it has any.
fn failure(e: &anyhow::Error) -> Option<Failure> {
    let untrusted = |e: &vmio_node::Error| match e {
        vmio_node::Error::Untrusted { path, why, mend } => {
            Some(Failure::new(Exit::Precondition, format!("{} is unsafe: {why}", path.display())).help(mend))
        }
        _ => None,
    };
    let unwritten = |e: &Unwritten| {
        Failure::new(Exit::Failed, e.to_string()).help("its output is lost; measured runs are kept: `vmio runs list`")
    };
    e.downcast_ref::<Failure>()
        .cloned()
        .or_else(|| e.downcast_ref::<StoreError>().map(Failure::from))
        .or_else(|| e.downcast_ref::<vmio_node::Error>().and_then(untrusted))
        .or_else(|| e.downcast_ref::<Unwritten>().map(unwritten))
        .or_else(|| {
            let full = e.chain().filter_map(|c| c.downcast_ref::<io::Error>()).any(files::is_full);
            full.then(|| Failure::new(Exit::Failed, e.to_string()).help("its disk is full: free some space there"))
        })
}

fn exit_of(e: &anyhow::Error) -> Exit {
    failure(e).map_or(Exit::Failed, |f| f.exit)
}

/// `error: …`, the causes that add something, and `help: …`. A message of several lines is several errors; a line
/// that is indented belongs to the error above it.
fn render(e: &anyhow::Error, style: Style) -> String {
    // The help of a failure is shown apart, so it is left out of the message.
    let first = failure(e).filter(|_| e.downcast_ref::<vmio_node::Error>().is_some()).map(|f| f.message);
    let first = first.unwrap_or_else(|| e.to_string());
    let error = format!("{} ", style.red("error:"));
    let line = |line: &str| match line.strip_prefix("  ") {
        Some(further) => fit::notice("  ", 8, further),
        None => fit::notice(&error, 7, line),
    };
    let mut text: String = first.lines().map(line).collect();
    for cause in term::new_causes(&first, e.chain().skip(1)) {
        let lead = |i: usize| if i == 0 { "  cause: " } else { "         " };
        text += &cause.lines().enumerate().map(|(i, line)| fit::notice(lead(i), 9, line)).collect::<String>();
    }
    if let Some(help) = failure(e).and_then(|f| f.help) {
        text += &fit::notice(&format!("  {} ", style.cyan("help:")), 8, &help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn errors_show_cause_help_and_code() {
        let cause = io::Error::other("disk on fire");
        let e = anyhow::Error::new(cause)
            .context(Failure::new(Exit::Precondition, "cannot open /x").help("put it out"))
            .context("loading run 3");
        assert_eq!(exit_of(&e), Exit::Precondition);
        let text = render(&e, Style::PLAIN);
        assert_eq!(text, "error: loading run 3\n  cause: cannot open /x\n  cause: disk on fire\n  help: put it out\n");
        let e = anyhow::Error::new(Failure::new(Exit::Failed, "a is in use\n  help: free a\n  nothing was changed"));
        let text = render(&e, Style::PLAIN);
        assert_eq!(text, "error: a is in use\n  help: free a\n  nothing was changed\n");
        let long = |word: &str| [word; 30].join(" ");
        let e = anyhow::Error::msg(long("burnt")).context(
            Failure::new(Exit::Usage, format!("a:1: {}\na:2: {}", long("this"), long("that"))).help(long("do")),
        );
        for style in [Style::PLAIN, Style::COLOUR] {
            let text = render(&e, style).replace("\x1b[0m", "").replace("\x1b[31;1m", "").replace("\x1b[36m", "");
            assert!(text.lines().all(|line| fit::columns(line) <= fit::WIDTH), "{text}");
            for begins in
                ["error: a:1: this", "error: a:2: that", "       that", "  cause: burnt", "  help: do", "        do"]
            {
                assert!(text.lines().any(|line| line.starts_with(begins)), "{begins}: {text}");
            }
        }
    }
}
