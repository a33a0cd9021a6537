//! Which crate may know which; no circle between the folders of a crate or the files of a folder; every test file is in
//! a program. What else a crate may not do is in its `clippy.toml`.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate with those of ours that it may name (ARCHITECTURE.md).
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("node", &[]),
    ("look", &["model", "node"]),
    ("guard", &["look", "model", "node"]),
    ("rig", &["look", "model", "node"]),
    ("testbed", &["node"]),
    ("vmio", &["guard", "look", "model", "node", "rig"]),
];

type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn crates_know_only_those_below_them() {
    let there: BTreeSet<String> =
        fs::read_dir(crates()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let listed: BTreeSet<String> = MAY_KNOW.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, listed, "a crate has its row here, and a row its crate");
    for (name, may) in MAY_KNOW {
        let text = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let dependencies = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        let known: BTreeSet<&str> =
            dependencies.lines().filter_map(|line| line.strip_prefix("vmio-")?.split(['.', ' ', '=']).next()).collect();
        let may: BTreeSet<&str> = may.iter().copied().collect();
        assert!(known.is_subset(&may), "{name} knows {:?}", known.difference(&may));
    }
}

#[test]
fn no_circle_between_folders_or_files() {
    let mut wrong = Vec::new();
    for (name, _) in MAY_KNOW {
        let src = crates().join(name).join("src");
        let folders: BTreeSet<PathBuf> = sources(&src).iter().map(|file| file.parent().unwrap().to_owned()).collect();
        let inside = folders.iter().map(|dir| arrows(dir, "super::"));
        for arrows in inside.chain([arrows(&src, "crate::")]) {
            for circle in circles(&arrows) {
                wrong.push(format!("crate {name}:"));
                for from in &circle {
                    for (to, uses) in arrows[from].iter().filter(|(to, _)| circle.contains(*to)) {
                        let uses: Vec<&str> = uses.iter().take(3).map(String::as_str).collect();
                        wrong.push(format!("  {from} -> {to}: {}", uses.join(", ")));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "folders or files that need each other:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found_and_a_way_back_that_is_none_is_not() {
    let of = |pairs: &[(&str, &str)]| {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            arrows.entry((*from).into()).or_default().entry((*to).into()).or_default().insert("x".into());
            arrows.entry((*to).into()).or_default();
        }
        circles(&arrows)
    };
    assert_eq!(of(&[("a", "b"), ("b", "c"), ("a", "c")]), Vec::<BTreeSet<String>>::new());
    let circle = of(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]);
    assert_eq!(circle, [BTreeSet::from(["b".to_owned(), "c".to_owned()])]);
    let text = "#[cfg(test)]\nmod tests;\nuse crate::a;\n#[cfg(test)]\n#[allow(x)]\nmod tests {\nuse crate::b;\n}";
    assert_eq!(named(without_tests(text), "crate::"), ["a"]);
    assert_eq!(named("use crate::{a::B, c::{self, d}};\nlet x = crate::e::f();", "crate::"), ["a", "c", "e"]);
    assert_eq!(named("use super::super::a;\nsuper::super::super::b();\nuse super::{c::D, e};", "super::"), ["c", "e"]);
}

/// Which folder (or file) directly below `src` names which, and what of it: by `crate::` all files of a folder do, by
/// `super::` its head does. Tests and comments do not count.
fn arrows(src: &Path, by: &str) -> Arrows {
    let room = |path: &Path| {
        let first = path.strip_prefix(src).unwrap().iter().next().unwrap().to_str().unwrap();
        first.trim_end_matches(".rs").to_owned()
    };
    let mut arrows = Arrows::new();
    let files = sources(src);
    let rooms: BTreeSet<String> =
        files.iter().map(|f| room(f)).filter(|r| !matches!(&**r, "lib" | "main" | "mod")).collect();
    for file in files {
        let from = room(&file);
        let heads = [src.join(&from).with_extension("rs"), src.join(&from).join("mod.rs")];
        let speaks = by == "crate::" || heads.contains(&file);
        if !rooms.contains(&from) || !speaks || file.to_string_lossy().contains("test") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code: String = without_tests(&text)
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| format!("{line}\n"))
            .collect();
        let shown = file.strip_prefix(src).unwrap().display().to_string();
        for to in named(&code, by) {
            if to != from && rooms.contains(&to) {
                arrows.entry(from.clone()).or_default().entry(to).or_default().insert(shown.clone());
            }
        }
        arrows.entry(from).or_default();
    }
    for to in rooms {
        arrows.entry(to).or_default();
    }
    arrows
}

/// A file without its module of tests, which stands at its end, and without a line that names one elsewhere.
fn without_tests(text: &str) -> &str {
    let inside = text.match_indices("#[cfg(test)]").find(|(at, _)| {
        let behind = text[*at..].lines().skip(1).find(|line| !line.trim_start().starts_with(['#', '/']));
        behind.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    inside.map_or(text, |(at, _)| &text[..at])
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
    all
}

/// First parts of the paths behind `crate::` or `super::`, those in braces included.
fn named(code: &str, by: &str) -> Vec<String> {
    let code = code.replace("super::super::", "up::").replace("up::super::", "up::");
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for behind in code.split(by).skip(1) {
        let Some(inside) = behind.strip_prefix('{') else {
            found.push(word(behind));
            continue;
        };
        let (mut depth, mut fresh) = (1, true);
        for (at, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => fresh = true,
                c if fresh && (c.is_alphanumeric() || c == '_') => {
                    found.push(word(&inside[at..]));
                    fresh = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

/// Groups of rooms that reach each other.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(room) = next.pop() {
            for to in arrows[&room].keys() {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|room| (room, reach(room))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (room, far) in &reached {
        let circle: BTreeSet<String> = far.iter().filter(|to| reached[to].contains(*room)).cloned().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// A test file that no program has would never be run.
#[test]
fn every_test_file_is_in_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in ["vmio", "rig", "guard", "look", "model", "node"] {
        let (manifest, tests) = (crates.join(name).join("Cargo.toml"), crates.join(name).join("tests"));
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        assert_eq!(manifest["package"]["autotests"].as_bool(), Some(false), "{name}");
        let programs: Vec<&str> =
            manifest["test"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        let texts: String =
            programs.iter().filter_map(|p| fs::read_to_string(tests.join(format!("{p}.rs"))).ok()).collect();
        for file in fs::read_dir(&tests).unwrap().map(|e| e.unwrap().path()) {
            let stem = file.file_stem().unwrap().to_str().unwrap().to_owned();
            if file.extension().is_some_and(|e| e == "rs") && !programs.contains(&stem.as_str()) {
                let is_in = texts.lines().any(|line| line == format!("mod {stem};"));
                assert!(is_in, "{} needs its line in one of {programs:?}", file.display());
            }
        }
    }
}
