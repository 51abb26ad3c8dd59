//! What every store promises. It is empty, nobody else changes it, and it keeps the changes of
//! [`KEPT_MAX`] revisions at least.

use std::collections::{BTreeMap, BTreeSet};

use super::Asker;
use towpath_base::{Nanos, Prng};
use towpath_cluster::meta::{
    Change, Changed, Entry, Expect, KEY_BYTES_MAX, LeaseId, Meta, MetaError, Op, Outcome, PAGE_MAX,
    PARTS_MAX, Revision, Transaction, VALUE_BYTES_MAX,
};

/// Revisions whose changes the stores of these tests keep.
pub const KEPT_MAX: u64 = 40;

pub fn a_transaction_is_done_whole_or_refused(store: &mut Asker<impl Meta>) {
    let both = || Transaction::new().put("a", "1").put("b", "1");
    let first = store.commit(both().check("a", Expect::Absent)).expect("there is none");
    let again = store.commit(both().check("b", Expect::Present).check("a", Expect::Absent));
    assert_eq!(again, Err(("a".into(), Some(first))));
    let later = store.commit(both().check("a", Expect::ChangedAt(first))).expect("as it was");
    assert_eq!(later, Revision(first.0 + 1));
    let stale = store.commit(both().check("b", Expect::ChangedAt(first)));
    assert_eq!(stale, Err(("b".into(), Some(later))));
    let none = store.commit(Transaction::new().put("c", "").check("d", Expect::Present));
    assert_eq!(none, Err(("d".into(), None)));
    assert_eq!(store.get("c"), None);
    assert_eq!(store.commit(Transaction::new()), Ok(later));
}

pub fn an_entry_says_when_it_was_made_and_changed(store: &mut Asker<impl Meta>) {
    let first = store.put("a", "1");
    let second = store.put("a", "2");
    let found = store.get("a").expect("it is there");
    let wanted =
        Entry { key: "a".into(), value: b"2".into(), created: first, changed: second, lease: None };
    assert_eq!(found, wanted);
    store.commit(Transaction::new().delete("a")).expect("it checks nothing");
    // Where nothing is deleted, nothing changes.
    let last = store.commit(Transaction::new().delete("a")).expect("it checks nothing");
    let third = store.put("a", "3");
    assert_eq!(third, Revision(last.0 + 1));
    assert_eq!(store.get("a").expect("it is there").created, third);
}

