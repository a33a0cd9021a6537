//! Daemons and process identifiers.

use super::*;

/// The recorded descriptions with addresses at bridged cards.
fn with_addresses() -> String {
    let more = "<interface type='bridge'><filterref filter='clean-traffic'><parameter name='IP' value='192.0.2.7'/>\
                <parameter name='IP' value='192.0.2.8'/><parameter name='DHCPSERVER' value='192.0.2.1'/></filterref>\
                <ip address='2001:db8::7' prefix='64'/>";
    SESSION.replace("<interface type='bridge'>", more)
}

#[test]
fn addresses_of_cards() {
    let text = with_addresses();
    let fake = host_with(move |script| Some(says(if script.starts_with("list") { LIST } else { text.as_str() })));
    let addresses: Vec<String> = of(&fake, "db1").nics[0].place.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.7", "192.0.2.8", "2001:db8::7"]);
    assert!(of(&host(), "db1").nics[0].place.addresses.is_empty());
}

#[test]
fn addresses_of_ports_of_nova() {
    const XML: &str = include_str!("../../../../tests/fixtures/managers/written/nova-rbd.xml");
    let of = |text: &str| {
        let place = written(text).nics.remove(0).place;
        (place.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), place.addresses_in_doubt)
    };
    let more = "<nova:ip type=\"fixed\" address=\"2001:db8::17\" ipVersion=\"6\"/>\
                <nova:ip type=\"floating\" address=\"192.0.2.5\" ipVersion=\"4\"/></nova:port>";
    assert_eq!(of(&XML.replace("</nova:port>", more)), ("10.20.0.17 2001:db8::17".to_owned(), true));
    let by_filter = XML.replace("<target dev='tap", "<ip address='192.0.2.7'/><target dev='tap");
    assert_eq!(of(&by_filter), ("192.0.2.7".to_owned(), false));
    assert_eq!(of(&XML.replace("uuid=\"a3d9b2f4-2c", "uuid=\"a3d9b2f4-2d")).0, "", "another port's");
    assert_eq!(of(&XML.replace("uuid=\"a3d9b2f4-2c70", "uuid=\"")).0, "");
    assert_eq!(of(&XML.replace("openstack.org", "example.org")).0, "");
}

fn found(fake: &Fake) -> (Vec<String>, Vec<Unread>) {
    let mut unread = Vec::new();
    let uris = daemons(&HostView::new(fake), &mut unread).into_iter().map(|d| d.uri).collect();
    (uris, unread)
}

#[test]
fn daemons_of_users_and_of_xen() {
    let session = "qemu:///session?socket=/run/user/1000/libvirt/virtqemud-sock";
    let fake = Fake::new("fake")
        .file("/run/user/1000/libvirt/virtqemud-sock", "")
        .file("/run/user/1001/bus", "")
        .file("/run/user/x/libvirt/virtqemud-sock", "")
        .file("/run/libvirt/virtxend-sock", "");
    // A socket without a daemon is systemd's and is not used.
    let (uris, unread) = found(&fake);
    assert_eq!((uris.len(), unread.len()), (0, 2));
    assert!(unread.iter().all(|u| u.why.contains("querying it would start it")), "{unread:?}");
    assert!(unread[1].what.contains(session));
    // Another user's daemon does not count there, nor one in a container.
    let fake = fake
        .file("/proc/70/comm", "virtxend\n")
        .file("/proc/71/comm", "virtqemud\n")
        .file("/proc/71/status", "Name:\tvirtqemud\nUid:\t1002\t1002\t1002\t1002\n")
        .symlink("/proc/self/ns/pid", "pid:[1]")
        .symlink("/proc/71/ns/pid", "pid:[1]");
    assert_eq!(found(&fake).0, ["xen:///system"]);
    let own = "Name:\tvirtqemud\nUid:\t1000\t1000\t1000\t1000\n";
    assert_eq!(found(&fake.file("/proc/71/status", own)).0, ["xen:///system", session]);
    let contained = Fake::new("fake")
        .file("/run/libvirt/libvirt-sock", "")
        .file("/proc/72/comm", "libvirtd\n")
        .symlink("/proc/self/ns/pid", "pid:[1]")
        .symlink("/proc/72/ns/pid", "pid:[2]");
    assert_eq!(found(&contained).0, [""; 0]);
}

#[test]
fn what_a_users_daemon_says_of_others_is_not_believed() {
    let host = |uid: u32| {
        let uids = |uid: u32| format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        let text = with_addresses();
        host_with(move |script| Some(says(if script.starts_with("list") { LIST } else { text.as_str() })))
            .file("/proc/700/status", uids(1000))
            .file("/run/user/1000/libvirt/libvirt-sock", "")
            .file("/run/user/1000/libvirt/qemu/run/db1.pid", "812\n")
            .file("/proc/812/comm", "qemu-system-x86\n")
            .file("/proc/812/cmdline", CMDLINE.replace('\n', "\0"))
            .file("/proc/812/status", uids(uid))
    };
    let guests = |fake: &Fake| {
        let look = HostView::new(fake);
        let daemon = daemons(&look, &mut Vec::new()).pop().unwrap();
        let mut managed = Managed::default();
        daemon.guests(&look, &mut managed);
        managed
    };
    let own = guests(&host(1000));
    assert_eq!(own.guests.iter().map(|g| (&*g.name, g.pid)).collect::<Vec<_>>(), [("db1", Some(812))]);
    assert!(own.guests[0].nics[0].place.addresses.is_empty(), "they may be others'");
    let forged = guests(&host(107));
    assert_eq!(forged.guests, []);
    assert!(forged.unread.iter().any(|u| u.what.contains("db1") && u.why.contains("user 1000")));
}

#[test]
fn numbers_of_processes_are_read_from_files_in_the_daemons_directory_alone() {
    let fifo = vmio_node::FileStat { mode: 0o010_644, size: 0, allocated: 0, dev: (0, 1), rdev: (0, 0) };
    let fake = Fake::new("fake")
        .file("/run/libvirt/qemu/web.pid", "8\n")
        .file("/run/libvirt/other.pid", "9\n")
        .node("/run/libvirt/qemu/pipe.pid", fifo);
    let daemon = Daemon { uri: QEMU.into(), of: Owner::System("/run/libvirt/qemu".into()) };
    let pids = ["web", "../other", "pipe", "none"].map(|name| daemon.pid(&HostView::new(&fake), name, ""));
    assert_eq!(pids, [Some(8), None, None, None]);
}

#[test]
fn all_guests_are_read_in_two_sessions() {
    let fake = host();
    let managed = Libvirt.guests(&HostView::new(&fake));
    let names: Vec<&str> = managed.guests.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, ["debian12", "win11", "oldbox", "db1"]);
    assert!(managed.guests.iter().all(|g| g.manager.as_deref() == Some("libvirt") && g.kind == "qemu"));
    assert_eq!(fake.ran().len(), 2);
    assert!(fake.ran().iter().all(|exec| exec.args.contains(&"--readonly".to_owned())));
}
