//! Processors of the host, of a guest, and of one thread.

use super::super::cpu_users::ProcessLoad;
use super::*;

fn cpu(name: &str, vcpus: u32, run: f64, wait: f64) -> GuestLoad {
    let vcpu = ThreadTime { run_seconds: run, wait_seconds: wait };
    GuestLoad { cpu: Some(CpuLoad { vcpus, vcpu, ..CpuLoad::default() }), ..guest(name, vec![]) }
}

fn processors(guests: Vec<GuestLoad>, busy_seconds: f64, stalled_ratio: Option<f64>) -> Interval {
    let host_cpu = HostCpu { cpus: 4, busy_seconds, stolen_seconds: 0.0, stalled_ratio };
    Interval { seconds: 1.0, traced: true, guests, host_cpu, ..Interval::default() }
}

#[test]
fn processors_that_are_used_up_name_who_runs_and_who_waits() {
    let full = processors(
        vec![cpu("hog", 8, 3.0, 4.0), cpu("web", 2, 0.3, 0.2), cpu("idle", 1, 0.001, 0.001)],
        3.9,
        Some(0.95),
    );
    let verdict = the_one(verdicts(&full, &History::default()));
    assert_eq!(
        verdict.line,
        "host CPU is saturated by guest hog (77 % of the work): 4 processors 98 % busy, virtual CPUs wait 56 % of \
         the time that they want to run, some task waits 95 % of the time (PSI); web waits 40 % of the time that it \
         wants to run"
    );
    // The work of no guest.
    let others = processors(vec![cpu("web", 2, 0.5, 0.3)], 4.0, None);
    let verdict = the_one(verdicts(&others, &History::default()));
    assert_eq!((verdict.resource, verdict.culprits[0].who.as_str()), (Resource::HostCpu, "others than guests"));
    // A process of no guest is named with its pid, several of one name together.
    let mut named = others.clone();
    let process = |name: &str, pid, processes, run_seconds| ProcessLoad {
        name: name.into(),
        pid,
        processes,
        run_seconds,
        kernel: false,
        since_seconds: None,
    };
    named.processes = Some(vec![process("stress", 812, 2, 3.2), process("sshd", 9, 1, 0.01)]);
    let verdict = the_one(verdicts(&named, &History::default()));
    assert!(
        verdict.line.starts_with("host CPU is saturated by 2 processes stress (busiest: pid 812) (80 % of the work): "),
        "{}",
        verdict.line
    );
    assert_eq!((verdict.culprits[0].pid, &verdict.culprits[0].guest), (Some(812), &None));
    // Busy, but nothing waits.
    assert_eq!(verdicts(&processors(vec![cpu("web", 4, 3.3, 0.05)], 3.5, Some(0.1)), &History::default()), []);
    // What hardly wants to run waits most of that little, and nothing is told of it.
    let verdict = the_one(verdicts(&processors(vec![cpu("idle", 1, 0.002, 0.03)], 4.0, None), &History::default()));
    assert!(!verdict.line.contains("wants to run") && !verdict.line.contains("virtual CPUs"), "{}", verdict.line);
    // Stolen time is not available.
    let mut stolen = processors(vec![cpu("web", 4, 1.0, 1.0)], 1.9, None);
    stolen.host_cpu.stolen_seconds = 2.0;
    let all = verdicts(&stolen, &History::default());
    let [full, taken] = &all[..] else { panic!("{all:?}") };
    assert!(full.line.starts_with("host CPU is saturated by no single one: guest web 53 % and "), "{}", full.line);
    assert_eq!(
        taken.line,
        "this host is a virtual machine itself: its hypervisor takes 50 % of its processors' time for others"
    );
}