pub fn what_no_store_takes_is_refused(store: &mut Asker<impl Meta>) {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let many = (0..=PARTS_MAX).fold(Transaction::new(), |all, n| all.put(format!("{n}"), ""));
    let large = (0..PARTS_MAX)
        .fold(Transaction::new(), |all, n| all.put(format!("{n}"), vec![0; VALUE_BYTES_MAX]));
    for transaction in [
        Transaction::new().put("", ""),
        Transaction::new().put(&*long, ""),
        Transaction::new().check(&*long, Expect::Absent),
        Transaction::new().put("a", vec![0; VALUE_BYTES_MAX + 1]),
        Transaction::new().put("a", "").delete("a"),
        many,
        large,
    ] {
        let refused = store.ask(Op::Commit(transaction));
        assert!(matches!(refused, Err(MetaError::Invalid(_))), "{refused:?}");
    }
    let none = Transaction::new().put_leased("a", "", LeaseId(77));
    assert_eq!(store.ask(Op::Commit(none)), Err(MetaError::NoLease(LeaseId(77))));
    assert_eq!(store.ask(Op::Keep(LeaseId(77))), Err(MetaError::NoLease(LeaseId(77))));
    assert_eq!(store.ask(Op::Revoke(LeaseId(77))), Err(MetaError::NoLease(LeaseId(77))));
    for time in [Nanos::ZERO, Nanos(u64::MAX)] {
        let refused = store.ask(Op::Grant { time });
        assert!(matches!(refused, Err(MetaError::Invalid(_))), "{refused:?}");
    }
    for limit in [0, PAGE_MAX + 1] {
        let refused = store.ask(Op::List { prefix: String::new(), after: None, limit });
        assert!(matches!(refused, Err(MetaError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(store.list("", None, 10), (Vec::new(), false));
}

pub fn a_list_comes_in_pages_and_in_order(store: &mut Asker<impl Meta>) {
    let keys = ["a", "a/", "a/b", "a/b\0", "a/\u{10ffff}", "a0", "b"];
    for key in keys.into_iter().rev() {
        store.put(key, key);
    }
    let names = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.key).collect();
    let all: Vec<String> = names(store.list("", None, 10).0);
    assert_eq!(all, keys);
    let below: Vec<String> = names(store.list("a/", None, 10).0);
    assert_eq!(below, keys[1..5]);
    let (mut paged, mut after): (Vec<String>, _) = (Vec::new(), None);
    loop {
        let (page, is_cut) = store.list("a", after.as_deref(), 2);
        paged.extend(names(page));
        after = paged.last().cloned();
        if !is_cut {
            break;
        }
    }
    assert_eq!(paged, keys[..6]);
    assert_eq!(store.list("a/", Some("b"), 10), (Vec::new(), false));
    let before: Vec<String> = names(store.list("a/b", Some("a"), 10).0);
    assert_eq!(before, keys[2..4]);
}

pub fn a_watch_is_told_all_that_changes_under_its_prefix(store: &mut Asker<impl Meta>) {
    let after = store.put("a/0", "before");
    store.put("b/0", "before");
    let watch = store.start(Op::Watch { prefix: "a/".into(), after });
    let put =
        |key: &str, value: &str| Change::Put { key: key.into(), value: value.into(), lease: None };
    let both = Transaction::new().put("a/1", "1").put("b/1", "1").delete("a/0").delete("a/2");
    let both = store.commit(both).expect("it checks nothing");
    store.put("b/2", "none of its");
    let last = store.put("a/1", "2");
    let told = store.next_changed(watch).expect("it goes on");
    let changes = vec![put("a/1", "1"), Change::Delete { key: "a/0".into() }];
    assert_eq!(told, Changed { revision: both, changes });
    let told = store.next_changed(watch).expect("it goes on");
    assert_eq!(told, Changed { revision: last, changes: vec![put("a/1", "2")] });
    assert_eq!(store.ask(Op::Unwatch(watch)), Ok(Outcome::Unwatched));
    assert_eq!(store.next_changed(watch), Err(Ok(Outcome::WatchEnded)));
    store.put("a/1", "3");
    assert_eq!(store.ask(Op::Unwatch(watch)), Ok(Outcome::Unwatched));
    assert!(store.told.is_empty(), "{:?}", store.told);
}

pub fn a_watch_goes_on_from_a_revision_and_ends_where_changes_are_forgotten(
    store: &mut Asker<impl Meta>,
) {
    let first = store.put("a", "0");
    for number in 1..KEPT_MAX {
        store.put("a", &number.to_string());
    }
    let from = |after| Op::Watch { prefix: "a".into(), after };
    // All that is kept, from the first change on.
    let watch = store.start(from(Revision(first.0 - 1)));
    for number in 0..KEPT_MAX {
        let told = store.next_changed(watch).expect("all are kept");
        assert_eq!(told.revision, Revision(first.0 + number));
    }
    store.put("a", "one more than is kept");
    assert!(store.next_changed(watch).is_ok(), "who has seen all is told the next");
    let late = store.start(from(Revision(first.0 - 1)));
    assert_eq!(store.next_changed(late), Err(Err(MetaError::Compacted(first))));
    let watch = store.start(from(first));
    let told = store.next_changed(watch).expect("that is kept");
    assert_eq!(told.revision, Revision(first.0 + 1));
}

pub fn entries_end_with_their_lease(store: &mut Asker<impl Meta>) {
    let (short, long) = (store.grant(Nanos::from_secs(3)), store.grant(Nanos::from_secs(600)));
    let leased = Transaction::new().put_leased("a/1", "", short).put_leased("a/2", "", short);
    let leased = leased.put_leased("a/3", "", short).put_leased("a/4", "", long);
    let seen = store.commit(leased).expect("it checks nothing");
    let watch = store.start(Op::Watch { prefix: "a/".into(), after: seen });
    // One of them is no lease's any more, another one has another.
    let freed = Transaction::new().put("a/2", "kept").put_leased("a/3", "kept", long);
    store.commit(freed).expect("it checks nothing");
    store.wait_until_gone("a/1");
    let keys = |changed: Changed| -> BTreeSet<String> {
        changed.changes.iter().map(|change| change.key().to_owned()).collect()
    };
    store.next_changed(watch).expect("it goes on");
    let ended = keys(store.next_changed(watch).expect("it goes on"));
    assert_eq!(ended, BTreeSet::from(["a/1".to_owned()]));
    assert_eq!(store.ask(Op::Keep(short)), Err(MetaError::NoLease(short)));
    assert_eq!(store.get("a/3").expect("it is there").lease, Some(long));
    assert_eq!(store.ask(Op::Revoke(long)), Ok(Outcome::Revoked));
    let ended = keys(store.next_changed(watch).expect("it goes on"));
    assert_eq!(ended, BTreeSet::from(["a/3".to_owned(), "a/4".to_owned()]), "at one revision");
    let left: Vec<String> =
        store.list("a/", None, 9).0.into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["a/2"]);
}

pub fn a_lease_that_is_kept_does_not_end(store: &mut Asker<impl Meta>) {
    // One ends after it was kept no more, and not sooner than the other, which never was.
    let (kept, left) = (store.grant(Nanos::from_secs(4)), store.grant(Nanos::from_secs(4)));
    let both = Transaction::new().put_leased("kept", "", kept).put_leased("left", "", left);
    store.commit(both).expect("it checks nothing");
    while store.get("left").is_some() {
        assert_eq!(store.ask(Op::Keep(kept)), Ok(Outcome::Kept));
        (store.pass)(&mut store.now);
    }
    assert!(store.get("kept").is_some());
    store.wait_until_gone("kept");
}

/// What a store has, kept in the plainest way.
struct Model {
    revision: u64,
    entries: BTreeMap<String, (Vec<u8>, u64, u64)>,
}

impl Model {
    fn commit(&mut self, transaction: &Transaction) -> Outcome {
        for check in transaction.checks() {
            let found = self.entries.get(&check.key).map(|(.., changed)| Revision(*changed));
            if !check.expect.holds(found) {
                return Outcome::Refused { key: check.key.clone(), found };
            }
        }
        let next = self.revision + 1;
        for change in transaction.changes() {
            match change {
                Change::Put { key, value, .. } => {
                    let created = self.entries.get(key).map_or(next, |(_, created, _)| *created);
                    self.entries.insert(key.clone(), (value.clone(), created, next));
                    self.revision = next;
                }
                Change::Delete { key } if self.entries.remove(key).is_some() => {
                    self.revision = next;
                }
                Change::Delete { .. } => {}
            }
        }
        Outcome::Committed(Revision(self.revision))
    }
}

fn drawn_transaction(prng: &mut Prng, revision: u64) -> Transaction {
    let mut keys: Vec<u64> = (0..6).filter(|_| prng.chance(0.4)).collect();
    let mut transaction = Transaction::new();
    for _ in 0..prng.below(3) {
        let expect = match prng.below(4) {
            0 => Expect::Absent,
            1 => Expect::Present,
            _ => Expect::ChangedAt(Revision(revision.saturating_sub(prng.below(4)))),
        };
        transaction = transaction.check(format!("k{}", prng.below(6)), expect);
    }
    while let Some(key) = keys.pop() {
        transaction = match prng.chance(0.3) {
            true => transaction.delete(format!("k{key}")),
            false => transaction.put(format!("k{key}"), format!("{}", prng.next_u32())),
        };
    }
    transaction
}

pub fn histories_agree_with_a_model(store: &mut Asker<impl Meta>) {
    let begun = store.commit(Transaction::new()).expect("it checks nothing");
    let mut prng = Prng::new(7);
    let mut model = Model { revision: begun.0, entries: BTreeMap::new() };
    let mut committed = 0;
    for round in 0..400 {
        let transaction = drawn_transaction(&mut prng, model.revision);
        let wanted = model.commit(&transaction);
        committed += u32::from(matches!(wanted, Outcome::Committed(_)));
        assert_eq!(store.ask(Op::Commit(transaction)), Ok(wanted), "round {round}");
        let found = store.list("", None, 10).0;
        let found: BTreeMap<String, _> = found
            .into_iter()
            .map(|entry| (entry.key, (entry.value, entry.created.0, entry.changed.0)))
            .collect();
        assert_eq!(found, model.entries, "round {round}");
    }
    assert!((100..350).contains(&committed), "{committed} of 400 were committed");
}
