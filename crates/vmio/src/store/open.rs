//! Opening the file: whose it is, settings, format version, migrations.
//!
//! WAL with `synchronous=FULL`: a commit is on the disk when `add_sample` returns, so neither
//! SIGKILL nor a power cut loses it. The flush falls between two cells; with a lazier setting the
//! kernel would write the pages back later, in the middle of some other cell's measurement.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::guard::{self, Limit};
use super::upgrade::{self, Upgrade};
use super::{StoreError, copy, private};

/// How long to wait for another process's write.
pub(super) const BUSY_SECONDS: u64 = 10;

/// "vmio" in ASCII, in SQLite's header (`PRAGMA application_id`): tells our file from others.
const APPLICATION_ID: i64 = 0x766d_696f;

/// Step N brings a file of format N to format N+1. Steps are never changed once released.
const MIGRATIONS: &[Step] = &[Step::Sql(FORMAT_1), Step::Rows(upgrade::to_format_2)];

/// What brings a file from one format to the next.
#[derive(Clone, Copy)]
enum Step {
    /// SQL alone.
    Sql(&'static str),
    /// What SQL alone cannot do, within the same transaction.
    Rows(fn(&Upgrade<'_>) -> Result<(), StoreError>),
}

/// Compared letter by letter with what a file says of itself, comments too.
const FORMAT_1: &str = "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL,
        study_toml TEXT NOT NULL,
        command TEXT NOT NULL,       -- JSON array
        started_unix REAL NOT NULL,
        state TEXT NOT NULL,         -- JSON of RunState
        environment TEXT NOT NULL,   -- JSON of Environment
        workloads TEXT NOT NULL      -- JSON array of WorkloadTraits
    ) STRICT;
    CREATE TABLE samples (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,          -- Setup::key()
        target TEXT NOT NULL,
        guest TEXT NOT NULL,
        attachment TEXT,             -- Attachment::label(); NULL on the native side
        workload TEXT NOT NULL,
        round INTEGER NOT NULL,
        boot INTEGER NOT NULL,
        started_unix REAL NOT NULL,
        seconds REAL NOT NULL,
        bandwidth_bytes_per_second REAL,
        iops REAL,
        sample TEXT NOT NULL         -- JSON of Sample without result.raw
    ) STRICT;
    CREATE INDEX samples_of_run ON samples (run, cell);
    CREATE TABLE raw (               -- the tool's own output whole, apart so that reports need not read it
        sample INTEGER PRIMARY KEY REFERENCES samples ON DELETE CASCADE,
        output TEXT NOT NULL         -- JSON
    ) STRICT;
    CREATE TABLE skipped (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,
        setup TEXT NOT NULL,         -- JSON of Setup
        reason TEXT NOT NULL,
        PRIMARY KEY (run, cell)
    ) STRICT;
    CREATE TABLE effective (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        attachment TEXT NOT NULL,    -- target/guest/attachment
        settings TEXT NOT NULL,      -- JSON object
        PRIMARY KEY (run, attachment)
    ) STRICT;
";

/// Opens for writing; makes directory and file where they are not there, for this user's eyes alone.
pub(super) fn writable(path: &Path) -> Result<(Connection, Limit), StoreError> {
    private::make(path)?;
    let fail = |e| StoreError::of(path, e);
    let mut connection = Connection::open(path).map_err(fail)?;
    let limit = guard::harden(&connection).map_err(fail)?;
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS)).map_err(fail)?;
    let version = recognised(path, &connection, &limit)?;
    log_ahead(&connection).map_err(fail)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    if version < MIGRATIONS.len() {
        migrate(path, &mut connection, &limit, MIGRATIONS)?;
    }
    if connection.is_readonly("main").map_err(fail)? {
        return Err(StoreError::Denied { path: path.into(), source: None });
    }
    private::tighten(path);
    Ok((connection, limit))
}

