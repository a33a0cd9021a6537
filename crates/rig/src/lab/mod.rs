//! A lab host: a guest with Debian's kernel that plays a *host*. It has what the kernel of the
//! machine at hand may lack (device-mapper and LVM, an NFS server and client, control groups of
//! version 2, Open vSwitch, vhost-net, systemd), and vmio runs in it as on any host. There is no
//! guest inside the guest: what is measured in a lab host are native cells.
//!
//! It is a guest of [`crate::guests::qemu`] whose disk with tools is a whole `/usr`: packages of
//! this host's distribution, this host's programs of workloads (fio), and the vmio that runs. The
//! initramfs is its root, and the agent its init. `setup.sh` does in it what an init system and an
//! administrator have done on a real host.

mod host;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use vmio_look::require::{Requirement, program};
use vmio_model::cell::Arch;
use vmio_node::Node;

use crate::image::packages::Wanted;
use crate::image::tools::{Tools, write_disk};
use crate::image::{self, Image, Progress, Recipe, Result, file_error};
use crate::nets;

pub use host::{Error, LabHost, NODE_VARIABLE};

/// What a host has that keeps guests on LVM and NFS, and their networks on Open vSwitch. fio, dd and vmio come from
/// this host.
const PACKAGES: Wanted = Wanted {
    what: "lab host",
    by: "vmio lab build",
    packages: &[
        "bash",
        "coreutils",
        "dash",
        "diffutils",
        "dmsetup",
        "e2fsprogs",
        "findutils",
        "grep",
        "iproute2",
        "lvm2",
        "mount",
        "netbase",
        "nfs-common",
        "nfs-kernel-server",
        "openvswitch-switch",
        "procps",
        "sed",
        "systemd",
        "thin-provisioning-tools",
        "util-linux",
    ],
    arch: Arch::X86_64,
    dir: "packages",
    megabytes: 45,
};

/// Modules that a lab host loads beside those of every guest: storage, then what a host's network is made of, then
/// what the guard needs, what polices ports of Open vSwitch, and the queues that others use.
#[rustfmt::skip]
const MODULES: [&str; 37] = [
    "dm_mod", "dm_thin_pool", "dm_snapshot", "dm_cache", "dm_cache_smq", "dm_zero", "fuse", "loop", "nbd", "aoe",
    "nvmet_tcp", "nvme_tcp", "nfsd", "nfs", "nfsv4",
    "veth", "bridge", "br_netfilter", "8021q", "bonding", "dummy", "tun", "vhost_net", "openvswitch",
    "ifb", "sch_htb", "sch_tbf", "sch_fq_codel", "sch_sfq", "sch_fq", "sch_ingress",
    "cls_bpf", "cls_u32", "cls_matchall", "cls_basic", "act_mirred", "act_police",
];
/// What a lab host runs of this host's programs beside those of guests: they serve disks over the network to the lab
/// host's own kernel. (The package of the first would bring all of QEMU.)
const SERVERS: [&str; 2] = ["qemu-storage-daemon", "vblade"];
/// Where the set-up lies in a lab host.
const SETUP: &str = nets::LAB_SETUP;
/// Where the packages' `/etc` lies in it: only `/usr` is on a disk.
const ETC: &str = "share/vmio-lab/etc";
const SETUP_SCRIPT: &str = include_str!("setup.sh");

/// What is needed to build a lab host, beside what every guest image needs.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement {
        name: "apt-get",
        why: "downloads the packages of a lab host",
        fix: "use a host with apt (Debian or a derivative)",
        check: |n| program(n, "apt-get"),
    },
    Requirement {
        name: "dpkg-deb",
        why: "unpacks the packages of a lab host",
        fix: "apt install dpkg",
        check: |n| program(n, "dpkg-deb"),
    },
];

/// The image of a lab host for this vmio and this host as they are now: the kept one, or a new one.
///
/// # Errors
/// When a package, the kernel or the agent is missing, or a file cannot be written.
pub fn load_or_build(node: &dyn Node, state_dir: &Path, progress: Progress) -> Result<Image> {
    let packages = PACKAGES.find(node, state_dir, progress)?;
    let mut programs = image::programs();
    programs.extend(SERVERS);
    let mut tools = Tools::find(node, &programs)?;
    let vmio = std::env::current_exe().map_err(file_error("find", Path::new("the running program")))?;
    tools.add(node, PathBuf::from("bin/vmio"), vmio)?;
    let recipe = Recipe {
        what: "lab host",
        dir: "labs",
        arch: Arch::X86_64,
        kernel: None,
        modules: &MODULES,
        always: &MODULES,
        tools: &tools,
        inputs: format!("{}{}{SETUP_SCRIPT}", packages.identity(), tools.identity()?),
        disk: &|scratch, to| {
            let tree = scratch.join("lab");
            packages.unpack(node, scratch, &tree)?;
            finish(&tree, &tools)?;
            write_disk(node, &tree.join("usr"), to)?;
            fs::remove_dir_all(&tree).map_err(file_error("remove", &tree))
        },
    };
    recipe.load_or_build(node, state_dir, progress)
}

/// Adds this host's programs, the set-up and the packages' configuration to the tree's `usr`.
fn finish(tree: &Path, tools: &Tools) -> image::Result<()> {
    let usr = tree.join("usr");
    // dd is there from its package.
    tools.copy_into(&usr)?;
    let setup = usr.join(SETUP);
    let etc = usr.join(ETC);
    for file in [&setup, &etc] {
        let parent = file.parent().unwrap_or(&usr);
        fs::create_dir_all(parent).map_err(file_error("make", parent))?;
    }
    fs::write(&setup, SETUP_SCRIPT).map_err(file_error("write", &setup))?;
    fs::set_permissions(&setup, fs::Permissions::from_mode(0o755)).map_err(file_error("set the mode of", &setup))?;
    let from = tree.join("etc");
    fs::rename(&from, &etc).map_err(file_error("move", &from))?;
    // Links that the packages' scripts would make.
    for (link, to) in [("bin/sh", "dash"), ("bin/awk", "mawk")] {
        let link = usr.join(link);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(to, &link).map_err(file_error("make", &link))?;
        }
    }
    Ok(())
}
