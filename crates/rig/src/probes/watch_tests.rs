#![allow(clippy::unwrap_used)]
use std::sync::Mutex;

use vmio_look::backing::Backing;
use vmio_model::result::Watched;
use vmio_node::fake::Fake;

use super::*;
use crate::guests::Hypervisor;

fn disk(name: &str, minor: u32) -> ProbeSubject {
    ProbeSubject::Disk(Backing { leaves: [(name.to_owned(), (254, minor))].into(), ..Backing::default() })
}

fn guest(name: &str, pid: u32, servers: &[u32]) -> ProbeSubject {
    let (roles, servers) = ([(pid, "main".to_owned())].into(), servers.to_vec());
    ProbeSubject::Hypervisor(name.into(), Hypervisor { name: "QEMU", pid, roles, servers })
}

fn here(subjects: impl IntoIterator<Item = ProbeSubject>) -> Vec<ProbePoint> {
    let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
    subjects.into_iter().map(|subject| ProbePoint::here(node.clone(), subject)).collect()
}

#[test]
fn each_probe_gets_its_own_files() {
    let points = here([disk("vda", 0), ProbeSubject::Processors, guest("qemu", 7, &[])]);
    let (looks, machines) = looks(&points);
    assert_eq!(machines[""].all.len(), 5);
    let disk = |ios: u32| format!("{ios} 0 {} 0 0 0 0 0 0 0 0", ios * 8);
    let tick = |s: f64, ios, user| FileSample {
        seconds: s,
        contents: [
            disk(ios),
            format!("cpu  {user} 0 0 0 0 0 0 0"),
            "7 (q) S 1 1 1 0 0 0 0 0 0 0 5 5".into(),
            "1 1 1".into(),
            String::new(),
        ]
        .map(String::into_bytes)
        .into(),
    };
    let ticks = BTreeMap::from([(String::new(), vec![tick(1.0, 10, 100), tick(1.1, 13, 120), tick(3.0, 20, 200)])]);
    // What was done in the first 0.15 s is told apart; of one reading nothing can be said.
    let begun = |millis| first_disk(&points, &looks, &ticks[""], Duration::from_millis(millis));
    assert_eq!(begun(150).map(|disk| (disk.read_ios, disk.read_bytes)), Some((3, 3 * 4096)));
    assert_eq!(begun(50), None);
    let seen = conclude(&points, looks, &ticks);
    assert_eq!(seen.seconds, 2.0);
    assert_eq!(seen.device().unwrap().read_ios, 10);
    assert!((seen.cpu().host_seconds - 1.0).abs() < 1e-9);
    assert_eq!(seen.notes, Vec::<String>::new());
    // What a probe gives is what it declares of that subject.
    for (point, seen) in points.iter().zip(&seen.seen) {
        let declared = ALL.iter().find(|p| p.name() == seen.probe).unwrap().figures(&point.subject);
        for reading in &seen.figures {
            let figure = declared.iter().find(|f| f.name == reading.figure);
            let figure = figure.unwrap_or_else(|| panic!("{}: {}", seen.probe, reading.figure));
            assert_eq!(
                (figure.form, reading.labels.keys().collect()),
                (reading.value.form(), figure.labels.iter().collect::<Vec<_>>())
            );
        }
    }
}

