//! One `qemu-storage-daemon` (its man page, QAPI `BlockExportOptions`): started, waited for until
//! it serves, read back through its monitor, ended.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use vmio_look::qemu::rings::Rings;
use vmio_look::require::find_program;
use vmio_model::cell::Attachment;
use vmio_node::qmp::Qmp;
use vmio_node::{End, Exec, Node, Output, Process, Reader, held};

use super::super::{Error, Result};
use crate::disks::Storage;
use crate::disks::drivers;
use crate::limits::OOM_SCORE_ADJ;
use crate::nets::NetEnd;
use crate::qemu::waiting;

/// The program.
pub const DAEMON: &str = "qemu-storage-daemon";
/// `sun_path` of unix(7), without the final zero.
pub const SOCKET_PATH: usize = 107;
/// Name of the NBD export.
const EXPORT: &str = "disk";
/// The port of NBD (IANA). Further daemons of a host have the next ones.
const PORT: u16 = 10809;
/// How long a killed one may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A daemon that serves. It is killed when this goes out of scope.
pub struct Daemon {
    /// Its process.
    pub pid: u32,
    /// What a hypervisor opens.
    pub storage: Storage,
    /// What it really does, as read back.
    pub effective: BTreeMap<String, String>,
    process: Box<dyn Process>,
}

/// Length of the longest path of a socket in this directory.
pub fn longest_path(dir: &Path) -> usize {
    monitor(dir, 99).as_os_str().len()
}

fn monitor(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number}.qmp"))
}

