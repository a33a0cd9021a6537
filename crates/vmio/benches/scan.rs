//! How long `vmio scan --json` takes beside 12, 200 and 1,000 guests: stand-ins with QEMU's command line and threads,
//! each with an image that it has open and a tap in a bridge. The taps, their queues (htb or tbf) and their `ingress` are
//! the kernel's. In namespaces of its own, so that nothing else is looked at and all ends with it. As root:
//! `cargo bench -p vmio --bench scan [-- GUESTS...]`. Prints the median and the worst of 7, judges nothing.
#![allow(clippy::print_stdout, missing_docs)]

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

type Done<T> = Result<T, Box<dyn Error>>;

/// The stand-in's program, as in its command line.
const PROGRAM: &str = "qemu-system-x86_64";
/// Variable with the directory of who runs inside of the namespaces.
const INSIDE: &str = "VMIO_BENCH_SCAN";
const RUNS: usize = 7;
/// As many ports as a bridge of Linux takes (BR_MAX_PORTS of net/bridge/br_private.h).
const MOST: usize = 1023;
/// A sysfs of the network namespace, with the control groups that were there. `$1` is a directory.
const SCRIPT: &str = "mkdir \"$1/groups\"; mount --rbind /sys/fs/cgroup \"$1/groups\"; mount -t sysfs sysfs /sys\n\
                      mount --rbind \"$1/groups\" /sys/fs/cgroup; shift; \"$@\"";

fn main() -> Done<()> {
    let mut args = std::env::args();
    if args.next().is_some_and(|program| program == PROGRAM) {
        return stand_in(args);
    }
    let mut counts: Vec<usize> = args.filter_map(|arg| arg.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![12, 200, 1000];
    }
    counts.sort_unstable();
    counts.retain(|count| (1..=MOST).contains(count));
    match std::env::var_os(INSIDE) {
        Some(dir) => inside(&PathBuf::from(dir), &counts),
        None => enter(&counts),
    }
}

/// Runs this again in a mount, a network and a process namespace.
fn enter(counts: &[usize]) -> Done<()> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.args(["sh", "-ec", SCRIPT, "sh"]).arg(dir.path()).arg(std::env::current_exe()?);
    let status = command.args(counts.iter().map(usize::to_string)).env(INSIDE, dir.path()).status()?;
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}; is this root?").into()) }
}

fn inside(dir: &Path, counts: &[usize]) -> Done<()> {
    batch("ip", "link set lo up\nlink add br0 type bridge\nlink set br0 up\n")?;
    let mut guests = Guests(Vec::new());
    for count in counts {
        let added = guests.0.len()..*count;
        links(added.clone())?;
        for n in added {
            guests.0.push(start(dir, n)?);
        }
        std::thread::sleep(Duration::from_secs(1));
        let mut times = Vec::new();
        let (mut seen, mut limited) = (0, 0);
        for _ in 0..RUNS {
            let started = Instant::now();
            let output = Command::new(env!("CARGO_BIN_EXE_vmio"))
                .args(["scan", "--json"])
                .env("VMIO_STATE", dir.join("state"))
                .stderr(Stdio::null())
                .output()?;
            times.push(started.elapsed().as_secs_f64());
            let found: Value = serde_json::from_slice(&output.stdout)?;
            (seen, limited) = told(&found);
        }
        times.sort_by(f64::total_cmp);
        let (median, worst) = (times[RUNS / 2], times[RUNS - 1]);
        println!(
            "{count:5} guests: {median:.3} s, worst {worst:.3} s, {:.2} ms a guest; {seen} seen, {limited} limited",
            median * 1e3 / *count as f64
        );
    }
    Ok(())
}

/// How many guests a scan has, and how many of them with a limit of their card.
fn told(scan: &Value) -> (usize, usize) {
    let guests = scan["guests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_limited = |guest: &&Value| guest["nics"][0]["rate_limits"].as_array().is_some_and(|all| !all.is_empty());
    (guests.len(), guests.iter().filter(is_limited).count())
}

/// Taps in the bridge, each with its queue and its hook.
fn links(taps: std::ops::Range<usize>) -> Done<()> {
    let (mut ip, mut tc) = (String::new(), String::new());
    for n in taps {
        writeln!(ip, "tuntap add dev tap{n} mode tap\nlink set dev tap{n} master br0 up")?;
        if n % 2 == 0 {
            writeln!(tc, "qdisc add dev tap{n} root handle 1: htb default 1")?;
            writeln!(tc, "class add dev tap{n} parent 1: classid 1:1 htb rate 100mbit")?;
        } else {
            writeln!(tc, "qdisc add dev tap{n} root handle 1: tbf rate 100mbit burst 32kb latency 50ms")?;
        }
        writeln!(tc, "qdisc add dev tap{n} handle ffff: ingress")?;
    }
    batch("ip", &ip)?;
    batch("tc", &tc)
}

/// The lines of one `ip` or `tc`.
fn batch(program: &str, lines: &str) -> Done<()> {
    let mut child = Command::new(program).args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(lines.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("{program} -batch ended with {status}").into()) }
}

/// Ends the stand-ins.
struct Guests(Vec<Child>);

impl Drop for Guests {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

fn start(dir: &Path, n: usize) -> Done<Child> {
    let image = dir.join(format!("{n}.raw"));
    File::create(&image)?.set_len(1 << 20)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(PROGRAM).args(["-name", &format!("guest=g{n}"), "-machine", "q35", "-smp", "4", "-m", "4096"]);
    let drive = format!("file={},format=raw,if=none,id=d0,cache=none,aio=native", image.display());
    command.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=d0"]);
    command.args(["-netdev", &format!("tap,id=n0,ifname=tap{n},script=no,downscript=no")]);
    let card = format!("virtio-net-pci,netdev=n0,mac=52:54:00:00:{:02x}:{:02x}", n / 256, n % 256);
    Ok(command.args(["-device", &card]).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
}

/// Holds its image open, with four virtual CPUs that do nothing.
fn stand_in(args: impl Iterator<Item = String>) -> Done<()> {
    let files =
        args.filter_map(|arg| arg.strip_prefix("file=").and_then(|rest| Some(rest.split_once(',')?.0.to_owned())));
    let held: Vec<File> =
        files.map(|file| OpenOptions::new().read(true).write(true).open(file)).collect::<Result<_, _>>()?;
    for cpu in 0..4 {
        let sleep = || std::thread::sleep(Duration::from_secs(24 * 3600));
        std::thread::Builder::new().name(format!("CPU {cpu}/KVM")).stack_size(16 << 10).spawn(sleep)?;
    }
    loop {
        std::thread::park();
        std::hint::black_box(&held);
    }
}
