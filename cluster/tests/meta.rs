//! Each store of a map keeps the same promises.

mod common;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use common::promises::{self, KEPT_MAX};
use common::{Asker, asker, real_time, virtual_time};
use towpath_base::Nanos;
use towpath_cluster::meta::redb::{RedbClient, RedbFile};
use towpath_cluster::meta::sim::{SimClient, SimFaults, SimStore};
use towpath_cluster::meta::{Expect, Meta, MetaError, Op, Outcome, Revision, Transaction};

fn simulated() -> Asker<SimClient> {
    let faults = SimFaults { kept_max: KEPT_MAX, ..SimFaults::NONE };
    asker(SimStore::new(1, faults).client(), virtual_time)
}

struct InFile {
    asker: Asker<RedbClient>,
    _folder: tempfile::TempDir,
}

fn in_file() -> InFile {
    let folder = tempfile::tempdir().expect("room for a folder");
    let file = RedbFile::open_keeping(&folder.path().join("map"), KEPT_MAX).expect("a new file");
    InFile { asker: asker(file.client(), real_time), _folder: folder }
}

/// A test of what each store promises.
macro_rules! each_store {
    ($($name:ident)*) => {
        mod simulated {
            $(#[test] fn $name() { super::promises::$name(&mut super::simulated()); })*
        }
        mod in_file {
            $(#[test] fn $name() { super::promises::$name(&mut super::in_file().asker); })*
        }
    };
}

each_store! {
    a_transaction_is_done_whole_or_refused
    an_entry_says_when_it_was_made_and_changed
    what_no_store_takes_is_refused
    a_list_comes_in_pages_and_in_order
    a_watch_is_told_all_that_changes_under_its_prefix
    a_watch_goes_on_from_a_revision_and_ends_where_changes_are_forgotten
    entries_end_with_their_lease
    a_lease_that_is_kept_does_not_end
    histories_agree_with_a_model
}

#[test]
fn a_file_keeps_what_was_committed() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let path = folder.path().join("map");
    let (lease, last) = {
        let mut store = asker(RedbFile::open(&path).expect("a new file").client(), real_time);
        let lease = store.grant(Nanos::from_secs(600));
        store.put("a", "1");
        let leased = Transaction::new().put_leased("b", "2", lease);
        (lease, store.commit(leased).expect("it checks nothing"))
    };
    // The thread of the file ends after its last client.
    let file = (0..).find_map(|turn: u32| {
        assert!(turn < 60_000, "the file stays open for a minute");
        thread::sleep(Duration::from_millis(1));
        RedbFile::open(&path).ok()
    });
    let file = file.expect("a file");
    let mut store = asker(file.client(), real_time);
    assert_eq!(store.get("a").expect("it is there").value, b"1");
    let (found, _) = store.list("b", None, 1);
    assert_eq!((found[0].lease, found[0].changed), (Some(lease), last));
    assert_eq!(store.ask(Op::Keep(lease)), Ok(Outcome::Kept));
    let watch = store.start(Op::Watch { prefix: "b".into(), after: Revision(0) });
    assert_eq!(store.next_changed(watch).expect("changes are kept").revision, last);
    assert!(store.grant(Nanos::from_secs(1)) > lease, "no two leases have one name");
    let second = RedbFile::open(&path);
    assert!(matches!(second, Err(MetaError::Unavailable(_))), "{second:?}");
}

#[test]
fn a_file_that_is_no_map_is_refused() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let path = folder.path().join("map");
    for bytes in [&b"no map"[..], &[0; 8_192], &[0xff; 100_000]] {
        std::fs::write(&path, bytes).expect("written");
        let refused = RedbFile::open(&path);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(std::fs::read(&path).expect("read"), bytes, "it is left as it was");
    }
    assert!(RedbFile::open(&folder.path().join("none/map")).is_err());
}

/// Adds one to a number, again and again until it is known to have been added.
fn add_one(store: &mut Asker<impl Meta>, key: &str) -> Revision {
    loop {
        let before = store.get(key);
        let number: u64 = before.as_ref().map_or(0, |entry| {
            std::str::from_utf8(&entry.value).expect("text").parse().expect("a number")
        });
        let expect = before.map_or(Expect::Absent, |entry| Expect::ChangedAt(entry.changed));
        let one_more = Transaction::new().check(key, expect).put(key, (number + 1).to_string());
        if let Ok(revision) = store.commit(one_more) {
            return revision;
        }
    }
}

#[test]
fn clients_of_a_file_lose_no_change_of_each_other() {
    const CLIENTS: usize = 4;
    const CHANGES: usize = 50;
    let folder = tempfile::tempdir().expect("room for a folder");
    let file = RedbFile::open(&folder.path().join("map")).expect("a new file");
    let revisions: Vec<Revision> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut store = asker(file.client(), real_time);
                scope.spawn(move || -> Vec<Revision> {
                    (0..CHANGES).map(|_| add_one(&mut store, "number")).collect()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    });
    let distinct: BTreeSet<Revision> = revisions.into_iter().collect();
    assert_eq!(distinct.len(), CLIENTS * CHANGES, "each has a revision of its own");
    let mut store = asker(file.client(), real_time);
    let number = store.get("number").expect("it is there").value;
    assert_eq!(number, (CLIENTS * CHANGES).to_string().into_bytes());
}
