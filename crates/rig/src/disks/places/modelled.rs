//! A modelled disk ([`crate::disks::modelled`]): made when the run begins, with ext4 on it, so that all that lies in a
//! directory lies on it as well, and taken down at the end.

use vmio_look::require::Requirement;
use vmio_model::modelled::ModelledDisk;
use vmio_node::Node;

use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Result, tools};
use crate::disks::modelled;

/// Entry `modelled`.
pub struct Modelled;

impl PlaceKind for Modelled {
    fn prefix(&self) -> &'static str {
        "modelled"
    }
    fn form(&self) -> &'static str {
        "modelled:RATE[,overhead=TIME][,seek=TIME][,size=BYTES]"
    }
    fn about(&self) -> &'static str {
        "a modelled disk in memory, such as modelled:40MB/s,overhead=150us,seek=8ms: one request at a time"
    }
    fn requirements(&self) -> &'static [Requirement] {
        modelled::REQUIREMENTS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let place = format!("modelled:{name}");
        tools::needs(node, &place, modelled::REQUIREMENTS)?;
        let disk = ModelledDisk::parse(name).map_err(|why| {
            Error::new(Kind::Unknown, &*place, why.to_string()).help(format!("write {}: {}", self.form(), self.about()))
        })?;
        Ok(PlaceBackend::Modelled(disk))
    }
    fn list(&self, _: &dyn Node) -> Vec<Listed> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::host;

    #[test]
    fn it_is_read_and_what_is_missing_is_told_with_the_mend() {
        let node = host(&[("mkfs.ext4", "")]).file("/dev/fuse", "").file("/dev/loop-control", "");
        let place = super::super::resolve(&node, "modelled:40MB/s,seek=4ms").unwrap();
        let disk = place.backend.modelled().unwrap();
        assert_eq!(
            place.describe(),
            "modelled:40MB/s,seek=4ms (a modelled disk: 40 MB/s, 150 µs a request, 4 ms a seek)"
        );
        assert!(disk.seek_microseconds == 4000.0 && place.backend.pool().is_none());
        let said = super::super::resolve(&node, "modelled:fast").unwrap_err();
        assert!(said.kind == Kind::Unknown && said.help.contains("modelled:40MB/s"), "{said:?}");
        let bare = host(&[]).file("/dev/fuse", "").file("/dev/loop-control", "");
        let said = super::super::resolve(&bare, "modelled:40MB/s").unwrap_err();
        assert!(said.kind == Kind::Tool && said.help == "apt install e2fsprogs", "{said:?}");
    }
}
