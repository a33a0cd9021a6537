//! The program's command line.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::packet::{HEADER_BYTES, MOST_BYTES};
use super::schedule::{NoSchedule, Schedule, Step};
use super::{SECOND_NS, receive, send};

/// How it is called.
pub const USAGE: &str = "\
usage: vmio-udp send ADDRESS PORT --rate BITS --bytes PAYLOAD --seconds S
           [--rate-at SECOND=BITS]... [--blocking] [--greet S] [--late S]
       vmio-udp receive ADDRESS PORT --seconds S [--senders N] [--quiet S]
       vmio-udp --version
send      packets of PAYLOAD bytes at so many bits of payload a second, each
          when it is due, whatever became of those before it; 0 is silence.
          --rate-at changes the rate from that second on. --blocking waits
          where the socket's buffer is full and leaves out what is due then.
          --greet begins when the receiver has answered, within S seconds.
          --late counts a packet as late from S seconds on, if that is more
          than 1 ms and eight gaps between packets.
receive   says `ready ADDRESS PORT`, counts what comes, and ends after S
          seconds, on SIGTERM, when N senders are done, or when nothing came
          for --quiet seconds. PORT 0 is any that is free.
Both print one line of JSON at their end.";

/// Longest time: a day.
const MOST_SECONDS: u64 = 86_400;
/// Highest rate: beyond any link.
const MOST_BITS: u64 = 10_000_000_000_000;

/// What it is told to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// To send.
    Send(send::Job),
    /// To receive.
    Receive(receive::Job),
    /// To say its version.
    Version,
}

/// What is wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum WrongUse {
    #[error("say `send` or `receive`")]
    NoCommand,
    #[error("{0} is neither `send` nor `receive`")]
    UnknownCommand(String),
    #[error("ADDRESS and PORT are missing")]
    NoAddress,
    #[error("{word} is not a {what}")]
    Argument { word: String, what: &'static str },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{command} knows no argument {name}")]
    UnknownOption { command: String, name: String },
    #[error("{name} {word} is not a {what}")]
    Value { name: String, word: String, what: &'static str },
    #[error("{name} {word} is out of range: {least} to {most}{unit}")]
    OutOfRange { name: String, word: String, least: u64, most: u64, unit: &'static str },
    #[error("--rate-at {0} is not SECOND=BITS")]
    NoStep(String),
    #[error(transparent)]
    Schedule(#[from] NoSchedule),
}

/// The options of either command, each as it was written.
#[derive(Default)]
struct Options {
    rate: Option<u64>,
    steps: Vec<(u64, u64)>,
    bytes: Option<usize>,
    length_ns: Option<u64>,
    senders: Option<usize>,
    quiet_ns: Option<u64>,
    blocking: bool,
    greet_ns: Option<u64>,
    within_ns: u64,
}

/// Reads the arguments behind the program's name.
///
/// # Errors
/// What is wrong with them.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, WrongUse> {
    let mut args = args.into_iter();
    let verb = args.next().ok_or(WrongUse::NoCommand)?;
    let sends = match verb.as_str() {
        "send" => true,
        "receive" => false,
        "--version" => return Ok(Command::Version),
        _ => return Err(WrongUse::UnknownCommand(verb)),
    };
    let (address, port) = args.next().zip(args.next()).ok_or(WrongUse::NoAddress)?;
    let ip: IpAddr = address.parse().map_err(|_| WrongUse::Argument { word: address, what: "valid IP address" })?;
    let port: u16 = port.parse().map_err(|_| WrongUse::Argument { word: port, what: "port" })?;
    let at = SocketAddr::new(ip, port);
    let mut options = Options::default();
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| WrongUse::NoValue(name.clone()));
        match (name.as_str(), sends) {
            ("--seconds", _) => options.length_ns = Some(time(&name, &value()?)?),
            ("--rate", true) => options.rate = Some(rate(&name, &value()?)?),
            ("--rate-at", true) => options.steps.push(step(&value()?)?),
            ("--bytes", true) => options.bytes = Some(number(&name, &value()?)?),
            ("--greet", true) => options.greet_ns = Some(time(&name, &value()?)?),
            ("--late", true) => options.within_ns = time(&name, &value()?)?,
            ("--blocking", true) => options.blocking = true,
            ("--senders", false) => options.senders = Some(number(&name, &value()?)?),
            ("--quiet", false) => options.quiet_ns = Some(time(&name, &value()?)?),
            _ => return Err(WrongUse::UnknownOption { command: verb, name }),
        }
    }
    let length_ns = options.length_ns.ok_or(WrongUse::Missing("--seconds"))?;
    if sends {
        return options.send(at, length_ns).map(Command::Send);
    }
    let Options { senders, quiet_ns, .. } = options;
    Ok(Command::Receive(receive::Job { at, length_ns, senders, quiet_ns }))
}

