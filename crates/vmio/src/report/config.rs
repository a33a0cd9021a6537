//! The best set-up of a run as a configuration to paste: libvirt's XML, Proxmox's command. The
//! head says what it is, from which run, and how surely it is the best.

use vmio_model::best::Best;
use vmio_model::result::Accel;
use vmio_model::rules::change;
use vmio_model::run::Run;
use vmio_model::sanitize;

use super::format;

/// The lines of the head comment, without comment signs.
fn head(run: &Run, best: &Best) -> String {
    let mut all = vec![format!(
        "vmio {}: the best of {} set-ups on {} in run {} ({}, {})",
        run.environment.vmio,
        best.over.len() + 1,
        best.target,
        run.id,
        run.kind,
        format::utc(run.started_unix),
    )];
    all.push(format!(
        "{}: {:.0} % of native, geometric mean over {}",
        best.attachment.label(),
        best.share_value * 100.0,
        best.workloads.join(", ")
    ));
    for over in &best.over {
        let ratio = match over.ratio.interval {
            Some(i) => format!("{:.2} times ({:.2} to {:.2})", over.ratio.value, i.low, i.high),
            None => format!("{:.2} times", over.ratio.value),
        };
        let doubt = if over.sure { "" } else { "; not told apart" };
        all.push(format!("{ratio} as fast as {}{doubt}", over.attachment.label()));
    }
    if run.environment.accel == Some(Accel::Tcg) {
        all.push("measured under software emulation (TCG): the order may differ under KVM".into());
    }
    // An imported run may hold any text; a line feed in it would end the comment.
    all.iter().map(|line| sanitize::line(line).into_owned() + "\n").collect()
}

/// libvirt's XML.
pub fn xml(run: &Run, best: &Best) -> String {
    // Two hyphens may not stand in a comment (XML 1.0, section 2.5).
    let head = head(run, best).replace("--", "- -");
    format!(
        "<!--\n{head}Paste with `virsh edit DOMAIN`, in place of the disk's own element, of which KIND,\nFORMAT and <source> \
         stay (libvirt refuses them as they are here). In force at the guest's next start.\n-->\n{}\n",
        change::libvirt(&best.attachment)
    )
}

/// Proxmox's commands.
pub fn qm(run: &Run, best: &Best) -> String {
    let head: String = head(run, best).lines().map(|l| format!("# {l}\n")).collect();
    format!(
        "{head}# VMID and STORAGE:VOLUME are the guest's own (qm config VMID). A disk attached to another bus must be\n\
         # detached first, with the guest shut down; it becomes unused0:  qm set VMID --delete scsi0\n{}\n",
        change::proxmox(&best.attachment)
    )
}
