//! What runs in a cell: on disks [`disk`], over paths [`net`], on the machine itself [`cpu`]. The same command with the same
//! arguments runs on both sides; only its ends differ.
//!
//! A workload runs in **roles**, each with an **end**: a machine of the run ([`crate::nodes`]), and a path there, an
//! address or nothing. The last role is run to its end and gives the result; those before it serve it, and are started
//! and waited for first ([`service`]). Where one of those knows the result, such as a receiver, what it says at its
//! end is heard ([`Workload::hears`]).
//!
//! Adding a workload: a file with a type that implements [`Workload`], and its line in [`ALL`].
//! What differs in numbers only needs none: [`disk::family`], [`net::family`] and [`cpu::family`] make them from their
//! names ([`FAMILIES`]). [`find`] knows all.

use std::ops::Deref;
use std::time::{Duration, Instant};

use vmio_look::require::Requirement;
use vmio_model::cell::Millis;
use vmio_model::figure;
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::{Family, SubjectKind, WorkloadName};
use vmio_node::Output;

use crate::hadoop::Jars;

pub mod cpu;
pub mod disk;
mod error;
#[cfg(test)]
mod example;
pub mod net;
mod port_probe;
pub mod service;
mod stage;

pub use disk::{DiskWorkload, FioJob, Rw, family};
pub use error::{Error, Result, Unusable};
pub use port_probe::Ready;
pub use service::{Service, Serving};
pub use stage::{At, End, Gentle, OtherHost, Role, Span, Stage, Wants};

/// All workloads, in the order in which they are shown.
pub const ALL: &[&dyn Workload] = &[
    &disk::DURABLE_APPEND,
    &disk::SEQ_WRITE,
    &disk::SEQ_READ,
    &disk::RAND_READ_1,
    &disk::RAND_READ_32,
    &disk::RAND_WRITE_1,
    &disk::RAND_WRITE_32,
    &disk::DD_WRITE,
    &disk::DD_READ,
    &disk::HDPARM,
    &disk::DFSIO,
    &disk::DFSIO_HDFS,
    &disk::DFSIO_HDFS_REMOTE,
    &net::IPERF3_TCP,
    &net::IPERF3_TCP_REVERSE,
    &net::IPERF3_UDP,
    &net::SOCKPERF_TCP,
    &net::TRANSFER,
    &net::S3_PUT,
    &net::S3_GET,
    &cpu::AES_256_CBC,
    &cpu::LEVEL_3,
    &cpu::LU,
    &cpu::SHARPEN,
    &cpu::ALLOCATE,
    &cpu::WRITE,
    &cpu::PAGE_FAULTS,
    &cpu::VM,
];

/// Workloads that are made from their names, beside those.
pub const FAMILIES: &[Family] = &[disk::family::FAMILY, net::family::FAMILY, cpu::family::FAMILY];

/// A workload.
pub trait Workload: Sync {
    /// One line for help and docs.
    fn about(&self) -> &str;
    /// Name, figures and nature, as the model needs them.
    fn traits(&self) -> WorkloadTraits;
    /// On what it works.
    fn works_on(&self) -> SubjectKind;
    /// The roles that it runs in, those that serve first; never empty.
    fn roles(&self) -> &'static [Role];
    /// Files and directories beside its programs that it takes, by their paths, which are the same on both sides.
    fn files(&self) -> &'static [&'static str] {
        &[]
    }
    /// What it needs that a run fetches where its user says from where.
    fn fetched(&self) -> Option<Jars> {
        None
    }
    /// Programs of roles that serve, on hosts alone: no guest of vmio's own has them.
    fn host_programs(&self) -> &'static [&'static str] {
        &[]
    }
    /// What is a disk's own; `None` where it works on none.
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        None
    }
    /// What of it is on another host, where it works on a disk; `None`: all roles are on the disk's side.
    fn other_host(&self) -> Option<OtherHost> {
        None
    }
    /// Whether a third end may send to the peer as the actor does: it is [`net::CO_SENDER`] of the stage.
    fn takes_co_sender(&self) -> bool {
        false
    }
    /// Whether it can be held to a bandwidth (`--gentle`), else why not.
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        Err("vmio cannot throttle this workload; skipped to protect other guests")
    }
    /// Seconds that it takes whatever a study asks for; `None` for one that runs as long as it is told to.
    fn own_seconds(&self) -> Option<f64> {
        None
    }
    /// The unit of its time: a program that counts whole seconds cannot be told of half a one.
    fn tick(&self) -> Millis {
        Millis(1)
    }
    /// How long its program does nothing at its disk once it is started, at least.
    fn quiet_start(&self) -> Duration {
        Duration::ZERO
    }
    /// What is started in a role that serves, and when it is ready; `None` where that role needs nothing. The last
    /// role is not asked.
    ///
    /// # Errors
    /// When the stage lacks an end.
    fn serve(&self, _role: &Role, _stage: &Stage) -> Result<Option<Service>> {
        Ok(None)
    }
    /// How long each of those may take until it is ready.
    fn ready_within(&self) -> Duration {
        service::READY_LIMIT
    }
    /// Whether a failure tells what those said: their logs have causes that the last role does not see.
    fn quotes_servers(&self) -> bool {
        false
    }
    /// Runs the last role to its end.
    ///
    /// # Errors
    /// When the tool fails, or says what it should not.
    fn run(&self, stage: &Stage) -> Result<WorkloadResult>;
    /// How long those that serve may take to end by themselves once the last role has, where the result is in what
    /// they say; `None`: they are ended, and nothing is read of them.
    fn hears(&self) -> Option<Duration> {
        None
    }
    /// The result of the last role with what those that served it said, in their order. Asked where [`Self::hears`]
    /// says so.
    ///
    /// # Errors
    /// When one of them fails, or says what it should not.
    fn heard(&self, _stage: &Stage, result: WorkloadResult, _said: &[Output]) -> Result<WorkloadResult> {
        Ok(result)
    }
}

