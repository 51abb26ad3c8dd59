//! A client of a map that waits for what it asks, and what every store of a map promises it.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod promises;

use std::thread;
use std::time::Duration;

use towpath_base::{Nanos, Time};
use towpath_cluster::meta::{
    Changed, Entry, LeaseId, Meta, MetaError, Op, Outcome, Report, Revision, Tag, Transaction,
};

/// A client that waits for what it asks.
pub struct Asker<M> {
    pub meta: M,
    pub last: Tag,
    /// What was told of watches meanwhile.
    pub told: Vec<Report>,
    pub pass: fn(&mut Time),
    pub now: Time,
}

impl<M: Meta> Asker<M> {
    pub fn ask(&mut self, op: Op) -> Result<Outcome, MetaError> {
        let tag = self.start(op);
        loop {
            match self.next() {
                Report::Done { tag: done, result } if done == tag => return result,
                other => self.told.push(other),
            }
        }
    }

    pub fn start(&mut self, op: Op) -> Tag {
        self.last += 1;
        self.meta.submit(self.last, op, self.now);
        self.last
    }

    pub fn next(&mut self) -> Report {
        for _ in 0..60_000 {
            if let Some(report) = self.meta.poll(self.now) {
                return report;
            }
            (self.pass)(&mut self.now);
        }
        panic!("nothing is reported for a minute");
    }

    /// What a watch is told next.
    pub fn next_changed(&mut self, watch: Tag) -> Result<Changed, Result<Outcome, MetaError>> {
        let is_its = |report: &Report| match report {
            Report::Done { tag, .. } | Report::Changed { tag, .. } => *tag == watch,
        };
        loop {
            let kept = self.told.iter().position(is_its).map(|at| self.told.remove(at));
            match kept.unwrap_or_else(|| self.next()) {
                Report::Changed { tag, changed } if tag == watch => return Ok(changed),
                Report::Done { tag, result } if tag == watch => return Err(result),
                other => self.told.push(other),
            }
        }
    }

    pub fn get(&mut self, key: &str) -> Option<Entry> {
        match self.ask(Op::Get { key: key.into() }) {
            Ok(Outcome::Got(entry)) => entry,
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&mut self, prefix: &str, after: Option<&str>, limit: usize) -> (Vec<Entry>, bool) {
        let (prefix, after) = (prefix.into(), after.map(Into::into));
        match self.ask(Op::List { prefix, after, limit }) {
            Ok(Outcome::Listed { entries, is_cut, .. }) => (entries, is_cut),
            other => panic!("{other:?}"),
        }
    }

    pub fn commit(
        &mut self,
        transaction: Transaction,
    ) -> Result<Revision, (String, Option<Revision>)> {
        match self.ask(Op::Commit(transaction)) {
            Ok(Outcome::Committed(revision)) => Ok(revision),
            Ok(Outcome::Refused { key, found }) => Err((key, found)),
            other => panic!("{other:?}"),
        }
    }

    pub fn put(&mut self, key: &str, value: &str) -> Revision {
        self.commit(Transaction::new().put(key, value)).expect("it checks nothing")
    }

    pub fn grant(&mut self, time: Nanos) -> LeaseId {
        match self.ask(Op::Grant { time }) {
            Ok(Outcome::Granted(lease)) => lease,
            other => panic!("{other:?}"),
        }
    }

    /// Until there is no such entry any more.
    pub fn wait_until_gone(&mut self, key: &str) {
        for _ in 0..60_000 {
            if self.get(key).is_none() {
                return;
            }
            (self.pass)(&mut self.now);
        }
        panic!("{key} is there for a minute");
    }
}

pub fn asker<M: Meta>(meta: M, pass: fn(&mut Time)) -> Asker<M> {
    Asker { meta, last: 0, told: Vec::new(), pass, now: Time::ZERO }
}

pub fn virtual_time(now: &mut Time) {
    *now += Nanos::from_millis(1);
}

pub fn real_time(_: &mut Time) {
    thread::sleep(Duration::from_millis(1));
}
