//! QMP's names of a disk: `device` of its commands is the name of a `-drive` or block node (docs/interop of QEMU,
//! `block_set_io_throttle`, `block-stream`); `id` is the device that holds the image, by id or path in QEMU's object
//! tree (qdev-monitor.c, `find_device_state`).

use crate::qemu::options::{CommandLine, Opt};

/// QMP's `id` of the device that holds the image; `None` where it is not the option's device.
pub fn qom(line: &CommandLine, device: &Opt) -> Option<String> {
    let kind = device.get("driver")?;
    let virtio = kind.starts_with("virtio-blk");
    if !virtio && !["scsi-", "ide-", "nvme"].iter().any(|start| kind.starts_with(start)) {
        return None;
    }
    Some(match (device.id(), virtio) {
        // For virtio-blk it is the device behind the transport (hw/virtio, `virtio_instance_init_common`).
        (Some(id), true) => format!("/machine/peripheral/{id}/virtio-backend"),
        (Some(id), false) => id.to_owned(),
        (None, virtio) => format!("{}{}", nameless(line, device)?, if virtio { "/virtio-backend" } else { "" }),
    })
}

/// Path of a device without an id. QEMU numbers these in order of creation (`qdev_set_id`): first those given as keys,
/// then the disks of `-drive if=virtio`, then those in JSON (`qemu_create_cli_devices`).
fn nameless(line: &CommandLine, device: &Opt) -> Option<String> {
    // Options that create further devices in between are not counted here.
    if ["usbdevice", "watchdog", "readconfig"].iter().any(|name| line.all(name).next().is_some()) {
        return None;
    }
    let json = |option: &Opt| option.text.trim_start().starts_with('{');
    let all = || line.all("device").filter(|d| d.id().is_none());
    let before = |d: &&Opt| !std::ptr::eq(*d, device);
    let number = if json(device) {
        let virtio = line.all("drive").filter(|d| d.get("if") == Some("virtio")).count();
        all().filter(|d| !json(d)).count() + virtio + all().filter(|d| json(d)).take_while(before).count()
    } else {
        all().filter(|d| !json(d)).take_while(before).count()
    };
    Some(format!("/machine/peripheral-anon/device[{number}]"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Paths as `query-block` of QEMU 7.2 returns them.
    #[test]
    fn devices_with_and_without_ids() {
        let of = |text: &str, at: usize| {
            let args: Vec<String> = format!("qemu {text}").split(' ').map(str::to_owned).collect();
            let line = CommandLine::parse(&args);
            qom(&line, line.all("device").nth(at).unwrap())
        };
        let blk = "-device virtio-blk-pci,drive=n0";
        assert_eq!(of(&format!("{blk},id=vd0"), 0).unwrap(), "/machine/peripheral/vd0/virtio-backend");
        let two = format!("-device virtio-scsi-pci {blk} -device scsi-hd,drive=n1 -device scsi-hd,id=sd1,drive=n2");
        assert_eq!(of(&two, 1).unwrap(), "/machine/peripheral-anon/device[1]/virtio-backend");
        assert_eq!(of(&two, 2).unwrap(), "/machine/peripheral-anon/device[2]");
        assert_eq!(of(&two, 3).unwrap(), "sd1");
        let json = r#"-device {"driver":"virtio-blk-pci","drive":"n0"} -drive if=virtio,file=/a -device edu"#;
        assert_eq!(of(json, 0).unwrap(), "/machine/peripheral-anon/device[2]/virtio-backend");
        assert_eq!(of("-device usb-storage,drive=n0,id=u", 0), None);
    }
}
