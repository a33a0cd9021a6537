//! The host that `ssh` would go to, by the user's own configuration.

use std::io;
use std::net::IpAddr;
use std::process::Stdio;

use super::Address;
use crate::machine;

/// Where `ssh` goes for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or IP address: an alias of `~/.ssh/config` is followed.
    pub name: String,
    /// Port.
    pub port: u16,
    /// `AddressFamily`: `inet` (IPv4) or `inet6` alone; anything else is both.
    family: String,
}

impl Host {
    /// Asks `ssh` itself (ssh(1), `-G`). Nothing is asked of that host.
    ///
    /// # Errors
    /// When `ssh` cannot be started, or does not say.
    pub fn of(ssh: &[String], address: &Address) -> io::Result<Self> {
        let (program, options) = ssh.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = machine::command(program);
        command.args(options).arg("-G").args(address.words()).stdin(Stdio::null());
        let output = command.output()?;
        let stderr_text = || io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        Self::read(&String::from_utf8_lossy(&output.stdout)).ok_or_else(stderr_text)
    }

    fn read(text: &str) -> Option<Self> {
        let word = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let family = word("addressfamily").unwrap_or_default().to_owned();
        Some(Self { name: word("hostname")?.to_owned(), port: word("port")?.parse().ok()?, family })
    }

    /// Whether `ssh` would go to this one of its addresses.
    pub fn takes(&self, address: IpAddr) -> bool {
        match self.family.as_str() {
            "inet" => address.is_ipv4(),
            "inet6" => address.is_ipv6(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn output_of_ssh_g() {
        let text = "host web\nuser root\nhostname web.example.org\nport 2222\naddressfamily inet\nhostkeyalias x\n";
        let host = Host::read(text).unwrap();
        assert_eq!((host.name.as_str(), host.port), ("web.example.org", 2222));
        let [four, six] = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert!(host.takes(four) && !host.takes(six));
        let any = Host::read("hostname web\nport 22\naddressfamily any\n").unwrap();
        assert!(any.takes(four) && any.takes(six));
        assert_eq!(Host::read("hostname web\nport x\n"), None);
    }
}
