//! What the reader's own system calls a device, as text that can be pasted; a placeholder in
//! capitals where it is not known. Names come from configurations that tenants may have written:
//! whatever is not plain is quoted.

use crate::facts::Place;

/// Names of a device for a change.
#[derive(Clone, Copy)]
pub struct Names<'a>(pub &'a Place);

impl Names<'_> {
    /// libvirt's name of the guest, for a shell.
    pub fn domain(self) -> String {
        self.0.domain.as_deref().map_or_else(|| "DOMAIN".to_owned(), shell)
    }

    /// Proxmox's number of the guest.
    pub fn vmid(self) -> String {
        self.0.vmid.as_deref().map_or_else(|| "VMID".to_owned(), shell)
    }

    /// The disk's file, device or address, for a shell.
    pub fn source(self) -> String {
        self.0.source.as_deref().map_or_else(|| "/dev/DISK".to_owned(), shell)
    }

    /// Proxmox's name of the disk's volume.
    pub fn volume(self) -> String {
        self.0.volume.as_deref().map_or_else(|| "STORAGE:VOLUME".to_owned(), shell)
    }

    /// Proxmox's slot of the device, or this one.
    pub fn slot(self, or: &str) -> String {
        self.0.slot.as_deref().map_or_else(|| or.to_owned(), shell)
    }

    /// libvirt's name of the device, or this one, inside of a quoted XML attribute.
    pub fn target(self, or: &str) -> String {
        self.0.target.as_deref().map_or_else(|| or.to_owned(), xml)
    }

    /// QEMU's id of the device, or this one.
    pub fn id(self, or: &str) -> String {
        self.0.device_id.clone().unwrap_or_else(|| or.to_owned())
    }
}

/// A word of a shell's command line.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Text in an XML attribute (XML 1.0, section 2.4).
pub fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

/// A value among QEMU's options, where a comma is written twice.
pub fn option(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_quoted() {
        assert_eq!(shell("/dev/vg0/web-1"), "/dev/vg0/web-1");
        assert_eq!(shell("web1; reboot"), "'web1; reboot'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!((xml("a'<b"), option("a,b")), ("a&apos;&lt;b".to_owned(), "a,,b".to_owned()));
        let place = Place { vmid: Some("101".into()), ..Place::default() };
        assert_eq!((Names(&place).vmid().as_str(), Names(&place).domain().as_str()), ("101", "DOMAIN"));
    }
}
