//! Libvirt domains in use: a real libvirtd with a guest in which Debian's qemu-guest-agent runs, on its port.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use vmio_node::libvirt::{self, Domain};
use vmio_node::reach::{Machine, Program};
use vmio_node::{Exec, Local, Node, Process, Reader, Remote};
use vmio_rig::image::Image;
use vmio_rig::ours::AGENT;
use vmio_testbed::libvirt::{self as libvirtd, Libvirtd};
use vmio_testbed::process::in_namespaces;
use vmio_testbed::{limit, poll_for, poll_until, scratch};

use crate::help::schema::fits;
use crate::help::state_dir::StateDir;

/// Said to the test's own child, which is in the namespaces.
const INSIDE: &str = "VMIO_TEST_LIBVIRT_IN";
/// What the shell in the guest needs; vmio's own image has a shell, dd and fio.
const PROGRAMS: [&str; 10] = ["uname", "mktemp", "chmod", "rm", "wc", "mkdir", "mkfifo", "sleep", "df", "mount"];

fn run(program: &str, args: &[&str]) -> String {
    let output = Local::new().exec(&Exec::new(program).args(args.iter().copied())).unwrap();
    assert!(output.ok(), "{program} {args:?}: {}\n{}", output.err(), libvirtd::log());
    output.out()
}

/// The system's, or the one that scripts/test-images has unpacked.
fn guest_agent() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qemu-ga/usr/sbin/qemu-ga");
    let all = [PathBuf::from("/usr/sbin/qemu-ga"), unpacked];
    all.into_iter().find(|path| path.exists()).expect("no qemu-ga: scripts/test-images gets one")
}

/// libvirtd, a guest with an agent, and a way into the guest that is the test's own.
struct Host {
    _daemon: Libvirtd,
    /// Through a port of vmio's own.
    inside: Remote,
    /// The guest's agent, while it runs.
    agent: Option<Box<dyn Process>>,
    _files: tempfile::TempDir,
}

impl Host {
    fn start(state: &StateDir) -> Host {
        run("sh", &["-c", libvirtd::HIDE]);
        let daemon = Libvirtd::start();
        let files = scratch();
        let image = Image::load_or_build(&Local::new(), &state.path(), &|_| {}).unwrap();
        let at = |name: &str| files.path().join(name).display().to_string();
        fs::write(at("initrd"), image.initramfs(&[]).unwrap()).unwrap();
        disk(&files.path().join("own"), &at("disk"));
        let libmount = libraries("/usr/bin/mount").into_iter().find(|path| path.contains("libmount")).unwrap();
        let domain = DOMAIN
            .replace("{kernel}", &image.kernel().display().to_string())
            .replace("{tools}", &image.tools().display().to_string())
            .replace("{initrd}", &at("initrd"))
            .replace("{disk}", &at("disk"))
            .replace("{port}", &at("port"));
        let virsh = |name: &str, text: &str, verb: &str| {
            fs::write(at(name), text).unwrap();
            run("virsh", &["--quiet", verb, &at(name)]);
        };
        virsh("shop.xml", &domain, "create");
        // No system runs in them, but libvirt tells whether they have an agent's port.
        for (name, channel, verb) in [("deaf", "", "create"), ("mute", CHANNEL, "create"), ("off", CHANNEL, "define")] {
            virsh(name, &OTHER.replace("{name}", name).replace("{channel}", channel), verb);
        }
        let stream = poll_for("the guest's port", || UnixStream::connect(at("port")));
        let halves = (Box::new(stream.try_clone().unwrap()) as Box<_>, Box::new(stream) as Box<_>);
        let inside = Remote::connect("inside", halves, limit() * 2).unwrap();
        let put = |from: &str, to: &str| inside.put(Path::new(from), Path::new(to), Some(0o755)).unwrap();
        put("/usr/bin/mkdir", "/tmp/mkdir");
        put("/usr/bin/mount", "/tmp/mount");
        put(&libmount, "/tmp/libmount.so.1");
        let script = "/tmp/mkdir /srv && LD_LIBRARY_PATH=/tmp /tmp/mount -t ext4 /dev/vdb /srv";
        let output = inside.exec(&Exec::new("/bin/sh").args(["-c", script])).unwrap();
        assert!(output.ok(), "{}", output.err());
        let mut host = Host { _daemon: daemon, inside, agent: None, _files: files };
        host.agent("");
        host
    }

