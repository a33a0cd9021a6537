#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use vmio_model::result::{COMPONENT, LOST, ROLE, SAMPLED, SAMPLES};
use vmio_node::{Fake, Local};

use super::perf::{Hit, Mode, Told};
use super::*;
use crate::guests::Hypervisor;

const SYSCTL: &str = "/proc/sys/kernel/perf_event_paranoid";

#[test]
fn who_may_not_sample_is_told_what_to_do() {
    let with = |level: &str, capabilities: &str| {
        let status = format!("Uid:\t7\t7\t7\t7\nCapEff:\t{capabilities}\n");
        may_sample(&Fake::new("fake").file(SYSCTL, format!("{level}\n")).file("/proc/self/status", status))
    };
    assert_eq!(with("2", "0000004000000000"), Ok(()), "CAP_PERFMON");
    assert_eq!(with("4", "0000000000200000"), Ok(()), "CAP_SYS_ADMIN");
    assert_eq!(with("0", "0000000000000000"), Ok(()));
    let refused = with("1", "0000000000000000").unwrap_err().to_string();
    assert_eq!(refused, "no CAP_PERFMON (CapEff 0x0), and kernel.perf_event_paranoid is 1");
    let none = may_sample(&Fake::new("fake")).unwrap_err().to_string();
    assert!(none.contains("CONFIG_PERF_EVENTS"), "{none}");
    let node: Arc<dyn Node> = Arc::new(Fake::new("fake").file(SYSCTL, "3\n"));
    let said = Components.start(&ProbeSubject::Components(Workers::of(1)), &node).err().unwrap().to_string();
    assert!(said.contains("sampling rights"), "{said}");
}

#[test]
fn hidden_symbols_are_a_requirement_with_its_remedy() {
    let fake = Fake::new("fake").file(kallsyms::FILE, "0000000000000000 T _stext\n");
    let said = SYMBOLS.look(&fake).to_string();
    assert!(said.contains("hides the addresses") && said.contains("kernel.kptr_restrict"), "{said}");
}

fn stat(pid: u32, parent: u32, flags: u32) -> String {
    format!("{pid} (a) S {parent} 1 1 0 -1 {flags} 0 0 0 0 1 0 0 0 20 0 1 0 5 0 0\n")
}

/// A machine with vmio (50), QEMU (71) below it, another guest's QEMU (80), and a thread of the kernel (9).
fn machine() -> Fake {
    let symbols = "ffffffff81000000 T blk_mq_submit_bio\nffffffff82000000 t vcpu_run\t[kvm]\n";
    let maps = "1000-2000 r-xp 0 fe:00 5 /usr/bin/qemu-system-x86_64\n5000-6000 rwxp 00000000 00:00 0 \n";
    Fake::new("fake")
        .file("/proc/50/stat", stat(50, 1, 0))
        .file("/proc/71/stat", stat(71, 50, 0))
        .file("/proc/71/maps", maps)
        .file("/proc/80/stat", stat(80, 1, 0))
        .file("/proc/9/stat", stat(9, 2, 0x0020_0000))
        .file(kallsyms::FILE, symbols)
}

fn hit(process: u32, thread: u32, mode: Mode, address: u64) -> Told {
    Told::Hit(Hit { process, thread, mode, address, weight: 1_000_000 })
}

/// Samples by role and component.
fn counted(told: &[Told], symbols: bool) -> BTreeMap<(String, String), f64> {
    let machine = machine();
    let roles = [(71, "main".to_owned()), (72, "vcpu".to_owned())].into();
    let qemu = Hypervisor { name: "QEMU", pid: 71, roles, servers: Vec::new() };
    let mut count = Count::of(Workers::of(50).with_hypervisor(&qemu));
    count.add(&machine, told);
    let symbols = symbols.then(|| Symbols::read(&machine).unwrap());
    let readings = count.readings(symbols.as_ref(), 1e-9, "cpu-clock");
    let seconds: f64 = readings.iter().filter(|r| r.figure == SAMPLED).map(|r| r.value.typical()).sum();
    let samples = readings.iter().filter(|r| r.figure == SAMPLES);
    let samples: BTreeMap<_, _> =
        samples.map(|r| ((r.labels[ROLE].clone(), r.labels[COMPONENT].clone()), r.value.typical())).collect();
    assert!((seconds - samples.values().sum::<f64>() * 1e-3).abs() < 1e-12, "{readings:?}");
    assert_eq!(readings.last().map(|r| (r.figure.as_str(), r.value.typical())), Some((LOST, 3.0)));
    samples
}

#[test]
fn samples_are_told_by_role_and_component() {
    let kernel = 0xffff_ffff_8100_0010;
    let told = [
        hit(71, 72, Mode::User, 0x5010),
        hit(71, 72, Mode::User, 0x5020),
        hit(71, 72, Mode::GuestKernel, 0x1010),
        hit(71, 72, Mode::GuestUser, 0x10),
        hit(71, 72, Mode::Kernel, 0xffff_ffff_8200_0010),
        hit(71, 79, Mode::Kernel, kernel),
        hit(71, 79, Mode::Kernel, kernel + 8),
        hit(71, 71, Mode::User, 0x1010),
        hit(9, 9, Mode::Kernel, kernel),
        // A program that ended since, of which only its beginning is known; another guest, and nobody.
        Told::Born { process: 90, parent: 71 },
        hit(90, 90, Mode::Kernel, kernel),
        hit(80, 80, Mode::User, 0x1010),
        hit(0, 0, Mode::Kernel, kernel),
        hit(u32::MAX, u32::MAX, Mode::Kernel, kernel),
        Told::Lost(3),
    ];
    let of = |role: &str, component: &str, samples: f64| ((role.to_owned(), component.to_owned()), samples);
    let wanted = [
        of("kernel", "kernel, block", 1.0),
        of("main", "qemu-system-x86_64", 1.0),
        of("program", "kernel, block", 1.0),
        of("vcpu", "guest kernel", 1.0),
        of("vcpu", "guest user", 1.0),
        of("vcpu", "kvm", 1.0),
        of("vcpu", "translated guest code", 2.0),
        of("worker", "kernel, block", 2.0),
    ];
    assert_eq!(counted(&told, true), BTreeMap::from(wanted));
    // Without symbols the kernel is one row.
    let hidden = counted(&[hit(71, 71, Mode::Kernel, kernel), Told::Lost(3)], false);
    assert_eq!(hidden, BTreeMap::from([of("main", "kernel, other", 1.0)]));
}

/// Whatever this machine allows: either it samples, or it says why not.
#[test]
fn this_machine_samples_or_says_why_not() {
    let node: Arc<dyn Node> = Arc::new(Local::new());
    let subject = ProbeSubject::Components(Workers::of(std::process::id()));
    match Components.start(&subject, &node) {
        Ok(looking) => {
            let mut notes = Vec::new();
            match looking.stop(&mut notes) {
                Ok(readings) => assert!(readings.iter().any(|r| r.figure == LOST), "{readings:?}"),
                Err(why) => assert!(matches!(why, Unseen::NoSamples), "{why}"),
            }
        }
        Err(why) => assert!(matches!(why, Unseen::Unmet(_) | Unseen::NotSampled(_)), "{why}"),
    }
}
