//! A machine made up for tests: files from a map, commands answered by functions, samples from a
//! script. It touches nothing of the real machine; only [`Node::put`] reads the local file that
//! it is given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::linux::kind;
use crate::machine::lock;
use crate::{
    End, Error, Exec, FileIdentity, FileSample, FileStat, NetworkAnswer, NetworkQuestion, Node, Output, Process,
    Reader, Result, SamplePlan, Sampling, Unanswered, made_up_others,
};

mod made_up;
mod tree;

pub use made_up::made_identity;
pub use tree::{Tree, host};

/// Answers a command; `None` leaves it to the next answer.
type Answer = Box<dyn Fn(&Exec) -> Option<Output> + Send + Sync>;

/// Plays the other side of a connection to a socket.
type Listener = Arc<dyn Fn(UnixStream) + Send + Sync>;

/// A made-up machine. Its clock stands still until [`Fake::pass`].
pub struct Fake {
    name: String,
    state: Arc<Mutex<State>>,
    answers: Vec<Answer>,
    kernel: Vec<(NetworkQuestion, NetworkAnswer)>,
    sockets: BTreeMap<PathBuf, Listener>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, (Vec<u8>, u32)>,
    links: BTreeMap<PathBuf, PathBuf>,
    refused: BTreeSet<PathBuf>,
    stats: BTreeMap<PathBuf, FileStat>,
    ran: Vec<Exec>,
    scripts: VecDeque<Vec<FileSample>>,
    seconds: f64,
}

/// Output of a command that succeeds and says this.
pub fn says(stdout: impl Into<Vec<u8>>) -> Output {
    Output { end: End::Exit(0), stdout: stdout.into(), stderr: Vec::new(), truncated: false }
}

/// Output of a command that ends with this exit code and complaint.
pub fn fails(code: i32, stderr: impl Into<Vec<u8>>) -> Output {
    Output { end: End::Exit(code), stdout: Vec::new(), stderr: stderr.into(), truncated: false }
}

impl Fake {
    /// A machine without files and commands, whose clock shows 1000 s.
    pub fn new(name: impl Into<String>) -> Self {
        let state = State { seconds: 1000.0, ..State::default() };
        Self {
            name: name.into(),
            state: Arc::new(Mutex::new(state)),
            answers: Vec::new(),
            kernel: Vec::new(),
            sockets: BTreeMap::new(),
        }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        lock(&self.state).files.insert(path.into(), (content.into(), 0o644));
        self
    }

    /// Adds a process: `args` is its command line, `environ` pairs of `NAME=value`, which may not be
    /// read where there is none.
    #[must_use]
    pub fn process(self, pid: u32, comm: &str, args: &[&str], environ: Option<&[&str]>, tids: &[u32]) -> Self {
        let zero = |parts: &[&str]| parts.iter().flat_map(|p| p.bytes().chain([0])).collect::<Vec<u8>>();
        let mut fake = self
            .file(format!("/proc/{pid}/comm"), format!("{comm}\n"))
            .file(format!("/proc/{pid}/cmdline"), zero(args));
        if let Some(environ) = environ {
            fake = fake.file(format!("/proc/{pid}/environ"), zero(environ));
        }
        tids.iter().fold(fake, |fake, tid| fake.file(format!("/proc/{pid}/task/{tid}/comm"), "x\n"))
    }

