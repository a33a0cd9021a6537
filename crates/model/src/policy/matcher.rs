//! Interfaces that an entry of the policy matches: by interface name, MAC address, virtual machine (name, UUID or VMID)
//! or network namespace, each also by pattern.

use std::fmt;

use super::glob::{Glob, GlobError};

/// Kind of a name of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Name of the interface on the host.
    Name,
    /// Its MAC address in the guest.
    Mac,
    /// Name, UUID or VMID of its virtual machine.
    Vm,
    /// Its network namespace.
    Netns,
}

impl Kind {
    /// In the order of messages.
    pub const ALL: [Kind; 4] = [Kind::Name, Kind::Mac, Kind::Vm, Kind::Netns];

    /// The key in `match`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Name => "name",
            Kind::Mac => "mac",
            Kind::Vm => "vm",
            Kind::Netns => "netns",
        }
    }

    /// A canonical spelling.
    pub(super) fn plain(self, text: &str) -> String {
        match self {
            Kind::Mac => text.to_ascii_lowercase(),
            Kind::Vm if is_uuid(text) => text.to_ascii_lowercase(),
            _ => text.to_owned(),
        }
    }
}

/// A matcher, for example `{ vm = "web*" }`. Shown as [`Matcher::label`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// Kind of the name.
    pub kind: Kind,
    /// The name or pattern as written.
    pub text: String,
    glob: Glob,
    /// The pattern in lower case, for UUIDs of virtual machines.
    uuids: Option<Glob>,
}

/// Why a text is no name or pattern of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NameError {
    #[error("must not be empty")]
    Empty,
    #[error("is longer than 256 characters")]
    TooLong,
    #[error("has a control character in it")]
    Control,
    #[error("`{text}` {why}")]
    Pattern { text: String, why: GlobError },
    #[error("invalid interface name `{0}`: it has 1 to 15 bytes")]
    InterfaceLength(String),
    #[error("invalid interface name `{0}`: it has no `/`, `:` or space")]
    InterfaceCharacter(String),
    #[error("invalid MAC address `{0}`; write it as 52:54:00:12:34:56, or with * for a part")]
    Mac(String),
}

