//! Bad input to the guard's policy: damaged good files, and random TOML. It never panics or hangs; a refusal names
//! file, line and key; an accepted policy keeps its invariants and can be planned. 20,000 inputs here, a million in the
//! long form.

#![allow(clippy::unwrap_used)]

use crate::common::{fixture, fixtures, read};
use vmio_model::policy::plan::{Algorithm, plan};
use vmio_model::policy::{Direction, Links, Loaded, PolicyError};
use vmio_model::rate::BitRate;

/// SplitMix64 (Steele, Lea, Flood 2014): the same inputs on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const KEYS: &[&str] = &[
    "capacity",
    "priority",
    "min",
    "max",
    "weight",
    "reserve",
    "over_max",
    "queue",
    "delay",
    "jitter",
    "local",
    "excess",
    "burst",
    "match",
    "class",
    "rx_class",
    "uplink",
    "period",
    "allow_unenforced",
    "on_conflict",
    "spoofing",
    "measure_delay",
    "addresses",
    "router",
    "name",
    "mac",
    "vm",
    "netns",
    "interface",
    "guard",
    "x",
];
const VALUES: &[&str] = &[
    "\"1Gbit\"",
    "\"300 Mbit/s\"",
    "\"2.5Gbit\"",
    "\"40MB/s\"",
    "\"0bit\"",
    "\"100Tbit\"",
    "\"1Gibit\"",
    "\"5Mbps\"",
    "300",
    "-1",
    "1.5",
    "nan",
    "true",
    "false",
    "\"soft\"",
    "\"hard\"",
    "1",
    "8",
    "4294967295",
    "4294967296",
    "\"10ms\"",
    "\"1h\"",
    "\"gold\"",
    "\"tin\"",
    "\"host\"",
    "\"default\"",
    "\"eth0\"",
    "\"eth1\"",
    "{ name = \"vnet0\" }",
    "{ name = \"vnet*\" }",
    "{ name = \"v?et[0-9]\" }",
    "{ vm = \"web*\" }",
    "{ vm = 7 }",
    "{ mac = \"52:54:00:*\" }",
    "{ netns = \"[!a]*\" }",
    "{ vm = \"[\" }",
    "{}",
    "[]",
    "[1, \"a\"]",
    "\"\"",
    "\"\\u001b[2J\"",
    "\"ü\"",
    "1979-05-27",
    "'''\n'''",
    "0xff",
    "{ dscp = \"ef\", ports = [443, \"8000-8080\"] }",
    "{ protocol = 6, address = \"10.0.0.0/8\" }",
    "{ dscp = 64 }",
];
const HEADS: &[&str] = &[
    "[uplink.eth0]",
    "[uplink.eth1]",
    "[class.gold]",
    "[class.tin]",
    "[class.host]",
    "[[class.gold.flow]]",
    "[class.default]",
    "[guard]",
    "[[interface]]",
    "[interface]",
    "[uplink]",
    "[class]",
    "[class.\"a b\"]",
    "[uplink.\"\"]",
    "[[class]]",
    "[x.y]",
];
const SCRAPS: &[&str] = &[
    "\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\n",
    "#",
    ",",
    ".",
    "\u{0}",
    "\u{1b}",
    "é",
    "𝄞",
    "\r\n",
    "\t",
    "'",
    "99999999999999999999",
];

/// Random TOML, mostly with keys where they belong.
fn composed(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(8) {
        let head = *random.pick(HEADS);
        text += &format!("{head}\n");
        let own: &[&str] = match head {
            h if h.contains("uplink") => &["capacity"],
            h if h.contains("flow") => &["name", "match", "min", "max", "priority"],
            h if h.contains("class") => {
                &["priority", "min", "max", "weight", "reserve", "over_max", "queue", "local", "excess"]
            }
            h if h.contains("interface") => &["match", "class", "rx_class", "uplink", "addresses", "router"],
            _ => &["period", "allow_unenforced", "on_conflict", "spoofing", "measure_delay"],
        };
        let mut used = Vec::new();
        for _ in 0..random.below(5) {
            let key = if random.below(8) == 0 { *random.pick(KEYS) } else { *random.pick(own) };
            // A duplicate key is no TOML: rarely.
            if used.contains(&key) && random.below(20) != 0 {
                continue;
            }
            used.push(key);
            let fitting: &[&str] = match key {
                "min" | "max" | "capacity" => &VALUES[..7],
                "match" if head.contains("flow") => &VALUES[VALUES.len() - 3..],
                "match" => &VALUES[28..35],
                "class" | "rx_class" => &VALUES[22..26],
                "uplink" => &VALUES[26..28],
                "priority" | "weight" => &VALUES[16..19],
                "over_max" | "allow_unenforced" | "router" | "measure_delay" => &VALUES[12..14],
                "reserve" => &VALUES[14..16],
                _ => VALUES,
            };
            let value = if random.below(8) == 0 { *random.pick(VALUES) } else { *random.pick(fitting) };
            text += &format!("{key} = {value}\n");
        }
    }
    text
}

