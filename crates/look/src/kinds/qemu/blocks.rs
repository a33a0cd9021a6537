//! The chain of block nodes of a QEMU disk, from the one that the device uses to the one that opens the storage (QEMU,
//! docs/interop/qmp, `BlockdevOptions`), from `-blockdev` or `-drive`, whose short forms are expanded to nodes.
//!
//! An option that a node lacks is inherited from the node that it is nested in (`bdrv_inherited_options`), else it is
//! QEMU's default.

use crate::qemu::options::{CommandLine, Opt, size};

/// A chain of nodes, the device's first.
#[derive(Debug, Default)]
pub struct Chain {
    /// Node, and whether it is nested in the one before it.
    nodes: Vec<(Opt, bool)>,
    /// The `-drive` that it comes from; `None` for `-blockdev`.
    pub drive: Option<Opt>,
}

/// Image formats (the others are filters or open storage).
const FORMATS: [&str; 14] = [
    "raw",
    "qcow2",
    "qcow",
    "qed",
    "vmdk",
    "vdi",
    "vpc",
    "vhdx",
    "luks",
    "parallels",
    "dmg",
    "cloop",
    "bochs",
    "ssh-luks",
];
/// Longest chain that is followed.
const LONGEST: usize = 16;

impl Chain {
    /// The chain of a `-drive`.
    pub fn of_drive(line: &CommandLine, drive: &Opt) -> Self {
        let mut top = drive.clone();
        if let Some(format) = drive.get("driver").or(drive.get("format")).map(str::to_owned) {
            top.keys.push(("driver".into(), format));
        } else {
            top.keys.push(("driver".into(), String::new())); // QEMU looks at the image to find out
        }
        let (direct, no_flush) = match drive.get("cache") {
            Some("none" | "off" | "directsync") => (true, false),
            Some("unsafe") => (false, true),
            _ => (false, false),
        };
        for (key, on) in [("cache.direct", direct), ("cache.no-flush", no_flush)] {
            if drive.on(key).is_none() {
                top.keys.push((key.into(), (if on { "on" } else { "off" }).into()));
            }
        }
        if let Some(file) = drive.get("file").map(str::to_owned) {
            top.keys.retain(|(k, _)| k != "file");
            let known = !drive.below("file").keys.is_empty();
            let keys = if known { vec![("filename".into(), file)] } else { of_name(&file) };
            top.keys.splice(0..0, keys.into_iter().map(|(k, v)| (format!("file.{k}"), v)));
        }
        Self { nodes: follow(line, top), drive: Some(drive.clone()) }
    }

    /// The chain from a named node on.
    pub fn of_node(line: &CommandLine, name: &str) -> Option<Self> {
        Some(Self { nodes: follow(line, node(line, name)?.clone()), drive: None })
    }

    /// The node that opens the storage.
    fn last(&self) -> Option<&Opt> {
        self.nodes.last().map(|(n, _)| n)
    }

    /// Whether the guest may only read it.
    pub fn read_only(&self) -> bool {
        let top = self.nodes.first().map(|(n, _)| n);
        top.and_then(|n| n.on("read-only").or_else(|| n.on("readonly"))).unwrap_or(false)
    }

    /// Driver that opens the storage: `file`, `host_device`, `nbd`.
    pub fn protocol(&self) -> Option<&str> {
        self.last()?.get("driver").filter(|d| !d.is_empty() && (self.nodes.len() > 1 || !FORMATS.contains(d)))
    }

    /// The image's format; `None` where QEMU probes it.
    pub fn format(&self) -> Option<&str> {
        let drivers = || self.nodes.iter().filter_map(|(n, _)| n.get("driver"));
        let probed = drivers().any(str::is_empty);
        drivers().find(|d| FORMATS.contains(d)).or_else(|| self.protocol().filter(|_| !probed).map(|_| "raw"))
    }

