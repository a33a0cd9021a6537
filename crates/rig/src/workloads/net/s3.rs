//! Objects of 64 MiB to an object store and from it, one request after the other: what shafer2010 left unmeasured of its
//! image store. The server is versitygw, the client curl, which signs its requests (AWS Signature Version 4).
//!
//! The store is in the memory of the server's machine, so that its disk limits nothing: a tmpfs in a mount namespace of the
//! command's own, which goes with it however it ends. An object to send is a sparse file, in the same way. Requests are
//! signed without a digest of what is sent (`UNSIGNED-PAYLOAD`), so that no digest is measured at the client. Each request
//! is a process and a connection of its own, and its time is curl's own: from before it connects to the end of the answer.

use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use vmio_look::require::{self, Requirement, program};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Output};

use super::{CLIENT, SERVER, address, listens_at};
use crate::nodes::NodeId;
use crate::objects::Credentials;
use crate::workloads::error::{report, succeeded};
use crate::workloads::{End, Error, Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// Entry `s3-put`.
pub const PUT: Requests =
    Requests { name: "s3-put", about: "curl: objects of 64 MiB to an object store (versitygw)", way: Way::Put };
/// Entry `s3-get`.
pub const GET: Requests =
    Requests { name: "s3-get", about: "curl: objects of 64 MiB from an object store (versitygw)", way: Way::Get };

/// The port that the documentation of versitygw names.
const PORT: u16 = 7070;
/// Bytes of an object.
const OBJECT_BYTES: u64 = 64 << 20;
/// How much of what curl says is kept: one line.
const KEPT_BYTES: usize = 64 << 10;
const SERVER_PROGRAM: &str = "versitygw";

/// What it is judged by.
const BANDWIDTH: &str = "bandwidth";
const REQUEST_RATE: &str = "request-rate";
const MOVED: &str = "moved";

/// Makes the store's file system, in a mount namespace, and goes on as nobody: the server answers guests, and needs nothing
/// of root's. An object that is replaced has its old bytes until all of the new ones are there.
const STORE: &str = "set -eu; mount -t tmpfs -o size=256m,mode=0700,uid=65534,gid=65534 vmio /mnt; \
                     exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all \
                     sh -c \"$2\" vmio \"$1\"";
/// What nobody then runs: a directory is a bucket, and a file in it an object.
const EMPTY: &str = "set -eu; umask 077; cd /mnt; mkdir data data/vmio meta; ";
const FILL: &str = "dd if=/dev/zero of=data/vmio/get bs=1M count=64 status=none; ";
/// A tmpfs may have no attributes of users, where the server has an object's otherwise.
const SERVE: &str = "exec versitygw --port \"$1\" --quiet posix --sidecar /mnt/meta /mnt/data";
/// Makes a sparse file of an object's size in a mount namespace and sends it.
const SEND: &str = "set -eu; mount -t tmpfs -o size=1m,mode=0700 vmio /mnt; \
                    dd if=/dev/zero of=/mnt/object bs=1M count=0 seek=64 status=none; \
                    exec curl \"$@\" --upload-file /mnt/object";

const ROOT: Requirement = Requirement {
    name: "root",
    why: "mounts the file systems of the workloads s3-…",
    fix: "run as root, or leave out the workloads s3-…",
    check: require::root,
};

const MOUNT: Requirement = Requirement {
    name: "mount",
    why: "mounts the file systems of the workloads s3-…",
    fix: "apt install mount",
    check: |reader| program(reader, "mount"),
};

const UNSHARE: Requirement = Requirement {
    name: "unshare",
    why: "keeps the mounts of the workloads s3-… apart",
    fix: "apt install util-linux",
    check: |reader| program(reader, "unshare"),
};

const SETPRIV: Requirement = Requirement {
    name: "setpriv",
    why: "runs the server of the workloads s3-… as nobody",
    fix: "apt install util-linux",
    check: |reader| program(reader, "setpriv"),
};

const VERSITYGW: Requirement = Requirement {
    name: SERVER_PROGRAM,
    why: "is the object store of the workloads s3-…",
    fix: "scripts/setup store",
    check: |reader| program(reader, SERVER_PROGRAM),
};

const CURL: Requirement = Requirement {
    name: "curl",
    why: "is the client of the workloads s3-…",
    fix: "apt install curl (7.87 or newer: an older one does not sign by the header x-amz-content-sha256)",
    check: |reader| program(reader, "curl"),
};

const ROLES: &[Role] = &[
    Role {
        name: SERVER,
        wants: Wants::Address,
        programs: &["dd", "mount", "sh", "unshare"],
        requirements: &[ROOT, MOUNT, UNSHARE, SETPRIV, VERSITYGW],
    },
    Role {
        name: CLIENT,
        wants: Wants::Address,
        programs: &["curl", "dd", "mount", "sh", "unshare"],
        requirements: &[ROOT, MOUNT, UNSHARE, CURL],
    },
];

/// Requests of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    name: &'static str,
    about: &'static str,
    way: Way,
}

/// Which way objects go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the store.
    Put,
    /// From it.
    Get,
}

