//! Where a fact was read.

use std::fmt;

/// A source, as far as rules distinguish it; shown as a person looks it up: `/proc/812/cmdline, -drive`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An option of a process's command line.
    Option(CommandLineOption),
    /// QEMU's default: the command line does not set it.
    QemuDefault,
    /// A file of the kernel that can be written to.
    File(String),
    /// A test boot of a guest.
    TestBoot,
    /// Another source in words: a configuration, a monitor, an image, a process.
    Place(String),
}

/// An option of a process's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLineOption {
    /// The process.
    pub pid: u32,
    /// `drive`, without its dash.
    pub name: String,
    /// Its leading value: `bridge` of `-netdev bridge,...`.
    pub kind: Option<&'static str>,
    /// The keys that set it: `snapshot=on`.
    pub keys: Option<&'static str>,
}

impl CommandLineOption {
    /// A whole option.
    pub fn new(pid: u32, name: impl Into<String>) -> Self {
        Self { pid, name: name.into(), kind: None, keys: None }
    }
}

impl Source {
    /// The option, if it is one.
    pub fn option(&self) -> Option<&CommandLineOption> {
        match self {
            Source::Option(option) => Some(option),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Option(option) => option.fmt(f),
            Source::QemuDefault => f.write_str("QEMU's default, not on the command line"),
            Source::File(path) => f.write_str(path),
            Source::TestBoot => f.write_str("a test boot, see `vmio doctor`"),
            Source::Place(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for CommandLineOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, kind, keys } = self;
        write!(f, "/proc/{pid}/cmdline, -{name}")?;
        kind.map_or(Ok(()), |kind| write!(f, " {kind}"))?;
        keys.map_or(Ok(()), |keys| write!(f, ", {keys}"))
    }
}

impl From<CommandLineOption> for Source {
    fn from(option: CommandLineOption) -> Self {
        Source::Option(option)
    }
}

impl From<&Source> for Source {
    fn from(source: &Source) -> Self {
        source.clone()
    }
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        Source::Place(text)
    }
}

impl From<&String> for Source {
    fn from(text: &String) -> Self {
        Source::Place(text.clone())
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        Source::Place(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_shown_as_it_is_looked_up() {
        let option = |kind, keys| CommandLineOption { kind, keys, ..CommandLineOption::new(812, "drive") }.to_string();
        assert_eq!(option(None, None), "/proc/812/cmdline, -drive");
        assert_eq!(option(None, Some("snapshot=on")), "/proc/812/cmdline, -drive, snapshot=on");
        assert_eq!(option(Some("bridge"), None), "/proc/812/cmdline, -drive bridge");
    }
}
