//! Summaries of cells with several actors.

use super::made::{Made, disk_job, guest_on, near, reads, traits};
use super::*;
use crate::cell::{Actor, Cell, Side, Subject};
use crate::facts::Changed;
use crate::figure::{ACTOR, Compared, Figure, Reading};
use crate::result::{BANDWIDTH, CpuUse, seen_around};

/// Two guests that read one disk: 300 and 100 MB/s, natively 400 each.
fn two_readers() -> Made {
    let cell = Cell { beside: vec![guest_on(1, "seq-read")], ..virtio("device", "seq-read") };
    Made::of(vec![disk_job("seq-read")])
        .cell(&cell.natively(), &[&reads(400e6), &reads(400e6)])
        .cell(&cell, &[&reads(300e6), &reads(100e6)])
}

#[test]
fn actors_of_one_sort_have_a_sum_and_fairness() {
    let s = summarise(&two_readers().run);
    let share = &s.shares[0];
    assert!(near(share.share_ratio.value, 0.5), "{share:?}");
    assert_eq!(share.baseline, "device/native/seq-read & device/native#2/seq-read");
    let row = s.cell(&share.key).unwrap();
    assert!(near(row.judged().unwrap().typical.value, 400e6));
    let fairness = row.figure(FAIRNESS).unwrap();
    assert_eq!((fairness.unit, fairness.compared, fairness.better), (Unit::Ratio, Compared::Difference, Better::More));
    // (3 + 1)^2 / (2 (3^2 + 1^2))
    assert!(near(fairness.typical.value, 0.8));
    let of = |n: &str| {
        let mine = |f: &&FigureRow| f.name == BANDWIDTH && f.labels.get(ACTOR).map(String::as_str) == Some(n);
        row.figures.iter().find(mine).unwrap().typical.value
    };
    assert!(near(of("1"), 300e6) && near(of("2"), 100e6));
    assert!(near(row.disk.as_ref().unwrap().bandwidth_bytes_per_second.value, 400e6));
    let compared = |name: &str, actor: Option<&str>| {
        let is = |f: &&FigureShare| f.name == name && f.labels.get(ACTOR).map(String::as_str) == actor;
        share.figures.iter().find(is).unwrap().clone()
    };
    assert!(near(compared(BANDWIDTH, Some("1")).ratio.unwrap().value, 0.75));
    assert!(near(compared(BANDWIDTH, Some("2")).ratio.unwrap().value, 0.25));
    assert!(near(compared(BANDWIDTH, None).ratio.unwrap().value, 0.5));
    let unfair = compared(FAIRNESS, None).difference.unwrap();
    assert!(near(unfair.value, -0.2) && unfair.interval.unwrap().below(0.0), "{unfair:?}");
    assert!(s.headline.is_none(), "the reference guest has the host for itself");
}

/// A disk reader and a calculation have no common sum.
#[test]
fn actors_of_different_sorts_are_not_added_up() {
    let openssl = traits("openssl", "signs", vec![Figure::rate("signs", Unit::OperationsPerSecond)]);
    let busy = Actor { side: Side { nth: 1, ..Side::of("qemu") }, subject: Subject::Machine, ..guest_on(1, "openssl") };
    let cell = Cell { beside: vec![busy], ..virtio("device", "seq-read") };
    let signs = |n: f64| vec![Reading::scalar("signs", n)];
    let run = Made::of(vec![disk_job("seq-read"), openssl])
        .cell(&cell.natively(), &[&reads(400e6), &signs(5000.0)])
        .cell(&cell, &[&reads(300e6), &signs(1000.0)])
        .run;
    let s = summarise(&run);
    assert!(near(s.shares[0].share_ratio.value, 0.75), "the leading one's");
    let row = s.cell(&cell.key()).unwrap();
    assert!(row.figure(FAIRNESS).is_none() && row.figure(BANDWIDTH).is_none(), "no figure without its actor");
    assert_eq!(row.judged().unwrap().labels[ACTOR], "1", "it is judged by the leading one's");
    assert!(near(row.disk.as_ref().unwrap().bandwidth_bytes_per_second.value, 300e6));
    let signs = s.shares[0].figures.iter().find(|f| f.name == "signs").unwrap();
    assert!(near(signs.ratio.unwrap().value, 0.2) && signs.labels[ACTOR] == "2");
}

