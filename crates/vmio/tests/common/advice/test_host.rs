//! Where the guests run: mounts, a network and processes of the test's own. What libvirt, Proxmox and QEMU
//! keep on a host lies there in memory; images lie on a real file system, since O_DIRECT needs one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vmio_testbed::libvirt::{HIDE, Libvirtd};
use vmio_testbed::process::in_namespaces;

use super::wrong::{Wrong, refused};

/// Said to the test's own child, which is in the namespaces.
pub const INSIDE: &str = "VMIO_TEST_ADVICE_IN";
/// A directory on a file system with O_DIRECT, seen in the namespaces as [`IMAGES`].
const SCRATCH: &str = "VMIO_TEST_ADVICE_SCRATCH";

pub const IMAGES: &str = "/srv/images";
pub const OWN: &str = "/srv/vmio";

/// Runs this very test program in namespaces, with the same arguments.
pub fn enter(args: &[String]) -> bool {
    let scratch = vmio_testbed::scratch();
    let status = in_namespaces()
        .args(args)
        .env(INSIDE, "1")
        .env(SCRATCH, scratch.path())
        .status()
        .expect("unshare (util-linux) is installed");
    status.success()
}

/// After [`HIDE`].
const MOUNTS: &str = r#"set -e
mount -t tmpfs none /srv
mkdir -p /srv/vmio/bin /srv/images /srv/groups
mount --bind "$VMIO_TEST_ADVICE_SCRATCH" /srv/images
mount --rbind /sys/fs/cgroup /srv/groups
mount -t sysfs sysfs /sys
mount --rbind /srv/groups /sys/fs/cgroup
mkdir -p /etc/pve/qemu-server /run/qemu-server /etc/qemu /srv/images/local /srv/images/other
printf 'dir: local\n\tpath /srv/images/local\n\tcontent images\n\ndir: other\n\tpath /srv/images/other\n\tcontent images\n' > /etc/pve/storage.cfg
echo 'allow br0' > /etc/qemu/bridge.conf
for of in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $of ] || echo 0 > $of; done
ip link add br0 type bridge
ip link set br0 up
ip link add vmbr0 type bridge
ip link set vmbr0 up
"#;

/// What stands before the real programs: a guest without a system does not hear that it is to shut down,
/// so what it would do is done for it.
const VIRSH: &str =
    "#!/bin/sh\n[ \"$1\" = shutdown ] && shift && exec /usr/bin/virsh destroy \"$@\"\nexec /usr/bin/virsh \"$@\"\n";

/// A host in namespaces of its own; what runs in it ends with it.
pub struct TestHost {
    daemon: Option<Libvirtd>,
}

impl TestHost {
    pub fn new() -> TestHost {
        for shell in [HIDE, MOUNTS] {
            run("sh", &["-c", shell]).unwrap();
        }
        let exe = std::env::current_exe().unwrap();
        for name in ["qm", "pvesm"] {
            std::os::unix::fs::symlink(&exe, format!("{OWN}/bin/{name}")).unwrap();
        }
        let virsh = format!("{OWN}/bin/virsh");
        fs::write(&virsh, VIRSH).unwrap();
        fs::set_permissions(&virsh, fs::Permissions::from_mode(0o755)).unwrap();
        TestHost { daemon: None }
    }

    /// Starts libvirt's daemon once.
    pub fn libvirt(&mut self) {
        self.daemon.get_or_insert_with(Libvirtd::start);
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        // Also when a test ends before its time; its guests are gone by then.
        for device in LOOPS.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default() {
            let _ = run("losetup", &["--detach", &device]);
        }
    }
}

