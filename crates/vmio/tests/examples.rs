//! The worked examples on the pages of the extension points. What a page shows is compiled: it is a file `example.rs`
//! of its folder, which that folder's contract test holds to what it holds the entries to.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What begins a block of a page that names its file.
const SHOWN: &str = "```rust crates/";

#[test]
fn what_a_page_shows_is_what_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut shown = BTreeSet::new();
    for page in fs::read_dir(root.join("docs")).unwrap().map(|e| e.unwrap().path()) {
        if page.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split(SHOWN).skip(1) {
            let (name, block) = block.split_once('\n').unwrap();
            let code = block.split_once("\n```").unwrap().0;
            let there = fs::read_to_string(root.join("crates").join(name)).unwrap_or_default();
            // Of a file that is no example a part is shown.
            let same = if is_example(name) { there == format!("{code}\n") } else { there.contains(code) };
            assert!(same, "{} shows of crates/{name} what is not there", page.display());
            shown.insert(name.to_owned());
        }
    }
    let mut there = BTreeSet::new();
    examples(&root.join("crates"), "", &mut there);
    assert_eq!(shown.into_iter().filter(|name| is_example(name)).collect::<BTreeSet<String>>(), there);
}

fn is_example(name: &str) -> bool {
    name.ends_with("/example.rs")
}

/// Names of all examples below a directory, which has this name itself.
fn examples(dir: &Path, name: &str, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = format!("{name}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            examples(&entry.path(), &format!("{name}/"), into);
        } else if is_example(&name) {
            into.insert(name);
        }
    }
}
