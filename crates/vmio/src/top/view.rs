//! Draws the state as lines of a terminal of any size: pure, so that tests compare whole screens.
//!
//! From top to bottom: the host, the verdicts, disks, guests with the host and their sum above them, what no guest
//! explains, a note, the columns to sort by, the keys. Guests get what the others leave; the others never take
//! more than a part. A page of a guest or the help stands in the place of all but the last two.

use std::cell::Cell;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::{App, View};
use super::columns::Column;
use super::minute::GuestId;
use super::screen::{DISK, LEAST_NAME, Screen, device_cells, marked, other_cells, other_name};
use super::{columns, guest, help};
use crate::fit::{self, cut, first_words};

/// Lines of the table of guests above the first one: titles, host, sum.
const HEAD: usize = 3;
/// Least height of a screen with the line of columns to sort by.
const TALL: usize = 8;
/// Lines of a screen for each that a text at its top or end may take.
const LOW: usize = 8;
/// Width from which the texts of the help stand beside what they are about; below, they are indented by so much.
const BESIDE: usize = 60;
const BELOW: usize = 4;

/// The whole screen: at most `height` lines, none longer than `width`.
pub fn lines(app: &App, width: u16, height: u16) -> Vec<Line<'static>> {
    let (w, h) = (usize::from(width), usize::from(height));
    if h == 0 || w == 0 {
        return Vec::new();
    }
    let sorts = h >= TALL && app.screen.is_some() && app.view == View::Table && !app.typing;
    let room = h - 1 - usize::from(sorts);
    let mut lines = Vec::new();
    match (&app.view, &app.screen) {
        (View::Help, _) => page(&help_lines(w), &app.scrolled, room, &mut lines),
        (_, None) => lines.push(Line::raw(first_words("vmio top: counting for the first interval …", w))),
        (View::Guest(id), Some(screen)) => {
            page(&guest::lines(screen, id, app.shown_minutes(), app.ascii, w), &app.scrolled, room, &mut lines);
        }
        (View::Table, Some(screen)) => {
            let screen = screen.clone().arranged(app.sort, &app.filter);
            body(app, &screen, w, room, &mut lines);
        }
    }
    lines.truncate(room);
    lines.resize(room, Line::default());
    if sorts {
        lines.extend(app.screen.as_ref().map(|screen| sort_line(app, screen, w)));
    }
    lines.push(footer(app, w));
    lines
}

fn help_lines(w: usize) -> Vec<guest::PageLine> {
    let mut lines = Vec::new();
    for (lead, text) in help::lines() {
        if text.is_empty() {
            lines.extend(fit::lines(&lead, w).into_iter().map(|line| (line, true)));
            continue;
        }
        let beside = w >= BESIDE;
        let indent = if beside { lead.chars().count() } else { BELOW };
        if !beside {
            lines.push((cut(lead.trim_end(), w), false));
        }
        for (i, line) in fit::lines(text, w.saturating_sub(indent)).into_iter().enumerate() {
            let before = if beside && i == 0 { lead.clone() } else { " ".repeat(indent) };
            lines.push((cut(&(before + &line), w), false));
        }
    }
    lines
}

