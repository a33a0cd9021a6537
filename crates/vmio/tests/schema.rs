//! `vmio schema`: every JSON output has a schema, and real outputs are what it says.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::schema;
use crate::help::state_dir::StateDir;

use std::collections::BTreeSet;

use schema::{closed, open, values};
use serde_json::Value;
use vmio::cmd::schema::{ALL, DIALECT};

/// Commands that print no JSON of vmio's, and why.
const SILENT: &[(&str, &str)] = &[
    ("study show", "TOML, to begin a study of one's own"),
    ("runs delete", "says nothing on standard output"),
    ("volume delete", "the same"),
    ("image open", "an address, while it serves"),
    ("image serve", "serves until it is ended"),
    ("volume serve", "the same"),
    ("volume policy", "TOML, for the guard"),
    ("lab run", "passes on what the command in the lab host prints"),
    ("guard apply", "says nothing on standard output, as the next two"),
    ("guard confirm", ""),
    ("guard undo", ""),
    ("completions", "a shell's own language"),
    ("man", "writes files"),
];

/// Outputs in a form that another program prescribes: without a version of ours.
const FOREIGN: [&str; 2] = ["runs-export-pkb", "runs-export-github"];

/// Every command that has no further ones below it, as it is typed.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    let below: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
    if below.is_empty() {
        found.insert(path.to_owned());
    }
    for one in below {
        leaves(one, format!("{path} {}", one.get_name()).trim(), found);
    }
}

#[test]
fn every_command_has_its_outputs_or_says_why_not() {
    let command = vmio::cli::command();
    let mut all = BTreeSet::new();
    leaves(&command, "", &mut all);
    let mut told: BTreeSet<String> = SILENT.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(told.len(), SILENT.len());
    for typed in ALL.iter().flat_map(|output| output.commands) {
        let words: Vec<&str> = typed.split(' ').collect();
        let verbs = words.iter().take_while(|w| !w.starts_with('-')).count();
        let found = words[..verbs].iter().try_fold(&command, |c, verb| c.find_subcommand(verb));
        let found = found.unwrap_or_else(|| panic!("vmio {typed}: no such command"));
        for option in words[verbs..].iter().filter_map(|w| w.strip_prefix("--")) {
            // Options of all verbs are declared at the top.
            let there = found.get_arguments().chain(command.get_arguments()).any(|a| a.get_long() == Some(option));
            assert!(there, "vmio {typed}: no such option");
        }
        let path = words[..verbs].join(" ");
        assert!(!SILENT.iter().any(|(silent, _)| *silent == path), "vmio {typed} is said to print none");
        told.insert(path);
    }
    // A bare `vmio` is a scan.
    told.remove("");
    let missing: Vec<_> = all.difference(&told).collect();
    assert!(missing.is_empty(), "what do these print with --json? {missing:?}");
    assert_eq!(told.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new(), "no commands (any more)");
}

/// Every object and value that a schema describes, with where it stands.
fn described(schema: &Value, at: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(at, schema);
    let below =
        |key: &str| schema[key].as_object().into_iter().flatten().map(move |(name, s)| (format!("{at}/{name}"), s));
    for (at, s) in below("properties").chain(below("$defs")).chain(below("patternProperties")) {
        described(s, &at, visit);
    }
    for key in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        schema[key].as_array().into_iter().flatten().for_each(|s| described(s, at, visit));
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            described(&schema[key], at, visit);
        }
    }
}

#[test]
fn every_output_keeps_to_the_contract() {
    let names: BTreeSet<_> = ALL.iter().map(|output| output.name).collect();
    assert_eq!(names.len(), ALL.len(), "one name each");
    for output in ALL {
        let name = output.name;
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
        assert!(!output.commands.is_empty() && !output.about.is_empty() && !output.about.ends_with('.'), "{name}");
        let schema = output.schema();
        assert_eq!(schema["$schema"], DIALECT);
        assert!(jsonschema::meta::is_valid(&schema), "{name}: {:?}", jsonschema::meta::validate(&schema));
        assert_eq!(schema["title"], format!("vmio {name}"));
        let about = schema["description"].as_str().unwrap();
        assert!(about.contains(&format!("`vmio {}`", output.commands[0])), "{about}");
        assert_eq!(about.contains("A line of the JSON Lines"), output.layout.lines, "{about}");
        let required = schema["required"].as_array().is_some_and(|all| all.contains(&"schema_version".into()));
        assert_eq!(required, !FOREIGN.contains(&name), "{name}: schema_version");
        // Two types of one name in one output: the second would be called Cell2 (#[schemars(rename)]).
        let numbered = |kind: &String| kind.ends_with(|c: char| c.is_ascii_digit());
        let kinds = schema["$defs"].as_object();
        assert_eq!(kinds.into_iter().flat_map(|all| all.keys()).find(|kind| numbered(kind)), None, "{name}");
        described(&schema, name, &mut |at, schema| {
            for (field, of) in schema["properties"].as_object().into_iter().flatten() {
                // A constant is described where its variant is.
                let said = of["description"].is_string() || of["const"].is_string();
                assert!(said, "{at}: {field} has no word on what it is: {of}");
            }
            assert!(
                schema.get("properties").is_none() || schema.get("additionalProperties").is_none(),
                "{at} is closed"
            );
            if let Some(text) = schema["description"].as_str() {
                for code in ["[`", "](", "::", "`None`", "`Some", "SCHEMA_VERSION", "\n "] {
                    assert!(!text.contains(code), "{at}: {code:?} in {text:?}");
                }
            }
        });
    }
}

