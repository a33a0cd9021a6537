//! A document as a page that loads nothing: style and drawings are inline, and there is no script. Each bar stands in a
//! table row with its figure, so the table is the drawings' text form.

use super::{
    Align, Block, Card, Cell, Column, Document, Drawing, Head, Heading, In, Kind, List, Made, Paragraph, Plots, Row,
    Span, Table, Text, Ways,
};
use crate::report::page::{self, Html, breakable, chip, html};
use crate::report::svg;

/// The whole page.
pub fn whole(document: &Document) -> String {
    page::whole(&document.title, &blocks(&document.blocks))
}

fn blocks(blocks: &[(In, Block)]) -> Html {
    let shown = blocks.iter().filter(|(forms, _)| forms.has(In::HTML)).map(|(_, block)| block);
    let shown: Vec<&Block> = shown.collect();
    let both_scaled = |a: &&Block, b: &&Block| scaled(a).is_some() && scaled(b).is_some();
    html! { @for together in shown.chunk_by(both_scaled) { (beside(together)) } }
}

/// A block, or headlines that are on one axis.
fn beside(blocks: &[&Block]) -> Html {
    let heads: Vec<&Head> = blocks.iter().filter_map(|block| scaled(block)).collect();
    html! { @if heads.is_empty() { @for one in blocks { (block(one)) } } @else { (shares(&heads)) } }
}

/// A headline whose figure is on a scale.
fn scaled(block: &Block) -> Option<&Head> {
    match block {
        Block::Head(head) if head.gauge.is_some() => Some(head.as_ref()),
        _ => None,
    }
}

fn block(block: &Block) -> Html {
    match block {
        Block::Gap => html! {},
        Block::Heading(of) => heading(of),
        Block::Paragraph(of) => paragraph(of),
        Block::List(of) => list(of),
        Block::Pairs(of) => html! {
            div.scroll {
                table.env {
                    tbody {
                        @for (_, name, value) in of.pairs.iter().filter(|(forms, ..)| forms.has(In::HTML)) {
                            tr { th scope="row" { (words(name)) } td.l.w { (breakable(value)) } }
                        }
                    }
                }
            }
        },
        Block::Table(of) => table(of),
        Block::Head(of) => head(of),
        Block::Card(of) => card(of),
        Block::Code(code) => html! { pre { (breakable(code)) } },
        Block::Plots(of) => plots(of),
        Block::Folded(line, inside) => html! { details { summary { (line) } (blocks(inside)) } },
    }
}

fn heading(heading: &Heading) -> Html {
    let id = heading.id.as_deref();
    let inside = html! {
        (breakable(&heading.text))
        @if let Some(aside) = &heading.aside { " " span.dim { (breakable(aside)) } }
    };
    match heading.level {
        2 => html! { h2 id=[id] { (inside) } },
        _ => html! { h3 id=[id] { (inside) } },
    }
}

fn paragraph(Paragraph { kind, text, .. }: &Paragraph) -> Html {
    let said = words(text);
    match kind {
        Kind::Plain => html! { p { (said) } },
        Kind::Aside | Kind::Dim => html! { p.dim { (said) } },
        Kind::Notice => html! { div.note { p { (said) } } },
        Kind::Warning => html! { div.note role="note" { p { (said) } } },
        Kind::Doubt => html! { p { span.tag { (said) } } },
    }
}

fn list(list: &List) -> Html {
    html! {
        @if list.aside {
            @for (lead, text) in &list.entries { p.dim { (breakable(lead)) (words(text)) } }
        } @else if !list.entries.is_empty() {
            ul { @for (lead, text) in &list.entries { li { (breakable(lead)) (words(text)) } } }
        }
    }
}

fn head(head: &Head) -> Html {
    html! {
        div.head {
            @if let Some((value, small)) = &head.figure { div.big { (value) small { (words(small)) } } }
            div.what { (about(head)) }
        }
    }
}

