#![allow(clippy::unwrap_used)]
use super::*;

/// As the kernel runs it (Documentation/networking/filter.rst): a load from outside of the packet returns 0.
fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    let load = |at: u32, bytes: usize| {
        let part = packet.get(at as usize..at as usize + bytes)?;
        Some(part.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)))
    };
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [None; 16], 0usize);
    loop {
        let Instruction { code, yes, no, k } = program[at];
        at += 1;
        let loaded = match code {
            LD_H_ABS => load(k, 2),
            LD_W_IND => load(x + k, 4),
            LD_H_IND => load(x + k, 2),
            LD_B_IND => load(x + k, 1),
            _ => Some(0),
        };
        let Some(loaded) = loaded else { return 0 };
        let jump = |is: bool| usize::from(if is { yes } else { no });
        match code {
            LD_H_ABS | LD_W_IND | LD_H_IND | LD_B_IND => a = loaded,
            LD_IMM => a = k,
            LD_MEM => a = memory[k as usize].unwrap(),
            LDX_IMM => x = k,
            LDX_MEM => x = memory[k as usize].unwrap(),
            ST => memory[k as usize] = Some(a),
            STX => memory[k as usize] = Some(x),
            ADD_K => a += k,
            ADD_X => a += x,
            AND_K => a &= k,
            LSH_K => a <<= k,
            RSH_K => a >>= k,
            JA => at += k as usize,
            JEQ => at += jump(a == k),
            JGT => at += jump(a > k),
            JGE => at += jump(a >= k),
            JSET => at += jump(a & k != 0),
            RET => return k,
            TAX => x = a,
            TXA => a = x,
            _ => panic!("{code:#x}"),
        }
    }
}

fn frame(tags: &[u16], kind: u32, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    for tag in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0, 7]);
    }
    bytes.extend((kind as u16).to_be_bytes());
    bytes.extend(packet);
    bytes
}

fn ports(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0; 2], [0; 2]].concat()
}

/// From 192.0.2.1 to 10.1.2.3.
fn v4(dscp: u8, protocol: u8, fragment: u16, options: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45 + options, dscp << 2 | 1, 0, 0, 0, 0];
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 192, 0, 2, 1, 10, 1, 2, 3]);
    bytes.resize(20 + 4 * usize::from(options), 1);
    bytes.extend(rest);
    bytes
}

/// From fe80::1 to 2001:db8:12::1.
fn v6(dscp: u8, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60 | dscp >> 2, dscp << 6 | 0x1f, 0xff, 0xff, 0, 0, next, 64];
    bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend(rest);
    bytes
}

const TCP: u8 = 6;
const UDP: u8 = 17;

fn matcher(dscp: Option<u8>, protocol: Option<u8>, ports: &[(u16, u16)], address: &str) -> FlowMatch {
    let address = Some(address).filter(|a| !a.is_empty()).map(|a| Network::parse(a).unwrap());
    FlowMatch { dscp, protocol, ports: ports.to_vec(), address }
}

/// The number of the flow class of a frame, from 1; 0 for the rest.
fn flow(all: &[FlowMatch], direction: Direction, frame: &[u8]) -> u32 {
    run(&program(all.iter().zip(1..).map(|(matcher, number)| (matcher, direction, number))), frame)
}

fn flows() -> [FlowMatch; 5] {
    [
        matcher(Some(46), None, &[], ""),
        matcher(None, Some(TCP), &[(443, 443), (8000, 8080)], "10.0.0.0/8"),
        matcher(None, None, &[], "2001:db8:10::/44"),
        matcher(None, None, &[(53, 53)], ""),
        matcher(None, Some(1), &[], ""),
    ]
}

fn sent(kind: u32, packet: &[u8]) -> u32 {
    let all = [vec![], vec![0x8100], vec![0x88a8, 0x8100]];
    let found = all.map(|tags| flow(&flows(), Direction::GuestTx, &frame(&tags, kind, packet)));
    assert_eq!(flow(&flows(), Direction::GuestTx, &frame(&[0x8100; 3], kind, packet)), 0, "behind more tags");
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    found[0]
}

#[test]
fn packets_of_ipv4() {
    let of = |packet: Vec<u8>| sent(ETH_P_IP, &packet);
    // The first that matches.
    assert_eq!(of(v4(46, TCP, 0, 0, &ports(443, 9))), 1);
    assert_eq!(of(v4(45, TCP, 0, 0, &ports(443, 9))), 2);
    assert_eq!([7999, 8000, 8080, 8081].map(|to| of(v4(0, TCP, 0, 10, &ports(9, to)))), [0, 2, 2, 0]);
    assert_eq!(of(v4(0, UDP, 0, 0, &ports(9, 443))), 0);
    assert_eq!(of(v4(0, UDP, 0, 3, &ports(53, 9))), 4);
    assert_eq!(of(v4(0, 1, 0, 0, &ports(53, 53))), 5, "it has no ports");
    // First, later and last fragments: flags are in the same number.
    assert_eq!([0x2000, 0x2001, 0x00b9].map(|fragment| of(v4(0, UDP, fragment, 0, &ports(53, 9)))), [4, 0, 0]);
    assert_eq!(of(v4(46, UDP, 0x00b9, 0, &[])), 1);
    // Cut short.
    assert_eq!(of(v4(0, UDP, 0, 0, &ports(53, 53)[..3])), 0);
    assert_eq!(of(v4(46, UDP, 0, 0, &[])[..9].to_vec()), 0);
}

