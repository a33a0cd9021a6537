//! Keys of classes that `guard set` puts over the files, as TOML: a later value of a key replaces an earlier one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vmio_model::problem::Problem;

use super::error::Senseless;
use super::key::Key;
use crate::undo_log::{Entry, HOST};

/// Name of the keys over the files in messages.
pub(super) const OVER: &str = "guard set";

/// A change of the keys over the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Sets these keys of a class.
    Set {
        /// The class.
        class: String,
        /// As they would be written in a file.
        keys: BTreeMap<Key, String>,
    },
    /// Removes the keys of a class, or of all.
    Clear {
        /// Which; all without.
        class: Option<String>,
    },
}

/// Entry of the keys over the files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SetOver(pub(super) String);

impl Entry for SetOver {
    const PART: &'static str = "set";
    type Subject = ();

    fn subject(&self) {}

    fn namespace(&self) -> u64 {
        HOST
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Over {
    #[serde(default)]
    class: BTreeMap<String, toml::Table>,
}

/// Applies a change to the keys over the files.
pub fn changed(over: &str, change: &Change) -> Result<String, Senseless> {
    let before: Over = toml::from_str(over).map_err(Senseless::Before)?;
    let mut all = before.class;
    match change {
        Change::Set { class, keys } if keys.is_empty() => {
            return Err(Senseless::NothingToSet { class: class.clone() });
        }
        Change::Set { class, keys } => {
            let of = all.entry(class.clone()).or_default();
            of.extend(keys.iter().map(|(key, value)| (key.word().to_owned(), written(*key, value))));
        }
        Change::Clear { class: None } => all.clear(),
        Change::Clear { class: Some(class) } => {
            if all.remove(class).is_none() {
                return Err(Senseless::NothingToClear(class.clone()));
            }
        }
    }
    if all.is_empty() {
        return Ok(String::new());
    }
    toml::to_string(&Over { class: all }).map_err(Senseless::NoToml)
}

/// The command that makes this change, as far as a problem of it needs it.
fn argument(change: &Change) -> String {
    match change {
        Change::Set { class, keys } => {
            let keys: String = keys.keys().map(|key| format!(" {}", key.option())).collect();
            format!("{OVER} class {class}{keys}")
        }
        Change::Clear { class: Some(class) } => format!("{OVER} class {class} --clear"),
        Change::Clear { class: None } => format!("{OVER} --clear"),
    }
}

/// The problems that a change causes in a policy that had only those of `before`: what was right in the files is its
/// fault.
pub(super) fn caused(change: &Change, problems: Vec<Problem>, before: &[Problem]) -> Vec<Problem> {
    let argument = argument(change);
    let is_its = |problem: &Problem| !problem.file.starts_with(OVER) && !before.contains(problem);
    let named = |problem: Problem| if is_its(&problem) { problem.caused_by(&argument) } else { problem };
    problems.into_iter().map(named).collect()
}

/// A problem of the keys over the files with the argument that set what is wrong; of the files as it is.
pub(super) fn named(over: &str, problem: Problem) -> Problem {
    if problem.file != OVER {
        return problem;
    }
    let Ok(Over { class }) = toml::from_str(over) else { return problem };
    for class in class.keys() {
        let path = format!("class.{class}");
        let keys = Key::ALL.into_iter().map(|key| (format!("{path}.{}", key.word()), format!(" {}", key.option())));
        if let Some((_, option)) = keys.chain([(path.clone(), String::new())]).find(|(key, _)| *key == problem.key) {
            return problem.of_argument(&format!("{OVER} class {class}{option}"));
        }
    }
    problem
}

/// A number, or else a text, which the policy checks.
fn written(key: Key, value: &str) -> toml::Value {
    match (key, value.parse::<u32>()) {
        (Key::Priority | Key::Weight | Key::CpuWeight, Ok(number)) => toml::Value::Integer(number.into()),
        _ => toml::Value::String(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::policy::groups::GroupKey;
    use vmio_model::policy::{Links, Policy};

    use super::*;
    use crate::testing::form_stays;

    #[test]
    fn the_form_of_entries_stays() {
        form_stays::<SetOver>("set", r#""[class.gold]""#);
    }

    fn set(over: &str, class: &str, keys: &[(Key, &str)]) -> String {
        let keys = keys.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        changed(over, &Change::Set { class: class.to_owned(), keys }).unwrap()
    }

    #[test]
    fn later_set_replaces_earlier() {
        let over = set("", "gold", &[(Key::Max, "500Mbit"), (Key::Priority, "2")]);
        let over = set(&over, "gold", &[(Key::Max, "400Mbit")]);
        let over = set(&over, "a.b", &[(Key::Weight, "3")]);
        let classes: toml::Table = over.parse().unwrap();
        assert_eq!(classes["class"]["gold"]["max"].as_str(), Some("400Mbit"));
        assert_eq!(classes["class"]["gold"]["priority"].as_integer(), Some(2));
        assert_eq!(classes["class"]["a.b"]["weight"].as_integer(), Some(3));
        let cleared = changed(&over, &Change::Clear { class: Some("gold".into()) }).unwrap();
        assert!(!cleared.contains("gold") && cleared.contains("a.b"), "{cleared}");
        assert_eq!(changed(&over, &Change::Clear { class: None }).unwrap(), "");
        let again = changed(&cleared, &Change::Clear { class: Some("gold".into()) }).unwrap_err();
        assert!(again.to_string().contains("gold"));
        assert!(changed("", &Change::Set { class: "gold".into(), keys: BTreeMap::new() }).is_err());
    }

    #[test]
    fn keys_are_keys_of_a_class() {
        let values = ["10Mbit", "20Mbit", "2", "3", "25ms", "limit", "drop", "50ms", "400", "150%", "4GiB"];
        let keys: Vec<(Key, &str)> = Key::ALL.into_iter().zip(values).collect();
        assert_eq!(keys.len(), values.len());
        let over = set("", "gold", &keys);
        let file = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\n[[interface]]\nmatch = { name = \"tap*\" }\nclass = \"gold\"\n";
        let read = |over: &str| {
            Policy::read_under(&[("guard.toml", file)], ("guard set", over), &Links::default()).unwrap().policy
        };
        let gold = read(&over).class("gold").clone();
        assert_ne!(read("").class("gold"), &gold);
        assert!(gold.queue.is_some() && gold.limit_local && gold.excess.burst().is_some());
        for key in GroupKey::ALL {
            assert!(gold.group.value(key).is_some(), "{}", key.word());
        }
    }

    #[test]
    fn problems_name_the_argument() {
        let file = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\nmax = \"2Mbit\"\n[class.\"a.b\"]\n";
        let said = |over: &str| {
            let read = Policy::read_under(&[("guard.toml", file)], (OVER, over), &Links::default());
            read.unwrap_err().problems.into_iter().map(|problem| named(over, problem).to_string()).collect::<Vec<_>>()
        };
        let over = set("", "gold", &[(Key::Min, "3Mbit"), (Key::CpuMax, "2")]);
        let over = set(&over, "a.b", &[(Key::Max, "1Mbps")]);
        let all = said(&set(&over, "tin", &[(Key::Local, "limit")]));
        assert_eq!(all.len(), 4, "{all:?}");
        for begin in [
            "guard set class a.b --max: `bps` means",
            "guard set class gold --cpu-max: `2` is a bare number",
            "guard set class gold --min: 3 Mbit/s is above the maximum of 2 Mbit/s (guard.toml:4:7)",
            "guard set class tin: no file has such a class",
        ] {
            assert!(all.iter().any(|said| said.starts_with(begin)), "{begin}: {all:?}");
        }
        let over = set("", "gold", &[(Key::Max, "1Mbit")]);
        let file = file.replace("max = \"2", "min = \"2");
        let error = Policy::read_under(&[("guard.toml", &file)], (OVER, &over), &Links::default()).unwrap_err();
        let problem = error.problems.into_iter().next().unwrap();
        let of_the_file = "guard.toml:4: class.gold.min: 2 Mbit/s is above the maximum of 1 Mbit/s (guard set)";
        assert_eq!(named(&over, problem).to_string(), of_the_file);
        // Only what was wrong before is the file's.
        let change = Change::Set { class: "gold".into(), keys: [(Key::Max, "1Mbit".to_owned())].into() };
        let file = format!("{file}[class.tin]\nmin = \"2\"\n");
        let problems = |over: &str| {
            let read = Policy::read_under(&[("guard.toml", &file)], (OVER, over), &Links::default());
            read.unwrap_err().problems
        };
        let all = caused(&change, problems(&over), &problems(""));
        let said: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert!(said.contains(&format!("guard set class gold --max: {of_the_file}")), "{said:?}");
        assert!(said.iter().any(|said| said.starts_with("guard.toml:7: class.tin.min: ")), "{said:?}");
    }

    #[test]
    fn values_cannot_inject_toml() {
        let over = set("", "gold\"]\n[uplink.eth0", &[(Key::Max, "1Mbit\"\ncapacity = \"1")]);
        let table: toml::Table = over.parse().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["class"]);
        let class = table["class"].as_table().unwrap();
        assert_eq!(class.keys().collect::<Vec<_>>(), ["gold\"]\n[uplink.eth0"]);
        assert_eq!(class.values().next().unwrap().as_table().unwrap().len(), 1);
    }
}
