#![allow(clippy::unwrap_used)]
use super::*;

fn held() -> Held {
    Held {
        process: Process::now(std::process::id()).unwrap(),
        index: 7,
        interface: "tap0".to_owned(),
        before_bytes: UNLIMITED,
        replaces_bytes: UNLIMITED,
        bytes: 25_000,
    }
}

#[test]
fn resized_keeps_the_size_before() {
    let wider = held().resized(100_000).unwrap();
    assert_eq!((wider.before_bytes, wider.replaces_bytes, wider.bytes), (UNLIMITED, 25_000, 100_000));
    assert!([UNLIMITED, 25_000, 100_000].into_iter().all(|bytes| wider.is_known(bytes)) && !wider.is_known(30_000));
    let queue = |bytes, on| Queue { bytes, on };
    assert_eq!(foreign(&wider, &[queue(50_000, false), queue(25_000, true), queue(30_000, true)]), 30_000);
    assert!(read_back(&wider.device(), 100_000, &[queue(100_000, true), queue(UNLIMITED, false)]).is_ok());
    assert!(read_back(&wider.device(), 100_000, &[queue(100_000, true), queue(UNLIMITED, true)]).is_err());
    for wrong in [0, 1, LEAST_BYTES - 1, UNLIMITED + 1] {
        let error = wider.resized(wrong).unwrap_err().to_string();
        assert!(error.contains("tap tap0") && error.contains(&wrong.to_string()), "{error}");
    }
}

#[test]
fn process_that_does_not_hold_the_tap() {
    let held = held();
    let device = held.device();
    let error = plan(&device, held.process, 25_000).unwrap_err().to_string();
    assert!(error.contains("does not hold it"), "{error}");
    let late = Process { start_ticks: held.process.start_ticks + 1, ..held.process };
    let error = plan(&device, late, 25_000).unwrap_err().to_string();
    assert!(error.contains("is now used by another process"), "{error}");
    assert_eq!(find(&device, &[0, u32::MAX, held.process.pid]).unwrap(), None);
    assert_eq!(undo(&held).unwrap(), Undone::Gone);
    assert!(!in_force(&held).unwrap() && hold(&held).is_err());
}

#[test]
fn process_that_was_not_examined_completely() {
    let said = |descriptors| {
        let found = HolderState::Without { descriptors, all: false };
        refused(&held().device(), held().process, found).to_string()
    };
    assert!(said(65_536).contains("not among the first 65536"), "{}", said(65_536));
    assert!(said(0).contains("first thread"), "{}", said(0));
}
