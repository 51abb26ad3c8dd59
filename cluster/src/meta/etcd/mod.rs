//! The map in etcd, by its HTTP gateway: for several machines.
//!
//! Operations of all clients are carried out by a few threads, each of which asks one thing at a
//! time; each watch has a thread. All keys lie under a prefix, so that one etcd can serve several
//! clusters and others.

mod call;
mod json;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use towpath_base::{Nanos, Time};

use self::call::{CallError, Changes, Members, unavailable};
use self::json::{
    Bytes, Compare, Event, KeyValue, LeaseRequest, LeaseResponse, Number, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse, Version, WatchCreate, WatchRequest,
    WatchResponse,
};
use super::{
    Change, Changed, Check, Entry, Expect, LEASE_MAX, LeaseId, Meta, MetaError, Op, Outcome,
    PAGE_MAX, Report, Revision, Tag, Transaction, validate_key,
};

/// Operations that are carried out at the same time.
const WORKERS: usize = 8;

/// Operations that wait for a thread at most; then whoever submits waits.
const WAITING_MAX: usize = 4_096;

/// Reports of changes that a watch's client has not taken, at which the watch waits.
const UNTAKEN_MAX: usize = 1_024;

/// How long a watch looks for a member that answers before it ends.
const WATCH_PATIENCE: Duration = Duration::from_secs(10);

/// How long it waits between two tries.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// The first releases of 3.4 and 3.5 in which what is read after a crash is sure to be the same at
/// all members (etcd issues 13766, 14211, 16596).
const SOUND: [(u32, u32, u32); 2] = [(3, 4, 32), (3, 5, 14)];

/// An etcd, as one process sees it.
#[derive(Debug)]
pub struct Etcd {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    version: String,
}

#[derive(Debug)]
struct Shared {
    members: Members,
    prefix: String,
}

#[derive(Debug)]
struct Job {
    tag: Tag,
    op: Op,
    reports: Sender<Told>,
}

/// What threads tell a client.
#[derive(Debug)]
enum Told {
    /// What came of an operation.
    Done(Report),
    /// What came of a watch, by its number.
    Watch(u64, Report),
}

impl Etcd {
    /// Looks for an etcd at addresses such as `http://10.0.0.1:2379`, one of each member; the keys
    /// of the map lie under `prefix`.
    ///
    /// # Errors
    ///
    /// [`MetaError::Invalid`] where an address is none, [`MetaError::Unavailable`] where no member
    /// answers.
    pub fn connect(
        addresses: impl IntoIterator<Item = impl Into<String>>,
        prefix: &str,
    ) -> Result<Self, MetaError> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        if addresses.is_empty() || !addresses.iter().all(|address| address.starts_with("http://")) {
            return Err(MetaError::Invalid("etcd's addresses are like http://10.0.0.1:2379"));
        }
        let addresses = addresses.iter().map(|address| address.trim_end_matches('/').to_owned());
        let members = Members::new(addresses.collect());
        let Version { etcdserver: version } = members.get("/version").map_err(plain)?;
        let shared = Arc::new(Shared { members, prefix: prefix.into() });
        let (jobs, asked) = bounded(WAITING_MAX);
        for _ in 0..WORKERS {
            let (shared, asked) = (Arc::clone(&shared), asked.clone());
            spawn(move || carry_out(&shared, &asked))?;
        }
        let etcd = Self { shared, jobs, version };
        if let Some(warning) = etcd.warning() {
            tracing::warn!("{warning}");
        }
        Ok(etcd)
    }

    /// The version of the member that answered first.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Why that version is better not used, where it is not.
    pub fn warning(&self) -> Option<String> {
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().ok());
        let mut next = || numbers.next().flatten();
        let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else {
            return Some(format!(
                "etcd says that its version is {:?}, which is none",
                self.version
            ));
        };
        let is_old = (major, minor) < (3, 4);
        let needed = SOUND.into_iter().find(|sound| (sound.0, sound.1) == (major, minor));
        let needed = needed.or(is_old.then_some(SOUND[1]));
        needed.filter(|sound| (major, minor, patch) < *sound).map(|(major, minor, patch)| {
            format!(
                "etcd {} may give different answers at its members after a crash: use \
                 {major}.{minor}.{patch} or newer",
                self.version
            )
        })
    }

    /// One more client.
    pub fn client(&self) -> EtcdClient {
        let (reports, taken) = unbounded();
        EtcdClient {
            shared: Arc::clone(&self.shared),
            jobs: self.jobs.clone(),
            reports,
            taken,
            own: VecDeque::new(),
            watches: BTreeMap::new(),
            watches_begun: 0,
        }
    }
}

