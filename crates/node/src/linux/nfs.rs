//! Counters of NFS mounts on the client, `/proc/self/mountstats` (Linux fs/nfs/super.c, `nfs_show_stats`, and
//! net/sunrpc/stats.c, `rpc_clnt_show_stats`; read as nfs-utils' mountstats(8) and nfsiostat(8) read them).

use std::path::Path;

use super::mounts::unescape;

/// The file, of the mount namespace of the process that looks.
pub fn stats_file() -> &'static Path {
    Path::new("/proc/self/mountstats")
}

/// What an NFS mount has moved since it was mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes that READ calls carried, headers left out.
    pub read_bytes: u64,
    /// The same of WRITE calls.
    pub write_bytes: u64,
    /// READ calls.
    pub read: Calls,
    /// WRITE calls.
    pub write: Calls,
    /// COMMIT calls.
    pub commit: Calls,
}

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Milliseconds from the making of each call to its end, summed.
    pub execute_ms: u64,
}

impl Counters {
    /// Of the section of the mount at `point` in the content of the file; of the last one, which covers those before
    /// it. `None` where there is no NFS on it.
    pub fn of(text: &str, point: &str) -> Option<Self> {
        let mut found = None;
        let mut inside = false;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("device ") {
                inside = mounted_on(rest).is_some_and(|(at, kind)| at == point && kind.starts_with("nfs"));
                if inside {
                    found = Some(Self::default());
                }
            } else if let (true, Some(counters)) = (inside, found.as_mut()) {
                counters.take(line.trim());
            }
        }
        found
    }

    fn take(&mut self, line: &str) {
        let Some((key, values)) = line.split_once(':') else { return };
        let values: Vec<u64> = values.split_ascii_whitespace().map_while(|v| v.parse().ok()).collect();
        // Calls, transmissions, timeouts, bytes sent, bytes received, ms queued, ms at the server,
        // ms in all.
        let calls =
            || Calls { count: values.first().copied().unwrap_or(0), execute_ms: values.get(7).copied().unwrap_or(0) };
        match key {
            // Normal reads and writes, direct ones, then what went over the wire.
            "bytes" if values.len() >= 6 => (self.read_bytes, self.write_bytes) = (values[4], values[5]),
            "READ" => self.read = calls(),
            "WRITE" => self.write = calls(),
            "COMMIT" => self.commit = calls(),
            _ => {}
        }
    }

    /// What was moved since an older reading; `None` where a counter went back: it was mounted anew.
    pub fn since(&self, old: &Self) -> Option<Self> {
        let calls = |new: Calls, old: Calls| {
            Some(Calls {
                count: new.count.checked_sub(old.count)?,
                execute_ms: new.execute_ms.checked_sub(old.execute_ms)?,
            })
        };
        Some(Self {
            read_bytes: self.read_bytes.checked_sub(old.read_bytes)?,
            write_bytes: self.write_bytes.checked_sub(old.write_bytes)?,
            read: calls(self.read, old.read)?,
            write: calls(self.write, old.write)?,
            commit: calls(self.commit, old.commit)?,
        })
    }
}

/// Mount point and type of `SERVER:/EXPORT mounted on POINT with fstype nfs4 statvers=1.1`.
fn mounted_on(text: &str) -> Option<(String, &str)> {
    let (left, kind) = text.rsplit_once(" with fstype ")?;
    let (_, point) = left.split_once(" mounted on ")?;
    let point = unescape(point.as_bytes());
    Some((String::from_utf8_lossy(&point).into_owned(), kind.split(' ').next().unwrap_or(kind)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "device proc mounted on /proc with fstype proc\n\
        device nas:/a mounted on /mnt/with\\040space with fstype nfs4 statvers=1.1\n\
        \tbytes:\t0 0 0 0 100000 200000 40 50\n\
        \t        READ: 100 100 0 20400 6566800 5 120 130 0\n\
        \t       WRITE: 10 10 0 655360 1360 7 20 30 0\n\
        \t      COMMIT: 1 1 0 180 104 0 4 5 0\n\
        device /dev/sda1 mounted on /srv with fstype ext4\n\tbytes:\t1 1 1 1 1 1 1 1\n";

    #[test]
    fn counters_of_a_mount_are_read() {
        let found = Counters::of(TEXT, "/mnt/with space").unwrap();
        assert_eq!((found.read_bytes, found.write_bytes), (100_000, 200_000));
        assert_eq!((found.read, found.write.count), (Calls { count: 100, execute_ms: 130 }, 10));
        assert_eq!(found.commit.execute_ms, 5);
        // Neither what is no NFS nor what is not mounted.
        assert_eq!((Counters::of(TEXT, "/srv"), Counters::of(TEXT, "/mnt")), (None, None));
        assert_eq!(found.since(&found), Some(Counters::default()));
        assert_eq!(Counters::default().since(&found), None);
    }
}
