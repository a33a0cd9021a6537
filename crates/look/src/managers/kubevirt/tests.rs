#![allow(clippy::unwrap_used)]

use vmio_node::fake::Fake;

use super::*;

const STATUS: &str = include_str!("../../../tests/fixtures/managers/written/kubevirt-status.xml");
const SYSTEMD: &str = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f1b2c4d_5e6f_4a7b_8c9d_0e1f2a3b4c5d.slice/\
                       cri-containerd-8a.scope\n";
const PLAIN: &str = "0::/kubepods/burstable/pod3f1b2c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d/8a\n";

fn pod(cgroup: &str) -> Fake {
    Fake::new("fake")
        .file("/proc/900/comm", "qemu-kvm\n")
        .file("/proc/900/cmdline", "/usr/libexec/qemu-kvm\0-name\0guest=shop_web1,debug-threads=on\0-S\0")
        .file("/proc/900/cgroup", cgroup)
}

fn only(fake: &Fake) -> Guest {
    let mut managed = KubeVirt.guests(&HostView::new(fake));
    assert_eq!((managed.guests.len(), managed.unread.len()), (1, 0));
    managed.guests.remove(0)
}

#[test]
fn a_guest_in_a_pod() {
    let path = "/proc/900/root/run/libvirt/qemu/run/shop_web1.xml";
    let ip = "<interface type='ethernet'><ip address='192.0.2.7'/>";
    let status = STATUS.replace("<interface type='ethernet'>", ip);
    for cgroup in [SYSTEMD, PLAIN] {
        let fake =
            pod(cgroup).file(path, status.as_str()).file("/proc/900/root/etc/hostname", "virt-launcher-web1-x7k2p\n");
        let guest = only(&fake);
        assert_eq!(
            (guest.name.as_str(), guest.pid, guest.manager.as_deref()),
            ("shop_web1", Some(900), Some("kubevirt"))
        );
        for (id, value) in [
            ("namespace", "shop"),
            ("machine", "web1"),
            ("domain", "shop_web1"),
            ("pod", "virt-launcher-web1-x7k2p"),
            ("pod-uid", "3f1b2c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d"),
        ] {
            assert_eq!(guest.ids[id], value);
        }
        let data = &guest.disks[1];
        assert_eq!(
            (data.cache.as_deref(), data.aio.as_deref(), *data.iothread),
            (Some("none"), Some("native"), Some(true))
        );
        assert_eq!(
            (data.place.domain.as_deref(), data.place.device_id.as_deref()),
            (Some("shop_web1"), Some("ua-data"))
        );
        assert_eq!(data.from.place(), path);
        assert_eq!(guest.disks[0].details.backing_files, Some(1));
        assert_eq!(
            (guest.nics[0].model.as_deref(), guest.nics[0].interface.as_deref()),
            (Some("virtio-net"), Some("tap0"))
        );
        assert!(guest.nics[0].place.addresses.is_empty(), "they may be others'");
        assert_eq!(guest.unread, []);
    }
}

#[test]
fn what_the_pod_hides_is_told() {
    let guest = only(&pod(SYSTEMD));
    assert_eq!(
        (guest.ids["namespace"].as_str(), guest.ids["pod"].as_str()),
        ("shop", "3f1b2c4d-5e6f-4a7b-8c9d-0e1f2a3b4c5d")
    );
    assert!(
        guest.unread[0].mend.contains("root") && guest.unread[0].what.contains("shop_web1.xml"),
        "{:?}",
        guest.unread
    );
}

#[test]
fn other_processes_are_not_guests_of_it() {
    let outside = pod("0::/machine.slice/machine-qemu.scope\n");
    assert_eq!(KubeVirt.guests(&HostView::new(&outside)).guests, []);
    let path = pod(SYSTEMD).file("/proc/900/cmdline", "/usr/libexec/qemu-kvm\0-name\0guest=a_/../../../etc/x\0");
    assert_eq!(KubeVirt.guests(&HostView::new(&path)).guests, []);
    let other = pod(SYSTEMD).file("/proc/900/cmdline", "/usr/libexec/qemu-kvm\0-name\0build\0");
    assert_eq!(KubeVirt.guests(&HostView::new(&other)).guests, []);
}
