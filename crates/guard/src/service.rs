//! The daemon as a whole: what is opened in which order, and what the main thread does until somebody wants it to end.

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
use crate::manager::{Manager, ManagerError, Start, Texts};
use crate::namespace_lock::NamespaceLock;
use crate::planes::linux::{self, Error};
use crate::planes::{Entry, Options};
use crate::source::guests::Here;
use crate::source::{Discovery, Guests, Source, Watch};
use crate::undo_log::{UndoLog, UndoLogError};

/// How often the main thread counts, and looks whether a change is to be taken back.
const TURN: Duration = Duration::from_secs(1);
/// Breaches of a second that are told one by one: an uplink that fails takes all with it.
const BREACHES: usize = 20;

/// What a guard is started with.
pub struct Service {
    /// Where its ledger lies.
    pub state: PathBuf,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// The group that may use it.
    pub group: Option<u32>,
    /// Where it listens besides.
    pub tcp: Option<(SocketAddr, Token)>,
    /// Where policies come from.
    pub texts: Box<dyn Texts>,
    /// What puts them in force.
    pub plane: &'static Entry,
    /// Who sets the limits.
    pub allocator: Allocator,
    /// Whether another's qdisc at an uplink is replaced, to be put back.
    pub takeover: bool,
}

/// What happened, for a log.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The policy is in force, and questions are answered.
    Ready {
        /// Interfaces with a class.
        interfaces: usize,
        /// Uplinks.
        uplinks: usize,
        /// What deserves a word of both.
        notes: Vec<String>,
    },
    /// Another policy is in force.
    Reloaded {
        /// Which change this is since the start.
        revision: u64,
    },
    /// The files were not put in force, and why, line by line.
    Refused(Vec<String>),
    /// What nobody confirmed was taken back.
    TakenBack,
    /// It began with what was in force before the files' policy, which nobody had confirmed when the guard before it ended.
    BeganBefore,
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
    /// Something goes wrong.
    Trouble(String),
    /// What went wrong does not any more.
    Well,
    /// A member that wants its minimum does not get it, or gets it again.
    Breach(Breach),
    /// So many more breaches began or ended in the same second.
    MoreBreaches(usize),
    /// It lives: a second has passed.
    Alive,
    /// What was seen, at the end of a guard that only observes.
    Observed(Box<Status>),
    /// It ends; whether the limits were taken off.
    Ended {
        /// They were.
        undone: bool,
    },
}

/// Why it did not start, or did not end well.
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

/// What the main thread hears.
enum Heard {
    Wish(Wish),
    Seen(Result<(), ManagerError>),
}

