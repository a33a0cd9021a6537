//! Client of QEMU's monitor (QMP: docs/interop/qmp-spec.rst of QEMU). One command at a time, events are
//! passed over. Each command has a number, which its answer bears: an answer that came too late
//! is not taken for that of the next command.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// The monitor refused a command or went away.
#[derive(Debug, thiserror::Error)]
#[error("guest {guest}: monitor command {command}: {reason}")]
pub struct Error {
    /// Name of the guest.
    pub guest: String,
    /// Command.
    pub command: String,
    /// Its answer.
    pub reason: String,
}

/// How long the monitor may take to answer. It is served by QEMU's main thread, which may be
/// held up by the guest's I/O.
const LIMIT: Duration = Duration::from_secs(20);

/// Longest message that is taken: the monitor may be another user's, who sends what he likes.
const MOST_BYTES: usize = 16 << 20;

/// A monitor that is ready for commands.
pub struct Qmp {
    guest: String,
    stream: BufReader<UnixStream>,
    limit: Duration,
    /// When the connection is to be given up, whatever is asked then.
    until: Option<Instant>,
    /// The beginning of a line whose rest has not come yet.
    begun: Vec<u8>,
    /// Number of the last command.
    asked: u64,
    /// Why nothing more can be asked.
    broken: Option<String>,
    /// QEMU's version, `7.2.22`.
    pub version: String,
}

impl Qmp {
    /// Takes a connection to a monitor and leaves the negotiation behind.
    pub fn over(guest: &str, stream: UnixStream) -> Result<Self> {
        Self::within(LIMIT, None, guest, stream)
    }

    pub(crate) fn within(limit: Duration, until: Option<Instant>, guest: &str, stream: UnixStream) -> Result<Self> {
        let mut qmp = Self {
            guest: guest.to_owned(),
            stream: BufReader::new(stream),
            limit,
            until,
            begun: Vec::new(),
            asked: 0,
            broken: None,
            version: String::new(),
        };
        let end = qmp.end();
        let greeting = qmp.line("greeting", end)?;
        let number = |part: &str| greeting["QMP"]["version"]["qemu"][part].as_u64();
        let (Some(major), Some(minor), Some(micro)) = (number("major"), number("minor"), number("micro")) else {
            return Err(fail(guest, "greeting", &format!("not QEMU's: {greeting}")));
        };
        qmp.version = format!("{major}.{minor}.{micro}");
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its answer. When none comes in time the monitor stays usable;
    /// after any other failure of its socket every command is refused.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let end = self.end();
        let asked = self.send(command, arguments, end)?;
        self.answer(command, asked, end)
    }

    /// Sends a command; gives its number.
    fn send(&mut self, command: &str, arguments: Value, end: Instant) -> Result<u64> {
        if let Some(reason) = &self.broken {
            return Err(fail(&self.guest, command, reason));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(self.silent(command));
        }
        self.asked += 1;
        let line = format!("{}\n", json!({"execute": command, "arguments": arguments, "id": self.asked}));
        let timed = self.stream.get_ref().set_write_timeout(Some(left(end)));
        if let Err(e) = timed.and_then(|()| self.stream.get_mut().write_all(line.as_bytes())) {
            return Err(self.break_off(command, format!("{e}; QEMU has probably ended")));
        }
        Ok(self.asked)
    }

    /// The answer to the command of that number. QEMU answers in the order of the commands.
    fn answer(&mut self, command: &str, asked: u64, end: Instant) -> Result<Value> {
        if let Some(reason) = &self.broken {
            return Err(fail(&self.guest, command, reason));
        }
        loop {
            let mut answer = self.line(command, end)?;
            // Events have no id; the answer to an earlier command has another.
            if answer["id"] == asked {
                if let Some(value) = answer.get_mut("return") {
                    return Ok(value.take());
                }
                return Err(fail(&self.guest, command, answer["error"]["desc"].as_str().unwrap_or("refused")));
            }
        }
    }

