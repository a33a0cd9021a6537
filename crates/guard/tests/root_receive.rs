//! What guests receive: whose a packet is by its address, maxima against floods, minima of those that give way.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{Load, Look, flood, under, while_full};
use crate::common::test_host::{SINK, TestHost, test_host};
use crate::root_plane::{interfaces, policy};
use vmio_guard::core::Core;
use vmio_guard::demand::Demand;
use vmio_guard::desired::PoolKey;
use vmio_guard::planes::linux::{Linux, ifb, links};
use vmio_guard::planes::{Count, Plane, Scope};
use vmio_model::policy::Direction;
use vmio_testbed::net::{Namespace, apart, run};
use vmio_testbed::{poll_for, poll_until};

/// Of 95 Mbit/s: t1 has a maximum; t2 may have all.
pub const LIMITED: &str = "\
[uplink.u0]
capacity = \"100Mbit\"
[class.any]
[class.low]
max = \"20Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"any\"
rx_class = \"low\"
[[interface]]
match = { name = \"t2\" }
class = \"any\"
rx_class = \"any\"
";

/// 12 and 4 of 19 Mbit/s, and the rest three to one: 3 to 1 in all.
const GUARANTEED: &str = "\
[uplink.u0]
capacity = \"20Mbit\"
[class.any]
[class.large]
min = \"12Mbit\"
weight = 3
[class.small]
min = \"4Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"any\"
rx_class = \"large\"
[[interface]]
match = { name = \"t2\" }
class = \"any\"
rx_class = \"small\"
";

/// `host`, t1, t2, `default`.
const HOST: usize = 0;
pub const T1: usize = 1;
const T2: usize = 2;
const DEFAULT: usize = 3;

pub fn rx() -> PoolKey {
    PoolKey { uplink: "u0".into(), direction: Direction::GuestRx }
}

pub fn start(host: &TestHost, text: &str) -> Core<Linux> {
    Core::start(Linux::open(false).unwrap(), policy(text), interfaces(host)).unwrap()
}

pub fn counts(core: &mut Core<Linux>) -> Vec<Count> {
    core.plane().observe(Scope::Counts(&rx())).unwrap().counts.to_vec()
}

pub fn tenants(i: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, 100 + i)
}

/// Sends so many datagrams from the sink.
fn datagrams(host: &TestHost, to: Ipv4Addr, packets: usize) {
    host.sink.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_broadcast(true).unwrap();
        for _ in 0..packets {
            // What somebody says of a port without a program is no matter.
            let _ = socket.send_to(&[7; 400], (to, 9));
        }
    });
}

/// Sends from the sink until some member has received ten more, and says which have.
pub fn received_by(core: &mut Core<Linux>, host: &TestHost, to: Ipv4Addr) -> Vec<bool> {
    let passed = |core: &mut Core<Linux>| counts(core).iter().map(|c| c.passed_bytes).collect::<Vec<u64>>();
    let before = passed(core);
    let grew = |core: &mut Core<Linux>| -> Vec<bool> {
        passed(core).iter().zip(&before).map(|(now, before)| *now >= before + 10 * 442).collect()
    };
    poll_until("packets in a class", || {
        datagrams(host, to, 10);
        grew(core).contains(&true)
    });
    grew(core)
}

pub fn only(member: usize) -> Vec<bool> {
    (0..4).map(|i| i == member).collect()
}

/// A socket of a tenant's gets what is sent to it.
pub fn arrives(host: &TestHost, tenant: usize) {
    let socket = host.tenants[tenant].namespace.inside(|| UdpSocket::bind("0.0.0.0:9").unwrap());
    socket.set_nonblocking(true).unwrap();
    poll_until("a datagram at the tenant", || {
        datagrams(host, tenants(tenant as u8 + 1), 1);
        socket.recv(&mut [0; 500]).is_ok()
    });
}

/// Its queues' place, as the kernel has it now.
pub fn middle(host: &mut TestHost) -> links::Device {
    let name = format!("vmiorx{:x}", host.uplink.index);
    ifb::find(&mut host.netlink, &name).unwrap().unwrap()
}

