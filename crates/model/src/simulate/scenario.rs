//! Scenarios: an uplink, its members and their traffic. Parsed from TOML (keys in `docs/guard-simulate.md`; the
//! published experiment `papers/amamou2012.toml` is one), or made from a planned pool of a policy.

use toml::Spanned;
use toml::de::DeValue;

use super::{MILLISECOND, SECOND, Source as Sender, Vif};
use crate::allocate::Member;
use crate::policy::units;
use crate::problem::TextError;
use crate::rate::{BitRate, MBIT};
use crate::toml_reader::{self, Reader, Section, value_span};

/// Default packet size in bytes.
pub const PACKET_BYTES: u32 = 1500;
/// Highest rate of a schedule, in Mbit/s: 100 Tbit/s.
const MAX_MBIT: u32 = 100_000_000;
/// Longest simulated time, in seconds.
const MAX_SECONDS: u32 = 86_400;

/// An uplink with its members, in order of creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Capacity of the uplink.
    pub capacity: BitRate,
    /// Size of all packets.
    pub packet_bytes: u32,
    /// Simulated time, in picoseconds.
    pub duration: u64,
    /// Period of the loop for which the scenario was written, in picoseconds.
    pub period: u64,
    /// The members.
    pub vifs: Vec<Vif>,
}

impl Scenario {
    /// Parses a scenario; `file` names it in messages.
    ///
    /// # Errors
    /// Every problem with its line and key.
    pub fn from_toml(file: &str, text: &str) -> Result<Scenario, TextError> {
        toml_reader::read(file, text, read)
    }
}

const KEYS: [&str; 11] = [
    "uplink",
    "period_ms",
    "packet_bytes",
    "duration_s",
    "vm",
    // Keys of a published experiment: see `super::paper`.
    "key",
    "citation",
    "section",
    "studies",
    "published",
    "footnote",
];

fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<Scenario> {
    reader.known_keys(top, &KEYS);
    let capacity = reader.string(top, "uplink", None).and_then(|text| match units::rate(&text) {
        Ok(BitRate::ZERO) => refuse(reader, top, "uplink", "must be at least 1 bit/s".into()),
        Ok(rate) => Some(rate),
        Err(error) => refuse(reader, top, "uplink", error.to_string()),
    });
    let period = reader.whole(top, "period_ms", 1, 10_000);
    let packet_bytes = or(reader, top, "packet_bytes", PACKET_BYTES, 64, 65_536);
    let duration = reader.whole(top, "duration_s", 1, MAX_SECONDS);
    let vifs = members(reader, top);
    if let (Some(capacity), Some(vifs)) = (capacity, &vifs) {
        let minima: u128 = vifs.iter().map(|v| u128::from(v.contract.min)).sum();
        if minima > u128::from(capacity) {
            let sum = BitRate::of_sum(minima);
            refuse::<()>(reader, top, "vm", format!("the minima add up to {sum}, more than the uplink has"));
        }
    }
    Some(Scenario {
        capacity: capacity?,
        packet_bytes: packet_bytes?,
        duration: u64::from(duration?) * SECOND,
        period: u64::from(period?) * MILLISECOND,
        vifs: vifs?,
    })
}

fn refuse<T>(reader: &mut Reader<'_>, s: &Section<'_, '_>, key: &str, what: String) -> Option<T> {
    reader.problem(&value_span(s, key), &s.key(key), what);
    None
}

fn or(reader: &mut Reader<'_>, s: &Section<'_, '_>, key: &str, default: u32, least: u32, most: u32) -> Option<u32> {
    if s.table.contains_key(key) { reader.whole(s, key, least, most) } else { Some(default) }
}

