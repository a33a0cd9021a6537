//! `vmio image push` and `vmio image pull`: images in an object store.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use vmio_model::failure::Exit;
use vmio_node::Local;
use vmio_rig::objects::{
    self, Callbacks, Client, Connection, Credentials, Endpoint, Error, Manifest, Served, Store as _, Url,
};

use super::shared::{failure, home};
use crate::context::{Context, Outcome};
use crate::report::format;
use crate::{files, term};

/// Variables that name the server, as for other clients of S3.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
/// Variables that name the region.
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
/// The region of servers that have none.
const REGION: &str = "us-east-1";

/// Which server has the images, and who asks.
#[derive(Debug, clap::Args)]
pub struct Server {
    /// The server, as https://HOST[:PORT] [env: AWS_ENDPOINT_URL] [default: the one of `vmio image serve`]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The region that requests are signed for [env: AWS_REGION] [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Read key and secret from FILE (section [default], mode 0600) instead of AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Trust the certificates in FILE instead of this host's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Ask another host over http://, where images can be read and changed on the way
    #[arg(long)]
    insecure_http: bool,
}

/// Arguments of `vmio image push`.
#[derive(Debug, clap::Args)]
pub struct Push {
    /// The image: a file, or a block device; nothing may write it meanwhile
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Where it is stored: s3://BUCKET/NAME
    #[arg(value_name = "URL")]
    url: String,
    /// Make the bucket if it is missing
    #[arg(long)]
    make_bucket: bool,
    #[command(flatten)]
    server: Server,
}

/// Arguments of `vmio image pull`.
#[derive(Debug, clap::Args)]
pub struct Pull {
    /// Where it is stored: s3://BUCKET/NAME
    #[arg(value_name = "URL")]
    url: String,
    /// The file that it becomes, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take only the image whose manifest has this SHA-256, as its push printed it
    #[arg(long, value_name = "SHA256", value_parser = sha256)]
    manifest: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// An image that was stored in an object store, or fetched from one.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    pub schema_version: &'static str,
    /// Where it is stored, as s3://BUCKET/NAME.
    pub url: String,
    /// The file or device on this host.
    pub file: &'a Path,
    /// What the image is. The store has the same as NAME.vmio.json.
    pub manifest: &'a Manifest,
    /// SHA-256 of that object. It stands for the digests of all parts, so for the bytes of the image.
    pub manifest_sha256: &'a str,
    /// Bytes that were sent or received.
    pub moved_bytes: u64,
    /// Bytes that an earlier try had moved already.
    pub kept_bytes: u64,
    /// Whether it is known to be on a disk. An object of another host is the matter of its server.
    pub is_synced: bool,
    /// How long it took.
    pub duration_seconds: f64,
}

/// A SHA-256 on the command line.
fn sha256(text: &str) -> Result<String, String> {
    let is_one = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_one { Ok(text.to_owned()) } else { Err("it has 64 hexadecimal digits".to_owned()) }
}

/// Stores an image.
pub fn push(args: &Push, context: &Context) -> Outcome {
    let (image, at) = (args.image.display(), &args.url);
    let failed = |why| failed(&format!("{image} was not stored as {at}"), why);
    let (client, url) = args.server.connect(at, context).map_err(failed)?;
    if args.make_bucket {
        client.make_bucket().map_err(failed)?;
    }
    let began = Instant::now();
    let done = objects::push(&client, url.key(), &args.image, &callbacks()).map_err(failed)?;
    tell("stored", &args.image, &url, &done, began, context)
}

/// Fetches an image.
pub fn pull(args: &Pull, context: &Context) -> Outcome {
    let (file, at) = (args.file.display(), &args.url);
    let failed = |why| failed(&format!("{at} was not fetched to {file}"), why);
    let (client, url) = args.server.connect(at, context).map_err(failed)?;
    let began = Instant::now();
    let done = objects::pull(&client, url.key(), &args.file, args.manifest.as_deref(), &callbacks()).map_err(failed)?;
    tell("fetched", &args.file, &url, &done, began, context)
}

impl Server {
    /// The bucket of an image.
    pub fn connect(&self, url: &str, context: &Context) -> Result<(Client, Url), Error> {
        let url: Url = url.parse()?;
        let set =
            |names: [&str; 2]| names.into_iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let named: Option<Endpoint> =
            self.endpoint.clone().or_else(|| set(ENDPOINTS)).map(|e| e.parse::<Endpoint>()).transpose()?;
        let (endpoint, credentials, directory) = match named {
            Some(endpoint) => (endpoint, Credentials::find(self.credentials.as_deref())?, None),
            None => {
                let (served, own) = Served::find(&home(context))?.ok_or(Error::NoEndpoint)?;
                let credentials = match &self.credentials {
                    Some(file) => Credentials::find(Some(file))?,
                    None => own,
                };
                (served.endpoint(), credentials, Some(served.directory))
            }
        };
        let connection = Connection {
            endpoint,
            region: self.region.clone().or_else(|| set(REGIONS)).unwrap_or_else(|| REGION.to_owned()),
            credentials,
            ca_file: self.ca.clone(),
            allows_clear: self.insecure_http,
            directory,
        };
        Ok((Client::new(connection, &url, &Local::new())?, url))
    }
}

/// Waits, and tells how far it is on a terminal.
fn callbacks() -> Callbacks<'static> {
    Callbacks {
        pause: &|wait| {
            term::transient("the server does not answer; asking again");
            thread::sleep(wait);
        },
        progress: &|done, of| {
            let percent = done as f64 / of as f64 * 100.0;
            term::transient(&format!("{} of {} ({percent:.0} %)", format::bytes(done), format::bytes(of)));
        },
    }
}

fn tell(verb: &str, file: &Path, url: &Url, done: &objects::Transfer, began: Instant, context: &Context) -> Outcome {
    let objects::Transfer { manifest, manifest_sha256, moved_bytes, kept_bytes, is_synced } = done;
    let seconds = began.elapsed().as_secs_f64();
    term::end_transient();
    if context.json {
        term::json(&Document {
            schema_version: "1.0",
            url: url.to_string(),
            file,
            manifest,
            manifest_sha256,
            moved_bytes: *moved_bytes,
            kept_bytes: *kept_bytes,
            is_synced: *is_synced,
            duration_seconds: seconds,
        })?;
        return Ok(Exit::Done);
    }
    let (from, to) = (file.display().to_string(), url.to_string());
    let (from, to) = if verb == "stored" { (from, to) } else { (to, from) };
    let size = format::bytes(manifest.size_bytes);
    let mut text = format!("{verb:<10} {from} as {to}\nsize       {size}\nSHA-256    {}\n", manifest.sha256);
    text += &format!("manifest   {manifest_sha256}\n");
    text += &format!(
        "moved      {} in {}, {} MB/s\n",
        format::bytes(*moved_bytes),
        format::duration(seconds),
        format::three(*moved_bytes as f64 / seconds / 1e6)
    );
    if *is_synced {
        text += "           synced to the disk\n";
    }
    if *kept_bytes > 0 {
        text += &format!("           {} were there from an earlier try\n", format::bytes(*kept_bytes));
    }
    term::print(&text)?;
    Ok(Exit::Done)
}

/// The error of a transfer, with what to do where the cause does not say so.
fn failed(what: &str, why: Error) -> anyhow::Error {
    let mut failure = failure(what, &why);
    if matches!(&why, Error::File { source, .. } if files::is_full(source)) {
        failure = failure.help("free some space there; the same command then moves only what is missing");
    }
    anyhow::Error::new(why).context(failure)
}
