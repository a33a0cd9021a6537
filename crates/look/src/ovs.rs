//! Open vSwitch: its bridges with their ports, and what its ports may send into it, by its database
//! (ovs-vswitchd.conf.db(5)). sysfs has `ovs-system` as the master of all ports, whichever bridge they are in.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use vmio_model::facts::Unread;
use vmio_node::{Question, Reader};

use crate::require;

/// The master of its ports in sysfs: the device of the kernel's datapath.
pub const DATAPATH: &str = "ovs-system";
/// Sockets of its database; they exist where it runs.
const SOCKETS: [&str; 2] = ["/run/openvswitch/db.sock", "/var/run/openvswitch/db.sock"];

/// An interface of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OvsInterface {
    /// Its bridge.
    pub bridge: Option<String>,
    /// Its type: empty or `system` for an interface of the kernel's, `internal`, `patch`, `vxlan`.
    pub kind: String,
    /// The other end of a patch port.
    pub peer: Option<String>,
    /// What may be sent by it into the bridge, in kbit/s of 1000; 0 is no limit.
    pub policing_kbit: u64,
    /// Burst of that in kbit.
    pub policing_burst_kbit: u64,
}

/// What its database says; empty where it does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ovs {
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, OvsInterface>,
}

impl Ovs {
    /// Whether it runs here and can be asked.
    pub fn runs(reader: &dyn Reader) -> bool {
        SOCKETS.iter().any(|socket| matches!(reader.stat(Path::new(socket)), Ok(Some(_))))
            && require::find_program(reader, Question::Ovs.program()).is_some()
    }

    /// Parses the answer to [`Question::Ovs`].
    ///
    /// # Errors
    /// When it is not these three tables.
    pub fn parse(said: &str) -> Result<Ovs, Unread> {
        parse(said).ok_or_else(|| Unread {
            what: "ports of Open vSwitch".into(),
            why: "ovs-vsctl's answer is not its tables Interface, Port and Bridge".into(),
            mend: "look at it: ovs-vsctl list Interface".into(),
        })
    }

    /// The interfaces of a bridge.
    pub fn of_bridge<'a>(&'a self, bridge: &'a str) -> impl Iterator<Item = (&'a str, &'a OvsInterface)> {
        let all = self.interfaces.iter().map(|(name, interface)| (name.as_str(), interface));
        all.filter(move |(_, interface)| interface.bridge.as_deref() == Some(bridge))
    }

    /// The bridge that an interface is in.
    pub fn bridge_of(&self, interface: &str) -> Option<&str> {
        self.interfaces.get(interface)?.bridge.as_deref()
    }
}

/// A cell that is not there.
static NULL: Value = Value::Null;

/// A table: names of its columns, and its rows.
struct Table<'a> {
    head: Vec<&'a str>,
    rows: &'a [Value],
}

impl<'a> Table<'a> {
    fn of(table: &'a Value) -> Option<Self> {
        let head = table.get("headings")?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<&str>>>()?;
        Some(Table { head, rows: table.get("data")?.as_array()? })
    }

    /// The cells of these columns, row by row.
    fn columns<const N: usize>(&self, names: [&str; N]) -> Option<Vec<[&'a Value; N]>> {
        let mut at = [0; N];
        for (at, name) in at.iter_mut().zip(names) {
            *at = self.head.iter().position(|head| *head == name)?;
        }
        let cells = |row: &'a Value| {
            let row = row.as_array()?;
            let mut found: [&'a Value; N] = [&NULL; N];
            for (cell, at) in found.iter_mut().zip(at) {
                *cell = row.get(at)?;
            }
            Some(found)
        };
        self.rows.iter().map(cells).collect()
    }
}

fn parse(said: &str) -> Option<Ovs> {
    let mut tables = serde_json::Deserializer::from_str(said).into_iter::<Value>();
    let mut next = || tables.next()?.ok();
    let (interfaces, ports, bridges) = (next()?, next()?, next()?);
    // By the rows' UUIDs.
    let mut bridge_of_port: BTreeMap<&str, &str> = BTreeMap::new();
    for [name, ports] in Table::of(&bridges)?.columns(["name", "ports"])? {
        let name = name.as_str()?;
        bridge_of_port.extend(references(ports).map(|port| (port, name)));
    }
    let mut bridge_of: BTreeMap<&str, &str> = BTreeMap::new();
    for [id, interfaces] in Table::of(&ports)?.columns(["_uuid", "interfaces"])? {
        if let Some(bridge) = references(id).next().and_then(|port| bridge_of_port.get(port)) {
            bridge_of.extend(references(interfaces).map(|interface| (interface, *bridge)));
        }
    }
    let columns = ["_uuid", "name", "type", "options", "ingress_policing_rate", "ingress_policing_burst"];
    let mut all = BTreeMap::new();
    for [id, name, kind, options, rate, burst] in Table::of(&interfaces)?.columns(columns)? {
        let bridge = references(id).next().and_then(|id| bridge_of.get(id)).map(|bridge| (*bridge).to_owned());
        let interface = OvsInterface {
            bridge,
            kind: kind.as_str()?.to_owned(),
            peer: in_map(options, "peer"),
            policing_kbit: rate.as_u64()?,
            policing_burst_kbit: burst.as_u64()?,
        };
        all.insert(name.as_str()?.to_owned(), interface);
    }
    Some(Ovs { interfaces: all })
}

