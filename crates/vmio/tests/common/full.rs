//! FIXTURE: what outputs say seldom, made up so that a test has it: settings of guests that no test machine has, a
//! disk that one guest takes from another, a run with every option.
#![allow(clippy::unwrap_used, dead_code)]

use vmio::report::scan::diff::{Diff, Earlier};
use vmio::report::scan::{View, json};
use vmio::top::screen::{GuestCalls, Screen};
use vmio_model::cell::{DetectZeroes, Options, State, Subject};
use vmio_model::facts::{
    Balloon, Below, Busiest, Conntrack, DeletedFile, Details, DiscardEnds, Discards, Disk, Extents, Fact, Governor,
    GuestMemory, Hop, HopKind, HostSeen, HostState, IoWeight, Ksm, Layout, Mounted, Nic, Overridden, Place, Processors,
    Raidz, Setting, SharedJournal, Swap, Throttled, ToGuest, Uplink, WeightedDisk,
};
use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;
use vmio_model::result::Accel;
use vmio_model::rules::Severity;
use vmio_model::rules::change::{Above, InFields};
use vmio_model::run::Run;
use vmio_model::top::load::*;
use vmio_model::top::load::{JournalLoad, JournalUser};
use vmio_model::top::process::OtherKind;
use vmio_model::top::rows::GuardRow;
use vmio_model::top::{History, Latency};
use vmio_model::waterfall::cells::{Times, Why};
use vmio_model::waterfall::host::{Asked, HostPart, LiveCalls, Split};

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A scan of guests of which everything is known, compared with an earlier one. No struct is filled up with
/// defaults: a new field has to be given here.
pub fn scan() -> View {
    let mut view = crate::common::scan::view();
    let earlier = earlier(&view);
    let guest = &mut view.rows[0].guest;
    guest.monitor_held_seconds = Some(0.012);
    let place = Place {
        domain: some("web1"),
        vmid: some("101"),
        source: some("/images/web1.qcow2").into(),
        block_device: Some(false),
        target: some("vda"),
        slot: some("scsi0"),
        volume: some("local-lvm:vm-101-disk-0"),
        device_id: some("virtio0"),
        given: Some(vec!["-hda web1.qcow2".into()]),
        drive: some("drive0"),
        node: some("#block1"),
        qom: some("/machine/peripheral/virtio0"),
        monitor: some("/run/web1.qmp"),
        taken: vec!["vda".into()],
        boots_as_first: Some(true),
        addresses: Vec::new(),
        addresses_in_doubt: false,
    };
    let overridden =
        vec![Overridden { setting: Setting::Aio, asked: "io_uring".into(), found: "threads".into(), why: some("old") }];
    let details = Details {
        storage: some("file").into(),
        format: some("qcow2").into(),
        virtual_bytes: Some(20 << 30).into(),
        cluster_bytes: Some(65536).into(),
        l2_cache_bytes: Some(1 << 20).into(),
        backing_files: Some(2).into(),
        thin: Some(true).into(),
        discard: Some(true).into(),
        detect_zeroes: some("unmap").into(),
        volblock_bytes: Some(8192).into(),
        alike_in_guest: Some(2).into(),
        transport: some("mmio"),
        queues: Some(4).into(),
        mapped_iothreads: Some(2).into(),
        iothread_name: some("io1").into(),
        host_cached_bytes: Some(4096).into(),
        read_bytes: Some(40 << 30).into(),
        allocated_bytes: Some(7 << 30).into(),
        host: Some(HostSeen { kernel: Some((6, 1)), io_uring_disabled: Some(0), clock_source: some("tsc") }).into(),
        hypervisor: some("QEMU 7.2.22").into(),
        in_memory: some("tmpfs").into(),
        below: below(),
        deleted: vec![DeletedFile { path: "/gone.raw".into(), pid: 812, fd: 9, replaced: false }].into(),
        limits: vec!["1000 IOPS by QEMU's throttle".into()].into(),
        limit_keys: vec!["throttling.iops-total=1000".into()],
        throttle_group: some("group0"),
        writes_uncharged: Some(true).into(),
        overridden: overridden.clone(),
    };
    let disk = &mut guest.disks[0];
    *disk = Disk {
        subject: disk.subject.clone(),
        driver: some("virtio-blk").into(),
        cache: Fact::read(some("none"), "/proc/812/cmdline"),
        aio: some("native").into(),
        iothread: Some(true).into(),
        sparse: Some(true).into(),
        details,
        place: place.clone(),
        from: disk.from.clone(),
    };
    let nic = &mut guest.nics[0];
    *nic = Nic {
        subject: nic.subject.clone(),
        model: some("virtio-net").into(),
        backend: some("tap").into(),
        interface: some("tap0").into(),
        bridge: some("br0").into(),
        vhost: Some(true).into(),
        vhost_here: Some(true).into(),
        queues: Some(2).into(),
        vcpus: Some(4).into(),
        windows: Some(true).into(),
        os: some("windows").into(),
        offloads_off: vec!["host_tso4".into()].into(),
        tap_header: Some(true).into(),
        ring_packets: Some(256).into(),
        to_guest: Some(ToGuest { packets: 9000, dropped_packets: 10, queue_packets: Some(1000) }).into(),
        uplink: Some(Uplink {
            name: "eth0".into(),
            driver: some("igb"),
            transmit_timeouts: Some(0),
            link_losses: Some(1),
            received_packets: Some(90_000),
            missed_packets: Some(0),
            ring_packets: Some(256),
            ring_most_packets: Some(4096),
            segmentation: Some(true),
            host_up_seconds: Some(86_400),
        })
        .into(),
        conntrack: Some(Conntrack {
            count: 100,
            max: 262_144,
            dropped_packets: Some(0),
            evicted: Some(0),
            busiest: Some(Busiest { guest: "web1".into(), connections: 80, looked_at: 100 }),
        })
        .into(),
        mtu_bytes: Some(1500).into(),
        host_mtu_bytes: Some(1450).into(),
        guest_mtu_bytes: Some(1450).into(),
        bridge_mtu_bytes: Some(9000).into(),
        way: vec![Hop {
            interface: "eth0".into(),
            kind: HopKind::Card,
            mtu_bytes: Some(9000),
            driver: some("igb"),
            here: true,
        }]
        .into(),
        uplink_bps: Some(BitRate::new(1_000_000_000)).into(),
        tap_errors: Some(7).into(),
        bridge_netfilter: Some(true).into(),
        send_buffer_bytes: Some(1 << 20).into(),
        rate_limits: vec![vmio_model::facts::RateLimit {
            direction: vmio_model::policy::Direction::GuestTx,
            by: "libvirt".into(),
            rate_bps: BitRate::new(80_000_000),
            peak_bps: Some(BitRate::new(160_000_000)),
            burst_bytes: Some(1 << 20),
            drops: true,
            at: Some(vmio_model::facts::LimitedAt::Clsact { egress: false, preference: 49 }),
            dropped_packets: Some(41),
            part: false,
            per_flow: true,
            missing: false,
            platform: some("nova"),
            interface: some("cali9"),
            shared: true,
            guard: Some(vmio_model::facts::Guarded {
                uplink: "eth0".into(),
                class: some("gold"),
                min_bps: BitRate::new(10_000_000),
                waits: some("held"),
                runs: true,
                state: some("/state"),
            }),
        }]
        .into(),
        overridden: overridden.clone(),
        place: place.clone(),
        from: nic.from.clone(),
    };
    let own = guest.processors.as_mut().unwrap();
    *own = Processors {
        subject: own.subject.clone(),
        vcpus: Some(4).into(),
        accel: Some(Accel::Tcg).into(),
        kvm_here: Some(true).into(),
        model: some("qemu64").into(),
        flags: vec!["+aes".into()].into(),
        windows: Some(true).into(),
        os_release: some("win11").into(),
        hpet: Some(true).into(),
        clock_source: some("tsc").into(),
        threads: own.threads.clone(),
        host: own.host.clone(),
        memory_bytes: Some(4 << 30).into(),
        memory_by_node: Fact::from_iter([(0, 4 << 30)]),
        huge_pages: Some(false).into(),
        quota_cpus: Some(1.5).into(),
        quota_of_vcpus: Some(false).into(),
        throttled: Some(Throttled { period_us: 100_000, periods: 3400, throttled: 12, stopped_us: 800_000 }).into(),
        swapped_bytes: Some(1 << 30).into(),
        free_page_reporting: Some(false).into(),
        balloon: Some(Balloon {
            actual_bytes: 2 << 30,
            statistics: Some(GuestMemory {
                free_bytes: 1 << 20,
                available_bytes: Some(1 << 30),
                cache_bytes: Some(1 << 30),
                at_unix_seconds: 1_795_252_743,
                major_faults: Some(120),
                swapped_in_bytes: Some(0),
            }),
        })
        .into(),
        storage_read_bytes: Some(8 << 30).into(),
        io_weight: Some(IoWeight { weight: 300, v1: false, disks: vec![weighted_disk()] }).into(),
        host_state: Some(host_state()).into(),
        shares_cpus_with: vec!["web2".into()].into(),
        overridden,
        place,
        from: own.from.clone(),
    };
    let set = "nova-manage image_property set INSTANCE --property hw_disk_bus=virtio";
    view.rows[0].findings[0].by_manager = Some(InFields { tool: Above::Nova, text: set.into() });
    // What is the host's: several guests have it.
    let shared = view.rows[0].findings[0].clone();
    for row in &mut view.rows[..2] {
        let mut finding = shared.clone();
        (finding.rule, finding.severity) = ("emulation-though-kvm".into(), Severity::Warning);
        finding.of_host = true;
        row.findings.push(finding);
    }
    view.diff = Some(Diff::of(&view.rows, &earlier, "last-scan.json"));
    view
}

