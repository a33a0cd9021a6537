//! Messages for mistakes in studies.

use vmio_model::study::Study;

use super::{SMALL, all_names, disks, no_disks, problems};

/// The problems of a study with these cells, without the file's name.
fn said(head: &str, cells: &str) -> Vec<String> {
    let read = Study::parse("bad.toml", &format!("{head}{cells}"), &all_names());
    let all = read.err().map(|refused| refused.problems).unwrap_or_default();
    all.iter().map(|p| p.to_string().strip_prefix("bad.toml:").unwrap().to_owned()).collect()
}

/// The only problem of a study.
fn one(head: &str, cells: &str) -> String {
    let all = said(head, cells);
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0].clone()
}

/// All blocks' problems are found in one pass.
#[test]
fn all_problems_of_a_file_are_told_at_once() {
    let text = SMALL
        .replacen("sides = [\"qemu\"]", "sides = [\"qemo\"]", 1)
        .replacen("disks.targets", "targets", 1)
        .replacen("disks.drivers = [\"lsi53c895a\"", "disks.drivers = [\"lsi53c895\"", 1)
        .replacen("vcpus = 1", "vcpus = 0", 1)
        + r#"[[cell]]
actors = [
  { side = "qemu", disk = { target = "devise", drivers = "virtio-blk" }, workload = "seq-wrte" },
  { side = "native", nth = 65, disk = { target = "device", cache = "none" }, workload = "seq-read" },
]
settings = { swap = "off" }
"#;
    let there = "(there is dd-write, dd-read, seq-write, seq-read, rand-read-1, rand-read-32, rand-write-1, \
                 rand-write-32, durable-append), and job-<n> like job-7";
    assert_eq!(
        problems(&text),
        [
            "bad.toml:18: matrix.targets: unknown key; there is sides, shapes, disks, paths, machine, workloads, settings"
                .to_owned(),
            "bad.toml:28: cell.actors.disk.drivers: unknown key; did you mean `driver`? (there is target, state, \
             driver, cache, aio, iothread, options)"
                .to_owned(),
            "bad.toml:4: guest.vcpus: 0 is out of range: 1 to 1024".to_owned(),
            "bad.toml:17: matrix.sides: unknown entry `qemo`; did you mean `qemu`? (there is native, qemu)".to_owned(),
            "bad.toml:19: matrix.disks.targets: missing".to_owned(),
            "bad.toml:19: matrix.disks.drivers: unknown entry `lsi53c895`; did you mean `lsi53c895a`? (there is lsi53c895a, \
             virtio-blk)"
                .to_owned(),
            "bad.toml:28: cell.actors.disk.target: unknown entry `devise`; did you mean `device`? (there is device, \
             sparse, preallocated, served)"
                .to_owned(),
            "bad.toml:28: cell.actors.disk.driver: missing".to_owned(),
            format!("bad.toml:28: cell.actors.workload: unknown entry `seq-wrte`; did you mean `seq-write`? {there}"),
            "bad.toml:29: cell.actors.nth: 65 is out of range: 1 to 64".to_owned(),
            "bad.toml:29: cell.actors.disk.cache: says something of a guest, and this is native".to_owned(),
            "bad.toml:31: cell.settings.swap: unknown setting; there is none".to_owned(),
        ]
    );
}

#[test]
fn what_is_worked_on_is_one_sort() {
    let what = "name what is worked on, and one sort of it: disks, paths or machine = true";
    let head = no_disks();
    let of = |lines: &str| one(&head, &format!("[[matrix]]\nsides = [\"native\"]\n{lines}\n"));
    assert_eq!(of("workloads = [\"openssl\"]"), format!("13: matrix: {what}"));
    assert_eq!(of("machine = false\nworkloads = [\"openssl\"]"), format!("13: matrix: {what}"));
    let what = "name what is worked on, and one thing: disk, path or machine = true";
    let of = |actor: &str| one(&head, &format!("[[cell]]\nactors = [\n{{ side = \"native\", {actor} }},\n]\n"));
    assert_eq!(of("workload = \"openssl\""), format!("15: cell.actors: {what}"));
    assert!(one(&head, "[[cell]]\nactors = []\n").contains("14: cell.actors: is empty; name at least one"));
    assert!(one(&head, "[[cell]]\nactors = [3]\n").contains("cell.actors: must be a table like { side = "));
    assert_eq!(said(&head, "[[cell]]\nsettings = {}\n"), ["13: cell.actors: missing"]);
}

