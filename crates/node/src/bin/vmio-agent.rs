//! `vmio-agent`: runs commands, reads and writes files and samples counters for a vmio at the
//! other end of a byte stream. It is the init of vmio's guest image when it is process 1.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use vmio_node::stream::{Port, Spool};
use vmio_node::{Agent, container, init, proto};

const USAGE: &str = "\
usage: vmio-agent --stdio [--state DIR] [--silence SECONDS] [--spool DIR]
                                              serve one client on standard input and output (or
                                              numbered files in DIR), until it has said nothing
                                              for so long
       vmio-agent --port PATH [--state DIR]   serve clients on a virtio-serial port
       vmio-agent --container SOCKET [...]    serve one client in namespaces of its own
       vmio-agent --version
As process 1 it needs no arguments and is the init of the machine.";

/// A client that is silent for so long within a frame has gone.
const IDLE: Duration = Duration::from_secs(3);

/// What users without rights may have in a pipe (/proc/sys/fs/pipe-max-size).
const MOST_UNREAD_BYTES: usize = 1 << 20;

enum Mode {
    /// With the directory that takes its output.
    Stdio(Option<PathBuf>),
    Port(PathBuf),
    Version,
}

fn main() -> ExitCode {
    // The first process of a container is no init of a machine: it is told what to do.
    let told = std::env::args_os().any(|arg| arg == "--stdio" || arg == "--port");
    if let Some(ended) = container::serve(std::env::args_os().skip(1)) {
        return ended.unwrap_or_else(|e| {
            complain(&e.to_string());
            ExitCode::FAILURE
        });
    }
    if std::process::id() == 1 && !told {
        init::run();
    }
    let (mode, state, is_init, silence) = match parse(std::env::args_os().skip(1)) {
        Ok(parsed) => parsed,
        Err(reason) => {
            complain(&format!("{reason}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let agent = Agent {
        state: state.unwrap_or_else(state_dir),
        poweroff: is_init.then_some(init::power_off),
        log: if is_init { init::log } else { complain },
        silence,
    };
    let served = match mode {
        Mode::Stdio(spool) => serve_stdio(&agent, spool),
        Mode::Port(path) => serve_port(&agent, &path),
        Mode::Version => {
            let (version, wire) = (env!("CARGO_PKG_VERSION"), proto::VERSION);
            writeln!(io::stdout(), "vmio-agent {version} (protocol {wire})")
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&e.to_string());
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with the arguments.
#[derive(Debug, thiserror::Error)]
enum WrongUse {
    #[error("{} needs a value", .0.display())]
    NoValue(OsString),
    #[error("--silence needs a number of seconds")]
    Silence,
    #[error("unknown argument {}", .0.display())]
    Unknown(OsString),
    #[error("no mode given")]
    NoMode,
    #[error("--spool goes with --stdio")]
    SpoolAlone,
}

type Parsed = (Mode, Option<PathBuf>, bool, Option<Duration>);

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Parsed, WrongUse> {
    let (mut mode, mut state, mut is_init, mut silence, mut spool) = (None, None, false, None, None);
    while let Some(arg) = args.next() {
        let mut value = || args.next().map(PathBuf::from).ok_or_else(|| WrongUse::NoValue(arg.clone()));
        match arg.to_str() {
            Some("--stdio") => mode = Some(Mode::Stdio(None)),
            Some("--port") => mode = Some(Mode::Port(value()?)),
            Some("--version") => mode = Some(Mode::Version),
            Some("--spool") => spool = Some(value()?),
            Some("--state") => state = Some(value()?),
            Some("--silence") => {
                let seconds = value()?.to_str().and_then(|text| text.parse().ok());
                silence = Some(Duration::from_secs(seconds.ok_or(WrongUse::Silence)?));
            }
            // Given by init to its child.
            Some("--init") => is_init = true,
            _ => return Err(WrongUse::Unknown(arg)),
        }
    }
    let mode = match (mode.ok_or(WrongUse::NoMode)?, spool) {
        (Mode::Stdio(_), spool) => Mode::Stdio(spool),
        (_, Some(_)) => return Err(WrongUse::SpoolAlone),
        (mode, None) => mode,
    };
    Ok((mode, state, is_init, silence))
}

fn complain(text: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "vmio-agent: {text}");
}

/// Where the sessions' journals are: they need not outlive the machine's boot.
fn state_dir() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user == 0 => "/run/vmio-agent".into(),
        Some(dir) => Path::new(&dir).join("vmio-agent"),
        None => format!("/tmp/vmio-agent-{user}").into(),
    }
}

fn serve_stdio(agent: &Agent, spool: Option<PathBuf>) -> io::Result<()> {
    let input = Port::new(io::stdin().as_fd().try_clone_to_owned()?, Some(IDLE));
    let output: Box<dyn Write + Send> = match spool {
        Some(dir) => {
            // Whoever writes into it does not wait for room: as much of it as may be had.
            let _ = rustix::pipe::fcntl_setpipe_size(io::stdin(), MOST_UNREAD_BYTES);
            Box::new(Spool::new(dir))
        }
        None => Box::new(Port::new(io::stdout().as_fd().try_clone_to_owned()?, None)),
    };
    agent.serve(input, output);
    Ok(())
}

fn serve_port(agent: &Agent, path: &Path) -> io::Result<()> {
    let mut told = String::new();
    let port = loop {
        match Port::open(path, Some(IDLE)) {
            Ok(port) => break port,
            Err(e) => {
                let text = format!("waiting for {}: {e}", path.display());
                if text != told {
                    (agent.log)(&text);
                    told = text;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    loop {
        port.wait_for_host()?;
        agent.serve(port.clone(), Box::new(port.clone()));
    }
}
