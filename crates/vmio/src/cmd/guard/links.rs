//! The link speeds that the kernel knows: the capacity of uplinks that do not write one.

use vmio_model::policy::Links;
use vmio_model::policy::units::MAX_RATE;
use vmio_node::Local;
use vmio_node::linux::net::Interfaces;

/// What the kernel of this host knows.
pub fn known() -> Links {
    of(&Interfaces::here(&Local::new()))
}

/// In bit/s.
fn of(all: &Interfaces<'_>) -> Links {
    let names = all.names().unwrap_or_default().into_iter();
    Links { speeds: names.filter_map(|name| Some((name.clone(), all.speed_bps(&name)?.min(MAX_RATE)))).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    fn under(root: &Path) -> Links {
        of(&Interfaces::shown_at(&Local::new(), root))
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
        assert_eq!(under(dir.path()).speeds, [("eth0".to_owned(), 1_000_000_000)].into());
        assert!(under(&dir.path().join("none")).speeds.is_empty());
    }
}
