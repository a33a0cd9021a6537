//! Real guests under QEMU. Run with `cargo test -- --ignored`; the agent must have been built
//! (`make agent`). The image and its kernel are kept below `target/tmp` between runs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::common::guest::{Bed, DISK_BYTES, limit, run, state};
use vmio_model::cell::{Aio, Arch, Cache};
use vmio_model::result::Accel;
use vmio_node::Exec;
use vmio_node::linux::{process, system};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{Error, GuestSpec};
use vmio_rig::image::{self, Image, OwnKernel};
use vmio_testbed::poll_until;

#[test]
#[ignore = "guest: needs QEMU"]
fn one_guest_serves_several_set_ups_on_the_same_storage() {
    let bed = Bed::new();
    let disks = vec![
        bed.disk("lsi", "lsi53c895a", Cache::Writeback, Aio::Threads, false),
        bed.disk("virtio", "virtio-blk", Cache::None, Aio::Native, true),
        bed.disk("ring", "virtio-blk", Cache::None, Aio::IoUring, false),
    ];
    // The image is found again, not built again.
    let state = state();
    assert_eq!(Image::load_or_build(&bed.node, &state, &|what| panic!("{what}")).unwrap(), bed.image);

    let guest = bed.boot(disks);
    let node = guest.node();

    // The very same programs as on the host, on the same storage through both drivers.
    let lsi = guest.disk_path("lsi").unwrap().to_string_lossy().into_owned();
    let virtio = guest.disk_path("virtio").unwrap().to_string_lossy().into_owned();
    assert!(lsi.starts_with("/dev/sd") && virtio.starts_with("/dev/vd"), "{lsi} {virtio}");
    let written = run(&*guest, "dd", &["if=/dev/zero", &format!("of={lsi}"), "bs=64k", "count=64", "conv=fsync"]);
    assert!(written.err().contains("4194304 bytes"), "{}", written.err());
    assert_eq!(run(&*guest, "fio", &["--version"]).out().trim(), bed.image.fio_version);
    // The image has all programs of workloads, in the host's versions. Some are for some targets or workloads alone.
    let left_out = &bed.image.left_out;
    let of_some = ["curl", "nbd-client", "iscsistart", "dmsetup"];
    assert!(left_out.keys().all(|name| of_some.contains(&name.as_str())), "{left_out:?}");
    let carried: Vec<&str> = image::programs().into_iter().filter(|name| !left_out.contains_key(*name)).collect();
    assert_eq!(bed.image.programs.keys().collect::<Vec<_>>(), carried);
    for (program, version) in &bed.image.programs {
        // Each has an option of its own for its version.
        let said = ["--version", "version", "-V"].iter().find_map(|word| {
            let output = guest.node().exec(&Exec::new(program).args([*word])).unwrap();
            output.ok().then(|| output.out()).filter(|said| !said.trim().is_empty())
        });
        // A shell and netcat tell none; that they run is seen where a workload uses them.
        if ["sh", "nc.openbsd"].contains(&program.as_str()) {
            assert_eq!((said, version.as_str()), (None, "it reports no version"), "{program}");
            continue;
        }
        let said = said.unwrap_or_else(|| panic!("{program} says no version"));
        // ip also names a library that it looks for when it runs, and does without; stress-ng the kernel that it runs on.
        let own = [", libbpf", " (gcc"].iter().fold(version.as_str(), |own, more| own.split(more).next().unwrap());
        assert!(said.trim_start().starts_with(own), "{program}: {said} for {version}");
    }
    let job = format!("--filename={virtio}");
    let fio = run(
        &*guest,
        "fio",
        &[
            "--name=t",
            &job,
            "--rw=randread",
            "--bs=4k",
            "--size=4m",
            "--direct=1",
            "--ioengine=libaio",
            "--output-format=json",
        ],
    );
    let report: serde_json::Value = serde_json::from_slice(&fio.stdout).unwrap();
    assert_eq!(report["jobs"][0]["error"], 0);
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 1024);
    let size: u64 =
        node.read_text(&Path::new("/sys/block").join(&virtio[5..]).join("size")).unwrap().trim().parse().unwrap();
    assert_eq!(size * 512, DISK_BYTES);
    assert!(guest.disk_path("floppy").unwrap_err().to_string().contains("floppy"));
    assert_eq!(node.read_text(Path::new("/proc/sys/kernel/osrelease")).unwrap().trim(), bed.image.kernel_release);

    // Files.
    let local = bed.dir().join("file");
    fs::write(&local, vec![7u8; 300_000]).unwrap();
    node.put(&local, Path::new("/tmp/file"), Some(0o600)).unwrap();
    assert_eq!(node.read(Path::new("/tmp/file")).unwrap(), vec![7u8; 300_000]);

    // What QEMU says of the disks is what was asked for.
    let effective = guest.effective().unwrap();
    assert_eq!(effective.keys().collect::<Vec<_>>(), ["lsi", "ring", "virtio"]);
    assert_eq!(effective["virtio"]["cache.writeback"], "true");

    // Threads and the accelerator.
    let hypervisor = guest.hypervisor().unwrap().unwrap();
    let count = |role: &str| hypervisor.roles.values().filter(|known| *known == role).count();
    assert_eq!((count("vcpu"), count("main"), count("iothread")), (1, 1, 1));
    let oom = fs::read_to_string(format!("/proc/{}/oom_score_adj", hypervisor.pid)).unwrap();
    assert_eq!(oom.trim(), "1000");
    assert_eq!(guest.accelerator().unwrap().accel, Accel::Tcg);
    let boot = guest.boot_seconds().unwrap();
    assert!(boot > 0.1 && boot < limit().as_secs_f64(), "{boot}");

    // The second monitor is free for a watcher.
    let watcher = UnixStream::connect(bed.run_dir().join("guest0/watch")).unwrap();
    watcher.set_read_timeout(Some(limit())).unwrap();
    let mut greeting = String::new();
    BufReader::new(watcher).read_line(&mut greeting).unwrap();
    assert!(greeting.contains("QMP"), "{greeting}");

    drop(node);
    guest.stop().unwrap();
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_has_its_shape_on_its_processors() {
    let bed = Bed::new();
    let usable = vmio_rig::limits::own_cpus(&bed.node).unwrap();
    let pin = *usable.last().unwrap();
    let disks = vec![bed.disk("disk", "virtio-blk", Cache::None, Aio::Threads, true)];
    let spec = GuestSpec { pins: vec![pin], disks, ..GuestSpec::of("guest0", 2, 320) };
    let guest = bed.launch_as(&bed.image, &spec, limit()).unwrap();
    let pid = guest.hypervisor().unwrap().unwrap().pid;
    // Reads of the thread pool of `aio=threads`, too.
    run(&*guest, "dd", &["if=/dev/vda", "of=/dev/null", "bs=64k", "count=64", "iflag=direct"]);
    let threads = process::threads(&bed.node, pid).unwrap();
    assert!(threads.len() >= 4, "main, two processors, an I/O thread: {threads:?}");
    for tid in threads {
        // A thread of the pool may have ended meanwhile.
        let Ok(status) = process::Status::of_thread(&bed.node, pid, tid) else { continue };
        assert_eq!(status.cpus(), Some(vec![pin]), "thread {tid} ({})", status.name());
    }
    let inside = guest.node();
    let count = |file: &str| inside.read_text(Path::new(file)).unwrap().matches("processor\t:").count();
    assert_eq!(count("/proc/cpuinfo"), 2);
    let memory = system::memory_bytes(inside.reader(), "MemTotal").unwrap() >> 20;
    assert!((256..320).contains(&memory), "{memory} MiB of 320, less what the kernel keeps for itself");
    drop(inside);
    guest.stop().unwrap();

    // A processor that there is not is refused, and nothing is left.
    let nowhere = GuestSpec { pins: vec![usable.len() as u32 + 4000], ..spec };
    let Err(error) = bed.launch_as(&bed.image, &nowhere, limit()) else { panic!("it runs nowhere") };
    assert!(error.to_string().contains("did not start") && error.to_string().contains("affinity"), "{error}");
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_killed_qemu_is_told_with_its_signal() {
    let bed = Bed::new();
    let guest = bed.boot(Vec::new());
    let pid = guest.hypervisor().unwrap().unwrap().pid;
    let node = guest.node();
    let begun = guest.node();
    let kill = std::thread::spawn(move || {
        poll_until("the command has begun", || begun.read(Path::new("/tmp/begun")).is_ok());
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    });
    let begin = "echo > /tmp/begun; exec dd if=/dev/zero of=/dev/null";
    let failed = node.exec(&Exec::new("sh").args(["-c", begin]).limit(2 * limit())).unwrap_err();
    kill.join().unwrap();
    assert!(matches!(failed, vmio_node::Error::Gone { .. }), "the end of QEMU is seen, and not the limit: {failed}");
    let told = guest.give_up(&failed.to_string()).to_string();
    assert!(told.contains("guest0") && told.contains("killed by signal 9"), "{told}");
    assert!(told.contains("end of its console"), "{told}");
    assert!(guest.effective().unwrap_err().to_string().contains("QEMU"));
    drop(node);
    guest.stop().unwrap();
    bed.assert_clean();
}

/// The image with another file as its init.
fn with_agent(bed: &Bed, agent: &[u8]) -> Image {
    let dir = bed.dir().join("image");
    fs::create_dir(&dir).unwrap();
    for name in ["kernel", "modules", "tools.ext2"] {
        std::os::unix::fs::symlink(bed.image.dir.join(name), dir.join(name)).unwrap();
    }
    fs::write(dir.join("agent"), agent).unwrap();
    let mut image = bed.image.clone();
    image.dir = dir;
    image
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_kernel_that_panics_is_told_with_its_console() {
    let bed = Bed::new();
    let broken = with_agent(&bed, b"this is no program");
    let Err(error) = bed.launch(&broken, Vec::new(), limit()) else { panic!("it booted without an init") };
    let told = error.to_string();
    assert!(matches!(error, Error::Down { .. }), "{told}");
    assert!(told.contains("did not come up") && told.contains("Kernel panic"), "{told}");
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_that_hangs_is_ended_within_its_limit() {
    let bed = Bed::new();
    let Err(error) = bed.launch(&bed.image, Vec::new(), Duration::from_millis(300)) else { panic!("too quick") };
    let told = error.to_string();
    assert!(told.contains("did not come up") && told.contains("it was ended"), "{told}");
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn what_qemu_refuses_is_told_in_its_words() {
    let bed = Bed::new();
    let mut disk = bed.disk("disk", "virtio-blk", Cache::None, Aio::Native, false);
    disk.storage = Storage::File(bed.dir().to_owned()); // a directory
    let Err(error) = bed.launch(&bed.image, vec![disk], limit()) else { panic!("a directory is no disk") };
    let told = error.to_string();
    assert!(told.contains("did not start") && told.contains("QEMU said"), "{told}");
    assert!(told.contains("node0-file") || told.contains("regular file"), "{told}");
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn kvm_is_believed_only_after_a_boot_and_remembered() {
    let bed = Bed::new();
    let probe = || {
        let guest = bed.launch_by(None, &bed.image, &GuestSpec::of("guest0", 1, 256), limit()).unwrap();
        let accelerator = guest.accelerator().unwrap().clone();
        guest.stop().unwrap();
        accelerator
    };
    let first = probe();
    assert!(!first.reason.is_empty());
    // What was found by a boot is written down once.
    let remembered = || fs::metadata(bed.dir().join("accelerator.json")).and_then(|m| m.modified()).ok();
    let at = remembered();
    assert_eq!((probe(), remembered()), (first.clone(), at));
    if Path::new("/dev/kvm").exists() && first.accel == Accel::Tcg {
        assert!(first.reason.contains("/dev/kvm"), "{}", first.reason);
    }
    bed.assert_clean();
}

/// A balloon takes memory of a guest, as the guest's own kernel counts it, and gives it back.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_balloon_takes_memory_and_gives_it_back() {
    let bed = Bed::new();
    let spec = GuestSpec { balloon: true, ..GuestSpec::of("guest0", 1, 256) };
    let guest = bed.launch_as(&bed.image, &spec, limit()).unwrap();
    let (balloon, inside) = (guest.balloon().unwrap(), guest.node());
    let total = || system::memory_bytes(inside.reader(), "MemTotal").unwrap();
    let (whole, before) = (balloon.actual_bytes().unwrap(), total());
    assert_eq!(whole, 256 << 20);
    for bytes in [whole - (64 << 20), whole] {
        balloon.aim_at(bytes).unwrap();
        poll_until("the balloon has its size", || balloon.actual_bytes().unwrap() == bytes);
        assert_eq!(before - total(), whole - bytes);
    }
    drop(inside);
    guest.stop().unwrap();
}

/// The image's kernel and modules, laid out as a user has his: the guest runs them, and another image carries them.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_runs_the_kernel_that_the_user_names() {
    let bed = Bed::new();
    let lib = bed.dir().join("modules").join(&bed.image.kernel_release);
    let carried = lib.join("kernel");
    fs::create_dir_all(&carried).unwrap();
    for entry in fs::read_dir(bed.image.dir.join("modules")).unwrap().flatten() {
        fs::copy(entry.path(), carried.join(entry.file_name())).unwrap();
    }
    let devices = image::device_modules(Arch::X86_64);
    let all = image::BASE_MODULES.iter().chain(&devices);
    let built_in = all.filter(|name| !carried.join(format!("{name}.ko")).exists());
    let list: String = built_in.map(|name| format!("kernel/drivers/{name}.ko\n")).collect();
    fs::write(lib.join("modules.builtin"), list).unwrap();
    let file = bed.dir().join("vmlinux");
    fs::copy(bed.image.kernel(), &file).unwrap();

    let own = OwnKernel { file: file.clone(), modules: Some(bed.dir().join("modules")) };
    assert_eq!(own.release().unwrap(), bed.image.kernel_release);
    let state = bed.dir().join("state");
    let image = Image::with_kernel(Arch::X86_64, Some(&own), &bed.node, &state, &|_| {}).unwrap();
    assert_eq!(image.kernel_origin, file.display().to_string());
    assert_ne!(image.digest, bed.image.digest);
    let guest = bed.launch(&image, vec![], limit()).unwrap();
    let release = guest.node().reader().read_text(Path::new("/proc/sys/kernel/osrelease")).unwrap();
    assert_eq!(release.trim(), bed.image.kernel_release);
    guest.stop().unwrap();
    // Found again, and built anew where it has changed.
    let again = |what: &dyn Fn(&str)| Image::with_kernel(Arch::X86_64, Some(&own), &bed.node, &state, what).unwrap();
    assert_eq!(again(&|what| panic!("{what}")), image);
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"other").unwrap();
    assert_ne!(again(&|_| {}).digest, image.digest);
}
