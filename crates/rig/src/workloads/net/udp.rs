//! `vmio-udp`, vmio's own generator of datagrams and its receiver: a rate that is offered whatever becomes of it, and
//! what of that arrives.
//!
//! The receiver serves at the peer and ends by itself when the sender at the actor has told how many it sent; then it
//! says what arrived. A run in which the generator was late is void: it did not offer what it should. Where a third end
//! sends, too, each sender offers the rate, figures are of what arrived of both, and whose it was is kept in `raw`.

use std::time::Duration;

use serde_json::{Value, json};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::rate::BitRate;
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::udp::{PROGRAM, ReceiveReport, SendReport, SenderReport};
use vmio_node::{Exec, Output};

use super::family::{self, GENERATOR, Udp};
use super::{CO_SENDER, address, listens_at};
use crate::ours;
use crate::workloads::error::{report, said, succeeded};
use crate::workloads::{End, Error, Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// The role that receives, at the peer.
pub const RECEIVER: &str = "receiver";
/// The role that sends, at the actor.
pub const SENDER: &str = "sender";

/// What arrived of each of two senders, as a part of both, in what is kept of a run.
const SHARES: &str = "shares";

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

    /// The generator's command at an end.
    fn sends(&self, end: &End, stage: &Stage) -> Result<Exec> {
        let receiver = address(PROGRAM, stage.end(RECEIVER)?)?;
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
        Ok(exec.limit(stage.limit()))
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
                    "the run is invalid: its generator was late with {:.1} % of {} packets ({:.0} % are allowed), so \
                     this machine ({}) did not offer that rate; use a lower rate or larger packets, or reduce other \
                     load",
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
        let of_senders = [SENDER, CO_SENDER].into_iter().filter_map(|role| result.raw.get(role));
        let sent: Vec<SendReport> = of_senders
            .map(|raw| serde_json::from_value(raw.clone()))
            .collect::<Result<_, _>>()
            .map_err(|e| unusable(Unusable::Kept(e)))?;
        let (received, raw): (ReceiveReport, Value) =
            report(&output.out()).map_err(|why| unusable(Unusable::OfReceiver(Box::new(why))))?;
        let amount = |did: String| unusable(Unusable::Amount(did));
        // Of one sender nothing may arrive beside the other.
        let mut arrived: Vec<Option<&SenderReport>> = Vec::new();
        for sent in &sent {
            let mine = received.senders.iter().find(|sender| sender.sender == sent.sender);
            if let Some(more) = mine.map(|mine| mine.received).filter(|received| *received > sent.sent) {
                return Err(amount(format!("{more} datagrams arrived of {} that were sent", sent.sent)));
            }
            arrived.push(mine.filter(|mine| mine.received > 0));
        }
        let sum = |of: fn(&SendReport) -> u64| sent.iter().map(of).fold(0, u64::saturating_add);
        let (due, all_sent) = (sum(|sent| sent.scheduled) as f64, sum(|sent| sent.sent));
        let there = || arrived.iter().flatten();
        let packets = there().map(|mine| mine.received).fold(0, u64::saturating_add) as f64;
        if packets <= 0.0 {
            return Err(amount(format!("none of {all_sent} datagrams arrived")));
        }
        let bytes = there().map(|mine| mine.bytes).fold(0, u64::saturating_add) as f64;
        // Where a queue lets them through more slowly, they come for longer than they are sent.
        let first = there().map(|mine| mine.first_second).fold(f64::INFINITY, f64::min);
        let last = there().map(|mine| mine.last_second).fold(f64::NEG_INFINITY, f64::max);
        let seconds = sent.iter().map(|sent| sent.seconds).fold(last - first, f64::max);
        result.seconds = seconds;
        result.figures = vec![
            Reading::scalar("bandwidth", bytes * self.counted_ratio() * 8.0 / seconds),
            Reading::scalar("packet-rate", packets / seconds),
            // Those lost behind the last that arrived are among them: the sender's number counts.
            Reading::scalar("loss", 1.0 - packets / all_sent as f64),
            Reading::scalar("never-sent", sum(|sent| sent.never_sent.all()) as f64 / due),
            Reading::scalar("late", sum(|sent| sent.late.saturating_add(sent.never_sent.no_time)) as f64 / due),
            Reading::scalar("moved", bytes),
        ];
        if let [own, other] = arrived[..] {
            let share = |of: Option<&SenderReport>| of.map_or(0.0, |of| of.bytes as f64 / bytes);
            result.raw[SHARES] = json!({ SENDER: share(own), CO_SENDER: share(other) });
        }
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
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, _: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (end, port) = (stage.end(RECEIVER)?, stage.port(PORT));
        let senders = if stage.ends.contains_key(CO_SENDER) { "2" } else { "1" };
        // Its time is the longest that there may be until the sender is done; it ends with that one.
        let longest = format!("{:.0}", 2.0 * stage.limit().as_secs_f64());
        let exec = end
            .command(&ours::UDP.call(end.node.reader()))
            .args(["receive", &listens_at(PROGRAM, end)?, &port.to_string()])
            .args(["--seconds", &longest, "--senders", senders, "--quiet", QUIET]);
        Ok(Some(Service { exec, ready: Ready::Receives(port) }))
    }
    fn takes_co_sender(&self) -> bool {
        true
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(SENDER)?;
        let (exec, limit) = (self.sends(end, stage)?, stage.limit());
        let beside = stage.ends.get(CO_SENDER).map(|other| -> Result<_> {
            let exec = self.sends(other, stage)?;
            Ok((other.node.name(), exec.shown(), other.node.spawn(&exec)?))
        });
        let beside = beside.transpose()?;
        let output = end.node.exec(&exec);
        // Whatever became of the first one, the other ends here.
        let beside = beside.map(|(node, command, mut process)| (node, command, process.wait(Some(limit))));
        let mut result = self.sent(end.node.name(), exec.shown(), &output?)?;
        if let Some((node, command, output)) = beside {
            result.raw[CO_SENDER] = self.sent(node, command, &output?)?.raw[SENDER].take();
        }
        Ok(result)
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
