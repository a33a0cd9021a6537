//! A guest of a row: how it is started, asked, looked at and changed by its way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::applier::{Edit, Step, steps};
use super::options::{self, Line, Own};
use super::test_host::{self, OWN, paste, run};
use super::wrong::{Wrong, refused};
use super::xml::{self, Element};
use super::{After, Row, Threads, Way, guest_name, monitor};
use vmio_testbed::poll_until;

pub struct Guest {
    pub row: &'static Row,
    pub name: String,
    /// Its number in Proxmox.
    pub vmid: String,
    at: usize,
    line: Line,
    child: Option<Child>,
}

/// What a domain has that no row is about.
const DOMAIN: &str = "<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>";
const DEVICES: &str = "<controller type='usb' model='none'/><memballoon model='none'/>";

impl Guest {
    /// Makes what a row's guest has.
    pub fn new(row: &'static Row, at: usize) -> Guest {
        let (name, vmid) = (guest_name(at), (1000 + at).to_string());
        let mut line = Line::new();
        match row.way {
            Way::Qemu => line = options::line(&test_host::filled(row.guest, &name, at)),
            Way::Libvirt => define(&domain(&name, &test_host::filled(row.guest, &name, at))).unwrap(),
            Way::Proxmox => {
                fs::create_dir_all(format!("{}/local/images/{vmid}", test_host::IMAGES)).unwrap();
                let text = test_host::filled(&super::qm::with_volumes(row.guest, &vmid), &name, at);
                fs::write(super::qm::config_path(&vmid), format!("name: {name}\nmemory: 64\nkvm: 0\n{text}\n"))
                    .unwrap();
            }
        }
        Guest { row, name, vmid, at, line, child: None }
    }

    fn socket(&self) -> PathBuf {
        match self.row.way {
            Way::Proxmox => super::qm::socket(&self.vmid),
            _ => Path::new(OWN).join(format!("{}.qmp", self.name)),
        }
    }