/// Processor time is divided by amounts that all actors count alike, or not at all.
#[test]
fn processor_time_is_of_what_all_actors_count() {
    let encrypts = vec![Figure::rate("throughput", Unit::BytesPerSecond), Figure::amount("encrypted", Unit::Bytes)];
    let openssl = traits("openssl", "throughput", encrypts);
    let asks = vec![Figure::rate("answers", Unit::OperationsPerSecond), Figure::amount("trips", Unit::Requests)];
    let asks = traits("asks", "answers", asks);
    let done = |bytes: f64| vec![Reading::scalar("throughput", bytes / 1.5), Reading::scalar("encrypted", bytes)];
    let asked = |n: f64| vec![Reading::scalar("answers", n / 1.5), Reading::scalar("trips", n)];
    let machine = |workload: &str| Cell::of(Side::of("qemu"), Subject::Machine, workload);
    let with = |cell: Cell, beside: &[&str]| Cell {
        beside: beside.iter().map(|w| Actor { subject: Subject::Machine, ..guest_on(1, w) }).collect(),
        ..cell
    };
    let cells = [
        (machine("openssl"), vec![done(4e9)]),
        (with(machine("openssl"), &["openssl"]), vec![done(4e9), done(2e9)]),
        (with(virtio("device", "seq-read"), &["openssl"]), vec![reads(400e6), done(2e9)]),
        (with(machine("asks"), &["openssl"]), vec![asked(1e6), done(2e9)]),
        (machine("asks"), vec![asked(1e6)]),
    ];
    let mut made = Made::of(vec![disk_job("seq-read"), openssl, asks]);
    for (cell, said) in &cells {
        made = made.cell(cell, &said.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    let used = CpuUse { host_seconds: 3.0, by_role: [("vcpu".to_owned(), 1.5)].into(), ..CpuUse::default() };
    made.run.samples.iter_mut().for_each(|sample| sample.seen = seen_around(None, &used));
    let s = summarise(&made.run);
    let cost = |i: usize| s.cell(&cells[i].0.key()).unwrap().cpu.clone();
    assert!(near(cost(0).host_seconds_per_gigabyte, 0.75) && near(cost(1).host_seconds_per_gigabyte, 0.5));
    assert!(near(cost(1).role_seconds_per_gigabyte["vcpu"], 0.25) && cost(1).host_seconds_per_request.is_none());
    assert!(near(cost(4).host_seconds_per_request.unwrap(), 3e-6) && cost(4).role_seconds_per_gigabyte.is_empty());
    for i in [2, 3] {
        let Cpu { host_seconds_per_gigabyte, host_seconds_per_request, .. } = cost(i);
        assert_eq!((host_seconds_per_gigabyte, host_seconds_per_request), (0.0, None), "{}", cells[i].0.key());
        assert!(cost(i).role_seconds_per_gigabyte.is_empty() && cost(i).role_seconds_per_request.is_empty());
    }
}

/// The host's time for each request is not one actor's.
#[test]
fn a_headline_of_several_actors_has_no_cost() {
    let alone = native("device", "seq-read");
    let beside = Cell { beside: vec![guest_on(1, "seq-read")], ..alone.clone() };
    let made = Made::of(vec![disk_job("seq-read")]).cell(&alone, &[&reads(400e6)]);
    let mut run = made.cell(&beside, &[&reads(300e6), &reads(100e6)]).run;
    let used = CpuUse { host_seconds: 3.0, ..CpuUse::default() };
    run.samples.iter_mut().for_each(|sample| sample.seen = seen_around(None, &used));
    run.study.baseline = crate::testing::baseline("{ like = { side = 'native', alone = true } }");
    let s = summarise(&run);
    assert!(near(s.shares[0].share_ratio.value, 0.75), "{:?}", s.shares);
    assert!(s.headlines().any(|h| !h.lines.is_empty()));
    assert!(s.headlines().flat_map(|h| &h.lines).all(|line| !line.contains("host CPU")), "{:?}", s.headline);
}

/// Rules use cells of one actor, compared with the host itself.
#[test]
fn rules_see_one_actor_at_a_time_against_the_host() {
    let tuned = Cell { settings: [("read-ahead".into(), "4096k".into())].into(), ..virtio("device", "seq-read") };
    let mut run = two_readers()
        .cell(&native("device", "seq-read"), &[&reads(400e6)])
        .cell(&virtio("device", "seq-read"), &[&reads(300e6)])
        .cell(&guest("device", "lsi53c895a", "seq-read"), &[&reads(50e6)])
        .cell(&tuned, &[&reads(350e6)])
        .run;
    let seen = |run: &Run| {
        let summary = summarise(run);
        let facts = crate::facts::facts_of(run, &summary).measured.unwrap();
        (summary.shares.len(), facts)
    };
    let (shares, facts) = seen(&run);
    assert_eq!((shares, facts.shares.len(), facts.cells.len()), (3, 2, 4));
    let changed: Vec<_> = facts.gains.iter().map(|g| g.changed).collect();
    assert!(changed.contains(&Changed::Driver) && changed.contains(&Changed::Setting), "{changed:?}");
    assert!(facts.gains.iter().all(|g| g.before.is_alone() && g.after.is_alone()));
    // A share of the set-up as found is no share of the host.
    run.study.baseline = crate::testing::baseline("{ like = { settings = {} } }");
    let (shares, facts) = seen(&run);
    assert_eq!((shares, facts.shares.len()), (1, 0));
}