impl Service {
    /// Runs until a wish ends it; what happens is told.
    ///
    /// # Errors
    /// When it cannot start, or the limits cannot be taken off.
    pub fn run(self, wishes: Receiver<Wish>, mut tell: impl FnMut(Event)) -> Result<(), ServiceError> {
        let log = UndoLog::open(&self.state)?;
        let system = |(what, source): (String, io::Error)| ServiceError::System { what, source };
        // Until it has ended. Who only observes is in nobody's way.
        let _namespace_lock = if self.plane.abilities.plane == linux::ENTRY.abilities.plane {
            let lock = NamespaceLock::take().map_err(|e| system(("look for another guard".into(), e)))?;
            Some(lock.map_err(ServiceError::Another)?)
        } else {
            None
        };
        let listeners = Listeners::open(&self.socket, self.group, self.tcp).map_err(system)?;
        let groups = if self.plane.changes { Some(Groups::open(&log)?) } else { None };
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
        let (say, heard) = mpsc::channel();
        forward(wishes, say.clone()).map_err(|e| system(("start a thread".into(), e)))?;
        let (ask, asked) = mpsc::channel();
        forward(asked, say.clone()).map_err(|e| system(("start a thread".into(), e)))?;
        let watch = watch(&manager, say, uplinks).map_err(|e| system(("start a thread".into(), e)))?;
        let server =
            Server::start(listeners, Arc::clone(&manager), ask).map_err(|e| system(("start the server".into(), e)))?;
        let mut turn = Turn { manager, seated: BTreeMap::new(), trouble: None, revision: 1 };
        let interfaces = turn.look(&mut |_| {});
        let manager = api::lock(&turn.manager);
        let (uplinks, known, began_before) = (manager.uplinks().len(), manager.status()?, manager.began_before());
        drop(manager);
        let notes = known.notes.into_iter().chain(known.policy.warnings).collect();
        tell(Event::Ready { interfaces, uplinks, notes });
        if began_before {
            tell(Event::BeganBefore);
        }
        let undone = turn.run(&heard, &mut tell);
        // Nobody is answered, and nothing is seen, once the limits are off.
        drop(server);
        drop(watch);
        let mut manager = api::lock(&turn.manager);
        if let Ok(status) = manager.status()
            && status.observed.is_some()
        {
            tell(Event::Observed(Box::new(status)));
        }
        // Nobody will be here when the time of a change is over.
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

fn watch(manager: &Shared, say: Sender<Heard>, uplinks: BTreeSet<String>) -> io::Result<Watch> {
    let manager = Arc::clone(manager);
    let guests = || -> Box<dyn Guests> { Box::new(Here::default()) };
    let tell = move |seen: Result<Discovery, Error>| {
        let mut manager = api::lock(&manager);
        let done = match seen {
            Ok(seen) => manager.see(seen),
            Err(e) => {
                manager.not_seen(&e);
                Err(e.into())
            }
        };
        let uplinks = manager.uplinks();
        drop(manager);
        // Nobody hears at the end.
        let _ = say.send(Heard::Seen(done));
        uplinks
    };
    Watch::start(move || Source::open(guests()), tell, uplinks)
}

/// Hands wishes on, until there are no more.
fn forward(wishes: Receiver<Wish>, say: Sender<Heard>) -> io::Result<()> {
    let run = move || wishes.into_iter().take_while(|wish| say.send(Heard::Wish(*wish)).is_ok()).for_each(drop);
    std::thread::Builder::new().name("guard-wishes".into()).spawn(run).map(drop)
}

struct Turn {
    manager: Shared,
    /// Interfaces with a class, by name.
    seated: BTreeMap<String, String>,
    trouble: Option<String>,
    revision: u64,
}

impl Turn {
    /// Until somebody wants it to end; whether the limits are to be taken off.
    fn run(&mut self, heard: &Receiver<Heard>, tell: &mut impl FnMut(Event)) -> bool {
        let mut counted = Instant::now();
        loop {
            match heard.recv_timeout(TURN.saturating_sub(counted.elapsed())) {
                Ok(Heard::Wish(Wish::Stop { undo })) => return undo,
                Ok(Heard::Wish(Wish::Reload)) => {
                    let mut manager = api::lock(&self.manager);
                    let done = manager.apply(None);
                    drop(manager);
                    if let Err(e) = done {
                        let problems = e.problems().iter().map(ToString::to_string);
                        tell(Event::Refused(problems.chain([e.to_string()]).collect()));
                    }
                    self.look(tell);
                }
                Ok(Heard::Seen(done)) => {
                    self.note(done.err().map(|e| e.to_string()), tell);
                    self.look(tell);
                }
                Err(RecvTimeoutError::Timeout) => {
                    counted = Instant::now();
                    let mut manager = api::lock(&self.manager);
                    let expired = manager.expire();
                    let followed = manager.follow_links();
                    let count = manager.count();
                    drop(manager);
                    match expired {
                        Ok(true) => tell(Event::TakenBack),
                        Ok(false) => {}
                        Err(e) => self.note(Some(e.to_string()), tell),
                    }
                    if let Err(e) = followed {
                        let problems = e.problems().iter().map(ToString::to_string);
                        let what = "a link has another speed, or tells none, and the policy does not fit it".to_owned();
                        tell(Event::Refused([what].into_iter().chain(problems).chain([e.to_string()]).collect()));
                    }
                    if let Ok(mut breaches) = count {
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

    /// Tells which interfaces came and went; how many there are.
    fn look(&mut self, tell: &mut impl FnMut(Event)) -> usize {
        let manager = api::lock(&self.manager);
        let (now, revision) = (manager.seated(), manager.revision());
        drop(manager);
        if revision != self.revision {
            tell(Event::Reloaded { revision });
            self.revision = revision;
        }
        for (interface, class) in now.iter().filter(|(name, class)| self.seated.get(*name) != Some(class)) {
            tell(Event::Came { interface: interface.clone(), class: class.clone() });
        }
        for interface in self.seated.keys().filter(|name| !now.contains_key(*name)) {
            tell(Event::Went { interface: interface.clone() });
        }
        self.seated = now;
        self.seated.len()
    }

    /// Once when it begins, once when it is over.
    fn note(&mut self, trouble: Option<String>, tell: &mut impl FnMut(Event)) {
        if trouble == self.trouble {
            return;
        }
        tell(trouble.clone().map_or(Event::Well, Event::Trouble));
        self.trouble = trouble;
    }
}