/// What curl says of a request (curl(1), `--write-out`), as far as it is used: bytes and seconds.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct Told {
    http_code: u16,
    size_download: u64,
    size_upload: u64,
    time_connect: f64,
    time_starttransfer: f64,
    time_total: f64,
}

/// The key of the stores of this run, made when it is first asked for.
fn key(workload: &str) -> Result<&'static Credentials> {
    static KEY: OnceLock<Credentials> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(key);
    }
    let unfit = |e: std::io::Error| Error::Unfit { workload: workload.into(), reason: format!("no random key: {e}") };
    let made = Credentials::made().map_err(unfit)?;
    Ok(KEY.get_or_init(|| made))
}

/// An address with its port, as servers and URLs have it.
fn socket(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

impl Requests {
    /// One request. The key goes by standard input, since everybody can read a command line.
    fn request(&self, end: &End, server: &str) -> Result<Exec> {
        let url = |object: &str| format!("http://{server}/vmio/{object}");
        let (mut exec, url) = match self.way {
            Way::Put => (end.command("unshare").args(["--mount", "sh", "-c", SEND, "vmio"]), url("put")),
            Way::Get => (end.command("curl"), url("get")),
        };
        // The first one keeps the user's own configuration out. A body is sent at once, without an answer that allows it.
        exec = exec.args(["--disable", "--config", "-", "--silent", "--show-error", "--noproxy", "*"]);
        exec = exec.args(["--connect-timeout", "5", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
        exec = exec.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--header", "Expect:"]);
        exec = exec.args(["--output", "/dev/null", "--write-out", "%{json}\\n", &url]);
        let key = key(self.name)?;
        exec.stdin = format!("user = \"{}:{}\"\n", key.access(), key.secret()).into_bytes();
        exec.keep_bytes = KEPT_BYTES;
        Ok(exec)
    }

    /// What curl says of a request, if all of an object was moved.
    fn told(&self, node: &str, command: &str, output: &Output) -> Result<Told> {
        succeeded(node, command, output)?;
        let unusable = |reason: Unusable| reason.of(node, command);
        let (told, _) = report::<Told>(&output.out()).map_err(unusable)?;
        let bytes = match self.way {
            Way::Put => told.size_upload,
            Way::Get => told.size_download,
        };
        if told.http_code != 200 || bytes != OBJECT_BYTES || told.time_total <= 0.0 {
            let Told { http_code, time_total, .. } = told;
            let what = format!(
                "the server answered {http_code}, and {bytes} bytes of {OBJECT_BYTES} were moved in {time_total} s"
            );
            return Err(unusable(Unusable::Amount(what)));
        }
        Ok(told)
    }

    /// The figures of all requests, of which there is one at least.
    fn result(command: String, all: &[Told]) -> WorkloadResult {
        let seconds: f64 = all.iter().map(|told| told.time_total).sum();
        let (requests, moved) = (all.len() as f64, OBJECT_BYTES as f64 * all.len() as f64);
        let figures = vec![
            Reading::scalar(BANDWIDTH, moved * 8.0 / seconds),
            Reading::scalar(REQUEST_RATE, requests / seconds),
            Reading::scalar(MOVED, moved),
        ];
        WorkloadResult { seconds, figures, raw: json!({ "requests": all }), command }
    }
}

impl Workload for Requests {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        let figures = vec![
            Figure::rate(BANDWIDTH, Unit::BitsPerSecond),
            Figure::rate(REQUEST_RATE, Unit::RequestsPerSecond),
            Figure::amount(MOVED, Unit::Bytes),
        ];
        WorkloadTraits { name: self.name.into(), figures, judged_by: BANDWIDTH.into(), disk: None, group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn host_programs(&self) -> &'static [&'static str] {
        &[SERVER_PROGRAM]
    }
    fn serve(&self, _: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (end, port) = (stage.end(SERVER)?, stage.port(PORT));
        if let NodeId::Guest(side) = &end.on
            && !side.shares_kernel()
        {
            let reason = "its server runs on a host, not in a guest: name the peer `host` or `remote`".to_owned();
            return Err(Error::Unfit { workload: self.name.into(), reason });
        }
        let fill = if self.way == Way::Get { FILL } else { "" };
        let (serve, at) = (format!("{EMPTY}{fill}{SERVE}"), socket(&listens_at(self.name, end)?, port));
        let mut exec = end.command("unshare").args(["--mount", "sh", "-c", STORE, "vmio", &at, &serve]);
        let key = key(self.name)?;
        exec.env.insert("ROOT_ACCESS_KEY_ID".into(), key.access().into());
        exec.env.insert("ROOT_SECRET_ACCESS_KEY".into(), key.secret().into());
        Ok(Some(Service { exec, ready: Ready::Listens(port) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (end, server) = (stage.end(CLIENT)?, address(self.name, stage.end(SERVER)?)?);
        let exec = self.request(end, &socket(&server, stage.port(PORT)))?.limit(stage.limit());
        // By this host's clock: a guest says what it likes of its own.
        let (began, mut all) = (Instant::now(), Vec::new());
        while all.is_empty() || began.elapsed().as_secs_f64() < stage.seconds {
            let output = end.node.exec(&exec)?;
            all.push(self.told(end.node.name(), &exec.shown(), &output)?);
        }
        Ok(Self::result(exec.shown(), &all))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use vmio_model::cell::Side;
    use vmio_model::figure::check;
    use vmio_node::fake::says;
    use vmio_node::{End as Ended, Fake};

    use super::*;
    use crate::workloads::At;

    /// What curl 7.88.1 printed of requests to versitygw 1.8.0.
    fn fixture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/fixtures/s3/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn told(requests: Requests, text: &str, code: i32) -> Result<Told> {
        let output = Output { end: Ended::Exit(code), stdout: text.into(), stderr: vec![], truncated: false };
        requests.told("guest0", "curl", &output)
    }

    #[test]
    fn the_time_of_all_requests_counts() {
        for (requests, name, seconds) in [(PUT, "put", 0.238661), (GET, "get", 0.087879)] {
            let one = told(requests, &fixture(name), 0).unwrap();
            assert_eq!(one.time_total, seconds, "{name}");
            let twice = Told { time_total: seconds * 3.0, ..one.clone() };
            let result = Requests::result("curl".into(), &[one, twice]);
            assert_eq!(check(&requests.traits().figures, &result.figures), Ok(()));
            let near = |figure: &str, expected: f64| {
                let found = result.figure(figure).unwrap();
                assert!((found - expected).abs() <= expected * 1e-9, "{name} {figure}: {found}, not {expected}");
            };
            near(MOVED, 134_217_728.0);
            near(BANDWIDTH, 134_217_728.0 * 8.0 / (seconds * 4.0));
            near(REQUEST_RATE, 2.0 / (seconds * 4.0));
            assert_eq!(result.raw["requests"].as_array().unwrap().len(), 2);
        }
    }

    /// curl leaves with 0 whatever the server answers.
    #[test]
    fn what_is_no_whole_object_is_no_result() {
        let said = |requests: Requests, text: &str, code: i32| told(requests, text, code).unwrap_err().to_string();
        let refused = said(GET, &fixture("refused"), 0);
        assert!(refused.contains("guest0") && refused.contains("the server answered 403"), "{refused}");
        // The other way's.
        assert!(said(PUT, &fixture("get"), 0).contains("the server answered 200, and 0 bytes of 67108864"));
        let cut = fixture("get").replace("67108864", "67108863");
        assert!(said(GET, &cut, 0).contains("67108863 bytes of 67108864"));
        assert!(said(GET, &fixture("get"), 18).contains("failed (Exit(18))"));
        assert!(said(GET, "curl: none", 0).contains("no report ends it"));
    }

    fn stage(node: Arc<Fake>) -> Stage {
        let ends = [(SERVER, "198.18.0.1"), (CLIENT, "198.18.0.2")]
            .map(|(role, at)| (role, End::here(node.clone(), At::address(at.parse().unwrap()))));
        Stage { ends: ends.into(), seconds: 0.001, span: None, place: 1 }
    }

    #[test]
    fn a_request_is_made_until_the_time_is_over_and_shows_no_secret() {
        let node = Fake::new("here").command(|cmd| {
            let stdin = String::from_utf8_lossy(&cmd.stdin);
            let is_whole = stdin.starts_with("user = \"vmio") && stdin.ends_with("\"\n");
            (cmd.program == "curl" && is_whole).then(|| says(fixture("get")))
        });
        let result = GET.run(&stage(Arc::new(node))).unwrap();
        assert!(result.figure(MOVED).unwrap() >= OBJECT_BYTES as f64);
        assert!(result.command.ends_with(" http://198.18.0.1:7071/vmio/get"), "{}", result.command);
        let key = key("s3-get").unwrap();
        assert!(!result.command.contains(key.secret()) && !result.command.contains(key.access()), "{}", result.command);
    }

    #[test]
    fn the_store_listens_at_the_end_and_shows_no_secret() {
        let at = |requests: Requests| {
            let service = requests.serve(&ROLES[0], &stage(Arc::new(Fake::new("here")))).unwrap().unwrap();
            assert_eq!(service.ready, Ready::Listens(7071));
            let (shown, key) = (service.exec.shown(), key("s3-get").unwrap());
            assert!(shown.contains("198.18.0.1:7071") && !shown.contains(key.secret()), "{shown}");
            assert_eq!(service.exec.env["ROOT_SECRET_ACCESS_KEY"], key.secret());
            shown
        };
        // What is to be fetched is there before.
        assert!(at(GET).contains(FILL) && !at(PUT).contains(FILL));
        assert_eq!(socket("fd00::1", 7070), "[fd00::1]:7070");
    }

    #[test]
    fn no_guest_serves() {
        let mut stage = stage(Arc::new(Fake::new("guest0")));
        stage.ends.get_mut(SERVER).unwrap().on = NodeId::Guest(Side::of("qemu"));
        assert!(matches!(PUT.serve(&ROLES[0], &stage), Err(Error::Unfit { .. })));
    }
}
