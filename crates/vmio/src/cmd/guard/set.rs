//! `vmio guard set`: keys of a class over the files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_guard::api::Set;
use vmio_guard::manager::document::{GuestDocument, LimitDocument, Status};
use vmio_guard::manager::{Change, Key};
use vmio_model::failure::{Exit, Failure};

use super::{ask, run};
use crate::context::{Context, Outcome};
use crate::report::format::{count, shell};
use crate::term;

const USAGE: &str = "vmio guard set class NAME --KEY VALUE [--KEY VALUE]...
       vmio guard set [class NAME] --clear";

#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = "Examples:
  vmio guard set class gold --max 500Mbit
  vmio guard set class gold --min 100Mbit --priority 2 --confirm 60s
  vmio guard set class gold --clear      as the files have it
  vmio guard set --clear                 all classes as the files have them

What is set holds until it is cleared or the host boots, also when the daemon
ends. `vmio guard status` shows it. To make it permanent, edit the policy file.")]
pub struct Args {
    /// What is set: the word `class`
    #[arg(value_name = "class")]
    kind: Option<String>,
    /// Name of the class
    name: Option<String>,
    /// What is too much, which the error answers
    #[arg(hide = true)]
    more: Vec<String>,
    /// Guaranteed rate
    #[arg(long, value_name = "RATE", conflicts_with = "clear")]
    min: Option<String>,
    /// Upper limit
    #[arg(long, value_name = "RATE", conflicts_with = "clear")]
    max: Option<String>,
    /// 1 is served first, 8 last
    #[arg(long, value_name = "N", conflicts_with = "clear")]
    priority: Option<String>,
    /// Share of spare inside a priority
    #[arg(long, value_name = "N", conflicts_with = "clear")]
    weight: Option<String>,
    /// How long excess may wait on this host, such as 25ms
    #[arg(long, value_name = "TIME", conflicts_with = "clear")]
    queue: Option<String>,
    /// Local traffic: `count` it, or `limit` it as well
    #[arg(long, value_name = "count|limit", conflicts_with = "clear")]
    local: Option<String>,
    /// What is above the maximum: let it wait (`queue`) or `drop` it
    #[arg(long, value_name = "queue|drop", conflicts_with = "clear")]
    excess: Option<String>,
    /// How much of the maximum may pass at once with --excess drop, such as 50ms
    #[arg(long, value_name = "TIME", conflicts_with = "clear")]
    burst: Option<String>,
    /// The guest's share of busy processors, 1 to 10000
    #[arg(long, value_name = "N", conflicts_with = "clear")]
    cpu_weight: Option<String>,
    /// Most processor time of the guest: 150% is one and a half processors
    #[arg(long, value_name = "PERCENT", conflicts_with = "clear")]
    cpu_max: Option<String>,
    /// Most memory of the guest, such as 4GiB
    #[arg(long, value_name = "SIZE", conflicts_with = "clear")]
    memory_max: Option<String>,
    /// Take away what was set
    #[arg(long)]
    clear: bool,
    /// Revert the change after this time unless `vmio guard confirm` comes before
    #[arg(long, value_name = "TIME", value_parser = run::time_parser(), conflicts_with = "clear")]
    confirm: Option<Duration>,
}

/// What `guard set` has changed.
#[derive(Serialize, JsonSchema)]
pub struct Changed<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// The class; null where all that was set of any class was cleared.
    class: Option<&'a str>,
    /// Keys of the class that were set, with their values as they were given; empty where it was cleared.
    set: Vec<SetKey<'a>>,
    /// Whether what was set before was taken away.
    cleared: bool,
    /// All that is set over the files now, as TOML; empty where nothing is.
    over: &'a str,
    /// Revision of the policy in force.
    revision: u64,
    /// The change is taken back in so many seconds unless it is confirmed; null where it stays.
    taken_back_in_seconds: Option<f64>,
    /// Warnings of the policy in force.
    warnings: &'a [String],
}

/// A key that was set.
#[derive(Serialize, JsonSchema)]
struct SetKey<'a> {
    /// As the policy's files call it.
    key: &'static str,
    /// Its value as it was given.
    value: &'a str,
}

/// Runs the verb.
pub fn set(args: &Args, context: &Context) -> Outcome {
    let given = [
        (Key::Min, &args.min),
        (Key::Max, &args.max),
        (Key::Priority, &args.priority),
        (Key::Weight, &args.weight),
        (Key::Queue, &args.queue),
        (Key::Local, &args.local),
        (Key::Excess, &args.excess),
        (Key::Burst, &args.burst),
        (Key::CpuWeight, &args.cpu_weight),
        (Key::CpuMax, &args.cpu_max),
        (Key::MemoryMax, &args.memory_max),
    ];
    let keys: BTreeMap<Key, String> = given.into_iter().filter_map(|(key, v)| Some((key, v.clone()?))).collect();
    let state = context.paths.option();
    let class = class(args, &keys, &state)?;
    let change = match class.map(str::to_owned) {
        class if args.clear => Change::Clear { class },
        Some(class) if !keys.is_empty() => Change::Set { class, keys: keys.clone() },
        class => {
            let what = match &class {
                Some(class) => format!("nothing to set for class {class}"),
                None if keys.is_empty() => "nothing to set".to_owned(),
                None => "no class is named".to_owned(),
            };
            let words: Vec<&str> = ["class"].into_iter().chain(class.as_deref()).collect();
            let failure = Failure::new(Exit::Usage, what);
            return Err(failure.help(format!("for example: {}", meant(&words, &keys, false, &state))).into());
        }
    };
    let confirm_seconds = args.confirm.map(|limit| limit.as_secs_f64());
    let client = ask::client(context);
    client.post("/v1/set", &Set { change, confirm_seconds }).map_err(|e| ask::failed(e, context))?;
    let status = ask::after_change(&client, context)?;
    let set: Vec<SetKey<'_>> = keys.iter().map(|(key, value)| SetKey { key: key.word(), value }).collect();
    let said: Vec<String> = set.iter().map(|SetKey { key, value }| format!("{key} {value}")).collect();
    let said = if args.clear { "as the files have it".to_owned() } else { said.join(", ") };
    if context.json {
        term::json(&Changed {
            schema_version: "1.0",
            class,
            set,
            cleared: args.clear,
            over: &status.policy.over,
            revision: status.policy.revision,
            taken_back_in_seconds: status.policy.taken_back_in_seconds,
            warnings: &status.policy.warnings,
        })?;
    }
    let who = class.map_or_else(|| "all classes".to_owned(), |class| format!("class {class}"));
    let done = match class.and_then(|class| not_of_guests(class, &keys, &status, &state)) {
        None => "in force".to_owned(),
        Some(why) if keys.keys().all(|key| key.is_of_groups()) => format!("set, but {why}"),
        Some(why) => format!("in force, but {why}"),
    };
    ask::done(&format!("{who}: {said}, {done}"), args.confirm, &status, context)
}

