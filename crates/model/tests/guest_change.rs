//! QEMU itself takes the options that the findings tell people to paste.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};

use vmio_model::rules::change::{recommended, settings};
use vmio_model::setup::{Aio, Attachment, Cache, DetectZeroes, Options};

#[test]
#[ignore = "guest: needs QEMU"]
fn qemu_takes_the_options_that_findings_print() {
    let disk = std::env::temp_dir().join(format!("vmio-change-{}.raw", std::process::id()));
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let attachment = |driver: &str, cache, aio| Attachment::new(driver, cache, aio);
    let all = [
        recommended(),
        Attachment { driver: "virtio-scsi".into(), ..recommended() },
        attachment("lsi53c895a", Cache::None, Aio::Native),
        attachment("ahci", Cache::Directsync, Aio::IoUring),
        attachment("nvme", Cache::None, Aio::Native),
        Attachment {
            options: Options {
                queues: Some(2),
                discard: true,
                detect_zeroes: DetectZeroes::Unmap,
                ..Options::default()
            },
            ..recommended()
        },
        attachment("virtio-blk", Cache::Writeback, Aio::Threads),
    ];
    let results: Vec<(String, bool, String)> = all
        .iter()
        .map(|a| {
            let text = settings("x", a).qemu.replace("/dev/DISK", disk.to_str().unwrap()).replace("\\\n", " ");
            let mut qemu = Command::new("qemu-system-x86_64")
                .args(["-machine", "q35,accel=tcg", "-display", "none", "-nodefaults", "-S", "-monitor", "stdio"])
                .args(text.split_whitespace())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // QEMU may have refused and gone; its exit status and words tell.
            let _ = qemu.stdin.take().unwrap().write_all(b"quit\n");
            let out = qemu.wait_with_output().unwrap();
            (text, out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
        })
        .collect();
    std::fs::remove_file(&disk).unwrap();
    for (text, good, words) in results {
        assert!(good, "{text}: {words}");
    }
}
