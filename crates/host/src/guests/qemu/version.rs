//! Which QEMU this host has, by its own word, before a guest is started with it: some settings
//! need a newer one, and one disk that it refuses would keep all others of a guest from running.

use std::path::Path;
use std::time::Duration;

use vmio_model::setup::Attachment;
use vmio_node::{Exec, Node};

use super::super::{Error, Result};
use super::launch::find_qemu;
use crate::drivers::{self, QemuVersion};

/// It answers within some 50 ms.
const LIMIT: Duration = Duration::from_secs(20);

/// Version of a QEMU.
pub fn ask(node: &dyn Node, qemu: &Path) -> Result<QemuVersion> {
    let output = node.exec(&Exec::new(qemu.to_string_lossy()).args(["--version"]).limit(LIMIT))?;
    let said = output.out();
    parse(&said).ok_or_else(|| Error::Version { qemu: qemu.to_owned(), said: format!("{said}{}", output.err()) })
}

/// From `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn parse(said: &str) -> Option<QemuVersion> {
    let mut numbers = said.split("version ").nth(1)?.split(['.', ' ', '\n']);
    let mut next = || numbers.next()?.parse().ok();
    Some(QemuVersion { major: next()?, minor: next()? })
}

/// Why a guest of this host's QEMU cannot have such a disk, if it cannot. The host is asked only
/// when that depends on its QEMU.
pub fn why_not(node: &dyn Node, asked: &Attachment) -> Option<String> {
    let driver = drivers::find(&asked.driver)?;
    if let Err(reason) = driver.fits(asked) {
        return Some(reason);
    }
    driver.needs_qemu(asked)?;
    // That there is no QEMU at all is told as a requirement of the guest.
    let qemu = find_qemu(node.reader()).ok()?;
    match ask(node, &qemu) {
        Ok(version) => driver.fits_qemu(asked, version).err(),
        Err(e) => Some(e.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_model::setup::{Aio, Cache, Options};
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn versions_of_distributions() {
        for (said, major, minor) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022\n", 7, 2),
            ("QEMU emulator version 9.2.0 (pve-qemu-kvm_9.2.0-2)\n", 9, 2),
            ("QEMU emulator version 10.0.50 (v10.0.0-1)\n", 10, 0),
            ("QEMU emulator version 11.1\n", 11, 1),
        ] {
            assert_eq!(parse(said), Some(QemuVersion { major, minor }), "{said}");
        }
        assert_eq!(parse("bash: not found"), None);
    }

    #[test]
    fn only_a_setting_that_needs_it_asks_for_the_version() {
        let host = |said: &str| {
            let said = said.to_owned();
            let host = Fake::new("fake")
                .command(move |cmd| cmd.program.ends_with("qemu-system-x86_64").then(|| says(said.clone())));
            host.write(Path::new("/usr/bin/qemu-system-x86_64"), b"", Some(0o755)).unwrap();
            host
        };
        let old = host("QEMU emulator version 7.2.22 (Debian)\n");
        let plain = Attachment::new("virtio-blk", Cache::None, Aio::Native);
        assert_eq!(why_not(&old, &plain), None);
        assert!(old.ran().is_empty());
        let options = Options { queues: Some(2), mapped_iothreads: Some(2), ..Options::default() };
        let mapped = Attachment { options, ..plain };
        let said = why_not(&old, &mapped).unwrap();
        assert!(said.contains("needs QEMU 9.0, this host has 7.2"), "{said}");
        assert_eq!(why_not(&host("QEMU emulator version 9.1.2\n"), &mapped), None);
        assert!(why_not(&host("no"), &mapped).unwrap().contains("qemu-system-x86_64"));
    }
}
