//! `settings` of a cell.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::Settings;
use crate::study::{Names, SettingName};
use crate::toml_reader::{Reader, Section, hint};

impl Reader<'_> {
    /// `settings = { read-ahead = "128k" }` of a section, if present.
    pub(super) fn settings(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Settings> {
        let read = |reader: &mut Self, s: &Section<'_, '_>, name: &str, entry: &SettingName| {
            reader.setting(s.table.get(name)?, &s.key(name), entry)
        };
        self.each_of_settings(s, names, read)
    }

    /// `settings = { read-ahead = ["128k", "4096k"] }` of a section, if present.
    pub(super) fn settings_in_turn(
        &mut self,
        s: &Section<'_, '_>,
        names: &Names,
    ) -> Option<BTreeMap<String, Vec<String>>> {
        self.each_of_settings(s, names, |reader, s, name, entry| {
            reader.list(s, name, None, |reader, item, path| reader.setting(item, path, entry))
        })
    }

    /// Parses the value of each setting of a section.
    fn each_of_settings<T>(
        &mut self,
        s: &Section<'_, '_>,
        names: &Names,
        read: impl Fn(&mut Self, &Section<'_, '_>, &str, &SettingName) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let s = self.below(s, "settings")?;
        let mut all = BTreeMap::new();
        for key in s.table.keys() {
            let word: &str = key.get_ref();
            let Some(entry) = names.settings.iter().find(|entry| entry.name == word) else {
                let known: Vec<&str> = names.settings.iter().map(|entry| entry.name).collect();
                self.problem(&key.span(), &s.key(word), format!("unknown setting{}", hint(word, &known)));
                continue;
            };
            all.extend(read(self, &s, word, entry).map(|value| (word.to_owned(), value)));
        }
        Some(all)
    }

    /// A value of a setting, in its canonical spelling.
    fn setting(&mut self, value: &Spanned<DeValue<'_>>, path: &str, entry: &SettingName) -> Option<String> {
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(&value.span(), path, "a string", value.get_ref());
            return None;
        };
        match (entry.value)(text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(&value.span(), path, why.to_string());
                None
            }
        }
    }
}