fn weighted_disk() -> WeightedDisk {
    WeightedDisk { name: "nvme0n1".into(), number: "259:0".into(), scheduler: "none".into(), iocost: false }
}

fn host_state() -> HostState {
    HostState {
        governors: vec![Governor {
            driver: "intel_pstate".into(),
            governor: "powersave".into(),
            preference: some("balance_power"),
            cpus: vec![0, 1],
        }],
        ksm: Some(Ksm {
            saved_bytes: 112 << 20,
            memory_bytes: 64 << 30,
            run_seconds: 900,
            up_seconds: 10_000,
            across_nodes: true,
        }),
        swap: Some(Swap::Disk),
        memory_bytes: Some(64 << 30),
        available_bytes: Some(8 << 30),
    }
}

/// Storage below a disk of which everything is known.
fn below() -> Below {
    let extents = Some(Extents { seen: 2314, of_bytes: 64 << 20, whole: true, shared: 12 });
    let layout = Layout { filesystem: "btrfs".into(), copy_on_write: Some(true), compressed: false, extents };
    let mounted = Mounted {
        filesystem: "ext4".into(),
        point: "/srv".into(),
        device: "8:1".into(),
        options: "rw,data=ordered".into(),
    };
    let journal = SharedJournal {
        shared_with: vec!["db2".into()],
        others: 1,
        commit_microseconds: 34_120,
        requested_percent: 71,
    };
    Below {
        layout: Some(layout).into(),
        mounted: Some(mounted).into(),
        journal: Some(journal).into(),
        raidz: Some(Raidz { parity: 2, disks: 6 }).into(),
        discard_ends: Some(DiscardEnds { device: "dm-3".into(), kind: "LUKS".into(), mapper: some("web1") }).into(),
        discards: Some(Discards { requests: 48_120, bytes: 591_298_560, writes: 192_480 }).into(),
        grows: Some(true).into(),
        host_logical_block_bytes: Some(4096).into(),
        host_physical_block_bytes: Some(4096).into(),
        guest_logical_block_bytes: Some(512).into(),
        guest_physical_block_bytes: Some(512).into(),
    }
}

