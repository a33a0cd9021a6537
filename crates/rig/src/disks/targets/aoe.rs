//! A disk that another host, which a network namespace plays, serves by ATA over Ethernet (AoE, the paper's own protocol:
//! shafer2010, section 3.1; the document AoEr11 of Coraid): `vblade` serves a written-out raw file, and a guest's kernel is
//! the client, over a card on the bridge before it. No request is larger than a frame, so the link's MTU is the size of the
//! requests at the server's disk.
//!
//! QEMU has no client of it, and this host's kernel hears AoE in its first network namespace alone, where vmio adds
//! nothing: only a guest that reaches it by itself has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vmio_look::require::{Requirement, find_program, program};
use vmio_model::cell;
use vmio_node::linux::block::{self, Device};
use vmio_node::linux::net::Interfaces;
use vmio_node::{Exec, Journal, Local, Node, Output, Process, held};

use super::own_client::OwnClient;
use super::raw_file::RawFile;
use super::scratch::Scratch;
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
        "fully written raw file that another host (a namespace) serves by ATA over Ethernet, to a guest's kernel"
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
    fn by_itself_alone(&self) -> Option<&'static str> {
        Some(
            "QEMU has no client of ATA over Ethernet, and this host's kernel has none in a network namespace: leave the \
             driver out and the guest reaches it by itself; compare it with nbd",
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
        let link = nets::beside(ctx.node, ctx.host.as_ref().ok_or_else(alone)?)?;
        let scratch = Scratch::make_with(ctx, self.name(), Scratch::fill)?;
        let open = scratch.open.clone();
        let file = RawFile::new(scratch, false);
        let node = Local::owned(Arc::clone(ctx.journal));
        Ok(Box::new(AoeFile { file, open, node, link, server: None, version: version(ctx.node) }))
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
        self.file.effective()
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        self.file.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { file, server, .. } = *self;
        if let Some(mut server) = server {
            server.kill()?;
            server.wait(Some(SHORT))?;
        }
        Box::new(file).remove(journal)
    }
}

/// The guest's kernel makes the device when it hears of the server.
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

/// Has the guest's kernel look for servers until its device is as it should be.
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
            let reason = format!("within {} s {unlike} in the guest {}", LIMIT.as_secs(), guest.name());
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
