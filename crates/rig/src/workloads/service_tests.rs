//! Servers of made-up workloads, as real processes of this machine: this very program, started again.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Journal, Local, Node, machine};
use vmio_testbed::poll_until;

use super::*;
use crate::workloads::{At, Role, Wants};

/// How the server is told what it is to do, and what it says first on which of its outputs.
const TOLD: &str = "VMIO_TEST_SERVER";
/// See [`TOLD`].
const SAYS: [&str; 2] = ["VMIO_TEST_SERVER_OUT", "VMIO_TEST_SERVER_ERR"];

/// The server. `listen 5201 300`: listens after so many milliseconds. Without being told it is no test.
#[test]
#[ignore = "started by the other tests"]
fn server() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let words: Vec<&str> = told.split(' ').collect();
    let number = |at: usize| words[at].parse::<u16>().unwrap();
    let wait = |ms: u16| thread::sleep(Duration::from_millis(ms.into()));
    let fail = |e: std::io::Error| -> ! {
        eprintln!("cannot bind: {e}");
        std::process::exit(3)
    };
    let [out, err] = SAYS.map(|name| std::env::var(name).unwrap_or_default());
    println!("{out}");
    eprint!("{err}");
    wait(number(2));
    // Its ports go with the process.
    let at = ("127.0.0.1", number(1));
    let _listens = (words[0] == "listen").then(|| TcpListener::bind(at).unwrap_or_else(|e| fail(e)));
    let _receives = (words[0] == "receive").then(|| UdpSocket::bind(at).unwrap_or_else(|e| fail(e)));
    wait(number(3));
    std::process::exit(7);
}

/// A client that connects to a server.
struct Pair {
    told: String,
    says: [String; 2],
    /// Before the command: `sh -c …`.
    wrapped: Vec<&'static str>,
    ready: Ready,
    /// What the client does; `None`: it fails.
    client: fn(u16) -> Option<f64>,
    gives: &'static str,
    seconds: f64,
    quotes: bool,
}

impl Pair {
    fn new(ready: Ready, told: String) -> Self {
        let (says, wrapped) = Default::default();
        Self { told, says, wrapped, ready, client: |_| Some(1.0), gives: "speed", seconds: 0.1, quotes: false }
    }
}

impl Workload for Pair {
    fn about(&self) -> &str {
        "a client and a server"
    }
    fn traits(&self) -> WorkloadTraits {
        let figures = vec![Figure::rate("speed", Unit::OperationsPerSecond)];
        WorkloadTraits { name: "pair".into(), figures, judged_by: "speed".into(), disk: None, group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        const fn role(name: &'static str) -> Role {
            Role { name, wants: Wants::Address, programs: &[], requirements: &[] }
        }
        const { &[role("server"), role("client")] }
    }
    fn serve(&self, role: &Role, stage: &Stage) -> Result<Option<Service>> {
        assert_eq!(role.name, "server", "the last role is measured");
        let program = std::env::current_exe().unwrap().display().to_string();
        let this = ["workloads::service::tests::server", "--exact", "--ignored", "--nocapture"].map(str::to_owned);
        let words: Vec<String> = self.wrapped.iter().map(|w| (*w).to_owned()).chain([program]).chain(this).collect();
        let mut exec =
            Exec { program: words[0].clone(), args: words[1..].to_vec(), ..stage.end("server")?.exec_base.clone() };
        exec.env.insert(TOLD.into(), self.told.clone());
        exec.env.extend(SAYS.map(str::to_owned).into_iter().zip(self.says.clone()));
        Ok(Some(Service { exec, ready: self.ready }))
    }
    fn quotes_servers(&self) -> bool {
        self.quotes
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (Ready::Listens(port) | Ready::Receives(port) | Ready::Both(port)) = self.ready;
        let node = stage.end("client")?.node.name().to_owned();
        let command = "client".to_owned();
        let failed = || Error::Failed { node, command: command.clone(), how: "no answer".into(), said: String::new() };
        let figures = vec![Reading::scalar(self.gives, (self.client)(port).ok_or_else(failed)?)];
        Ok(WorkloadResult { seconds: self.seconds, figures, raw: serde_json::Value::Null, command })
    }
}

/// A machine whose processes are known.
struct Bed {
    stage: Stage,
    journal: Arc<Journal>,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        let node: Arc<dyn Node> = Arc::new(Local::owned(journal.clone()));
        let end = End::here(node, At::Nothing);
        let stage =
            Stage { ends: [("server", end.clone()), ("client", end)].into(), seconds: 1.0, span: None, place: 0 };
        Self { stage, journal, _dir: dir }
    }