/// The same guests before: one finding was worse, one was another, a guest is gone.
fn earlier(view: &View) -> Earlier {
    let mut then = view.clone();
    then.rows[0].findings[0].severity = Severity::Note;
    then.rows[1].findings[0].rule = "no-discard".into();
    serde_json::from_str(&json(&then)).unwrap()
}

/// A run whose disks are in a state that it names and whose guest's has every option, that asked for steady state, with
/// a durable append in a guest.
pub fn run() -> Run {
    let mut run = crate::common::run(Accel::Kvm);
    let mut study = vmio::studies::named("durability").unwrap();
    study.repeat.ask_for_steady_state();
    run.study = study;
    let options =
        Options { queues: Some(4), mapped_iothreads: Some(2), discard: true, detect_zeroes: DetectZeroes::Unmap };
    for actor in run.samples.iter_mut().flat_map(|s| s.cell.actors_mut()) {
        let Subject::Disk { attachment, state, .. } = &mut actor.subject else { continue };
        *state = Some(State::Filled);
        if let Some(attachment) = attachment {
            attachment.options = options.clone();
        }
    }
    let durable = vmio_rig::workloads::find("durable-append").unwrap().traits();
    run.workloads.iter_mut().filter(|w| w.name == durable.name).for_each(|w| *w = durable.clone());
    run
}

