//! The agent as init (PID 1) of vmio's guest image.
//!
//! Init itself only prepares the machine, starts the agent proper as its child, and reaps
//! orphans; it has no way to fail that would panic the kernel. What goes wrong is said in the
//! kernel's log, which is the guest's console.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, finit_module, reboot};

use crate::Local;
use crate::agent::stream;
use crate::linux::{block, histogram};

/// Kernel modules to load in order, a line each: the absolute path, and its parameters after a blank.
const MODULE_LIST: &str = "/etc/vmio-modules";

/// Disks to mount: `SERIAL DIRECTORY TYPE` a line, read-only. The serial is the one that the
/// hypervisor gave to the virtio disk.
const MOUNT_LIST: &str = "/etc/vmio-mounts";

/// Name of the port unless the kernel's command line says `vmio.port=NAME`.
const PORT_NAME: &str = "vmio.0";

/// Where programs are looked for.
const PATHS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prepares the machine and keeps an agent running on it for ever.
pub fn run() -> ! {
    prepare();
    let port = port_path(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    loop {
        match start_agent(&port) {
            Ok(pid) => {
                reap_until(pid);
                log("the agent ended; it is started again");
            }
            Err(e) => log(&format!("cannot start the agent: {e}")),
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Says something in the kernel's log, or on standard error where there is none.
pub fn log(text: &str) {
    let line = format!("<3>vmio-agent: {text}\n");
    let written = OpenOptions::new().write(true).open("/dev/kmsg").and_then(|mut f| f.write_all(line.as_bytes()));
    if written.is_err() {
        let _ = writeln!(io::stderr(), "vmio-agent: {text}");
    }
}

/// Writes all to the disks and switches the machine off.
///
/// # Errors
/// When the kernel refuses; on success it does not return.
pub fn power_off() -> io::Result<()> {
    rustix::fs::sync();
    Ok(reboot(RebootCommand::PowerOff)?)
}

fn prepare() {
    for (kind, target) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp"), ("tmpfs", "/run")]
    {
        let done = make_dir(target).and_then(|()| match mount(kind, target, kind, MountFlags::empty(), None) {
            // The kernel or an earlier stage did it.
            Err(Errno::BUSY) => Ok(()),
            other => Ok(other?),
        });
        say(&format!("mount {kind} on {target}"), done);
    }
    mount_tracefs();
    // There is no modprobe: the kernel must not look for it each time it misses a module.
    say("turn modprobe off", fs::write("/proc/sys/kernel/modprobe", "\n"));
    load_modules();
    mount_disks();
    say("bring up the loopback interface", loopback_up());
    say("name the ports", name_ports(Path::new("/dev/virtio-ports")));
}

/// For what counts events of the block layer. A kernel without tracing has no such directory.
fn mount_tracefs() {
    if !Path::new(histogram::TRACEFS).is_dir() {
        return;
    }
    let done = match mount("tracefs", histogram::TRACEFS, "tracefs", MountFlags::empty(), None) {
        Err(Errno::BUSY) => Ok(()),
        other => other.map_err(io::Error::from),
    };
    say("mount tracefs", done);
}

fn say(what: &str, done: io::Result<()>) {
    if let Err(e) = done {
        log(&format!("cannot {what}: {e}"));
    }
}

fn make_dir(path: &str) -> io::Result<()> {
    fs::create_dir(path).or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
}

fn load_modules() {
    let list = match fs::read_to_string(MODULE_LIST) {
        // A kernel that has all it needs built in.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return log(&format!("cannot read {MODULE_LIST}: {e}")),
        Ok(list) => list,
    };
    for line in list.lines().map(str::trim).filter(|l| !l.is_empty()) {
        // The file, then the module's parameters.
        let (path, options) = line.split_once(' ').unwrap_or((line, ""));
        let options = CString::new(options).unwrap_or_default();
        let loaded = File::open(path).and_then(|file| match finit_module(&file, &options, 0) {
            Err(Errno::EXIST) => Ok(()),
            // The file was opened: it is a symbol that the kernel did not find.
            Err(Errno::NOENT) => Err(io::Error::other("a module that it needs is not loaded; order the list")),
            other => Ok(other?),
        });
        say(&format!("load {path}"), loaded);
    }
}

fn mount_disks() {
    let list = match fs::read_to_string(MOUNT_LIST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return log(&format!("cannot read {MOUNT_LIST}: {e}")),
        Ok(list) => list,
    };
    for line in list.lines().filter(|l| !l.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words[..] {
            [serial, target, kind] => disk_with(serial)
                .and_then(|disk| Ok(mount(&disk, target, kind, MountFlags::RDONLY | MountFlags::NOATIME, None)?)),
            _ => Err(io::Error::other("it is not of the form SERIAL DIRECTORY TYPE")),
        };
        say(&format!("mount `{line}` of {MOUNT_LIST}"), done);
    }
}

/// Device of the virtio disk with this serial.
fn disk_with(serial: &str) -> io::Result<PathBuf> {
    let local = Local::new();
    let disks = block::whole(&local).map_err(io::Error::other)?;
    let found = disks.iter().find(|name| block::Device::whole(&local, name).serial().as_deref() == Some(serial));
    let name = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no disk has this serial"))?;
    Ok(block::node_path(name))
}

/// Links such as udev would make them: `/dev/virtio-ports/NAME`.
fn name_ports(dir: &Path) -> io::Result<()> {
    let ports = match stream::ports() {
        // No such device (yet): the agent waits for it and finds it without the link.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    fs::create_dir_all(dir)?;
    for (name, device) in ports.into_iter().filter(|(name, _)| !name.is_empty() && !name.contains('/')) {
        match std::os::unix::fs::symlink(device, dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// `struct ifreq` of `linux/if.h` as `SIOCSIFFLAGS` reads it.
#[repr(C)]
struct InterfaceFlags {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

const SIOCSIFFLAGS: rustix::ioctl::Opcode = 0x8914;
const IFF_UP: i16 = 1;

pub(super) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketType, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = InterfaceFlags { name: [0; 16], flags: IFF_UP, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: SIOCSIFFLAGS reads one struct ifreq, which is 40 bytes on 64-bit machines
    // (checked below), and keeps no pointer to it.
    unsafe { rustix::ioctl::ioctl(&socket, rustix::ioctl::Setter::<SIOCSIFFLAGS, _>::new(request)) }?;
    Ok(())
}

const _: () = assert!(size_of::<InterfaceFlags>() == 40);

fn port_path(cmdline: &str) -> PathBuf {
    let name = cmdline.split_whitespace().find_map(|word| word.strip_prefix("vmio.port=")).unwrap_or(PORT_NAME);
    Path::new("/dev/virtio-ports").join(name)
}

fn start_agent(port: &Path) -> io::Result<u32> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--port").arg(port).arg("--init").stdin(Stdio::null());
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", PATHS);
    }
    // Reaped below with all others.
    Ok(command.spawn()?.id())
}

/// Reaps whatever ends until process `pid` has.
pub(super) fn reap_until(pid: u32) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, _))) if ended.as_raw_nonzero().get().cast_unsigned() == pid => return,
            Ok(_) | Err(Errno::INTR) => {}
            // No child at all: it was reaped before.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_comes_from_the_command_line() {
        assert_eq!(port_path("console=ttyS0 quiet\n"), Path::new("/dev/virtio-ports/vmio.0"));
        assert_eq!(port_path("vmio.port=org.x.1 quiet\n"), Path::new("/dev/virtio-ports/org.x.1"));
    }
}
