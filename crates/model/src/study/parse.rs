//! Parses a study. All problems of a file are found in one pass, as `file:line: key: what is wrong; what was probably
//! meant`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::cells::MOST_CELLS;
use super::{Names, Repeat, Resources, Size, Study};
use crate::problem::TextError;
use crate::toml_reader::{self, Reader, Section, value_span};

mod baseline;
mod guard;
mod matrix;
mod named;
mod parts;
mod sense;
mod settings;

/// Least memory of a guest: with less, Debian's fio with its libraries does not start.
const MIN_MEMORY_MIB: u32 = 192;

/// Message for a key that requires disks.
const NO_DISK: &str = "no cell is on a disk: drop it";

/// Unknown keys come first: a missing one is often misspelt.
pub(super) fn parse(file: &str, text: &str, names: &Names) -> Result<Study, TextError> {
    toml_reader::read(file, text, |reader, top| reader.study(top, names)).map_err(|mut error| {
        error.problems.sort_by_key(|p| !p.is_unknown_key);
        error
    })
}

/// Whether a cell is on a disk, as far as the text says, whatever else is wrong: only then sizes and a write budget are
/// required.
fn asks_for_disks(top: &DeTable<'_>) -> bool {
    let tables = |key: &str| match top.get(key).map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().map(Spanned::get_ref).collect(),
        _ => Vec::new(),
    };
    let (matrices, cells) = (tables("matrix"), tables("cell"));
    let of_disks = |matrix: &&DeValue<'_>| matrix.as_table().is_some_and(|m| m.contains_key("disks"));
    let on_disk = |actor: &Spanned<DeValue<'_>>| actor.get_ref().as_table().is_some_and(|a| a.contains_key("disk"));
    let of_actors = |cell: &&DeValue<'_>| {
        let actors = cell.as_table().and_then(|c| c.get("actors")?.get_ref().as_array());
        actors.is_some_and(|actors| actors.iter().any(on_disk))
    };
    let nothing = matrices.is_empty() && cells.is_empty();
    nothing || matrices.iter().any(of_disks) || cells.iter().any(of_actors)
}

