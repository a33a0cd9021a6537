//! `[[cell]]`: cells whose actors are named one by one.

use toml::Spanned;
use toml::de::DeValue;

use super::parts::Bare;
use crate::cell::{Aio, Attachment, Cache, Options, Shape, State};
use crate::study::named::{NamedActor, NamedCell, NamedDisk, NamedPath};
use crate::study::{Names, SubjectKind};
use crate::toml_reader::{Reader, Section};

/// Most guests of a shape.
const MOST_GUESTS: u32 = 64;
/// Shape of an actor, for messages.
const ACTOR: &str = "a table like { side = \"qemu\", machine = true, workload = \"openssl\" }";

impl Reader<'_> {
    pub(super) fn named_cell(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<NamedCell> {
        self.known_keys(s, &["actors", "settings"]);
        // Two actors may be equal, to compare what each gets, so they are numbered.
        let mut number = 0;
        let actors = self.list(s, "actors", None, |reader, item, path| {
            number += 1;
            reader.actors(item, path, names).map(|actors| (number, actors))
        });
        let settings = self.settings(s, names).unwrap_or_default();
        Some(NamedCell { actors: actors?.into_iter().flat_map(|(_, actors)| actors).collect(), settings })
    }

    /// An actor, or as many as `count` says, each in the guest after that of the one before.
    fn actors(&mut self, item: &Spanned<DeValue<'_>>, path: &str, names: &Names) -> Option<Vec<NamedActor>> {
        let s = self.table(item, path, ACTOR)?;
        let before = self.problems.len();
        let keys = ["side", "nth", "count", "shape", "disk", "path", "machine", "workload", "start_seconds", "seconds"];
        self.known_keys(&s, &keys);
        let side = self.one_of(&s, "side", &names.guests);
        let bare = side.as_ref().and_then(|side| Bare::of([side]));
        let nth = self.whole_if(&s, "nth", 1, MOST_GUESTS).unwrap_or(1);
        let count = self.whole_if(&s, "count", 1, MOST_GUESTS + 1 - nth).unwrap_or(1);
        let key = s.key("shape");
        let shape = s.table.get("shape").map_or(Some(Shape::default()), |value| self.shape(value, &key, bare));
        let disk = self.below(&s, "disk").and_then(|s| self.named_disk(&s, names, bare));
        let net = self.below(&s, "path").and_then(|s| self.named_path(&s, names, bare));
        let machine = self.switch(&s, "machine", false);
        let has = |key: &str| s.table.contains_key(key);
        let kinds = [
            has("disk").then_some(SubjectKind::Disk),
            has("path").then_some(SubjectKind::Path),
            machine.unwrap_or(false).then_some(SubjectKind::Machine),
        ];
        let kinds: Vec<SubjectKind> = kinds.into_iter().flatten().collect();
        if kinds.len() != 1 {
            let what = "name what is worked on, and one thing: disk, path or machine = true";
            self.problem(&s.span, path, what.to_owned());
        }
        let workload = match s.table.get("workload") {
            Some(value) => self.workload(value, &s.key("workload"), names, kinds.first().copied()),
            None => {
                self.missing(&s, "workload");
                None
            }
        };
        let start_seconds = if has("start_seconds") { self.real(&s, "start_seconds", 0.0, 3600.0) } else { Some(0.0) };
        let seconds = if has("seconds") { self.real(&s, "seconds", 0.1, 3600.0) } else { None };
        let actor = NamedActor {
            side: side?,
            nth,
            shape: shape?,
            disk,
            path: net,
            machine: machine?,
            workload: workload?,
            start_seconds: start_seconds?,
            seconds,
        };
        let each = (nth..nth + count).map(|nth| NamedActor { nth, ..actor.clone() });
        (self.problems.len() == before).then(|| each.collect())
    }

    fn named_disk(&mut self, s: &Section<'_, '_>, names: &Names, bare: Option<Bare>) -> Option<NamedDisk> {
        self.known_keys(s, &["target", "state", "driver", "cache", "aio", "iothread", "options"]);
        let target = self.one_of(s, "target", &names.targets);
        let words = State::ALL.map(|state| state.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let state = s.table.get("state").and_then(|value| self.word(value, &s.key("state"), &words));
        let state = state.map(|i| State::ALL[i]);
        let can_be_reached = target.as_ref().is_some_and(|target| names.reached.contains(target));
        let reached = can_be_reached && !s.table.contains_key("driver");
        if let Some(bare) = bare.or(reached.then_some(Bare::REACHED)) {
            if state == Some(State::WarmGuest) {
                self.of_machines_alone(s, &["state"], bare);
            }
            self.of_machines_alone(s, &["driver", "cache", "aio", "iothread", "options"], bare);
            return Some(NamedDisk { target: target?, state, attachment: None });
        }
        let driver = self.one_of(s, "driver", &names.drivers);
        let cache = self.choice(s, "cache", &Cache::ALL, Cache::None);
        let aio = self.choice(s, "aio", &Aio::ALL, Aio::Native);
        let iothread = self.switch(s, "iothread", false);
        let options = s.table.get("options").map(|value| self.options(value, &s.key("options")));
        let options = options.unwrap_or_else(|| Some(Options::default()));
        let attachment =
            Attachment { driver: driver?, cache: cache?, aio: aio?, iothread: iothread?, options: options? };
        Some(NamedDisk { target: target?, state, attachment: Some(attachment) })
    }

    fn named_path(&mut self, s: &Section<'_, '_>, names: &Names, bare: Option<Bare>) -> Option<NamedPath> {
        self.known_keys(s, &["network", "peer", "nic", "vhost", "queues", "ring", "co_sender"]);
        let network = self.one_of(s, "network", &names.networks);
        let peer = self.one_of(s, "peer", &names.peers);
        let third = s.table.contains_key("co_sender");
        let co_sender = third.then(|| self.one_of(s, "co_sender", &names.peers)).flatten();
        let inside = network.as_ref().is_some_and(|network| names.inside.contains(network));
        if let Some(bare) = bare.or(inside.then_some(Bare::INSIDE)) {
            self.of_machines_alone(s, &["nic", "vhost", "queues", "ring"], bare);
            let (nic, vhost, queues, ring) = (None, false, None, None);
            return Some(NamedPath { network: network?, peer: peer?, nic, vhost, queues, ring, co_sender });
        }
        let nic = self.one_of(s, "nic", &names.nics);
        let vhost = self.switch(s, "vhost", false);
        let queues = self.whole_if(s, "queues", 1, 1024);
        let ring = self.whole_if(s, "ring", 1, 65_536);
        let (network, peer, nic, vhost) = (network?, peer?, Some(nic?), vhost?);
        Some(NamedPath { network, peer, nic, vhost, queues, ring, co_sender })
    }

    /// One word of the given ones, required.
    fn one_of(&mut self, s: &Section<'_, '_>, key: &str, names: &[String]) -> Option<String> {
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        match s.table.get(key) {
            Some(value) => self.word(value, &s.key(key), &words).map(|i| words[i].to_owned()),
            None => {
                self.missing(s, key);
                None
            }
        }
    }
}
