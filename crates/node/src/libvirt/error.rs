//! Errors of reaching a guest, and what to do about each.

use std::io;

use crate::reach::{self, Ungreeted};

/// An error of reaching a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Message of `virsh`, or of the guest's agent.
    #[error("{0}")]
    Message(String),
    /// With its last words.
    #[error("virsh ended: {0}")]
    Ended(String),
    #[error("cannot start {program}: {why}")]
    NotRun { program: String, why: crate::Error },
    #[error("cannot start virsh: {0}")]
    NotStarted(io::Error),
    #[error("no command for virsh is named")]
    NoCommand,
    #[error("domain is not running: it is {0}")]
    NotRunning(String),
    #[error("its guest agent forbids {}: it has been disabled there", .0.join(", "))]
    Forbidden(Vec<&'static str>),

    /// What it does in place of an answer.
    #[error("virsh {0}")]
    Virsh(String),
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    #[error("an answer {0}")]
    WrongAnswer(String),
    /// What it answers in place of what was asked for.
    #[error("its guest agent {0}")]
    GuestAgent(String),
    #[error("{written} of {bytes} bytes were written in the guest")]
    Cut { written: i64, bytes: usize },
    #[error("a shell in the guest {0}")]
    Shell(String),
    #[error("a directory name that a shell would change: {0:.200}")]
    Place(String),
    #[error("the agent in the guest has ended")]
    AgentEnded,
    #[error(transparent)]
    Ungreeted(#[from] Ungreeted),

    #[error("cannot {what}: {source}")]
    Cannot { what: &'static str, source: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// For where nothing else is known.
pub(crate) const BY_HAND: &str = "try it manually: virsh qemu-agent-command DOMAIN '{\"execute\":\"guest-info\"}'";
const INSTALL: &str = "install libvirt-clients, which has virsh (docs/libvirt.md)";
const START: &str = "virsh start DOMAIN";
const ALLOW: &str = "in the guest: allow it in /etc/qemu/qemu-ga.conf (/etc/sysconfig/qemu-ga)";

/// What `virsh` said, and what to do: the first that fits.
const MENDS: [(&str, &str); 9] = [
    ("failed to connect to the hypervisor", "see whether libvirtd runs; VIRSH_DEFAULT_CONNECT_URI names another one"),
    ("failed to get domain", "virsh list --all names the domains"),
    ("domain is not running", START),
    (
        "QEMU guest agent is not configured",
        "it has no channel for one: virsh edit DOMAIN, <channel type='unix'><target type='virtio' \
         name='org.qemu.guest_agent.0'/></channel>, and restart it",
    ),
    ("agent is not connected", "in the guest: apt install qemu-guest-agent, and see that it runs"),
    ("agent is not responding", "in the guest: systemctl restart qemu-guest-agent"),
    ("read only access", "be root here, or a member of the group libvirt"),
    ("has been disabled", ALLOW),
    ("Failed to execute child process", "only guests with Linux and /bin/sh can be worked on"),
];

impl Trouble {
    /// What is told, and what to do: by what it is, or by the words of `virsh`. `None` where that is not known.
    pub(crate) fn told(&self) -> (String, Option<&'static str>) {
        let text = self.to_string();
        let told = |mends: &[(&str, &'static str)]| reach::explain("virsh", &text, "", mends);
        match self {
            Self::Message(_) | Self::Ended(_) => told(&MENDS),
            Self::NotRun { .. } | Self::NotStarted(_) => told(&[(text.as_str(), INSTALL)]),
            Self::NotRunning(_) => told(&[(text.as_str(), START)]),
            Self::Forbidden(_) => told(&[(text.as_str(), ALLOW)]),
            _ => told(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_depends_on_the_error() {
        let told = |trouble: Trouble| trouble.told();
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(told(Trouble::NotStarted(missing())).1, Some(INSTALL));
        assert_eq!(
            told(Trouble::NotRunning("shut off".into())),
            ("domain is not running: it is shut off".to_owned(), Some(START))
        );
        assert_eq!(
            told(Trouble::Message("error: failed to get domain 'x'\nerror: x".into())),
            ("error: failed to get domain 'x'".to_owned(), Some(MENDS[1].1))
        );
        // What a guest printed is not taken for what vmio says.
        assert_eq!(told(Trouble::Shell("said: a\nb".into())).0, "a shell in the guest said: a; b");
        // It is this host and not virsh that has no room for a thread.
        let cannot = Trouble::Cannot { what: "start a thread", source: missing() };
        assert_eq!(told(cannot), ("cannot start a thread: entity not found".to_owned(), None));
    }
}
