//! A scan of a made-up host in every form. The golden texts of `tests/fixtures/scan` are written
//! anew by `cargo run -p vmio --example fixture_scan crates/vmio/tests/fixtures/scan`.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::page::balanced;
use common::scan::{finding, view};
use serde_json::Value;
use vmio::cmd::scan::exit;
use vmio::cmd::scan::pick::{Ignore, ignored, named, own};
use vmio::report::scan::nagios::{State, nagios};
use vmio::report::scan::{Row, View, detail, html, json, overview, prometheus};
use vmio::term::Style;
use vmio_model::facts::{Fact, Guest, Subject, Unread};
use vmio_model::failure::{Exit, Failure};
use vmio_model::rules::Severity;

fn row<'a>(view: &'a View, name: &str) -> &'a Row {
    view.rows.iter().find(|r| r.guest.name == name).unwrap()
}

fn empty(unread: &[(&str, &str)]) -> View {
    let unread =
        unread.iter().map(|(what, mend)| Unread { what: (*what).into(), why: "denied".into(), mend: (*mend).into() });
    View { rows: Vec::new(), unread: unread.collect(), own_guests: 0, ignored: 0, ignored_by: Vec::new(), ..view() }
}

#[test]
fn the_texts_are_as_they_were() {
    let view = view();
    for (file, golden, now) in [
        ("scan-80.txt", include_str!("fixtures/scan/scan-80.txt"), overview(&view, Style::PLAIN, 80)),
        ("scan-120.txt", include_str!("fixtures/scan/scan-120.txt"), overview(&view, Style::PLAIN, 120)),
        ("bare.txt", include_str!("fixtures/scan/bare.txt"), detail(row(&view, "bare"), Style::PLAIN, false)),
        ("web1.txt", include_str!("fixtures/scan/web1.txt"), detail(row(&view, "web1"), Style::PLAIN, true)),
        (
            "files-2022.txt",
            include_str!("fixtures/scan/files-2022.txt"),
            detail(row(&view, "files-2022"), Style::PLAIN, false),
        ),
        ("nagios.txt", include_str!("fixtures/scan/nagios.txt"), nagios(&view, None).0),
        ("scan.prom", include_str!("fixtures/scan/scan.prom"), prometheus(&view)),
    ] {
        assert_eq!(now, golden, "{file}");
    }
}

#[test]
fn the_overview_fits_every_terminal_and_has_a_line_a_guest() {
    let mut view = view();
    view.rows[1].guest.name = "a-very-long-name-of-a-guest-as-openstack-makes-them-0000012f".into();
    for width in 60..=180 {
        let text = overview(&view, Style::PLAIN, width);
        for line in text.lines().filter(|l| !l.starts_with("  vmio ")) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let table: Vec<&str> =
            text.lines().skip_while(|l| !l.starts_with("guest ")).take_while(|l| !l.is_empty()).collect();
        assert_eq!(table.len(), view.rows.len() + 1, "{text}");
        assert!(
            table[1].starts_with("bare") && table[1].contains("severe") && table[6].contains("could not"),
            "{text}"
        );
    }
    // Colours change nothing but the colours.
    let mut coloured = overview(&view, Style::COLOUR, 100);
    assert!(coloured.contains("\u{1b}[31;1msevere"));
    while let Some(at) = coloured.find('\u{1b}') {
        let end = at + coloured[at..].find('m').unwrap();
        coloured.replace_range(at..=end, "");
    }
    let lines = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&coloured), lines(&overview(&view, Style::PLAIN, 100)));
}

#[test]
fn a_guest_is_told_its_own_managers_change_alone_and_a_page_has_all() {
    let view = view();
    for (name, own, others) in [
        ("bare", "QEMU     -object", ["<disk", "qm set"]),
        ("web1", "libvirt  <iothreads>", ["-device", "qm set"]),
        ("101", "Proxmox  qm set", ["<disk", "-device"]),
        ("pay-7", "libvirt  <iothreads>", ["-device", "qm set"]),
    ] {
        let text = detail(row(&view, name), Style::PLAIN, false);
        assert!(text.contains(own), "{text}");
        assert!(others.iter().all(|o| !text.contains(o)), "{text}");
        assert_eq!(text.contains("KubeVirt writes this XML itself"), name == "pay-7", "{text}");
    }
    let one = View { rows: vec![row(&view, "101").clone()], ..view };
    let page = html(&one);
    for way in ["<dt>Proxmox</dt><dd><pre", "<dt>QEMU</dt><dd><pre", "<dt>libvirt</dt><dd><pre"] {
        assert!(page.contains(way), "{way}");
    }
    assert!(page.find("<dt>Proxmox</dt>").unwrap() < page.find("<dt>QEMU</dt>").unwrap(), "its own comes first");
}