/// A text with a few pieces cut, doubled, moved or replaced.
fn damaged(random: &mut Random, text: &str, other: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(chars.len() + 1);
        let length = random.below(20).min(chars.len() - at);
        match random.below(7) {
            0 => drop(chars.drain(at..at + length)),
            1 => {
                let piece: Vec<char> = chars[at..at + length].to_vec();
                let to = random.below(chars.len() + 1);
                chars.splice(to..to, piece);
            }
            2 => {
                let scrap = *random.pick(SCRAPS);
                chars.splice(at..at, scrap.chars());
            }
            3 => {
                let piece = format!("\n{} = {}\n", random.pick(KEYS), random.pick(VALUES));
                chars.splice(at..at, piece.chars());
            }
            4 => {
                let piece = format!("\n{}\n", random.pick(HEADS));
                chars.splice(at..at, piece.chars());
            }
            5 => {
                let other: Vec<char> = other.chars().collect();
                let from = random.below(other.len() + 1);
                chars.splice(at.., other[from..].iter().copied());
            }
            _ => {
                if let Some(c) = chars.get_mut(at) {
                    *c = char::from_u32(random.below(0x250) as u32).unwrap_or('?');
                }
            }
        }
    }
    chars.into_iter().collect()
}

fn fuzz(inputs: usize, seed: u64) {
    let texts: Vec<String> = fixtures().iter().flat_map(|(_, path)| fixture(path)).map(|(_, text)| text).collect();
    let random = &mut Random(seed);
    let (mut good, mut refused) = (0, 0);
    for _ in 0..inputs {
        let mut files = Vec::new();
        for name in &["a.toml", "b.toml"][..1 + usize::from(random.below(4) == 0)] {
            let text = match random.below(3) {
                0 => composed(random),
                1 => {
                    let composed = composed(random);
                    damaged(random, &composed, &composed)
                }
                _ => {
                    let (text, other) = (random.pick(&texts).clone(), random.pick(&texts).clone());
                    damaged(random, &text, &other)
                }
            };
            files.push(((*name).to_owned(), text));
        }
        // With a link's speed more of them are good.
        let speeds = if random.below(2) == 0 {
            [("eth0".to_owned(), BitRate::new(10_000_000_000))].into()
        } else {
            Default::default()
        };
        match read(&files, &Links { speeds, ..Links::default() }) {
            Ok(loaded) => {
                good += 1;
                keeps_its_promises(&loaded, &files);
            }
            Err(error) => {
                refused += 1;
                names_its_problems(&error, &files);
            }
        }
    }
    // Both outcomes are frequent.
    assert!(good * 50 > inputs && refused * 2 > inputs, "{good} good, {refused} refused");
}

fn names_its_problems(error: &PolicyError, files: &[(String, String)]) {
    assert!(!error.problems.is_empty(), "{files:?}");
    for p in &error.problems {
        let (_, text) = files.iter().find(|(name, _)| *name == p.file).unwrap();
        assert!((1..=text.matches('\n').count() + 1).contains(&p.line), "{p} {files:?}");
        // Only a text that is no TOML has problems without a key.
        let lines: Vec<&str> = text.split('\n').take(p.line).collect();
        let head = |l: &&str| l.starts_with('[') && l.trim_end().ends_with(']') && HEADS.contains(&l.trim_end());
        let assigns = KEYS.iter().any(|k| lines[p.line - 1].starts_with(&format!("{k} =")));
        let nameless = p.what.starts_with("invalid TOML") && !assigns && !lines.iter().any(head);
        assert!(!p.what.is_empty() && (!p.key.is_empty() || nameless), "{p} {files:?}");
        let shown = p.snippet("error");
        assert!(shown.contains(&format!("{}:{}:{}", p.file, p.line, p.column)) && shown.contains('^'), "{shown}");
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
}

fn keeps_its_promises(loaded: &Loaded, files: &[(String, String)]) {
    let policy = &loaded.policy;
    for class in policy.classes.values() {
        assert!((1..=8).contains(&class.priority) && class.weight >= 1);
        assert!(class.min.unwrap_or_default() <= class.max.unwrap_or(BitRate::MAX), "{files:?}");
    }
    for (uplink, known) in &policy.uplinks {
        for direction in Direction::ALL {
            let capacity = known.capacity;
            let sum: BitRate = policy.minima(uplink, direction, capacity).iter().map(|(_, min)| *min).sum();
            assert!(sum <= capacity, "{files:?}");
        }
    }
    for (i, entry) in policy.entries.iter().enumerate() {
        assert!(policy.uplinks.contains_key(&entry.uplink));
        assert!(policy.entries[..i].iter().all(|e| e.matcher.overlap(&entry.matcher).is_none()), "{files:?}");
    }
    for algorithm in [Algorithm::Exact, Algorithm::Dba] {
        let plan = plan(policy, &[], algorithm).unwrap();
        for pool in &plan.pools {
            let sum: BitRate = plan.rows(pool).map(|r| r.rate_bps).sum();
            assert_eq!(sum + pool.unused_bps, pool.capacity_bps, "{files:?}");
        }
        if let Algorithm::Exact = algorithm {
            for row in &plan.interfaces {
                assert_eq!(row.guaranteed_bps + row.spare_bps, row.rate_bps, "{files:?}");
                let owed = row.demand_bps.unwrap_or(BitRate::MAX).min(row.min_effective_bps);
                assert!(row.guaranteed_bps == owed && row.min_effective_bps <= row.contract.min, "{files:?}");
                assert!(row.contract.over_max || row.rate_bps <= row.contract.max, "{files:?}");
            }
        }
    }
}

#[test]
fn twenty_thousand_inputs() {
    fuzz(20_000, 6);
}

#[test]
#[ignore = "long"]
fn long_a_million_inputs() {
    fuzz(1_000_000, 66);
}
