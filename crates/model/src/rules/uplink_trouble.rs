//! The host's own network card behind its guests: one that stopped sending and was reset, whose link comes and goes, or
//! that lost packets in its ring. Cards of the driver e1000e (I217 to I219 of many small servers) are known to hang
//! with "Detected Hardware Unit Hang" until segmentation offload is off; so nothing here advises to turn that on. A card
//! that its driver resets by itself may show only in lost links.

use super::change::{on_host, shell};
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Facts, Nic, Uplink};

/// The driver whose cards are known to hang with segmentation offload on: told before it happens.
const HANGS: &str = "e1000e";

/// Another driver whose cards are known to fail under conditions that nothing here sees: told once one has.
struct FailingDriver {
    name: &'static str,
    /// What they are known to do, after "Cards of this driver are known to".
    known: &'static str,
    /// What ended it, as a comment below the commands, of a card by this name.
    ended_by: fn(&str) -> String,
}

const FAILING: &[FailingDriver] = &[
    FailingDriver {
        name: "r8169",
        known: "stop sending with VLANs above them",
        ended_by: |card| format!("# ended it for others (checksums): ethtool -K {card} tx off"),
    },
    FailingDriver {
        name: "igc",
        known: "drop off their bus (I225, I226)",
        ended_by: |_| "# ended it for others: kernel parameter pcie_aspm.policy=performance".to_owned(),
    },
];

fn failing(driver: Option<&str>) -> Option<&'static FailingDriver> {
    FAILING.iter().find(|failing| driver == Some(failing.name))
}
/// Fewest lost links, more than one a day, and the least time: a link comes and goes while a host starts.
const LEAST_LOSSES: u64 = 5;
const LEAST_SECONDS: u64 = 3600;
const DAY: u64 = 86_400;
/// Fewest packets lost in the card, and least share of all.
const LEAST_MISSED: u64 = 1000;
const LEAST_RATIO: f64 = 1e-4;

pub(super) const RULE: Rule = Rule {
    id: "uplink-trouble",
    title: "Trouble with the host's network card",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "Linux, Documentation/ABI/testing/sysfs-class-net-queues (tx_timeout), sysfs-class-net (carrier_down_count)",
        "https://majabojarska.dev/pve-e1000e-hangups",
        "https://github.com/home-assistant/operating-system/issues/5019 (r8169)",
        "https://github.com/ublue-os/bazzite/issues/5337, https://github.com/CachyOS/chwd/issues/258 (igc)",
    ],
    checks: &[Check::Guests(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::with(3), || fixture::with(0)),
    ..Rule::PLAIN
};

/// What is wrong with a card.
enum Trouble {
    /// It stopped sending so many times.
    Hangs(u64),
    /// Its link was lost so many times in so many days.
    Resets(u64, u64),
    /// It lost so many packets, which is such a share.
    Misses(u64, f64),
    /// Nothing yet: it is of a driver that is known to hang, with the offload on by which it does.
    Known,
}

/// Once for each of the host's cards, however many of the guest's are behind it.
fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let mut told: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for (nic, uplink) in facts.nics.iter().filter_map(|nic| Some((nic, nic.uplink.as_ref()?))) {
        if told.contains(&uplink.name.as_str()) {
            continue;
        }
        told.push(&uplink.name);
        all.extend(trouble(uplink).map(|trouble| finding(rule, nic, uplink, &trouble)));
    }
    all
}

fn trouble(uplink: &Uplink) -> Option<Trouble> {
    if let Some(hangs) = uplink.transmit_timeouts.filter(|n| *n > 0) {
        return Some(Trouble::Hangs(hangs));
    }
    let up = uplink.host_up_seconds.filter(|up| *up >= LEAST_SECONDS);
    if let (Some(losses), Some(up)) = (uplink.link_losses.filter(|n| *n >= LEAST_LOSSES), up)
        && (losses - LEAST_LOSSES + 1).saturating_mul(DAY) > up
    {
        return Some(Trouble::Resets(losses, up.div_ceil(DAY)));
    }
    let missed = uplink.missed_packets.filter(|n| *n >= LEAST_MISSED);
    if let (Some(missed), Some(received)) = (missed, uplink.received_packets) {
        let ratio = missed as f64 / received.saturating_add(missed) as f64;
        if ratio >= LEAST_RATIO {
            return Some(Trouble::Misses(missed, ratio));
        }
    }
    let hangs = uplink.driver.as_deref() == Some(HANGS) && uplink.segmentation == Some(true);
    hangs.then_some(Trouble::Known)
}