fn members(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<Vec<Vif>> {
    let Some(value) = top.table.get("vm") else {
        return refuse(reader, top, "vm", "missing; add a section [[vm]] for each member".into());
    };
    let DeValue::Array(items) = value.get_ref() else {
        return refuse(reader, top, "vm", "must be sections [[vm]]".into());
    };
    let mut vifs: Vec<Option<Vif>> = Vec::new();
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            reader.wrong_type(&item.span(), "vm", "a section", item.get_ref());
            continue;
        };
        let section = Section { path: "vm".into(), span: item.span(), table };
        let vif = member(reader, &section);
        if let Some(vif) = &vif
            && vifs.iter().flatten().any(|v| v.name == vif.name)
        {
            refuse::<()>(reader, &section, "name", format!("{} is there twice", vif.name));
        }
        vifs.push(vif);
    }
    if vifs.is_empty() {
        return refuse(reader, top, "vm", "is empty; add a section [[vm]] for each member".into());
    }
    vifs.into_iter().collect()
}

fn member(reader: &mut Reader<'_>, s: &Section<'_, '_>) -> Option<Vif> {
    let keys = ["name", "class", "min_mbit", "max_mbit", "weight", "hard", "over_max", "offered_mbit", "tcp_rtt_ms"];
    reader.known_keys(s, &keys);
    let name = reader.string(s, "name", None);
    let priority = reader.whole(s, "class", 1, 8);
    let min = or(reader, s, "min_mbit", 0, 0, MAX_MBIT);
    let max = reader.whole(s, "max_mbit", 1, MAX_MBIT);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        refuse::<()>(reader, s, "min_mbit", format!("{min} is above max_mbit, {max}"));
    }
    let weight = or(reader, s, "weight", 1, 1, u32::MAX);
    let mut switch = |key: &str| match s.table.get(key) {
        Some(value) => reader.switch_value(value, &s.key(key)),
        None => Some(false),
    };
    let (hard, over_max) = (switch("hard"), switch("over_max"));
    let source = match (s.table.contains_key("offered_mbit"), s.table.contains_key("tcp_rtt_ms")) {
        (true, false) => schedule(reader, s).map(Sender::OpenLoop),
        (false, true) => reader
            .real(s, "tcp_rtt_ms", 0.001, 10_000.0)
            .map(|ms| Sender::Aimd { rtt: (ms * MILLISECOND as f64) as u64 }),
        _ => refuse(reader, s, "offered_mbit", "write either offered_mbit or tcp_rtt_ms".into()),
    };
    let contract = Member {
        priority: u8::try_from(priority?).ok()?,
        min: u64::from(min?) * MBIT,
        max: u64::from(max?) * MBIT,
        weight: weight?,
        hard: hard?,
        over_max: over_max?,
    };
    Some(Vif { name: name?, contract, source: source? })
}

/// `[[from second, Mbit/s], …]`.
fn schedule(reader: &mut Reader<'_>, s: &Section<'_, '_>) -> Option<Vec<(u64, BitRate)>> {
    let how = "must be a list of [from second, Mbit/s]";
    let items = match s.table.get("offered_mbit").map(Spanned::get_ref) {
        Some(DeValue::Array(items)) if !items.is_empty() => items,
        _ => return refuse(reader, s, "offered_mbit", how.into()),
    };
    let path = s.key("offered_mbit");
    let mut all: Vec<(u64, BitRate)> = Vec::new();
    for item in items.iter() {
        let pair = match item.get_ref() {
            DeValue::Array(pair) if pair.len() == 2 => pair,
            _ => return refuse(reader, s, "offered_mbit", how.into()),
        };
        let from = u64::from(reader.whole_value(pair.first()?, &path, 0, MAX_SECONDS)?) * SECOND;
        let rate = u64::from(reader.whole_value(pair.get(1)?, &path, 0, MAX_MBIT)?) * MBIT;
        if all.last().is_some_and(|last| last.0 >= from) {
            reader.problem(&item.span(), &path, "the seconds must rise".into());
            return None;
        }
        all.push((from, rate));
    }
    Some(all)
}
