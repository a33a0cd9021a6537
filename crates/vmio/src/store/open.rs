//! Opening the file: whose it is, settings, format.
//!
//! WAL with `synchronous=FULL`: a commit is on the disk when `add_sample` returns, so neither
//! SIGKILL nor a power cut loses it. The flush falls between two cells; with a lazier setting the
//! kernel would write the pages back later, in the middle of some other cell's measurement.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::error::{BUSY_SECONDS, StoreError};
use super::guard::{self, Limit};
use super::private;

/// "vmio" in ASCII, in SQLite's header (`PRAGMA application_id`): tells our file from others.
const APPLICATION_ID: i64 = 0x766d_696f;

/// `PRAGMA user_version` of a store. One of another format is left to the vmio that wrote it.
const FORMAT: i64 = 2;

const TABLES: &str = "
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
    CREATE TABLE samples (           -- what is selected from most is in columns, all else in the JSON
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,          -- Cell::key()
        round INTEGER NOT NULL,
        boot INTEGER NOT NULL,
        started_unix REAL NOT NULL,
        seconds REAL NOT NULL,
        sample TEXT NOT NULL         -- JSON of Sample; each raw output is null
    ) STRICT;
    CREATE INDEX samples_of_run ON samples (run, cell);
    CREATE TABLE raw (               -- the tools' own outputs whole, apart so that reports need not read them
        sample INTEGER NOT NULL REFERENCES samples ON DELETE CASCADE,
        actor INTEGER NOT NULL,      -- 0: the leading one; then those beside it
        output TEXT NOT NULL,        -- JSON
        PRIMARY KEY (sample, actor)
    ) STRICT;
    CREATE TABLE skipped (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,          -- Cell::key()
        whole TEXT NOT NULL,         -- JSON of Cell
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

/// Opens for writing; makes a missing directory and file, readable by this user alone.
pub(super) fn writable(path: &Path) -> Result<(Connection, Limit), StoreError> {
    let real = private::make(path)?;
    let fail = |e| StoreError::of(path, e);
    let mut connection = Connection::open(real).map_err(fail)?;
    let limit = guard::harden(&connection).map_err(fail)?;
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS)).map_err(fail)?;
    let is_new = is_empty(path, &connection)?;
    log_ahead(&connection).map_err(fail)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    if is_new {
        make_tables(path, &mut connection)?;
    }
    if connection.is_readonly("main").map_err(fail)? {
        return Err(StoreError::Denied { path: path.into(), source: None });
    }
    Ok((connection, limit))
}

/// Opens an existing store; read-only where this user may not write it.
pub(super) fn existing(path: &Path) -> Result<(Connection, Limit), StoreError> {
    // Checked first: a store that another process creates after this is not reported as one of another user.
    if !path.try_exists().unwrap_or(true) {
        return Err(StoreError::Missing { path: path.into() });
    }
    let may_write = |p: &Path| rustix::fs::access(p, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write(path) && path.parent().is_some_and(may_write) {
        return match writable(path) {
            // On a full disk the store can still be read, unless its log is needed.
            Err(full @ StoreError::Full { .. }) => reading(path).map_err(|_| full),
            other => other,
        };
    }
    reading(path)
}

/// Opens an existing plain file read-only.
pub(super) fn reading(path: &Path) -> Result<(Connection, Limit), StoreError> {
    match fs::metadata(path) {
        // Opening a pipe would block until another process writes.
        Ok(found) if !found.is_file() => return Err(StoreError::Corrupt { path: path.into(), source: None }),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(StoreError::Missing { path: path.into() }),
        Err(source) => return Err(StoreError::Io { what: "look at", path: path.into(), source }),
    }
    let real = private::alone(path)?;
    let size = |end: &str| {
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        fs::metadata(real.with_file_name(format!("{name}{end}"))).map(|found| found.len())
    };
    // Without a log that holds unread pages the file alone is the whole truth ("immutable"), else SQLite needs the
    // log's index, which the writer shares (sqlite.org/wal.html, section 5). Where there is no index nobody is at
    // work: then it is kept in memory instead of beside the store (section 8), for which nothing is locked.
    let unread = size("-wal").is_ok_and(|bytes| bytes > 0);
    let idle = unread && size("-shm").is_err();
    let how = match (unread, idle) {
        (false, _) => "immutable=1",
        (true, false) => "mode=ro",
        (true, true) => "mode=ro&vfs=unix-none",
    };
    let fail = |e| StoreError::of(path, e);
    let escaped = real.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{escaped}?{how}"), flags).map_err(fail)?;
    // A reader must not write the log into the store when it closes last.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    if idle {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(fail)?;
    }
    let limit = guard::harden(&connection).map_err(fail)?;
    if is_empty(path, &connection)? {
        // Another process is creating it.
        Err(StoreError::Missing { path: path.into() })
    } else {
        Ok((connection, limit))
    }
}

/// Sets WAL. Two processes that open a new store at once may wait for each other; SQLite reports that to one of them at
/// once as busy (sqlite.org/c3ref/busy_handler.html), which then tries again.
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

/// Whether the file has no tables yet; a file that is not vmio's, or of another format, is refused. Reads in one
/// transaction, since another process may be making the tables.
fn is_empty(path: &Path, connection: &Connection) -> Result<bool, StoreError> {
    let fail = |e| StoreError::of(path, e);
    let _moment = connection.unchecked_transaction().map_err(fail)?;
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(fail);
    let (application, found) = (pragma("application_id")?, pragma("user_version")?);
    let is_ours = application == APPLICATION_ID;
    if (is_ours || application == 0) && found == 0 && pragma("schema_version")? == 0 {
        return Ok(true);
    }
    match found {
        _ if !is_ours || found == 0 => Err(StoreError::Corrupt { path: path.into(), source: None }),
        FORMAT => Ok(false),
        _ => Err(StoreError::OtherFormat { path: path.into(), found, known: FORMAT }),
    }
}

/// Makes the tables, all or none, unless another process has done so meanwhile.
fn make_tables(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    let mut make = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if transaction.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? == 0 {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
        }
        transaction.commit()
    };
    make().map_err(|e| StoreError::of(path, e))
}
