//! What operations do to rows: the same for each store whose rows are ours.

use std::collections::BTreeMap;
use std::mem;

use towpath_base::{Nanos, Time};

use super::rows::{
    Go, Rows, after_prefix, behind, entry_key, entry_of, entry_row, history_key, history_of,
    history_row, lease_key, lease_of, leased, leased_key, leased_of, leases, numbers_of,
    numbers_row, state_key,
};
use super::{
    Change, Changed, Entry, LEASE_MAX, LeaseId, MetaError, Op, Outcome, PAGE_MAX, Revision,
    Transaction, validate_key,
};

/// The form of the rows.
const FORM: u64 = 1;

/// What no count reaches, with a million changes a second for a thousand years.
const COUNT_MAX: u64 = 1 << 55;

/// What an engine counts. The same is in its rows whenever a batch is done.
#[derive(Debug)]
pub(super) struct Engine {
    revision: Revision,
    /// Behind this revision all changes are kept.
    forgotten: Revision,
    last_lease: LeaseId,
    leases: BTreeMap<LeaseId, Lease>,
    /// Revisions whose changes are kept.
    kept_max: u64,
    is_counted: bool,
}

#[derive(Debug)]
struct Lease {
    time: Nanos,
    ends_at: Time,
}

impl Engine {
    /// One on these rows, which keeps the changes of so many revisions. Each lease has its whole
    /// time again.
    pub(super) fn open(rows: &mut impl Rows, kept_max: u64, now: Time) -> Result<Self, MetaError> {
        let state = match rows.get(&state_key())? {
            Some(row) => numbers_of(&row)?,
            None => [FORM, 0, 0, 0],
        };
        let [form, revision, forgotten, last_lease] = state;
        if form != FORM {
            return Err(MetaError::Damaged(format!(
                "its form is {form}, and this program knows form {FORM}"
            )));
        }
        if [revision, forgotten, last_lease].into_iter().max() > Some(COUNT_MAX) {
            return Err(MetaError::Damaged("a count is higher than any can be".into()));
        }
        let mut found = BTreeMap::new();
        let (from, before) = leases();
        rows.scan(&from, &before, &mut |key, row| {
            let [time] = numbers_of(row)?;
            let time = Nanos(time);
            found.insert(lease_of(key)?, Lease { time, ends_at: now + time });
            Ok(Go::On)
        })?;
        Ok(Self {
            revision: Revision(revision),
            forgotten: Revision(forgotten),
            last_lease: LeaseId(last_lease),
            leases: found,
            kept_max,
            is_counted: true,
        })
    }

    /// The last revision.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// When the next lease ends.
    pub(super) fn due(&self) -> Time {
        self.leases.values().map(|lease| lease.ends_at).min().unwrap_or(Time::NEVER)
    }

    /// Whether rows were changed since the last [`count`](Self::count).
    pub(super) fn is_changed(&self) -> bool {
        !self.is_counted
    }

    /// Writes down what it counts, at the end of a batch.
    pub(super) fn count(&mut self, rows: &mut impl Rows) -> Result<(), MetaError> {
        if mem::replace(&mut self.is_counted, true) {
            return Ok(());
        }
        let counts = [FORM, self.revision.0, self.forgotten.0, self.last_lease.0];
        rows.put(&state_key(), &numbers_row(&counts))
    }

    /// Carries an operation out. Watches are not its concern: see [`changes`](Self::changes).
    pub(super) fn run(
        &mut self,
        rows: &mut impl Rows,
        op: Op,
        now: Time,
    ) -> Result<Outcome, MetaError> {
        match op {
            Op::Get { key } => {
                validate_key(&key)?;
                entry(rows, &key).map(Outcome::Got)
            }
            Op::List { prefix, after, limit } => self.list(rows, &prefix, after.as_deref(), limit),
            Op::Commit(transaction) => self.commit(rows, transaction),
            Op::Grant { time } => self.grant(rows, time, now),
            Op::Keep(id) => {
                let lease = self.leases.get_mut(&id).ok_or(MetaError::NoLease(id))?;
                lease.ends_at = now + lease.time;
                Ok(Outcome::Kept)
            }
            Op::Revoke(id) => match self.leases.contains_key(&id) {
                true => self.end(rows, id).map(|()| Outcome::Revoked),
                false => Err(MetaError::NoLease(id)),
            },
            Op::Watch { .. } => Ok(Outcome::WatchEnded),
            Op::Unwatch(_) => Ok(Outcome::Unwatched),
        }
    }

