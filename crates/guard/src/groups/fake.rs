//! Control groups in memory, which round, refuse and kill as the kernel does.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmio_node::held::Identity;
use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::mounts;
use vmio_node::{Fake, Reader};

use super::host::{Group, Host};

const TABLE_2: &str = "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
const TABLE_1: &str =
    "30 1 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu\n31 1 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n";

#[derive(Debug, Default)]
struct World {
    /// By number.
    groups: BTreeMap<u64, (PathBuf, BTreeMap<String, String>)>,
    next: u64,
    writes: usize,
    /// Groups in which the kernel would have killed a process.
    killed: Vec<PathBuf>,
    /// All writes fail.
    read_only: bool,
}

/// A machine with groups of one version, below `/cg`.
#[derive(Clone)]
pub struct Machine {
    world: Arc<Mutex<World>>,
    pub proc: Arc<Fake>,
    v2: bool,
}

impl Machine {
    pub fn new(v2: bool) -> Self {
        let machine = Self { world: Arc::default(), proc: Arc::new(Fake::new("fake")), v2 };
        for dir in machine.roots() {
            machine.add(&dir, &[]);
        }
        machine
    }

    pub fn hierarchies(&self) -> Hierarchies {
        Hierarchies::among(mounts::parse(if self.v2 { TABLE_2 } else { TABLE_1 }.as_bytes()))
    }

