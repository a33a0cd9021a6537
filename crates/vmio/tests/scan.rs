//! A scan of a made-up host in every form. The golden texts of `tests/fixtures/scan` are written
//! anew by `cargo run -p vmio --example fixture_scan crates/vmio/tests/fixtures/scan`.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::fixture;

use std::fs;

use common::page::{is_only_coloured, is_ours};
use common::scan::{finding, golden, view};
use serde_json::Value;
use vmio::cmd::scan::exit;
use vmio::report::scan::nagios::{State, nagios};
use vmio::report::scan::{Row, View, brief, detail, html, json, not_read, overview, prometheus};
use vmio::term::Style;
use vmio_model::facts::{Guest, Remedy, Subject, Unread};
use vmio_model::failure::Exit;
use vmio_model::rules::change::{Above, ConfigTool, InFields};
use vmio_model::rules::{Change, Finding, Severity};

fn row<'a>(view: &'a View, name: &str) -> &'a Row {
    view.rows.iter().find(|r| r.guest.name == name).unwrap()
}

fn empty(unread: &[&str]) -> View {
    let unread = unread.iter().map(|what| Unread { what: (*what).into(), why: "denied".into(), mend: Remedy::Root });
    View { rows: Vec::new(), unread: unread.collect(), own_guests: 0, ignored: 0, ignored_by: Vec::new(), ..view() }
}

