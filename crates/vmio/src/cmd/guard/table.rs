//! The plan as a table for a terminal: a line a member, with a bar over the pool's capacity.

use std::fmt::Write as _;

use vmio_model::policy::groups::GroupKey;
use vmio_model::policy::plan::{GroupRow, LimitedBy, Plan, Pool, Row};
use vmio_model::rate::BitRate;

use crate::fit;
use crate::term::Style;

/// Columns that no line exceeds.
const WIDTH: usize = crate::fit::WIDTH;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 18;
/// Longest class that is shown whole.
const CLASS: usize = 9;
/// Columns of a figure.
const FIGURE: usize = 7;

/// The whole plan.
pub fn text(plan: &Plan, style: Style) -> String {
    let mut out = String::new();
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
        table(&mut out, pool, mine, style);
        out.push('\n');
    }
    if plan.pools.is_empty() {
        out += "The policy has no uplink: there is nothing to plan.\n";
    } else if idle.len() < plan.pools.len() {
        out += &marks.legend(style);
    }
    if !idle.is_empty() {
        out += &left_out(&idle);
    }
    if !plan.groups.is_empty() {
        out.push('\n');
        groups(&mut out, &plan.groups, style);
    }
    out
}

/// What the guests are owed of processors and memory.
fn groups(out: &mut String, rows: &[GroupRow], style: Style) {
    let _ = writeln!(out, "{}: on the guest's control group", style.bold("Processors and memory"));
    let width = fit::widest(rows.iter().map(|r| r.name.as_str()), NAME, 5);
    let header = format!("{:<width$} {:>10} {:>12} {:>14}", "guest", "cpu_weight", "cpu_max", "memory_max");
    let _ = writeln!(out, "{}", style.dim(&header));
    for row in rows {
        let name = fit::beside(out, &row.name, width, 2);
        let [weight, cpu, memory] = GroupKey::ALL.map(|key| row.limits.shown(key).unwrap_or_else(|| "-".into()));
        let _ = writeln!(out, "{name} {weight:>10} {cpu:>12} {memory:>14}");
    }
}

/// Pools in which there is nothing to see, in a line.
fn left_out(idle: &[String]) -> String {
    let shown = idle[..idle.len().min(3)].join(", ");
    let more = if idle.len() > 3 { format!(" and {} more", idle.len() - 3) } else { String::new() };
    fit::paragraph("", 0, &format!("Not shown, because only an idle host and default are in it: {shown}{more}"))
}

/// What the legend has to explain.
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

    fn legend(&self, style: Style) -> String {
        let above = if self.above { &format!("   {} above the maximum", style.yellow("░")) } else { "" };
        let mut text = format!(
            "{} guaranteed   {} spare{above}   {} free up to the maximum\n",
            style.cyan("█"),
            style.cyan("▒"),
            style.dim("·")
        );
        if self.less {
            text += "* less than its class's minimum: not all minima fit, low priorities give way\n";
        }
        if self.over {
            text += "+ may exceed its maximum once every maximum is met (over_max)\n";
        }
        text
    }
}

fn table(out: &mut String, pool: &Pool, rows: &[Row], style: Style) {
    let (unit, factor) = unit(pool.capacity_bps);
    let idle: BitRate = rows.iter().filter(|r| r.contract.hard).map(|r| r.min_effective_bps - r.guaranteed_bps).sum();
    let kept = match idle {
        BitRate::ZERO => String::new(),
        idle => format!(", {idle} of it reserved by hard minima"),
    };
    let head = format!("{} {}", pool.uplink, pool.direction.word());
    let (capacity, unused) = (pool.capacity_bps.to_string(), pool.unused_bps);
    let _ = writeln!(out, "{}: {capacity}, {unused} unused{kept}", style.bold(&head));
    let name_width = fit::widest(rows.iter().map(|r| r.name.as_str()), NAME, "name".len());
    let class_width = fit::widest(rows.iter().map(|r| r.class.as_str()), CLASS, 5);
    let bar_width = WIDTH.saturating_sub(name_width + class_width + 4 * (FIGURE + 1) + 18);
    // The scale of the bars, where there is room for it.
    let scale = if bar_width > capacity.len() { format!("0{capacity:>0$}", bar_width - 1) } else { String::new() };
    let header = format!(
        "{:<name_width$} {:<class_width$} {:>4} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:<8} {scale}",
        unit, "class", "prio", "demand", "min", "max", "rate", "limit"
    );
    let _ = writeln!(out, "{}", style.dim(header.trim_end()));
    for row in rows {
        let figure = |rate: BitRate| figure(rate, factor);
        let less = if less(row) { "*" } else { "" };
        let over = if row.contract.over_max { "+" } else { "" };
        let figures = format!(
            "{} {} {:>4} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$}",
            fit::beside(out, &row.name, name_width, 2),
            fit::left(&fit::cut(&row.class, class_width), class_width),
            row.contract.priority,
            row.demand_bps.map_or("all".to_owned(), figure),
            format!("{less}{}", figure(row.min_effective_bps)),
            format!("{over}{}", figure(row.contract.max)),
        );
        let rate = style.bold(&format!("{:>FIGURE$}", figure(row.rate_bps)));
        let limit = match row.limited_by {
            LimitedBy::Capacity => style.yellow("capacity"),
            other => format!("{:<8}", other.word()),
        };
        let bar = bar(row, pool.capacity_bps, bar_width, style);
        let _ = writeln!(out, "{}", format!("{figures} {rate} {limit} {bar}").trim_end());
    }
}

/// It has not all of its minimum. Who is left out by the algorithm has none to begin with.
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

/// Cells of guaranteed, spare, spare above the maximum, and what is free below it. Whatever is
/// above 0 shows.
fn bar(row: &Row, capacity: BitRate, width: usize, style: Style) -> String {
    let cells = |rate: BitRate| {
        let exact = rate.bits() as f64 * width as f64 / capacity.bits() as f64;
        (exact.round() as usize).max(usize::from(rate > BitRate::ZERO)).min(width)
    };
    let guaranteed = cells(row.guaranteed_bps);
    let rate = cells(row.rate_bps).max((guaranteed + usize::from(row.spare_bps > BitRate::ZERO)).min(width));
    let max = cells(row.contract.max.min(capacity));
    let above = if row.rate_bps > row.contract.max { rate.saturating_sub(max.max(guaranteed)) } else { 0 };
    let (spare, free) = (rate - guaranteed - above, max.saturating_sub(rate));
    format!(
        "{}{}{}",
        style.cyan(&("█".repeat(guaranteed) + &"▒".repeat(spare))),
        style.yellow(&"░".repeat(above)),
        style.dim(&"·".repeat(free))
    )
}
