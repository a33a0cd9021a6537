//! A guest's configuration file: lines of key and value, then sections of snapshots, and one of pending settings
//! (qm.conf(5)).

use std::collections::BTreeMap;

/// Settings by key.
pub type Settings = BTreeMap<String, String>;

/// The settings of the file that concern the running guest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// Settings of the last start, or hot-plugged since.
    pub now: Settings,
    /// Settings of the next start, where they differ.
    pub next: Option<Settings>,
    /// Settings that the drive for cloud-init has, where they differ (`[special:cloudinit]`): they were changed since
    /// it was made (qemu-server, src/PVE/QemuServer.pm, `cloudinit_record_changed`).
    pub in_drive: Settings,
}

/// Parses the file. Snapshots are left out.
pub fn sections(text: &str) -> Sections {
    let (mut now, mut pending, mut in_drive) = (Settings::new(), Settings::new(), Settings::new());
    let mut section = Some(&mut now);
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = match name.to_ascii_lowercase().as_str() {
                "pending" => Some(&mut pending),
                "special:cloudinit" => Some(&mut in_drive),
                _ => None,
            };
        } else if let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with('#'))
            && let Some(section) = &mut section
        {
            section.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    if pending.is_empty() {
        return Sections { now, next: None, in_drive };
    }
    let mut next = now.clone();
    // A forced deletion has a mark before the key.
    for key in pending.remove("delete").unwrap_or_default().split([',', ' ', ';']) {
        next.remove(key.trim_start_matches('!'));
    }
    next.extend(pending);
    Sections { now, next: Some(next), in_drive }
}

/// The system in a guest by its `ostype`, which decides about Hyper-V enlightenments and timers (qm.conf(5)). `other`
/// is what guests of FreeBSD have, and guests whose owner chose none.
pub fn system(conf: &Settings) -> Option<&'static str> {
    match conf.get("ostype")?.as_str() {
        windows if windows.starts_with('w') => Some("windows"),
        "l24" | "l26" => Some("linux"),
        "other" => Some("other"),
        _ => None,
    }
}

/// A value of comma-separated parts: `local-lvm:vm-101-disk-0,iothread=1,size=32G`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The part without a key, which comes first.
    pub first: Option<&'a str>,
    keyed: BTreeMap<&'a str, &'a str>,
}

impl<'a> Parts<'a> {
    /// Splits a value.
    pub fn of(value: &'a str) -> Self {
        let mut parts = Self::default();
        for part in value.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once('=') {
                Some((key, value)) => drop(parts.keyed.insert(key, value)),
                None if parts.first.is_none() => parts.first = Some(part),
                None => {}
            }
        }
        parts
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.keyed.get(key).copied()
    }

    /// The value of a key as a number.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }

    /// Key and value of the first of these keys that is set.
    pub fn any_of(&self, keys: &[&'static str]) -> Option<(&'static str, &'a str)> {
        keys.iter().find_map(|key| Some((*key, self.get(key)?)))
    }
}

/// A boolean as Proxmox VE writes it.
pub fn truth(value: &str) -> Option<bool> {
    match value {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_settings_make_the_next_start() {
        let text = "#a note: cores: 9\ncores: 2\nballoon: 0\n\n[PENDING]\ncores: 4\ndelete: !balloon,gone\n\n[before]\ncores: 1\n";
        let read = sections(text);
        assert_eq!(read.now, Settings::from([("cores".into(), "2".into()), ("balloon".into(), "0".into())]));
        assert_eq!(read.next, Some(Settings::from([("cores".into(), "4".into())])));
        assert_eq!(sections("cores: 2\n[snap]\ncores: 1\n").next, None);
        let drive = sections("name: b\n\n[special:cloudinit]\nname: a\n\n[snap]\nname: c\n");
        assert_eq!((&*drive.now["name"], drive.next, &*drive.in_drive["name"]), ("b", None, "a"));
    }

    #[test]
    fn parts_of_a_value() {
        let parts = Parts::of("virtio=BC:24:11:8A:2B:3C,bridge=vmbr0,queues=4");
        assert_eq!((parts.first, parts.number::<u32>("queues")), (None, Some(4)));
        assert_eq!(parts.any_of(&["e1000", "virtio"]), Some(("virtio", "BC:24:11:8A:2B:3C")));
        assert_eq!(Parts::of("host,flags=+aes").first, Some("host"));
    }
}
