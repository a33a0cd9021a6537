//! Taps held by the core and the Linux plane: the excess waits with the process that has the tap, as its limit and the
//! host change.

#![allow(clippy::unwrap_used)]

use serde_json::Value;

use crate::common::holder::Holder;
use crate::common::test_host::{TestHost, test_host};
use crate::common::{M, nic};
use crate::root_plane::policy;
use vmio_guard::core::{Core, HeldStatus};
use vmio_guard::desired::PoolKey;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::linux::tap::{self, UNLIMITED};
use vmio_guard::planes::linux::{Linux, links};
use vmio_guard::planes::{Options, Plane, Scope};
use vmio_guard::undo_log::UndoLog;
use vmio_model::holding::{PacketPath, QueueingPoint, send_buffer_bytes};
use vmio_model::policy::Direction;
use vmio_model::policy::assign::Interface;
use vmio_testbed::net::{apart, run};
use vmio_testbed::poll_until;

const POLICY: &str = "\
[uplink.u0]
capacity = \"100Mbit\"
[class.gold]
max = \"20Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"gold\"
";

/// A path on which what is too much waits in the guest.
pub const OPEN: PacketPath = PacketPath { bridge_netfilter: Some(false), routed: Some(false), card: None };

/// A tap `t1` that a process has, on the bridge.
fn plugged(queues: usize) -> Holder {
    let holder = Holder::start("t1", queues);
    run(&["ip link set t1 master br0", "ip link set t1 up"]);
    holder
}

fn found(host: &mut TestHost, pids: &[u32]) -> DiscoveredInterface {
    let index = links::find(&mut host.netlink, "t1").unwrap().index;
    let macs = vec!["02:00:00:00:01:01".to_owned()];
    let interface = Interface { index, name: "t1".into(), macs, ..Interface::default() };
    DiscoveredInterface {
        nic: Some(nic("virtio-net", "tap")),
        paths: [("u0".to_owned(), OPEN)].into(),
        pids: pids.to_vec(),
        ..interface.into()
    }
}

fn start(log: &UndoLog, text: &str, there: Vec<DiscoveredInterface>) -> Core<Linux> {
    let options = Options { log: log.clone(), ..Options::default() };
    Core::start(Linux::with(&options).unwrap(), policy(text), there).unwrap()
}

fn status(core: &mut Core<Linux>) -> HeldStatus {
    core.status().unwrap()[0].members[1].held.clone().unwrap()
}

fn held(core: &mut Core<Linux>, bytes: u32) {
    poll_until("a tap held", || {
        let status = status(core);
        (status.waits, status.send_buffer_bytes) == (QueueingPoint::Held, Some(bytes))
    });
}

fn written(log: &UndoLog) -> Vec<u32> {
    let entries = log.live::<Value>("taps").unwrap();
    entries.into_iter().map(|(_, entry)| entry["held"]["bytes"].as_u64().unwrap() as u32).collect()
}

/// Packets dropped in the tap's class while it floods, and how often the process was told to wait.
fn flooded(core: &mut Core<Linux>, holder: &mut Holder) -> (u64, u64) {
    let key = PoolKey { uplink: "u0".into(), direction: Direction::GuestTx };
    let count = |core: &mut Core<Linux>| core.plane().observe(Scope::Counts(&key)).unwrap().counts[1];
    poll_until("an empty queue", || count(core).waiting_bytes == 0);
    let before = count(core);
    let flood = holder.flood("flood", || count(core).dropped_packets > before.dropped_packets, || {});
    let after = count(core);
    assert!(after.passed_bytes > before.passed_bytes && flood.written > 0);
    (after.dropped_packets - before.dropped_packets, flood.again)
}

