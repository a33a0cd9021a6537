//! Limits that libvirt and Proxmox VE have set, as `vmio guard check --host` tells them, and the commands that it prints, pasted. Real
//! is all but what sets the queues: this kernel need not have what libvirt's limits are made of, so `tc` is a program that does
//! nothing and goes well. What libvirt then takes for set is what vmio reads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use vmio_testbed::poll_until;

use super::test_host::{OWN, TestHost, paste, run};
use super::wrong::{Wrong, refused};

const DOMAIN: &str = "<domain type='qemu'><name>web 1</name><memory unit='MiB'>64</memory>\
<os><type arch='x86_64'>hvm</type></os><devices><interface type='bridge'><mac address='52:54:00:00:00:01'/>\
<source bridge='br0'/><model type='virtio'/><bandwidth><inbound average='12500' peak='25000' burst='1024'/>\
<outbound average='2500'/></bandwidth></interface></devices></domain>";

const POLICY: &str = "[uplink.lo]\ncapacity = \"1Gbit\"\n[class.gold]\nmin = \"300Mbit\"\nmax = \"600Mbit\"\n\
[[interface]]\nmatch = { vm = \"web 1\" }\nclass = \"gold\"\nrx_class = \"gold\"\n\
[[interface]]\nmatch = { name = \"tap*\" }\nclass = \"gold\"\n";

fn check(file: &str, args: &[&str]) -> Result<String, Wrong> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    command.env("VMIO_STATE", format!("{OWN}/state")).args(["guard", "check", "--config", file]).args(args);
    let output = command.output()?;
    let [out, err] = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    if output.status.success() { Ok(out) } else { Err(refused(format!("{args:?}: {out}{err}"))) }
}

/// What is told of limits: interface, direction, rate and peak in bit/s, whether it drops, and the command.
type Told = (String, String, u64, Option<u64>, bool, String);

fn told(out: &str) -> Vec<Told> {
    let out: Value = serde_json::from_str(out).unwrap();
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let limit = |one: &Value| {
        let limit = &one["limit"];
        let rates = (limit["rate_bps"].as_u64().unwrap(), limit["peak_bps"].as_u64());
        let drops = limit["drops"].as_bool().unwrap();
        (text(&one["guest"]), text(&limit["direction"]), rates.0, rates.1, drops, text(&one["take_off"]))
    };
    out["host"]["limits"].as_array().unwrap().iter().map(limit).collect()
}

/// Whether all went as it is to.
pub fn limits_of_others() -> bool {
    let mut host = TestHost::new();
    let tc = format!("{OWN}/bin/tc");
    fs::write(&tc, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&tc, fs::Permissions::from_mode(0o755)).unwrap();
    let real = fs::canonicalize("/sbin/tc").unwrap();
    run("mount", &["--bind", &tc, real.to_str().unwrap()]).unwrap();
    host.libvirt();
    fs::write(format!("{OWN}/web.xml"), DOMAIN).unwrap();
    run("virsh", &["define", &format!("{OWN}/web.xml")]).unwrap();
    run("virsh", &["start", "--paused", "web 1"]).unwrap();
    let conf = "name: db\nmemory: 64\nkvm: 0\nnet0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,rate=12.5\n";
    fs::write(super::qm::config_path("1101"), conf).unwrap();
    run("qm", &["start", "1101"]).unwrap();
    let (file, proposal) = (format!("{OWN}/guard.toml"), format!("{OWN}/proposal.toml"));
    fs::write(&file, POLICY).unwrap();

    let mut limits = Vec::new();
    let mut said = String::new();
    poll_until("four limits", || {
        said = check(&file, &["--host", "--json"]).unwrap();
        limits = told(&said);
        limits.len() == 4
    });
    crate::help::schema::fits("guard-check", &said);
    limits.sort();
    let of = |n: usize| (limits[n].0.as_str(), limits[n].1.as_str(), limits[n].2, limits[n].3, limits[n].4);
    assert_eq!(of(0), ("db", "guest_rx", 104_857_600, None, false));
    assert_eq!(of(1), ("db", "guest_tx", 104_857_600, None, true));
    assert_eq!(of(2), ("web 1", "guest_rx", 100_000_000, Some(200_000_000), false));
    assert_eq!(of(3), ("web 1", "guest_tx", 20_000_000, None, true));
    let out: Value = serde_json::from_str(&said).unwrap();
    // Those below the minimum of gold are not taken over: of web 1 both, of db what it sends.
    assert_eq!(out["host"]["left_out"].as_array().unwrap().len(), 3, "{said}");
    fs::write(&proposal, out["host"]["proposal"].as_str().unwrap()).unwrap();
    let text = check(&file, &["--host"]).unwrap();
    assert!(text.contains("Proxmox VE limits what it sends to 104.8576 Mbit/s"), "{text}");
    assert!(text.contains(&fs::read_to_string(&proposal).unwrap()), "{text}");

    let commands: std::collections::BTreeSet<&str> = limits.iter().map(|limit| limit.5.as_str()).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        assert!(text.contains(command), "{text}");
        paste(command).unwrap();
    }
    // Neither now nor at the next start; all else of the lines stays.
    let left = told(&check(&proposal, &["--host", "--json"]).unwrap());
    assert!(left.is_empty(), "{left:?}");
    for option in [&[][..], &["--inactive"]] {
        let xml = run("virsh", &[&["dumpxml"], option, &["web 1"]].concat()).unwrap();
        assert!(!xml.contains("average=") && xml.contains("52:54:00:00:00:01"), "{xml}");
    }
    let conf = fs::read_to_string(super::qm::config_path("1101")).unwrap();
    assert!(conf.contains("net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1\n"), "{conf}");

    run("qm", &["stop", "1101"]).unwrap();
    run("virsh", &["destroy", "web 1"]).unwrap();
    drop(host);
    true
}
