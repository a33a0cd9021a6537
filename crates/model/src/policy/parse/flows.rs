//! `[[class.NAME.flow]]`.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::values::{excess, limit, rate, text, time};
use super::{At, File};
use crate::policy::flow::{
    DSCP, FlowMatch, MOST_FLOWS, MOST_LETTERS, MOST_PORTS, Network, PROTOCOLS, REST, WITH_PORTS,
};
use crate::rate::BitRate;
use crate::toml_reader::{Reader, Section};

/// A flow class.
#[derive(Debug)]
pub struct FlowDraft {
    pub here: At<()>,
    pub name: Option<At<String>>,
    pub matcher: Option<At<FlowMatch>>,
    pub min: Option<At<BitRate>>,
    pub max: Option<At<BitRate>>,
    pub priority: Option<At<u8>>,
    pub excess: Option<At<bool>>,
    pub burst: Option<At<Duration>>,
}

impl File<'_, '_> {
    /// Parses the flow classes of a class.
    pub(super) fn flows(&mut self, s: &Section<'_, '_>) -> Option<At<Vec<FlowDraft>>> {
        let value = s.table.get("flow")?;
        let path = s.key("flow");
        let wanted = format!("a list of tables: write [[{path}]]");
        let DeValue::Array(items) = value.get_ref() else {
            self.reader.wrong_type(&value.span(), &path, &wanted, value.get_ref());
            return None;
        };
        let span = items.first().map_or(value.span(), Spanned::span);
        if items.len() > MOST_FLOWS {
            self.reader.problem(&span, &path, format!("{} flow classes; at most {MOST_FLOWS}", items.len()));
            return None;
        }
        let mut all = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => {
                    all.push(self.flow(&Section { path: path.clone().into(), span: item.span(), table }));
                }
                other => self.reader.wrong_type(&item.span(), &path, &wanted, other),
            }
        }
        Some(At { value: all, file: self.index, span })
    }

    fn flow(&mut self, s: &Section<'_, '_>) -> FlowDraft {
        self.reader.known_keys(s, &["name", "match", "min", "max", "priority", "excess", "burst"]);
        for key in ["name", "match"] {
            if !s.table.contains_key(key) {
                self.reader.missing(s, key);
            }
        }
        FlowDraft {
            here: At { value: (), file: self.index, span: s.span.clone() },
            name: self.optional(s, "name", name),
            matcher: self.optional(s, "match", matched),
            min: self.optional(s, "min", rate),
            max: self.optional(s, "max", limit),
            priority: self.optional(s, "priority", |r, v, path| Some(r.whole_value(v, path, 1, 8)? as u8)),
            excess: self.optional(s, "excess", excess),
            burst: self.optional(s, "burst", time),
        }
    }
}

fn name(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<String> {
    let name = text(reader, value, path)?;
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !(1..=MOST_LETTERS).contains(&name.len()) || !name.bytes().all(good) {
        let what = format!("a flow class's name has 1 to {MOST_LETTERS} letters of ASCII, digits, `-` or `_`");
        reader.problem(&value.span(), path, what);
        return None;
    }
    if name == REST {
        reader.problem(&value.span(), path, format!("`{REST}` is what no flow class matches"));
        return None;
    }
    Some(name)
}

/// `{ dscp = "ef", protocol = "udp", ports = [5060, "8000-8080"], address = "10.0.0.0/8" }`.
fn matched(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<FlowMatch> {
    let DeValue::Table(table) = value.get_ref() else {
        reader.wrong_type(&value.span(), path, "a table such as { dscp = \"ef\" }", value.get_ref());
        return None;
    };
    let before = reader.problems.len();
    let s = Section { path: path.to_owned().into(), span: value.span(), table };
    reader.known_keys(&s, &["dscp", "protocol", "ports", "address"]);
    let dscp = table.get("dscp").and_then(|v| numbered(reader, v, &s.key("dscp"), DSCP, 63));
    let protocol = table.get("protocol").and_then(|v| numbered(reader, v, &s.key("protocol"), PROTOCOLS, 255));
    let ports = if table.contains_key("ports") { reader.list(&s, "ports", None, port) } else { None };
    let ports = ports.unwrap_or_default();
    let address = table.get("address").and_then(|v| network(reader, v, &s.key("address")));
    if let Some(value) = table.get("ports") {
        if ports.len() > MOST_PORTS {
            let what = format!("{} ports and ranges of ports; at most {MOST_PORTS}", ports.len());
            reader.problem(&value.span(), &s.key("ports"), what);
        }
        if protocol.is_some_and(|protocol| !WITH_PORTS.contains(&protocol)) {
            let what = "only tcp, udp and sctp have ports".to_owned();
            reader.problem(&value.span(), &s.key("ports"), what);
        }
    }
    let all = FlowMatch { dscp, protocol, ports, address };
    if reader.problems.len() > before {
        return None;
    }
    if all == FlowMatch::default() {
        let what = "matches nothing; give one or more of dscp, protocol, ports, address".to_owned();
        reader.problem(&value.span(), path, what);
        return None;
    }
    Some(all)
}

/// A number, or its name.
fn numbered(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    path: &str,
    names: &[(&str, u8)],
    most: u32,
) -> Option<u8> {
    if let DeValue::String(_) = value.get_ref() {
        let words: Vec<&str> = names.iter().map(|(word, _)| *word).collect();
        return reader.word(value, path, &words).map(|at| names[at].1);
    }
    Some(reader.whole_value(value, path, 0, most)? as u8)
}

/// A port, or a range of ports.
fn port(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<(u16, u16)> {
    let DeValue::String(text) = value.get_ref() else {
        let port = reader.whole_value(value, path, 0, u32::from(u16::MAX))? as u16;
        return Some((port, port));
    };
    let read = |end: &str| end.trim().parse::<u16>().ok();
    let ends = text.split_once('-').and_then(|(low, high)| read(low).zip(read(high)));
    let range = ends.filter(|(low, high)| low <= high);
    if range.is_none() {
        let what = format!("`{text}` is no range of ports; write \"8000-8080\", or 443 for one");
        reader.problem(&value.span(), path, what);
    }
    range
}

fn network(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>, path: &str) -> Option<Network> {
    let written = text(reader, value, path)?;
    let network = Network::parse(&written);
    if let Err(why) = &network {
        reader.problem(&value.span(), path, format!("`{written}` {why}"));
    }
    network.ok()
}
