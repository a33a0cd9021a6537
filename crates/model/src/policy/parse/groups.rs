//! Keys of a class for its guests' control groups and balloons.

use super::values::quantity;
use super::{At, Clash, File, add};
use crate::policy::groups::GroupKey;
use crate::policy::units;
use crate::toml_reader::Section;

/// What is written for memory.
const SIZE: &str = "a size such as \"4GiB\"";

/// Limits for the guest's control group, and its memory.
#[derive(Debug, Default)]
pub struct GroupDraft {
    pub cpu_weight: Option<At<u16>>,
    pub cpu_max: Option<At<u64>>,
    /// With a minimum it is the balloon's.
    pub memory_max: Option<At<u64>>,
    pub memory_min: Option<At<u64>>,
    pub memory_move: Option<At<bool>>,
}

impl GroupDraft {
    /// Position of each written key.
    pub fn places(&self) -> impl Iterator<Item = (&'static str, At<()>)> {
        let Self { cpu_weight, cpu_max, memory_max, memory_min, memory_move } = self;
        let places = [
            (GroupKey::CpuWeight.word(), cpu_weight.as_ref().map(At::place)),
            (GroupKey::CpuMax.word(), cpu_max.as_ref().map(At::place)),
            (GroupKey::MemoryMax.word(), memory_max.as_ref().map(At::place)),
            ("memory_min", memory_min.as_ref().map(At::place)),
            ("memory_move", memory_move.as_ref().map(At::place)),
        ];
        places.into_iter().filter_map(|(key, place)| Some((key, place?)))
    }

    /// Takes over the keys of another one.
    pub fn overlay(&mut self, over: GroupDraft) {
        let GroupDraft { cpu_weight, cpu_max, memory_max, memory_min, memory_move } = over;
        self.cpu_weight = cpu_weight.or(self.cpu_weight.take());
        self.cpu_max = cpu_max.or(self.cpu_max.take());
        self.memory_max = memory_max.or(self.memory_max.take());
        self.memory_min = memory_min.or(self.memory_min.take());
        self.memory_move = memory_move.or(self.memory_move.take());
    }

    /// Adds the keys of another file.
    pub fn add(&mut self, new: GroupDraft, s: &Section<'_, '_>, clashes: &mut Vec<Clash>) {
        add(&mut self.cpu_weight, new.cpu_weight, s, "cpu_weight", clashes);
        add(&mut self.cpu_max, new.cpu_max, s, "cpu_max", clashes);
        add(&mut self.memory_max, new.memory_max, s, "memory_max", clashes);
        add(&mut self.memory_min, new.memory_min, s, "memory_min", clashes);
        add(&mut self.memory_move, new.memory_move, s, "memory_move", clashes);
    }
}

impl File<'_, '_> {
    /// Parses these keys of a class.
    pub fn group(&mut self, s: &Section<'_, '_>) -> GroupDraft {
        GroupDraft {
            cpu_weight: self.optional(s, "cpu_weight", |r, v, path| Some(r.whole_value(v, path, 1, 10_000)? as u16)),
            cpu_max: self.optional(s, "cpu_max", |r, v, path| {
                quantity(r, v, path, units::percent, "a share of processors such as \"150%\"")
            }),
            memory_max: self.optional(s, "memory_max", |r, v, path| quantity(r, v, path, units::bytes, SIZE)),
            memory_min: self.optional(s, "memory_min", |r, v, path| quantity(r, v, path, units::bytes, SIZE)),
            memory_move: self.optional(s, "memory_move", |r, v, path| r.switch_value(v, path)),
        }
    }
}
