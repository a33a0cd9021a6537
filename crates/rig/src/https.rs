//! What vmio's clients of HTTP share (of a management controller, of an object store): the address of a server, and how
//! it is connected to. Redirections are not followed and no proxy is asked, so credentials go to the named host alone;
//! certificates are verified.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use vmio_node::Reader;

/// Longest file of certificates: that of a distribution has 250 KiB.
const MOST_CA_BYTES: usize = 4 << 20;
/// The certificates that a host trusts: Debian, Red Hat, SUSE, Alpine.
const HOSTS_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The address of a server: `https://HOST[:PORT]`, or `http://` likewise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Scheme and authority, without a slash at the end.
    base: String,
    host: String,
    is_clear: bool,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.base)
    }
}

impl Origin {
    /// The text as an address. An error has the text without a password that may be in it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let shown = || text.rsplit('@').next().unwrap_or_default().to_owned();
        let uri: Uri = text.parse().map_err(|_| shown())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(shown()) };
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.as_str().contains('@');
        if !bare || authority.host().is_empty() || !matches!(scheme, "http" | "https") {
            return Err(shown());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Origin { base: format!("{scheme}://{authority}"), host, is_clear: scheme == "http" })
    }

    /// A server of this host, without TLS.
    pub(crate) fn of_this_host(address: SocketAddr) -> Self {
        Origin { base: format!("http://{address}"), host: address.ip().to_string(), is_clear: true }
    }

    /// Host and port, as the header `Host` has them.
    pub(crate) fn authority(&self) -> &str {
        self.base.split_once("://").map_or("", |(_, authority)| authority)
    }

    /// Whether what is sent there can be read on the way.
    pub(crate) fn is_clear(&self) -> bool {
        self.is_clear
    }

    pub(crate) fn is_this_host(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// Why there are no certificates that a server can be verified by.
#[derive(Debug)]
pub(crate) enum NoRoots {
    /// This host has no file of them.
    Nowhere,
    /// The file cannot be used.
    Bad { path: PathBuf, why: String },
}

/// The certificates of a file, or those that this host trusts.
pub(crate) fn roots(file: Option<&Path>, reader: &dyn Reader) -> Result<Vec<Certificate<'static>>, NoRoots> {
    let path = match file {
        Some(file) => file.to_owned(),
        None => {
            let there = |path: &&&str| matches!(reader.stat(Path::new(path)), Ok(Some(_)));
            PathBuf::from(HOSTS_ROOTS.iter().find(there).ok_or(NoRoots::Nowhere)?)
        }
    };
    let bad = |why: String| NoRoots::Bad { path: path.clone(), why };
    let text = reader.read_start(&path, MOST_CA_BYTES).map_err(|e| bad(e.to_string()))?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let all: Vec<Certificate<'static>> = parse_pem(&text).filter_map(certificate).collect();
    if all.is_empty() { Err(bad("it contains no certificate".to_owned())) } else { Ok(all) }
}

/// A client that trusts these certificates and keeps so many connections.
pub(crate) fn agent(roots: Vec<Certificate<'static>>, connections: usize) -> ureq::Agent {
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
        .max_idle_connections_per_host(connections)
        .max_idle_connections(connections)
        .build();
    config.new_agent()
}

/// What an error of the client means.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No answer, or no end of it, in time.
    Late,
    /// More than was asked for.
    TooLarge,
    NotTrusted(String),
    Unreachable(String),
    /// What HTTP does not allow.
    Nonsense(String),
}

/// What an error of the client means.
pub(crate) fn fault(error: ureq::Error) -> Fault {
    match error {
        ureq::Error::Timeout(_) => Fault::Late,
        ureq::Error::BodyExceedsLimit(_) | ureq::Error::LargeResponseHeader(..) => Fault::TooLarge,
        ureq::Error::Rustls(e @ rustls::Error::InvalidCertificate(_)) => Fault::NotTrusted(e.to_string()),
        // A failed handshake comes as an error of reading.
        ureq::Error::Io(e) => match e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
            Some(tls @ rustls::Error::InvalidCertificate(_)) => Fault::NotTrusted(tls.to_string()),
            _ => Fault::Unreachable(e.to_string()),
        },
        ureq::Error::Protocol(e) => Fault::Nonsense(shown(&e.to_string(), 200)),
        e => Fault::Unreachable(shown(&e.to_string(), 200)),
    }
}

/// The beginning of what a server wrote, on one line.
pub(crate) fn shown(text: &str, letters: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(letters).collect()
}
