//! What hypervisors ask of the host.

use vmio_model::top::calls::{CallLoad, Calls};
use vmio_model::waterfall::host;

use super::super::screen::GuestCalls;
use super::*;

#[test]
fn the_hosts_part_is_in_the_table_on_the_page_and_in_json() {
    let interval = second(vec![guest("web", transfer(200, 4096, 1e-3), 0.1)]);
    // Each takes 1.5 ms, of which the disk takes 1 ms.
    let mut reads = Calls { done: 200 * 4096, seconds: 0.3, ..Calls::default() };
    (0..200).for_each(|_| reads.latency.add(1500));
    let load = CallLoad { reads, ..CallLoad::default() };
    let calls = host::calls(&load, &interval.guests[0], interval.seconds).unwrap();
    let mut screen = Screen::of(&interval, &History::default(), "");
    assert!(!screen.text(Set::Disk, Style::PLAIN, 120).contains("KERNEL"), "nobody asked for it");
    screen.opened = Opened::of(pid("web"), None, &interval, &[], Some(&calls));
    screen.add_calls(vec![GuestCalls { guest: "web".into(), pid: pid("web"), calls }]);
    let text = screen.text(Set::Disk, Style::PLAIN, 120);
    assert!(text.contains("KERNEL") && text.contains("500µs"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&screen.json()).unwrap();
    assert_eq!(json["calls"][0]["guest"], "web");
    assert_eq!(json["calls"][0]["reads"]["asked"]["per_second"], 200.0);
    assert!((json["guests"][0]["kernel_mean_seconds"].as_f64().unwrap() - 5e-4).abs() < 1e-12);
    assert!(screen.clone().arranged(&columns::ALL[0], "db").calls.is_empty(), "the filter leaves it out");
    let mut app = app();
    app.show(screen.clone());
    press(&mut app, KeyCode::Enter);
    app.show(screen);
    let page = drawn(&app, 100, 60);
    let line = page.iter().find(|line| line.starts_with("reads ")).unwrap_or_else(|| panic!("{page:#?}"));
    assert!(page.iter().any(|line| line.starts_with("ASKS THE HOST")) && line.contains("1.50ms"), "{page:#?}");
}
