//! The daemon: opens everything in order, then runs the main thread's loop until a wish or a signal ends it.

mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vmio_model::control::Allocator;

use crate::api::{self, Listeners, Server, Shared, Token, Wish};
use crate::demand::Breach;
use crate::groups::{Groups, GroupsError};
use crate::manager::document::Status;
use crate::manager::{Manager, ManagerError, PoolChange, Start, Texts, Unconfirmed};
use crate::memory::Memory;
use crate::namespace_lock::NamespaceLock;
use crate::planes::linux::{self, Error};
use crate::planes::{Entry, Options};
use crate::source::guests::Here;
use crate::source::{Discovery, Guests, Source, Watch};
use crate::undo_log::{UndoLog, UndoLogError};

use memory::Mover;

/// Period in which the main thread reads counters, link speeds, and the time of an unconfirmed change.
const TURN: Duration = Duration::from_secs(1);
/// Breaches of a second that are reported one by one: a failed uplink causes one for every member.
const BREACHES: usize = 20;

/// Interfaces that came, changed their class or went and are reported one by one: more are counted in one line.
const CHANGES: usize = 8;
/// Turns after which such changes are reported also where further ones come.
const GATHERED: u32 = 5;

/// What a guard is started with.
pub struct Service {
    /// Directory of its ledger.
    pub state: PathBuf,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// The group that may use it.
    pub group: Option<u32>,
    /// TCP address and token, if it listens there too.
    pub tcp: Option<(SocketAddr, Token)>,
    /// Where policies come from.
    pub texts: Box<dyn Texts>,
    /// The plane that enforces them.
    pub plane: &'static Entry,
    /// Who sets the limits.
    pub allocator: Allocator,
    /// Whether a foreign qdisc at an uplink is replaced, and put back at the end.
    pub takeover: bool,
    /// Called when it is sure that no other guard runs here, before anything is changed.
    pub begin: Box<dyn FnOnce()>,
}

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The policy is in force, and questions are answered.
    Ready {
        /// Interfaces with a class.
        interfaces: usize,
        /// Uplinks.
        uplinks: usize,
        /// Notes and warnings.
        notes: Vec<String>,
    },
    /// Another policy is in force.
    Reloaded {
        /// Number of policy changes since the start.
        revision: u64,
    },
    /// The files were refused; the reasons, a line each.
    Refused(Vec<String>),
    /// An unconfirmed change was taken back.
    TakenBack,
    /// It started with the last confirmed policy, since this was unconfirmed when the earlier guard ended.
    BeganBefore(Unconfirmed),
    /// An interface got a class.
    Came {
        /// The interface.
        interface: String,
        /// Its class, of what it sends or else of what it receives.
        class: String,
    },
    /// An interface with a class is gone.
    Went {
        /// The interface.
        interface: String,
    },
    /// Many interfaces came or went within a few seconds.
    ManyChanged {
        /// Those that got a class: how many of each.
        came: BTreeMap<String, usize>,
        /// How many with a class are gone.
        went: usize,
    },
    /// Limits are not in force any more, or are again.
    Pool(PoolChange),
    /// A failure that lasts.
    Trouble(String),
    /// The failure is over.
    Well,
    /// A member does not get the minimum that it needs, or gets it again.
    Breach(Breach),
    /// Number of further breaches that began or ended in the same second.
    MoreBreaches(usize),
    /// Sent each second as a sign of life.
    Alive,
    /// Result of a guard that only observes, at its end.
    Observed(Box<Status>),
    /// The guard ends.
    Ended {
        /// Whether the limits were taken off.
        undone: bool,
    },
}

