//! The energy of a cell's requests above the machine at rest, by meter; and that there is no meter.

use vmio_model::figure::Unit;
use vmio_model::result::Environment;
use vmio_model::stats::Estimate;
use vmio_model::summary::CellRow;
use vmio_model::summary::energy::{CellEnergy, EnergyRow};

use super::section::Section;
use super::{Report, format};

/// What a column of energy says where none was measured.
const NO_METER: &str = "no meter";

/// What it says where the machine was never at rest.
const UNKNOWN: &str = "unknown";

/// The energy of a request above rest by each meter, in a line; `no meter` where nothing was metered, `unknown` where the
/// machine was never at rest.
pub(super) fn of_request(cell: &CellRow) -> String {
    if cell.energy.is_empty() {
        return NO_METER.to_owned();
    }
    let by_meter = cell.energy.iter().filter_map(|row| {
        let joules = row.joules_per_request_above_rest.as_ref()?;
        Some(format!("{} {}", thing(row), format::estimate(Unit::Joules, joules)))
    });
    let told = by_meter.collect::<Vec<_>>().join("; ");
    if told.is_empty() { UNKNOWN.to_owned() } else { told }
}

/// The meters of a run, with those that its plan expected where these were others; `None` where there was neither.
pub(super) fn meters(e: &Environment) -> Option<String> {
    let names = |all: &[String]| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    match (e.meters.as_slice(), e.meters_planned.as_slice()) {
        ([], []) => None,
        (used, planned) if used == planned => Some(names(used)),
        (used, planned) => Some(format!("{}; the plan expected {}", names(used), names(planned))),
    }
}

/// Meter and domain: `ipmi machine`.
fn thing(row: &EnergyRow) -> String {
    format!("{} {}", row.meter, row.domain)
}

/// All cells of a run with a meter.
pub(super) fn section(report: &Report<'_>) -> Section {
    let cells: Vec<CellEnergy> = report.summary.cells.iter().map(CellEnergy::of).collect();
    let any = cells.iter().any(|cell| !cell.energy.is_empty());
    of_cells(if any { &cells } else { &[] })
}

/// These cells. One that no meter was asked in says so, beside its CPU time.
pub(super) fn of_cells(cells: &[CellEnergy]) -> Section {
    let watts = |watts: Estimate| format::figure(Unit::Watts, watts.value);
    let cpu = |cell: &CellEnergy| cell.cpu_seconds_per_request.map_or(String::new(), format::time);
    let row_of = |cell: &CellEnergy, row: &EnergyRow| {
        let joules = row.joules_per_request_above_rest;
        let [value, interval] = match &joules {
            Some(joules) => [format::figure(Unit::Joules, joules.value), half_width(joules)],
            None => [UNKNOWN.to_owned(), String::new()],
        };
        let rest = row.rest_watts.map_or_else(|| UNKNOWN.to_owned(), watts);
        (format!("{}, {}", cell.key, thing(row)), vec![value, interval, watts(row.watts), rest, cpu(cell)])
    };
    let rows_of = |cell: &CellEnergy| -> Vec<(String, Vec<String>)> {
        let counted = cell.cpu_seconds_per_request.is_some();
        if cell.energy.is_empty() && counted {
            let nothing = [NO_METER, "", "", ""].map(str::to_owned);
            return vec![(cell.key.clone(), nothing.into_iter().chain([cpu(cell)]).collect())];
        }
        cell.energy.iter().map(|row| row_of(cell, row)).collect()
    };
    Section {
        title: "Energy above rest".to_owned(),
        meaning: "J/request: the energy of each request above the power of the machine at rest, which was measured in \
                  this run before each boot and at its end, with the 95 % interval of both. watts: mean power of the \
                  cell, with all work on the machine; at rest: without guests and cells, unknown where other \
                  processes were at work in each of these phases. Rows are not added up: processors are a part of \
                  the machine. CPU/request is processor time, not energy."
            .to_owned(),
        columns: ["J/request", "interval", "watts", "at rest", "CPU/request"].map(str::to_owned).into(),
        rows: cells.iter().flat_map(rows_of).collect(),
        notes: Vec::new(),
    }
}

/// `±1.20 mJ`; the energy above rest may be near 0, so in its own unit.
fn half_width(joules: &Estimate) -> String {
    joules.interval.map_or("no interval".to_owned(), |i| format!("±{}", format::figure(Unit::Joules, i.half_width())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_meter_than_that_of_the_plan_is_told() {
        let of = |planned: &[&str], used: &[&str]| {
            let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            meters(&Environment { meters_planned: names(planned), meters: names(used), ..Environment::default() })
        };
        assert_eq!((of(&[], &[]), of(&["hwmon"], &["hwmon"]).as_deref()), (None, Some("hwmon")));
        assert_eq!(of(&["powercap", "hwmon"], &["hwmon"]).as_deref(), Some("hwmon; the plan expected powercap, hwmon"));
        assert_eq!(of(&["ipmi"], &[]).as_deref(), Some("none; the plan expected ipmi"));
    }
}
