//! The address of a machine as users write it: `ssh://[USER@]HOST[:PORT]`.

use std::fmt;
use std::str::FromStr;

/// What an address begins with.
pub const SCHEME: &str = "ssh://";
/// Longest name of a host (RFC 1035, section 2.3.4), and of a user here.
const MOST_BYTES: usize = 255;

/// A machine that `ssh` reaches. What is not named is as the user's own `~/.ssh/config` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Who to be there.
    pub user: Option<String>,
    /// Name, alias of `~/.ssh/config`, or IP address (IPv6 without brackets).
    pub host: String,
    /// Port.
    pub port: Option<u16>,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{text}`, expected for example ssh://root@host:22: {wrong}")]
pub struct NoAddress {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// What is wrong with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Wrong {
    #[error("it does not begin with ssh://")]
    Scheme,
    #[error("`]` is missing")]
    Bracket,
    #[error("a port stands behind `:`")]
    BehindBracket,
    #[error("no IPv6 address is in the brackets")]
    NoIpv6,
    #[error("the port is not a number from 0 to 65535")]
    Port,
    #[error("a host has letters, digits, `.`, `-` and `_`, and does not begin with `-`")]
    Host,
    #[error("a user has letters, digits, `.`, `-` and `_`, and does not begin with `-`")]
    User,
}

impl FromStr for Address {
    type Err = NoAddress;

    /// Nothing in it can become an option of `ssh`, or a word of a shell.
    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let wrong = |wrong| NoAddress { text: text.to_owned(), wrong };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong(Wrong::Scheme))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or_else(|| wrong(Wrong::Bracket))?;
                let port = match port {
                    "" => None,
                    _ => Some(port.strip_prefix(':').ok_or_else(|| wrong(Wrong::BehindBracket))?),
                };
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(wrong(Wrong::NoIpv6));
                }
                (host, port)
            }
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(|port| port.parse().map_err(|_| wrong(Wrong::Port)));
        let allowed = |word: &str, more: &str| {
            let mut bytes = word.bytes();
            let is_word = |b: u8| b.is_ascii_alphanumeric() || more.as_bytes().contains(&b);
            word.len() <= MOST_BYTES && bytes.next().is_some_and(|b| b != b'-' && is_word(b)) && bytes.all(is_word)
        };
        if !allowed(host, "._-:") {
            return Err(wrong(Wrong::Host));
        }
        if user.is_some_and(|user| !allowed(user, "._-")) {
            return Err(wrong(Wrong::User));
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port: port.transpose()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.user.iter().try_for_each(|user| write!(f, "{user}@"))?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.iter().try_for_each(|port| write!(f, ":{port}"))
    }
}

impl Address {
    /// The words for `ssh` that lead there, after its options.
    pub(super) fn words(&self) -> Vec<String> {
        let option = |word: &str, value: Option<String>| value.map(|value| [word.to_owned(), value]);
        let user = option("-l", self.user.clone()).into_iter().flatten();
        let port = option("-p", self.port.map(|port| port.to_string())).into_iter().flatten();
        user.chain(port).chain(["--".to_owned(), self.host.clone()]).collect()
    }

    /// The command with which a person would go there.
    pub fn by_hand(&self) -> String {
        let port = self.port.map_or_else(String::new, |port| format!("-p {port} "));
        let user = self.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        format!("ssh {port}{user}{}", self.host)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in
            ["ssh://host", "ssh://root@host.example", "ssh://a_b@10.0.0.7:2222", "ssh://[fe80::1]:22", "ssh://u@[::1]"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let address: Address = "ssh://root@[::1]:2222/".parse().unwrap();
        assert_eq!(address.words(), ["-l", "root", "-p", "2222", "--", "::1"]);
        assert_eq!(address.by_hand(), "ssh -p 2222 root@::1");
    }

    #[test]
    fn invalid_addresses() {
        for (text, why) in [
            ("root@host", "does not begin"),
            ("ssh://", "a host has"),
            ("ssh://-oProxyCommand=touch x", "a host has"),
            ("ssh://a@-oProxyCommand=x", "a host has"),
            ("ssh://-lroot@host", "a user has"),
            ("ssh://a b@host", "a user has"),
            ("ssh://host:70000", "the port"),
            ("ssh://host:22:23", "the port"),
            ("ssh://[::1", "`]`"),
            ("ssh://[::1]22", "a port stands"),
            ("ssh://[host]", "no IPv6"),
            ("ssh://host/path", "a host has"),
            ("ssh://$(reboot)", "a host has"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_address_gives_ssh_an_option(text in "\\PC{0,40}") {
            if let Ok(address) = format!("ssh://{text}").parse::<Address>() {
                prop_assert!(!address.host.starts_with('-'));
                prop_assert!(address.user.is_none_or(|user| !user.starts_with('-')));
                prop_assert!(address.host.bytes().all(|b| b.is_ascii_graphic() && !b"'\"`$;|&<>\\".contains(&b)));
            }
        }
    }
}
