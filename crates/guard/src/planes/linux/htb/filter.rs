//! Which flow class a packet belongs to: a program of classic BPF (`struct sock_filter` of include/uapi/linux/filter.h)
//! for cls_bpf (net/sched/cls_bpf.c), whose result is the class. Such a program is a filter's option like any other:
//! the kernel checks it, and gives it back as it was written.
//!
//! Looked at are IPv4 and IPv6 behind up to [`MOST_TAGS`] VLAN tags, and behind up to [`MOST_HEADERS`] extension
//! headers. A later fragment has no ports, since they are in the first one alone. A packet that is too short for what
//! is looked at, and any other than IP, belongs to the rest.

use std::net::IpAddr;

use serde::Serialize;
use vmio_model::policy::Direction;
use vmio_model::policy::flow::{FlowMatch, Network, WITH_PORTS};

/// VLAN tags in the packet itself; the kernel keeps the outer one beside it.
const MOST_TAGS: u32 = 2;
/// Extension headers of IPv6.
const MOST_HEADERS: u32 = 4;

// Loads of a constant, from the packet at a fixed place, from it behind X, and from memory; stores.
const LD_IMM: u16 = 0x00;
const LD_H_ABS: u16 = 0x28;
const LD_W_IND: u16 = 0x40;
const LD_H_IND: u16 = 0x48;
const LD_B_IND: u16 = 0x50;
const LD_MEM: u16 = 0x60;
const LDX_IMM: u16 = 0x01;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ADD_K: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const AND_K: u16 = 0x54;
const LSH_K: u16 = 0x64;
const RSH_K: u16 = 0x74;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

// What is known of a packet, in the program's memory.
const BASE: u32 = 0;
const FAMILY: u32 = 1;
const DSCP: u32 = 2;
const PROTOCOL: u32 = 3;
const SOURCE: u32 = 4;
const DESTINATION: u32 = 5;
/// In place of a port; in no range.
const NO_PORT: u32 = 0x1_0000;

const ETHERNET: u32 = 14;
const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;
const TAGS: [u32; 2] = [0x8100, 0x88a8];
/// Hop-by-hop and destination options, routing.
const HEADERS: [u32; 3] = [0, 60, 43];
const FRAGMENT: u32 = 44;

/// `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// So many instructions are passed over where a condition holds.
    pub yes: u8,
    /// And where not.
    pub no: u8,
    /// Its number.
    pub k: u32,
}

impl Instruction {
    /// Its bytes in the kernel.
    pub(super) const BYTES: usize = 8;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d, e, f]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [a, b, self.yes, self.no, c, d, e, f]
    }

    pub(super) fn decode([a, b, yes, no, c, d, e, f]: [u8; Self::BYTES]) -> Instruction {
        Instruction { code: u16::from_ne_bytes([a, b]), yes, no, k: u32::from_ne_bytes([c, d, e, f]) }
    }
}

/// A place to go on from.
#[derive(Debug, Clone, Copy)]
enum To {
    Next,
    Label(usize),
}

/// A program with labels in place of distances.
#[derive(Default)]
struct Program {
    steps: Vec<(u16, To, To, u32)>,
    labels: Vec<usize>,
}

impl Program {
    fn label(&mut self) -> To {
        self.labels.push(0);
        To::Label(self.labels.len() - 1)
    }

    /// The next instruction is at this label.
    fn place(&mut self, label: To) {
        if let To::Label(label) = label {
            self.labels[label] = self.steps.len();
        }
    }

    fn step(&mut self, code: u16, k: u32) {
        self.steps.push((code, To::Next, To::Next, k));
    }

    fn jump(&mut self, code: u16, k: u32, yes: To, no: To) {
        self.steps.push((code, yes, no, k));
    }

    fn always(&mut self, to: To) {
        self.jump(JA, 0, to, To::Next);
    }

    /// Conditional jumps reach 255 instructions, more than the longest part has.
    fn finish(self) -> Vec<Instruction> {
        let distance = |at: usize, to: To| match to {
            To::Next => 0,
            To::Label(label) => self.labels[label].saturating_sub(at + 1),
        };
        let short = |at, to| u8::try_from(distance(at, to)).expect("a part has fewer than 256 instructions");
        let one = |(at, (code, yes, no, k)): (usize, &(u16, To, To, u32))| match *code {
            JA => Instruction { code: JA, yes: 0, no: 0, k: u32::try_from(distance(at, *yes)).unwrap_or(0) },
            code => Instruction { code, yes: short(at, *yes), no: short(at, *no), k: *k },
        };
        self.steps.iter().enumerate().map(one).collect()
    }
}

/// The program for flow classes, each with what it returns; 0 for the rest.
pub(super) fn program<'a>(flows: impl IntoIterator<Item = (&'a FlowMatch, Direction, u32)>) -> Vec<Instruction> {
    let mut p = Program::default();
    look(&mut p);
    for (matcher, direction, class) in flows {
        let other = p.label();
        part(&mut p, matcher, direction, class, other);
        p.place(other);
    }
    p.step(RET, 0);
    p.finish()
}

