//! What a monitor tells of a guest's memory.

use vmio_model::facts::{Balloon, GuestMemory};

use super::*;

const PATH_OF_BALLOON: &str = "/machine/peripheral/balloon0";

/// The recorded guest with a balloon, whose monitor gives these replies as well.
fn with(replies: &[Value]) -> Guest {
    let mut recording: Value = serde_json::from_str(STARTED).unwrap();
    recording["answers"].as_array_mut().unwrap().extend(replies.iter().cloned());
    let mut args = ARGS.to_vec();
    args.extend(["-device", "virtio-balloon-pci,id=balloon0"]);
    asked(&host(&args, TABLE).socket("/proc/8/root/run/web1.qmp", play(recording.to_string().leak())))
}

fn query(command: &str, answer: Value) -> Value {
    json!({"execute": command, "arguments": {}, "return": answer})
}

fn property(name: &str, value: Value) -> Value {
    json!({"execute": "qom-get", "arguments": {"path": PATH_OF_BALLOON, "property": name}, "return": value})
}

fn statistics(free: u64) -> Value {
    let (none, faults) = (u64::MAX, 70);
    let stats = json!({
        "stat-free-memory": free,
        "stat-available-memory": 9000,
        "stat-disk-caches": none,
        "stat-major-faults": faults
    });
    property("guest-stats", json!({"stats": stats, "last-update": 1_795_252_743}))
}

#[test]
fn a_balloon_and_what_the_guest_reports() {
    let actual = query("query-balloon", json!({"actual": 1 << 28}));
    let polled = |seconds: u64| property("guest-stats-polling-interval", json!(seconds));
    let of = |replies: &[Value]| with(replies).processors.unwrap().balloon;
    let found = of(&[actual.clone(), polled(10), statistics(4096)]);
    let told = GuestMemory {
        free_bytes: 4096,
        available_bytes: Some(9000),
        cache_bytes: None,
        at_unix_seconds: 1_795_252_743,
        major_faults: Some(70),
        swapped_in_bytes: None,
    };
    assert_eq!(*found, Some(Balloon { actual_bytes: 1 << 28, statistics: Some(told) }));
    let from = "monitor /run/web1.qmp, query-balloon and qom-get guest-stats";
    assert_eq!(found.source(), Some(&from.into()));
    // Nobody has it polled now, so that what was reported is old; the driver reports nothing, or what cannot be.
    let plain = Some(Balloon { actual_bytes: 1 << 28, statistics: None });
    assert_eq!(*of(&[actual.clone(), polled(0), statistics(4096)]), plain);
    assert_eq!(*of(&[actual.clone(), polled(10), statistics(u64::MAX)]), plain);
    assert_eq!(*of(&[actual.clone(), polled(10), statistics((1 << 28) + 1)]), plain);
    assert_eq!(*of(&[actual]), plain);
    let refused = json!({"class": "DeviceNotActive", "desc": "No balloon device has been activated"});
    let none = with(&[json!({"execute": "query-balloon", "arguments": {}, "error": refused})]);
    assert_eq!(*none.processors.unwrap().balloon, None);
    assert!(!none.unread.iter().any(|u| u.what.starts_with("monitor")), "{:?}", none.unread);
}

fn block(qdev: &str, device: &str, bytes: u64) -> Value {
    json!({"qdev": qdev, "device": device, "node-name": "", "stats": {"rd_bytes": bytes}})
}

#[test]
fn what_the_guest_read_is_told_of_each_disk() {
    let blocks = json!([
        block("/machine/peripheral/vd0/virtio-backend", "", 1000),
        block("sd1", "d1", 70_000),
        block("/machine/peripheral-anon/device[0]/virtio-backend", "virtio0", 30_000),
        block("cd0", "", 5), // no disk
    ]);
    let guest = with(&[query("query-balloon", json!({"actual": 1 << 28})), query("query-blockstats", blocks)]);
    let read = ["vd0", "sd1", "virtio0"].map(|id| *disk(&guest, id).details.read_bytes);
    assert_eq!(read, [Some(1000), Some(70_000), Some(30_000)]);
    assert_eq!(disk(&guest, "sd1").read()["read_bytes"], "monitor /run/web1.qmp, query-blockstats");
}

#[test]
fn a_monitor_that_answers_in_part_tells_nothing_of_memory() {
    // It ends before it is asked for what the driver reports.
    let cut = |stream: UnixStream| {
        let mut stream = BufReader::new(stream);
        let greeting = serde_json::from_str::<Value>(STARTED).unwrap()["greeting"].clone();
        let blocks = json!([block("/machine/peripheral/vd0/virtio-backend", "", 1000)]);
        let mut line = String::new();
        writeln!(stream.get_mut(), "{greeting}").unwrap();
        for (at, answer) in [json!({}), blocks, json!({"actual": 1 << 28})].into_iter().enumerate() {
            stream.read_line(&mut line).unwrap();
            writeln!(stream.get_mut(), "{}", json!({"return": answer, "id": at + 1})).unwrap();
        }
    };
    let mut args = ARGS.to_vec();
    args.extend(["-device", "virtio-balloon-pci,id=balloon0"]);
    let fake = host(&args, TABLE).socket("/proc/8/root/run/web1.qmp", cut);
    let mut look = HostView::new(&fake);
    look.monitor_limit = Duration::from_secs(60);
    let mut guest = super::super::super::running(&look).guests.remove(0);
    let refused = super::super::memory(&look, &mut guest).unwrap_err();
    assert!(refused[0].why.contains("did not answer all"), "{refused:?}");
    assert_eq!(*disk(&guest, "vd0").details.read_bytes, None);
    assert_eq!(*guest.processors.unwrap().balloon, None);
}
