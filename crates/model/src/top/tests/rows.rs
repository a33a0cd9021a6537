//! Displayed figures.

use super::super::rows::{DiskRow, rows};
use super::wires::{packets, wire};
use super::*;

#[test]
fn rows_hold_rates_and_leave_out_what_is_not_known() {
    let mut interval = flooded();
    interval.seconds = 2.0;
    interval.guests[0].cpu =
        Some(CpuLoad { vcpus: 2, vcpu: ThreadTime { run_seconds: 1.0, wait_seconds: 1.0 }, ..CpuLoad::default() });
    interval.guests[0].nics = wire("db", packets(100, 0), packets(200, 2)).nics;
    interval.guests.push(GuestLoad { name: "unseen".into(), ..GuestLoad::default() });
    let unnamed = CpuLoad { rest: ThreadTime { run_seconds: 1.0, wait_seconds: 0.0 }, ..CpuLoad::default() };
    interval.guests.push(GuestLoad { name: "unnamed".into(), cpu: Some(unnamed), ..GuestLoad::default() });
    let rows = rows(&interval);
    let db = &rows.guests[0];
    assert_eq!((db.disk.read_iops, db.disk.write_iops), (Some(100.0), Some(0.0)));
    assert_eq!(db.disk.read_bytes_per_second, Some(409_600.0));
    assert_eq!(db.disk.request_bytes, Some(4096.0));
    assert!((db.disk.queue_depth.unwrap() - 0.4).abs() < 1e-9);
    assert!((db.disk.device_share_ratio.unwrap() - 0.025).abs() < 1e-9);
    assert_eq!((db.sent_bps, db.received_bps, db.drops_per_second), (Some(500_000.0), Some(1_000_000.0), Some(1.0)));
    assert_eq!((db.vcpu_ratio, db.steal_ratio), (Some(0.5), Some(0.5)));
    let unseen = &rows.guests[2];
    assert_eq!(unseen.disk, DiskRow::default());
    assert_eq!((unseen.vcpu_ratio, unseen.sent_bps), (None, None));
    let unnamed = &rows.guests[3];
    assert_eq!((unnamed.vcpu_ratio, unnamed.rest_ratio, unnamed.steal_ratio), (None, Some(0.5), None));
    assert!((rows.devices[0].queue_depth - 16.0).abs() < 1e-9);
}

#[test]
fn idle_is_nought_and_unknown_is_nothing() {
    let quiet = CpuLoad { vcpus: 2, ..CpuLoad::default() };
    let idle = GuestLoad { disk_source: DiskSource::Trace, cpu: Some(quiet), ..GuestLoad::default() };
    let interval = Interval { seconds: 1.0, traced: true, guests: vec![idle, GuestLoad::default()], ..flooded() };
    let [idle, unknown] = &rows(&interval).guests[..] else { panic!("two guests") };
    let figures = |g: &super::super::rows::GuestRow| {
        let d = &g.disk;
        [
            d.read_iops,
            d.write_iops,
            d.read_bytes_per_second,
            d.write_bytes_per_second,
            d.queue_depth,
            d.device_share_ratio,
            g.vcpu_ratio,
            g.io_ratio,
            g.rest_ratio,
            g.steal_ratio,
        ]
    };
    assert_eq!(figures(idle), [Some(0.0); 10]);
    assert_eq!(figures(unknown), [None; 10]);
    // Without requests there is no latency.
    let d = &idle.disk;
    assert_eq!([d.request_bytes, d.latency_p50_seconds, d.latency_p99_seconds, d.latency_mean_seconds], [None; 4]);
}
