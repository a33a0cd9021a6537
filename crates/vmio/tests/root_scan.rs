//! `vmio scan` as root among guests of people who wish it ill: nothing is opened for them that they could not
//! open, nothing of it shows, and none of them keeps the scan for long. Whether a file was opened is told by
//! inotify(7), which a descriptor that only names it (`O_PATH`) does not wake.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::live;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkfifoat, mknodat, openat};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;
use vmio_testbed::process::Companion;
use vmio_testbed::skip;

/// The user whose guests these are.
pub(crate) const NOBODY: u32 = 65_534;
/// What must show nowhere.
const SECRET: &str = "vmio-test-secret-7f3a";

/// A process that is a QEMU by its command line, with what it inherits open.
pub(crate) fn stand_in(user: u32, args: &[OsString]) -> Companion {
    let mut command = Command::new("sh");
    command.arg0("qemu-system-x86_64").args(["-c", "echo; read x"]).args(args).uid(user).gid(user);
    let mut started = Companion(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    started.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    started
}

/// A command line with these images, each with its format.
pub(crate) fn guest(name: &str, images: &[(&Path, &str)]) -> Vec<OsString> {
    let mut args = vec!["-name".to_owned(), live::name(name)];
    for (n, (image, format)) in images.iter().enumerate() {
        args.extend(["-drive".to_owned(), format!("file={},format={format},if=none,id=d{n}", image.display())]);
        args.extend(["-device".to_owned(), format!("virtio-blk-pci,drive=d{n}")]);
    }
    args.into_iter().map(OsString::from).collect()
}

/// Opens a file so that what is started next has it open, too.
pub(crate) fn inherited(path: &Path, flags: OFlags) -> OwnedFd {
    let file = openat(CWD, path, flags, Mode::empty()).unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    file
}

/// Watches files for being opened.
struct Watch(OwnedFd);

impl Watch {
    fn on(paths: &[&Path]) -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        for path in paths {
            inotify::add_watch(&fd, *path, WatchFlags::OPEN | WatchFlags::ACCESS).unwrap();
        }
        Self(fd)
    }

    /// How many bytes of events there are: none, if nothing was opened.
    fn events(&self) -> usize {
        rustix::io::read(&self.0, &mut [0u8; 4096]).unwrap_or(0)
    }
}