#[test]
fn every_form_has_evidence_expectation_and_when_it_takes_effect() {
    let view = view();
    let json: serde_json::Value = serde_json::from_str(&json(&view)).unwrap();
    let text = detail(row(&view, "bare"), Style::PLAIN, false);
    for form in [text.split_whitespace().collect::<Vec<_>>().join(" "), html(&view)] {
        assert!(form.contains("9.4 times faster") && form.contains("run 12 on this host, 2026-11-21"), "{form}");
        assert!(form.contains("driver = lsi53c895a") && form.contains("read from /proc/802/cmdline"));
        assert!(form.contains("after the guest is shut down and started"));
        assert!(form.contains("the reference has virtio-blk"));
    }
    let bare = &json["guests"][0];
    assert_eq!((bare["name"].as_str(), bare["own_way"].as_str()), (Some("bare"), Some("qemu")));
    assert_eq!(bare["findings"][0]["expected"]["times"], 9.4);
    assert_eq!(bare["findings"][0]["change"]["takes"], "next-start");
    assert_eq!(bare["disks"][0]["driver"], "lsi53c895a");
    assert_eq!(bare["differences_to_reference"].as_array().unwrap().len(), 1);
    let web = &json["guests"][1];
    assert_eq!(web["disks"][0]["read"]["cache"], "/proc/804/cmdline, -blockdev");
    assert_eq!((json["unread"].as_array().unwrap().len(), json["seconds"].as_f64()), (1, Some(0.412)));
}

#[test]
fn the_page_loads_nothing_and_hostile_names_stay_text() {
    let nasty = "<script>alert('x')</script> \"quoted\" & | \\ `code`\nline";
    let mut view = view();
    let guest = &mut view.rows[0].guest;
    guest.name = nasty.into();
    guest.ids.insert(nasty.into(), nasty.into());
    guest.disks[0].subject = Subject::disk(nasty, nasty);
    guest.disks[0].cache = Some(nasty.into()).into();
    guest.unread.push(Unread { what: nasty.into(), why: nasty.into(), mend: nasty.into() });
    view.rows[0].findings[0].cause = nasty.into();
    view.rows[0].findings[0].change.qemu = nasty.into();
    view.rows[0].differences = vec![nasty.into()];
    let page = html(&view);
    for loader in ["src=", "<link", "<script", "url(", "@import", "<iframe", "<img", "<object"] {
        assert!(!page.contains(loader), "{loader}");
    }
    assert!(page.matches("href=").count() == page.matches("href=\"#g").count() && page.contains("default-src 'none'"));
    balanced(&page);
    let (plugin, _) = nagios(&view, None);
    assert!(plugin.lines().enumerate().all(|(i, l)| l.matches('|').count() == usize::from(i == 0)), "{plugin}");
    lint(&prometheus(&view));
}