    /// Starts it, and does not wait for it.
    pub fn start(&mut self) -> Result<(), Wrong> {
        match self.row.way {
            Way::Qemu => {
                let log = fs::File::create(format!("{OWN}/{}.log", self.name))?;
                let child = Command::new("qemu-system-x86_64")
                    .args([
                        "-name",
                        &format!("guest={},debug-threads=on", self.name),
                        "-S",
                        "-display",
                        "none",
                        "-m",
                        "64",
                    ])
                    .args(["-qmp", &format!("unix:{},server=on,wait=off", self.socket().display())])
                    .args(self.line.iter().flatten().filter(|word| !word.is_empty()))
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log)
                    .spawn();
                self.child = Some(child?);
                Ok(())
            }
            Way::Libvirt => run("virsh", &["--quiet", "start", "--paused", &self.name]).map(drop),
            Way::Proxmox => run("qm", &["start", &self.vmid]).map(drop),
        }
    }

    /// Waits until its monitor answers, and does to it what the row asks for.
    pub fn up(&mut self) -> Result<(), Wrong> {
        if self.row.way == Way::Qemu {
            let log = || fs::read_to_string(format!("{OWN}/{}.log", self.name)).unwrap_or_default();
            let mut ended = false;
            let (socket, child) = (self.socket(), &mut self.child);
            poll_until(&self.name, || {
                ended = child.as_mut().is_some_and(|c| c.try_wait().unwrap().is_some());
                ended || monitor::ask(&socket, "{\"execute\": \"query-status\"}").is_ok()
            });
            if ended {
                return Err(refused(format!("QEMU does not start: {}\n{:?}", log(), self.line)));
            }
        }
        Ok(())
    }

    pub fn fault(&self) -> Result<(), Wrong> {
        match self.row.after {
            After::Nothing => {}
            After::Pin => {
                for tid in self.threads(Threads::Vcpu)?.into_iter().chain(self.threads(Threads::Io)?) {
                    run("taskset", &["-cp", "0", &tid.to_string()])?;
                }
            }
            After::SmallUplink => {
                run("ip", &["link", "set", &format!("u{}", self.at), "mtu", "1400"])?;
            }
            After::Netfilter => {
                let bridge = format!("b{}", self.at);
                run("ip", &["link", "set", &bridge, "type", "bridge", "nf_call_iptables", "1"])?;
            }
            After::Shaped => {
                let tap = format!("t{}", self.at);
                let add = format!("qdisc add dev {tap} root tbf rate 100mbit burst 32kb latency 50ms");
                run("tc", &add.split(' ').collect::<Vec<&str>>())?;
            }
            After::Delete => {
                let dir = format!("/proc/{}/fd", self.pid()?);
                let image = || {
                    let open = fs::read_dir(&dir).ok()?.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
                    open.into_iter().find(|to| to.starts_with(test_host::IMAGES))
                };
                poll_until("its image", || image().is_some());
                image().map_or(Ok(()), fs::remove_file)?;
            }
            After::Quota | After::WholeQuota => {
                let group = test_host::group(&self.name);
                fs::create_dir_all(&group)?;
                let quota = if self.row.after == After::Quota { "50000" } else { "100000" };
                let v1 = group.join("cpu.cfs_quota_us");
                let v2 = || (group.join("cpu.max"), format!("{quota} 100000"));
                let (file, quota) = if v1.exists() { (v1, quota.to_owned()) } else { v2() };
                fs::write(file, quota)?;
                fs::write(group.join("cgroup.procs"), self.pid()?.to_string())?;
            }
        }
        Ok(())
    }

    pub fn stop(&mut self) -> Result<(), Wrong> {
        match self.row.way {
            Way::Qemu => {
                if let Some(mut child) = self.child.take() {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                let _ = fs::remove_dir(test_host::group(&self.name));
                Ok(())
            }
            Way::Libvirt => match run("virsh", &["domstate", &self.name])?.trim() {
                "shut off" => Ok(()),
                _ => run("virsh", &["--quiet", "destroy", &self.name]).map(drop),
            },
            Way::Proxmox => run("qm", &["stop", &self.vmid]).map(drop),
        }
    }

    pub fn pid(&self) -> Result<u32, Wrong> {
        let file = match self.row.way {
            Way::Qemu => return self.child.as_ref().map(Child::id).ok_or_else(|| refused("it does not run")),
            Way::Libvirt => format!("/run/libvirt/qemu/{}.pid", self.name),
            Way::Proxmox => format!("/run/qemu-server/{}.pid", self.vmid),
        };
        let text = fs::read_to_string(&file).map_err(|e| refused(format!("{file}: {e}")))?;
        text.trim().parse().map_err(|e| refused(format!("{file}: {e}")))
    }

    /// Its vCPUs' threads, or its I/O threads; long names of these are none that the kernel keeps.
    pub fn threads(&self, of: Threads) -> Result<Vec<u64>, Wrong> {
        let command = if of == Threads::Vcpu { "query-cpus-fast" } else { "query-iothreads" };
        let all = self.say(&json!({"execute": command}).to_string())?;
        Ok(all.as_array().into_iter().flatten().filter_map(|one| one["thread-id"].as_u64()).collect())
    }

    /// What the monitor says to a line.
    pub fn say(&self, line: &str) -> Result<Value, Wrong> {
        if self.row.way != Way::Libvirt {
            return monitor::ask(&self.socket(), line);
        }
        let answer = run("virsh", &["qemu-monitor-command", &self.name, line])?;
        let answer: Value = serde_json::from_str(&answer).map_err(|e| refused(format!("{answer}: {e}")))?;
        answer.get("return").cloned().ok_or_else(|| refused(format!("{line}\n{answer}")))
    }

    pub fn ask(&self, what: &str, arguments: &Value) -> Result<Value, Wrong> {
        self.say(&json!({"execute": what, "arguments": arguments}).to_string())
    }

    pub fn xml(&self) -> Result<Element, Wrong> {
        let text = run("virsh", &["dumpxml", "--inactive", &self.name])?;
        xml::elements(&text)?.pop().ok_or_else(|| refused(format!("no domain in {text}")))
    }

    /// Makes a printed change, and has it come into force as it says.
    pub fn change(&mut self, text: &str, takes: &str, own: &Own) -> Result<(), Wrong> {
        let steps = steps(self.row.way, text, self.row.fills)?;
        let started = |script: &str| script.contains("qm start ");
        let (mut runs, mut later) = (true, false);
        if takes == "shut-down" && self.row.way == Way::Qemu {
            self.stop()?;
            runs = false;
        }
        for step in steps {
            match step {
                Step::Shell(script) => {
                    paste(&script)?;
                    runs = runs || started(&script);
                    if self.row.way == Way::Qemu && runs {
                        self.settled()?;
                    }
                }
                Step::Monitor(line) => {
                    self.say(&line)?;
                    self.settled()?;
                }
                Step::Options(edits) => {
                    options::edit(&mut self.line, own, &edits)?;
                    later = true;
                }
                Step::Xml(domain, edits) => self.edit_xml(&domain, &edits)?,
            }
        }
        if takes == "running" && later {
            // What takes at once is in force before the rest comes with the next start.
            self.row
                .shows
                .iter()
                .try_for_each(|what| super::shows::check(self, own, *what))
                .map_err(|e| e.told(|said| format!("at once: {said}")))?;
        }
        if later || matches!(takes, "next-start" | "shut-down") {
            if runs {
                self.stop()?;
            }
            self.start()?;
            self.up()?;
        }
        Ok(())
    }

    /// A job of the monitor has come to its end.
    fn settled(&self) -> Result<(), Wrong> {
        let mut jobs = self.say("{\"execute\": \"query-jobs\"}")?;
        poll_until("a job's end", || {
            jobs = self.say("{\"execute\": \"query-jobs\"}").unwrap_or_default();
            jobs.as_array().is_some_and(Vec::is_empty)
        });
        Ok(())
    }

    fn edit_xml(&self, domain: &str, edits: &[Edit]) -> Result<(), Wrong> {
        // The name is written for a shell.
        let name = run("sh", &["-c", &format!("printf %s {domain}")])?;
        if name != self.name {
            return Err(refused(format!("virsh edit {domain}: not this guest's name")));
        }
        let mut domain = self.xml()?;
        let threads = domain.child("iothreads").and_then(|e| e.text.parse::<u32>().ok()).unwrap_or(0) + 1;
        let counted = |text: &str| text.replace("{threads}", &threads.to_string());
        let edits: Vec<Edit> =
            edits.iter().map(|e| Edit { place: counted(&e.place), text: counted(&e.text) }).collect();
        xml::edit(&mut domain, &edits)?;
        define(&domain.written())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// A domain of these elements, each where it belongs.
fn domain(name: &str, text: &str) -> String {
    let (mut top, mut devices) = (String::new(), String::new());
    for element in xml::elements(text).unwrap() {
        let device = matches!(element.name.as_str(), "disk" | "interface" | "controller");
        (if device { &mut devices } else { &mut top }).push_str(&element.written());
    }
    format!("<domain type='qemu'><name>{name}</name>{DOMAIN}{top}<devices>{devices}{DEVICES}</devices></domain>")
}

fn define(xml: &str) -> Result<(), Wrong> {
    let file = format!("{OWN}/domain.xml");
    fs::write(&file, xml)?;
    run("virsh", &["--quiet", "define", "--validate", &file]).map(drop).map_err(|e| refused(format!("{e}\n{xml}")))
}