#[test]
fn the_texts_are_as_they_were() {
    for (file, now) in golden(&view()) {
        assert_eq!(now, fs::read_to_string(fixture(&format!("scan/{file}"))).unwrap(), "{file}");
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
    let coloured = overview(&view, Style::COLOUR, 100);
    assert!(coloured.contains("\u{1b}[31;1msevere"));
    is_only_coloured(&coloured, &overview(&view, Style::PLAIN, 100));
}

/// A line for each way to read more is too much where there are many.
#[test]
fn many_things_that_were_not_read_are_one_line() {
    let mut view = view();
    let one = |n: u32| Unread { what: format!("thing {n}"), why: "why".into(), mend: format!("do {n}").into() };
    view.unread.extend((0..4).map(one));
    let text = overview(&view, Style::PLAIN, 100);
    let folded = "Not read: 5 settings (vmio scan --verbose lists them)";
    assert!(text.contains("Not visible without root: ") && text.contains(folded), "{text}");
    assert!(!text.contains("thing 0"), "{text}");
    assert!(not_read(&view, Style::PLAIN, 100).contains("thing 0: why; do 0"));
}

#[test]
fn a_page_has_the_change_of_each_manager_the_guests_own_first() {
    let view = view();
    let page = html(&View { rows: vec![row(&view, "101").clone()], ..view });
    let at = ["Proxmox", "QEMU", "libvirt"].map(|way| page.find(&format!("<dt>{way}</dt><dd><pre")).unwrap());
    assert!(at[0] < at[1], "{at:?}");
}

/// KubeVirt writes the XML itself, so its own fields stand in the place of that.
#[test]
fn the_fields_of_what_writes_the_domain_come_first() {
    let mut view = view();
    let pay = view.rows.iter_mut().find(|r| r.guest.name == "pay-7").unwrap();
    let before = detail(pay, Style::PLAIN, false);
    let text = "devices.disks[root].io: native".to_owned();
    pay.findings[0].by_manager = Some(InFields { tool: Above::Kubevirt, text });
    let after = detail(pay, Style::PLAIN, false);
    assert!(before.contains("<iothreads>") && before.contains("KubeVirt writes this XML itself"), "{before}");
    assert!(!after.contains("<iothreads>") && !after.contains("KubeVirt writes this XML itself"), "{after}");
    assert!(after.contains("KubeVirt devices.disks[root].io: native"), "{after}");
    let json: Value = serde_json::from_str(&json(&view)).unwrap();
    let of = |guest: &Value| guest["name"] == "pay-7" && guest["findings"][0]["by_manager"]["tool"] == "kubevirt";
    assert!(json["guests"].as_array().unwrap().iter().any(of));
}

/// What no command of theirs sets is said so, and nobody else's way is shown for it.
#[test]
fn instances_of_incus_are_changed_by_its_client() {
    let bare = row(&view(), "bare").guest.clone();
    let own = Row::of(Guest { manager: Some("incus".into()), ..bare });
    assert_eq!(own.own_way().map(ConfigTool::name), Some("Incus"));
    assert!(own.together().is_empty());
    let several: Vec<&Finding> = own.findings.iter().filter(|found| found.change.ways().len() > 1).collect();
    let by_incus = |found: &&Finding| found.by_manager.as_ref().is_some_and(|fields| fields.tool == Above::Incus);
    assert!(!several.is_empty() && several.iter().all(by_incus), "{several:?}");
    let driver = own.findings.iter().find(|found| found.rule == "emulated-driver").unwrap();
    let text = &driver.by_manager.as_ref().unwrap().text;
    assert!(text.contains("incus config device set bare DEVICE io.bus=virtio-blk"), "{text}");
    for text in [detail(&own, Style::PLAIN, false), brief(&own, None, Style::PLAIN, 80)] {
        assert!(text.contains("Incus") && !text.contains("<driver") && !text.contains("qm set"), "{text}");
    }
}

#[test]
fn page_and_json_have_the_whole_finding() {
    let view = view();
    let page = html(&view).replace("<wbr>", "");
    assert!(page.contains("9.4 times faster") && page.contains("run 12 on this host, 2026-11-21"), "{page}");
    assert!(page.contains("driver = lsi53c895a") && page.contains("read from /proc/802/cmdline"), "{page}");
    assert!(page.contains("after the guest is shut down and started"), "{page}");
    assert!(page.contains("the reference has virtio-blk"), "{page}");
    let json: Value = serde_json::from_str(&json(&view)).unwrap();
    let bare = &json["guests"][0];
    assert_eq!((bare["name"].as_str(), bare["own_way"].as_str()), (Some("bare"), Some("qemu")));
    assert_eq!(bare["findings"][0]["expected"]["times"], 9.4);
    assert_eq!(bare["findings"][0]["change"]["takes"], "next-start");
    assert_eq!(bare["disks"][0]["driver"], "lsi53c895a");
    assert_eq!(bare["differences_to_reference"].as_array().unwrap().len(), 1);
    assert_eq!(json["guests"][1]["disks"][0]["read"]["cache"], "/proc/804/cmdline, -blockdev");
    assert_eq!((json["unread"].as_array().unwrap().len(), json["seconds"].as_f64()), (1, Some(0.412)));
}

#[test]
fn a_page_loads_nothing_and_hostile_names_stay_text() {
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
    is_ours(&page);
    assert!(!page.contains("url(") && !page.contains("@import") && page.contains("default-src 'none'"));
    assert_eq!(page.matches("href=").count(), page.matches("href=\"#g").count());
    let (plugin, _) = nagios(&view, None);
    assert!(plugin.lines().enumerate().all(|(i, l)| l.matches('|').count() == usize::from(i == 0)), "{plugin}");
    lint(&prometheus(&view));
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
            let foreign = [
                "_ms",
                "_milliseconds",
                "_kb",
                "_percent",
                "_minutes",
                "_gauge",
                "_total",
                "_count",
                "_sum",
                "_bucket",
            ];
            assert!(!foreign.iter().any(|end| name.ends_with(end)), "{line}");
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
    // No guest is fine, unless guests may have been hidden from this user.
    assert_eq!(nagios(&empty(&[]), None).1, State::Ok);
    let unseen = empty(&["libvirt"]);
    let (text, state) = nagios(&unseen, None);
    assert!(state == State::Unknown && text.contains("no guest that this user can see"), "{text}");
    let (text, state) = nagios(&View { root: true, ..unseen }, None);
    assert!(state == State::Ok && text.contains("0 guests, nothing found, 1 setting could not be read"), "{text}");
    let mut blind = view();
    blind.rows.retain(|r| r.guest.name == "builder");
    assert_eq!(nagios(&blind, None).1, State::Unknown);
}

#[test]
fn the_plugins_lines_begin_with_the_severe() {
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
fn a_host_without_guests_is_told_what_to_do() {
    let text = overview(&empty(&["libvirt's socket"]), Style::PLAIN, 100);
    assert!(text.starts_with("No guest on this host is visible to this user.\nLooked for: qemu"), "{text}");
    assert!(text.contains("Not visible without root: libvirt's socket") && text.contains("vmio tax"), "{text}");
    let root = overview(&View { root: true, ..empty(&[]) }, Style::PLAIN, 100);
    assert!(root.starts_with("No guest runs on this host.\n") && !root.contains("root more"), "{root}");
    let own = overview(&View { root: true, own_guests: 1, ..empty(&[]) }, Style::PLAIN, 100);
    assert!(own.starts_with("No guest runs on this host but vmio's own.\n"), "{own}");
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

/// They are told apart by what is to be done.
#[test]
fn two_causes_on_the_host_by_one_rule_are_two() {
    let mut view = view();
    let one = view.rows[0].findings[0].clone();
    for (n, row) in view.rows.iter_mut().enumerate() {
        let what = ["Load the module.", "Exchange the cable."][n % 2];
        let change = Change { what: what.into(), ..one.change.clone() };
        row.findings = vec![Finding { of_host: true, change, ..one.clone() }];
    }
    let wide = view.host_wide();
    assert_eq!((wide.len(), wide.iter().map(|w| w.guests.len()).sum::<usize>()), (2, view.rows.len()));
}

/// What is the host's is told once, and each guest keeps its own.
#[test]
fn emulation_is_told_once_for_the_host() {
    let mut view = view();
    let one = view.rows[0].findings[0].clone();
    let emulated = |name: &str| Finding {
        rule: "emulation-though-kvm".into(),
        title: "Software emulation".into(),
        severity: Severity::Warning,
        subject: Subject::guest(name).into(),
        of_host: true,
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
    assert_eq!(json["host_findings"][0]["what"], one.change.what.as_str());
    // Another card of the host's is another finding.
    let mut other = view.clone();
    other.rows[0].findings[0].change.what = "Something else.".into();
    assert_eq!(other.host_wide()[0].guests.len(), view.rows.len() - 1);
    // With one guest it is told there.
    for row in view.rows.iter_mut().skip(1) {
        row.findings.remove(0);
    }
    assert!(view.host_wide().is_empty() && overview(&view, Style::PLAIN, 100).contains("emulation-though-kvm"));
}
