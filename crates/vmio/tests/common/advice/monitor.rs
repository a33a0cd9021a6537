//! QEMU's monitor over its socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::wrong::{Wrong, refused};

/// Sends one line and gives what it returns. The socket is free again afterwards.
pub fn ask(socket: &Path, line: &str) -> Result<Value, Wrong> {
    let told = |e: std::io::Error| refused(format!("{}: {e}", socket.display()));
    let stream = UnixStream::connect(socket).map_err(told)?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(told)?;
    let mut reader = BufReader::new(&stream);
    let mut answer = |line: &str| -> Result<Value, Wrong> {
        (&stream).write_all(format!("{line}\n").as_bytes()).map_err(told)?;
        loop {
            let mut text = String::new();
            if reader.read_line(&mut text).map_err(told)? == 0 {
                return Err(refused(format!("{}: closed", socket.display())));
            }
            let said: Value = serde_json::from_str(&text).map_err(|e| refused(format!("{text}: {e}")))?;
            if let Some(error) = said.get("error") {
                return Err(refused(format!("{line}\n{error}")));
            }
            if let Some(value) = said.get("return") {
                return Ok(value.clone());
            }
        }
    };
    answer("{\"execute\": \"qmp_capabilities\"}")?;
    answer(line)
}
