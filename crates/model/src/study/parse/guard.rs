//! `[guard.NAME]`: policies for the setting `guard`.

use std::collections::BTreeMap;

use toml::de::DeValue;

use crate::study::guard::KeptBy;
use crate::study::{GuardPolicy, NamedCell, Study};
use crate::toml_reader::{Reader, Section, value_span};

/// The setting.
const SETTING: &str = "guard";

impl Reader<'_> {
    /// All policies; empty without the section.
    pub(super) fn guards(&mut self, top: &Section<'_, '_>) -> Option<BTreeMap<String, GuardPolicy>> {
        if !top.table.contains_key("guard") {
            return Some(BTreeMap::new());
        }
        let all = self.section(top, "guard")?;
        let mut guards = BTreeMap::new();
        for (name, value) in all.table {
            let (word, path) = (name.get_ref().to_string(), all.key(name.get_ref()));
            let s = self.table(value, &path, "a table")?;
            self.known_keys(&s, &["by", "options", "classes", "policy"]);
            let by = self.choice(&s, "by", &KeptBy::ALL, KeptBy::Vmio);
            let options = if s.table.contains_key("options") { self.words(&s, "options") } else { Some(Vec::new()) };
            let (classes, policy) = (self.words(&s, "classes"), self.string(&s, "policy", None));
            let guard = GuardPolicy { by: by?, options: options?, classes: classes?, policy: policy? };
            if let Err(why) = guard.check() {
                self.problem(&value_span(&s, "policy"), &path, why.to_string());
            }
            guards.insert(word, guard);
        }
        Some(guards)
    }

    /// A list of strings, in order, with duplicates.
    fn words(&mut self, s: &Section<'_, '_>, key: &str) -> Option<Vec<String>> {
        let Some(value) = s.table.get(key) else {
            self.missing(s, key);
            return None;
        };
        let strings = value.get_ref().as_array().map(|items| {
            let word = |item: &toml::Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
            items.iter().map(word).collect::<Option<Vec<String>>>()
        });
        let Some(Some(all)) = strings else {
            self.problem(&value.span(), &s.key(key), "must be a list of strings".to_owned());
            return None;
        };
        Some(all)
    }

    /// Each cell's policy must exist, and have a class for all actors or for each.
    pub(super) fn guards_fit(&mut self, top: &Section<'_, '_>, study: &Study) {
        let guard_of = |cell: &crate::cell::Cell| Some((cell.settings.get(SETTING)?.clone(), cell.actors().count()));
        let cells = study.matrix.iter().flat_map(crate::study::Matrix::cells);
        let cells = cells.chain(study.named.iter().filter_map(NamedCell::cell));
        let mut named: Vec<(String, usize)> = cells.filter_map(|cell| guard_of(&cell)).collect();
        named.sort();
        named.dedup();
        for (name, actors) in named {
            match study.guards.get(&name) {
                Some(guard) if guard.fits(actors) => {}
                Some(guard) => {
                    let (key, has) = (format!("guard.{name}.classes"), guard.classes.len());
                    let what = format!(
                        "has {has} classes, and a cell with it {actors} actors: one for all, or one each in their order"
                    );
                    self.problem(&value_span(top, "guard"), &key, what);
                }
                None => {
                    let what =
                        format!("a cell is set to guard = {name:?}, and the study has no section [guard.{name}]");
                    self.problem(&top.span, "guard", what);
                }
            }
        }
    }
}
