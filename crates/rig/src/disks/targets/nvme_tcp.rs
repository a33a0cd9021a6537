//! A disk that another host, which a network namespace plays, serves by NVMe over TCP (NVM Express, TCP Transport
//! Specification): this kernel's own NVMe target, where it has that (`nvmet_tcp`), serves a written-out raw file, and the
//! client is a guest's kernel, over a card on the bridge before it, or this host's: natively, and for hypervisors, which
//! open its disk (QEMU has no client). A kernel listens and connects in the network namespace of the process that has it
//! do so (drivers/nvme/target/tcp.c, `nvmet_tcp_add_port`; drivers/nvme/host/tcp.c, `nvme_tcp_alloc_queue`). vmio loads
//! no module.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement, kernel, program};
use vmio_model::cell;
use vmio_node::linux::system;
use vmio_node::nvme_export::{NVMET, NvmeExport};
use vmio_node::{Change, ChangeId, Exec, Journal, Local, Node, Reader, held};

use super::client_disk::{self, Known};
use super::host_disk::HostDisk;
use super::own_client::{self, OwnClient};
use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::served::nbd_client::refused;
use super::{Demands, Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT, facts};
use crate::disks::Storage;
use crate::disks::places::Pool;
use crate::nets::{self, NetPath, REMOTE};

/// Entry `nvme-tcp`.
pub struct NvmeTcp;

/// The port of NVMe over fabrics (IANA).
const PORT: u16 = 4420;
/// Where a kernel is told what to connect to (drivers/nvme/host/fabrics.c).
const FABRICS: &str = "/dev/nvme-fabrics";
/// Seconds for which a client tries to connect again before it fails its requests and its disk goes.
const LOST_SECONDS: u32 = 15;
/// What makes the link by which the kernel listens, and what tells this kernel to connect: programs, since both are done
/// in another network namespace.
const LINK: &str = "ln";
const WRITE: &str = "tee";
/// How long each may take.
const LIMIT: Duration = Duration::from_secs(30);
/// This host's own kernel, as results have it.
const BY_HOST: &str = "NVMe over TCP, in this host's kernel";

const OWN_CLIENT: OwnClient =
    OwnClient { modules: &["nvme_tcp"], programs: &[], requirements: &[nets::TUN], connect, renew: None };

/// Whether the kernel has a module, by a file that it makes and by its name.
fn has(reader: &dyn Reader, feature: &str, path: &str, module: &str) -> Result<(), Missing> {
    kernel(reader, feature, path)?;
    kernel(reader, feature, &format!("/sys/module/{module}"))
}

impl Target for NvmeTcp {
    fn name(&self) -> &'static str {
        "nvme-tcp"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another host (a namespace) serves by NVMe over TCP, to a guest's kernel or this host's"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: "kernel's NVMe target",
                    why: "serves the disk on the other host",
                    fix: "modprobe nvmet_tcp, then mount -t configfs configfs /sys/kernel/config; or have a lab host \
                          measure its native cells: vmio lab run -- vmio study run NAME --on /srv --yes",
                    check: |reader| has(reader, "NVMe target over TCP", NVMET, "nvmet_tcp"),
                },
                Requirement {
                    name: LINK,
                    why: "has the kernel serve the disk in another network namespace",
                    fix: "apt install coreutils",
                    check: |reader| program(reader, LINK),
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
                name: "kernel's NVMe/TCP client",
                why: "is what this host itself, and a guest that has a driver, reaches the target `nvme-tcp` by",
                fix: "modprobe nvme_tcp; or have a lab host measure its native cells: vmio lab run -- vmio study run NAME \
                      --on /srv --yes",
                check: |reader| has(reader, "NVMe over TCP", FABRICS, "nvme_tcp"),
            },
            Requirement {
                name: WRITE,
                why: "has this host's kernel connect in another network namespace",
                fix: "apt install coreutils",
                check: |reader| program(reader, WRITE),
            },
        ]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn by_host_kernel(&self) -> bool {
        true
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost => Err("its server reads past the page cache; use preallocated or device"),
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
        let host = ctx.host.as_ref().ok_or_else(alone)?;
        let link = nets::beside(ctx.node, host)?;
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        let open = scratch.open.clone();
        let file = Box::new(RawFile::new(scratch, false));
        let (export, made) = match serve(ctx, &link, &open) {
            Ok(served) => served,
            Err(e) => {
                let _ = file.remove(ctx.journal);
                return Err(e);
            }
        };
        let node = Local::owned(Arc::clone(ctx.journal));
        let enter = host.enter();
        let mut served = Box::new(NvmeFile { file, open, node, link, export, made, enter, client: None });
        if ctx.native
            && let Err(why) = served.reach()
        {
            // What cannot be taken away is in the journal.
            let _ = served.remove(ctx.journal);
            return Err(why);
        }
        Ok(served)
    }
}