impl Reader<'_> {
    fn study(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Study> {
        let keys = [
            "name",
            "title",
            "cites",
            "components",
            "layers",
            "baseline",
            "guest",
            "size",
            "repeat",
            "control",
            "guard",
            "matrix",
            "cell",
        ];
        self.known_keys(top, &keys);
        let disks = asks_for_disks(top.table);
        let name = self.string(top, "name", None);
        let title = self.string(top, "title", None);
        let cites = self.string(top, "cites", Some(""));
        let components = self.switch(top, "components", false);
        let layers = self.switch(top, "layers", false);
        let guest = self.section(top, "guest").and_then(|s| self.guest(&s));
        let size = self.size(top, guest, disks);
        let repeat = self.section(top, "repeat").and_then(|s| self.repeat(&s, disks));
        let baseline = self.baseline(top, names);
        if !top.table.contains_key("matrix") && !top.table.contains_key("cell") {
            self.problem(&top.span, "matrix", "missing; add at least one [[matrix]] or [[cell]]".to_owned());
        }
        let mut count = 0;
        let matrix = self.tables(top, "matrix", |reader, s| {
            let matrix = reader.matrix(s, names)?;
            reader.fits(s, &mut count, matrix.count()).then_some(matrix)
        });
        let named = self.tables(top, "cell", |reader, s| {
            let cell = reader.named_cell(s, names)?;
            reader.fits(s, &mut count, 1).then_some(cell)
        });
        let control = self.control(top, matrix.as_ref().zip(named.as_ref()), names);
        let guards = self.guards(top);
        let study = Study {
            name: name?,
            title: title?,
            cites: cites?,
            components: components?,
            layers: layers?,
            baseline: baseline?,
            guest: guest?,
            size: size?,
            repeat: repeat?,
            control: control?,
            guards: guards?,
            matrix: matrix?,
            named: named?,
        };
        self.sense(top, &study, names);
        Some(study)
    }

    fn guest(&mut self, s: &Section<'_, '_>) -> Option<Resources> {
        self.known_keys(s, &["vcpus", "memory_mib"]);
        let vcpus = self.whole(s, "vcpus", 1, 1024);
        let memory_mib = self.whole(s, "memory_mib", MIN_MEMORY_MIB, 1 << 20);
        Some(Resources { vcpus: vcpus?, memory_mib: memory_mib? })
    }

    /// Whether this many more cells are within the limit; reported once, where they exceed it.
    fn fits(&mut self, s: &Section<'_, '_>, count: &mut u64, more: u64) -> bool {
        let before = *count;
        *count = count.saturating_add(more);
        if before <= MOST_CELLS && *count > MOST_CELLS {
            let what = format!(
                "makes them {count} cells, and a study has {MOST_CELLS} at most: name fewer entries or values, or make \
                 several studies of it"
            );
            self.problem(&s.span, &s.path, what);
        }
        *count <= MOST_CELLS
    }

    /// `[size]`, where a cell is on a disk.
    fn size(&mut self, top: &Section<'_, '_>, guest: Option<Resources>, disks: bool) -> Option<Option<Size>> {
        if !disks && !top.table.contains_key("size") {
            return Some(None);
        }
        let s = self.section(top, "size")?;
        if !disks {
            self.problem(&s.span, "size", NO_DISK.to_owned());
        }
        self.known_keys(&s, &["target_mib"]);
        let target_mib = self.whole(&s, "target_mib", 64, 1 << 30)?;
        if let Some(guest) = guest.filter(|g| u64::from(target_mib) < 2 * u64::from(g.memory_mib)) {
            let what = format!(
                "{target_mib} is too small: a target holds at least twice guest.memory_mib ({}), so that \
                 buffered work cannot stay in memory",
                2 * u64::from(guest.memory_mib)
            );
            self.problem(&value_span(&s, "target_mib"), "size.target_mib", what);
        }
        Some(Some(Size { target_mib }))
    }

    fn repeat(&mut self, s: &Section<'_, '_>, disks: bool) -> Option<Repeat> {
        let keys = [
            "min_pairs",
            "max_pairs",
            "min_boots",
            "half_width",
            "half_width_ratio",
            "seconds",
            "machine_seconds",
            "max_minutes",
            "max_gib_written",
            "steady_state",
        ];
        self.known_keys(s, &keys);
        let min_pairs = self.whole(s, "min_pairs", 1, 1000);
        let max_pairs = self.whole(s, "max_pairs", 1, 1000);
        let min_boots = self.whole(s, "min_boots", 1, 100);
        let half_width = self.real(s, "half_width", 0.001, 0.5);
        let half_width_ratio = if s.table.contains_key("half_width_ratio") {
            self.real(s, "half_width_ratio", 0.01, 1.0).map(Some)
        } else {
            Some(None)
        };
        let seconds = self.real(s, "seconds", 0.1, 3600.0);
        let machine_seconds = if s.table.contains_key("machine_seconds") {
            self.real(s, "machine_seconds", 0.1, 3600.0).map(Some)
        } else {
            Some(None)
        };
        let max_minutes = self.real(s, "max_minutes", 0.1, 7.0 * 24.0 * 60.0);
        let max_gib_written = match (disks, s.table.get("max_gib_written")) {
            (true, _) => self.real(s, "max_gib_written", 0.1, 1e6).map(Some),
            (false, None) => Some(None),
            (false, Some(value)) => {
                self.problem(&value.span(), "repeat.max_gib_written", NO_DISK.to_owned());
                None
            }
        };
        let steady_state = self.switch(s, "steady_state", false);
        let (min_pairs, max_pairs, min_boots) = (min_pairs?, max_pairs?, min_boots?);
        if max_pairs < min_pairs {
            let what = format!("{max_pairs} is less than min_pairs ({min_pairs})");
            self.problem(&value_span(s, "max_pairs"), "repeat.max_pairs", what);
        }
        if min_boots > min_pairs {
            let what = format!("{min_boots} boots need at least as many pairs; min_pairs is {min_pairs}");
            self.problem(&value_span(s, "min_boots"), "repeat.min_boots", what);
        }
        Some(Repeat {
            min_pairs,
            max_pairs,
            min_boots,
            half_width: half_width?,
            half_width_ratio: half_width_ratio?,
            seconds: seconds?,
            machine_seconds: machine_seconds?,
            max_minutes: max_minutes?,
            max_gib_written: max_gib_written?,
            steady_state: steady_state?,
        })
    }
}
