//! The host that `ssh` would go to, by the user's own configuration.

use std::io;
use std::process::{Command, Stdio};

use super::Address;

/// The name or IP address behind an address: an alias of `~/.ssh/config` is followed, as ssh(1), `-G`, prints it. Nothing is
/// asked of that host.
///
/// # Errors
/// When `ssh` cannot be started, or does not say.
pub fn host_name(ssh: &[String], address: &Address) -> io::Result<String> {
    let (program, options) = ssh.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(options).arg("-G").args(address.words()).stdin(Stdio::null());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let name = text.lines().find_map(|line| line.strip_prefix("hostname "));
    name.map(str::to_owned).ok_or_else(|| io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