/// Opens what is there; a directory that this user cannot write is read without touching it. So is the
/// store of another user: what is written beside it (root may) would be written where that user says.
pub(super) fn existing(path: &Path) -> Result<(Connection, Limit), StoreError> {
    // Now: who makes it meanwhile must not be taken for somebody else.
    if !path.try_exists().unwrap_or(true) {
        return Err(StoreError::Missing { path: path.into() });
    }
    let may_write = |p: &Path| rustix::fs::access(p, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write(path) && path.parent().is_some_and(may_write) && private::is_ours(path) {
        return match writable(path) {
            // What is stored can be read on a full disk too, unless its log is needed as well.
            Err(full @ StoreError::Full { .. }) => reading(path).map_err(|_| full),
            other => other,
        };
    }
    reading(path)
}

/// Opens what is there for reading alone: an older format is refused, not brought up to date.
pub(super) fn reading(path: &Path) -> Result<(Connection, Limit), StoreError> {
    let (connection, limit) = unchanged(path)?;
    match recognised(path, &connection, &limit)? {
        // Somebody is about to make it.
        0 => Err(StoreError::Missing { path: path.into() }),
        found if found < MIGRATIONS.len() => {
            Err(StoreError::Older { path: path.into(), found, known: MIGRATIONS.len() })
        }
        _ => Ok((connection, limit)),
    }
}

/// Opens what runs are taken over from: nothing is written there, whoever the user is. What is of an older format
/// is brought up to date as a copy, in a file that SQLite keeps under no name (sqlite.org/tempfiles.html, 2.6).
pub(super) fn taking(path: &Path) -> Result<(Connection, Limit), StoreError> {
    let (connection, limit) = unchanged(path)?;
    let no_store = |what| StoreError::NoStore { path: path.into(), what };
    let found = recognised(path, &connection, &limit).map_err(|e| match e {
        StoreError::Corrupt { source: None, .. } => no_store("it is a database of another program"),
        other => other,
    })?;
    if found == 0 {
        return Err(no_store("there is nothing in it"));
    }
    if found == MIGRATIONS.len() {
        return Ok((connection, limit));
    }
    let fail = |e| StoreError::of(path, e);
    let mut copy = Connection::open("").map_err(fail)?;
    let bytes = no_more_than_its_file(path, &connection, &limit)?;
    copy_to(&mut copy, &connection, guard::long(bytes)).map_err(|e| copy::without_room(fail(e)))?;
    let limit = guard::harden(&copy).map_err(fail)?;
    migrate(path, &mut copy, &limit, MIGRATIONS).map_err(copy::without_room)?;
    Ok((copy, limit))
}

/// The bytes of all pages that there are to copy. A log may say that there are any number; what is honest lies in the
/// file or in its log.
fn no_more_than_its_file(path: &Path, connection: &Connection, limit: &Limit) -> Result<u64, StoreError> {
    let _asking = limit.asking();
    let fail = |e| StoreError::of(path, e);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).map_err(fail);
    let page = u64::from(pragma("page_size")?);
    let claimed = u64::from(pragma("page_count")?).saturating_mul(page);
    // A copy has its log within, no name any more, and SQLite has compared it with its size.
    let Some(file) = connection.path().filter(|file| Path::new(file).exists()) else { return Ok(claimed) };
    let size = |path: &str| fs::metadata(path).map_or(0, |found| found.len());
    // The log first: what leaves it meanwhile goes into the file. One page is never written (sqlite.org, 1.3.2).
    let log = size(&format!("{file}-wal"));
    match claimed > size(file).saturating_add(log).saturating_add(page) {
        true => Err(StoreError::Corrupt { path: path.into(), source: None }),
        false => Ok(claimed),
    }
}

