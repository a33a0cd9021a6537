//! One round of a limiter: what is measured in its bed, in which order.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_model::allocate::{Demand, Member, exact};
use vmio_model::rate::BitRate;
use vmio_model::stats::median;
use vmio_node::linux::system::CpuTimes;
use vmio_testbed::net::apart_with_bpffs;
use vmio_testbed::poll_until;

use super::bed::{Bed, contracts};
use super::figures::{Excess, Round, restored};
use super::limiters::Limiter;
use super::load::{
    ECHO, FRAME_BITS, Load, Receiver, Sent, TCP_PAYLOAD, echo, load, ping, port, send_at, send_punctually, socket,
    stream, under, unread,
};
use super::scale::Scale;

/// How long each part takes, with an uplink of 200 Mbit/s.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Floods, before anything of them counts.
    pub settle: Duration,
    /// Of what is counted of floods, and of a stream.
    pub window: Duration,
    /// Of questions.
    pub pings: Duration,
    /// How often the guarantee is restored.
    pub trials: usize,
    /// Small packets of which the time is taken, five times.
    pub packets: u32,
}

impl Times {
    /// Three rounds of all in 6 to 8 minutes.
    pub const USUAL: Times = Times {
        settle: Duration::from_millis(600),
        window: Duration::from_millis(1500),
        pings: Duration::from_millis(800),
        trials: 15,
        packets: 20_000,
    };
    /// For a look, and for the test.
    pub const SHORT: Times = Times {
        settle: Duration::from_millis(300),
        window: Duration::from_millis(400),
        pings: Duration::from_millis(300),
        trials: 3,
        packets: 2_000,
    };

    fn longer(self, scale: Scale) -> Times {
        let long = |time| scale.long(time);
        Times { settle: long(self.settle), window: long(self.window), pings: long(self.pings), ..self }
    }
}

/// What each guest offers in a flood, of an uplink of 200 Mbit/s.
const OFFER_MBIT: u64 = 200;
/// What the first guest offers when it begins to send: more than its minimum, less than its maximum.
const BEGIN_MBIT: u64 = 140;
/// Of the minimum that is waited for: what is below is not told from the sender's own pace.
const NEARLY: f64 = 0.97;
/// The first guest is silent before each trial, and sends for so long.
const SILENT: Duration = Duration::from_millis(60);
/// See [`SILENT`].
const SENDS: Duration = Duration::from_millis(100);
/// Between two looks at the clock of a sender in a flood.
const TICK: Duration = Duration::from_millis(1);
/// The first port of the receiver at which guests' floods are taken.
const FLOOD: u16 = 5000;

/// One round, and what differs on this kernel; an error is why it cannot be here.
pub fn measured(limiter: &Limiter, times: &Times, scale: Scale) -> Result<(Round, Option<String>), String> {
    let (mut round, note) = apart_with_bpffs(true, || limited(limiter, &times.longer(scale), scale))?;
    if limiter.has_cost {
        let (bare, limited) = apart_with_bpffs(true, || cost(limiter, times))?;
        (round.bare_packet_ns, round.packet_ns) = (Some(bare), Some(limited));
    }
    Ok((round, note))
}

/// A bed under load, and what its receiver takes.
struct Measured<'a> {
    bed: &'a Bed,
    times: &'a Times,
    receivers: &'a [Receiver],
}

fn limited(limiter: &Limiter, times: &Times, scale: Scale) -> Result<(Round, Option<String>), String> {
    let bed = Bed::build(scale, true);
    let held = (limiter.set)(&bed)?;
    let receivers: Vec<Receiver> = bed.guests.iter().map(|_| Receiver::default()).collect();
    let ports: Vec<UdpSocket> = (FLOOD..).zip(&receivers).map(|(number, _)| port(&bed.sink, number)).collect();
    let answers = port(&bed.sink, ECHO);
    let mut loads: Vec<Load<'_>> = vec![load(|done| echo(&answers, done))];
    for (receiver, port) in receivers.iter().zip(&ports) {
        loads.push(load(move |done| receiver.run(port, done)));
    }
    let all = Measured { bed: &bed, times, receivers: &receivers };
    let round = under(loads, || {
        ready(&bed);
        all.round()
    });
    Ok((round, held.note))
}

/// Waits until each guest gets an answer.
fn ready(bed: &Bed) {
    for guest in &bed.guests {
        let socket = socket(&guest.namespace, ECHO);
        poll_until("an answer", || ping(bed.scale, &socket, Duration::ZERO).iter().all(Option::is_some));
    }
}

