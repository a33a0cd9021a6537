//! How fast `vmio image push` and `pull` are beside other clients of the same server (versitygw by `vmio image serve`, on
//! this host): curl, one request for the whole image, and boto3, which sends and fetches parts on several threads.
//! `cargo bench -p vmio --bench object_store [-- [MIB] [ROUNDS]]` (512 and 5 unless named).
//!
//! Clients take turns in each round. Prints medians in MiB/s with the range, vmio's peak memory, and its speed as a part
//! of that of the fastest other client; judges nothing. The others' time has the sync of the file or object that they leave
//! out, and which vmio does itself; vmio's has the digests, too. The image has no blocks of zeros.
#![allow(clippy::print_stdout, missing_docs)]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Done<T> = Result<T, Box<dyn Error>>;

/// What boto3 does: `python3 -c BOTO3 VERB ENDPOINT FILE KEY`.
const BOTO3: &str = "
import sys, boto3
from botocore.client import Config
verb, endpoint, path, key = sys.argv[1:]
config = Config(signature_version='s3v4', s3={'addressing_style': 'path'})
s3 = boto3.client('s3', endpoint_url=endpoint, region_name='us-east-1', config=config)
s3.upload_file(path, 'images', key) if verb == 'push' else s3.download_file('images', key, path)
";
/// What tells curl the key, which everybody could read on its command line.
const CURL: &str = "curl.conf";
/// How long the server may take to start.
const START: Duration = Duration::from_secs(20);

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::Pid::from_raw(self.0.id().cast_signed())
            .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        let _ = self.0.wait();
    }
}

/// What the clients are told.
struct Bed<'a> {
    state: &'a Path,
    store: &'a Path,
    endpoint: String,
    access: String,
    secret: String,
    image: &'a Path,
    fetched: &'a Path,
}

