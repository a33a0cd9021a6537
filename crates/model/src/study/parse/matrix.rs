//! `[[matrix]]`: products of sides, subjects, workloads and settings.

use toml::Spanned;
use toml::de::DeValue;

use super::parts::Bare;
use crate::cell::{Aio, Cache, Kind, Options, State};
use crate::study::{Disks, Matrix, Names, Paths, SubjectKind};
use crate::toml_reader::{Reader, Section};

const KEYS: [&str; 7] = ["sides", "shapes", "disks", "paths", "machine", "workloads", "settings"];

impl Reader<'_> {
    pub(super) fn matrix(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Matrix> {
        let before = self.problems.len();
        self.known_keys(s, &KEYS);
        let has = |key: &str| s.table.contains_key(key);
        let sides = self.entries(s, "sides", &names.guests, None);
        let bare = sides.as_ref().and_then(Bare::of);
        // Without guests such keys were always accepted, and have no effect.
        let has_guests = sides.iter().flatten().any(|side| Kind::of(side).is_guest());
        let refused = bare.filter(|_| has_guests);
        let shape = |reader: &mut Self, item: &Spanned<DeValue<'_>>, path: &str| reader.shape(item, path, bare);
        let shapes = self.list(s, "shapes", Some(Vec::new()), shape);
        let native = bare.is_some();
        let disks = self.disks_below(s, names, native, refused);
        let paths = self.paths(s, names, native, refused);
        let machine = self.switch(s, "machine", false);
        let kinds = [
            has("disks").then_some(SubjectKind::Disk),
            has("paths").then_some(SubjectKind::Path),
            machine.unwrap_or(false).then_some(SubjectKind::Machine),
        ];
        let kinds: Vec<SubjectKind> = kinds.into_iter().flatten().collect();
        if kinds.len() != 1 {
            let what = "name what is worked on, and one sort of it: disks, paths or machine = true";
            self.problem(&s.span, "matrix", what.to_owned());
        }
        let on = kinds.first().copied();
        let workloads = self.list(s, "workloads", None, |reader, item, path| reader.workload(item, path, names, on));
        let settings = self.settings_in_turn(s, names);
        let matrix = Matrix {
            sides: sides?,
            shapes: shapes?,
            disks,
            paths,
            machine: machine?,
            workloads: workloads?,
            settings: settings.unwrap_or_default(),
        };
        (self.problems.len() == before).then_some(matrix)
    }

    fn disks_below(
        &mut self,
        s: &Section<'_, '_>,
        names: &Names,
        native: bool,
        refused: Option<Bare>,
    ) -> Option<Disks> {
        let s = self.below(s, "disks")?;
        self.known_keys(&s, &["targets", "states", "drivers", "caches", "aios", "iothreads", "options"]);
        let disks = self.disks(&s, names, native)?;
        let reached = (!native && disks.drivers.is_empty()).then_some(Bare::REACHED);
        if let Some(bare) = refused.or(reached) {
            // A study that was written out contains all defaults.
            let chosen = [
                ("drivers", !disks.drivers.is_empty()),
                ("caches", disks.caches != [Cache::None]),
                ("aios", disks.aios != [Aio::Native]),
                ("iothreads", disks.iothreads != [false]),
                ("options", disks.options != [Options::default()]),
            ]
            .into_iter();
            self.of_machines_alone(&s, &chosen.filter_map(named).collect::<Vec<_>>(), bare);
        }
        Some(disks)
    }

    fn disks(&mut self, s: &Section<'_, '_>, names: &Names, native: bool) -> Option<Disks> {
        let targets = self.entries(s, "targets", &names.targets, None);
        let states = self.choices(s, "states", &State::ALL, Vec::new());
        let reached = targets.as_ref().is_some_and(|all| all.iter().all(|target| names.reached.contains(target)));
        let drivers = self.entries(s, "drivers", &names.drivers, (native || reached).then_some(Vec::new()));
        let caches = self.choices(s, "caches", &Cache::ALL, vec![Cache::None]);
        let aios = self.choices(s, "aios", &Aio::ALL, vec![Aio::Native]);
        let iothreads = self.switches(s, "iothreads", vec![false]);
        let options = self.list(s, "options", Some(vec![Options::default()]), Self::options);
        Some(Disks {
            targets: targets?,
            states: states?,
            drivers: drivers?,
            caches: caches?,
            aios: aios?,
            iothreads: iothreads?,
            options: options?,
        })
    }

    fn paths(&mut self, s: &Section<'_, '_>, names: &Names, native: bool, refused: Option<Bare>) -> Option<Paths> {
        let s = self.below(s, "paths")?;
        self.known_keys(&s, &["networks", "peers", "nics", "vhost", "queues", "rings"]);
        let networks = self.entries(&s, "networks", &names.networks, None);
        let peers = self.entries(&s, "peers", &names.peers, None);
        let inside = networks.as_ref().is_some_and(|all| all.iter().all(|network| names.inside.contains(network)));
        let nics = self.entries(&s, "nics", &names.nics, (native || inside).then_some(Vec::new()));
        let vhost = self.switches(&s, "vhost", vec![false]);
        let mut counts = |key: &str, most: u32| {
            let count =
                |reader: &mut Self, item: &Spanned<DeValue<'_>>, path: &str| reader.whole_value(item, path, 1, most);
            self.list(&s, key, Some(Vec::new()), count)
        };
        let (queues, rings) = (counts("queues", 1024), counts("rings", 65_536));
        let paths =
            Paths { networks: networks?, peers: peers?, nics: nics?, vhost: vhost?, queues: queues?, rings: rings? };
        if let Some(bare) = refused.or(inside.then_some(Bare::INSIDE)) {
            let chosen = [
                ("nics", !paths.nics.is_empty()),
                ("vhost", paths.vhost.contains(&true)),
                ("queues", !paths.queues.is_empty()),
                ("rings", !paths.rings.is_empty()),
            ]
            .into_iter();
            self.of_machines_alone(&s, &chosen.filter_map(named).collect::<Vec<_>>(), bare);
        }
        Some(paths)
    }
}

/// The key, if something other than the default was chosen.
fn named((key, is): (&'static str, bool)) -> Option<&'static str> {
    is.then_some(key)
}