/// Counters at a moment.
struct Look {
    at: Instant,
    taken: Vec<u64>,
    never: Vec<u64>,
    arrived: Vec<u64>,
    wire_drops: u64,
    busy_seconds: f64,
}

/// What a flood did in its window.
struct Window {
    /// By guest, in bit/s of frames.
    got_bps: Vec<f64>,
    busy: f64,
    busy_us_per_packet: f64,
    excess: Excess,
}

impl Measured<'_> {
    fn round(&self) -> Round {
        let scale = self.bed.scale;
        let idle_ping_ms = ping(scale, &socket(&self.bed.guests[0].namespace, ECHO), self.times.pings);
        let all = self.window(&[0, 1, 2]);
        let without_first = self.window(&[1, 2]);
        let share_error = error(scale, &all.got_bps, &[0, 1, 2]).max(error(scale, &without_first.got_bps, &[1, 2]));
        let of_minimum =
            all.got_bps.iter().zip(&self.bed.guests).map(|(got, guest)| got / guest.contract.min_bps as f64);
        let (neighbours_ping_ms, own_ping_ms) = self.pings();
        let restored_ms = self.trials();
        let second = &self.bed.guests[1];
        let stream = stream(&second.namespace, &self.bed.sink, self.times.settle, self.times.window);
        let limit = second.contract.max_bps as f64 * TCP_PAYLOAD;
        Round {
            share_error,
            of_minimum: of_minimum.fold(f64::INFINITY, f64::min),
            used: all.got_bps.iter().sum::<f64>() / scale.uplink_bps() as f64,
            got_bps: all.got_bps,
            restored_ms,
            tcp_of_limit: stream.goodput_bps / limit,
            tcp_retransmits: stream.retransmits,
            idle_ping_ms,
            neighbours_ping_ms,
            own_ping_ms,
            busy: all.busy,
            busy_us_per_packet: all.busy_us_per_packet,
            packet_ns: None,
            bare_packet_ns: None,
            excess: all.excess,
        }
    }

    /// Works while these guests send more than the uplink has.
    fn flooded<T>(&self, who: &[usize], work: impl FnOnce(&BTreeMap<usize, Sent>) -> T) -> T {
        let sent: BTreeMap<usize, Sent> = who.iter().map(|guest| (*guest, Sent::default())).collect();
        let sockets: Vec<UdpSocket> = sent.keys().map(|guest| self.flood_socket(*guest)).collect();
        let (scale, mut loads) = (self.bed.scale, Vec::<Load<'_>>::new());
        let offer = scale.bps(OFFER_MBIT) as f64;
        for (socket, sent) in sockets.iter().zip(sent.values()) {
            loads.push(load(move |done| send_at(scale, offer, TICK, socket, sent, done)));
        }
        under(loads, || {
            sleep(self.times.settle);
            work(&sent)
        })
    }

    fn flood_socket(&self, guest: usize) -> UdpSocket {
        socket(&self.bed.guests[guest].namespace, FLOOD + guest as u16)
    }

    fn window(&self, who: &[usize]) -> Window {
        self.flooded(who, |sent| {
            let first = self.look(sent);
            sleep(self.times.window);
            let last = self.look(sent);
            let waiting_ms = self.bed.waiting_bytes() as f64 * 8e3 / self.bed.scale.uplink_bps() as f64;
            between(&first, &last, waiting_ms)
        })
    }

    fn look(&self, sent: &BTreeMap<usize, Sent>) -> Look {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        Look {
            wire_drops: self.bed.wire_drops(),
            at: Instant::now(),
            taken: sent.values().map(|sent| sent.taken.load(Ordering::Relaxed)).collect(),
            never: sent.values().map(|sent| sent.never.load(Ordering::Relaxed)).collect(),
            arrived: self.receivers.iter().map(|receiver| receiver.packets.load(Ordering::Relaxed)).collect(),
            busy_seconds: CpuTimes::parse(&stat).unwrap().busy_seconds,
        }
    }

    /// Of the first guest, which is silent else, and of the second, which floods, while the last two do.
    fn pings(&self) -> (Vec<Option<f64>>, Vec<Option<f64>>) {
        let [first, second] = [0, 1].map(|guest: usize| socket(&self.bed.guests[guest].namespace, ECHO));
        let asked = |socket: &UdpSocket| ping(self.bed.scale, socket, self.times.pings);
        self.flooded(&[1, 2], |_| (asked(&first), asked(&second)))
    }

    /// How long the first guest is behind its minimum when it begins to send, while the others send.
    fn trials(&self) -> Vec<Option<f64>> {
        let (scale, socket) = (self.bed.scale, self.flood_socket(0));
        let minimum = self.bed.guests[0].contract.min_bps as f64 * NEARLY;
        let (offer, sends) = (scale.bps(BEGIN_MBIT) as f64, scale.long(SENDS));
        let trial = || {
            sleep(scale.long(SILENT));
            let begin = Instant::now();
            let arrivals = self.receivers[0].during(|| {
                let begins = load(|done| send_punctually(scale, offer, &socket, done));
                under(vec![begins], || sleep(sends));
            });
            let end = sends.as_secs_f64();
            let moments = arrivals.iter().map(|at| at.saturating_duration_since(begin).as_secs_f64());
            let moments: Vec<f64> = moments.filter(|moment| *moment <= end).collect();
            restored(&moments, minimum, end).map(|seconds| seconds * 1e3)
        };
        self.flooded(&[1, 2], |_| (0..self.times.trials).map(|_| trial()).collect())
    }
}