    /// Ends the leases whose time is over.
    pub(super) fn expire(&mut self, rows: &mut impl Rows, now: Time) -> Result<(), MetaError> {
        let over = self.leases.iter().filter(|(_, lease)| lease.ends_at <= now);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(rows, id)?;
        }
        Ok(())
    }

    /// Changes of keys with a prefix behind a revision, those of a number of revisions, and up to
    /// which revision was looked.
    pub(super) fn changes(
        &self,
        rows: &impl Rows,
        prefix: &str,
        after: Revision,
        revisions_max: u64,
    ) -> Result<(Vec<Changed>, Revision), MetaError> {
        if after < self.forgotten {
            return Err(MetaError::Compacted(self.forgotten));
        }
        let last = Revision(after.0.saturating_add(revisions_max).min(self.revision.0));
        let mut found = Vec::new();
        let mut next = after.0;
        let (from, before) = (Revision(next + 1), Revision(last.0.saturating_add(1)));
        rows.scan(&history_key(from), &history_key(before), &mut |_, row| {
            next += 1;
            let mut changes = history_of(row)?;
            changes.retain(|change| change.key().starts_with(prefix));
            if !changes.is_empty() {
                found.push(Changed { revision: Revision(next), changes });
            }
            Ok(Go::On)
        })?;
        match next == last.0.max(after.0) {
            true => Ok((found, Revision(next))),
            false => Err(MetaError::Damaged("changes of a revision are missing".into())),
        }
    }

    fn list(
        &self,
        rows: &impl Rows,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Outcome, MetaError> {
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(MetaError::Invalid("a page of a list has 1 to 1000 entries"));
        }
        let from = after.map_or(Vec::new(), behind).max(entry_key(prefix));
        let (mut entries, mut is_cut) = (Vec::new(), false);
        rows.scan(&from, &after_prefix(prefix), &mut |key, row| {
            is_cut = entries.len() == limit;
            if is_cut {
                return Ok(Go::Enough);
            }
            entries.push(entry_of(key, row)?);
            Ok(Go::On)
        })?;
        Ok(Outcome::Listed { entries, is_cut, revision: self.revision })
    }

    fn commit(
        &mut self,
        rows: &mut impl Rows,
        transaction: Transaction,
    ) -> Result<Outcome, MetaError> {
        transaction.validate()?;
        let Transaction { checks, changes } = transaction;
        for check in checks {
            let found = entry(rows, &check.key)?.map(|entry| entry.changed);
            if !check.expect.holds(found) {
                return Ok(Outcome::Refused { key: check.key, found });
            }
        }
        for change in &changes {
            if let Change::Put { lease: Some(lease), .. } = change {
                self.leases.get(lease).ok_or(MetaError::NoLease(*lease))?;
            }
        }
        self.apply(rows, changes).map(Outcome::Committed)
    }

    fn grant(
        &mut self,
        rows: &mut impl Rows,
        time: Nanos,
        now: Time,
    ) -> Result<Outcome, MetaError> {
        if time == Nanos::ZERO || time > LEASE_MAX {
            return Err(MetaError::Invalid("a lease lasts for more than nothing, up to an hour"));
        }
        self.last_lease.0 += 1;
        self.is_counted = false;
        let id = self.last_lease;
        rows.put(&lease_key(id), &numbers_row(&[time.0]))?;
        self.leases.insert(id, Lease { time, ends_at: now + time });
        Ok(Outcome::Granted(id))
    }

    /// A lease ends, and its entries with it: at one revision, however many they are.
    fn end(&mut self, rows: &mut impl Rows, id: LeaseId) -> Result<(), MetaError> {
        let (mut changes, (from, before)) = (Vec::new(), leased(id));
        rows.scan(&from, &before, &mut |key, _| {
            changes.push(Change::Delete { key: leased_of(key)? });
            Ok(Go::On)
        })?;
        self.apply(rows, changes)?;
        rows.delete(&lease_key(id))?;
        self.leases.remove(&id);
        self.is_counted = false;
        Ok(())
    }

    /// Changes that are allowed, at the next revision; what changes nothing is left out.
    fn apply(&mut self, rows: &mut impl Rows, changes: Vec<Change>) -> Result<Revision, MetaError> {
        let revision = Revision(self.revision.0 + 1);
        let mut done = Vec::with_capacity(changes.len());
        for change in changes {
            if apply_one(rows, &change, revision)? {
                done.push(change);
            }
        }
        if done.is_empty() {
            return Ok(self.revision);
        }
        rows.put(&history_key(revision), &history_row(&done))?;
        self.revision = revision;
        self.is_counted = false;
        if let Some(old) = revision.0.checked_sub(self.kept_max).filter(|old| *old > 0) {
            rows.delete(&history_key(Revision(old)))?;
            self.forgotten = Revision(old);
        }
        Ok(revision)
    }
}

