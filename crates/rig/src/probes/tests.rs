//! The contract of the probes, on made-up machines.

#![allow(clippy::unwrap_used)]

use vmio_node::linux::hwmon::{Counts, Covers};

use super::*;

fn disk() -> ProbeSubject {
    ProbeSubject::Disk(Backing { leaves: [("vda".to_owned(), (254, 0))].into(), ..Backing::default() })
}

fn subjects() -> Vec<ProbeSubject> {
    let nfs = Backing { nfs: Some("server:/export".into()), mount: "/srv".into(), ..Backing::default() };
    let hypervisor = Hypervisor { pid: 7, roles: [(7, "main".to_owned())].into(), ..Hypervisor::default() };
    vec![
        disk(),
        ProbeSubject::Disk(nfs),
        ProbeSubject::Link { name: "eth0".into(), enter: Vec::new() },
        ProbeSubject::Storage { target: "sparse".into(), path: "/srv/sparse".into() },
        blockstats::tests::drive(&[]),
        ProbeSubject::DmCache("vmio-vdb".into()),
        ProbeSubject::Driver("vdb".into()),
        ProbeSubject::Processors,
        ProbeSubject::Others { than: 7 },
        ProbeSubject::Components(Workers::of(7)),
        ProbeSubject::Hypervisor("qemu".into(), hypervisor),
        ProbeSubject::Container("container".into(), Processes { first: 7, agent: 8 }),
        ProbeSubject::Energy(vec![Zone {
            domain: "package-0".into(),
            energy_file: "/sys/class/powercap/intel-rapl:0/energy_uj".into(),
            range_uj: Some(262_143_328_850),
        }]),
        ProbeSubject::Sensors(vec![Sensor {
            domain: "machine".into(),
            file: "/sys/class/hwmon/hwmon1/power1_average".into(),
            counts: Counts::Average { interval_ms: Some(1000) },
            covers: Covers::Machine,
        }]),
        ProbeSubject::Controller(ipmi::Dcmi::Ipmitool),
        ProbeSubject::Redfish(Arc::new(crate::redfish::tests::controller())),
        ProbeSubject::Meter { command: "cat /dev/meter".into() },
    ]
}

#[test]
fn contract_of_every_probe() {
    for (i, probe) in ALL.iter().enumerate() {
        assert!(ALL[..i].iter().all(|p| p.name() != probe.name()), "{} twice", probe.name());
    }
    let example: &dyn Probe = &example::Gpu;
    for probe in ALL.iter().copied().chain([example]) {
        let name = probe.name();
        assert!(!probe.about().is_empty(), "{name}");
        let seen: Vec<ProbeSubject> = subjects().into_iter().filter(|subject| probe.sees(subject)).collect();
        assert!(!seen.is_empty(), "{name} sees nothing");
        for subject in &seen {
            let figures = probe.figures(subject);
            assert!(!figures.is_empty(), "{name}: {subject:?}");
            for (i, figure) in figures.iter().enumerate() {
                assert!(figures[..i].iter().all(|f| f.name != figure.name), "{name}: {} twice", figure.name);
            }
        }
        match probe.method() {
            ProbeMethod::Files(files) => seen.iter().for_each(|subject| contract_by_files(name, files, subject)),
            ProbeMethod::Command(by) => {
                for subject in &seen {
                    assert!(!by.command(subject).unwrap().program.is_empty(), "{name}");
                    let words = vec![(0.0, "x".to_owned()), (1.0, "x y z".to_owned())];
                    for said in [vec![], vec![(0.0, String::new())], words] {
                        let heard = Heard { seconds: 1.0, said, runs: vec![0.0] };
                        let said = by.conclude(subject, &heard, &mut Vec::new());
                        assert!(said.is_err(), "{name}: {said:?}");
                    }
                }
            }
            ProbeMethod::Own(_) => {}
        }
    }
}

#[test]
fn the_example_tells_the_mean_and_the_energy() {
    let line = |at: f64, said: &str| (at, said.to_owned());
    let said = vec![line(0.2, "200.10"), line(0.3, "[N/A]"), line(1.2, "219.90")];
    let heard = Heard { seconds: 2.0, said, runs: vec![0.0, 1.0] };
    let told = ByCommand::conclude(&example::Gpu, &ProbeSubject::Processors, &heard, &mut Vec::new()).unwrap();
    assert_eq!(told, energy::readings("gpu", 420.0, 2.0));
}

fn contract_by_files(name: &str, files: &dyn ByFiles, subject: &ProbeSubject) {
    let paths = files.paths(subject);
    assert!(!paths.is_empty(), "{name}");
    for path in &paths {
        assert!(path.starts_with("/proc") || path.starts_with("/sys"), "{name}: {}", path.display());
    }
    // Whatever cannot be read must become a word, not a figure and not a panic.
    let empty = |seconds: f64| FileSample { seconds, contents: vec![vec![]; paths.len()] };
    for ticks in [vec![], vec![empty(0.0)], vec![empty(0.0), empty(1.0)]] {
        let said = files.conclude(subject, &ticks, &mut Vec::new());
        assert!(said.is_err(), "{name}: {said:?}");
    }
}

/// A subject may have any number of probes, but each of its figures has one: nothing is counted twice. Figures that
/// are fields of the model are declared as the model has them, by some probe.
#[test]
fn each_figure_of_a_subject_has_one_probe() {
    for subject in subjects() {
        let declared: Vec<Figure> = ALL.iter().filter(|p| p.sees(&subject)).flat_map(|p| p.figures(&subject)).collect();
        assert!(!declared.is_empty(), "nobody sees {subject:?}");
        for (i, figure) in declared.iter().enumerate() {
            assert!(declared[..i].iter().all(|f| f.name != figure.name), "{subject:?}: {} twice", figure.name);
        }
        let known = subject.watched().figures();
        assert!(known.iter().all(|figure| declared.contains(figure)), "{subject:?}: {declared:?}");
    }
}
