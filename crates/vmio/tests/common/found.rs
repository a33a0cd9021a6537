//! What a scan found, read from its JSON.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::Value;

/// Ids of the rules that found something in a guest.
pub fn rules(guest: &Value) -> BTreeSet<&str> {
    guest["findings"].as_array().unwrap().iter().map(|f| f["rule"].as_str().unwrap()).collect()
}
