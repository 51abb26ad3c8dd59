//! What is asked for again, and when.

use towpath_cap::Denied;
use towpath_rpc::Fate;

use super::request::Task;
use crate::error::ErrorKind;
use crate::request::StorageRequest;
use crate::wire::ErrorReply;

/// What to do with an operation that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has failed.
    Give,
    /// It was done.
    Done,
    /// Ask again in a while: the server could not take it.
    Later,
    /// Ask again over whatever link is up.
    Again,
    /// Not before the link has entered its session again: then nothing of the older link is still
    /// to come. Ask again then, or say that it is not known whether it was done.
    Fenced {
        /// Ask again.
        again: bool,
    },
}

/// What to do with `task`, whose last attempt ended so.
pub(super) fn next(task: &Task, kind: &ErrorKind) -> Next {
    let is_change = task.request.method().is_change();
    let is_made_once = task.request.is_made_once();
    match kind {
        ErrorKind::Busy
        | ErrorKind::Refused(
            ErrorReply::Busy | ErrorReply::NoSums | ErrorReply::WireCorrupt { .. },
        )
        | ErrorKind::Refused(ErrorReply::Denied { why: Denied::Early })
        | ErrorKind::ReplyCorrupt { .. } => Next::Later,
        // Another client has entered the session that its user gave to both.
        ErrorKind::Refused(ErrorReply::Fenced) => Next::Later,
        // What was made for a version ends with the version that it made, or with this.
        ErrorKind::TimedOut { fate: Fate::Happened } if is_change && !is_made_once => Next::Done,
        // An earlier attempt may have done it.
        ErrorKind::Refused(ErrorReply::ChunkExists { .. })
            if matches!(task.request.other(), Some(StorageRequest::Create { .. }))
                && may_have_been_done(task) =>
        {
            Next::Done
        }
        ErrorKind::Refused(ErrorReply::NoSuchChunk { .. })
            if matches!(task.request.other(), Some(StorageRequest::Delete { .. }))
                && may_have_been_done(task) =>
        {
            Next::Done
        }
        ErrorKind::PeerGone { fate } => match fate {
            // Asked again, the server tells the version that it made.
            Fate::Happened | Fate::Unknown if is_made_once => Next::Fenced { again: true },
            Fate::Happened if is_change => Next::Done,
            Fate::Unknown if is_change => Next::Fenced { again: task.alone },
            _ => Next::Again,
        },
        _ => Next::Give,
    }
}