    fn running(&self) -> usize {
        machine::marked_processes(|cookie| cookie == self.journal.cookie()).len()
    }
}

fn perform(pair: &Pair, bed: &Bed) -> Result<WorkloadResult> {
    let pair: &dyn Workload = pair;
    let done = pair.perform(&bed.stage);
    assert_eq!(bed.running(), 0, "servers end with what they serve");
    done
}

/// A port that nobody has.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn a_server_that_listens_late_is_waited_for() {
    let port = free_port();
    let pair = Pair {
        // It is there at once, or it is not waited for.
        client: |port| TcpStream::connect(("127.0.0.1", port)).ok().map(|_| 2.0),
        ..Pair::new(Ready::Listens(port), format!("listen {port} 400 30000"))
    };
    assert_eq!(perform(&pair, &Bed::new()).unwrap().figure("speed"), Some(2.0));
}

#[test]
fn a_server_of_udp_is_ready_when_it_has_its_port() {
    let port = UdpSocket::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    // Its port is taken only as long as it runs.
    let client = |port| UdpSocket::bind(("127.0.0.1", port)).is_err().then_some(1.0);
    let pair = Pair { client, ..Pair::new(Ready::Receives(port), format!("receive {port} 100 30000")) };
    perform(&pair, &Bed::new()).unwrap();
    assert!(client(port).is_none());
}

#[test]
fn a_server_that_a_shell_started_is_as_good() {
    let port = free_port();
    // `true` behind it keeps the shell from giving its place to the server.
    let wrapped = vec!["sh", "-c", "\"$@\"; true", "sh"];
    let pair = Pair { wrapped, ..Pair::new(Ready::Listens(port), format!("listen {port} 0 30000")) };
    perform(&pair, &Bed::new()).unwrap();
}

#[test]
fn a_server_that_ends_at_once_is_told_with_what_it_said() {
    let ready = Ready::Listens(free_port());
    let said = perform(&Pair::new(ready, "end 0 0 0".into()), &Bed::new()).unwrap_err().to_string();
    assert!(said.contains("ended before it was used: Exit(7)") && said.contains("local"), "{said}");
}

#[test]
fn what_a_server_says_on_standard_output_counts_where_it_says_nothing_else() {
    let ended = |out: &str, err: &str| {
        let says = [out.to_owned(), err.to_owned()];
        let pair = Pair { says, ..Pair::new(Ready::Listens(free_port()), "end 0 0 0".into()) };
        perform(&pair, &Bed::new()).unwrap_err().to_string()
    };
    // As sockperf does it, colours and all.
    let complaint = "ERROR: can`t bind socket (errno=98 Address already in use)";
    let said = ended(&format!("\u{1b}[2;35m== version ==\u{1b}[0m\n{complaint}"), " \n");
    assert!(said.ends_with(&format!("== version ==\n{complaint}")) && !said.contains('\u{1b}'), "{said}");
    let said = ended(complaint, "no such option\n");
    assert!(said.ends_with(": no such option") && !said.contains("bind"), "{said}");
    // Of much the end.
    let said = ended(&format!("{}\n{complaint}", "…chatter ".repeat(1000)), "");
    assert!(said.ends_with(complaint), "{said}");
    let (_, quoted) = said.split_once("Exit(7)): ").unwrap();
    assert_eq!(quoted.chars().count(), 401, "{said}");
}

