//! Asking the tools of LVM, ZFS and Ceph. They only list here; nothing is changed.

use std::time::Duration;

use serde_json::{Map, Value};
use vmio_look::require::{Requirement, find_program, program, root, unmet};
use vmio_node::{Exec, Node};

use super::{Error, Kind, Result};

/// Storage that does not answer within this is taken for dead.
const LIMIT: Duration = Duration::from_secs(30);

/// Needed for every place that holds volumes.
pub const ROOT: Requirement =
    Requirement { name: "root", why: "makes and opens volumes", fix: "run as root", check: root };

/// LVM's tools.
pub const LVM: Requirement = Requirement {
    name: "lvm2",
    why: "makes logical volumes",
    fix: "apt install lvm2",
    check: |reader| program(reader, "lvs"),
};

/// ZFS's tools.
pub const ZFS: Requirement = Requirement {
    name: "zfsutils",
    why: "makes ZFS volumes",
    fix: "apt install zfsutils-linux (and the module: apt install zfs-dkms, or a kernel that has it)",
    check: |reader| program(reader, "zfs"),
};

/// Ceph's tools.
pub const RBD: Requirement = Requirement {
    name: "ceph-common",
    why: "makes RBD images and maps them",
    fix: "apt install ceph-common",
    check: |reader| program(reader, "rbd"),
};

/// A command with the tool's full path, in the C locale, with a limit.
pub fn exec<S: Into<String>>(node: &dyn Node, tool: &str, args: impl IntoIterator<Item = S>) -> Exec {
    let path = find_program(node.reader(), tool).map_or_else(|| tool.to_owned(), |p| p.display().to_string());
    let mut exec = Exec::new(path).args(args).limit(LIMIT);
    exec.env.insert("LC_ALL".into(), "C".into());
    exec
}

/// Runs a tool for a place; its standard output.
pub fn ask(node: &dyn Node, place: &str, tool: &str, args: &[&str]) -> Result<String> {
    let exec = exec(node, tool, args.iter().copied());
    let failed = |reason: String| Error::new(Kind::Tool, place, reason).help(mend(node, tool));
    let output = node.exec(&exec).map_err(|e| failed(e.to_string()))?;
    if output.ok() {
        return Ok(output.out());
    }
    Err(failed(format!("`{}` failed ({:?}): {}", exec.shown(), output.end, output.err().trim())))
}

fn mend(node: &dyn Node, tool: &str) -> String {
    let how = if root(node.reader()).is_ok() { "by hand" } else { "as root" };
    format!("run the same command {how} to see more; `vmio doctor` says whether {tool} is there")
}

/// Refuses where a requirement is unmet.
pub fn needs(node: &dyn Node, place: &str, list: &[Requirement]) -> Result<()> {
    for requirement in list {
        if let Err(found) = (requirement.check)(node.reader()) {
            return Err(Error::new(Kind::Tool, place, format!("{}: {found}", requirement.name))
                .help(requirement.fix_for(node.reader(), &found)));
        }
    }
    Ok(())
}

/// Whether all of a list is met.
pub fn has(node: &dyn Node, list: &[Requirement]) -> bool {
    unmet(node.reader(), list).is_empty()
}

/// Rows of an LVM report (lvmreport(7), `--reportformat json`): sizes are bytes.
pub fn lvm_report(
    node: &dyn Node,
    place: &str,
    tool: &str,
    columns: &str,
    of: &[&str],
) -> Result<Vec<Map<String, Value>>> {
    let mut args = vec!["--reportformat", "json", "--units", "b", "--nosuffix", "-o", columns];
    args.extend(of);
    let text = ask(node, place, tool, &args)?;
    let unusable = |why: String| Error::new(Kind::Tool, place, format!("the output of {tool} cannot be used: {why}"));
    let doc: Value = serde_json::from_str(&text).map_err(|e| unusable(e.to_string()))?;
    // One list of reports, each with one list under `vg`, `lv` or `pv`.
    let lists = doc["report"].as_array().ok_or_else(|| unusable("no report in it".into()))?;
    let rows = lists.iter().filter_map(Value::as_object).flat_map(Map::values).filter_map(Value::as_array).flatten();
    Ok(rows.filter_map(Value::as_object).cloned().collect())
}

/// A field of such a row.
pub fn field<'a>(row: &'a Map<String, Value>, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A field that is a number.
pub fn number(row: &Map<String, Value>, name: &str) -> Option<f64> {
    field(row, name).trim().parse().ok()
}