#[test]
#[ignore = "root"]
fn received_packets_are_classified_by_address() {
    apart(|| {
        let mut host = test_host(2);
        run(&["ip addr add 10.9.0.1/24 dev br0"]);
        let mut core = start(&host, LIMITED);
        let names: Vec<&str> = core.desired().pools[1].seats.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["host", "t1", "t2", "default"]);
        assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
        arrives(&host, 0);
        // The sink asks for the host's address, and learns the bridge's.
        let strangers = "ip neigh replace 10.9.0.77 lladdr 02:00:00:00:00:77 dev u1 nud permanent";
        host.sink.run(&[strangers]);
        for (to, member) in [
            (tenants(1), T1),
            (tenants(2), T2),
            (Ipv4Addr::new(10, 9, 0, 1), HOST),
            (Ipv4Addr::new(10, 9, 0, 77), DEFAULT),
            (Ipv4Addr::new(10, 9, 0, 255), DEFAULT),
        ] {
            assert_eq!(received_by(&mut core, &host, to), only(member), "{to}");
        }
        // A guest that goes is nobody's any more.
        core.set_interfaces(interfaces(&host)[1..].to_vec()).unwrap();
        assert_eq!(core.reconcile().unwrap(), 0);
        assert_eq!(received_by(&mut core, &host, tenants(1)), [false, false, true], "default");
        // The bridge gets another address.
        run(&["ip link set br0 address 02:00:00:00:00:33"]);
        let anew = "ip neigh replace 10.9.0.1 lladdr 02:00:00:00:00:33 dev u1 nud permanent";
        host.sink.run(&[anew]);
        assert_eq!(core.reconcile().unwrap(), 1);
        assert_eq!(received_by(&mut core, &host, Ipv4Addr::new(10, 9, 0, 1)), [true, false, false], "host");
        let gone = middle(&mut host).name;
        core.undo().unwrap();
        assert_eq!(links::look(&mut host.netlink, &gone).unwrap(), None);
        arrives(&host, 0);
    });
}

fn looks(core: &mut Core<Linux>) -> Vec<Look> {
    counts(core).iter().map(|c| Look { passed: c.passed_bytes, waiting: c.waiting_bytes }).collect()
}

#[test]
#[ignore = "root"]
fn maximum_holds_against_a_flood() {
    apart(|| {
        let host = test_host(2);
        // A quarter of it all, which a slow machine can send, too: of 24 Mbit/s 5 are t1's.
        let mut core = start(&host, &LIMITED.replace("100Mbit", "25Mbit").replace("20Mbit", "5Mbit"));
        arrives(&host, 0);
        let socket = host.tenants[0].namespace.inside(|| UdpSocket::bind("0.0.0.0:9").unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let got = AtomicU64::new(0);
        let drain: Load<'_> = Box::new(|done| {
            while !done.load(Ordering::Relaxed) {
                got.fetch_add(socket.recv(&mut [0; 2000]).unwrap_or(0) as u64, Ordering::Relaxed);
            }
        });
        // More than the class's queue holds, which on one machine is charged to the sender's socket.
        let floods = [1, 2].map(|i| -> Load<'_> {
            let host = &host;
            Box::new(move |done| host.sink.inside(|| flood(&tenants(i).to_string(), 1400, 4 << 20, done)))
        });
        let began = Instant::now();
        let before = counts(&mut core);
        let full = under(floods.into_iter().chain([drain]), || {
            while_full(&[T1, T2], (Duration::from_millis(200), Duration::from_secs(1)), |_| looks(&mut core))
        });
        let after = counts(&mut core);
        let most = began.elapsed().as_secs_f64() * 5e6 / 8.0;
        let passed = after[T1].passed_bytes - before[T1].passed_bytes;
        // However long it took: no more than the rate's, and a bucket that was full.
        let bucket = 2.0 * 65_536.0 + 1442.0;
        assert!((passed as f64) < most * 1.01 + bucket, "{passed} of {most:.0} bytes");
        assert!(after[T1].dropped_packets > before[T1].dropped_packets, "it was sent more: {after:?}");
        let got = got.into_inner();
        assert!(0 < got && got < passed, "{got} {after:?}");
        // The other one has what is left.
        assert!(full.moved[T2] > 2 * full.moved[T1], "{full:?}");
        core.undo().unwrap();
    });
}

/// A sender beyond the sink, which routes: what has passed a router is charged to no socket any more, as it is where
/// senders are other machines.
// The setting of a namespace that goes with the test.
#[allow(clippy::disallowed_methods)]
fn far(host: &TestHost) -> Namespace {
    let far = Namespace::make();
    host.sink.run(&[&format!("ip link add f1 type veth peer name f0 netns {}", far.path())]);
    host.sink.run(&["ip addr add 10.8.0.9/24 dev f1", "ip link set f1 up"]);
    host.sink.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    far.run(&["ip addr add 10.8.0.1/24 dev f0", "ip link set f0 up", "ip route add default via 10.8.0.9"]);
    for tenant in &host.tenants {
        tenant.namespace.run(&[&format!("ip route add 10.8.0.0/24 via {SINK}")]);
    }
    far
}