/// Why what was set of the control groups of a class's guests is not in force.
fn not_of_guests(class: &str, keys: &BTreeMap<Key, String>, status: &Status, state: &str) -> Option<String> {
    let words: Vec<&str> = keys.keys().filter(|key| key.is_of_groups()).map(|key| key.word()).collect();
    if words.is_empty() {
        return None;
    }
    let members = status.pools.iter().flat_map(|pool| &pool.members).filter(|member| member.class == class);
    let names: BTreeSet<&str> =
        members.flat_map(|member| member.guest.iter().chain([&member.name])).map(String::as_str).collect();
    let guests: Vec<&GuestDocument> =
        status.guests.iter().filter(|guest| names.contains(guest.guest.as_str())).collect();
    let is_off = |limit: &&LimitDocument| words.contains(&limit.key.as_str()) && limit.value.is_none();
    match guests.iter().filter(|guest| guest.limits.iter().any(|limit| is_off(&limit))).count() {
        _ if guests.is_empty() => Some("no guest of this class has a control group here".to_owned()),
        0 => None,
        off => Some(format!("not for {} of this class: vmio guard status{state}", count(off, "guest"))),
    }
}

/// The class that is named; `None` without one.
fn class<'a>(args: &'a Args, keys: &BTreeMap<Key, String>, state: &str) -> Result<Option<&'a str>, Failure> {
    let words: Vec<&str> = args.kind.iter().chain(&args.name).chain(&args.more).map(String::as_str).collect();
    match words.as_slice() {
        [] => Ok(None),
        ["class", name] if !name.contains('=') => Ok(Some(*name)),
        ["class"] => {
            let help = format!("for example: {}", meant(&words, keys, args.clear, state));
            Err(Failure::new(Exit::Usage, "the name of the class is missing").help(help))
        }
        _ => {
            let what = format!("set takes the word class, a name and options, not `{}`", words.join(" "));
            let meant = meant(&words, keys, args.clear, state);
            Err(Failure::new(Exit::Usage, what).help(format!("did you mean: {meant}")))
        }
    }
}

/// The command line that is likely meant with these words and options.
fn meant(words: &[&str], options: &BTreeMap<Key, String>, clear: bool, state: &str) -> String {
    let (mut name, mut keys) = (None, options.clone());
    let mut rest = words.strip_prefix(&["class"]).unwrap_or(words).iter();
    while let Some(word) = rest.next() {
        let (key, value) = word.split_once('=').map_or((*word, None), |(key, value)| (key, Some(value)));
        let key = Key::ALL.into_iter().find(|known| known.word() == key.replace('-', "_"));
        match (key, value) {
            (Some(key), Some(value)) => drop(keys.insert(key, value.to_owned())),
            (Some(key), None) if name.is_some() => {
                keys.extend(rest.next().map(|value| (key, (*value).to_owned())));
            }
            _ => name = name.or(Some(*word)),
        }
    }
    let mut command = ["class", name.unwrap_or("NAME")].map(str::to_owned).to_vec();
    command.extend(keys.iter().flat_map(|(key, value)| [key.option(), value.clone()]));
    let more: &[&str] = match (clear, keys.is_empty()) {
        (true, _) => &["--clear"],
        (false, true) => &["--max", "500Mbit"],
        (false, false) => &[],
    };
    command.extend(more.iter().map(|word| (*word).to_owned()));
    format!("vmio guard set{state} {}", shell(&command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_likely_meant() {
        let of = |words: &[&str]| meant(words, &BTreeMap::new(), false, "");
        for (words, command) in [
            (&["gold", "max=500Mbit"][..], "class gold --max 500Mbit"),
            (&["class", "gold", "max=500Mbit", "cpu_max=150%"], "class gold --max 500Mbit --cpu-max 150%"),
            (&["gold", "max", "500Mbit"], "class gold --max 500Mbit"),
            (&["min=1Mbit"], "class NAME --min 1Mbit"),
            (&["class"], "class NAME --max 500Mbit"),
            (&["class", "max"], "class max --max 500Mbit"),
        ] {
            assert_eq!(of(words), format!("vmio guard set {command}"), "{words:?}");
        }
        let options = BTreeMap::from([(Key::Min, "2 Mbit".to_owned())]);
        assert_eq!(
            meant(&["gold"], &options, false, " --state /x"),
            "vmio guard set --state /x class gold --min '2 Mbit'"
        );
        assert_eq!(meant(&["gold"], &BTreeMap::new(), true, ""), "vmio guard set class gold --clear");
    }
}
