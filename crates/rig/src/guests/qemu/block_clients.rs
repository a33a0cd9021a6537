//! Whether this host's QEMU has the clients that distributions keep in modules of their own.

use std::path::Path;

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell::Arch;
use vmio_node::Reader;

use crate::disks::BlockClient;
use crate::qemu::find_qemu;

/// Where distributions keep the modules of a QEMU that has any.
const MODULES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib64/qemu-kvm", "/usr/lib64/qemu", "/usr/lib/qemu"];

/// How far into a program the names of its libraries are looked for: they are within its first MiB in Debian's QEMU.
const NAMES_BYTES: usize = 8 << 20;

/// What a guest's disk that is opened by one needs.
pub fn needs(client: BlockClient) -> &'static [Requirement] {
    match client {
        BlockClient::NbdTls => &[Requirement {
            name: "QEMU's TLS",
            why: "is how a guest's disk on another machine is opened",
            fix: "use a QEMU that is built with GnuTLS (those of Debian and Proxmox are)",
            check: built_with_gnutls,
        }],
        BlockClient::Iscsi => &[Requirement {
            name: "QEMU's iSCSI driver",
            why: "is the client of a guest's disk by iSCSI",
            fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or leave the driver out, so that the \
                  guest reaches the disk by itself",
            check: |reader| qemu_has(reader, "block-iscsi.so"),
        }],
        BlockClient::Rbd => &[Requirement {
            name: "QEMU's RBD driver",
            why: "a guest's disk goes through librbd",
            fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or measure only the native side",
            check: |reader| qemu_has(reader, "block-rbd.so"),
        }],
    }
}

/// Whether QEMU has the driver of this module. It lists a driver whether its module is installed or not, so the module
/// is looked for; a QEMU without modules has all of its drivers built in.
fn qemu_has(reader: &dyn Reader, module: &str) -> Result<(), Missing> {
    find_qemu(reader, Arch::default()).map_err(|e| Missing::Unlike(e.to_string()))?;
    let lacks = |dir: &&&str| {
        let there = reader.list(Path::new(dir)).unwrap_or_default();
        there.iter().any(|n| n.ends_with(".so")) && !there.iter().any(|n| n == module)
    };
    match MODULES.iter().find(lacks) {
        Some(dir) => Err(Missing::Unlike(format!("no {module} in {dir}"))),
        None => Ok(()),
    }
}

/// Whether QEMU was built with GnuTLS. It lists its TLS objects also where it was not, so its program is looked at: the names
/// of the libraries that it is linked with stand before its code. What is no ELF program (a script that starts one) is
/// not judged.
fn built_with_gnutls(reader: &dyn Reader) -> Result<(), Missing> {
    let qemu = find_qemu(reader, Arch::default()).map_err(|e| Missing::Unlike(e.to_string()))?;
    let start = reader.read_start(&qemu, NAMES_BYTES)?;
    if start.starts_with(b"\x7fELF") && memchr::memmem::find(&start, b"libgnutls.so").is_none() {
        return Err(Missing::Unlike(format!("{} is not linked with GnuTLS", qemu.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::Node;
    use vmio_node::fake::host;

    #[test]
    fn a_qemu_without_gnutls_opens_no_disk_by_tls() {
        let has = needs(BlockClient::NbdTls)[0].check;
        let found = |program: &[u8]| {
            let host = host(&[("qemu-system-x86_64", "")]);
            let path = find_qemu(&host, Arch::default()).unwrap();
            host.write(&path, program, Some(0o755)).unwrap();
            has(&host)
        };
        assert_eq!(found(b"\x7fELF\0libc.so.6\0libgnutls.so.30\0"), Ok(()));
        assert!(matches!(found(b"\x7fELF\0libc.so.6\0"), Err(Missing::Unlike(_))));
        assert_eq!(found(b"#!/bin/sh\n"), Ok(()));
        assert!(has(&host(&[])).is_err(), "no QEMU");
    }

    #[test]
    fn a_modular_qemu_needs_the_module_and_another_none() {
        let qemu = [("qemu-system-x86_64", "")];
        let dir = MODULES[0];
        for (client, module) in [(BlockClient::Rbd, "block-rbd.so"), (BlockClient::Iscsi, "block-iscsi.so")] {
            let has = needs(client)[0].check;
            assert_eq!(has(&host(&qemu)), Ok(()));
            let modular = || host(&qemu).file(format!("{dir}/accel-tcg-x86_64.so"), "");
            assert_eq!(has(&modular()), Err(Missing::Unlike(format!("no {module} in {dir}"))));
            assert_eq!(has(&modular().file(format!("{dir}/{module}"), "")), Ok(()));
        }
    }
}
