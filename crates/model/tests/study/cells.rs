//! From a study to its cells.

use std::collections::BTreeMap;

use vmio_model::cell::Cell;
use vmio_model::study::{Controlled, NamedCell, SettingName, Study, controls};

use super::{SMALL, all_names, disks, keys, kib, no_disks, study, whole};

#[test]
fn cells_are_distinct_ordered_and_have_their_baseline() {
    let keys: Vec<String> = study(SMALL).cells().iter().map(Cell::key).collect();
    assert_eq!(
        keys,
        [
            "device/native/seq-write",
            "device/qemu/lsi53c895a,none,native/seq-write",
            "device/qemu/virtio-blk,none,native/seq-write",
            "device/native/rand-read-1",
            "device/qemu/lsi53c895a,none,native/rand-read-1",
            "device/qemu/virtio-blk,none,native/rand-read-1",
        ]
    );
}

/// Two drivers, shapes, AIO engines and settings: each combination once; native cells without guest-only options, with
/// the processors and memory of each shape.
#[test]
fn every_axis_of_disks_is_multiplied() {
    let study = whole(
        disks(),
        r#"[[matrix]]
sides = ["native", "qemu"]
shapes = [{ vcpus = 2, pins = [0, 1] }, { memory_mib = 512, machine = "q35", kernel = "6.1.0-13" }]
disks.targets = ["device"]
disks.drivers = ["virtio-blk"]
disks.aios = ["native", "io_uring"]
workloads = ["seq-read"]
settings = { read-ahead = ["128k", "4096"] }
"#,
    );
    let guest = |shape: &str, aio: &str, kib: &str| {
        format!("device/qemu{shape}/virtio-blk,none,{aio}/seq-read [read-ahead={kib}]")
    };
    let (two, large) = (":vcpus=2:pins=0+1", ":machine=q35:memory=512:kernel=6.1.0-13");
    assert_eq!(
        keys(&study),
        [
            "device/native:vcpus=2:pins=0+1/seq-read [read-ahead=128k]".to_owned(),
            guest(two, "native", "128k"),
            guest(two, "io_uring", "128k"),
            "device/native:memory=512/seq-read [read-ahead=128k]".to_owned(),
            guest(large, "native", "128k"),
            guest(large, "io_uring", "128k"),
            "device/native:vcpus=2:pins=0+1/seq-read [read-ahead=4096k]".to_owned(),
            guest(two, "native", "4096k"),
            guest(two, "io_uring", "4096k"),
            "device/native:memory=512/seq-read [read-ahead=4096k]".to_owned(),
            guest(large, "native", "4096k"),
            guest(large, "io_uring", "4096k"),
        ]
    );
    // Twice the memory of the largest guest is what dd moves.
    assert_eq!((study.most_memory_mib(), study.buffered_bytes()), (512, 1 << 30));
}

#[test]
fn paths_of_networks() {
    let study = whole(
        no_disks(),
        r#"[[matrix]]
sides = ["native", "qemu"]
paths.networks = ["veth", "bridge"]
paths.peers = ["host"]
paths.nics = ["virtio-net", "e1000"]
paths.vhost = [false, true]
paths.queues = [4]
workloads = ["iperf3"]
"#,
    );
    let of = |network: &str| {
        [
            format!("{network}.host/native/iperf3"),
            format!("{network}.host/qemu/virtio-net+q4/iperf3"),
            format!("{network}.host/qemu/virtio-net+vhost+q4/iperf3"),
            format!("{network}.host/qemu/e1000+q4/iperf3"),
            format!("{network}.host/qemu/e1000+vhost+q4/iperf3"),
        ]
    };
    assert_eq!(keys(&study), [of("veth"), of("bridge")].concat());
    assert!(!study.has_disks() && study.size.is_none() && study.repeat.max_gib_written.is_none());
    assert_eq!((study.target_bytes(), study.buffered_bytes()), (0, 0));
    let plain = whole(
        no_disks(),
        r#"[[matrix]]
sides = ["native"]
paths.networks = ["veth"]
paths.peers = ["host", "far"]
workloads = ["iperf3"]
"#,
    );
    assert_eq!(keys(&plain), ["veth.host/native/iperf3", "veth.far/native/iperf3"]);
    assert!(plain.is_native_only());
}

