//! Advice is code: what a finding prints is applied to a real guest word for word. This is what a row of
//! that table is, and what is said of advice that cannot be shown on a machine like this.
//!
//! `applier` turns printed text into steps and knows no rule; `test_host` runs guests; `rows` plants faults
//! and says what must be in force afterwards; `table` is `docs/advice.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, dead_code)]

pub mod applier;
pub mod guest;
pub mod monitor;
pub mod options;
pub mod others;
pub mod qm;
pub mod qm_start;
pub mod rows;
pub mod shows;
pub mod table;
pub mod test_host;
pub mod wrong;
pub mod xml;

/// Who is told how to change a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Qemu,
    Libvirt,
    Proxmox,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Qemu, Way::Libvirt, Way::Proxmox];

    /// The key of a change in `vmio scan --json`.
    pub fn key(self) -> &'static str {
        match self {
            Way::Qemu => "qemu",
            Way::Libvirt => "libvirt",
            Way::Proxmox => "proxmox",
        }
    }

    /// The word in the table.
    pub fn title(self) -> &'static str {
        match self {
            Way::Qemu => "QEMU",
            Way::Libvirt => "libvirt",
            Way::Proxmox => "Proxmox",
        }
    }
}

/// Why a rule's advice is not applied. A closed list: a new reason is a new entry, for a reviewer to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Guests under KVM alone have the fault, or the change is KVM.
    NeedsKvm,
    /// The host's kernel moves the packets.
    NeedsVhostNet,
    /// Two nodes of memory.
    NeedsNuma,
    /// ZFS on the host.
    NeedsZfs,
    /// Storage that the tests do not make.
    NeedsStorage,
    /// A QEMU of today refuses to start with the fault, whoever starts it.
    FaultRefused,
    /// It changes nothing: it shows where to look.
    LooksOnly,
    /// It is made in the guest or with its owner, not by a setting of the host.
    InGuest,
    /// That way has no setting for it, and the text says so.
    NoSetting,
    /// That way takes no guest which has the fault.
    CannotBe,
    /// This way's limits are made through control groups that a daemon in a container does not have.
    NeedsGroups,
    /// A test of its own has it for plain QEMU.
    TriedApart,
    /// Where the disk is to move to is the reader's own.
    ReadersPlace,
    /// Packets or connections have to have been lost.
    NeedsLosses,
    /// The setting is the whole host's.
    HostsOwn,
    /// A root test of its own has it.
    TriedAsRoot,
    /// The program that holds the limit.
    NeedsProgram,
    /// The guest has to run, and to read its disk again and again.
    NeedsReads,
}

impl Why {
    pub const ALL: [Why; 18] = [
        Why::NeedsKvm,
        Why::NeedsVhostNet,
        Why::NeedsNuma,
        Why::NeedsZfs,
        Why::NeedsStorage,
        Why::FaultRefused,
        Why::LooksOnly,
        Why::InGuest,
        Why::NoSetting,
        Why::CannotBe,
        Why::NeedsGroups,
        Why::TriedApart,
        Why::ReadersPlace,
        Why::NeedsLosses,
        Why::HostsOwn,
        Why::TriedAsRoot,
        Why::NeedsProgram,
        Why::NeedsReads,
    ];

    /// In a cell of the table.
    pub fn short(self) -> &'static str {
        match self {
            Why::NeedsKvm => "needs KVM",
            Why::NeedsVhostNet => "needs vhost-net",
            Why::NeedsNuma => "needs two NUMA nodes",
            Why::NeedsZfs => "needs ZFS",
            Why::NeedsStorage => "needs other storage",
            Why::FaultRefused => "fault is refused",
            Why::LooksOnly => "shows where to look",
            Why::InGuest => "in the guest",
            Why::NoSetting => "no setting",
            Why::CannotBe => "no such guest",
            Why::NeedsGroups => "needs control groups",
            Why::TriedApart => "tried separately",
            Why::ReadersPlace => "place is your choice",
            Why::NeedsLosses => "needs losses",
            Why::HostsOwn => "host's own",
            Why::TriedAsRoot => "tried as root",
            Why::NeedsProgram => "needs its program",
            Why::NeedsReads => "needs reads",
        }
    }

    /// Below the table.
    pub fn long(self) -> &'static str {
        match self {
            Why::NeedsKvm => {
                "only a guest under KVM has the fault, or the change is to use KVM; the tests run under emulation"
            }
            Why::NeedsVhostNet => {
                "whether a guest has the fault, or it is reported, depends on vhost-net in the host's kernel"
            }
            Why::NeedsNuma => "the host must have two nodes of memory",
            Why::NeedsZfs => "the disk must be a ZFS volume",
            Why::NeedsStorage => {
                "the disk must be a VHD, or lie on btrfs, LUKS, LVM, CIFS or a shared ext4 with a journal: these tests \
                 make raw and qcow2 images where they run"
            }
            Why::FaultRefused => "QEMU since 6.0 refuses to start such a guest",
            Why::LooksOnly => "the advice changes nothing; it says where to look for what overrides the setting",
            Why::InGuest => "the advice is for the guest's own system",
            Why::NoSetting => "there is no such setting, and the text says so",
            Why::CannotBe => {
                "this way makes no guest that has the fault: QEMU's options do not name the system in a guest; Proxmox VE \
                 gives each disk its own I/O thread, and 16 disks at most"
            }
            Why::NeedsGroups => "the setting belongs to control groups, which the tests' daemon cannot use",
            Why::TriedApart => {
                "the test `guest_rescue` pastes it for plain QEMU and reads the image afterwards; Proxmox's commands \
                 around the same copy are not tried"
            }
            Why::ReadersPlace => "the disk moves to a place that only its owner can choose",
            Why::NeedsLosses => {
                "packets or connections must have been lost, by a running guest or by a card of the host"
            }
            Why::HostsOwn => "the setting concerns the whole host: a test that changed it would change every guest",
            Why::TriedAsRoot => {
                "the root test `root_guard_guests` pastes it in a network namespace and looks at the guest again"
            }
            Why::NeedsProgram => "the tests have no such hypervisor or daemon; only the text is tested",
            Why::NeedsReads => {
                "the guest must have read its disk several times through the host's page cache; these guests stay paused"
            }
        }
    }
}