/// A client of an [`Etcd`].
#[derive(Debug)]
pub struct EtcdClient {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    reports: Sender<Told>,
    taken: Receiver<Told>,
    own: VecDeque<Report>,
    watches: BTreeMap<Tag, Watch>,
    watches_begun: u64,
}

#[derive(Debug)]
struct Watch {
    number: u64,
    is_over: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl EtcdClient {
    /// What a thread says, unless it is of a watch that has ended for this client.
    fn passed_on(&mut self, told: Told) -> Option<Report> {
        let (number, report) = match told {
            Told::Done(report) => return Some(report),
            Told::Watch(number, report) => (number, report),
        };
        let (Report::Done { tag, .. } | Report::Changed { tag, .. }) = &report;
        let is_its = self.watches.get(tag).is_some_and(|watch| watch.number == number);
        if is_its && matches!(report, Report::Done { .. }) {
            self.watches.remove(tag);
        }
        is_its.then_some(report)
    }

    fn watch(&mut self, tag: Tag, prefix: String, after: Revision) {
        self.watches_begun += 1;
        let (number, is_over) = (self.watches_begun, Arc::new(AtomicBool::new(false)));
        let watcher = Watcher {
            shared: Arc::clone(&self.shared),
            reports: self.reports.clone(),
            is_over: Arc::clone(&is_over),
            tag,
            number,
            prefix,
            seen: after,
        };
        match spawn(move || watcher.run()) {
            Ok(()) => drop(self.watches.insert(tag, Watch { number, is_over })),
            Err(error) => self.own.push_back(Report::Done { tag, result: Err(error) }),
        }
    }
}

impl Meta for EtcdClient {
    fn submit(&mut self, tag: Tag, op: Op, _now: Time) {
        match op {
            Op::Watch { prefix, after } => self.watch(tag, prefix, after),
            Op::Unwatch(watch) => {
                if self.watches.remove(&watch).is_some() {
                    let result = Ok(Outcome::WatchEnded);
                    self.own.push_back(Report::Done { tag: watch, result });
                }
                self.own.push_back(Report::Done { tag, result: Ok(Outcome::Unwatched) });
            }
            op => {
                let job = Job { tag, op, reports: self.reports.clone() };
                if self.jobs.send(job).is_err() {
                    let why = MetaError::Unavailable("its threads have ended".into());
                    self.own.push_back(Report::Done { tag, result: Err(why) });
                }
            }
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Report> {
        loop {
            if let Some(report) = self.own.pop_front() {
                return Some(report);
            }
            // The queue never closes: this client has a sender of it, for its watches.
            let told = self.taken.try_recv().ok()?;
            if let Some(report) = self.passed_on(told) {
                return Some(report);
            }
        }
    }
}

fn spawn(what: impl FnOnce() + Send + 'static) -> Result<(), MetaError> {
    let spawned = thread::Builder::new().name("towpath-etcd".into()).spawn(what);
    spawned.map(drop).map_err(|error| MetaError::Unavailable(format!("no thread for it: {error}")))
}

/// What a thread does that carries out operations, until nobody can ask any more.
fn carry_out(shared: &Shared, asked: &Receiver<Job>) {
    for Job { tag, op, reports } in asked {
        let result = shared.run(op);
        // A client that has gone wants to know nothing.
        let _ = reports.send(Told::Done(Report::Done { tag, result }));
    }
}

impl Shared {
    fn run(&self, op: Op) -> Result<Outcome, MetaError> {
        match op {
            Op::Get { key } => self.entry(&key).map(Outcome::Got),
            Op::List { prefix, after, limit } => self.list(&prefix, after.as_deref(), limit),
            Op::Commit(transaction) => self.commit(&transaction),
            Op::Grant { time } => self.grant(time),
            Op::Keep(id) => self.keep(id),
            Op::Revoke(id) => {
                let request = LeaseRequest { id: Number(id.0), ttl: None };
                let path = "/v3/lease/revoke";
                match self.members.call::<LeaseResponse>(path, &request, Changes::Something) {
                    Ok(_) => Ok(Outcome::Revoked),
                    Err(CallError::NotFound) => Err(MetaError::NoLease(id)),
                    Err(error) => Err(plain(error)),
                }
            }
            Op::Watch { .. } | Op::Unwatch(_) => {
                Err(MetaError::Invalid("a watch is its client's concern"))
            }
        }
    }

    /// A key as etcd has it.
    fn key(&self, key: &str) -> Bytes {
        Bytes([self.prefix.as_bytes(), key.as_bytes()].concat())
    }

    /// The key before which all lie that begin with a prefix: no text has a byte above 0xf4.
    fn after_prefix(&self, prefix: &str) -> Bytes {
        let Bytes(mut end) = self.key(prefix);
        end.push(0xff);
        Bytes(end)
    }

    fn entry(&self, key: &str) -> Result<Option<Entry>, MetaError> {
        validate_key(key)?;
        let request = RangeRequest { key: self.key(key), ..RangeRequest::default() };
        let found: RangeResponse =
            self.members.call("/v3/kv/range", &request, Changes::Nothing).map_err(plain)?;
        found.kvs.into_iter().next().map(|found| self.entry_of(found)).transpose()
    }

    fn entry_of(&self, found: KeyValue) -> Result<Entry, MetaError> {
        Ok(Entry {
            key: self.key_of(&found.key)?,
            value: found.value.0,
            created: Revision(found.create_revision.0),
            changed: Revision(found.mod_revision.0),
            lease: lease_of(found.lease),
        })
    }

    fn key_of(&self, key: &Bytes) -> Result<String, MetaError> {
        let key = std::str::from_utf8(&key.0).ok();
        let key = key.and_then(|key| key.strip_prefix(&*self.prefix));
        key.map(Into::into).ok_or_else(|| MetaError::Damaged("a key is none of ours".into()))
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Outcome, MetaError> {
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(MetaError::Invalid("a page of a list has 1 to 1000 entries"));
        }
        let behind = after.map(|after| [self.key(after).0, vec![0]].concat());
        let from = behind.unwrap_or_default().max(self.key(prefix).0);
        let before = self.after_prefix(prefix);
        // A range that ends before it begins is etcd's own word for something else.
        let is_empty = from >= before.0;
        let request = RangeRequest {
            key: Bytes(if is_empty { before.0.clone() } else { from }),
            range_end: (!is_empty).then_some(before),
            limit: Some(Number(limit as u64)),
            keys_only: false,
        };
        let found: RangeResponse =
            self.members.call("/v3/kv/range", &request, Changes::Nothing).map_err(plain)?;
        let entries = found.kvs.into_iter().map(|found| self.entry_of(found));
        Ok(Outcome::Listed {
            entries: entries.collect::<Result<_, _>>()?,
            is_cut: found.more,
            revision: Revision(found.header.revision.0),
        })
    }

    fn commit(&self, transaction: &Transaction) -> Result<Outcome, MetaError> {
        transaction.validate()?;
        let look = |check: &Check| {
            let key = self.key(&check.key);
            RequestOp::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() })
        };
        let request = TxnRequest {
            compare: transaction.checks().iter().map(|check| self.compare(check)).collect(),
            success: transaction.changes().iter().map(|change| self.change(change)).collect(),
            failure: transaction.checks().iter().map(look).collect(),
        };
        let answer: Result<TxnResponse, CallError> =
            self.members.call("/v3/kv/txn", &request, Changes::Something);
        let answer = match answer {
            Ok(answer) => answer,
            Err(CallError::NotFound) => {
                return Err(self.missing_lease(transaction));
            }
            Err(error) => return Err(plain(error)),
        };
        if answer.succeeded {
            return Ok(Outcome::Committed(Revision(answer.header.revision.0)));
        }
        let found = answer.responses.iter().map(|found| {
            let found = found.response_range.kvs.first();
            found.map(|found| Revision(found.mod_revision.0))
        });
        let mut pairs = transaction.checks().iter().zip(found);
        let failed = pairs.find(|(check, found)| !check.expect.holds(*found));
        let failed =
            failed.map(|(check, found)| Outcome::Refused { key: check.key.clone(), found });
        failed.ok_or_else(|| MetaError::Damaged("it refuses what holds".into()))
    }

