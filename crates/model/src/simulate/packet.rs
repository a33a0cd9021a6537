//! Packet simulation. A packet comes from its source, waits in the guest's ring for the limit (where limits are
//! enforced in the guest), then in its member's queue on the host for the wire. All packets have one size, so rings and
//! queues are counters.
//!
//! Time advances from event to event; with at most [`super::PACKET_MEMBERS`] members the next one is found by checking
//! all. Simultaneous events have a fixed order.

use std::collections::VecDeque;

use super::bucket::Bucket;
use super::htb::{Guarded, Scheduler};
use super::outcome::{Outcome, Recorder};
use super::random::Random;
use super::source::Running;
use super::{Enforcement, Scenario, Settings};
use crate::control::{Control, PeriodSample};
use crate::picos::time_of;
use crate::policy::compile::Refusal;
use crate::rate::BitRate;

struct Path<'a> {
    source: Running<'a>,
    /// Time of its next packet.
    comes: u64,
    ring: u32,
    queue: u32,
    bucket: Bucket,
    /// Time at which the ring's next packet may leave; `u64::MAX` when it is empty.
    leaves: u64,
    /// Whether its queue on the host was empty at some time of this period.
    was_empty: bool,
    seen: PeriodSample,
}

struct World<'a> {
    paths: Vec<Path<'a>>,
    settings: &'a Settings,
    recorder: Recorder,
    random: Random,
    packet_bits: u64,
    packet_time: u64,
    capacity: BitRate,
    /// The host's scheduler, where it enforces limits.
    scheduler: Option<Scheduler>,
    /// Members of the packets in a shared queue.
    shared: Option<VecDeque<usize>>,
    /// Member whose packet is on the wire, and until when.
    wire: Option<(usize, u64)>,
    /// Time to check waiting queues again, with limits behind the queues.
    retry: u64,
    /// Member served last.
    turn: usize,
}

pub fn run(scenario: &Scenario, settings: &Settings) -> Result<Outcome, Refusal> {
    let Guarded { mut control, program } = Guarded::new(scenario, settings)?;
    let scheduler = program.map(|program| Scheduler::new(&program, scenario.packet_bytes));
    let mut world = World::new(scenario, settings, &control.in_force().caps, scheduler);
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
            Event::Look => world.recorder.look(now, &control.in_force().caps),
            Event::Tick => {
                world.tick(&mut control, now);
                tick += settings.period;
            }
        }
    }
    Ok(world.recorder.finish(scenario.duration, true))
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
    fn new(
        scenario: &'a Scenario,
        settings: &'a Settings,
        caps: &[BitRate],
        scheduler: Option<Scheduler>,
    ) -> World<'a> {
        let packet_bits = u64::from(scenario.packet_bytes) * 8;
        let mut random = Random::new(settings.seed);
        let path = |(vif, cap): (&'a super::Vif, &BitRate)| {
            let mut source = Running::new(&vif.source, packet_bits, settings.shares_a_queue());
            Path {
                comes: source.next(&mut random),
                source,
                ring: 0,
                queue: 0,
                bucket: Bucket::new(packet_bits, *cap),
                leaves: u64::MAX,
                was_empty: true,
                seen: PeriodSample::default(),
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
            scheduler,
            shared: settings.shares_a_queue().then(VecDeque::new),
            wire: None,
            retry: u64::MAX,
            turn: 0,
        }
    }

    /// A packet of a source arrives.
    fn comes(&mut self, i: usize, now: u64) {
        let path = &mut self.paths[i];
        let totals = &mut self.recorder.totals[i];
        path.source.advance(&mut self.random);
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

    /// Lets the ring's first packet pass the limit, or sets the time when it may.
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
        let waiting = self.shared.as_ref().map_or(path.queue as usize, VecDeque::len);
        if waiting == self.settings.queue as usize {
            self.recorder.totals[i].dropped_bits += self.packet_bits;
            path.seen.held_back = true;
            path.source.dropped(now);
            return;
        }
        path.queue += 1;
        if let Some(shared) = &mut self.shared {
            shared.push_back(i);
        }
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
            _ if self.shared.is_some() => self.shared.as_mut().and_then(VecDeque::pop_front),
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
            Enforcement::Hierarchy => self.by_scheduler(now),
        };
        let Some(i) = next else { return };
        let path = &mut self.paths[i];
        match self.settings.enforcement {
            Enforcement::Held => {}
            Enforcement::Queued => {
                path.bucket.take(now);
                path.seen.passed += self.packet_bits;
            }
            Enforcement::Hierarchy => path.seen.passed += self.packet_bits,
        }
        path.queue -= 1;
        path.was_empty |= path.queue == 0;
        self.turn = i;
        self.wire = Some((i, now + self.packet_time));
    }

    /// The next member in turn that may send.
    fn in_turn(&self, may: impl Fn(&Path<'_>) -> bool) -> Option<usize> {
        let n = self.paths.len();
        (1..=n).map(|k| (self.turn + k) % n).find(|i| may(&self.paths[*i]))
    }

    /// The member that the host's scheduler serves.
    fn by_scheduler(&mut self, now: u64) -> Option<usize> {
        let paths = &self.paths;
        match self.scheduler.as_mut()?.next(now, |i| paths[i].queue > 0) {
            Ok(i) => Some(i),
            Err(retry) => {
                self.retry = retry;
                None
            }
        }
    }

    /// The loop sets new limits.
    fn tick(&mut self, control: &mut Control, now: u64) {
        let by_scheduler = self.scheduler.is_some();
        let seen = |p: &mut Path<'_>| {
            // With a scheduler packets always wait a little; a member that waited all the time wants more.
            p.seen.held_back |= by_scheduler && !std::mem::replace(&mut p.was_empty, p.queue == 0);
            std::mem::take(&mut p.seen)
        };
        let seen: Vec<PeriodSample> = self.paths.iter_mut().map(seen).collect();
        control.tick(&seen, self.settings.period);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.set(control.in_force(), now);
            if self.wire.is_none() {
                self.start(now);
            }
            return;
        }
        for i in 0..self.paths.len() {
            if self.paths[i].bucket.rate() != control.in_force().caps[i] {
                self.paths[i].bucket.set_rate(now, control.in_force().caps[i]);
                self.leave_or_wait(i, now);
            } else if self.paths[i].ring > 0 {
                // Still waiting since the last period.
                self.paths[i].seen.held_back = true;
            }
        }
        if self.wire.is_none() {
            self.start(now);
        }
    }
}
