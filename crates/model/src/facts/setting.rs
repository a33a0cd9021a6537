//! Settings that are compared with their configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A setting of a device that is compared with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A disk's driver.
    Driver,
    /// A disk's cache mode.
    Cache,
    /// A disk's AIO engine.
    Aio,
    /// Whether a disk has an I/O thread of its own.
    Iothread,
    /// Whether discards are passed on.
    Discard,
    /// Queues of a disk or a network device.
    Queues,
    /// Model of a network device or of the processors.
    Model,
    /// Whether the kernel moves the packets.
    Vhost,
    /// Number of virtual CPUs.
    Vcpus,
    /// Accelerator.
    Accel,
    /// Whether the memory consists of huge pages.
    HugePages,
}

impl Setting {
    /// Name in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Driver => "driver",
            Setting::Cache => "cache",
            Setting::Aio => "aio",
            Setting::Iothread => "iothread",
            Setting::Discard => "discard",
            Setting::Queues => "queues",
            Setting::Model => "model",
            Setting::Vhost => "vhost",
            Setting::Vcpus => "vcpus",
            Setting::Accel => "accel",
            Setting::HugePages => "huge_pages",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_name() {
        for setting in [Setting::Aio, Setting::HugePages, Setting::Vcpus] {
            assert_eq!(serde_json::to_value(setting).unwrap(), setting.name());
        }
    }
}
