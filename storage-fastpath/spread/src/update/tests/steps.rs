//! Single steps that others have left half-way, and what becomes of them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use towpath_ec::ShardSet;
use towpath_fastpath::{ErrorKind, Fate};

use super::super::change::Failed;
use super::super::heads::{File, Head, State, Stop, Who};
use super::super::pieces::{Piece, pieces};
use super::super::record::{Record, Stage};
use super::history::{Nobody, layout_of, store};
use super::world::{Shared, Way, World};
use crate::error::PartError;
use crate::layout::Layout;

/// A file under `rs:2+2`, in a world where nothing is lost.
fn stored(seed: u64) -> (Way, Layout) {
    println!("seed {seed}");
    let mut layout = layout_of("rs:2+2".parse().expect("a policy"), 30_000);
    let world = Rc::new(RefCell::new(World::new(seed, layout.nodes.len())));
    world.borrow_mut().is_calm = true;
    store(&world, &mut layout);
    (Way { world, asker: 0, is_sure: true, may_only_read: false }, layout)
}

fn until_done<F: Future>(world: &Shared, future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Nobody));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let woken = world.borrow_mut().step(u64::MAX);
        assert!(woken.is_some(), "nothing is to come");
    }
}

fn piece(layout: &Layout) -> Piece {
    pieces(layout, 100, 50, 1 << 20).into_iter().next().expect("a piece")
}

/// The intent of a change of the first part, remembered by all, and of which so many parts have
/// been changed when its writer dies.
async fn leave(file: &File<'_>, layout: &Layout, made: usize) -> Result<Record, Failed> {
    let state = file.settle(Who::Writer, None).await?;
    let (intent, body) = file.intent(&state, &piece(layout), &[7; 50]).await?;
    for (part, head) in &state.look {
        let head = head.as_ref().expect("all are there");
        let put = file.put((*part, head), &intent, &body).await;
        put.map_err(|error| Stop::Part(*part, error))?;
    }
    let Stage::Intent { parts, .. } = intent.stage else { panic!("{intent:?}") };
    let some: ShardSet = parts.iter().take(made).collect();
    for (part, made) in file.make(some, parts, &intent, &body).await {
        made.map_err(|error| Stop::Part(part, error))?;
    }
    Ok(intent)
}

#[test]
fn a_part_that_somebody_else_has_written_to_is_lost_to_a_change_and_the_others_make_it() {
    let (way, layout) = stored(80);
    let file = File::new(&way, &layout);
    until_done(&way.world, async {
        leave(&file, &layout, 0).await.expect("it is left");
        way.world.borrow_mut().spoil(0, layout.nodes[0].chunk);
        for who in [Who::Reader, Who::Repairer] {
            let state = file.settle_and_tell(who).await.expect("three are enough");
            let known: Vec<bool> = state.versions.iter().map(Option::is_some).collect();
            assert_eq!((state.number, known), (1, vec![false, true, true, true]), "{who:?}");
            if who == Who::Repairer {
                file.close(&state).await.expect("nobody has changed it since");
            }
        }
    });
}

#[test]
fn a_repair_that_finishes_what_somebody_has_left_closes_the_file_at_once() {
    for made in 0..4 {
        let (way, layout) = stored(81);
        let file = File::new(&way, &layout);
        until_done(&way.world, async {
            leave(&file, &layout, made).await.expect("it is left");
            let state = file.settle_and_tell(Who::Repairer).await.expect("all are there");
            file.close(&state).await.expect("nobody has changed it since");
        });
    }
}

/// An intent that some of those who remember changes have, and whose writer dies then.
async fn begin(file: &File<'_>, layout: &Layout, state: &State, some: &[usize]) {
    let (intent, body) = file.intent(state, &piece(layout), &[7; 50]).await.expect("it is read");
    for (part, head) in state.look.iter().filter(|(part, _)| some.contains(part)) {
        let head = head.as_ref().expect("all are there");
        file.put((*part, head), &intent, &body).await.expect("nobody was there");
    }
}

/// Whether the record of each who remembers changes closes the file.
async fn closed(file: &File<'_>) -> Vec<bool> {
    let is_closed = |(_, head): (usize, Result<Head, PartError>)| {
        let record = head.expect("all are there").record;
        record.is_some_and(|record| record.stage == Stage::Closed)
    };
    file.look().await.into_iter().map(is_closed).collect()
}

#[test]
fn a_repair_that_comes_after_a_change_at_the_first_server_closes_nothing() {
    let (way, layout) = stored(84);
    let file = File::new(&way, &layout);
    until_done(&way.world, async {
        let state = file.settle_and_tell(Who::Repairer).await.expect("all are there");
        begin(&file, &layout, &state, &[1]).await;
        let refused = file.close(&state).await;
        assert!(matches!(refused, Err(Stop::Met(1, _))), "{refused:?}");
        assert_eq!(closed(&file).await, [false; 3]);
        let state = file.settle(Who::Writer, None).await.expect("all are there");
        assert_eq!((state.number, state.is_closed), (1, false));
    });
}

#[test]
fn a_repair_that_misses_the_first_server_closes_all_others_or_none() {
    for (has, expected) in [([1, 2], [false; 3]), ([1, 3], [false, true, true])] {
        let (way, layout) = stored(85);
        let file = File::new(&way, &layout);
        until_done(&way.world, async {
            let before = file.settle(Who::Writer, None).await.expect("all are there");
            let mut state = file.settle_and_tell(Who::Repairer).await.expect("all are there");
            state.look[0].1 = Err(PartError::Gone);
            begin(&file, &layout, &before, &has).await;
            let told = file.close(&state).await;
            assert_eq!((told.is_ok(), closed(&file).await), (expected[2], expected.to_vec()));
        });
    }
}

#[test]
fn whoever_may_not_write_reads_a_change_that_was_left_as_before_or_after() {
    for made in 0..4 {
        let (mut way, layout) = stored(82);
        until_done(&way.world, async {
            leave(&File::new(&way, &layout), &layout, made).await.expect("it is left");
        });
        way.may_only_read = true;
        let file = File::new(&way, &layout);
        until_done(&way.world, async {
            let state = file.settle_and_tell(Who::Reader).await.expect("it can be read");
            let whole = state.versions.iter().flatten().count();
            // Of the four parts three are changed, and the first of the two sides has enough.
            let after = made >= 1;
            let parts = if after { 1 + made } else { 4 };
            assert_eq!((state.number, whole), (u64::from(after), parts), "{made} are made");
        });
    }
}

#[test]
fn a_change_that_a_server_has_taken_is_not_said_to_be_left_out() {
    let (way, layout) = stored(83);
    let file = File::new(&way, &layout);
    until_done(&way.world, async {
        for kind in [
            ErrorKind::TimedOut { fate: Fate::Unknown },
            ErrorKind::TimedOut { fate: Fate::Happened },
            ErrorKind::PeerGone { fate: Fate::Happened },
            ErrorKind::WrongReply,
        ] {
            way.world.borrow_mut().instead = Some((file.holders().start, kind));
            let changed = file.change(&piece(&layout), &[9; 50]).await;
            assert!(matches!(changed, Err(Failed::Unsure(_))), "{changed:?}");
        }
        let state = file.settle(Who::Reader, None).await.expect("all are there");
        assert_eq!(state.number, 4, "each of them is made");
    });
}