/// Has this kernel serve a file at the other end of a link.
fn serve(ctx: &TargetCtx<'_>, link: &NetPath, file: &Path) -> Result<(NvmeExport, ChangeId)> {
    let fail = |reason: String| Error::Server { path: held::shown(file), reason };
    let end = link.peers.get(REMOTE).ok_or_else(|| fail("its link has no other end".to_owned()))?;
    let export = NvmeExport::of(ctx.journal.cookie(), SocketAddr::new(end.address, PORT));
    let listen = |from: &Path, to: &Path| {
        let words = ["-s".to_owned(), from.display().to_string(), to.display().to_string()];
        match ctx.node.exec(&Exec::new(LINK).args(words).limit(LIMIT).behind(&end.enter)) {
            Ok(output) if output.ok() => Ok(()),
            Ok(output) => Err(io::Error::other(output.err().trim().to_owned())),
            Err(e) => Err(io::Error::other(e.to_string())),
        }
    };
    let change = Change::NvmeExport(export.clone());
    match ctx.journal.make(change, || export.serve(file, listen))? {
        Ok(((), made)) => Ok((export, made)),
        Err(e) => Err(fail(e.to_string())),
    }
}

/// The file, and what the kernel serves it by.
struct NvmeFile {
    file: Box<RawFile>,
    /// As what the kernel opens it.
    open: PathBuf,
    node: Local,
    link: NetPath,
    export: NvmeExport,
    made: ChangeId,
    /// What goes before a command that has this host's kernel connect.
    enter: Vec<String>,
    /// The disk of this host's own kernel as its client.
    client: Option<HostDisk>,
}

impl NvmeFile {
    /// Has this host's own kernel be a client, unless it is one: native workloads and hypervisors open its disk. One that
    /// has lost its connection tries again from the first network namespace, where nothing answers, and gives up.
    fn reach(&mut self) -> Result<()> {
        if self.client.as_ref().is_some_and(|disk| self.is_connected(disk)) {
            return Ok(());
        }
        connect_host(&self.node, &self.enter, self.export.address(), self.export.nqn())?;
        self.client = Some(HostDisk::hold(&self.node, self.known(), self.file.bytes())?);
        Ok(())
    }

    fn known(&self) -> Known<'_> {
        Known::Subsystem(self.export.nqn())
    }

    fn is_connected(&self, disk: &HostDisk) -> bool {
        disk.is_there(self.node.reader(), self.known())
    }
}

/// Whether a guest's kernel, and not this host's, is the client of what is asked for like this.
fn by_guest(asked: &cell::Attachment) -> bool {
    *asked == own_client::asked()
}

impl Prepared for NvmeFile {
    fn native(&self) -> &Path {
        self.client.as_ref().map_or(&*self.open, HostDisk::path)
    }
    fn lies_on(&self) -> &Path {
        &self.open
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, asked: &cell::Attachment) -> Result<Storage> {
        if by_guest(asked) {
            return Ok(Storage::NvmeTcp { server: self.export.address(), nqn: self.export.nqn().to_owned() });
        }
        self.reach()?;
        Ok(Storage::BlockDevice(self.native().to_owned()))
    }
    fn attached(&self, asked: &cell::Attachment) -> BTreeMap<String, String> {
        let release = system::release(&self.node).unwrap_or_else(|_| "of unknown release".to_owned());
        let mut told = facts([("server", format!("nvmet of Linux {release}, NVMe over TCP"))]);
        told.extend(self.export.is_direct().map(|is| ("server.cache.direct".to_owned(), is.to_string())));
        told.extend((!by_guest(asked)).then(|| ("client".to_owned(), BY_HOST.to_owned())));
        told
    }
    fn link(&self) -> Option<&NetPath> {
        Some(&self.link)
    }
    fn settle(&mut self, _asked: &cell::Attachment) -> Result<()> {
        self.client.as_ref().map_or(Ok(()), HostDisk::flush)
    }
    fn sound(&mut self, asked: &cell::Attachment) -> Result<()> {
        if !by_guest(asked) && self.client.as_ref().is_some_and(|disk| !self.is_connected(disk)) {
            let reason = "this host's kernel has lost its connection".to_owned();
            return Err(Error::Server { path: held::shown(&self.open), reason });
        }
        Ok(())
    }
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
    fn demands(&self) -> Demands {
        self.file.demands()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        let mut all = self.file.effective();
        if self.client.is_some() {
            all.extend(self.attached(&own_client::asked()));
            all.insert("client".to_owned(), BY_HOST.to_owned());
        }
        all
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        if self.client.is_some() {
            self.reach()?;
        }
        self.client.as_ref().map_or(Ok(()), HostDisk::forget_pages)?;
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, made, client, .. } = *self;
        // What its page cache still has is written first: the kernel could not, later.
        if let Some(disk) = client {
            let _ = disk.flush();
        }
        journal.undo(made)?;
        file.remove(journal)
    }
}

