//! All objects in a network namespace that vmio may leave behind.

use vmio_guard::planes::linux::{Device, Netlink, htb, links};
use vmio_testbed::net::tried;

/// Where TCX programs hang (BPF_TCX_INGRESS and BPF_TCX_EGRESS of bpf.h).
#[derive(Clone, Copy)]
pub enum Hook {
    Ingress = 46,
    Egress = 47,
}

/// State to be compared before and after.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    interfaces: Vec<(String, String)>,
    qdiscs: Vec<Vec<u8>>,
    filters: Vec<String>,
    pub programs: usize,
    pins: Vec<String>,
}

impl State {
    /// Of the thread's namespace.
    pub fn now() -> Self {
        let mut netlink = Netlink::open().unwrap();
        let all = links::all(&mut netlink).unwrap();
        let mut state = Self {
            interfaces: all.iter().map(|l| (l.device.name.clone(), l.alias.clone())).collect(),
            qdiscs: Vec::new(),
            filters: Vec::new(),
            programs: 0,
            pins: pins(),
        };
        for device in all.iter().map(|l| &l.device) {
            state.qdiscs.extend(htb::settings(&mut netlink, device).unwrap());
            state.programs += programs(device);
            for hook in ["ingress", "egress"] {
                let said = tried(&format!("tc filter show dev {device} {hook}")).1;
                state.filters.extend(said.lines().map(|line| format!("{device} {hook} {line}")));
            }
        }
        state
    }

    /// Filters in which this stands.
    pub fn filters(&self, what: &str) -> usize {
        self.filters.iter().filter(|line| line.contains(what)).count()
    }
}

/// Programs attached by TCX at an interface of the thread's namespace.
pub fn programs(device: &Device) -> usize {
    [Hook::Ingress, Hook::Egress].into_iter().map(|hook| links_at(device, hook).len()).sum()
}

/// Numbers of the links there, in the thread's namespace: an interface of another has the same index.
pub fn links_at(device: &Device, hook: Hook) -> Vec<u32> {
    let mut links = [0u32; 64];
    let mut programs = [0u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.prog_cnt = links.len() as u32;
    // SAFETY: the options and both lists, of as many numbers as told, outlive the call.
    let done = unsafe { libbpf_sys::bpf_prog_query_opts(device.index as i32, hook as u32, &raw mut options) };
    // SAFETY: numbers all, whichever the kernel filled.
    let count = if done == 0 { unsafe { options.__bindgen_anon_1.prog_cnt as usize } } else { 0 };
    links[..count].to_vec()
}

/// Paths below the place of pins.
pub fn pins() -> Vec<String> {
    let said = tried("find /sys/fs/bpf -mindepth 1").1;
    let mut all: Vec<String> = said.lines().map(str::to_owned).collect();
    all.sort();
    all
}
