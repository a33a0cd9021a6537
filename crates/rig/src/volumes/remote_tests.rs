//! Volumes between hosts, by a monitor that keeps what QEMU would and a server that only greets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use serde_json::json;
use vmio_node::Local;

use super::hotplug_tests::{PLAIN, guest, other};
use super::tests::{name, pool};
use super::*;

/// A key of host web2, in a directory of its own.
fn key(dir: &Path) -> Key {
    let file = dir.join("web2/keys.psk");
    fs::create_dir(dir.join("web2")).unwrap();
    fs::write(&file, format!("web2:{}\n", "5a".repeat(32))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    Key::open(&file).unwrap()
}

/// A server, which greets those that come first.
fn server(greeted: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().take(greeted).flatten() {
            let _ = stream.write_all(b"NBDMAGICIHAVEOPT");
        }
        // From here on the kernel answers.
        std::mem::forget(listener);
    });
    at
}

#[test]
fn a_volume_of_another_host_is_attached_with_its_key_and_detached_in_order() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    let (guest, qemu) = guest(&dir.path().join("m"));
    let origin = Origin { at: server(2), key: Some(key(dir.path())) };
    check_from(&local, &pool, &data, &guest, &origin).unwrap();
    assert!(pool.attached().unwrap().is_empty() && qemu.lock().unwrap().changes.is_empty());
    let attached = attach_from(&local, &pool, &data, &guest, PLAIN, &origin).unwrap();
    // As after a crash, when all was done but told: the server would greet nobody else.
    assert_eq!(attach_from(&local, &pool, &data, &guest, PLAIN, &origin).unwrap(), attached);
    let told = std::mem::take(&mut *qemu.lock().unwrap()).node;
    assert_eq!(told["server"], json!({"type": "inet", "host": "127.0.0.1", "port": origin.at.port().to_string()}));
    assert_eq!((&told["export"], &told["tls-creds"]), (&json!("data"), &json!(format!("{}-key", attached.id()))));
    let second = Holder::of("web3", std::os::unix::process::parent_id()).unwrap();
    let from = Reach::From { at: origin.at };
    assert!(matches!(pool.claim_as(&data, &second, &from), Err(Error::Attached { .. })));
    assert!(matches!(pool.create(&data, 4096), Err(Error::Attached { .. })), "its record is the other one's");
    let running = detach_from(&local, &pool, &data, &attached, None);
    assert!(matches!(running, Err(Error::Attached { .. })), "a guest that runs is asked");
    let has = |name: String| BTreeSet::from([name]);
    {
        let mut qemu = qemu.lock().unwrap();
        (qemu.nodes, qemu.devices) = (has(attached.id()), has(attached.id()));
        qemu.objects = has(format!("{}-key", attached.id()));
    }
    detach_from(&local, &pool, &data, &attached, Some(&guest)).unwrap();
    assert_eq!(qemu.lock().unwrap().changes, ["device_del", "blockdev-del", "object-del"]);
    assert!(pool.attached().unwrap().is_empty());
    pool.create(&data, 4096).unwrap();
    let there = attach_from(&local, &pool, &data, &guest, PLAIN, &origin);
    assert!(matches!(there, Err(Error::Exists(_))));
}

#[test]
fn a_server_that_has_a_client_gets_no_second_one() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    let (guest, qemu) = guest(&dir.path().join("m"));
    let origin = Origin { at: server(0), key: None };
    let refused = attach_from(&local, &pool, &data, &guest, PLAIN, &origin);
    assert!(matches!(refused, Err(Error::Taken { .. })), "{refused:?}");
    assert!(pool.attached().unwrap().is_empty() && qemu.lock().unwrap().nodes.is_empty());
    let clear = Origin { at: "192.0.2.1:10809".parse().unwrap(), key: None };
    assert!(matches!(attach_from(&local, &pool, &data, &guest, PLAIN, &clear), Err(Error::Clear { .. })));
}

#[test]
fn a_volume_for_another_host_is_nobody_elses_until_it_is_detached() {
    let (_dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    pool.create(&data, 4096).unwrap();
    let at: SocketAddr = "127.0.0.1:10809".parse().unwrap();
    let to = |host: &str| Reach::To { host: host.to_owned(), at };
    let guest = Holder::of("web1", std::os::unix::process::parent_id()).unwrap();
    let served = pool.claim_as(&data, &other(json!({})), &to("web2")).unwrap();
    let refused = [
        pool.claim(&data, &guest).map(drop),
        pool.claim_as(&data, &guest, &to("web2")).map(drop),
        pool.delete(&data),
        pool.snapshot(&data, &name("b")).map(drop),
        pool.resize(&data, 8192).map(drop),
        detach(&local, &pool, &data, &served, None),
    ];
    assert!(refused.iter().all(|refused| matches!(refused, Err(Error::Served { .. }))), "{refused:?}");
    pool.release(&data, &served).unwrap();
    // Its server has ended: the guests of web2 may come back to the next one.
    let ended = pool.claim_as(&data, &other(json!({"start_ticks": 1})), &to("web2")).unwrap();
    let refused = [
        pool.claim(&data, &guest).map(drop),
        pool.claim_as(&data, &guest, &to("web3")).map(drop),
        pool.delete(&data),
        pool.resize(&data, 8192).map(drop),
    ];
    assert!(refused.iter().all(|refused| matches!(refused, Err(Error::OfHost { .. }))), "{refused:?}");
    let next = pool.claim_as(&data, &other(json!({"start_ticks": 2})), &to("web2")).unwrap();
    assert_ne!(next, ended);
    detach(&local, &pool, &data, &next, None).unwrap();
    pool.claim(&data, &guest).unwrap();
}
