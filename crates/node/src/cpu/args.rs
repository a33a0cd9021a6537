//! The program's command line.

use std::time::Duration;

use super::{ALL, Job, Kind, PROGRAM};

/// How it is called.
pub const USAGE: &str = "\
usage: vmio-cpu KERNEL [--size N] --seconds S
       vmio-cpu --version
Runs a kernel on one processor for S seconds, checks what it worked out, and
prints one line of JSON. KERNEL and its N:
lu             order of the matrix (256)
sharpen        width and height of the image (512)
allocate       blocks that are held at a time (1024)
write          bytes of the buffer (64 MiB)
page-faults    bytes that are mapped at a time (16 MiB)
stream-copy, stream-scale, stream-add, stream-triad
               bytes of each of the three arrays (128 MiB)";

/// Longest time: a day.
const MOST_SECONDS: f64 = 86_400.0;

/// What it is told to do.
#[derive(Clone, Copy)]
pub enum Command {
    /// To work.
    Work(Job),
    /// To say its version.
    Version,
}

/// What is wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum WrongUse {
    #[error("no kernel is named")]
    NoKernel,
    #[error("--version stands alone")]
    NotAlone,
    #[error("{PROGRAM} has no {0}")]
    UnknownKernel(String),
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("--size {value}: {what} is a whole number, {least} to {most}")]
    Size { value: String, what: &'static str, least: usize, most: usize },
    #[error("--seconds {0}: more than 0 and at most a day")]
    Seconds(String),
    #[error("{0} stands there twice")]
    Twice(String),
    #[error("unknown option {0}")]
    UnknownOption(String),
    #[error("--seconds is missing")]
    NoSeconds,
}

/// Reads the arguments behind the program's name.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Command, WrongUse> {
    let args: Vec<String> = args.collect();
    let (name, options) = args.split_first().ok_or(WrongUse::NoKernel)?;
    if name == "--version" {
        return if options.is_empty() { Ok(Command::Version) } else { Err(WrongUse::NotAlone) };
    }
    let kind = ALL.iter().find(|kind| kind.name == name);
    let kind: Kind = *kind.ok_or_else(|| WrongUse::UnknownKernel(name.clone()))?;
    let (mut size, mut seconds) = (None, None);
    for option in options.chunks(2) {
        let [name, value] = option else { return Err(WrongUse::NoValue(option[0].clone())) };
        match name.as_str() {
            "--size" if size.is_none() => {
                let (least, most) = kind.range;
                let number = value.parse().ok().filter(|n| (least..=most).contains(n));
                let wrong = || WrongUse::Size { value: value.clone(), what: kind.size, least, most };
                size = Some(number.ok_or_else(wrong)?);
            }
            "--seconds" if seconds.is_none() => {
                let number = value.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= MOST_SECONDS);
                seconds = Some(number.ok_or_else(|| WrongUse::Seconds(value.clone()))?);
            }
            "--size" | "--seconds" => return Err(WrongUse::Twice(name.clone())),
            _ => return Err(WrongUse::UnknownOption(name.clone())),
        }
    }
    let seconds = seconds.ok_or(WrongUse::NoSeconds)?;
    Ok(Command::Work(Job { kind, size: size.unwrap_or(kind.usual), time: Duration::from_secs_f64(seconds) }))
}
