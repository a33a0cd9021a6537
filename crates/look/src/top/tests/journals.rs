//! Waits in fsync: whose they are, and on which file system.

use vmio_model::top::load::JournalFlow;

use super::*;

/// Returns what was done on file systems tick by tick.
struct Journals(VecDeque<Vec<JournalFlow>>);

impl FlowSource for Journals {
    fn take(&mut self) -> Result<Vec<Flow>> {
        Ok(Vec::new())
    }
    fn journals(&mut self) -> Vec<JournalFlow> {
        self.0.pop_front().unwrap_or_default()
    }
    fn journals_unseen(&mut self) -> Option<String> {
        Some("waits in fsync are not seen: by a script".into())
    }
    fn about(&self) -> String {
        "by a script".into()
    }
}

fn used(pid: u32, comm: &str, syncs: u64, dirtied_bytes: u64) -> JournalFlow {
    let (wait_seconds, worst_seconds) = (syncs as f64 * 0.2, if syncs > 0 { 0.4 } else { 0.0 });
    let comm = comm.into();
    JournalFlow {
        pid,
        comm,
        device: (254, 0),
        syncs,
        wait_seconds,
        worst_seconds,
        dirtied_bytes,
        ..JournalFlow::default()
    }
}

#[test]
fn flushes_are_told_by_process_and_by_image_and_file_systems_by_name() {
    let mounts = "2 1 254:0 /images /b rw - ext4 /dev/vda rw\n1 1 254:0 / / rw - ext4 /dev/vda rw\n";
    let fake = machine()
        .file("/proc/self/mountinfo", mounts)
        .file("/proc/100/mountinfo", mounts)
        .file("/sys/dev/block/254:0/dev", "254:0\n")
        .file("/proc/100/fdinfo/9", "pos:\t0\nino:\t77\n")
        .symlink("/proc/100/fd/9", "/srv/a.raw");
    let own = TAP.replace("NAME", "a").replace("UUID", &uuid("a"));
    let drive = "file=/srv/a.raw,format=raw,if=virtio,cache=none,aio=native";
    fake.set("/proc/100/cmdline", format!("qemu-system-x86_64\0-name\0{own}\0-drive\0{drive}\0"));
    // With native asynchronous I/O a thread of the kernel flushes for the guest.
    let flush = |inode| JournalFlow { inode, ..used(0, "kworker/1:2", 2, 0) };
    let flows = vec![
        flush(77),
        flush(78),
        used(100, "qemu-system-x86", 1, 4096),
        used(200, "qemu-system-x86", 0, 40 << 20),
        used(300, "rsync", 1, 2 << 20),
    ];
    let mut sampler = Sampler::new(&fake, false, Ok(Box::new(Journals(vec![vec![], flows].into()))));
    sampler.tick();
    work(&fake, 1);
    let interval = sampler.tick().unwrap();
    assert!(interval.notes.iter().any(|note| note.contains("waits in fsync are not seen")), "{:?}", interval.notes);
    let [load] = &interval.journals[..] else { panic!("{:?}", interval.journals) };
    assert_eq!((load.name.as_str(), load.disks.as_slice()), ("/", [(254, 0)].as_slice()));
    let mut users: Vec<(String, u64, u64)> = load.users.iter().map(|u| (u.label(), u.syncs, u.dirtied_bytes)).collect();
    users.sort();
    let wanted = [
        ("backup (rsync)", 1, 2 << 20),
        ("guest a", 3, 4096),
        ("guest b", 0, 40 << 20),
        ("kernel (kworker/1:2)", 2, 0),
    ];
    assert_eq!(users, wanted.map(|(label, syncs, bytes)| (label.to_owned(), syncs, bytes)));
}
