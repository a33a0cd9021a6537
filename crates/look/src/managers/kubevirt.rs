//! KubeVirt: guests in pods. Each pod has its own libvirt, which the host's `virsh` does not reach; its record of the
//! running domain is read through `/proc/PID/root` of the guest's QEMU. A lasting change belongs into the
//! VirtualMachine, from which the domain is made.

use std::path::{Path, PathBuf};

use vmio_model::cell::Kind;
use vmio_model::facts::{Guest, Unread};
use vmio_model::rules::change::ConfigTool;

use vmio_node::linux::cgroup;

use super::libvirt::xml;
use super::{Managed, Manager};
use crate::host_view::{HostView, ProcessInfo};
use crate::require::Fix;

/// Where the pod's libvirt keeps its records of running domains: of a user's session, as KubeVirt has run it since it
/// gave up root in pods, and of the system. `/var/run` is the same directory by a link, which is not followed from
/// outside: it may lead to the host's.
const RECORDS: [&str; 2] = ["run/libvirt/qemu/run", "run/libvirt/qemu"];

/// Entry `kubevirt`.
pub struct KubeVirt;

impl Manager for KubeVirt {
    fn name(&self) -> &'static str {
        "kubevirt"
    }
    fn about(&self) -> &'static str {
        "virtual machines of KubeVirt: pod, namespace, and the domain run by the pod's own libvirt"
    }
    fn way(&self) -> ConfigTool {
        ConfigTool::Libvirt
    }
    fn remark(&self) -> Option<&'static str> {
        Some("KubeVirt writes this XML itself: set it in the VirtualMachine's spec (docs/scan.md, \"KubeVirt\").")
    }
    fn guests(&self, host: &HostView<'_>) -> Managed {
        let guests = host.processes().iter().filter_map(|process| guest(host, process)).collect();
        Managed { guests, unread: Vec::new() }
    }
}

/// The guest of a QEMU in a pod.
fn guest(host: &HostView<'_>, process: &ProcessInfo) -> Option<Guest> {
    if !process.program().starts_with("qemu-") && !process.comm.starts_with("qemu-") {
        return None;
    }
    let uid = pod_uid(&host.reader().read_text(&process.dir().join("cgroup")).ok()?)?;
    // KubeVirt names domains NAMESPACE_NAME, and neither part has a `_`; other QEMUs in pods are not its guests.
    let name = named(process)?;
    let (namespace, machine) = name.split_once('_')?;

    let root = process.dir().join("root");
    let mut guest = match record(host, &root, &name) {
        Ok((path, text)) => {
            let read_from = path.display().to_string();
            let guest = xml::guest(&text, &|name| host.from(name, read_from.clone()));
            guest.unwrap_or_else(|why| unread(host, &path, why.to_string()))
        }
        Err(why) => unread(host, &root.join(RECORDS[0]).join(format!("{name}.xml")), why.to_string()),
    };
    // Who owns the pod could write others' addresses there.
    guest.nics.iter_mut().for_each(|nic| nic.place.addresses.clear());
    let host_name = host.reader().read_foreign_text(&root.join("etc/hostname")).unwrap_or_default();
    let host_name = host_name.trim();
    let is_name = host_name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    let pod = if is_name && host_name.starts_with("virt-launcher-") { host_name } else { &uid };
    let ids =
        [("domain", name.as_str()), ("namespace", namespace), ("machine", machine), ("pod", pod), ("pod-uid", &uid)];
    guest.ids.extend(ids.map(|(key, value)| (key.to_owned(), value.to_owned())));
    guest.kind = Kind::QEMU.name.into();
    guest.name = name;
    guest.manager = Some(KubeVirt.name().into());
    guest.pid = Some(process.pid);
    Some(guest)
}

fn unread(host: &HostView<'_>, path: &Path, why: String) -> Guest {
    let what = format!("the pod's record of the domain, {}", path.display());
    let fix = Fix::RootThen("if it is missing, use `virsh` in the pod's container `compute`");
    Guest { unread: vec![Unread { what, why, mend: fix.remedy(host.reader()) }], ..Guest::default() }
}

/// Name of the domain: libvirt starts QEMU with `-name guest=NAME,debug-threads=on`.
fn named(process: &ProcessInfo) -> Option<String> {
    let args = process.args.as_ref()?;
    let value = args.windows(2).find(|pair| pair[0] == "-name").map(|pair| &pair[1])?;
    let guest = value.split(',').find_map(|part| part.strip_prefix("guest="));
    // It becomes a part of a path.
    guest.or(value.split(',').next()).filter(|name| !name.contains('/') && *name != "..").map(str::to_owned)
}

/// The pod's UID in a control group below `kubepods`: `…/kubepods-burstable-pod1a2b_….slice/…` with systemd,
/// `…/kubepods/burstable/pod1a2b-…/…` without.
fn pod_uid(cgroups: &str) -> Option<String> {
    let (_, path) = cgroup::memberships(cgroups).find(|(_, path)| path.contains("kubepods"))?;
    let part = path.split('/').find_map(|part| {
        let plain = part.strip_prefix("pod").filter(|uid| uid.contains('-') && !uid.starts_with('-'));
        plain.or_else(|| part.rsplit_once("-pod").map(|(_, uid)| uid))
    })?;
    Some(part.trim_end_matches(".slice").replace('_', "-"))
}

/// The record and its path; where none is readable, the error of the first.
fn record(host: &HostView<'_>, root: &Path, name: &str) -> vmio_node::Result<(PathBuf, String)> {
    let read = |dir: &str| {
        let path = root.join(dir).join(format!("{name}.xml"));
        host.reader().read_foreign_text(&path).map(|text| (path, text))
    };
    let [session, system] = RECORDS;
    read(session).or_else(|why| read(system).map_err(|_| why))
}

#[cfg(test)]
mod tests;
