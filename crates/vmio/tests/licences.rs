//! What is linked into `vmio`, `vmio-agent`, `vmio-udp` and `vmio-cpu`, and under which licences: every crate by what it says of itself,
//! C code and shared libraries by name, in a table that `docs/licences.md` repeats. A new dependency whose licence
//! is not listed fails here, with the way by which it came.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use vmio_testbed::skip;

/// Licences (SPDX) under which a crate may be linked in. All of them are permissive.
const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// The packages whose binaries are given away: `vmio`; `vmio-agent`, `vmio-udp` and `vmio-cpu`.
const SHIPPED: [&str; 2] = ["vmio", "vmio-node"];

/// Crates that build or link code in other languages: what, under which licence, and the file of the crate that
/// says so with words from it. `docs/licences.md` has the same.
const NATIVE: [(&str, &str, &str, &str, &str); 4] = [
    ("libbpf-sys", "libbpf", "BSD-2-Clause", "libbpf/LICENSE", "LGPL-2.1 OR BSD-2-Clause"),
    ("libsqlite3-sys", "SQLite", "public domain", "sqlite3/sqlite3.h", "The author disclaims copyright to this source"),
    ("ring", "BoringSSL", "Apache-2.0", "LICENSE-BoringSSL", "Apache License"),
    ("vsprintf", "vsprintf", "MIT", "LICENSE", "The MIT License"),
];

/// Features that decide which C code is built and how it is linked.
const FEATURES: [(&str, &[&str], &[&str]); 2] = [
    // libelf under LGPL is a shared library of the system, never a part of the binary.
    ("libbpf-sys", &["vendored-libbpf"], &["static-libelf", "vendored-libelf", "static-zlib", "static", "vendored"]),
    ("libsqlite3-sys", &["bundled"], &["sqlcipher", "bundled-sqlcipher", "bundled-sqlcipher-vendored-openssl"]),
];

/// Crates that would link a library of the system by one of these features alone, and have none of them here: they
/// look for it (pkg-config) and build nothing. libfuse is under LGPL-2.1.
const WITHOUT: [(&str, &[&str]); 1] = [("fuser", &["libfuse", "libfuse2", "libfuse3"])];

/// Shared libraries of the system that `vmio` may ask for, by the beginnings of their names.
const SHARED: [&str; 6] = ["libelf.so", "libz.so", "libc.so", "libm.so", "libgcc_s.so", "ld-linux"];

/// Whether an SPDX expression (SPDX 2.3, annex D; `/` is cargo's old `OR`) offers a licence of the list.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: VecDeque<&str> = spaced.split_whitespace().collect();
    any(&mut words).is_some_and(|allowed| allowed && words.is_empty())
}

/// `None` where it cannot be read.
fn any(words: &mut VecDeque<&str>) -> Option<bool> {
    let mut allowed = all(words)?;
    while words.front() == Some(&"OR") {
        words.pop_front();
        allowed |= all(words)?;
    }
    Some(allowed)
}

fn all(words: &mut VecDeque<&str>) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.front() == Some(&"AND") {
        words.pop_front();
        allowed &= one(words)?;
    }
    Some(allowed)
}

