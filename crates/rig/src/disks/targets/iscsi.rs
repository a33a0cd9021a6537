//! A disk that another host, which a network namespace plays, serves by iSCSI (RFC 7143): `tgtd` serves a written-out
//! raw file, and the client is a guest's hypervisor, in the namespace that plays this host, or a guest's kernel, over a
//! card on the bridge before it. All of them have the one server, which has neither cache modes nor AIO engines.
//!
//! This host's kernel is no client: it takes connections from programs of its first network namespace alone
//! (`NETLINK_ISCSI` of drivers/scsi/scsi_transport_iscsi.c), where vmio adds nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{Requirement, program};
use vmio_model::cell;
use vmio_node::{ChangeId, Exec, Journal, Local, Node, held};

use super::client_disk::{self, Known};
use super::own_client::OwnClient;
use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::served::nbd_client::refused;
use super::{Demands, Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT, memory};
use crate::disks::places::Pool;
use crate::disks::{BlockClient, Storage};
use crate::nets::{self, NetPath, REMOTE};

mod tgt;

use tgt::{ADMIN, AUTHORITY, DAEMON, SERIAL, Server};

/// Entry `iscsi`.
pub struct Iscsi;

/// What has a guest's kernel log in (iscsistart(8)).
const INITIATOR: &str = "iscsistart";
/// Seconds for which a guest holds requests when its connection is gone, before it fails them: nobody makes it anew.
const HELD_SECONDS: u32 = 15;
/// How long logging in may take: a guest under emulation is slow.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);

const OWN_CLIENT: OwnClient = OwnClient {
    modules: &["iscsi_tcp", "sd_mod"],
    programs: &[INITIATOR],
    requirements: &[
        Requirement {
            name: INITIATOR,
            why: "connects a guest that reaches the target `iscsi` by itself",
            fix: "apt install open-iscsi, or give the guest a driver",
            check: |reader| program(reader, INITIATOR),
        },
        nets::TUN,
    ],
    connect,
    renew: None,
};

impl Target for Iscsi {
    fn name(&self) -> &'static str {
        "iscsi"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another host (a namespace) serves by iSCSI: to QEMU or a guest's kernel"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: DAEMON,
                    why: "serves the disk on the other host",
                    fix: "apt install tgt (its service is not needed: systemctl disable --now tgt), or leave out the \
                          target `iscsi`",
                    check: |reader| program(reader, DAEMON),
                },
                Requirement {
                    name: ADMIN,
                    why: "sets the disk's server up",
                    fix: "apt install tgt",
                    check: |reader| program(reader, ADMIN),
                },
                memory::REQUIREMENT,
                nets::IP,
                nets::NSENTER,
                nets::UNSHARE,
                nets::ROOT,
            ]
        }
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some(
            "this host's kernel is a client of iSCSI in its first network namespace alone, where vmio adds nothing: \
             compare it with nbd or preallocated",
        )
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
    fn block_client(&self) -> Option<BlockClient> {
        Some(BlockClient::Iscsi)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let alone = || Error::Server { path: ctx.dir.clone(), reason: "no namespace plays this host".to_owned() };
        let link = nets::beside(ctx.node, ctx.host.as_ref().ok_or_else(alone)?)?;
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        let open = scratch.open.clone();
        let file = Box::new(RawFile::new(scratch, false));
        let (dir, made) = match memory::dir(ctx.journal, self.name()) {
            Ok(made) => made,
            Err(e) => {
                let _ = file.remove(ctx.journal);
                return Err(e);
            }
        };
        let node = Local::owned(Arc::clone(ctx.journal));
        Ok(Box::new(IscsiFile { file, open, node, link, dir, made, server: None }))
    }
}

/// The file and its server.
struct IscsiFile {
    file: Box<RawFile>,
    /// As what programs open it.
    open: PathBuf,
    /// The server is started here: it bears the run's mark.
    node: Local,
    link: NetPath,
    /// Directory of its control socket, of mode 0700.
    dir: PathBuf,
    made: ChangeId,
    server: Option<Server>,
}

impl IscsiFile {
    fn fail(&self, reason: String) -> Error {
        Error::Server { path: held::shown(&self.open), reason }
    }

    /// How the server ended, if it has.
    fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.server.as_mut().map(Server::ended).transpose()?.flatten())
    }
}

