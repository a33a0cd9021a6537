//! QEMU's command line in one form: options in order, each with its keys and values.
//!
//! The same setting can be written as `key=value,…`, as JSON, or by an old option of its own. The parsing follows
//! QEMU's `util/qemu-option.c` (`opts_parse`), `util/keyval.c` (dotted keys) and `system/vl.c` (which option takes an
//! argument, what an old one stands for). What cannot be parsed is reported in [`CommandLine::unread`] and is no error,
//! since a guest runs with it.

use serde_json::Value;
use vmio_model::facts::Unread;

/// Most options, and keys of one, that are parsed: the guest's owner writes them, and they must not take long or fill
/// memory. 200 disks need a tenth of it.
const MOST_OPTIONS: usize = 8192;
const MOST_KEYS: usize = 1024;

/// A command line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandLine {
    /// Its options in order; an old one as what it stands for (`-hda` as `drive`).
    pub options: Vec<Opt>,
    /// Options that could not be parsed and may hide settings.
    pub unread: Vec<Unread>,
}

/// An option.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opt {
    /// Its name without dashes: `device`.
    pub name: String,
    /// Its argument as it was written; empty where it takes none.
    pub text: String,
    /// Keys and values in order: JSON with dotted keys (`cache.direct`), `on` and `off` for booleans, the first value
    /// under its implied key (`driver` of `-device`).
    pub keys: Vec<(String, String)>,
}

impl Opt {
    /// The last value of a key, which counts. `-` and `_` are the same in a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().rev().find(|(k, _)| same_key(k, key)).map(|(_, v)| v.as_str())
    }

    /// A key as a boolean; `None` when it is absent or neither (`auto`).
    pub fn on(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            "on" | "yes" | "true" | "y" => Some(true),
            "off" | "no" | "false" | "n" => Some(false),
            _ => None,
        }
    }

    /// A key as a whole number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Name and file of an old option for a `-drive` (`hda`; no name for a bare file name).
    pub fn old(&self) -> Option<(&str, &str)> {
        self.text.strip_prefix('-')?.split_once(' ').filter(|_| self.name == "drive")
    }

    /// Its id.
    pub fn id(&self) -> Option<&str> {
        self.get("id")
    }

    /// The keys below a dotted one, without its prefix: `path` for `file.path=…` below `file`.
    pub fn below(&self, prefix: &str) -> Opt {
        let keys = self.keys.iter().filter_map(|(k, v)| {
            let rest = k.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((rest.to_owned(), v.clone()))
        });
        Opt { name: self.name.clone(), text: String::new(), keys: keys.collect() }
    }
}

/// Whether two keys are the same; QEMU accepts `_` for `-` in nearly all of them.
fn same_key(a: &str, b: &str) -> bool {
    let plain = |c: u8| if c == b'_' { b'-' } else { c };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}

impl CommandLine {
    /// Reads a command line; the first argument is the program.
    pub fn parse(args: &[String]) -> Self {
        let mut line = CommandLine::default();
        let mut rest = args.iter().skip(1).peekable();
        while let Some(arg) = rest.next() {
            if line.options.len() + line.unread.len() >= MOST_OPTIONS {
                line.hides(format!("options after the first {MOST_OPTIONS}"), "no guest has so many");
                break;
            }
            let Some(name) = arg.strip_prefix('-').map(|n| n.strip_prefix('-').unwrap_or(n)) else {
                if !arg.is_empty() {
                    line.old_disk("", arg); // a disk image without an option is the first disk
                }
                continue;
            };
            let takes = if listed(ALONE, name) {
                false
            } else if listed(WITH_ARGUMENT, name) {
                true
            } else {
                line.hides(format!("option -{name}"), "vmio does not know this option");
                rest.peek().is_some_and(|next| !next.starts_with('-'))
            };
            let text = if takes { rest.next().map(String::as_str) } else { Some("") };
            match text {
                Some(text) => line.add(name, text),
                None => line.hides(format!("option -{name}"), "its argument is missing"),
            }
        }
        line.apply_set();
        line.apply_global();
        line
    }

