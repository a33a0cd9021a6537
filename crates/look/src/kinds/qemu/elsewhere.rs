//! Options that QEMU got elsewhere than on its command line: in a file of `-readconfig`, and by commands to its
//! monitor, as the daemon of Incus logs them. The monitor is that daemon's alone: nothing here connects to it.
//!
//! Anybody can start a process that names such a file. So it is read only in the directories in which managers write
//! some, and where nobody but root can have written it; that of an instance only where the number of QEMU's process
//! beside it is this process's.

use std::io::ErrorKind;
use std::path::Path;

use vmio_model::facts::{Remedy, Unread};
use vmio_model::rules::change::shell;
use vmio_node::Error;

use super::super::process::Process;
use crate::qemu::instance::Instance;
use crate::qemu::options::{Opt, settings_in};
use crate::qemu::{commands, config};
use crate::require::Fix;

/// Longest file of options that is read, and how much of a log: devices come in when the instance starts.
const CONFIG_BYTES: usize = 256 << 10;
const LOG_BYTES: usize = 1 << 20;
/// Most files of one process that are read; managers name one.
const MOST_FILES: usize = 4;
/// Proxmox VE's files of options, which its guests share (PVE/QemuServer.pm).
const PROXMOX: &str = "/usr/share/qemu-server/";

/// Adds these options to a process's command line. Returns what could not be read.
pub fn read(process: &mut Process<'_>) -> Vec<Unread> {
    let mut missing = Vec::new();
    for file in process.line.config_files().into_iter().take(MOST_FILES) {
        let instance = Instance::of_config(&file);
        let shared = file.strip_prefix(PROXMOX).is_some_and(|name| name.ends_with(".cfg") && !name.contains('/'));
        if instance.is_none() && !shared {
            continue; // told as not read
        }
        process.line.config_is_read(&file);
        match options(process, &file, instance.as_ref()) {
            Ok(options) => process.take(options, &file),
            Err((why, mend)) => {
                missing.push(Unread { what: settings_in(&file), why, mend });
                continue;
            }
        }
        if let Some(instance) = instance {
            plugged(process, &instance, &mut missing);
        }
    }
    missing
}

/// The options of a file, or why they are not known and what would help.
fn options(process: &Process<'_>, file: &str, instance: Option<&Instance<'_>>) -> Result<Vec<Opt>, (String, Remedy)> {
    let by_hand = || Remedy::from("look at the file by hand");
    let refused = |e: Error| (e.to_string(), mend(process, &e, by_hand()));
    if let Some(instance) = instance
        && instance.pid(process.reader()).map_err(refused)? != Some(process.pid)
    {
        let why = format!("it is of another process, as {} says", instance.pid_file().display());
        return Err((why, by_hand()));
    }
    let bytes = process.reader().read_trusted(Path::new(file), CONFIG_BYTES + 1).map_err(refused)?;
    if bytes.len() > CONFIG_BYTES {
        return Err((format!("{file} is longer than {CONFIG_BYTES} bytes"), by_hand()));
    }
    Ok(config::options(&String::from_utf8_lossy(&bytes)))
}

/// Adds the devices that the instance's daemon plugged in.
fn plugged(process: &mut Process<'_>, instance: &Instance<'_>, missing: &mut Vec<Unread>) {
    let path = instance.log();
    let name = process.name.clone();
    let by_hand = || Remedy::from(format!("{} config show --expanded {}", instance.daemon.client, shell(&name)));
    let devices = || format!("disks and network devices of guest {name} that its monitor plugged in");
    let log = match process.reader().read_trusted(&path, LOG_BYTES) {
        Ok(log) => log,
        Err(e) => {
            let mend = mend(process, &e, by_hand());
            return missing.push(Unread { what: devices(), why: e.to_string(), mend });
        }
    };
    let options = commands::plugged(&String::from_utf8_lossy(&log));
    if options.is_empty() {
        missing.push(Unread { what: devices(), why: format!("{} names none", path.display()), mend: by_hand() });
    } else if log.len() >= LOG_BYTES {
        missing.push(Unread {
            what: format!("devices of guest {name} that were plugged in or out later"),
            why: format!("of {} no more is read than its first {} KiB", path.display(), LOG_BYTES >> 10),
            mend: by_hand(),
        });
    }
    process.take(options, &path.display().to_string());
}

/// What would help after an error.
fn mend(process: &Process<'_>, error: &Error, otherwise: Remedy) -> Remedy {
    match error.kind() {
        Some(ErrorKind::PermissionDenied) => Fix::Root.remedy(process.reader()),
        _ => otherwise,
    }
}
