//! A management controller over HTTPS (DMTF DSP0266, the Redfish specification): what it tells of power. Only GET is
//! sent. Redirections are not followed, so the password goes to the named host alone; certificates are verified; each
//! answer has a limit of time and of size.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use ureq::http::header::{ACCEPT, AUTHORIZATION, LOCATION};
use vmio_model::result::CHASSIS_DOMAIN;
use vmio_node::Reader;

use self::document::{Chassis, Collection, Told};
use crate::https::{self, Fault, NoRoots, Origin, shown};

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
/// Time for one answer. Controllers are slow, most of all at the first connection.
const LIMIT: Duration = Duration::from_secs(10);
/// Time for all that is asked at the first connection.
const LIMIT_OF_ALL: Duration = Duration::from_secs(60);

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
pub struct Address(Origin);

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::str::FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Origin::parse(text).map(Address).map_err(Error::Address)
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
        let Address(origin) = address;
        if origin.is_clear() && login.is_some() && !origin.is_this_host() {
            return Err(Error::InClear);
        }
        let roots = if origin.is_clear() { Vec::new() } else { https::roots(ca_file, reader).map_err(no_roots)? };
        let agent = https::agent(roots, 1);
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
    match https::fault(error) {
        Fault::Late => Error::Late { url },
        Fault::TooLarge => Error::TooLarge { url },
        Fault::NotTrusted(why) => Error::NotTrusted { url, why },
        Fault::Unreachable(why) => Error::Unreachable { url, why },
        Fault::Nonsense(why) => Error::Nonsense { url, why },
    }
}

fn no_roots(why: NoRoots) -> Error {
    match why {
        NoRoots::Nowhere => Error::NoRoots,
        NoRoots::Bad { path, why } => Error::BadRoots { path, why },
    }
}
