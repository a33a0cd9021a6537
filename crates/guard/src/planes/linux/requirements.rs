//! What the plane needs, for `vmio doctor`.

use std::collections::BTreeSet;
use std::path::Path;

use vmio_look::require::{self, Missing, Requirement};
use vmio_node::Reader;
use vmio_node::linux::system;

/// What keeping a policy in force needs of a host.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "root",
        why: "limits are the kernel's, and guests' processes belong to others",
        fix: "run it as root",
        check: require::root,
    },
    Requirement {
        name: "queues of the kernel",
        why: "hold each guest's rate",
        fix: "run a kernel with CONFIG_NET_SCH_HTB, NET_SCH_FIFO, NET_SCH_INGRESS, NET_CLS_BPF, BPF_SYSCALL and IFB",
        check: parts,
    },
];

/// Parts of the kernel by the names of their modules, each with a function of its own by which it is known where it is
/// built in.
const PARTS: [(&str, &str); 5] = [
    ("sch_htb", "htb_enqueue"),
    ("sch_fifo", "pfifo_enqueue"),
    ("sch_ingress", "clsact_init"),
    ("cls_bpf", "cls_bpf_classify"),
    ("ifb", "ifb_xmit"),
];

/// Whether the kernel has all that queues need, or can load it. Nothing is loaded for that.
fn parts(reader: &dyn Reader) -> Result<(), Missing> {
    let release = system::release(reader).unwrap_or_default();
    let modules = reader.read_text(&Path::new("/lib/modules").join(release).join("modules.dep")).unwrap_or_default();
    let file = |line: &str| line.split(':').next().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let loadable = |module: &str| {
        modules
            .lines()
            .filter_map(file)
            .any(|name| name.strip_prefix(module).is_some_and(|rest| rest.starts_with(".ko")))
    };
    let mut lacking = PARTS.to_vec();
    lacking.retain(|(module, _)| !loadable(module));
    // It has megabytes: read where modules do not answer alone.
    if !lacking.is_empty() {
        let symbols = reader.read_text(Path::new("/proc/kallsyms")).unwrap_or_default();
        let built_in: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        lacking.retain(|(_, function)| !built_in.contains(function));
    }
    let lacking: Vec<&str> = lacking.into_iter().map(|(module, _)| module).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Missing::Unlike(format!("neither modules.dep nor /proc/kallsyms shows {}", lacking.join(", "))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn parts_are_built_in_or_can_be_loaded() {
        let symbols = "ffffffff81ef2620 t htb_enqueue\n0000000000000000 T pfifo_enqueue\t[sch_fifo]\n\
                       0000000000000000 t clsact_init\n0000000000000000 T cls_bpf_classify_all\n";
        let modules = "kernel/net/sched/cls_bpf.ko.xz:\nkernel/drivers/net/ifb.ko: kernel/net/a.ko\n";
        let host = Fake::new("fake").file("/proc/kallsyms", symbols).file("/proc/sys/kernel/osrelease", "6.1.0\n");
        let said = parts(&host).unwrap_err().to_string();
        assert!(said.contains("cls_bpf, ifb") && !said.contains("htb"), "{said}");
        parts(&host.file("/lib/modules/6.1.0/modules.dep", modules)).unwrap();
    }
}