#[test]
fn the_verb_lists_prints_and_refuses() {
    let state = StateDir::new();
    let printed = |args: &[&str]| state.vmio(args).with(0).out;
    let list = printed(&["schema"]);
    let lines = list.lines().filter(|l| !l.starts_with(' ')).count();
    assert_eq!(lines, ALL.len(), "{list}");
    for output in ALL {
        assert!(list.contains(&format!("\n{} ", output.name)) || list.starts_with(output.name), "{list}");
        let text = printed(&["schema", output.name]);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), output.schema());
        assert!(!text.contains('\u{1b}') && text.ends_with("}\n"));
    }
    assert!(list.contains("vmio top --json (one object a line)"), "{list}");
    // --json is what it prints anyway.
    assert_eq!(printed(&["schema", "scan", "--json"]), printed(&["schema", "scan"]));
    for (word, hint) in [
        ("scna", "did you mean scan?"),
        ("runs-show", "did you mean tax?"),
        ("guard-pln", "did you mean guard-plan?"),
        ("zzz", "`vmio schema` lists all"),
    ] {
        let ended = state.vmio(&["schema", word]).with(2);
        assert!(ended.out.is_empty(), "{}", ended.out);
        ended.says(&[&format!("unknown JSON output {word}"), hint]);
    }
    for shell in ["bash", "zsh"] {
        let script = printed(&["completions", shell]);
        assert!(ALL.iter().all(|output| script.contains(output.name)), "{shell}");
    }
    assert!(printed(&["schema", "--help"]).contains("Examples:"));
    assert_eq!(state.files(), [""; 0], "nothing is made by asking");
}

/// Every place of an object in a value, as a JSON pointer.
fn objects(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(all) => {
            found.push(at.clone());
            let name = |key: &str| key.replace('~', "~0").replace('/', "~1");
            all.iter().for_each(|(key, v)| objects(v, format!("{at}/{}", name(key)), found));
        }
        Value::Array(all) => all.iter().take(2).enumerate().for_each(|(i, v)| objects(v, format!("{at}/{i}"), found)),
        _ => {}
    }
}

#[test]
fn a_field_more_or_less_is_seen() {
    let view = common::scan::view();
    let text = vmio::report::scan::json(&view);
    let [value] = &values("scan", &text)[..] else { panic!("one document") };
    let (open, closed) = (open("scan"), closed("scan"));
    assert!(open.is_valid(value) && closed.is_valid(value));
    let mut places = Vec::new();
    objects(value, String::new(), &mut places);
    // Maps whose keys are data.
    let free = |at: &str| ["/ids", "/read", "/memory_by_node"].iter().any(|end| at.ends_with(end));
    places.retain(|at| !free(at));
    assert!(places.len() > 40, "{places:?}");
    for at in places {
        let mut more = value.clone();
        more.pointer_mut(&at).unwrap()["zz_unknown"] = 1.into();
        assert!(open.is_valid(&more), "a reader must take {at}/zz_unknown");
        assert!(!closed.is_valid(&more), "{at}/zz_unknown is printed and described nowhere");
    }
    for field in ["schema_version", "guests", "unread", "findings_ignored"] {
        let mut less = value.clone();
        less.as_object_mut().unwrap().remove(field).unwrap();
        assert!(!open.is_valid(&less), "{field} is always there");
    }
    let mut wrong = value.clone();
    wrong["guests"][0]["findings"][0]["severity"] = "dreadful".into();
    assert!(!open.is_valid(&wrong));
}
