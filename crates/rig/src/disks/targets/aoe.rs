//! A disk that another host, which a network namespace plays, serves by ATA over Ethernet (AoE, the paper's own protocol:
//! shafer2010, section 3.1; the document AoEr11 of Coraid): `vblade` serves a written-out raw file, and a guest's kernel is
//! the client, over a card on the bridge before it. No request is larger than a frame, so the link's MTU is the size of the
//! requests at the server's disk.
//!
//! QEMU has no client of it. This host's kernel hears AoE in its first network namespace alone, where vmio adds nothing:
//! natively a lab host has it, whose namespace is vmio's own.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vmio_look::require::{Requirement, find_program, kernel, program};
use vmio_model::cell;
use vmio_node::aoe_disk::AoeDisk;
use vmio_node::linux::block::{self, Device};
use vmio_node::linux::net::Interfaces;
use vmio_node::{Change, ChangeId, Exec, Journal, Local, Node, Output, Process, held};

use super::client_disk::Known;
use super::host_disk::HostDisk;
use super::own_client::{self, OwnClient};
use super::raw_file::RawFile;
use super::scratch::{self, Scratch};
use super::{Demands, Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT, facts};
use crate::disks::Storage;
use crate::disks::places::Pool;
use crate::limits::OOM_SCORE_ADJ;
use crate::nets::{self, NetPath, REMOTE};
use crate::qemu::waiting;

/// Entry `aoe`.
pub struct Aoe;

/// The server (vblade(8)).
const SERVER: &str = "vblade";
/// Its name on the segment: the shelf, and the slot there. There is one server on each link.
const SHELF: u16 = 0;
const SLOT: u8 = 0;
/// Where a client's kernel is told to look again for servers, which tell it how much a frame carries.
const DISCOVER: &str = "/dev/etherd/discover";
/// What a client's kernel takes off the MTU for headers: Ethernet's, though that is no part of it, those of AoE and of the
/// ATA command (drivers/block/aoe/aoecmd.c, `aoecmd_cfg_rsp`).
const HEADERS: u64 = 36;
const SECTOR: u64 = 512;
/// How long a client may take to hear of a server: a guest under emulation is slow.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// How long the package manager may take to answer, and a killed server to end.
const SHORT: Duration = Duration::from_secs(10);

const OWN_CLIENT: OwnClient =
    OwnClient { modules: &["aoe"], programs: &[], requirements: &[nets::TUN], connect, renew: Some(renew) };

impl Target for Aoe {
    fn name(&self) -> &'static str {
        "aoe"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another host (a namespace) serves by ATA over Ethernet: to a guest's or lab host's kernel"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: SERVER,
                    why: "serves the disk on the other host",
                    fix: "apt install vblade, or leave out the target `aoe`",
                    check: |reader| program(reader, SERVER),
                },
                nets::IP,
                nets::NSENTER,
                nets::UNSHARE,
                nets::ROOT,
            ]
        }
    }
    fn native_requirements(&self) -> &'static [Requirement] {
        const {
            &[
                nets::LAB_HOST,
                Requirement {
                    name: "kernel's client of ATA over Ethernet",
                    why: "is what a lab host itself reaches the target `aoe` by",
                    fix: "modprobe aoe",
                    check: |reader| kernel(reader, "ATA over Ethernet", DISCOVER),
                },
            ]
        }
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn no_hypervisor(&self) -> Option<&'static str> {
        Some(
            "QEMU has no client of ATA over Ethernet: leave the driver out and the guest reaches it by itself; compare \
             it with nbd",
        )
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
        let mut link = nets::beside(ctx.node, host)?;
        if ctx.native {
            nets::join_first(ctx.node, host, &mut link)?;
        }
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        let open = scratch.open.clone();
        let file = RawFile::new(scratch, false);
        let (node, version) = (Local::owned(Arc::clone(ctx.journal)), version(ctx.node));
        let mut served = Box::new(AoeFile { file, open, node, link, server: None, version, client: None });
        if ctx.native
            && let Err(why) = served.reach_natively(ctx.journal)
        {
            // What cannot be taken away is in the journal.
            let _ = served.remove(ctx.journal);
            return Err(why);
        }
        Ok(served)
    }
}

/// The file and its server.
struct AoeFile {
    file: RawFile,
    /// As what programs open it.
    open: PathBuf,
    /// The server is started here: it bears the run's mark.
    node: Local,
    link: NetPath,
    server: Option<Box<dyn Process>>,
    version: String,
    /// The disk of this host's own kernel as its client.
    client: Option<(HostDisk, ChangeId)>,
}

