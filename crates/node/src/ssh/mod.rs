//! Machines that are reached by the user's own `ssh`, with the user's keys, configuration and known hosts. The agent is
//! sent over the connection, serves it by its standard streams, and is gone with it ([`crate::reach`]).

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::machine::{self, lock};
use crate::reach::{self, Carrier, END_LIMIT, Error, LIMIT, MOST_SAID, Machine, NO_PLACE, OURS, Program, SILENCE};

mod address;
mod name;

pub use address::{Address, NoAddress, SCHEME, Wrong};
pub use name::Host;

/// How long `ssh` may take to reach the other machine, in seconds.
const CONNECT_SECONDS: u32 = 15;
/// What a shell over there does.
const SCRIPT: &str = concat!(reach::place!(), include_str!("script.sh"));

/// Goes there by this command (`ssh`, with options of its own), with the agent among these that is for that
/// machine's processor.
///
/// # Errors
/// When it cannot be reached, or no agent runs there.
pub fn open(ssh: &[String], address: &Address, agents: &[Program]) -> Result<Machine, Error> {
    let until = Instant::now() + LIMIT;
    let failed = |what: String, help: &str| Error { address: address.to_string(), what, help: help.to_owned() };
    let cannot = |what: &str| {
        let what = format!("cannot {what}");
        move |e: io::Error| failed(format!("{what}: {e}"), "try it again")
    };
    let [first, ..] = agents else {
        return Err(failed("no vmio-agent to send there".into(), "make agent (a package has it)"));
    };
    let bytes = |program: &Program| {
        let what = format!("read {}", program.file.display());
        std::fs::read(&program.file).map_err(cannot(&what))
    };
    // What runs there is told apart by its processor; agents for others are of another size.
    let mut agent = bytes(first)?;
    let (stream, theirs) = UnixStream::pair().map_err(cannot("make a socket"))?;
    let mut running = Ssh::start(ssh, address, theirs, agent.len())
        .map_err(|e| failed(format!("cannot start {}: {e}", ssh.join(" ")), "install openssh-client"))?;
    let mut head = Head { stream: stream.try_clone().map_err(cannot("share a socket"))?, until, bytes_read: 0 };
    // Whoever still talks there is heard no more, and so ends.
    let refused = |running: &mut Ssh, why: &dyn Display| {
        let _ = stream.shutdown(Shutdown::Both);
        running.refused(address, why)
    };
    let machine = match head.line("is") {
        Ok(line) => line,
        Err(why) => return Err(refused(&mut running, &why)),
    };
    let fits = Program::among(agents, &machine).map_err(|[what, help]| failed(what, &help))?;
    if fits.machine != first.machine {
        // The size is in the command: begin anew with that one first.
        let rest: Vec<Program> = std::iter::once(fits.clone()).chain(agents.iter().cloned()).collect();
        drop(running);
        return open(ssh, address, &rest);
    }
    let place = head.line("at").map_err(|why| refused(&mut running, &why))?;
    if place.is_empty() {
        let [what, help] = NO_PLACE;
        return Err(failed(what.into(), help));
    }
    let mut output = &stream;
    let sent = stream.set_write_timeout(Some(LIMIT)).and_then(|()| output.write_all(&agent));
    agent.clear();
    sent.map_err(|e| refused(&mut running, &format!("it took no agent: {e}")))?;
    stream.set_read_timeout(None).map_err(cannot("wait for an answer"))?;
    Machine::greet(&address.to_string(), place.into(), stream, running, until)
        .map_err(|(mut running, why)| running.refused(address, &why))
}

/// The `ssh` program at work.
struct Ssh {
    child: Child,
    stderr_text: Arc<Mutex<Vec<u8>>>,
    /// Until it is ended.
    listener: Option<JoinHandle<()>>,
}

/// How long is waited for the rest of its words when it has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

