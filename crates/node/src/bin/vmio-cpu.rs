//! `vmio-cpu`: keeps a processor or its memory busy, and says how much it did ([`vmio_node::cpu`]).

use std::io::{self, Write};
use std::process::ExitCode;

use vmio_node::cpu::{self, Command, PROGRAM, USAGE};

fn main() -> ExitCode {
    let told = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let done = match cpu::parse(told) {
        Ok(Command::Version) => say(&format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))),
        Ok(Command::Work(job)) => {
            cpu::work(&job).and_then(|report| Ok(serde_json::to_string(&report)?)).and_then(|line| say(&line))
        }
        Err(reason) => {
            complain(&format!("{reason}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&e.to_string());
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

fn complain(text: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "{PROGRAM}: {text}");
}