/// Headlines, each with its bar on the axis of all. What they are is folded away where there are several.
fn shares(heads: &[&Head]) -> Html {
    let high = |head: &&Head| head.gauge.map(|(value, interval, _)| interval.map_or(value, |i| i.high.max(value)));
    let top = heads.iter().filter_map(high).fold(1.0, f64::max);
    let whole = heads.iter().find_map(|head| head.gauge).map_or("", |(.., whole)| whole);
    html! {
        div.heads {
            @for head in heads { (share(head, top)) }
            (svg::axis(top, whole))
        }
        @match heads {
            [head] => { (about(head)) },
            heads => {
                details {
                    summary { "What these shares are of" }
                    @for head in heads {
                        @if let Some(name) = &head.name { h3 { (name) } }
                        (about(head))
                    }
                }
            },
        }
    }
}

fn share(head: &Head, top: f64) -> Html {
    html! {
        @if let Some(name) = &head.name { div.name { (name) } }
        @if let Some((value, small)) = &head.figure { div.value { strong { (value) } " " small { (words(small)) } } }
        @if let Some((value, interval, _)) = head.gauge { (svg::share(value, interval, top, &head.text)) }
    }
}

/// The figure in a sentence, and its parts.
fn about(head: &Head) -> Html {
    html! {
        p { (breakable(&head.text)) }
        @if let Some(about) = &head.about { p.dim { (breakable(about)) } }
        @if !head.lines.is_empty() { ul.parts { @for line in &head.lines { li { (breakable(line)) } } } }
    }
}

fn card(card: &Card) -> Html {
    let level = card.found.as_ref().map(|(severity, _)| *severity);
    let class = level.map_or_else(|| "card".to_owned(), |level| format!("card {}", level.name()));
    html! {
        article class=(class) {
            h3 { (breakable(&card.title)) @if let Some(level) = level { " " (chip(level)) } }
            @if let Some((subject, cause)) = &card.cause {
                p.dim { (breakable(subject)) }
                p { (breakable(cause)) }
            }
            dl {
                @if !card.evidence.is_empty() {
                    dt { "Evidence" }
                    dd {
                        ul.plain {
                            @for (setting, from) in &card.evidence {
                                li { code { (breakable(setting)) } " " span.dim { "read from " (breakable(from)) } }
                            }
                        }
                    }
                }
                @if let Some((text, source)) = &card.expected {
                    dt { "Expect" }
                    dd { (breakable(text)) " " span.dim { (breakable(source)) } }
                }
                @if let Some(what) = &card.change {
                    dt { "Change" }
                    dd { (breakable(what)) }
                }
                @if let Some(how) = &card.made { (made(how)) }
                @if !card.references.is_empty() {
                    dt { "See" }
                    dd { (breakable(&card.references.join("; "))) }
                }
                @if let Some((run, verdict)) = &card.proof {
                    dt { "--prove" }
                    dd { strong { (breakable(verdict)) } " (run " (run) ")" }
                }
            }
        }
    }
}

fn made(made: &Made) -> Html {
    let elsewhere: Vec<&str> = made.elsewhere.iter().map(|(name, _)| *name).collect();
    html! {
        (ways(&made.ways))
        @if let Some(remark) = made.remark {
            dt {}
            dd.dim { (remark) }
        }
        dt {}
        dd { (made.takes) }
        @if !elsewhere.is_empty() {
            dt {}
            dd {
                details {
                    summary { "The same for " (elsewhere.join(" and ")) }
                    dl { (ways(&made.elsewhere)) }
                }
            }
        }
    }
}

/// How a change is made, each way as a block that one click selects.
fn ways(ways: &Ways) -> Html {
    html! {
        @for (name, how) in ways.iter().filter(|(_, how)| !how.is_empty()) {
            dt { (name) }
            dd { pre.copy { (breakable(how)) } }
        }
    }
}

fn plots(plots: &Plots) -> Html {
    html! {
        @if !plots.legend.is_empty() {
            ul.legend { @for (series, label) in &plots.legend { li { (svg::swatch(*series)) (breakable(label)) } } }
        }
        @match plots.drawings.as_slice() {
            [(caption, drawing)] if caption.is_empty() => { div.scroll { (drawn(drawing, "wide")) } },
            drawings => {
                div.grid3 {
                    @for (caption, drawing) in drawings {
                        figure { figcaption { (breakable(caption)) } div.scroll { (drawn(drawing, "curves")) } }
                    }
                }
            },
        }
    }
}