    /// All options of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Opt> {
        self.options.iter().filter(move |o| o.name == name)
    }

    /// The last option of a name that has the key: QEMU merges repeated ones of `-machine`, `-m`,
    /// `-smp`, `-name`.
    pub fn get(&self, name: &str, key: &str) -> Option<&str> {
        self.options.iter().rev().filter(|o| o.name == name).find_map(|o| o.get(key))
    }

    /// The balloon device.
    pub fn balloon(&self) -> Option<&Opt> {
        self.all("device").find(|d| d.get("driver").is_some_and(|driver| driver.starts_with("virtio-balloon")))
    }

    /// The option of a name with that id.
    pub fn find(&self, name: &str, id: &str) -> Option<&Opt> {
        self.options.iter().find(|o| o.name == name && o.id() == Some(id))
    }

    /// The guest's name, as given by `-name`.
    pub fn guest_name(&self) -> Option<&str> {
        self.get("name", "guest").filter(|n| !n.is_empty())
    }

    /// The files of `-readconfig`, from which QEMU takes further options.
    pub fn config_files(&self) -> Vec<String> {
        self.all("readconfig").map(|option| option.text.clone()).collect()
    }

    /// Withdraws that this file of `-readconfig` was not read.
    pub fn config_is_read(&mut self, file: &str) {
        let what = settings_in(file);
        self.unread.retain(|unread| unread.what != what);
    }

    /// Adds options that QEMU got elsewhere than on its command line.
    pub fn take(&mut self, options: Vec<Opt>) {
        let room = MOST_OPTIONS.saturating_sub(self.options.len());
        self.options.extend(options.into_iter().take(room));
        self.apply_global();
    }

    fn hides(&mut self, what: String, why: &str) {
        let mend = "query the guest's monitor (QMP) for its settings".into();
        self.unread.push(Unread { what, why: why.to_owned(), mend });
    }

    fn add(&mut self, name: &str, text: &str) {
        match name {
            "hda" | "hdb" | "hdc" | "hdd" | "cdrom" | "sd" | "pflash" | "mtdblock" | "fda" | "fdb" => {
                return self.old_disk(name, text);
            }
            "readconfig" => self.hides(settings_in(text), "-readconfig takes them from that file"),
            _ => (),
        }
        let name = match name {
            "M" => "machine",
            "enable-kvm" => return self.options.push(of("accel", &[("accel", "kvm")])),
            "no-kvm" => return self.options.push(of("accel", &[("accel", "tcg")])),
            "qmp-pretty" => "qmp",
            other => other,
        };
        let keys = if text.trim_start().starts_with('{') && JSON.contains(&name) {
            match serde_json::from_str(text) {
                Ok(value) => flat(&value),
                Err(e) => {
                    self.hides(format!("-{name} {text}"), &format!("it is not JSON: {e}"));
                    return;
                }
            }
        } else {
            pairs(text, implied(name), name != "cpu")
        };
        let keys = keys.into_iter().flat_map(json_value).take(MOST_KEYS).collect();
        self.options.push(Opt { name: name.to_owned(), text: text.to_owned(), keys });
    }

    /// `-hda FILE` and similar, as QEMU's `-drive` (system/vl.c, `drive_add`).
    fn old_disk(&mut self, name: &str, file: &str) {
        let keys: &[(&str, &str)] = match name {
            "hda" | "" => &[("index", "0"), ("media", "disk")],
            "hdb" => &[("index", "1"), ("media", "disk")],
            "hdc" => &[("index", "2"), ("media", "disk")],
            "hdd" => &[("index", "3"), ("media", "disk")],
            "cdrom" => &[("index", "2"), ("media", "cdrom")],
            "sd" => &[("if", "sd")],
            "pflash" => &[("if", "pflash")],
            "mtdblock" => &[("if", "mtd")],
            _ => &[("if", "floppy")],
        };
        let mut option = of("drive", keys);
        option.keys.push(("file".into(), file.into()));
        option.text = format!("-{name} {file}");
        self.options.push(option);
    }

    /// `-set group.id.key=value` changes an option before it.
    fn apply_set(&mut self) {
        let sets: Vec<String> = self.all("set").map(|o| o.text.clone()).collect();
        for set in sets {
            let parts = set.split_once('=').and_then(|(path, value)| {
                let mut path = path.splitn(3, '.');
                Some((path.next()?.to_owned(), path.next()?.to_owned(), path.next()?.to_owned(), value.to_owned()))
            });
            let Some((group, id, key, value)) = parts else { continue };
            if let Some(option) = self.options.iter_mut().find(|o| o.name == group && o.id() == Some(&id)) {
                option.keys.push((key, value));
            }
        }
    }

    /// `-global driver.key=value` sets a default for all devices of a driver.
    fn apply_global(&mut self) {
        let global = |o: &Opt| -> Option<(String, String, String)> {
            if let (Some(driver), Some(key), Some(value)) = (o.get("driver"), o.get("property"), o.get("value")) {
                return Some((driver.into(), key.into(), value.into()));
            }
            let (driver, setting) = o.text.split_once('.')?;
            let (key, value) = setting.split_once('=')?;
            Some((driver.into(), key.into(), value.into()))
        };
        let globals: Vec<_> = self.all("global").filter_map(global).collect();
        for (driver, key, value) in globals {
            let of_driver = |o: &&mut Opt| o.name == "device" && o.get("driver") == Some(&driver);
            for device in self.options.iter_mut().filter(of_driver) {
                device.keys.insert(0, (key.clone(), value.clone()));
            }
        }
    }
}

