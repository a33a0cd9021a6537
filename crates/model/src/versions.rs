//! Versions of programs that run at both ends of a path.

use std::collections::BTreeMap;

/// A sentence for each program with different versions on this host and at the peer.
pub fn unlike(here: &BTreeMap<String, String>, there: &BTreeMap<String, String>) -> Vec<String> {
    let differs = |(name, theirs): (&String, &String)| {
        let (ours, theirs) = (version(here.get(name)?), version(theirs));
        (ours != theirs).then(|| format!("{name} is {ours} here and {theirs} there{}", matters(name, ours, theirs)))
    };
    there.iter().filter_map(differs).collect()
}

/// The version number in a version text, `3.12` of `iperf 3.12 (cJSON 1.7.15)`; all of it without one.
fn version(said: &str) -> &str {
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    said.split([' ', ',']).find(is_version).unwrap_or(said)
}

/// Known differences between two versions.
fn matters(name: &str, ours: &str, theirs: &str) -> String {
    let number = |text: &str| {
        let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
        parts.next().flatten().zip(parts.next().flatten())
    };
    let (Some(ours), Some(theirs), "iperf3") = (number(ours), number(theirs), name) else { return String::new() };
    let across = |version| (ours < version) != (theirs < version);
    let mut text = String::new();
    // Release notes of iperf 3.16, pull request 1591.
    if across((3, 16)) {
        text += "; from 3.16 on each stream has its own thread";
    }
    // The client reports the receiver's figure, in any version: src/iperf_api.c, `get_results`.
    if across((3, 11)) && ours < (3, 11) {
        text += "; before 3.11 the client, this host's, leaves datagrams out of the loss that are lost at the end";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(name: &str, here: &str, there: &str) -> Vec<String> {
        let of = |said: &str| BTreeMap::from([(name.to_owned(), said.to_owned())]);
        unlike(&of(here), &of(there))
    }

    #[test]
    fn versions_that_differ_are_told_with_what_is_known_of_them() {
        let [old, new, newest] = ["iperf 3.9 (cJSON 1.7.13)", "iperf 3.12 (cJSON 1.7.15)", "iperf 3.16"];
        assert_eq!(messages("iperf3", new, "iperf 3.12 (cJSON 1.7.18)"), [""; 0], "of one version");
        assert_eq!(messages("iperf3", new, old), ["iperf3 is 3.12 here and 3.9 there"], "the client counts");
        let said = messages("iperf3", old, new).join("");
        assert!(said.contains("3.9 here and 3.12 there; before 3.11 the client, this host's,"), "{said}");
        let said = messages("iperf3", newest, new).join("");
        assert!(said.ends_with("3.16 here and 3.12 there; from 3.16 on each stream has its own thread"), "{said}");
        let said = messages("sockperf", "sockperf, version 3.7-0", "sockperf, version 3.10-no.git");
        assert_eq!(said, ["sockperf is 3.7-0 here and 3.10-no.git there"]);
        assert_eq!(messages("x", "a word", "another"), ["x is a word here and another there"]);
        assert_eq!(unlike(&BTreeMap::new(), &BTreeMap::from([("x".into(), "1.0".into())])), [""; 0], "no word of ours");
    }
}