    /// An option of the last node, or of the nodes that it is nested in.
    pub fn inherited(&self, key: &str) -> Option<&str> {
        for (node, inside) in self.nodes.iter().rev() {
            if let Some(value) = node.get(key) {
                return Some(value);
            }
            if !inside {
                return None;
            }
        }
        None
    }

    /// The same as a switch, off by default.
    pub fn switch(&self, key: &str) -> bool {
        matches!(self.inherited(key), Some("on" | "yes" | "true"))
    }

    /// Whether discards reach the storage, and whether the command line says so.
    pub fn discard(&self) -> (bool, bool) {
        let passes = self.nodes.iter().all(|(n, inside)| match n.get("discard") {
            Some(mode) => matches!(mode, "unmap" | "on"),
            None => *inside,
        });
        (passes, self.nodes.iter().any(|(n, _)| n.get("discard").is_some()))
    }

    /// Bytes of QEMU's cache of L2 tables, where set. A cache for both kinds of tables (libvirt's `<metadata_cache>`)
    /// leaves four clusters of the usual size for the other kind (block/qcow2.c, `read_cache_sizes`).
    pub fn l2_cache_bytes(&self) -> Option<u64> {
        let said = |key: &str| self.nodes.iter().find_map(|(n, _)| size(n.get(key)?, 1));
        let rest = || Some(said("cache-size")?.saturating_sub(said("refcount-cache-size").unwrap_or(4 << 16)));
        said("l2-cache-size").or_else(rest)
    }

    /// Path or address of the storage, as a configuration writes it.
    pub fn source(&self) -> Option<String> {
        let node = self.last()?;
        if let Some(path) = node.get("filename").or(node.get("url")) {
            return Some(path.to_owned());
        }
        let host = || {
            let server = |key: &str| node.get(&format!("server.{key}")).or(node.get(&format!("server.0.{key}")));
            let host = server("host").or(node.get("host"))?;
            Some(match server("port").or(node.get("port")) {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            })
        };
        match self.protocol()? {
            "rbd" => Some(format!("rbd:{}/{}", node.get("pool")?, node.get("image")?)),
            "iscsi" => {
                let (portal, target) = (node.get("portal")?, node.get("target")?);
                Some(format!("iscsi://{portal}/{target}/{}", node.get("lun").unwrap_or("0")))
            }
            "gluster" => {
                let path = node.get("path")?.trim_start_matches('/');
                Some(format!("gluster://{}/{}/{path}", host()?, node.get("volume")?))
            }
            "nbd" => {
                let export = node.get("export").unwrap_or_default();
                match node.get("server.path").or(node.get("path")) {
                    Some(path) => Some(format!("nbd+unix:///{export}?socket={path}")),
                    None => Some(format!("nbd://{}/{export}", host()?)),
                }
            }
            protocol @ ("nfs" | "ssh") => {
                Some(format!("{protocol}://{}/{}", host()?, node.get("path")?.trim_start_matches('/')))
            }
            "nvme" => node.get("device").map(str::to_owned),
            _ => node.get("path").map(str::to_owned),
        }
    }

    /// Name of the image's node.
    pub fn image_node(&self) -> Option<&str> {
        let image = self.nodes.iter().find(|(n, _)| n.get("driver").is_some_and(|d| FORMATS.contains(&d)));
        image.or(self.nodes.first().filter(|_| self.nodes.len() == 1))?.0.get("node-name")
    }

    /// Id of the throttle group of one of its nodes.
    pub fn throttle_group(&self) -> Option<&str> {
        self.nodes.iter().find_map(|(n, _)| n.get("throttle-group"))
    }

    /// Options that may limit it: the drive, and its nodes' groups.
    fn throttles<'a>(&'a self, line: &'a CommandLine) -> impl Iterator<Item = &'a Opt> {
        let groups = self.nodes.iter().filter_map(|(n, _)| {
            let group = n.get("throttle-group")?;
            line.all("object").find(|o| o.get("qom-type") == Some("throttle-group") && o.id() == Some(group))
        });
        self.drive.iter().chain(groups)
    }

