//! Commands that probes run: what one says is bounded, and so is the time of one that is waited for.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmio_model::figure::Reading;
use vmio_node::{Exec, Node, Process};

use super::{ByCommand, Looking, ProbeSubject, Runs, Unseen};

/// How long one may take that is waited for.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes that it may say at once.
const MOST_BYTES: usize = 1 << 20;
/// Most lines that are heard of one: seven hours at ten a second.
const MOST_LINES: usize = 1 << 18;
/// Most bytes of them all.
const MOST_BYTES_HEARD: usize = 16 << 20;
/// How long one may take to clean up once it is asked to end.
const END_LIMIT: Duration = Duration::from_secs(1);
/// How often it is heard.
const GLANCE: Duration = Duration::from_millis(100);

/// What a command said while it was watched.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// What it said, each with its seconds from the start: all of it at the start and at the end, or line by line.
    pub said: Vec<(f64, String)>,
    /// When it was run, in seconds from the start, in order; none where it is run at the ends.
    pub runs: Vec<f64>,
}

/// Starts a probe's command.
pub(super) fn start(
    by: &'static dyn ByCommand,
    subject: &ProbeSubject,
    node: &Arc<dyn Node>,
) -> Result<Box<dyn Looking>, Unseen> {
    let exec = Exec { limit: Some(LIMIT), keep_bytes: MOST_BYTES, ..by.command(subject)? };
    let (subject, node) = (subject.clone(), Arc::clone(node));
    let looking: Box<dyn Looking> = match by.runs() {
        Runs::AtEnds => {
            let before = whole(&*node, &exec)?;
            Box::new(AtEnds { by, subject, node, exec, before, began: Instant::now() })
        }
        Runs::Meanwhile { again } => {
            let process = node.spawn(&exec)?;
            let shown = exec.shown();
            let (stop, stopped) = mpsc::channel();
            let began = Instant::now();
            let (heard, part) = (Heard { runs: vec![0.0], ..Heard::default() }, Vec::new());
            let listener = Listener { node, exec, again, began, heard, bytes: 0, part, complaint: None };
            let thread = thread::Builder::new().name("probe".into()).spawn(move || listener.listen(process, &stopped));
            let failed = |e: std::io::Error| Unseen::Command { command: shown.clone(), said: e.to_string() };
            Box::new(Meanwhile { by, subject, thread: thread.map_err(failed)?, shown, stop, began })
        }
    };
    Ok(looking)
}

/// All that it says.
fn whole(node: &dyn Node, exec: &Exec) -> Result<String, Unseen> {
    let output = node.exec(exec)?;
    if output.ok() {
        return Ok(output.out());
    }
    Err(Unseen::Command { command: exec.shown(), said: output.err().trim().to_owned() })
}

/// One that is run at the start and at the end.
struct AtEnds {
    by: &'static dyn ByCommand,
    subject: ProbeSubject,
    node: Arc<dyn Node>,
    exec: Exec,
    before: String,
    began: Instant,
}

impl Looking for AtEnds {
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let Self { by, subject, node, exec, before, began } = *self;
        let after = whole(&*node, &exec)?;
        let seconds = began.elapsed().as_secs_f64();
        let said = vec![(0.0, before), (seconds, after)];
        by.conclude(&subject, &Heard { seconds, said, runs: Vec::new() }, notes)
    }
}

/// One that runs meanwhile. It is ended when this goes: its listener hears that nobody can tell it to stop any more.
struct Meanwhile {
    by: &'static dyn ByCommand,
    subject: ProbeSubject,
    thread: JoinHandle<(Heard, Option<String>)>,
    shown: String,
    stop: Sender<()>,
    began: Instant,
}

impl Looking for Meanwhile {
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let Self { by, subject, thread, shown, stop, began } = *self;
        let seconds = began.elapsed().as_secs_f64();
        drop(stop);
        let (heard, complaint) = thread.join().unwrap_or_default();
        let found = by.conclude(&subject, &Heard { seconds, ..heard }, notes);
        // What it complained of is why it told too little.
        found.map_err(|why| complaint.map_or(why, |said| Unseen::Command { command: shown, said }))
    }
}

