//! Whole screens, compared line by line with what was looked at and found good, and screens of every
//! size, which must fit.

#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::Paragraph;
use vmio_model::top::load::*;
use vmio_model::top::process::OtherKind;
use vmio_model::top::{History, Latency};

use super::app::{App, View};
use super::columns::Set;
use super::opened::Opened;
use super::screen::Screen;
use super::{columns, view};
use crate::term::Style;

mod calls;

const VDA: Device = (254, 0);

fn transfer(requests: u64, bytes_each: u64, seconds_each: f64) -> Transfer {
    let mut latency = Latency::default();
    (0..requests).for_each(|_| latency.add((seconds_each * 1e6) as u64));
    Transfer {
        requests: Some(requests),
        bytes: requests * bytes_each,
        device_seconds: Some(requests as f64 * seconds_each),
        queued_seconds: Some(0.0),
        latency: Some(latency),
        ..Transfer::default()
    }
}

/// A number for each name.
fn pid(name: &str) -> u32 {
    name.bytes().map(u32::from).sum()
}

fn guest(name: &str, reads: Transfer, run: f64) -> GuestLoad {
    let cpu = CpuLoad {
        vcpus: 2,
        vcpu: ThreadTime { run_seconds: run, wait_seconds: run / 20.0 },
        io: ThreadTime { run_seconds: run / 4.0, wait_seconds: 0.0 },
        rest: ThreadTime { run_seconds: 0.02, wait_seconds: 0.0 },
        ..CpuLoad::default()
    };
    let side = |packets| Packets { packets, bytes: packets * 1250, dropped: 0 };
    GuestLoad {
        name: name.into(),
        kind: "qemu".into(),
        pid: Some(pid(name)),
        vmid: None,
        uuid: None,
        disk_source: DiskSource::Trace,
        disks: vec![DiskLoad { device: Some(VDA), reads, ..DiskLoad::default() }],
        nics: vec![NicLoad { interface: "tap0".into(), queue_packets: None, sent: side(100), received: side(2500) }],
        cpu: Some(cpu),
        ..GuestLoad::default()
    }
}

fn second(guests: Vec<GuestLoad>) -> Interval {
    let mut reads = Requests::default();
    for side in guests.iter().flat_map(|g| &g.disks).map(|d| &d.reads) {
        reads.requests += side.requests.unwrap();
        reads.bytes += side.bytes;
        reads.request_seconds += side.device_seconds.unwrap();
    }
    let writeback = DiskLoad { device: Some(VDA), writes: transfer(40, 65_536, 5e-3), ..DiskLoad::default() };
    Interval {
        seconds: 1.0,
        traced: true,
        devices: vec![DeviceLoad {
            name: "vda".into(),
            device: VDA,
            reads,
            busy_seconds: 1.0,
            ..DeviceLoad::default()
        }],
        guests,
        others: vec![OtherLoad {
            kind: OtherKind::Writeback,
            name: "kworker/u8:1+flush-254:0".into(),
            pid: 0,
            disks: vec![writeback],
        }],
        journals: vec![],
        host_cpu: HostCpu { cpus: 4, busy_seconds: 2.0, stolen_seconds: 0.0, stalled_ratio: Some(0.12) },
        host_memory: HostMemory::default(),
        processes: None,
        uplinks: vec![],
        notes: vec!["could not read monitor of web1: permission denied; run as root".into()],
    }
}

/// A flooder and its victim, after a quiet moment.
fn screen() -> Screen {
    let mut history = History::default();
    history.remember(&second(vec![guest("db", transfer(5000, 4096, 90e-6), 0.5)]));
    let flooded = second(vec![
        guest("db", transfer(200, 4096, 4e-3), 0.1),
        guest("flood", transfer(7800, 4096, 4e-3), 1.2),
        guest("web1", transfer(0, 0, 0.0), 0.3),
    ]);
    Screen::of(&flooded, &history, "disks by eBPF")
}

fn app() -> App {
    let mut app = App::new(Set::Overview, &columns::ALL[0], "", 1.0);
    app.show(screen());
    app
}

fn drawn(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            frame.render_widget(Paragraph::new(view::lines(app, area.width, area.height)), area);
        })
        .unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn compare(found: &[String], golden: &str) {
    let wanted: Vec<&str> = golden.lines().skip(1).collect();
    assert_eq!(found, wanted, "\n{}", found.join("\n"));
}

