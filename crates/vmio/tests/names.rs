//! Names are not taken apart: a guest named `a, b` with a disk named `x, y` is told of as one with plain names is,
//! in every output of `vmio scan`, in its comparison with an earlier scan and in what it leaves out.
#![allow(clippy::unwrap_used)]

use crate::help::state_dir::unfolded;

use vmio::cmd::scan::pick::{Ignore, ignored};
use vmio::report::scan::diff::{self, Diff, Earlier};
use vmio::report::scan::{Row, View, detail, html, json, nagios, overview};
use vmio::run::like::differences;
use vmio::term::Style;
use vmio_model::facts::{Details, Disk, Guest, Nic, Processors, Provenance, Subject};
use vmio_model::study::Resources;

/// What could be mistaken for two names or for words of vmio's own, each with a plain name of its length.
const NAMES: [(&str, &str); 5] = [
    ("a, b", "aqqb"),
    ("x, y", "xqqy"),
    ("z, disk vda", "zqqdiskqvda"),
    ("n, net tap0", "nqqnetqtap0"),
    ("v d, net x", "vqdqqnetqx"),
];

/// A guest with findings that rest on several of its devices: one queue though it has four vCPUs, and two disks
/// on one I/O thread.
fn guest(names: [&str; 5]) -> Guest {
    let from = Provenance::Live { guest: names[0].into(), read_from: "/proc/8/cmdline".into(), at_unix_seconds: 1.0 };
    let disk = |name: &str| Disk {
        driver: "virtio-blk".into(),
        cache: "none".into(),
        aio: "native".into(),
        iothread: Some(true).into(),
        details: Details {
            queues: Some(1).into(),
            iothread_name: "io0".into(),
            format: "qcow2".into(),
            ..Details::default()
        },
        ..Disk::unknown(Subject::disk(names[0], name), from.clone())
    };
    let nic = |name: &str| Nic {
        model: "e1000".into(),
        backend: "tap".into(),
        ..Nic::unknown(Subject::net(names[0], name), from.clone())
    };
    let processors =
        Processors { vcpus: Some(4).into(), ..Processors::unknown(Subject::guest(names[0]), from.clone()) };
    Guest {
        name: names[0].into(),
        kind: "qemu".into(),
        pid: Some(8),
        disks: vec![disk(names[1]), disk(names[2])],
        nics: vec![nic(names[3]), nic(names[4])],
        processors: Some(processors),
        ..Guest::default()
    }
}

fn view(names: [&str; 5]) -> View {
    let mut row = Row::of(guest(names));
    row.differences = differences(&row.guest, Resources { vcpus: 1, memory_mib: 512 });
    View {
        on: None,
        at_unix_seconds: 1.0,
        seconds: 0.1,
        root: true,
        rows: vec![row],
        unread: Vec::new(),
        own_guests: 0,
        ignored: 0,
        ignored_by: Vec::new(),
        diff: None,
    }
}

fn hard() -> View {
    view(NAMES.map(|(hard, _)| hard))
}

fn plain() -> View {
    view(NAMES.map(|(_, plain)| plain))
}

/// A text with the names exchanged and lines broken nowhere.
fn flat(text: &str) -> String {
    // Quotes of a shell may differ.
    let named = NAMES.iter().fold(text.to_owned(), |text, (hard, plain)| {
        text.replace(plain, hard).replace(&format!("'{hard}'"), hard).replace(&format!("&#39;{hard}&#39;"), hard)
    });
    unfolded(&named)
}

fn same(what: &str, output: &dyn Fn(&View) -> String) {
    assert_eq!(flat(&output(&hard())), flat(&output(&plain())), "{what}");
}

fn earlier(view: &View) -> Earlier {
    serde_json::from_str(&json(view)).unwrap()
}

#[test]
fn every_rule_finds_what_it_finds_under_plain_names() {
    let rules = |view: View| view.rows[0].findings.iter().map(|f| f.rule.clone()).collect::<Vec<_>>();
    assert!(rules(plain()).contains(&"single-queue".to_owned()) && rules(plain()).contains(&"shared-iothread".into()));
    assert_eq!(rules(hard()), rules(plain()));
}

#[test]
fn every_output_says_what_it_says_under_plain_names() {
    same("overview", &|view| overview(view, Style::PLAIN, 100));
    same("one guest", &|view| detail(&view.rows[0], Style::PLAIN, true));
    same("JSON", &json);
    // Where it can be broken depends on the letters around a sign.
    same("page", &|view| html(view).replace("<wbr>", ""));
    same("plugin", &|view| nagios::nagios(view, None).0);
}

#[test]
fn an_earlier_scan_is_compared_device_by_device() {
    let as_before = Diff::of(&hard().rows, &earlier(&hard()), "last");
    assert!(as_before.new.is_empty() && as_before.gone.is_empty() && as_before.changed.is_empty(), "{as_before:#?}");
    let less = |mut view: View| {
        let before = earlier(&view);
        let left = view.rows[0].findings.len() / 2;
        view.rows[0].findings.truncate(left);
        let diff = Diff::of(&view.rows, &before, "last");
        diff::text(&view, &diff, Style::PLAIN)
    };
    assert_eq!(flat(&less(hard())), flat(&less(plain())));
    assert!(flat(&less(hard())).contains("gone a, b, "), "{}", less(hard()));
}

/// A twin came, so that the guest is called otherwise: what is gone is still of one of its devices.
#[test]
fn what_is_gone_of_a_renamed_guest_names_its_device() {
    for (name, disk, before) in [("a, b", "x, y", hard()), ("aqqb", "xqqy", plain())] {
        let mut now = view([&format!("{name} (pid 8)"), disk, "vdb", "tap0", "tap1"]);
        now.rows[0].guest.ids.insert("name".into(), name.into());
        now.rows[0].findings.clear();
        let diff = Diff::of(&now.rows, &earlier(&before), "last");
        assert_eq!((diff.guests_new.len(), diff.guests_gone.len()), (0, 0), "{diff:#?}");
        let said = unfolded(&diff::text(&now, &diff, Style::PLAIN));
        assert!(said.contains(&format!("{name} (pid 8), disk {disk}: ")), "{said}");
    }
}

#[test]
fn what_is_left_out_of_one_guest_is_left_out_of_it_alone() {
    let word = |word: &str| word.parse::<Ignore>().unwrap();
    let left_out = |name: &str| ignored(&mut hard().rows, &[word(&format!("single-queue@{name}"))]);
    assert_eq!((left_out("a, b"), left_out("a"), left_out("b")), (2, 0, 0));
}
