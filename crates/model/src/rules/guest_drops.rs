//! Packets for a guest that were dropped at its tap. A tap has a ring as long as its queue (`tx_queue_len`), which
//! vhost-net or the hypervisor empties into the guest's own; what comes while it is full is counted as `tx_dropped`
//! (Linux drivers/net/tun.c, `tun_net_xmit`). The guest's ring is virtio-net's `rx_queue_size`: 256 unless said
//! otherwise, 1024 at most (QEMU, hw/net/virtio-net.c). Its twin `tx_queue_size` is no remedy: with taps QEMU leaves it
//! at 256, or refuses more. `tx_dropped` of a tap is towards the guest; what a limit of tc drops is counted elsewhere.

use super::change::{AppliesAt, Names, enter, on_host, shell};
use super::live::seen;
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Nic, ToGuest};
use crate::policy::Direction;

/// Fewest packets, and least share of all: what comes before the guest's driver runs is below both.
const LEAST: u64 = 1000;
const LEAST_RATIO: f64 = 0.001;
/// The largest ring of virtio-net.
const LARGEST_RING: u32 = 1024;
/// A longer queue at the tap: full packets wait in it for 5 ms at 10 Gbit/s, for 48 ms at 1 Gbit/s.
const LONG_QUEUE: u64 = 4000;

