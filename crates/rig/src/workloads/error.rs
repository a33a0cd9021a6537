//! Why a workload gave no result.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use vmio_model::{figure, sanitize};
use vmio_node::Output;

/// Characters of what a program said that are quoted: a guest's says what it likes.
const QUOTED: usize = 400;
/// So many of them from its start, where it said more.
const FROM_START: usize = 150;

/// What a program said: on standard error, or, as some do that have a complaint, on standard output.
pub(super) fn said(output: &Output) -> String {
    Some(cut(&output.err())).filter(|err| !err.is_empty()).unwrap_or_else(|| cut(&output.out()))
}

/// A text without control characters; of a long one the start and the end.
pub(super) fn cut(text: &str) -> String {
    let text = sanitize::quoted(text);
    let text = text.trim();
    let count = text.chars().count();
    if count <= QUOTED {
        return text.to_owned();
    }
    let part = |from: usize, to: usize| text.chars().skip(from).take(to - from).collect::<String>();
    format!("{}…{}", part(0, FROM_START), part(count - (QUOTED - FROM_START), count))
}

/// The start of a text, without control characters: of an output that is not what it should be.
pub(super) fn start_of(text: &str) -> String {
    let start: String = text.chars().take(QUOTED / 2).collect();
    sanitize::quoted(start.trim())
}

/// What a program says that failed.
///
/// # Errors
/// When it did.
pub(super) fn succeeded(node: &str, command: &str, output: &Output) -> Result<()> {
    if output.ok() {
        return Ok(());
    }
    let how = format!("{:?}", output.end);
    Err(Error::Failed { node: node.to_owned(), command: command.to_owned(), how, said: said(output) })
}

/// The last line of what a program of vmio's own printed, which is its report.
pub(super) fn report<T: DeserializeOwned>(text: &str) -> Result<(T, Value), Unusable> {
    let line = text.lines().last().unwrap_or_default();
    let unusable = |cause: serde_json::Error| Unusable::NoReport { cause, start: start_of(text) };
    let value: Value = serde_json::from_str(line).map_err(unusable)?;
    Ok((serde_json::from_value(value.clone()).map_err(unusable)?, value))
}

/// Why what a program printed is no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unusable {
    #[error("no report ends it ({cause}); it begins {start:?}")]
    NoReport { cause: serde_json::Error, start: String },
    #[error("of the receiver, {0}")]
    OfReceiver(Box<Unusable>),
    #[error("it is not JSON; it begins {0:?}")]
    NotJson(String),
    #[error("no JSON in it: {0:?}")]
    NoJson(String),
    #[error("{cause} in its JSON, which begins {start:?}")]
    BadJson { cause: serde_json::Error, start: String },
    /// What was kept of it before.
    #[error(transparent)]
    Kept(serde_json::Error),
    #[error("no `{key}` {place}")]
    NoValue { key: &'static str, place: &'static str },
    #[error("no {what} in it; it begins {start:?}")]
    NoPart { what: &'static str, start: String },
    /// A text without what is looked for.
    #[error("{lack} in {text:?}")]
    Lacks { lack: String, text: String },
    #[error("its last line is {0:?}")]
    LastLine(String),
    #[error("its log has {whole} whole appends of {appends}: its latency cannot be computed")]
    Gaps { whole: usize, appends: u64 },
    /// It did nothing, too little to measure, or other than it was told: what it did.
    #[error("{0}")]
    Amount(String),
    /// What was under way between the ends weighs too much in so short a time.
    #[error(
        "the run is invalid: data moved for {seconds:.2} s of {asked:.0} s, so one end did not run in between; reduce \
         other load"
    )]
    Short { seconds: f64, asked: f64 },
    #[error("it says that it took {seconds} s, and {longest:.0} s at most are possible")]
    Time { seconds: f64, longest: f64 },
    #[error(transparent)]
    NotAsDeclared(figure::NotAsDeclared),
}

impl Unusable {
    /// The error that it is, of what a command printed on a node.
    pub(super) fn of(self, node: &str, command: &str) -> Error {
        Error::Output { node: node.to_owned(), command: command.to_owned(), reason: self }
    }
}

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workload gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool failed.
    #[error("{node}: `{command}` failed ({how}): {said}")]
    Failed {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Exit code, signal, time limit or fio's error field.
        how: String,
        /// What it said, on standard error where it said anything there.
        said: String,
    },
    /// Its output is not what the tool of a known version says.
    #[error("{node}: the output of `{command}` cannot be used: {reason}")]
    Output {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Why.
        reason: Unusable,
    },
    /// What joins this host with another machine keeps packets back.
    #[error(
        "{what} to {address} ({node}): {how}; is a firewall between? Open {ports} for this host, there and on the way"
    )]
    PortUnreachable {
        /// The machine.
        node: String,
        /// What is the matter.
        what: &'static str,
        /// The address that leads there.
        address: IpAddr,
        /// What has to be open.
        ports: String,
        /// What was seen.
        how: String,
    },
    /// It cannot be run like this.
    #[error("{workload} cannot run here: {reason}")]
    Unfit {
        /// Which.
        workload: String,
        /// Why, and what to do.
        reason: String,
    },
    /// From the node.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}
