//! A run that is not about disks, through every form in which a run is shown: paths judged by bits a second, a
//! machine judged by a latency, cells of two actors, and studies with another baseline or none.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::figures;
use crate::help::state_dir::{StateDir, is_narrow, unfolded};

use std::collections::BTreeSet;

use common::page::forms;
use figures::BASELINES;
use vmio::report::export::{Format, export};
use vmio::report::{self, Report};
use vmio::run::noise;
use vmio::term::Style;
use vmio_model::cell::Cell;
use vmio_model::figure::Better;
use vmio_model::result::Accel;
use vmio_model::run::Run;
use vmio_model::summary::FigureRow;

/// Words that mean something on disks alone.
const OF_DISKS: [&str; 8] =
    ["avgrq-sz", "avgqu-sz", "%util", "not visible here", "At the device", "Target", "MB/s", "p50     p99"];

fn text(run: &Run) -> String {
    report::text(&Report::of(run), Style::PLAIN)
}

#[test]
fn every_form_shows_the_figures_that_are_compared_and_no_disk() {
    for baseline in BASELINES {
        for (form, shown) in forms(&Report::of(&figures::run(baseline))) {
            for word in ["Gbit/s", "loss", "delay", "packets/s", "fairness", "op/s", "qemu#2"] {
                assert!(shown.to_lowercase().contains(&word.to_lowercase()), "{form}, {baseline}: {word}\n{shown}");
            }
            assert!(!shown.contains("NaN") && !shown.contains("inf"), "{form}, {baseline}");
            // No workload counts requests, so there is no column for CPU time by request.
            assert!(!shown.contains("CPU/req") && !shown.contains("each request"), "{form}, {baseline}: {shown}");
            for word in OF_DISKS.iter().filter(|word| form != "html" || **word != "MB/s") {
                assert!(!shown.contains(word), "{form}, {baseline}: {word}\n{shown}");
            }
        }
        let shown = text(&figures::run(baseline));
        is_narrow(&shown);
        assert!(shown.contains("\n  programs              iperf3: iperf 3.12 (cJSON 1.7.15)\n"), "{shown}");
        assert!(shown.contains("\nPath veth.host\n") && shown.contains("\nThe machine itself\n"), "{shown}");
        // The workload's own word: sent, not moved.
        let words = unfolded(&shown);
        let meaning = "CPU s/GB: CPU time of the whole host for each GB sent. QEMU s/GB, by thread: vcpu";
        assert!(words.contains(meaning) && !words.contains("moved"), "{shown}");
        // A count of retransmits is not compared: only the raw figures have it.
        assert!(!shown.contains("retransmits"), "{shown}");
    }
    let html = report::html(&Report::of(&figures::run("")));
    assert!(html.contains("retransmits: 12.0; ") || html.contains("retransmits: 12.0<"), "the raw figures are whole");
}

