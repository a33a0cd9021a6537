//! A run that is not about disks, through every form in which a run is shown: paths judged by bits a second, a
//! machine judged by a latency, cells of two actors, and studies with another baseline or none.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::bed::unfolded;
use crate::help::figures;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use figures::BASELINES;
use vmio::report::export::{Format, export};
use vmio::report::{self, Report};
use vmio::run::noise;
use vmio::store::Store;
use vmio::term::Style;
use vmio_model::cell::{Cell, Side, Subject};
use vmio_model::figure::{Better, Figure, RUN, Reading, Unit};
use vmio_model::result::{Accel, BUSY, CACHED_AFTER, CACHED_BEFORE, ProbeResult, STOLEN, Watched};
use vmio_model::run::Run;
use vmio_model::summary::FigureRow;

/// Words that mean something on disks alone.
const OF_DISKS: [&str; 8] =
    ["avgrq-sz", "avgqu-sz", "%util", "not visible here", "At the device", "Target", "MB/s", "p50     p99"];

fn text(run: &Run) -> String {
    report::text(&Report::of(run), Style::PLAIN)
}

/// The forms that a person reads.
fn forms(run: &Run) -> [(&'static str, String); 3] {
    let report = Report::of(run);
    let markdown = report::markdown(&report).replace('\\', "").replace("&amp;", "&");
    [("text", text(run)), ("markdown", markdown), ("html", report::html(&report))]
}

#[test]
fn every_form_shows_the_figures_that_are_compared_and_no_disk() {
    for baseline in BASELINES {
        for (form, shown) in forms(&figures::run(baseline)) {
            for word in ["Gbit/s", "loss", "delay", "packets/s", "fairness", "op/s", "qemu#2"] {
                assert!(shown.to_lowercase().contains(&word.to_lowercase()), "{form}, {baseline}: {word}\n{shown}");
            }
            assert!(!shown.contains("NaN") && !shown.contains("inf"), "{form}, {baseline}");
            // Nothing counts requests here, so there is no column for them.
            assert!(!shown.contains("CPU/req") && !shown.contains("each request"), "{form}, {baseline}: {shown}");
            for word in OF_DISKS.iter().filter(|word| form != "html" || **word != "MB/s") {
                assert!(!shown.contains(word), "{form}, {baseline}: {word}\n{shown}");
            }
        }
        let shown = text(&figures::run(baseline));
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.contains("\n  programs              iperf3: iperf 3.12 (cJSON 1.7.15)\n"), "{shown}");
        assert!(shown.contains("\nPath veth.host\n") && shown.contains("\nThe machine itself\n"), "{shown}");
        // It is named as its workload names it.
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let meaning = "CPU s/GB: CPU time of the whole host for each GB sent. QEMU s/GB, by thread: vcpu";
        assert!(words.contains(meaning) && !words.contains("moved"), "{shown}");
        // What was done is no figure to compare: it is among the raw ones alone.
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
    for (form, shown) in forms(&run) {
        assert!(shown.contains("retransmits") && shown.contains("12.0"), "{form}: {shown}");
    }
    let shown = text(&run);
    let row = shown.lines().find(|line| line.starts_with("    retransmits ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..], ["12.0"], "no share: {row}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn names_of_paths_are_explained_where_there_are_any() {
    let told =
        "A path is named network.peer: veth.host goes over the network veth to the peer host (docs/networks.md).";
    for (form, shown) in forms(&figures::run("")) {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown.matches(told).count(), 1, "{form}: {shown}");
    }
    for (form, shown) in forms(&crate::common::run(Accel::Kvm)) {
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
    let mut run = crate::common::run(Accel::Kvm);
    let cell = run.samples[0].cell.clone();
    let first = run.samples.iter_mut().find(|s| s.cell == cell && s.round == 0).unwrap();
    first.result.amend(|work| work.seconds *= 50.0);
    let report = Report::of(&run);
    assert_eq!(report.summary.cell(&cell.key()).unwrap().outlier_rounds, [0]);
    for (form, shown) in forms(&run) {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
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
        run.environment.accel = Some(vmio_model::result::Accel::Tcg);
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
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let markdown = report::markdown(&Report::of(&run));
    assert_eq!(markdown.matches("## udp on paths bridge.host, uplink.host\n").count(), 1, "{markdown}");
    assert!(!markdown.contains("on path veth.host\n"), "{markdown}");
    // One table has one scale: what is less is drawn shorter.
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
    for (form, shown) in forms(&native) {
        assert!(shown.to_lowercase().contains("share of native") && !shown.contains("baseline of a cell"), "{form}");
    }
    for (form, shown) in forms(&like) {
        let head = if form == "text" { "of its baseline" } else { "share of baseline" };
        assert!(shown.to_lowercase().contains(head), "{form}: {shown}");
        assert!(!shown.contains("share of native") && !shown.contains("guest/native"), "{form}: {shown}");
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("The baseline of a cell is the same with mtu=1500, nobody beside."), "{form}");
        assert!(words.contains("the share is that of the first actor"), "{form}: {shown}");
    }
    for (form, shown) in forms(&none) {
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
    // What is to be pasted from findings is not broken.
    let tables = &shown[..shown.find("\nFindings\n").unwrap()];
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{tables}");
    let at = shown
        .find("  qemu virtio-blk,none,native & qemu#2 rand-read-32 from 0.5s\n")
        .unwrap_or_else(|| panic!("{shown}"));
    let part: Vec<&str> = shown[at..].lines().skip(1).take(4).collect();
    // What they are judged by is not the same, so nothing is added up: the leading one's stands for the cell.
    assert!(part[0].contains("282 MB/s") && part[0].contains("45% ("), "{part:#?}");
    assert!(
        part[1].starts_with("    1: qemu ") && part[1].contains("282 MB/s") && part[1].contains("45% ("),
        "{part:#?}"
    );
    assert!(part[2].starts_with("    2: qemu#2 rand-read-32 from 0.5s"), "{part:#?}");
    assert!(part[3].contains("13.8k IOPS") && part[3].contains("20% ("), "{part:#?}");
    for (form, shown) in forms(&run) {
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
    // More is better in that file: of a latency there is the share alone.
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

/// A store with the three runs, and the last one half as fast.
fn stocked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    for baseline in BASELINES {
        common::store_run(&store, &figures::run(baseline));
    }
    let mut slow = figures::run("");
    for sample in &mut slow.samples {
        let judged = |name: &str| ["bandwidth", "latency", "hashes"].contains(&name);
        let results = std::iter::once(&mut sample.result).chain(&mut sample.beside);
        for reading in results.flat_map(|r| &mut r.figures).filter(|r| judged(&r.figure)) {
            match &mut reading.value {
                vmio_model::figure::Value::Scalar(value) => *value /= 2.0,
                vmio_model::figure::Value::Distribution(d) => d.percentiles.iter_mut().for_each(|(_, v)| *v *= 2.0),
                vmio_model::figure::Value::Series(_) => unreachable!(),
            }
        }
    }
    common::store_run(&store, &slow);
    dir
}

fn vmio(state: &Path, args: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    let output = command.args(args.split(' ')).arg("--state").arg(state).output().unwrap();
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_stored_run_is_listed_shown_and_compared() {
    let dir = stocked();
    let list = vmio(dir.path(), "runs list");
    assert_eq!(list.lines().filter(|l| l.contains("figures ")).count(), 4, "{list}");
    let json: serde_json::Value = serde_json::from_str(&vmio(dir.path(), "runs show 1 --json")).unwrap();
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
    let compared = vmio(dir.path(), "runs compare 1 4");
    assert!(compared.lines().all(|l| l.chars().count() <= 80), "{compared}");
    let verdicts: BTreeSet<bool> =
        compared.lines().filter(|l| l.contains('–')).map(|l| l.contains(" slower ")).collect();
    let words = compared.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Of latency less is better: there it is run 1 / run 4, so that above 1 is faster."),
        "{compared}"
    );
    assert_eq!(verdicts, BTreeSet::from([true]), "twice the latency is slower, as half the rate is: {compared}");
    // A cell against itself.
    let run = Store::open_existing(&dir.path().join("vmio.db")).unwrap().load(1).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    // A proof is measured with the programs there are, so the study must be of these.
    let known = vmio::studies::named("network-quick").unwrap();
    common::store_run(&store, &vmio_model::run::Run { study: known, ..figures::run("") });
    let prove = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        let output = command.args(args).arg("--state").arg(dir.path()).output().unwrap();
        (output.status.code(), unfolded(&String::from_utf8(output.stderr).unwrap()))
    };
    let (code, said) = prove(&["tax", "--prove", "--of", "1", "--yes"]);
    assert!(code == Some(0) && said.contains("nothing to prove"), "{code:?} {said}");
    let (code, said) = prove(&["tax", "--prove=host-page-cache", "--of", "1"]);
    assert!(code == Some(2) && said.contains("run 1 has no finding host-page-cache"), "{code:?} {said}");
}

/// What is told cell by cell: the host's page cache, where any disk was in it, and runs on end by their number.
#[test]
fn the_page_cache_and_runs_on_end_are_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    let forms = |run: &Run| {
        let report = Report::of(run);
        [report::text(&report, Style::PLAIN), report::markdown(&report), report::html(&report)]
    };
    assert!(forms(&run).iter().all(|text| !text.contains("page cache\n") && !text.contains("Runs on end")));
    let workload = run.samples[0].cell.workload().to_owned();
    let traits = run.workloads.iter_mut().find(|w| w.name == workload).unwrap();
    traits.figures.push(Figure::rate("buffered", Unit::BytesPerSecond).by(&[RUN]));
    for sample in run.samples.iter_mut().filter(|sample| sample.cell.workload() == workload) {
        let on_end = |(n, rate): (&str, f64)| Reading::scalar("buffered", rate).with(RUN, n);
        sample.result.figures.extend([("1", 7e6), ("2", 84e6)].map(on_end));
        let held = [(CACHED_BEFORE, 0.0), (CACHED_AFTER, f64::from(384 << 20))];
        let held = held.map(|(name, bytes)| Reading::scalar(name, bytes)).into();
        sample.seen.push(ProbeResult::here(Watched::PageCache("device".into()), "page-cache", held));
    }
    for text in forms(&run) {
        for says in ["The host's page cache", "384 MiB", "Runs on end", "7.00 MB/s", "84.0 MB/s"] {
            assert!(text.replace("&#39;", "'").contains(says), "{says}: {text}");
        }
    }
    let [text, ..] = forms(&run);
    let tables = text.split("The host's page cache").nth(1).and_then(|rest| rest.split("Findings").next()).unwrap();
    assert!(tables.lines().all(|line| line.chars().count() <= 80), "{tables}");
}

/// What another machine gives may change while a run lasts: every form says when, and from what to what.
#[test]
fn where_another_machine_gives_less_from_some_time_on_is_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    let mut sample = run.samples.remove(0);
    sample.cell.lead.side = Side::of("ssh");
    let of_round = |round: u32| {
        let mut sample = sample.clone();
        (sample.round, sample.started_unix) = (round, run.started_unix + 60.0 * f64::from(round));
        let slower = if round < 7 { 1.0 } else { 4.0 };
        sample.result.amend(|work| work.seconds *= slower * (1.0 + 0.01 * f64::from(round % 3)));
        sample
    };
    run.samples = (0..12).map(of_round).collect();
    for (form, shown) in forms(&run) {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown.matches("changed 7 min 0 s into the run:").count(), 1, "{form}: {shown}");
    }
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let over_time = &summary["cells"][0]["over_time"];
    assert_eq!(over_time["moments"].as_array().unwrap().len(), 12);
    assert_eq!(over_time["knees"][0]["at_seconds"], 420.0);
    run.samples.truncate(7);
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("into the run:")));
}

