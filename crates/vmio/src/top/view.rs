//! Draws the state as lines of a terminal of any size: pure, so that tests compare whole screens.
//!
//! From top to bottom: the host in a line, the verdicts, disks, guests, what no guest explains, a
//! note, the keys. Guests get what the others leave; the others never take more than a part.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::App;
use super::columns::{self, Column};
use super::screen::{Screen, device_cells, guest_cells, guest_titles, marked, other_cells};

/// Longest name of a guest that is shown whole on a narrow terminal.
const NAME: u16 = 16;

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
    // What is left, and how much of it is for whom: guests at least a third.
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
        table(&devices[..devices_shown], &[10, 6, 6, 6, 6, 7, 6, 6], w, None, lines);
    }
    lines.push(Line::default());
    let guests_end = lines.len() + guests_shown;
    guests(app, screen, w, guests_shown, lines);
    if others_shown > 0 {
        // At the end of the guests' room, so that they do not jump.
        lines.resize(guests_end, Line::default());
        lines.push(Line::default());
        table(&others[..others_shown], &[34, 6, 6, 6, 6, 7, 6], w, None, lines);
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
    let (name, columns) = layout(screen, w as u16);
    let titles = guest_titles(&columns);
    let sorted = columns.iter().position(|c| c.key == app.sort.key).map(|i| i + 1);
    let offset = app.offset.min(screen.guests.len().saturating_sub(1));
    let below = screen.guests.len() - offset;
    let cells: Vec<Vec<String>> = std::iter::once(titles)
        .chain(screen.guests.iter().skip(offset).take(room - 1).map(|g| guest_cells(g, &columns)))
        .collect();
    let widths: Vec<usize> =
        std::iter::once(name).chain(columns.iter().map(|c: &&Column| c.width)).map(usize::from).collect();
    table(&cells, &widths, w, sorted, lines);
    if screen.guests.is_empty() && room > 1 {
        let why = if screen.guests_left_out > 0 { "no guest has that in its name" } else { "no guests" };
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

/// Width of the names, and the columns that fit beside them.
fn layout(screen: &Screen, width: u16) -> (u16, Vec<&'static Column>) {
    let longest = screen.guests.iter().map(|g| g.name.chars().count()).max().unwrap_or(5).clamp(8, 40) as u16;
    let name = if width > 120 { longest } else { longest.min(NAME) };
    (name, columns::fitting(width, name))
}

/// The first row is the titles; `sorted` is the column that is marked.
fn table(cells: &[Vec<String>], widths: &[usize], w: usize, sorted: Option<usize>, lines: &mut Vec<Line<'static>>) {
    for (n, row) in cells.iter().enumerate() {
        let mut spans = Vec::new();
        let mut used = 0;
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            let text = match i {
                0 => format!("{:<width$}", cut(cell, *width)),
                _ => format!(" {:>width$}", cut(cell, *width)),
            };
            used += text.chars().count();
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
        let columns = app.screen.as_ref().map_or_else(Vec::new, |screen| layout(screen, width).1);
        let sorts = |sort: &dyn Fn(&&Column) -> String| columns.iter().map(sort).collect::<Vec<_>>().join(" ");
        let keys = format!("q quit p pause / filter{filter} +- {} s | sort", app.interval);
        let full = format!("{keys}: {}", sorts(&|c| format!("{} {} ", c.key, c.title.to_lowercase())));
        // Where titles do not fit, the keys stand in the order of the columns.
        if full.chars().count() <= w { full } else { format!("{keys} by column: {}", sorts(&|c| c.key.to_string())) }
    };
    Line::styled(format!("{:<w$}", cut(&text, w)), style)
}

/// At most `width` characters, the last one a mark where it was cut.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// Words in lines of at most `width` characters; further lines begin two to the right.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let long = line.chars().count() + 1 + word.chars().count() > width;
        if long && !line.trim().is_empty() {
            lines.push(cut(&std::mem::replace(&mut line, " ".into()), width));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(cut(&line, width));
    lines
}
