//! What `vmio doctor --try` does, a trial each.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use vmio_guard::planes::linux::{self, classifier::Classifier};
use vmio_look::require::Requirement;
use vmio_look::trace::{self, BlockTrace};
use vmio_model::result::Accel;
use vmio_node::{Exec, Journal, Local, Node, machine};
use vmio_rig::disks::space;
use vmio_rig::guests::qemu::{self, NoKvm, Qemu};
use vmio_rig::guests::{self, GuestKind, GuestSpec, LaunchCtx};
use vmio_rig::image::{self, Image};
use vmio_rig::nets::{self, Namespace};
use vmio_rig::nodes::Nodes;
use vmio_rig::settings;
use vmio_rig::workloads::{self, At, End, Span, Stage};

use crate::context::Context;
use crate::run::signals::{self, Stopping};
use crate::term;

/// How long a guest may take from its start to its first answer.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// How long a command may take that only asks or sets something.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the trial may take that works on storage.
const STORAGE_LIMIT: Duration = Duration::from_secs(30);
/// Memory of the guest.
const MEMORY_MIB: u32 = 256;
/// Killed first when the host runs out of memory.
const OOM_SCORE_ADJ: i32 = 1000;
/// The file that fio works on: a hole, of which one second of small writes fills some.
const FILE_BYTES: u64 = 64 << 20;

/// Why something did not work, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) why: String,
    pub(super) mend: String,
}

impl Failed {
    fn of(why: &dyn Display, mend: &str) -> Self {
        // An error may have lines of a program in it; here it is a sentence.
        let lines = why.to_string();
        let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Self { why: lines.join("; "), mend: mend.to_owned() }
    }
}

/// Something that is tried.
pub(super) struct Trial {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// What it shows to work, by extension point and name.
    pub(super) shows: &'static [(&'static str, &'static str)],
    /// Whether measuring a disk needs it.
    pub(super) needed: bool,
    /// The trial that it builds on: where that did not work, this one is not tried.
    pub(super) after: Option<&'static str>,
    pub(super) requirements: fn() -> Vec<&'static Requirement>,
    pub(super) work: fn(&mut Bed<'_>) -> Result<(), Failed>,
}

/// All, in the order in which they are tried: a guest needs the image, and KVM is tried with a guest that boots.
pub(super) const ALL: &[Trial] = &[
    Trial {
        name: "guest image",
        about: "the image is there, or can be built",
        shows: &[],
        needed: true,
        after: None,
        requirements: || image::REQUIREMENTS.iter().chain([&image::OWN_AGENT]).collect(),
        work: guest_image,
    },
    Trial {
        name: "guest, emulated",
        about: "a guest boots under emulation (TCG), answers, and runs a program of the image",
        shows: &[("guest", "qemu"), ("image", "guest image")],
        needed: true,
        after: Some("guest image"),
        requirements: || Qemu.requirements().iter().collect(),
        work: emulated,
    },
    Trial {
        name: KVM,
        about: "the same guest boots with KVM",
        shows: &[("guest", "qemu"), ("image", "guest image")],
        needed: false,
        after: Some("guest, emulated"),
        requirements: || Qemu.requirements().iter().collect(),
        work: with_kvm,
    },
    Trial {
        name: "vmio-cpu",
        about: "the program next to vmio that keeps a processor busy",
        shows: &[("workload", "lu")],
        needed: true,
        after: None,
        requirements: || of_workload("lu"),
        work: |bed| perform(&bed.node, "lu", At::Nothing, Vec::new(), None),
    },
    Trial {
        name: "fio",
        about: "small durable writes for a second, to a file where targets are made",
        shows: &[("workload", "durable-append")],
        needed: true,
        after: None,
        requirements: || of_workload("durable-append"),
        work: fio,
    },
    Trial {
        name: "network",
        about: "a network namespace with a tap, and an HTB class on it, made and removed",
        shows: &[],
        needed: false,
        after: None,
        requirements: || of_networks().into_iter().chain(of_rate()).collect(),
        work: network,
    },
    Trial {
        name: "iperf3",
        about: "a TCP stream for a second, in a network namespace",
        shows: &[("workload", "iperf3-tcp"), ("network", "loopback")],
        needed: false,
        after: None,
        requirements: || of_networks().into_iter().chain(of_workload("iperf3-tcp")).collect(),
        work: |bed| bed.perform_over_loopback("iperf3-tcp"),
    },
    Trial {
        name: "vmio-udp",
        about: "the program next to vmio that sends and counts datagrams, in a network namespace",
        shows: &[("network", "loopback")],
        needed: false,
        after: None,
        requirements: || of_networks().into_iter().chain(of_workload(DATAGRAMS)).collect(),
        work: |bed| bed.perform_over_loopback(DATAGRAMS),
    },
    Trial {
        name: "eBPF of top",
        about: "the programs that count disk use by process are loaded and attached",
        shows: &[("probe", "block tracing")],
        needed: false,
        after: None,
        requirements: || trace::REQUIREMENTS.iter().collect(),
        work: |bed| {
            let mend = "the kernel's message says what it lacks; `vmio top --no-ebpf` works without";
            BlockTrace::start(bed.node.reader()).map(drop).map_err(|e| Failed::of(&e, mend))
        },
    },
    Trial {
        name: "eBPF of the guard",
        about: "the program that sorts packets into classes is loaded",
        shows: &[],
        needed: false,
        after: None,
        requirements: || linux::REQUIREMENTS.iter().chain(trace::REQUIREMENTS.first()).collect(),
        work: |_| {
            let mend = "the kernel's message says what it lacks; without it `vmio guard run` only observes";
            Classifier::load().map(drop).map_err(|e| Failed::of(&e, mend))
        },
    },
];

/// The trial of KVM: what is known of its device is asked of the guests' kind, as a run asks it.
pub(super) const KVM: &str = "guest, KVM";
/// A stream of the family of datagrams.
const DATAGRAMS: &str = "udp-10mbit-1472";

fn of_workload(name: &str) -> Vec<&'static Requirement> {
    workloads::find(name).map_or_else(Vec::new, |workload| workload.requirements().collect())
}

