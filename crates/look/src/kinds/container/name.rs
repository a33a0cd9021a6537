//! The container of a control group, by the names that engines give: Docker (`docker-ID.scope`, `/docker/ID`), Podman
//! (`libpod-ID`), containerd and CRI-O below Kubernetes (`cri-containerd-ID`, `crio-ID`, `/kubepods/…/ID`), LXC
//! (`/lxc/NAME`, `lxc.payload.NAME`), systemd-nspawn (`machine-NAME.scope`, `systemd-nspawn@NAME.service`).

use vmio_node::linux::cgroup;

/// A container and its engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerName {
    /// Engine: `docker`, `lxc`.
    pub engine: &'static str,
    /// Name that is shown: the start of its id, as engines show it, or its name.
    pub name: String,
    /// Its whole id, where it has one.
    pub id: Option<String>,
}

/// Digits of an id that are shown.
const SHOWN: usize = 12;

/// The container of a `/proc/PID/cgroup`; `None` where no engine made the group.
pub fn of(groups: &str) -> Option<ContainerName> {
    cgroup::memberships(groups).find_map(|(_, path)| of_path(path))
}

fn of_path(path: &str) -> Option<ContainerName> {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let named = |engine, name: &str| Some(ContainerName { engine, name: unescaped(name), id: None });
    for (i, part) in parts.iter().enumerate() {
        let next = parts.get(i + 1);
        if let Some(name) = part.strip_prefix("lxc.payload.") {
            return named("lxc", name);
        }
        if let ("lxc" | "lxc.payload", Some(name)) = (*part, next) {
            return named("lxc", name);
        }
        if let Some(name) = part.strip_prefix("systemd-nspawn@").and_then(|p| p.strip_suffix(".service")) {
            return named("nspawn", name);
        }
        // libvirt registers its guests the same way.
        if let Some(name) = part.strip_prefix("machine-").and_then(|p| p.strip_suffix(".scope")) {
            let other = name.starts_with("qemu");
            return if other { None } else { named("nspawn", name) };
        }
        let plain = part.strip_suffix(".scope").unwrap_or(part);
        let (engine, id) = plain.rsplit_once('-').unwrap_or(("", plain));
        if !is_id(id) {
            continue;
        }
        let engine = match engine {
            "docker" => "docker",
            "libpod" => "podman",
            "cri-containerd" => "containerd",
            "crio" => "cri-o",
            // An id alone: a group above it names the engine.
            "" => match parts.iter().take(i).find_map(|p| above(p)) {
                Some(engine) => engine,
                None => continue,
            },
            _ => continue, // `libpod-conmon-ID` is the monitor of a container
        };
        return Some(ContainerName { engine, name: id[..SHOWN].to_owned(), id: Some(id.to_owned()) });
    }
    None
}

fn above(part: &str) -> Option<&'static str> {
    match part {
        "docker" => Some("docker"),
        "libpod_parent" => Some("podman"),
        _ if part.starts_with("kubepods") => Some("kubernetes"),
        _ => None,
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// `\x2d` as systemd writes a hyphen in a unit's name (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_known_by_the_groups_that_it_makes() {
        let id = "0123456789abcdef".repeat(4);
        let cases = [
            (format!("0::/system.slice/docker-{id}.scope"), "docker", "0123456789ab"),
            (format!("9:memory:/docker/{id}"), "docker", "0123456789ab"),
            (format!("0::/machine.slice/libpod-{id}.scope/container"), "podman", "0123456789ab"),
            (
                format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope"),
                "podman",
                "0123456789ab",
            ),
            (format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"), "containerd", "0123456789ab"),
            (format!("0::/kubepods.slice/kubepods-pod1.slice/crio-{id}.scope"), "cri-o", "0123456789ab"),
            (format!("3:cpu,cpuacct:/kubepods/burstable/pod1/{id}"), "kubernetes", "0123456789ab"),
            ("0::/lxc/101/ns/system.slice/cron.service".into(), "lxc", "101"),
            ("1:name=systemd:/lxc.payload.web/init.scope".into(), "lxc", "web"),
            ("0::/machine.slice/systemd-nspawn@deb.service/payload".into(), "nspawn", "deb"),
            ("0::/machine.slice/machine-my\\x2dbox.scope".into(), "nspawn", "my-box"),
        ];
        for (cgroup, engine, name) in cases {
            let found = of(&cgroup).unwrap_or_else(|| panic!("{cgroup}"));
            assert_eq!((found.engine, found.name.as_str()), (engine, name), "{cgroup}");
        }
    }

    #[test]
    fn other_groups_are_of_no_container() {
        let id = "0123456789abcdef".repeat(4);
        for other in [
            "0::/".to_owned(),
            "0::/system.slice/ssh.service".to_owned(),
            format!("0::/machine.slice/libpod-conmon-{id}.scope"),
            format!("0::/user.slice/{id}"),
            "0::/machine.slice/machine-qemu\\x2d1\\x2dweb1.scope/libvirt/emulator".to_owned(),
            "0::/qemu.slice/101.scope".to_owned(),
            "0::/system.slice/docker-short.scope".to_owned(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
    }
}
