//! What vmio prints as JSON: a type for each output. `vmio schema` derives its description from the same
//! type (see [`crate::cmd::schema`], which lists them), and only such a type can be printed, so no output
//! lacks its schema.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::sanitize;

/// How an output is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// One object a line (JSON Lines) instead of one document.
    pub lines: bool,
    /// Keys in the order of the alphabet instead of the type's.
    pub sorted: bool,
}

/// One JSON output of vmio. Field names carry their units, and fields are only added within a major version.
pub trait Document: Serialize + JsonSchema {
    /// How it is laid out.
    const LAYOUT: Layout;
}

/// The document as it is printed, with a line feed at its end and control characters replaced; a document of JSON Lines
/// is one line.
#[expect(clippy::disallowed_methods, reason = "this is the one writer of outputs")]
pub fn text<D: Document>(document: &D) -> String {
    let Layout { lines, sorted } = D::LAYOUT;
    let written = match (sorted, lines) {
        (false, false) => serde_json::to_string_pretty(document),
        (false, true) => serde_json::to_string(document),
        // A map of serde_json has its keys in order.
        (true, _) => {
            serde_json::to_value(document).map(|value| if lines { value.to_string() } else { format!("{value:#}") })
        }
    };
    let mut text = written.expect("string keys, and no failing serialiser");
    text.push('\n');
    sanitize::json(&text).into_owned()
}
