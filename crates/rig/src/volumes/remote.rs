//! A volume of another host for a guest of this one. That host decides whether this one may have it, by the key that it
//! serves with; which guest of this host has it, the record in this host's pool says.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use vmio_node::Node;
use vmio_node::qmp::Qmp;

use super::attachment::{Attachment, Holder, Reach};
use super::hotplug::{self, Driver, Running};
use super::key::{Key, refuse_clear};
use super::{Error, Name, Pool, Result};

/// How long a server on another host may take to be connected to, and to greet.
const GREETED: Duration = Duration::from_secs(2);
/// Where QEMU has the objects that it was told to make.
const OBJECTS: &str = "/objects";

/// Where a volume comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Where it is served.
    pub at: SocketAddr,
    /// The key of this host.
    pub key: Option<Key>,
}

/// Whether a volume of another host could be given to a guest now. Changes nothing.
///
/// # Errors
/// As [`attach_from`], but for what QEMU says to the disk.
pub fn check_from(node: &dyn Node, pool: &Pool, name: &Name, guest: &Running, origin: &Origin) -> Result<()> {
    refuse_clear(origin.at, origin.key.as_ref())?;
    guest.open(node)?;
    let holder = Holder::of(&guest.name, guest.pid)?;
    match pool.claimed_as(name, &holder, &Reach::From { at: origin.at })? {
        Some(_) => Ok(()),
        None => greeted(origin.at, name),
    }
}

/// Gives a volume of another host to a guest of this one.
///
/// # Errors
/// A guest of this host has one of this name, another client is connected to its server, or QEMU refuses: also where
/// the keys are not the same. Unless QEMU has it then, it is not attached.
pub fn attach_from(
    node: &dyn Node,
    pool: &Pool,
    name: &Name,
    guest: &Running,
    as_what: (Driver, Option<&str>),
    origin: &Origin,
) -> Result<Attachment> {
    refuse_clear(origin.at, origin.key.as_ref())?;
    let mut qmp = guest.open(node)?;
    let holder = Holder::of(&guest.name, guest.pid)?;
    let attachment = pool.claim_as(name, &holder, &Reach::From { at: origin.at })?;
    if let Err(why) = connect(&mut qmp, name, &attachment, as_what, origin) {
        // What QEMU has, or may have, stays attached; the same command goes on.
        if hotplug::is_absent(&mut qmp, &attachment) {
            let _ = drop_key(&mut qmp, &attachment);
            let _ = pool.release(name, &attachment);
        }
        return Err(why);
    }
    Ok(attachment)
}

/// Takes a volume of another host from the guest that has it; from none where that has ended.
///
/// # Errors
/// The guest keeps it, its server is not reached, or no guest is given and it still runs.
pub fn detach_from(
    node: &dyn Node,
    pool: &Pool,
    name: &Name,
    attachment: &Attachment,
    guest: Option<&Running>,
) -> Result<()> {
    match (guest, &attachment.reach) {
        (Some(guest), Reach::From { at }) => {
            // Without a server QEMU would stop all that it does until it gives up to flush.
            reached(*at, name)?;
            let mut qmp = guest.open(node)?;
            hotplug::unplug(&mut qmp, name, attachment)?;
            drop_key(&mut qmp, attachment)?;
        }
        _ => pool.refuse_held(name, attachment)?,
    }
    pool.release(name, attachment)
}

fn connect(
    qmp: &mut Qmp,
    name: &Name,
    attachment: &Attachment,
    as_what: (Driver, Option<&str>),
    origin: &Origin,
) -> Result<()> {
    // Where QEMU has it, it is the client that the server has.
    if !hotplug::has_node(qmp, &attachment.id())? {
        greeted(origin.at, name)?;
    }
    let (ip, port) = (origin.at.ip().to_string(), origin.at.port().to_string());
    let mut node = json!({"server": {"type": "inet", "host": ip, "port": port}, "export": name.to_string()});
    if let Some(key) = &origin.key {
        let id = key_id(attachment);
        if !has_key(qmp, &id)? {
            qmp.execute("object-add", key.client(&id))?;
        }
        node["tls-creds"] = json!(id);
    }
    hotplug::plug(qmp, node, name, attachment, as_what)
}

fn key_id(attachment: &Attachment) -> String {
    format!("{}-key", attachment.id())
}

fn has_key(qmp: &mut Qmp, id: &str) -> Result<bool> {
    Ok(hotplug::is_listed(&qmp.execute("qom-list", json!({"path": OBJECTS}))?, "name", id))
}

fn drop_key(qmp: &mut Qmp, attachment: &Attachment) -> Result<()> {
    let id = key_id(attachment);
    if has_key(qmp, &id)? {
        qmp.execute("object-del", json!({"id": id}))?;
    }
    Ok(())
}

fn reached(at: SocketAddr, name: &Name) -> Result<TcpStream> {
    TcpStream::connect_timeout(&at, GREETED).map_err(|why| Error::Silent { name: name.clone(), why })
}

/// A server that has a client accepts no second one: the kernel answers it, and then nobody.
fn greeted(at: SocketAddr, name: &Name) -> Result<()> {
    let silent = |why| Error::Silent { name: name.clone(), why };
    let mut stream = reached(at, name)?;
    stream.set_read_timeout(Some(GREETED)).map_err(silent)?;
    let is_greeted = hotplug::greets(&mut stream).map_err(silent)?;
    if is_greeted { Ok(()) } else { Err(Error::Taken { name: name.clone(), at }) }
}