/// What is unread of a file of `-readconfig`.
pub fn settings_in(file: &str) -> String {
    format!("settings in {file}")
}

fn of(name: &str, keys: &[(&str, &str)]) -> Opt {
    let keys = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Opt { name: name.to_owned(), text: String::new(), keys }
}

/// Parses `key=value,key=value` with `,,` for a comma. A word alone is the value of `implied` when it comes first, else
/// a switch: `server` is `server=on`, `nowait` is `wait=off`.
fn pairs(text: &str, implied: Option<&str>, negates: bool) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (i, part) in parts(text).into_iter().enumerate() {
        pairs.push(match (part.split_once('='), implied, part.strip_prefix("no")) {
            // A comma in a value is doubled, so a name before `=` has none.
            (Some((key, value)), _, _) if !key.contains(',') => (key.to_owned(), value.to_owned()),
            (_, Some(key), _) if i == 0 => (key.to_owned(), part),
            (_, _, Some(key)) if negates && SWITCHES.contains(&key) => (key.to_owned(), "off".into()),
            _ if part.is_empty() => continue,
            _ => (part, "on".into()),
        });
    }
    pairs
}

/// Splits at single commas; a double one is a comma.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// `file=json:{…}` is expanded to keys below `file`.
fn json_value((key, value): (String, String)) -> Vec<(String, String)> {
    match value.strip_prefix("json:").and_then(|json| serde_json::from_str::<Value>(json).ok()) {
        Some(json) => flat(&json).into_iter().map(|(k, v)| (format!("{key}.{k}"), v)).collect(),
        None => vec![(key, value)],
    }
}

/// JSON with dotted keys; list entries by index.
pub(super) fn flat(value: &Value) -> Vec<(String, String)> {
    fn walk(value: &Value, key: &str, into: &mut Vec<(String, String)>) {
        let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| walk(v, &below(k), into)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| walk(v, &below(&i.to_string()), into)),
            Value::String(text) => into.push((key.to_owned(), text.clone())),
            Value::Bool(on) => into.push((key.to_owned(), (if *on { "on" } else { "off" }).to_owned())),
            Value::Number(number) => into.push((key.to_owned(), number.to_string())),
            Value::Null => into.push((key.to_owned(), String::new())),
        }
    }
    let mut keys = Vec::new();
    walk(value, "", &mut keys);
    keys
}