    /// Which lease of a transaction has ended; etcd does not say.
    fn missing_lease(&self, transaction: &Transaction) -> MetaError {
        let leases = transaction.changes().iter().filter_map(|change| match change {
            Change::Put { lease, .. } => *lease,
            Change::Delete { .. } => None,
        });
        let mut last = MetaError::Damaged("it misses a lease where there is none".into());
        for lease in leases {
            last = MetaError::NoLease(lease);
            let request = LeaseRequest { id: Number(lease.0), ttl: None };
            let path = "/v3/lease/timetolive";
            let left: Result<TimeToLive, _> = self.members.call(path, &request, Changes::Nothing);
            if left.is_ok_and(|left| left.ttl <= 0) {
                break;
            }
        }
        last
    }

    fn compare(&self, check: &Check) -> Compare {
        let (target, result) = match check.expect {
            Expect::Absent => ("CREATE", "EQUAL"),
            Expect::Present => ("CREATE", "GREATER"),
            // A key without an entry has the revision 0 there: nothing was ever changed at it.
            Expect::ChangedAt(Revision(0)) => ("MOD", "LESS"),
            Expect::ChangedAt(_) => ("MOD", "EQUAL"),
        };
        let (create_revision, mod_revision) = match check.expect {
            Expect::ChangedAt(revision) => (None, Some(Number(revision.0))),
            Expect::Absent | Expect::Present => (Some(Number(0)), None),
        };
        Compare { key: self.key(&check.key), target, result, create_revision, mod_revision }
    }