/// An interval in which one guest takes a disk from another, and a process the processors from both.
pub fn top() -> Screen {
    let mut history = History::default();
    history.remember(&second(vec![guest("db", transfer(5000, 90e-6))]));
    let now = second(vec![guest("db", transfer(200, 4e-3)), guest("flood", transfer(7800, 4e-3))]);
    let mut screen = Screen::of(&now, &history, "FIXTURE");
    screen.guests[0].guard = Some(vec![GuardRow {
        interface: "tap0".into(),
        uplink: "eth0".into(),
        direction: Direction::GuestTx,
        class: "gold".into(),
        min_bps: BitRate::new(40_000_000),
        max_bps: BitRate::new(100_000_000),
        limit_bps: Some(BitRate::new(60_000_000)),
        waits: some("held"),
        waiting_bytes: 0,
        held_ratio: Some(0.5),
        drops_per_second: Some(0.0),
    }]);
    let calls = |calls| GuestCalls { guest: "db".into(), pid: 7, calls };
    screen.add_calls([Some(SPLIT), None].map(|split| calls(asked(split))).into());
    screen
}

/// Where the time of a hypervisor's calls goes.
pub const SPLIT: Split = Split { file_system_seconds: 1e-4, queue_seconds: 1e-4, device_seconds: 8e-4 };

/// What a hypervisor asked of the host, by every kind of call.
pub fn asked(split: Option<Split>) -> LiveCalls {
    let times = Times { mean_seconds: 1e-3, p50_seconds: Some(9e-4), p99_seconds: Some(4e-3) };
    let asked = Asked { per_second: 100.0, mean_size: 4096.0, times };
    let untimed = split.is_none().then_some(Why::EndNotSeen);
    let part = HostPart { asked: asked.clone(), split, untimed };
    LiveCalls { reads: Some(part.clone()), writes: Some(part), flushes: Some(asked.clone()), submissions: Some(asked) }
}

/// An interval in which nothing is used up.
pub fn quiet() -> Screen {
    Screen::of(&Interval { seconds: 1.0, ..Interval::default() }, &History::default(), "FIXTURE")
}

