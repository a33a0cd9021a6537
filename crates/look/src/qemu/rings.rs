//! Which AIO engine one of QEMU's programs really uses. They do not tell, and they fall back to
//! threads (with no more than a warning) where the kernel refuses the one asked for. But it shows
//! from outside: each event loop that uses Linux AIO maps a completion ring, `[aio]` (Linux
//! fs/aio.c), and each that uses io_uring holds a ring's descriptor.

use vmio_model::cell::Aio;
use vmio_node::Reader;
use vmio_node::linux::{maps, process};

/// The rings of a process.
#[derive(Debug, Clone, Copy)]
pub struct Rings {
    aio: usize,
    uring: usize,
}

impl Rings {
    /// Those of a process on this machine.
    pub fn of(host: &dyn Reader, pid: u32) -> Self {
        let maps = host.read_text(&process::file(pid, "maps")).unwrap_or_default();
        let fds = process::file(pid, "fdinfo");
        // Only the fdinfo of an io_uring has these two lines (Linux io_uring/fdinfo.c).
        let is_ring = |text: String| ["SqMask", "CqMask"].iter().all(|field| process::fdinfo(&text, field).is_some());
        let names = host.list(&fds).unwrap_or_default();
        Self {
            aio: maps::aio_rings(&maps),
            uring: names.iter().filter(|n| host.read_text(&fds.join(n)).is_ok_and(is_ring)).count(),
        }
    }

    /// The engine in force where so many event loops were asked to use this one: as asked when
    /// there is a ring for each.
    pub fn engine(self, asked: Aio, loops: usize) -> Aio {
        let rings = match asked {
            Aio::Threads => return Aio::Threads,
            Aio::Native => self.aio,
            Aio::IoUring => self.uring,
        };
        if rings >= loops { asked } else { Aio::Threads }
    }
}
