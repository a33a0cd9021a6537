//! A small server over HTTP, or over TLS with the certificate of the fixtures, and what the client makes of its answers.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use vmio_node::Local;
use vmio_node::fake::Fake;

use super::*;

const POWER: &str = include_str!("../../tests/fixtures/redfish/power.json");
const METRICS: &str = include_str!("../../tests/fixtures/redfish/environment_metrics.json");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/redfish");
/// More than any test waits.
const LONG: Duration = Duration::from_secs(60);

/// Answers a path, given the login that came with it: all of the answer, head and body.
type Answers = Arc<dyn Fn(&str, Option<&str>) -> String + Send + Sync>;

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn empty(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

/// A controller of one chassis, as `power` answers for its resources.
fn chassis(links: &str, power: impl Fn(&str, Option<&str>) -> String + Send + Sync + 'static) -> Answers {
    let one = format!("{{\"Id\": \"1U\", \"Name\": \"Computer\" {links}}}");
    Arc::new(move |path, login| match path {
        "/redfish/v1/Chassis" => ok(r#"{"Members": [{"@odata.id": "/redfish/v1/Chassis/1U"}]}"#),
        "/redfish/v1/Chassis/1U" => ok(&one),
        _ => power(path, login),
    })
}

const OLDER: &str = r#", "Power": {"@odata.id": "/redfish/v1/Chassis/1U/Power"}"#;
const NEWER: &str = r#", "EnvironmentMetrics": {"@odata.id": "/redfish/v1/Chassis/1U/EnvironmentMetrics"}"#;

/// Serves on this host until the test's process ends; its address.
fn serve(answers: Answers, tls: Option<Arc<ServerConfig>>) -> Address {
    serve_at("127.0.0.1", answers, tls)
}

fn serve_at(ip: &str, answers: Answers, tls: Option<Arc<ServerConfig>>) -> Address {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let scheme = if tls.is_some() { "https" } else { "http" };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answers, tls) = (Arc::clone(&answers), tls.clone());
            thread::spawn(move || match tls {
                None => talk(stream, &answers),
                Some(config) => talk(StreamOwned::new(ServerConnection::new(config).unwrap(), stream), &answers),
            });
        }
    });
    format!("{scheme}://{ip}:{port}").parse().unwrap()
}

/// One connection, each request answered in turn.
fn talk(mut stream: impl Read + Write, answers: &Answers) {
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(said.drain(..end + 4).collect()).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let login = head.lines().find_map(|line| line.strip_prefix("authorization: "));
            let answer = answers(&path, login);
            if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
        match stream.read(&mut some) {
            Ok(read) if read > 0 => said.extend(&some[..read]),
            _ => return,
        }
    }
}

/// A controller of one chassis.
pub(crate) fn controller() -> Controller {
    connect(chassis(OLDER, |_, _| ok(POWER)), None).unwrap()
}

fn connect(answers: Answers, login: Option<Login>) -> Result<Controller, Error> {
    Controller::connect(&serve(answers, None), login, None, &Fake::new("fake"))
}

/// What the second answer of a source is, after the first was good.
fn then(second: impl Fn() -> String + Send + Sync + 'static) -> Result<Vec<(String, Amount)>, String> {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let power = move |_: &str, _: Option<&str>| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => ok(POWER),
        _ => second(),
    };
    let controller = connect(chassis(OLDER, power), None).unwrap();
    let said = controller.amounts(Duration::from_millis(500)).map_err(|why| why.to_string());
    said.map_err(|why| why.replace(&controller.address.to_string(), "BMC"))
}

#[test]
fn the_newer_resource_comes_before_the_older_one() {
    let both = |path: &str, _: Option<&str>| ok(if path.ends_with("/Power") { POWER } else { METRICS });
    let told = |links: &str| connect(chassis(links, both), None).unwrap().amounts(LONG).unwrap();
    assert_eq!(told(OLDER), [("chassis 1U".to_owned(), Amount::Watts(344.0))]);
    assert_eq!(told(&format!("{OLDER}{NEWER}")), [("chassis 1U".to_owned(), Amount::Watts(374.0))]);
    // A link to what is not there leaves the other.
    let older = |path: &str, _: Option<&str>| if path.ends_with("/Power") { ok(POWER) } else { empty("404 Not Found") };
    let told = connect(chassis(&format!("{OLDER}{NEWER}"), older), None).unwrap().amounts(LONG).unwrap();
    assert_eq!(told, [("chassis 1U".to_owned(), Amount::Watts(344.0))]);
    let none = connect(chassis("", both), None).unwrap_err();
    assert!(none.to_string().ends_with("/redfish/v1/Chassis reports no power of any chassis"), "{none}");
}

