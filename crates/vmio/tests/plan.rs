//! The plan of a study that is not about disks, as people and programs get it.
#![allow(clippy::unwrap_used)]

use crate::help::figures;
use crate::help::state_dir::{is_narrow, unfolded};

use figures::BASELINES;
use vmio::report;
use vmio_look::neighbours::{Kind, Neighbour};

use vmio_model::cell::{Cell, Side, Subject};
use vmio_model::study::NamedCell;
use vmio_model::study::plan::{Rates, estimate};
use vmio_rig::engine::plan::{CgroupPlan, LeftOut, Planned, WhyNot};
use vmio_rig::gentle::instance::Unseen;
use vmio_rig::hadoop::{Fetch, Jars};
use vmio_rig::probes::power::PowerChoice;

fn planned(baseline: &str) -> Planned {
    let study = figures::study(baseline);
    let rates = Rates {
        write_bytes_per_second: 1e8,
        read_bytes_per_second: 1e8,
        small_ios_per_second: 1e4,
        cell_overhead_seconds: 0.5,
        boot_seconds: 3.0,
        fixed_bytes: Default::default(),
        fixed_seconds: Default::default(),
        written_targets: Vec::new(),
        target_space: Default::default(),
        refilled_targets: Vec::new(),
        spare_ratio: 0.2,
        beside_bytes: 0,
        probed: false,
        metered: false,
        meters: Vec::new(),
    };
    let traits = figures::workloads();
    Planned {
        cost: estimate(&study, &traits, &rates),
        study,
        told: Vec::new(),
        form: None,
        traits,
        placed: None,
        nodes: Default::default(),
        space: Ok(String::new()),
        left_out: Vec::new(),
        rates_from: "FIXTURE".into(),
        accelerator: None,
        kernel: None,
        image_ahead: None,
        fetch: None,
        power: Default::default(),
        others: Default::default(),
        gentle: false,
        latency_unseen: None,
        cgroups: CgroupPlan { native: "cgroup v1".into(), qemu: Some("cgroup v1".into()) },
    }
}

#[test]
fn a_plan_names_who_sends_beside_the_actor() {
    let mut plan = planned(BASELINES[2]);
    let (network, peer, co_sender) = ("shared".into(), "remote".into(), Some("neighbour".into()));
    let cell = Cell::of(Side::native(), Subject::Path { network, peer, nic: None, co_sender }, "udp");
    plan.study.named.push(NamedCell::from(&cell));
    let shown = report::plan::text(&plan);
    assert!(shown.contains("shared.remote has two senders: the actor and neighbour\n"), "{shown}");
}

#[test]
fn a_plan_says_the_size_of_what_is_fetched() {
    let mut plan = planned(BASELINES[0]);
    assert!(!report::plan::text(&plan).contains("Hadoop"));
    for (jars, size) in [(Jars::Local, "51 MB"), (Jars::Hdfs, "89 MB")] {
        plan.fetch = Some(Fetch { from: "https://repository.example/maven".parse().unwrap(), jars });
        let words = unfolded(&report::plan::text(&plan));
        let told = format!("downloads {size} (Hadoop's jars, from https://repository.example/maven)");
        assert!(words.contains(&told), "{words}");
    }
}

