//! Counters of a guest's disks by its monitor (QMP `query-blockstats`; qapi/block-core.json, `BlockStats`).

use serde_json::Value;
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_node::qmp::ReadOnly;

/// What was counted of all disks; otherwise why it is not told.
pub fn ask(monitor: &mut ReadOnly) -> Result<HypervisorCounts, String> {
    let answer = monitor.queries(&["query-blockstats"]).remove(0).map_err(|e| e.to_string())?;
    counts(&answer).ok_or_else(|| "its answer to query-blockstats has no counters".to_owned())
}

/// The sum over all devices.
fn counts(all: &Value) -> Option<HypervisorCounts> {
    let mut sum = HypervisorCounts::default();
    for entry in all.as_array()? {
        let number = |name: &str, of: &str| entry["stats"][format!("{name}_{of}").as_str()].as_u64();
        // Discards are counted since QEMU 4.2.
        let kinds = [("rd", false), ("wr", true), ("flush", true), ("unmap", true)];
        for (name, changes) in kinds {
            let requests = match number(name, "operations") {
                Some(requests) => requests,
                None if name == "unmap" => continue,
                None => return None,
            };
            let into = if changes { &mut sum.writes } else { &mut sum.reads };
            into.requests = into.requests.saturating_add(requests);
            into.request_seconds += number(name, "total_time_ns")? as f64 * 1e-9;
            // Flushes move nothing, and what is discarded is not moved.
            let moved = if matches!(name, "rd" | "wr") { number(name, "bytes")? } else { 0 };
            into.bytes = into.bytes.saturating_add(moved);
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use vmio_model::top::load::Requests;

    use super::*;

    #[test]
    fn all_devices_are_added_up() {
        let old = json!({"rd_bytes": 8192, "wr_bytes": 512, "rd_operations": 2, "wr_operations": 1,
                         "flush_operations": 3, "rd_total_time_ns": 4000, "wr_total_time_ns": 1000,
                         "flush_total_time_ns": 6000});
        let mut new = old.clone();
        new["unmap_operations"] = 5.into();
        new["unmap_bytes"] = (1u64 << 30).into();
        new["unmap_total_time_ns"] = 1000.into();
        let all = json!([{"device": "drive0", "stats": old}, {"qdev": "/machine/peripheral/d1", "stats": new}]);
        let Requests { requests, bytes, request_seconds } = counts(&all).unwrap().reads;
        assert!((requests, bytes) == (4, 16384) && (request_seconds - 8e-6).abs() < 1e-15);
        let writes = counts(&all).unwrap().writes;
        assert_eq!((writes.requests, writes.bytes), (2 + 6 + 5, 1024));
        assert!((writes.request_seconds - 15e-6).abs() < 1e-15, "{writes:?}");
        assert_eq!(counts(&json!([{"stats": {"rd_bytes": 5}}])), None);
        assert_eq!(counts(&json!({})), None);
    }
}
