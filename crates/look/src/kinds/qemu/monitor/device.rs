//! Properties of a disk's device and its controller (`qom-get`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vmio_model::facts::{Disk, Fact};
use vmio_node::qmp::ReadOnly;

use super::super::plain;

/// QEMU version since which queues can be spread over I/O threads.
const MAPS_SINCE: u32 = 9;

/// Properties of a disk's device and its controller.
#[derive(Debug, Default, Clone)]
pub struct Device {
    kind: Option<String>,
    controller: Option<String>,
    /// Its bus.
    bus: Option<String>,
    /// Id of its I/O thread, empty for none; `None` where it cannot have one.
    iothread: Option<String>,
    mapped: Vec<String>,
    queues: Option<u32>,
}

impl Device {
    /// Queries devices by path in two rounds: the devices, then the controllers of those without I/O thread and queues
    /// of their own.
    pub fn ask(monitor: &mut ReadOnly, paths: &[String], version: &str) -> BTreeMap<String, Device> {
        let own = Device::all(monitor, paths, version, "num-queues");
        let controller =
            |device: &Device| device.iothread.is_none().then(|| controller_of(device.bus.as_deref()?)).flatten();
        let controllers: BTreeSet<String> = own.values().filter_map(controller).collect();
        let holders = Device::all(monitor, &Vec::from_iter(controllers), version, "num_queues");
        let with_controller = |(path, device): (String, Device)| {
            let holder = controller(&device).and_then(|c| holders.get(&c)).cloned();
            let device = match holder {
                Some(holder) => Device { kind: device.kind, controller: holder.kind.clone(), ..holder },
                None => device,
            };
            (path, device)
        };
        own.into_iter().map(with_controller).collect()
    }

    /// Queries all properties of these objects at once.
    fn all(monitor: &mut ReadOnly, paths: &[String], version: &str, queues: &'static str) -> BTreeMap<String, Device> {
        let major: u32 = version.split('.').next().and_then(|m| m.parse().ok()).unwrap_or(0);
        let mut names = vec!["type", "iothread", "parent_bus", queues];
        if major >= MAPS_SINCE {
            names.push("iothread-vq-mapping");
        }
        let asked: Vec<(String, &str)> = paths.iter().flat_map(|p| names.iter().map(|n| (p.clone(), *n))).collect();
        let answers = monitor.properties(&asked);
        let text = |v: &Option<Value>| v.as_ref().and_then(|v| v.as_str().map(str::to_owned));
        let ids = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|m| Some(m["iothread"].as_str()?.to_owned())).collect()
        };
        let device = |of: &[Option<Value>]| Device {
            kind: text(&of[0]),
            iothread: text(&of[1]),
            bus: text(&of[2]),
            queues: of[3].as_ref().and_then(|q| u32::try_from(q.as_u64()?).ok()).filter(|q| *q > 0),
            mapped: of.get(4).and_then(Option::as_ref).map(ids).unwrap_or_default(),
            controller: None,
        };
        // A device without any reply was not reached in time.
        let known = |of: &&[Option<Value>]| of.iter().any(Option::is_some);
        let found = paths.iter().zip(answers.chunks(names.len())).filter(|(_, of)| known(of));
        found.map(|(path, of)| (path.clone(), device(of))).collect()
    }

    pub fn put(&self, disk: &mut Disk, what: &str) {
        let from = format!("{what}, qom-get");
        if let Some(link) = &self.iothread {
            let own = link.rsplit('/').next().filter(|id| !id.is_empty()).or(self.mapped.first().map(String::as_str));
            disk.iothread = Fact::read(Some(own.is_some()), &from);
            disk.details.iothread_name = own.map(str::to_owned).into();
            disk.details.mapped_iothreads = u32::try_from(self.mapped.len()).ok().filter(|n| *n > 0).into();
        }
        if self.queues.is_some() {
            disk.details.queues = Fact::read(self.queues, from);
        }
    }

    /// Its driver by vmio's name, else by QEMU's.
    pub fn driver(&self) -> Option<String> {
        let kind = self.kind.as_deref()?;
        let on_controller = kind.starts_with("scsi-") || kind.starts_with("ide-");
        let driver = plain(if on_controller { self.controller.as_deref()? } else { kind });
        Some(match driver.as_str() {
            "lsi" => "lsi53c895a".to_owned(),
            ahci if ahci.contains("ahci") => "ahci".to_owned(),
            ide if ide.ends_with("-ide") => "ide".to_owned(),
            _ => driver,
        })
    }
}

/// The device's path, from `sd1` or `/machine/peripheral/vd0/virtio-backend`.
pub fn device_path(qdev: &str) -> Option<String> {
    if qdev.is_empty() {
        return None;
    }
    let path = if qdev.starts_with('/') { qdev.to_owned() } else { format!("/machine/peripheral/{qdev}") };
    Some(path.strip_suffix("/virtio-backend").unwrap_or(&path).to_owned())
}

/// Path of the controller that a bus belongs to.
fn controller_of(bus: &str) -> Option<String> {
    let parts: Vec<&str> = bus.split('/').collect();
    match &parts[..] {
        ["", "machine", place @ ("peripheral" | "peripheral-anon" | "unattached"), id, _, ..] => {
            Some(format!("/machine/{place}/{id}"))
        }
        _ => None,
    }
}