/// Changes one key; whether that changed anything.
fn apply_one(rows: &mut impl Rows, change: &Change, revision: Revision) -> Result<bool, MetaError> {
    let key = change.key();
    let before = entry(rows, key)?;
    if let Some(lease) = before.as_ref().and_then(|entry| entry.lease) {
        rows.delete(&leased_key(lease, key))?;
    }
    match change {
        Change::Put { value, lease, .. } => {
            let created = before.map_or(revision, |entry| entry.created);
            let (value, lease) = (value.clone(), *lease);
            let entry = Entry { key: key.into(), value, created, changed: revision, lease };
            rows.put(&entry_key(key), &entry_row(&entry))?;
            if let Some(lease) = lease {
                rows.put(&leased_key(lease, key), &[])?;
            }
            Ok(true)
        }
        Change::Delete { .. } => {
            rows.delete(&entry_key(key))?;
            Ok(before.is_some())
        }
    }
}

fn entry(rows: &impl Rows, key: &str) -> Result<Option<Entry>, MetaError> {
    let row_key = entry_key(key);
    rows.get(&row_key)?.map(|row| entry_of(&row_key, &row)).transpose()
}

#[cfg(test)]
mod tests {
    use towpath_base::Prng;

    use super::super::rows::MemoryRows;
    use super::*;

    /// A store with entries, leases and changes.
    fn filled() -> MemoryRows {
        let mut rows = MemoryRows::default();
        let mut engine = Engine::open(&mut rows, 5, Time::ZERO).expect("a new one");
        let mut run = |op| engine.run(&mut rows, op, Time::ZERO).expect("it is done");
        let Outcome::Granted(lease) = run(Op::Grant { time: Nanos::from_secs(1) }) else {
            panic!("no lease")
        };
        for number in 0..8 {
            let key = format!("a{}", number % 3);
            let transaction = Transaction::new().put(&*key, "value").delete("b");
            run(Op::Commit(match number % 2 {
                0 => transaction.put_leased("b1", "", lease),
                _ => transaction.delete("b1"),
            }));
        }
        engine.count(&mut rows).expect("counted");
        rows
    }

    /// Does all that can be done; the first error that says that something is damaged.
    fn used(rows: &mut MemoryRows) -> Result<(), MetaError> {
        let mut engine = Engine::open(rows, 5, Time::ZERO)?;
        let list = Op::List { prefix: "a".into(), after: None, limit: 9 };
        for op in [Op::Get { key: "a1".into() }, list, Op::Revoke(LeaseId(1))] {
            match engine.run(rows, op, Time::ZERO) {
                Ok(_) | Err(MetaError::NoLease(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for after in 0..=engine.revision().0.min(20) {
            match engine.changes(rows, "", Revision(after), 3) {
                Ok(_) | Err(MetaError::Compacted(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let all = (0..3).fold(Transaction::new(), |all, n| all.put(format!("a{n}"), "new"));
        engine.run(rows, Op::Commit(all), Time::ZERO)?;
        engine.expire(rows, Time(u64::MAX - 1))?;
        engine.count(rows)
    }

    #[test]
    fn damaged_rows_are_an_error_and_no_panic() {
        assert_eq!(used(&mut filled()), Ok(()));
        let mut damaged = 0;
        for seed in 0..2_000 {
            let mut prng = Prng::new(seed);
            let mut rows = filled();
            let keys = rows.keys();
            let key = &keys[prng.below(keys.len() as u64) as usize];
            let mut row = rows.get(key).expect("memory").expect("it is there");
            match prng.below(3) {
                0 => row.truncate(prng.below(row.len().max(1) as u64) as usize),
                1 => row.extend([0xff; 9]),
                _ => row.iter_mut().for_each(|byte| *byte ^= (prng.next_u32() & 0xff) as u8),
            }
            rows.put(key, &row).expect("memory");
            match used(&mut rows) {
                Ok(()) => {}
                Err(MetaError::Damaged(_)) => damaged += 1,
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(damaged > 500, "{damaged} of 2,000 were noticed");
    }
}
