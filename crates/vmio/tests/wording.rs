//! Phrases that operators stumbled over are in no text of vmio's.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

const BANNED: [&str; 13] = [
    "for who ",
    "goes over more",
    "is to stay",
    "nobody here can",
    "start anew",
    "started anew",
    "takes the room",
    "that is all they get",
    "this is no ",
    "to be trusted",
    "was left alone",
    "weighs alike",
    "who has the ",
];

/// The same for tables of the pages.
const BANNED_IN_TABLES: [&str; 8] =
    [" anew", " by hand", "gone round", "in the place of", "on end,", "takes for durable", "who has ", "whoever "];

/// The same for the whole pages.
const BANNED_IN_PAGES: [&str; 5] = [" anew", "hoever ", "in the place of", "omebody", "what is too much"];

/// All files of Rust below a directory, but those of tests.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if stem.ends_with("tests") || stem == "testbed" {
            continue;
        }
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            all.push(path);
        }
    }
    all
}

/// The lines without comments and unit tests; a text that is continued on the next line is one.
fn texts(source: &str) -> String {
    // A line of a module whose tests are in another file, `mod tests;`, is not the end of the code.
    let is_tests = |(at, _): &(usize, &str)| {
        let first = source[*at..].lines().find(|line| !line.starts_with("#["));
        first == Some("mod tests {")
    };
    let end = source.match_indices("#[cfg(test)]").find(is_tests).map_or(source.len(), |(at, _)| at);
    let code = &source[..end];
    let mut texts = String::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let line = line.split(" // ").next().unwrap();
        match line.strip_suffix('\\') {
            Some(begun) => texts.push_str(begun),
            None => texts.extend([line, "\n"]),
        }
    }
    texts
}

#[test]
fn texts_are_in_plain_english() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for file in sources(crates) {
        let text = texts(&fs::read_to_string(&file).unwrap());
        let lines = text.lines().filter(|line| BANNED.iter().any(|phrase| line.contains(phrase)));
        found.extend(lines.map(|line| format!("{}: {line}", file.display())));
    }
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
}

/// Fails with the lines of `docs/*.md`, outside of code, that `is_wrong` finds.
fn check_pages(is_wrong: impl Fn(&str) -> bool) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = Vec::new();
    for page in fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        // Every second part is code.
        let prose = text.split("```").step_by(2).flat_map(str::lines);
        found.extend(prose.filter(|line| is_wrong(line)).map(|line| format!("{}: {line}", page.display())));
    }
    assert!(found.is_empty(), "say it in plain words:\n{}", found.join("\n"));
}

#[test]
fn tables_of_the_pages_are_in_plain_english() {
    check_pages(|line| line.starts_with('|') && BANNED_IN_TABLES.iter().any(|phrase| line.contains(phrase)));
}

#[test]
fn prose_of_the_pages_is_in_plain_english() {
    check_pages(|line| BANNED_IN_PAGES.iter().any(|phrase| line.contains(phrase)));
}