/// Of what is not compared, that of which less is better is shown, with no share.
#[test]
fn what_should_be_little_is_shown_though_it_is_not_compared() {
    let mut run = figures::run("");
    let figures = run.workloads.iter_mut().flat_map(|w| &mut w.figures);
    figures.filter(|f| f.name == "retransmits").for_each(|f| f.better = Better::Less);
    for (form, shown) in forms(&Report::of(&run)) {
        assert!(shown.contains("retransmits") && shown.contains("12.0"), "{form}: {shown}");
    }
    let shown = text(&run);
    let row = shown.lines().find(|line| line.starts_with("    retransmits ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..], ["12.0"], "no share: {row}");
    is_narrow(&shown);
}

#[test]
fn names_of_paths_are_explained_where_there_are_any() {
    let told = "A path is named network.peer: veth.host is the network veth, the peer host (docs/networks.md).";
    for (form, shown) in forms(&Report::of(&figures::run(""))) {
        let shown = unfolded(&shown);
        assert_eq!(shown.matches(told).count(), 1, "{form}: {shown}");
    }
    for (form, shown) in forms(&Report::of(&common::run(Accel::Kvm))) {
        assert!(!shown.contains("network.peer"), "{form}");
    }
}

/// A log counts rounds and boots from 1, and so does what people read; what programs read counts from 0.
#[test]
fn rounds_and_boots_are_counted_from_1() {
    let mut run = figures::run("");
    run.samples.retain(|sample| sample.round == 0);
    let html = report::html(&Report::of(&run));
    assert!(html.contains("<td>1</td><td>1</td>") && !html.contains("<td>0</td><td>0</td>"), "{html}");
    let mut run = common::run(Accel::Kvm);
    let cell = run.samples[0].cell.clone();
    let first = run.samples.iter_mut().find(|s| s.cell == cell && s.round == 0).unwrap();
    first.result.amend(|work| work.seconds *= 50.0);
    let report = Report::of(&run);
    assert_eq!(report.summary.cell(&cell.key()).unwrap().outlier_rounds, [0]);
    for (form, shown) in forms(&Report::of(&run)) {
        let shown = unfolded(&shown);
        assert!(shown.contains("outliers, kept, in rounds 1"), "{form}");
        assert!(!shown.contains("in rounds 0"), "{form}");
    }
}

#[test]
fn rows_say_what_they_are_of_their_baseline() {
    let shown = text(&figures::run(""));
    let row = |label: &str, below: &str| {
        let at = shown.find(label).unwrap_or_else(|| panic!("{label}\n{shown}"));
        let at = at + shown[at..].find(below).unwrap_or_else(|| panic!("{below}\n{shown}"));
        shown[at..].lines().next().unwrap().to_owned()
    };
    let virtio = "  qemu virtio-net+vhost+q2 mtu=1500\n";
    let judged = row(virtio, "6.19 Gbit/s");
    assert!(judged.contains("66% (") && judged.ends_with("   8"), "{judged}");
    let loss = row(virtio, "    loss ");
    assert!(
        loss.contains("1.20% ±0.02 points") && loss.contains("+1.20 points ±0.04") && !loss.ends_with(" 8"),
        "{loss}"
    );
    let delay = row(virtio, "    delay ");
    assert!(delay.contains("p50 61.") && delay.contains("p99 16") && delay.contains("1.5") && delay.contains("× ("));
    assert!(row(virtio, "    rate out").contains("66% ("), "{shown}");
    assert!(row("  native mtu=9000", "    loss ").ends_with("0.0%"), "what was not lost has no interval");
    // Less is better: the share is of the speed, not of the time.
    assert!(row("wakeups (latency", "  qemu  ").contains("41% ("), "{shown}");
    assert!(row("  qemu & qemu#2", "    1: qemu").contains("93% ("), "{shown}");
    assert!(row("  qemu & qemu#2", "    fairness").contains("-4.4 points ±0."), "{shown}");
    // Guests of different shapes, settings and companions are rows that can be told apart.
    let labels: Vec<&str> = shown.lines().filter(|l| l.starts_with("  ") && l.ends_with("   8")).collect();
    assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len());
    for label in ["  qemu  ", "  qemu:vcpus=2:pins=0+1", "  qemu & qemu#2", " mtu=1500\n", " mtu=9000\n"] {
        assert!(shown.contains(label), "{label}");
    }
}

/// What emulation leaves to be concluded is told of what was measured.
#[test]
fn the_word_on_emulation_speaks_of_disks_where_there_are_any() {
    let under_tcg = |mut run: Run| {
        run.environment.accel = Some(Accel::Tcg);
        Report::of(&run).summary.statement.unwrap()
    };
    let [disks, paths] = [figures::on_a_disk(), figures::run("")].map(under_tcg);
    assert!(disks.contains("concluded: which settings, request sizes and queue depths reach the device, and which"));
    assert!(
        paths.contains("concluded: which setup beats which other one") && !paths.contains("request sizes"),
        "{paths}"
    );
}

/// What is compared stands in one table, the baseline first, wherever it is.
#[test]
fn a_baseline_elsewhere_stands_with_what_is_compared_with_it() {
    let run = figures::run_elsewhere();
    let shown = text(&run);
    let (mut tables, others) = (shown.split("\nPath").skip(1), shown.find("\nThe machine itself\n"));
    let table = tables.next().unwrap();
    assert!(
        table.starts_with("s bridge.host, uplink.host\n") && tables.next().is_none() && others.is_some(),
        "{shown}"
    );
    let labels: Vec<&str> =
        table.lines().filter(|l| l.contains("mtu=")).map(|l| l.trim().trim_end_matches(" 8")).collect();
    let label = |nth: usize| labels[nth].split("  ").next().unwrap();
    let all: Vec<&str> = (0..10).map(label).collect();
    let of = |mtu: &str| {
        let guests = ["bridge", "uplink"]
            .map(|net| ["virtio-net", "e1000"].map(|nic| format!("qemu {nic}+vhost+q2 on {net}.host mtu={mtu}")));
        [vec![format!("native on veth.host mtu={mtu}")], guests.concat()].concat()
    };
    assert_eq!(all, [of("1500"), of("9000")].concat(), "{shown}");
    is_narrow(&shown);
    let markdown = report::markdown(&Report::of(&run));
    assert_eq!(markdown.matches("## udp on paths bridge.host, uplink.host\n").count(), 1, "{markdown}");
    assert!(!markdown.contains("on path veth.host\n"), "{markdown}");
    // All bars of a table have one scale.
    let html = report::html(&Report::of(&run));
    let bar = |label: &str| -> f64 {
        let at = html.find(&format!("<title>{label}: ")).unwrap_or_else(|| panic!("{label}"));
        let width = html[at..].split("width=\"").nth(1).unwrap();
        width.split('%').next().unwrap().parse().unwrap()
    };
    let [native, guest] = ["native on veth.host mtu=9000", "qemu virtio-net+vhost+q2 on uplink.host mtu=9000"].map(bar);
    assert!((guest / native - 0.66).abs() < 0.05, "{guest} of {native}");
}

#[test]
fn shares_are_of_what_the_study_compares_with() {
    let [native, like, none] = BASELINES.map(figures::run);
    for (form, shown) in forms(&Report::of(&native)) {
        assert!(shown.to_lowercase().contains("share of native") && !shown.contains("baseline of a cell"), "{form}");
    }
    for (form, shown) in forms(&Report::of(&like)) {
        let head = if form == "text" { "of its baseline" } else { "share of baseline" };
        assert!(shown.to_lowercase().contains(head), "{form}: {shown}");
        assert!(!shown.contains("share of native") && !shown.contains("guest/native"), "{form}: {shown}");
        let words = unfolded(&shown);
        assert!(words.contains("The baseline of a cell is the same with mtu=1500, nobody beside."), "{form}");
        assert!(words.contains("the share is that of the first actor"), "{form}: {shown}");
    }
    for (form, shown) in forms(&Report::of(&none)) {
        assert!(!shown.to_lowercase().contains("share of") || form == "html", "{form}: {shown}");
        assert!(shown.contains("Nothing is compared: the study has no baseline."), "{form}");
        assert!(!shown.contains("Share of") && !shown.contains("100 % ="), "{form}");
        assert!(!shown.contains("native") && shown.contains("guests have"), "{form}: {shown}");
    }
    // A cell without its baseline says so.
    let lone = |mut run: Run| {
        let versus = Report::of(&run).versus;
        run.samples.retain(|s| Report::of(&none).summary.cells.iter().any(|row| row.cell == s.cell));
        let summary = vmio_model::summary::summarise(&run);
        let lacks: BTreeSet<_> = summary.cells.iter().filter_map(|row| versus.lacks(row, None)).collect();
        (versus.no_headline(&summary), lacks)
    };
    let (said, lacks) = lone(native);
    assert_eq!(said, "No share can be stated: no guest was measured together with native.");
    assert_eq!(lacks, BTreeSet::from(["no share: no round has both this cell and the native one"]));
    let (said, lacks) = lone(like);
    assert_eq!(said, "No share can be stated: no cell was measured together with its baseline.");
    assert_eq!(lacks, BTreeSet::from(["no share: no round has both this cell and its baseline"]));
}

#[test]
fn actors_on_disks_are_told_apart() {
    let run = figures::on_a_disk();
    let shown = text(&run);
    // Lines of a change may be longer.
    let tables = &shown[..shown.find("\nFindings\n").unwrap()];
    is_narrow(tables);
    let at = shown
        .find("  qemu virtio-blk,none,native & qemu#2 rand-read-32 from 0.5s\n")
        .unwrap_or_else(|| panic!("{shown}"));
    let part: Vec<&str> = shown[at..].lines().skip(1).take(4).collect();
    // The two are judged by different figures, so the cell shows that of its first actor.
    assert!(part[0].contains("282 MB/s") && part[0].contains("45% ("), "{part:#?}");
    assert!(
        part[1].starts_with("    1: qemu ") && part[1].contains("282 MB/s") && part[1].contains("45% ("),
        "{part:#?}"
    );
    assert!(part[2].starts_with("    2: qemu#2 rand-read-32 from 0.5s"), "{part:#?}");
    assert!(part[3].contains("13.8k IOPS") && part[3].contains("20% ("), "{part:#?}");
    for (form, shown) in forms(&Report::of(&run)) {
        assert!(shown.contains("rand-read-32 from 0.5s") && shown.contains("13.8k IOPS"), "{form}");
    }
}

fn lines(run: &Run) -> Vec<serde_json::Value> {
    export(run, Format::Pkb).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn other_tools_get_every_figure_that_is_compared() {
    let run = figures::run("");
    let of = |cell: &str| -> BTreeSet<(String, String)> {
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let mine = lines(&run).into_iter().filter(|l| l["metadata"]["cell"] == cell);
        mine.map(|l| (word(&l["metric"]), word(&l["unit"]))).collect()
    };
    let pairs =
        |all: &[(&str, &str)]| all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<BTreeSet<_>>();
    let wanted = [
        ("bandwidth", "bits/second"),
        ("loss", "ratio"),
        ("delay_mean", "seconds"),
        ("delay_p50", "seconds"),
        ("delay_p99", "seconds"),
        ("rate_in", "packets/second"),
        ("rate_out", "packets/second"),
    ];
    assert_eq!(of("veth.host/native/udp [mtu=1500]"), pairs(&wanted));
    let hashes = ["hashes", "hashes_1", "hashes_2"].map(|name| (name, "operations/second"));
    let two = "machine/qemu/hashes & machine/qemu#2/hashes@0.25s~0.5s";
    assert_eq!(of(two), pairs(&[&hashes[..], &[("fairness", "ratio")]].concat()));

    let drawn: serde_json::Value = serde_json::from_str(&export(&run, Format::GithubActionBenchmark)).unwrap();
    let drawn = drawn.as_array().unwrap();
    let unit = |name: &str| drawn.iter().find(|d| d["name"] == name).map(|d| d["unit"].as_str().unwrap());
    assert_eq!(unit("veth.host/native/udp [mtu=1500]"), Some("Mbit/s"));
    assert_eq!(unit(two), Some("operations/second"));
    // In that format more is better, so a latency is given as its share alone.
    assert_eq!(unit("machine/qemu/wakeups"), None);
    assert_eq!(unit("machine/qemu/wakeups share of native"), Some("%"));
    let like: serde_json::Value =
        serde_json::from_str(&export(&figures::run(BASELINES[1]), Format::GithubActionBenchmark)).unwrap();
    let names: Vec<&str> = like.as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|n| n.ends_with(" share of baseline")) && !names.iter().any(|n| n.contains("native")));

    let csv = export(&run, Format::Csv);
    let (head, rows) = csv.split_once("\r\n").unwrap();
    assert!(head.ends_with(",marks,cell,figure,unit,value"), "{head}");
    let column = |name: &str| head.split(',').position(|c| c == name).unwrap();
    let (bytes, value) = (column("read_bytes"), column("value"));
    let machine = rows.lines().find(|l| l.contains(",machine/qemu/wakeups,")).unwrap();
    let fields: Vec<&str> = machine.split(',').collect();
    assert_eq!((fields[column("target")], fields[bytes], fields[column("device_queue_depth")]), ("machine", "", ""));
    assert_eq!((fields[value - 2], fields[value - 1]), ("latency", "seconds"));
    assert!(fields[value].parse::<f64>().unwrap() < 200e-6, "{machine}");
    let both = rows.lines().find(|l| l.contains(two)).unwrap();
    let sum: f64 = both.rsplit(',').next().unwrap().parse().unwrap();
    assert!(sum > 1.1e6, "of several actors the sum: {both}");
}

