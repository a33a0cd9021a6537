//! The AIO engine that QEMU's programs really use. They fall back to threads, with a warning at most, where the kernel
//! refuses the configured one. From outside it is visible: each event loop with Linux AIO maps a completion ring,
//! `[aio]` (Linux fs/aio.c), and each with io_uring has a ring's descriptor.

use vmio_model::cell::Aio;
use vmio_node::Reader;
use vmio_node::linux::{maps, process};

/// Number of rings of a process, by engine.
#[derive(Debug, Clone, Copy)]
pub struct Rings {
    aio: usize,
    uring: usize,
}

impl Rings {
    /// Of a process on this machine.
    pub fn of(host: &dyn Reader, pid: u32) -> Self {
        let maps = host.read_text(&process::file(pid, "maps")).unwrap_or_default();
        let fds = process::file(pid, "fdinfo");
        // Only an io_uring's fdinfo has these two lines (Linux io_uring/fdinfo.c).
        let is_ring = |text: String| ["SqMask", "CqMask"].iter().all(|field| process::fdinfo(&text, field).is_some());
        let names = host.list(&fds).unwrap_or_default();
        Self {
            aio: maps::aio_rings(&maps),
            uring: names.iter().filter(|n| host.read_text(&fds.join(n)).is_ok_and(is_ring)).count(),
        }
    }

    /// The engine in force where `loops` event loops were configured with `asked`: that one when each has a ring.
    pub fn engine(self, asked: Aio, loops: usize) -> Aio {
        let rings = match asked {
            Aio::Threads => return Aio::Threads,
            Aio::Native => self.aio,
            Aio::IoUring => self.uring,
        };
        if rings >= loops { asked } else { Aio::Threads }
    }
}