impl AoeFile {
    fn fail(&self, reason: String) -> Error {
        Error::Server { path: held::shown(&self.open), reason }
    }

    /// How the server ended, if it has.
    fn ended(&mut self) -> Result<Option<Output>> {
        Ok(self.server.as_mut().map(|server| server.try_wait()).transpose()?.flatten())
    }

    fn start(&mut self) -> Result<()> {
        let end = self.link.peers.get(REMOTE).ok_or_else(|| self.fail("its link has no other end".to_owned()))?;
        let node: &dyn Node = &self.node;
        let found = find_program(node.reader(), SERVER).ok_or_else(|| self.fail(format!("no program {SERVER}")))?;
        let command = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::new(found.display().to_string()) }
            .args(arguments(&end.interface, &self.open))
            .behind(&end.enter);
        let mut server = node.spawn(&command)?;
        // It says nothing once it serves, and ends at once where it cannot.
        if let Some(output) = waiting::ended_soon(|| server.try_wait().ok().flatten()) {
            return Err(self.fail(said(&output)));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Ends the server.
    fn stop(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.kill()?;
            server.wait(Some(SHORT))?;
        }
        Ok(())
    }

    /// Has this host's own kernel be the client: native workloads then open its disk. A server announces its disk when
    /// it starts, and a kernel that hears it makes the device unasked: only one that is there before is another's.
    fn reach_natively(&mut self, journal: &Journal) -> Result<()> {
        let disk = AoeDisk { shelf: SHELF, slot: SLOT };
        let name = disk.node_name();
        if Device::whole(self.node.reader(), &block::sysfs_name(&name)).is_there() {
            let reason = "this kernel has it already, of another server: have it let go of that (aoe-flush)".to_owned();
            return Err(Error::NotAsAsked { path: Path::new("/dev").join(name), reason });
        }
        // Half of it may be there where it fails: the line in the journal stays.
        let reaching = || {
            let served = self.attach(&own_client::asked());
            Ok::<_, Infallible>(served.and_then(|storage| connect(&self.node, &storage, 0)))
        };
        let Ok((reached, made)) = journal.make(Change::AoeDisk(disk), reaching)?;
        match reached.and_then(|_| HostDisk::hold(&self.node, Known::Node(&name), self.file.bytes())) {
            Ok(held) => {
                self.client = Some((held, made));
                Ok(())
            }
            Err(why) => {
                let _ = self.stop();
                Err(scratch::undone(journal, made, why))
            }
        }
    }
}

/// Past the page cache, as the servers of `nbd` work for a guest that reaches them by itself.
fn arguments(interface: &str, file: &Path) -> Vec<String> {
    let file = file.to_string_lossy().into_owned();
    vec!["-d".to_owned(), SHELF.to_string(), SLOT.to_string(), interface.to_owned(), file]
}

fn said(output: &Output) -> String {
    format!("it ended: {}", [output.err(), output.out()].join(" ").trim())
}

/// The version of the server's package: the program tells none.
fn version(node: &dyn Node) -> String {
    let ask = Exec::new("dpkg-query").args(["--show", "--showformat=${Version}", SERVER]).limit(SHORT);
    let told = node.exec(&ask).ok().filter(Output::ok).map(|output| output.out().trim().to_owned());
    told.filter(|version| !version.is_empty()).unwrap_or_else(|| "of unknown version".to_owned())
}

