//! What is looked at of an opened guest alone.

use vmio_model::top::calls::{CallLoad, Calls};
use vmio_node::netlink::tc::{self, Limit, Qdisc};
use vmio_node::{NetworkAnswer, NetworkQuestion, Reader};

use super::*;

#[test]
fn limits_of_network_cards_are_told_of_an_opened_guest() {
    let limit = Some(Limit { bytes_per_second: 125_000, burst_bytes: None });
    let root = Qdisc { index: 7, handle: 1 << 16, parent: tc::AT_ROOT, kind: "tbf".into(), limit, ..Qdisc::default() };
    let fake = machine()
        .file("/sys/class/net/tapa/ifindex", "7\n")
        .kernel(NetworkQuestion::Qdiscs, NetworkAnswer::Qdiscs(vec![root]));
    let mut sampler = Sampler::new(&fake, false, untraced());
    let limits = |sampler: &Sampler<'_>| sampler.guest(100).unwrap().nics[0].rate_limits.len();
    sampler.tick();
    assert_eq!(limits(&sampler), 0);
    sampler.watch(Some(100));
    sampler.tick();
    assert_eq!(limits(&sampler), 1);
}

/// Each of the processes that it watches wrote once in every interval.
struct Writers(BTreeSet<u32>);

impl FlowSource for Writers {
    fn take(&mut self) -> Result<Vec<Flow>> {
        Ok(Vec::new())
    }
    fn watch_calls(&mut self, _here: &dyn Reader, pids: &BTreeSet<u32>) {
        self.0.clone_from(pids);
    }
    fn calls(&mut self) -> BTreeMap<u32, CallLoad> {
        let mut writes = Calls { done: 4096, seconds: 1e-4, ..Calls::default() };
        writes.latency.add(100);
        self.0.iter().map(|pid| (*pid, CallLoad { writes: writes.clone(), ..CallLoad::default() })).collect()
    }
    fn about(&self) -> String {
        "by a script".into()
    }
}

#[test]
fn calls_are_told_of_those_that_are_watched() {
    let fake = machine();
    let mut sampler = Sampler::new(&fake, false, Ok(Box::new(Writers(BTreeSet::new()))));
    sampler.tick();
    assert_eq!(sampler.hypervisors(), BTreeSet::from([100, 200]));
    sampler.watch_calls(&BTreeSet::from([100]));
    work(&fake, 1);
    sampler.tick().unwrap();
    assert_eq!(sampler.calls(100).map(|calls| calls.changes().number()), Some(1));
    assert_eq!(sampler.calls(200), None);
    sampler.watch_calls(&BTreeSet::new());
    work(&fake, 2);
    sampler.tick().unwrap();
    assert_eq!(sampler.calls(100), None);
}
