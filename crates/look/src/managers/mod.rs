//! What manages guests on a host, and keeps their configuration: names by which their owners know
//! them, settings that were asked for, and where a change is to be made.
//!
//! Adding one: a file with a type that implements [`Manager`], and its line in [`ALL`].

use vmio_model::rules::change::ConfigTool;

use crate::host_view::{HostView, Managed};

/// All managers. What one says first of a guest counts, so the ones that sit on top of others come
/// first.
pub const ALL: &[&dyn Manager] = &[&kubevirt::KubeVirt, &proxmox::Proxmox, &libvirt::Libvirt];

mod kubevirt;
pub(crate) mod libvirt;
pub mod proxmox;

/// Manages guests of this host.
pub trait Manager: Sync {
    /// Name in results: `libvirt`, `proxmox`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// By what the settings of its guests are changed.
    fn way(&self) -> ConfigTool;
    /// What must be known before a setting is changed that way.
    fn remark(&self) -> Option<&'static str> {
        None
    }
    /// The running guests that it knows, as configured; an empty answer where it is not here.
    fn guests(&self, look: &HostView<'_>) -> Managed;
}

/// The manager of that name.
pub fn find(name: &str) -> Option<&'static dyn Manager> {
    ALL.iter().copied().find(|m| m.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn contract_of_every_manager() {
        let empty = Fake::new("fake");
        for (i, manager) in ALL.iter().enumerate() {
            let name = manager.name();
            assert!(ALL[..i].iter().all(|m| m.name() != name), "{name} twice");
            assert!(!manager.about().is_empty(), "{name}");
            assert_ne!(
                manager.way(),
                ConfigTool::Qemu,
                "{name}: what manages a guest writes QEMU's command line itself"
            );
            assert!(manager.remark().is_none_or(|remark| remark.ends_with('.')), "{name}");
            let managed = manager.guests(&HostView::new(&empty));
            assert!(managed.guests.is_empty(), "{name} finds guests where there is nothing");
            assert!(managed.unread.is_empty(), "{name} complains of a host that it is not on: {:?}", managed.unread);
            assert_eq!(find(name).map(Manager::name), Some(name));
        }
    }
}