#[test]
fn a_workload_stands_where_it_can_work() {
    let of = |lines: &str| one(&no_disks(), &format!("[[matrix]]\nsides = [\"native\"]\n{lines}\n"));
    assert_eq!(
        of("machine = true\nworkloads = [\"openssl\", \"iperf3\"]"),
        "16: matrix.workloads: `iperf3` works on a path of a network, not on the machine itself"
    );
    assert_eq!(
        of("machine = true\nworkloads = [\"seq-read\"]"),
        "16: matrix.workloads: `seq-read` works on a disk, not on the machine itself"
    );
    let on_disk =
        "[[matrix]]\nsides = [\"native\"]\ndisks.targets = [\"device\"]\nworkloads = [\"job-7\", \"openssl\"]\n";
    assert_eq!(one(&disks(), on_disk), "19: matrix.workloads: `openssl` works on the machine itself, not on a disk");
    // A family's member works on the family's subject.
    assert!(of("machine = true\nworkloads = [\"job-7\"]").contains("`job-7` works on a disk, not on the machine"));
}

/// Sizes and a write budget are required where a cell is on a disk, and refused where none is.
#[test]
fn only_studies_of_disks_have_sizes_and_a_write_budget() {
    let machine = "[[matrix]]\nsides = [\"native\"]\nmachine = true\nworkloads = [\"openssl\"]\n";
    assert_eq!(
        said(&disks(), machine),
        ["6: size: no cell is on a disk: drop it", "15: repeat.max_gib_written: no cell is on a disk: drop it"]
    );
    assert!(Study::parse("x.toml", &(no_disks() + machine), &all_names()).is_ok());
    let on_disk = "[[cell]]\nactors = [{ side = \"native\", machine = true, workload = \"openssl\" }, \
                   { side = \"native\", disk = { target = \"device\" }, workload = \"seq-read\" }]\n";
    assert_eq!(
        said(&no_disks(), on_disk),
        ["1: size: missing; add a section [size]", "6: repeat.max_gib_written: missing"]
    );
    assert!(Study::parse("x.toml", &(disks() + on_disk), &all_names()).is_ok());
    // Other mistakes do not add a demand for a size.
    assert_eq!(said(&no_disks(), &machine.replace("native", "nativ")).len(), 1);
}

#[test]
fn settings_are_known_by_name_and_value() {
    let head = no_disks();
    let of = |settings: &str| {
        one(
            &head,
            &format!("[[matrix]]\nsides = [\"native\"]\nmachine = true\nworkloads = [\"openssl\"]\n{settings}\n"),
        )
    };
    assert_eq!(
        of("settings = { read_ahead = [\"1k\", \"2k\"] }"),
        "17: matrix.settings.read_ahead: unknown setting; did you mean `read-ahead`? (there is read-ahead, mtu)"
    );
    assert_eq!(
        of("settings = { read-ahead = [\"128k\", \"large\"] }"),
        "17: matrix.settings.read-ahead: `large` is no size like 128k"
    );
    assert!(of("settings = { read-ahead = [\"128\", \"128k\"] }").contains("read-ahead: is named twice"));
    assert!(of("settings = { read-ahead = [128] }").contains("read-ahead: must be a string, not a whole number"));
    assert!(of("settings = { read-ahead = \"128k\" }").contains("read-ahead: must be a list, not a string"));
    assert!(of("settings = { read-ahead = [] }").contains("read-ahead: is empty; name at least one"));
    assert!(of("settings = [\"read-ahead\"]").contains("matrix.settings: must be a table, not a list"));
    let named = "[[cell]]\nactors = [{ side = \"native\", machine = true, workload = \"openssl\" }]\n";
    assert!(
        one(&head, &format!("{named}settings = {{ mtu = [\"1500\"] }}\n"))
            .contains("cell.settings.mtu: must be a string")
    );
}