    /// Begins the guest's agent anew, with these options.
    fn agent(&mut self, options: &str) {
        drop(self.agent.take());
        let script = format!(
            "LD_LIBRARY_PATH=/srv/own/lib PATH=/srv/own/bin:/bin:/sbin exec /srv/own/bin/qemu-ga -m virtio-serial \
             -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run {options}"
        );
        self.agent = Some(self.inside.spawn(&Exec::new("/bin/sh").args(["-c", &script])).unwrap());
        let ping = ["--quiet", "qemu-agent-command", "shop", "{\"execute\":\"guest-ping\"}"];
        poll_until("the guest's agent", || Command::new("virsh").args(ping).output().unwrap().status.success());
    }

    fn open(&self) -> Machine {
        let domain: Domain = "libvirt://shop".parse().unwrap();
        let agents = [Program { machine: std::env::consts::ARCH.into(), file: AGENT.find(&Local::new()).unwrap() }];
        libvirt::open(&["virsh".to_owned()], &domain, &agents).unwrap().machine
    }

    /// Directories of agents in the guest's memory.
    fn left(&self) -> Vec<String> {
        self.inside.list(Path::new("/run")).unwrap().into_iter().filter(|name| name.starts_with("vmio.")).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for name in ["shop", "deaf", "mute"] {
            let _ = Command::new("virsh").args(["--quiet", "destroy", name]).status();
        }
    }
}

