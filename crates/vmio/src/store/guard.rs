//! Hardens SQLite against the file of a store, which may have been copied from anywhere. Every query is bounded in time
//! and in the size of its answer (sqlite.org, "Defense Against The Dark Arts", section 1.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit as Sqlite;

/// Longest time of a query.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest text in a store: a tool's raw output takes a few MB at most.
const LONGEST: i32 = 64 << 20;
/// Most that one run may hold, in bytes; a run of a day with every sample's raw output has some 100 MB.
pub(super) const MOST: i64 = 1 << 30;
/// Steps of SQLite's virtual machine between two checks of the clock.
const STEPS: i32 = 10_000;

/// Limits the time of a query, while an [`Asking`] of it lives.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    began: Instant,
    /// Milliseconds since `began` at which the query is interrupted; 0 without a query.
    until: Arc<AtomicU64>,
}

/// While it lives, SQLite interrupts a query after [`LIMIT`].
pub(super) struct Asking<'a>(&'a Limit);

impl Limit {
    /// Begins a query.
    pub(super) fn asking(&self) -> Asking<'_> {
        self.within(LIMIT)
    }

    fn within(&self, limit: Duration) -> Asking<'_> {
        let until = (self.began.elapsed() + limit).as_millis();
        self.until.store(u64::try_from(until).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
        Asking(self)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.until.store(0, Ordering::Relaxed);
    }
}

/// Makes a connection distrust its file. To be called before the first query.
pub(super) fn harden(connection: &Connection) -> rusqlite::Result<Limit> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    for (limit, most) in [
        (Sqlite::SQLITE_LIMIT_LENGTH, LONGEST),
        (Sqlite::SQLITE_LIMIT_SQL_LENGTH, 100_000),
        (Sqlite::SQLITE_LIMIT_COLUMN, 100),
        (Sqlite::SQLITE_LIMIT_EXPR_DEPTH, 20),
        (Sqlite::SQLITE_LIMIT_COMPOUND_SELECT, 3),
        (Sqlite::SQLITE_LIMIT_VDBE_OP, 25_000),
        (Sqlite::SQLITE_LIMIT_ATTACHED, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    let limit = Limit { began: Instant::now(), until: Arc::default() };
    let of_query = limit.clone();
    let is_over = move || {
        let until = of_query.until.load(Ordering::Relaxed);
        until != 0 && of_query.began.elapsed().as_millis() > u128::from(until)
    };
    connection.progress_handler(STEPS, Some(is_over));
    // Sizes in pages are checked, and the file is not mapped: one that another program truncates would end vmio with
    // SIGBUS.
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(limit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_question_without_an_end_ends() {
        let connection = Connection::open_in_memory().unwrap();
        let limit = harden(&connection).unwrap();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let asking = limit.within(Duration::from_millis(50));
        let e = connection.query_row(endless, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(e.sqlite_error_code(), Some(rusqlite::ErrorCode::OperationInterrupted), "{e}");
        drop(asking);
        // Outside of `within` a query has no time limit.
        std::thread::sleep(Duration::from_millis(60));
        let some = endless.replace("FROM n)", "FROM n WHERE i < 100000)");
        assert_eq!(connection.query_row(&some, [], |row| row.get::<_, i64>(0)).unwrap(), 100_000);
    }

    #[test]
    fn texts_have_a_longest() {
        let connection = Connection::open_in_memory().unwrap();
        harden(&connection).unwrap();
        let e = connection.query_row("SELECT zeroblob(100000000)", [], |_| Ok(())).unwrap_err();
        assert_eq!(e.sqlite_error_code(), Some(rusqlite::ErrorCode::TooBig), "{e}");
        assert!(connection.execute("ATTACH ':memory:' AS other", []).is_err());
    }
}