#[test]
fn actors_are_held_to_what_they_are() {
    let of = |actor: &str| one(&disks(), &format!("[[cell]]\nactors = [\n{{ {actor} }},\n]\n"));
    let disk = "disk = { target = \"device\", driver = \"virtio-blk\" }";
    assert_eq!(of(&format!("side = \"qemu\", {disk}")), "18: cell.actors.workload: missing");
    assert_eq!(of(&format!("{disk}, workload = \"seq-read\"")), "18: cell.actors.side: missing");
    let with = |more: &str| of(&format!("side = \"qemu\", {disk}, workload = \"seq-read\", {more}"));
    assert!(
        of("side = \"native\", disk = { target = \"device\", state = \"warm-guest\" }, workload = \"seq-read\"")
            .ends_with("cell.actors.disk.state: says something of a guest, and this is native")
    );
    let warm = disk.replace("\"device\"", "\"device\", state = \"warm\"");
    assert!(
        of(&format!("side = \"qemu\", {warm}, workload = \"seq-read\""))
            .contains("disk.state: unknown entry `warm`; did you mean `warm-")
    );
    assert!(with("nth = 0").ends_with("cell.actors.nth: 0 is out of range: 1 to 64"));
    let bad = format!("side = \"qemu\", {disk}, workload = \"seq-read\", start_seconds = -1, seconds = 0");
    let both = said(&disks(), &format!("[[cell]]\nactors = [\n{{ {bad} }},\n]\n"));
    assert_eq!(both.len(), 2, "{both:#?}");
    assert!(with("start_seconds = -1").ends_with("cell.actors.start_seconds: -1 is out of range: 0 to 3600"));
    assert!(with("seconds = 0").ends_with("cell.actors.seconds: 0 is out of range: 0.1 to 3600"));
    assert!(with("shape = { memory_mib = 64 }").contains("cell.actors.shape.memory_mib: 64 is out of range: 192 to"));
    assert!(with("shape = { kernel = \"a b\" }").contains("cell.actors.shape.kernel: `a b` has characters other than"));
    assert!(with("shape = { cpus = 2 }").contains("cell.actors.shape.cpus: unknown key"));
    let most = with("shape = { memory_mib = 600 }");
    assert!(
        most.starts_with("7: size.target_mib: 1024 is too small") && most.contains("largest guest (1200)"),
        "{most}"
    );
    let path = "path = { network = \"vet\", peer = \"host\", nic = \"e1000\" }";
    assert_eq!(
        said(
            &no_disks(),
            &format!("[[cell]]\nactors = [\n{{ side = \"native\", {path}, workload = \"iperf3\" }}\n]\n")
        ),
        [
            "15: cell.actors.path.network: unknown entry `vet`; did you mean `veth`? (there is veth, bridge)",
            "15: cell.actors.path.nic: says something of a guest, and this is native",
        ]
    );
    let third = |end: &str| {
        let path = format!("path = {{ network = \"veth\", peer = \"host\", {end} }}");
        said(&no_disks(), &format!("[[cell]]\nactors = [\n{{ side = \"native\", {path}, workload = \"iperf3\" }}\n]\n"))
    };
    assert_eq!(third("co_sender = \"far\""), [""; 0]);
    assert!(third("co_sender = \"fra\"")[0].contains("cell.actors.path.co_sender: unknown entry `fra`"));
    assert!(third("co_senders = \"far\"")[0].contains("unknown key; did you mean `co_sender`?"));
    let shapes = "[[matrix]]\nsides = [\"native\"]\nshapes = [{ vcpus = 2, machine = \"pc\" }]\nmachine = true\nworkloads = [\"openssl\"]\n";
    assert_eq!(one(&no_disks(), shapes), "15: matrix.shapes.machine: says something of a guest, and this is native");
}

