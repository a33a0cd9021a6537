//! Gives a volume to a guest that runs, and takes it back, by QEMU's monitor (qapi/block-core.json, qapi/qdev.json).
//! Each step looks first at what there is, so that a command that was ended in the middle is finished by the next one.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use vmio_node::Node;
use vmio_node::qmp::Qmp;

use super::attachment::{Attachment, Holder, Reach, State};
use super::server::is_served;
use super::{Error, Name, Pool, Result, Volume};

/// How long the server of a volume may take to start.
const START: Duration = Duration::from_secs(10);
/// How long one that listens may take to greet; one that is late is asked by QEMU, which has a limit of its own.
const GREETED: Duration = Duration::from_millis(200);
/// How long a guest may take to let go of a disk.
const LET_GO: Duration = Duration::from_secs(20);
/// How long QEMU may use a node after its device is gone.
const IN_USE: Duration = Duration::from_secs(5);
/// How long QEMU may take to connect to the server that has the new size of a volume.
const SEEN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// How long a guest's requests wait for a server that has ended, in seconds. Then they fail.
const RECONNECT: u64 = 60;
/// How long QEMU may take to connect, in seconds; it does nothing else meanwhile.
const CONNECT: u64 = 5;
/// What a server says first (NBD protocol, "Newstyle negotiation"): NBDMAGIC, IHAVEOPT.
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
/// Longest serial number of a virtio disk (`VIRTIO_BLK_ID_BYTES`).
const SERIAL: usize = 20;
/// Devices with a name, in QEMU's object tree.
const PERIPHERAL: &str = "/machine/peripheral";

/// What a guest has a volume as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A disk of virtio-blk: a card of its own, for which a slot must be free.
    VirtioBlk,
    /// A disk at a SCSI controller that the guest has.
    Scsi,
}

