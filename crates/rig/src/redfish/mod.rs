//! A management controller over HTTPS (DMTF DSP0266, the Redfish specification): what it tells of power. Only GET is
//! sent. Redirections are not followed, so the password goes to the named host alone; certificates are verified; each
//! answer has a limit of time and of size.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use ureq::http::Uri;
use ureq::http::header::{ACCEPT, AUTHORIZATION, LOCATION};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use vmio_model::result::CHASSIS_DOMAIN;
use vmio_node::Reader;

use self::document::{Chassis, Collection, Told};

mod document;
#[cfg(test)]
pub(crate) mod tests;

/// Where the tree begins (DSP0266, section 6.1).
const CHASSIS: &str = "/redfish/v1/Chassis";
/// Below this are all resources: links to elsewhere are not followed.
const ROOT: &str = "/redfish/v1/";
/// Longest answer. A chassis of hundreds of sensors has some 100 KiB.
const MOST_BYTES: u64 = 1 << 20;
/// Longest path of a resource.
const MOST_PATH_BYTES: usize = 200;
/// Most chassis that are looked at.
const MOST_CHASSIS: usize = 16;
/// Most letters of a name that a controller gives to a chassis or a part.
const MOST_LETTERS: usize = 40;
/// Longest file of certificates: that of a distribution has 250 KiB.
const MOST_CA_BYTES: usize = 4 << 20;
/// Time for one answer. Controllers are slow, most of all at the first connection.
const LIMIT: Duration = Duration::from_secs(10);
/// Time for all that is asked at the first connection.
const LIMIT_OF_ALL: Duration = Duration::from_secs(60);
/// The certificates that a host trusts: Debian, Red Hat, SUSE, Alpine.
const HOSTS_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why a controller tells nothing.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Error {
    #[error("{0} is no address of a controller: give https://HOST[:PORT], without a path and without a password")]
    Address(String),
    #[error("a password is not sent over http:// to another host: give https://")]
    InClear,
    #[error("this host has no file of trusted certificates: name one with --power-ca FILE")]
    NoRoots,
    #[error("{}: {why}; --power-ca wants a file of certificates in PEM", path.display())]
    BadRoots { path: PathBuf, why: String },
    #[error(
        "{url} is not trusted: {why}; name the certificate that signed it with --power-ca FILE (it must name the host \
         as the address does)"
    )]
    NotTrusted { url: String, why: String },
    #[error("{url} refuses the login ({status}): give a user and a password with --power-login FILE")]
    Login { url: String, status: u16 },
    #[error("{url} leads to {to}, which is not followed: name that host if it is the controller")]
    Moved { url: String, to: String },
    #[error("{url} answers {status}")]
    Status { url: String, status: u16 },
    #[error("{url} answered with over {MOST_BYTES} bytes")]
    TooLarge { url: String },
    #[error("{url} did not answer in time")]
    Late { url: String },
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("{url} answered with what is not a Redfish resource: {why}")]
    Nonsense { url: String, why: String },
    #[error("{url} reports no power of any chassis")]
    NoPower { url: String },
}

impl Error {
    /// What to do; `None` where the message says it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Error::Address(_)
            | Error::InClear
            | Error::NoRoots
            | Error::BadRoots { .. }
            | Error::NotTrusted { .. }
            | Error::Login { .. }
            | Error::Moved { .. } => None,
            Error::Status { .. } => Some("look into the controller's log, and whether that user may read its chassis"),
            Error::TooLarge { .. } | Error::Nonsense { .. } => {
                Some("name the address of a Redfish service; an old firmware of the controller may need an update")
            }
            Error::Late { .. } => Some("try again when the controller is idle, or ask it from this host: --power ipmi"),
            Error::Unreachable { .. } => Some("check the address and its port, and the way there from this host"),
            Error::NoPower { .. } => Some("use another meter: --power ipmi or hwmon, or your own, --power-command"),
        }
    }
}

/// The address of a controller: `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Scheme and authority, without a slash at the end.
    base: String,
    host: String,
    is_clear: bool,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base)
    }
}