impl Prepared for AoeFile {
    fn native(&self) -> &Path {
        self.client.as_ref().map_or(&*self.open, |(disk, _)| disk.path())
    }
    fn lies_on(&self) -> &Path {
        &self.open
    }
    fn intact(&self) -> Result<()> {
        self.file.intact()
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        if self.server.is_none() || self.ended()?.is_some() {
            self.start()?;
        }
        Ok(Storage::Aoe { shelf: SHELF, slot: SLOT })
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        facts([
            ("server", format!("{SERVER} {}, ATA over Ethernet", self.version)),
            ("server.cache.direct", true.to_string()),
        ])
    }
    fn link(&self) -> Option<&NetPath> {
        Some(&self.link)
    }
    fn servers(&self, _asked: &cell::Attachment) -> Vec<u32> {
        self.server.iter().map(|server| server.pid()).collect()
    }
    fn sound(&mut self, _asked: &cell::Attachment) -> Result<()> {
        match self.ended()? {
            Some(output) => Err(self.fail(said(&output))),
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
        let mut all = self.file.effective();
        if self.client.is_some() {
            all.extend(self.attached(&own_client::asked()));
            all.insert("client".to_owned(), "ATA over Ethernet, in this host's kernel".to_owned());
        }
        all
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        if self.client.is_some() {
            // One that died is started again; the kernel goes on with that.
            self.attach(&own_client::asked())?;
        }
        self.client.as_ref().map_or(Ok(()), |(disk, _)| disk.forget_pages())?;
        self.file.reset(state)
    }
    fn renew(&mut self) -> Result<()> {
        match (&self.client, &self.link.native) {
            (Some((disk, _)), Some(end)) => renew(&self.node, disk.node(), &end.interface),
            _ => Ok(()),
        }
    }
    fn remove(mut self: Box<Self>, journal: &Journal) -> Result<()> {
        // What its page cache still has is written first: the kernel could not, later. It is closed then. Without a server
        // it would wait for minutes (aoe_deadsecs), so one that died is started again.
        let made = self.client.take().map(|(disk, made)| {
            let _ = self.attach(&own_client::asked()).and_then(|_| disk.flush());
            made
        });
        // Before the disk: the kernel would hear of it again.
        self.stop()?;
        if let Some(made) = made {
            journal.undo(made)?;
        }
        let Self { file, .. } = *self;
        Box::new(file).remove(journal)
    }
}

/// The kernel, a guest's or this host's, makes the device when it hears of the server.
fn connect(guest: &dyn Node, storage: &Storage, _nth: usize) -> Result<PathBuf> {
    let Storage::Aoe { shelf, slot } = storage else {
        let reason = format!("a client of ATA over Ethernet is none of {storage:?}");
        return Err(Error::Server { path: DISCOVER.into(), reason });
    };
    let device = block::node_path(&format!("etherd!e{shelf}.{slot}"));
    let is_there = |found: &Device<'_>| found.size_bytes().is_some_and(|bytes| bytes > 0);
    discover(guest, &device, &is_there, "it was not heard of")?;
    Ok(device)
}

/// The kernel learns how much a frame carries when a server answers, and keeps that when the card's MTU is changed.
fn renew(guest: &dyn Node, device: &Path, card: &str) -> Result<()> {
    let mtu = Interfaces::here(guest.reader()).mtu_bytes(card).unwrap_or(0);
    let payload = mtu.saturating_sub(HEADERS) / SECTOR * SECTOR;
    let carries = |found: &Device<'_>| found.frame_payload_bytes() == Some(payload);
    discover(guest, device, &carries, &format!("a frame was to carry {payload} bytes"))
}

/// Has the kernel look for servers until its device is as it should be.
fn discover(guest: &dyn Node, device: &Path, is_so: &dyn Fn(&Device<'_>) -> bool, unlike: &str) -> Result<()> {
    let name = block::name_at(device).unwrap_or_default();
    let until = Instant::now() + LIMIT;
    loop {
        guest.write(Path::new(DISCOVER), b"\n", None)?;
        thread::sleep(POLL);
        if is_so(&Device::whole(guest.reader(), &name)) {
            return Ok(());
        }
        if Instant::now() > until {
            let reason = format!("within {} s {unlike} on {}", LIMIT.as_secs(), guest.name());
            return Err(Error::NotAsAsked { path: device.to_owned(), reason });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn the_server_works_past_the_page_cache_on_its_end_of_the_link() {
        assert_eq!(arguments("eth0", Path::new("/proc/7/fd/9")), ["-d", "0", "0", "eth0", "/proc/7/fd/9"]);
        let host = Fake::new("host").command(|cmd| (cmd.program == "dpkg-query").then(|| says("25-1+b1")));
        assert_eq!(version(&host), "25-1+b1");
        assert_eq!(version(&Fake::new("other")), "of unknown version");
    }

    #[test]
    fn a_guest_hears_of_the_server_and_of_what_a_frame_carries() {
        let guest = Fake::new("guest")
            .file("/sys/block/etherd!e0.0/size", "2048\n")
            .file("/sys/block/etherd!e0.0/payload", "1024\n")
            .file("/sys/class/net/eth0/mtu", "1500\n")
            .file(DISCOVER, "");
        let device = connect(&guest, &Storage::Aoe { shelf: 0, slot: 0 }, 0).unwrap();
        assert_eq!(device, PathBuf::from("/dev/etherd/e0.0"));
        renew(&guest, &device, "eth0").unwrap();
        assert!(connect(&guest, &Storage::File("/f".into()), 0).is_err());
    }
}