    /// Keys of limits, bursts included.
    pub fn limit_keys(&self, line: &CommandLine) -> Vec<String> {
        let of_limits = |key: &String| {
            ["throttling.", "limits.", "x-iops", "x-bps", "iops", "bps"].iter().any(|start| key.starts_with(start))
        };
        let keys = self.throttles(line).flat_map(|holder| &holder.keys);
        keys.filter(|(key, _)| of_limits(key)).map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// Limits in force, in words.
    pub fn limits(&self, line: &CommandLine) -> Vec<String> {
        self.throttles(line).flat_map(limits_of).collect()
    }
}

/// Limits that an option sets, in words.
pub fn limits_of(holder: &Opt) -> Vec<String> {
    let limit = |(key, value): &(String, String)| {
        let key = key.trim_start_matches("throttling.").trim_start_matches("limits.").trim_start_matches("x-");
        let (unit, of) = match key.replace('_', "-").as_str() {
            "iops" | "iops-total" => ("IOPS", ""),
            "iops-rd" | "iops-read" => ("IOPS", " of reads"),
            "iops-wr" | "iops-write" => ("IOPS", " of writes"),
            "bps" | "bps-total" => ("bytes/s", ""),
            "bps-rd" | "bps-read" => ("bytes/s", " of reads"),
            "bps-wr" | "bps-write" => ("bytes/s", " of writes"),
            _ => return None,
        };
        let most = size(value, 1).filter(|most| *most > 0)?;
        Some(format!("{most} {unit}{of} by QEMU's throttle"))
    };
    holder.keys.iter().filter_map(limit).collect()
}

/// The `-blockdev` of that node name.
fn node<'a>(line: &'a CommandLine, name: &str) -> Option<&'a Opt> {
    line.options.iter().find(|o| o.name == "blockdev" && o.get("node-name") == Some(name))
}

fn follow(line: &CommandLine, top: Opt) -> Vec<(Opt, bool)> {
    let mut nodes = vec![(top, false)];
    while let Some((last, _)) = nodes.last().filter(|_| nodes.len() < LONGEST) {
        let inside = last.below("file");
        let next = match last.get("file").and_then(|name| node(line, name)) {
            Some(named) => (named.clone(), false),
            None if !inside.keys.is_empty() => (inside, true),
            None => break,
        };
        nodes.push(next);
    }
    // QEMU opens a plain file where nothing else is said.
    if let Some((last, true)) = nodes.last_mut()
        && last.get("driver").is_none()
    {
        last.keys.push(("driver".into(), "file".into()));
    }
    nodes
}

/// A file name of `-drive`: a prefix up to a colon before any slash names a driver.
fn of_name(name: &str) -> Vec<(String, String)> {
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    let scheme = name.split_once(':').map(|(s, _)| s).filter(|s| !s.is_empty() && !s.contains('/'));
    let driver = match scheme {
        Some(scheme) => match scheme.split('+').next().unwrap_or_default() {
            "file" => return vec![pair("filename", name.trim_start_matches("file:")), pair("driver", "file")],
            "rbd" => {
                let image = name.trim_start_matches("rbd:").split([':', '@']).next().unwrap_or_default();
                let (pool, image) = image.split_once('/').unwrap_or(("rbd", image));
                return vec![pair("driver", "rbd"), pair("pool", pool), pair("image", image)];
            }
            driver @ ("nbd" | "iscsi" | "gluster" | "nfs" | "ssh" | "http" | "https" | "ftp" | "ftps" | "sheepdog"
            | "nvme" | "null-co" | "null-aio" | "vvfat") => driver,
            "fat" => "vvfat",
            _ => return vec![pair("filename", name), pair("driver", "file")],
        },
        None => return vec![pair("filename", name), pair("driver", "file")],
    };
    // A password is left out of reports.
    let url = match name.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
        }
        None => name.to_owned(),
    };
    vec![pair("driver", driver), pair("url", &url)]
}
