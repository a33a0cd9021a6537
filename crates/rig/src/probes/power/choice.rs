//! Which meters a run is to have, by name, and why one that is named cannot be used.

use std::path::PathBuf;
use std::str::FromStr;

use vmio_look::require::Missing;
use vmio_node::machine::LOGIN_VARIABLES;

use super::super::Unseen;
use crate::redfish::Address;

/// A meter by its name (`--power`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeterName {
    /// No meter, and nothing of the machine at rest.
    None,
    /// The kernel's counters of power capping.
    Powercap,
    /// The kernel's sensors.
    Hwmon,
    /// The management controller, through the kernel's driver.
    Ipmi,
    /// A management controller over the network.
    Redfish(Address),
}

impl MeterName {
    /// The name of its probe; `None` where no meter is to be used.
    pub fn probe(&self) -> Option<&'static str> {
        match self {
            MeterName::None => None,
            MeterName::Powercap => Some("powercap"),
            MeterName::Hwmon => Some("hwmon"),
            MeterName::Ipmi => Some("ipmi"),
            MeterName::Redfish(_) => Some("redfish"),
        }
    }
}

impl FromStr for MeterName {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        match (text, text.strip_prefix("redfish:")) {
            ("none", _) => Ok(MeterName::None),
            ("powercap", _) => Ok(MeterName::Powercap),
            ("hwmon", _) => Ok(MeterName::Hwmon),
            ("ipmi", _) => Ok(MeterName::Ipmi),
            (_, Some(address)) => {
                address.parse().map(MeterName::Redfish).map_err(|why| Refused::Address(Box::new(why)))
            }
            _ => Err(Refused::Unknown),
        }
    }
}

impl std::fmt::Display for MeterName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MeterName::None => f.write_str("none"),
            MeterName::Powercap => f.write_str("powercap"),
            MeterName::Hwmon => f.write_str("hwmon"),
            MeterName::Ipmi => f.write_str("ipmi"),
            MeterName::Redfish(address) => write!(f, "redfish:{address}"),
        }
    }
}

/// Which meters a run is to have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PowerChoice {
    /// By name; empty for those that are found.
    pub meters: Vec<MeterName>,
    /// The command of a meter of the user's.
    pub command: Option<String>,
    /// The file with user and password of a controller.
    pub login: Option<PathBuf>,
    /// The file of certificates that one is verified with.
    pub ca_file: Option<PathBuf>,
}

/// Why a meter that was named cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Refused {
    #[error("give none, powercap, hwmon, ipmi or redfish:https://HOST")]
    Unknown,
    #[error("{0}")]
    Address(Box<crate::redfish::Error>),
    /// Chassis of both may have one name, and their figures would be one row.
    #[error("--power redfish is named twice; help: name one controller, that of this host")]
    TwoControllers,
    #[error("{meter}: {why}; help: {fix}")]
    Missing { meter: String, why: Missing, fix: String },
    #[error("{meter}: {why}{}", fix.map_or_else(String::new, |fix| format!("; help: {fix}")))]
    Unseen { meter: String, why: Box<Unseen>, fix: Option<&'static str> },
    #[error("--power-command: {0}")]
    Command(Box<Unseen>),
    #[error("{}: {why}", path.display())]
    Login { path: PathBuf, why: String },
    #[error("give both {} and {}, or neither", LOGIN_VARIABLES[0], LOGIN_VARIABLES[1])]
    HalfLogin,
}