    /// Adds a symbolic link. Reading and looking do not follow it.
    #[must_use]
    pub fn symlink(self, path: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Self {
        lock(&self.state).links.insert(path.into(), to.into());
        self
    }

    /// Lets nobody read the file or the symbolic link there, as with those of a guarded process.
    #[must_use]
    pub fn refused(self, path: impl Into<PathBuf>) -> Self {
        lock(&self.state).refused.insert(path.into());
        self
    }

    /// Adds all files below `root` of the real machine as if `root` were `/`: a recorded machine.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn tree(self, root: &Path) -> io::Result<Self> {
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if let Ok(inner) = path.strip_prefix(root) {
                    let content = std::fs::read(&path)?;
                    lock(&self.state).files.insert(Path::new("/").join(inner), (content, 0o644));
                }
            }
        }
        Ok(self)
    }

    /// Answers commands; the first answer that is not `None` counts. A command that nothing
    /// answers is not installed.
    #[must_use]
    pub fn command(mut self, answer: impl Fn(&Exec) -> Option<Output> + Send + Sync + 'static) -> Self {
        self.answers.push(Box::new(answer));
        self
    }

    /// Puts a program in its place, so that it is found in `PATH`; what it answers is said apart.
    #[must_use]
    pub fn installed(self, program: &str) -> Self {
        lock(&self.state).files.insert(Path::new("/usr/bin").join(program), (Vec::new(), 0o755));
        self
    }

    /// Answers every call of `program`.
    #[must_use]
    pub fn program(self, program: impl Into<String>, output: Output) -> Self {
        let program = program.into();
        self.command(move |cmd| (cmd.program == program).then(|| output.clone()))
    }

    /// Answers a question about the network. Without an answer there are no qdiscs, classes and filters, and nothing is
    /// told of an interface.
    #[must_use]
    pub fn kernel(mut self, question: NetworkQuestion, answer: NetworkAnswer) -> Self {
        self.kernel.push((question, answer));
        self
    }

    /// A socket on which somebody listens; `play` is the other side of each connection, on a thread
    /// of its own.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>, play: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        self.sockets.insert(path.into(), Arc::new(play));
        self
    }

    /// A block device's node or a file with holes: a path whose `stat` is this.
    #[must_use]
    pub fn node(self, path: impl Into<PathBuf>, stat: FileStat) -> Self {
        lock(&self.state).stats.insert(path.into(), stat);
        self
    }

    /// The result of the next sampling that has none yet. Without a script a sampling gives the
    /// files as they are at its start and at its stop.
    #[must_use]
    pub fn samples(self, samples: Vec<FileSample>) -> Self {
        lock(&self.state).scripts.push_back(samples);
        self
    }

    /// Lets time pass on the machine's clock.
    pub fn pass(&self, time: Duration) {
        lock(&self.state).seconds += time.as_secs_f64();
    }

    /// The commands so far.
    pub fn ran(&self) -> Vec<Exec> {
        lock(&self.state).ran.clone()
    }

    /// Writes a file as the machine itself would, while a sampling runs.
    pub fn set(&self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        lock(&self.state).files.insert(path.into(), (content.into(), 0o644));
    }

    /// Takes away a file, or a directory with all that is in it: a process that ended.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let mut state = lock(&self.state);
        state.files.retain(|file, _| !file.starts_with(path.as_ref()));
        state.links.retain(|link, _| !link.starts_with(path.as_ref()));
    }

    fn error(&self, what: &'static str, path: &Path, kind: io::ErrorKind) -> Error {
        Error::File { node: self.name.clone(), what, path: path.into(), source: kind.into() }
    }
}

impl State {
    fn is_dir(&self, path: &Path) -> bool {
        path == Path::new("/") || self.names().any(|f| f != path && f.starts_with(path))
    }

    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys().chain(self.links.keys()).chain(self.stats.keys())
    }

    fn snapshot(&self, paths: &[PathBuf]) -> FileSample {
        let readable = |p: &PathBuf| self.files.get(p).filter(|_| !self.refused.contains(p));
        let content = |p: &PathBuf| readable(p).map(|(c, _)| c.clone()).unwrap_or_default();
        FileSample { seconds: self.seconds, contents: paths.iter().map(content).collect() }
    }
}

impl Reader for Fake {
    made_up_others!();

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Ok(self.stat(path)?.map(|stat| made_identity(path, stat)))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let state = lock(&self.state);
        if state.refused.contains(path) {
            return Err(self.error("read", path, io::ErrorKind::PermissionDenied));
        }
        let found = state.files.get(path).map(|(content, _)| content.clone());
        found.ok_or_else(|| self.error("read", path, io::ErrorKind::NotFound))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = lock(&self.state);
        if !state.is_dir(dir) {
            return Err(self.error("list", dir, io::ErrorKind::NotFound));
        }
        let inner = state.names().filter_map(|f| f.strip_prefix(dir).ok()?.components().next());
        let names: BTreeSet<_> = inner.map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
        Ok(names.into_iter().collect())
    }

    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        let state = lock(&self.state);
        if let Some(stat) = state.stats.get(path) {
            return Ok(Some(*stat));
        }
        let stat =
            |mode, size: usize| FileStat { mode, size: size as u64, allocated: size as u64, dev: (0, 1), rdev: (0, 0) };
        Ok(match state.files.get(path) {
            Some((content, mode)) => Some(stat(kind::FILE | mode, content.len())),
            None => state.is_dir(path).then(|| stat(kind::DIRECTORY | 0o755, 0)),
        })
    }

    fn link(&self, path: &Path) -> Result<Option<PathBuf>> {
        if lock(&self.state).refused.contains(path) {
            return Err(self.error("read the link", path, io::ErrorKind::PermissionDenied));
        }
        Ok(lock(&self.state).links.get(path).cloned())
    }

    fn clock_seconds(&self) -> Result<f64> {
        Ok(lock(&self.state).seconds)
    }

    fn sample(&self, plan: &SamplePlan) -> Result<Box<dyn Sampling>> {
        let mut state = lock(&self.state);
        let script = state.scripts.pop_front();
        let first = state.snapshot(&plan.paths);
        Ok(Box::new(FakeSampling { state: Arc::clone(&self.state), script, first, paths: plan.paths.clone() }))
    }
}