    fn change(&self, change: &Change) -> RequestOp {
        match change {
            Change::Put { key, value, lease } => RequestOp::Put {
                key: self.key(key),
                value: Bytes(value.clone()),
                lease: Number(lease.map_or(0, |lease| lease.0)),
            },
            Change::Delete { key } => RequestOp::Delete { key: self.key(key) },
        }
    }

    /// etcd counts seconds: a lease lasts for up to one second longer.
    fn grant(&self, time: Nanos) -> Result<Outcome, MetaError> {
        if time == Nanos::ZERO || time > LEASE_MAX {
            return Err(MetaError::Invalid("a lease lasts for more than nothing, up to an hour"));
        }
        let ttl = Some(Number(time.0.div_ceil(1_000_000_000)));
        let request = LeaseRequest { id: Number(0), ttl };
        let granted: LeaseResponse =
            self.members.call("/v3/lease/grant", &request, Changes::Something).map_err(plain)?;
        Ok(Outcome::Granted(LeaseId(granted.id.0)))
    }

    fn keep(&self, id: LeaseId) -> Result<Outcome, MetaError> {
        let request = LeaseRequest { id: Number(id.0), ttl: None };
        let kept: Result<LeaseResponse, _> =
            self.members.call_first("/v3/lease/keepalive", &request);
        match kept.map_err(plain)?.ttl {
            Number(0) => Err(MetaError::NoLease(id)),
            Number(_) => Ok(Outcome::Kept),
        }
    }
}

/// What is left of a lease: -1 s where it has ended.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct TimeToLive {
    #[serde(rename = "TTL", deserialize_with = "signed")]
    ttl: i64,
}

