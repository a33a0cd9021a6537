//! Speeds of links by the kernel, for uplinks without a capacity in the policy; and which are physical ports, where a
//! frame counts with preamble and gap.

use std::collections::BTreeSet;

use vmio_model::policy::Links;
use vmio_model::policy::units::MAX_RATE;
use vmio_model::rate::BitRate;
use vmio_node::Local;
use vmio_node::linux::net::Interfaces;

/// What the kernel of this host knows of the links of these names, or of all.
pub fn of_kernel(names: Option<&BTreeSet<String>>) -> Links {
    of(&Interfaces::here(&Local::new()), names)
}

fn of(all: &Interfaces<'_>, names: Option<&BTreeSet<String>>) -> Links {
    let names: Vec<String> = match names {
        // There may be thousands of others.
        Some(names) => names.iter().filter(|name| all.has_interface(name)).cloned().collect(),
        None => all.names().unwrap_or_default(),
    };
    let speed = |name: &String| Some((name.clone(), BitRate::new(all.speed_bps(name)?).min(MAX_RATE)));
    Links {
        speeds: names.iter().filter_map(speed).collect(),
        physical: names.iter().filter(|name| all.is_ethernet_port(name)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    fn under(root: &Path) -> Links {
        of(&Interfaces::shown_at(&Local::new(), root), None)
    }

    #[test]
    fn speeds_above_0_are_known_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for (name, speed) in
            [("eth0", "1000\n"), ("eth1", "-1\n"), ("eth2", "0\n"), ("eth3", "4294967295\n"), ("eth4", "x")]
        {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("speed"), speed).unwrap();
        }
        // Reading a directory fails, as reading the speed of a link that is down does.
        fs::create_dir_all(dir.path().join("eth5/speed")).unwrap();
        fs::create_dir(dir.path().join("lo")).unwrap();
        assert_eq!(under(dir.path()).speeds, [("eth0".to_owned(), BitRate::new(1_000_000_000))].into());
        assert!(under(&dir.path().join("none")).speeds.is_empty());
    }

    #[test]
    fn a_port_is_physical_where_hardware_of_no_hypervisor_has_ethernet_addresses() {
        let dir = tempfile::tempdir().unwrap();
        for (name, kind, driver) in [
            ("eth0", "1\n", Some("../../bus/pci/drivers/ixgbe")),
            ("eth1", "1\n", Some("../../bus/virtio/drivers/virtio_net")),
            ("ib0", "32\n", Some("../../bus/pci/drivers/mlx5_core")),
            ("vnet0", "1\n", None),
        ] {
            let at = dir.path().join(name);
            fs::create_dir(&at).unwrap();
            fs::write(at.join("type"), kind).unwrap();
            if let Some(driver) = driver {
                fs::create_dir(at.join("device")).unwrap();
                std::os::unix::fs::symlink(driver, at.join("device/driver")).unwrap();
            }
        }
        assert_eq!(under(dir.path()).physical, ["eth0".to_owned()].into());
    }
}