/// The header of a qcow2 image of 1 MiB, or of one over a file of that name and format (QEMU,
/// docs/interop/qcow2.txt).
fn qcow2(path: &Path, below: Option<(&Path, &str)>) {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"QFI\xfb");
    put(4, &3u32.to_be_bytes());
    put(20, &16u32.to_be_bytes());
    put(24, &(1u64 << 20).to_be_bytes());
    put(100, &104u32.to_be_bytes());
    if let Some((name, format)) = below {
        let name = name.to_str().unwrap();
        put(8, &512u64.to_be_bytes());
        put(16, &(name.len() as u32).to_be_bytes());
        put(512, name.as_bytes());
        put(104, &0xe279_2acau32.to_be_bytes());
        put(108, &(format.len() as u32).to_be_bytes());
        put(112, format.as_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// Reasons why things of a guest were not read, each with what it is about.
pub(crate) fn unread(guest: &Value) -> Vec<String> {
    guest["unread"].as_array().unwrap().iter().map(|u| format!("{}: {}", u["what"], u["why"])).collect()
}

#[test]
#[ignore = "root"]
fn nothing_is_opened_that_a_guests_process_has_not_open() {
    let dir = live::scratch();
    let at = |name: &str| dir.path().join(name);
    // Readable by root alone.
    let secret = |name: &str, content: &[u8]| {
        fs::write(at(name), content).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
        at(name)
    };
    let text = secret("shadow", format!("root:{SECRET}:::\n").repeat(100).as_bytes());
    qcow2(&at("secret.qcow2"), Some((Path::new(SECRET), "raw")));
    let image = secret("secret.qcow2", &fs::read(at("secret.qcow2")).unwrap());
    let named_only = secret("named-only", &fs::read(&image).unwrap());
    let (pipe, device, block) = (at("pipe"), at("device"), at("block"));
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 3)).unwrap();
    mknodat(CWD, &block, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, makedev(7, 0)).unwrap();
    let kernel = PathBuf::from("/proc/kmsg");
    // A trace pipe where there is one.
    let tracing = at("tracing");
    fs::create_dir(&tracing).unwrap();
    let traced = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&tracing).status().unwrap().success();
    let pipe_of_traces = tracing.join("trace_pipe");
    if !traced {
        eprintln!("  no pipe of traces: this kernel has no tracefs");
    }
    // The guest's own.
    let own = |name: &str| {
        chown(at(name), Some(NOBODY), Some(NOBODY)).unwrap();
        at(name)
    };
    qcow2(&at("over-secret"), Some((&text, "raw")));
    qcow2(&at("over-kernel"), Some((&kernel, "raw")));
    qcow2(&at("over-pipe"), Some((&pipe, "qcow2")));
    qcow2(&at("over-block"), Some((&block, "raw")));
    fs::write(
        at("own.vmdk"),
        format!(
            "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
             RW 8 FLAT \"{}\" 0\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"1\"\n\
             ddb.geometry.heads = \"16\"\nddb.geometry.sectors = \"63\"\nddb.adapterType = \"ide\"\n",
            text.display()
        ),
    )
    .unwrap();
    let over = ["over-secret", "over-kernel", "over-pipe", "over-block", "own.vmdk"].map(own);
    // What the process has: its own images, and the secret by a descriptor that only names it.
    let mut open: Vec<OwnedFd> = over.iter().map(|path| inherited(path, OFlags::RDWR)).collect();
    open.push(inherited(&named_only, OFlags::PATH));
    let mut images: Vec<(&Path, &str)> = vec![
        (&text, "raw"),
        (&text, "qcow2"),
        (&image, "qcow2"),
        (&named_only, "qcow2"),
        (&pipe, "raw"),
        (&pipe, "qcow2"),
        (&device, "raw"),
        (&block, "qcow2"),
        (&kernel, "raw"),
        (&kernel, "qcow2"),
        (&over[0], "qcow2"),
        (&over[1], "qcow2"),
        (&over[2], "qcow2"),
        (&over[3], "qcow2"),
        (&over[4], "vmdk"),
    ];
    if traced {
        images.extend([(&*pipe_of_traces, "raw"), (&*pipe_of_traces, "qcow2")]);
    }
    let running = stand_in(NOBODY, &guest("hostile", &images));
    drop(open);
    let mut watched: Vec<&Path> = vec![&text, &image, &named_only, &pipe, &device, &block, &kernel];
    watched.extend(traced.then_some(&*pipe_of_traces));
    let watch = Watch::on(&watched);

    let seen = live::scan(dir.path(), &[]);
    assert_eq!(watch.events(), 0, "something was opened");
    let found = live::guest(&seen, "hostile");
    assert!(!seen.to_string().contains(SECRET), "{found:#}");
    let told = unread(found);
    for path in watched {
        assert!(told.iter().any(|t| t.contains(path.to_str().unwrap())), "{}: {told:#?}", path.display());
    }
    for path in &over {
        assert!(told.iter().any(|t| t.contains(path.to_str().unwrap())), "{}: {told:#?}", path.display());
    }
    // Its own are read.
    let disk = |image: &Path| {
        let disks = found["disks"].as_array().unwrap();
        disks.iter().find(|d| d["place"]["source"] == image.to_str().unwrap()).unwrap().clone()
    };
    assert_eq!(disk(&over[0])["details"]["virtual_bytes"], 1 << 20);
    assert_eq!(disk(&over[0])["details"]["backing_files"], Value::Null);
    // The watch does see a file that is opened.
    drop(File::open(&text).unwrap());
    assert_ne!(watch.events(), 0);
    drop(running);
    if traced {
        assert!(Command::new("umount").arg(&tracing).status().unwrap().success());
    }
}

#[test]
#[ignore = "root"]
fn a_name_that_is_exchanged_meanwhile_leads_nowhere() {
    let dir = live::scratch();
    let [image, good, bad, secret] = ["image", "good", "bad", "secret"].map(|name| dir.path().join(name));
    qcow2(&good, None);
    fs::hard_link(&good, &image).unwrap();
    qcow2(&secret, Some((Path::new(SECRET), "raw")));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&secret, &bad).unwrap();
    let open = inherited(&good, OFlags::RDONLY);
    let running = stand_in(NOBODY, &guest("exchanged", &[(&image, "qcow2")]));
    drop(open);
    let watch = Watch::on(&[&secret]);
    let stop = AtomicBool::new(false);
    let mut read = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for other in [&bad, &good] {
                    let next = dir.path().join("next");
                    if other == &bad {
                        symlink(&secret, &next).unwrap();
                    } else {
                        fs::hard_link(&good, &next).unwrap();
                    }
                    fs::rename(&next, &image).unwrap();
                }
            }
        });
        for _ in 0..20 {
            let seen = live::scan(dir.path(), &[]);
            read += u32::from(live::guest(&seen, "exchanged")["disks"][0]["details"]["virtual_bytes"] == 1 << 20);
            assert!(!seen.to_string().contains(SECRET));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(watch.events(), 0, "the secret was opened");
    eprintln!("  the image was read in {read} of 20 scans");
    drop(running);
}

/// The most memory that a scan has resident, in KiB, and what it says.
fn memory(dir: &Path) -> (u64, Value) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(["scan", "--json", "--state"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(File::create(dir.join("out")).unwrap())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        most = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(most);
        std::thread::sleep(Duration::from_millis(1));
    }
    (most, serde_json::from_slice(&fs::read(dir.join("out")).unwrap()).unwrap())
}