/// Copies page by page what is there now, whoever writes meanwhile (sqlite.org/backup.html).
/// A writer who never rests begins it anew without an end, which is given.
fn copy_to(copy: &mut Connection, from: &Connection, longest: Duration) -> rusqlite::Result<()> {
    const PAGES: i32 = 1024;
    const PAUSE: Duration = Duration::from_millis(100);
    let backup = Backup::new(from, copy)?;
    let mut patience = Duration::from_secs(BUSY_SECONDS);
    let began = Instant::now();
    loop {
        match backup.step(PAGES)? {
            StepResult::Done => return Ok(()),
            _ if began.elapsed() > longest => {
                let endless = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
                return Err(rusqlite::Error::SqliteFailure(endless, None));
            }
            StepResult::More => {}
            _ if patience.is_zero() => {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
            _ => {
                patience = patience.saturating_sub(PAUSE);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Opens a plain file that is there, for reading alone; what is not this user's alone as a copy.
fn unchanged(path: &Path) -> Result<(Connection, Limit), StoreError> {
    match fs::metadata(path) {
        // Opening a pipe would wait for somebody to write.
        Ok(found) if !found.is_file() => return Err(StoreError::Corrupt { path: path.into(), source: None }),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(StoreError::Missing { path: path.into() }),
        Err(source) => return Err(StoreError::Io { what: "look at", path: path.into(), source }),
    }
    let real =
        fs::canonicalize(path).map_err(|source| StoreError::Io { what: "look at", path: path.into(), source })?;
    if !private::is_alone(&real) {
        return copy::opened(path, &real);
    }
    let size = |end: &str| {
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        fs::metadata(real.with_file_name(format!("{name}{end}"))).map(|found| found.len())
    };
    // Without a log that holds unread pages the file alone is the whole truth ("immutable"), else SQLite needs the
    // log's index, which the writer shares (sqlite.org/wal.html, section 5). Where there is no index nobody is at
    // work: then it is kept in memory instead of beside the store (section 8), for which nothing is locked.
    let unread = size("-wal").is_ok_and(|bytes| bytes > 0);
    let alone = unread && size("-shm").is_err();
    let how = match (unread, alone) {
        (false, _) => "immutable=1",
        (true, false) => "mode=ro",
        (true, true) => "mode=ro&vfs=unix-none",
    };
    let fail = |e| StoreError::of(path, e);
    let escaped = real.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{escaped}?{how}"), flags).map_err(fail)?;
    // The last one who closes a store writes what the log holds: not this one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    if alone {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(fail)?;
    }
    let limit = guard::harden(&connection).map_err(fail)?;
    Ok((connection, limit))
}

/// Sets WAL. Two that open a new store at once may each wait for the other to let go of it; SQLite tells one of them at
/// once that it is busy, without waiting (sqlite.org/c3ref/busy_handler.html), so that one lets go and tries again.
fn log_ahead(connection: &Connection) -> rusqlite::Result<()> {
    const PAUSE: Duration = Duration::from_millis(5);
    let began = Instant::now();
    connection.busy_timeout(Duration::ZERO)?;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(e)
                if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && began.elapsed().as_secs() < BUSY_SECONDS =>
            {
                std::thread::sleep(PAUSE);
            }
            done => {
                connection.busy_timeout(Duration::from_secs(BUSY_SECONDS))?;
                return done;
            }
        }
    }
}

/// The format of a file that is as vmio makes it. All is read of one moment: another process may be migrating it.
fn recognised(path: &Path, connection: &Connection, limit: &Limit) -> Result<usize, StoreError> {
    let _moment = connection.unchecked_transaction().map_err(|e| StoreError::of(path, e))?;
    let version = check(path, connection, MIGRATIONS.len())?;
    as_made(path, connection, limit, version)?;
    Ok(version)
}

/// The format of the file, which must be ours and not newer than `known`; 0 of one that is empty.
fn check(path: &Path, connection: &Connection, known: usize) -> Result<usize, StoreError> {
    let pragma = |name: &str| -> Result<i64, StoreError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(|e| StoreError::of(path, e))
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let ours = application == APPLICATION_ID;
    let empty = (ours || application == 0) && version == 0 && pragma("schema_version")? == 0;
    if !(empty || ours && version != 0) {
        return Err(StoreError::Corrupt { path: path.into(), source: None });
    }
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(StoreError::Newer { path: path.into(), found: version, known: known as i64 }),
    }
}

/// Refuses a file whose tables, indexes and so on are not those that vmio makes of this format: a view or a
/// trigger under the name of a table would do as its author likes.
fn as_made(path: &Path, connection: &Connection, limit: &Limit, version: usize) -> Result<(), StoreError> {
    if version == 0 {
        return Ok(());
    }
    let mut model = Connection::open_in_memory().map_err(|e| StoreError::of(path, e))?;
    migrate(path, &mut model, limit, &MIGRATIONS[..version])?;
    guard::same_schema(path, connection, limit, &model)
}

/// Applies the steps that are missing, all or none. The version is read again under the write
/// lock: another process may have migrated meanwhile.
fn migrate(path: &Path, connection: &mut Connection, limit: &Limit, steps: &[Step]) -> Result<(), StoreError> {
    let fail = |e| StoreError::of(path, e);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fail)?;
    for step in steps.iter().skip(version as usize) {
        match step {
            Step::Sql(text) => transaction.execute_batch(text).map_err(fail)?,
            Step::Rows(convert) => convert(&Upgrade { path, connection: &transaction, limit })?,
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
    transaction.pragma_update(None, "user_version", steps.len() as i64).map_err(fail)?;
    transaction.commit().map_err(fail)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn migrate(connection: &mut Connection, steps: &[&'static str]) -> Result<(), StoreError> {
        let limit = guard::harden(connection).unwrap();
        let steps: Vec<Step> = steps.iter().map(|text| Step::Sql(text)).collect();
        super::migrate(Path::new("/s/vmio.db"), connection, &limit, &steps)
    }

    #[test]
    fn steps_are_applied_once_in_order_and_keep_the_rows() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c, &["CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (7);"]).unwrap();
        let two = ["CREATE TABLE t (never)", "ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 8"];
        migrate(&mut c, &two).unwrap();
        migrate(&mut c, &two).unwrap();
        let row: (i64, i64) = c.query_row("SELECT a, b FROM t", [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        assert_eq!(row, (7, 8));
        assert_eq!(check(Path::new("x"), &c, 2).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c, &["CREATE TABLE t (a INTEGER)"]).unwrap();
        let steps = ["", "ALTER TABLE t ADD COLUMN b INTEGER", "ALTER TABLE nothing ADD COLUMN c INTEGER"];
        migrate(&mut c, &steps).unwrap_err();
        assert_eq!(check(Path::new("x"), &c, 9).unwrap(), 1);
        c.query_row("SELECT count(b) FROM t", [], |_| Ok(())).unwrap_err();
    }

    #[test]
    fn a_newer_file_is_refused() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c, &["", ""]).unwrap();
        let e = check(Path::new("/s/vmio.db"), &c, 1).unwrap_err();
        assert!(matches!(e, StoreError::Newer { found: 2, known: 1, .. }), "{e}");
    }

    #[test]
    fn another_programs_database_is_refused() {
        let c = Connection::open_in_memory().unwrap();
        c.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert!(matches!(check(Path::new("x"), &c, 1).unwrap_err(), StoreError::Corrupt { .. }));
    }
}