#[test]
fn a_terminal_is_given_no_control_characters_of_others() {
    let nasty = "web\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}5m\nguest  kind";
    let mut view = view();
    let guest = &mut view.rows[0].guest;
    guest.name = nasty.into();
    guest.version = Some(nasty.into());
    guest.ids.insert("title".into(), nasty.into());
    guest.disks[0].subject = Subject::disk(nasty, nasty);
    guest.disks[0].place.source = Some(nasty.into()).into();
    guest.disks[0].driver = Fact::read(Some(nasty.into()), nasty);
    guest.unread.push(Unread { what: nasty.into(), why: nasty.into(), mend: nasty.into() });
    let finding = &mut view.rows[0].findings[0];
    (finding.subject, finding.change.qemu) = (Subject::disk(nasty, nasty).into(), nasty.into());
    (finding.evidence[0].value, finding.evidence[0].from) = (nasty.into(), nasty.into());
    view.rows[0].differences = vec![nasty.into()];
    view.unread.push(Unread { what: nasty.into(), why: nasty.into(), mend: nasty.into() });
    let texts = [
        overview(&view, Style::PLAIN, 100),
        detail(&view.rows[0], Style::PLAIN, false),
        detail(&view.rows[0], Style::PLAIN, true),
        nagios(&view, None).0,
        prometheus(&view),
    ];
    for text in texts {
        assert!(text.contains("owned") && !text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert!(text.lines().all(|l| !l.starts_with("guest  kind")), "a name makes no line: {text}");
    }
    let coloured = overview(&view, Style::COLOUR, 100) + &detail(&view.rows[0], Style::COLOUR, true);
    assert!(!coloured.contains("\u{1b}]") && !coloured.contains("\u{1b}[2J") && !coloured.contains('\u{7}'));
    lint(&prometheus(&view));
    let exact: serde_json::Value = serde_json::from_str(&json(&view)).unwrap();
    assert_eq!(exact["guests"][0]["name"], nasty);
}

#[test]
fn one_thing_is_not_several() {
    let view = View { own_guests: 1, ignored: 1, ignored_by: vec![("--ignore".into(), 1)], rows: Vec::new(), ..view() };
    let text = overview(&view, Style::PLAIN, 100);
    assert!(text.contains("1 finding by --ignore") && !text.contains("1 findings"), "{text}");
}

/// What `promtool check metrics` asks of a file, and the format itself.
fn lint(text: &str) {
    assert!(text.ends_with('\n'));
    let (mut known, mut series) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !known.contains(&name), "{line}");
            assert!(
                name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && name.starts_with("vmio_scan_"),
                "{line}"
            );
            for unit in
                ["_ms", "_milliseconds", "_kb", "_percent", "_minutes", "_gauge", "_total", "_count", "_sum", "_bucket"]
            {
                assert!(!name.ends_with(unit), "{line}");
            }
            known.push(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(Some(rest), known.last().map(|name| format!("{name} gauge")).as_deref());
        } else {
            let (id, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = id.split_once('{').unwrap_or((id, "}"));
            assert_eq!(known.last(), Some(&name), "samples follow their family");
            assert!(value.parse::<f64>().unwrap().is_finite() && !series.contains(&id), "{line}");
            // Outside of escapes, quotes stand at both ends of a value alone.
            let bare = labels.strip_suffix('}').unwrap().replace("\\\\", "").replace("\\\"", "").replace("\\n", "");
            assert!(!bare.contains('\\'), "{line}");
            assert_eq!(bare.matches('"').count(), 2 * bare.matches("=\"").count(), "{line}");
            series.push(id);
        }
    }
    assert_eq!(known.len(), 6);
}

#[test]
fn two_findings_of_one_rule_are_one_series() {
    let mut view = view();
    lint(&prometheus(&view));
    let twin = view.rows[0].findings[0].clone();
    view.rows[0].findings.push(twin);
    let text = prometheus(&view);
    lint(&text);
    assert!(text.contains("rule=\"emulated-driver\",severity=\"severe\"} 2\n"), "{text}");
}

#[test]
fn the_plugins_state_is_that_of_the_worst_finding() {
    let with = |severity: Option<Severity>, fail_on: Option<Severity>| {
        let mut view = view();
        view.rows.retain(|r| r.guest.name == "bare");
        let row = &mut view.rows[0];
        let change = row.findings[0].change.clone();
        row.findings = severity.map(|s| finding(&row.guest, "emulated-driver", "x", s, change)).into_iter().collect();
        let (text, state) = nagios(&view, fail_on);
        let word = text.split(['|', ':']).next().unwrap().to_owned();
        (word, state as u8, Exit::Plugin(state as u8).code())
    };
    let state = |severity| with(severity, None);
    let said = |word: &str, code| (format!("VMIO SCAN {word}"), code, code);
    assert_eq!(state(None), said("OK", 0));
    assert_eq!(state(Some(Severity::Note)), said("OK", 0));
    assert_eq!(state(Some(Severity::Advice)), said("OK", 0));
    assert_eq!(state(Some(Severity::Warning)), said("WARNING", 1));
    assert_eq!(state(Some(Severity::Severe)), said("CRITICAL", 2));
    assert_eq!(with(Some(Severity::Advice), Some(Severity::Advice)), said("WARNING", 1));
    assert_eq!(with(Some(Severity::Warning), Some(Severity::Severe)), said("OK", 0));
    assert_eq!(with(Some(Severity::Severe), Some(Severity::Severe)), said("CRITICAL", 2));
    // No guest is no fault, unless something kept it from seeing one.
    assert_eq!(nagios(&empty(&[]), None).1, State::Ok);
    let unseen = empty(&[("libvirt", "run as root")]);
    let (text, state) = nagios(&unseen, None);
    assert!(state == State::Unknown && text.contains("no guest that this user can see"), "{text}");
    let (text, state) = nagios(&View { root: true, ..unseen }, None);
    assert!(state == State::Ok && text.contains("0 guests, nothing found, 1 thing could not be read"), "{text}");
    let mut blind = view();
    blind.rows.retain(|r| r.guest.name == "builder");
    assert_eq!(nagios(&blind, None).1, State::Unknown);
}