#[test]
#[ignore = "root"]
fn one_guest_with_thousands_of_disks_costs_little() {
    let dir = live::scratch();
    let image = live::raw(dir.path(), "one");
    let (before, _) = memory(dir.path());
    let open = inherited(&image, OFlags::RDWR);
    let many = stand_in(NOBODY, &guest("many", &vec![(&*image, "raw"); 5000]));
    // One argument as long as the kernel lets it be, and many that nobody knows.
    let mut long = guest("long", &[]);
    let filler = ",x".repeat(60_000);
    for _ in 0..6 {
        long.extend(["-drive".into(), OsString::from(format!("file=/nowhere{filler}"))]);
    }
    long.extend(vec![OsString::from("-x"); 50_000]);
    let long = stand_in(NOBODY, &long);
    drop(open);
    let (after, seen) = memory(dir.path());
    eprintln!("  {} MiB without, {} MiB with both", before >> 10, after >> 10);
    assert!(after - before < (2 * 50) << 10, "{before} KiB without, {after} KiB with both");
    let found = live::guest(&seen, "many");
    assert_eq!(found["disks"].as_array().unwrap().len(), 200);
    assert!(unread(found).iter().any(|u| u.contains("after the first 200")), "{:?}", unread(found));
    let found = live::guest(&seen, "long");
    assert!(found["unread"].as_array().unwrap().len() <= 61);
    drop((many, long));
}

#[test]
#[ignore = "root"]
fn a_chain_without_an_end_is_left() {
    let dir = live::scratch();
    let at = |n: usize| dir.path().join(format!("{n}.qcow2"));
    let mut open = Vec::new();
    for n in 0..500 {
        qcow2(&at(n), Some((&at((n + 1) % 500), "qcow2")));
        open.push(inherited(&at(n), OFlags::RDONLY));
    }
    let running = stand_in(NOBODY, &guest("chain", &[(&at(0), "qcow2"), (&at(1), "qcow2")]));
    drop(open);
    let seen = live::scan(dir.path(), &[]);
    let told = unread(live::guest(&seen, "chain"));
    // On a slow machine the guest's time is over first.
    let left = |most: &str| told.iter().any(|t| t.contains(most) || t.contains("used up the time limit for one guest"));
    assert!(left("more than 256 images") && left("more than 400 images"), "{told:#?}");
    drop(running);
}

/// Root without its capabilities is refused much, and is root all the same.
#[test]
#[ignore = "root"]
fn root_is_not_told_to_be_root() {
    let dir = live::scratch();
    let image = live::raw(dir.path(), "refused");
    let running = stand_in(NOBODY, &guest("refused", &[(&image, "raw")]));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let scan = |more: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(env!("CARGO_BIN_EXE_vmio"));
        command.args(["scan", "--state"]).arg(dir.path().join("state")).args(more).stdin(Stdio::null());
        let output = command.output().unwrap();
        // The plugin has codes of its own.
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&scan(&["--json"])).unwrap();
    let found = live::guest(&json, "refused");
    assert!(found["unread"].to_string().contains("with all of its capabilities"), "{found:#}");
    for said in [json.to_string(), scan(&[]), scan(&[&live::name("refused")]), scan(&["--nagios"])] {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        assert!(!said.contains("run as root") && !said.contains("as root more"), "{said}");
    }
    drop(running);
}

/// A file system whose server takes what is asked and never answers: here, nobody at all.
struct Hangs {
    dir: PathBuf,
    server: Option<File>,
}

impl Hangs {
    fn at(dir: PathBuf) -> Option<Self> {
        let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        fs::create_dir(&dir).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("fuse", &dir, "fuse", flags, options.as_c_str()).ok()?;
        Some(Self { dir, server: Some(server) })
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        // Processes that wait there get an error.
        self.server = None;
        let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
#[ignore = "root"]
fn storage_that_never_answers_is_given_up_once_a_guest() {
    let dir = live::scratch();
    let Some(hangs) = Hangs::at(dir.path().join("hangs")) else {
        return skip("no FUSE here");
    };
    let images: Vec<PathBuf> = (0..30).map(|n| hangs.dir.join(format!("{n}.raw"))).collect();
    let own = live::raw(dir.path(), "own");
    let images: Vec<(&Path, &str)> = images.iter().map(|path| (&**path, "raw")).collect();
    let open = inherited(&own, OFlags::RDWR);
    let running = stand_in(NOBODY, &guest("hangs", &images));
    let other = stand_in(NOBODY, &guest("beside", &[(&own, "raw")]));
    drop(open);
    // Each of them would have a second at least, if each were waited for.
    let seen = live::scan(dir.path(), &[]);
    let told = unread(live::guest(&seen, "hangs"));
    assert!(told.iter().any(|t| t.contains("of the guest's disks") || t.contains("used up")), "{told:#?}");
    assert_eq!(live::guest(&seen, "beside")["disks"][0]["sparse"], false, "the others are read");
    drop((running, other));
}
