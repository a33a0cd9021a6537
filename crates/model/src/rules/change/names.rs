//! Names of a device on the reader's system, to paste; a placeholder in capitals where unknown. Names come from
//! configurations that tenants may have written: special characters are quoted.

use crate::cell::Attachment;
use crate::facts::Place;
use crate::sanitize::is_hidden;

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
        let number = |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        self.0.vmid.as_deref().filter(number).unwrap_or("VMID").to_owned()
    }

    /// The disk's file, device or address, for a shell.
    pub fn source(self) -> String {
        self.0.source.as_deref().map_or_else(|| "/dev/DISK".to_owned(), shell)
    }

    /// Proxmox's name of the disk's volume.
    pub fn volume(self) -> String {
        self.0.volume.as_deref().map_or_else(|| "STORAGE:VOLUME".to_owned(), shell)
    }

    /// Proxmox's slot of the device. It is also used in `sed` scripts, so only letters followed by digits are accepted.
    /// Where it is unknown, `or` is an example; for a guest known to Proxmox it might be another device's, so it cannot
    /// be pasted.
    pub fn slot(self, or: &str) -> String {
        let is_slot = |slot: &&str| {
            let name = slot.trim_end_matches(|c: char| c.is_ascii_digit());
            name.len() < slot.len() && !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase())
        };
        self.0.slot.as_deref().filter(is_slot).unwrap_or(if self.vmid() == "VMID" { or } else { "SLOT" }).to_owned()
    }

    /// libvirt's name of the device, else `or`, for a quoted XML attribute.
    pub fn target(self, or: &str) -> String {
        self.0.target.as_deref().map_or_else(|| or.to_owned(), xml)
    }

    /// A part of new QEMU ids, which have letters, digits and `-._` (util/id.c).
    pub(super) fn part_of_id(self) -> String {
        let plain = |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        [&self.0.target, &self.0.device_id]
            .into_iter()
            .find_map(|id| id.as_deref().filter(plain))
            .unwrap_or("disk0")
            .to_owned()
    }

    /// QEMU's id of the device, else `or`.
    pub fn id(self, or: &str) -> String {
        self.0.device_id.clone().unwrap_or_else(|| or.to_owned())
    }
}

/// libvirt's bus and prefix of names, and Proxmox's slot. The emulated NVMe device exists in neither.
pub(super) fn bus(driver: Option<&str>) -> Option<(&'static str, &'static str, &'static str)> {
    match driver {
        Some("virtio-scsi" | "lsi53c895a") => Some(("scsi", "sda", "scsi0")),
        Some("ahci" | "sata") => Some(("sata", "sda", "sata0")),
        Some("ide") => Some(("ide", "hda", "ide0")),
        Some("nvme") => None,
        _ => Some(("virtio", "vda", "virtio0")),
    }
}

/// Whether libvirt and Proxmox support such a disk.
pub fn known_everywhere(a: &Attachment) -> bool {
    bus(Some(&a.driver)).is_some()
}

/// A word for a POSIX shell, which parses it to exactly this text. Characters that move the cursor or change the
/// writing direction are in octal, for `printf` (`$'...'` is not in dash). Trailing newlines, which `$(...)` would
/// remove, are the third character of `IFS`.
pub fn shell(word: &str) -> String {
    if word.chars().any(is_unseen) {
        let body = word.trim_end_matches('\n');
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_./:@+=,".contains(b);
        let spell = |b: u8| if plain(&b) { char::from(b).to_string() } else { format!("\\{b:03o}") };
        let body: String = body.bytes().map(spell).collect();
        let ends = "${IFS#??}".repeat(word.len() - word.trim_end_matches('\n').len());
        return format!("\"$(printf '{body}'){ends}\"");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Also joiners (Persian, emoji): harmless in display, but a name to paste must be visible completely.
fn is_unseen(c: char) -> bool {
    is_hidden(c) || matches!(c, '\u{200c}' | '\u{200d}')
}

/// Text in an XML attribute (XML 1.0, section 2.4), on one line, since it is also shown in shell comments.
pub fn xml(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '\'' => all.push_str("&apos;"),
            c if is_hidden(c) => all.push_str(&format!("&#{};", u32::from(c))),
            c => all.push(c),
        }
    }
    all
}

/// Text in a shell comment, where a second line would be a command.
pub fn comment(text: &str) -> String {
    text.replace(is_hidden, " ")
}

/// A value in QEMU's options, with doubled commas.
pub fn option(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_quoted() {
        assert_eq!(shell("/dev/vg0/web-1"), "/dev/vg0/web-1");
        assert_eq!(shell("web1; reboot"), "'web1; reboot'");
        assert_eq!((shell("it's"), shell("a\nb")), (r"'it'\''s'".to_owned(), r#""$(printf 'a\012b')""#.to_owned()));
        assert_eq!((xml("a'<b"), option("a,b")), ("a&apos;&lt;b".to_owned(), "a,,b".to_owned()));
        let place = Place { vmid: Some("101".into()), ..Place::default() };
        assert_eq!((Names(&place).vmid().as_str(), Names(&place).domain().as_str()), ("101", "DOMAIN"));
        assert_eq!((xml("a\nb"), comment("a\nb")), ("a&#10;b".to_owned(), "a b".to_owned()));
    }

    /// In any shell each word is the name again, and contains nothing that moves the cursor.
    #[test]
    fn a_shell_makes_the_same_word_of_it() {
        let names = [
            "/images/web\n1.raw",
            "/a\n",
            "a\n\n b\n\n",
            "-n\n%s\\t'\"$HOME`id`",
            "\u{1b}[2J",
            "\u{202e}gpj.exe",
            "\u{9b}31mé\u{e000}",
            "\t\r",
            "\n",
            "plain",
            "it's; reboot #",
        ];
        for shell in ["sh", "dash", "bash", "busybox"] {
            if std::process::Command::new(shell).args(["-c", ":"]).output().is_err() {
                continue; // sh and bash are everywhere
            }
            for name in names {
                let word = super::shell(name);
                assert!(!word.chars().any(is_unseen), "{word:?}");
                let script = format!("printf '%s|' {word} end");
                let run = if shell == "busybox" { &["sh", "-c"][..] } else { &["-c"] };
                let out = std::process::Command::new(shell).args(run).arg(script).output().unwrap();
                assert_eq!(String::from_utf8(out.stdout).unwrap(), format!("{name}|end|"), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn only_what_is_a_slot_or_a_number_is_taken_for_one() {
        let slot = |name: &str| Names(&Place { slot: Some(name.into()), ..Place::default() }).slot("virtio0");
        assert_eq!([slot("scsi12"), slot("net0")], ["scsi12", "net0"]);
        for odd in ["", "0", "scsi", "scsi0,x", "scsi0/e reboot", "sc'si0", "../1", "a\n0"] {
            assert_eq!(slot(odd), "virtio0", "{odd}");
        }
        let unknown = Place { vmid: Some("101".into()), ..Place::default() };
        assert_eq!(Names(&unknown).slot("virtio0"), "SLOT");
        let vmid = |id: &str| Names(&Place { vmid: Some(id.into()), ..Place::default() }).vmid();
        assert_eq!([vmid("101"), vmid("1; reboot"), vmid("")], ["101", "VMID", "VMID"]);
    }
}
