//! Whether the storage of a run still answers and takes writes. Storage that does neither holds
//! a program in the kernel for as long as it likes (a thin pool 60 s, a file server that is mounted
//! `hard` for ever), so what may hang is done on a thread of its own, and its storage is asked
//! meanwhile.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use vmio_node::{Local, machine};

use super::{Place, PlaceBackend, Pool, Unwell, dir, zfs};

/// Time between two looks while something is under way.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest time for a look at a pool, its tools included.
const LOOK_LIMIT: Duration = Duration::from_secs(45);

/// Looks after the storage of a run.
#[derive(Debug, Clone)]
pub struct Health {
    watched: Watched,
    interval: Duration,
}

#[derive(Debug, Clone)]
enum Watched {
    /// A path on a file server.
    Server(PathBuf),
    /// A pool that can become full, or stop answering.
    Pool(Pool),
    /// The ZFS pool that files lie on.
    Zpool(String),
    /// Storage of this machine, whose kernel gives an error or an answer.
    Nothing,
    #[cfg(test)]
    Told(std::sync::Arc<std::sync::Mutex<Result<(), super::Error>>>),
}

impl Health {
    /// Of a place.
    pub fn of(place: &Place) -> Self {
        let watched = match &place.backend {
            PlaceBackend::Files(dir) if machine::may_hang(dir).is_some() => Watched::Server(dir.clone()),
            PlaceBackend::Files(dir) => zfs::pool_of(&Local::new(), dir).map_or(Watched::Nothing, Watched::Zpool),
            // The kernel fails writes to a thick volume whose disk is gone, and to a modelled disk whose server is.
            PlaceBackend::Volumes(Pool::Lvm { .. }) | PlaceBackend::Modelled(_) | PlaceBackend::PassedThrough(_) => {
                Watched::Nothing
            }
            PlaceBackend::Volumes(pool) => Watched::Pool(pool.clone()),
        };
        Self { watched, interval: INTERVAL }
    }

    /// Looks once.
    ///
    /// # Errors
    /// What is wrong with the storage, and what to do.
    pub fn look(&self) -> Result<(), Unwell> {
        match &self.watched {
            Watched::Nothing => Ok(()),
            Watched::Server(path) => dir::answers(path),
            Watched::Pool(pool) => {
                let asked = pool.clone();
                patiently(pool.to_string(), move || asked.check(&Local::new()))
            }
            Watched::Zpool(pool) => {
                let asked = pool.clone();
                patiently(format!("ZFS pool {pool}"), move || zfs::well(&Local::new(), &asked))
            }
            #[cfg(test)]
            Watched::Told(told) => {
                let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
                told.map_err(Unwell::Unready)
            }
        }
    }

    /// Does something that the storage may hold back. Where the storage is found sick meanwhile it is
    /// given up: the thread stays behind, and ends with the process at the latest.
    ///
    /// # Errors
    /// What is wrong with the storage.
    pub fn during<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Unwell> {
        if matches!(self.watched, Watched::Nothing) {
            return Ok(work());
        }
        let (give, given) = channel();
        let run = move || drop(give.send(work()));
        std::thread::Builder::new().name("storage".into()).spawn(run).map_err(Unwell::NoThread)?;
        loop {
            match given.recv_timeout(self.interval) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) => self.look()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Unwell::ThreadEnded),
            }
        }
    }
}

fn patiently(what: String, look: impl FnOnce() -> Result<(), Unwell> + Send + 'static) -> Result<(), Unwell> {
    let looked = machine::within(LOOK_LIMIT, look);
    looked.unwrap_or(Err(Unwell::Hangs(what)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::super::{Error, Kind};
    use super::*;

    #[test]
    fn work_on_storage_that_answers_is_waited_for() {
        let told = Arc::new(Mutex::new(Ok(())));
        let health = Health { watched: Watched::Told(told), interval: Duration::from_millis(5) };
        let slow = || {
            std::thread::sleep(Duration::from_millis(60));
            7
        };
        assert_eq!(health.during(slow).unwrap(), 7);
    }

    #[test]
    fn work_that_hangs_on_dead_storage_is_given_up() {
        let told = Arc::new(Mutex::new(Ok(())));
        let health = Health { watched: Watched::Told(told.clone()), interval: Duration::from_millis(5) };
        let (keep, hangs) = channel::<()>();
        let sick = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(40));
            *told.lock().unwrap() = Err(Error::new(Kind::Unready, "zfs:tank", "the pool is full"));
        });
        let began = Instant::now();
        let said = health.during(move || hangs.recv().is_ok()).unwrap_err().to_string();
        assert!(said.starts_with("the pool is full; "), "{said}");
        assert!(began.elapsed() >= Duration::from_millis(35), "it was not given up before");
        sick.join().unwrap();
        drop(keep);
    }

    #[test]
    fn every_pool_that_can_stop_is_watched() {
        let of = |pool: Pool| Health::of(&Place { name: pool.place(), backend: PlaceBackend::Volumes(pool) }).watched;
        let cluster = super::super::rbd::Cluster::default();
        for pool in [
            Pool::LvmThin { vg: "vg0".into(), pool: "data".into() },
            Pool::Zfs { dataset: "tank/vm".into(), block: None },
            Pool::Rbd { pool: "vms".into(), cluster, kernel: false },
        ] {
            assert!(matches!(of(pool.clone()), Watched::Pool(watched) if watched == pool), "{pool}");
        }
        assert!(matches!(of(Pool::Lvm { vg: "vg0".into() }), Watched::Nothing));
    }

    #[test]
    fn storage_of_this_machine_is_not_asked() {
        let health = Health::of(&Place::directory(std::path::Path::new("/")));
        let caller = std::thread::current().id();
        assert!(health.during(move || std::thread::current().id() == caller).unwrap());
        health.look().unwrap();
    }
}