struct FakeSampling {
    state: Arc<Mutex<State>>,
    script: Option<Vec<FileSample>>,
    first: FileSample,
    paths: Vec<PathBuf>,
}

impl Sampling for FakeSampling {
    fn stop(self: Box<Self>) -> Result<Vec<FileSample>> {
        let Self { state, script, first, paths } = *self;
        Ok(script.unwrap_or_else(|| vec![first, lock(&state).snapshot(&paths)]))
    }
}

crate::node::question::questions!(Fake);

impl Node for Fake {
    fn spawn(&self, cmd: &Exec) -> Result<Box<dyn Process>> {
        let pid = {
            let mut state = lock(&self.state);
            state.ran.push(cmd.clone());
            1000 + u32::try_from(state.ran.len()).unwrap_or(0)
        };
        let output = self.answers.iter().find_map(|answer| answer(cmd));
        match output {
            Some(output) => Ok(Box::new(FakeProcess { pid, output })),
            None => Err(Error::Spawn {
                node: self.name.clone(),
                program: cmd.program.clone(),
                source: io::ErrorKind::NotFound.into(),
            }),
        }
    }

    fn write(&self, path: &Path, data: &[u8], mode: Option<u32>) -> Result<()> {
        let mut state = lock(&self.state);
        if state.is_dir(path) {
            return Err(self.error("write", path, io::ErrorKind::IsADirectory));
        }
        let old = state.files.get(path).map(|(_, mode)| *mode);
        state.files.insert(path.into(), (data.to_vec(), mode.or(old).unwrap_or(0o644)));
        Ok(())
    }

    fn put(&self, local: &Path, path: &Path, mode: Option<u32>) -> Result<()> {
        let data = std::fs::read(local).map_err(|e| self.error("read", local, e.kind()))?;
        self.write(path, &data, mode)
    }

    fn connect(&self, socket: &Path) -> Result<UnixStream> {
        let missing = || self.error("connect to", socket, io::ErrorKind::NotFound);
        let play = Arc::clone(self.sockets.get(socket).ok_or_else(missing)?);
        let (ours, theirs) = UnixStream::pair().map_err(|e| self.error("connect to", socket, e.kind()))?;
        std::thread::spawn(move || play(theirs));
        Ok(ours)
    }

    fn ask_kernel(&self, question: &NetworkQuestion) -> std::result::Result<NetworkAnswer, Unanswered> {
        if let Some((_, answer)) = self.kernel.iter().find(|(asked, _)| asked == question) {
            return Ok(answer.clone());
        }
        match question {
            NetworkQuestion::Qdiscs => Ok(NetworkAnswer::Qdiscs(Vec::new())),
            NetworkQuestion::Classes { .. } => Ok(NetworkAnswer::Classes(Vec::new())),
            NetworkQuestion::Filters { .. } => Ok(NetworkAnswer::Filters(Vec::new())),
            NetworkQuestion::Offloads { .. } | NetworkQuestion::Rings { .. } => Err(Unanswered::NotHere),
        }
    }

    fn reader(&self) -> &dyn Reader {
        self
    }
}

/// A command that has ended the moment it was started.
struct FakeProcess {
    pid: u32,
    output: Output,
}

impl Process for FakeProcess {
    fn pid(&self) -> u32 {
        self.pid
    }
    fn wait(&mut self, _: Option<Duration>) -> Result<Output> {
        Ok(self.output.clone())
    }
    fn try_wait(&mut self) -> Result<Option<Output>> {
        Ok(Some(self.output.clone()))
    }
    fn take_said(&mut self) -> Result<[Vec<u8>; 2]> {
        Ok([std::mem::take(&mut self.output.stdout), std::mem::take(&mut self.output.stderr)])
    }
    fn kill(&mut self) -> Result<()> {
        Ok(())
    }
}