/// A placeholder that nobody but the reader can fill in, since the fact is unknown by nature. A closed
/// list: any other word in capitals that is left in a change fails the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Which network the guest is to be on.
    Bridge,
    /// Which storage a disk is to move to.
    Storage,
    /// See [`Fill::Storage`]; another one than the disk's own.
    OtherStorage,
    /// libvirt's number of a new I/O thread: the domain's own count may be at its next start another one.
    NewThread,
    /// libvirt's number of a new controller.
    NewController,
}

impl Fill {
    /// The word in the text, and what the reader of this test's guests writes for it.
    pub fn value(self) -> (&'static str, &'static str) {
        match self {
            Fill::Bridge => ("BRIDGE", "br0"),
            Fill::Storage => ("STORAGE", "local"),
            Fill::OtherStorage => ("OTHERSTORAGE", "other"),
            Fill::NewThread => ("N", "{threads}"),
            Fill::NewController => ("M", "7"),
        }
    }
}

/// What is done to a guest that is up, before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    Nothing,
    /// Its vCPUs and its I/O threads are bound to the first processor.
    Pin,
    /// Half of a processor's time, by a control group of its own.
    Quota,
    /// A processor's time, in the same way: as much as its one vCPU takes.
    WholeQuota,
    /// The other port of the bridge of its own (`{own-bridge}`) lets through less from now on.
    SmallUplink,
    /// The bridge of its own hands packets to the firewall.
    Netfilter,
    /// The tap of its own (`{tap}`) lets little through to the guest.
    Shaped,
    /// The name of its image is taken away.
    Delete,
}

/// What must be in force when the change was made, asked of QEMU's monitor or, where that does not tell,
/// of the process and of /sys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shows {
    /// Model of the disk's device.
    Disk(&'static str),
    /// Every disk has an I/O thread which no other has.
    OwnIothread,
    /// `query-block`: whether O_DIRECT, and whether flushes are dropped.
    Cache { direct: bool, no_flush: bool },
    /// `query-block`: the guest's device has a write cache, so that a write is not flushed unless the guest asks.
    WriteCache,
    /// Engine: Linux AIO's ring in the process's memory, an io_uring beside those of the event loops.
    Aio(&'static str),
    /// Request queues of the disk, or of its controller.
    Queues(u64),
    /// A discard frees the blocks of the disk's file.
    Discard,
    /// No limit of the disk.
    NoLimit,
    /// No queue at the tap that somebody has put there.
    NoQueue,
    /// Images below the top one.
    Chain(u64),
    /// The disk's format.
    Format(&'static str),
    /// The file has all of its blocks.
    NoHoles,
    /// The option is on the command line of the process: QEMU's monitor does not tell it.
    Told(&'static str),
    /// Model of the card.
    Card(&'static str),
    /// A property of the card's device.
    OfCard(&'static str, Expect),
    /// The card has a tap in the bridge.
    InBridge,
    /// The tap's MTU.
    TapMtu(u64),
    /// The tap's packets have a header for offloads.
    TapHeader,
    /// The firewall sees nothing of the tap's bridge, by its own word and its namespace's.
    NoNetfilter,
    /// None of these threads is bound to the first processor.
    Elsewhere(Threads),
    /// No more vCPUs than the host has processors.
    AsTheHost,
    /// No quota is on the process's control group.
    NoQuota,
    /// The quota of the process's control group is of so many processors.
    Quota(u32),
    /// A domain's XML says it.
    Xml(&'static str),
}

/// Threads of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    Vcpu,
    Io,
}

/// A value of QEMU's object model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expect {
    On,
    Off,
    Number(u64),
}

/// A fault, who is told, and what is to be seen when the advice was followed.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The rule; [`TOGETHER`] for all changes to a device in one step.
    pub rule: &'static str,
    pub way: Way,
    /// How the fault is written, for the table: `-drive`, `-blockdev`.
    pub how: &'static str,
    /// The guest: options of QEMU, elements of a domain, lines of Proxmox's file.
    pub guest: &'static str,
    pub after: After,
    /// Placeholders that the reader fills in.
    pub fills: &'static [Fill],
    /// Rules that may find something in the changed guest that they did not find before.
    pub opens: &'static [&'static str],
    pub shows: &'static [Shows],
    /// Whether it is run by `make test`, too.
    pub short: bool,
}

impl Row {
    pub const fn new(way: Way, rule: &'static str, how: &'static str, shows: &'static [Shows]) -> Row {
        Row { rule, way, how, guest: "", after: After::Nothing, fills: &[], opens: &[], shows, short: false }
    }

    pub const fn guest(self, guest: &'static str) -> Row {
        Row { guest, ..self }
    }

    pub const fn after(self, after: After) -> Row {
        Row { after, ..self }
    }

    pub const fn fills(self, fills: &'static [Fill]) -> Row {
        Row { fills, ..self }
    }

    pub const fn opens(self, opens: &'static [&'static str]) -> Row {
        Row { opens, ..self }
    }

    pub const fn short(self) -> Row {
        Row { short: true, ..self }
    }
}

/// In place of a rule: "one change that makes them all".
pub const TOGETHER: &str = "together";

/// What begins the name of each row's guest.
pub fn guest_name(at: usize) -> String {
    format!("advice{at}")
}