impl Driver {
    /// All, with their names.
    pub const ALL: [(&'static str, Driver); 2] = [("virtio-blk", Driver::VirtioBlk), ("scsi", Driver::Scsi)];

    fn device(self) -> &'static str {
        match self {
            Driver::VirtioBlk => "virtio-blk-pci",
            Driver::Scsi => "scsi-hd",
        }
    }
}

/// A guest that runs on this host.
#[derive(Debug, Clone)]
pub struct Running {
    /// Its name.
    pub name: String,
    /// The process of its QEMU.
    pub pid: u32,
    /// The socket of its monitor.
    pub monitor: PathBuf,
}

impl Running {
    pub(super) fn open(&self, node: &dyn Node) -> Result<Qmp> {
        let stream = node.connect(&self.monitor).map_err(|source| Error::Node(Box::new(source)))?;
        // The path is in the hands of the guest's owner, and may lead elsewhere by now.
        let own = i64::from(self.pid);
        if !socket_peercred(&stream).is_ok_and(|peer| i64::from(peer.pid.as_raw_pid()) == own) {
            return Err(Error::NotItsMonitor { guest: self.name.clone() });
        }
        Ok(Qmp::over(&self.name, stream)?)
    }
}

/// Whether a volume could be given to a guest now. Changes nothing.
///
/// # Errors
/// As [`attach`], but for what QEMU says to the disk.
pub fn check(node: &dyn Node, pool: &Pool, name: &Name, guest: &Running) -> Result<()> {
    needs_server(pool)?;
    guest.open(node)?;
    pool.claimed(name, &Holder::of(&guest.name, guest.pid)?).map(drop)
}

/// Gives a volume to a guest, which then has it as a further disk.
///
/// # Errors
/// Another guest has it, nobody serves the pool, or QEMU refuses. Unless QEMU has it then, it is not attached.
pub fn attach(
    node: &dyn Node,
    pool: &Pool,
    name: &Name,
    guest: &Running,
    as_what: (Driver, Option<&str>),
) -> Result<Attachment> {
    needs_server(pool)?;
    let mut qmp = guest.open(node)?;
    let attachment = pool.claim(name, &Holder::of(&guest.name, guest.pid)?)?;
    let done = pool.socket(&attachment).and_then(|socket| {
        answers(&socket, name)?;
        let server = json!({"type": "unix", "path": socket.to_string_lossy()});
        plug(&mut qmp, json!({"server": server, "export": attachment.export}), name, &attachment, as_what)
    });
    if let Err(why) = done {
        // What QEMU has, or may have, stays attached; the same command goes on.
        if is_absent(&mut qmp, &attachment) {
            // Where it stays, the next command gives it to a guest or takes it back.
            let _ = pool.release(name, &attachment);
        }
        return Err(why);
    }
    Ok(attachment)
}

/// Takes a volume from the guest that has it; from none where that has ended.
///
/// # Errors
/// The guest keeps it, nobody serves the pool, or no guest is given and it still runs.
pub fn detach(
    node: &dyn Node,
    pool: &Pool,
    name: &Name,
    attachment: &Attachment,
    guest: Option<&Running>,
) -> Result<()> {
    match guest {
        // Who asks knows that the other host's guest has let go of it.
        None if matches!(attachment.reach, Reach::To { .. }) && attachment.holder.state() == State::Ended => {}
        Some(guest) => {
            // Without a server QEMU would stop all that it does until it gives up to flush.
            needs_server(pool)?;
            answers(&pool.socket(attachment)?, name)?;
            unplug(&mut guest.open(node)?, name, attachment)?;
        }
        None => pool.refuse_held(name, attachment)?,
    }
    pool.release(name, attachment)
}

/// Makes a volume larger that a guest has, which then sees the new size.
///
/// # Errors
/// As [`Pool::resize`], or nobody serves the pool; [`Error::Unseen`] where only the guest has not followed.
pub fn resize(
    node: &dyn Node,
    pool: &Pool,
    name: &Name,
    attachment: &Attachment,
    guest: &Running,
    bytes: u64,
) -> Result<Volume> {
    needs_server(pool)?;
    let (mut qmp, socket) = (guest.open(node)?, pool.socket(attachment)?);
    let volume = pool.grow_attached(name, attachment, bytes)?;
    let seen = answers(&socket, name).and_then(|()| show_size(&mut qmp, &attachment.id(), volume.bytes));
    let unseen = |why| Error::Unseen { name: name.clone(), guest: guest.name.clone(), why: Box::new(why) };
    seen.map_err(unseen)?;
    Ok(volume)
}

fn needs_server(pool: &Pool) -> Result<()> {
    if is_served(pool)? { Ok(()) } else { Err(Error::NotServed { path: pool.path.clone() }) }
}

/// Waits until the server of a volume answers.
fn answers(socket: &Path, name: &Name) -> Result<()> {
    let until = Instant::now() + START;
    loop {
        let Err(why) = greeted(socket) else { return Ok(()) };
        if Instant::now() >= until {
            return Err(Error::Silent { name: name.clone(), why });
        }
        sleep(POLL);
    }
}

fn greeted(socket: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    // One that serves its guest already does not greet another client, and needs not.
    stream.set_read_timeout(Some(GREETED))?;
    greets(&mut stream).map(|_| ())
}

/// Whether a server greets within the stream's limit of time. What says something else is no server.
pub(super) fn greets(stream: &mut impl Read) -> std::io::Result<bool> {
    let mut greeting = [0; 16];
    match stream.read_exact(&mut greeting) {
        Ok(()) if greeting == *GREETING => Ok(true),
        Ok(()) => Err(ErrorKind::InvalidData.into()),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Has QEMU connect to a server, and its guest get the disk. The node has the server and the export.
pub(super) fn plug(
    qmp: &mut Qmp,
    mut node: Value,
    name: &Name,
    attachment: &Attachment,
    (driver, bus): (Driver, Option<&str>),
) -> Result<()> {
    let id = attachment.id();
    if !has_node(qmp, &id)? {
        (node["driver"], node["node-name"]) = (json!("nbd"), json!(id));
        (node["reconnect-delay"], node["open-timeout"]) = (json!(RECONNECT), json!(CONNECT));
        qmp.execute("blockdev-add", node)?;
    }
    if !has_device(qmp, &id)? {
        let mut device = json!({
            "driver": driver.device(), "id": id, "drive": id, "serial": serial(name, attachment),
        });
        if let Some(bus) = bus {
            device["bus"] = json!(bus);
        }
        if let Err(why) = qmp.execute("device_add", device) {
            // One that was made after all keeps its node.
            let _ = qmp.execute("blockdev-del", json!({"node-name": id}));
            return Err(why.into());
        }
    }
    Ok(())
}

/// By which a guest tells its disks apart: the volume's name, or its export where that is too long.
pub fn serial(name: &Name, attachment: &Attachment) -> String {
    let name = name.to_string();
    if name.len() <= SERIAL { name } else { attachment.export.clone() }
}

/// Has the guest let go of the disk, and QEMU of the server.
pub(super) fn unplug(qmp: &mut Qmp, name: &Name, attachment: &Attachment) -> Result<()> {
    let id = attachment.id();
    let kept = |limit: Duration| {
        let guest = attachment.holder.guest.clone();
        Error::Kept { name: name.clone(), guest, seconds: limit.as_secs() }
    };
    if has_device(qmp, &id)? {
        match qmp.execute("device_del", json!({"id": id})) {
            // An earlier command asked already.
            Err(why) if !why.reason.contains("in the process of unplug") => return Err(why.into()),
            _ => {}
        }
        // What QEMU tells by DEVICE_DELETED, also of an earlier command.
        let until = Instant::now() + LET_GO;
        while has_device(qmp, &id)? {
            if Instant::now() >= until {
                return Err(kept(LET_GO));
            }
            sleep(POLL);
        }
    }
    let until = Instant::now() + IN_USE;
    while has_node(qmp, &id)? {
        // Closing it writes what QEMU still has of it.
        match qmp.execute("blockdev-del", json!({"node-name": id})) {
            Err(why) if Instant::now() >= until => return Err(why.into()),
            // Its process is the guest's owner's, and need not do what it says.
            Ok(_) if Instant::now() >= until => return Err(kept(IN_USE)),
            _ => sleep(POLL),
        }
    }
    Ok(())
}

/// Has QEMU take the new size of a volume and tell its guest. Its client of NBD learns a size when it connects, and
/// connects again at the first request that finds its server gone (QEMU's block/nbd.c).
fn show_size(qmp: &mut Qmp, id: &str, bytes: u64) -> Result<()> {
    // One that is attached later finds the new size at once.
    if !has_node(qmp, id)? {
        return Ok(());
    }
    let request = json!({"command-line": format!("qemu-io {id} \"read 0 512\"")});
    let until = Instant::now() + SEEN;
    loop {
        // Where it fails so does what follows.
        let _ = qmp.execute("human-monitor-command", request.clone());
        match qmp.execute("block_resize", json!({"node-name": id, "size": bytes})) {
            Ok(_) => return Ok(()),
            Err(why) if Instant::now() >= until => return Err(why.into()),
            // It still has its earlier server.
            Err(_) => sleep(POLL),
        }
    }
}

/// Whether QEMU certainly has nothing of it.
pub(super) fn is_absent(qmp: &mut Qmp, attachment: &Attachment) -> bool {
    let id = attachment.id();
    matches!((has_device(qmp, &id), has_node(qmp, &id)), (Ok(false), Ok(false)))
}

pub(super) fn has_node(qmp: &mut Qmp, id: &str) -> Result<bool> {
    // Without `flat` each node brings all below it once more.
    let nodes = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    Ok(is_listed(&nodes, "node-name", id))
}

fn has_device(qmp: &mut Qmp, id: &str) -> Result<bool> {
    Ok(is_listed(&qmp.execute("qom-list", json!({"path": PERIPHERAL}))?, "name", id))
}

/// Whether QEMU tells of one with this name.
pub(super) fn is_listed(all: &Value, key: &str, name: &str) -> bool {
    all.as_array().into_iter().flatten().any(|one| one[key] == name)
}