const GUESTS: &str = r#"[[matrix]]
sides = ["qemu"]
disks.targets = ["device", "sparse"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-write"]
"#;

#[test]
fn a_baseline_is_a_word_or_says_what_is_put_in_the_place_of_what() {
    let of = |baseline: &str| said(&format!("baseline = {baseline}\n{}", disks()), GUESTS);
    assert_eq!(of("\"nativ\""), ["1: baseline: unknown entry `nativ`; did you mean `native`? (there is native, none)"]);
    assert_eq!(of("3"), ["1: baseline: must be `native`, `none` or a section [baseline.like], not a whole number"]);
    assert_eq!(of("{}"), ["1: baseline.like: missing"]);
    assert_eq!(of("{ like = \"sparse\" }"), ["1: baseline.like: must be a table, not a string"]);
    assert_eq!(
        of("{ like = { target = \"spars\", alone = 1, workload = \"seq-wrte\", driver = \"ahci\", settings = { mtu = 1 } } }")
            .iter()
            .map(|said| said.split([';', '`']).next().unwrap())
            .collect::<Vec<_>>(),
        [
            "1: baseline.like.driver: unknown key",
            "1: baseline.like.target: unknown entry ",
            "1: baseline.like.workload: unknown entry ",
            "1: baseline.like.alone: must be true or false, not 1",
            "1: baseline.like.settings.mtu: must be a string, not a whole number",
        ]
    );
}

#[test]
fn a_baseline_that_makes_no_sense_is_refused() {
    let of = |like: &str, cells: &str| said(&format!("baseline.like = {like}\n{}", disks()), cells);
    let nothing = "1: baseline.like: no cell differs from its baseline, so nothing is compared: write baseline = \
                   \"none\"";
    assert_eq!(of("{}", GUESTS), [nothing]);
    assert_eq!(of("{ alone = true }", GUESTS), [nothing]);
    assert_eq!(of("{ network = \"veth\" }", GUESTS), [nothing]);
    assert_eq!(
        of("{ side = \"qemu\" }", &GUESTS.replace("[\"qemu\"]", "[\"native\", \"qemu\"]")),
        ["1: baseline.like.side: gives device/native/seq-write a guest that sees its subject by no device: leave \
          native sides out"]
    );
    assert_eq!(
        of("{ workload = \"openssl\" }", GUESTS),
        ["1: baseline.like.workload: `openssl` does not work on what \
          device/qemu/virtio-blk,none,native/seq-write works on"]
    );
    assert!(of("{ target = \"sparse\" }", GUESTS).is_empty(), "one of two differs");
    // The figure that judges a cell must be measured by its baseline, not the other way round.
    let crypt = |workload: &str, base: &str| {
        let cells = format!("[[matrix]]\nsides = [\"qemu\"]\nmachine = true\nworkloads = [\"{workload}\"]\n");
        said(&format!("{}\n[baseline.like]\n# of openssl\nworkload = \"{base}\"\n", no_disks()), &cells)
    };
    assert_eq!(
        crypt("openssl", "openssl-aes-256-cbc"),
        [
            "16: baseline.like.workload: `openssl-aes-256-cbc` does not measure the signs that `openssl` is judged by, so \
          machine/qemu/openssl would have no share"
        ]
    );
    assert!(crypt("openssl-aes-256-cbc", "openssl").is_empty());
    assert!(of("{ workload = \"seq-read\" }", GUESTS).is_empty(), "of these nothing is known here");
}

#[test]
fn what_needs_native_cells_is_refused_without() {
    let control = GUESTS.to_owned() + "[control]\nworkloads = [\"seq-write\"]\n";
    assert!(said(&disks(), &control).is_empty());
    assert_eq!(
        one(&format!("baseline = \"none\"\n{}", disks()), &control),
        "22: control: control cells explain what a guest loses against native cells: the baseline must be `native`"
    );
    // Control cells have one actor on a disk.
    let machine = "[[matrix]]\nsides = [\"qemu\"]\nmachine = true\nworkloads = [\"openssl\"]\n";
    let of_machine = format!("{GUESTS}{machine}[control]\nworkloads = [\"openssl\"]\n");
    assert_eq!(
        one(&disks(), &of_machine),
        "26: control.workloads: `openssl` works alone on a disk in no cell of this study: those that do are seq-write"
    );
    let steady = disks().replace("max_pairs", "steady_state = true\nmax_pairs");
    assert!(said(&steady, GUESTS).is_empty());
    assert_eq!(
        one(&format!("baseline = \"none\"\n{steady}"), GUESTS),
        "11: repeat.steady_state: what becomes steady is the disk of a native cell, and there is none"
    );
}
