//! Limits on the kernel's own control groups, of whichever version this machine has the controllers in: a shell plays
//! the guest, in a group that the test makes and takes away.

#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use vmio_guard::groups::{Changes, Groups, GuestInfo, Here, State, WhyNot};
use vmio_guard::undo_log::UndoLog;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Links, Policy};
use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::mounts;
use vmio_node::{Local, Reader};
use vmio_testbed::{must_be_root, poll_until, skip};

const HEAD: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[[interface]]
match = { name = \"g*\" }
class = \"gold\"
[class.gold]
";
const GOLD: &str = "cpu_weight = 333\ncpu_max = \"12.5%\"\nmemory_max = \"300.123456MB\"\n";
const MIB: u64 = 1 << 20;

fn policy(gold: &str) -> Policy {
    Policy::read(&[("guard.toml", &format!("{HEAD}{gold}"))], &Links::default()).unwrap().policy
}

fn changes(set: usize, put_right: usize, put_back: usize) -> Changes {
    Changes { set, put_right, put_back, notes: Vec::new() }
}

/// A guest in a group of its own for each controller. Dropped, it ends and its groups are removed.
struct Guest {
    child: Child,
    dirs: BTreeMap<&'static str, PathBuf>,
    v2: bool,
}

impl Guest {
    /// Waits; told to [`Guest::work`], it touches 64 MiB and keeps them.
    fn start() -> Self {
        must_be_root();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let hierarchies = Hierarchies::of(&Local::new()).unwrap();
        let name = format!("vmio-groups-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (mut dirs, mut v2) = (BTreeMap::new(), false);
        for controller in ["cpu", "memory"] {
            let v1 = hierarchies.v1(controller);
            v2 |= v1.is_none();
            let mount = v1.or(hierarchies.v2()).expect("control groups are mounted");
            dirs.insert(controller, mount.point.join(&name));
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", "read x; exec dd if=/dev/zero bs=64M count=1"]);
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let guest = Self { child, dirs, v2 };
        for dir in guest.dirs.values() {
            // Of version 2 both are one.
            fs::create_dir_all(dir).unwrap();
            guest.join(dir, guest.child.id());
        }
        for file in guest.files() {
            assert!(
                file.exists(),
                "{}: the controllers cpu and memory are switched on below the first group",
                file.display()
            );
        }
        guest
    }

    fn join(&self, dir: &Path, pid: u32) {
        fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn work(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let file = self.dirs["memory"].join(if self.v2 { "memory.current" } else { "memory.usage_in_bytes" });
        poll_until("64 MiB in use", || fs::read_to_string(&file).unwrap().trim().parse::<u64>().unwrap() >= 64 * MIB);
    }

    fn files(&self) -> Vec<PathBuf> {
        let names: &[(&str, &str)] = if self.v2 {
            &[("cpu", "cpu.weight"), ("cpu", "cpu.max"), ("memory", "memory.max")]
        } else {
            &[
                ("cpu", "cpu.shares"),
                ("cpu", "cpu.cfs_quota_us"),
                ("memory", "memory.limit_in_bytes"),
                ("cpu", "cpu.cfs_period_us"),
            ]
        };
        names.iter().map(|(controller, file)| self.dirs[controller].join(file)).collect()
    }

    fn texts(&self) -> Vec<String> {
        self.files().iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    fn info(&self) -> GuestInfo {
        let interface = Interface { index: 7, name: "g0".into(), ..Interface::default() };
        GuestInfo { name: "guest".into(), interfaces: vec![interface], pids: vec![self.child.id()], memory_bytes: None }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for dir in self.dirs.values().filter(|dir| dir.exists()) {
            poll_until("its group is empty", || fs::remove_dir(dir).is_ok());
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
#[ignore = "root"]
fn limits_are_set_and_restored_exactly() {
    let guest = Guest::start();
    let (before, log) = (guest.texts(), UndoLog::memory());
    let (gold, info) = (policy(GOLD), [guest.info()]);
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.reconcile(&gold, &info), changes(3, 0, 0), "{:?}", groups.status());
    let in_force = guest.texts();
    let memory = format!("{}\n", 300_123_456u64 / 4096 * 4096);
    let wanted = if guest.v2 {
        vec!["333\n".to_owned(), "12500 100000\n".into(), memory]
    } else {
        vec!["3410\n".to_owned(), "12500\n".into(), memory, "100000\n".into()]
    };
    assert_eq!(in_force, wanted);
    for limit in &groups.status()[0].limits {
        assert!(matches!(&limit.state, State::InForce { value, before, .. } if value != before), "{limit:?}");
    }
    assert_eq!(groups.reconcile(&gold, &info), changes(0, 0, 0));
    // By another's hand.
    fs::write(&guest.files()[0], "77").unwrap();
    assert_eq!(groups.reconcile(&gold, &info), changes(0, 1, 0));
    assert_eq!(guest.texts(), in_force);
    assert_eq!(groups.reconcile(&policy("cpu_max = \"250%\"\n"), &info), changes(1, 0, 2));
    assert!(guest.texts()[1].starts_with("250000"));
    assert_eq!(groups.undo(), changes(0, 0, 1));
    assert_eq!(guest.texts(), before);
}

#[test]
#[ignore = "root"]
fn another_process_undoes_after_a_crash() {
    let guest = Guest::start();
    // What was there before need not be what the kernel begins with.
    fs::write(&guest.files()[0], "777").unwrap();
    let (before, dir) = (guest.texts(), tempfile::tempdir().unwrap());
    let log = UndoLog::open(dir.path()).unwrap();
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.reconcile(&policy(GOLD), &[guest.info()]).set, 3);
    drop((groups, log));
    assert_ne!(guest.texts(), before);
    let log = UndoLog::open(dir.path()).unwrap();
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.held(), 3);
    assert_eq!(groups.undo(), changes(0, 0, 3));
    assert_eq!(guest.texts(), before);
    drop((groups, log));
    assert_eq!(Groups::open(&UndoLog::open(dir.path()).unwrap()).unwrap().held(), 0);
}

/// Only version 1 can rename a group.
#[test]
#[ignore = "root"]
fn renamed_group_is_found() {
    let mut guest = Guest::start();
    if guest.v2 {
        return skip("control groups of version 2 cannot be renamed");
    }
    let (before, log) = (guest.texts(), UndoLog::memory());
    let gold = policy(GOLD);
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.reconcile(&gold, &[guest.info()]).set, 3);
    let rename = |guest: &mut Guest, from: &str, to: &str| {
        for dir in guest.dirs.values_mut() {
            let new = PathBuf::from(dir.to_string_lossy().replace(from, to));
            fs::rename(&*dir, &new).unwrap();
            *dir = new;
        }
    };
    // While the guard looks, it follows the guest; without it, the undo finds the very group.
    rename(&mut guest, "vmio-groups-", "vmio-others-");
    assert_eq!(groups.reconcile(&gold, &[guest.info()]), changes(0, 0, 0));
    drop(groups);
    rename(&mut guest, "vmio-others-", "vmio-thirds-");
    assert_eq!(Groups::open(&log).unwrap().undo(), changes(0, 0, 3));
    assert_eq!(guest.texts(), before);
}

#[test]
#[ignore = "root"]
fn vanished_group_leaves_no_entry() {
    let mut guest = Guest::start();
    let log = UndoLog::memory();
    let (gold, info) = (policy(GOLD), guest.info());
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.reconcile(&gold, std::slice::from_ref(&info)).set, 3);
    guest.end();
    assert_eq!(groups.reconcile(&gold, std::slice::from_ref(&info)), changes(0, 0, 0));
    assert_eq!(groups.held(), 0);
    let limits = &groups.status()[0].limits;
    assert!(limits.iter().all(|l| matches!(&l.state, State::Not(why) if matches!(**why, WhyNot::Ended))), "{limits:?}");
    // Gone without a look in between.
    let mut guest = Guest::start();
    assert_eq!(groups.reconcile(&gold, &[guest.info()]).set, 3);
    guest.end();
    assert_eq!((groups.undo(), groups.held()), (changes(0, 0, 0), 0));
}

#[test]
#[ignore = "root"]
fn foreign_process_prevents_limits() {
    let guest = Guest::start();
    let (before, log) = (guest.texts(), UndoLog::memory());
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let inner = guest.dirs["cpu"].join("inner");
    fs::create_dir(&inner).unwrap();
    guest.join(&inner, stranger.id());
    let mut groups = Groups::open(&log).unwrap();
    let done = groups.reconcile(&policy("cpu_weight = 7\n"), &[guest.info()]);
    let status = groups.status().to_vec();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    poll_until("the inner group is empty", || fs::remove_dir(&inner).is_ok());
    assert_eq!((done, guest.texts()), (changes(0, 0, 0), before));
    let why = format!("process {} (sleep) is in ", stranger.id());
    assert!(matches!(&status[0].limits[0].state, State::Not(said) if said.to_string().starts_with(&why)), "{status:?}");
    assert_eq!(groups.reconcile(&policy("cpu_weight = 7\n"), &[guest.info()]), changes(1, 0, 0));
    assert_eq!(groups.undo(), changes(0, 0, 1));
}

#[test]
#[ignore = "root"]
fn no_memory_limit_kills_the_guest() {
    let mut guest = Guest::start();
    let (before, log) = (guest.texts(), UndoLog::memory());
    guest.work();
    let mut groups = Groups::open(&log).unwrap();
    assert_eq!(groups.reconcile(&policy("memory_max = \"32MiB\"\n"), &[guest.info()]), changes(0, 0, 0));
    let status = &groups.status()[0].limits[0].state;
    assert!(matches!(status, State::Not(why) if matches!(**why, WhyNot::InUse(_))), "{status:?}");
    // What was there before may be too little by now, too.
    fs::write(&guest.files()[2], (80 * MIB).to_string()).unwrap();
    assert_eq!(groups.reconcile(&policy("memory_max = \"1GiB\"\n"), &[guest.info()]), changes(1, 0, 0));
    assert_eq!(guest.child.try_wait().unwrap(), None);
    assert_eq!(groups.undo(), changes(0, 0, 1));
    fs::write(&guest.files()[2], before[2].trim()).unwrap();
    assert_eq!((guest.texts(), guest.child.try_wait().unwrap()), (before, None));
}

/// A hierarchy of version 2 without the controllers, as beside those of version 1.
#[test]
#[ignore = "root"]
fn controller_of_the_other_version_is_named() {
    let guest = Guest::start();
    let local = Local::new();
    let mut found = mounts::parse(&local.read(Path::new("/proc/self/mountinfo")).unwrap());
    found.retain(|mount| mount.filesystem == "cgroup2");
    let Some(mount) = found.first().filter(|_| !guest.v2) else {
        return skip("no hierarchy of version 2 without controllers here");
    };
    let dir = mount.point.join(format!("vmio-groups-{}-v2", std::process::id()));
    fs::create_dir(&dir).unwrap();
    guest.join(&dir, guest.child.id());
    let mut groups = Groups::over(Here::new(), Hierarchies::among(found), &UndoLog::memory()).unwrap();
    groups.reconcile(&policy(GOLD), &[guest.info()]);
    let status = groups.status().to_vec();
    drop(guest);
    poll_until("its group is empty", || fs::remove_dir(&dir).is_ok());
    let not = |state: &State| matches!(state, State::Not(why) if matches!(**why, WhyNot::SwitchedOff { .. }));
    assert!(status[0].limits.len() == 3 && status[0].limits.iter().all(|l| not(&l.state)), "{status:?}");
}

/// A process with two threads that waits until its standard input ends, as a hypervisor of one vCPU.
#[test]
#[ignore = "root"]
fn helper_two_threads() {
    if std::env::var_os("VMIO_TWO_THREADS").is_none() {
        return;
    }
    std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(60)));
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// As libvirt has them: a scope, in it a group of the guest's, in it one for each kind of thread.
#[test]
#[ignore = "root"]
fn threads_in_several_groups() {
    let mut guest = Guest::start();
    let mut two = Command::new(std::env::current_exe().unwrap());
    two.args(["--ignored", "--exact", "root_groups::helper_two_threads"]).env("VMIO_TWO_THREADS", "1");
    let mut two = two.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let task = format!("/proc/{}/task", two.id());
    // Its main thread, that of the test, and the vCPU's.
    let threads = || -> Vec<String> {
        fs::read_dir(&task).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    poll_until("three threads", || threads().len() == 3);
    // The scope is the guest's alone once the shell has left it.
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    let scope = guest.dirs["cpu"].clone();
    let (nested, emulator, vcpu) = (scope.join("libvirt"), scope.join("libvirt/emulator"), scope.join("libvirt/vcpu0"));
    for dir in [&nested, &emulator, &vcpu] {
        fs::create_dir(dir).unwrap();
    }
    if guest.v2 {
        fs::write(emulator.join("cgroup.type"), "threaded").unwrap();
        fs::write(vcpu.join("cgroup.type"), "threaded").unwrap();
        guest.join(&nested, two.id());
    }
    let file = if guest.v2 { "cgroup.threads" } else { "tasks" };
    for (number, tid) in threads().iter().enumerate() {
        fs::write(if number == 2 { &vcpu } else { &emulator }.join(file), tid).unwrap();
    }
    let info = GuestInfo { pids: vec![two.id()], ..guest.info() };
    let mut groups = Groups::open(&UndoLog::memory()).unwrap();
    let set = groups.reconcile(&policy("cpu_weight = 333\n"), &[info]);
    let status = groups.status().to_vec();
    let undone = groups.undo();
    two.kill().unwrap();
    two.wait().unwrap();
    for dir in [&vcpu, &emulator, &nested] {
        poll_until("its group is empty", || fs::remove_dir(dir).is_ok());
    }
    assert_eq!((set, undone), (changes(1, 0, 0), changes(0, 0, 1)), "{status:?}");
    let State::InForce { file, .. } = &status[0].limits[0].state else { panic!("{status:?}") };
    assert_eq!(file.parent(), Some(scope.as_path()));
}

/// What an engine starts in a container later is no child of the container's first process, but in its PID namespace.
#[test]
#[ignore = "root"]
fn processes_of_a_containers_pid_namespace() {
    let mut guest = Guest::start();
    let children = |pid: u32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let child_of = |pid: u32| {
        poll_until("a child", || !children(pid).is_empty());
        children(pid).trim().parse::<u32>().unwrap()
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "sleep", "60"]).stderr(Stdio::null());
    let mut unshare = unshare.spawn().unwrap();
    let first = child_of(unshare.id());
    let mut enter = Command::new("nsenter").args(["-t", &first.to_string(), "-p", "sleep", "60"]).spawn().unwrap();
    let later = child_of(enter.id());
    let (dir, other) = (guest.dirs["cpu"].join("container"), guest.dirs["cpu"].join("other"));
    for dir in [&dir, &other] {
        fs::create_dir(dir).unwrap();
    }
    guest.join(&other, guest.child.id());
    if guest.v2 {
        fs::write(guest.dirs["cpu"].join("cgroup.subtree_control"), "+cpu").unwrap();
    }
    guest.join(&dir, first);
    guest.join(&dir, later);
    let info = GuestInfo { pids: vec![first], ..guest.info() };
    let weight = policy("cpu_weight = 333\n");
    let mut groups = Groups::open(&UndoLog::memory()).unwrap();
    // The shell beside it is not the container's, so the group above, which a name like this often has, is not taken.
    let set = groups.reconcile(&weight, std::slice::from_ref(&info));
    let status = groups.status().to_vec();
    guest.join(&dir, guest.child.id());
    let strange = Groups::open(&UndoLog::memory()).unwrap().reconcile(&weight, &[info]);
    let undone = groups.undo();
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(first as i32).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    unshare.wait().unwrap();
    enter.wait().unwrap();
    for dir in [&dir, &other] {
        poll_until("its group is empty", || fs::remove_dir(dir).is_ok());
    }
    assert_eq!([set, strange, undone], [changes(1, 0, 0), changes(0, 0, 0), changes(0, 0, 1)], "{status:?}");
    let State::InForce { file, .. } = &status[0].limits[0].state else { panic!("{status:?}") };
    assert_eq!(file.parent(), Some(dir.as_path()));
}