impl Matcher {
    /// Parses a name or pattern of a kind.
    ///
    /// # Errors
    /// An empty or overlong text, a character that such names cannot have, a bad pattern.
    pub fn new(kind: Kind, text: &str) -> Result<Matcher, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.chars().count() > 256 {
            return Err(NameError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        let glob = Glob::new(&kind.plain(text)).map_err(|why| NameError::Pattern { text: text.to_owned(), why })?;
        match kind {
            Kind::Mac => mac(text, glob.is_literal())?,
            Kind::Name if glob.is_literal() => interface_name(text)?,
            _ => {}
        }
        let folded = || Glob::new(&text.to_ascii_lowercase()).ok();
        let uuids = if kind == Kind::Vm && !glob.is_literal() { folded() } else { None };
        Ok(Matcher { kind, text: text.to_owned(), glob, uuids })
    }

    /// Whether it names one interface or machine and is no pattern.
    pub fn is_exact(&self) -> bool {
        self.glob.is_literal()
    }

    /// Whether it matches this name of this kind.
    pub fn matches(&self, kind: Kind, name: &str) -> bool {
        let glob = if is_uuid(name) { self.uuids.as_ref().unwrap_or(&self.glob) } else { &self.glob };
        self.kind == kind && glob.matches(&kind.plain(name))
    }

    /// A name that both match, if any. Different kinds are not compared.
    pub fn overlap(&self, other: &Matcher) -> Option<String> {
        self.overlap_within(other, &mut { u64::MAX })
    }

    /// The same in at most `steps` steps, which are subtracted. With none left the answer is unknown.
    pub fn overlap_within(&self, other: &Matcher, steps: &mut u64) -> Option<String> {
        if self.kind != other.kind {
            return None;
        }
        if let Some(name) = self.glob.overlap_within(&other.glob, steps) {
            return Some(name);
        }
        let folded = |m: &Matcher| m.uuids.clone().unwrap_or_else(|| m.glob.clone());
        if self.uuids.is_none() && other.uuids.is_none() {
            return None;
        }
        // In lower case they may share a UUID.
        let (a, b) = (folded(self), folded(other));
        if a == self.glob && b == other.glob {
            return None;
        }
        let uuid = Glob::new(&[8, 4, 4, 4, 12].map(|digits| "[0-9a-f]".repeat(digits)).join("-")).ok()?;
        a.overlap_within(&uuid, steps)?;
        b.overlap_within(&uuid, steps)?;
        a.overlap_within(&b, steps)
    }

    /// Literal prefix of all its names; in lower case where case does not matter.
    pub fn prefix(&self) -> String {
        let prefix = self.glob.prefix();
        if self.kind == Kind::Vm { prefix.to_ascii_lowercase() } else { prefix }
    }

    /// Whether a name of this kind is possible: an example of an overlap may be too long, or no MAC address.
    pub fn can_be(&self, name: &str) -> bool {
        self.matches(self.kind, name)
            && match self.kind {
                Kind::Name => interface_name(name).is_ok(),
                Kind::Mac => mac(name, true).is_ok(),
                Kind::Vm | Kind::Netns => !name.is_empty(),
            }
    }

    /// Name in rows and messages: `vnet0`, `vm:web1`.
    pub fn label(&self) -> String {
        label(self.kind, &self.text)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// `vnet0`, `vm:web1`: interface names have no prefix.
pub fn label(kind: Kind, name: &str) -> String {
    if kind == Kind::Name { name.to_owned() } else { format!("{}:{name}", kind.word()) }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// The kernel's rule (`dev_valid_name` in net/core/dev.c): 1 to 15 bytes, no `/`, `:` or space.
///
/// # Errors
/// [`NameError::InterfaceLength`] or [`NameError::InterfaceCharacter`].
pub fn interface_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() || text.len() > 15 {
        return Err(NameError::InterfaceLength(text.to_owned()));
    }
    if text == "." || text == ".." || text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
    {
        return Err(NameError::InterfaceCharacter(text.to_owned()));
    }
    Ok(())
}

fn mac(text: &str, exact: bool) -> Result<(), NameError> {
    let pair = |p: &str| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit());
    let good = if exact {
        text.split(':').count() == 6 && text.split(':').all(pair)
    } else {
        text.chars().all(|c| c.is_ascii_hexdigit() || ":*?[]!^-".contains(c))
    };
    if good { Ok(()) } else { Err(NameError::Mac(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_thing_written_in_two_ways() {
        let mac = Matcher::new(Kind::Mac, "52:54:00:AB:cd:01").unwrap();
        assert!(mac.is_exact() && mac.matches(Kind::Mac, "52:54:00:ab:CD:01") && !mac.matches(Kind::Name, "x"));
        assert_eq!(mac.label(), "mac:52:54:00:AB:cd:01");
        let uuid = Matcher::new(Kind::Vm, "9F0E4C2A-1111-2222-3333-444455556666").unwrap();
        assert!(uuid.matches(Kind::Vm, "9f0e4c2a-1111-2222-3333-444455556666"));
        assert!(!Matcher::new(Kind::Vm, "Web1").unwrap().matches(Kind::Vm, "web1"));
        // Also patterns of UUIDs, but not of names.
        let vm = |text: &str| Matcher::new(Kind::Vm, text).unwrap();
        assert!(vm("9F0E4C2A-*").matches(Kind::Vm, "9f0e4c2a-1111-2222-3333-444455556666"));
        assert!(!vm("Web*").matches(Kind::Vm, "web1") && vm("Web*").matches(Kind::Vm, "Web1"));
        assert!(vm("9F0E4C2A-*").overlap(&vm("9f0e4c2a-1111-*")).is_some());
        assert!(vm("9F0E4C2A-*").overlap(&vm("9f0e4c2a-1111-2222-3333-444455556666")).is_some());
        assert!(vm("Web*").overlap(&vm("web*")).is_none() && vm("Web*").overlap(&vm("*1")).is_some());
    }

    #[test]
    fn names_that_cannot_be() {
        for (kind, text) in [
            (Kind::Name, "averyverylongname"),
            (Kind::Name, "a/b"),
            (Kind::Name, ""),
            (Kind::Mac, "52:54:00:12:34"),
            (Kind::Mac, "52:54:00:12:34:5g"),
            (Kind::Mac, "52-54-00-12-34-56"),
            (Kind::Vm, "a\u{1b}b"),
            (Kind::Netns, "blue["),
        ] {
            assert!(Matcher::new(kind, text).is_err(), "{text}");
        }
        assert!(Matcher::new(Kind::Mac, "52:54:00:*").is_ok());
    }
}