#[test]
fn the_machine_itself_under_settings() {
    let study = whole(
        no_disks(),
        r#"[[matrix]]
sides = ["qemu"]
shapes = [{}, { vcpus = 4 }]
machine = true
workloads = ["openssl"]
[[matrix]]
sides = ["native", "qemu"]
machine = true
workloads = ["zstd"]
settings = { mtu = ["1500", "9000"], read-ahead = ["128k"] }
"#,
    );
    assert_eq!(
        keys(&study),
        [
            "machine/native/openssl",
            "machine/qemu/openssl",
            "machine/native:vcpus=4/openssl",
            "machine/qemu:vcpus=4/openssl",
            "machine/native/zstd [mtu=1500, read-ahead=128k]",
            "machine/qemu/zstd [mtu=1500, read-ahead=128k]",
            "machine/native/zstd [mtu=9000, read-ahead=128k]",
            "machine/qemu/zstd [mtu=9000, read-ahead=128k]",
        ]
    );
}

const NAMED: &str = r#"[[cell]]
settings = { read-ahead = "4096" }
[[cell.actors]]
side = "qemu"
shape = { vcpus = 2 }
disk = { target = "device", driver = "virtio-blk", aio = "io_uring", options = { queues = 4 } }
workload = "seq-read"
[[cell.actors]]
side = "qemu"
nth = 2
machine = true
workload = "openssl"
start_seconds = 0.5
seconds = 3

[[cell]]
actors = [
  { side = "qemu", path = { network = "bridge", peer = "host", nic = "virtio-net", vhost = true }, workload = "iperf3" },
  { side = "qemu", nth = 2, path = { network = "bridge", peer = "far", nic = "e1000", queues = 2 }, workload = "iperf3" },
  { side = "native", machine = true, workload = "zstd" },
]

[[cell]]
actors = [
  { side = "native", disk = { target = "device" }, workload = "seq-read" },
  { side = "native", nth = 2, shape = { vcpus = 2 }, disk = { target = "device" }, workload = "seq-read" },
]

[[cell]]
[[cell.actors]]
side = "qemu"
path = { network = "bridge", peer = "far", nic = "virtio-net", co_sender = "host" }
workload = "iperf3"
"#;

/// Disk and machine at once; two guests and the host; two native sides.
#[test]
fn cells_of_several_actors_are_named_one_by_one() {
    let study = whole(disks(), NAMED);
    assert_eq!(
        keys(&study),
        [
            "device/native:vcpus=2/seq-read & machine/native#2/openssl@0.5s~3s [read-ahead=4096k]",
            "device/qemu:vcpus=2/virtio-blk,none,io_uring+q4/seq-read & machine/qemu#2/openssl@0.5s~3s \
             [read-ahead=4096k]",
            "bridge.host/native/iperf3 & bridge.far/native#2/iperf3 & machine/native/zstd",
            "bridge.host/qemu/virtio-net+vhost/iperf3 & bridge.far/qemu#2/e1000+q2/iperf3 & machine/native/zstd",
            "device/native/seq-read & device/native:vcpus=2#2/seq-read",
            "bridge.far+host/native/iperf3",
            "bridge.far+host/qemu/virtio-net/iperf3",
        ]
    );
    let cells = study.cells();
    let second = &cells[1].beside[0];
    assert_eq!((second.start.seconds(), second.duration.map(|d| d.seconds())), (0.5, Some(3.0)));
    assert_eq!((second.side.nth, cells[1].targets().count()), (1, 1));
    assert!(cells[1].disk().is_none(), "a rule on one disk does not look at it");
    assert!(cells[4].is_native() && !study.is_native_only());
}

/// One line may be many guests, each with its number.
#[test]
fn an_actor_may_be_many() {
    let many = "[[cell]]\nactors = [{ side = \"native\", nth = 2, count = 3, path = { network = \"bridge\", peer = \
                \"far\" }, workload = \"iperf3\" }]\n";
    let study = whole(no_disks(), many);
    let each = [2, 3, 4].map(|nth| format!("bridge.far/native#{nth}/iperf3"));
    assert_eq!(keys(&study), [each.join(" & ")]);
}

