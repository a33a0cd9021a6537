//! Which QEMU this host has, by its own word, before a guest is started with it: some settings
//! need a newer one, and one disk that it refuses would keep all others of a guest from running.

use std::time::Duration;

use vmio_model::cell::{Actor, Arch};
use vmio_node::{Exec, Node, Output};

use super::super::Unfit;
use super::{drivers, exchange};
use crate::disks::targets;
use crate::qemu::{ask_version, find_qemu};

/// How QEMU itself calls this host's, for results; `None` where there is none.
pub fn words(node: &dyn Node, arch: Arch) -> Option<String> {
    let qemu = find_qemu(node.reader(), arch).ok()?;
    let asked = Exec::new(qemu.to_string_lossy()).args(["--version"]).limit(Duration::from_secs(10));
    let output = node.exec(&asked).ok().filter(Output::ok)?;
    output.out().lines().next().map(str::to_owned)
}

/// Why this host's QEMU cannot give a guest the disk of this cell, if it cannot. The host is asked only when that
/// depends on its QEMU.
pub fn unfit_disk(node: &dyn Node, actor: &Actor) -> Option<Unfit> {
    let asked = actor.attachment()?;
    if let Err(unfit) = drivers::find(&asked.driver)?.fits(asked) {
        return Some(unfit.into());
    }
    let exchanges = actor.target().and_then(targets::find).is_some_and(|t| t.exchanges());
    let needs: Vec<_> = drivers::needs(asked).into_iter().chain(exchanges.then_some(exchange::NEEDED)).collect();
    if needs.is_empty() {
        return None;
    }
    // That there is no QEMU at all is told as a requirement of the guest.
    let qemu = find_qemu(node.reader(), actor.side.shape.arch).ok()?;
    match ask_version(node, &qemu) {
        Ok(version) => {
            let old = needs.into_iter().find_map(|need| version.meets(need).err());
            old.map(|old| Unfit::OfHypervisor(old.to_string()))
        }
        Err(e) => Some(Unfit::Unreadable(e.to_string())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use vmio_model::cell::{Aio, Attachment, Cache, Cell, Options};
    use vmio_node::fake::{Fake, says};

    use super::*;

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
        let why_not = |host: &Fake, target: &str, asked: &Attachment| {
            let unfit = unfit_disk(host, &Cell::on("qemu", target, Some(asked.clone()), "seq-write").lead);
            unfit.map(|unfit| unfit.to_string())
        };
        assert_eq!(why_not(&old, "sparse", &plain), None);
        assert_eq!(why_not(&old, "qcow2-full-l2", &plain), None);
        assert!(old.ran().is_empty());
        assert_eq!(why_not(&old, "qcow2", &plain), None);
        let older = host("QEMU emulator version 5.2.0 (Debian)\n");
        for (target, exchanged) in [("qcow2", true), ("qcow2-chain", true), ("qcow2-small-l2", false)] {
            assert_eq!(why_not(&older, target, &plain).is_some(), exchanged, "{target}");
        }
        let said = why_not(&older, "qcow2", &plain).unwrap();
        assert!(said.contains("blockdev-reopen) needs QEMU 6.1, this host has 5.2"), "{said}");
        let options = Options { queues: Some(2), mapped_iothreads: Some(2), ..Options::default() };
        let mapped = Attachment { options, ..plain };
        let said = why_not(&old, "sparse", &mapped).unwrap();
        assert!(said.contains("needs QEMU 9.0, this host has 7.2"), "{said}");
        assert_eq!(why_not(&host("QEMU emulator version 9.1.2\n"), "sparse", &mapped), None);
        assert!(why_not(&host("no"), "sparse", &mapped).unwrap().contains("qemu-system-x86_64"));
    }
}
