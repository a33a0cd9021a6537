//! A pool of a Ceph cluster: RBD images. The native side opens the kernel's mapping (`rbd map`),
//! a guest goes through librbd, as Proxmox and OpenStack attach them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use vmio_look::require::Requirement;
use vmio_node::Node;

use super::tools::{self, ask};
use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Pool, Result, instead};

/// `rbd map` loads the kernel's module itself.
const NEEDS: &[Requirement] = &[tools::ROOT, tools::RBD];

/// Where Ceph looks first.
const CONF: &str = "/etc/ceph/ceph.conf";

/// Entry `rbd`.
pub struct Rbd;

impl PlaceKind for Rbd {
    fn prefix(&self) -> &'static str {
        "rbd"
    }
    fn form(&self) -> &'static str {
        "rbd:POOL"
    }
    fn about(&self) -> &'static str {
        "a pool of a Ceph cluster: RBD images (natively mapped by the kernel, guests through librbd)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        NEEDS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let cluster = Cluster::default();
        cluster.pool(node, &format!("rbd:{name}"), name)?;
        Ok(PlaceBackend::Volumes(Pool::Rbd { pool: name.into(), cluster, kernel: false }))
    }
    fn answered_by(&self, name: &str) -> Option<String> {
        Some(format!("the cluster of the pool {name}"))
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        // Without a configuration there is no cluster, and its tools would wait for one.
        if !tools::has(node, NEEDS) || !matches!(node.stat(Path::new(CONF)), Ok(Some(_))) {
            return vec![];
        }
        match Cluster::default().pools(node, "rbd") {
            Ok(pools) => {
                pools.into_iter().map(|p| Listed { name: format!("rbd:{p}"), state: Ok("there".into()) }).collect()
            }
            Err(e) => vec![Listed { name: "rbd:".into(), state: Err(e) }],
        }
    }
}

/// Which cluster is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Configuration file; Ceph's own default where it is not said.
    pub conf: Option<PathBuf>,
    /// User, without `client.`.
    pub user: Option<String>,
}

impl Cluster {
    /// Options of `rbd` and `ceph` that name it.
    pub fn options(&self) -> Vec<String> {
        let conf = self.conf.iter().flat_map(|c| ["--conf".to_owned(), c.display().to_string()]);
        conf.chain(self.user.iter().flat_map(|u| ["--id".to_owned(), u.clone()])).collect()
    }

    /// Asks one of its tools.
    pub fn ask(&self, node: &dyn Node, place: &str, tool: &str, args: &[&str]) -> Result<String> {
        let options = self.options();
        let all: Vec<&str> = options.iter().map(String::as_str).chain(args.iter().copied()).collect();
        ask(node, place, tool, &all).map_err(|e| {
            e.help("see that the cluster answers (`ceph -s`) and that this user's keyring is in /etc/ceph")
        })
    }

    fn pools(&self, node: &dyn Node, place: &str) -> Result<Vec<String>> {
        let text = self.ask(node, place, "ceph", &["osd", "pool", "ls", "--format", "json"])?;
        serde_json::from_str(&text)
            .map_err(|e| Error::new(Kind::Tool, place, format!("the output of ceph cannot be used: {e}")))
    }

    /// Sees to it that a pool is there.
    pub fn pool(&self, node: &dyn Node, place: &str, name: &str) -> Result<()> {
        tools::needs(node, place, NEEDS)?;
        let there = self.pools(node, place)?;
        if there.iter().any(|p| p == name) {
            return Ok(());
        }
        Err(Error::new(Kind::NotThere, place, format!("the cluster has no pool {name}"))
            .help(instead("rbd", name, &there)))
    }

    /// Bytes that a pool may still take (`max_avail` of `ceph df`, replicas counted).
    pub fn available(&self, node: &dyn Node, place: &str, name: &str) -> Result<u64> {
        let text = self.ask(node, place, "ceph", &["df", "--format", "json"])?;
        let doc: Value = serde_json::from_str(&text).unwrap_or_default();
        let pool = doc["pools"].as_array().into_iter().flatten().find(|p| p["name"] == name);
        pool.and_then(|p| p["stats"]["max_avail"].as_f64())
            .map(|bytes| bytes as u64)
            .ok_or_else(|| Error::new(Kind::Tool, place, format!("`ceph df` does not say what is left in {name}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::says;

    use super::super::resolve;
    use super::*;
    use vmio_node::fake::host;

    #[test]
    fn pools_of_the_cluster_are_found() {
        let df = include_str!("../../../tests/fixtures/places/ceph-df.json");
        let node = host(&[("rbd", "")]).command(move |exec| {
            let args = exec.args.join(" ");
            exec.program.ends_with("ceph").then(|| says(if args.contains("df") { df } else { r#"["vms","backup"]"# }))
        });
        let backend = resolve(&node, "rbd:vms").unwrap().backend;
        assert_eq!(
            backend,
            PlaceBackend::Volumes(Pool::Rbd { pool: "vms".into(), cluster: Cluster::default(), kernel: false })
        );
        let said = resolve(&node, "rbd:vm").unwrap_err();
        assert!(said.kind == Kind::NotThere && said.help.contains("`rbd:vms`?"), "{said:?}");
        let cluster = Cluster { conf: Some("/etc/pve/ceph.conf".into()), user: Some("admin".into()) };
        assert_eq!(cluster.available(&node, "rbd:vms", "vms").unwrap(), 95_000_000_000);
        assert_eq!(node.ran().last().unwrap().args[..4], ["--conf", "/etc/pve/ceph.conf", "--id", "admin"]);
    }
}