impl Ssh {
    fn start(ssh: &[String], address: &Address, stream: UnixStream, agent_bytes: usize) -> io::Result<Self> {
        let script =
            SCRIPT.replace("SILENCE", &SILENCE.as_secs().to_string()).replace("SIZE", &agent_bytes.to_string());
        let script = script.trim_end();
        let (input, output): (OwnedFd, OwnedFd) = (stream.try_clone()?.into(), stream.into());
        let (program, options) = ssh.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = machine::command(program)
            .args(options)
            // Nobody is asked: a host that is not known, or a key with a password, is an error. The rest is the user's.
            .args(["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"])
            .args(["-o", &format!("ConnectTimeout={CONNECT_SECONDS}"), "-o", "ClearAllForwardings=yes"])
            .args(address.words())
            .arg(format!("exec sh -c '{script}'"))
            // Its messages are parsed.
            .env("LC_ALL", "C")
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::piped())
            // A Ctrl-C is vmio's to answer, which may have to undo things over there.
            .process_group(0)
            .spawn()?;
        let (stderr_text, mut stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take());
        let keep = Arc::clone(&stderr_text);
        let listen = move || {
            let mut buffer = [0; 4096];
            while let Some(n) = stderr.as_mut().and_then(|e| e.read(&mut buffer).ok()).filter(|n| *n > 0) {
                let mut kept = lock(&keep);
                let room = MOST_SAID - kept.len();
                kept.extend_from_slice(&buffer[..n.min(room)]);
            }
        };
        let listener = thread::Builder::new().name("ssh's messages".into()).spawn(listen)?;
        Ok(Self { child, stderr_text, listener: Some(listener) })
    }

    /// What went wrong, in `ssh`'s own words where it has any. It is ended.
    fn refused(&mut self, address: &Address, why: &dyn Display) -> Error {
        self.end();
        let stderr_text = String::from_utf8_lossy(&lock(&self.stderr_text)).into_owned();
        let (what, help) = explain(address, &stderr_text, &why.to_string());
        Error { address: address.to_string(), what, help }
    }

    fn end_within(&mut self, limit: Duration) {
        // With the listener all of it is over: its number may be another's by then.
        let Some((listener, own)) = self.listener.take().zip(Pid::from_raw(self.child.id().cast_signed())) else {
            return;
        };
        // As long as nobody has taken note of its end the number stays its own, and so does that of its group.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let until = Instant::now() + limit;
        while waitid(WaitId::Pid(own), look).is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            thread::sleep(POLL);
        }
        // What it has started may outlive it, and hold its end of the pipe.
        let until = Instant::now() + LAST_WORDS.min(limit);
        while !listener.is_finished() && Instant::now() < until {
            thread::sleep(POLL);
        }
        let _ = kill_process_group(own, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Carrier for Ssh {
    fn end(&mut self) {
        self.end_within(END_LIMIT);
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.end_within(Duration::ZERO);
    }
}

/// What `ssh` said, and what to do: words of OpenSSH's `ssh` -> the mend, the first that fits.
const MENDS: [(&str, &str); 8] = [
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key differs from the one in your known hosts: find out why first (ssh-keygen -R HOST forgets the old one)",
    ),
    (
        "Host key verification failed",
        "its key is not among your known hosts: connect once manually and compare it (BY_HAND)",
    ),
    (
        "Permission denied",
        "use a key that it accepts without a password here (ssh-agent, ssh-copy-id); try it manually (BY_HAND)",
    ),
    ("Could not resolve hostname", "see how the host is called"),
    ("Connection refused", "see whether sshd runs there, and on which port"),
    ("timed out", "see whether the host is up, and whether a firewall is between"),
    ("No route to host", "see whether the host is up, and whether a firewall is between"),
    ("Too many authentication failures", "name the key in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)"),
];

fn explain(address: &Address, stderr_text: &str, why: &str) -> (String, String) {
    let (what, help) = reach::explain("ssh", stderr_text, why, &MENDS);
    let help = help.unwrap_or("try it manually: BY_HAND");
    (what, help.replace("BY_HAND", &address.by_hand()).replace("HOST", &address.host))
}

/// Why a remote shell gave no answer.
#[derive(Debug, thiserror::Error)]
enum NoWord {
    #[error("the connection ended before a shell answered")]
    Ended,
    #[error("no shell answered within {} s", LIMIT.as_secs())]
    Late,
    #[error("a shell printed {MOST_SAID} bytes without the expected answer")]
    TooMuch,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Output of the remote shell before the agent's.
struct Head {
    stream: UnixStream,
    until: Instant,
    bytes_read: usize,
}

impl Head {
    /// The rest of the next line of the script's that begins with this word. What a login says before it is passed
    /// over.
    fn line(&mut self, word: &str) -> Result<String, NoWord> {
        let mut line = Vec::new();
        loop {
            let left = self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            let mut byte = [0];
            match (&self.stream).read(&mut byte) {
                Ok(0) => return Err(NoWord::Ended),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(NoWord::Late);
                }
                Err(e) => return Err(e.into()),
            }
            self.bytes_read += 1;
            if self.bytes_read > MOST_SAID {
                return Err(NoWord::TooMuch);
            }
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            let text = String::from_utf8_lossy(&line);
            if let Some(rest) = text.trim().strip_prefix(OURS).and_then(|rest| rest.strip_prefix(word)) {
                return Ok(rest.trim().chars().filter(|c| !c.is_control()).collect());
            }
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The script stands between single quotes, for whatever shell the user has there.
    #[test]
    fn script_has_no_single_quotes() {
        assert!(!SCRIPT.contains('\''));
        assert_eq!(SCRIPT.matches("SIZE").count(), 2);
    }

    #[test]
    fn errors_of_ssh_with_help() {
        let address: Address = "ssh://root@web:2222".parse().unwrap();
        let (what, help) =
            explain(&address, "No ED25519 host key is known\r\nHost key verification failed.\r\n", "ended");
        assert_eq!(what, "Host key verification failed.");
        assert!(help.contains("(ssh -p 2222 root@web)"), "{help}");
        let changed =
            "@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@\nHost key verification failed.";
        let (what, help) = explain(&address, changed, "ended");
        assert_eq!(what, "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!");
        assert!(help.contains("ssh-keygen -R web"), "{help}");
        let (what, help) = explain(&address, "kex: \u{1b}[31mbroken\n", "the connection ended");
        assert_eq!(what, "the connection ended; ssh said: kex: [31mbroken");
        assert_eq!(help, "try it manually: ssh -p 2222 root@web");
        assert_eq!(explain(&address, "", "no answer").0, "no answer");
    }
}