/// A page that may be longer than the screen; it never scrolls past its end.
fn page(all: &[guest::PageLine], scrolled: &Cell<usize>, room: usize, lines: &mut Vec<Line<'static>>) {
    let from = scrolled.get().min(all.len().saturating_sub(room));
    scrolled.set(from);
    for (line, heading) in all.iter().skip(from).take(room) {
        let style = if *heading { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        lines.push(Line::styled(line.clone(), style));
    }
}

fn body(app: &App, screen: &Screen, w: usize, h: usize, lines: &mut Vec<Line<'static>>) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let state = if app.paused { "PAUSED " } else { "" };
    let summary = format!("vmio top  {state}{}", screen.summary());
    lines.extend(at_most(&summary, w, (h / LOW).clamp(1, 2)).into_iter().map(|line| Line::styled(line, dim)));
    verdicts(screen, w, (h / 3).max(1), lines);

    let devices = device_cells(&screen.devices);
    let others = other_cells(&screen.others, other_name(w));
    let notes = notes(screen, w, (h / LOW).max(1));
    // The rows that are left are divided: guests first.
    let left = h.saturating_sub(lines.len() + notes.len());
    let least = 1 + HEAD + 2;
    let part = |rows: usize, taken: usize| match rows {
        1 => 0,
        n => Some(n.min((left / 4).max(2))).filter(|shown| left > least + taken + shown).unwrap_or(0),
    };
    let devices_shown = part(devices.len(), 0);
    let others_shown = part(others.len(), devices_shown + usize::from(devices_shown > 0));
    let gaps = 1 + usize::from(devices_shown > 0) + usize::from(others_shown > 0);
    let guests_shown = left.saturating_sub(devices_shown + others_shown + gaps);
    if devices_shown > 0 {
        lines.push(Line::default());
        table(&devices[..devices_shown], &[DISK, 6, 6, 6, 6, 7, 7, 6, 6], w, Marks::default(), lines);
    }
    lines.push(Line::default());
    let guests_end = lines.len() + guests_shown;
    guests(app, screen, w, guests_shown, lines);
    if others_shown > 0 {
        // Below the room of all guests, so that the table does not move when guests come and go.
        lines.resize(guests_end, Line::default());
        lines.push(Line::default());
        table(&others[..others_shown], &[other_name(w), 6, 6, 6, 6, 7, 6], w, Marks::default(), lines);
    }
    if !notes.is_empty() {
        lines.resize(h.saturating_sub(notes.len()).max(lines.len()), Line::default());
        lines.extend(notes);
    }
}

/// The first note, in at most so many lines, and how many others there are.
fn notes(screen: &Screen, w: usize, most: usize) -> Vec<Line<'static>> {
    let Some(first) = screen.notes.first() else { return Vec::new() };
    let more = screen.notes.len() - 1;
    let more = if more > 0 { format!(" (+{more})") } else { String::new() };
    let mut lines = at_most(&format!("note: {first}"), w.saturating_sub(more.len()), most);
    if let Some(last) = lines.last_mut() {
        last.push_str(&more);
    }
    lines.into_iter().map(|line| Line::styled(line, Style::new().fg(Color::Yellow))).collect()
}

fn verdicts(screen: &Screen, w: usize, most: usize, lines: &mut Vec<Line<'static>>) {
    let mut all = Vec::new();
    for verdict in &screen.verdicts {
        let colour = if verdict.certain { Color::Red } else { Color::Yellow };
        let style = Style::new().fg(colour).add_modifier(Modifier::BOLD);
        all.extend(wrapped(&marked(verdict), w).into_iter().map(|l| Line::styled(l, style)));
    }
    if let Some(nothing) = &screen.nothing {
        let lines = fit::lines(nothing, w.saturating_sub(2)).into_iter();
        all.extend(lines.map(|line| Line::styled(cut(&format!("  {line}"), w), Style::new().fg(Color::Green))));
    }
    if all.len() > most {
        let hidden = all.len() - most + 1;
        all.truncate(most - 1);
        let text = format!("  … {hidden} more lines of verdicts: vmio top --once shows all");
        all.push(Line::raw(first_words(&text, w)));
    }
    lines.extend(all);
}

fn guests(app: &App, screen: &Screen, w: usize, room: usize, lines: &mut Vec<Line<'static>>) {
    if room == 0 {
        return;
    }
    let (names, columns) = screen.layout(w, app.set);
    let before = 1 + usize::from(screen.vmid_width().is_some());
    let sorted = columns.iter().position(|c| c.key == app.sort.key).map(|i| i + before);
    let mut cells = screen.guest_cells(&names, &columns);
    let name = cells.iter().map(|row| fit::columns(&row[0])).max().unwrap_or(0).max(LEAST_NAME);
    let widths: Vec<usize> =
        std::iter::once(name).chain(screen.vmid_width()).chain(columns.iter().map(|c| usize::from(c.width))).collect();
    // The page of guests with the selected one; a line says how many there are besides.
    let chosen = app.selected.as_ref().and_then(|id| screen.guests.iter().position(|g| GuestId::of(g) == *id));
    // A low screen has no room for the totals.
    let totals = room >= HEAD + 2;
    let head = if totals { HEAD } else { 1 };
    cells.drain(head..HEAD);
    let most = room.saturating_sub(head);
    let all = screen.guests.len();
    let shown = if all > most { most.saturating_sub(1) } else { all };
    let first = chosen.filter(|_| shown > 0).map_or(0, |at| at / shown * shown);
    let end = (first + shown).min(all);
    cells.truncate(head + end);
    cells.drain(head..head + first);
    let marked = chosen.filter(|at| (first..end).contains(at)).map(|at| head + at - first);
    cells.truncate(room);
    table(&cells, &widths, w, Marks { sorted, marked, totals }, lines);
    let dim = Style::new().add_modifier(Modifier::DIM);
    if screen.guests.is_empty() && most > 0 {
        let why = if screen.guests_left_out > 0 { "no guest name matches" } else { "no guests" };
        lines.push(Line::raw(cut(why, w)));
    } else if all > shown && most > 0 {
        let hidden = all - (end - first);
        lines.push(Line::styled(first_words(&format!("… {hidden} more: arrow keys, / filters"), w), dim));
    }
}