fn of_networks() -> Vec<&'static Requirement> {
    nets::find("loopback").map_or_else(Vec::new, |network| network.requirements().iter().collect())
}

fn of_rate() -> Vec<&'static Requirement> {
    settings::find("rate").map_or_else(Vec::new, |rate| rate.requirements().iter().collect())
}

/// What trials work with. All that they make is in its journal, and taken back when it is closed, also by a signal.
pub(super) struct Bed<'a> {
    context: &'a Context,
    node: Arc<dyn Node>,
    journal: Arc<Journal>,
    stopping: Stopping,
    nodes: Nodes,
    image: Option<Image>,
}

impl<'a> Bed<'a> {
    /// With the journal of runs: one is at work at a time, and what a killed one left is undone first.
    pub(super) fn make(context: &'a Context) -> anyhow::Result<Self> {
        let journals = context.recovered_journals()?;
        let journal = Arc::new(Journal::open(&journals, "run")?);
        journal.start_reaper()?;
        let stopping = signals::on_signal({
            let journal = Arc::clone(&journal);
            move |name| {
                let left = journal.close();
                term::note(&format!("\n{name}: ended; what was made is removed"));
                left.iter().for_each(|left| term::note(&format!("warning: could not be undone: {left}")));
            }
        })
        .context("cannot set up signal handling")?;
        let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
        Ok(Self { context, node, journal, stopping, nodes: Nodes::default(), image: None })
    }

    /// Ends the process where a signal asked for it.
    pub(super) fn end_if_stopped(&self) {
        self.stopping.exit_or(());
    }

    /// Undoes what is left; what cannot be undone.
    pub(super) fn close(&self) -> Vec<String> {
        self.journal.close()
    }

    fn launch<'b>(&'b self, image: &'b Image, accel: Option<Accel>) -> LaunchCtx<'b> {
        LaunchCtx {
            node: Arc::clone(&self.node),
            nodes: &self.nodes,
            journal: Arc::clone(&self.journal),
            image: Some(image),
            run_dir: &self.context.paths.runtime,
            state_dir: &self.context.paths.state,
            accel,
            boot_limit: BOOT_LIMIT,
            oom_score_adj: OOM_SCORE_ADJ,
            cgroup_procs: Vec::new(),
            enter: Vec::new(),
            progress: &term::transient,
        }
    }

    fn image(&self) -> Result<&Image, Failed> {
        let none = || Failed::of(&"there is no guest image to boot", "mend the guest image first");
        self.image.as_ref().ok_or_else(none)
    }

    fn perform_over_loopback(&self, name: &str) -> Result<(), Failed> {
        let namespace = Namespace::make(&*self.node).map_err(|e| Failed::of(&e, NAMESPACE))?;
        perform(&self.node, name, At::address(std::net::Ipv4Addr::LOCALHOST.into()), namespace.enter(), None)
    }
}

/// Runs a workload for a second, all of its roles at one place of this host.
fn perform(node: &Arc<dyn Node>, name: &str, at: At, enter: Vec<String>, span: Option<Span>) -> Result<(), Failed> {
    let mend = "reinstall the program; run its command to see more";
    let workload = workloads::find(name).ok_or_else(|| Failed::of(&format!("no workload {name}"), mend))?;
    let end = End { enter, ..End::here(Arc::clone(node), at) };
    let ends: BTreeMap<_, _> = workload.roles().iter().map(|role| (role.name, end.clone())).collect();
    let stage = Stage { ends, seconds: 1.0, span, place: 0 };
    workload.perform(&stage).map(drop).map_err(|e| Failed::of(&e, mend))
}

/// What to do where fio's file cannot be made, or fio does not end.
const STORAGE: &str = "targets are made there, too: free some space or repair it, or measure elsewhere with --on";
/// The same where a namespace cannot be made or used.
const NAMESPACE: &str = "run it on the host as root, outside of containers; the kernel needs CONFIG_NET_NS, CONFIG_TUN";