pub(super) const RULE: Rule = Rule {
    id: "guest-drops",
    title: "Packets for the guest were dropped",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "Linux, drivers/net/tun.c, tun_net_xmit",
        "https://libvirt.org/formatdomain.html#setting-nic-driver-specific-options (rx_queue_size)",
    ],
    checks: &[Check::Nic(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::dropped(50_000), || fixture::dropped(900)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let ToGuest { packets, dropped_packets: dropped, queue_packets } = nic.to_guest.value().clone()?;
    let ratio = dropped as f64 / packets.saturating_add(dropped).max(1) as f64;
    let counts = dropped >= LEAST && ratio >= LEAST_RATIO;
    let limited = nic.rate_limits.iter().any(|limit| limit.direction == Direction::GuestRx && limit.drops);
    if !counts || limited || nic.backend.as_deref() != Some("tap") {
        return None;
    }
    let tap = nic.interface.as_deref().unwrap_or("its tap");
    let queue = queue_packets.map_or(String::new(), |n| format!(" of {n}"));
    let ring = nic.ring_packets.map(|n| format!("a ring of {n}"));
    let one = nic.vcpus.filter(|n| *n > 1 && nic.queues == Some(1)).map(|n| format!("one queue for {n} vCPUs"));
    let with: Vec<String> = ring.into_iter().chain(one).collect();
    let with = if with.is_empty() { String::new() } else { format!(" ({})", with.join(", ")) };
    let why = match packets {
        0 => "took none: it is paused, starts, has no driver for the card, or does not use it".to_owned(),
        _ => format!("did not take them fast enough{with}"),
    };
    let cause = format!(
        "{dropped} packets ({:.1} %) for the guest were dropped at {tap} since it was made: its queue{queue} was full, \
         as the guest {why}. Whether it still happens: vmio top.",
        ratio * 100.0
    );
    // Not the packets that it took: a finding changes where more were dropped.
    let drops = Evidence {
        setting: "dropped packets".into(),
        value: dropped.to_string(),
        from: nic.to_guest.source_or(&nic.from),
    };
    let [ring, queues, vcpus] = seen![nic; ring_packets, queues, vcpus];
    let mut found = rule.advice(nic, &[Some(drops), ring, queues, vcpus], &cause, change(nic, packets, queue_packets));
    if packets == 0 {
        found.severity = Severity::Note;
    }
    Some(found)
}

fn change(nic: &Nic, packets: u64, queue: Option<u64>) -> Change {
    let (enter, tap) = (enter(nic), shell(nic.interface.as_deref().unwrap_or("TAP")));
    if packets == 0 {
        return on_host(
            "Nothing, if the guest is paused, starts, or does not use this card; else see in it whether the card has a \
             driver and is up.",
            format!("{enter}ip -s link show dev {tap}    # whether more are dropped"),
        );
    }
    let longer = format!("{enter}ip link set dev {tap} txqueuelen {LONG_QUEUE}");
    // -nic and -net have no such key.
    let may_grow = nic.ring_packets.is_some_and(|n| n < LARGEST_RING) && nic.place.given.is_none();
    if !may_grow {
        return match queue {
            Some(long) if long >= LONG_QUEUE => on_host(
                "See what keeps the guest from taking them: vCPUs that wait for a processor, one of them at its limit.",
                "vmio top",
            ),
            _ => on_host(
                "Give the tap a longer queue, which helps against bursts and costs delay; it is lost at the guest's \
                 next start.",
                longer,
            ),
        };
    }
    let names = Names(&nic.place);
    let now = format!("# at once, against bursts, and lost at the next start: {longer}");
    Change {
        what: "Give the guest a larger ring; a longer queue at the tap helps against bursts alone.".into(),
        qemu: format!("# in its own -device: set this, keep all else\nrx_queue_size={LARGEST_RING}\n{now}"),
        libvirt: format!(
            "virsh edit {}\n# in the <interface> with <mac address='{}'/>:\n\
             # in its <driver .../> (add one where it has none): set these, keep all else\n\
             rx_queue_size='{LARGEST_RING}'\n{now}",
            names.domain(),
            names.target("MAC")
        ),
        proxmox: format!(
            "# Proxmox VE makes rings of {LARGEST_RING} since machine type 7.1: see which one the guest has\n\
             qm config {} | grep ^machine\n{now}",
            names.vmid()
        ),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic, ToGuest};
    use crate::testing::{live_nic, of_nic};

    pub fn dropped(dropped_packets: u64) -> Facts {
        let to_guest = ToGuest { packets: 1_000_000, dropped_packets, queue_packets: Some(1000) };
        of_nic(Nic { to_guest: Some(to_guest).into(), ..live_nic() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_nic;

    fn nic(packets: u64, dropped_packets: u64, queue: u64) -> Nic {
        let to_guest = ToGuest { packets, dropped_packets, queue_packets: Some(queue) };
        Nic { to_guest: Some(to_guest).into(), ..live_nic() }
    }

    #[test]
    fn the_queue_that_was_full_is_named_with_its_remedy() {
        let one = Nic { queues: Some(1).into(), ..nic(95_000, 5000, 1000) };
        let found = live(&RULE, &one).unwrap();
        assert!(found.cause.starts_with("5000 packets (5.0 %) for the guest were dropped at tap0"), "{}", found.cause);
        assert!(found.cause.contains("queue of 1000 was full"), "{}", found.cause);
        assert!(found.cause.contains("(a ring of 256, one queue for 4 vCPUs)"), "{}", found.cause);
        assert!(found.change.qemu.contains("keep all else\nrx_queue_size=1024\n"), "{}", found.change.qemu);
        // QEMU refuses or ignores it.
        assert!(found.change.ways().iter().all(|(_, text)| !text.contains("tx_queue_size")));
        let large = live(&RULE, &Nic { ring_packets: Some(1024).into(), ..one.clone() }).unwrap();
        assert_eq!(large.change.qemu, "ip link set dev tap0 txqueuelen 4000");
        let both = Nic { ring_packets: None.into(), ..nic(95_000, 5000, 4000) };
        assert_eq!(live(&RULE, &both).unwrap().change.libvirt, "vmio top");
    }

    #[test]
    fn a_guest_that_took_none_is_a_note() {
        let paused = live(&RULE, &nic(0, 2003, 1000)).unwrap();
        assert_eq!(paused.severity, Severity::Note);
        assert!(paused.cause.contains("queue of 1000 was full, as the guest took none"), "{}", paused.cause);
    }

    #[test]
    fn a_burst_at_boot_is_none() {
        for silent in [nic(0, 900, 1000), nic(10_000_000, 5000, 1000), nic(500, 900, 1000)] {
            assert_eq!(live(&RULE, &silent), None, "{:?}", silent.to_guest);
        }
        let veth = Nic { backend: "veth".into(), ..nic(95_000, 5000, 1000) };
        assert_eq!(live(&RULE, &veth), None);
    }
}
