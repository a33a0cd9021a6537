//! The XML of S3 (Amazon S3 API Reference): answers to requests on uploads in parts, and errors.

use roxmltree::{Document, Node, ParsingOptions};

use super::Part;

/// Most nodes of an answer, which take memory: a list of 1000 uploads has some 40 each.
const MOST_NODES: u32 = 100_000;
/// Most quotation marks. An attribute has two, and all attributes of an element are compared with each other. A list of
/// 1000 parts has two in each ETag.
const MOST_QUOTES: usize = 10_000;

/// An upload that was begun.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub key: String,
    pub id: String,
    /// Its parts have a SHA-256 each.
    pub has_digests: bool,
}

/// A part of a list, and from which on the list goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub parts: Vec<Part>,
    pub next: Option<u32>,
}

/// What is below an element by that name.
fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.tag_name().name() == name)?.text().map(str::trim)
}

/// The root of an answer of that name.
fn root<'a, 'input>(document: &'a Document<'input>, name: &str) -> Result<Node<'a, 'input>, String> {
    let root = document.root_element();
    if root.tag_name().name() == name { Ok(root) } else { Err(format!("it is no {name}")) }
}

fn parse(answer: &str) -> Result<Document<'_>, String> {
    if answer.bytes().filter(|byte| matches!(byte, b'"' | b'\'')).count() > MOST_QUOTES {
        return Err("it has too many attributes".to_owned());
    }
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(answer, options).map_err(|e| e.to_string())
}

/// Code of an error.
pub(super) fn code(answer: &str) -> Option<String> {
    let document = parse(answer).ok()?;
    text(root(&document, "Error").ok()?, "Code").map(str::to_owned)
}

/// The identifier of an upload that has just begun.
pub(super) fn begun(answer: &str) -> Result<String, String> {
    let document = parse(answer)?;
    let id = text(root(&document, "InitiateMultipartUploadResult")?, "UploadId").filter(|id| !id.is_empty());
    id.map(str::to_owned).ok_or_else(|| "it names no upload".to_owned())
}

/// Whether an upload was completed: a server may tell of an error only after it began to answer.
pub(super) fn completed(answer: &str) -> Result<(), String> {
    let document = parse(answer)?;
    root(&document, "CompleteMultipartUploadResult").map(|_| ())
}

/// Uploads that were begun, those that began last at the end.
pub(super) fn unfinished(answer: &str) -> Result<Vec<Unfinished>, String> {
    let document = parse(answer)?;
    let uploads = root(&document, "ListMultipartUploadsResult")?.children().filter(|n| n.tag_name().name() == "Upload");
    let upload = |node: Node<'_, '_>| {
        Some(Unfinished {
            key: text(node, "Key")?.to_owned(),
            id: text(node, "UploadId").filter(|id| !id.is_empty())?.to_owned(),
            has_digests: text(node, "ChecksumAlgorithm") == Some("SHA256"),
        })
    };
    Ok(uploads.filter_map(upload).collect())
}

/// The parts of an upload.
pub(super) fn parts(answer: &str) -> Result<Listed, String> {
    let document = parse(answer)?;
    let root = root(&document, "ListPartsResult")?;
    let part = |node: Node<'_, '_>| {
        Some(Part {
            number: text(node, "PartNumber")?.parse().ok()?,
            size_bytes: text(node, "Size")?.parse().ok()?,
            etag: text(node, "ETag")?.to_owned(),
            sha256: text(node, "ChecksumSHA256").unwrap_or_default().to_owned(),
        })
    };
    let parts = root.children().filter(|n| n.tag_name().name() == "Part").filter_map(part).collect();
    let is_cut = text(root, "IsTruncated") == Some("true");
    let next = text(root, "NextPartNumberMarker").and_then(|next| next.parse().ok()).filter(|_| is_cut);
    Ok(Listed { parts, next })
}

/// The request that makes an object of its parts.
pub(super) fn complete(parts: &[Part]) -> String {
    let mut all = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for Part { number, etag, sha256, .. } in parts {
        let etag = escaped(etag);
        all += &format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><ChecksumSHA256>{sha256}</ChecksumSHA256></Part>"
        );
    }
    all + "</CompleteMultipartUpload>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::digest::Sha256;
    use super::*;

    const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

    #[test]
    fn answers_are_read() {
        let first = format!(
            "<?xml version=\"1.0\"?><InitiateMultipartUploadResult {NAMESPACE}><Bucket>b</Bucket><Key>k</Key>\
             <UploadId>u&amp;1</UploadId></InitiateMultipartUploadResult>"
        );
        assert_eq!(begun(&first), Ok("u&1".into()));
        let list = format!(
            "<ListMultipartUploadsResult {NAMESPACE}><Upload><Key>a</Key><UploadId>1</UploadId>\
             <ChecksumAlgorithm>SHA256</ChecksumAlgorithm></Upload><Upload><Key>ab</Key><UploadId>2</UploadId></Upload>\
             <Upload><Key>a</Key></Upload></ListMultipartUploadsResult>"
        );
        let of = |key: &str, id: &str, has_digests| Unfinished { key: key.into(), id: id.into(), has_digests };
        assert_eq!(unfinished(&list), Ok(vec![of("a", "1", true), of("ab", "2", false)]));
        let list = format!(
            "<ListPartsResult {NAMESPACE}><IsTruncated>true</IsTruncated><NextPartNumberMarker>3</NextPartNumberMarker>\
             <Part><PartNumber>3</PartNumber><ETag>\"e\"</ETag><Size>7</Size><ChecksumSHA256>\
             47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=</ChecksumSHA256></Part></ListPartsResult>"
        );
        let read = parts(&list).unwrap();
        assert_eq!((read.parts.len(), read.next), (1, Some(3)));
        let empty = Sha256::of(b"");
        assert!(read.parts[0].is(7, &empty) && !read.parts[0].is(8, &empty) && !read.parts[0].is(7, &Sha256::of(b"x")));
        assert_eq!(parts(&list.replace("true", "false")).unwrap().next, None);
        assert!(
            complete(&read.parts).contains("<PartNumber>3</PartNumber><ETag>&quot;e&quot;</ETag><ChecksumSHA256>47D")
        );
        assert_eq!(code("<Error><Code>NoSuchKey</Code><Message>x</Message></Error>"), Some("NoSuchKey".into()));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bad in ["", "<html>busy</html>", "<Error><Code>InternalError</Code></Error>", "{}"] {
            assert!(begun(bad).is_err() && completed(bad).is_err() && parts(bad).is_err(), "{bad}");
            assert!(unfinished(bad).is_err(), "{bad}");
        }
        assert_eq!(code("<html>"), None);
        // What would take long, or much memory.
        let attributes: String = (0..MOST_QUOTES).map(|n| format!(" a{n}=''")).collect();
        for bad in [
            format!("<ListPartsResult{attributes}/>"),
            format!("<ListPartsResult>{}</ListPartsResult>", "<a/>".repeat(MOST_NODES as usize)),
            "<!DOCTYPE a [<!ENTITY b 'c'>]><ListPartsResult>&b;</ListPartsResult>".to_owned(),
        ] {
            assert!(parts(&bad).is_err(), "{bad:.60}");
        }
    }
}
