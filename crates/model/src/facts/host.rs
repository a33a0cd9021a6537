//! What a scan knows of the host itself, read once for all guests.

/// The host's kernel and its switches; `None` where unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSeen {
    /// First two numbers of the kernel's version: `(6, 1)`.
    pub kernel: Option<(u32, u32)>,
    /// `kernel.io_uring_disabled`: 0 for nobody, 1 for processes outside of a group, 2 for all.
    pub io_uring_disabled: Option<u8>,
    /// The clock source in use: `tsc`, `hpet`.
    pub clock_source: Option<String>,
}