/// An attempt of which nobody knows was repeated, since nobody else changes the chunk, or since a
/// delete of that version is made once: whoever made it, what it was to take away is gone.
fn may_have_been_done(task: &Task) -> bool {
    let is_delete =
        matches!(task.request.other(), Some(StorageRequest::Delete { version: Some(_), .. }));
    (task.alone || is_delete) && task.unsure.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::request::{Data, ReadBy, Request};
    use super::*;
    use crate::change::Terms;
    use crate::config::Patience;
    use crate::slice::ChunkId;
    use crate::wire::{ClearHeader, Sender};
    use std::sync::Arc;
    use towpath_transport::Nanos;

    const CHUNK: ChunkId = ChunkId(1);
    const PATIENCE: Patience = Patience { span: Nanos::ZERO, is_limit: false };

    fn task(request: Request, alone: bool) -> Task {
        Task::at_place(request, (alone, PATIENCE), Arc::default(), Arc::default())
    }

    fn write(alone: bool) -> Task {
        task(write_on(Terms::default()), alone)
    }

    fn write_on(terms: Terms) -> Request {
        Request::Write { chunk: CHUNK, offset: 0, data: Data::Bytes(vec![1]), terms, route: None }
    }

    fn gone(fate: Fate) -> ErrorKind {
        ErrorKind::PeerGone { fate }
    }

    #[test]
    fn a_change_that_may_have_been_done_is_repeated_only_where_nobody_else_changes_the_chunk() {
        let of = |alone, fate| next(&write(alone), &gone(fate));
        assert_eq!(of(false, Fate::Unknown), Next::Fenced { again: false });
        assert_eq!(of(true, Fate::Unknown), Next::Fenced { again: true });
        assert_eq!(of(false, Fate::DidNotHappen), Next::Again);
        assert_eq!(of(false, Fate::Happened), Next::Done);
        let told_late = ErrorKind::TimedOut { fate: Fate::Happened };
        assert_eq!(next(&write(false), &told_late), Next::Done);
        let read =
            task(Request::Read { chunk: CHUNK, offset: 0, length: 1, by: ReadBy::Copied }, false);
        for fate in [Fate::Unknown, Fate::DidNotHappen, Fate::Happened] {
            assert_eq!(next(&read, &gone(fate)), Next::Again, "a read of {fate}");
        }
    }

    #[test]
    fn what_was_found_done_when_it_was_repeated_is_done() {
        let exists = ErrorKind::Refused(ErrorReply::ChunkExists { chunk: CHUNK });
        let absent = ErrorKind::Refused(ErrorReply::NoSuchChunk { chunk: CHUNK });
        let create = |alone| {
            let kind = crate::change::NewChunk::default();
            task(
                StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 }.into(),
                alone,
            )
        };
        let delete =
            |alone| task(StorageRequest::Delete { chunk: CHUNK, version: None }.into(), alone);
        for (make, kind) in [(&create as &dyn Fn(bool) -> Task, &exists), (&delete, &absent)] {
            let mut repeated = make(true);
            assert_eq!(next(&repeated, kind), Next::Give, "the first attempt");
            repeated.failed = Some(gone(Fate::DidNotHappen));
            assert_eq!(next(&repeated, kind), Next::Give, "somebody else did it");
            repeated.unsure = Some(gone(Fate::Unknown));
            assert_eq!(next(&repeated, kind), Next::Done);
        }
        let mut write = write(true);
        write.unsure = Some(gone(Fate::Unknown));
        assert_eq!(next(&write, &absent), Next::Give);
    }

    #[test]
    fn a_change_that_the_server_makes_once_is_repeated_whoever_changes_the_chunk() {
        let kind = crate::change::NewChunk::default();
        let terms = Terms { version: Some(3), stamp: 4, chain: 0 };
        let clear = crate::change::Clear::Truncate { byte_len: 9 };
        let requests: [fn(Terms) -> Request; 2] =
            [write_on, |terms| StorageRequest::Finish { chunk: CHUNK, byte_len: 9, terms }.into()];
        let requests = requests.map(|make| make(terms)).into_iter().chain([
            StorageRequest::Clear(ClearHeader {
                chunk: CHUNK,
                clear,
                sender: Sender::default(),
                terms,
            })
            .into(),
            StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 4 }.into(),
            StorageRequest::Delete { chunk: CHUNK, version: Some(3) }.into(),
            StorageRequest::Chain { chunk: CHUNK, chain: 2, version: None, stamp: 4 }.into(),
        ]);
        for request in requests {
            let mut task = task(request, false);
            for fate in [Fate::Unknown, Fate::Happened] {
                assert_eq!(next(&task, &gone(fate)), Next::Fenced { again: true });
            }
            let told_late = ErrorKind::TimedOut { fate: Fate::Happened };
            assert_eq!(next(&task, &told_late), Next::Give);
            let other = ErrorKind::Refused(ErrorReply::OtherVersion { version: 9 });
            task.unsure = Some(gone(Fate::Unknown));
            assert_eq!(next(&task, &other), Next::Give);
            let absent = ErrorKind::Refused(ErrorReply::NoSuchChunk { chunk: CHUNK });
            let is_delete = matches!(task.request.other(), Some(StorageRequest::Delete { .. }));
            let gone = if is_delete { Next::Done } else { Next::Give };
            assert_eq!(next(&task, &absent), gone);
        }
        // A stamp alone does not keep a write from being made twice.
        for (version, stamp) in [(None, 4), (Some(3), 0)] {
            let terms = Terms { version, stamp, chain: 0 };
            let task = task(write_on(terms), false);
            assert_eq!(next(&task, &gone(Fate::Unknown)), Next::Fenced { again: false });
        }
    }

    #[test]
    fn a_busy_server_is_left_alone_for_a_while_and_a_refusal_is_one() {
        for kind in [ErrorKind::Busy, ErrorKind::Refused(ErrorReply::Busy)] {
            assert_eq!(next(&write(false), &kind), Next::Later);
        }
        let full = ErrorKind::Refused(ErrorReply::NoSpace);
        assert_eq!(next(&write(true), &full), Next::Give);
        let late = ErrorKind::TimedOut { fate: Fate::DidNotHappen };
        assert_eq!(next(&write(true), &late), Next::Give, "its time is over");
    }
}