const STATES: &str = r#"[[matrix]]
sides = ["native", "qemu"]
disks = { targets = ["preallocated"], states = ["filled", "warm-guest", "warm-host"], drivers = ["virtio-blk"] }
workloads = ["dd-read"]
[[cell]]
actors = [{ side = "native", disk = { target = "sparse", state = "filled" }, workload = "seq-write" }]
"#;

/// A state is a part of a cell's name. A guest's warm page cache is compared with the host's.
#[test]
fn states_of_disks_are_named() {
    let study = whole(disks(), STATES);
    assert_eq!(
        keys(&study),
        [
            "preallocated+filled/native/dd-read",
            "preallocated+filled/qemu/virtio-blk,none,native/dd-read",
            "preallocated+warm-host/native/dd-read",
            "preallocated+warm-guest/qemu/virtio-blk,none,native/dd-read",
            "preallocated+warm-host/qemu/virtio-blk,none,native/dd-read",
            "sparse+filled/native/seq-write",
        ]
    );
    let cold = whole(format!("baseline.like.state = \"filled\"\n{}", disks()), STATES);
    let warm = cold.cells().into_iter().find(|cell| cell.key().contains("warm-guest")).unwrap();
    let base = cold.baseline.of(&warm).unwrap().key();
    assert_eq!(base, "preallocated+filled/qemu/virtio-blk,none,native/dd-read");
}

/// A cell stored by its actors reads back as the same cell.
#[test]
fn cells_go_there_and_back_through_their_names() {
    let shaped =
        "[[matrix]]\nsides = [\"qemu\"]\nshapes = [{ pins = [3] }]\nmachine = true\nworkloads = [\"openssl\"]\n";
    let (named, states) = (whole(disks(), NAMED).cells(), whole(disks(), STATES).cells());
    let cells = [named, states, study(SMALL).cells(), whole(no_disks(), shaped).cells()].concat();
    for cell in cells {
        assert_eq!(NamedCell::from(&cell).cell(), Some(cell));
    }
}

#[test]
fn a_cell_of_a_matrix_that_is_also_named_by_itself_runs_once() {
    let text = SMALL.to_owned()
        + r#"[[cell]]
actors = [{ side = "qemu", disk = { target = "device", driver = "virtio-blk" }, workload = "seq-write" }]
"#;
    assert_eq!(study(&text).cells(), study(SMALL).cells());
}

/// Ten settings of eight values: 2^30 cells of ten lines.
fn multiplied(settings: usize, values: usize) -> String {
    let values: Vec<String> = (0..values).map(|n| format!("\"{n}k\"")).collect();
    let settings: Vec<String> = (0..settings).map(|n| format!("settings.s{n} = [{}]\n", values.join(", "))).collect();
    format!(
        "[[matrix]]\nsides = [\"native\"]\ndisks.targets = [\"device\"]\nworkloads = [\"seq-read\"]\n{}",
        settings.concat()
    )
}

