//! A domain of libvirt as its XML describes it (<https://libvirt.org/formatdomain.html>).
//!
//! A setting that the XML lacks is left out and not filled in with libvirt's default: the guest's process decides. A
//! cache mode of `None` was not configured.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};
use vmio_model::cell::Kind;
use vmio_model::facts::{Balloon, Guest, Place, PlacedThread, Processors, Provenance, Subject};
use vmio_model::result::Accel;
use vmio_node::linux::cpu;

use super::element::{at, attribute, child, children, is, text_of};
use super::{disks, nics, nova};

/// Limits above any hypervisor's vCPUs and any guest's affinities: a user's own libvirt may write any number.
pub const MOST_VCPUS: u32 = 8192;
pub const MOST_PLACES: usize = 1 << 22;

/// Why a document describes no domain.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NoDomain {
    #[error("it is not XML: {0}")]
    NotXml(#[from] roxmltree::Error),
    #[error("it describes a {0}, not a domain")]
    Other(String),
    #[error("it describes a domain without a name")]
    Nameless,
}

/// The guest of a document: `virsh dumpxml`, or libvirt's own record of a running domain
/// (`/run/libvirt/qemu/NAME.xml`), which wraps the same in `<domstatus>`. `from` makes the provenance from the domain's
/// name.
///
/// # Errors
/// When it is no XML, or describes no domain with a name.
pub fn guest(text: &str, from: &dyn Fn(&str) -> Provenance) -> Result<Guest, NoDomain> {
    let document = Document::parse(text)?;
    let root = document.root_element();
    let domain = if is(root, "domain") { Some(root) } else { child(root, "domain") };
    let domain = domain.ok_or_else(|| NoDomain::Other(root.tag_name().name().to_owned()))?;
    let name = text_of(domain, "name").ok_or(NoDomain::Nameless)?;
    let from = from(name);

    let mut guest = Guest {
        name: name.to_owned(),
        kind: match domain.attribute("type") {
            Some("kvm" | "qemu" | "hvf") | None => Kind::QEMU.name.to_owned(),
            Some(other) => other.to_owned(),
        },
        uuid: text_of(domain, "uuid").map(str::to_lowercase),
        os: operating_system(domain),
        ..Guest::default()
    };
    guest.ids.insert("domain".into(), name.to_owned());
    guest.ids.extend(text_of(domain, "title").map(|title| ("title".into(), title.to_owned())));
    guest.ids.extend(nova::names(domain));
    // Back ends are found by this number; QEMU guests do not need it.
    let number = domain.attribute("id").filter(|_| guest.has_back_ends());
    guest.ids.extend(number.map(|id| ("domid".into(), id.to_owned())));

    let windows = guest.os.as_ref().map(|os| os == "windows");
    let processors = processors(domain, windows, from.clone());
    if let Some(devices) = child(domain, "devices") {
        let own = children(devices, "disk").filter_map(|d| disks::disk(name, domain, devices, d, &from));
        guest.disks = own.collect();
        // Empty drives have targets too.
        let targets = children(devices, "disk").filter_map(|d| attribute(d, "target", "dev")).map(str::to_owned);
        let taken: Vec<String> = targets.collect();
        let first = disks::boots_as_first(domain, devices).map(str::to_owned);
        for disk in &mut guest.disks {
            disk.place.boots_as_first = Some(first.is_some() && disk.place.target == first);
            disk.place.taken.clone_from(&taken);
        }
        let own = devices.children().filter_map(|d| nics::nic(name, d, &from));
        guest.nics = own.collect();
    }
    let mut of_nova = nova::addresses(domain);
    for nic in &mut guest.nics {
        (nic.vcpus, nic.windows, nic.os) = ((*processors.vcpus).into(), windows.into(), guest.os.clone().into());
        let of_port = nic.interface.as_deref().and_then(|tap| of_nova.remove(tap));
        if let Some(addresses) = of_port.filter(|_| nic.place.addresses.is_empty()) {
            // Projects choose them, in networks of their own.
            (nic.place.addresses, nic.place.addresses_in_doubt) = (addresses, true);
        }
    }
    guest.processors = Some(processors);
    Ok(guest)
}