impl std::str::FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // What is refused may hold a password.
        let shown = || Error::Address(text.rsplit('@').next().unwrap_or_default().to_owned());
        let uri: Uri = text.parse().map_err(|_| shown())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(shown()) };
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.as_str().contains('@');
        if !bare || authority.host().is_empty() || !matches!(scheme, "http" | "https") {
            return Err(shown());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Address { base: format!("{scheme}://{authority}"), host, is_clear: scheme == "http" })
    }
}

impl Address {
    fn is_this_host(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// A user's name and password at a controller. It shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login(String);

impl Login {
    /// As HTTP's basic authentication has them (RFC 7617).
    pub fn new(user: &str, password: &str) -> Self {
        Login(format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes())))
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// What a source tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Power in watts.
    Watts(f64),
    /// Energy in kilowatt hours since an unknown start.
    KilowattHours(f64),
}

/// A controller with what it tells of power.
#[derive(Debug)]
pub struct Controller {
    address: Address,
    agent: ureq::Agent,
    login: Option<Login>,
    sources: Vec<Source>,
}

/// A resource with power of a chassis.
#[derive(Debug, PartialEq)]
struct Source {
    path: String,
    chassis: String,
}

impl PartialEq for Controller {
    fn eq(&self, other: &Self) -> bool {
        (&self.address, &self.sources) == (&other.address, &other.sources)
    }
}

impl Controller {
    /// Connects, and finds what tells power: of each chassis `EnvironmentMetrics` (Redfish 2020.4), else `Power`.
    ///
    /// # Errors
    /// Why it tells nothing.
    pub fn connect(
        address: &Address,
        login: Option<Login>,
        ca_file: Option<&Path>,
        reader: &dyn Reader,
    ) -> Result<Self, Error> {
        if address.is_clear && login.is_some() && !address.is_this_host() {
            return Err(Error::InClear);
        }
        let agent = agent(if address.is_clear { Vec::new() } else { roots(ca_file, reader)? });
        let mut controller = Controller { address: address.clone(), agent, login, sources: Vec::new() };
        let until = Instant::now() + LIMIT_OF_ALL;
        let all: Collection = controller.get(CHASSIS, until)?;
        for link in all.members.iter().take(MOST_CHASSIS) {
            let chassis: Chassis = controller.get(&link.path, until)?;
            let found = controller.source_of(&link.path, &chassis, until)?;
            // Readings of two with one name would be taken for those of one.
            let is_known = |found: &Source| controller.sources.iter().any(|known| known.chassis == found.chassis);
            let found = found.filter(|found| !is_known(found));
            controller.sources.extend(found);
        }
        let url = format!("{address}{CHASSIS}");
        if controller.sources.is_empty() { Err(Error::NoPower { url }) } else { Ok(controller) }
    }

