//! `vmio-udp`, vmio's own generator of datagrams and its receiver: a rate that is offered whatever becomes of it, and
//! what of that arrives.
//!
//! The receiver serves at the peer and ends by itself when the sender at the actor has told how many it sent; then it
//! says what arrived. A run in which the generator was late is void: it did not offer what it should.

use std::time::Duration;

use serde_json::{Value, json};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::rate::BitRate;
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::Sort;
use vmio_node::Output;
use vmio_node::udp::{PROGRAM, ReceiveReport, SendReport};

use super::family::{self, GENERATOR, Udp};
use super::{address, listens_at};
use crate::ours;
use crate::workloads::error::{report, said, succeeded};
use crate::workloads::{Error, Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// The role that receives, at the peer.
pub const RECEIVER: &str = "receiver";
/// The role that sends, at the actor.
pub const SENDER: &str = "sender";

/// The port of the receiver; further actors of a cell have the next ones.
const PORT: u16 = 5401;
/// The share of what was due that the generator may be late with.
const LATE_MOST: f64 = 0.01;
/// How long a receiver that was told no end stays where nothing comes any more.
const QUIET: &str = "2";
/// How many seconds a path may take until it carries anything: a guest's link may just have come up.
const GREETED_WITHIN: &str = "10";
/// How long after the sender it may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

const ROLES: &[Role] = &[
    Role { name: RECEIVER, wants: Wants::Address, programs: &[PROGRAM], requirements: &[GENERATOR] },
    Role { name: SENDER, wants: Wants::Address, programs: &[PROGRAM], requirements: &[GENERATOR] },
];

impl Udp {
    /// A rate as the generator takes it, in bit/s: it knows payload alone.
    fn payload_bits(&self, rate: BitRate) -> u64 {
        (rate.bits() as f64 / self.counted_ratio()).round() as u64
    }

    /// What the sender did, as far as it offered what it should.
    fn sent(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        succeeded(node, &command, output)?;
        let (sent, raw): (SendReport, Value) = report(&output.out()).map_err(|reason| reason.of(node, &command))?;
        let late = sent.late_ratio();
        // What is no number is no proof that it kept its time.
        if !(0.0..=LATE_MOST).contains(&late) {
            return Err(Error::Unfit {
                workload: family::name(self),
                reason: format!(
                    "the run is void: its generator was late with {:.1} % of {} packets and may be with {:.0} %, so this \
                     machine ({}) did not offer that rate; ask for a lower rate or larger packets, or let less else run",
                    late * 100.0,
                    sent.scheduled,
                    LATE_MOST * 100.0,
                    node,
                ),
            });
        }
        if sent.sent == 0 {
            let none = format!("nothing was sent of {} packets: {:?}", sent.scheduled, sent.never_sent);
            return Err(Unusable::Amount(none).of(node, &command));
        }
        Ok(WorkloadResult { seconds: sent.seconds, figures: Vec::new(), raw: json!({ SENDER: raw }), command })
    }

    /// The result, with what the receiver said.
    fn arrived(&self, node: &str, mut result: WorkloadResult, output: &Output) -> Result<WorkloadResult> {
        let command = result.command.clone();
        let unusable = |reason: Unusable| reason.of(node, &command);
        if !output.ok() {
            let how = format!("{:?}", output.end);
            let at = format!("{PROGRAM} receive");
            let said = match output.end {
                vmio_node::End::TimedOut => "nothing came from the sender, not even that it is done".to_owned(),
                _ => said(output),
            };
            return Err(Error::Failed { node: node.to_owned(), command: at, how, said });
        }
        let sent: SendReport =
            serde_json::from_value(result.raw[SENDER].clone()).map_err(|e| unusable(Unusable::Kept(e)))?;
        let (received, raw): (ReceiveReport, Value) =
            report(&output.out()).map_err(|why| unusable(Unusable::OfReceiver(Box::new(why))))?;
        let mine = received.senders.iter().find(|sender| sender.sender == sent.sender);
        let mine = mine.filter(|mine| mine.received > 0);
        let amount = |did: String| unusable(Unusable::Amount(did));
        let mine = mine.ok_or_else(|| amount(format!("none of {} datagrams arrived", sent.sent)))?;
        if mine.received > sent.sent {
            return Err(amount(format!("{} datagrams arrived of {} that were sent", mine.received, sent.sent)));
        }
        // Where a queue lets them through more slowly, they come for longer than they are sent.
        let seconds = sent.seconds.max(mine.last_second - mine.first_second);
        let (packets, bytes) = (mine.received as f64, mine.bytes as f64);
        result.seconds = seconds;
        result.figures = vec![
            Reading::scalar("bandwidth", bytes * self.counted_ratio() * 8.0 / seconds),
            Reading::scalar("packet-rate", packets / seconds),
            // Those lost behind the last that arrived are among them: the sender's number counts.
            Reading::scalar("loss", 1.0 - packets / sent.sent as f64),
            Reading::scalar("never-sent", sent.never_sent_ratio()),
            Reading::scalar("late", sent.late_ratio()),
            Reading::scalar("moved", bytes),
        ];
        result.raw[RECEIVER] = raw;
        Ok(result)
    }
}

impl Workload for Udp {
    fn about(&self) -> &str {
        if self.waits {
            return "vmio-udp: datagrams to the peer at a rate, by a sender that waits where its buffer is full";
        }
        "vmio-udp: datagrams to the peer at a rate, each when it is due"
    }
    fn traits(&self) -> WorkloadTraits {
        let figures = vec![
            Figure::rate("bandwidth", Unit::BitsPerSecond),
            Figure::rate("packet-rate", Unit::PacketsPerSecond),
            Figure::loss("loss"),
            Figure::loss("never-sent"),
            Figure::loss("late"),
            Figure::amount("moved", Unit::Bytes),
        ];
        WorkloadTraits { name: family::name(self), figures, judged_by: "bandwidth".into(), disk: None, group: None }
    }
    fn works_on(&self) -> Sort {
        Sort::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, _: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (end, port) = (stage.end(RECEIVER)?, stage.port(PORT));
        // Its time is the longest that there may be until the sender is done; it ends with that one.
        let longest = format!("{:.0}", 2.0 * stage.limit().as_secs_f64());
        let exec = end
            .command(&ours::UDP.call(end.node.reader()))
            .args(["receive", &listens_at(PROGRAM, end)?, &port.to_string()])
            .args(["--seconds", &longest, "--senders", "1", "--quiet", QUIET]);
        Ok(Some(Service { exec, ready: Ready::Receives(port) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (end, receiver) = (stage.end(SENDER)?, address(PROGRAM, stage.end(RECEIVER)?)?);
        let told = [
            ("--greet", GREETED_WITHIN.to_owned()),
            ("--rate", self.payload_bits(self.rate).to_string()),
            ("--bytes", self.bytes.to_string()),
            ("--seconds", stage.seconds.to_string()),
        ];
        let mut exec =
            end.command(&ours::UDP.call(end.node.reader())).args(["send", &receiver, &stage.port(PORT).to_string()]);
        exec = exec.args(told.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        for (second, rate) in &self.steps {
            exec = exec.args(["--rate-at".to_owned(), format!("{second}={}", self.payload_bits(*rate))]);
        }
        if self.within_ms > 0 {
            exec = exec.args(["--late".to_owned(), format!("0.{:03}", self.within_ms)]);
        }
        if self.waits {
            exec = exec.args(["--blocking"]);
        }
        let exec = exec.limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.sent(end.node.name(), exec.shown(), &output)
    }
    fn hears(&self) -> Option<Duration> {
        Some(ENDS_WITHIN)
    }
    fn heard(&self, stage: &Stage, result: WorkloadResult, said: &[Output]) -> Result<WorkloadResult> {
        let node = stage.end(RECEIVER)?.node.name();
        let missing = || Error::Unfit { workload: family::name(self), reason: "nothing was received".into() };
        self.arrived(node, result, said.first().ok_or_else(missing)?)
    }
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
