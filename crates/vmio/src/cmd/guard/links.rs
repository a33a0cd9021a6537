//! The link speeds that the kernel knows: the capacity of uplinks that do not write one.
//! `/sys/class/net/NAME/speed` is in Mbit/s; a link that is down says -1 or fails with `EINVAL`
//! (Documentation/ABI/testing/sysfs-class-net), and so do most virtual ones.

use std::fs;
use std::path::Path;

use vmio_model::policy::Links;
use vmio_model::policy::units::MAX_RATE;

/// What the kernel of this host knows.
pub fn known() -> Links {
    under(Path::new("/sys/class/net"))
}

fn under(root: &Path) -> Links {
    let names = fs::read_dir(root).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    Links { speeds: names.filter_map(|name| Some((name.clone(), speed(&root.join(&name))?))).collect() }
}

/// In bit/s; `None` where it is not known.
fn speed(interface: &Path) -> Option<u64> {
    let text = fs::read_to_string(interface.join("speed")).ok()?;
    let mbit = text.trim().parse::<i64>().ok().filter(|mbit| *mbit > 0)?;
    // Drivers without a speed show the word for "unknown" as an unsigned number.
    let known = u64::try_from(mbit).ok().filter(|mbit| *mbit < u64::from(u32::MAX))?;
    Some(known.saturating_mul(1_000_000).min(MAX_RATE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
