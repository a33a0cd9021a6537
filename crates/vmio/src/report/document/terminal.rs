//! A document on a terminal.

use super::lines::{Out, severity};
use super::{
    Align, Block, Card, Cell, Colour, Column, Head, Heading, In, Kind, Layout, Long, Made, Name, Pairs, Paragraph, Row,
    Span, Table, Text, Wide, fitted, narrow,
};
use crate::fit::{self, WIDTH};
use crate::term::Style;

/// Fewest columns of a value beside its name.
const LEAST: usize = 28;

/// Blocks, one below the other.
pub fn blocks(out: &mut Out, blocks: &[(In, Block)]) {
    for (_, one) in blocks.iter().filter(|(forms, _)| forms.has(In::TERMINAL)) {
        block(out, one);
    }
}

fn block(out: &mut Out, block: &Block) {
    match block {
        Block::Gap => out.line(""),
        Block::Heading(of) => heading(out, of),
        Block::Paragraph(of) => paragraph(out, of),
        Block::List(list) => {
            for (lead, text) in &list.entries {
                out.paragraph(&format!("{:1$}{lead}", "", list.at.0), list.at.1, &text.plain());
            }
        }
        Block::Pairs(of) => pairs(out, of),
        Block::Table(of) if !of.layout.fit.is_empty() => fitted::table(out, of),
        Block::Table(of) => table(out, of),
        Block::Head(of) => head(out, of),
        Block::Card(of) => card(out, of),
        Block::Code(code) => out.paragraph("  ", 2, code),
        Block::Folded(_, inside) => blocks(out, inside),
        Block::Plots(_) => {}
    }
}

fn heading(out: &mut Out, heading: &Heading) {
    let (Heading { text, aside, .. }, indent) = (heading, heading.indent);
    match aside {
        Some(aside) if fit::columns(text) + fit::columns(aside) + 3 <= out.width => {
            out.line(&format!("{} ({aside})", out.style.bold(text)));
        }
        aside => {
            out.title(&format!("{:indent$}{text}", ""), heading.hang);
            aside.iter().for_each(|aside| out.paragraph("  ", 2, &format!("({aside})")));
        }
    }
}

fn paragraph(out: &mut Out, Paragraph { kind, at, text }: &Paragraph) {
    let (style, said, (first, rest)) = (out.style, text.plain(), *at);
    let sign = match kind {
        Kind::Warning => style.yellow("! "),
        Kind::Doubt => style.yellow("^ "),
        _ => String::new(),
    };
    let lead = format!("{:first$}{sign}", "");
    let has_style = text.0.iter().any(|span| matches!(span, Span::Bold(_) | Span::Mark(..)));
    let fits = rest + fit::columns(&said) <= out.width;
    if fits && has_style {
        out.line(&format!("{lead}{}", styled(text, style)));
    } else if fits && *kind == Kind::Dim {
        out.line(&format!("{lead}{}", style.dim(&said)));
    } else {
        out.paragraph(&lead, rest, &said);
    }
}

fn styled(text: &Text, style: Style) -> String {
    let one = |span: &Span| match span {
        Span::Bold(said) => style.bold(said),
        Span::Mark(Colour::Cyan, said) => style.cyan(said),
        Span::Mark(Colour::Yellow, said) => style.yellow(said),
        Span::Dim(said) | Span::Mark(Colour::Dim, said) => style.dim(said),
        other => other.said().to_owned(),
    };
    text.0.iter().map(one).collect()
}

fn pairs(out: &mut Out, pairs: &Pairs) {
    let (indent, whole) = (" ".repeat(pairs.indent), pairs.indent + pairs.width);
    // In a narrow terminal a value has lines of its own.
    let narrow = out.width < WIDTH && out.width < whole + LEAST;
    for (_, name, value) in pairs.pairs.iter().filter(|(forms, ..)| forms.has(In::TERMINAL)) {
        let name = name.plain();
        let filled = fit::left(&name, pairs.width - 1);
        let (lead, coloured) = (format!("{indent}{filled} "), format!("{indent}{} ", out.style.cyan(&filled)));
        match pairs.long {
            Name::Cut => out.line(&format!("{coloured}{}", fit::cut(value, out.width.saturating_sub(whole)))),
            _ if narrow => {
                let below = pairs.indent + 2;
                if pairs.long == Name::Command {
                    out.line(&format!("{indent}{}", out.style.cyan(&name)));
                } else if !name.is_empty() {
                    out.paragraph(&indent, below, &name);
                }
                out.paragraph(&" ".repeat(below), below, value);
            }
            Name::Command if fit::columns(&name) < pairs.width => out.paragraph(&coloured, whole, value),
            Name::Command => {
                out.line(&coloured);
                out.paragraph(&" ".repeat(whole), whole, value);
            }
            Name::Above if fit::columns(&name) + 2 > pairs.width => {
                out.paragraph(&indent, pairs.indent, &name);
                out.paragraph(&" ".repeat(whole), whole, value);
            }
            Name::Above | Name::Pushes => out.paragraph(&lead, whole, value),
        }
    }
}

