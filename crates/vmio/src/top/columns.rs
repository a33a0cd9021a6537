//! The columns of the table of guests: title, a guest's cell, and the value to sort by. One list serves the terminal,
//! the text, the help and `--sort`; a set of them is shown, and a narrow terminal leaves out those of the highest rank.

use vmio_model::policy::Direction::{self, GuestRx, GuestTx};
use vmio_model::rate::BitRate;
use vmio_model::top::rows::{GuardRow, GuestRow};

use super::figures::{figure, memory, percent, short, size, time};

/// A set of columns that is shown together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Of everything the most important.
    Overview,
    /// Disks.
    Disk,
    /// Network.
    Network,
    /// Processors and memory.
    Processor,
    /// A guard's limits.
    Guard,
}

impl Set {
    /// All sets, in the order of Tab and of the keys 1 to 5.
    pub const ALL: [Set; 5] = [Set::Overview, Set::Disk, Set::Network, Set::Processor, Set::Guard];

    /// Its name for `--columns`.
    pub fn name(self) -> &'static str {
        match self {
            Set::Overview => "overview",
            Set::Disk => "disk",
            Set::Network => "network",
            Set::Processor => "processor",
            Set::Guard => "guard",
        }
    }

    /// The set of that name.
    pub fn find(name: &str) -> Option<Set> {
        Set::ALL.into_iter().find(|set| set.name().eq_ignore_ascii_case(name))
    }

    /// The next one (`1`), or the one before (`-1`).
    #[must_use]
    pub fn step(self, by: isize) -> Set {
        let at = Set::ALL.iter().position(|set| *set == self).unwrap_or(0) as isize;
        Set::ALL[(at + by).rem_euclid(Set::ALL.len() as isize) as usize]
    }

    fn bit(self) -> u8 {
        match self {
            Set::Overview => O,
            Set::Disk => D,
            Set::Network => N,
            Set::Processor => P,
            Set::Guard => G,
        }
    }
}

const O: u8 = 1;
const D: u8 = 2;
const N: u8 = 4;
const P: u8 = 8;
const G: u8 = 16;

/// A column.
pub struct Column {
    /// Key that sorts by it.
    pub key: char,
    /// Name for `--sort` and help.
    pub name: &'static str,
    /// Title, as short as possible.
    pub title: &'static str,
    /// Characters, without the space before.
    pub width: u16,
    /// What it is, for the help.
    pub about: &'static str,
    /// Sets that it is in, a bit each.
    sets: u8,
    /// Columns with a higher number are left out first.
    rank: u8,
    /// The value that rows are sorted by, the largest first; unknown ones come last.
    value: fn(&GuestRow) -> Option<f64>,
    /// Formats that value for the cell.
    show: fn(&GuestRow, Option<f64>) -> String,
}

impl Column {
    /// The text of a guest's cell.
    pub fn cell(&self, guest: &GuestRow) -> String {
        (self.show)(guest, (self.value)(guest))
    }