/// The files of the libraries that a program needs.
fn libraries(program: &str) -> Vec<String> {
    let said = run("ldd", &[program]);
    said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// A disk with the guest's agent, what its shell needs, and room to measure.
fn disk(dir: &Path, image: &str) {
    for name in ["own/bin", "own/lib", "there"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let agent = guest_agent().display().to_string();
    let programs = PROGRAMS.map(|name| format!("/usr/bin/{name}"));
    for program in programs.iter().chain([&agent]) {
        let name = |path: &str| Path::new(path).file_name().unwrap().to_owned();
        fs::copy(program, dir.join("own/bin").join(name(program))).unwrap();
        for library in libraries(program).iter().filter(|path| !path.contains("ld-linux")) {
            fs::copy(library, dir.join("own/lib").join(name(library))).unwrap();
        }
    }
    fs::File::create(image).unwrap().set_len(1 << 30).unwrap();
    run("mkfs.ext4", &["-q", "-F", "-d", &dir.display().to_string(), image]);
}

const CHANNEL: &str = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>";
const DOMAIN: &str = "<domain type='qemu'><name>shop</name><memory unit='MiB'>384</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd>
<cmdline>quiet console=ttyS0</cmdline></os><cpu mode='maximum'/>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{tools}'/><target dev='vda' bus='virtio'/>
<readonly/><serial>vmio-tools</serial></disk>
<disk type='file' device='disk'><driver name='qemu' type='raw' cache='writeback'/><source file='{disk}'/>
<target dev='vdb' bus='virtio'/></disk>
<channel type='unix'><source mode='bind' path='{port}'/><target type='virtio' name='vmio.0'/></channel>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<memballoon model='none'/></devices></domain>";
const OTHER: &str = "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{channel}<memballoon model='none'/></devices></domain>";

/// A study of few and short cells.
const STUDY: &str = "name = \"away\"\ntitle = \"away\"\nbaseline = \"none\"\nguest = { vcpus = 1, memory_mib = 192 }\n\
    size = { target_mib = 384 }\n\
    repeat = { min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.1, seconds = 0.5, max_minutes = 3.0, \
    max_gib_written = 20.0 }\n\
    [[matrix]]\nsides = [\"ssh\"]\ndisks.targets = [\"preallocated\"]\ndisks.drivers = [\"virtio-blk\"]\n\
    workloads = [\"rand-read-1\"]\n";

#[test]
#[ignore = "guest: needs QEMU"]
fn a_libvirt_domain_in_use_is_measured_through_its_guest_agent() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    // With its first process the whole namespace ends, and all file systems that only it had.
    let status = in_namespaces()
        .args(["--ignored", "a_libvirt_domain_in_use_is_measured_through_its_guest_agent", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(status.expect("unshare (util-linux) is installed").success());
}

fn inside() {
    let state = StateDir::with_image();
    let mut host = Host::start(&state);
    what_is_done_there_is_undone(&host);
    it_is_measured(&host, &state);
    what_cannot_be_says_why(&mut host, &state);
    // Its kernel is in the state directory.
    drop(host);
    state.is_clean();
}

fn what_is_done_there_is_undone(host: &Host) {
    let made = Path::new("/srv/there/made");
    let is_there = || host.inside.stat(made).unwrap().is_some();
    let begun = Instant::now();
    let machine = host.open();
    eprintln!("  reached in {:.1} s", begun.elapsed().as_secs_f64());
    let node = machine.node();
    assert!(machine.place().1 && machine.place().0.starts_with("/run"), "{:?}", machine.place());
    // More than a piece of what is carried, both ways.
    let bytes: Vec<u8> = (0..3 << 19).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let begun = Instant::now();
    node.write(made, &bytes, None).unwrap();
    let there = begun.elapsed().as_secs_f64();
    assert_eq!(node.read(made).unwrap(), bytes);
    eprintln!("  1.5 MiB there in {there:.1} s, back in {:.1} s", begun.elapsed().as_secs_f64() - there);
    let begun = Instant::now();
    (0..20).for_each(|_| assert!(node.clock_seconds().is_ok()));
    eprintln!("  a question takes {:.1} ms", begun.elapsed().as_secs_f64() * 1000.0 / 20.0);
    assert!(is_there());
    drop(machine);
    assert!(!is_there(), "what was made is gone");
    assert_eq!(host.left(), Vec::<String>::new());
    // An agent that is killed is begun once more to undo it.
    let machine = host.open();
    machine.node().write(made, b"here", None).unwrap();
    let place = machine.place().0.join("vmio-agent");
    let kill = "for p in /proc/[0-9]*; do [ \"$p/exe\" -ef \"$0\" ] && kill -9 ${p#/proc/}; done; :";
    let shell = Exec::new("/bin/sh").args(["-c", kill, &place.display().to_string()]);
    assert!(host.inside.exec(&shell).unwrap().ok());
    poll_until("it is undone by another", || !is_there() && host.left().is_empty());
    poll_until("that is noticed here", || machine.node().clock_seconds().is_err());
}

fn it_is_measured(host: &Host, state: &StateDir) {
    let dir = tempfile::tempdir_in("/srv").unwrap();
    let study = dir.path().join("away.toml");
    fs::write(&study, STUDY).unwrap();
    let run = |on: &str, more: &[&str]| {
        let mut command = state.command(&["study", "run", &study.display().to_string(), "--yes", "--on", on]);
        command.args(more);
        state.finish(&mut command)
    };
    let done = run("libvirt://shop/srv/there", &["--json"]).with(0);
    fits("tax", &done.out);
    assert!(done.err.contains("vmio-agent runs there from memory"), "{}", done.err);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    let afar = &said["environment"]["afar"];
    assert_eq!(afar["address"], "libvirt://shop");
    assert_eq!(said["cells"].as_array().unwrap().len(), 1, "{}", done.out);
    // What this host finds of it.
    let disk = afar["settings"]["disk vdb"].as_str().unwrap();
    assert!(disk.contains("driver virtio-blk") && disk.contains("cache writeback"), "{afar}");
    let findings = afar["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding.as_str().unwrap().contains("disk vdb")), "{afar}");
    assert_eq!(host.inside.list(Path::new("/srv/there")).unwrap(), Vec::<String>::new(), "its file is gone");
    assert_eq!(host.left(), Vec::<String>::new());
    // Nothing runs in it that is a guest itself.
    let scanned = state.vmio(&["scan", "--json", "--on", "libvirt://shop"]).with(0);
    fits("scan", &scanned.out);
    let scanned: Value = serde_json::from_str(&scanned.out).unwrap();
    assert_eq!((&scanned["on"], &scanned["guests"]), (&"libvirt://shop".into(), &Value::Array(Vec::new())));
    state
        .vmio(&["scan", "--on", "libvirt://shop/srv"])
        .with(2)
        .says(&["give ssh://[USER@]HOST[:PORT] or libvirt://DOMAIN"]);
    run("libvirt://shop/srv/nowhere", &[]).with(3).says(&["/srv/nowhere is not there on libvirt://shop"]);
}

fn what_cannot_be_says_why(host: &mut Host, state: &StateDir) {
    let tax = |on: &str, code: i32| state.vmio(&["tax", "--dry-run", "--on", on]).with(code);
    tax("libvirt://", 2).says(&["expected for example libvirt://web1"]);
    tax("libvirt://nosuch", 3).says(&["failed to get domain", "virsh list --all"]);
    tax("libvirt://off", 3).says(&["domain is not running: it is shut off", "virsh start off"]);
    tax("libvirt://deaf", 3).says(&["guest agent is not configured", "org.qemu.guest_agent.0"]);
    tax("libvirt://mute", 3).says(&["agent is not connected", "apt install qemu-guest-agent"]);
    host.agent("-b guest-exec");
    tax("libvirt://shop", 3).says(&["guest-exec", "has been disabled there", "/etc/qemu/qemu-ga.conf"]);
    let mut none = state.command(&["tax", "--dry-run", "--on", "libvirt://shop"]);
    state.finish(none.env("VMIO_VIRSH", "no-such-virsh")).with(3).says(&["no-such-virsh", "libvirt-clients"]);
}