/// Why the service did not start or end as it should.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The ledger: another guard has it, for one.
    #[error(transparent)]
    UndoLog(#[from] UndoLogError),
    /// Another guard has this network namespace, with a ledger elsewhere.
    #[error("another vmio guard runs in this network namespace (process {0}), with another state directory")]
    Another(u32),
    /// Control groups cannot be looked at.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The policy or the plane.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// The system.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

/// Input of the main thread.
enum Input {
    Wish(Wish),
    Looked(Result<(), ManagerError>),
}

impl Service {
    /// Runs until a wish ends it; `tell` gets the events.
    ///
    /// # Errors
    /// When it cannot start, or the limits cannot be taken off.
    pub fn run(self, wishes: Receiver<Wish>, mut tell: impl FnMut(Event)) -> Result<(), ServiceError> {
        let log = UndoLog::open(&self.state)?;
        let system = |(what, source): (String, io::Error)| ServiceError::System { what, source };
        // Held to the end. A guard that only observes needs none.
        let _namespace_lock = if self.plane.abilities.plane == linux::ENTRY.abilities.plane {
            let lock = NamespaceLock::take().map_err(|e| system(("look for another guard".into(), e)))?;
            Some(lock.map_err(ServiceError::Another)?)
        } else {
            None
        };
        (self.begin)();
        let listeners = Listeners::open(&self.socket, self.group, self.tcp).map_err(system)?;
        let groups = if self.plane.changes { Some(Groups::open(&log)?) } else { None };
        let memory = Memory::open(&log, self.plane.changes)?;
        let (plane, options) = (self.plane, Options { takeover: self.takeover, log: log.clone() });
        let manager = Manager::start(Start {
            texts: self.texts,
            log,
            plane: Box::new(move || (plane.open)(options)),
            plane_name: plane.abilities.plane,
            allocator: self.allocator,
            groups,
            look: Box::new(|uplinks| Source::open(Box::new(Here::default()))?.look(uplinks)),
        })?;
        let uplinks = manager.uplinks();
        let manager: Shared = Arc::new(Mutex::new(manager));
        let (inputs_to, inputs) = mpsc::channel();
        forward(wishes, inputs_to.clone()).map_err(|e| system(("start a thread".into(), e)))?;
        let (ask, asked) = mpsc::channel();
        forward(asked, inputs_to.clone()).map_err(|e| system(("start a thread".into(), e)))?;
        let watch = watch(&manager, inputs_to, uplinks).map_err(|e| system(("start a thread".into(), e)))?;
        let mover = Mover::start(&manager, memory).map_err(|e| system(("start a thread".into(), e)))?;
        let server =
            Server::start(listeners, Arc::clone(&manager), ask).map_err(|e| system(("start the server".into(), e)))?;
        let locked = api::lock(&manager);
        let (seated, changes) = (locked.classes(), locked.changes());
        drop(locked);
        let interfaces = seated.len();
        let mut main_loop = MainLoop { manager, seated, gathered: None, trouble: None, revision: 1, changes };
        let manager = api::lock(&main_loop.manager);
        let (uplinks, status, began_before) = (manager.uplinks().len(), manager.status()?, manager.began_before());
        drop(manager);
        let notes = status.notes.into_iter().chain(status.policy.warnings).collect();
        tell(Event::Ready { interfaces, uplinks, notes });
        if let Some(unconfirmed) = began_before {
            tell(Event::BeganBefore(unconfirmed));
        }
        // What is observed begins here, and ends with the time that the loop is given.
        api::lock(&main_loop.manager).observe();
        let undone = main_loop.run(&inputs, &mut tell);
        // No request and no look may follow once the limits are off.
        drop(server);
        drop(watch);
        mover.end();
        let mut manager = api::lock(&main_loop.manager);
        manager.observe();
        if let Ok(status) = manager.status()
            && status.observed.is_some()
        {
            tell(Event::Observed(Box::new(status)));
        }
        // Nobody would take an unconfirmed change back later.
        if !undone {
            match manager.give_up() {
                Ok(true) => tell(Event::TakenBack),
                Ok(false) => {}
                Err(e) => tell(Event::Trouble(e.to_string())),
            }
        }
        let done = manager.stop(undone);
        tell(Event::Ended { undone });
        Ok(done?)
    }
}

fn watch(manager: &Shared, inputs_to: Sender<Input>, uplinks: BTreeSet<String>) -> io::Result<Watch> {
    let manager = Arc::clone(manager);
    let guests = || -> Box<dyn Guests> { Box::new(Here::default()) };
    let tell = move |discovery: Result<Discovery, Error>| {
        let mut manager = api::lock(&manager);
        let done = match discovery {
            Ok(discovery) => manager.set_interfaces(discovery),
            Err(e) => {
                manager.discovery_failed(&e);
                Err(e.into())
            }
        };
        let uplinks = manager.uplinks();
        drop(manager);
        // The main loop may have ended.
        let _ = inputs_to.send(Input::Looked(done));
        uplinks
    };
    Watch::start(move || Source::open(guests()), tell, uplinks)
}

/// Forwards wishes to the main loop, in a thread.
fn forward(wishes: Receiver<Wish>, inputs_to: Sender<Input>) -> io::Result<()> {
    let run = move || wishes.into_iter().take_while(|wish| inputs_to.send(Input::Wish(*wish)).is_ok()).for_each(drop);
    std::thread::Builder::new().name("guard-wishes".into()).spawn(run).map(drop)
}

struct MainLoop {
    manager: Shared,
    /// Interfaces with a class as they were reported last, by name.
    seated: BTreeMap<String, String>,
    /// Changes of them that wait until no more come.
    gathered: Option<Gathered>,
    trouble: Option<String>,
    revision: u64,
    /// Those of the policy and the interfaces that were looked at.
    changes: u64,
}

/// Changes of interfaces that are not reported yet.
struct Gathered {
    /// Interfaces with a class now.
    now: BTreeMap<String, String>,
    /// Whether there was another change in this turn.
    moved: bool,
    turns: u32,
}

impl MainLoop {
    /// Runs until a wish ends it; returns whether the limits are to be taken off.
    fn run(&mut self, inputs: &Receiver<Input>, tell: &mut impl FnMut(Event)) -> bool {
        let mut counted = Instant::now();
        loop {
            match inputs.recv_timeout(TURN.saturating_sub(counted.elapsed())) {
                Ok(Input::Wish(Wish::Stop { undo })) => {
                    self.report_gathered(true, tell);
                    return undo;
                }
                Ok(Input::Wish(Wish::Reload)) => {
                    let mut manager = api::lock(&self.manager);
                    let done = manager.apply(None);
                    drop(manager);
                    if let Err(e) = done {
                        let problems = e.problems().iter().map(ToString::to_string);
                        tell(Event::Refused(problems.chain([e.to_string()]).collect()));
                    }
                    self.tell_changes(tell);
                }
                Ok(Input::Looked(done)) => {
                    self.note(done.err().map(|e| e.to_string()), tell);
                    self.tell_changes(tell);
                }
                Err(RecvTimeoutError::Timeout) => {
                    counted = Instant::now();
                    let mut manager = api::lock(&self.manager);
                    let expired = manager.expire();
                    let followed = manager.follow_links();
                    let count = manager.count();
                    drop(manager);
                    self.report_gathered(false, tell);
                    match expired {
                        Ok(true) => tell(Event::TakenBack),
                        Ok(false) => {}
                        Err(e) => self.note(Some(e.to_string()), tell),
                    }
                    if let Err(e) = followed {
                        let problems = e.problems().iter().map(ToString::to_string);
                        let what =
                            "a link has another speed, or reports none, and the policy does not fit it".to_owned();
                        tell(Event::Refused([what].into_iter().chain(problems).chain([e.to_string()]).collect()));
                    }
                    if let Ok((pools, mut breaches)) = count {
                        pools.into_iter().for_each(|change| tell(Event::Pool(change)));
                        let more = breaches.len().saturating_sub(BREACHES);
                        breaches.truncate(BREACHES);
                        breaches.into_iter().for_each(|breach| tell(Event::Breach(breach)));
                        if more > 0 {
                            tell(Event::MoreBreaches(more));
                        }
                        tell(Event::Alive);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Reports a new revision, and gathers the interfaces that came and went.
    fn tell_changes(&mut self, tell: &mut impl FnMut(Event)) {
        let manager = api::lock(&self.manager);
        let known = std::mem::replace(&mut self.changes, manager.changes());
        if self.changes == known {
            return;
        }
        let (now, revision) = (manager.classes(), manager.revision());
        drop(manager);
        if revision != self.revision {
            tell(Event::Reloaded { revision });
            self.revision = revision;
        }
        let (before, turns) = match &self.gathered {
            Some(gathered) => (&gathered.now, gathered.turns),
            None => (&self.seated, 0),
        };
        if *before != now {
            self.gathered = Some(Gathered { now, moved: true, turns });
        }
    }

    /// Reports the interfaces that came and went once no more come, or `at_once`.
    fn report_gathered(&mut self, at_once: bool, tell: &mut impl FnMut(Event)) {
        let Some(gathered) = &mut self.gathered else { return };
        gathered.turns += 1;
        if std::mem::take(&mut gathered.moved) && gathered.turns < GATHERED && !at_once {
            return;
        }
        let now = self.gathered.take().map(|gathered| gathered.now).unwrap_or_default();
        let came: Vec<_> = now.iter().filter(|(name, class)| self.seated.get(*name) != Some(class)).collect();
        let went: Vec<&String> = self.seated.keys().filter(|name| !now.contains_key(*name)).collect();
        if came.len() + went.len() > CHANGES {
            let mut classes = BTreeMap::new();
            for (_, class) in &came {
                *classes.entry((*class).clone()).or_default() += 1;
            }
            tell(Event::ManyChanged { came: classes, went: went.len() });
        } else {
            for (interface, class) in came {
                tell(Event::Came { interface: interface.clone(), class: class.clone() });
            }
            for interface in went {
                tell(Event::Went { interface: interface.clone() });
            }
        }
        self.seated = now;
    }

    /// Reports a failure when it begins and when it is over.
    fn note(&mut self, trouble: Option<String>, tell: &mut impl FnMut(Event)) {
        if trouble == self.trouble {
            return;
        }
        tell(trouble.clone().map_or(Event::Well, Event::Trouble));
        self.trouble = trouble;
    }
}
