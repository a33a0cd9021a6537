//! The stream to an agent by way of a guest's agent, which reads and writes files: what goes there is written into a
//! FIFO, what comes back is read from a spool ([`crate::stream::Spool`]), since an answer that a guest agent reads from
//! a FIFO is lost where less is in it than was asked for.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::error::Trouble;
use super::virsh::Virsh;
use crate::reach::{Carrier, END_LIMIT};
use crate::stream::SPOOL_BYTES;

/// How long is waited between two looks at the spool: from the first, which doubles as long as nothing comes, to the
/// second.
const LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];
/// Period of checks for the agent's end while nothing comes.
const LIFE: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are written at once: in base64 they are an argument of `virsh`, which may have 128 KiB (execve(2)).
pub const WRITE_BYTES: usize = 90 << 10;

/// Files and process in the guest.
pub struct Ends {
    /// The FIFO that the agent reads.
    pub input: i64,
    /// The directory of the spool.
    pub spool: String,
    /// The number of the shell that runs the agent.
    pub shell: i64,
}

/// The pump at work, in a thread of its own.
pub struct Pump {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<Trouble>>>,
}

impl Pump {
    pub fn start(virsh: Virsh, ends: Ends, stream: UnixStream) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut work = Work { virsh, ends, file: None, number: 0, taken: 0 };
            let why = work.run(&stream, &stopped).err();
            let _ = stream.shutdown(Shutdown::Both);
            work.end();
            why
        };
        Ok(Self { stop, thread: Some(thread::Builder::new().name("libvirt's pump".into()).spawn(run)?) })
    }

    /// Ends it; returns its error, if any.
    pub fn ended(mut self) -> Option<Trouble> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Carrier for Pump {
    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.end();
    }
}

struct Work {
    virsh: Virsh,
    ends: Ends,
    /// The spool's file that is read.
    file: Option<i64>,
    number: u64,
    /// Bytes read of it.
    taken: usize,
}

impl Work {
    fn run(&mut self, mut stream: &UnixStream, stop: &AtomicBool) -> Result<(), Trouble> {
        let mut buffer = vec![0; WRITE_BYTES];
        let (mut wait, mut lived) = (LOOKS[0], Instant::now());
        while !stop.load(Ordering::SeqCst) {
            // Data to send ends the wait.
            stream.set_read_timeout(Some(wait))?;
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    write(&mut self.virsh, self.ends.input, &buffer[..n])?;
                    wait = LOOKS[0];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(e.into()),
            }
            let bytes = self.look()?;
            if bytes.is_empty() {
                wait = (wait * 2).min(LOOKS[1]);
            } else {
                wait = LOOKS[0];
                stream.write_all(&bytes)?;
            }
            if lived.elapsed() > LIFE {
                lived = Instant::now();
                if self.is_over()? {
                    return Err(Trouble::AgentEnded);
                }
            }
        }
        Ok(())
    }

    /// Reads new data of the spool.
    fn look(&mut self) -> Result<Vec<u8>, Trouble> {
        let Some(file) = self.file else {
            // It does not exist before the agent's first output.
            self.file = self.open(self.number, "r").ok();
            return Ok(Vec::new());
        };
        let bytes = read(&mut self.virsh, file)?;
        self.taken += bytes.len();
        if bytes.is_empty()
            && self.taken >= SPOOL_BYTES
            && let Ok(next) = self.open(self.number + 1, "r")
        {
            self.close(file);
            // Frees the guest's memory.
            if let Ok(emptied) = self.open(self.number, "w") {
                self.close(emptied);
            }
            (self.file, self.number, self.taken) = (Some(next), self.number + 1, 0);
        }
        Ok(bytes)
    }

    fn open(&mut self, number: u64, mode: &str) -> Result<i64, Trouble> {
        open(&mut self.virsh, &format!("{}/{number}", self.ends.spool), mode)
    }

    fn close(&mut self, file: i64) {
        let _ = close(&mut self.virsh, file);
    }

    fn is_over(&mut self) -> Result<bool, Trouble> {
        Ok(self.virsh.ask("guest-exec-status", &json!({ "pid": self.ends.shell }))?["exited"] == true)
    }

    /// Closes the agent's input, so that it ends and the shell removes everything.
    fn end(&mut self) {
        self.close(self.ends.input);
        if let Some(file) = self.file.take() {
            self.close(file);
        }
        let until = Instant::now() + END_LIMIT;
        let mut wait = LOOKS[0];
        while !self.is_over().unwrap_or(true) && Instant::now() < until {
            thread::sleep(wait);
            wait = (wait * 2).min(LOOKS[1]);
        }
    }
}

fn number(value: &Value) -> Result<i64, Trouble> {
    let other = || Trouble::GuestAgent(format!("answered {value:.100} where a number was asked for"));
    value.as_i64().ok_or_else(other)
}

/// Opens a file in the guest, without waiting.
pub fn open(virsh: &mut Virsh, path: &str, mode: &str) -> Result<i64, Trouble> {
    number(&virsh.ask("guest-file-open", &json!({ "path": path, "mode": mode }))?)
}

/// Closes one that is open there.
pub fn close(virsh: &mut Virsh, file: i64) -> Result<(), Trouble> {
    virsh.ask("guest-file-close", &json!({ "handle": file })).map(|_| ())
}

/// Writes [`WRITE_BYTES`] at most, and sees that they are there.
pub fn write(virsh: &mut Virsh, file: i64, bytes: &[u8]) -> Result<(), Trouble> {
    let answer = virsh.ask("guest-file-write", &json!({ "handle": file, "buf-b64": BASE64.encode(bytes) }))?;
    let written = number(&answer["count"])?;
    if written != bytes.len() as i64 {
        return Err(Trouble::Cut { written, bytes: bytes.len() });
    }
    virsh.ask("guest-file-flush", &json!({ "handle": file })).map(|_| ())
}

fn read(virsh: &mut Virsh, file: i64) -> Result<Vec<u8>, Trouble> {
    let answer = virsh.ask("guest-file-read", &json!({ "handle": file, "count": READ_BYTES }))?;
    let wrong = |what: &str| Trouble::GuestAgent(what.to_owned());
    let bytes = BASE64.decode(answer["buf-b64"].as_str().unwrap_or_default().as_bytes());
    let bytes = bytes.map_err(|_| wrong("answered with invalid base64"))?;
    let fits = bytes.len() <= READ_BYTES && answer["count"].as_u64() == Some(bytes.len() as u64);
    fits.then_some(bytes).ok_or_else(|| wrong("gave other bytes than it says"))
}
