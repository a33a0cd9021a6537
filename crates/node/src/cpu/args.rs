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

/// Reads the arguments behind the program's name.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let args: Vec<String> = args.collect();
    let (name, options) = args.split_first().ok_or("no kernel is named")?;
    if name == "--version" {
        return if options.is_empty() { Ok(Command::Version) } else { Err("--version stands alone".into()) };
    }
    let kind: Kind = *ALL.iter().find(|kind| kind.name == name).ok_or_else(|| format!("{PROGRAM} has no {name}"))?;
    let (mut size, mut seconds) = (None, None);
    for option in options.chunks(2) {
        let [name, value] = option else { return Err(format!("{} needs a value", option[0])) };
        let wrong = |what: &str| format!("{name} {value}: {what}");
        match name.as_str() {
            "--size" if size.is_none() => {
                let (least, most) = kind.range;
                let number = value.parse().ok().filter(|n| (least..=most).contains(n));
                let what = || wrong(&format!("{} is a whole number, {least} to {most}", kind.size));
                size = Some(number.ok_or_else(what)?);
            }
            "--seconds" if seconds.is_none() => {
                let number = value.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= MOST_SECONDS);
                seconds = Some(number.ok_or_else(|| wrong("more than 0 and at most a day"))?);
            }
            "--size" | "--seconds" => return Err(format!("{name} stands there twice")),
            _ => return Err(format!("there is no option {name}")),
        }
    }
    let seconds = seconds.ok_or("--seconds is missing")?;
    Ok(Command::Work(Job { kind, size: size.unwrap_or(kind.usual), time: Duration::from_secs_f64(seconds) }))
}
