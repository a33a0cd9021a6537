//! Draws the state as lines of a terminal of any size: pure, so that tests compare whole screens.
//!
//! From top to bottom: the host in a line, the verdicts, disks, guests, what no guest explains, a
//! note, the keys. Guests get what the others leave; the others never take more than a part.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::App;
use super::columns::Column;
use super::screen::{DISK, LEAST_NAME, OTHER, Screen, device_cells, marked, other_cells};
use crate::fit::{self, cut};

/// The whole screen: at most `height` lines, none longer than `width`.
pub fn lines(app: &App, width: u16, height: u16) -> Vec<Line<'static>> {
    let (w, h) = (usize::from(width), usize::from(height));
    if h == 0 || w == 0 {
        return Vec::new();
    }
    let mut lines = Vec::new();
    match &app.screen {
        None => lines.push(Line::raw(cut("vmio top: counting for the first interval …", w))),
        Some(screen) => {
            let screen = screen.clone().arranged(app.sort, &app.filter);
            body(app, &screen, w, h.saturating_sub(1), &mut lines);
        }
    }
    lines.truncate(h - 1);
    lines.resize(h - 1, Line::default());
    lines.push(footer(app, width));
    lines
}

fn body(app: &App, screen: &Screen, w: usize, h: usize, lines: &mut Vec<Line<'static>>) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let state = if app.paused { "PAUSED " } else { "" };
    lines.push(Line::styled(cut(&format!("vmio top  {state}{}", screen.summary()), w), dim));
    verdicts(screen, w, (h / 3).max(1), lines);

    let devices = device_cells(&screen.devices);
    let others = other_cells(&screen.others);
    let notes = usize::from(!screen.notes.is_empty());
    // The rows that are left are divided: guests get at least a third.
    let left = h.saturating_sub(lines.len() + notes);
    let devices_shown = match devices.len() {
        1 => 0,
        n => n.min((left / 4).max(2)),
    };
    let others_shown = match others.len() {
        1 => 0,
        n => n.min((left / 4).max(2)),
    };
    let gaps = 1 + usize::from(devices_shown > 0) + usize::from(others_shown > 0);
    let guests_shown = left.saturating_sub(devices_shown + others_shown + gaps);
    if devices_shown > 0 {
        lines.push(Line::default());
        table(&devices[..devices_shown], &[DISK, 6, 6, 6, 6, 7, 6, 6], w, None, lines);
    }
    lines.push(Line::default());
    let guests_end = lines.len() + guests_shown;
    guests(app, screen, w, guests_shown, lines);
    if others_shown > 0 {
        // Below the room of all guests, so that the table does not move when guests come and go.
        lines.resize(guests_end, Line::default());
        lines.push(Line::default());
        table(&others[..others_shown], &[OTHER, 6, 6, 6, 6, 7, 6], w, None, lines);
    }
    if notes > 0 {
        let more = screen.notes.len() - 1;
        let more = if more > 0 { format!(" (+{more})") } else { String::new() };
        let room = w.saturating_sub(more.chars().count());
        lines.resize(h.saturating_sub(1).max(lines.len()), Line::default());
        let note = cut(&format!("note: {}", screen.notes[0]), room) + &more;
        lines.push(Line::styled(note, Style::new().fg(Color::Yellow)));
    }
}

fn verdicts(screen: &Screen, w: usize, most: usize, lines: &mut Vec<Line<'static>>) {
    let mut all = Vec::new();
    for verdict in &screen.verdicts {
        let colour = if verdict.certain { Color::Red } else { Color::Yellow };
        let style = Style::new().fg(colour).add_modifier(Modifier::BOLD);
        all.extend(wrapped(&marked(verdict), w).into_iter().map(|l| Line::styled(l, style)));
    }
    if let Some(nothing) = &screen.nothing {
        all.push(Line::styled(cut(&format!("  {nothing}"), w), Style::new().fg(Color::Green)));
    }
    if all.len() > most {
        let hidden = all.len() - most + 1;
        all.truncate(most - 1);
        all.push(Line::raw(cut(&format!("  … {hidden} more lines of verdicts: vmio top --once shows all"), w)));
    }
    lines.extend(all);
}

fn guests(app: &App, screen: &Screen, w: usize, room: usize, lines: &mut Vec<Line<'static>>) {
    if room == 0 {
        return;
    }
    let (names, columns) = screen.layout(w);
    let before = 1 + usize::from(screen.vmid_width().is_some());
    let sorted = columns.iter().position(|c| c.key == app.sort.key).map(|i| i + before);
    let offset = app.offset.min(screen.guests.len().saturating_sub(1));
    let below = screen.guests.len() - offset;
    let mut cells = screen.guest_cells(&names, &columns);
    let name = cells.iter().map(|row| fit::columns(&row[0])).max().unwrap_or(0).max(LEAST_NAME);
    let widths: Vec<usize> =
        std::iter::once(name).chain(screen.vmid_width()).chain(columns.iter().map(|c| usize::from(c.width))).collect();
    cells.drain(1..=offset);
    cells.truncate(room);
    table(&cells, &widths, w, sorted, lines);
    if screen.guests.is_empty() && room > 1 {
        let why = if screen.guests_left_out > 0 { "no guest name matches" } else { "no guests" };
        lines.push(Line::raw(cut(why, w)));
    }
    if below > room - 1 && room > 1 {
        let hidden = below - (room - 1) + 1;
        lines.pop();
        lines.push(Line::styled(
            cut(&format!("… {hidden} more: arrow keys, / filters"), w),
            Style::new().add_modifier(Modifier::DIM),
        ));
    }
}

/// Draws a table whose first row is the titles; `sorted` is the column that is marked.
fn table(cells: &[Vec<String>], widths: &[usize], w: usize, sorted: Option<usize>, lines: &mut Vec<Line<'static>>) {
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
            let style = match (n, sorted == Some(i)) {
                (0, true) => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
                (0, false) => Style::new().add_modifier(Modifier::BOLD),
                _ => Style::new(),
            };
            spans.push(Span::styled(text, style));
        }
        lines.push(Line::from(spans));
    }
}

fn footer(app: &App, width: u16) -> Line<'static> {
    let w = usize::from(width);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let text = if app.typing {
        format!("filter: {}_   Enter keeps it, Esc clears it", app.filter)
    } else {
        let filter = if app.filter.is_empty() { String::new() } else { format!(" [{}]", app.filter) };
        let columns = app.screen.as_ref().map_or_else(Vec::new, |screen| screen.layout(w).1);
        let sorts = |sort: &dyn Fn(&&Column) -> String| columns.iter().map(sort).collect::<Vec<_>>().join(" ");
        let keys = format!("q quit p pause / filter{filter} +- {} s | sort", app.interval);
        let full = format!("{keys}: {}", sorts(&|c| format!("{} {} ", c.key, c.title.to_lowercase())));
        // Where titles do not fit, the keys stand in the order of the columns.
        if fit::columns(&full) <= w { full } else { format!("{keys} by column: {}", sorts(&|c| c.key.to_string())) }
    };
    Line::styled(fit::left(&cut(&text, w), w), style)
}

/// Words in lines of at most `width` columns; further lines begin two to the right.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let lines = fit::lines(text, width.saturating_sub(2));
    let indented = lines.iter().enumerate().map(|(i, line)| if i == 0 { line.clone() } else { format!("  {line}") });
    indented.map(|line| cut(&line, width)).collect()
}