impl Prepared for IscsiFile {
    fn native(&self) -> &Path {
        &self.open
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        if self.ended()?.is_some() {
            self.server = None;
        }
        if let Some(server) = &self.server {
            return Ok(server.storage.clone());
        }
        let end = self.link.peers.get(REMOTE).ok_or_else(|| self.fail("its link has no other end".to_owned()))?;
        let server = Server::start(&self.node, &self.open, &self.dir, end)?;
        let storage = server.storage.clone();
        self.server = Some(server);
        Ok(storage)
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        self.server.as_ref().map(|server| server.told.clone()).unwrap_or_default()
    }
    fn link(&self) -> Option<&NetPath> {
        Some(&self.link)
    }
    fn servers(&self, _asked: &cell::Attachment) -> Vec<u32> {
        self.server.iter().map(|server| server.pid).collect()
    }
    fn sound(&mut self, _asked: &cell::Attachment) -> Result<()> {
        match self.ended()? {
            Some(how) => Err(self.fail(how)),
            None => Ok(()),
        }
    }
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
    fn demands(&self) -> Demands {
        self.file.demands()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.file.effective()
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, made, server, .. } = *self;
        if let Some(mut server) = server {
            server.stop()?;
        }
        journal.undo(made)?;
        file.remove(journal)
    }
}

/// The guest's kernel logs in, and finds the disk by its serial number: a guest may have others of SCSI.
fn connect(guest: &dyn Node, storage: &Storage, _nth: usize) -> Result<PathBuf> {
    let command = log_in(guest.name(), storage)?;
    let output = guest.exec(&command)?;
    if !output.ok() {
        return Err(refused(&command, &output));
    }
    client_disk::find(guest, Known::Serial(SERIAL))
}

/// The command that has a guest of this name log in. It ends once the guest's kernel has the connection. A target takes
/// two initiators of one name for one that logs in anew.
fn log_in(guest: &str, storage: &Storage) -> Result<Exec> {
    let Storage::Iscsi { portal, target, .. } = storage else {
        let reason = format!("{INITIATOR} is no client of {storage:?}");
        return Err(Error::Server { path: INITIATOR.into(), reason });
    };
    let (name, address, port) = (format!("{AUTHORITY}:{guest}"), portal.ip().to_string(), portal.port().to_string());
    let held = format!("node.session.timeo.replacement_timeout={HELD_SECONDS}");
    let words = ["-i", &*name, "-t", target.as_str(), "-g", "1", "-a", &*address, "-p", &*port, "-P", &*held];
    Ok(Exec::new(INITIATOR).args(words).limit(LOGIN_LIMIT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    fn storage() -> Storage {
        let portal = "198.18.255.3:3260".parse().unwrap();
        Storage::Iscsi { portal, target: "iqn.2026-11.invalid.vmio:disk".to_owned(), lun: 1 }
    }

    #[test]
    fn a_guest_logs_in_by_its_own_name_and_finds_the_disk_by_its_serial_number() {
        let page = |serial: &str| [&[0, 0x80, 0, 36][..], format!("{serial:>36}").as_bytes()].concat();
        let guest = Fake::new("qemu-1")
            .command(|_| Some(says("iscsistart: Logging into iqn.2026-11.invalid.vmio:disk\n")))
            .file("/sys/block/sda/size", "2048\n")
            .file("/sys/block/sda/device/vpd_pg80", page("vmio-0"))
            .file("/sys/block/sdb/size", "2048\n")
            .file("/sys/block/sdb/device/vpd_pg80", page("vmio-iscsi"));
        assert_eq!(connect(&guest, &storage(), 0).unwrap(), PathBuf::from("/dev/sdb"));
        let ran: Vec<String> = guest.ran().iter().map(Exec::shown).collect();
        let [ran] = ran.as_slice() else { panic!("{ran:?}") };
        let names = "-i iqn.2026-11.invalid.vmio:qemu-1 -t iqn.2026-11.invalid.vmio:disk -g 1";
        let rest = "-a 198.18.255.3 -p 3260 -P node.session.timeo.replacement_timeout=15";
        assert_eq!(*ran, format!("iscsistart {names} {rest}"));
    }

    #[test]
    fn a_login_that_is_refused_is_told_in_its_words() {
        let refusing = Fake::new("guest").command(|_| Some(fails(1, "iscsistart: initiator reported error (8)\n")));
        let said = connect(&refusing, &storage(), 0).unwrap_err().to_string();
        assert!(said.contains("iscsistart -i") && said.contains("initiator reported error (8)"), "{said}");
        assert!(connect(&refusing, &Storage::File("/f".into()), 0).is_err());
    }
}