/// What the wire carried stands beside what the program says, and how idle the host was with the cells on a network and on
/// the processor, natively too.
#[test]
fn the_wire_and_how_idle_the_host_was_are_in_every_form() {
    let mut run = figures::run("");
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("What the wire carried") && !shown.contains("idle")));
    let cpus = f64::from(run.environment.cpus);
    for sample in &mut run.samples {
        let native = sample.cell.is_native();
        let of = ProbeResult::here;
        let link = |name: &str, value: f64, way: &str| Reading::scalar(name, value).with("way", way);
        let mut tap = vec![Reading::scalar("seconds", 2.0)];
        tap.extend([
            link("bytes", 5e8, "received"),
            link("packets", 60_000.0, "received"),
            link("dropped", 7.0, "received"),
        ]);
        tap.extend([link("bytes", 1e6, "sent"), link("packets", 20_000.0, "sent"), link("dropped", 0.0, "sent")]);
        let busy = if native { 0.04 } else { 0.5 } * 2.0 * cpus;
        sample
            .seen
            .retain(|seen| !seen.node.is_empty() || !matches!(seen.watched, Watched::Processors | Watched::Link(_)));
        sample.seen.push(of(
            Watched::Processors,
            "cpu",
            vec![Reading::scalar(BUSY, busy), Reading::scalar(STOLEN, 0.0)],
        ));
        sample.seen.push(of(Watched::Others, "others", vec![Reading::scalar("seconds", 2.0)]));
        if matches!(sample.cell.lead.subject, Subject::Path { .. }) {
            sample.seen.push(of(Watched::Link(if native { "br0" } else { "tap1" }.into()), "link", tap));
        }
    }
    for (form, shown) in forms(&run) {
        // 500 MB in two seconds, 80,000 packets both ways.
        for says in
            ["What the wire carried", "tap1", "br0", "2.00 Gbit/s", "40.0k", "4.00 Mbit/s", "96 %", "50 %", "idle"]
        {
            assert!(shown.contains(says), "{form}: {says} in {shown}");
        }
        // Where there are counters: not with what is on the processor alone.
        let table = shown.split("What the wire carried").nth(1).unwrap().split("What ").next().unwrap();
        assert!(!table.contains("machine/"), "{form}: {table}");
    }
    let shown = text(&run);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let cells = summary["cells"].as_array().unwrap();
    let of = |key: &str| cells.iter().find(|cell| cell["key"].as_str().unwrap().starts_with(key)).unwrap();
    let (guest, native) = (of("veth.host/qemu/virtio-net"), of("veth.host/native"));
    assert_eq!(guest["wires"][0]["link"], "tap1");
    assert_eq!(guest["wires"][0]["received"]["bytes_per_second"]["value"], 2.5e8);
    assert_eq!(guest["wires"][0]["received"]["dropped_packets"]["value"], 7.0);
    for (cell, idle) in [(guest, 0.5), (native, 0.96)] {
        assert!((cell["cpu"]["host_idle_ratio"].as_f64().unwrap() - idle).abs() < 1e-9, "{}", cell["cpu"]);
    }
    assert!(of("machine/qemu").get("wires").is_none());
}