#[test]
fn the_plugins_lines_have_the_severe_findings_first_and_unread_things_last() {
    let mut view = view();
    let note = row(&view, "pay-7").findings[0].clone();
    view.rows[0].findings = vec![note; 30];
    view.rows.reverse();
    let worst = view.rows.iter().position(|r| r.guest.name == "web1").unwrap();
    view.rows[worst].findings[0].severity = Severity::Severe;
    let (text, _) = nagios(&view, None);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert!(lines[0].starts_with("web1: severe: ") && lines.len() == 26, "{text}");
    assert!(lines[25].starts_with("and ") && lines[25].contains(" more: vmio scan"), "{text}");
    assert!(lines[..25].iter().all(|l| !l.starts_with("not read: ")), "{text}");
}

#[test]
fn a_host_without_guests_is_told_what_was_looked_for_and_what_to_do() {
    let text = overview(&empty(&[("libvirt's socket", "run as root")]), Style::PLAIN, 100);
    assert!(text.starts_with("No guest on this host is visible to this user.\nLooked for: qemu"), "{text}");
    assert!(text.contains("Not visible without root: libvirt's socket") && text.contains("vmio tax"), "{text}");
    let root = overview(&View { root: true, ..empty(&[]) }, Style::PLAIN, 100);
    assert!(root.starts_with("No guest runs on this host.\n") && !root.contains("root more"), "{root}");
}

#[test]
fn guests_are_found_by_what_people_call_them() {
    let guests: Vec<Guest> = view().rows.into_iter().map(|r| r.guest).collect();
    let find = |word: &str| {
        let found = named(guests.clone(), false, &[word.to_owned()])?;
        Ok::<_, Failure>(found.into_iter().map(|g| g.name).collect::<Vec<_>>())
    };
    for (word, name) in [
        ("web1", "web1"),
        ("101", "101"),
        ("mail", "101"),
        ("4711", "builder"),
        ("5f2b0006", "files-2022"),
        ("5F2B0006-7C11", "files-2022"),
        ("virt-launcher-pay-7-x2x9l", "pay-7"),
    ] {
        assert_eq!(find(word).unwrap(), [name], "{word}");
    }
    assert_eq!(find("5f2b").unwrap().len(), 5, "a beginning that several have");
    assert_eq!(named(guests.clone(), false, &[]).unwrap().len(), 6);
    let unknown = find("web2").unwrap_err();
    assert_eq!(unknown.exit, Exit::Usage);
    let help = unknown.help.unwrap();
    assert!(help.contains("did you mean web1?") && help.contains("builder"), "{help}");
    assert!(find("5f2").is_err(), "too short for a UUID");
    assert!(find("/var/x.prom").unwrap_err().help.unwrap().contains("--prometheus=FILE"));
}

#[test]
fn a_number_that_is_no_name_names_nobody_and_a_vm_number_beats_a_pid() {
    let mut guests: Vec<Guest> = view().rows.into_iter().map(|r| r.guest).collect();
    let find = |guests: &[Guest], word: &str| {
        let found = named(guests.to_vec(), false, &[word.to_owned()]).ok()?;
        Some(found.into_iter().map(|g| g.name).collect::<Vec<_>>())
    };
    let builder = guests.iter().position(|g| g.name == "builder").unwrap();
    guests[builder].ids.insert("processes".into(), "17".into());
    guests[0].ids.insert("monitor_held_ms".into(), "3".into());
    assert_eq!((find(&guests, "17"), find(&guests, "3")), (None, None));
    assert_eq!(find(&guests, "4711"), Some(vec!["builder".to_owned()]), "its pid");
    let pve = guests.iter().position(|g| g.name == "101").unwrap();
    guests[pve].ids.insert("vmid".into(), "4711".into());
    assert_eq!(find(&guests, "4711"), Some(vec!["101".to_owned()]));
}

#[test]
fn vmios_own_guests_are_left_out_unless_they_are_wanted() {
    let mut guests: Vec<Guest> = view().rows.into_iter().map(|r| r.guest).collect();
    guests[2].ids.insert("owner".into(), "vmio".into());
    let name = guests[2].name.clone();
    let (shown, left_out) = own(guests.clone(), false, &[]);
    assert_eq!((shown.len(), left_out), (5, 1));
    assert!(shown.iter().all(|g| g.name != name));
    assert_eq!(own(guests.clone(), true, &[]).1, 0);
    assert_eq!(own(guests.clone(), false, std::slice::from_ref(&name)).1, 0);
    // Whoever is shown to run is what a wrong name is told of.
    let help = |guests: &[Guest], all: bool| named(guests.to_vec(), all, &["nosuch".into()]).unwrap_err().help.unwrap();
    assert!(!help(&guests, false).contains(&name) && help(&guests, true).contains(&name));
    let alone = vec![guests.remove(2)];
    assert!(!help(&alone, false).contains("these run") && help(&alone, false).contains("vmio scan --all"));
    assert!(help(&alone, true).contains(&format!("these run: {name}")));
    let nobody = overview(&View { root: true, own_guests: 1, ..empty(&[]) }, Style::PLAIN, 100);
    assert!(nobody.starts_with("No guest runs on this host but vmio's own.\n"), "{nobody}");
}

