//! Reads TOML that a person wrote: each value has its position, so that a problem names the line, and all problems of a
//! file are found in one pass. Used for studies and the guard's policy.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, Source, TextError};
use crate::words::nearest;

/// Longest value that a message repeats.
const FOUND: usize = 30;

/// `; did you mean X?`, or the list of candidates.
pub fn hint(word: &str, candidates: &[&str]) -> String {
    if candidates.is_empty() {
        return "; there is none".to_owned();
    }
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`? (there is {})", candidates.join(", ")),
        None => format!("; there is {}", candidates.join(", ")),
    }
}

/// Parses a text with `take`, from its top table.
///
/// # Errors
/// All problems, in the order of the file.
pub fn read<T>(
    file: &str,
    text: &str,
    take: impl FnOnce(&mut Reader<'_>, &Section<'_, '_>) -> Option<T>,
) -> Result<T, TextError> {
    let source = Source::new(file, text);
    let mut reader = Reader { source: &source, problems: Vec::new() };
    let found = match DeTable::parse(text) {
        Ok(root) => take(&mut reader, &Section { path: "".into(), span: 0..0, table: root.get_ref() }),
        Err(error) => {
            reader.problem(&error.span().unwrap_or(0..0), "", format!("invalid TOML: {}", error.message()));
            None
        }
    };
    reader.problems.sort_by_key(|p| p.line);
    match found {
        Some(found) if reader.problems.is_empty() => Ok(found),
        _ => Err(TextError { problems: reader.problems }),
    }
}

/// Collects the problems of one text.
pub struct Reader<'a> {
    /// The text.
    pub source: &'a Source<'a>,
    /// The problems so far.
    pub problems: Vec<Problem>,
}

/// A table with the dotted path that leads to it.
pub struct Section<'t, 'i> {
    /// The path; empty at the top.
    pub path: Cow<'static, str>,
    /// Its position.
    pub span: Range<usize>,
    /// Its content.
    pub table: &'t DeTable<'i>,
}

impl Section<'_, '_> {
    /// Dotted path of one of its keys.
    pub fn key(&self, key: &str) -> String {
        let key = if key.is_empty() { "\"\"" } else { key };
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Reader<'a> {
    /// Notes a problem at a byte range.
    pub fn problem(&mut self, span: &Range<usize>, key: &str, what: String) {
        self.problems.push(self.source.problem(span, key, what));
    }

    /// A value as written.
    pub fn written(&self, value: &Spanned<DeValue<'_>>) -> &'a str {
        self.source.text.get(value.span()).unwrap_or("")
    }

    /// Refuses all other keys.
    pub fn known_keys(&mut self, s: &Section<'_, '_>, keys: &[&str]) {
        for key in s.table.keys() {
            let word: &str = key.get_ref();
            if !keys.contains(&word) {
                self.unknown_key(s, key, keys);
            }
        }
    }

    /// Notes an unknown key.
    fn unknown_key(&mut self, s: &Section<'_, '_>, key: &Spanned<Cow<'_, str>>, keys: &[&str]) {
        let word: &str = key.get_ref();
        let what = format!("unknown key{}", hint(word, keys));
        let mut problem = self.source.problem(&key.span(), &s.key(word), what);
        problem.is_unknown_key = true;
        self.problems.push(problem);
    }

    /// Notes that a key is missing.
    pub fn missing(&mut self, s: &Section<'_, '_>, key: &str) {
        self.problem(&s.span, &s.key(key), "missing".to_owned());
    }

    /// A required section.
    pub fn section<'t, 'i>(&mut self, top: &Section<'t, 'i>, key: &'static str) -> Option<Section<'t, 'i>> {
        let Some(value) = top.table.get(key) else {
            self.problem(&top.span, key, format!("missing; add a section [{key}]"));
            return None;
        };
        match value.get_ref() {
            DeValue::Table(table) => Some(Section { path: key.into(), span: value.span(), table }),
            other => {
                self.wrong_type(&value.span(), key, "a section", other);
                None
            }
        }
    }

    /// Notes that a value has the wrong type.
    pub fn wrong_type(&mut self, span: &Range<usize>, key: &str, wanted: &str, found: &DeValue<'_>) {
        self.problem(span, key, format!("must be {wanted}, not {}", kind(found)));
    }

    /// A string; without a default it is required and not empty.
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

    /// A required value.
    fn required<'t, 'i>(&mut self, s: &Section<'t, 'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        let value = s.table.get(key);
        if value.is_none() {
            self.missing(s, key);
        }
        value
    }

    /// A whole number in a range, both ends included.
    pub fn whole(&mut self, s: &Section<'_, '_>, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = self.required(s, key)?;
        self.whole_value(value, &s.key(key), least, most)
    }

    /// The same for an optional value.
    pub fn whole_if(&mut self, s: &Section<'_, '_>, key: &str, least: u32, most: u32) -> Option<u32> {
        let value = s.table.get(key)?;
        self.whole_value(value, &s.key(key), least, most)
    }

    /// The same for a given value.
    pub fn whole_value(&mut self, value: &Spanned<DeValue<'_>>, path: &str, least: u32, most: u32) -> Option<u32> {
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(&value.span(), path, "a whole number", value.get_ref());
            return None;
        };
        let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok().and_then(|n| u32::try_from(n).ok());
        if let Some(n) = parsed.filter(|n| (least..=most).contains(n)) {
            return Some(n);
        }
        self.problem(&value.span(), path, format!("{} is out of range: {least} to {most}", self.written(value)));
        None
    }

    /// A number in a range, both ends included; `5` equals `5.0`.
    pub fn real(&mut self, s: &Section<'_, '_>, key: &str, least: f64, most: f64) -> Option<f64> {
        let value = self.required(s, key)?;
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

    /// A list without repetitions; `each` parses an item.
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

    /// A list of the given words.
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

    /// A list of values, written as their `Display`.
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

    /// A list of true and false.
    pub fn switches(&mut self, s: &Section<'_, '_>, key: &str, default: Vec<bool>) -> Option<Vec<bool>> {
        self.list(s, key, Some(default), |reader, item, path| reader.switch_value(item, path))
    }

    /// True or false.
    pub fn switch_value(&mut self, value: &Spanned<DeValue<'_>>, path: &str) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            _ => {
                let found = self.found(value);
                self.problem(&value.span(), path, format!("must be true or false, not {found}"));
                None
            }
        }
    }

    pub fn switch(&mut self, s: &Section<'_, '_>, key: &str, default: bool) -> Option<bool> {
        s.table.get(key).map_or(Some(default), |value| self.switch_value(value, &s.key(key)))
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

    /// A value as it is named in a message: as written where that is short, else its type.
    fn found(&self, value: &Spanned<DeValue<'_>>) -> String {
        let written = self.written(value);
        match value.get_ref() {
            DeValue::Array(_) | DeValue::Table(_) => kind(value.get_ref()).to_owned(),
            _ if written.chars().count() > FOUND || written.contains('\n') => kind(value.get_ref()).to_owned(),
            _ => written.to_owned(),
        }
    }

    /// Index of the word among the given ones.
    pub fn word(&mut self, item: &Spanned<DeValue<'_>>, path: &str, words: &[&str]) -> Option<usize> {
        let DeValue::String(text) = item.get_ref() else {
            let (found, words) = (self.found(item), words.join("\", \""));
            self.problem(&item.span(), path, format!("must be one of \"{words}\", not {found}"));
            return None;
        };
        let found = words.iter().position(|w| w == text);
        if found.is_none() {
            self.problem(&item.span(), path, format!("unknown entry `{text}`{}", hint(text, words)));
        }
        found
    }
}

/// Position of a key's value, else of the section.
pub fn value_span(s: &Section<'_, '_>, key: &str) -> Range<usize> {
    s.table.get(key).map_or(s.span.clone(), Spanned::span)
}

/// Name of a value's type.
pub fn kind(value: &DeValue<'_>) -> &'static str {
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
