//! Parses single values.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::Addresses;
use crate::policy::matcher::{Kind, Matcher};
use crate::policy::{DEFAULT, Excess, HOST, units};
use crate::rate::BitRate;
use crate::toml_reader::{Reader, hint};

pub(super) fn text(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        other => {
            reader.wrong_type(&value.span(), path, "a string", other);
            None
        }
    }
}

pub(super) fn rate(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<BitRate> {
    quantity(reader, value, path, units::rate, "a rate such as \"300Mbit\"")
}

pub(super) fn limit(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<BitRate> {
    quantity(reader, value, path, units::limit, "a rate such as \"300Mbit\"")
}

/// A number with a unit, as text; `read` refuses one without a unit.
pub(super) fn quantity<T>(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    path: &str,
    read: impl Fn(&str) -> Result<T, units::UnitError>,
    wanted: &str,
) -> Option<T> {
    let (number, result) = match value.get_ref() {
        DeValue::String(text) => (None, read(text)),
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            let number = decimal.map_or_else(|_| number.as_str().to_owned(), |n| n.to_string());
            (Some(number.clone()), read(&number))
        }
        DeValue::Float(number) => (Some(number.as_str().to_owned()), read(number.as_str())),
        other => {
            reader.wrong_type(&value.span(), path, wanted, other);
            return None;
        }
    };
    let quoted = |e: units::UnitError| match number {
        // The text as written, for example 0x10.
        Some(number) => e.to_string().replacen(&format!("`{number}`"), &format!("`{}`", reader.written(value)), 1),
        None => e.to_string(),
    };
    match result {
        Ok(read) => Some(read),
        Err(error) => {
            let what = quoted(error);
            reader.problem(&value.span(), path, what);
            None
        }
    }
}

/// Whether what is above a maximum is dropped.
pub(super) fn excess(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<bool> {
    Some(reader.word(value, path, &Excess::WORDS)? == 1)
}

/// A period, or how long a queue is.
pub(super) fn time(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Duration> {
    let time = quantity(reader, value, path, units::time, "a time such as \"10ms\"")?;
    if (units::LEAST_TIME..=Duration::from_secs(10)).contains(&time) {
        return Some(time);
    }
    let what = format!("{} is out of range: 1 ms to 10 s", units::show_time(time));
    reader.problem(&value.span(), path, what);
    None
}

/// Most addresses of an entry.
const MOST_ADDRESSES: usize = 64;

/// A list of IP addresses, each as text.
pub(super) fn addresses(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Addresses> {
    let DeValue::Array(items) = value.get_ref() else {
        reader.wrong_type(&value.span(), path, "a list such as [\"192.0.2.7\", \"2001:db8::7\"]", value.get_ref());
        return None;
    };
    if items.is_empty() {
        let what = "no address; leave the key away where they are not known".to_owned();
        reader.problem(&value.span(), path, what);
        return None;
    }
    if items.len() > MOST_ADDRESSES {
        reader.problem(&value.span(), path, format!("{} addresses; at most {MOST_ADDRESSES}", items.len()));
        return None;
    }
    let mut all = Addresses::new();
    for item in items.iter() {
        let written = text(reader, item, path)?;
        let wrong = match written.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) if all.iter().any(|(other, _)| *other == address) => "is named twice",
            Ok(address) => match nobodys(address) {
                None => {
                    all.push((address, item.span()));
                    continue;
                }
                Some(why) => why,
            },
            Err(_) if written.contains('/') => "is no IP address; write \"192.0.2.7\", without a /",
            Err(_) => "is no IP address; write \"192.0.2.7\" or \"2001:db8::7\"",
        };
        reader.problem(&item.span(), path, format!("`{written}` {wrong}"));
    }
    (all.len() == items.len()).then_some(all)
}

/// Why no machine of a network has an address (RFC 6890); `None` where one may.
fn nobodys(address: IpAddr) -> Option<&'static str> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    [
        (address.is_unspecified(), "is the unspecified address, which no machine has"),
        (address.is_loopback(), "is a loopback address, which every machine has for itself alone"),
        (address.is_multicast(), "is a multicast address, which is a group's and no machine's"),
        (broadcast, "is the broadcast address, which is everybody's"),
    ]
    .into_iter()
    .find_map(|(is, why)| is.then_some(why))
}

pub(super) fn matcher(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Matcher> {
    let DeValue::Table(table) = value.get_ref() else {
        reader.wrong_type(&value.span(), path, "a table such as { name = \"vnet0\" }", value.get_ref());
        return None;
    };
    let words = Kind::ALL.map(Kind::word);
    let mut found = Vec::new();
    let mut unknown = false;
    for (key, value) in table.iter() {
        let word = key.get_ref().as_ref();
        match Kind::ALL.into_iter().find(|k| k.word() == word) {
            Some(kind) => found.push((kind, value)),
            None => {
                unknown = true;
                reader.problem(&key.span(), &format!("{path}.{word}"), format!("unknown key{}", hint(word, &words)));
            }
        }
    }
    match found.as_slice() {
        [(kind, name)] => {
            let path = format!("{path}.{}", kind.word());
            let text = match name.get_ref() {
                // A VMID may be written as a number.
                DeValue::Integer(id) if *kind == Kind::Vm && id.radix() == 10 => id.as_str().to_owned(),
                _ => text(reader, name, &path)?,
            };
            if *kind == Kind::Name && (text == HOST || text == DEFAULT) {
                let what = format!(
                    "`{text}` is the member that every uplink has; match such an interface by mac, vm or netns"
                );
                reader.problem(&name.span(), &path, what);
                return None;
            }
            Matcher::new(*kind, &text).map_err(|why| reader.problem(&name.span(), &path, why.to_string())).ok()
        }
        [] if unknown => None,
        [] => {
            let what = format!("names no interface; give exactly one of {}", words.join(", "));
            reader.problem(&value.span(), path, what);
            None
        }
        several => {
            let given: Vec<&str> = several.iter().map(|(kind, _)| kind.word()).collect();
            reader.problem(&value.span(), path, format!("has {}; give exactly one of them", given.join(" and ")));
            None
        }
    }
}