/// A process at work, by its threads and as a part of the whole: the look at the whole encloses that at its parts, by
/// one clock, so that they differ by no more than what the kernel rounds.
#[test]
fn real_parts_are_no_more_than_the_whole() {
    // A tick of each processor.
    let rounded = 0.01 * std::thread::available_parallelism().unwrap().get() as f64;
    let node: Arc<dyn Node> = Arc::new(vmio_node::Local::new());
    let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = child.id();
    let own = Hypervisor { pid, roles: [(pid, "vcpu".to_owned())].into(), ..Hypervisor::default() };
    let subjects = [ProbeSubject::Hypervisor("qemu".into(), own), ProbeSubject::Others { than: std::process::id() }];
    let points =
        subjects.into_iter().chain([ProbeSubject::Processors]).map(|subject| ProbePoint::here(node.clone(), subject));
    let watch = Watch::start(points.collect());
    let spent = || {
        let text = node.reader().read_text(&vmio_node::linux::process::file(pid, "stat")).unwrap();
        vmio_node::linux::process::Stat::parse(&text).unwrap().run_seconds().unwrap()
    };
    for _ in 0..600 {
        if spent() >= 0.4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let seen = watch.and_then(Watch::stop);
    child.kill().and_then(|()| child.wait()).unwrap();
    let cpu = seen.unwrap().cpu();
    let (parts, kernel) = (cpu.by_role.values().sum::<f64>(), cpu.kernel_seconds.unwrap());
    assert!(parts > 0.2, "{cpu:?}");
    assert!(parts <= cpu.host_seconds - kernel + rounded, "{cpu:?}");
}

#[test]
fn what_actors_share_is_watched_once() {
    let ProbeSubject::Disk(mut by_loop) = disk("vda", 0) else { panic!("no disk") };
    by_loop.way = vec!["loop0".into(), "vda".into()];
    let twice = [
        ProbeSubject::Processors,
        guest("qemu", 7, &[90]),
        disk("vda", 0),
        ProbeSubject::Processors,
        guest("qemu", 7, &[91, 90]),
        ProbeSubject::Disk(by_loop),
        disk("vdb", 16),
        guest("qemu#2", 8, &[]),
    ];
    let mut inside = ProbePoint::here(Arc::new(Fake::new("guest0")), ProbeSubject::Processors);
    inside.name = "guest0".into();
    let once = each_once(here(twice).into_iter().chain([inside]));
    let subjects: Vec<(&str, Watched)> =
        once.iter().map(|point| (point.name.as_str(), point.subject.watched())).collect();
    let hypervisor = |name: &str| Watched::Hypervisor(name.to_owned());
    let disk = |name: &str| Watched::Disk(name.to_owned());
    let wanted = [Watched::Processors, hypervisor("qemu"), disk("vda"), disk("vdb"), hypervisor("qemu#2")];
    let wanted: Vec<_> = wanted.into_iter().map(|w| ("", w)).chain([("guest0", Watched::Processors)]).collect();
    assert_eq!(subjects, wanted);
    assert!(
        matches!(&once[1].subject, ProbeSubject::Hypervisor(_, Hypervisor { servers, .. }) if *servers == [90, 91])
    );
}

/// Two mounts of NFS are told by one file, and each guest's part is its own.
#[test]
fn each_machine_has_one_schedule_that_reads_a_file_once() {
    let nfs = |mount: &str| Backing { nfs: Some("server:/x".into()), mount: mount.into(), ..Backing::default() };
    let subjects = [
        ProbeSubject::Disk(nfs("/a")),
        ProbeSubject::Disk(nfs("/b")),
        ProbeSubject::Processors,
        guest("a", 7, &[]),
        guest("b", 8, &[]),
    ];
    let mut points = here(subjects);
    let mut inside = ProbePoint::here(Arc::new(Fake::new("guest0")), ProbeSubject::Processors);
    inside.name = "guest0".into();
    points.push(inside);
    let (looks, machines) = looks(&points);
    assert_eq!(machines.keys().collect::<Vec<_>>(), ["", "guest0"]);
    let here = &machines[""].all;
    assert_eq!(here.len(), 2 + 3 + 3, "{here:?}");
    let places: Vec<Vec<usize>> = looks
        .into_iter()
        .map(|(_, _, look)| if let Look::Files(_, places) = look { places } else { panic!("no files") })
        .collect();
    assert_eq!(places, [vec![0], vec![0], vec![1], vec![2, 3, 4], vec![5, 6, 7], vec![0]]);
}

/// A probe that attaches something, and tells what became of it.
struct Attached(Arc<Mutex<Vec<&'static str>>>, Result<f64, &'static str>);

impl Looking for Attached {
    fn halt(&mut self) {
        self.0.lock().unwrap().push("halted");
    }

    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<vmio_model::figure::Reading>, Unseen> {
        notes.push("lost 3 of them".into());
        self.0.lock().unwrap().push("stopped");
        let value = self.1.map_err(Unseen::OtherSubject)?;
        Ok(vec![vmio_model::figure::Reading::scalar("packets", value)])
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.lock().unwrap().push("gone");
    }
}

#[test]
fn probes_that_look_by_themselves_are_stopped_and_heard() {
    let points = here([ProbeSubject::Link { name: "eth0".into(), enter: Vec::new() }]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let own = |outcome| (0, "flows", Look::Own(Box::new(Attached(told.clone(), outcome))));
    let failed = (0, "perf", Look::Failed(Unseen::OtherSubject("not allowed")));
    let seen = conclude(&points, vec![own(Ok(5.0)), own(Err("it lost its map")), failed], &BTreeMap::new());
    assert_eq!((seen.seen.len(), &seen.seen[0].watched), (1, &Watched::Link("eth0".into())));
    assert_eq!(seen.notes, ["lost 3 of them", "lost 3 of them", "flows: it lost its map", "perf: not allowed"]);
    // None concludes while another still looks.
    assert_eq!(*told.lock().unwrap(), ["halted", "halted", "stopped", "gone", "stopped", "gone"]);
    // One that is never stopped goes all the same.
    drop(own(Ok(0.0)));
    assert_eq!(told.lock().unwrap().last(), Some(&"gone"));
    assert_eq!(told.lock().unwrap().len(), 7);
}