    /// The first resource of a chassis that tells power now.
    fn source_of(&self, path: &str, chassis: &Chassis, until: Instant) -> Result<Option<Source>, Error> {
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        for link in [&chassis.environment_metrics, &chassis.power].into_iter().flatten() {
            match self.get::<Told>(&link.path, until) {
                Ok(told) if !told.amounts().is_empty() => {
                    return Ok(Some(Source { path: link.path.clone(), chassis: shown(name, MOST_LETTERS) }));
                }
                // Some controllers name what they do not have.
                Ok(_) | Err(Error::Status { status: 404, .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(None)
    }

    /// What it tells now, by domain: `chassis 1`. All answers together may take as long as `limit`.
    ///
    /// # Errors
    /// The first source that tells nothing.
    pub fn amounts(&self, limit: Duration) -> Result<Vec<(String, Amount)>, Error> {
        let (mut all, until) = (Vec::new(), Instant::now() + limit);
        for Source { path, chassis } in &self.sources {
            let told = self.get::<Told>(path, until)?.amounts();
            if told.is_empty() {
                return Err(Error::NoPower { url: self.url(path) });
            }
            let domain = |part: Option<String>| match part {
                Some(part) => format!("{CHASSIS_DOMAIN}{chassis} {part}"),
                None => format!("{CHASSIS_DOMAIN}{chassis}"),
            };
            all.extend(told.into_iter().map(|(part, amount)| (domain(part), amount)));
        }
        Ok(all)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    fn get<T: DeserializeOwned>(&self, path: &str, until: Instant) -> Result<T, Error> {
        if !is_resource(path) {
            let why = format!("its link {} leads elsewhere", shown(path, 100));
            return Err(Error::Nonsense { url: self.url(ROOT), why });
        }
        let url = self.url(path);
        let limit = LIMIT.min(until.saturating_duration_since(Instant::now()));
        if limit.is_zero() {
            return Err(Error::Late { url });
        }
        let mut request = self.agent.get(&url).config().timeout_global(Some(limit)).build();
        request = request.header(ACCEPT, "application/json").header("OData-Version", "4.0");
        if let Some(Login(login)) = &self.login {
            request = request.header(AUTHORIZATION, login);
        }
        let mut answer = request.call().map_err(|e| why(&url, e))?;
        match answer.status().as_u16() {
            200 => {}
            status @ (401 | 403) => return Err(Error::Login { url, status }),
            300..=399 => {
                let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
                return Err(Error::Moved { url, to: shown(to, 200) });
            }
            status => return Err(Error::Status { url, status }),
        }
        let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec().map_err(|e| why(&url, e))?;
        serde_json::from_slice(&body).map_err(|e| Error::Nonsense { url, why: nonsense(&e) })
    }
}

/// Whether a path is of a resource of the tree, in letters that a terminal takes for no command.
fn is_resource(path: &str) -> bool {
    path.starts_with(ROOT)
        && path.len() <= MOST_PATH_BYTES
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\\".contains(&byte))
        && !path.contains("..")
}

/// The beginning of what a controller wrote, on one line.
fn shown(text: &str, letters: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(letters).collect()
}

/// What is wrong with an answer, without its content: that may be long, or repeat the login.
fn nonsense(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => format!("unexpected property at line {} column {}", error.line(), error.column()),
        Category::Io | Category::Syntax | Category::Eof => error.to_string(),
    }
}

/// What an error of the client means here.
fn why(url: &str, error: ureq::Error) -> Error {
    let url = url.to_owned();
    match error {
        ureq::Error::Timeout(_) => Error::Late { url },
        ureq::Error::BodyExceedsLimit(_) => Error::TooLarge { url },
        ureq::Error::LargeResponseHeader(..) => Error::TooLarge { url },
        ureq::Error::Rustls(e @ rustls::Error::InvalidCertificate(_)) => Error::NotTrusted { url, why: e.to_string() },
        // A failed handshake comes as an error of reading.
        ureq::Error::Io(e) => match e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
            Some(tls @ rustls::Error::InvalidCertificate(_)) => Error::NotTrusted { url, why: tls.to_string() },
            _ => Error::Unreachable { url, why: e.to_string() },
        },
        ureq::Error::Protocol(e) => Error::Nonsense { url, why: shown(&e.to_string(), 200) },
        e => Error::Unreachable { url, why: shown(&e.to_string(), 200) },
    }
}

fn agent(roots: Vec<Certificate<'static>>) -> ureq::Agent {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        // What the environment names for others is not asked to see this.
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent("vmio")
        .max_idle_connections_per_host(1)
        .max_idle_connections(1)
        .build();
    config.new_agent()
}

/// The certificates of a file, or those that this host trusts.
fn roots(file: Option<&Path>, reader: &dyn Reader) -> Result<Vec<Certificate<'static>>, Error> {
    let path = match file {
        Some(file) => file.to_owned(),
        None => {
            let there = |path: &&&str| matches!(reader.stat(Path::new(path)), Ok(Some(_)));
            PathBuf::from(HOSTS_ROOTS.iter().find(there).ok_or(Error::NoRoots)?)
        }
    };
    let bad = |why: String| Error::BadRoots { path: path.clone(), why };
    let text = reader.read_start(&path, MOST_CA_BYTES).map_err(|e| bad(e.to_string()))?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let all: Vec<Certificate<'static>> = parse_pem(&text).filter_map(certificate).collect();
    if all.is_empty() { Err(bad("it contains no certificate".to_owned())) } else { Ok(all) }
}