    /// A title that it had before, which `--sort` still takes.
    pub fn former(&self) -> Option<&'static str> {
        (self.name == "steal").then_some("STEAL%")
    }

    /// Whether it is in a set.
    pub fn is_in(&self, set: Set) -> bool {
        self.sets & set.bit() != 0
    }
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Key, name, title and what it is; `[width, sets, rank]` as in [`Column`].
const fn column(
    (key, name, title, about): (char, &'static str, &'static str, &'static str),
    [width, sets, rank]: [u8; 3],
    value: fn(&GuestRow) -> Option<f64>,
    show: fn(&GuestRow, Option<f64>) -> String,
) -> Column {
    Column { key, name, title, width: width as u16, about, sets, rank, value, show }
}

/// All columns after the name, from left to right.
pub const ALL: &[Column] = &[
    column(
        ('L', "load", "LOAD%", "of the limit that it is nearest to, whichever that is"),
        [5, 0, 9],
        |g| g.load_ratio,
        |_, x| percent(x),
    ),
    column(
        ('c', "cpu", "CPU%", "of its virtual CPUs; ~ guessed, or of one processor where these are unknown"),
        [5, O | D | N | P | G, 0],
        |g| g.cpu_of_guest_ratio.or(g.cpu_ratio),
        cpu,
    ),
    column(
        ('H', "host", "HOST%", "of all processors of the host, by all of its threads"),
        [5, O | P, 6],
        |g| g.cpu_of_host_ratio,
        |_, x| percent(x),
    ),
    column(
        ('M', "memory", "MEM", "resident memory on the host"),
        [5, O | P, 5],
        |g| g.memory_bytes.map(|b| b as f64),
        |_, x| memory(x),
    ),
    column(
        ('s', "steal", "WAIT%", "of the time in which its virtual CPUs wanted to run that they waited (steal)"),
        [5, O | P, 1],
        |g| g.steal_ratio,
        |_, x| percent(x),
    ),
    column(
        ('d', "disk", "DISK%", "share of the device time of all disks (of bytes without tracing)"),
        [5, D, 0],
        |g| g.disk.device_share_ratio,
        |_, x| percent(x),
    ),
    column(('r', "reads", "R/s", "reads a second"), [5, D, 1], |g| g.disk.read_iops, |_, x| short(x)),
    column(('w', "writes", "W/s", "writes a second"), [5, D, 1], |g| g.disk.write_iops, |_, x| short(x)),
    column(('b', "bytes", "MB/s", "MB a second, read and written"), [5, O | D, 3], bytes, |_, x| mega(x)),
    column(
        ('m', "median", "p50", "half of its requests take at most this; ~ is a mean"),
        [6, D, 5],
        |g| g.disk.latency_p50_seconds,
        |g, x| time(x, g.disk.latency_mean_seconds),
    ),
    column(
        ('l', "latency", "p99", "99 % of its requests take at most this"),
        [6, D, 0],
        |g| g.disk.latency_p99_seconds,
        |_, x| time(x, None),
    ),
    column(
        ('Q', "queued", "QUEUE", "mean time of its requests in the queue of the host's block layer"),
        [6, D, 4],
        |g| g.disk.queued_mean_seconds,
        |_, x| time(x, None),
    ),
    column(
        ('D', "device", "DEVICE", "mean time of its requests at the device"),
        [6, D, 4],
        |g| g.disk.device_mean_seconds,
        |_, x| time(x, None),
    ),
    column(
        ('K', "kernel", "KERNEL", "mean time of its requests in the host but the device (KAVG); with --calls"),
        [6, D, 3],
        |g| g.kernel_mean_seconds,
        |_, x| time(x.map(|x| x.max(0.0)), None),
    ),
    column(('z', "size", "SIZE", "mean size of its requests"), [5, D, 6], |g| g.disk.request_bytes, |_, x| size(x)),
    column(
        ('e', "depth", "DEPTH", "its requests at once, on average"),
        [5, D, 2],
        |g| g.disk.queue_depth,
        |_, x| figure(x),
    ),
    column(('N', "net", "NETMb", "Mbit/s, received and sent"), [5, O, 4], net, |_, x| mega(x)),
    column(('i', "received", "RXMb", "Mbit/s that it receives"), [5, N | G, 0], |g| g.received_bps, |_, x| mega(x)),
    column(('o', "sent", "TXMb", "Mbit/s that it sends"), [5, N | G, 0], |g| g.sent_bps, |_, x| mega(x)),
    column(
        ('x', "drops", "DROP", "packets dropped a second, both ways"),
        [5, O, 7],
        |g| g.drops_per_second,
        |_, x| short(x),
    ),
    column(
        ('X', "drops-in", "DROPin", "packets dropped a second that it should have received"),
        [6, N, 1],
        |g| g.drops_received_per_second,
        |_, x| short(x),
    ),
    column(
        ('O', "drops-out", "DROPout", "packets dropped a second that it sent"),
        [7, N, 1],
        |g| g.drops_sent_per_second,
        |_, x| short(x),
    ),
    column(
        ('g', "received-min", "RXMIN", "Mbit/s that it is guaranteed to receive"),
        [5, G, 4],
        |g| sum(g, GuestRx, |m| Some(m.min_bps)),
        |_, x| mega(x),
    ),
    column(
        ('v', "received-limit", "RXLIM", "Mbit/s that it may receive now"),
        [5, G, 3],
        |g| sum(g, GuestRx, now),
        |_, x| mega(x),
    ),
    column(
        ('n', "sent-min", "TXMIN", "Mbit/s that it is guaranteed to send"),
        [5, G, 4],
        |g| sum(g, GuestTx, |m| Some(m.min_bps)),
        |_, x| mega(x),
    ),
    column(
        ('f', "sent-limit", "TXLIM", "Mbit/s that it may send now"),
        [5, G, 3],
        |g| sum(g, GuestTx, now),
        |_, x| mega(x),
    ),
    column(('y', "held", "HELD%", "of the time a guard held it back"), [5, N | G, 2], held, |_, x| percent(x)),
    column(('a', "lost", "LOST", "packets dropped a second at a guard's limits"), [5, N | G, 3], lost, |_, x| short(x)),
    column(
        ('C', "vcpu", "VCPU%", "of one processor, by its virtual CPUs together"),
        [5, P, 1],
        |g| g.vcpu_ratio,
        |_, x| percent(x),
    ),
    column(
        ('t', "io-threads", "IO%", "of one processor, by its I/O, pool and vhost threads"),
        [4, P, 2],
        |g| g.io_ratio,
        |_, x| percent(x),
    ),
    column(
        ('u', "rest", "REST%", "of one processor, by its main loop and all other threads"),
        [5, P, 5],
        |g| g.rest_ratio,
        |_, x| percent(x),
    ),
    column(
        ('T', "throttled", "QUOTA%", "of the periods of its CPU quota in which it was throttled"),
        [6, P, 2],
        |g| g.throttled_ratio,
        |_, x| percent(x),
    ),
    column(
        ('S', "swapped", "SWAP", "its memory in the host's swap"),
        [5, P, 3],
        |g| g.swapped_bytes.map(|b| b as f64),
        |_, x| memory(x),
    ),
    column(('W', "worst", "WORST WAIT", "what it waits for most"), [15, O, 2], worst, |g, _| {
        g.worst_wait.as_ref().map_or("-".into(), |wait| wait.words.clone())
    }),
];

/// The column of that name or title, also a former one.
pub fn find(name: &str) -> Option<&'static Column> {
    let names = |c: &Column| [c.name, c.title].into_iter().chain(c.former());
    ALL.iter().find(|c| names(c).any(|own| own.eq_ignore_ascii_case(name)))
}

