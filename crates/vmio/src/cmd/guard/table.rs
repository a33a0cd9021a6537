//! The plan as tables: a row a member, with a bar over the pool's capacity.

use vmio_model::policy::groups::GroupKey;
use vmio_model::policy::plan::{GroupRow, LimitedBy, Plan, Pool, Row};
use vmio_model::policy::queueless;
use vmio_model::rate::BitRate;

use crate::fit::{self, WIDTH};
use crate::report::document::{self, Block, Colour, Column, Document, Layout, Span, Table, Text, say};
use crate::term::Style;

/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 18;
/// Longest class that is shown whole.
const CLASS: usize = 9;
/// Columns of a figure.
const FIGURE: usize = 7;

/// The whole plan for a terminal.
pub fn text(plan: &Plan, style: Style) -> String {
    document(plan).text(style, WIDTH)
}

fn document(plan: &Plan) -> Document {
    let mut doc = Document::new("");
    let mut marks = Marks::default();
    let mut idle = Vec::new();
    let mut rows = plan.interfaces.as_slice();
    for pool in &plan.pools {
        let end = rows.iter().take_while(|r| (&r.uplink, r.direction) == (&pool.uplink, pool.direction)).count();
        let (mine, rest) = rows.split_at(end);
        rows = rest;
        if mine.iter().all(Row::is_idle_implicit) {
            idle.push(format!("{} {}", pool.uplink, pool.direction.word()));
            continue;
        }
        marks.see(mine);
        doc.put(heading(pool, mine));
        doc.put(table(pool, mine).into());
        doc.gap();
    }
    if plan.pools.is_empty() {
        doc.put(say((0, 0), "The policy has no uplink: nothing to plan."));
    } else if idle.len() < plan.pools.len() {
        marks.explain(&mut doc);
    }
    if !idle.is_empty() {
        doc.put(left_out(&idle));
    }
    if !plan.groups.is_empty() {
        doc.gap();
        let head = Text::from(Span::Bold("Processors and memory".to_owned()));
        doc.put(say((0, 0), head.and(Span::Plain(": on the guest's control group".to_owned()))));
        doc.put(groups(&plan.groups).into());
    }
    doc
}

/// The guests' limits of processors and memory.
fn groups(rows: &[GroupRow]) -> Table {
    let name_width = fit::widest(rows.iter().map(|r| r.name.as_str()), NAME, 5);
    let columns = [("cpu_weight", 10), ("cpu_max", 12), ("memory_max", 14)];
    let columns = columns.map(|(head, width)| Column::new(head, width).gap(1));
    let row = |row: &GroupRow| {
        let limits = GroupKey::ALL.map(|key| row.limits.shown(key).unwrap_or_else(|| "-".into()));
        document::Row::new(&row.name, limits)
    };
    let table = Table::new("guest", Layout::flush(name_width), columns).with(rows.iter().map(row));
    Table { narrow: "guest".to_owned(), ..table }
}

/// The pools in which only an idle host and default are, in a line.
fn left_out(idle: &[String]) -> Block {
    let shown = idle[..idle.len().min(3)].join(", ");
    let more = if idle.len() > 3 { format!(" and {} more", idle.len() - 3) } else { String::new() };
    say((0, 0), format!("Not shown, because only an idle host and default are in it: {shown}{more}"))
}

/// The marks that appear in the tables.
#[derive(Default)]
struct Marks {
    less: bool,
    over: bool,
    above: bool,
}

impl Marks {
    fn see(&mut self, rows: &[Row]) {
        for row in rows {
            self.less |= less(row);
            self.over |= row.contract.over_max;
            self.above |= row.rate_bps > row.contract.max;
        }
    }

    fn explain(&self, doc: &mut Document) {
        let mark = |colour, sign: &str| Span::Mark(colour, sign.to_owned());
        let plain = |text: &str| Span::Plain(text.to_owned());
        let mut bar = Text::from(mark(Colour::Cyan, "█"))
            .and(plain(" guaranteed   "))
            .and(mark(Colour::Cyan, "▒"))
            .and(plain(" spare   "));
        if self.above {
            bar = bar.and(mark(Colour::Yellow, "░")).and(plain(" above the maximum   "));
        }
        doc.put(say((0, 0), bar.and(mark(Colour::Dim, "·")).and(plain(" free up to the maximum"))));
        if self.less {
            let text = "* less than its class's minimum: not all minima fit, low priorities give way";
            doc.put(say((0, 0), text));
        }
        if self.over {
            doc.put(say((0, 0), "+ may exceed its maximum once every maximum is met (over_max)"));
        }
    }
}

