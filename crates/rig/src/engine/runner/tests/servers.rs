//! Cells whose actors are served by real processes of this machine: see `workloads/service_tests.rs`.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use vmio_node::{Exec, Local, machine};

use super::*;
use crate::workloads::{Ready, Service};

/// A workload whose server listens.
struct Served {
    name: &'static str,
    log: Log,
    port: u16,
    /// What the server is told.
    told: String,
    /// Ports that must be listened on when it begins.
    there: Vec<u16>,
}

impl Workload for Served {
    fn about(&self) -> &str {
        "made up, with a server"
    }
    fn traits(&self) -> WorkloadTraits {
        judged_by_speed(self.name)
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, _: &Role, _: &Stage) -> workloads::Result<Option<Service>> {
        self.log.lock().unwrap().push(format!("{} is served", self.name));
        let args = ["workloads::service::tests::server", "--exact", "--ignored", "--nocapture"];
        let program = std::env::current_exe().unwrap().display().to_string();
        let mut exec = Exec { program, args: args.map(str::to_owned).to_vec(), ..Exec::default() };
        exec.env.insert("VMIO_TEST_SERVER".into(), self.told.clone());
        Ok(Some(Service { exec, ready: Ready::Listens(self.port) }))
    }
    fn run(&self, stage: &Stage) -> workloads::Result<WorkloadResult> {
        let there = self.there.iter().filter(|port| TcpStream::connect(("127.0.0.1", **port)).is_ok()).count();
        self.log.lock().unwrap().push(format!("{} begins with {there}", self.name));
        // A server ends with its client: nobody is done before the others have looked.
        let begun = || self.log.lock().unwrap().iter().filter(|line| line.contains("begins")).count();
        let until = Instant::now() + Duration::from_secs(10);
        while begun() < 2 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let figures = vec![Reading::scalar("speed", 3.0)];
        Ok(WorkloadResult { seconds: stage.seconds, figures, command: "made-up".into(), ..WorkloadResult::default() })
    }
}

/// A port that nobody has.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// An actor whose server is a process of this machine.
fn served(house: &House, runner: &mut Runner<'_>, work: Served) -> PreparedActor {
    let mut prepared = house.prepared_of(runner, 0, work);
    prepared.stage.ends.get_mut("server").unwrap().node = Arc::new(Local::owned(house.journal.clone()));
    prepared
}

/// How many servers run.
fn running(house: &House) -> usize {
    machine::marked_processes(|cookie| cookie == house.journal.cookie()).len()
}

#[test]
fn the_servers_of_all_are_ready_before_the_first_begins() {
    let house = House::new();
    let mut runner = house.runner();
    let [first, last] = [free_port(), free_port()];
    let work = |name, port: u16, after_ms: u32, there: &[u16]| {
        let told = format!("listen {port} {after_ms} 30000");
        Served { name, log: house.log.clone(), port, told, there: there.to_vec() }
    };
    let actors = vec![
        served(&house, &mut runner, work("a", first, 0, &[first, last])),
        // The server of the first may have ended with its client.
        served(&house, &mut runner, work("b", last, 500, &[last])),
    ];
    let sample = run(&mut runner, actors, &[]).unwrap();
    assert_eq!(sample.results().map(|r| r.figure("speed")).collect::<Vec<_>>(), [Some(3.0); 2]);
    let mut told = house.told();
    told[2..].sort();
    assert_eq!(told, ["a is served", "b is served", "a begins with 2", "b begins with 1"]);
    assert_eq!(running(&house), 0, "they end with what they serve");
}

#[test]
fn a_server_that_fails_costs_the_cell_and_nobody_works() {
    for (failing, started) in [("a", &["a is served"][..]), ("b", &["a is served", "b is served"])] {
        let house = House::new();
        let mut runner = house.runner();
        let actors = ["a", "b"].map(|name| {
            let port = free_port();
            let told = if name == failing { "end 0 0 0".to_owned() } else { format!("listen {port} 0 30000") };
            served(&house, &mut runner, Served { name, log: house.log.clone(), port, told, there: Vec::new() })
        });
        let error = run(&mut runner, actors.into(), &[(house.set("a"), "good")]).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.starts_with(&format!("machine/native/{failing}: ")), "whose it was: {said}");
        assert!(said.contains("it ended before it was used: Exit(7)"), "{said}");
        let told = house.told();
        assert_eq!(told, [&["set a=good for a"], started, &["undo a=good for a"]].concat());
        assert_eq!(running(&house), 0, "the server of the other one is ended");
        assert_eq!(runner.must_stop(), None, "one cell failed, not the run");
        assert!(house.memory.0.lock().unwrap().is_empty());
    }
}