fn transfer(requests: u64, seconds_each: f64) -> Transfer {
    let mut latency = Latency::default();
    (0..requests).for_each(|_| latency.add((seconds_each * 1e6) as u64));
    let device_seconds = Some(requests as f64 * seconds_each);
    let (requests, bytes) = (Some(requests), requests * 4096);
    let [at_device, in_queue] = [(); 2].map(|()| Some(latency.clone()));
    let queued_seconds = Some(0.0);
    Transfer { requests, bytes, device_seconds, queued_seconds, latency: Some(latency), at_device, in_queue }
}

fn packets(packets: u64) -> Packets {
    Packets { packets, bytes: packets * 1250, dropped: 1 }
}

fn disks(reads: Transfer) -> Vec<DiskLoad> {
    vec![DiskLoad { device: Some((254, 0)), writes: reads.clone(), reads }]
}

fn guest(name: &str, reads: Transfer) -> GuestLoad {
    let cpu = CpuLoad { vcpus: 2, vcpu: ThreadTime { run_seconds: 0.4, wait_seconds: 0.5 }, ..CpuLoad::default() };
    GuestLoad {
        name: name.into(),
        kind: "qemu".into(),
        pid: Some(7),
        vmid: some("101"),
        uuid: some("8f1f8a6c-0000-4000-8000-000000000002"),
        disk_source: DiskSource::Trace,
        disks: disks(reads),
        nics: vec![NicLoad {
            interface: "tap0".into(),
            queue_packets: Some(1000),
            sent: packets(100),
            received: packets(2500),
        }],
        cpu: Some(cpu),
        memory: Some(Memory {
            resident_bytes: 1 << 30,
            swapped_bytes: Some(1 << 20),
            limit: Some(MemoryLimit { used_bytes: 1 << 30, limit_bytes: 1 << 31 }),
        }),
        throttled_ratio: Some(0.2),
        memory_stalled_ratio: Some(0.02),
    }
}

fn second(guests: Vec<GuestLoad>) -> Interval {
    let mut reads = Requests::default();
    for side in guests.iter().flat_map(|g| &g.disks).map(|d| &d.reads) {
        reads.requests += side.requests.unwrap();
        reads.bytes += side.bytes;
        reads.request_seconds += side.device_seconds.unwrap();
    }
    let flushes = Requests { requests: 10, bytes: 0, request_seconds: 0.01 };
    let (name, device, others) = ("vda".to_owned(), (254, 0), flushes);
    let disk = DeviceLoad { name, device, reads, others, flushes, busy_seconds: 1.0, ..DeviceLoad::default() };
    let (speed_bps, sent, received) = (Some(BitRate::new(1_000_000_000)), packets(1), packets(2));
    let user = |guest, name: &str, syncs, wait_seconds, dirtied_bytes| JournalUser {
        guest,
        kind: OtherKind::Process,
        name: name.into(),
        pid: 7,
        syncs,
        wait_seconds,
        worst_seconds: wait_seconds,
        dirtied_bytes,
    };
    let journal = JournalLoad {
        device: (254, 0),
        name: "/srv".into(),
        disks: vec![(254, 0)],
        users: vec![user(Some(0), "db", 3, 0.9, 4096), user(Some(1), "flood", 0, 0.0, 40 << 20)],
    };
    let other = OtherLoad { kind: OtherKind::Backup, name: "rsync".into(), pid: 9, disks: disks(transfer(400, 5e-3)) };
    Interval {
        seconds: 1.0,
        traced: true,
        guests,
        devices: vec![disk],
        others: vec![other],
        journals: vec![journal],
        host_cpu: HostCpu { cpus: 2, busy_seconds: 2.0, stolen_seconds: 0.0, stalled_ratio: Some(0.9) },
        host_memory: HostMemory {
            total_bytes: 1 << 33,
            available_bytes: 1 << 30,
            swapped_bytes: 1 << 20,
            swapped_in_pages: Some(3),
            swapped_out_pages: Some(4),
        },
        uplinks: vec![UplinkLoad { name: "eth0".into(), speed_bps, sent, received }],
        notes: vec!["FIXTURE".into()],
        ..Interval::default()
    }
}