fn between(first: &Look, last: &Look, waiting_ms: f64) -> Window {
    let seconds = (last.at - first.at).as_secs_f64();
    let more = |last: &[u64], first: &[u64]| -> Vec<f64> {
        last.iter().zip(first).map(|(last, first)| (last - first) as f64).collect()
    };
    let sum = |values: &[f64]| values.iter().sum::<f64>();
    let arrived = more(&last.arrived, &first.arrived);
    let (taken, never) = (sum(&more(&last.taken, &first.taken)), sum(&more(&last.never, &first.never)));
    let (offered, wire) = ((taken + never).max(1.0), (last.wire_drops - first.wire_drops) as f64);
    let busy_seconds = last.busy_seconds - first.busy_seconds;
    Window {
        got_bps: arrived.iter().map(|packets| packets * FRAME_BITS / seconds).collect(),
        busy: busy_seconds / seconds,
        busy_us_per_packet: busy_seconds * 1e6 / sum(&arrived).max(1.0),
        excess: Excess {
            arrived: sum(&arrived) / offered,
            sender: never / offered,
            // What came into queues or out of them meanwhile is in it, too.
            host: ((taken - sum(&arrived) - wire) / offered).max(0.0),
            wire: wire / offered,
            waiting_ms,
        },
    }
}

/// The largest difference from what the policy gives, of the uplink, while these flood.
fn error(scale: Scale, got_bps: &[f64], who: &[usize]) -> f64 {
    let capacity = BitRate::new(scale.uplink_bps());
    let members = contracts(scale).map(|contract| Member {
        priority: 4,
        min: BitRate::new(contract.min_bps),
        max: BitRate::new(contract.max_bps),
        weight: 1,
        hard: false,
        over_max: false,
    });
    let demand = |guest| if who.contains(&guest) { Demand::Unbounded } else { Demand::Rate(BitRate::ZERO) };
    let demands: Vec<Demand> = (0..members.len()).map(demand).collect();
    let grants = exact(capacity, &members, &demands);
    let errors = got_bps.iter().zip(&grants).map(|(got, grant)| (got - grant.rate.bits() as f64).abs());
    errors.fold(0.0, f64::max) / capacity.bits() as f64
}

/// What a small packet takes from the guest to the receiver before a limiter is set, and with it. No limit is met, and
/// the wire is as fast as the machine, whatever the scale. Both are of one bed and one moment: beds differ by more than
/// some limiters take.
fn cost(limiter: &Limiter, times: &Times) -> Result<(f64, f64), String> {
    let bed = Bed::build(Scale::FAR, false);
    let answers = port(&bed.sink, ECHO);
    let reached = || under(vec![load(|done| echo(&answers, done))], || ready(&bed));
    reached();
    let (_unread, address) = unread(&bed.sink);
    let socket = socket(&bed.guests[0].namespace, address.port());
    let bare = packet_ns(&socket, times)?;
    let _held = (limiter.set)(&bed)?;
    reached();
    Ok((bare, packet_ns(&socket, times)?))
}

/// In ns of the sender's time: the path's work is done in its system call.
fn packet_ns(socket: &UdpSocket, times: &Times) -> Result<f64, String> {
    let batch = || {
        let at = Instant::now();
        for _ in 0..times.packets {
            // One that is not taken costs as much.
            let _: Result<usize, _> = socket.send(&[7; 18]);
        }
        at.elapsed().as_nanos() as f64 / f64::from(times.packets)
    };
    batch();
    median(&(0..5).map(|_| batch()).collect::<Vec<f64>>()).ok_or_else(|| "no packets".to_owned())
}