/// A store with the three runs, and the first one half as fast.
fn stocked() -> StateDir {
    let state = StateDir::new();
    for baseline in BASELINES {
        common::store_run(&state.store(), &figures::run(baseline));
    }
    let mut slow = figures::run("");
    for sample in &mut slow.samples {
        let judged = |name: &str| ["bandwidth", "latency", "hashes"].contains(&name);
        let results = std::iter::once(&mut sample.result).chain(&mut sample.beside);
        for reading in results.flat_map(|r| &mut r.figures).filter(|r| judged(&r.figure)) {
            match &mut reading.value {
                vmio_model::figure::Value::Scalar(value) => *value /= 2.0,
                vmio_model::figure::Value::Distribution(d) => d.percentiles.iter_mut().for_each(|(_, v)| *v *= 2.0),
            }
        }
    }
    common::store_run(&state.store(), &slow);
    state
}

#[test]
fn a_stored_run_is_listed_shown_and_compared() {
    let state = stocked();
    let list = state.vmio(&["runs", "list"]).with(0).out;
    assert_eq!(list.lines().filter(|l| l.contains("figures ")).count(), 4, "{list}");
    let json = state.vmio(&["runs", "show", "1", "--json"]).with(0).json();
    let cell = |json: &serde_json::Value, key: &str| {
        json["cells"].as_array().unwrap().iter().find(|c| c["key"] == key).unwrap_or_else(|| panic!("{key}")).clone()
    };
    let udp = cell(&json, "veth.host/qemu/virtio-net+vhost+q2/udp [mtu=1500]");
    assert_eq!((&udp["figure"], &udp["device"]), (&"bandwidth".into(), &serde_json::Value::Null));
    assert!(udp.get("bandwidth_bytes_per_second").is_none(), "that is a disk's: {udp}");
    let names: Vec<&str> = udp["figures"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bandwidth", "loss", "delay", "rate", "rate", "sent", "retransmits"]);
    assert_eq!(udp["cell"]["subject"]["path"]["nic"]["queues"], 2);
    let delay = &udp["figures"][2];
    let recorded: Vec<f64> =
        delay["percentiles"].as_array().unwrap().iter().map(|p| p["percentile"].as_f64().unwrap()).collect();
    assert_eq!(recorded, [50.0, 90.0, 99.0, 99.9], "{delay}");
    let of = |value: &serde_json::Value| value["value"].as_f64().unwrap();
    let median = of(&delay["percentiles"][0]);
    assert_eq!(median, of(&delay["typical"]));
    assert!((of(&delay["percentiles"][3]) / median - 6.0).abs() < 1e-9 && delay["percentiles"][3]["n"] == 8, "{delay}");
    assert!((of(&delay["mean"]) / median - 1.1).abs() < 1e-9, "{delay}");
    assert!(udp["figures"][0].get("percentiles").is_none() && udp["figures"][0].get("mean").is_none());
    let compared = state.vmio(&["runs", "compare", "1", "4"]).with(0).out;
    is_narrow(&compared);
    let verdicts: BTreeSet<bool> =
        compared.lines().filter(|l| l.contains('–')).map(|l| l.contains(" slower ")).collect();
    let words = unfolded(&compared);
    assert!(
        words.contains("Of latency less is better: there it is run 1 / run 4, so that above 1 is faster."),
        "{compared}"
    );
    assert_eq!(verdicts, BTreeSet::from([true]), "twice the latency is slower, as half the rate is: {compared}");
    // A cell against itself.
    let run = state.store().load(1).unwrap();
    let noise = serde_json::to_value(noise::Document::of(&run)).unwrap();
    assert_eq!(noise["noise"].as_array().unwrap().len(), Report::of(&run).summary.cells.len());
}

/// The examples of the documentation are what is printed.
#[test]
fn documented_cells_and_figures_are_read() {
    let docs = include_str!("../../../docs/runs.md");
    let mut blocks = docs.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
    let cell: Cell = serde_json::from_str(blocks.next().unwrap()).unwrap();
    assert!(docs.contains(&format!("`{}`", cell.key())), "{}", cell.key());
    let again = serde_json::to_value(&cell).unwrap();
    assert_eq!(again["beside"][0]["start_milliseconds"], 500, "{again}");
    let figures: Vec<FigureRow> = serde_json::from_str(&format!("[{}]", blocks.next().unwrap())).unwrap();
    assert_eq!(figures.iter().map(|f| f.at(99.0).is_some()).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn without_a_finding_there_is_nothing_to_prove() {
    let state = StateDir::new();
    // `--prove` measures again, so the study must be one that this vmio has.
    let known = vmio::studies::named("network-quick").unwrap();
    common::store_run(&state.store(), &Run { study: known, ..figures::run("") });
    state.vmio(&["tax", "--prove", "--of", "1", "--yes"]).with(4).says(&["nothing to prove", "is partial"]);
    let unknown = state.vmio(&["tax", "--prove=host-page-cache", "--of", "1"]).with(2);
    unknown.says(&["run 1 has no finding host-page-cache"]);
}