#[test]
fn packets_of_ipv6() {
    let of = |packet: Vec<u8>| sent(ETH_P_IPV6, &packet);
    assert_eq!(of(v6(46, UDP, &ports(1, 1))), 1);
    assert_eq!(of(v6(45, UDP, &ports(1, 1))), 3, "2001:db8:12:: is in 2001:db8:10::/44");
    let all = [matcher(None, None, &[], "2001:db8:10::/48"), matcher(None, Some(UDP), &[(53, 53)], "")];
    let other = |packet: Vec<u8>| flow(&all, Direction::GuestTx, &frame(&[], ETH_P_IPV6, &packet));
    assert_eq!(other(v6(0, UDP, &ports(53, 1))), 2);
    // Behind hop-by-hop and destination options and routing, each of 8 or 16 bytes; and behind too many.
    let options = |next: u8, more: u8| [vec![next, more], vec![0; 6 + 8 * usize::from(more)]].concat();
    let headers = [options(60, 1), options(43, 0), options(UDP, 2), ports(1, 53)].concat();
    assert_eq!(other(v6(0, 0, &headers)), 2);
    let many = [vec![options(60, 0); 4].concat(), options(UDP, 0), ports(1, 53)].concat();
    assert_eq!(other(v6(0, 60, &many)), 0);
    // The first fragment has ports, a later one its protocol alone.
    let fragment = |offset: u16| [vec![UDP, 0], offset.to_be_bytes().to_vec(), vec![0; 4], ports(53, 1)].concat();
    assert_eq!([1, 8].map(|offset| other(v6(0, 44, &fragment(offset)))), [2, 0]);
    let any_udp = [matcher(None, Some(UDP), &[], "")];
    let udp = |packet: Vec<u8>| flow(&any_udp, Direction::GuestTx, &frame(&[], ETH_P_IPV6, &packet));
    assert_eq!(udp(v6(0, 44, &fragment(8))), 1);
}

#[test]
fn the_address_is_that_of_the_other_end() {
    let of = |address: &str, direction| {
        flow(&[matcher(None, None, &[], address)], direction, &frame(&[], ETH_P_IP, &v4(0, TCP, 0, 0, &ports(1, 1))))
    };
    for (address, wanted) in [
        ("10.1.2.3", [1, 0]),
        ("10.1.2.2", [0, 0]),
        ("10.1.2.2/31", [1, 0]),
        ("192.0.2.0/24", [0, 1]),
        ("0.0.0.0/0", [1, 1]),
        ("::/0", [0, 0]),
    ] {
        assert_eq!(Direction::ALL.map(|direction| of(address, direction)), wanted, "{address}");
    }
    let six = frame(&[], ETH_P_IPV6, &v6(0, TCP, &ports(1, 1)));
    let of = |address: &str| flow(&[matcher(None, None, &[], address)], Direction::GuestRx, &six);
    assert_eq!(["fe80::1", "fe80::/10", "2001:db8::/32", "0.0.0.0/0"].map(of), [1, 1, 0, 0]);
}

#[test]
fn what_is_no_ip_is_the_rest() {
    assert_eq!(sent(0x0806, &v4(46, TCP, 0, 0, &[])), 0);
    assert_eq!(flow(&flows(), Direction::GuestTx, &[]), 0);
}

/// All that a policy may have is less than the kernel takes (BPF_MAXINSNS), and each jump reaches its end.
#[test]
fn the_longest_program() {
    let ranges: Vec<(u16, u16)> = (0..4).map(|n| (n, n + 9)).collect();
    let one = matcher(Some(1), Some(TCP), &ranges, "2001:db8::1");
    let longest = program((1..=8).map(|number| (&one, Direction::GuestTx, number)));
    assert!(longest.len() < 1000, "{}", longest.len());
    for (at, instruction) in longest.iter().enumerate() {
        let far = if instruction.code == JA { instruction.k as usize } else { 0 };
        let end = at + 1 + far.max(usize::from(instruction.yes)).max(usize::from(instruction.no));
        assert!(end <= longest.len() - usize::from(instruction.code != RET), "{at}: {instruction:?}");
        assert_eq!(Instruction::decode(instruction.encode()), *instruction);
    }
    assert_eq!(longest.last().map(|last| last.code), Some(RET));
}
