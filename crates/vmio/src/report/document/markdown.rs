//! A document as Markdown (GitHub's flavour), for an issue, a pull request or `docs/results/`.

use std::fmt::Write;

use vmio_model::sanitize;

use super::{Align, Block, Card, Cell, Column, Document, Head, Heading, In, Kind, Paragraph, Row, Span, Table, Text};

/// The whole document.
pub fn whole(document: &Document) -> String {
    let mut all = vec![format!("# {}", plain(&document.title))];
    blocks(&mut all, &document.blocks);
    all.join("\n\n") + "\n"
}

fn blocks(all: &mut Vec<String>, blocks: &[(In, Block)]) {
    for (_, block) in blocks.iter().filter(|(forms, _)| forms.has(In::MARKDOWN)) {
        match block {
            Block::Gap | Block::Plots(_) => {}
            Block::Heading(of) => heading(all, of),
            Block::Paragraph(of) => all.push(paragraph(of)),
            Block::List(list) if list.entries.is_empty() => {}
            Block::List(list) => {
                let entry = |(lead, text): &(String, Text)| format!("- {}{}", plain(lead), words(text));
                all.push(lines(list.entries.iter().map(entry)));
            }
            Block::Pairs(of) => {
                let pairs = of.pairs.iter().filter(|(forms, ..)| forms.has(In::MARKDOWN));
                let pair = |(_, name, value): &(In, Text, String)| format!("| {} | {} |", words(name), plain(value));
                all.push(lines(["| | |".to_owned(), "|---|---|".to_owned()].into_iter().chain(pairs.map(pair))));
            }
            Block::Table(of) => all.push(table(of)),
            Block::Head(of) => head(all, of),
            Block::Card(of) => card(all, of),
            Block::Code(of) => all.push(code(of)),
            Block::Folded(_, inside) => self::blocks(all, inside),
        }
    }
}

fn lines(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join("\n")
}

fn heading(all: &mut Vec<String>, Heading { level, text, aside, .. }: &Heading) {
    all.push(format!("{} {}", "#".repeat((*level).into()), plain(text)));
    all.extend(aside.iter().map(|aside| plain(aside)));
}

fn paragraph(Paragraph { kind, text, .. }: &Paragraph) -> String {
    let said = words(text);
    match kind {
        Kind::Warning => format!("> **Note.** {said}"),
        Kind::Doubt => format!("**{said}**"),
        Kind::Plain | Kind::Aside | Kind::Dim | Kind::Notice => said,
    }
}

fn head(all: &mut Vec<String>, Head { name, figure, text, about, lines: made_of, .. }: &Head) {
    all.extend(name.iter().map(|name| format!("## {}", plain(name))));
    all.push(if figure.is_some() { format!("**{}**", plain(text)) } else { plain(text) });
    all.extend(about.iter().map(|about| plain(about)));
    let made_of = lines(made_of.iter().map(|line| format!("- {}", plain(line))));
    all.extend(Some(made_of).filter(|lines| !lines.is_empty()));
}

fn card(all: &mut Vec<String>, card: &Card) {
    let level = card.found.as_ref().map_or_else(String::new, |(severity, _)| format!(" ({severity})"));
    all.push(format!("### {}{level}", plain(&card.title)));
    all.extend(card.cause.iter().map(|(subject, cause)| format!("{}: {}", plain(subject), plain(cause))));
    all.extend(card.change.iter().map(|what| format!("Change: {}", plain(what))));
    for (name, how) in card.made.iter().flat_map(|made| &made.ways) {
        all.extend([format!("{name}:"), code(how)]);
    }
    all.extend(card.references.iter().map(|reference| format!("See {}", plain(reference))));
    all.extend(card.proof.iter().map(|(run, verdict)| format!("`--prove`, run {run}: {}", plain(verdict))));
}

fn table(table: &Table) -> String {
    let columns: Vec<(usize, &Column)> = table.columns_in(In::MARKDOWN).collect();
    let (mut heads, mut dashes) = (format!("| {} |", plain(table.head)), "|---|".to_owned());
    for (_, column) in &columns {
        let small = if column.small.is_empty() { String::new() } else { format!(" ({})", column.small) };
        let _ = write!(heads, " {}{} |", plain(&column.head), plain(&small));
        dashes += if column.align == Align::Right { "--:|" } else { "---|" };
    }
    if !table.marks.is_empty() {
        let _ = write!(heads, " {} |", table.marks);
        dashes += "---|";
    }
    let line = |label: String, row: &Row| {
        let cell = |(at, column): &(usize, &Column)| format!(" {} |", cell(row.cells.get(*at), column));
        let notes = format!(" {} |", plain(&row.notes.join("; ")));
        let notes = if table.marks.is_empty() { String::new() } else { notes };
        format!("| {label} |{}{notes}", columns.iter().map(cell).collect::<String>())
    };
    let mut all = vec![heads, dashes];
    for row in &table.rows {
        all.push(line(words(&row.label), row));
        all.extend(row.parts.iter().map(|part| line(format!("– {}", words(&part.label)), part)));
    }
    all.join("\n")
}

fn cell(cell: Option<&Cell>, column: &Column) -> String {
    match cell {
        Some(cell) if !cell.text.is_empty() && cell.aside.is_empty() => words(&cell.text),
        Some(cell) if !cell.text.is_empty() => format!("{}: {}", words(&cell.text), plain(&cell.aside)),
        _ if column.below => "–".to_owned(),
        _ => String::new(),
    }
}

fn words(text: &Text) -> String {
    let one = |span: &Span| match span {
        Span::Strong(said) | Span::Bold(said) if !said.trim().is_empty() => {
            let gap = if said.starts_with(' ') { " " } else { "" };
            format!("{gap}**{}**", plain(said.trim()))
        }
        other => plain(other.said()),
    };
    text.0.iter().map(one).collect()
}

/// The text on one line, with Markdown's characters escaped.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if sanitize::is_hidden(c) => out.push(sanitize::INSTEAD),
            c => out.push(c),
        }
    }
    out
}

/// A block of code, indented, since a fence could be ended by the text.
fn code(text: &str) -> String {
    lines(sanitize::lines(text).lines().map(|line| format!("    {line}")))
}
