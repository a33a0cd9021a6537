//! What the guard does about others: about queues that other programs put in place of its own, and about guests that
//! claim addresses of others.

/// What becomes of another program's queue that was put in place of the guard's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// It stays, and is told.
    #[default]
    Report,
    /// It is removed, and told.
    Restore,
}

impl OnConflict {
    /// All, in the order of [`OnConflict::WORDS`].
    pub const ALL: [OnConflict; 2] = [OnConflict::Report, OnConflict::Restore];
    /// As the policy has them.
    pub const WORDS: [&'static str; 2] = ["report", "restore"];

    /// As the policy has it.
    pub fn word(self) -> &'static str {
        OnConflict::WORDS[self as usize]
    }
}

/// What becomes of packets in which a guest claims an address that is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Spoofing {
    /// They pass, and are not looked at.
    Off,
    /// Frames from another's Ethernet address are dropped, what ARP and neighbour discovery claim is counted and
    /// passes.
    #[default]
    Warn,
    /// They are dropped and counted.
    Drop,
}

impl Spoofing {
    /// All, in the order of [`Spoofing::WORDS`].
    pub const ALL: [Spoofing; 3] = [Spoofing::Off, Spoofing::Warn, Spoofing::Drop];
    /// As the policy has them.
    pub const WORDS: [&'static str; 3] = ["off", "warn", "drop"];

    /// As the policy has it.
    pub fn word(self) -> &'static str {
        Spoofing::WORDS[self as usize]
    }
}