fn one(words: &mut VecDeque<&str>) -> Option<bool> {
    match words.pop_front()? {
        "(" => {
            let inner = any(words)?;
            (words.pop_front()? == ")").then_some(inner)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        id if words.front() == Some(&"WITH") => {
            words.pop_front();
            let exception = words.pop_front()?;
            Some(ALLOWED.contains(&format!("{id} WITH {exception}").as_str()))
        }
        id => Some(ALLOWED.contains(&id)),
    }
}

/// What cargo knows of the workspace as it is built here. Nothing is loaded where all of it is there already.
fn metadata() -> Value {
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let output = command.output().unwrap_or_else(|e| panic!("{program}: {e}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(said) }
    };
    let tool = |variable: &str, name: &str| std::env::var(variable).unwrap_or_else(|_| name.to_owned());
    let about = run(&tool("RUSTC", "rustc"), &["-vV"]).unwrap();
    let host = about.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
    let cargo = tool("CARGO", "cargo");
    let args = ["metadata", "--locked", "--format-version", "1", "--filter-platform", host];
    let found = run(&cargo, &[&args[..], &["--offline"]].concat()).or_else(|_| run(&cargo, &args));
    serde_json::from_str(&found.unwrap_or_else(|said| panic!("cargo metadata: {said}"))).unwrap()
}

/// A package that is linked in or that runs while it is built, with the packages by which it came.
struct Linked<'a> {
    package: &'a Value,
    features: Vec<&'a str>,
    /// It has a dependency that builds C code or looks for libraries.
    builds: bool,
    from: String,
}

/// All of them by name and version: what the shipped packages depend on, tests and benches left out.
fn linked(metadata: &Value) -> BTreeMap<String, Linked<'_>> {
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let packages: BTreeMap<String, &Value> =
        metadata["packages"].as_array().unwrap().iter().map(|p| (id(p), p)).collect();
    let nodes: BTreeMap<String, &Value> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|n| (id(n), n)).collect();
    let name = |id: &str| packages[id]["name"].as_str().unwrap();
    let members = metadata["workspace_members"].as_array().unwrap().iter().map(|m| m.as_str().unwrap());
    let roots = members.filter(|m| SHIPPED.contains(&name(m)));
    let mut open: VecDeque<(String, String)> = roots.map(|root| (root.to_owned(), String::new())).collect();
    assert_eq!(open.len(), SHIPPED.len(), "the shipped packages are members");
    let mut found = BTreeMap::new();
    while let Some((at, from)) = open.pop_front() {
        let (package, node) = (packages[&at], nodes[&at]);
        let key = format!("{} {}", name(&at), package["version"].as_str().unwrap());
        if found.contains_key(&key) {
            continue;
        }
        let deps: Vec<&Value> = node["deps"].as_array().unwrap().iter().collect();
        let is = |dep: &Value, kind: Value| dep["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"] == kind);
        let builds = deps.iter().any(|dep| {
            let names = ["cc", "cmake", "pkg_config", "vcpkg", "bindgen", "cxx_build", "autotools"];
            is(dep, "build".into()) && names.contains(&dep["name"].as_str().unwrap())
        });
        let way = if from.is_empty() { key.clone() } else { format!("{from} -> {key}") };
        let follow = deps.iter().filter(|dep| is(dep, Value::Null) || is(dep, "build".into()));
        open.extend(follow.map(|dep| (dep["pkg"].as_str().unwrap().to_owned(), way.clone())));
        let features = node["features"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
        found.insert(key, Linked { package, features, builds, from: way });
    }
    found
}

/// A line for each crate that may not be linked in.
fn refused(metadata: &Value) -> Vec<String> {
    let all = linked(metadata);
    let wrong = all.values().filter(|l| !is_allowed(l.package["license"].as_str().unwrap_or("")));
    wrong
        .map(|l| {
            let text = |key: &str| l.package[key].as_str().unwrap_or("none named").to_owned();
            let (crate_name, version, licence) = (text("name"), text("version"), text("license"));
            format!("{crate_name} {version}: {licence}, from {}, by {}", text("source"), l.from)
        })
        .collect()
}

#[test]
fn every_crate_that_is_linked_in_has_a_permissive_licence() {
    let metadata = metadata();
    let all = linked(&metadata);
    assert!(all.len() > 60 && all.keys().any(|k| k.starts_with("libbpf-rs ")), "{:?}", all.keys());
    let refused = refused(&metadata);
    assert!(
        refused.is_empty(),
        "licences that are not in the list of tests/licences.rs:\n{}\nhelp: use another crate; a licence is added only \
         if it is permissive",
        refused.join("\n")
    );
}

