//! Signatures of requests: AWS Signature Version 4 (Amazon S3 API Reference, "Signature Calculations for the
//! Authorization Header: Transferring Payload in a Single Chunk").

use std::fmt::Write as _;

use data_encoding::HEXLOWER;
use ring::digest::{self, SHA256};
use ring::hmac::{self, HMAC_SHA256, Key};
use vmio_model::civil::Civil;

use super::credentials::Credentials;

/// A request as it is signed.
pub(super) struct Signed<'a> {
    pub method: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Encoded, in order of the names.
    pub query: &'a str,
    /// Names in small letters, in order.
    pub headers: &'a [(&'a str, &'a str)],
    /// The header `x-amz-content-sha256`.
    pub payload: &'a str,
}

/// The header `x-amz-date` of a moment, in seconds since the epoch.
pub(super) fn date(unix: i64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::of_unix(unix);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The header `Authorization` of a request with that `x-amz-date`.
pub(super) fn authorization(request: &Signed<'_>, credentials: &Credentials, region: &str, date: &str) -> String {
    let Signed { method, path, query, headers, payload } = request;
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
    let day = date.get(..8).unwrap_or(date);
    let scope = format!("{day}/{region}/s3/aws4_request");
    let hashed = HEXLOWER.encode(digest::digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}");
    let secret = format!("AWS4{}", credentials.secret);
    let mut key = hmac::sign(&Key::new(HMAC_SHA256, secret.as_bytes()), day.as_bytes());
    for part in [region, "s3", "aws4_request"] {
        key = hmac::sign(&Key::new(HMAC_SHA256, key.as_ref()), part.as_bytes());
    }
    let signature = hmac::sign(&Key::new(HMAC_SHA256, key.as_ref()), text.as_bytes());
    let (access, signature) = (&credentials.access, HEXLOWER.encode(signature.as_ref()));
    format!("AWS4-HMAC-SHA256 Credential={access}/{scope},SignedHeaders={names},Signature={signature}")
}

/// A text in a path or in a query: all but letters, digits and `-._~` as `%XX`, and `/` in a path.
pub(super) fn encoded(text: &str, is_path: bool) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (is_path && byte == b'/') {
            all.push(char::from(byte));
        } else {
            let _ = write!(all, "%{byte:02X}");
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of no body.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const DATE: &str = "20130524T000000Z";
    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");

    /// The signature of a request of the examples in the reference.
    fn signature(method: &str, path: &str, query: &str, more: &[(&str, &str)], payload: &str) -> String {
        let mut headers = vec![HOST, ("x-amz-content-sha256", payload), ("x-amz-date", DATE)];
        headers.extend(more);
        headers.sort_unstable();
        let credentials = Credentials {
            access: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let request = Signed { method, path, query, headers: &headers, payload };
        let made = authorization(&request, &credentials, "us-east-1", DATE);
        let begin =
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=";
        assert!(made.starts_with(begin), "{made}");
        made.rsplit('=').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn requests_are_signed_as_in_the_reference() {
        let range = [("range", "bytes=0-9")];
        assert_eq!(
            signature("GET", "/test.txt", "", &range, EMPTY),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        assert_eq!(
            signature(
                "PUT",
                &encoded("/test$file.text", true),
                "",
                &put,
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", "lifecycle=", &[], EMPTY),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", "max-keys=2&prefix=J", &[], EMPTY),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn dates_and_names_are_written_as_they_are_signed() {
        assert_eq!(date(1_369_353_600), DATE);
        assert_eq!(date(951_782_400), "20000229T000000Z");
        assert_eq!(encoded("/a b/c+d~e%", true), "/a%20b/c%2Bd~e%25");
        assert_eq!(encoded("a/ü=", false), "a%2F%C3%BC%3D");
    }
}
