//! One-sided operations over handles.

use crate::rig::{Lab, NOW, finish, lab};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use towpath_handle::{GrantChange, OpDone, OpTicket, WaitError};
use towpath_proto::{DownReason, Grant, OpError, OpOutcome, Rights};
use towpath_transport::{LaneError, OpOptions, SharedMemory};

/// Memory of the far end that the near end may reach.
pub(crate) fn share(lab: &mut Lab, rights: Rights) -> (SharedMemory, Grant) {
    let memory = SharedMemory::new(4096).expect("memory for a test");
    let link = lab.far.link.clone();
    let id = finish(lab, link.grant_async(&memory, memory.whole(), rights)).expect("room");
    lab.run();
    match lab.near.link.recv_grant(NOW) {
        Ok(GrantChange::Granted(grant)) if grant.id == id => (memory, grant),
        other => panic!("a grant was due, not {other:?}"),
    }
}

fn done(lab: &mut Lab, ticket: &OpTicket) -> OpDone {
    assert!(ticket.wait(NOW).is_none(), "nobody has had a turn");
    lab.run();
    ticket.wait(NOW).expect("it has ended")
}

#[test]
fn a_handle_reads_writes_and_counts_in_the_memory_of_its_peer() {
    let mut lab = lab();
    let (memory, grant) = share(&mut lab, Rights::ALL);
    let (link, options) = (lab.near.link.clone(), OpOptions::new());
    let buf = lab.near.handle.copy(b"sixteen bytes...").expect("a buffer");
    let ticket = link.write(grant.id, 64, buf, options.token(1));
    let wrote = done(&mut lab, &ticket);
    assert_eq!((wrote.token, wrote.outcome), (1, Ok(OpOutcome::Executed)));
    assert_eq!(wrote.buf.as_deref(), Some(&b"sixteen bytes..."[..]));
    assert!(ticket.wait(NOW).is_none(), "an outcome is given out once");
    let buf = lab.near.handle.alloc(16).expect("a buffer");
    let ticket = link.read(grant.id, 72, 5, buf, options);
    let read = done(&mut lab, &ticket);
    assert_eq!(read.outcome, Ok(OpOutcome::Executed));
    assert_eq!(read.buf.as_deref(), Some(&b"bytes"[..]));
    let words = [
        (link.write_word(grant.id, 8, 40, options), Some(40)),
        (link.fetch_add(grant.id, 8, 2, options), Some(40)),
        (link.cmp_swap(grant.id, 8, (42, 7), options), Some(42)),
    ];
    lab.run();
    for (ticket, was) in words {
        let done = ticket.wait(NOW).expect("it has ended");
        assert_eq!((done.outcome, done.word), (Ok(OpOutcome::Executed), was));
    }
    assert_eq!(memory.word(8).expect("aligned").load(Ordering::SeqCst), 7);
    let counted = finish(&mut lab, link.fetch_add(grant.id, 8, 1, options));
    assert_eq!((counted.outcome, counted.word), (Ok(OpOutcome::Executed), Some(7)));
}

#[test]
fn operations_beyond_the_depth_end_at_once_and_give_their_buffers_back() {
    let mut lab = lab();
    let (memory, grant) = share(&mut lab, Rights::ALL);
    let link = lab.near.link.clone();
    let add = || link.fetch_add(grant.id, 0, 1, OpOptions::new());
    let tickets: Vec<_> = (0..2000).map(|_| add()).collect();
    let buf = lab.near.handle.alloc(16).expect("a buffer");
    let read = link.read(grant.id, 0, 8, buf, OpOptions::new()).wait(NOW).expect("at once");
    assert_eq!(read.outcome, Err(LaneError::Op(OpError::Full { max: 1024 })));
    assert!(read.buf.is_some());
    lab.run();
    let outcomes: Vec<_> =
        tickets.iter().map(|t| t.wait(NOW).expect("it has ended").outcome).collect();
    let count = |outcome| outcomes.iter().filter(|&&o| o == outcome).count();
    let executed = count(Ok(OpOutcome::Executed));
    assert_eq!(count(Err(LaneError::Op(OpError::Full { max: 1024 }))), 2000 - 1024);
    let full = count(Err(LaneError::Op(OpError::Full { max: 256 })));
    assert!(executed >= 256 && full > 0 && executed + full == 1024, "{executed} and {full}");
    let word = memory.word(0).expect("aligned").load(Ordering::SeqCst);
    assert_eq!(word, executed as u64, "what was refused has not happened");
}