#[test]
fn a_screen_of_80_by_24() {
    compare(&drawn(&app(), 80, 24), include_str!("../../tests/fixtures/top/80x24.txt"));
}

#[test]
fn a_wide_screen_has_more_columns() {
    compare(&drawn(&app(), 150, 24), include_str!("../../tests/fixtures/top/150x24.txt"));
}

#[test]
fn every_size_fits_and_the_keys_stay_visible() {
    let mut full = app();
    let many =
        (0..50).map(|i| guest(&format!("a-guest-with-a-long-name-{i}"), transfer(100, 4096, 1e-3), 0.2)).collect();
    full.screen = Some(Screen::of(&second(many), &History::default(), "disks by eBPF"));
    for app in [app(), full, App::new(Set::Overview, &columns::ALL[0], "", 1.0)] {
        for (width, height) in
            [(1, 1), (10, 3), (40, 10), (40, 12), (80, 10), (80, 24), (80, 25), (81, 5), (132, 43), (300, 100)]
        {
            let lines = view::lines(&app, width, height);
            assert_eq!(lines.len(), usize::from(height), "{width}x{height}");
            for line in &lines {
                assert!(line.width() <= usize::from(width), "{width}x{height}: {line}");
            }
            if width >= 40 {
                assert!(lines.last().unwrap().to_string().contains("q quit"), "{width}x{height}");
            }
        }
    }
}

#[test]
fn low_and_narrow_screens_show_guests_and_figures() {
    for (width, height) in [(80, 10), (40, 12)] {
        let lines = drawn(&app(), width, height);
        assert!(lines.iter().any(|line| line.starts_with("flood ")), "{width}x{height}: {lines:#?}");
        assert!(!lines.iter().any(|line| line.starts_with("HOST")), "{width}x{height}: {lines:#?}");
    }
    let lines = drawn(&app(), 40, 24);
    let title = lines.iter().find(|line| line.starts_with("NO GUEST")).unwrap();
    assert!(title.contains("DISK%"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("writeb") && line.contains("0.6")), "{lines:#?}");
}

/// What is told on a narrow screen is told in whole words, and a note whole where there is room.
#[test]
fn no_word_is_broken_at_40_columns() {
    let mut app = app();
    let note = "could not read the monitor of web1: /run/web1.qmp is used by another program; look again, or close the \
                other program's connection";
    let screen = app.screen.as_mut().unwrap();
    screen.notes = vec![note.into(), "another".into()];
    let words = |lines: &[String]| lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&drawn(&app, 80, 24)).contains(&format!("note: {note} (+1)")), "{:#?}", drawn(&app, 80, 24));
    let known = format!("{} {note} {}", words(&drawn(&app, 200, 50)), app.screen.as_ref().unwrap().summary());
    let is_known = |word: &str| known.split_whitespace().any(|known| known == word);
    let narrow = drawn(&app, 40, 24);
    for line in narrow.iter().take(8).chain(&narrow[20..]) {
        assert!(line.split_whitespace().all(|word| word == "…" || is_known(word)), "{line}: {narrow:#?}");
    }
    press(&mut app, KeyCode::Enter);
    let page = words(&drawn(&app, 40, 40));
    assert!(page.contains("guest flood") && page.contains("while that one was quiet (44x)"), "{page}");
}

#[test]
fn no_total_is_more_than_all() {
    let mut interval = second(vec![guest("big", transfer(0, 0, 0.0), 4.0)]);
    interval.guests[0].cpu.as_mut().unwrap().vcpus = 8;
    interval.host_cpu.busy_seconds = 4.04;
    let screen = Screen::of(&interval, &History::default(), "");
    assert!(screen.summary().contains("4 CPUs 100 % busy"), "{}", screen.summary());
    // Eight virtual CPUs on four processors, of which all were used.
    assert_eq!(screen.totals.guests.cpu_of_all_ratio, Some(1.0));
    // Of next to nothing no part is told.
    let idle = second(vec![guest("idle", transfer(0, 0, 0.0), 0.002)]);
    assert_eq!(Screen::of(&idle, &History::default(), "").totals.guests.wait_ratio, None);
}

fn press(app: &mut App, code: KeyCode) {
    app.key(KeyEvent::new(code, KeyModifiers::NONE));
}

