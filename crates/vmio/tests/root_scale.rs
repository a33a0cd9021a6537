//! `vmio scan` with 200 guests: all are found, and no program is started for their images. The guests are stand-ins with QEMU's command lines, threads and disk images: this very
//! program under QEMU's name, which is why it brings a `main` of its own.
//!
//! `cargo test --test root_scale -- --ignored` prints the time; it is a measurement, not a test.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

const GUESTS: usize = 200;
/// Threads of a stand-in, its first one included.
const THREADS: usize = 8;
const QEMU: &str = "qemu-system-x86_64";
const TEST: &str = "two_hundred_guests_are_found";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[0] == QEMU {
        stand_in();
    }
    let has = |word: &str| args.iter().any(|a| a == word);
    if has("--list") {
        println!("{TEST}: test");
        return;
    }
    let filters = args.iter().skip(1).filter(|a| !a.starts_with('-') && *a != "long");
    let wanted = filters.clone().next().is_none() || filters.clone().any(|f| TEST.contains(f.as_str()));
    let long = !has("--skip") && has("long");
    if !(has("--ignored") || has("--include-ignored")) || !wanted || long {
        println!("test {TEST} ... ignored, root");
        return;
    }
    two_hundred_guests_are_found();
    println!("test {TEST} ... ok");
}

/// What a stand-in does: it has its image open, as QEMU has, and threads, and waits to be killed.
fn stand_in() -> ! {
    let files = std::env::args().filter_map(|a| Some(File::open(a.strip_prefix("file=")?.split(',').next()?).unwrap()));
    let _open: Vec<File> = files.collect();
    for _ in 1..THREADS {
        std::thread::Builder::new().stack_size(64 << 10).spawn(std::thread::park).unwrap();
    }
    loop {
        std::thread::park();
    }
}

/// Ends its processes.
struct Guests(Vec<Child>);

impl Drop for Guests {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// A command line as libvirt or Proxmox write it; every other disk is a qcow2 image.
fn args(name: &str, image: &Path, format: &str) -> Vec<String> {
    let line = format!(
        "-name guest={name},debug-threads=on -machine pc-q35-7.2,usb=off -accel kvm -cpu host -m 4096 -overcommit \
         mem-lock=off -smp 4,sockets=1,cores=4,threads=1 -object iothread,id=iothread1 -uuid \
         8f1f8a6c-0000-4000-8000-{:012} -display none -no-user-config -nodefaults -rtc base=utc -no-shutdown -device \
         pcie-root-port,port=8,chassis=1,id=pci.1,bus=pcie.0,addr=0x1 -drive \
         file={},format={format},if=none,id=drive0,cache=none,aio=native,discard=unmap -device \
         virtio-blk-pci,bus=pci.1,addr=0x0,drive=drive0,id=virtio-disk0,iothread=iothread1 -netdev \
         user,id=net0 -device virtio-net-pci,netdev=net0,id=net0,mac=52:54:00:00:00:01 -msg timestamp=on",
        name.trim_start_matches(|c: char| !c.is_ascii_digit()).rsplit('-').next().unwrap(),
        image.display()
    );
    line.split_whitespace().map(str::to_owned).collect()
}

/// A `qemu-img` before the real one, which notes that it was started.
fn noting_qemu_img(dir: &Path) -> String {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("qemu-img"), format!("#!/bin/sh\necho >> {}\n", dir.join("started").display())).unwrap();
    fs::set_permissions(bin.join("qemu-img"), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

fn two_hundred_guests_are_found() {
    let dir = vmio_testbed::scratch();
    let names: Vec<String> = (0..GUESTS).map(|i| format!("vmio-test-{}-{i}", std::process::id())).collect();
    let first = dir.path().join("first.qcow2");
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&first).arg("10G").status();
    let has_images = made.is_ok_and(|s| s.success());
    if !has_images {
        vmio_testbed::skip("qcow2 images: no qemu-img here");
    }
    let start = |(i, name): (usize, &String)| {
        let (image, format) = if i % 2 == 0 && has_images {
            (dir.path().join(format!("{i}.qcow2")), "qcow2")
        } else {
            (dir.path().join(format!("{i}.raw")), "raw")
        };
        match format {
            "qcow2" => drop(fs::copy(&first, &image).unwrap()),
            _ => File::create(&image).unwrap().set_len(64 << 20).unwrap(),
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0(QEMU).args(args(name, &image, format));
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let guests = Guests(names.iter().enumerate().map(start).collect());
    let threads = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    vmio_testbed::poll_until("all have their threads", || guests.0.iter().all(|g| threads(g.id()) >= THREADS));
    let scan = |path: Option<String>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
        command.args(["scan", "--json", "--state"]).arg(dir.path()).stdin(Stdio::null());
        command.envs(path.map(|path| ("PATH", path)));
        let begun = Instant::now();
        let output = command.output().unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), seconds)
    };
    let (seen, seconds) = scan(None);
    eprintln!("  {GUESTS} guests, half of them with qcow2 images: {seconds:.2} s");
    for name in &names {
        let found = seen["guests"].as_array().unwrap().iter().find(|g| g["name"] == name.as_str());
        let found = found.unwrap_or_else(|| panic!("{name} is not there"));
        assert_eq!(found["disks"][0]["driver"], "virtio-blk", "{name}");
    }
    if has_images {
        let (seen, _) = scan(Some(noting_qemu_img(dir.path())));
        let found = seen["guests"].as_array().unwrap().iter().find(|g| g["name"] == names[0].as_str()).unwrap();
        assert_eq!(found["disks"][0]["details"]["virtual_bytes"], 10u64 << 30, "its header is read");
        assert!(!dir.path().join("started").exists(), "no program is asked for it");
    }
    drop(guests);
}
