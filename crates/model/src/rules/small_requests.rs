//! Requests at the device are clearly smaller than the application's and than natively: something between them (an
//! emulated controller's limit, a sparse file's allocations, a small segment limit) splits them.

use super::support::{caution, cite_estimate, cite_share, is_emulated};
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::{Measured, Place};
use crate::stats::Estimate;
use crate::summary::CellRow;

/// "Clearly smaller" is below this share of both.
const SHARE: f64 = 0.8;
/// Smaller requests are not split.
const LEAST_BLOCK_BYTES: u64 = 16 * 1024;

pub(super) const RULE: Rule = Rule {
    id: "small-requests",
    title: "Requests are split on their way to the device",
    needs: Need::DeviceCounters,
    severity: Severity::Advice,
    references: &["shafer2010, section 3.3, tables 1 and 2, column avgrq-sz"],
    checks: &[Check::Cell(split)],
    // Silent: the device receives the application's requests.
    #[cfg(test)]
    fixture: (|| fixture::seen(15.0 * 1024.0), || fixture::seen(64.0 * 1024.0)),
    ..Rule::PLAIN
};

fn split(rule: &Rule, m: &Measured, guest: &CellRow) -> Option<Finding> {
    let traits = m.job(guest.cell.workload()).filter(|t| t.block_bytes >= LEAST_BLOCK_BYTES)?;
    // The share shows the cost; an unknown one, or no loss, gives no finding.
    let share = m.known_share(&guest.cell).filter(|s| s.share_ratio.surely_below(1.0))?;
    let native = m.cell(&guest.cell.natively())?;
    let (seen, natively) = (size(m, guest)?, size(m, native)?);
    let bound = SHARE * (traits.block_bytes as f64).min(natively.interval?.low);
    if !seen.interval?.below(bound) {
        return None;
    }
    let cause = format!(
        "The application makes requests of {:.0} KiB and the device sees {:.1} KiB ({:.0} sectors), natively {:.1} \
         KiB: \
         something on the guest's path splits them, and each part is a separate request.{}",
        traits.block_bytes as f64 / 1024.0,
        seen.value / 1024.0,
        seen.value / 512.0,
        natively.value / 1024.0,
        caution(m)
    );
    let attachment = guest.cell.attachment()?;
    let change = if guest.cell.target() == Some("sparse") {
        change::full_allocation("Preallocate the file: allocation splits requests.", &Place::default(), None)
    } else if is_emulated(&attachment.driver) {
        let what = "Attach the disk by virtio-blk: emulated controllers accept few and short segments.";
        change::virtio_disk(what, &change::recommended())
    } else {
        change::in_guest(
            "In the guest, allow requests as large as the host's disk accepts.",
            "# in the guest; the first figure is the limit, the second may not be exceeded\n\
             cat /sys/block/vda/queue/max_sectors_kb /sys/block/vda/queue/max_hw_sectors_kb\n\
             echo 1024 > /sys/block/vda/queue/max_sectors_kb",
        )
    };
    let mut finding = rule.finding(Severity::Warning, guest.key.clone(), cause, change);
    finding.figures.push(cite_estimate(m, format!("request at the device: {}", guest.key), "bytes", &seen));
    finding.figures.push(cite_estimate(m, format!("request at the device: {}", native.key), "bytes", &natively));
    finding.figures.extend(cite_share(m, &guest.cell));
    finding.cost_ratio = Some(share.share_ratio.inverse());
    Some(finding)
}

/// Request size at the device, from enough samples to be cited.
fn size(m: &Measured, cell: &CellRow) -> Option<Estimate> {
    cell.device.map(|d| d.request_bytes).filter(|e| e.n >= m.convergence.min_pairs && e.interval.is_some())
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, guest, native};

    pub fn seen(bytes: f64) -> Facts {
        let lsi = guest("device", "lsi53c895a", "seq-write");
        Bench::new()
            .cell(native("device", "seq-write"), 700e6)
            .cell(lsi.clone(), 200e6)
            .device(&lsi, bytes, 0.9, 0.9)
            .facts()
    }
}
