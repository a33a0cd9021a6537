//! A guest under a hypervisor of which the engine knows what the traits say, and nothing else.

use vmio_model::result::CpuUse;
use vmio_node::fake::says;
use vmio_node::{Exec, FileSample};

use super::*;
use crate::engine::runner::boot::launch;
use crate::guests::{self, Guest, GuestKind, GuestSpec, Hypervisor, LaunchCtx};

/// A kind of guest that is in no list.
struct Bochs;

impl GuestKind for Bochs {
    fn name(&self) -> &'static str {
        "bochs"
    }
    fn about(&self) -> &'static str {
        "made up"
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> guests::Result<Box<dyn Guest>> {
        let process = ctx.node.spawn(&Exec::new("bochs").args(["-m".to_owned(), spec.memory_mib.to_string()]))?;
        Ok(Box::new(Emulated { name: spec.name.clone(), pid: process.pid() }))
    }
}

struct Emulated {
    name: String,
    pid: u32,
}

impl Guest for Emulated {
    fn node(&self) -> Arc<dyn Node> {
        Arc::new(Fake::new(&self.name))
    }
    fn hypervisor(&self) -> guests::Result<Option<Hypervisor>> {
        let roles = [(self.pid + 1, "vcpu".to_owned())].into();
        Ok(Some(Hypervisor { name: "Bochs", pid: self.pid, roles, servers: Vec::new() }))
    }
    fn give_up(&self, seen: &str) -> guests::Error {
        let what = format!("{seen}; Bochs had ended with exit code 1");
        guests::Error::Down { guest: self.name.clone(), what, report: "it said nothing".into(), last: None }
    }
    fn stop(self: Box<Self>) -> guests::Result<()> {
        Ok(())
    }
}

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
    let act = house.act_on(&mut runner, &side, 0, work(How::Well));
    assert_eq!(act.stage.end("client").unwrap().node.name(), "bochs-1");
    let sample = run(&mut runner, vec![act], &[]).unwrap();
    let seen: Vec<&Watched> = sample.seen.iter().map(|s| &s.watched).collect();
    assert_eq!(seen, [&Watched::Processors, &Watched::Hypervisor("bochs".into())]);
    let cpu = CpuUse::of(&sample.seen);
    assert!((cpu.by_role["vcpu"] - 1.0).abs() < 1e-9 && (cpu.by_role["worker"] - 0.5).abs() < 1e-9, "{cpu:?}");

    let act = house.act_on(&mut runner, &side, 0, work(How::Dies));
    let said = format!("{:#}", run(&mut runner, vec![act], &[]).unwrap_err());
    assert!(said.starts_with("guest bochs-1 ") && said.contains("Bochs had ended with exit code 1"), "{said}");
    assert_eq!(runner.must_stop(), None, "it is booted anew");

    let held = runner.bed.record.environment.qemu_limits.clone().unwrap();
    let told = told.lock().unwrap().join("\n");
    assert!(told.starts_with("bochs has no control group of its own: ") && held.starts_with("not held: "), "{told}");
    let all = format!("{told} {held} {said} {sample:?} {:?}", house.memory.0.lock().unwrap());
    assert!(!all.to_lowercase().contains("qemu"), "{all}");
    runner.finish();
}
