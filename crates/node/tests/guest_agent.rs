//! The agent as init of a real guest behind virtio-serial, under software emulation.
//!
//! `VMIO_TEST_KERNEL` names a kernel image and `VMIO_TEST_INITRD` an initramfs whose `/init` is
//! the static agent, with `/bin/sh` and the kernel's virtio modules in `/etc/vmio-modules`.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vmio_node::{End, Exec, Halves, Node, Reader, Remote, SamplePlan};

const MINUTE: Duration = Duration::from_secs(60);

struct Guest {
    qemu: Child,
    socket: PathBuf,
    console: PathBuf,
    _dir: tempfile::TempDir,
}

impl Guest {
    fn boot() -> Self {
        let image =
            |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} must name a file; see this file's head"));
        let dir = tempfile::tempdir().unwrap();
        let (socket, console) = (dir.path().join("agent"), dir.path().join("console"));
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-nodefaults", "-display", "none", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "256"])
            .args(["-kernel", &image("VMIO_TEST_KERNEL"), "-initrd", &image("VMIO_TEST_INITRD")])
            .args(["-append", "console=ttyS0 loglevel=4 panic=-1", "-no-reboot", "-device", "virtio-serial"])
            .args(["-device", "virtserialport,chardev=agent,name=vmio.0"])
            .arg("-chardev")
            .arg(format!("socket,id=agent,server=on,wait=off,path={}", socket.display()))
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { qemu, socket, console, _dir: dir }
    }

    fn connect(&self) -> (UnixStream, Remote) {
        let until = Instant::now() + MINUTE;
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let halves: Halves = (Box::new(stream.try_clone().unwrap()), Box::new(stream.try_clone().unwrap()));
        let node = Remote::connect("guest0", halves, MINUTE);
        let node = node.unwrap_or_else(|e| panic!("{e}\n{}", std::fs::read_to_string(&self.console).unwrap()));
        (stream, node)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn sh(script: &str) -> Exec {
    Exec::new("sh").args(["-c", script]).limit(MINUTE)
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_serves_one_client_after_the_other() {
    let begin = Instant::now();
    let mut guest = Guest::boot();
    let (stream, node) = guest.connect();
    eprintln!("ready after {:.2} s", begin.elapsed().as_secs_f64());
    let offset = node.clock_offset().unwrap();
    eprintln!("round trip {:.2} ms at best", offset.error_seconds * 2e3);

    // Binary, large, both ways.
    let data: Vec<u8> = (0..20_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let begin = Instant::now();
    node.write(Path::new("/tmp/large"), &data, Some(0o755)).unwrap();
    eprintln!("to the guest   {:.1} MB/s", 20.0 / begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    assert!(node.read(Path::new("/tmp/large")).unwrap() == data);
    eprintln!("from the guest {:.1} MB/s", 20.0 / begin.elapsed().as_secs_f64());
    let output = node.exec(&sh("echo out; echo err >&2; exit 9")).unwrap();
    assert_eq!((output.end, output.out(), output.err()), (End::Exit(9), "out\n".into(), "err\n".into()));
    let output = node.exec(&sh("sleep 1000 & sleep 1000").limit(Duration::from_secs(1))).unwrap();
    assert_eq!(output.end, End::TimedOut);

    // Init did its work.
    let mounts = node.read_text(Path::new("/proc/mounts")).unwrap();
    for target in ["/proc", "/sys", "/dev", "/tmp", "/run"] {
        assert!(mounts.lines().any(|l| l.split(' ').nth(1) == Some(target)), "{target} is not mounted");
    }
    assert!(node.list(Path::new("/dev/virtio-ports")).unwrap().contains(&"vmio.0".to_owned()));
    assert_eq!(node.read_text(Path::new("/proc/sys/kernel/modprobe")).unwrap().trim(), "");
    let lo = node.read_text(Path::new("/sys/class/net/lo/flags")).unwrap();
    assert_eq!(u32::from_str_radix(lo.trim().trim_start_matches("0x"), 16).unwrap() & 1, 1, "lo is up");

    // Orphans are reaped: nobody's child is left a zombie.
    node.exec(&sh("for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.1' & done")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let zombies = node.exec(&sh("cat /proc/[0-9]*/stat | { grep -c ') Z ' || true; }")).unwrap();
    assert_eq!(zombies.out().trim(), "0");

    let plan = SamplePlan { paths: vec!["/proc/stat".into()], interval: Duration::from_millis(100) };
    let sampling = node.sample(&plan).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let samples = sampling.stop().unwrap();
    assert!(samples.len() > 10 && samples.iter().all(|s| s.contents[0].starts_with(b"cpu ")), "{}", samples.len());

    // The client is cut off in the middle of everything, then another one comes.
    let sleeper = node.spawn(&sh("sleep 1000")).unwrap();
    let pid = sleeper.pid();
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    drop((sleeper, node));
    let (second, node) = guest.connect();
    assert_eq!(node.stat(&PathBuf::from(format!("/proc/{pid}"))).unwrap(), None, "its command is gone");
    assert_eq!(node.stat(Path::new("/tmp/large")).unwrap(), None, "its file is gone");
    // QEMU takes one client at a time.
    drop((second, node));
    let begin = Instant::now();
    for _ in 0..20 {
        drop(guest.connect());
    }
    eprintln!("a new client every {:.0} ms", begin.elapsed().as_secs_f64() * 50.0);
    let (_stream, node) = guest.connect();
    node.poweroff().unwrap();
    let until = Instant::now() + MINUTE;
    while guest.qemu.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "the guest is still on");
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("{}", std::fs::read_to_string(&guest.console).unwrap());
}