#[test]
fn a_login_is_sent_and_one_that_is_refused_is_told_with_the_remedy() {
    let login = Login::new("operator", "secret");
    assert_eq!(format!("{login:?}"), "Login", "it is shown nowhere");
    let guarded = |_: &str, login: Option<&str>| match login {
        Some("Basic b3BlcmF0b3I6c2VjcmV0") => ok(POWER),
        _ => empty("401 Unauthorized"),
    };
    let told = connect(chassis(OLDER, guarded), Some(login)).unwrap();
    assert_eq!(told.amounts(LONG).unwrap().len(), 1);
    assert!(!format!("{told:?}").contains("b3BlcmF0b3I6c2VjcmV0"));
    for login in [None, Some(Login::new("operator", "wrong"))] {
        let why = connect(chassis(OLDER, guarded), login).unwrap_err().to_string();
        assert!(
            why.ends_with("/Power refuses the login (401): give a user and a password with --power-login FILE"),
            "{why}"
        );
    }
}

#[test]
fn what_goes_wrong_later_is_a_kind_of_error() {
    let link = "BMC/redfish/v1/Chassis/1U/Power";
    let moved = then(|| "HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n".to_owned());
    assert_eq!(
        moved,
        Err(format!(
            "{link} leads to https://elsewhere/, which is not followed: name that host if it is the controller"
        ))
    );
    assert_eq!(then(|| empty("503 Service Unavailable")), Err(format!("{link} answers 503")));
    let nonsense = then(|| ok("<html>busy</html>")).unwrap_err();
    assert!(
        nonsense.starts_with(&format!("{link} answered with what is not a Redfish resource: expected value")),
        "{nonsense}"
    );
    let off = POWER.replace("\"PowerConsumedWatts\": 344", "\"PowerConsumedWatts\": null");
    assert_eq!(then(move || ok(&off)), Err(format!("{link} reports no power of any chassis")));
    // What it repeats of the question is in no error.
    let echo = then(|| ok(r#"{"PowerControl": "Basic b3BlcmF0b3I6c2VjcmV0"}"#)).unwrap_err();
    assert!(echo.contains("unexpected property at line 1") && !echo.contains("b3Blc"), "{echo}");
    // Its length told, and without an end.
    let huge = || format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 64 << 20, " ".repeat(2 << 20));
    assert_eq!(then(huge), Err(format!("{link} answered with over 1048576 bytes")));
    let endless = || {
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(4))
    };
    assert_eq!(then(endless), Err(format!("{link} answered with over 1048576 bytes")));
}

#[test]
fn what_a_controller_does_wrong_has_a_remedy() {
    let (url, why) = (|| "https://bmc/redfish/v1".to_owned(), || "x".to_owned());
    let all = [
        Error::Status { url: url(), status: 503 },
        Error::TooLarge { url: url() },
        Error::Late { url: url() },
        Error::Unreachable { url: url(), why: why() },
        Error::Nonsense { url: url(), why: why() },
        Error::NoPower { url: url() },
    ];
    for error in all {
        assert!(error.remedy().is_some_and(|fix| !error.to_string().contains(fix)), "{error}");
    }
    // These say it themselves.
    assert_eq!((Error::InClear.remedy(), Error::NoRoots.remedy()), (None, None));
}

#[test]
fn a_late_answer_is_given_up() {
    let began = Instant::now();
    let late = then(|| {
        thread::sleep(LONG / 2);
        ok(POWER)
    });
    assert!(late.as_ref().is_err_and(|why| why.contains("did not answer in time")), "{late:?}");
    assert!(began.elapsed() < LONG / 3, "{:?}", began.elapsed());
}

