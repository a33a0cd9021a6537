//! The host's table of tracked connections. Where it is full, the packet that would open a connection is dropped, and
//! the kernel's log has "nf_conntrack: table full, dropping packet" (Linux net/netfilter/nf_conntrack_core.c,
//! `__nf_conntrack_alloc`). Guests that are routed by the host (NAT), in a bridge whose packets pass the firewall, or
//! at Open vSwitch share it: one can fill it for all.

use super::change::on_host;
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Busiest, Conntrack, Facts, Nic};

/// Share of the table from which it is nearly full.
const NEARLY: f64 = 0.8;
/// Fewest dropped packets that tell of a full table: a helper of a protocol drops one now and then.
const LEAST_DROPPED: u64 = 100;

pub(super) const RULE: Rule = Rule {
    id: "conntrack-full",
    title: "The host's table of connections is nearly full",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "Linux, Documentation/networking/nf_conntrack-sysctl.rst",
        "https://github.com/kubernetes/kubernetes/issues/71261",
        "Proxmox VE, pve-firewall(8), nf_conntrack_max",
    ],
    checks: &[Check::Guests(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::with(236_000), || fixture::with(26_000)),
    ..Rule::PLAIN
};

/// Once for a guest, whatever cards it has.
fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let one = |nic: &Nic| {
        let table = nic.conntrack.as_ref()?;
        let (nearly, cause) = cause(table)?;
        let evidence = |setting: &str, value: u64| Evidence {
            setting: setting.to_owned(),
            value: value.to_string(),
            from: nic.conntrack.source_or(&nic.from),
        };
        // Not how many there are now, which is another number at each look.
        let looked_at = [
            Some(evidence("connections at most", table.max)),
            table.dropped_packets.map(|n| evidence("dropped packets", n)),
        ];
        let mut found = rule.advice(nic, &looked_at, &cause, change(table)).of_host();
        if !nearly {
            found.title = "The host's table of connections was full".into();
            found.severity = Severity::Advice;
        }
        Some(found)
    };
    facts.nics.iter().find_map(one).into_iter().collect()
}

/// The cause, and whether the table is nearly full now.
fn cause(table: &Conntrack) -> Option<(bool, String)> {
    let Conntrack { count, max, .. } = *table;
    let (dropped, evicted) = (table.dropped_packets.unwrap_or(0), table.evicted.unwrap_or(0));
    let lost = evicted > 0 || dropped >= LEAST_DROPPED;
    let ratio = count as f64 / max.max(1) as f64;
    if ratio >= NEARLY {
        let so_far = if lost { format!(" ({dropped} packets were dropped so far)") } else { String::new() };
        let who = table.busiest.as_ref().map_or(String::new(), of_guest);
        let cause = format!(
            "The host tracks {count} of at most {max} connections ({:.0} %): when it is full, what opens a new one is \
             dropped, for all guests and the host{so_far}.{who}",
            ratio * 100.0
        );
        return Some((true, cause));
    }
    let cause = format!(
        "The host's table of connections was full: since the host was started {dropped} packets that opened one were \
         dropped, and {evicted} others had to go. It has {count} of at most {max} now."
    );
    lost.then_some((false, cause))
}

/// Guests choose their source addresses.
fn of_guest(busiest: &Busiest) -> String {
    let Busiest { guest, connections, looked_at } = busiest;
    let percent = 100.0 * *connections as f64 / (*looked_at).max(1) as f64;
    format!(" By source address guest {guest} has {percent:.0} % of the {looked_at} that were looked at.")
}

fn change(table: &Conntrack) -> Change {
    let max = table.max.saturating_mul(4);
    on_host(
        "Allow more connections (some 320 bytes of memory each); or let bridged packets pass the firewall by \
         (bridge-netfilter).",
        format!(
            "sysctl -w net.netfilter.nf_conntrack_max={max} net.netfilter.nf_conntrack_buckets={} && \\\n\
             echo 'net.netfilter.nf_conntrack_max={max}' > /etc/sysctl.d/90-conntrack.conf && \\\n\
             echo nf_conntrack > /etc/modules-load.d/nf_conntrack.conf    # the setting exists only once it is loaded\n\
             # Kubernetes: kube-proxy sets its own (conntrack.maxPerCore, conntrack.min)\n\
             # where Proxmox VE's firewall runs, what counts is nf_conntrack_max: {max}\n\
             # below [OPTIONS] in /etc/pve/nodes/NODE/host.fw",
            table.max
        ),
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Conntrack, Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn table(count: u64) -> Conntrack {
        Conntrack { count, max: 262_144, dropped_packets: Some(0), evicted: Some(0), busiest: None }
    }

    pub fn with(count: u64) -> Facts {
        of_nic(Nic { conntrack: Some(table(count)).into(), ..live_nic() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_nic;

    fn found(conntrack: Conntrack) -> Option<Finding> {
        let nic = Nic { conntrack: Some(conntrack).into(), ..live_nic() };
        live(&RULE, &Facts { nics: vec![nic.clone(), nic], ..Facts::default() }).pop()
    }

    #[test]
    fn who_fills_it_is_named() {
        let busiest = Some(Busiest { guest: "web1".into(), connections: 12_200, looked_at: 20_000 });
        let full = found(Conntrack { busiest, dropped_packets: Some(700), ..fixture::table(250_000) }).unwrap();
        assert!(full.of_host && full.severity == Severity::Warning, "{full:#?}");
        assert!(full.cause.contains("250000 of at most 262144 connections (95 %)"), "{}", full.cause);
        assert!(full.cause.contains("700 packets were dropped so far"), "{}", full.cause);
        assert!(full.cause.contains("guest web1 has 61 % of the 20000 that were looked at"), "{}", full.cause);
        assert!(full.change.qemu.contains("nf_conntrack_max=1048576"), "{}", full.change.qemu);
    }

    #[test]
    fn one_that_was_full_is_advice_and_a_few_drops_are_nothing() {
        let was = found(Conntrack { evicted: Some(3), ..fixture::table(1000) }).unwrap();
        assert_eq!((was.severity, was.title.as_str()), (Severity::Advice, "The host's table of connections was full"));
        assert_eq!(found(Conntrack { dropped_packets: Some(5), ..fixture::table(1000) }), None);
    }
}