fn signed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text: String = serde::Deserialize::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn lease_of(lease: Number) -> Option<LeaseId> {
    Some(LeaseId(lease.0)).filter(|lease| lease.0 != 0)
}

fn plain(error: CallError) -> MetaError {
    match error {
        CallError::NotFound => MetaError::Unavailable("it does not know what was asked".into()),
        CallError::Meta(error) => error,
    }
}

/// The thread of a watch.
struct Watcher {
    shared: Arc<Shared>,
    reports: Sender<Told>,
    is_over: Arc<AtomicBool>,
    tag: Tag,
    number: u64,
    prefix: String,
    seen: Revision,
}

impl Watcher {
    fn run(mut self) {
        let mut heard = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            let before = self.seen;
            let why = match self.follow(&mut heard) {
                ControlFlow::Continue(why) => why,
                ControlFlow::Break(why) => return self.end(why),
            };
            if self.seen == before && heard.elapsed() > WATCH_PATIENCE {
                return self.end(why);
            }
            thread::sleep(WATCH_PAUSE);
        }
    }

    /// Follows changes as long as a member tells of them; why it does not go on.
    fn follow(&mut self, heard: &mut Instant) -> ControlFlow<MetaError, MetaError> {
        let shared = Arc::clone(&self.shared);
        let request = WatchRequest {
            create_request: WatchCreate {
                key: shared.key(&self.prefix),
                range_end: shared.after_prefix(&self.prefix),
                start_revision: Number(self.seen.0.saturating_add(1)),
            },
        };
        let mut is_lost = false;
        let ended = shared.members.stream("/v3/watch", &request, |told: WatchResponse| {
            *heard = Instant::now();
            if self.is_over.load(Ordering::Relaxed) {
                return Err(unavailable("nobody watches any more".into()));
            }
            if told.compact_revision.0 > 0 {
                is_lost = true;
                let forgotten = Revision(told.compact_revision.0 - 1);
                return Err(CallError::Meta(MetaError::Compacted(forgotten)));
            }
            match told.canceled {
                true => Err(unavailable("it has ended the watch".into())),
                false => self.tell(told.events).inspect_err(|_| is_lost = true),
            }
        });
        let why = ended.map_or_else(plain, |()| MetaError::Unavailable("it has ended".into()));
        match is_lost {
            true => ControlFlow::Break(why),
            false => ControlFlow::Continue(why),
        }
    }

    fn tell(&mut self, events: Vec<Event>) -> Result<(), CallError> {
        let mut all: Vec<Changed> = Vec::new();
        for Event { kind, kv } in events {
            let key = self.shared.key_of(&kv.key).map_err(CallError::Meta)?;
            let change = match &*kind {
                "DELETE" => Change::Delete { key },
                _ => Change::Put { key, value: kv.value.0, lease: lease_of(kv.lease) },
            };
            let revision = Revision(kv.mod_revision.0);
            match all.last_mut().filter(|last| last.revision == revision) {
                Some(last) => last.changes.push(change),
                None => all.push(Changed { revision, changes: vec![change] }),
            }
        }
        for changed in all {
            self.seen = self.seen.max(changed.revision);
            let report = Report::Changed { tag: self.tag, changed };
            while self.reports.len() >= UNTAKEN_MAX && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            // A client that has gone wants to know nothing.
            let _ = self.reports.send(Told::Watch(self.number, report));
        }
        Ok(())
    }

    fn end(&self, why: MetaError) {
        let report = Report::Done { tag: self.tag, result: Err(why) };
        let _ = self.reports.send(Told::Watch(self.number, report));
    }
}
