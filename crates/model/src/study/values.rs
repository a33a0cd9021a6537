//! Single values of a study's file: each is taken with its place, so that a problem can name
//! the line.

use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Names;
use super::parse::{Problem, nearest};

/// `; did you mean X?`, or the whole choice.
pub fn hint(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`? (there is {})", candidates.join(", ")),
        None => format!("; there is {}", candidates.join(", ")),
    }
}

pub struct Reader<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub problems: Vec<Problem>,
}

/// A table with the dotted path that leads to it.
pub struct Section<'t, 'i> {
    pub path: &'static str,
    pub span: Range<usize>,
    pub table: &'t DeTable<'i>,
}

impl Section<'_, '_> {
    pub fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Reader<'a> {
    pub fn problem(&mut self, span: &Range<usize>, key: &str, what: String) {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        self.problems.push(Problem { file: self.file.to_owned(), line, key: key.to_owned(), what });
    }

    pub fn known_keys(&mut self, s: &Section<'_, '_>, keys: &[&str]) {
        for key in s.table.keys() {
            let word: &str = key.get_ref();
            if !keys.contains(&word) {
                self.problem(&key.span(), &s.key(word), format!("unknown key{}", hint(word, keys)));
            }
        }
    }

    pub fn missing(&mut self, s: &Section<'_, '_>, key: &str) {
        self.problem(&s.span, &s.key(key), "missing".to_owned());
    }

    pub fn section<'t, 'i>(&mut self, top: &Section<'t, 'i>, key: &'static str) -> Option<Section<'t, 'i>> {
        let Some(value) = top.table.get(key) else {
            self.problem(&top.span, key, format!("missing; add a section [{key}]"));
            return None;
        };
        match value.get_ref() {
            DeValue::Table(table) => Some(Section { path: key, span: value.span(), table }),
            other => {
                self.wrong_type(&value.span(), key, "a section", other);
                None
            }
        }
    }

    pub fn wrong_type(&mut self, span: &Range<usize>, key: &str, wanted: &str, found: &DeValue<'_>) {
        self.problem(span, key, format!("must be {wanted}, not {}", kind(found)));
    }

    pub fn string(&mut self, s: &Section<'_, '_>, key: &str, default: Option<&str>) -> Option<String> {
        let Some(value) = s.table.get(key) else {
            if default.is_none() {
                self.missing(s, key);
            }
            return default.map(str::to_owned);
        };
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() || default.is_some() => Some(text.to_string()),
            DeValue::String(_) => {
                self.problem(&value.span(), &s.key(key), "must not be empty".to_owned());
                None
            }
            other => {
                self.wrong_type(&value.span(), &s.key(key), "a string", other);
                None
            }
        }
    }

    /// A whole number in a range, both ends included.
    pub fn whole(&mut self, s: &Section<'_, '_>, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = s.table.get(key).or_else(|| {
            self.missing(s, key);
            None
        })?;
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(&value.span(), &s.key(key), "a whole number", value.get_ref());
            return None;
        };
        let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok().and_then(|n| u32::try_from(n).ok());
        if let Some(n) = parsed.filter(|n| (least..=most).contains(n)) {
            return Some(n);
        }
        self.problem(&value.span(), &s.key(key), format!("{} is out of range: {least} to {most}", number.as_str()));
        None
    }

    /// A number in a range, both ends included; `5` is as good as `5.0`.
    pub fn real(&mut self, s: &Section<'_, '_>, key: &str, least: f64, most: f64) -> Option<f64> {
        let value = s.table.get(key).or_else(|| {
            self.missing(s, key);
            None
        })?;
        let text = match value.get_ref() {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            other => {
                self.wrong_type(&value.span(), &s.key(key), "a number", other);
                return None;
            }
        };
        if let Some(n) = f64::from_str(text).ok().filter(|n| (least..=most).contains(n)) {
            return Some(n);
        }
        self.problem(&value.span(), &s.key(key), format!("{text} is out of range: {least} to {most}"));
        None
    }

    /// A list without repetitions; `each` reads an item.
    pub fn list<T: PartialEq>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        default: Option<Vec<T>>,
        mut each: impl FnMut(&mut Self, &Spanned<DeValue<'_>>, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(value) = s.table.get(key) else {
            if default.is_none() {
                self.missing(s, key);
            }
            return default;
        };
        let path = s.key(key);
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(&value.span(), &path, "a list", value.get_ref());
            return None;
        };
        if items.is_empty() && default.as_ref().is_none_or(|d| !d.is_empty()) {
            self.problem(&value.span(), &path, "is empty; name at least one".to_owned());
            return None;
        }
        let mut all = Vec::new();
        let mut good = true;
        for item in items.iter() {
            match each(self, item, &path) {
                Some(one) if !all.contains(&one) => all.push(one),
                Some(_) => {
                    self.problem(&item.span(), &path, "is named twice".to_owned());
                    good = false;
                }
                None => good = false,
            }
        }
        good.then_some(all)
    }

    pub fn entries(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        names: &[String],
        default: Option<Vec<String>>,
    ) -> Option<Vec<String>> {
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        self.list(s, key, default, |reader, item, path| reader.word(item, path, &words).map(|i| words[i].to_owned()))
    }

    /// Workloads: those of the list, and those of the family.
    pub fn workloads(&mut self, s: &Section<'_, '_>, names: &Names) -> Option<Vec<String>> {
        let words: Vec<&str> = names.workloads.iter().map(String::as_str).collect();
        self.list(s, "workloads", None, |reader, item, path| {
            let known = |text: &str| words.contains(&text);
            if let (DeValue::String(text), Some(family)) = (item.get_ref(), names.workload_family)
                && !known(text)
            {
                let what = match (family.recognise)(text) {
                    Some(Ok(())) => return Some(text.to_string()),
                    Some(Err(why)) => format!("`{text}`: {why} ({})", family.grammar),
                    None => {
                        let hint = hint(text, &words);
                        format!("unknown entry `{text}`{hint}, and {} like {}", family.grammar, family.example)
                    }
                };
                reader.problem(&item.span(), path, what);
                return None;
            }
            reader.word(item, path, &words).map(|i| words[i].to_owned())
        })
    }

    pub fn choices<T: Copy + PartialEq + ToString>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        values: &[T],
        default: Vec<T>,
    ) -> Option<Vec<T>> {
        let texts: Vec<String> = values.iter().map(T::to_string).collect();
        let words: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.list(s, key, Some(default), |reader, item, path| reader.word(item, path, &words).map(|i| values[i]))
    }

    pub fn switches(&mut self, s: &Section<'_, '_>, key: &str, default: Vec<bool>) -> Option<Vec<bool>> {
        self.list(s, key, Some(default), |reader, item, path| match item.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            other => {
                reader.wrong_type(&item.span(), path, "true or false", other);
                None
            }
        })
    }

    pub fn switch(&mut self, s: &Section<'_, '_>, key: &str, default: bool) -> Option<bool> {
        match s.table.get(key) {
            None => Some(default),
            Some(value) => match value.get_ref() {
                DeValue::Boolean(on) => Some(*on),
                other => {
                    self.wrong_type(&value.span(), &s.key(key), "true or false", other);
                    None
                }
            },
        }
    }

    pub fn choice<T: Copy + ToString>(
        &mut self,
        s: &Section<'_, '_>,
        key: &str,
        values: &[T],
        default: T,
    ) -> Option<T> {
        let Some(value) = s.table.get(key) else { return Some(default) };
        let texts: Vec<String> = values.iter().map(T::to_string).collect();
        let words: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.word(value, &s.key(key), &words).map(|i| values[i])
    }

    /// Index of the word in the choice.
    pub fn word(&mut self, item: &Spanned<DeValue<'_>>, path: &str, words: &[&str]) -> Option<usize> {
        let DeValue::String(text) = item.get_ref() else {
            self.wrong_type(&item.span(), path, "a string", item.get_ref());
            return None;
        };
        let found = words.iter().position(|w| w == text);
        if found.is_none() {
            self.problem(&item.span(), path, format!("unknown entry `{text}`{}", hint(text, words)));
        }
        found
    }
}

pub fn value_span(s: &Section<'_, '_>, key: &str) -> Range<usize> {
    s.table.get(key).map_or(s.span.clone(), Spanned::span)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
