//! `[[cell]]`: cells whose actors are named one by one.

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::{Aio, Attachment, Cache, Options, Shape};
use crate::study::named::{NamedActor, NamedCell, NamedDisk, NamedPath};
use crate::study::{Names, Sort};
use crate::toml_reader::{Reader, Section};

impl Reader<'_> {
    pub(super) fn named_cells(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Vec<NamedCell>> {
        self.tables(top, "cell", |reader, s| {
            reader.known_keys(s, &["actors", "settings"]);
            let actors = reader.list(s, "actors", None, |reader, item, path| reader.actor(item, path, names));
            let settings = match s.table.get("settings") {
                None => Some(Default::default()),
                Some(value) => reader.settings(value, "cell.settings", names),
            };
            Some(NamedCell { actors: actors?, settings: settings? })
        })
    }

    fn actor(&mut self, item: &Spanned<DeValue<'_>>, path: &str, names: &Names) -> Option<NamedActor> {
        let DeValue::Table(table) = item.get_ref() else {
            let like = "a table like { side = \"qemu\", machine = true, workload = \"openssl\" }";
            self.wrong_type(&item.span(), path, like, item.get_ref());
            return None;
        };
        let s = Section { path: path.to_owned().into(), span: item.span(), table };
        let before = self.problems.len();
        let keys =
            ["side", "nth", "shape", "disk", "path", "machine", "cluster", "workload", "start_seconds", "seconds"];
        self.known_keys(&s, &keys);
        let side = self.one_of(&s, "side", &names.guests);
        let has = |key: &str| table.contains_key(key);
        let nth = if has("nth") { self.whole(&s, "nth", 1, 64) } else { Some(1) };
        let shape = table.get("shape").map_or(Some(Shape::default()), |value| self.shape(value, &s.key("shape")));
        let native = side.as_deref() == Some(crate::cell::NATIVE);
        let disk = self.below(&s, "disk").and_then(|s| self.named_disk(&s, names, native));
        let net = self.below(&s, "path").and_then(|s| self.named_path(&s, names, native));
        let machine = self.switch(&s, "machine", false);
        let cluster = if has("cluster") { self.whole(&s, "cluster", 2, 1000) } else { None };
        let sorts = [
            has("disk").then_some(Sort::Disk),
            has("path").then_some(Sort::Path),
            machine.unwrap_or(false).then_some(Sort::Machine),
            has("cluster").then_some(Sort::Cluster),
        ];
        let sorts: Vec<Sort> = sorts.into_iter().flatten().collect();
        if sorts.len() != 1 {
            let what = "name what is worked on, and one thing: disk, path, machine = true or cluster";
            self.problem(&item.span(), path, what.to_owned());
        }
        let workload = match table.get("workload") {
            Some(value) => self.workload(value, &s.key("workload"), names, sorts.first().copied()),
            None => {
                self.missing(&s, "workload");
                None
            }
        };
        let start = if has("start_seconds") { self.real(&s, "start_seconds", 0.0, 3600.0) } else { Some(0.0) };
        let seconds = if has("seconds") { self.real(&s, "seconds", 0.1, 3600.0).map(Some) } else { Some(None) };
        let actor = NamedActor {
            side: side?,
            nth: nth?,
            shape: shape?,
            disk,
            path: net,
            machine: machine?,
            cluster,
            workload: workload?,
            start_seconds: start?,
            seconds: seconds?,
        };
        (self.problems.len() == before).then_some(actor)
    }

    fn named_disk(&mut self, s: &Section<'_, '_>, names: &Names, native: bool) -> Option<NamedDisk> {
        self.known_keys(s, &["target", "driver", "cache", "aio", "iothread", "options"]);
        let target = self.one_of(s, "target", &names.targets)?;
        if native {
            return Some(NamedDisk { target, attachment: None });
        }
        let driver = self.one_of(s, "driver", &names.drivers);
        let cache = self.choice(s, "cache", &Cache::ALL, Cache::None);
        let aio = self.choice(s, "aio", &Aio::ALL, Aio::Native);
        let iothread = self.switch(s, "iothread", false);
        let options = match s.table.get("options") {
            None => Some(Options::default()),
            Some(value) => self.options(value, &s.key("options")),
        };
        let attachment =
            Attachment { driver: driver?, cache: cache?, aio: aio?, iothread: iothread?, options: options? };
        Some(NamedDisk { target, attachment: Some(attachment) })
    }

    fn named_path(&mut self, s: &Section<'_, '_>, names: &Names, native: bool) -> Option<NamedPath> {
        self.known_keys(s, &["network", "peer", "nic", "vhost", "queues"]);
        let network = self.one_of(s, "network", &names.networks);
        let peer = self.one_of(s, "peer", &names.peers);
        let nic = if native { Some(None) } else { self.one_of(s, "nic", &names.nics).map(Some) };
        let vhost = self.switch(s, "vhost", false);
        let queues =
            if s.table.contains_key("queues") { self.whole(s, "queues", 1, 1024).map(Some) } else { Some(None) };
        Some(NamedPath { network: network?, peer: peer?, nic: nic?, vhost: vhost?, queues: queues? })
    }

    /// One word out of those given, which must be there.
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
