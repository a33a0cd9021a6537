//! Whether the links of a cell's paths are up: before it begins, and whether they stayed so. The interfaces are in namespaces
//! of vmio's own, and still a person, a daemon or the kernel may take one down; then what a program says is of no use, and it
//! may wait for its limit without a word of the cause.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use vmio_node::Exec;

use crate::engine::stage::PreparedActor;
use crate::nets::Port;

/// How long a look may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What `ip` tells of an interface (ip-link(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    /// Whether it is set up (`IFF_UP`).
    is_set: bool,
    /// Whether there is a link at it (`IFF_LOWER_UP`).
    is_up: bool,
    /// How often its carrier came or went; `None` where this `ip` does not say.
    changes: Option<u64>,
}

/// The interfaces of a cell's paths on the host's side, in the order of the paths. One that nothing is told of is not in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links(Vec<(String, Link)>);

impl Links {
    /// As they are now: a command for each namespace.
    pub fn of(actors: &[PreparedActor]) -> Self {
        let mut told: BTreeMap<&[String], BTreeMap<String, Link>> = BTreeMap::new();
        let mut all = Vec::new();
        for port in actors.iter().flat_map(|prepared| &prepared.ports) {
            let there = told.entry(&port.enter).or_insert_with(|| look(port));
            let found = there.get(&port.interface).map(|link| (port.interface.clone(), *link));
            all.extend(found);
        }
        Self(all)
    }

    /// The first that is down: one that somebody set so rather than its other end, which only lost the link by that.
    pub fn down(&self) -> Option<&str> {
        let first = |is: fn(&Link) -> bool| self.0.iter().find(|(_, link)| is(link));
        first(|link| !link.is_set).or_else(|| first(|link| !link.is_up)).map(|(name, _)| name.as_str())
    }

    /// What became of the first that did not stay up until then.
    pub fn lost(&self, then: &Self) -> Option<String> {
        if let Some(down) = then.down() {
            return Some(format!("the link {down} of its path went down while it ran"));
        }
        let flapped = |((name, before), (_, after)): (&(String, Link), &(String, Link))| {
            let times = after.changes?.checked_sub(before.changes?).filter(|times| *times > 0)?;
            Some(format!("the link {name} of its path went down and came back while it ran ({times} changes)"))
        };
        let same = self.0.iter().map(|(name, _)| name).eq(then.0.iter().map(|(name, _)| name));
        if same { self.0.iter().zip(&then.0).find_map(flapped) } else { None }
    }
}

/// The interfaces of a namespace; none where they cannot be seen, which is no reason to give a cell up.
fn look(port: &Port) -> BTreeMap<String, Link> {
    let args = ["-json", "-statistics", "-statistics", "link", "show"];
    let command = Exec::new("ip").args(args).limit(LIMIT).behind(&port.enter);
    let output = port.node.exec(&command).ok().filter(vmio_node::Output::ok);
    output.map(|output| parse(&output.out())).unwrap_or_default()
}

fn parse(text: &str) -> BTreeMap<String, Link> {
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    let link = |one: &Value| {
        let flags: Vec<&str> = one["flags"].as_array()?.iter().filter_map(Value::as_str).collect();
        let [is_set, is_up] = ["UP", "LOWER_UP"].map(|flag| flags.contains(&flag));
        let changes = one["stats64"]["tx"]["carrier_changes"].as_u64();
        Some((one["ifname"].as_str()?.to_owned(), Link { is_set, is_up, changes }))
    };
    told.as_array().into_iter().flatten().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(flags: &str, changes: Option<u64>) -> Link {
        Link { is_set: flags.contains('u'), is_up: flags.contains('l'), changes }
    }

    /// Interfaces that are set up (`u`) and have a link (`l`).
    fn links(all: &[(&str, &str, Option<u64>)]) -> Links {
        Links(all.iter().map(|(name, flags, changes)| ((*name).to_owned(), link(flags, *changes))).collect())
    }

    #[test]
    fn what_ip_tells_is_read() {
        let told = r#"[{"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"stats64":{"tx":{"carrier_changes":0}}},
            {"ifname":"up0","flags":["NO-CARRIER","BROADCAST","UP"],"stats64":{"tx":{"carrier_changes":3}}},
            {"ifname":"br0","flags":["BROADCAST"]}, {"flags":["UP"]}, {}]"#;
        let all = [("br0", link("", None)), ("lo", link("ul", Some(0))), ("up0", link("u", Some(3)))];
        assert_eq!(parse(told), all.map(|(name, link)| (name.to_owned(), link)).into());
        assert_eq!((parse(""), parse("{}")), (BTreeMap::new(), BTreeMap::new()));
    }

    #[test]
    fn a_link_that_went_is_named() {
        let before = links(&[("eth0", "ul", Some(2)), ("up0", "ul", Some(2)), ("br0", "ul", None)]);
        assert_eq!((before.down(), before.lost(&before)), (None, None));
        // The other end of what was set down has no link either.
        let down = links(&[("eth0", "u", Some(3)), ("up0", "", Some(3)), ("br0", "ul", None)]);
        assert_eq!(down.down(), Some("up0"));
        assert_eq!(before.lost(&down).as_deref(), Some("the link up0 of its path went down while it ran"));
        assert_eq!(links(&[("eth0", "u", None)]).down(), Some("eth0"));
        let back = links(&[("eth0", "ul", Some(2)), ("up0", "ul", Some(4)), ("br0", "ul", None)]);
        assert!(before.lost(&back).is_some_and(|why| why.contains("up0") && why.contains("came back")));
        // What nothing is told of is no reason.
        assert_eq!((before.lost(&Links::default()), Links::default().lost(&before)), (None, None));
    }
}