fn finding(rule: &Rule, nic: &Nic, uplink: &Uplink, trouble: &Trouble) -> Finding {
    let name = &uplink.name;
    let driver = uplink.driver.as_deref();
    let shown = driver.map_or_else(|| name.clone(), |driver| format!("{name} ({driver})"));
    let known = match failing(driver) {
        _ if driver == Some(HANGS) => " Cards of this driver are known to hang under load.".to_owned(),
        Some(failing) => format!(" Cards of this driver are known to {}.", failing.known),
        None => String::new(),
    };
    let (setting, value, file, severity, cause) = match trouble {
        Trouble::Hangs(n) => {
            let times = crate::words::count(usize::try_from(*n).unwrap_or(usize::MAX), "time");
            let cause = format!(
                "{shown} stopped sending {times} and was reset: every guest behind it lost its network for \
                 seconds.{known}"
            );
            ("transmit timeouts", n.to_string(), "queues/tx-*/tx_timeout", Severity::Warning, cause)
        }
        Trouble::Resets(n, days) => {
            let days = crate::words::count(usize::try_from(*days).unwrap_or(usize::MAX), "day");
            let times = crate::words::count(usize::try_from(*n).unwrap_or(usize::MAX), "time");
            let cause = format!("The link of {shown} was lost {times} in {days}: cable, switch port or driver.{known}");
            ("lost links", n.to_string(), "carrier_down_count", Severity::Advice, cause)
        }
        Trouble::Misses(n, ratio) => {
            let ring = match (uplink.ring_packets, uplink.ring_most_packets) {
                (Some(now), Some(most)) => format!("its ring of {now} (of at most {most})"),
                _ => "its ring".to_owned(),
            };
            let cause = format!(
                "{n} packets ({:.2} %) were lost in {shown} itself: {ring} was full, since the host did not take them \
                 fast enough.",
                ratio * 100.0
            );
            ("packets missed by the card", n.to_string(), "statistics/rx_missed_errors", Severity::Advice, cause)
        }
        Trouble::Known => {
            let cause = format!(
                "Cards of {shown} (I217 to I219) are known to hang under load with segmentation offload on (\"Detected \
                 Hardware Unit Hang\" in the kernel's log); this one has not so far."
            );
            ("segmentation offload", "on".to_owned(), "(ethtool)", Severity::Note, cause)
        }
    };
    let from = format!("/sys/class/net/{name}/{file}");
    let looked_at = Evidence { setting: setting.to_owned(), value, from };
    let found = rule.advice(nic, &[Some(looked_at), of_driver(nic, uplink)], &cause, change(uplink, trouble));
    Finding { severity, ..found }.of_host()
}

fn of_driver(nic: &Nic, uplink: &Uplink) -> Option<Evidence> {
    let from = nic.uplink.source_or(&nic.from);
    Some(Evidence { setting: format!("driver of {}", uplink.name), value: uplink.driver.clone()?, from })
}

