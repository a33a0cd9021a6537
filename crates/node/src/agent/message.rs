//! What the frames between vmio and its agent say. Control goes as JSON, bytes go raw.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{End, Error, Exec, FileIdentity, FileSample, FileStat, Opened, RemoteDevice, SamplePlan, device_safety};

/// Size of the pieces in which data goes: small enough that others get their turn.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Most bytes of standard input that the agent takes for one command.
pub(crate) const INPUT_BYTES: usize = 64 << 20;

/// Id of what the agent says about the whole session: that it ended it, and why.
pub(crate) const NO_REQUEST: u32 = 0;

/// What a client asks. Unless said otherwise there is one reply: what is asked for, `Done`, or
/// `Failed`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Start a command. Its standard input follows as data (`cmd.stdin` is empty here), then an
    /// end. Replies `Started`, streams both outputs, and at last replies `Ended`.
    Exec { cmd: Exec },
    /// Kill the command that was started by request `of`.
    Kill { of: u32 },
    /// Read a file: data, then `Done`.
    Read { path: PathBuf },
    /// Write a file: data and an end follow, then `Done`.
    Write { path: PathBuf, mode: Option<u32> },
    /// Make a new file of so many bytes of holes, and keep it open: what it is by its descriptor.
    MakeFile { path: PathBuf, bytes: u64 },
    /// Look whether a device may be overwritten, and hold it.
    #[serde(rename = "spare")]
    HoldDevice { device: PathBuf, force: bool },
    /// Open the one that request `of` holds for writing: what it is by its descriptor.
    #[serde(rename = "open_spare")]
    OpenHeldDevice { of: u32, force: bool },
    /// Entries of a directory.
    List { dir: PathBuf },
    /// What a path is.
    Stat { path: PathBuf },
    /// Where a symbolic link points.
    Link { path: PathBuf },
    /// Read the beginning of a file: data, then `Done`.
    ReadStart { path: PathBuf, most_bytes: usize },
    /// As [`Request::Read`], of a file that others control.
    ReadForeign { path: PathBuf, most_bytes: usize },
    /// Read the beginning of a file that nobody but root can have written: data, then `Done`.
    ReadTrusted { path: PathBuf, most_bytes: usize },
    /// As [`Request::List`], of a directory that others control.
    ListForeign { dir: PathBuf },
    /// As [`Request::Stat`], of a path that others control.
    StatForeign { path: PathBuf },
    /// As [`Request::Link`], of a link that others control.
    LinkForeign { path: PathBuf },
    /// What the page cache holds of a file.
    CachedBytes { path: PathBuf },
    /// What tells a path of others from all other files.
    Identity { path: PathBuf },
    /// What a process's descriptor is.
    Opened { pid: u32, fd: u32 },
    /// Seconds on the agent's `CLOCK_MONOTONIC`.
    Clock,
    /// Begin to sample.
    SampleStart { plan: SamplePlan },
    /// End the sampling begun by request `of`: the samples as data, then `Done`.
    SampleStop { of: u32 },
    /// Undo what this session changed, and end it.
    Bye,
    /// Switch the machine off (only where the agent is its init).
    Poweroff,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// What was asked for is done.
    Done,
    /// The command runs, as this process.
    Started { pid: u32 },
    /// The command has ended.
    Ended { end: End, truncated: bool },
    /// Entries of a directory.
    Names { names: Vec<String> },
    /// What a path is; `None` where nothing is there.
    Stat { stat: Option<FileStat> },
    /// Where a link points; `None` for what is none.
    Link { to: Option<PathBuf> },
    /// Bytes in the page cache; `None` where the kernel cannot count them.
    Bytes { bytes: Option<u64> },
    /// Which file it is; `None` where nothing is there.
    Identity { identity: Option<FileIdentity> },
    /// What a descriptor is; `None` where there is none.
    Opened { opened: Option<Opened> },
    /// The device that is held.
    #[serde(rename = "spare")]
    DeviceHeld { spare: Box<RemoteDevice> },
    /// The time on a clock.
    Seconds { seconds: f64 },
    /// What was asked for failed.
    Failed { failure: Failure },
}

/// An error on its way through the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    doing: Doing,
    errno: Option<i32>,
    text: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Doing {
    File { what: String, path: PathBuf },
    Spawn { program: String },
    Refused { device: PathBuf },
    Other,
}