#[test]
fn full_processors_are_used_up_though_nobody_waits() {
    let busy = |busy_seconds: f64, stalled_ratio, seconds: f64| {
        let mut full = processors(vec![cpu("flood", 2, 1.95 * seconds, 0.0)], busy_seconds * seconds, stalled_ratio);
        (full.seconds, full.host_cpu.cpus) = (seconds, 2);
        full
    };
    let verdict = the_one(verdicts(&busy(1.99, Some(0.0), 1.0), &History::default()));
    assert_eq!(
        verdict.line,
        "host CPU is saturated by guest flood (98 % of the work): 2 processors 100 % busy, virtual CPUs wait 0 % of \
         the time that they want to run, some task waits 0 % of the time (PSI); nobody waits for a processor yet"
    );
    assert!(verdict.certain);
    // Without PSI nobody knows who waits.
    let verdict = the_one(verdicts(&busy(1.99, None, 1.0), &History::default()));
    assert!(verdict.line.ends_with("; no other guest waits much"), "{}", verdict.line);
    assert_eq!(verdicts(&processors(vec![], 3.2, Some(0.0)), &History::default()), []);
    // A short interval alone says little.
    let short = busy(1.99, Some(0.0), 0.2);
    assert_eq!(the_one(verdicts(&short, &History::default())).resource, Resource::GuestCpu);
    assert_eq!(the_one(verdicts(&short, &seen(std::slice::from_ref(&short)))).resource, Resource::HostCpu);
    // Processes that were read and explain less than half ended before they could be.
    let mut builds = processors(vec![], 4.0, Some(0.0));
    builds.processes = Some(Vec::new());
    let verdict = the_one(verdicts(&builds, &History::default()));
    assert_eq!(verdict.culprits[0].who, "short-lived processes or interrupts");
    assert!(nothing(&processors(vec![], 1.72, None)).contains("(processors 43 % busy)"));
}

#[test]
fn a_guest_that_keeps_one_processor_full_is_named() {
    let mut one = cpu("a", 4, 1.0, 0.0);
    one.cpu.as_mut().unwrap().fullest = Some(("virtual CPU 2".into(), 0.99));
    let verdict = the_one(verdicts(&processors(vec![one], 1.2, None), &History::default()));
    assert!(verdict.line.starts_with("guest a keeps one processor full: virtual CPU 2 (99 %)"), "{}", verdict.line);
    // Threads without names: the busiest are taken for its virtual CPUs, and it is said.
    let mut guessed = cpu("b", 1, 0.98, 0.0);
    guessed.cpu.as_mut().unwrap().guessed = true;
    let verdict = the_one(verdicts(&processors(vec![guessed], 1.2, None), &History::default()));
    assert!(verdict.line.starts_with("guest b uses 98 % of its virtual CPUs (its threads have no names"));
}

#[test]
fn a_guest_that_waits_on_an_idle_host_is_bound_or_limited() {
    let held = processors(vec![cpu("a", 4, 1.0, 1.0), cpu("b", 1, 0.3, 0.01)], 1.5, Some(0.4));
    let verdict = the_one(verdicts(&held, &History::default()));
    assert_eq!((verdict.resource, verdict.name.as_str()), (Resource::GuestCpu, "a"));
    assert!(
        verdict.line.starts_with(
            "guest a waits for a processor 50 % of the time that it wants to run though the host's are 38 % busy: "
        ),
        "{}",
        verdict.line
    );
    // Several are one line, the worst first.
    let both = processors(vec![cpu("a", 4, 1.0, 0.5), cpu("b", 1, 0.3, 0.3)], 1.5, Some(0.4));
    let verdict = the_one(verdicts(&both, &History::default()));
    assert!(verdict.line.starts_with("guests b (50 %) and a (33 %) wait for processors though"), "{}", verdict.line);
    assert_eq!(verdict.guests, ["b", "a"]);
}

#[test]
fn a_guests_own_processors_and_threads() {
    let full = processors(vec![cpu("small", 1, 0.99, 0.0), cpu("b", 4, 1.0, 0.0)], 2.0, None);
    let verdict = the_one(verdicts(&full, &History::default()));
    assert!(verdict.line.starts_with("guest small uses 99 % of its virtual CPUs"), "{}", verdict.line);
    let many = (0..9).map(|i| cpu(&format!("g{i}"), 1, 0.95, 0.0)).collect();
    let verdict = the_one(verdicts(&processors(many, 2.0, None), &History::default()));
    assert!(
        verdict
            .line
            .starts_with("guests g0 (95 %), g1 (95 %), g2 (95 %), g3 (95 %) and 5 more use all of their virtual CPUs"),
        "{}",
        verdict.line
    );
    let mut thread = cpu("a", 2, 0.2, 0.0);
    thread.cpu.as_mut().unwrap().busiest = Some(("I/O thread io0".into(), 0.97));
    let verdict = the_one(verdicts(&processors(vec![thread], 1.2, None), &History::default()));
    assert_eq!(verdict.resource, Resource::GuestIo);
    assert!(
        verdict.line.starts_with("I/O thread io0 of guest a is at its limit: 97 % of a processor"),
        "{}",
        verdict.line
    );
}