/// A size in bytes, as QEMU parses it: a number, possibly with a fraction, and a suffix `b`, `k`, `M`, `G`, `T`, `P`;
/// without one the unit is `unit` bytes.
pub fn size(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok()?.checked_mul(unit);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].trim_end_matches(['i', 'B']) {
        "" if text.ends_with('B') => 1,
        "" => unit,
        "b" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        "p" | "P" => 1 << 50,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let bytes = digits.parse::<f64>().ok()? * unit as f64;
    (bytes.is_finite() && (0.0..1e18).contains(&bytes)).then_some(bytes as u64)
}

/// Key of an option's first value (`implied_opt_name` in QEMU's sources).
fn implied(name: &str) -> Option<&'static str> {
    Some(match name {
        "device" => "driver",
        "netdev" | "nic" | "net" | "numa" | "machine" | "display" | "audio" | "tpmdev" => "type",
        "object" => "qom-type",
        "cpu" => "model",
        "smp" => "cpus",
        "m" => "size",
        "name" => "guest",
        "accel" => "accel",
        "chardev" => "backend",
        "mon" => "chardev",
        "qmp" | "monitor" | "serial" | "parallel" | "vnc" | "incoming" => "address",
        "fsdev" | "virtfs" => "fsdriver",
        "sandbox" => "enable",
        "mem-path" | "uuid" | "id" | "pidfile" | "kernel" | "initrd" | "append" | "bios" => "value",
        _ => return None,
    })
}

/// Options whose argument may be JSON.
const JSON: &[&str] = &["device", "blockdev", "netdev", "object", "machine", "audiodev", "display", "chardev"];

/// Switches that a `no` prefix turns off.
const SWITCHES: &[&str] = &["server", "wait", "delay", "reconnect", "copy", "shutdown", "reboot", "ipv4", "ipv6"];

fn listed(names: &str, name: &str) -> bool {
    names.split(' ').any(|n| n == name)
}

/// Options without an argument (qemu-options.hx, versions 2.5 to 10).
const ALONE: &str = "\
    S alt-grab async-teardown ctrl-grab curses daemonize enable-fips enable-kvm enable-sync-profile full-screen h \
    help hypervisor localtime mem-prealloc no-acpi no-fd-bootchk no-frame no-hpet no-kvm no-kvm-irqchip no-kvm-pit \
    no-kvm-pit-reinjection no-quit no-reboot no-shutdown no-user-config nodefaults nodefconfig nographic nohpet \
    old-param one-insn-per-tb only-migratable portrait preconfig rtc-td-hack s sdl semihosting show-cursor \
    singlestep snapshot usb version win2k-hack xen-attach xen-domid-restrict";

/// Options with an argument (the same sources; `id` is Proxmox's).
const WITH_ARGUMENT: &str = "\
    D L M accel acpitable action add-fd append audio audiodev balloon bios blockdev boot bt cdrom chardev chroot \
    clock compat cpu d debugcon device dfilter display drive dtb dump-vmstate echr fda fdb fsdev fw_cfg g gdb \
    global hda hdb hdc hdd icount id incoming initrd iscsi k kernel loadvm m machine mem-path mon monitor msg \
    mtdblock name net netdev nic numa object option-rom overcommit parallel pcidevice pflash pidfile plugin prom- \
    env qmp qmp-pretty qtest qtest-log readconfig realtime redir rotate rtc run-with runas sandbox sd seed \
    semihosting-config serial set shim smbios smp soundhw spice tb-size tdf tpmdev trace usbdevice uuid vga virtfs \
    virtfs_synth virtioconsole vnc watchdog watchdog-action writeconfig xen-domid";

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