/// The pool, its capacity, and how much of that is unused.
fn heading(pool: &Pool, rows: &[Row]) -> Block {
    let idle: BitRate = rows.iter().filter(|r| r.contract.hard).map(|r| r.min_effective_bps - r.guaranteed_bps).sum();
    let kept = match idle {
        BitRate::ZERO => String::new(),
        idle => format!(", {idle} of it reserved by hard minima"),
    };
    let name = Text::from(Span::Bold(format!("{} {}", pool.uplink, pool.direction.word())));
    let queueless = if pool.queueless { format!("; {}", queueless::SHOWN) } else { String::new() };
    let figures = format!(": {}, {} unused{kept}{queueless}", pool.capacity_bps, pool.unused_bps);
    say((0, 0), name.and(Span::Plain(figures)))
}

fn table(pool: &Pool, rows: &[Row]) -> Table {
    let (unit, factor) = unit(pool.capacity_bps);
    let name_width = fit::widest(rows.iter().map(|r| r.name.as_str()), NAME, "name".len());
    let class_width = fit::widest(rows.iter().map(|r| r.class.as_str()), CLASS, 5);
    let bar_width = WIDTH.saturating_sub(name_width + class_width + 4 * (FIGURE + 1) + 18);
    // The scale of the bars, where there is room for it.
    let capacity = pool.capacity_bps.to_string();
    let scale = if bar_width > capacity.len() { format!("0{capacity:>0$}", bar_width - 1) } else { String::new() };
    let figures = ["demand", "min", "max", "rate"].map(|head| Column::new(head, FIGURE).gap(1));
    let columns = [Column::new("class", class_width).left().gap(1), Column::new("prio", 4).gap(1)]
        .into_iter()
        .chain(figures)
        .chain([Column::new("limit", 8).left().gap(1), Column::new(scale, bar_width).left().gap(1)]);
    let row = |row: &Row| {
        let figure = |rate: BitRate| figure(rate, factor);
        let less = if less(row) { "*" } else { "" };
        let over = if row.contract.over_max { "+" } else { "" };
        let limit = match row.limited_by {
            LimitedBy::Capacity => Span::Mark(Colour::Yellow, "capacity".to_owned()),
            other => Span::Plain(other.word().to_owned()),
        };
        let cells: [Text; 8] = [
            fit::cut(&row.class, class_width).into(),
            row.contract.priority.to_string().into(),
            row.demand_bps.map_or("all".to_owned(), figure).into(),
            format!("{less}{}", figure(row.min_effective_bps)).into(),
            format!("{over}{}", figure(row.contract.max)).into(),
            Span::Bold(figure(row.rate_bps)).into(),
            limit.into(),
            bar(row, pool.capacity_bps, bar_width),
        ];
        document::Row::new(&row.name, cells)
    };
    let table = Table::new("name", Layout::flush(name_width), columns).with(rows.iter().map(row));
    Table { narrow: unit.to_owned(), ..table }
}

/// Whether a member has less than its minimum; one that the algorithm leaves out has none.
fn less(row: &Row) -> bool {
    row.member.is_some() && row.min_effective_bps < row.contract.min
}

/// The unit in which a pool's figures have the fewest digits, and what one of it is.
pub(super) fn unit(capacity: BitRate) -> (&'static str, BitRate) {
    let units = [("Tbit/s", 1_000_000_000_000), ("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000)];
    let units = units.map(|(name, bits)| (name, BitRate::new(bits)));
    units.into_iter().find(|(_, one)| capacity >= 50 * *one).unwrap_or(("bit/s", BitRate::ONE))
}

/// A rate in that unit: whole where it is whole, else with one or two decimals.
pub(super) fn figure(rate: BitRate, unit: BitRate) -> String {
    let value = rate.bits() as f64 / unit.bits() as f64;
    match value {
        _ if rate.rounded_down(unit) == rate => format!("{}", rate / unit),
        v if v < 0.01 => "<0.01".to_owned(),
        v if v < 100.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

/// A bar of the guaranteed rate, the spare, the spare above the maximum, and what is free up to it. A rate above 0 has
/// at least one cell.
fn bar(row: &Row, capacity: BitRate, width: usize) -> Text {
    let cells = |rate: BitRate| {
        let exact = rate.bits() as f64 * width as f64 / capacity.bits() as f64;
        (exact.round() as usize).max(usize::from(rate > BitRate::ZERO)).min(width)
    };
    let guaranteed = cells(row.guaranteed_bps);
    let rate = cells(row.rate_bps).max((guaranteed + usize::from(row.spare_bps > BitRate::ZERO)).min(width));
    let max = cells(row.contract.max.min(capacity));
    let above = if row.rate_bps > row.contract.max { rate.saturating_sub(max.max(guaranteed)) } else { 0 };
    let (spare, free) = (rate - guaranteed - above, max.saturating_sub(rate));
    Text::from(Span::Mark(Colour::Cyan, "█".repeat(guaranteed) + &"▒".repeat(spare)))
        .and(Span::Mark(Colour::Yellow, "░".repeat(above)))
        .and(Span::Mark(Colour::Dim, "·".repeat(free)))
}