fn guest_image(bed: &mut Bed<'_>) -> Result<(), Failed> {
    let built = Image::load_or_build(&*bed.node, &bed.context.paths.state, &term::transient);
    bed.image = Some(built.map_err(|e| Failed::of(&e, "mend what it names, then: vmio image build"))?);
    Ok(())
}

fn emulated(bed: &mut Bed<'_>) -> Result<(), Failed> {
    let image = bed.image()?;
    let guest = Qemu
        .launch(&bed.launch(image, Some(Accel::Tcg)), &GuestSpec::of("doctor", 1, MEMORY_MIB))
        .map_err(|e| of_guest(&e, image))?;
    let ran = match image.lacks("fio") {
        None => guest.node().exec(&Exec::new("fio").args(["--version"]).limit(LIMIT)).map(Some),
        Some(_) => Ok(None),
    };
    let stopped = guest.stop();
    let anew = "delete the directory images below the state directory: the image is then built again";
    match ran {
        Err(e) => return Err(Failed::of(&e, anew)),
        Ok(Some(said)) if !said.ok() => {
            let why = format!("the guest runs, but fio in it does not: {:?}: {}", said.end, said.err());
            return Err(Failed::of(&why, anew));
        }
        Ok(_) => {}
    }
    stopped.map_err(|e| of_guest(&e, image))
}

fn with_kvm(bed: &mut Bed<'_>) -> Result<(), Failed> {
    let image = bed.image()?;
    let found = qemu::test_kvm(&bed.launch(image, None), image).map_err(|e| of_guest(&e, image))?;
    match NoKvm::of(bed.node.reader(), Some(&found)) {
        None => Ok(()),
        Some(no_kvm) => Err(Failed::of(&no_kvm.reason, no_kvm.mend)),
    }
}

/// Without the end of the console, of which the last line tells most.
fn of_guest(e: &guests::Error, image: &Image) -> Failed {
    match e {
        guests::Error::Down { what, last, .. } => {
            let last = last.as_deref().unwrap_or("no output");
            let mend = format!(
                "delete {} (the image is then built again); if that does not help, try another kernel: \
                 vmio tax --guest-kernel FILE",
                image.dir.display()
            );
            Failed::of(&format!("the guest {what} (last line: {last})"), &mend)
        }
        other => Failed::of(other, "mend what it names; `vmio doctor --verbose` lists what guests need"),
    }
}

/// On a thread of its own: the storage may never answer.
fn fio(bed: &mut Bed<'_>) -> Result<(), Failed> {
    let (node, journal, state) = (Arc::clone(&bed.node), Arc::clone(&bed.journal), bed.context.paths.state.clone());
    let worked = machine::within(STORAGE_LIMIT, move || append(&node, &journal, &state));
    let silent = || Failed::of(&format!("it has not ended within {} s", STORAGE_LIMIT.as_secs()), STORAGE);
    worked.unwrap_or_else(|| Err(silent()))
}

fn append(node: &Arc<dyn Node>, journal: &Journal, state: &Path) -> Result<(), Failed> {
    let path = space::default_dir(node.reader(), state).join(format!("vmio-doctor-{}", std::process::id()));
    let (file, made) = journal.scratch_file(&path).map_err(|e| Failed::of(&e, STORAGE))?;
    let sized = file.set_len(FILE_BYTES).map_err(|e| Failed::of(&format!("{}: {e}", path.display()), STORAGE));
    let opened = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let span = Span { bytes: FILE_BYTES, memory_bytes: 0, gentle: None, warm: false };
    let worked = sized.and_then(|()| perform(node, "durable-append", At::Path(opened.into()), Vec::new(), Some(span)));
    drop(file);
    let undone = journal.undo(made).map_err(|e| Failed::of(&e, STORAGE));
    worked.and(undone)
}

fn network(bed: &mut Bed<'_>) -> Result<(), Failed> {
    let node = &*bed.node;
    let failed = |e: nets::Error| Failed::of(&e, NAMESPACE);
    let namespace = Namespace::make(node).map_err(failed)?;
    namespace.ip(node, &["tuntap add dev tap0 mode tap", "link set tap0 up"]).map_err(failed)?;
    for line in [
        "qdisc add dev tap0 root handle 1: htb default 10",
        "class add dev tap0 parent 1: classid 1:10 htb rate 100mbit",
        "qdisc del dev tap0 root",
    ] {
        let mend = "the kernel needs CONFIG_NET_SCH_HTB (module sch_htb)";
        let said = node
            .exec(&namespace.exec("tc").args(line.split_whitespace()).limit(LIMIT))
            .map_err(|e| Failed::of(&e, mend))?;
        if !said.ok() {
            return Err(Failed::of(&format!("tc {line}: {}", said.err()), mend));
        }
    }
    namespace.ip(node, &["link del tap0"]).map_err(failed)
}
