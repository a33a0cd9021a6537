//! Makes the schema (JSON Schema, draft 2020-12) of a type, worded for readers of the output.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The dialect that the schemas are in.
pub const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of a type, under a title; `printed` names the commands that print it.
pub fn schema(root: fn(&mut SchemaGenerator) -> Schema, title: String, printed: &str) -> Value {
    // As it is written, not as it is read: a field that is always written is required.
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(Open)
        .with_transform(Words)
        .with_transform(Variants);
    let mut schema = root(&mut settings.into_generator());
    let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let about = format!("{about}\n\n{printed}");
    schema.insert("title".into(), title.into());
    schema.insert("description".into(), about.trim().into());
    schema.into()
}

/// Keywords in reading order; `$defs` come last.
const FIRST: [&str; 6] = ["$schema", "title", "description", "type", "properties", "required"];

/// A schema as it is printed.
#[expect(clippy::disallowed_methods, reason = "a schema is described by its own dialect")]
pub fn text(schema: &Value) -> String {
    let text = serde_json::to_string_pretty(&Ordered(schema)).expect("string keys, and no failing serialiser");
    text + "\n"
}

struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self.0.as_object().into_iter().flatten();
        let place = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(key, _)| place(key));
        serializer.collect_map(all)
    }
}

/// Removes `additionalProperties: false`, which some types have for reading: fields may be added within a major
/// version.
#[derive(Debug, Clone)]
struct Open;

impl Transform for Open {
    fn transform(&mut self, schema: &mut Schema) {
        if schema.get("properties").is_some() {
            schema.remove("additionalProperties");
        }
        transform_subschemas(self, schema);
    }
}

/// Doc comments are written for readers of the code: lines are joined, links lose their brackets, and the
/// value that is not there has the name that it has in JSON.
#[derive(Debug, Clone)]
struct Words;

impl Transform for Words {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = words(text);
        }
        transform_subschemas(self, schema);
    }
}

/// Copies the description of an enum's variant to the one field that names the variant.
#[derive(Debug, Clone)]
struct Variants;

impl Transform for Variants {
    fn transform(&mut self, schema: &mut Schema) {
        for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(about) = variant.get("description").cloned() else { continue };
            let fields = variant.get_mut("properties").and_then(Value::as_object_mut);
            let Some(fields) = fields.filter(|fields| fields.len() == 1) else { continue };
            for field in fields.values_mut().filter_map(Value::as_object_mut) {
                field.entry("description").or_insert_with(|| about.clone());
            }
        }
        transform_subschemas(self, schema);
    }
}

fn words(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n").replace("`None`", "`null`");
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        plain += &format!("{before}`{name}`");
        // `[`Words`](crate::somewhere)`
        rest = after.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(after, |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn doc_comments_become_words() {
        assert_eq!(
            words("Of [`a`](crate::b) and\n[`c`]: `None`.\n\nMore\nof it."),
            "Of `a` and `c`: `null`.\n\nMore of it."
        );
        assert_eq!(words("an [`open end"), "an [`open end");
    }
}