fn head(out: &mut Out, head: &Head) {
    if let Some(name) = &head.name {
        out.line(&out.style.bold(name));
    }
    out.paragraph("", 0, &head.text);
    head.about.iter().for_each(|about| out.paragraph("", 0, about));
    head.lines.iter().for_each(|line| out.paragraph("  ", 6, line));
    if head.name.is_some() {
        out.line("");
    }
}

fn card(out: &mut Out, card: &Card) {
    let style = out.style;
    match &card.found {
        None => out.title(&card.title, 0),
        Some((level, rule)) => {
            let whole = format!("{} [{level}, {rule}]", card.title);
            if fit::columns(&whole) <= out.width {
                let level = severity(*level, style);
                out.line(&format!("{} [{level}, {rule}]", style.bold(&card.title)));
            } else {
                out.paragraph("", 3, &whole);
            }
        }
    }
    if let Some((subject, cause)) = &card.cause {
        out.paragraph("   ", 3, &format!("{subject}: {cause}"));
    }
    for (from, settings) in by_place(card) {
        out.paragraph("   ", 5, &format!("{settings} (read from {from})"));
    }
    if let Some((text, source)) = &card.expected {
        out.paragraph("   ", 5, &format!("Expect: {text} ({source})"));
    }
    card.change.iter().for_each(|what| out.paragraph("   ", 3, &format!("Change: {what}")));
    card.made.iter().for_each(|how| made(out, how));
    if !card.references.is_empty() {
        out.paragraph("   ", 5, &format!("See: {}", card.references.join("; ")));
    }
    if let Some((run, verdict)) = &card.proof {
        out.paragraph("   ", 3, &format!("--prove, run {run}: {verdict}"));
    }
}

/// The settings that a finding rests on, joined by source: `driver = ahci, cache = none`.
fn by_place(card: &Card) -> Vec<(&str, String)> {
    let mut places: Vec<(&str, String)> = Vec::new();
    for (setting, from) in &card.evidence {
        match places.iter_mut().find(|(place, _)| place == from) {
            Some((_, all)) => *all += &format!(", {setting}"),
            None => places.push((from, setting.clone())),
        }
    }
    places
}

fn made(out: &mut Out, made: &Made) {
    for (name, how) in &made.ways {
        for (i, line) in how.lines().enumerate() {
            let lead = out.style.cyan(&format!("     {:<9}", if i == 0 { *name } else { "" }));
            out.code(&lead, 14, line);
        }
    }
    made.remark.iter().for_each(|remark| out.paragraph("   ", 3, remark));
    if !made.takes.is_empty() {
        out.paragraph("   ", 3, made.takes);
    }
}

fn table(out: &mut Out, table: &Table) {
    let narrowed = narrow::narrowed(table, out.width);
    let table = narrowed.as_ref().unwrap_or(table);
    let layout = &table.layout;
    let [own, of_parts] = layout.indents;
    let stacked = narrow::is_stacked(table, out.width);
    let row: fn(&mut Out, &Table, &Row, usize) = if stacked { narrow::row } else { row };
    if !stacked {
        heads(out, table);
    }
    for of in &table.rows {
        row(out, table, of, own);
        if layout.early {
            notes(out, layout, of);
        }
        of.parts.iter().for_each(|part| row(out, table, part, of_parts));
        if !layout.early {
            notes(out, layout, of);
        }
    }
}

/// The columns that are on the line of their row.
fn on_line(table: &Table) -> impl Iterator<Item = &Column> {
    table.columns_in(In::TERMINAL).map(|(_, column)| column).filter(|column| !column.below)
}

/// The heads, which may have two lines.
fn heads(out: &mut Out, table: &Table) {
    let layout = &table.layout;
    for nth in (0..2).filter(|_| table.heads.has(In::TERMINAL)) {
        let word = |column: &Column| column.narrow.split('\n').nth(nth).unwrap_or_default().to_owned();
        let cells: Vec<PlacedCell> = on_line(table).map(|column| PlacedCell::of(column, word(column), None)).collect();
        let label = if nth == 0 { table.narrow.as_str() } else { "" };
        if label.is_empty() && cells.iter().all(|cell| cell.plain.is_empty()) {
            continue;
        }
        let (room, line, _) = layout_row(layout, &cells);
        let mut label = format!("{:1$}{label}", "", layout.indents[0]);
        if out.width < WIDTH && fit::columns(&label) > room {
            out.line(&out.style.dim(&label));
            label.clear();
        }
        out.line(&out.style.dim(format!("{}{line}", fit::left(&label, room)).trim_end()));
    }
}

