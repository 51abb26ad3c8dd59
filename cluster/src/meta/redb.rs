//! The map in a file, by redb: for one machine, and nothing to set up.
//!
//! One thread owns the file. Operations of all clients that are there at the same time are one
//! transaction of the file, so that a flush serves all of them; each is checked against what those
//! before it changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};
use redb::{
    CommitError, Database, DatabaseError, ReadableTable, StorageError, Table, TableDefinition,
    TableError, TransactionError,
};
use towpath_base::Time;

use super::engine::Engine;
use super::rows::{Each, Go, Rows};
use super::watches::{ClientId, Watches};
use super::{Meta, MetaError, Op, Outcome, Report, Tag};

/// The only table: rows by their keys.
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("towpath map");

/// Operations that share a transaction of the file at most.
const BATCH_MAX: usize = 256;

/// Operations that wait for the file at most; then whoever submits waits.
const WAITING_MAX: usize = 4_096;

/// Reports that a client has not taken yet, from which on its watches are told nothing.
const UNTAKEN_MAX: usize = 1_024;

/// How often it is looked whether such a client has taken some.
const UNTAKEN_LOOK: Duration = Duration::from_millis(5);

/// Revisions whose changes are kept for watches.
const KEPT_MAX: u64 = 100_000;

/// Memory in which redb keeps pages of the file.
const CACHE_BYTES: usize = 64 << 20;

/// A file with a map, open; whoever drops the last client ends its thread.
#[derive(Debug)]
pub struct RedbFile {
    asked: Sender<Asked>,
    clients: AtomicU64,
}

impl RedbFile {
    /// Opens a file, or makes it where there is none.
    ///
    /// # Errors
    ///
    /// [`MetaError::Unavailable`] where it cannot be opened, as when another process has it open,
    /// [`MetaError::Damaged`] where it has no map.
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        Self::open_keeping(path, KEPT_MAX)
    }

    /// The same, which keeps the changes of so many revisions for watches.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_keeping(path: &Path, kept_max: u64) -> Result<Self, MetaError> {
        let file =
            Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(not_open)?;
        let begun = Instant::now();
        let engine = in_transaction(&file, |rows| {
            let engine = Engine::open(rows, kept_max, Time::ZERO)?;
            Ok((engine, IsChanged::Yes))
        })?;
        let (asked, asks) = bounded(WAITING_MAX);
        let owner = Owner {
            file,
            engine,
            begun,
            asks,
            clients: BTreeMap::new(),
            watches: Watches::default(),
            failure: None,
        };
        let spawned = thread::Builder::new().name("towpath-map".into()).spawn(|| owner.serve());
        spawned.map_err(|error| MetaError::Unavailable(format!("no thread for it: {error}")))?;
        Ok(Self { asked, clients: AtomicU64::new(0) })
    }

    /// One more client.
    pub fn client(&self) -> RedbClient {
        let id = self.clients.fetch_add(1, Ordering::Relaxed);
        let (reports, taken) = unbounded();
        // Where the thread has ended, the first operation says so.
        let _ = self.asked.send(Asked::Joins(id, reports));
        RedbClient {
            id,
            asked: self.asked.clone(),
            reports: taken,
            under_way: BTreeSet::new(),
            own: VecDeque::new(),
        }
    }
}

/// What the thread of a file is told.
enum Asked {
    Joins(ClientId, Sender<Report>),
    Leaves(ClientId),
    Op(ClientId, Tag, Op),
}

/// A client of a [`RedbFile`].
#[derive(Debug)]
pub struct RedbClient {
    id: ClientId,
    asked: Sender<Asked>,
    reports: Receiver<Report>,
    under_way: BTreeSet<Tag>,
    /// What it tells itself, since nobody else is there to tell it.
    own: VecDeque<Report>,
}

impl RedbClient {
    fn taken(&mut self, report: Report) -> Report {
        if let Report::Done { tag, .. } = &report {
            self.under_way.remove(tag);
        }
        report
    }

    /// The report of an operation that will have no other.
    fn next_lost(&mut self) -> Option<Report> {
        let tag = self.under_way.pop_first()?;
        Some(Report::Done { tag, result: Err(MetaError::Unknown("its thread has ended".into())) })
    }
}