    /// A property of an object; `None` when it has no such property.
    pub fn property(&mut self, path: &str, property: &str) -> Option<Value> {
        self.execute("qom-get", json!({"path": path, "property": property})).ok()
    }

    /// When an answer to something that is asked now comes too late.
    fn end(&self) -> Instant {
        let end = Instant::now() + self.limit;
        self.until.map_or(end, |until| until.min(end))
    }

    /// The next message: one line, or several (`pretty=on`).
    fn line(&mut self, command: &str, end: Instant) -> Result<Value> {
        loop {
            let got = if Instant::now() < end { self.more(end) } else { Err(ErrorKind::TimedOut.into()) };
            match got {
                Ok(0) => return Err(self.break_off(command, "QEMU closed the monitor".into())),
                Ok(_) if self.begun.len() > MOST_BYTES => {
                    return Err(self.break_off(command, "its message is longer than 16 MiB".into()));
                }
                Ok(_) if !self.begun.ends_with(b"\n") => {}
                Ok(_) => match serde_json::from_slice(&self.begun) {
                    Err(e) if e.is_eof() => {}
                    read => {
                        self.begun.clear();
                        return read.map_err(|e| fail(&self.guest, command, &format!("no JSON: {e}")));
                    }
                },
                // What has come of a line is kept.
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(self.silent(command));
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // It was closed with a command unread.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => {
                    return Err(self.break_off(command, "QEMU closed the monitor".into()));
                }
                Err(e) => return Err(self.break_off(command, e.to_string())),
            }
        }
    }

    /// Takes what has come, up to the end of a line; waits until `end` for something to come.
    fn more(&mut self, end: Instant) -> std::io::Result<usize> {
        self.stream.get_ref().set_read_timeout(Some(left(end)))?;
        let come = self.stream.fill_buf()?;
        let length = come.iter().position(|b| *b == b'\n').map_or(come.len(), |at| at + 1);
        self.begun.extend_from_slice(&come[..length]);
        self.stream.consume(length);
        Ok(length)
    }

    fn silent(&self, command: &str) -> Error {
        let time = match self.until {
            Some(_) => "in the time of a look".to_owned(),
            None => format!("within {} s", self.limit.as_secs_f64()),
        };
        fail(&self.guest, command, &format!("no answer {time}"))
    }

    fn break_off(&mut self, command: &str, reason: String) -> Error {
        let error = fail(&self.guest, command, &reason);
        self.broken = Some(reason);
        error
    }
}

/// Time until `end`; never zero, which would be "for ever" to a socket.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// What may be asked of a guest that is not ours. None of these changes anything (QEMU, qapi/*.json).
const QUERIES: [&str; 8] = [
    "query-block",
    "query-blockstats",
    "query-balloon",
    "query-named-block-nodes",
    "query-cpus-fast",
    "query-iothreads",
    "query-kvm",
    "query-version",
];

/// Reads a property of an object.
const GET: &str = "qom-get";

/// A monitor of somebody else's guest: asked from a closed list, until its time is over.
pub struct ReadOnly {
    qmp: Qmp,
}

impl ReadOnly {
    /// Takes a connection to a monitor until that time.
    pub fn over(guest: &str, stream: UnixStream, until: Instant) -> Result<Self> {
        Ok(Self { qmp: Qmp::within(LIMIT, Some(until), guest, stream)? })
    }

    /// QEMU's version, `7.2.22`.
    pub fn version(&self) -> &str {
        &self.qmp.version
    }

    /// The answers to some of [`QUERIES`], asked all at once: on a busy machine each round trip waits
    /// for QEMU's turn.
    pub fn queries(&mut self, queries: &[&str]) -> Vec<Result<Value>> {
        let of = |query: &&str| {
            // Without `flat` each node brings all below it once more.
            let flat = *query == "query-named-block-nodes";
            ((*query).to_owned(), if flat { json!({"flat": true}) } else { json!({}) })
        };
        self.all(queries.iter().map(of).collect())
    }