fn change(uplink: &Uplink, trouble: &Trouble) -> Change {
    let name = &uplink.name;
    let card = shell(name);
    match (trouble, uplink.ring_packets, uplink.ring_most_packets) {
        (Trouble::Misses(..), Some(now), Some(most)) if now >= most => on_host(
            format!("The ring of {name} is as long as it can be: give its interrupts more processors."),
            format!("ethtool -l {card}    # its queues\ngrep {card} /proc/interrupts    # who serves them"),
        ),
        (Trouble::Misses(..), Some(_), Some(most)) => on_host(
            format!("Give {name} a longer ring for receiving."),
            format!("ethtool -G {card} rx {most}    # the link goes down for a second or more with many drivers"),
        ),
        (Trouble::Misses(..), ..) => on_host(
            format!("Give {name} a longer ring for receiving, as long as it can be."),
            format!(
                "ethtool -g {card}    # its ring now, and at most\n\
                 # then, with the most for NUMBER; the link goes down for a second or more with many drivers:\n\
                 # ethtool -G {card} rx NUMBER"
            ),
        ),
        _ if uplink.driver.as_deref() == Some(HANGS) => on_host(
            format!("Turn segmentation offload of {name} off; it costs some processor time for each Gbit/s sent."),
            format!(
                "ethtool -K {card} tso off gso off\n\
                 # for good, on Debian and Proxmox VE, in its stanza of /etc/network/interfaces:\n\
                 # post-up ethtool -K {card} tso off gso off"
            ),
        ),
        _ => {
            let ended = failing(uplink.driver.as_deref()).map(|failing| format!("\n{}", (failing.ended_by)(&card)));
            on_host(
                format!("See what the kernel says of {name}; then cable, switch port, and newer firmware or driver."),
                format!("ethtool -i {card}\njournalctl -k --grep {card}{}", ended.unwrap_or_default()),
            )
        }
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic, Uplink};
    use crate::testing::{live_nic, of_nic};

    pub fn uplink(driver: &str) -> Uplink {
        Uplink {
            name: "eth0".into(),
            driver: Some(driver.into()),
            transmit_timeouts: Some(0),
            link_losses: Some(1),
            received_packets: Some(1_000_000),
            missed_packets: Some(0),
            ring_packets: None,
            ring_most_packets: None,
            segmentation: Some(false),
            host_up_seconds: Some(2 * 86_400),
        }
    }

    pub fn with(hangs: u64) -> Facts {
        let uplink = Uplink { transmit_timeouts: Some(hangs), ..uplink("e1000e") };
        of_nic(Nic { uplink: Some(uplink).into(), ..live_nic() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_nic;

    fn found(uplink: Uplink) -> Option<Finding> {
        let nic = Nic { uplink: Some(uplink).into(), ..live_nic() };
        let mut all = live(&RULE, &Facts { nics: vec![nic.clone(), nic], ..Facts::default() });
        assert!(all.len() < 2, "one card of the host: {all:#?}");
        all.pop()
    }

    #[test]
    fn a_card_that_hangs_is_told_with_what_ended_it() {
        let hung = found(Uplink { transmit_timeouts: Some(3), ..fixture::uplink("e1000e") }).unwrap();
        assert!(hung.of_host && hung.severity == Severity::Warning, "{hung:#?}");
        assert!(hung.cause.starts_with("eth0 (e1000e) stopped sending 3 times and was reset"), "{}", hung.cause);
        assert!(hung.change.proxmox.starts_with("ethtool -K eth0 tso off gso off\n"), "{}", hung.change.proxmox);
        let other = found(Uplink { transmit_timeouts: Some(3), ..fixture::uplink("ixgbe") }).unwrap();
        assert!(!other.change.qemu.contains("tso") && !other.cause.contains("known"), "{other:#?}");
    }

    #[test]
    fn what_ended_it_for_other_drivers_is_a_comment() {
        let hung = |driver: &str| found(Uplink { transmit_timeouts: Some(3), ..fixture::uplink(driver) }).unwrap();
        let realtek = hung("r8169");
        assert!(realtek.cause.contains("known to stop sending with VLANs above them."), "{}", realtek.cause);
        let last = realtek.change.qemu.lines().last().unwrap();
        assert!(last.starts_with("# ") && last.ends_with("ethtool -K eth0 tx off"), "{last}");
        assert!(hung("igc").change.qemu.contains("pcie_aspm.policy=performance"));
        // Silent until one fails.
        assert_eq!([found(fixture::uplink("r8169")), found(fixture::uplink("igc"))], [None, None]);
    }

    #[test]
    fn lost_links_count_by_the_day() {
        let lost = |n, seconds| {
            found(Uplink { link_losses: Some(n), host_up_seconds: Some(seconds), ..fixture::uplink("igb") })
        };
        let often = lost(9, 2 * DAY).unwrap();
        assert!(often.cause.starts_with("The link of eth0 (igb) was lost 9 times in 2 days"), "{}", often.cause);
        assert_eq!(often.severity, Severity::Advice);
        // One a day, while it started, and a few.
        assert_eq!([lost(9, 9 * DAY), lost(9, 600), lost(4, DAY)], [None, None, None]);
    }

    #[test]
    fn what_its_ring_lost_is_told_from_a_ten_thousandth_on() {
        let missed = |n| found(Uplink { missed_packets: Some(n), ..fixture::uplink("igb") });
        let many = missed(20_000).unwrap();
        assert!(many.cause.contains("20000 packets (1.96 %) were lost in eth0 (igb) itself"), "{}", many.cause);
        assert!(many.change.qemu.starts_with("ethtool -g eth0"), "{}", many.change.qemu);
        assert_eq!(missed(999), None);
        let ring = |now| Uplink {
            missed_packets: Some(20_000),
            ring_packets: Some(now),
            ring_most_packets: Some(4096),
            ..fixture::uplink("igb")
        };
        let short = found(ring(256)).unwrap();
        assert!(short.cause.contains("its ring of 256 (of at most 4096) was full"), "{}", short.cause);
        assert!(short.change.qemu.starts_with("ethtool -G eth0 rx 4096 "), "{}", short.change.qemu);
        assert!(found(ring(4096)).unwrap().change.qemu.starts_with("ethtool -l eth0"));
    }

    #[test]
    fn a_driver_that_is_known_for_hangs_is_a_note() {
        let on = |driver: &str| found(Uplink { segmentation: Some(true), ..fixture::uplink(driver) });
        let known = on("e1000e").unwrap();
        assert!(known.severity == Severity::Note && known.cause.contains("has not so far"), "{known:#?}");
        assert!(known.change.qemu.starts_with("ethtool -K eth0 tso off"), "{}", known.change.qemu);
        assert_eq!((on("igb"), found(fixture::uplink("e1000e"))), (None, None));
    }
}
