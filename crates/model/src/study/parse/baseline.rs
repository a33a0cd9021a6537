//! `baseline`: the cell that each cell is compared with.

use toml::de::DeValue;

use crate::cell::{Baseline, Like, State};
use crate::study::Names;
use crate::toml_reader::{Reader, Section};

impl Reader<'_> {
    /// `"native"`, `"none"`, or a table of replacements.
    pub(super) fn baseline(&mut self, top: &Section<'_, '_>, names: &Names) -> Option<Baseline> {
        let Some(value) = top.table.get("baseline") else { return Some(Baseline::Native) };
        let whole = match value.get_ref() {
            DeValue::String(_) => {
                let native = self.word(value, "baseline", &["native", "none"])? == 0;
                return Some(if native { Baseline::Native } else { Baseline::None });
            }
            DeValue::Table(table) => Section { path: "baseline".into(), span: value.span(), table },
            other => {
                self.wrong_type(&value.span(), "baseline", "`native`, `none` or a section [baseline.like]", other);
                return None;
            }
        };
        self.known_keys(&whole, &["like"]);
        if !whole.table.contains_key("like") {
            self.missing(&whole, "like");
        }
        let s = self.below(&whole, "like")?;
        self.known_keys(&s, &["side", "target", "state", "network", "peer", "workload", "alone", "settings"]);
        let before = self.problems.len();
        let mut one = |key: &str, known: &[String]| {
            let words: Vec<&str> = known.iter().map(String::as_str).collect();
            self.word(s.table.get(key)?, &s.key(key), &words).map(|i| words[i].to_owned())
        };
        let side = one("side", &names.guests);
        let target = one("target", &names.targets);
        let states = State::ALL.map(|state| state.to_string());
        let state = one("state", &states).and_then(|word| State::ALL.into_iter().find(|s| s.to_string() == word));
        let network = one("network", &names.networks);
        let peer = one("peer", &names.peers);
        let workload = s.table.get("workload");
        let workload = workload.and_then(|value| self.workload(value, "baseline.like.workload", names, None));
        let alone = self.switch(&s, "alone", false);
        let settings = self.settings(&s, names);
        let like = Like { side, target, state, network, peer, workload, alone: alone?, settings };
        (self.problems.len() == before).then_some(Baseline::Like(like))
    }
}