fn processors(domain: Node<'_, '_>, windows: Option<bool>, from: Provenance) -> Processors {
    let name = text_of(domain, "name").unwrap_or_default();
    let vcpu = child(domain, "vcpu");
    let cpu = child(domain, "cpu");
    let vcpus = vcpu.and_then(|v| v.attribute("current").or(v.text())?.trim().parse().ok());
    let quota = quota(domain, vcpus);
    Processors {
        vcpus: vcpus.into(),
        accel: match domain.attribute("type") {
            Some("kvm") => Some(Accel::Kvm).into(),
            Some("qemu") => Some(Accel::Tcg).into(),
            _ => None.into(),
        },
        model: cpu.and_then(model).into(),
        flags: cpu.map(flags).into_iter().flatten().chain(hyperv(domain)).collect(),
        windows: windows.into(),
        os_release: libosinfo(domain).map(str::to_owned).into(),
        hpet: timer(domain, "hpet").into(),
        threads: pinned(domain, vcpus.unwrap_or(0)).into(),
        memory_bytes: child(domain, "memory").and_then(bytes).into(),
        balloon: balloon(domain).into(),
        huge_pages: at(domain, &["memoryBacking", "hugepages"]).map(|_| true).into(),
        quota_cpus: quota.map(|(cpus, _)| cpus).into(),
        quota_of_vcpus: quota.map(|(_, of_vcpus)| of_vcpus).into(),
        place: Place { domain: Some(name.to_owned()), ..Place::default() },
        ..Processors::unknown(Subject::guest(name), from)
    }
}

/// What its balloon leaves a running domain, which has a device for it by default.
fn balloon(domain: Node<'_, '_>) -> Option<Balloon> {
    let device = at(domain, &["devices", "memballoon"])?;
    device.attribute("model").filter(|model| model.starts_with("virtio"))?;
    Some(Balloon { actual_bytes: child(domain, "currentMemory").and_then(bytes)?, statistics: None })
}

/// CPU model by QEMU's name. `host-model` has none: the running domain's description names the resulting one.
fn model(cpu: Node<'_, '_>) -> Option<String> {
    match cpu.attribute("mode") {
        Some("host-passthrough") => Some("host".into()),
        Some("maximum") => Some("max".into()),
        Some("host-model") => None,
        _ => text_of(cpu, "model").map(str::to_owned),
    }
}

fn flags(cpu: Node<'_, '_>) -> Vec<String> {
    let flag = |f: Node<'_, '_>| {
        let sign = match f.attribute("policy") {
            Some("disable" | "forbid") => '-',
            Some("optional") => return None,
            _ => '+',
        };
        Some(format!("{sign}{}", f.attribute("name")?))
    };
    children(cpu, "feature").filter_map(flag).collect()
}

/// Enlightenments for Windows, by QEMU's names.
fn hyperv(domain: Node<'_, '_>) -> Vec<String> {
    // libvirt turns QEMU's hv-time on for this timer (src/qemu/qemu_command.c, `qemuBuildCpuCommandLine`).
    let time = (timer(domain, "hypervclock") == Some(true)).then(|| "hv_time".to_owned());
    let hyperv = at(domain, &["features", "hyperv"]);
    if hyperv.is_some_and(|hyperv| hyperv.attribute("mode") == Some("passthrough")) {
        return vec!["hv_passthrough".into()];
    }
    let all = hyperv.into_iter().flat_map(|hyperv| hyperv.children());
    let on = all.filter(|f| f.is_element() && f.attribute("state") == Some("on"));
    on.map(|f| format!("hv_{}", f.tag_name().name())).chain(time).collect()
}

/// Whether a timer of `<clock>` is present; `None` where the domain does not name it, so that QEMU decides.
fn timer(domain: Node<'_, '_>, name: &str) -> Option<bool> {
    let timer = children(child(domain, "clock")?, "timer").find(|t| t.attribute("name") == Some(name))?;
    timer.attribute("present").map(|present| present == "yes")
}