/// Hears a command out.
struct Listener {
    node: Arc<dyn Node>,
    exec: Exec,
    again: Duration,
    began: Instant,
    heard: Heard,
    /// Of all that it said.
    bytes: usize,
    /// A line whose end has not come yet.
    part: Vec<u8>,
    complaint: Option<String>,
}

impl Listener {
    /// What it says until it is to stop, and what it last complained of.
    fn listen(mut self, process: Box<dyn Process>, stopped: &Receiver<()>) -> (Heard, Option<String>) {
        let (mut running, mut ran) = (Some(process), self.began);
        loop {
            let over = !matches!(stopped.recv_timeout(GLANCE), Err(RecvTimeoutError::Timeout));
            if let Some(process) = &mut running {
                if self.hear(&mut **process) {
                    running = None;
                }
            } else if !over && ran.elapsed() >= self.again {
                ran = Instant::now();
                self.heard.runs.push(self.began.elapsed().as_secs_f64());
                match self.node.spawn(&self.exec) {
                    Ok(process) => running = Some(process),
                    Err(e) => self.complaint = Some(e.to_string()),
                }
            }
            if over || self.is_full() {
                if let Some(mut process) = running {
                    // It may have locked something; who is deaf is killed.
                    let _ = process.terminate().and_then(|()| process.wait(Some(END_LIMIT)));
                }
                return (self.heard, self.complaint);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.heard.said.len() >= MOST_LINES || self.bytes >= MOST_BYTES_HEARD
    }

    /// Takes what it has said; whether it has ended.
    fn hear(&mut self, process: &mut dyn Process) -> bool {
        let heard = match process.try_wait() {
            Ok(None) => process.take_said().map(|said| (said, false)),
            Ok(Some(output)) => Ok(([output.stdout, output.stderr], true)),
            Err(e) => Err(e),
        };
        let ([said, complained], ended) = heard.unwrap_or_else(|e| ([Vec::new(), e.to_string().into()], true));
        let complained = String::from_utf8_lossy(&complained);
        if let Some(last) = complained.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            self.complaint = Some(last.to_owned());
        }
        self.part.extend(said);
        if ended {
            self.part.push(b'\n');
        }
        let seconds = self.began.elapsed().as_secs_f64();
        if let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') {
            let whole: Vec<u8> = self.part.drain(..=end).collect();
            let text = String::from_utf8_lossy(&whole);
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                if self.is_full() {
                    break;
                }
                self.bytes += line.len();
                self.heard.said.push((seconds, line.to_owned()));
            }
        } else if self.part.len() > MOST_BYTES {
            self.part.clear();
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Local;
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    /// Says what it heard. The script tells a file that it has said something, so that nobody waits for a time.
    struct Lines(&'static str, String);

    impl ByCommand for Lines {
        fn command(&self, _: &ProbeSubject) -> Result<Exec, Unseen> {
            Ok(Exec::new("sh").args(["-c", self.0, &self.1]))
        }
        fn runs(&self) -> Runs {
            Runs::Meanwhile { again: Duration::from_millis(50) }
        }
        fn conclude(&self, _: &ProbeSubject, heard: &Heard, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
            assert!(heard.said.is_sorted_by(|a, b| a.0 <= b.0), "{heard:?}");
            assert!(heard.runs.first() == Some(&0.0) && heard.runs.is_sorted(), "{heard:?}");
            match heard.said.len() {
                0 => Err(Unseen::FewReadings),
                n => Ok(heard.said.iter().map(|(_, line)| Reading::scalar(line, n as f64)).collect()),
            }
        }
    }

    fn until(what: impl Fn() -> bool) {
        for _ in 0..600 {
            if what() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("not within 30 s");
    }

    /// Starts a script; its process id is the first line of the file.
    fn started(script: &'static str) -> (Box<dyn Looking>, impl Fn() -> Vec<String>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("told");
        let by: &'static Lines = Box::leak(Box::new(Lines(script, file.display().to_string())));
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let told = move || std::fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect();
        (start(by, &ProbeSubject::Processors, &node).unwrap(), told, dir)
    }

    fn heard(script: &'static str, times: usize) -> Result<Vec<String>, Unseen> {
        let (looking, told, _dir) = started(script);
        until(|| told().len() >= times);
        // It lies in the pipe now, if not with its reader.
        thread::sleep(3 * GLANCE);
        Ok(looking.stop(&mut Vec::new())?.into_iter().map(|reading| reading.figure).collect())
    }

    #[test]
    fn lines_are_heard_as_they_come_and_one_that_ends_is_run_again() {
        assert_eq!(heard("echo a; echo b; echo $$ >> $0; exec sleep 60", 1).unwrap(), ["a", "b"]);
        let again = heard("printf a; echo $$ >> $0", 3).unwrap();
        assert!(again.len() > 1 && again.iter().all(|line| line == "a"), "{again:?}");
        let fails = heard("echo no meter >&2; echo $$ >> $0; exit 3", 1).unwrap_err().to_string();
        assert!(fails.ends_with("failed: no meter"), "{fails}");
    }

    fn gone(pid: &str) -> bool {
        !std::path::Path::new("/proc").join(pid).exists()
    }

    #[test]
    fn one_that_says_too_much_is_ended() {
        let (looking, told, _dir) = started("echo $$ >> $0; exec yes $(printf %01000d 0)");
        until(|| !told().is_empty());
        until(|| gone(&told()[0]));
        let said = looking.stop(&mut Vec::new()).unwrap();
        let bytes: usize = said.iter().map(|reading| reading.figure.len()).sum();
        assert!((MOST_BYTES_HEARD..MOST_BYTES_HEARD + MOST_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn one_that_is_ended_may_put_things_in_order_first() {
        let script = "trap 'echo unlocked >> $0; exit' TERM; echo $$ >> $0; while :; do sleep 0.05; done";
        let (looking, told, _dir) = started(script);
        until(|| !told().is_empty());
        drop(looking);
        until(|| told().iter().any(|line| line == "unlocked"));
    }

    #[test]
    fn who_is_not_heard_any_more_is_ended() {
        for stopped in [true, false] {
            let (looking, told, _dir) = started("echo $$ >> $0; exec sleep 60");
            until(|| !told().is_empty());
            let pid = told().remove(0);
            assert!(!gone(&pid));
            if stopped {
                assert!(looking.stop(&mut Vec::new()).is_err(), "it said nothing");
            } else {
                drop(looking);
            }
            until(|| gone(&pid));
        }
    }

    /// The content of a file before and after.
    struct Twice;

    impl ByCommand for Twice {
        fn command(&self, _: &ProbeSubject) -> Result<Exec, Unseen> {
            Ok(Exec::new("count"))
        }
        fn runs(&self) -> Runs {
            Runs::AtEnds
        }
        fn conclude(&self, _: &ProbeSubject, heard: &Heard, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
            Ok(heard.said.iter().map(|(_, text)| Reading::scalar(text.trim(), heard.seconds)).collect())
        }
    }

    #[test]
    fn one_at_the_ends_is_waited_for_and_must_succeed() {
        let fake = Arc::new(Fake::new("fake").program("count", says("7\n")));
        let seen = start(&Twice, &ProbeSubject::Processors, &(fake.clone() as Arc<dyn Node>)).unwrap();
        let seen = seen.stop(&mut Vec::new()).unwrap();
        assert_eq!(seen.iter().map(|r| r.figure.as_str()).collect::<Vec<_>>(), ["7", "7"]);
        let ran = fake.ran();
        assert!(ran.len() == 2 && ran.iter().all(|exec| exec.limit == Some(LIMIT) && exec.keep_bytes == MOST_BYTES));
        let bad: Arc<dyn Node> = Arc::new(Fake::new("fake").program("count", fails(1, "denied\n")));
        let why = start(&Twice, &ProbeSubject::Processors, &bad).err().unwrap();
        assert_eq!(why.to_string(), "`count` failed: denied");
    }
}
