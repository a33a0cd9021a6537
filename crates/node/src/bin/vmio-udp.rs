//! `vmio-udp`: sends datagrams on schedule, or receives and counts them ([`vmio_node::udp`]).

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use vmio_node::udp::args::{self, Command};
use vmio_node::udp::receive::{self, Receiver};
use vmio_node::udp::{PROGRAM, send};

/// Set by SIGTERM and SIGINT.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let told = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let command = match args::parse(told) {
        Ok(command) => command,
        Err(reason) => {
            complain(&format!("{reason}\n{}", args::USAGE));
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Version => say(&format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))),
        Command::Send(job) => send::run(&job).and_then(|report| print(&report)),
        Command::Receive(job) => receive(&job),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&e.to_string());
            ExitCode::FAILURE
        }
    }
}

fn receive(job: &receive::Job) -> io::Result<()> {
    stop_on_signals();
    let receiver = Receiver::bind(job.at).map_err(|e| {
        let (ip, port) = (job.at.ip(), job.at.port());
        io::Error::new(e.kind(), format!("cannot receive at {ip} port {port}: {e}"))
    })?;
    let at = receiver.at();
    say(&format!("ready {} {}", at.ip(), at.port()))?;
    print(&receiver.run(job, &STOP)?)
}

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

fn stop_on_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let handler: extern "C" fn(libc::c_int) = stop;
        // SAFETY: the handler stores into an atomic and does nothing else, which a signal handler may
        // (signal-safety(7)); it has the signature that signal(2) asks for and lives as long as the program.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

fn print(report: &impl Serialize) -> io::Result<()> {
    say(&serde_json::to_string(report)?)
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn complain(text: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "{PROGRAM}: {text}");
}
