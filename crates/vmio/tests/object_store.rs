//! Images in an object store: what is refused before anything is sent, and a real server (versitygw) as other clients
//! and `vmio image push` and `pull` use it.
#![allow(clippy::unwrap_used)]

use crate::help::schema;
use crate::help::state_dir::{Ended, StateDir, fixture, signal};

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use schema::fits;
use vmio_node::{Local, find_program};
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_for, poll_until, scratch, skip};

const MIB: u64 = 1 << 20;
const KEY: [&str; 2] = ["AKVMIO", "a-secret-of-the-test"];

/// `vmio image` with these credentials and no other settings of a client.
fn command(state: &StateDir, args: &[&str], [access, secret]: [&str; 2]) -> Command {
    let mut command = state.command(&[&["image"], args].concat());
    for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
    command
}

fn image(state: &StateDir, args: &[&str]) -> Ended {
    state.finish(&mut command(state, args, KEY))
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_sent() {
    let state = StateDir::new();
    let disk = state.path().join("disk");
    fs::write(&disk, "bytes").unwrap();
    let disk = disk.to_str().unwrap();
    let push = |more: &[&str]| image(&state, &[&["push", disk], more].concat());
    push(&["s3://images/a"])
        .with(2)
        .says(&["no server is named, and `vmio image serve` serves none now: give --endpoint"]);
    push(&["images/a", "--endpoint", "http://127.0.0.1:1"]).with(2).says(&["give s3://BUCKET/NAME"]);
    push(&["s3://images/../a", "--endpoint", "http://127.0.0.1:1"]).with(2).says(&["names no image"]);
    push(&["s3://images/a", "--endpoint", "http://192.0.2.1"]).with(2).says(&["give https://, or --insecure-http"]);
    let secret = push(&["s3://images/a", "--endpoint", "https://a:b@c/d"]).with(2);
    assert!(!secret.err.contains("a:b"), "{}", secret.err);
    let file = state.path().join("credentials");
    fs::write(&file, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let named = ["s3://images/a", "--endpoint", "http://127.0.0.1:1", "--credentials", file.to_str().unwrap()];
    push(&named).with(3).says(&["others may read it; help: chmod 600 it"]);
    let mut unknown = command(&state, &["push", disk, "s3://images/a", "--endpoint", "http://127.0.0.1:1"], ["", ""]);
    state.finish(&mut unknown).with(3).says(&["there are no credentials: name a file"]);
    let none = push(&["s3://images/a", "--endpoint", "https://127.0.0.1:1", "--ca", "/nowhere"]).with(3);
    none.says(&["--ca wants a file of certificates"]);
}

/// A server that ends with the test.
struct Gateway {
    data: PathBuf,
    program: PathBuf,
    endpoint: String,
    running: Companion,
}

impl Gateway {
    /// `None` where this machine has no such program, which counts as skipped.
    fn start(dir: &Path) -> Option<Gateway> {
        let Some(program) = find_program(&Local::new(), "versitygw") else {
            skip("no versitygw here: scripts/setup store");
            return None;
        };
        let data = dir.join("data");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(dir.join("meta")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let running = Self::run(&program, &data, &address);
        Some(Gateway { data, program, endpoint: format!("http://{address}"), running })
    }

    fn run(program: &Path, data: &Path, address: &str) -> Companion {
        let mut command = Command::new(program);
        command.args(["--port", address, "--quiet", "posix", "--sidecar"]).arg(data.with_file_name("meta")).arg(data);
        command.env("ROOT_ACCESS_KEY_ID", KEY[0]).env("ROOT_SECRET_ACCESS_KEY", KEY[1]);
        let running = Companion::start(&mut command);
        poll_until("the server takes connections", || TcpStream::connect(address).is_ok());
        running
    }

    /// Ends it as a loss of power would, and starts it again.
    fn kill_and_restart(&mut self) {
        let _ = self.running.0.kill();
        let _ = self.running.0.wait();
        self.running = Self::run(&self.program, &self.data, self.endpoint.trim_start_matches("http://"));
    }

    /// The file of an object.
    fn object(&self, key: &str) -> PathBuf {
        self.data.join("images").join(key)
    }

    /// Parts of uploads that have begun.
    fn parts(&self) -> usize {
        fn below(dir: &Path) -> usize {
            let Ok(all) = fs::read_dir(dir) else { return 0 };
            let part = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().parse::<u32>().is_ok());
            let paths: Vec<PathBuf> = all.flatten().map(|entry| entry.path()).collect();
            paths.iter().map(|path| if path.is_dir() { below(path) } else { usize::from(part(path)) }).sum()
        }
        below(&self.data.join("images/.sgwtmp"))
    }
}

/// An image whose blocks differ, with a hole.
fn disk(path: &Path, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(bytes).unwrap()];
    for (at, block) in all.chunks_mut(64 << 10).enumerate().filter(|(at, _)| at % 7 != 3) {
        block[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
    }
    fs::write(path, &all).unwrap();
    all
}

#[test]
fn an_image_is_stored_and_fetched_as_it_was() {
    let dir = scratch();
    let Some(gateway) = Gateway::start(dir.path()) else { return };
    let state = StateDir::new();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    let bytes = disk(&from, 40 * MIB);
    let at = ["--endpoint", &gateway.endpoint, "--json"];
    let push = ["push", from.to_str().unwrap(), "s3://images/a/disk"];
    image(&state, &[&push[..], &at].concat()).with(1).says(&["has no bucket images: make it with --make-bucket"]);
    let stored = image(&state, &[&push[..], &at, &["--make-bucket"]].concat()).with(0);
    fits("image-transfer", &stored.out);
    let stored = stored.json();
    assert_eq!((stored["moved_bytes"].as_u64(), stored["kept_bytes"].as_u64()), (Some(40 * MIB), Some(0)));
    assert_eq!(stored["manifest"]["part_sha256"].as_array().unwrap().len(), 3);
    assert_eq!(fs::read(gateway.object("a/disk")).unwrap(), bytes);
    assert!(gateway.object("a/disk.vmio.json").is_file() && gateway.parts() == 0);
    let pull = ["pull", "s3://images/a/disk", to.to_str().unwrap()];
    let fetched = image(&state, &[&pull[..], &at].concat()).with(0);
    fits("image-transfer", &fetched.out);
    let fetched = fetched.json();
    assert_eq!(fetched["manifest"], stored["manifest"]);
    assert_eq!(fs::read(&to).unwrap(), bytes);
    let manifest = stored["manifest_sha256"].as_str().unwrap();
    assert_eq!(fetched["manifest_sha256"], manifest);
    let pinned = dir.path().join("pinned");
    let pinned =
        ["pull", "s3://images/a/disk", pinned.to_str().unwrap(), "--endpoint", &gateway.endpoint, "--manifest"];
    image(&state, &[&pinned[..], &[manifest]].concat()).with(0);
    image(&state, &[&pinned[..], &[&"0".repeat(64)]].concat()).with(1).says(&["not the one that was named"]);
    image(&state, &[&pinned[..], &["x"]].concat()).with(2).says(&["it has 64 hexadecimal digits"]);
    image(&state, &[&pull[..], &at].concat()).with(1).says(&["exists: name another file"]);
    // Another secret.
    let mut wrong = command(&state, &[&pull[..], &at].concat(), [KEY[0], "another"]);
    state.finish(&mut wrong).with(1).says(&["refuses the credentials (SignatureDoesNotMatch)"]);
    // A byte of the second part is lost at the server.
    let mut spoilt = bytes;
    spoilt[20 << 20] ^= 1;
    fs::write(gateway.object("a/disk"), &spoilt).unwrap();
    fs::remove_file(&to).unwrap();
    image(&state, &[&pull[..], &at].concat()).with(1).says(&["part 2 of 3 has another digest"]);
    assert!(!to.exists());
    image(&state, &["pull", "s3://images/none", to.to_str().unwrap(), "--endpoint", &gateway.endpoint])
        .with(1)
        .says(&["has no s3://images/none.vmio.json"]);
}

#[test]
fn a_push_that_was_cut_off_goes_on() {
    let dir = scratch();
    let Some(mut gateway) = Gateway::start(dir.path()) else { return };
    let state = StateDir::new();
    let from = dir.path().join("from");
    File::create(&from).unwrap().set_len(256 * MIB).unwrap();
    let endpoint = gateway.endpoint.clone();
    let push = ["push", from.to_str().unwrap(), "s3://images/disk", "--endpoint", &endpoint, "--make-bucket", "--json"];
    let mut cut = state.spawn(&mut command(&state, &push, KEY));
    state.wait_for(&mut cut, || gateway.parts() > 0);
    cut.kill().unwrap();
    cut.wait().unwrap();
    gateway.kill_and_restart();
    assert!(!gateway.object("disk").exists());
    let there = poll_for("parts are kept", || Some(gateway.parts()).filter(|parts| *parts > 0).ok_or("none"));
    let stored = image(&state, &push).with(0).json();
    let kept = stored["kept_bytes"].as_u64().unwrap();
    assert!(kept >= 16 * MIB && kept <= there as u64 * 16 * MIB, "{kept} of {there} parts");
    assert_eq!(kept + stored["moved_bytes"].as_u64().unwrap(), 256 * MIB);
    assert_eq!(fs::metadata(gateway.object("disk")).unwrap().len(), 256 * MIB);
}

#[test]
fn the_store_of_this_host_needs_no_options() {
    if find_program(&Local::new(), "versitygw").is_none() {
        return skip("no versitygw here: scripts/setup store");
    }
    let (dir, state) = (scratch(), StateDir::new());
    let [images, from, to] = ["images", "from", "to"].map(|name| dir.path().join(name));
    let bytes = disk(&from, MIB);
    let record = state.path().join("store/served.json");
    let served = || fs::read(&record).ok().and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let serve = |images: &Path| {
        // One that was killed left it.
        let _ = fs::remove_file(&record);
        let mut serve =
            Companion(state.spawn(&mut state.command(&["image", "serve", images.to_str().unwrap(), "--port", "0"])));
        state.wait_for(&mut serve.0, || served().is_some());
        serve
    };
    let mut first = serve(&images);
    let second = state.vmio(&["image", "serve", dir.path().join("other").to_str().unwrap(), "--port", "0"]);
    // By its journal, which is asked first.
    assert_ne!(second.code, Some(0), "{}", second.err);
    let push = ["push", from.to_str().unwrap(), "s3://images/disk", "--json", "--make-bucket"];
    let stored = image(&state, &push).with(0).json();
    assert_eq!(stored["is_synced"].as_bool(), Some(true), "{stored}");
    assert_eq!(fs::read(images.join("images/disk")).unwrap(), bytes);
    let mode = |name: &str| fs::metadata(images.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["images", "images/disk", "images/disk.vmio.json"].map(mode), [0o700, 0o600, 0o600]);
    image(&state, &["pull", "s3://images/disk", to.to_str().unwrap()]).with(0).says(&["synced to the disk"]);
    assert_eq!(fs::read(&to).unwrap(), bytes);
    signal(first.pid(), Signal::TERM);
    assert!(first.0.wait().unwrap().success());
    image(&state, &push).with(2).says(&["serves none now"]);
    // What is killed takes its server along, and is served again with the same key.
    let mut killed = serve(&images);
    let address = served().unwrap()["address"].as_str().unwrap().to_owned();
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    poll_until("the server ended with vmio", || TcpStream::connect(&address).is_err());
    image(&state, &push).with(2).says(&["serves none now"]);
    let mut again = serve(&images);
    image(&state, &push).with(0);
    signal(again.pid(), Signal::TERM);
    assert!(again.0.wait().unwrap().success());
    state.is_clean();
}

#[test]
fn an_image_is_a_disk_that_leaves_its_object_alone() {
    for (program, part) in [("versitygw", "store"), ("nbdkit", "test"), ("qemu-io", "test")] {
        if find_program(&Local::new(), program).is_none() {
            return skip(&format!("no {program} here: scripts/setup {part}"));
        }
    }
    let (dir, state) = (scratch(), StateDir::new());
    let [images, from] = ["images", "from"].map(|name| dir.path().join(name));
    let bytes = disk(&from, 4 * MIB);
    let record = state.path().join("store/served.json");
    let serve = ["image", "serve", images.to_str().unwrap(), "--port", "0"];
    let mut serve = Companion(state.spawn(&mut state.command(&serve)));
    state.wait_for(&mut serve.0, || fs::read(&record).is_ok_and(|text| text.ends_with(b"}")));
    let push = |name: &str| image(&state, &["push", from.to_str().unwrap(), name, "--make-bucket"]).with(0);
    push("s3://images/disk");
    image(&state, &["open", "s3://images/none"]).with(1).says(&["has no s3://images/none"]);
    image(&state, &["open", "s3://images/none", "--in-place"]).with(1).says(&["cannot open", "images/none"]);
    image(&state, &["open", "s3://images/disk", "--in-place", "--endpoint", "http://127.0.0.1:1"]).with(2);
    for way in [&["open", "s3://images/disk"][..], &["open", "s3://images/disk", "--in-place"]] {
        let mut open = state.spawn(&mut command(&state, way, KEY));
        let mut uri = String::new();
        BufReader::new(open.stdout.take().unwrap()).read_line(&mut uri).unwrap();
        let mut open = Companion(open);
        // Blocks of the image and one that was never written, what is written and read back, and what is beside it.
        let io = |commands: &[&str]| {
            let mut qemu_io = Command::new("qemu-io");
            qemu_io.args(["-f", "raw"]).args(commands.iter().flat_map(|command| ["-c", *command])).arg(uri.trim());
            let ended = qemu_io.output().unwrap();
            let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
            (ended.status.success() && !said.contains("verification failed"), said)
        };
        let ninth = format!("read -P {} {} 1", bytes[9 << 16], 9 << 16);
        let (is_right, said) =
            io(&[&*ninth, "read -P 0 192k 64k", "write -P 7 1M 64k", "read -P 7 1M 64k", "read -P 0 1088k 4k"]);
        assert!(is_right, "{way:?}: {said}");
        signal(open.pid(), Signal::TERM);
        assert!(open.0.wait().unwrap().success());
        assert_eq!(fs::read(images.join("images/disk")).unwrap(), bytes, "{way:?}");
    }
    // Another object under the same name is not taken for it.
    let mut open = state.spawn(&mut command(&state, &["open", "s3://images/disk"], KEY));
    let mut uri = String::new();
    BufReader::new(open.stdout.take().unwrap()).read_line(&mut uri).unwrap();
    disk(&from, 4 * MIB + 512);
    push("s3://images/disk");
    let read = Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 64k", uri.trim()]).output().unwrap();
    assert!(!read.status.success(), "{read:?}");
    signal(open.id(), Signal::TERM);
    state.end(open).with(0).says(&["a read fails", "has another object as s3://images/disk now"]);
    signal(serve.pid(), Signal::TERM);
    assert!(serve.0.wait().unwrap().success());
    state.is_clean();
}

/// The way of everybody else: no part of vmio is in it.
#[test]
fn an_unmodified_client_uses_the_server() {
    let dir = scratch();
    let Some(gateway) = Gateway::start(dir.path()) else { return };
    let has_boto3 = Command::new("python3").args(["-c", "import boto3"]).output().is_ok_and(|o| o.status.success());
    if !has_boto3 {
        return skip("no boto3 here: scripts/setup store");
    }
    let mut client = Command::new("python3");
    client.arg(fixture("object_store.py")).args([gateway.endpoint.as_str(), "others"]);
    client.env("AWS_ACCESS_KEY_ID", KEY[0]).env("AWS_SECRET_ACCESS_KEY", KEY[1]);
    let ended = client.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
