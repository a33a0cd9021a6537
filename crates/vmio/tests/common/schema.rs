//! Holds real outputs against their schemas. A reader must take fields that it does not know, so the schemas
//! allow them; here they are closed, so that a field that is printed and described nowhere is a failure.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};
use vmio::cmd::schema::{ALL, Output};

/// Keywords that hold schemas by name.
const NAMED: [&str; 3] = ["properties", "patternProperties", "$defs"];
/// Keywords that hold a list of schemas, all of the same value.
const SAME: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// The output of that name.
pub fn output(name: &str) -> &'static Output {
    ALL.iter().find(|output| output.name == name).unwrap_or_else(|| panic!("no output {name}"))
}

/// The schema as a reader gets it.
pub fn open(name: &str) -> Validator {
    jsonschema::draft202012::new(&output(name).schema()).unwrap()
}

/// The schema with every object closed: what it does not name may not be there.
pub fn closed(name: &str) -> Validator {
    let mut schema = output(name).schema();
    close(&mut schema, false);
    jsonschema::draft202012::new(&schema).unwrap()
}

/// `part`: it says more of a value that the schema around it describes, which is closed there.
fn close(schema: &mut Value, part: bool) {
    let Value::Object(all) = schema else { return };
    let has_fields = all.contains_key("properties");
    let parts = SAME.iter().any(|key| all.contains_key(*key));
    if has_fields && !part {
        assert!(!all.contains_key("$ref"), "what is closed cannot be a part: {all:?}");
        all.insert(if parts { "unevaluatedProperties" } else { "additionalProperties" }.into(), json!(false));
    }
    for (key, below) in all {
        match below {
            Value::Object(named) if NAMED.contains(&key.as_str()) => named.values_mut().for_each(|s| close(s, false)),
            Value::Array(list) if SAME.contains(&key.as_str()) => {
                list.iter_mut().for_each(|s| close(s, has_fields || part))
            }
            Value::Array(list) if key == "prefixItems" => list.iter_mut().for_each(|s| close(s, false)),
            below if key == "items" || key == "additionalProperties" => close(below, false),
            _ => {}
        }
    }
}

/// The values of an output: one, or one a line.
pub fn values(name: &str, text: &str) -> Vec<Value> {
    let of = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
    if output(name).layout.lines { text.lines().map(of).collect() } else { vec![of(text)] }
}

/// Asserts that a real output is what its schema says, and has no field more. What fits the closed schema fits the
/// open one.
#[track_caller]
pub fn fits(name: &str, text: &str) {
    let (closed, values) = (closed(name), values(name, text));
    assert!(!values.is_empty(), "{name}: nothing was printed");
    for value in &values {
        let wrong: Vec<String> =
            closed.iter_errors(value).take(5).map(|e| format!("{}: {e:.300}", e.instance_path())).collect();
        assert!(wrong.is_empty(), "{name}:\n{}\n{value:.1000}", wrong.join("\n"));
    }
}

/// Every field that a schema names, as `Type.field`; a type's name is empty at the root.
pub fn named(name: &str) -> BTreeSet<String> {
    fn walk(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
        let Value::Object(all) = schema else { return };
        for (key, below) in all {
            match below {
                Value::Object(defs) if key == "$defs" => defs.iter().for_each(|(name, s)| walk(s, name, found)),
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    if key == "properties" {
                        found.extend(named.keys().map(|field| format!("{at}.{field}")));
                    }
                    named.values().for_each(|s| walk(s, at, found));
                }
                Value::Array(list) if key != "required" && key != "enum" => {
                    list.iter().for_each(|s| walk(s, at, found))
                }
                below if key == "items" || key == "additionalProperties" => walk(below, at, found),
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&output(name).schema(), "", &mut found);
    found
}

/// The fields of [`named`] that a real output has, other than as `null`.
pub fn seen(name: &str, text: &str) -> BTreeSet<String> {
    let root = output(name).schema();
    let mut found = BTreeSet::new();
    values(name, text).iter().for_each(|value| look(&root, &root, value, "", &mut found));
    found
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> (&'a Value, Option<&'a str>) {
    match schema["$ref"].as_str().and_then(|to| to.strip_prefix("#/$defs/")) {
        Some(name) => (&root["$defs"][name], Some(name)),
        None => (schema, None),
    }
}

/// Whether a value can be what one of several schemas describes: by its type and its fixed fields.
fn may_be(root: &Value, schema: &Value, value: &Value) -> bool {
    let (schema, _) = resolved(root, schema);
    let kind = |kind: &str| match kind {
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        _ => value.is_number() || value.is_boolean(),
    };
    let fixed = |(field, s): (&String, &Value)| s.get("const").is_none_or(|only| value.get(field) == Some(only));
    schema["type"].as_str().is_none_or(kind)
        && schema.get("const").is_none_or(|only| only == value)
        && schema["properties"].as_object().is_none_or(|all| all.iter().all(fixed))
}

fn look(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut BTreeSet<String>) {
    let (schema, name) = resolved(root, schema);
    let at = name.unwrap_or(at);
    for below in SAME.iter().filter_map(|key| schema[*key].as_array()).flatten() {
        if may_be(root, below, value) {
            look(root, below, value, at, found);
        }
    }
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match schema["properties"].get(field) {
                    Some(below) => {
                        if !value.is_null() {
                            found.insert(format!("{at}.{field}"));
                        }
                        look(root, below, value, at, found);
                    }
                    None => look(root, &schema["additionalProperties"], value, at, found),
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                look(root, schema["prefixItems"].get(i).unwrap_or(&schema["items"]), item, at, found);
            }
        }
        _ => {}
    }
}