    fn roots(&self) -> Vec<PathBuf> {
        if self.v2 { vec!["/cg".into()] } else { vec!["/cg/cpu".into(), "/cg/memory".into()] }
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, dir: &Path, pids: &[u32]) {
        let procs: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        let mut files = vec![("cgroup.procs", procs.as_str())];
        let root = self.roots().iter().any(|root| root == dir);
        match (root, self.v2) {
            (true, _) => {}
            (_, true) => files.extend([
                ("cpu.weight", "100\n"),
                ("cpu.max", "max 100000\n"),
                ("memory.max", "max\n"),
                ("memory.current", "1048576\n"),
            ]),
            (_, false) if dir.starts_with("/cg/cpu") => files.extend([
                ("cpu.shares", "1024\n"),
                ("cpu.cfs_quota_us", "-1\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ]),
            (_, false) => files
                .extend([("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "1048576\n")]),
        }
        let mut world = self.lock();
        world.next += 1;
        let number = world.next;
        let files = files.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        world.groups.insert(number, (dir.to_owned(), files));
    }

    /// Makes a group in each hierarchy, with these processes in it.
    pub fn group(&self, name: &str, pids: &[u32]) {
        for root in self.roots() {
            self.add(&root.join(name), pids);
        }
    }

    /// Removes a group.
    pub fn remove(&self, name: &str) {
        let roots = self.roots();
        self.lock().groups.retain(|_, (dir, _)| !roots.iter().any(|root| *dir == root.join(name)));
    }

    /// Renames a group.
    pub fn rename(&self, from: &str, to: &str) {
        for root in self.roots() {
            for (dir, _) in self.lock().groups.values_mut().filter(|(dir, _)| *dir == root.join(from)) {
                *dir = root.join(to);
            }
        }
    }

    /// A process with one thread, in this group.
    pub fn process(&self, pid: u32, parent: u32, group: &str) {
        let text =
            if self.v2 { format!("0::/{group}\n") } else { format!("2:memory:/{group}\n1:cpu:/{group}\n0::/\n") };
        self.proc.set(format!("/proc/{pid}/comm"), "qemu\n");
        self.proc.set(format!("/proc/{pid}/stat"), format!("{pid} (qemu) S {parent} 1 1 0 -1 4194560 0 0\n"));
        self.proc.set(format!("/proc/{pid}/cgroup"), text.clone());
        self.proc.set(format!("/proc/{pid}/task/{pid}/cgroup"), text);
    }

    /// One more thread of a process, in this group.
    pub fn thread(&self, pid: u32, tid: u32, group: &str) {
        self.process(tid, 1, group);
        let text = self.proc.read_text(Path::new(&format!("/proc/{tid}/cgroup"))).unwrap_or_default();
        self.proc.remove(format!("/proc/{tid}"));
        self.proc.set(format!("/proc/{pid}/task/{tid}/cgroup"), text);
    }

    /// Writes a file of a group in each hierarchy that has it, as another program would.
    pub fn put(&self, group: &str, file: &str, text: &str) {
        for root in self.roots() {
            let mut world = self.lock();
            let found = world.groups.values_mut().find(|(dir, _)| *dir == root.join(group));
            if let Some(slot) = found.and_then(|(_, files)| files.get_mut(file)) {
                *slot = format!("{text}\n");
            }
        }
    }

    pub fn take(&self, group: &str, file: &str) {
        for root in self.roots() {
            for (_, files) in self.lock().groups.values_mut().filter(|(dir, _)| *dir == root.join(group)) {
                files.remove(file);
            }
        }
    }

    pub fn used(&self, group: &str, bytes: u64) {
        let file = if self.v2 { "memory.current" } else { "memory.usage_in_bytes" };
        self.put(group, file, &bytes.to_string());
    }

    /// Every writable file of every group.
    pub fn all(&self) -> BTreeMap<PathBuf, String> {
        let world = self.lock();
        let files = world
            .groups
            .values()
            .flat_map(|(dir, files)| files.iter().map(|(file, text)| (dir.join(file), text.clone())));
        files
            .filter(|(file, _)| !file.ends_with("memory.current") && !file.ends_with("memory.usage_in_bytes"))
            .collect()
    }

    pub fn file(&self, path: &str) -> String {
        self.all().get(Path::new(path)).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    pub fn killed(&self) -> Vec<PathBuf> {
        self.lock().killed.clone()
    }

    pub fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }
}

impl Host for Machine {
    type Group = Made;

    fn reader(&self) -> &dyn Reader {
        &*self.proc
    }

    fn open(&self, dir: &Path) -> io::Result<Made> {
        let number = self.lock().groups.iter().find(|(_, (d, _))| d == dir).map(|(number, _)| *number);
        Ok(Made { machine: self.clone(), number: number.ok_or(ErrorKind::NotFound)? })
    }

    fn page_bytes(&self) -> u64 {
        4096
    }
}

/// A group of it.
pub struct Made {
    machine: Machine,
    number: u64,
}

impl Group for Made {
    fn identity(&self) -> Identity {
        Identity { dev: 26, ino: self.number }
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let world = self.machine.lock();
        let files = world.groups.get(&self.number).map(|(_, files)| files);
        files.and_then(|files| files.get(file)).cloned().ok_or(ErrorKind::NotFound.into())
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let number = |text: &str| text.parse::<u64>().map_err(|_| invalid());
        let mut world = self.machine.lock();
        if world.read_only {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        world.writes += 1;
        let (dir, files) = world.groups.get_mut(&self.number).ok_or(ErrorKind::NotFound)?;
        let (dir, used) = (dir.clone(), ["memory.current", "memory.usage_in_bytes"].iter().find_map(|f| files.get(*f)));
        let used: u64 = used.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        let slot = files.get_mut(file).ok_or(ErrorKind::NotFound)?;
        let mut kills = false;
        *slot = match file {
            "cpu.weight" => match number(value)? {
                weight @ 1..=10_000 => format!("{weight}\n"),
                _ => return Err(io::Error::from_raw_os_error(libc::ERANGE)),
            },
            "cpu.shares" => format!("{}\n", number(value)?.clamp(2, 262_144)),
            "cpu.max" => {
                let (quota, period) = value.split_once(' ').ok_or_else(invalid)?;
                if quota != "max" && number(quota)? < 1000 || !(1000..=1_000_000).contains(&number(period)?) {
                    return Err(invalid());
                }
                format!("{value}\n")
            }
            "cpu.cfs_quota_us" if value == "-1" => "-1\n".to_owned(),
            "cpu.cfs_quota_us" => match number(value)? {
                ..1000 => return Err(invalid()),
                quota => format!("{quota}\n"),
            },
            "memory.max" if value == "max" => "max\n".to_owned(),
            "memory.max" => {
                kills = number(value)? < used;
                format!("{}\n", number(value)? / 4096 * 4096)
            }
            "memory.limit_in_bytes" if number(value)? < used => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            "memory.limit_in_bytes" => format!("{}\n", number(value)? / 4096 * 4096),
            _ => return Err(invalid()),
        };
        if kills {
            world.killed.push(dir);
        }
        Ok(())
    }

    fn children(&self) -> io::Result<Vec<String>> {
        let world = self.machine.lock();
        let (own, _) = world.groups.get(&self.number).ok_or(ErrorKind::NotFound)?;
        let name = |dir: &PathBuf| Some(dir.file_name()?.to_string_lossy().into_owned());
        Ok(world.groups.values().filter(|(d, _)| d.parent() == Some(own)).filter_map(|(d, _)| name(d)).collect())
    }

    fn child(&self, name: &str) -> io::Result<Self> {
        let own = self.machine.lock().groups.get(&self.number).map(|(dir, _)| dir.clone());
        self.machine.open(&own.ok_or(ErrorKind::NotFound)?.join(name))
    }
}
