//! A disk whose server and client are on two hosts, as storage over a network has it: another host, which a network
//! namespace plays, serves a written-out raw file by the NBD protocol over TCP, and a guest's hypervisor is its client,
//! in the namespace that plays this host. Both are joined by a link of the run's own ([`nets::beside`]), whose rate and
//! MTU are settings of a cell.
//!
//! The daemons are those of `served`, one for each attachment; what they spend is the other host's, and no part of the
//! guest's price. One that has died is started again with the next guest.
//!
//! A guest can be the client itself, by its own kernel (`nbd-client`), over a card on that link's bridge.
//!
//! Natively the client is this host's kernel, where that has the module `nbd`: vmio loads none.

use std::path::PathBuf;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement, program};
use vmio_node::Node;
use vmio_node::linux::block;

use super::own_client::OwnClient;
use super::served::nbd_client::{CLIENT, client, refused};
use super::served::{DAEMON, ServedFile};
use super::{Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT};
use crate::disks::Storage;
use crate::disks::places::Pool;
use crate::nets;

/// Entry `nbd`.
pub struct Nbd;

/// How long it may take: a guest under emulation is slow.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

const OWN_CLIENT: OwnClient = OwnClient {
    modules: &["nbd"],
    programs: &[CLIENT],
    requirements: &[
        Requirement {
            name: CLIENT,
            why: "connects a guest that reaches the target `nbd` by itself",
            fix: "apt install nbd-client, or give the guest a driver",
            check: |reader| program(reader, CLIENT),
        },
        nets::TUN,
    ],
    connect,
    renew: None,
};

impl Target for Nbd {
    fn name(&self) -> &'static str {
        "nbd"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another host (a namespace) serves by NBD over TCP: to QEMU, a guest's kernel or this one"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: DAEMON,
                    why: "serves the disk on the other host",
                    fix: "apt install qemu-system-common, or leave out the target `nbd`",
                    check: |reader| program(reader, DAEMON),
                },
                nets::IP,
                nets::NSENTER,
                nets::UNSHARE,
                nets::ROOT,
            ]
        }
    }
    fn native_requirements(&self) -> &'static [Requirement] {
        &[
            Requirement {
                name: "kernel's NBD client",
                why: "is what this host itself reaches the target `nbd` by",
                fix: "modprobe nbd; or have a lab host measure its native cells: vmio lab run -- vmio study run NAME --on /srv \
                      --yes",
                check: |reader| {
                    let without = || Missing::Unlike("this kernel has no module nbd loaded".to_owned());
                    block::Device::whole(reader, "nbd0").is_there().then_some(()).ok_or_else(without)
                },
            },
            Requirement {
                name: CLIENT,
                why: "connects this host's kernel with the server of the target `nbd`",
                fix: "apt install nbd-client",
                check: |reader| program(reader, CLIENT),
            },
        ]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost => Err("what its hypervisor opens is on another host; use preallocated or device"),
            _ => Ok(()),
        }
    }
    fn over_link(&self) -> bool {
        true
    }
    fn own_client(&self) -> Option<&'static OwnClient> {
        Some(&OWN_CLIENT)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let alone = || Error::Server { path: ctx.dir.clone(), reason: "no namespace plays this host".to_owned() };
        let link = nets::beside(ctx.node, ctx.host.as_ref().ok_or_else(alone)?)?;
        let mut served = Box::new(ServedFile::make(ctx, self.name(), Some(link))?);
        if let (true, Some(host)) = (ctx.native, &ctx.host)
            && let Err(why) = served.reach_natively(host.enter())
        {
            // What cannot be taken away is in the journal.
            let _ = served.remove(ctx.journal);
            return Err(why);
        }
        Ok(served)
    }
}

/// It hands the connection to the guest's kernel and ends: that alone serves the device then.
fn connect(guest: &dyn Node, storage: &Storage, nth: usize) -> Result<PathBuf> {
    let device = PathBuf::from(format!("/dev/nbd{nth}"));
    let command = client(storage, &device)?.limit(CONNECT_LIMIT);
    let output = guest.exec(&command)?;
    if output.ok() { Ok(device) } else { Err(refused(&command, &output)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    #[test]
    fn a_guest_is_connected_by_its_own_client() {
        let storage = Storage::NbdTcp { server: "198.18.255.3:10810".parse().unwrap(), export: "disk".to_owned() };
        let guest = Fake::new("guest").command(|_| Some(says("Negotiation: ..size = 64MB\n")));
        assert_eq!(connect(&guest, &storage, 1).unwrap(), PathBuf::from("/dev/nbd1"));
        let ran: Vec<String> =
            guest.ran().iter().map(|cmd| format!("{} {}", cmd.program, cmd.args.join(" "))).collect();
        assert_eq!(ran, ["nbd-client 198.18.255.3 10810 /dev/nbd1 -N disk -b 512 -t 45"]);
        let refusing = Fake::new("guest").command(|_| Some(fails(1, "Error: Socket failed: Connection refused\n")));
        let said = connect(&refusing, &storage, 0).unwrap_err().to_string();
        assert!(said.contains("nbd-client") && said.contains("Connection refused"), "{said}");
        assert!(connect(&guest, &Storage::File("/f".into()), 0).is_err());
    }
}