#[test]
fn links_that_lead_elsewhere_are_not_followed() {
    let long = format!("/redfish/v1/{}", "x".repeat(MOST_PATH_BYTES));
    let all = ["https://elsewhere/redfish/v1/Chassis/1", "@elsewhere/", "/redfish/v1/../admin", "/redfish/v1/x?y"];
    for path in all.into_iter().chain(["/redfish/v1/\\u001b[2J", long.as_str()]) {
        let members = format!("{{\"Members\": [{{\"@odata.id\": \"{path}\"}}]}}");
        let why = connect(Arc::new(move |_, _| ok(&members)), None).unwrap_err();
        assert!(matches!(&why, Error::Nonsense { why, .. } if why.contains("leads elsewhere")), "{path}: {why}");
        let told = why.to_string();
        assert!(told.len() < 300 && !told.contains('\u{1b}'), "{told}");
    }
}

#[test]
fn a_chassis_that_is_listed_twice_is_read_once() {
    let one = r#"{"@odata.id": "/redfish/v1/Chassis/1U"}"#;
    let (both, power) = (format!("{{\"Members\": [{one}, {one}]}}"), chassis(OLDER, |_, _| ok(POWER)));
    let twice: Answers = Arc::new(move |path, login| match path {
        "/redfish/v1/Chassis" => ok(&both),
        _ => power(path, login),
    });
    let told = connect(twice, None).unwrap().amounts(LONG).unwrap();
    assert_eq!(told, [("chassis 1U".to_owned(), Amount::Watts(344.0))]);
}

fn server_config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(Path::new(FIXTURES).join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(Path::new(FIXTURES).join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

#[test]
fn a_certificate_is_verified() {
    let good = || chassis(OLDER, |_, _| ok(POWER));
    let address = serve(good(), Some(server_config()));
    let file = |name: &str| Path::new(FIXTURES).join(name);
    let with = |address: &Address, ca: &Path| Controller::connect(address, None, Some(ca), &Local::new());
    let told = with(&address, &file("ca.pem")).unwrap().amounts(LONG).unwrap();
    assert_eq!(told, [("chassis 1U".to_owned(), Amount::Watts(344.0))]);
    // Another authority than the one that signed: the leaf itself is none.
    let other = with(&address, &file("server.pem")).unwrap_err();
    assert!(matches!(other, Error::NotTrusted { .. }), "{other:?}");
    assert!(other.to_string().contains("--power-ca FILE"), "{other}");
    // Signed by the right one, for another host.
    let elsewhere = with(&serve_at("127.0.0.2", good(), Some(server_config())), &file("ca.pem")).unwrap_err();
    assert!(matches!(elsewhere, Error::NotTrusted { .. }), "{elsewhere:?}");
    let none = with(&address, &file("README.md")).unwrap_err().to_string();
    assert!(none.contains("it contains no certificate; --power-ca wants"), "{none}");
    let missing = Controller::connect(&address, None, None, &Fake::new("fake")).unwrap_err();
    assert!(matches!(missing, Error::NoRoots), "{missing:?}");
}

#[test]
fn addresses_hold_no_password_and_no_path() {
    let of = |text: &str| text.parse::<Address>().map(|a| a.to_string()).map_err(|why| why.to_string());
    assert_eq!(of("https://10.0.0.2"), Ok("https://10.0.0.2".into()));
    assert_eq!(of("https://[fe80::1]:8443/"), Ok("https://[fe80::1]:8443".into()));
    for bad in ["10.0.0.2", "ftp://10.0.0.2", "https://", "https://bmc/redfish/v1", "https://bmc?x=y", ""] {
        assert!(of(bad).is_err(), "{bad}");
    }
    let why = of("https://root:calvin@10.0.0.2").unwrap_err();
    assert!(!why.contains("calvin") && why.contains("without a password"), "{why}");
    let clear: Address = "http://192.0.2.1".parse().unwrap();
    let sent = Controller::connect(&clear, Some(Login::new("a", "b")), None, &Fake::new("fake"));
    assert!(matches!(sent, Err(Error::InClear)), "{sent:?}");
}
