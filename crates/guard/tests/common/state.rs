//! All that vmio may have left in a network namespace, as the kernel tells it.

use vmio_guard::planes::linux::{Netlink, htb, links};

use super::tried;

/// Where TCX programs hang (BPF_TCX_INGRESS and BPF_TCX_EGRESS of bpf.h).
const TCX: [u32; 2] = [46, 47];

/// What is to be the same before and after.
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
            state.programs += programs(device.index);
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

/// Programs attached by TCX at an interface.
pub fn programs(index: u32) -> usize {
    let count = |hook| {
        let mut options = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
            ..Default::default()
        };
        // SAFETY: the options outlive the call, and it is asked for no list.
        let done = unsafe { libbpf_sys::bpf_prog_query_opts(index as i32, hook, &raw mut options) };
        // SAFETY: numbers all, whichever the kernel filled.
        if done == 0 { unsafe { options.__bindgen_anon_1.prog_cnt as usize } } else { 0 }
    };
    TCX.into_iter().map(count).sum()
}

/// Paths below the place of pins.
pub fn pins() -> Vec<String> {
    let said = tried("find /sys/fs/bpf -mindepth 1").1;
    let mut all: Vec<String> = said.lines().map(str::to_owned).collect();
    all.sort();
    all
}
