//! A guest under a hypervisor of which the engine knows what the traits say, and nothing else.

use vmio_model::result::CpuUse;
use vmio_node::FileSample;
use vmio_node::fake::says;

use super::*;
use crate::engine::runner::boot::launch;
use crate::guests::example::Bochs;

#[test]
fn a_guest_of_another_hypervisor_is_launched_and_measured_and_its_end_is_told() {
    let stat = |ticks: u32| format!("1001 (bochs) S 1 1 1 0 -1 0 300 0 0 0 {ticks} 0 0 0 20 0 5 0 100 1000 200\n");
    // The files of the processors, then those of the process and of its known thread.
    let tick = |seconds: f64, ticks: u32, thread: &str| {
        let files = ["cpu  100 0 0 0 0 0 0 0 0 0\n".to_owned(), stat(ticks), thread.to_owned(), String::new()];
        FileSample { seconds, contents: files.map(String::into_bytes).into() }
    };
    let ticks = vec![tick(0.0, 100, "1000000000 1 1\n"), tick(2.0, 250, "2000000000 1 1\n")];
    let node = Arc::new(Fake::new("host").program("bochs", says("")).samples(ticks));
    let house = House { node, ..House::new() };
    let told = Mutex::new(Vec::new());
    let progress = |what: &str| told.lock().unwrap().push(what.to_owned());
    let side = Side::of("bochs");
    let sides = BTreeMap::from([(side.clone(), Vec::new())]);
    let mut runner = Runner::on(Bed { sides, progress: &progress, ..house.bed() });
    runner.bed.hold_hypervisors((1, 1 << 30));
    let running = launch(&mut runner.bed, &Bochs, 0, &side, &[], 1).unwrap();
    runner.enter(side.clone(), running);

    let work = |how| Work { name: "a", log: house.log.clone(), takes: Duration::ZERO, how };
    let prepared = house.prepared_on(&mut runner, &side, 0, work(How::Well));
    assert_eq!(prepared.stage.end("client").unwrap().node.name(), "bochs-1");
    let sample = run(&mut runner, vec![prepared], &[]).unwrap();
    let seen: Vec<&Watched> = sample.seen.iter().map(|s| &s.watched).collect();
    assert_eq!(seen, [&Watched::Processors, &Watched::Hypervisor("bochs".into())]);
    let cpu = CpuUse::of(&sample.seen);
    assert!((cpu.by_role["vcpu"] - 1.0).abs() < 1e-9 && (cpu.by_role["worker"] - 0.5).abs() < 1e-9, "{cpu:?}");

    let prepared = house.prepared_on(&mut runner, &side, 0, work(How::Dies));
    let said = format!("{:#}", run(&mut runner, vec![prepared], &[]).unwrap_err());
    assert!(said.starts_with("guest bochs-1 ") && said.contains("Bochs had ended with exit code 1"), "{said}");
    assert_eq!(runner.must_stop(), None, "it is booted anew");

    let held = runner.bed.record.environment.qemu_limits.clone().unwrap();
    let told = told.lock().unwrap().join("\n");
    assert!(told.starts_with("bochs has no control group of its own: ") && held.starts_with("not held: "), "{told}");
    let all = format!("{told} {held} {said} {sample:?} {:?}", house.memory.0.lock().unwrap());
    assert!(!all.to_lowercase().contains("qemu"), "{all}");
    runner.finish();
}