#[test]
fn an_unlisted_licence_is_told_with_its_crate() {
    for (licence, said) in [(Value::from("LGPL-2.1-only"), "LGPL-2.1-only"), (Value::Null, "none named")] {
        let mut metadata = metadata();
        let packages = metadata["packages"].as_array_mut().unwrap();
        packages.iter_mut().find(|p| p["name"] == "libbpf-rs").unwrap()["license"] = licence;
        let told = refused(&metadata);
        assert_eq!(told.len(), 1, "{told:?}");
        let line = &told[0];
        assert!(line.starts_with("libbpf-rs 0.") && line.contains(&format!(": {said}, from registry+")), "{line}");
        assert!(line.contains(", by vmio 0.") && line.contains(" -> libbpf-rs 0."), "{line}");
    }
}

#[test]
fn expressions_are_read_as_spdx_has_them() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "LGPL-2.1-only OR BSD-2-Clause",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        "GPL-3.0-only OR (MIT AND Zlib)",
        "MIT OR GPL-2.0-only AND GPL-3.0-only",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in [
        "",
        "LGPL-2.1-only",
        "MIT AND LGPL-3.0-or-later",
        "(MIT OR GPL-3.0-only) AND MPL-2.0",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "MIT WITH Made-up-exception",
        "MIT OR",
        "(MIT",
        "MIT)",
        "MIT Apache-2.0",
        "LicenseRef-own",
    ] {
        assert!(!is_allowed(bad), "{bad}");
    }
}

/// No crate says of itself what the C code is under that it brings or asks the system for.
#[test]
fn code_in_other_languages_is_named_with_its_licence() {
    let metadata = metadata();
    let docs = fs_text(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/licences.md"));
    let all = linked(&metadata);
    let without = |name: &str, linked: &Linked<'_>| {
        let mut known = WITHOUT.iter().filter(|(crate_name, _)| *crate_name == name);
        known.any(|(_, features)| !features.iter().any(|f| linked.features.contains(f)))
    };
    let native: BTreeMap<&str, &Linked<'_>> = all
        .values()
        .filter(|l| l.builds || !l.package["links"].is_null())
        .map(|l| (l.package["name"].as_str().unwrap(), l))
        .filter(|(name, linked)| !without(name, linked))
        .collect();
    let known: Vec<&str> = NATIVE.iter().map(|n| n.0).collect();
    assert_eq!(native.keys().copied().collect::<Vec<_>>(), known, "crates that build or link C code");
    for (name, brings, licence, file, words) in NATIVE {
        let manifest = native[name].package["manifest_path"].as_str().unwrap();
        let text = fs_text(Path::new(manifest).with_file_name(file).to_str().unwrap());
        assert!(text.contains(words), "{name}: {file} no longer says `{words}`");
        let row = docs.lines().find(|l| l.starts_with(&format!("| {brings} ")));
        let row = row.unwrap_or_else(|| panic!("docs/licences.md has no row for {brings}"));
        assert!(row.contains(name) && row.contains(licence), "{row}");
    }
    for (name, with, without) in FEATURES {
        let features = &native[name].features;
        assert!(with.iter().all(|f| features.contains(f)), "{name}: {features:?}");
        assert!(!without.iter().any(|f| features.contains(f)), "{name} links more into the binary: {features:?}");
    }
}

/// What the binary of this build asks of the system.
#[test]
fn shared_libraries_are_named_with_their_licences() {
    let docs = fs_text(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/licences.md"));
    for library in SHARED {
        assert!(docs.contains(library), "docs/licences.md does not name {library}");
    }
    let Ok(output) = Command::new("readelf").args(["-d", env!("CARGO_BIN_EXE_vmio")]).env("LC_ALL", "C").output()
    else {
        skip("no readelf here");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let needed = text.lines().filter(|l| l.contains("(NEEDED)"));
    let needed: Vec<&str> = needed.filter_map(|l| l.split_once('[')?.1.strip_suffix(']')).collect();
    assert!(needed.iter().any(|n| n.starts_with("libc.so")), "{text}");
    for name in needed {
        assert!(SHARED.iter().any(|known| name.starts_with(known)), "vmio is linked to {name}, which nobody named");
    }
}

fn fs_text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}