/// This host's kernel connects, from where `enter` leads.
fn connect_host(host: &dyn Node, enter: &[String], server: SocketAddr, nqn: &str) -> Result<()> {
    let told = Exec { stdin: options(server, nqn).into_bytes(), ..Exec::new(WRITE) };
    let command = told.args([FABRICS]).limit(LIMIT).behind(enter);
    let output = host.exec(&command)?;
    if output.ok() { Ok(()) } else { Err(refused(&command, &output)) }
}

/// The guest's kernel connects, and makes the device.
fn connect(guest: &dyn Node, storage: &Storage, _nth: usize) -> Result<PathBuf> {
    let Storage::NvmeTcp { server, nqn } = storage else {
        let reason = format!("a client of NVMe over TCP is none of {storage:?}");
        return Err(Error::Server { path: FABRICS.into(), reason });
    };
    guest.write(Path::new(FABRICS), options(*server, nqn).as_bytes(), None)?;
    client_disk::find(guest, Known::Subsystem(nqn))
}

/// What a kernel is told, in one piece (drivers/nvme/host/fabrics.c, `opt_tokens`).
fn options(server: SocketAddr, nqn: &str) -> String {
    let (address, port) = (server.ip(), server.port());
    format!("transport=tcp,traddr={address},trsvcid={port},nqn={nqn},ctrl_loss_tmo={LOST_SECONDS}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    fn storage() -> Storage {
        let server = "198.18.255.3:4420".parse().unwrap();
        Storage::NvmeTcp { server, nqn: "nqn.x:run".to_owned() }
    }

    /// A kernel that has several ways to a disk has a device of each, without a node.
    #[test]
    fn a_guests_kernel_is_told_the_server_and_its_disk_is_found_by_the_subsystem() {
        let guest = Fake::new("guest")
            .file(FABRICS, "")
            .file("/sys/block/nvme0n1/size", "2048\n")
            .file("/sys/block/nvme0n1/device/subsysnqn", "nqn.2014-08.org.nvmexpress:uuid:others\n")
            .file("/sys/block/nvme1c1n1/size", "2048\n")
            .file("/sys/block/nvme1c1n1/hidden", "1\n")
            .file("/sys/block/nvme1c1n1/device/subsysnqn", "nqn.x:run\n")
            .file("/sys/block/nvme1n1/size", "2048\n")
            .file("/sys/block/nvme1n1/hidden", "0\n")
            .file("/sys/block/nvme1n1/device/subsysnqn", "nqn.x:run\n");
        assert_eq!(connect(&guest, &storage(), 0).unwrap(), PathBuf::from("/dev/nvme1n1"));
        let told = guest.read_text(Path::new(FABRICS)).unwrap();
        assert_eq!(told, "transport=tcp,traddr=198.18.255.3,trsvcid=4420,nqn=nqn.x:run,ctrl_loss_tmo=15");
        assert!(connect(&guest, &Storage::File("/f".into()), 0).is_err());
    }

    #[test]
    fn this_hosts_kernel_is_told_the_server_in_the_namespace_that_plays_it() {
        let Storage::NvmeTcp { server, nqn } = storage() else { panic!("it is of NVMe over TCP") };
        let enter = ["nsenter", "--net=/proc/7/fd/9", "--"].map(str::to_owned);
        let host = Fake::new("host").command(|_| Some(says("")));
        connect_host(&host, &enter, server, &nqn).unwrap();
        let ran = host.ran();
        let [told] = ran.as_slice() else { panic!("{ran:?}") };
        assert_eq!(told.shown(), "nsenter --net=/proc/7/fd/9 -- tee /dev/nvme-fabrics");
        assert_eq!(told.stdin, options(server, &nqn).into_bytes());
        let refusing = Fake::new("host").command(|_| Some(fails(1, "tee: /dev/nvme-fabrics: Connection refused\n")));
        let said = connect_host(&refusing, &enter, server, &nqn).unwrap_err().to_string();
        assert!(said.contains("tee /dev/nvme-fabrics") && said.contains("Connection refused"), "{said}");
    }

    #[test]
    fn a_kernel_without_the_transport_has_no_target() {
        let check = NvmeTcp.requirements()[0].check;
        let host = Fake::new("host").file(format!("{NVMET}/ports/1/addr_traddr"), "");
        assert!(check(&host).unwrap_err().to_string().contains("/sys/module/nvmet_tcp is missing"));
        check(&host.file("/sys/module/nvmet_tcp/refcnt", "0\n")).unwrap();
    }
}