/// What a new probe sees needs no table of its own: it is in every form, in its unit.
#[test]
fn what_else_was_seen_is_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("What else was seen")));
    let units = [("energy", Unit::Joules), ("power", Unit::Watts), ("misses", Unit::PacketsPerSecond)];
    let units = BTreeMap::from(units.map(|(name, unit)| (name.to_owned(), unit)));
    for sample in &mut run.samples {
        let of = |figure: &str, value: f64| Reading::scalar(figure, value).with("domain", "package-0");
        let figures = vec![of("energy", 123.0), of("power", 61.5), Reading::scalar("misses", 123_456.0)];
        let seen = ProbeResult::here(Watched::Other("powercap".into()), "powercap", figures);
        sample.seen.push(ProbeResult { units: units.clone(), ..seen });
    }
    for (form, shown) in forms(&run) {
        let rows = ["powercap: energy package-0", "123 J", "61.5 W", "powercap: misses, packets/s", "123k"];
        for says in ["What else was seen"].into_iter().chain(rows) {
            assert!(shown.contains(says), "{form}: {says} in {shown}");
        }
    }
    let shown = text(&run);
    let table = shown.split("What else was seen").nth(1).unwrap().split("Findings").next().unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let seen = &summary["cells"][0]["seen"][0];
    let energy = &seen["figures"][0];
    assert_eq!(seen["watched"]["other"], "powercap");
    assert_eq!(energy["name"], "energy");
    assert_eq!(energy["labels"]["domain"], "package-0");
    assert_eq!(energy["unit"], "joules");
    assert_eq!(energy["mean"]["value"], 123.0);
}
