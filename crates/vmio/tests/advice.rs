//! Each rule's advice was tried for each way of change, or a closed list says why not; `docs/advice.md` says
//! the same.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use crate::help::advice;

use std::path::Path;

use advice::applier::{Edit, Step, steps};
use advice::wrong::Kind;
use advice::{Fill, Way, qm, table};

#[test]
fn every_rule_has_a_row_for_every_way_or_a_reason() {
    let gaps = table::gaps();
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

#[test]
fn the_table_in_the_docs_is_what_is_tested() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/advice.md");
    if std::env::var_os("VMIO_WRITE_DOCS").is_some() {
        std::fs::write(&path, table::page()).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == table::page(),
        "docs/advice.md is not what the lists say; write it anew:\n\
         VMIO_WRITE_DOCS=1 cargo test --locked -p vmio --test plain advice"
    );
}

#[test]
fn a_placeholder_that_is_left_fails() {
    let left = |text: &str| {
        let wrong = steps(Way::Proxmox, text, &[]).unwrap_err();
        assert_eq!(wrong.kind, Kind::Form);
        wrong.said
    };
    assert!(left("qm set VMID --kvm 1").starts_with("VMID left"));
    assert!(left("taskset -cp CPUS 7    # vCPU 0").starts_with("CPUS left"));
    assert!(steps(Way::Proxmox, "qm set 7 --net0 virtio=BC:24:11:00:00:01    # N or M", &[]).is_ok());
    assert!(steps(Way::Proxmox, "qm set 7 --x STORAGE", &[Fill::Bridge]).is_err());
    let with = steps(Way::Proxmox, "a STORAGE OTHERSTORAGE", &[Fill::OtherStorage, Fill::Storage]);
    assert_eq!(with, Ok(vec![Step::Shell("a local other".into())]));
}

#[test]
fn three_forms() {
    let edit = |place: &str, text: &str| Edit { place: place.into(), text: text.into() };
    let qemu = "# one more option\n-object iothread,id=a\n# in its own -device: set these,\n# keep all else\niothread=a\n\
                # QMP\n{\"execute\": \"x\"}\n# now\nip link set x";
    assert_eq!(
        steps(Way::Qemu, qemu, &[]).unwrap(),
        [
            Step::Options(vec![
                edit("one more option", "-object iothread,id=a"),
                edit("in its own -device: set these, keep all else", "iothread=a")
            ]),
            Step::Monitor("{\"execute\": \"x\"}".into()),
            Step::Shell("ip link set x".into())
        ]
    );
    let libvirt =
        "virsh shutdown web1 && \\\nvirsh edit web1    # in the <disk>:\n<source file='x'/>\n# one more y\n<y/>";
    assert_eq!(
        steps(Way::Libvirt, libvirt, &[]).unwrap(),
        [
            Step::Shell("virsh shutdown web1".into()),
            Step::Xml("web1".into(), vec![edit("in the <disk>:", "<source file='x'/>"), edit("one more y", "<y/>")])
        ]
    );
    assert!(steps(Way::Libvirt, "virsh edit web1\n<y/>", &[]).is_err());
}

#[test]
fn the_stand_in_for_qm_refuses_what_the_real_one_refuses() {
    let volume = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let takes = |key: &str, rest: &str| qm::check(key, &format!("{volume}{rest}")).is_ok();
    assert!(takes("scsi0", ",cache=none,aio=io_uring,iothread=1,ssd=1,queues=2,discard=on"));
    // No such slot, key of another bus, value that is none, volume that is not there.
    for (key, rest) in [
        ("sata9", ""),
        ("virtio0", ",ssd=1"),
        ("sata0", ",iothread=1"),
        ("virtio0", ",queues=2"),
        ("scsi0", ",queues=1"),
        ("scsi0", ",cache=default"),
        ("scsi0", ",l2-cache-size=1"),
        ("scsi0", ".gone,cache=none"),
    ] {
        assert!(!takes(key, rest), "{key} {rest}");
    }
    assert!(qm::check("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,mtu=1,queues=4").is_ok());
    for (key, value) in [
        ("net0", "virtio-net=BC:24:11:00:00:01"),
        ("net0", "virtio=BC:24:11:00:00:01,queues=65"),
        ("scsihw", "virtio-scsi"),
        ("kvm", "yes"),
        ("iothread", "1"),
        ("cpulimit", "-1"),
    ] {
        assert!(qm::check(key, value).is_err(), "{key} {value}");
    }
}
