//! Packet by packet. A packet comes from its source, waits in the guest's ring for the limit
//! (where limits hold in the guest), then in its member's queue on the host, until the wire takes
//! it. All packets have one size, so a ring or queue is a number.
//!
//! Time goes from event to event; with at most [`super::PACKET_MEMBERS`] members the next one is
//! found by looking at all. Events at one time are taken in a fixed order.

use super::bucket::Bucket;
use super::control::{Control, Seen};
use super::outcome::{Outcome, Recorder};
use super::random::Random;
use super::source::Running;
use super::{Enforcement, Scenario, Settings, time_of};

struct Path<'a> {
    source: Running<'a>,
    /// When its next packet comes.
    comes: u64,
    ring: u32,
    queue: u32,
    bucket: Bucket,
    /// When the ring's next packet may leave; `u64::MAX` when it is empty.
    leaves: u64,
    /// What hierarchical shaping owes it: its minimum.
    minimum: Bucket,
    /// Its maximum, there.
    maximum: Bucket,
    over_max: bool,
    priority: u8,
    weight: u64,
    /// Virtual time of its spare service there (start-time fair queueing).
    served: u64,
    seen: Seen,
}

struct World<'a> {
    paths: Vec<Path<'a>>,
    settings: &'a Settings,
    recorder: Recorder,
    random: Random,
    packet_bits: u64,
    packet_time: u64,
    capacity: u64,
    /// Who is on the wire, until when.
    wire: Option<(usize, u64)>,
    /// When a waiting queue may be looked at again, with limits behind the queues.
    retry: u64,
    /// Whose turn it was last.
    turn: usize,
}

pub fn run(scenario: &Scenario, settings: &Settings) -> Outcome {
    let mut control = Control::new(scenario, settings);
    let mut world = World::new(scenario, settings, control.caps());
    let mut tick = settings.period;
    loop {
        let (mut now, mut event) = (tick, Event::Tick);
        let mut earlier = |time: u64, what: Event| {
            if time < now {
                (now, event) = (time, what);
            }
        };
        earlier(world.wire.map_or(world.retry, |(_, end)| end), Event::Wire);
        earlier(world.recorder.next(), Event::Look);
        for (i, path) in world.paths.iter().enumerate() {
            earlier(path.comes, Event::Comes(i));
            earlier(path.leaves, Event::Leaves(i));
        }
        if now > scenario.duration {
            break;
        }
        match event {
            Event::Comes(i) => world.comes(i, now),
            Event::Leaves(i) => world.leaves(i, now),
            Event::Wire => world.wire(now),
            Event::Look => world.recorder.look(now, control.caps()),
            Event::Tick => {
                world.tick(&mut control, now);
                tick += settings.period;
            }
        }
    }
    world.recorder.finish(scenario.duration, true)
}

#[derive(Clone, Copy)]
enum Event {
    Tick,
    Look,
    Wire,
    Comes(usize),
    Leaves(usize),
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, settings: &'a Settings, caps: &[u64]) -> World<'a> {
        let packet_bits = u64::from(scenario.packet_bytes) * 8;
        let mut random = Random::new(settings.seed);
        let path = |(vif, cap): (&'a super::Vif, &u64)| {
            let mut source = Running::new(&vif.source, packet_bits);
            Path {
                comes: source.next(&mut random),
                source,
                ring: 0,
                queue: 0,
                bucket: Bucket::new(packet_bits, *cap),
                leaves: u64::MAX,
                minimum: Bucket::new(packet_bits, vif.contract.min),
                maximum: Bucket::new(packet_bits, vif.contract.max),
                over_max: vif.contract.over_max,
                priority: vif.contract.priority,
                weight: u64::from(vif.contract.weight.max(1)),
                served: 0,
                seen: Seen::default(),
            }
        };
        let paths = scenario.vifs.iter().zip(caps).map(path).collect();
        World {
            paths,
            settings,
            recorder: Recorder::new(scenario),
            packet_bits,
            packet_time: time_of(packet_bits, scenario.capacity),
            capacity: scenario.capacity,
            random,
            wire: None,
            retry: u64::MAX,
            turn: 0,
        }
    }

    /// A source has a packet.
    fn comes(&mut self, i: usize, now: u64) {
        let path = &mut self.paths[i];
        let totals = &mut self.recorder.totals[i];
        path.source.advance();
        path.comes = path.source.next(&mut self.random).max(now);
        path.seen.offered += self.packet_bits;
        let full = self.settings.enforcement == Enforcement::Held && path.ring == self.settings.ring;
        if full && path.source.waits() {
            return;
        }
        totals.scheduled_bits += self.packet_bits;
        if full {
            totals.never_sent_bits += self.packet_bits;
            return;
        }
        path.source.sent(self.capacity);
        if self.settings.enforcement != Enforcement::Held {
            return self.enqueue(i, now);
        }
        path.ring += 1;
        if path.ring == 1 {
            self.leave_or_wait(i, now);
        }
    }