/// The UUIDs of a cell: `["uuid", U]`, or `["set", [["uuid", U], …]]` (RFC 7047, section 5.1).
fn references(cell: &Value) -> impl Iterator<Item = &str> {
    let many = cell.get(1).and_then(Value::as_array);
    reference(cell).into_iter().chain(many.into_iter().flatten().filter_map(reference))
}

fn reference(cell: &Value) -> Option<&str> {
    (cell.get(0)?.as_str()? == "uuid").then(|| cell.get(1)?.as_str()).flatten()
}

/// A key's value in a cell `["map", [[KEY, VALUE], …]]`.
fn in_map(cell: &Value, key: &str) -> Option<String> {
    let pairs = cell.get(1)?.as_array()?;
    let pair = pairs.iter().find(|pair| pair.get(0).and_then(Value::as_str) == Some(key))?;
    Some(pair.get(1)?.as_str()?.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Two bridges joined by patch ports: `br-int` with two taps, `br-ex` with a card.
    pub const SAID: &str = concat!(
        r#"{"data":[[["uuid","i1"],"tap0","",["map",[]],100000,8000],"#,
        r#"[["uuid","i2"],"patch-ex","patch",["map",[["peer","patch-int"]]],0,0],"#,
        r#"[["uuid","i3"],"patch-int","patch",["map",[["peer","patch-ex"]]],0,0],"#,
        r#"[["uuid","i4"],"eth0","",["map",[]],0,0],"#,
        r#"[["uuid","i5"],"tap1","system",["map",[]],1,0]],"#,
        r#""headings":["_uuid","name","type","options","ingress_policing_rate","ingress_policing_burst"]}"#,
        "\n",
        r#"{"data":[[["uuid","p1"],["uuid","i1"]],[["uuid","p2"],["uuid","i2"]],[["uuid","p3"],["uuid","i3"]],"#,
        r#"[["uuid","p4"],["uuid","i4"]],[["uuid","p5"],["uuid","i5"]]],"headings":["_uuid","interfaces"]}"#,
        "\n",
        r#"{"data":[["br-int",["set",[["uuid","p1"],["uuid","p2"],["uuid","p5"]]]],"#,
        r#"["br-ex",["set",[["uuid","p3"],["uuid","p4"]]]],["br-none",["set",[]]]],"headings":["name","ports"]}"#,
        "\n",
    );

    #[test]
    fn three_tables_are_joined() {
        let ovs = Ovs::parse(SAID).unwrap();
        assert_eq!((ovs.bridge_of("tap0"), ovs.bridge_of("eth0")), (Some("br-int"), Some("br-ex")));
        let names = |bridge: &str| ovs.of_bridge(bridge).map(|(name, _)| name.to_owned()).collect::<Vec<String>>();
        assert_eq!(
            (names("br-int"), names("br-none")),
            (vec!["patch-ex".into(), "tap0".into(), "tap1".into()], vec![])
        );
        assert_eq!(ovs.interfaces["patch-ex"].peer.as_deref(), Some("patch-int"));
        let limit = &ovs.interfaces["tap0"];
        assert_eq!((limit.policing_kbit, limit.policing_burst_kbit), (100_000, 8000));
        for wrong in ["", "{}", r#"{"headings":["name"],"data":[]}"#, "ovs-vsctl: no database"] {
            assert!(Ovs::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// A program in its place can say anything.
    #[test]
    fn cells_of_another_shape_are_no_table() {
        for (from, to) in [("100000", "null"), ("\"tap0\"", "7"), ("\"headings\"", "\"heads\""), ("[\"br-ex\",", "[7,")]
        {
            assert!(Ovs::parse(&SAID.replacen(from, to, 1)).is_err(), "{from}");
        }
    }
}
