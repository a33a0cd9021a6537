//! A whole run on disks that another process serves and on disk images.
#![allow(clippy::unwrap_used)]

use crate::help::state_dir;

use state_dir::{StateDir, fixture};
use vmio_model::result::RunState;

#[test]
#[ignore = "guest: needs QEMU"]
fn served_disks_and_images_are_measured_whole_and_leave_nothing() {
    let state = StateDir::with_image();
    let mut command = state.command(&["study", "run", "--yes", "--no-gentle", "--on"]);
    state.finish(command.arg(state.path()).arg(fixture("images.toml"))).with(0);
    state.is_clean();
    let run = state.last().unwrap();
    assert_eq!(run.state, RunState::Done);
    assert!(run.skipped.is_empty(), "{:?}", run.skipped);
    assert_eq!(run.samples.len(), 22, "11 cells in 2 rounds");
    let effective = |label: &str| run.effective.get(label).unwrap_or_else(|| panic!("{:?}", run.effective.keys()));
    let vhost = effective("served/qemu/virtio-blk,none,native");
    assert!(vhost["server"].starts_with("qemu-storage-daemon ") && vhost["server"].contains("vhost-user-blk"));
    assert_eq!((vhost["server.aio"].as_str(), vhost["server.cache.direct"].as_str()), ("native", "true"));
    assert!(effective("served/qemu/lsi53c895a,none,native")["server"].contains("NBD"));
    let image = effective("qcow2/qemu/virtio-blk,none,native");
    assert_eq!((image["format"].as_str(), image["image.cluster_bytes"].as_str()), ("qcow2", "65536"));
    assert_eq!(effective("qcow2-small-l2/qemu/virtio-blk,none,native")["image.l2_coverage_ratio"], "0.125");
    for sample in &run.samples {
        let key = sample.cell.key();
        let served = sample.cell.target() == Some("served") && !sample.cell.is_native();
        assert_eq!(sample.cpu().by_role.contains_key("server"), served, "{key}");
        let device = sample.device().expect("the disk below has counters");
        let moved = device.read_bytes + device.write_bytes;
        let asked = sample.work().read_bytes + sample.work().write_bytes;
        assert!(moved as f64 > 0.8 * asked as f64, "{key}: {moved} bytes of {asked} reached the disk");
    }
}
