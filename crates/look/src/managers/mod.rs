//! Managers of guests on a host, which keep their configuration: names by which owners know them, configured settings,
//! and where a change is made.
//!
//! Adding one: a file with a type that implements [`Manager`], and its line in [`ALL`].

use vmio_model::rules::change::ConfigTool;

use crate::host_view::{HostView, Managed};

/// All managers. Of one guest the first answer counts, so managers on top of others come first.
pub const ALL: &[&dyn Manager] =
    &[&kubevirt::KubeVirt, &proxmox::Proxmox, &incus::INCUS, &incus::LXD, &libvirt::Libvirt];

mod addresses;
mod incus;
mod kubevirt;
pub(crate) mod libvirt;
pub mod proxmox;

/// A manager of guests on this host.
pub trait Manager: Sync {
    /// Name in results: `libvirt`, `proxmox`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// Tool by which the settings of its guests are changed.
    fn way(&self) -> ConfigTool;
    /// What to know before a setting is changed with it.
    fn remark(&self) -> Option<&'static str> {
        None
    }
    /// Its running guests, as configured; empty where it is not installed.
    fn guests(&self, host: &HostView<'_>) -> Managed;
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