impl Options {
    fn send(self, to: SocketAddr, length_ns: u64) -> Result<send::Job, WrongUse> {
        if to.port() == 0 {
            return Err(WrongUse::Argument { word: "0".to_owned(), what: "port to send to" });
        }
        let bytes = self.bytes.ok_or(WrongUse::Missing("--bytes"))?;
        if !(HEADER_BYTES..=MOST_BYTES).contains(&bytes) {
            let (least, most) = (HEADER_BYTES as u64, MOST_BYTES as u64);
            return Err(out_of_range("--bytes", &bytes.to_string(), least, most, ""));
        }
        let first = self.rate.map(|rate_bits| Step { from_ns: 0, rate_bits });
        let later = self.steps.into_iter().map(|(from_ns, rate_bits)| Step { from_ns, rate_bits });
        let steps: Vec<Step> = first.into_iter().chain(later).collect();
        if steps.is_empty() {
            return Err(WrongUse::Missing("--rate"));
        }
        let schedule = Schedule::new(&steps, bytes, length_ns)?.within(self.within_ns);
        Ok(send::Job { to, bytes, schedule, waits: self.blocking, greet_ns: self.greet_ns })
    }
}

fn read<T: FromStr>(name: &str, word: &str, what: &'static str) -> Result<T, WrongUse> {
    word.parse().map_err(|_| WrongUse::Value { name: name.to_owned(), word: word.to_owned(), what })
}

fn out_of_range(name: &str, word: &str, least: u64, most: u64, unit: &'static str) -> WrongUse {
    WrongUse::OutOfRange { name: name.to_owned(), word: word.to_owned(), least, most, unit }
}

fn number(name: &str, word: &str) -> Result<usize, WrongUse> {
    read(name, word, "whole number")
}

fn rate(name: &str, word: &str) -> Result<u64, WrongUse> {
    let bits: u64 = read(name, word, "whole number of bits a second")?;
    if bits <= MOST_BITS { Ok(bits) } else { Err(out_of_range(name, word, 0, MOST_BITS, "")) }
}

fn time(name: &str, word: &str) -> Result<u64, WrongUse> {
    let seconds: f64 = read(name, word, "number of seconds")?;
    if !(0.0..=MOST_SECONDS as f64).contains(&seconds) {
        return Err(out_of_range(name, word, 0, MOST_SECONDS, " seconds"));
    }
    Ok((seconds * SECOND_NS as f64).round() as u64)
}

/// `SECOND=BITS`.
fn step(word: &str) -> Result<(u64, u64), WrongUse> {
    let (second, bits) = word.split_once('=').ok_or_else(|| WrongUse::NoStep(word.to_owned()))?;
    Ok((time("--rate-at", second)?, rate("--rate-at", bits)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(line: &str) -> Result<Command, WrongUse> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn both_commands_are_understood() {
        let Command::Send(job) =
            of("send 10.0.0.1 9 --rate 8000 --bytes 1000 --seconds 3 --rate-at 1=0 --rate-at 2.5=16000 --blocking --greet 2 --late 9")
                .unwrap()
        else {
            panic!("it sends")
        };
        assert_eq!((job.to.to_string().as_str(), job.bytes, job.waits), ("10.0.0.1:9", 1000, true));
        assert_eq!(job.schedule.due_ns(1), Some(2_500_000_000));
        assert_eq!(job.schedule.least_allowed_ns(), 9 * SECOND_NS, "more than eight gaps of half a second");
        assert_eq!((job.schedule.packets(), job.greet_ns), (2, Some(2 * SECOND_NS)));
        let Command::Receive(job) = of("receive ::1 0 --seconds 0.5 --senders 2 --quiet 1").unwrap() else {
            panic!("it receives")
        };
        let at: SocketAddr = "[::1]:0".parse().unwrap();
        assert_eq!(job, receive::Job { at, length_ns: 500_000_000, senders: Some(2), quiet_ns: Some(SECOND_NS) });
        assert!(matches!(of("--version"), Ok(Command::Version)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, says) in [
            ("", "say `send` or `receive`"),
            ("listen", "listen is neither"),
            ("send 10.0.0.1", "PORT are missing"),
            ("send host 9", "host is not a valid IP address"),
            ("send 10.0.0.1 70000", "70000 is not a port"),
            ("send 10.0.0.1 0 --rate 1 --bytes 64 --seconds 1", "0 is not a port to send to"),
            ("send 10.0.0.1 9 --rate 1 --bytes 64", "--seconds is missing"),
            ("send 10.0.0.1 9 --rate 1 --seconds 1", "--bytes is missing"),
            ("send 10.0.0.1 9 --bytes 64 --seconds 1", "--rate is missing"),
            ("send 10.0.0.1 9 --rate 1 --bytes 47 --seconds 1", "out of range: 48 to 65507"),
            ("send 10.0.0.1 9 --rate 1m --bytes 64 --seconds 1", "--rate 1m is not a whole number"),
            ("send 10.0.0.1 9 --rate 99999999999999 --bytes 64 --seconds 1", "out of range"),
            ("send 10.0.0.1 9 --rate 1 --bytes 64 --seconds NaN", "out of range: 0 to 86400"),
            ("send 10.0.0.1 9 --rate 1 --bytes 64 --seconds -1", "out of range"),
            ("send 10.0.0.1 9 --rate 1 --bytes 64 --seconds 0", "no length"),
            ("send 10.0.0.1 9 --rate 1 --rate-at 2 --bytes 64 --seconds 1", "2 is not SECOND=BITS"),
            ("send 10.0.0.1 9 --rate 1 --rate-at 0=2 --bytes 64 --seconds 1", "does not come after"),
            ("send 10.0.0.1 9 --quiet 1", "send knows no argument --quiet"),
            ("receive 10.0.0.1 9 --seconds", "--seconds needs a value"),
            ("receive 10.0.0.1 9 --seconds 1 --rate 5", "receive knows no argument --rate"),
        ] {
            let error = of(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