impl Bed<'_> {
    /// A client's command that stores the image (`push`) or fetches it.
    fn command(&self, client: &str, verb: &str) -> Command {
        let (url, file) =
            (format!("{}/images/{client}", self.endpoint), if verb == "push" { self.image } else { self.fetched });
        let mut command = match client {
            "vmio" => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
                command.arg("--state").arg(self.state).args(["image", verb]);
                let names: [&std::ffi::OsStr; 2] = [file.as_os_str(), "s3://images/vmio".as_ref()];
                command.args(if verb == "push" { names } else { [names[1], names[0]] });
                command.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_ENDPOINT_URL_S3");
                command
            }
            "curl" => {
                let mut command = Command::new("curl");
                command.args(["-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "--config"]);
                command.arg(self.state.join(CURL));
                command.args([
                    "-H",
                    "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                    if verb == "push" { "-T" } else { "-o" },
                ]);
                command.arg(file).arg(url);
                command
            }
            _ => {
                let mut command = Command::new("python3");
                command.args(["-c", BOTO3, verb, &self.endpoint]).arg(file).arg(client);
                command.env("AWS_ACCESS_KEY_ID", &self.access).env("AWS_SECRET_ACCESS_KEY", &self.secret);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs it; seconds, and its peak memory in MiB.
    fn run(&self, client: &str, verb: &str) -> Done<(f64, f64)> {
        let _ = fs::remove_file(self.fetched);
        let mut command = self.command(client, verb);
        let began = Instant::now();
        let mut child = command.spawn()?;
        let mut peak_kib = 0.0_f64;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            // proc_pid_status(5): the most that was resident.
            let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            peak_kib = kib.map_or(peak_kib, |kib: f64| kib.max(peak_kib));
            std::thread::sleep(Duration::from_millis(5));
        };
        if !status.success() {
            return Err(format!("{client} {verb}: {status}").into());
        }
        let stored = self.store.join("images").join(client);
        fs::File::open(if verb == "push" { stored.as_path() } else { self.fetched })?.sync_all()?;
        Ok((began.elapsed().as_secs_f64(), peak_kib / 1024.0))
    }
}

fn main() -> Done<()> {
    if vmio_node::find_program(&vmio_node::Local::new(), "versitygw").is_none() {
        println!("skipped: no versitygw here: scripts/setup store");
        return Ok(());
    }
    let numbers: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let (mib, rounds) = (numbers.first().copied().unwrap_or(512), numbers.get(1).copied().unwrap_or(5));
    let dir = tempfile::Builder::new().prefix("vmio-bench").tempdir_in("/var/tmp")?;
    let [state, store, image, fetched] = ["state", "store", "image", "fetched"].map(|name| dir.path().join(name));
    let mut file = fs::File::create(&image)?;
    for at in 0..mib {
        let block: Vec<u8> = (0..1_u64 << 17).flat_map(|n| (n | (at << 20) | (1 << 60)).to_le_bytes()).collect();
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let server = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .arg("--state")
        .arg(&state)
        .args(["image", "serve"])
        .arg(&store)
        .args(["--port", "0"])
        .spawn()?;
    let _server = Server(server);
    let (until, record) = (Instant::now() + START, state.join("store/served.json"));
    let served: serde_json::Value = loop {
        match fs::read(&record).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(served) => break served,
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            None => return Err("the server did not start".into()),
        }
    };
    let key = fs::read_to_string(state.join("store/credentials"))?;
    let of = |name: &str| key.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).unwrap_or_default();
    let bed = Bed {
        state: &state,
        store: &store,
        endpoint: format!("http://{}", served["address"].as_str().unwrap_or_default()),
        access: of("aws_access_key_id").to_owned(),
        secret: of("aws_secret_access_key").to_owned(),
        image: &image,
        fetched: &fetched,
    };
    fs::write(state.join(CURL), format!("user = \"{}:{}\"\n", bed.access, bed.secret))?;
    let made = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .arg("--state")
        .arg(&state)
        .args(["image", "push"])
        .arg(&image)
        .args(["s3://images/first", "--make-bucket"])
        .stdout(Stdio::null())
        .status()?;
    if !made.success() {
        return Err(format!("the first push: {made}").into());
    }
    let has =
        |program: &str, args: &[&str]| Command::new(program).args(args).output().is_ok_and(|o| o.status.success());
    let mut clients = vec!["vmio"];
    clients.extend(has("curl", &["--version"]).then_some("curl"));
    clients.extend(has("python3", &["-c", "import boto3"]).then_some("boto3"));
    println!("| what | client | MiB/s, median (range) of {rounds} | vmio's peak memory | part of the fastest other |");
    println!("|---|---|---|---|---|");
    for verb in ["push", "pull"] {
        let mut all: Vec<(&str, Vec<f64>, f64)> = clients.iter().map(|client| (*client, Vec::new(), 0.0)).collect();
        for round in 0..rounds {
            let count = all.len();
            for turn in 0..count {
                // Each is the first one in some round.
                let (client, speeds, peak) = &mut all[(turn + usize::try_from(round)?) % count];
                let (seconds, mib_peak) = bed.run(client, verb)?;
                speeds.push(mib as f64 / seconds);
                *peak = peak.max(mib_peak);
            }
        }
        all.iter_mut().for_each(|(_, speeds, _)| speeds.sort_by(f64::total_cmp));
        let median = |speeds: &[f64]| speeds.get(speeds.len() / 2).copied().unwrap_or(f64::NAN);
        let best = all.iter().skip(1).map(|(_, speeds, _)| median(speeds)).fold(f64::NAN, f64::max);
        for (client, speeds, peak) in &all {
            let (least, most) = (speeds.first().unwrap_or(&f64::NAN), speeds.last().unwrap_or(&f64::NAN));
            let speed = median(speeds);
            let (memory, part) = match *client {
                "vmio" => (format!("{peak:.0} MiB"), format!("{:.2}", speed / best)),
                _ => (String::new(), String::new()),
            };
            println!("| {verb} | {client} | {speed:.0} ({least:.0} to {most:.0}) | {memory} | {part} |");
        }
    }
    Ok(())
}