#[test]
#[ignore = "root"]
fn flooding_process_waits_without_drops() {
    apart(|| {
        let mut host = test_host(0);
        run(&["bridge fdb replace 02:00:00:00:00:09 dev u0 master static"]);
        let mut holder = plugged(2);
        let there = found(&mut host, &[std::process::id(), holder.child.id()]);
        let log = UndoLog::memory();
        // Its process is not known yet: the excess waits in the queue, and then is dropped.
        let mut core = start(&log, POLICY, vec![DiscoveredInterface { pids: Vec::new(), ..there.clone() }]);
        poll_until("nobody has it", || status(&mut core).reason.contains("no known process of its guest"));
        assert_eq!((status(&mut core).waits, status(&mut core).send_buffer_bytes), (QueueingPoint::Queued, None));
        let (dropped, again) = flooded(&mut core, &mut holder);
        assert!(dropped > 0 && again == 0, "{dropped} dropped");

        core.set_interfaces(vec![there]).unwrap();
        let bytes = send_buffer_bytes(20 * M);
        held(&mut core, bytes);
        assert_eq!((holder.sizes(), written(&log)), (vec![bytes; 2], vec![bytes]));
        assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
        let (dropped, again) = flooded(&mut core, &mut holder);
        assert!(dropped == 0 && again > 0, "{dropped} dropped, told to wait {again} times");

        // Another limit, another size; a queue that the guest switches on begins without one.
        core.reload(policy(&POLICY.replace("20Mbit", "50Mbit"))).unwrap();
        let wider = send_buffer_bytes(50 * M);
        held(&mut core, wider);
        assert_eq!((holder.sizes(), written(&log)), (vec![wider; 2], vec![wider]));
        holder.tell("open");
        poll_until("a queue that came later", || holder.sizes() == [wider; 3]);
        let (dropped, again) = flooded(&mut core, &mut holder);
        assert!(dropped == 0 && again > 0, "{dropped} dropped, told to wait {again} times");

        // It leaves the policy, and comes back.
        core.reload(policy(&POLICY.replace("t1", "t9"))).unwrap();
        poll_until("what was there before", || holder.sizes() == [UNLIMITED; 3] && written(&log).is_empty());
        core.reload(policy(POLICY)).unwrap();
        held(&mut core, bytes);
        core.undo().unwrap();
        assert_eq!((holder.sizes(), written(&log)), (vec![UNLIMITED; 3], Vec::new()));
    });
}

#[test]
#[ignore = "root"]
fn restart_of_hypervisor_and_of_guard() {
    apart(|| {
        let mut host = test_host(0);
        let mut holder = plugged(1);
        let log = UndoLog::memory();
        let bytes = send_buffer_bytes(20 * M);
        let there = found(&mut host, &[holder.child.id()]);
        let mut core = start(&log, POLICY, vec![there]);
        held(&mut core, bytes);
        drop(holder);
        poll_until("the end of the tap", || links::look(&mut host.netlink, "t1").unwrap().is_none());
        holder = plugged(1);
        assert_eq!(holder.sizes(), [UNLIMITED]);
        let there = found(&mut host, &[holder.child.id()]);
        core.set_interfaces(vec![there.clone()]).unwrap();
        held(&mut core, bytes);
        poll_until("one entry", || written(&log).len() == 1);
        assert_eq!(holder.sizes(), [bytes]);

        // The guard goes, and leaves it; the next one has another limit, and knows what was there before both.
        core.leave();
        assert_eq!(holder.sizes(), [bytes]);
        let mut core = start(&log, &POLICY.replace("20Mbit", "50Mbit"), vec![there.clone()]);
        let wider = send_buffer_bytes(50 * M);
        held(&mut core, wider);
        assert_eq!((holder.sizes(), written(&log)), (vec![wider], vec![wider]));
        core.leave();
        // One whose policy has no such guest puts it back.
        let core = start(&log, &POLICY.replace("t1", "t9"), vec![there.clone()]);
        poll_until("what was there before", || holder.sizes() == [UNLIMITED] && written(&log).is_empty());
        core.leave();
        let mut core = start(&log, POLICY, vec![there.clone()]);
        held(&mut core, bytes);
        core.leave();
        // Undone without a policy.
        Linux::with(&Options { log: log.clone(), ..Options::default() }).unwrap().undo().unwrap();
        assert_eq!((holder.sizes(), written(&log)), (vec![UNLIMITED], Vec::new()));

        // What somebody else sets meanwhile is told, left alone, and nobody else's trouble.
        let mut core = start(&log, POLICY, vec![there.clone()]);
        held(&mut core, bytes);
        let device = links::find(&mut host.netlink, "t1").unwrap();
        tap::hold(&tap::plan(&device, holder.process(), 77_000).unwrap()).unwrap();
        poll_until("it is another's", || status(&mut core).reason.contains("77000 bytes"));
        assert_eq!(status(&mut core).waits, QueueingPoint::Queued);
        core.reconcile().unwrap();
        core.undo().unwrap();
        assert_eq!((holder.sizes(), written(&log)), (vec![77_000], Vec::new()));
    });
}

#[test]
#[ignore = "root"]
fn switched_off_queue_is_reported_and_undone_later() {
    apart(|| {
        let mut host = test_host(0);
        let mut holder = plugged(2);
        let log = UndoLog::memory();
        let there = found(&mut host, &[holder.child.id()]);
        let mut core = start(&log, POLICY, vec![there]);
        let bytes = send_buffer_bytes(20 * M);
        held(&mut core, bytes);
        holder.tell("off 1");
        let said = core.undo().unwrap_err().to_string();
        assert!(said.contains("tap t1: 1 of its queues"), "{said}");
        assert_eq!((holder.sizes(), written(&log)), (vec![UNLIMITED, bytes], vec![bytes]));
        holder.tell("on 1");
        Linux::with(&Options { log: log.clone(), ..Options::default() }).unwrap().undo().unwrap();
        assert_eq!((holder.sizes(), written(&log)), (vec![UNLIMITED; 2], Vec::new()));
    });
}