fn path() -> String {
    format!("{OWN}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// A program's standard output, or all that it said.
pub fn run(program: &str, args: &[&str]) -> Result<String, Wrong> {
    let output = Command::new(program).args(args).env("PATH", path()).stdin(Stdio::null()).output();
    let output = output.map_err(|e| refused(format!("{program}: {e}")))?;
    let [out, err] = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    if output.status.success() { Ok(out) } else { Err(refused(format!("{program} {args:?}: {out}{err}"))) }
}

/// Pastes lines into a shell: what a command reads from its input is taken from them, and each line runs
/// whatever became of those before. Any that failed is told.
pub fn paste(script: &str) -> Result<(), Wrong> {
    let mut shell = Command::new("bash")
        .env("PATH", path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let whole = format!(
        "vmio_failed=0; trap 'vmio_failed=1; echo \"failed: $BASH_COMMAND\" >&2' ERR\n{script}\nexit $vmio_failed\n"
    );
    shell.stdin.take().unwrap().write_all(whole.as_bytes())?;
    let output = shell.wait_with_output()?;
    let [out, err] = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
    if output.status.success() { Ok(()) } else { Err(refused(format!("pasted:\n{script}\n{out}{err}"))) }
}

/// Fills in what a guest's text names, and makes it.
pub fn filled(text: &str, name: &str, at: usize) -> String {
    let mut text = text.replace("{name}", name).replace("{over}", &(cpus() + 1).to_string());
    let image = |kind: &str| format!("{IMAGES}/{name}{kind}");
    let mut put = |key: &str, make: &dyn Fn() -> String| {
        if text.contains(key) {
            text = text.replace(key, &make());
        }
    };
    put("{many-disks}", &|| {
        let one = |n: u8| {
            let path = image(&format!("-{n}.raw"));
            raw(Path::new(&path));
            let name = char::from(b'a' + n);
            format!(
                "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native' discard='unmap' \
                 iothread='1'/><source file='{path}'/><target dev='vd{name}' bus='virtio'/></disk>"
            )
        };
        (0..20).map(one).collect()
    });
    put("{huge}", &|| qcow2(&image(".qcow2"), "512G", None));
    put("{many}", &|| {
        let one = |n| format!("-blockdev null-co,node-name=n{n},cache.direct=on ");
        let device = |n| format!("-device virtio-blk-pci,drive=n{n},iothread=io0 ");
        (0..20).map(one).chain((1..20).map(device)).collect()
    });
    put("{raw}", &|| raw(Path::new(&image(".raw"))));
    put("{more}", &|| raw(Path::new(&image("-more.raw"))));
    put("{sparse}", &|| {
        fs::File::create(image(".raw")).unwrap().set_len(2 << 30).unwrap();
        image(".raw")
    });
    put("{qcow2}", &|| qcow2(&image(".qcow2"), "64M", None));
    put("{large}", &|| qcow2(&image(".qcow2"), "64G", None));
    put("{chain}", &|| {
        let base = qcow2(&image("-base.qcow2"), "64M", None);
        let middle = qcow2(&image("-middle.qcow2"), "64M", Some(&base));
        qcow2(&image(".qcow2"), "64M", Some(&middle))
    });
    for (key, sector) in [("{loop}", "512"), ("{loop4k}", "4096")] {
        put(key, &|| {
            let image = raw(Path::new(&image(".raw")));
            let made = run("losetup", &["--find", "--show", "--sector-size", sector, &image]);
            let device = made.unwrap().trim().to_owned();
            LOOPS.lock().unwrap().push(device.clone());
            device
        });
    }
    put("{tap}", &|| {
        run("ip", &["tuntap", "add", &format!("t{at}"), "mode", "tap"]).unwrap();
        run("ip", &["link", "set", &format!("t{at}"), "master", "br0"]).unwrap();
        format!("t{at}")
    });
    put("{own-tap}", &|| own_tap(at));
    put("{own-bridge}", &|| {
        run("ip", &["link", "add", &format!("b{at}"), "type", "bridge"]).unwrap();
        run("ip", &["link", "set", &format!("b{at}"), "mtu", "1500", "up"]).unwrap();
        uplink(at, "1500");
        format!("b{at}")
    });
    put("{large-tap}", &|| {
        let tap = own_tap(at);
        uplink(at, "1400");
        tap
    });
    text
}

/// A tap in a bridge of its own.
fn own_tap(at: usize) -> String {
    let (tap, bridge) = (format!("t{at}"), format!("b{at}"));
    run("ip", &["tuntap", "add", &tap, "mode", "tap"]).unwrap();
    run("ip", &["link", "add", &bridge, "type", "bridge"]).unwrap();
    run("ip", &["link", "set", &bridge, "up"]).unwrap();
    run("ip", &["link", "set", &tap, "master", &bridge]).unwrap();
    tap
}

/// A port of a guest's own bridge by which packets go on: an end of a pair.
fn uplink(at: usize, mtu: &str) {
    let (port, peer, bridge) = (format!("u{at}"), format!("v{at}"), format!("b{at}"));
    run("ip", &["link", "add", &port, "mtu", mtu, "type", "veth", "peer", "name", &peer]).unwrap();
    run("ip", &["link", "set", &port, "master", &bridge, "up"]).unwrap();
}

/// Processors of the host.
pub fn cpus() -> usize {
    fs::read_to_string("/proc/cpuinfo").unwrap().lines().filter(|l| l.starts_with("processor")).count()
}

/// Loop devices are the whole machine's.
static LOOPS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// A file of a MiB whose blocks all hold data.
fn raw(path: &Path) -> String {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(&[0x5a; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    path.display().to_string()
}

fn qcow2(path: &str, size: &str, below: Option<&str>) -> String {
    let below = below.map_or(Vec::new(), |below| vec!["-F", "qcow2", "-b", below]);
    run("qemu-img", &[&["create", "-q", "-f", "qcow2"], &below[..], &[path, size]].concat()).unwrap();
    path.to_owned()
}

/// The directory of a control group of the test's own, below that of the processor's time.
pub fn group(name: &str) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let cpu = |line: &&str| line.split(' ').nth(3).is_some_and(|o| o.split(',').any(|o| o == "cpu"));
    let v1 = mounts.lines().filter(|l| l.contains(" cgroup ") && l.contains("/sys/")).find(cpu);
    let root = v1.and_then(|l| l.split(' ').nth(1)).unwrap_or("/sys/fs/cgroup");
    Path::new(root).join(format!("vmio-test-{name}"))
}
