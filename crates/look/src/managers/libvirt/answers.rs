//! Parsing of `virsh` output.

use std::collections::BTreeMap;

use vmio_model::facts::{Disk, Fact};

/// UUIDs in the output of `list --uuid`; prompts around them are ignored.
pub fn uuids(text: &str) -> Vec<String> {
    text.split_whitespace().filter(|word| is_uuid(word)).map(str::to_lowercase).collect()
}

pub fn is_uuid(word: &str) -> bool {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let sign = |(i, b): (usize, u8)| if DASHES.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() };
    word.len() == 36 && word.bytes().enumerate().all(sign)
}

/// The descriptions in a session's output. libvirt indents all but a document's first and last line and escapes `<` in
/// texts, so these two lines are unique. Prompts and echoed commands (in some versions) are ignored.
pub fn documents(text: &str) -> Vec<&str> {
    const END: &str = "\n</domain>";
    let mut found = Vec::new();
    let mut rest = text;
    let start =
        |rest: &str| if rest.starts_with("<domain ") { Some(0) } else { rest.find("\n<domain ").map(|at| at + 1) };
    while let Some(at) = start(rest) {
        let Some(end) = rest[at..].find(END) else { break };
        let end = at + end + END.len();
        found.push(&rest[at..end]);
        rest = &rest[end..];
    }
    found
}

/// Sizes that guests see, by domain and target, from `domstats --block`.
pub fn capacities(text: &str) -> BTreeMap<(&str, &str), u64> {
    let mut sizes = BTreeMap::new();
    let (mut domain, mut target) = ("", "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Domain: ") {
            domain = name.trim().trim_matches('\'');
        } else if let Some((key, value)) = line.trim().strip_prefix("block.").and_then(|l| l.split_once('=')) {
            match key.split_once('.').map_or("", |(_, key)| key) {
                "name" => target = value,
                "capacity" => sizes.extend(value.parse().ok().map(|bytes| ((domain, target), bytes))),
                _ => {}
            }
        }
    }
    sizes
}

/// Cache modes from the reply to `query-block` (QEMU's QAPI, block-core.json, `BlockInfo`). The device's id is in
/// `qdev`, at the end or before its backend. Only a write cache that is on shows the mode: guests turn it off by
/// themselves.
pub fn caches(answer: &str, disks: &mut [Disk], from: &str) {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    for block in answer["return"].as_array().into_iter().flatten() {
        let cache = &block["inserted"]["cache"];
        let flag = |name: &str| cache[name].as_bool();
        let (Some(true), Some(direct), Some(unsafe_)) = (flag("writeback"), flag("direct"), flag("no-flush")) else {
            continue;
        };
        let qdev = block["qdev"].as_str().unwrap_or_default();
        let own = |d: &&mut Disk| d.place.device_id.as_ref().is_some_and(|id| qdev.split('/').any(|part| part == id));
        if let Some(disk) = disks.iter_mut().find(own).filter(|d| d.cache.is_none()) {
            let mode = match (direct, unsafe_) {
                (true, false) => "none",
                (false, false) => "writeback",
                (false, true) => "unsafe",
                // QEMU has no name for this mode.
                (true, true) => continue,
            };
            disk.cache = Fact::read(Some(mode.to_owned()), from);
        }
    }
}