#[test]
fn a_plan_without_disks_names_none() {
    let shown = report::plan::text(&planned(""));
    is_narrow(&shown);
    assert!(shown.contains("  cells      6 native and 8 guest cells"), "{shown}");
    let names: Vec<&str> =
        shown.lines().filter_map(|l| l.get(2..12)).map(str::trim).filter(|n| !n.is_empty()).collect();
    for absent in ["where", "device", "space", "baseline"] {
        assert!(!names.contains(&absent), "{absent}: {shown}");
    }
    assert!(!shown.contains("GiB") && !shown.contains("target"), "{shown}");
    let words = unfolded(&shown);
    let networks =
        "networks veth: guests by virtio-net+vhost+q2, e1000+vhost+q2 and natively, in namespaces of vmio's own";
    assert!(words.contains(networks), "{shown}");
    let root = "root needed for network namespaces and for holding the native side to the guest's memory";
    assert!(words.contains(root) && words.contains("network namespace, process and control group"), "{shown}");
    assert!(shown.contains("  writes     only its own files: no cell is on a disk\n"), "{shown}");
    assert!(shown.contains("1 core, 256 MiB of memory; some guests up to 2 cores, 256 MiB\n"), "{shown}");
    let json = serde_json::to_value(report::plan::json(&planned(""))).unwrap();
    for absent in ["place", "directory", "backing", "device", "space"] {
        assert!(json[absent].is_null(), "{absent}: {json}");
    }
    assert_eq!((&json["schema_version"], &json["cost"]["max_bytes_written"]), (&"2.0".into(), &0.into()));
    assert!(json["cost"].as_object().unwrap()["budget_bytes"].is_null(), "there is nothing to limit: {json}");
    let baselines = BASELINES.map(|baseline| serde_json::to_value(report::plan::json(&planned(baseline))).unwrap());
    let [native, like, none] = baselines.map(|json| json["baseline"].clone());
    assert_eq!((native, none), ("native".into(), "none".into()));
    assert_eq!(like, serde_json::json!({"like": {"alone": true, "settings": {"mtu": "1500"}}}));
    let like = report::plan::text(&planned(BASELINES[1]));
    assert!(like.contains("  baseline   the same with mtu=1500, nobody beside\n"), "{like}");
    // Where power will come from, and a command for a shell, is shown.
    assert!(shown.contains("  power      not measured: no meter was found (vmio doctor)\n"), "{shown}");
    let mut plan = planned("");
    plan.cost.rates.meters = vec!["powercap".into(), "hwmon".into()];
    let found = report::plan::text(&plan);
    assert!(found.contains("  power      by powercap, hwmon, next to each cell and at rest, if usable\n"), "{found}");
    let json = serde_json::to_value(report::plan::json(&plan)).unwrap();
    assert_eq!(json["cost"]["rates"]["meters"], serde_json::json!(["powercap", "hwmon"]));
    let command = |meters: &[&str]| PowerChoice {
        meters: meters.iter().map(|name| name.parse().unwrap()).collect(),
        command: Some("cat /dev/meter".into()),
        ..PowerChoice::default()
    };
    let plan = Planned { power: command(&[]), ..planned("") };
    let metered = unfolded(&report::plan::text(&plan));
    assert!(metered.contains("next to each cell, with vmio's privileges: cat /dev/meter"), "{metered}");
    assert!(metered.contains("energy counters are read, where vmio may read them"), "{metered}");
    let meters = [&plan, &planned("")].map(|plan| serde_json::to_value(report::plan::json(plan)).unwrap());
    assert_eq!(meters[0]["meter"], serde_json::json!({"command": "cat /dev/meter"}));
    assert!(meters[1]["meter"].is_null());
    let plan = Planned { power: command(&["ipmi", "redfish:https://bmc"]), ..planned("") };
    let named = unfolded(&report::plan::text(&plan));
    assert!(named.contains("power by ipmi, redfish:https://bmc, next to each cell and at rest"), "{named}");
    assert!(!named.contains("energy counters are read"), "{named}");
    let json = serde_json::to_value(report::plan::json(&plan)).unwrap();
    assert_eq!(json["meter"]["names"], serde_json::json!(["ipmi", "redfish:https://bmc"]));
    // A native actor beside a guest is limited as native cells are.
    let mut plan = planned(BASELINES[2]);
    plan.study.matrix.clear();
    plan.study.named[0].actors[1].side = "native".into();
    plan.cost = estimate(&plan.study, &figures::workloads(), &plan.cost.rates);
    let mixed = report::plan::text(&plan);
    assert!(mixed.contains("  cells      1 guest cell, each") && mixed.contains("  both sides 1 core"), "{mixed}");
    assert!(mixed.contains("natively: cgroup v1"), "{mixed}");
    let none = report::plan::text(&planned(BASELINES[2]));
    assert!(
        none.contains("  cells      8 guest cells, each 5 times") && none.contains("  guests get 1 core"),
        "{none}"
    );
    assert!(!none.contains("native"), "{none}");
    assert!(none.contains("  baseline   none: nothing is compared\n"), "{none}");
}

