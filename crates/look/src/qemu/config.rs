//! The file of `-readconfig`: options of QEMU's command line, a section each (util/qemu-config.c,
//! `qemu_config_foreach`): `[device "id"]`, then a line `key = "value"` for each key.

use super::options::Opt;

/// Options whose sections have another name than they have on the command line (system/vl.c, `qemu_smp_opts`,
/// `qemu_mem_opts`).
const NAMES: [(&str, &str); 2] = [("smp-opts", "smp"), ("memory", "m")];

/// The options of such a file. What is no line of its form is passed over.
pub fn options(text: &str) -> Vec<Opt> {
    let mut all: Vec<Opt> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            all.push(begun(section));
        } else if let (Some(option), Some((key, value))) = (all.last_mut(), line.split_once('=')) {
            let value = value.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            option.keys.extend(value.map(|value| (key.trim().to_owned(), value.to_owned())));
        }
    }
    all
}

/// An option without keys but its id, of a section's head: `device "scsi0"`.
fn begun(section: &str) -> Opt {
    let (group, id) = section.split_once(' ').unwrap_or((section, ""));
    let name = NAMES.iter().find(|(section, _)| *section == group).map_or(group, |(_, option)| *option);
    let id = id.trim().trim_matches('"');
    let keys = if id.is_empty() { Vec::new() } else { vec![("id".to_owned(), id.to_owned())] };
    Opt { name: name.to_owned(), text: String::new(), keys }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_options() {
        let all = options(
            "# CPU\n[smp-opts]\ncpus = \"2\"\n\n[memory]\n  size = \"512M\"\n[device \"scsi0\"]\n\
             driver = \"virtio-scsi-pci\"\nbus = \"port=1\"\nbroken\nunquoted = 7\n",
        );
        let names: Vec<&str> = all.iter().map(|option| option.name.as_str()).collect();
        assert_eq!(names, ["smp", "m", "device"]);
        assert_eq!((all[0].get("cpus"), all[1].get("size")), (Some("2"), Some("512M")));
        assert_eq!((all[2].id(), all[2].get("driver")), (Some("scsi0"), Some("virtio-scsi-pci")));
        assert_eq!((all[2].get("bus"), all[2].keys.len()), (Some("port=1"), 3));
        assert_eq!(options("cpus = \"2\"\n"), []);
    }

    proptest::proptest! {
        /// Any file is read without a panic.
        #[test]
        fn any_file_is_read(text in "[a-z\\[\\]\" =#\n\u{e9}]{0,200}") {
            let _ = options(&text);
        }
    }
}