impl Meta for RedbClient {
    fn submit(&mut self, tag: Tag, op: Op, _now: Time) {
        if self.asked.send(Asked::Op(self.id, tag, op)).is_ok() {
            self.under_way.insert(tag);
        } else {
            let why = MetaError::Unavailable("its thread has ended".into());
            self.own.push_back(Report::Done { tag, result: Err(why) });
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Report> {
        if let Some(report) = self.own.pop_front() {
            return Some(report);
        }
        match self.reports.try_recv() {
            Ok(report) => Some(self.taken(report)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => self.next_lost(),
        }
    }
}

impl Drop for RedbClient {
    fn drop(&mut self) {
        let _ = self.asked.send(Asked::Leaves(self.id));
    }
}

/// The thread that has the file.
struct Owner {
    file: Database,
    engine: Engine,
    begun: Instant,
    asks: Receiver<Asked>,
    clients: BTreeMap<ClientId, Sender<Report>>,
    watches: Watches,
    /// Why nothing is done any more: what is in the file may be more than what was reported.
    failure: Option<MetaError>,
}

impl Owner {
    fn serve(mut self) {
        let mut wait = Duration::MAX;
        loop {
            let first = match self.asks.recv_timeout(wait.min(self.until_due())) {
                Ok(asked) => Some(asked),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let more = std::iter::from_fn(|| self.asks.try_recv().ok());
            let batch: Vec<Asked> = first.into_iter().chain(more.take(BATCH_MAX)).collect();
            let ops = self.admit(batch);
            let reports = self.carry_out(ops);
            for (client, report) in reports {
                self.say(client, report);
            }
            wait = self.tell_watches();
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn until_due(&self) -> Duration {
        Duration::from(self.engine.due().since(self.now()))
    }

    fn say(&self, client: ClientId, report: Report) {
        // A client that has left wants to know nothing.
        if let Some(reports) = self.clients.get(&client) {
            let _ = reports.send(report);
        }
    }

    fn admit(&mut self, batch: Vec<Asked>) -> Vec<(ClientId, Tag, Op)> {
        let mut ops = Vec::new();
        for asked in batch {
            match asked {
                Asked::Op(client, tag, op) => ops.push((client, tag, op)),
                Asked::Joins(client, reports) => {
                    self.clients.insert(client, reports);
                }
                Asked::Leaves(client) => {
                    self.clients.remove(&client);
                    self.watches.forget(client);
                }
            }
        }
        ops
    }

    /// Does operations in one transaction of the file.
    fn carry_out(&mut self, ops: Vec<(ClientId, Tag, Op)>) -> Vec<(ClientId, Report)> {
        let now = self.now();
        if ops.is_empty() && self.engine.due() > now {
            return Vec::new();
        }
        let names: Vec<(ClientId, Tag)> =
            ops.iter().map(|(client, tag, _)| (*client, *tag)).collect();
        let (engine, watches) = (&mut self.engine, &mut self.watches);
        let done = match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => in_transaction(&self.file, |rows| {
                engine.expire(rows, now)?;
                let reports = run_all(engine, watches, rows, ops, now)?;
                let is_changed = engine.is_changed();
                engine.count(rows)?;
                Ok((reports, if is_changed { IsChanged::Yes } else { IsChanged::No }))
            }),
        };
        done.unwrap_or_else(|failure| {
            // What the engine counts is not what the file has: it does nothing any more.
            let mut reports = self.watches.end_all(&failure);
            let result = || Err(failure.clone());
            let failed = names.into_iter();
            reports.extend(
                failed.map(|(client, tag)| (client, Report::Done { tag, result: result() })),
            );
            let why = "it failed before: start its process again";
            self.failure = Some(match &failure {
                MetaError::Damaged(_) => failure,
                _ => MetaError::Unavailable(why.into()),
            });
            reports
        })
    }

    /// Tells watches what changed; how long to wait before they are told more.
    fn tell_watches(&mut self) -> Duration {
        // Each look is a transaction of the file.
        if !self.watches.any_behind(self.engine.revision()) {
            return Duration::MAX;
        }
        let (engine, watches, clients) = (&self.engine, &mut self.watches, &self.clients);
        let has_room = |client| {
            let reports = clients.get(&client);
            reports.is_some_and(|reports: &Sender<Report>| reports.len() < UNTAKEN_MAX)
        };
        let mut reports = Vec::new();
        let told = in_transaction(&self.file, |rows| {
            let say = |client, report| reports.push((client, report));
            Ok((watches.tell(engine, rows, has_room, say), IsChanged::No))
        });
        let is_behind = told.unwrap_or(false);
        let is_told = !reports.is_empty();
        for (client, report) in reports {
            self.say(client, report);
        }
        match (is_behind, is_told) {
            (true, true) => Duration::ZERO,
            (true, false) => UNTAKEN_LOOK,
            (false, _) => Duration::MAX,
        }
    }
}

/// Does operations one after another. An error is one of the file: nothing of them lasts.
fn run_all(
    engine: &mut Engine,
    watches: &mut Watches,
    rows: &mut impl Rows,
    ops: Vec<(ClientId, Tag, Op)>,
    now: Time,
) -> Result<Vec<(ClientId, Report)>, MetaError> {
    let mut reports = Vec::new();
    for (client, tag, op) in ops {
        let result = match op {
            Op::Watch { prefix, after } => {
                watches.begin(client, tag, prefix, after);
                continue;
            }
            Op::Unwatch(watch) => {
                reports.extend(watches.end(client, watch).map(|report| (client, report)));
                Ok(Outcome::Unwatched)
            }
            op => engine.run(rows, op, now),
        };
        if let Err(
            error @ (MetaError::Damaged(_) | MetaError::Unavailable(_) | MetaError::Unknown(_)),
        ) = result
        {
            return Err(error);
        }
        reports.push((client, Report::Done { tag, result }));
    }
    Ok(reports)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsChanged {
    Yes,
    No,
}

/// Does something in a transaction of the file, which lasts where it changed something.
fn in_transaction<T>(
    file: &Database,
    inside: impl FnOnce(&mut TableRows<'_>) -> Result<(T, IsChanged), MetaError>,
) -> Result<T, MetaError> {
    let transaction = file.begin_write().map_err(|error| match error {
        TransactionError::Storage(error) => before(error),
        other => MetaError::Unavailable(other.to_string()),
    })?;
    let table = transaction.open_table(TABLE).map_err(|error| match error {
        TableError::Storage(error) => before(error),
        other => MetaError::Damaged(other.to_string()),
    })?;
    let mut rows = TableRows(table);
    let result = inside(&mut rows);
    drop(rows);
    let (result, is_changed) = result?;
    if is_changed == IsChanged::Yes {
        transaction.commit().map_err(|error| match error {
            CommitError::Storage(StorageError::Corrupted(what)) => MetaError::Damaged(what),
            other => MetaError::Unknown(other.to_string()),
        })?;
    }
    Ok(result)
}

struct TableRows<'t>(Table<'t, &'static [u8], &'static [u8]>);

impl Rows for TableRows<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        Ok(self.0.get(key).map_err(before)?.map(|row| row.value().to_vec()))
    }

    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), MetaError> {
        self.0.insert(key, row).map(drop).map_err(before)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.0.remove(key).map(drop).map_err(before)
    }

    fn scan(&self, from: &[u8], until: &[u8], each: &mut Each<'_>) -> Result<(), MetaError> {
        if from >= until {
            return Ok(());
        }
        for found in self.0.range(from..until).map_err(before)? {
            let (key, row) = found.map_err(before)?;
            if each(key.value(), row.value())? == Go::Enough {
                break;
            }
        }
        Ok(())
    }
}

/// An error of a file before anything in it was changed.
fn before(error: StorageError) -> MetaError {
    match error {
        StorageError::Corrupted(what) => MetaError::Damaged(what),
        other => MetaError::Unavailable(other.to_string()),
    }
}

fn not_open(error: DatabaseError) -> MetaError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            MetaError::Unavailable("another process has its file open".into())
        }
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            MetaError::Damaged("the file is no map".into())
        }
        DatabaseError::Storage(error) => before(error),
        other => MetaError::Unavailable(other.to_string()),
    }
}