/// It is a measurement itself: `vmio tax --like` refuses it.
#[test]
fn nobody_is_told_to_measure_like_a_guest_of_vmios_own() {
    let mut view = view();
    view.rows.retain(|row| row.guest.kind == "qemu" && row.worst().is_some_and(|f| f.expected.is_none()));
    view.rows.truncate(1);
    let texts = |view: &View| [overview(view, Style::PLAIN, 80), detail(&view.rows[0], Style::PLAIN, false)];
    assert!(texts(&view).iter().all(|text| text.contains("vmio tax --like")));
    view.rows[0].guest.ids.insert("owner".into(), "vmio".into());
    for text in texts(&view) {
        assert!(!text.contains("--like"), "{text}");
    }
}

#[test]
fn rules_are_ignored_everywhere_or_in_one_guest() {
    let left = |words: &[&str]| {
        let mut rows = view().rows;
        let ignore: Vec<Ignore> = words.iter().map(|w| w.parse().unwrap()).collect();
        let n = ignored(&mut rows, &ignore);
        (n, rows.iter().map(|r| r.findings.len()).sum::<usize>())
    };
    assert_eq!(left(&[]), (0, 6));
    assert_eq!(left(&["emulated-driver"]), (2, 4));
    assert_eq!(left(&["emulated-driver@bare"]), (1, 5));
    assert_eq!(left(&["no-discard@101", "sparse-file"]), (2, 4));
    assert_eq!(left(&["no-discard@999"]), (0, 6), "a guest that does not run now");
    let unknown = "emulated-drivr@bare".parse::<Ignore>().unwrap_err();
    assert_eq!((unknown.exit, unknown.help.as_deref()), (Exit::Usage, Some("did you mean emulated-driver?")));
}

#[test]
fn the_exit_code_follows_fail_on() {
    let mut view = view();
    let code = |view: &View, least| exit(view, least).code();
    assert_eq!(code(&view, None), 0);
    assert_eq!(Severity::ALL.map(|s| code(&view, Some(s))), [5; 4]);
    view.rows.retain(|r| r.guest.name != "bare" && r.guest.name != "web1");
    assert_eq!(Severity::ALL.map(|s| code(&view, Some(s))), [5, 5, 0, 0]);
}

#[test]
fn the_rules_are_asked_about_a_guest() {
    let view = view();
    let asked = Row::of(row(&view, "bare").guest.clone());
    assert!(
        asked.findings.iter().any(|f| f.rule == "emulated-driver" && f.subject.to_string() == "guest bare, disk vda")
    );
}

/// What is the host's is told once, and each guest keeps its own.
#[test]
fn emulation_is_told_once_for_the_host() {
    let mut view = view();
    let one = view.rows[0].findings[0].clone();
    let emulated = |name: &str| vmio_model::rules::Finding {
        rule: "emulation-though-kvm".into(),
        title: "Software emulation".into(),
        severity: vmio_model::rules::Severity::Warning,
        subject: Subject::guest(name).into(),
        ..one.clone()
    };
    for row in &mut view.rows {
        row.findings.insert(0, emulated(&row.guest.name));
    }
    let said = overview(&view, Style::PLAIN, 100);
    assert_eq!(said.matches("oftware emulation").count(), 1, "{said}");
    let (plugin, _) = nagios(&view, None);
    assert_eq!(plugin.matches("oftware emulation").count(), 1, "{plugin}");
    let json: Value = serde_json::from_str(&json(&view)).unwrap();
    assert_eq!(json["host_findings"][0]["guests"].as_array().unwrap().len(), view.rows.len());
    let kept = json["guests"].as_array().unwrap();
    assert!(kept.iter().all(|g| g["findings"][0]["rule"] == "emulation-though-kvm"), "each guest has it still");
    // Of one guest it is the guest's.
    for row in view.rows.iter_mut().skip(1) {
        row.findings.remove(0);
    }
    assert!(view.host_wide().is_empty() && overview(&view, Style::PLAIN, 100).contains("emulation-though-kvm"));
}
