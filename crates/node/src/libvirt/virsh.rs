//! The user's own `virsh`, which asks a domain's guest agent (`virsh qemu-agent-command`).
//!
//! Short questions go through one `virsh` that stays (some milliseconds each, and next to no time of this host's
//! processors); long ones are arguments of a `virsh` of their own, since a line of its shell may be cut.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::error::Trouble;
use crate::{Exec, Local, Node, machine};

/// How long the guest's agent may take for an answer, in seconds.
const ANSWER_SECONDS: u32 = 20;
/// How long `virsh` may take with that.
const LIMIT: Duration = Duration::from_secs(ANSWER_SECONDS as u64 + 10);
/// Bytes of one answer at most.
const MOST_BYTES: usize = 2 << 20;
/// Longest line for the `virsh` that stays: without readline(3) it reads lines of 1023 bytes.
const LONGEST_LINE: usize = 1000;
/// Its prompt.
const PROMPTS: [&str; 2] = ["virsh # ", "virsh > "];
const MARK: &str = "vmio-asked-";

/// A question's end: an answer, or why there is none.
pub type Answer = Result<Value, Trouble>;

/// `virsh`, at a domain.
pub struct Virsh {
    command: Vec<String>,
    uuid: String,
    child: Child,
    input: UnixStream,
    received: Vec<u8>,
    asked: u64,
}

/// Output of a separate `virsh`.
pub fn run(command: &[String], words: &[&str]) -> Result<String, Trouble> {
    let (program, options) = command.split_first().ok_or(Trouble::NoCommand)?;
    let env = [("LC_ALL".to_owned(), "C".to_owned())].into();
    let exec = Exec { keep_bytes: MOST_BYTES, env, ..Exec::new(program.as_str()) };
    let exec = exec.args(options.iter().map(String::as_str)).args(["--quiet"]).args(words.iter().copied());
    let not_run = |why| Trouble::NotRun { program: program.clone(), why };
    let output = Local::new().exec(&exec.limit(LIMIT)).map_err(not_run)?;
    if output.truncated {
        return Err(Trouble::TooLong(MOST_BYTES));
    }
    if output.ok() { Ok(output.out()) } else { Err(Trouble::Message(output.err())) }
}

impl Virsh {
    /// One that stays, for the domain of this UUID.
    pub fn start(command: &[String], uuid: &str) -> io::Result<Self> {
        let (program, options) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (input, theirs) = UnixStream::pair()?;
        input.set_write_timeout(Some(LIMIT))?;
        let own = || theirs.try_clone().map(|stream| Stdio::from(OwnedFd::from(stream)));
        let child = machine::command(program)
            .args(options)
            .arg("--quiet")
            // Errors stand between the answers.
            .stdin(own()?)
            .stdout(own()?)
            .stderr(own()?)
            .envs([("LC_ALL", "C"), ("TERM", "dumb")])
            // Ctrl-C is handled by vmio.
            .process_group(0)
            .spawn()?;
        Ok(Self { command: command.to_vec(), uuid: uuid.to_owned(), child, input, received: Vec::new(), asked: 0 })
    }

    /// Asks the guest's agent.
    pub fn ask(&mut self, execute: &str, arguments: &Value) -> Answer {
        let question = match arguments {
            Value::Null => json!({ "execute": execute }),
            _ => json!({ "execute": execute, "arguments": arguments }),
        };
        let question = question.to_string();
        let limit = ANSWER_SECONDS.to_string();
        if question.len() > LONGEST_LINE - 100 || question.contains(['\'', '\\', '\n']) {
            let words = ["qemu-agent-command", "--timeout", &limit, &self.uuid, &question];
            return returned(&run(&self.command, &words)?);
        }
        self.asked += 1;
        let mark = format!("{MARK}{}", self.asked);
        let lines = format!("qemu-agent-command --timeout {limit} {} '{question}'\necho {mark}\n", self.uuid);
        let refused = |e: io::Error| Trouble::Virsh(format!("takes no more questions: {e}"));
        self.input.write_all(lines.as_bytes()).map_err(refused)?;
        let text = self.until(&mark)?;
        // Its shell may echo the command after the prompt.
        text.lines()
            .map(bare)
            .find_map(|line| {
                let failed = line.strip_prefix("error:").map(|why| Err(Trouble::Message(why.trim().to_owned())));
                failed.or_else(|| line.starts_with("{\"return\"").then(|| returned(line)))
            })
            .unwrap_or_else(|| Err(Trouble::Virsh("gave no answer".to_owned())))
    }

    /// Its output up to a line that begins with the mark.
    fn until(&mut self, mark: &str) -> Result<String, Trouble> {
        let until = Instant::now() + LIMIT;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let text = String::from_utf8_lossy(&self.received);
            let mut at = 0;
            for line in text.split_inclusive('\n') {
                if bare(line).starts_with(mark) {
                    let answer = text[..at].to_owned();
                    self.received.clear();
                    return Ok(answer);
                }
                at += line.len();
            }
            if self.received.len() > MOST_BYTES {
                let text = format!("printed {MOST_BYTES} bytes without confirming that it was done");
                return Err(Trouble::Virsh(text));
            }
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.input.set_read_timeout(Some(left))?;
            match self.input.read(&mut buffer) {
                Ok(0) => {
                    let text = String::from_utf8_lossy(&self.received).into_owned();
                    return Err(Trouble::Ended(text.trim().to_owned()));
                }
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Trouble::Virsh(format!("gave no answer within {} s", LIMIT.as_secs()))),
            }
        }
    }
}

impl Drop for Virsh {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line without the prompts before it.
fn bare(mut line: &str) -> &str {
    while let Some(rest) = PROMPTS.iter().find_map(|prompt| line.strip_prefix(prompt)) {
        line = rest;
    }
    line
}

fn returned(answer: &str) -> Answer {
    let no_json = |e: serde_json::Error| Trouble::WrongAnswer(format!("invalid JSON: {e}"));
    let mut answer: Value = serde_json::from_str(answer).map_err(no_json)?;
    match answer.get_mut("return") {
        Some(value) => Ok(value.take()),
        None => Err(Trouble::WrongAnswer("without a value".to_owned())),
    }
}