fn row(out: &mut Out, table: &Table, row: &Row, indent: usize) {
    if row.cells.is_empty() {
        out.paragraph(&" ".repeat(indent), indent + 2, &row.label.plain());
        return;
    }
    put(out, &table.layout, indent, &row.label.plain(), &placed(table, &row.cells, out.style));
    let below = table.columns_in(In::TERMINAL).filter(|(_, column)| column.below);
    for (column, cell) in below.filter_map(|(at, column)| Some((column, row.cells.get(at)?))) {
        if cell.text.is_empty() {
            continue;
        }
        let mut said = on_line(table).map(|of| PlacedCell::of(of, String::new(), None)).collect::<Vec<_>>();
        let drawn = on_line(table).enumerate().skip_while(|(_, of)| !of.bars);
        for ((at, of), text) in drawn.zip([cell.text.plain(), cell.aside.clone()]) {
            said[at] = PlacedCell::of(of, text, None);
        }
        put(out, &table.layout, indent + 2, &column.narrow, &said);
    }
}

fn notes(out: &mut Out, layout: &Layout, row: &Row) {
    let (lead, indent) = layout.note;
    let lead = lead.replace('^', &out.style.yellow("^"));
    row.notes.iter().for_each(|note| out.paragraph(&lead, indent, note));
}

/// A cell in its column.
struct PlacedCell {
    plain: String,
    styled: String,
    gap: usize,
    width: usize,
    right: bool,
}

impl PlacedCell {
    fn of(column: &Column, plain: String, styled: Option<String>) -> PlacedCell {
        let tight = |text: String| if column.tight { text.replace(" %", "%") } else { text };
        let plain = tight(plain);
        let styled = styled.map_or_else(|| plain.clone(), tight);
        let right = column.align == Align::Right;
        PlacedCell { plain, styled, gap: column.gap, width: column.width, right }
    }

    /// The cell in `width` columns, with its gap.
    fn put(&self, width: usize) -> String {
        let (gap, fill) = (self.gap, width.saturating_sub(fit::columns(&self.plain)));
        let (before, after) = if self.right { (gap + fill, 0) } else { (gap, fill) };
        format!("{:before$}{}{:after$}", "", self.styled, "")
    }
}

/// The cells that are on the line of their row.
fn placed(table: &Table, cells: &[Cell], style: Style) -> Vec<PlacedCell> {
    let (mut all, mut at, none) = (Vec::new(), 0, Cell::default());
    while let Some(column) = table.columns.get(at) {
        let cell = cells.get(at).unwrap_or(&none);
        let span = cell.span.max(1);
        if column.shown.has(In::TERMINAL) && !column.below {
            let width = table.columns[at..].iter().take(span).map(|of| of.width).sum();
            let styled = cell.narrow.is_none().then(|| styled(&cell.text, style));
            let plain = cell.narrow.clone().unwrap_or_else(|| cell.text.plain());
            all.push(PlacedCell { width, ..PlacedCell::of(column, plain, styled) });
        }
        at += span;
    }
    all
}

/// A row without its label: the room for that, the rest of its line, and a next line if there is one.
type RowLayout = (usize, String, Option<String>);

fn layout_row(layout: &Layout, cells: &[PlacedCell]) -> RowLayout {
    let join = |cells: &[PlacedCell], widths: &[usize]| -> String {
        cells.iter().zip(widths).map(|(cell, width)| cell.put(*width)).collect()
    };
    let (mut widths, mut over): (Vec<usize>, usize) = (cells.iter().map(|cell| cell.width).collect(), 0);
    let gives = match layout.wide {
        Wide::Pushes => cells.len(),
        Wide::Takes => 0,
        Wide::Breaks => 1,
    };
    for (cell, width) in cells.iter().zip(&mut widths).skip(gives).rev() {
        let needs = if cell.plain.is_empty() { 0 } else { fit::columns(&cell.plain) + 1 };
        *width = needs.max(cell.width - over.min(cell.width));
        over = over + *width - cell.width;
    }
    match (layout.wide, cells) {
        (Wide::Breaks, [first, rest @ ..]) => {
            let (line, behind) = (first.put(first.width.saturating_sub(over)), join(rest, &widths[1..]));
            if fit::columns(&first.plain) + over <= first.width {
                (layout.label, line + &behind, None)
            } else {
                let before = layout.label + first.width - over.min(first.width);
                (layout.label, first.put(first.width), Some(format!("{:before$}{behind}", "")))
            }
        }
        _ => (layout.label - over.min(layout.label), join(cells, &widths), None),
    }
}

/// Writes a row with its label; a label without room is handled as the layout says ([`Long`]).
fn put(out: &mut Out, layout: &Layout, indent: usize, label: &str, cells: &[PlacedCell]) {
    let (room, line, next) = layout_row(layout, cells);
    let mut whole = format!("{:indent$}{label}", "");
    if fit::columns(&whole) > room {
        whole = match layout.long {
            Long::Shortened => format!("{:indent$}{}", "", fit::name(label, room.saturating_sub(indent))),
            Long::Above => {
                out.paragraph(&" ".repeat(indent), indent + 2, label);
                String::new()
            }
            Long::Outside => {
                out.paragraph("", 2, label);
                String::new()
            }
        };
    }
    out.line(&format!("{}{line}", fit::left(&whole, room)));
    next.iter().for_each(|next| out.line(next));
}
