//! Three real guests on taps of a bridge, which send what they can over one uplink: the daemon gives each its share of it, by what the
//! kernel counts, and what is too much waits in the guests: no packet is dropped on the host, neither by a queue nor by a tap nor at
//! the uplink. A guest that is started anew keeps its class.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::thread;
use std::time::Duration;

use serde_json::Value;
use vmio_rig::guests::Guest;
use vmio_testbed::{poll_for, poll_until};

use crate::guest_guard_host::{GUESTS, Host, LOOK, POLICY, Passed, send, state};

/// What the uplink carries, in Mbit/s.
const CAPACITY: f64 = 20.0;
/// How far from it a guest may be while something of each waits at every look: one that a busy machine does not let run for some
/// 20 ms between two looks has nothing to send then, and what it leaves goes to others.
const NEAR: f64 = 0.2;

/// Mbit/s of each guest while all had something to send, and what each was to get; and of all together, at least. What
/// others took of the uplink was no guest's, and comes off what gold and silver share.
type Shares = (Vec<(f64, f64)>, f64);

/// Looks until the guests were busy for so long altogether: what counts is what passed between two looks at both of which something
/// of each waited.
fn shares(host: &Host, busy: Duration) -> Shares {
    let (mut time, mut guests, mut others) = (Duration::ZERO, vec![0.0; GUESTS.len()], 0.0);
    let mut last = Passed::now(host);
    // How much longer it may have been: a look counts somewhere in the time that it takes.
    let (mut more, mut in_it) = (Duration::ZERO, false);
    poll_for(&format!("all guests have something to send for {busy:?}"), || {
        thread::sleep(LOOK);
        let first = std::mem::replace(&mut last, Passed::now(host));
        let counts = first.all_wait && last.all_wait;
        if counts != in_it {
            more += first.took / 2;
            in_it = counts;
        }
        if counts {
            time += last.at - first.at;
            others += last.others - first.others;
            for (sum, (first, last)) in guests.iter_mut().zip(first.guests.iter().zip(&last.guests)) {
                *sum += last - first;
            }
        }
        if time < busy { Err((time, last.all_wait)) } else { Ok(()) }
    });
    let rate = |bytes: f64| bytes * 8.0 / 1e6 / time.as_secs_f64();
    let owed = |(name, share): &(&str, f64)| if *name == "tin" { *share } else { share - rate(others) / 2.0 };
    let shares = guests.iter().zip(&GUESTS).map(|(bytes, guest)| (rate(*bytes), owed(guest))).collect();
    let all = (guests.iter().sum::<f64>() + others) * 8.0 / 1e6;
    (shares, all / (time + more + last.took / 2).as_secs_f64())
}

/// Packets that this host has dropped by now: at each tap and at the uplink, in both directions, and in each queue.
fn dropped(host: &Host) -> Vec<(String, u64)> {
    let links: Value = serde_json::from_str(&host.said("ip -s -j link")).unwrap();
    let mut all = Vec::new();
    for link in links.as_array().unwrap().iter().filter(|link| link["ifname"] != "lo") {
        for way in ["rx", "tx"] {
            // What was not led to an IFB but sent there by the host's own stack (its solicitations of IPv6) is refused by it
            // (drivers/net/ifb.c), and no guest's.
            let of_ifb = way == "rx" && link["ifname"].as_str().unwrap().starts_with("vmio");
            for what in ["dropped", "errors"].into_iter().filter(|_| !of_ifb) {
                let count = link["stats64"][way][what].as_u64().unwrap();
                all.push((format!("{} {way} {what}", link["ifname"]), count));
            }
        }
    }
    let queues: Value = serde_json::from_str(&host.said("tc -s -j qdisc")).unwrap();
    for queue in queues.as_array().unwrap() {
        let name = format!("{} of {} {}", queue["kind"], queue["dev"], queue["handle"]);
        all.push((name, queue["drops"].as_u64().unwrap_or_else(|| panic!("{queue}"))));
    }
    all.sort();
    all
}

#[test]
#[ignore = "guest: needs QEMU"]
fn three_guests_get_their_shares_without_drops() {
    three_guests(Duration::from_secs(5), NEAR);
}

/// Needs a quiet machine: to a fiftieth of each share, no guest may lack its processor for 20 ms.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_three_guests_get_their_shares_to_a_fiftieth() {
    three_guests(Duration::from_secs(24), 0.02);
}

/// Each guest's share while all were busy for so long, as near.
fn three_guests(busy: Duration, near: f64) {
    let host = Host::new();
    let mut daemon = host.guard(POLICY);
    // Before its guest runs a tap is in no class: nothing but the guest's address says whose it is.
    assert!(!host.members().iter().any(|m| m["name"] == "tap0"));
    let guests: Vec<Box<dyn Guest>> = (0..GUESTS.len()).map(|number| host.boot(number)).collect();
    for (number, (name, _)) in GUESTS.iter().enumerate() {
        poll_until("the guest's class", || host.members().iter().any(|m| m["class"] == *name));
        poll_until("its tap is held", || host.member(number)["excess"]["waits"] == "held");
    }

    let (weight, [usual, owed]) = host.group.weight();
    assert_eq!(weight, owed, "{}", host.status().unwrap()["guests"]);
    assert_eq!(host.status().unwrap()["guests"][0]["limits"][0]["value"], *owed);

    let senders: Vec<_> = guests.iter().map(|guest| send(&**guest)).collect();
    // Queues are full by then, and buffers of the guests too.
    poll_until("something of each guest waits", || Passed::now(&host).all_wait);
    shares(&host, Duration::from_secs(1));
    let before = dropped(&host);
    assert!(before.iter().any(|(what, _)| what.starts_with("\"htb\" of \"u0\"")), "{before:?}");
    // Where the machine lets a guest wait for its processor for long, its share is seen again.
    poll_for("each guest has what it is owed", || {
        let (rates, all) = shares(&host, busy);
        println!("{rates:.3?} Mbit/s and owed, {all:.3} together");
        assert!(all < CAPACITY * 1.03, "{all} Mbit/s of {CAPACITY}: {rates:?}");
        let is_near = rates.iter().all(|(rate, owed)| (rate / owed - 1.0).abs() < near);
        if is_near {
            Ok(())
        } else {
            Err(format!("{rates:.3?}: each guest's Mbit/s, and what it is owed\n{}", state(&host)))
        }
    });
    assert_eq!(dropped(&host), before, "dropped on the host meanwhile, by what the kernel counts");
    for member in host.members() {
        assert_eq!(member["dropped_packets_total"], 0, "dropped on the host: {member}");
    }
    for mut sender in senders {
        assert_eq!(sender.try_wait().unwrap(), None, "it sends to the end");
        sender.kill().unwrap();
    }

    // Started anew: another process, perhaps another order.
    let mut guests = guests;
    guests.remove(1).stop().unwrap();
    poll_until("its class is gone", || !host.members().iter().any(|m| m["class"] == "silver"));
    let again = host.start_anew(1);
    poll_until("its class again", || host.members().iter().any(|m| m["class"] == "silver"));
    poll_until("its tap is held again", || host.member(1)["excess"]["waits"] == "held");
    assert!(host.vmio(&["guard", "undo"]).status().unwrap().success());
    assert_eq!(host.group.weight().0, usual);
    drop((again, guests));
    assert!(daemon.0.wait().unwrap().success());
    host.state.is_clean();
}