/// What is known of guests on some hosts only; without it its columns are left out.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The limits of a guard.
    pub guard: bool,
    /// How long the host takes for the calls of hypervisors.
    pub calls: bool,
}

impl Known {
    fn has(self, column: &Column) -> bool {
        (self.guard || !is_of_guard(column)) && (self.calls || column.name != "kernel")
    }
}

/// Columns of a set that fit beside a name of `name` characters: those of the highest rank are left out. Beside the
/// overview stand the columns of further sets, each whole, where there is room; those of a guard, first, where one
/// runs.
pub fn fitting(width: u16, name: u16, set: Set, known: Known) -> Vec<&'static Column> {
    let needed = |kept: &[&Column]| name + kept.iter().map(|c| c.width + 1).sum::<u16>();
    let mut rank = ALL.iter().map(|c| c.rank).max().unwrap_or(0);
    let mut sets = set.bit();
    let of = |sets: u8, rank: u8| -> Vec<&'static Column> {
        ALL.iter().filter(|c| c.sets & sets != 0 && c.rank <= rank && known.has(c)).collect()
    };
    while rank > 0 && needed(&of(sets, rank)) > width {
        rank -= 1;
    }
    let whole = needed(&of(sets, u8::MAX)) <= width;
    if set == Set::Overview && whole {
        let more = known.guard.then_some(Set::Guard).into_iter().chain([Set::Disk, Set::Network, Set::Processor]);
        for next in more {
            if needed(&of(sets | next.bit(), u8::MAX)) <= width {
                sets |= next.bit();
            }
        }
        rank = u8::MAX;
    }
    of(sets, rank)
}

/// Whether only a guard knows it.
fn is_of_guard(column: &Column) -> bool {
    column.is_in(Set::Guard) && !matches!(column.name, "cpu" | "received" | "sent")
}

/// Sorts guests: the largest first, equal ones by name.
pub fn sort(guests: &mut [GuestRow], by: &Column) {
    let value = |g: &GuestRow| (by.value)(g).unwrap_or(-1.0);
    guests.sort_by(|a, b| value(b).total_cmp(&value(a)).then_with(|| a.name.cmp(&b.name)));
}

/// The sum over all interfaces that a guard limits in this direction; unknown where it limits none.
fn sum(g: &GuestRow, direction: Direction, of: fn(&GuardRow) -> Option<BitRate>) -> Option<f64> {
    let mut all = g.guard.iter().flatten().filter(|m| m.direction == direction).peekable();
    all.peek()?;
    all.map(|m| Some(of(m)?.bits() as f64)).sum()
}

/// The limit, or the maximum where it has none of its own.
fn now(member: &GuardRow) -> Option<BitRate> {
    Some(member.limit_bps.unwrap_or(member.max_bps))
}

/// The value of the interface and direction that was held back most.
fn held(g: &GuestRow) -> Option<f64> {
    g.guard.iter().flatten().filter_map(|m| m.held_ratio).reduce(f64::max)
}

fn lost(g: &GuestRow) -> Option<f64> {
    g.guard.iter().flatten().filter_map(|m| m.drops_per_second).reduce(|sum, more| sum + more)
}

fn cpu(g: &GuestRow, x: Option<f64>) -> String {
    let guessed = x.is_some() && (g.cpu_guessed || g.cpu_of_guest_ratio.is_none());
    format!("{}{}", if guessed { "~" } else { "" }, percent(x))
}

fn worst(g: &GuestRow) -> Option<f64> {
    g.worst_wait.as_ref().map(|wait| wait.ratio)
}

fn net(g: &GuestRow) -> Option<f64> {
    Some(g.received_bps? + g.sent_bps?)
}

fn mega(x: Option<f64>) -> String {
    figure(x.map(|x| x / 1e6))
}

fn bytes(g: &GuestRow) -> Option<f64> {
    Some(g.disk.read_bytes_per_second? + g.disk.write_bytes_per_second?)
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