/// Nothing is promised that cannot be kept.
#[test]
fn a_gentle_plan_promises_an_end_if_latency_is_seen() {
    let unseen = || Unseen { why: "tracefs is not mounted".into(), mend: Some("mount -t tracefs nodev /x".into()) };
    let neighbour = Neighbour { pid: 812, kind: Kind::Qemu, name: "web1".into(), threads: Vec::new() };
    for beside in [vec![neighbour], Vec::new()] {
        let mut plan = Planned { gentle: true, ..planned("") };
        plan.others.guests = beside;
        let words = |plan: &Planned| {
            let text = report::plan::text(plan);
            is_narrow(&text);
            unfolded(&text)
        };
        let seen = words(&plan);
        assert!(!seen.contains("watched") && !seen.contains("continues"), "{seen}");
        assert_eq!(
            seen.contains("web1 (pid 812) runs here: gentle: bandwidth capped; the run ends when it slows down"),
            !plan.others.guests.is_empty(),
            "{seen}"
        );
        plan.latency_unseen = Some(unseen());
        let blind = words(&plan);
        assert!(blind.contains("bandwidth capped") && !blind.contains("the run ends"), "{blind}");
        assert!(blind.contains("the run continues when"), "{blind}");
        for words in ["latency cannot be watched: tracefs is not mounted; ", " help: mount -t tracefs nodev /x"] {
            assert_eq!(blind.matches(words).count(), 1, "{words}: {blind}");
        }
        let json = serde_json::to_value(report::plan::json(&plan)).unwrap();
        assert_eq!(json["latency_unseen"], "tracefs is not mounted; mount -t tracefs nodev /x");
    }
    assert!(serde_json::to_value(report::plan::json(&planned(""))).unwrap()["latency_unseen"].is_null());
}

/// The cap of QEMU is one core, whatever its guest has.
#[test]
fn a_gentle_plan_says_that_vcpus_share_a_core() {
    let told = |gentle: bool, vcpus: u32| {
        let mut plan = Planned { gentle, ..planned("") };
        plan.cost.vcpus = vcpus;
        unfolded(&report::plan::text(&plan)).contains("the guest's 2 vCPUs share one core (gentle)")
    };
    assert_eq!([told(true, 2), told(true, 1), told(false, 2)], [true, false, false]);
}

#[test]
fn a_plan_says_that_time_will_cut_it_short() {
    let told = |minutes: f64, baseline: &str| {
        let mut plan = planned(baseline);
        plan.study.repeat.max_minutes = minutes;
        plan.cost = estimate(&plan.study, &figures::workloads(), &plan.cost.rates);
        report::plan::text(&plan)
    };
    assert!(!told(600.0, "").contains("cut short"));
    let short = told(0.2, "");
    let lines: Vec<&str> = short.lines().collect();
    let time = lines.iter().position(|line| line.starts_with("  time ")).unwrap();
    assert!(
        lines[time + 1..][..2].iter().any(|line| line.starts_with("  cut short  the time budget of 12 s")),
        "{short}"
    );
    assert!(
        unfolded(&short).contains("shares will not be known") && !told(0.2, BASELINES[2]).contains("share"),
        "{short}"
    );
    let writes = short.split_once("  writes ").unwrap().1;
    assert!(!writes.contains("time budget"), "{short}");
}

#[test]
fn a_gentle_plan_without_cells_has_no_cap() {
    let neighbour = |name: &&str| Neighbour { pid: 812, kind: Kind::Qemu, name: (*name).into(), threads: Vec::new() };
    let told = |left_out: usize, others: &[&str]| {
        let mut plan = Planned { gentle: true, ..planned("") };
        let cells = plan.study.cells();
        let why = WhyNot::Gentle { unfit: "it has no cap".into() };
        plan.left_out = cells.into_iter().take(left_out).map(|cell| LeftOut { cell, why: why.clone() }).collect();
        plan.others.guests = others.iter().map(neighbour).collect();
        unfolded(&report::plan::text(&plan))
    };
    let all = figures::study("").cells().len();
    for others in [&[][..], &["web1"]] {
        assert!(told(0, others).contains("bandwidth capped"));
        assert!(told(1, others).contains("bandwidth capped"));
        // One cell is left, and what it is compared with is not: nothing is promised, and every cell is accounted for.
        let one = told(all - 1, others);
        assert!(one.contains("no cell is left to run") && !one.contains("capped"), "{one}");
        assert!(one.contains("time none: nothing can be measured here"), "{one}");
        assert!(!one.contains("first figures") && !one.contains("cut short"), "{one}");
        assert!(one.contains(&format!("not run {} of {all} cells (", all - 1)), "{one}");
        assert!(one.contains(&format!("not run 1 of {all} cells (")), "{one}");
        assert!(one.contains("there is nothing left to compare them with"), "{one}");
        let none = told(all, others);
        assert!(none.contains("gentle") && none.contains("no cell is left to run"), "{none}");
        assert!(!none.contains("capped"), "{none}");
    }
}
