//! The dashboard: a page that is always the same, with a script that asks for `/v1/status`. There is nothing in it that
//! is not everybody's, so it is shown without the token, asks for it, and keeps it in the tab's own memory
//! (sessionStorage): never in an address, whose history others read, and never in a cookie, which a browser sends of
//! itself.

use axum::Json;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Refusal;

/// Nothing is loaded from elsewhere, nothing that stands in the page runs, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Path, type and text of what the page consists of.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];

/// Whether this path is the page's.
pub fn is_of(path: &str) -> bool {
    FILES.iter().any(|(own, ..)| *own == path)
}

/// The page.
pub fn router() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }))
    })
}

/// What a browser is told of every answer.
pub async fn strict(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Where no token is asked for (somebody may have forwarded the Unix socket to a port of their own machine), a page of
/// another site must not ask: neither from its own origin, nor by a name that it had resolved to that port.
pub async fn own(request: Request, next: Next) -> Response {
    if is_own(request.headers()) {
        return next.run(request).await;
    }
    let error = "requested by a page of another site; to ask directly: curl --unix-socket PATH \
         http://localhost/v1/status"
        .to_owned();
    (StatusCode::FORBIDDEN, Json(Refusal { error, problems: Vec::new() })).into_response()
}

fn is_own(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let (host, origin) = (text(header::HOST), text(header::ORIGIN));
    let of_host = |origin: &str| origin.strip_prefix("http://").is_some_and(|at| Some(at) == host);
    host.is_none_or(is_local) && origin.is_none_or(of_host)
}

/// Names that no other site can have: addresses, this machine, and what our own client says.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name == "vmio" || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_host_names() {
        for host in ["localhost", "LOCALHOST:9127", "127.0.0.1:9127", "[::1]:9127", "[::1]", "10.0.0.5", "vmio"] {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:9127", "127.0.0.1.evil.example", "", ":80", "[", "vmio.example"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn page_escapes_text_and_loads_nothing() {
        // The name of SVG's elements, which nobody loads.
        let script = include_str!("page/page.js").replace("http://www.w3.org/2000/svg", "");
        let page = include_str!("page/index.html");
        for word in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "http:", "https:"]
        {
            assert!(!script.contains(word) && !page.contains(word), "{word}");
        }
        for word in ["style=", "onclick", "onload", "<script>", "<style>", "//"] {
            assert!(!page.contains(word), "{word}");
        }
        let style = include_str!("page/page.css");
        assert!(!style.contains("url(") && !style.contains("@import"));
    }
}