    /// Properties of objects, asked all at once; `None` where there is no such property.
    pub fn properties(&mut self, of: &[(String, &str)]) -> Vec<Option<Value>> {
        let get = |(path, property): &(String, &str)| (GET.to_owned(), json!({"path": path, "property": property}));
        self.all(of.iter().map(get).collect()).into_iter().map(Result::ok).collect()
    }

    fn all(&mut self, commands: Vec<(String, Value)>) -> Vec<Result<Value>> {
        let end = self.qmp.end();
        let mut send = |(command, arguments): (String, Value)| {
            if command != GET && !QUERIES.contains(&command.as_str()) {
                let refused = fail(&self.qmp.guest, &command, "it is not a read-only query; please report this");
                return (command, Err(refused));
            }
            let sent = self.qmp.send(&command, arguments, end);
            (command, sent)
        };
        let sent: Vec<(String, Result<u64>)> = commands.into_iter().map(&mut send).collect();
        sent.into_iter().map(|(command, sent)| self.qmp.answer(&command, sent?, end)).collect()
    }

    /// Whether nothing more will be answered.
    pub fn is_over(&self) -> bool {
        self.qmp.broken.is_some() || self.qmp.until.is_some_and(|until| Instant::now() >= until)
    }
}

fn fail(guest: &str, command: &str, reason: &str) -> Error {
    Error { guest: guest.into(), command: command.into(), reason: reason.into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}
"#;

    /// Both ends of a monitor that is past its negotiation.
    fn monitor() -> (Qmp, BufReader<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let qemu = thread::spawn(move || {
            let mut qemu = BufReader::new(theirs);
            say(&mut qemu, GREETING);
            assert_eq!(received(&mut qemu)["execute"], "qmp_capabilities");
            say(&mut qemu, "{\"return\": {}, \"id\": 1}\n");
            qemu
        });
        let qmp = Qmp::within(Duration::from_millis(200), None, "guest0", ours).unwrap();
        (qmp, qemu.join().unwrap())
    }

    fn say(qemu: &mut BufReader<UnixStream>, text: &str) {
        qemu.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn received(qemu: &mut BufReader<UnixStream>) -> Value {
        let mut line = String::new();
        qemu.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn refused(qmp: &mut Qmp, command: &str) -> String {
        qmp.execute(command, json!({})).unwrap_err().to_string()
    }

    #[test]
    fn answers_events_and_errors() {
        let (mut qmp, mut qemu) = monitor();
        assert_eq!(qmp.version, "7.2.22");
        say(&mut qemu, "{\"event\": \"RESUME\"}\n{\"return\": {\"enabled\": false}, \"id\": 2}\n");
        assert_eq!(qmp.execute("query-kvm", json!({})).unwrap()["enabled"], false);
        let no = r#"{"error": {"class": "GenericError", "desc": "Property 'scsi-hd.iothread' not found"}, "id": 3}"#;
        say(&mut qemu, &format!("{no}\n"));
        let error = qmp.execute("qom-get", json!({"path": "/x", "property": "iothread"})).unwrap_err().to_string();
        assert_eq!(error, "guest guest0: monitor command qom-get: Property 'scsi-hd.iothread' not found");
        assert_eq!(received(&mut qemu), json!({"execute": "query-kvm", "arguments": {}, "id": 2}));
        assert_eq!(received(&mut qemu)["arguments"]["property"], "iothread");
    }

    #[test]
    fn late_answers_are_skipped() {
        let (mut qmp, mut qemu) = monitor();
        assert!(refused(&mut qmp, "query-block").contains("query-block: no answer within 0.2 s"));
        say(&mut qemu, "{\"return\": \"late\", \"id\": 2}\n{\"return\": \"in time\", \"id\": 3}\n");
        assert_eq!(qmp.execute("query-chardev", json!({})).unwrap(), "in time");
    }

    #[test]
    fn partial_lines_are_kept() {
        let (mut qmp, mut qemu) = monitor();
        // Cut inside of a character, too: `é` has two bytes.
        let line = "{\"return\": \"é\", \"id\": 2}\n{\"return\": \"whole\", \"id\": 3}\n".as_bytes();
        let (head, rest) = line.split_at(13);
        qemu.get_mut().write_all(head).unwrap();
        assert!(refused(&mut qmp, "query-block").contains("no answer"));
        qemu.get_mut().write_all(rest).unwrap();
        assert_eq!(qmp.execute("query-chardev", json!({})).unwrap(), "whole");
    }

    #[test]
    fn events_do_not_extend_the_time_limit() {
        let (mut qmp, mut qemu) = monitor();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let chatter = thread::spawn(move || {
            while stopped.try_recv().is_err() {
                say(&mut qemu, "{\"event\": \"RTC_CHANGE\"}\n");
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(refused(&mut qmp, "query-block").contains("no answer"));
        stop.send(()).unwrap();
        chatter.join().unwrap();
    }

    #[test]
    fn a_message_without_an_end_is_given_up() {
        let (mut qmp, mut qemu) = monitor();
        qmp.limit = Duration::from_secs(60);
        let talker = thread::spawn(move || while qemu.get_mut().write_all(&[b' '; 1 << 16]).is_ok() {});
        assert!(refused(&mut qmp, "query-block").contains("longer than 16 MiB"));
        drop(qmp);
        talker.join().unwrap();
    }

    #[test]
    fn multi_line_messages() {
        let (mut qmp, mut qemu) = monitor();
        say(&mut qemu, "{\n    \"return\": {\n        \"enabled\": true\n    },\n    \"id\": 2\n}\n");
        assert_eq!(qmp.execute("query-kvm", json!({})).unwrap()["enabled"], true);
        say(&mut qemu, "HMP, no JSON\n");
        assert!(refused(&mut qmp, "query-block").contains("no JSON"));
    }

    #[test]
    fn read_only_queries_and_time_limit() {
        let (qmp, mut qemu) = monitor();
        let mut look = ReadOnly { qmp };
        let query = |look: &mut ReadOnly, query: &str| look.queries(&[query]).remove(0);
        let error = query(&mut look, "quit").unwrap_err().to_string();
        assert!(error.contains("quit") && error.contains("read-only"), "{error}");
        look.qmp.until = Some(Instant::now() + Duration::from_millis(30));
        // One byte now and then keeps nobody waiting beyond that: it goes on until it is told to stop, ten seconds
        // at most.
        let (stop, told) = std::sync::mpsc::channel::<()>();
        let dribble = thread::spawn(move || {
            let stopped = (0..2000).any(|_| {
                let _ = qemu.get_mut().write_all(b" ");
                told.recv_timeout(Duration::from_millis(5)).is_ok()
            });
            assert!(stopped, "nobody was told in ten seconds that there is no answer");
            qemu
        });
        assert!(query(&mut look, "query-block").unwrap_err().to_string().contains("no answer"));
        assert!(query(&mut look, "query-kvm").is_err());
        stop.send(()).unwrap();
        let mut qemu = dribble.join().unwrap();
        assert_eq!(received(&mut qemu)["execute"], "query-block");
    }

    #[test]
    fn broken_monitor_refuses_commands() {
        let (mut qmp, mut qemu) = monitor();
        say(&mut qemu, "{\"return\":");
        drop(qemu);
        let first = refused(&mut qmp, "query-block");
        assert!(first.contains("query-block") && first.contains("QEMU"), "{first}");
        let asked = qmp.asked;
        let next = refused(&mut qmp, "query-chardev");
        assert_eq!((next, qmp.asked), (first.replace("query-block", "query-chardev"), asked));
    }
}