/// A drawing, or nothing where there is nothing to draw.
fn drawn(drawing: &Drawing, css: &str) -> Html {
    let svg = match drawing {
        Drawing::Latency(curves, title, what) => svg::latency(curves, title, what),
        Drawing::Lines(plot) => plot.svg(css),
    };
    html! { @if let Some(svg) = svg { (svg) } }
}

/// The columns of a page, with their indices among all.
type Columns<'a> = [(usize, &'a Column)];

fn table(table: &Table) -> Html {
    let columns: Vec<(usize, &Column)> = table.columns_in(In::HTML).collect();
    let label = Some(&table.label).filter(|label| !label.is_empty());
    let (region, focus) = (label.map(|_| "region"), label.map(|_| "0"));
    html! {
        div.scroll tabindex=[focus] role=[region] aria-label=[label] {
            table {
                thead {
                    tr {
                        th.l scope="col" { (table.head) }
                        @for (_, column) in &columns { (head_of(column)) }
                    }
                }
                tbody { @for row in &table.rows { (rows(table, row, &columns)) } }
            }
        }
    }
}

fn head_of(column: &Column) -> Html {
    let left = column.bars || column.align != Align::Right;
    html! {
        th scope="col" class=[left.then_some("l")] colspan=[column.bars.then_some("2")] {
            (column.head)
            @if !column.small.is_empty() { small { (column.small) } }
        }
    }
}

/// A row, its parts and its notes.
fn rows(table: &Table, row: &Row, columns: &Columns<'_>) -> Html {
    let notes = if table.marks.is_empty() { String::new() } else { row.notes.join("; ") };
    let goes_on = |parts: usize| parts < row.parts.len() || !notes.is_empty();
    let width = 1 + columns.iter().map(|(_, column)| 1 + usize::from(column.bars)).sum::<usize>();
    html! {
        (line(row, columns, false, goes_on(0)))
        @for (nth, part) in row.parts.iter().enumerate() { (line(part, columns, true, goes_on(nth + 1))) }
        @if !notes.is_empty() { tr.notes { td colspan=(width) { span { (breakable(&notes)) } } } }
    }
}

fn line(row: &Row, columns: &Columns<'_>, part: bool, goes_on: bool) -> Html {
    let (mut cells, mut taken) = (Vec::new(), 0_usize);
    for (at, column) in columns {
        if taken > 0 {
            taken -= 1;
            continue;
        }
        let of = row.cells.get(*at).cloned().unwrap_or_default();
        taken = of.span.saturating_sub(1);
        cells.push(cell(&of, column));
    }
    html! {
        tr class=[goes_on.then_some("has")] {
            th scope="row" class=[part.then_some("dim")] { (words(&row.label)) }
            @for cell in &cells { (cell) }
        }
    }
}

fn cell(cell: &Cell, column: &Column) -> Html {
    let class = match column.align {
        Align::Right if cell.span > 1 => Some("l w dim"),
        Align::Right => None,
        Align::Left => Some("l"),
        Align::Words => Some("l w"),
    };
    html! {
        td class=[class] colspan=[(cell.span > 1).then_some(cell.span)] {
            @if let Some(severity) = cell.chip { (chip(severity)) " " }
            @if column.below && cell.text.is_empty() { "–" }
            (words(&cell.text))
            @if !cell.aside.is_empty() { br; span.dim { (breakable(&cell.aside)) } }
        }
        @if column.bars {
            td.b {
                @if let Some(bar) = &cell.bar {
                    (svg::bar(bar.from, bar.value, bar.interval, bar.scale, bar.series, &bar.title))
                }
            }
        }
    }
}

fn words(text: &Text) -> Html {
    html! {
        @for piece in &text.0 {
            @match piece {
                Span::Plain(said) | Span::Mark(_, said) => { (breakable(said)) },
                Span::Strong(said) | Span::Bold(said) => { strong { (breakable(said)) } },
                Span::Dim(said) => { span.dim { (breakable(said)) } },
                Span::Tag(said) => { span.tag { (said) } },
                Span::Link(to, said) => { a href={ "#" (to) } { (breakable(said)) } },
                Span::Break(_) => { br; },
            }
        }
    }
}