impl dyn Workload + '_ {
    /// What the machines that it runs on must have.
    pub fn requirements(&self) -> impl Iterator<Item = &'static Requirement> {
        self.roles().iter().flat_map(|role| role.requirements).chain(self.fetched().map(Jars::requirement))
    }

    /// Programs that it runs, on whichever machine.
    pub fn programs(&self) -> impl Iterator<Item = &'static str> {
        self.roles().iter().flat_map(|role| role.programs).copied()
    }

    /// The same, and its files beside them.
    pub fn takes(&self) -> impl Iterator<Item = &'static str> {
        self.programs().chain(self.files().iter().copied())
    }

    /// Both in one: starts what serves and runs the last role.
    ///
    /// # Errors
    /// When a role fails, or the figures are not those declared.
    pub fn perform(&self, stage: &Stage) -> Result<WorkloadResult> {
        self.run_served(stage, self.start_servers(stage)?)
    }

    /// Starts what serves, and waits until it is ready.
    ///
    /// # Errors
    /// When a server does not start, or is not ready in time.
    pub fn start_servers(&self, stage: &Stage) -> Result<Serving> {
        service::start(self, stage)
    }

    /// Runs the last role to its end, and ends what served. A result with other figures than declared is a failure.
    ///
    /// # Errors
    /// When a role fails, or the figures are not those declared.
    pub fn run_served(&self, stage: &Stage, mut serving: Serving) -> Result<WorkloadResult> {
        let (traits, began) = (self.traits(), Instant::now());
        let ran = self.run(stage).map_err(|error| {
            let error = serving.classify_failure(error);
            if self.quotes_servers() { serving.quote(error) } else { error }
        });
        let result = match self.hears() {
            Some(limit) => ran.and_then(|result| serving.hear(limit).and_then(|said| self.heard(stage, result, &said))),
            None => ran,
        };
        drop(serving);
        let result = result?;
        let longest = stage::allowed(began.elapsed().as_secs_f64().max(stage.seconds)).as_secs_f64();
        let node = self.roles().last().and_then(|role| stage.ends.get(role.name)).map(|end| end.node.name().to_owned());
        let as_declared = || figure::check(&traits.figures, &result.figures).map_err(Unusable::NotAsDeclared);
        plausible(result.seconds, longest)
            .and_then(|()| as_declared())
            .map_err(|reason| reason.of(&node.unwrap_or_default(), &result.command))?;
        Ok(result)
    }
}

/// Whether a workload can have taken that long: what a program in a guest says is what the guest likes.
fn plausible(seconds: f64, longest: f64) -> Result<(), Unusable> {
    if seconds.is_finite() && seconds > 0.0 && seconds <= longest {
        return Ok(());
    }
    Err(Unusable::Time { seconds, longest })
}

/// A workload resolved from its name: an entry of [`ALL`], or one of [`FAMILIES`].
pub enum ResolvedWorkload {
    /// One of [`ALL`].
    Entry(&'static dyn Workload),
    /// A job made from its name.
    Job(FioJob),
    /// A stream of datagrams made from its name.
    Stream(net::Udp),
    /// A kernel made from its name.
    Kernel(cpu::Kernel),
}

impl Deref for ResolvedWorkload {
    type Target = dyn Workload;

    fn deref(&self) -> &Self::Target {
        match self {
            ResolvedWorkload::Entry(entry) => *entry,
            ResolvedWorkload::Job(job) => job,
            ResolvedWorkload::Stream(stream) => stream,
            ResolvedWorkload::Kernel(kernel) => kernel,
        }
    }
}

/// The workload of that name.
pub fn find(name: &str) -> Option<ResolvedWorkload> {
    let entry = ALL.iter().copied().find(|w| w.traits().name == name).map(ResolvedWorkload::Entry);
    let job = || Some(ResolvedWorkload::Job(family::parse(name)?.ok()?.job()));
    let stream = || Some(ResolvedWorkload::Stream(net::family::parse(name)?.ok()?));
    let kernel = || Some(ResolvedWorkload::Kernel(cpu::family::parse(name)?.ok()?));
    entry.or_else(job).or_else(stream).or_else(kernel)
}

/// The names of [`ALL`] with what they work on, for the reader of studies.
pub fn names() -> Vec<WorkloadName> {
    ALL.iter().map(|w| WorkloadName { name: w.traits().name, works_on: w.works_on() }).collect()
}

/// What a workload measures, for the reader of studies.
pub fn traits_of(name: &str) -> Option<WorkloadTraits> {
    find(name).map(|found| found.traits())
}

/// The programs that workloads run in guests, each once: what a guest's image takes from the host.
pub fn programs() -> Vec<&'static str> {
    let mut all: Vec<&str> = ALL.iter().flat_map(|w| w.programs()).collect();
    // Jobs run what entries run; streams have none among those.
    all.extend(FAMILIES.iter().filter_map(|f| find(f.example)).flat_map(|w| w.programs().collect::<Vec<_>>()));
    all.sort_unstable();
    all.dedup();
    all
}

