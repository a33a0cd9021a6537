//! The real `vmio guard run`, and what it costs.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Done;

/// How often it is asked over the socket, and by the program.
pub const ASKED: usize = 50;
pub const STARTED: usize = 9;
/// Pause between two questions, so that each finds it at rest.
const BETWEEN: Duration = Duration::from_millis(100);
/// Longest time until the policy is in force.
const READY: Duration = Duration::from_secs(300);
/// Longest time until it has come to rest: with thousands of interfaces it looks at them often for some minutes.
const SETTLED: Duration = Duration::from_secs(400);
/// Time over which its use is compared with that before.
const WINDOW: Duration = Duration::from_secs(20);
/// It has settled where it uses at least this part of what it used in the window before.
const SAME: f64 = 0.8;

/// Times, sorted.
pub struct Times(Vec<Duration>);

impl Times {
    fn of(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        Times(times)
    }

    /// A time as it is shown.
    pub fn seconds(time: Duration) -> String {
        format!("{:.2} s", time.as_secs_f64())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |at: usize| self.0.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        write!(f, "{:.1}, {:.1} ms", ms(self.0.len() / 2), ms(self.0.len().saturating_sub(1)))
    }
}

/// A guard. Dropped, it ends.
pub struct Daemon {
    child: Child,
    state: PathBuf,
    socket: PathBuf,
    /// From its start until its first answer.
    pub in_force: Duration,
}

impl Daemon {
    /// Starts it, and waits until the policy is in force.
    pub fn start(dir: &Path, policy: String) -> Done<Daemon> {
        let (config, said) = (dir.join("guard.toml"), dir.join("said"));
        fs::write(&config, policy)?;
        let state = dir.join("state");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.args(["guard", "run", "--config"]).arg(&config).env("VMIO_STATE", &state);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let began = Instant::now();
        let child = command.spawn()?;
        let socket = state.join("run/guard.sock");
        let mut daemon = Daemon { child, state, socket, in_force: Duration::ZERO };
        // It answers when all is in force.
        while daemon.status().is_err() {
            if daemon.child.try_wait()?.is_some() || began.elapsed() > READY {
                return Err(format!("the guard does not run: {}", fs::read_to_string(&said)?).into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        daemon.in_force = began.elapsed();
        Ok(daemon)
    }

    /// Waits until it uses no less processor time than before.
    pub fn settle(&self) -> Done<()> {
        let began = Instant::now();
        let mut before = self.used_in(WINDOW)?;
        while began.elapsed() < SETTLED {
            let now = self.used_in(WINDOW)?;
            if now >= before * SAME {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    /// Processor time of all its threads in so much time, as a share of a core.
    pub fn used_in(&self, time: Duration) -> Done<f64> {
        let (began, before) = (Instant::now(), self.used()?);
        thread::sleep(time);
        Ok((self.used()? - before).as_secs_f64() / began.elapsed().as_secs_f64())
    }

    /// By its clock (clock_getcpuclockid(3)), in nanoseconds: a tick of /proc/PID/stat is as long as all that some
    /// seconds at rest take.
    fn used(&self) -> Done<Duration> {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the kernel's identifier of a clock is written to the variable.
        let failed = unsafe { libc::clock_getcpuclockid(i32::try_from(self.child.id())?, &raw mut clock) };
        if failed != 0 {
            return Err(std::io::Error::from_raw_os_error(failed).into());
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is written to the variable.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
    }

    /// Resident memory (VmRSS of proc_pid_status(5)).
    pub fn memory_mib(&self) -> Done<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Times from the question until the whole answer, over the socket.
    pub fn ask(&self) -> Done<Times> {
        let mut times = Vec::new();
        for _ in 0..ASKED {
            thread::sleep(BETWEEN);
            let began = Instant::now();
            self.status()?;
            times.push(began.elapsed());
        }
        Ok(Times::of(times))
    }

    /// Times of the program, its start included.
    pub fn run_status(&self) -> Done<Times> {
        let mut times = Vec::new();
        for _ in 0..STARTED {
            thread::sleep(BETWEEN);
            let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
            command.args(["guard", "status"]).env("VMIO_STATE", &self.state).stdin(Stdio::null()).stdout(Stdio::null());
            let began = Instant::now();
            if !command.status()?.success() {
                return Err("guard status failed".into());
            }
            times.push(began.elapsed());
        }
        Ok(Times::of(times))
    }

    /// Median and 99th percentile of the times until interfaces that came were limited, as the guard has them.
    pub fn appeared(&self) -> Done<Times> {
        let status: Value = serde_json::from_slice(&self.status()?)?;
        let time = |key: &str| Some(Duration::from_secs_f64(status["appeared"][key].as_f64()?));
        let (Some(median), Some(worst)) = (time("p50_seconds"), time("p99_seconds")) else {
            return Err("no new interface was seen".into());
        };
        Ok(Times(vec![median, median, worst]))
    }

    /// The document.
    fn status(&self) -> Done<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err("it was refused".into());
        }
        Ok(answer.split_off(end + 4))
    }

    /// Has it remove its limits.
    pub fn end(mut self) -> Done<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.args(["guard", "undo"]).env("VMIO_STATE", &self.state).stdin(Stdio::null()).stdout(Stdio::null());
        let done = command.stderr(Stdio::null()).status()?;
        self.child.wait()?;
        if done.success() { Ok(()) } else { Err(format!("guard undo ended with {done}").into()) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // It leaves its limits in force; they go with the namespace.
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
