//! Commands to a running QEMU by its monitor, as Incus logs them: what was plugged in and is still there.
//!
//! lxc/incus, internal/server/instance/drivers/qmp/monitor.go, `RunJSON`: `[TIME] QUERY: {…}`, then
//! `[TIME] REPLY: {…}`; a command that QEMU refused has no reply there. With each start of the instance a new log is
//! begun (driver_qemu.go, `start`).

use serde_json::Value;

use super::options::{Opt, flat};

/// Name of an option of [`plugged`] that has the limits of a device: QMP's command, which no command line has.
pub const THROTTLE: &str = "block_set_io_throttle";

/// What a command does to the options.
#[derive(Clone, Copy)]
enum Effect {
    /// It adds one of that name.
    Add(&'static str),
    /// It takes away the one of that name that has the same value of a key.
    Remove(&'static str, &'static str),
    /// It takes the place of the one of that name and id.
    Replace(&'static str),
}

/// The commands that are followed (docs/interop/qemu-qmp-ref of QEMU).
const FOLLOWED: &[(&str, Effect)] = &[
    ("blockdev-add", Effect::Add("blockdev")),
    ("blockdev-del", Effect::Remove("blockdev", "node-name")),
    ("device_add", Effect::Add("device")),
    ("device_del", Effect::Remove("device", "id")),
    ("netdev_add", Effect::Add("netdev")),
    ("netdev_del", Effect::Remove("netdev", "id")),
    (THROTTLE, Effect::Replace(THROTTLE)),
];

/// A command that has no reply yet.
struct Asked {
    id: Option<u64>,
    effect: Effect,
    keys: Vec<(String, String)>,
}

/// The options that these commands left, as they would stand on a command line.
pub fn plugged(log: &str) -> Vec<Opt> {
    let mut there: Vec<Opt> = Vec::new();
    let mut asked: Vec<Asked> = Vec::new();
    for line in log.lines() {
        let Some((_, said)) = line.split_once("] ") else { continue };
        if let Some(text) = said.strip_prefix("QUERY: ") {
            asked.extend(query(text));
        } else if let Some(text) = said.strip_prefix("REPLY: ").filter(|_| !asked.is_empty()) {
            let Ok(reply) = serde_json::from_str::<Value>(text) else { continue };
            // Early versions gave their commands no number.
            let id = reply["id"].as_u64();
            let Some(at) = asked.iter().rposition(|command| command.id == id) else { continue };
            let command = asked.remove(at);
            if reply.get("error").is_none() {
                apply(&mut there, command);
            }
        }
    }
    there
}

fn query(text: &str) -> Option<Asked> {
    // Most commands of a log are others.
    FOLLOWED.iter().find(|(name, _)| text.contains(name))?;
    let query: Value = serde_json::from_str(text).ok()?;
    let command = query["execute"].as_str()?;
    let (_, effect) = FOLLOWED.iter().find(|(name, _)| *name == command)?;
    let keys = query.get("arguments").filter(|arguments| arguments.is_object()).map(flat)?;
    Some(Asked { id: query["id"].as_u64(), effect: *effect, keys })
}

fn apply(there: &mut Vec<Opt>, Asked { effect, keys, .. }: Asked) {
    let (Effect::Add(name) | Effect::Remove(name, _) | Effect::Replace(name)) = effect;
    let option = Opt { name: name.to_owned(), text: String::new(), keys };
    match effect {
        Effect::Add(_) => there.push(option),
        Effect::Remove(_, key) => {
            let gone = |own: &Opt| own.name == name && own.get(key).is_some() && own.get(key) == option.get(key);
            there.retain(|own| !gone(own));
        }
        Effect::Replace(_) => {
            there.retain(|own| own.name != name || own.id() != option.id());
            there.push(option);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Lines of a log; a command without a reply was refused.
    fn log(lines: &[(&str, &str)]) -> String {
        lines.iter().map(|(kind, text)| format!("[2026-03-01T09:00:00+01:00] {kind}: {text}\n\n")).collect()
    }

    fn names(log: &str) -> Vec<String> {
        let name = |o: &Opt| format!("{} {}", o.name, o.id().or(o.get("node-name")).unwrap_or("-"));
        plugged(log).iter().map(name).collect()
    }

    #[test]
    fn what_was_plugged_in_and_not_taken_out_is_there() {
        let text = log(&[
            ("QUERY", r#"{"execute":"blockdev-add","arguments":{"node-name":"n1","cache":{"direct":true}},"id":4}"#),
            ("REPLY", r#"{"return": {}, "id": 4}"#),
            ("QUERY", r#"{"execute":"device_add","arguments":{"id":"d1","drive":"n1","lun":1},"id":5}"#),
            ("REPLY", r#"{"return": {}, "id": 5}"#),
            ("QUERY", r#"{"execute":"device_add","arguments":{"id":"refused"},"id":6}"#),
            ("QUERY", r#"{"execute":"query-version","id":7}"#),
            ("REPLY", r#"{"return": {}, "id": 7}"#),
            ("QUERY", r#"{"execute":"netdev_add","arguments":{"id":"h1","vhost":true},"id":8}"#),
            ("REPLY", r#"{"return": {}, "id": 8}"#),
        ]);
        assert_eq!(names(&text), ["blockdev n1", "device d1", "netdev h1"]);
        let all = plugged(&text);
        assert_eq!(
            (all[0].on("cache.direct"), all[1].number("lun"), all[2].on("vhost")),
            (Some(true), Some(1), Some(true))
        );
        let gone = log(&[
            ("QUERY", r#"{"execute":"device_del","arguments":{"id":"d1"},"id":1}"#),
            ("REPLY", r#"{"return": {}, "id": 1}"#),
            ("QUERY", r#"{"execute":"netdev_del","arguments":{"id":"h1"},"id":2}"#),
        ]);
        assert_eq!(names(&(text + &gone)), ["blockdev n1", "netdev h1"]);
    }

    #[test]
    fn later_limits_take_the_place_of_earlier_ones() {
        let set = |bytes: u32| {
            let args = format!(r#"{{"execute":"block_set_io_throttle","arguments":{{"id":"d1","bps_rd":{bytes}}}}}"#);
            log(&[("QUERY", args.as_str()), ("REPLY", r#"{"return": {}}"#)])
        };
        let all = plugged(&(set(7) + &set(9)));
        assert_eq!((all.len(), all[0].name.as_str(), all[0].number("bps_rd")), (1, THROTTLE, Some(9)));
    }

    proptest::proptest! {
        /// Any log is read without a panic.
        #[test]
        fn any_log_is_read(
            lines in proptest::collection::vec("(\\[x\\] )?(QUERY: |REPLY: )?[{}\":,a-z_0-9]{0,40}(device_add)?", 0..12)
        ) {
            let _ = plugged(&lines.join("\n"));
        }
    }
}