    /// The ring's first packet passes the limit now, or it is known when it may.
    fn leave_or_wait(&mut self, i: usize, now: u64) {
        while self.paths[i].ring > 0 {
            let path = &mut self.paths[i];
            let next = path.bucket.next(now);
            if next > now {
                path.leaves = next;
                path.seen.held_back = true;
                return;
            }
            path.bucket.take(now);
            path.ring -= 1;
            self.enqueue(i, now);
        }
        self.paths[i].leaves = u64::MAX;
    }

    fn leaves(&mut self, i: usize, now: u64) {
        self.leave_or_wait(i, now);
    }

    /// A packet reaches the host.
    fn enqueue(&mut self, i: usize, now: u64) {
        let path = &mut self.paths[i];
        if self.settings.enforcement == Enforcement::Held {
            path.seen.passed += self.packet_bits;
        }
        if path.queue == self.settings.queue {
            self.recorder.totals[i].dropped_bits += self.packet_bits;
            path.seen.held_back = true;
            path.source.dropped(now);
            return;
        }
        if path.queue == 0 && self.settings.enforcement == Enforcement::Hierarchy {
            // A member that was away has saved up no turns.
            let least = self.paths.iter().filter(|p| p.queue > 0).map(|p| p.served).min();
            let path = &mut self.paths[i];
            path.served = path.served.max(least.unwrap_or(path.served));
        }
        self.paths[i].queue += 1;
        if self.wire.is_none() {
            self.start(now);
        }
    }

    /// The wire has sent a packet, or a limit may have opened.
    fn wire(&mut self, now: u64) {
        if let Some((i, _)) = self.wire.take() {
            self.recorder.totals[i].received_bits += self.packet_bits;
        }
        self.start(now);
    }

    /// Puts the next packet on the wire, if one may go.
    fn start(&mut self, now: u64) {
        self.retry = u64::MAX;
        let next = match self.settings.enforcement {
            Enforcement::Held => self.in_turn(|p| p.queue > 0),
            Enforcement::Queued => {
                let next = self.in_turn(|p| p.queue > 0 && p.bucket.next(now) <= now);
                for path in self.paths.iter_mut().filter(|p| p.queue > 0) {
                    let opens = path.bucket.next(now);
                    path.seen.held_back |= opens > now;
                    self.retry = self.retry.min(opens.max(now + 1));
                }
                next
            }
            Enforcement::Hierarchy => self.by_hierarchy(now),
        };
        let Some(i) = next else { return };
        let path = &mut self.paths[i];
        if self.settings.enforcement == Enforcement::Queued {
            path.bucket.take(now);
            path.seen.passed += self.packet_bits;
        }
        path.queue -= 1;
        self.turn = i;
        self.wire = Some((i, now + self.packet_time));
    }

    /// The first after the one whose turn it was that may go.
    fn in_turn(&self, may: impl Fn(&Path<'_>) -> bool) -> Option<usize> {
        let n = self.paths.len();
        (1..=n).map(|k| (self.turn + k) % n).find(|i| may(&self.paths[*i]))
    }

    /// Minima first, then spare by priority and weight, then beyond the maxima by weight alone.
    fn by_hierarchy(&mut self, now: u64) -> Option<usize> {
        let waiting = || (0..self.paths.len()).filter(|i| self.paths[*i].queue > 0);
        let may = |bucket: &Bucket| bucket.next(now) <= now;
        let owed = waiting().filter(|i| may(&self.paths[*i].minimum)).min_by_key(|i| self.paths[*i].priority);
        if let Some(i) = owed {
            self.paths[i].minimum.take(now);
            self.paths[i].maximum.take(now);
            return Some(i);
        }
        let spare = waiting()
            .filter(|i| may(&self.paths[*i].maximum))
            .min_by_key(|i| (self.paths[*i].priority, self.paths[*i].served));
        let next =
            spare.or_else(|| waiting().filter(|i| self.paths[*i].over_max).min_by_key(|i| self.paths[*i].served));
        let Some(i) = next else {
            let opens = waiting().map(|i| self.paths[i].maximum.next(now)).min();
            self.retry = opens.unwrap_or(u64::MAX);
            return None;
        };
        let path = &mut self.paths[i];
        if spare.is_some() {
            path.maximum.take(now);
        }
        path.served += (1 << 32) / path.weight;
        Some(i)
    }

    /// The loop sets new limits.
    fn tick(&mut self, control: &mut Control, now: u64) {
        let seen: Vec<Seen> = self.paths.iter_mut().map(|p| std::mem::take(&mut p.seen)).collect();
        control.tick(&seen, self.settings.period);
        for i in 0..self.paths.len() {
            if self.paths[i].bucket.rate() != control.caps()[i] {
                self.paths[i].bucket.set_rate(now, control.caps()[i]);
                self.leave_or_wait(i, now);
            } else if self.paths[i].ring > 0 {
                // Still waiting from the period before.
                self.paths[i].seen.held_back = true;
            }
        }
        if self.wire.is_none() {
            self.start(now);
        }
    }
}
