//! Guests' interfaces on bridges, of which one has the uplink. A bridge has 1,023 ports at most, so that of thousands
//! each thousand has a bridge, which a veth pair joins to the first.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use vmio_testbed::net::Namespace;

use super::Done;

/// Names of policies, and what they say of the guests' class and of their entry: limits of what is sent, the same with
/// hard reserves, limits of both directions.
pub const POLICIES: &[(&str, (&str, &str))] = &[
    ("sent", ("", "")),
    // What the kernel cannot hold by itself is left to the loop.
    ("hard", ("reserve = \"hard\"\n", "")),
    ("both", ("", "rx_class = \"gold\"\n")),
];

/// Ports of a bridge (BR_MAX_PORTS of net/bridge/br_private.h is 1024), but for those that join bridges.
const PORTS: usize = 1000;
/// Interfaces of this group are removed at the end.
const GROUP: u32 = 7;
/// Where the busy guest sends to, behind the uplink.
const SINK_MAC: &str = "02:00:00:00:00:09";
const SINK: &str = "10.9.0.9";
/// What it sends: 8 Mbit/s.
const PACKET: usize = 1000;
const PAUSE: Duration = Duration::from_millis(1);
/// Time that a new interface is alone with.
const ALONE: Duration = Duration::from_millis(500);

/// The policy of that name.
pub fn policy(name: &str) -> Done<String> {
    let found = POLICIES.iter().find(|(known, _)| *known == name);
    let Some((_, (class, entry))) = found else {
        let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        return Err(format!("no policy {name:?}: {}", names.join(", ")).into());
    };
    Ok(format!(
        "[uplink.u0]\ncapacity = \"10Gbit\"\n[class.gold]\nmin = \"100kbit\"\n{class}\
         [[interface]]\nmatch = {{ name = \"t*\" }}\nclass = \"gold\"\n{entry}"
    ))
}

/// All of it; the host is the namespace of this process.
pub struct Bed {
    /// Where the guests' ends are.
    guests: Namespace,
    /// Behind the uplink.
    _sink: Namespace,
}

impl Bed {
    pub fn build(count: usize) -> Done<Bed> {
        let (guests, sink) = (Namespace::make(), Namespace::make());
        quiet();
        guests.inside(quiet);
        sink.inside(quiet);
        let mut lines = String::from("link set lo up\n");
        for bridge in 0..count.div_ceil(PORTS) {
            writeln!(lines, "link add br{bridge} group {GROUP} type bridge mcast_snooping 0\nlink set br{bridge} up")?;
            if bridge > 0 {
                writeln!(lines, "link add j{bridge} group {GROUP} type veth peer name k{bridge}")?;
                writeln!(lines, "link set j{bridge} master br0 up\nlink set k{bridge} master br{bridge} up")?;
            }
        }
        writeln!(lines, "link add u0 group {GROUP} type veth peer name u1 address {SINK_MAC} netns {}", sink.path())?;
        writeln!(lines, "link set u0 master br0 up")?;
        for n in 0..count {
            let bridge = n / PORTS;
            writeln!(lines, "link add t{n} group {GROUP} type veth peer name p{n} netns {}", guests.path())?;
            writeln!(lines, "link set t{n} master br{bridge} up")?;
        }
        batch("ip", &lines)?;
        sink.inside(|| batch("ip", "link set u1 up\n").map_err(|e| e.to_string()))?;
        let ends: String = (0..count).map(|n| format!("link set p{n} up\n")).collect();
        let busy =
            format!("{ends}addr add 10.9.0.1/24 dev p0\nneigh replace {SINK} lladdr {SINK_MAC} dev p0 nud permanent\n");
        guests.inside(|| batch("ip", &busy).map_err(|e| e.to_string()))?;
        // What the busy guest sends is flooded to nobody.
        batch("bridge", &format!("fdb replace {SINK_MAC} dev u0 master static\n"))?;
        Ok(Bed { guests, _sink: sink })
    }

    /// Does this while the first guest sends.
    pub fn while_one_is_busy<T>(&self, work: impl FnOnce() -> Done<T>) -> Done<T> {
        let socket = self.guests.inside(|| UdpSocket::bind("10.9.0.1:0"))?;
        socket.connect((SINK, 9))?;
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    // What finds no room is no matter.
                    let _ = socket.send(&[0; PACKET]);
                    thread::sleep(PAUSE);
                }
            });
            // The counters of a second in which it began say less.
            thread::sleep(Duration::from_secs(3));
            let done = work();
            ended.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Plugs so many more interfaces in, one after the other, then does this.
    pub fn plug<T>(&self, count: usize, work: impl FnOnce() -> Done<T>) -> Done<T> {
        for n in 0..count {
            let path = self.guests.path();
            batch("ip", &format!("link add tnew{n} group {GROUP} type veth peer name pnew{n} netns {path}\n"))?;
            thread::sleep(ALONE);
        }
        work()
    }

    /// At once, not when the kernel comes to it.
    pub fn remove(self) -> Done<()> {
        batch("ip", &format!("link del group {GROUP}\n"))
    }
}

/// Nothing is sent by itself, and no firewall is asked.
fn quiet() {
    let written = ["ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"].map(|file| (file, "1"));
    let bridges = ["iptables", "ip6tables", "arptables"].map(|name| format!("bridge/bridge-nf-call-{name}"));
    for (file, value) in written.into_iter().chain(bridges.iter().map(|file| (file.as_str(), "0"))) {
        // A kernel without it is quiet anyway.
        let _ = fs::write(format!("/proc/sys/net/{file}"), value);
    }
}

/// The lines of one `ip` or `bridge`.
fn batch(program: &str, lines: &str) -> Done<()> {
    let mut child = Command::new(program).args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(lines.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("{program} -batch ended with {status}").into()) }
}
