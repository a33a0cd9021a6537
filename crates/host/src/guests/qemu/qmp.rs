//! Client of QEMU's monitor (QMP: docs/interop/qmp-spec.rst of QEMU). One command at a time, events are
//! passed over.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Error, Result};

/// How long the monitor may take to answer. It is served by QEMU's main thread, which may be
/// held up by the guest's I/O.
const LIMIT: Duration = Duration::from_secs(20);

/// A monitor that is ready for commands.
pub struct Qmp {
    guest: String,
    stream: BufReader<UnixStream>,
    /// QEMU's version, `7.2.22`.
    pub version: String,
}

impl Qmp {
    /// Takes a connection to a monitor and leaves the negotiation behind.
    pub fn over(guest: &str, stream: UnixStream) -> Result<Self> {
        let broken = |e: std::io::Error| fail(guest, "connect", &e.to_string());
        stream.set_read_timeout(Some(LIMIT)).map_err(broken)?;
        stream.set_write_timeout(Some(LIMIT)).map_err(broken)?;
        let mut qmp = Self { guest: guest.to_owned(), stream: BufReader::new(stream), version: String::new() };
        let greeting = qmp.line("greeting")?;
        let number = |part: &str| greeting["QMP"]["version"]["qemu"][part].as_u64();
        let (Some(major), Some(minor), Some(micro)) = (number("major"), number("minor"), number("micro")) else {
            return Err(fail(guest, "greeting", &format!("not QEMU's: {greeting}")));
        };
        qmp.version = format!("{major}.{minor}.{micro}");
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.stream
            .get_mut()
            .write_all(line.as_bytes())
            .map_err(|e| fail(&self.guest, command, &format!("{e}; QEMU has probably ended")))?;
        loop {
            let mut answer = self.line(command)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(fail(&self.guest, command, error["desc"].as_str().unwrap_or("refused")));
            }
        }
    }

    /// A property of an object; `None` when it has no such property.
    pub fn property(&mut self, path: &str, property: &str) -> Option<Value> {
        self.execute("qom-get", json!({"path": path, "property": property})).ok()
    }

    fn line(&mut self, command: &str) -> Result<Value> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(fail(&self.guest, command, "QEMU closed the monitor")),
            Ok(_) => serde_json::from_str(&line).map_err(|e| fail(&self.guest, command, &format!("no JSON: {e}"))),
            Err(e) => Err(fail(&self.guest, command, &e.to_string())),
        }
    }
}

fn fail(guest: &str, command: &str, reason: &str) -> Error {
    Error::Monitor { guest: guest.into(), command: command.into(), reason: reason.into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}"#;

    /// A monitor that gives these answers, each to one command, and hands back what it was told.
    fn monitor(answers: &'static [&'static str]) -> (tempfile::TempDir, thread::JoinHandle<Vec<Value>>) {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("qmp")).unwrap();
        let heard = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            writeln!(stream, "{GREETING}").unwrap();
            let mut heard = Vec::new();
            for answer in answers {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                heard.push(serde_json::from_str(&line).unwrap());
                writeln!(stream, "{answer}").unwrap();
            }
            heard
        });
        (dir, heard)
    }

    #[test]
    fn answers_come_past_events_and_errors_say_what() {
        let (dir, heard) = monitor(&[
            r#"{"return": {}}"#,
            "{\"event\": \"RESUME\", \"timestamp\": {}}\n{\"return\": {\"enabled\": false, \"present\": true}}",
            r#"{"error": {"class": "GenericError", "desc": "Property 'scsi-hd.iothread' not found"}}"#,
        ]);
        let mut qmp = Qmp::over("guest0", UnixStream::connect(dir.path().join("qmp")).unwrap()).unwrap();
        assert_eq!(qmp.version, "7.2.22");
        assert_eq!(qmp.execute("query-kvm", json!({})).unwrap()["enabled"], false);
        let said = qmp.execute("qom-get", json!({"path": "/x", "property": "iothread"})).unwrap_err().to_string();
        assert_eq!(said, "guest guest0: monitor command qom-get: Property 'scsi-hd.iothread' not found");
        let heard = heard.join().unwrap();
        assert_eq!(heard[0]["execute"], "qmp_capabilities");
        assert_eq!(heard[2]["arguments"]["property"], "iothread");
        let gone = qmp.execute("query-status", json!({})).unwrap_err().to_string();
        assert!(gone.contains("query-status") && gone.contains("QEMU"), "{gone}");
    }
}