#[test]
fn sorting_filtering_scrolling_and_pausing_show() {
    let mut app = app();
    let order = |app: &App| {
        let lines = drawn(app, 100, 30);
        let names = ["db", "flood", "web1"];
        lines.iter().filter_map(|l| names.iter().find(|n| l.starts_with(&format!("{n} "))).copied()).collect::<Vec<_>>()
    };
    // Nearest to a limit first: to the disk's, and to that of its own processors.
    assert_eq!(order(&app), ["flood", "web1", "db"]);
    press(&mut app, KeyCode::Char('d'));
    assert_eq!(order(&app), ["flood", "db", "web1"]);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    let selected = app.selected.clone();
    assert_eq!(selected.as_ref().and_then(|id| id.pid), Some(pid("db")));
    press(&mut app, KeyCode::Char('c'));
    assert_eq!((order(&app), &app.selected), (vec!["flood", "web1", "db"], &selected), "it stays selected");
    // A column that is not shown is told, too.
    press(&mut app, KeyCode::Char('T'));
    assert!(drawn(&app, 80, 24)[22].contains("[T throttled]"));
    press(&mut app, KeyCode::Esc);
    for code in [KeyCode::Char('/'), KeyCode::Char('D'), KeyCode::Char('b')] {
        press(&mut app, code);
    }
    assert_eq!(order(&app), ["db"]);
    assert!(drawn(&app, 100, 30).last().unwrap().starts_with("filter: Db_"));
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Char('p'));
    let before = drawn(&app, 100, 30);
    assert!(before[0].contains("PAUSED"));
    // The verdict stays whole, whatever the filter.
    assert!(before[1].starts_with("! disk vda is saturated by guest flood"), "{before:#?}");
    app.show(Screen::of(&second(vec![]), &History::default(), ""));
    assert_eq!(drawn(&app, 100, 30), before, "it stands still");
    for letter in "/zzz".chars() {
        press(&mut app, KeyCode::Char(letter));
    }
    assert!(drawn(&app, 100, 30).iter().any(|l| l == "no guest name matches"));
}