/// Threads bound to processors (`<cputune>`, `<vcpu cpuset=…>`).
fn pinned(domain: Node<'_, '_>, vcpus: u32) -> Vec<PlacedThread> {
    let thread = |role: &str, name: String, cpus: &str| {
        Some(PlacedThread { role: role.into(), name, tid: 0, cpus: cpu_set(cpus)? })
    };
    let tune = child(domain, "cputune");
    let pins = |element: &'static str| tune.into_iter().flat_map(move |t| children(t, element));
    let all = child(domain, "vcpu").and_then(|v| v.attribute("cpuset"));
    let own: BTreeMap<&str, &str> =
        pins("vcpupin").filter_map(|p| Some((p.attribute("vcpu")?, p.attribute("cpuset")?))).collect();
    let of_vcpus = (0..vcpus.min(MOST_VCPUS)).filter_map(|vcpu| {
        let name = vcpu.to_string();
        let cpus = own.get(name.as_str()).copied().or(all)?;
        thread("vcpu", name, cpus)
    });
    let of_iothreads = pins("iothreadpin")
        .filter_map(|p| thread("iothread", format!("iothread{}", p.attribute("iothread")?), p.attribute("cpuset")?));
    let of_main = pins("emulatorpin").filter_map(|p| thread("main", String::new(), p.attribute("cpuset")?));
    let mut known = 0;
    let within = |thread: &PlacedThread| {
        known += thread.cpus.len();
        known <= MOST_PLACES
    };
    of_vcpus.chain(of_iothreads).chain(of_main).take_while(within).collect()
}

/// Quota in CPUs: `global_quota` is of the whole guest, `quota` of each vCPU; both are microseconds of each `period`,
/// negative for no limit. And whether it is the vCPUs' alone.
fn quota(domain: Node<'_, '_>, vcpus: Option<u32>) -> Option<(f64, bool)> {
    let tune = child(domain, "cputune")?;
    let microseconds = |key: &str| text_of(tune, key)?.parse::<f64>().ok();
    let share = |quota: &str, period: &str| {
        let quota = microseconds(quota).filter(|q| *q > 0.0)?;
        Some(quota / microseconds(period).filter(|p| *p > 0.0).unwrap_or(100_000.0))
    };
    let whole = share("global_quota", "global_period").map(|cpus| (cpus, false));
    whole.or_else(|| Some((share("quota", "period")? * f64::from(vcpus?), true)))
}

/// Processors of the host: `0-3,8,^2`, where `^` excludes; `None` where none is left.
pub fn cpu_set(text: &str) -> Option<Vec<u32>> {
    let (out, in_): (Vec<&str>, Vec<&str>) = text.split(',').map(str::trim).partition(|part| part.starts_with('^'));
    let out = cpu::list(&out.join(",").replace('^', ""))?;
    let left: Vec<u32> = cpu::list(&in_.join(","))?.into_iter().filter(|cpu| !out.contains(cpu)).collect();
    (!left.is_empty()).then_some(left)
}

/// From libosinfo's id of the operating system, which virt-manager and others store.
fn operating_system(domain: Node<'_, '_>) -> Option<String> {
    const LINUX: [&str; 17] = [
        "debian",
        "ubuntu",
        "fedoraproject",
        "redhat",
        "centos",
        "opensuse",
        "suse",
        "archlinux",
        "alpinelinux",
        "rockylinux",
        "almalinux",
        "oracle.com/ol",
        "gentoo",
        "voidlinux",
        "guix",
        "nixos",
        "libosinfo.org/linux",
    ];
    let id = libosinfo(domain)?;
    if id.contains("microsoft.com/win") {
        return Some("windows".into());
    }
    let linux = LINUX.iter().any(|l| id.contains(l)).then(|| "linux".to_owned());
    linux.or_else(|| id.contains("bsd").then(|| "bsd".to_owned()))
}

/// libosinfo's id of the operating system: `microsoft.com/win/2k19`.
fn libosinfo<'a>(domain: Node<'a, '_>) -> Option<&'a str> {
    let noted = child(domain, "metadata")?.descendants().find(|n| {
        n.tag_name().name() == "os" && n.tag_name().namespace().is_some_and(|space| space.contains("libosinfo.org"))
    })?;
    let id = noted.attribute("id")?;
    Some(id.strip_prefix("http://").unwrap_or(id))
}

/// Bytes of an element with a number and a `unit`, KiB by default.
fn bytes(element: Node<'_, '_>) -> Option<u64> {
    let number: u64 = element.text()?.trim().parse().ok()?;
    let unit: u64 = match element.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "K" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}