#[test]
fn what_is_revoked_is_told_once_and_not_at_all_if_nobody_knew_of_it() {
    let mut lab = lab();
    let (memory, known) = share(&mut lab, Rights::READ);
    let (near, far) = (lab.near.link.clone(), lab.far.link.clone());
    for _ in 0..50 {
        let granted = far.grant_async(&memory, 0..64, Rights::ALL);
        let id = finish(&mut lab, granted).expect("room");
        lab.run();
        assert!(finish(&mut lab, far.revoke_async(id)));
        assert!(!finish(&mut lab, far.revoke_async(id)), "once");
    }
    assert!(finish(&mut lab, far.revoke_async(known.id)));
    let told = finish(&mut lab, near.recv_grant_async());
    assert_eq!(told, Ok(GrantChange::Revoked(known.id)));
    assert_eq!(near.recv_grant(NOW), Err(WaitError::Timeout));
    let late = near.fetch_add(known.id, 0, 1, OpOptions::new());
    let late = done(&mut lab, &late);
    assert_eq!(late.outcome, Err(LaneError::Op(OpError::NoSuchGrant)));
    far.close();
    let told = finish(&mut lab, near.recv_grant_async());
    assert_eq!(told, Err(WaitError::Down(DownReason::Goodbye)));
}

#[test]
fn operations_of_a_worker_that_is_gone_have_an_outcome_each() {
    let mut lab = lab();
    let (_memory, grant) = share(&mut lab, Rights::ALL);
    let link = lab.near.link.clone();
    let posted = link.fetch_add(grant.id, 0, 1, OpOptions::new().token(1));
    while lab.near.worker.turn() {}
    let buf = lab.near.handle.alloc(16).expect("a buffer");
    let asked = link.read(grant.id, 0, 8, buf, OpOptions::new().token(2));
    drop(lab.near.worker);
    let posted = posted.wait(NOW).expect("an outcome");
    assert_eq!((posted.token, posted.outcome), (1, Ok(OpOutcome::Unknown)));
    let asked = asked.wait(NOW).expect("an outcome");
    assert_eq!((asked.token, asked.outcome), (2, Err(LaneError::ShutDown)));
    assert!(asked.buf.is_some());
    let buf = lab.near.handle.alloc(16).expect("a buffer");
    let late = link.write(grant.id, 0, buf, OpOptions::new().token(3));
    let late = late.wait(NOW).expect("an outcome");
    assert_eq!((late.token, late.outcome), (3, Err(LaneError::ShutDown)));
    assert!(late.buf.is_some());
}

#[test]
fn what_a_worker_had_that_panics_may_have_happened() {
    let mut lab = lab();
    let (_memory, grant) = share(&mut lab, Rights::ALL);
    let posted = lab.near.link.fetch_add(grant.id, 0, 1, OpOptions::new().token(1));
    while lab.near.worker.turn() {}
    let near = lab.near.worker;
    let dying = AssertUnwindSafe(|| {
        let _near = near;
        resume_unwind(Box::new("on purpose"));
    });
    catch_unwind(dying).expect_err("it dies");
    let posted = posted.wait(NOW).expect("an outcome");
    assert_eq!((posted.token, posted.outcome), (1, Ok(OpOutcome::Unknown)));
}
