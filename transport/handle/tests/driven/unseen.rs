//! A refusal whose ticket was dropped is in the log; the ticket that is kept has it.

use crate::lane::share;
use crate::rig::{NOW, lab};
use std::cell::RefCell;
use std::io;
use towpath_proto::Rights;
use towpath_transport::{LaneError, OpOptions, SendOptions, SubmitError};

thread_local! {
    /// What this test's thread has logged: it drives both workers by itself.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines about refusals since this was last asked.
fn refusals() -> Vec<String> {
    let text = LOG.take();
    let lines = std::str::from_utf8(&text).expect("text").lines();
    lines.filter(|line| line.contains("was refused")).map(str::to_owned).collect()
}

fn start_log() {
    // One for all tests of this program, each of which reads what its own thread has logged.
    let _ = tracing_subscriber::fmt().with_writer(|| Log).try_init();
}

#[test]
fn a_refused_message_is_logged_where_nobody_kept_its_ticket() {
    start_log();
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    // No byte is in it.
    let bad = || mine.send(mine.alloc(8).expect("a buffer"), SendOptions::new()).expect("taken");
    let kept = bad();
    lab.run();
    let refused = kept.wait(NOW).expect_err("it has no byte");
    assert_eq!(refused.error, SubmitError::EmptySegment);
    drop(kept);
    assert_eq!(refusals(), [""; 0], "its ticket has told it");

    drop(bad());
    lab.run();
    let lines = refusals();
    assert!(lines.len() == 1 && lines[0].contains("a segment is empty"), "{lines:?}");

    let late = bad();
    lab.run();
    drop(late);
    assert_eq!(refusals().len(), 1, "dropped with the refusal in it");
}

#[test]
fn what_arrives_and_what_ends_with_its_channel_is_not_logged() {
    start_log();
    let mut lab = lab();
    let (mine, _theirs) = lab.channel();
    let good = || mine.send(mine.copy(b"good").expect("a buffer"), SendOptions::new());
    drop(good().expect("taken"));
    lab.run();
    mine.close();
    let refused = good().expect_err("it is closed");
    assert_eq!(refused.error, SubmitError::NotOpen(mine.id()));
    lab.run();
    assert_eq!(refusals(), [""; 0]);
}

#[test]
fn a_refused_operation_is_logged_where_nobody_kept_its_ticket() {
    start_log();
    let mut lab = lab();
    let (_memory, grant) = share(&mut lab, Rights::READ);
    let link = lab.near.link.clone();
    let bad = || link.write_word(grant.id, 0, 1, OpOptions::new());
    let kept = bad();
    lab.run();
    let done = kept.wait(NOW).expect("it has ended");
    assert!(matches!(done.outcome, Err(LaneError::Op(_))), "{:?}", done.outcome);
    drop(kept);
    assert_eq!(refusals(), [""; 0], "its ticket has told it");

    drop(bad());
    lab.run();
    assert_eq!(refusals().len(), 1);
    let late = bad();
    lab.run();
    drop(late);
    assert_eq!(refusals().len(), 1, "dropped with the refusal in it");
}