#[test]
fn a_study_that_multiplies_out_to_more_than_is_reasonable_is_refused_before_it_is_multiplied() {
    const NAMES: [&str; 30] = [
        "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "s16",
        "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29",
    ];
    let mut names = all_names();
    names.settings = NAMES.map(|name| SettingName { name, value: kib }).into();
    let read = |cells: &str| Study::parse("big.toml", &format!("{}{cells}", disks()), &names);
    let said = |cells: &str| {
        let all: Vec<String> = read(cells).unwrap_err().problems.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    for (settings, values, count) in [(10, 8, 1u64 << 30), (30, 1000, u64::MAX), (1, 10_001, 10_001)] {
        let said = said(&multiplied(settings, values));
        let wanted =
            format!("big.toml:16: matrix: makes them {count} cells, and a study has 10000 at most: name fewer");
        assert!(said.starts_with(&wanted), "{said}");
    }
    assert_eq!(read(&multiplied(4, 10)).unwrap().cells().len(), 10_000);
    // All blocks are counted together.
    let said = said(&[multiplied(4, 10), multiplied(1, 1), multiplied(1, 2)].concat());
    assert!(said.starts_with("big.toml:24: matrix: makes them 10001 cells"), "{said}");
}

/// Limits of studies do not apply to stored cells, which may be imported.
#[test]
fn a_stored_study_of_too_many_cells_has_none() {
    let mut stored = study(&format!("{}{}", disks(), multiplied(0, 0)));
    let values: Vec<String> = (0..8).map(|n: u32| n.to_string()).collect();
    stored.matrix[0].settings = (0..10).map(|n| (format!("s{n}"), values.clone())).collect();
    stored.control = Some(Controlled { workloads: vec!["seq-read".into()] });
    assert_eq!(stored.named_count(), 1 << 30);
    assert!(stored.cells().is_empty() && controls(&stored, &[], &BTreeMap::new()).is_empty());
}

/// A path inside of a machine has no card, so none is named; the processors of a side stay with it.
#[test]
fn a_path_inside_of_a_guest_has_no_card() {
    let mut names = all_names();
    names.networks.push("loop".into());
    names.inside = vec!["loop".into()];
    let block = |more: &str| {
        format!(
            "[[matrix]]\nsides = [\"native\", \"qemu\"]\nshapes = [{{ pins = [0, 1] }}]\npaths.networks = [\"loop\"]\n\
             paths.peers = [\"host\"]\n{more}workloads = [\"iperf3\"]\n"
        )
    };
    let cell = |card: &str| {
        format!(
            "[[cell]]\nactors = [{{ side = \"qemu\", path = {{ network = \"loop\", peer = \"host\"{card} }}, workload = \
             \"iperf3\" }}]\n"
        )
    };
    let parse = |text: String| Study::parse("x", &format!("{}{text}", no_disks()), &names);
    let found = keys(&parse(block("") + &cell("")).unwrap());
    let wanted = ["native:pins=0+1", "qemu:pins=0+1", "native", "qemu"].map(|side| format!("loop.host/{side}/iperf3"));
    assert!(wanted.iter().all(|key| found.contains(key)) && found.len() == wanted.len(), "{found:?}");
    for wrong in [block("paths.nics = [\"e1000\"]\n"), cell(", nic = \"e1000\"")] {
        let said = parse(wrong).unwrap_err().to_string();
        assert!(said.contains("says something of a card, and this path goes over none"), "{said}");
    }
    // Other paths need a card for a guest.
    let said = parse(block("").replace("loop", "bridge")).unwrap_err().to_string();
    assert!(said.contains("paths.nics"), "{said}");
}

/// What a guest reaches by itself needs no driver; with one it is a disk of its hypervisor's.
#[test]
fn a_target_that_a_guest_reaches_by_itself_has_no_attachment() {
    let mut names = all_names();
    names.targets.push("net".into());
    names.reached = vec!["net".into()];
    let block = |targets: &str, more: &str| {
        format!(
            "[[matrix]]\nsides = [\"native\", \"qemu\"]\ndisks.targets = [{targets}]\n{more}\
             workloads = [\"seq-read\"]\n"
        )
    };
    let cell = |more: &str| {
        format!(
            "[[cell]]\nactors = [{{ side = \"qemu\", disk = {{ target = \"net\"{more} }}, workload = \"seq-read\" }}]\n"
        )
    };
    let parse = |text: String| Study::parse("x", &format!("{}{text}", disks()), &names);
    let own = ["net/native/seq-read", "net/qemu/seq-read"];
    assert_eq!(keys(&parse(block("\"net\"", "") + &cell("")).unwrap()), own);
    let study = parse(block("\"net\"", "disks.drivers = [\"virtio-blk\"]\n") + &cell("")).unwrap();
    assert_eq!(keys(&study), [own[0], "net/qemu/virtio-blk,none,native/seq-read", own[1]]);
    for wrong in [block("\"net\"", "disks.caches = [\"writeback\"]\n"), cell(", cache = \"writeback\"")] {
        let said = parse(wrong).unwrap_err().to_string();
        assert!(said.contains("reaches this target by itself"), "{said}");
    }
    let said = parse(block("\"net\", \"device\"", "")).unwrap_err().to_string();
    assert!(said.contains("disks.drivers"), "{said}");
}