#[test]
fn text_and_json_say_the_same() {
    let screen = screen().arranged(&columns::ALL[0], "");
    let text = screen.text(Set::Overview, Style::PLAIN, 120);
    compare(&text.lines().map(str::to_owned).collect::<Vec<_>>(), include_str!("../../tests/fixtures/top/once.txt"));
    let json: serde_json::Value = serde_json::from_str(&screen.json()).unwrap();
    assert_eq!(json["schema_version"], "1.3");
    assert_eq!(json["verdicts"][0]["culprits"][0]["guest"], "flood");
    assert_eq!(json["verdicts"][0]["resource"], "disk");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).starts_with(&words(json["verdicts"][0]["line"].as_str().unwrap())));
    assert_eq!(json["guests"][0]["name"], "flood");
    assert_eq!(json["guests"][0]["read_iops"], 7800.0);
    assert_eq!(json["guests"][0]["disk_source"], "trace");
    assert_eq!(json["guests"][2]["received_bps"], 25e6);
    assert_eq!(json["guests"][2]["worst_wait"]["what"], "disk");
    assert_eq!(json["guests"][0]["cpu_of_guest_ratio"], 0.6);
    assert_eq!(json["totals"]["guests"]["received_bps"], 75e6);
    assert_eq!(json["totals"]["host"]["cpu_of_all_ratio"], 0.5);
    assert!(json.get("opened").is_none());
    assert_eq!(json["basis"], "device_time");
    assert_eq!(json["others"][0]["kind"], "writeback");
    assert_eq!(json["notes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_quiet_host_says_so() {
    let quiet = Screen::of(&second(vec![]), &History::default(), "disks by eBPF");
    let said = "nothing is saturated (processors 50 % busy)";
    assert!(quiet.text(Set::Overview, Style::PLAIN, 80).starts_with(&format!("{said}\n")));
    let mut app = app();
    app.show(quiet);
    assert_eq!(drawn(&app, 80, 24)[1], format!("  {said}"));
}

#[test]
fn the_text_of_80_columns_shows_the_disks_of_guests_too() {
    let text = screen().text(Set::Overview, Style::PLAIN, 80);
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with("GUEST")).collect();
    assert_eq!(titles.len(), 2, "{text}");
    assert!(titles[0].ends_with("WORST WAIT") && titles[1].contains("DISK%") && titles[1].contains("p99"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_help_names_every_key_and_column() {
    let mut app = app();
    press(&mut app, KeyCode::Char('?'));
    let lines = drawn(&app, 100, 60);
    for column in columns::ALL {
        let begins = format!("  {} {}", column.key, column.title);
        assert!(lines.iter().any(|line| line.starts_with(&begins) && line.contains(column.about)), "{begins}");
    }
    // On a narrow terminal texts go on in the next line.
    for width in [80, 40] {
        let words = drawn(&app, width, 200).join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        let texts = columns::ALL.iter().map(|c| c.about).chain(super::help::KEYS.iter().map(|(_, what)| *what));
        for text in texts {
            assert!(words.contains(text), "{width}: {text}");
        }
    }
    // On a small terminal it scrolls to its end, and no further.
    let last = "what it waits for most";
    assert!(!drawn(&app, 80, 24).iter().any(|line| line.contains(last)));
    for _ in 0..10 {
        press(&mut app, KeyCode::PageDown);
        drawn(&app, 80, 24);
    }
    let end = drawn(&app, 80, 24);
    assert!(end[22].contains(last), "{end:#?}");
    press(&mut app, KeyCode::Up);
    assert_ne!(drawn(&app, 80, 24), end);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.view, View::Table);
}

#[test]
fn a_guest_has_a_page_that_outlives_it() {
    let mut app = app();
    press(&mut app, KeyCode::Enter);
    let flood = pid("flood");
    assert_eq!(app.opened(), Some(flood), "the first one, where none is selected");
    for _ in 0..3 {
        let mut next = screen();
        let interval = second(vec![guest("flood", transfer(7800, 4096, 4e-3), 1.2)]);
        next.opened = Opened::of(flood, None, &interval, &[], None);
        app.show(next);
    }
    for (width, height) in [(80, 24), (200, 50)] {
        let page = drawn(&app, width, height);
        assert_eq!(page[0], "guest flood");
        assert_eq!(page[1], format!("qemu, pid {flood}"));
        let has = |text: &str| page.iter().any(|line| line.contains(text));
        assert!(has("! disk vda is saturated by guest flood") && has("CPU %") && has("ON DISK"), "{page:#?}");
        assert!(page.last().unwrap().starts_with("q quit  Esc back"), "{page:#?}");
    }
    let has = |app: &App, text: &str| drawn(app, 80, 24).iter().any(|line| line.contains(text));
    assert!(has(&app, "THE LAST 60 SECONDS, 2 s A MARK"));
    // It stands still, too.
    press(&mut app, KeyCode::Char('p'));
    let before = drawn(&app, 80, 24);
    assert!(before.last().unwrap().starts_with("PAUSED "), "{before:#?}");
    let mut next = screen();
    next.guests.iter_mut().for_each(|guest| guest.cpu_of_guest_ratio = Some(0.01));
    next.opened = Opened::of(flood, None, &second(vec![guest("flood", transfer(1, 4096, 4e-3), 0.1)]), &[], None);
    app.show(next);
    assert_eq!(drawn(&app, 80, 24), before);
    press(&mut app, KeyCode::Char('p'));
    assert_ne!(drawn(&app, 80, 24), before, "its minute has gone on");
    // The guest ends while its page is open.
    for _ in 0..3 {
        app.show(Screen::of(&second(vec![]), &History::default(), ""));
    }
    assert_eq!(drawn(&app, 80, 24)[0], "guest flood ended 3 s ago");
    press(&mut app, KeyCode::Esc);
    assert!(drawn(&app, 80, 24).iter().any(|line| line == "no guests"));
}

#[test]
fn a_page_shows_no_escape_sequences() {
    let mut app = app();
    let mut hostile = guest("web", transfer(10, 4096, 1e-3), 0.1);
    (hostile.name, hostile.nics[0].interface) = ("a\x1b[2Jb".into(), "tap\x1b]0;x\x07".into());
    let interval = second(vec![hostile]);
    app.show(Screen::of(&interval, &History::default(), ""));
    press(&mut app, KeyCode::Enter);
    let mut next = Screen::of(&interval, &History::default(), "");
    next.opened = Opened::of(pid("web"), None, &interval, &[], None);
    app.show(next);
    for line in view::lines(&app, 120, 50) {
        assert!(!line.to_string().contains(['\x1b', '\x07']), "{line:?}");
    }
}