impl Daemon {
    /// Starts one that serves `file` as asked, and waits until it does. `number` names its sockets in `dir`. Where an
    /// end of a path is given it runs there, and serves over TCP.
    pub fn start(
        node: &dyn Node,
        file: &Path,
        asked: &Attachment,
        (dir, number): (&Path, usize),
        end: Option<&NetEnd>,
    ) -> Result<Self> {
        let fail = |reason: String| Error::Server { path: held::shown(file), reason };
        let program = find_program(node.reader(), DAEMON).ok_or_else(|| fail(format!("no program {DAEMON}")))?;
        let (monitor, socket) = (monitor(dir, number), dir.join(format!("{number}.sock")));
        for left in [&monitor, &socket] {
            // One that was killed leaves its sockets behind.
            let _ = std::fs::remove_file(left);
        }
        let port = PORT.saturating_add(u16::try_from(number).unwrap_or(u16::MAX));
        let storage = match end {
            Some(end) => Storage::NbdTcp { server: SocketAddr::new(end.address, port), export: EXPORT.into() },
            None => way(asked, socket),
        };
        let command = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::new(program.display().to_string()) }
            .args(arguments(file, asked, &storage, &monitor))
            .behind(end.map_or(&[][..], |end| end.enter.as_slice()));
        let mut process = node.spawn(&command)?;
        let up = serving(&mut *process, &monitor, &fail);
        let effective = up.and_then(|mut qmp| read_back(&mut qmp, node.reader(), process.pid(), file, asked, &storage));
        match effective {
            Ok(effective) => Ok(Self { pid: process.pid(), storage, effective, process }),
            Err(e) => {
                let _ = process.kill();
                let _ = process.wait(Some(END_LIMIT));
                Err(e)
            }
        }
    }

    /// How it ended, in words, if it has.
    pub fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.process.try_wait()?.map(|output| how(&output)))
    }

    /// Ends it. All that guests wrote is in the file: it keeps nothing back.
    pub fn stop(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait(Some(END_LIMIT))?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// By which protocol a guest's disk is served: vhost-user where its driver can have it so, else NBD.
fn way(asked: &Attachment, socket: PathBuf) -> Storage {
    if drivers::find(&asked.driver).is_some_and(|driver| driver.takes_vhost_user(asked)) {
        Storage::VhostUserBlk { socket }
    } else {
        Storage::Nbd { socket, export: EXPORT.into() }
    }
}

/// The command line.
fn arguments(file: &Path, asked: &Attachment, storage: &Storage, monitor: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().replace(',', ",,");
    let cache = json!({"direct": asked.cache.direct(), "no-flush": asked.cache.no_flush()});
    let mut protocol = json!({
        "driver": "file", "node-name": "file", "filename": file, "aio": asked.aio.to_string(), "cache": cache,
        // Several daemons may serve the same file; one is used at a time.
        "locking": "off",
    });
    let mut format = json!({"driver": "raw", "node-name": "disk", "file": "file", "cache": cache});
    if asked.options.discard {
        protocol["discard"] = json!("unmap");
        format["discard"] = json!("unmap");
    }
    if asked.options.detect_zeroes != Default::default() {
        format["detect-zeroes"] = json!(asked.options.detect_zeroes.to_string());
    }
    let mut export = json!({
        "id": "export", "node-name": "disk", "writable": true,
        // A guest that sees no write cache flushes nothing itself.
        "writethrough": !asked.cache.write_cache(),
    });
    let mut args = vec![
        "--chardev".into(),
        format!("socket,id=monitor,path={},server=on,wait=off", text(monitor)),
        "--monitor".into(),
        "chardev=monitor".into(),
        "--blockdev".into(),
        protocol.to_string(),
        "--blockdev".into(),
        format.to_string(),
    ];
    if asked.iothread {
        // The guest's requests are served here, so this is where the disk's I/O thread belongs.
        args.extend(["--object".into(), "iothread,id=io".into()]);
        export["iothread"] = json!("io");
    }
    let mut nbd = |name: &str, address: Value| {
        export["type"] = json!("nbd");
        export["name"] = json!(name);
        args.extend(["--nbd-server".into(), json!({"addr": address, "max-connections": 0}).to_string()]);
    };
    match storage {
        Storage::VhostUserBlk { socket } => {
            export["type"] = json!("vhost-user-blk");
            export["addr"] = json!({"type": "unix", "path": socket});
            export["num-queues"] = json!(asked.options.queues.unwrap_or(1));
        }
        Storage::Nbd { socket, export: name } => nbd(name, json!({"type": "unix", "path": socket})),
        Storage::NbdTcp { server, export: name } => {
            nbd(name, json!({"type": "inet", "host": server.ip(), "port": server.port().to_string()}));
        }
        other => unreachable!("the daemon does not serve {other:?}"),
    }
    args.extend(["--export".into(), export.to_string()]);
    args
}

/// Waits until its monitor answers: it does so only after all exports of its command line listen.
/// On an error says what became of it.
fn serving(process: &mut dyn Process, monitor: &Path, fail: &dyn Fn(String) -> Error) -> Result<Qmp> {
    let mut ended = || process.try_wait().ok().flatten();
    let up = match waiting::connect(monitor, &mut ended) {
        Ok(Some(stream)) => Qmp::over(DAEMON, stream).map_err(|e| format!("its monitor does not answer: {e}")),
        Ok(None) => Err(format!("it does not listen on {}", monitor.display())),
        Err(e) => Err(format!("cannot connect to {}: {e}", monitor.display())),
    };
    // If it ended, how says more.
    up.map_err(|e| fail(waiting::ended_soon(ended).map_or(e, |output| how(&output))))
}

/// How a server ended, with its own words.
pub fn how(output: &Output) -> String {
    let end = match output.end {
        End::Exit(code) => format!("it ended with exit code {code}"),
        End::Signal(signal) => format!("it was killed by signal {signal}"),
        End::TimedOut => "it was ended".to_owned(),
    };
    match output.err().trim() {
        "" => end,
        said => format!("{end}: {said}"),
    }
}

/// Settings as the daemon and the kernel tell them.
fn read_back(
    qmp: &mut Qmp,
    host: &dyn Reader,
    pid: u32,
    file: &Path,
    asked: &Attachment,
    storage: &Storage,
) -> Result<BTreeMap<String, String>> {
    let fail = |reason: String| Error::Server { path: held::shown(file), reason };
    let mut ask = |what: &str| qmp.execute(what, json!({})).map_err(|e| fail(e.to_string()));
    let (nodes, exports) = (ask("query-named-block-nodes")?, ask("query-block-exports")?);
    if exports.as_array().is_none_or(Vec::is_empty) {
        return Err(fail("it exports nothing".into()));
    }
    let of = |name: &str| nodes.as_array().into_iter().flatten().find(|n| n["node-name"] == name);
    let cache = of("file").map_or(Value::Null, |n| n["cache"].clone());
    // One event loop serves the one export.
    let aio = Rings::of(host, pid).engine(asked.aio, 1);
    let found = (cache["direct"].as_bool(), cache["no-flush"].as_bool(), aio);
    if found != (Some(asked.cache.direct()), Some(asked.cache.no_flush()), asked.aio) {
        let reason = format!("cache={},aio={} was requested; it has {cache} and aio={aio}", asked.cache, asked.aio);
        return Err(fail(reason));
    }
    let way = storage.server().unwrap_or_default();
    Ok(super::super::facts([
        ("server", format!("{DAEMON} {}, {way}", qmp.version)),
        ("server.aio", aio.to_string()),
        ("server.cache.direct", cache["direct"].to_string()),
        ("server.cache.no-flush", cache["no-flush"].to_string()),
        ("server.write-cache", asked.cache.write_cache().to_string()),
        ("server.iothread", asked.iothread.to_string()),
    ]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_model::cell::{Aio, Cache};

    use super::*;

    fn made(asked: &Attachment, storage: &Storage) -> String {
        arguments(Path::new("/s/vmio-served.raw"), asked, storage, Path::new("/t/a,b/0.qmp")).join(" ")
    }

    #[test]
    fn the_command_line_has_the_cache_mode_the_engine_and_the_export() {
        let socket = PathBuf::from("/t/0.sock");
        let asked = Attachment::new("virtio-blk", Cache::None, Aio::Native);
        let line = made(&asked, &Storage::VhostUserBlk { socket: socket.clone() });
        for part in [
            "path=/t/a,,b/0.qmp,",
            r#""aio":"native""#,
            r#""direct":true"#,
            r#""type":"vhost-user-blk""#,
            r#""num-queues":1"#,
            r#""writethrough":false"#,
        ] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        assert!(!line.contains("iothread") && !line.contains("discard"), "{line}");

        let server = "198.18.255.2:10810".parse().unwrap();
        let line = made(&asked, &Storage::NbdTcp { server, export: EXPORT.into() });
        let part = r#"--nbd-server {"addr":{"host":"198.18.255.2","port":"10810","type":"inet"}"#;
        assert!(line.contains(part) && line.contains(r#""type":"nbd""#), "no {part} in {line}");

        let mut asked = Attachment::new("ahci", Cache::Writethrough, Aio::Threads).iothread(true);
        asked.options.discard = true;
        let line = made(&asked, &Storage::Nbd { socket, export: EXPORT.into() });
        for part in [
            r#""direct":false"#,
            r#""writethrough":true"#,
            "iothread,id=io",
            r#""iothread":"io""#,
            r#""discard":"unmap""#,
            r#"--nbd-server {"addr""#,
            r#""name":"disk""#,
        ] {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }

    #[test]
    fn a_plain_virtio_blk_disk_alone_is_served_by_vhost_user() {
        for driver in drivers::ALL {
            for cache in [Cache::None, Cache::Writeback, Cache::Writethrough, Cache::Directsync, Cache::Unsafe] {
                for iothread in [false, true] {
                    let asked = Attachment::new(driver.name, cache, Aio::Threads).iothread(iothread);
                    let vhost_user = matches!(way(&asked, "/t/0.sock".into()), Storage::VhostUserBlk { .. });
                    let plain = driver.name == "virtio-blk" && cache.write_cache() && !iothread;
                    assert_eq!(vhost_user, plain, "{}", asked.label());
                }
            }
        }
    }

    #[test]
    fn how_one_ended_is_told_with_its_own_words() {
        let output = |end, err: &str| Output { end, stdout: vec![], stderr: err.into(), truncated: false };
        assert_eq!(how(&output(End::Exit(1), "no such file\n")), "it ended with exit code 1: no such file");
        assert_eq!(how(&output(End::Signal(9), "")), "it was killed by signal 9");
    }
}