#[test]
#[ignore = "root"]
fn minima_hold_among_tcp_receivers() {
    apart(|| {
        let host = test_host(2);
        let far = far(&host);
        let mut core = start(&host, GUARANTEED);
        arrives(&host, 0);
        let listeners: Vec<TcpListener> =
            host.tenants.iter().map(|t| t.namespace.inside(|| TcpListener::bind("0.0.0.0:5000").unwrap())).collect();
        let connect = |listener: &TcpListener, i| {
            let to = SocketAddr::from((tenants(i), 5000));
            let sender = far.inside(|| TcpStream::connect_timeout(&to, vmio_testbed::limit()).unwrap());
            sender.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let receiver = listener.accept().unwrap().0;
            receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            (sender, receiver)
        };
        let pairs: Vec<_> = listeners.iter().zip([1, 2]).map(|(listener, i)| connect(listener, i)).collect();
        let ends = pairs.into_iter().flat_map(|(mut sender, mut receiver)| -> [Load<'_>; 2] {
            let send: Load<'_> = Box::new(move |done| {
                while !done.load(Ordering::Relaxed) {
                    let _ = sender.write(&[1; 65_536]);
                }
            });
            let receive: Load<'_> = Box::new(move |done| {
                while !done.load(Ordering::Relaxed) {
                    let _ = receiver.read(&mut [0; 65_536]);
                }
            });
            [send, receive]
        });
        // Both have found their rates after the first of these.
        let times = (Duration::from_secs(1), Duration::from_secs(1));
        under(ends, || {
            // A receiver that a busy machine does not let run acknowledges nothing, and has less.
            poll_for("t1 has its own 0.75", || {
                let full = while_full(&[T1, T2], times, |_| looks(&mut core));
                let share = full.moved[T1] as f64 / (full.moved[T1] + full.moved[T2]) as f64;
                if (share - 0.75).abs() < 0.08 { Ok(()) } else { Err((share, full)) }
            });
        });
        core.undo().unwrap();
    });
}

/// 6 of 10 Mbit/s are t1's, who gets a trickle while somebody floods t2 and does not give way.
const FLOODED: &str = "\
[uplink.u0]
capacity = \"10Mbit\"
[class.any]
[class.sure]
min = \"6Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"any\"
rx_class = \"sure\"
[[interface]]
match = { name = \"t2\" }
class = \"any\"
rx_class = \"any\"
";

#[test]
#[ignore = "root"]
fn begin_and_end_of_a_flood_are_reported() {
    apart(|| {
        let host = test_host(2);
        let mut core = start(&host, FLOODED);
        let mut demand = Demand::default();
        let mut flooded = |core: &mut Core<Linux>, is: bool| {
            // 2 s of it make it so; that a window is not full in between begins them anew.
            poll_for(&format!("t2 floods: {is}"), || {
                datagrams(&host, tenants(1), 2);
                thread::sleep(Duration::from_millis(200));
                demand.count(&core.status().unwrap(), Instant::now());
                let known = demand.of(&rx(), "t1").unwrap();
                if known.flooded_for().is_some() == is && demand.is_full(&rx()) == Some(is) {
                    return Ok(known.breaches);
                }
                Err(format!("{known:?}"))
            })
        };
        let trickle: Load<'_> = Box::new(|done| {
            while !done.load(Ordering::Relaxed) {
                // Some 40 Mbit/s, whatever becomes of it.
                datagrams(&host, tenants(2), 100);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let breaches = under([trickle], || flooded(&mut core, true));
        assert_eq!(breaches, 0, "nothing of it waits on this host");
        flooded(&mut core, false);
        core.undo().unwrap();
    });
}

/// A limit that another program has put at a guest's interface holds behind ours, which see nothing of it.
#[test]
#[ignore = "root"]
fn root_limits_of_others_at_a_guests_interface_are_told() {
    apart(|| {
        let host = test_host(2);
        let mut core = start(&host, GUARANTEED);
        let told = |core: &mut Core<Linux>| {
            let status = core.status().unwrap();
            let of = |key: PoolKey| status.iter().find(|pool| pool.key == key).unwrap().members[T1].other_limit.clone();
            let sends = PoolKey { direction: Direction::GuestTx, ..rx() };
            assert_eq!(of(sends), None, "it is on what the guest receives");
            of(rx()).map(|limit| (limit.kind, limit.rate_bps.bits()))
        };
        assert_eq!(told(&mut core), None);
        let mut after = |line: &str| {
            run(&[line]);
            poll_until("the change is seen", || core.disturbed());
            assert_eq!(core.reconcile().unwrap(), 0, "{line}");
            told(&mut core)
        };
        let tbf = |rate: u64| Some(("tbf".to_owned(), rate));
        assert_eq!(after("tc qdisc add dev t1 root tbf rate 2mbit burst 10k latency 50ms"), tbf(2_000_000));
        assert_eq!(after("tc qdisc change dev t1 root tbf rate 8mbit burst 10k latency 50ms"), tbf(8_000_000));
        assert_eq!(after("tc qdisc del dev t1 root"), None);
        run(&["tc qdisc add dev t1 root handle 1: htb default 10"]);
        let class = after("tc class add dev t1 parent 1: classid 1:10 htb rate 1mbit");
        assert_eq!(class, Some(("htb".to_owned(), 1_000_000)));
        core.undo().unwrap();
    });
}