/// Puts what is known of the packet in memory.
fn look(p: &mut Program) {
    let [v4, v6, ports, found] = [(); 4].map(|()| p.label());
    p.step(LD_IMM, NO_PORT);
    p.step(ST, SOURCE);
    p.step(ST, DESTINATION);
    for tags in 0..=MOST_TAGS {
        let [is_v4, is_v6, next] = [(); 3].map(|()| p.label());
        p.step(LD_H_ABS, 12 + 4 * tags);
        p.jump(JEQ, ETH_P_IP, is_v4, To::Next);
        p.jump(JEQ, ETH_P_IPV6, is_v6, To::Next);
        for tag in TAGS.into_iter().filter(|_| tags < MOST_TAGS) {
            p.jump(JEQ, tag, next, To::Next);
        }
        p.step(RET, 0);
        for (here, family, to) in [(is_v4, 4, v4), (is_v6, 6, v6)] {
            p.place(here);
            p.step(LDX_IMM, ETHERNET + 4 * tags);
            p.step(STX, BASE);
            p.step(LD_IMM, family);
            p.step(ST, FAMILY);
            p.always(to);
        }
        p.place(next);
    }
    p.place(v4);
    ipv4(p, ports, found);
    p.place(v6);
    ipv6(p, ports, found);
    p.place(ports);
    let with_ports = p.label();
    p.step(LD_MEM, PROTOCOL);
    for protocol in WITH_PORTS {
        p.jump(JEQ, u32::from(protocol), with_ports, To::Next);
    }
    p.always(found);
    p.place(with_ports);
    p.step(LD_H_IND, 0);
    p.step(ST, SOURCE);
    p.step(LD_H_IND, 2);
    p.step(ST, DESTINATION);
    p.place(found);
}

/// The header of IPv4 at X; goes on at `ports` with X behind it, or at `found` where there are none.
fn ipv4(p: &mut Program, ports: To, found: To) {
    p.step(LD_B_IND, 1);
    p.step(RSH_K, 2);
    p.step(ST, DSCP);
    p.step(LD_B_IND, 9);
    p.step(ST, PROTOCOL);
    p.step(LD_H_IND, 6);
    p.jump(JSET, 0x1fff, found, To::Next);
    p.step(LD_B_IND, 0);
    p.step(AND_K, 15);
    p.step(LSH_K, 2);
    p.step(ADD_X, 0);
    p.step(TAX, 0);
    p.always(ports);
}

/// The header of IPv6 at X, likewise.
fn ipv6(p: &mut Program, ports: To, found: To) {
    p.step(LD_H_IND, 0);
    p.step(RSH_K, 6);
    p.step(AND_K, 63);
    p.step(ST, DSCP);
    p.step(LD_B_IND, 6);
    p.step(ST, PROTOCOL);
    p.step(TXA, 0);
    p.step(ADD_K, 40);
    p.step(TAX, 0);
    for _ in 0..MOST_HEADERS {
        let [header, fragment, next] = [(); 3].map(|()| p.label());
        p.step(LD_MEM, PROTOCOL);
        for kind in HEADERS {
            p.jump(JEQ, kind, header, To::Next);
        }
        p.jump(JEQ, FRAGMENT, fragment, To::Next);
        p.always(ports);
        p.place(fragment);
        p.step(LD_B_IND, 0);
        p.step(ST, PROTOCOL);
        p.step(LD_H_IND, 2);
        p.jump(JSET, 0xfff8, found, To::Next);
        p.step(TXA, 0);
        p.step(ADD_K, 8);
        p.step(TAX, 0);
        p.always(next);
        p.place(header);
        p.step(LD_B_IND, 0);
        p.step(ST, PROTOCOL);
        p.step(LD_B_IND, 1);
        p.step(ADD_K, 1);
        p.step(LSH_K, 3);
        p.step(ADD_X, 0);
        p.step(TAX, 0);
        p.place(next);
    }
    p.always(ports);
}

/// Returns the class where the packet matches, else goes on at `other`.
fn part(p: &mut Program, matcher: &FlowMatch, direction: Direction, class: u32, other: To) {
    for (place, value) in [(DSCP, matcher.dscp), (PROTOCOL, matcher.protocol)] {
        if let Some(value) = value {
            p.step(LD_MEM, place);
            p.jump(JEQ, u32::from(value), To::Next, other);
        }
    }
    if let Some(network) = matcher.address {
        address(p, network, direction, other);
    }
    if !matcher.ports.is_empty() {
        let hit = p.label();
        for place in [DESTINATION, SOURCE] {
            p.step(LD_MEM, place);
            for (low, high) in &matcher.ports {
                let next = p.label();
                p.jump(JGE, u32::from(*low), To::Next, next);
                p.jump(JGT, u32::from(*high), next, hit);
                p.place(next);
            }
        }
        p.always(other);
        p.place(hit);
    }
    p.step(RET, class);
}

/// The address of the other end, 32 bits at a time.
fn address(p: &mut Program, network: Network, direction: Direction, other: To) {
    let sent = direction == Direction::GuestTx;
    let (family, at, words) = match network.address {
        IpAddr::V4(address) => (4, if sent { 16 } else { 12 }, vec![u32::from(address)]),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            let words = [96, 64, 32, 0].map(|low| (bits >> low) as u32);
            (6, if sent { 24 } else { 8 }, words.to_vec())
        }
    };
    p.step(LD_MEM, FAMILY);
    p.jump(JEQ, family, To::Next, other);
    p.step(LDX_MEM, BASE);
    let mut left = u32::from(network.prefix);
    for (number, word) in (0..).zip(words) {
        let bits = left.min(32);
        left -= bits;
        if bits == 0 {
            break;
        }
        p.step(LD_W_IND, at + 4 * number);
        if bits < 32 {
            p.step(AND_K, !(u32::MAX >> bits));
        }
        p.jump(JEQ, word, To::Next, other);
    }
}

#[cfg(test)]
mod tests;