#[test]
fn the_port_of_another_program_is_not_taken_for_the_servers() {
    let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    // It finds out only after a while, in which the port has long been listened on.
    let pair = Pair::new(Ready::Listens(port), format!("listen {port} 500 30000"));
    let said = perform(&pair, &Bed::new()).unwrap_err().to_string();
    assert!(said.contains("ended before it was used: Exit(3)") && said.contains("cannot bind: "), "{said}");
    assert!(said.contains("in use"), "{said}");

    // One that never finds out.
    let bed = Bed::new();
    let pair = Pair::new(Ready::Listens(port), "wait 0 0 30000".into());
    let waited = start_within(&pair, &bed.stage, Duration::from_millis(300)).err().unwrap().to_string();
    assert!(waited.contains("was not ready after 0 s; another program has its port"), "{waited}");
    assert_eq!(bed.running(), 0);
    let says = [String::new(), "waiting for a name server".to_owned()];
    let slow = Pair { says, ..Pair::new(Ready::Listens(free_port()), "wait 0 0 30000".into()) };
    let waited = start_within(&slow, &bed.stage, Duration::from_secs(2)).err().unwrap().to_string();
    assert!(waited.contains("was not ready after 2 s") && waited.ends_with(": waiting for a name server"), "{waited}");
    drop(other);
    let waited = start_within(&pair, &bed.stage, Duration::from_millis(300)).err().unwrap().to_string();
    assert!(waited.contains("was not ready") && !waited.contains("another program"), "{waited}");
}

#[test]
fn a_server_that_does_not_want_to_end_is_ended() {
    let port = free_port();
    let wrapped = vec!["sh", "-c", "trap '' TERM HUP INT; exec \"$@\"", "sh"];
    let pair = Pair { wrapped, ..Pair::new(Ready::Listens(port), format!("listen {port} 0 30000")) };
    perform(&pair, &Bed::new()).unwrap();
}

#[test]
fn a_server_that_ends_meanwhile_is_the_cause() {
    let port = free_port();
    let client = |port| {
        poll_until("the server has ended", || TcpStream::connect(("127.0.0.1", port)).is_err());
        // Who waits for it is told a moment later.
        thread::sleep(Duration::from_secs(1));
        None
    };
    let says = [String::new(), "out of memory\n".to_owned()];
    let pair = Pair::new(Ready::Listens(port), format!("listen {port} 0 3000"));
    let said = perform(&Pair { client, says, quotes: true, ..pair }, &Bed::new()).unwrap_err().to_string();
    assert!(said.contains("ended while it was used: Exit(7)") && said.contains("no answer"), "{said}");
    assert_eq!(said.matches("out of memory").count(), 1, "{said}");
    // Where it is sound, the client is told alone.
    let port = free_port();
    let pair = Pair { client: |_| None, ..Pair::new(Ready::Listens(port), format!("listen {port} 0 30000")) };
    let said = perform(&pair, &Bed::new()).unwrap_err().to_string();
    assert!(said.contains("`client` failed (no answer)") && !said.contains("ended"), "{said}");
}

#[test]
fn what_a_sound_server_said_is_told_with_a_failure_where_the_workload_says_so() {
    let failed = |quotes: bool| {
        let port = free_port();
        let says = [String::new(), "no room for a block\n".to_owned()];
        let pair = Pair::new(Ready::Listens(port), format!("listen {port} 0 30000"));
        perform(&Pair { client: |_| None, says, quotes, ..pair }, &Bed::new()).unwrap_err().to_string()
    };
    let said = failed(true);
    assert!(said.contains("`client` failed (no answer)"), "{said}");
    assert!(said.ends_with("; server said: no room for a block"), "{said}");
    assert!(!failed(false).contains("no room"));
}

#[test]
fn a_result_with_other_figures_than_declared_fails() {
    let bed = Bed::new();
    let sound = || {
        let port = free_port();
        Pair::new(Ready::Listens(port), format!("listen {port} 0 30000"))
    };
    let pair = Pair { gives: "haste", ..sound() };
    let said = perform(&pair, &bed).unwrap_err().to_string();
    assert!(said.contains("`client`") && said.contains("it gave no speed"), "{said}");
    // What a guest's program says of its time is not believed in whatever it says.
    for seconds in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e9] {
        let pair = Pair { seconds, ..sound() };
        let said = perform(&pair, &bed).unwrap_err().to_string();
        assert!(said.contains(&format!("it says that it took {seconds} s")), "{said}");
    }
    // A panic of the client ends the server, too.
    let client = |_| -> Option<f64> { panic!("in the middle of it") };
    let pair = Pair { client, ..sound() };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| perform(&pair, &bed)));
    assert!(panicked.is_err() && bed.running() == 0);
}