/// What each workload takes beside programs, of those that take any: a guest's image takes it from the host.
pub fn files() -> impl Iterator<Item = &'static [&'static str]> {
    ALL.iter().map(|workload| workload.files()).filter(|files| !files.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use vmio_model::figure::Compared;
    use vmio_model::study::OF_MEMORY;
    use vmio_node::Fake;
    use vmio_node::fake::says;

    use super::*;

    #[test]
    fn contract_of_every_workload() {
        for (i, workload) in ALL.iter().enumerate() {
            let traits = workload.traits();
            let name = &traits.name;
            assert!(ALL[..i].iter().all(|w| w.traits().name != *name), "{name} twice");
            assert!(matches!(find(name), Some(ResolvedWorkload::Entry(e)) if e.traits() == traits), "{name}");
            assert!(FAMILIES.iter().all(|f| (f.recognise)(name).is_none()), "{name} has two meanings");
            holds(*workload);
        }
        for family in FAMILIES {
            let member = find(family.example).unwrap();
            assert_eq!((member.traits().name.as_str(), member.works_on()), (family.example, family.works_on));
            let families = FAMILIES.iter().filter(|f| (f.recognise)(family.example).is_some()).count();
            assert_eq!((families, (family.recognise)(family.example)), (1, Some(Ok(()))), "{}", family.grammar);
            holds(&*member);
        }
        assert!(
            ["fio", "dd", "vmio-udp", "vmio-cpu", "zstd", "stress-ng"]
                .iter()
                .all(|program| programs().contains(program))
        );
    }

    #[test]
    fn the_example_keeps_the_contract_and_runs() {
        let example: &dyn Workload = &example::SysbenchCpu;
        holds(example);
        let perform = |said: &str| {
            let node = Arc::new(Fake::new("here").program("sysbench", says(said)));
            example.perform(&Stage::of("worker", End::here(node, At::Nothing), 5.0))
        };
        let said = "CPU speed:\n    events per second:   812.50\n\n    total time:           5.0004s\n";
        let result = perform(said).unwrap();
        assert_eq!((result.seconds, result.figure("throughput")), (5.0004, Some(812.5)));
        assert_eq!(result.command, "sysbench cpu --threads=1 --time=5 run");
        assert!(perform("CPU speed:\n").unwrap_err().to_string().contains("no \"total time:\""));
    }

    /// What every workload says of itself.
    fn holds(workload: &dyn Workload) {
        let traits = workload.traits();
        let name = &traits.name;
        assert!(!name.contains([' ', ',', '/', '+', '&', '@', '~']), "{name}: cell keys use these characters");
        assert!(!workload.about().is_empty() && workload.requirements().next().is_some(), "{name}");
        // It is judged by a figure of its own that has a ratio.
        let judge = traits.judge().unwrap_or_else(|| panic!("{name} is judged by {}", traits.judged_by));
        assert!(judge.compared == Compared::Ratio && judge.labels.is_empty(), "{name}");
        for (i, figure) in traits.figures.iter().enumerate() {
            assert!(traits.figures[..i].iter().all(|f| f.name != figure.name), "{name}: {} twice", figure.name);
        }
        // What works on the machine itself is of a group, and nothing else is.
        let group = traits.group.as_deref();
        assert_eq!(
            workload.works_on() == SubjectKind::Machine,
            group.is_some_and(|g| cpu::GROUPS.contains(&g)),
            "{name}"
        );
        assert!(OF_MEMORY.iter().all(|group| cpu::GROUPS.contains(group)), "their groups are called otherwise");
        assert!(!workload.takes_co_sender() || workload.works_on() == SubjectKind::Path, "{name}");
        // Roles have names of their own; what serves comes before what is run to its end.
        let roles = workload.roles();
        assert!(!roles.is_empty(), "{name}");
        for (i, role) in roles.iter().enumerate() {
            assert!(roles[..i].iter().all(|r| r.name != role.name), "{name}: role {} twice", role.name);
            assert!(!role.programs.is_empty() && !role.requirements.is_empty(), "{name}: {}", role.name);
        }
        assert_eq!(
            workload.works_on() == SubjectKind::Disk,
            workload.disk().is_some() && traits.disk.is_some(),
            "{name}"
        );
    }
}