/// What is marked in a table.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// The column that it is sorted by.
    sorted: Option<usize>,
    /// The row that is selected.
    marked: Option<usize>,
    /// Whether the first lines below the titles are totals.
    totals: bool,
}

/// Draws a table whose first row is the titles.
fn table(cells: &[Vec<String>], widths: &[usize], w: usize, marks: Marks, lines: &mut Vec<Line<'static>>) {
    for (n, row) in cells.iter().enumerate() {
        let mut spans = Vec::new();
        let mut used = 0;
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            let text = match i {
                0 => fit::left(&cut(cell, *width), *width),
                _ => format!(" {}", fit::right(&cut(cell, *width), *width)),
            };
            used += fit::columns(&text);
            if used > w {
                break;
            }
            let style = match (n, marks.sorted == Some(i)) {
                (0, true) => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
                (0, false) => Style::new().add_modifier(Modifier::BOLD),
                _ if marks.marked == Some(n) => Style::new().add_modifier(Modifier::REVERSED),
                _ if marks.totals && n < HEAD => Style::new().add_modifier(Modifier::DIM),
                _ => Style::new(),
            };
            spans.push(Span::styled(text, style));
        }
        lines.push(Line::from(spans));
    }
}

/// The columns that are shown, each with the key that sorts by it; the present one, shown or not, stands in brackets.
fn sort_line(app: &App, screen: &Screen, w: usize) -> Line<'static> {
    let shown = screen.layout(w, app.set).1;
    let is_sorted = |c: &Column| c.key == app.sort.key;
    let hidden = Some(app.sort).filter(|sort| sort.name != "load" && !shown.iter().any(|c| is_sorted(c)));
    let mut text = "sort:".to_owned();
    for column in columns::ALL.iter().filter(|c| c.name == "load").chain(hidden).chain(shown) {
        let sorted = is_sorted(column);
        let name = format!("{} {}", column.key, column.name);
        let next = if sorted { format!(" [{name}]") } else { format!(" {name}") };
        if fit::columns(&text) + fit::columns(&next) > w {
            break;
        }
        text += &next;
    }
    Line::styled(cut(&text, w), Style::new().add_modifier(Modifier::DIM))
}

fn footer(app: &App, w: usize) -> Line<'static> {
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let filter = if app.filter.is_empty() { String::new() } else { format!(" [{}]", app.filter) };
    let text = match app.view {
        _ if app.typing => format!("filter: {}_   Enter keeps it, Esc clears it", app.filter),
        View::Table => {
            format!("q quit  ? help  arrows Enter guest  / find{filter}  Tab columns  p pause  +- {} s", app.interval)
        }
        View::Guest(_) | View::Help => {
            let paused = if app.paused { "PAUSED " } else { "" };
            format!("{paused}q quit  Esc back  arrows scroll  p pause  +- {} s", app.interval)
        }
    };
    Line::styled(fit::left(&first_words(&text, w), w), style)
}

/// A text in at most so many lines; where that is not all of it, the last one ends with a mark.
fn at_most(text: &str, width: usize, most: usize) -> Vec<String> {
    if fit::columns(text) <= width {
        return vec![cut(text, width)];
    }
    let mut lines = wrapped(text, width);
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1));
        let rest = rest.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" ");
        let indent = if lines.is_empty() { "" } else { "  " };
        lines.push(first_words(&format!("{indent}{rest}"), width));
    }
    lines
}

/// Words in lines of at most `width` columns; further lines begin two to the right.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let lines = fit::lines(text, width.saturating_sub(2));
    let indented = lines.iter().enumerate().map(|(i, line)| if i == 0 { line.clone() } else { format!("  {line}") });
    indented.map(|line| cut(&line, width)).collect()
}