/// What [`Error::File`] says was done; the names cross the wire.
const WHATS: [&str; 11] = [
    "read",
    "write",
    "list",
    "look at",
    "open",
    "sample",
    "make",
    "follow",
    "count the cached pages of",
    "find",
    "look into",
];

impl Failure {
    /// A failure of another kind than of a file or command.
    pub fn other(text: impl Into<String>) -> Self {
        Self { doing: Doing::Other, errno: None, text: text.into() }
    }

    /// Its message.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The error as the client's code sees it, on the node called `node`.
    pub fn into_error(self, node: &str) -> Error {
        let node = node.to_owned();
        let source = match self.errno {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(self.text.clone()),
        };
        match self.doing {
            Doing::File { what, path } => {
                let what = WHATS.into_iter().find(|w| *w == what).unwrap_or("use");
                Error::File { node, what, path, source }
            }
            Doing::Spawn { program } => Error::Spawn { node, program, source },
            Doing::Refused { device } => Error::Refused { node, device, reason: self.text },
            Doing::Other => Error::Protocol { node, reason: self.text },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (doing, source) = match error {
            Error::File { what, path, source, .. } => (Doing::File { what: what.into(), path }, source),
            Error::Spawn { program, source, .. } => (Doing::Spawn { program }, source),
            Error::Refused { device, reason, .. } => {
                return Self { doing: Doing::Refused { device }, errno: None, text: reason };
            }
            other => return Self::other(other.to_string()),
        };
        Self { doing, errno: source.raw_os_error(), text: source.to_string() }
    }
}

/// A device that is not used, on its way through the wire.
pub(crate) fn unsafe_device(error: device_safety::Error) -> Error {
    let node = String::new();
    match error {
        device_safety::Error::Io { what, path, source } => Error::File { node, what, path, source },
        device_safety::Error::Refused { device, reason } => Error::Refused { node, device, reason },
        device_safety::Error::Node(error) => error,
    }
}

/// Samples as bytes: for each the seconds (f64), the number of contents (u32), and for each
/// content its length (u32) and bytes; all little endian.
pub(crate) fn encode_samples(samples: &[FileSample]) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, n: usize| out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
    for sample in samples {
        out.extend(sample.seconds.to_le_bytes());
        number(&mut out, sample.contents.len());
        for content in &sample.contents {
            number(&mut out, content.len());
            out.extend(content);
        }
    }
    out
}

/// The samples again; `None` when the bytes are something else.
pub(crate) fn decode_samples(mut bytes: &[u8]) -> Option<Vec<FileSample>> {
    fn number(bytes: &mut &[u8]) -> Option<usize> {
        let (head, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        usize::try_from(u32::from_le_bytes(*head)).ok()
    }
    let mut samples = Vec::new();
    while !bytes.is_empty() {
        let (seconds, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        let mut contents = Vec::new();
        for _ in 0..number(&mut bytes)? {
            let length = number(&mut bytes)?;
            let (content, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            contents.push(content.to_vec());
        }
        samples.push(FileSample { seconds: f64::from_le_bytes(*seconds), contents });
    }
    Some(samples)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn samples_round_trip_and_cut_ones_are_refused() {
        let samples = vec![
            FileSample { seconds: 1.5, contents: vec![b"a".to_vec(), vec![], vec![0xff; 300]] },
            FileSample { seconds: 2.5, contents: vec![] },
        ];
        let bytes = encode_samples(&samples);
        assert_eq!(decode_samples(&bytes).unwrap(), samples);
        let first = encode_samples(&samples[..1]).len();
        for cut in (1..bytes.len()).filter(|&c| c != first) {
            assert_eq!(decode_samples(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(decode_samples(&[0xff; 100]), None);
    }

    #[test]
    fn errors_keep_their_meaning() {
        let error = || Error::File {
            node: "local".into(),
            what: "list",
            path: "/x".into(),
            source: io::Error::from_raw_os_error(13),
        };
        let json = serde_json::to_string(&Failure::from(error())).unwrap();
        let back = serde_json::from_str::<Failure>(&json).unwrap().into_error("guest0");
        assert_eq!(back.to_string(), error().to_string().replace("local", "guest0"));
        assert!(matches!(back, Error::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied));
    }
}
