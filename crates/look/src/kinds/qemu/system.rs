//! What a command line tells of the system in a guest, and of the timers that it gets. Owners write these words as they
//! like: they decide about advice, and about nothing else.

use vmio_model::facts::Source;

use super::super::process::{DEFAULT, Process};
use crate::qemu::options::Opt;

/// Releases of Windows, as in names of guests and of installation images: `win10`, `Win11_23H2`, `Windows Server 2019`.
const RELEASES: [&str; 10] = ["7", "8", "10", "11", "2008", "2012", "2016", "2019", "2022", "2025"];

/// Whether the program emulates a PC.
pub fn is_x86(process: &Process<'_>) -> bool {
    let program = process.args.first().map_or("", String::as_str);
    ["x86_64", "i386", "kvm"].iter().any(|end| program.ends_with(end))
}

/// Whether the guest runs Windows, where an option is there for that system alone; and which. LXD and Incus give
/// `hv_passthrough` to all guests (driver_qemu.go, `start`).
pub fn windows(process: &Process<'_>, flags: &[String]) -> Option<(bool, Source)> {
    let line = &process.line;
    // The controller of a Mac, without which macOS does not start.
    if line.all("device").any(|device| device.get("driver") == Some("isa-applesmc")) {
        return Some((false, process.option("device")));
    }
    // Also a vendor id alone, which hides KVM from drivers of Windows.
    if flags.iter().any(|flag| flag.starts_with("hv_") && flag != "hv_passthrough") {
        return Some((true, process.option_by("cpu", None, Some("hv_*"))));
    }
    let options = || ["drive", "blockdev"].into_iter().flat_map(move |name| line.all(name));
    if let Some(drivers) = options().find(|option| files(option).any(|file| file.contains("virtio-win"))) {
        return Some((true, process.option(&drivers.name)));
    }
    // A clock in local time is Windows's custom. Others have it, too, so a name has to say so besides.
    let clock = if line.get("rtc", "base") == Some("localtime") {
        "rtc"
    } else {
        line.all("localtime").next().map(|_| "localtime")?
    };
    // Incus does so for Windows alone (driver_qemu.go, `start`).
    let by_incus = line.all("smbios").any(|table| table.get("product") == Some("Incus"));
    let named =
        by_incus || is_windows(&process.name) || options().any(|option| files(option).any(|file| is_windows(&file)));
    named.then(|| (true, process.option(clock)))
}

/// Names of the files of a `-drive` or `-blockdev`, without directories, in small letters.
fn files(option: &Opt) -> impl Iterator<Item = String> {
    let of_file = |key: &str| matches!(key.rsplit('.').next(), Some("file" | "filename"));
    let paths = option.keys.iter().filter(move |(key, _)| of_file(key));
    paths.map(|(_, path)| path.rsplit('/').next().unwrap_or_default().to_lowercase())
}

/// Whether a name has a release of Windows in it.
fn is_windows(name: &str) -> bool {
    let name = name.to_lowercase();
    let begins = |at: usize| !name[..at].ends_with(char::is_alphanumeric);
    let is_release = |after: &str| {
        let after = after.strip_prefix("dows").unwrap_or(after);
        let after = after.strip_prefix([' ', '.', '_', '-']).unwrap_or(after);
        let after = after.strip_prefix("server").map_or(after, |rest| rest.trim_start_matches([' ', '.', '_', '-']));
        let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        RELEASES.contains(&digits) || after.starts_with("2k")
    };
    let releases = name.match_indices("win").any(|(at, word)| begins(at) && is_release(&name[at + word.len()..]));
    releases || name.match_indices("w2k").any(|(at, _)| begins(at))
}

/// Whether the machine has an HPET: a PC has one unless an option takes it away (QEMU, hw/i386/pc.c,
/// `pc_machine_initfn`; `-no-hpet` until 8.2). Red Hat builds QEMU without one, and other machines are not known.
pub fn hpet(process: &Process<'_>) -> Option<(bool, Source)> {
    let line = &process.line;
    let on = |option: &Opt| option.on("hpet");
    if let Some(on) = line.all("machine").filter_map(on).last() {
        return Some((on, process.option_by("machine", None, Some("hpet"))));
    }
    if line.all("no-hpet").next().is_some() {
        return Some((false, process.option("no-hpet")));
    }
    let machine = line.get("machine", "type");
    let pc = machine.is_none_or(|name| (name.starts_with("pc") || name.starts_with("q35")) && !name.contains("rhel"));
    let of_red_hat = process.args.first().is_some_and(|program| program.starts_with("/usr/libexec/"));
    (is_x86(process) && pc && !of_red_hat).then_some((true, DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::is_windows;

    #[test]
    fn a_release_of_windows_in_a_name() {
        let all =
            ["win10", "Win11_23H2_English_x64.iso", "files-windows-2019", "Windows Server 2022", "w2k16", "win2k3"];
        assert!(all.iter().all(|name| is_windows(name)));
        let none = ["web1", "twin10", "darwin11", "winner", "window-9", "raw2k.img", "windows", ""];
        assert_eq!(none.iter().find(|name| is_windows(name)), None);
    }
}
