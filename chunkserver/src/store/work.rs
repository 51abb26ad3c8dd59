//! The work on a store: requests are served, their changes committed together, and all answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use super::asked::Asked;
use super::engine::{Store, Ticket};
use super::error::{CreateError, DeleteError, FinishError, ReadError, Refused, WriteError};
use super::limits::WORK_HERE_MAX;
use super::media::Media;
use super::request::{Completion, Reply, Request};
use super::slice::ChunkId;
use super::stage::Write;
use super::unfinished::Unfinished;
use super::wakeful::Wakeful;
use super::worker::WorkerConfig;

/// A request with its token.
pub(super) type Queued<W, R> = (u64, Request<W, R>);

/// A store and those who ask it.
pub(super) struct Work<M: Media, W, R> {
    pub(super) store: Store<M>,
    pub(super) config: WorkerConfig,
    pub(super) asked: Asked<Queued<W, R>>,
    /// Long requests in the queue of each who asks.
    pub(super) long: Vec<Arc<AtomicUsize>>,
    /// By the number of who asks.
    pub(super) outgoing: Vec<Sender<Completion<W, R>>>,
    /// Replies of staged changes, good ones if the commit is, and who asked.
    pub(super) unanswered: Vec<(usize, Completion<W, R>)>,
    pub(super) wakeful: Wakeful,
    pub(super) unfinished: Unfinished,
}

impl<M: Media, W: AsRef<[u8]>, R: AsMut<[u8]>> Work<M, W, R> {
    /// One batch of what waits, of all who ask in turn; more may come while it waits for a slow
    /// medium, which `bell` tells of. Whether more may wait that was not taken.
    pub(super) fn batch(&mut self, bell: &Receiver<()>) -> bool {
        let mut room = self.config.batch_max;
        self.take(&mut room, |asked, _| asked.poll());
        if !self.unanswered.is_empty() && !self.config.linger.is_zero() {
            let end = Instant::now() + self.config.linger;
            while room > 0 && bell.recv_deadline(end).is_ok() {
                self.take(&mut room, |asked, _| asked.poll());
            }
        }
        self.commit();
        room == 0
    }

    /// One batch of what `asker` has queued, by its own thread, which has other things to do as
    /// well: what it has begun after [`WORK_HERE_MAX`] it ends.
    pub(super) fn batch_of(&mut self, asker: usize) {
        let end = Instant::now() + WORK_HERE_MAX;
        let mut room = self.config.batch_max;
        self.take(&mut room, |asked, is_first| {
            // The first is taken however long it took to get here.
            if is_first || Instant::now() < end { asked.poll_of(asker) } else { None }
        });
        self.commit();
    }

    /// Serves up to `room` requests: reads count too, so that an endless flow of them does not
    /// keep a change from its commit.
    fn take(
        &mut self,
        room: &mut usize,
        mut next: impl FnMut(&mut Asked<Queued<W, R>>, bool) -> Option<(usize, Queued<W, R>)>,
    ) {
        let room_first = *room;
        while *room > 0
            && let Some((asker, (token, request))) = next(&mut self.asked, *room == room_first)
        {
            *room -= 1;
            self.serve(asker, token, request);
        }
    }

    fn serve(&mut self, asker: usize, token: u64, request: Request<W, R>) {
        if request.is_long() {
            self.long[asker].fetch_sub(1, Ordering::Relaxed);
        }
        let reply = match request {
            Request::Create { chunk, limit_bytes, unfinished, resident } => {
                let full = |e: &CreateError| matches!(e, CreateError::Refused(Refused::BatchFull));
                let made = self
                    .stage(full, |store| store.stage_new(chunk, limit_bytes, unfinished, resident));
                if unfinished && made.is_ok() {
                    self.unfinished.touch(chunk, Instant::now());
                }
                Reply::Create(made)
            }
            Request::Finish { chunk, byte_len } => {
                let full = |e: &FinishError| matches!(e, FinishError::Refused(Refused::BatchFull));
                let done = self.stage(full, |store| store.stage_finish(chunk, byte_len));
                if done.is_ok() {
                    self.unfinished.forget(chunk);
                }
                Reply::Finish(done)
            }
            Request::Delete { chunk } => Reply::Delete(self.delete(chunk)),
            Request::List { after, count_max } => Reply::List(self.store.list(after, count_max)),
            Request::Locate { chunk, first_slice, runs_max } => {
                Reply::Locate(self.store.locate(chunk, first_slice, runs_max))
            }
            Request::Read { chunk, offset, byte_len, mut buf, mut crcs } => {
                let result = match buf.as_mut().get_mut(..byte_len) {
                    Some(part) => self.store.read(chunk, offset, part, &mut crcs),
                    None => Err(ReadError::Length { byte_len: byte_len as u64 }),
                };
                Reply::Read { result, buf, crcs }
            }
            Request::Scrub { budget_slices } => Reply::Scrub(self.store.scrub_step(budget_slices)),
            Request::Stat { chunk } => Reply::Stat(self.store.stat(chunk)),
            Request::Stats => Reply::Stats(self.store.stats()),
            Request::Write { chunk, offset, data, crcs, verified } => {
                let full = |e: &WriteError| matches!(e, WriteError::Refused(Refused::BatchFull));
                self.unfinished.touch_known(chunk);
                let result = self.stage(full, |store| {
                    let write = Write { chunk, offset, data: &data, crcs: &crcs, verified };
                    store.stage_write(&write)
                });
                Reply::Write { result, data, crcs }
            }
        };
        let completion = Completion { token, reply };
        if completion.reply.waits_for_commit() {
            self.unanswered.push((asker, completion));
        } else {
            self.answer(asker, completion);
        }
    }

    /// Deletes the unfinished chunks that nobody has written to for a while.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Some(keep) = self.config.unfinished_keep else { return };
        let overdue = self.unfinished.overdue(now, keep);
        if overdue.is_empty() {
            return;
        }
        for chunk in overdue {
            match self.delete(chunk) {
                Ok(_) => {
                    tracing::info!(%chunk, "removed an unfinished chunk: nobody went on with it");
                }
                Err(DeleteError::NoSuchChunk(_)) => self.unfinished.forget(chunk),
                Err(error) => {
                    tracing::debug!(%chunk, %error, "an unfinished chunk cannot be removed now");
                    break;
                }
            }
        }
        self.commit();
    }

    /// Stages a delete. A chunk that stays, because the delete is refused, is still swept when its
    /// time is over.
    fn delete(&mut self, chunk: ChunkId) -> Result<Ticket, DeleteError> {
        let full = |e: &DeleteError| matches!(e, DeleteError::Refused(Refused::BatchFull));
        let done = self.stage(full, |store| store.stage_delete(chunk));
        if done.is_ok() {
            self.unfinished.forget(chunk);
        }
        done
    }

    /// Stages a change; when the batch is full, commits it and tries once more, and where the log
    /// is, after a checkpoint.
    fn stage<E>(
        &mut self,
        is_full: impl Fn(&E) -> bool,
        mut change: impl FnMut(&mut Store<M>) -> Result<Ticket, E>,
    ) -> Result<Ticket, E> {
        let mut done = change(&mut self.store);
        if done.as_ref().is_err_and(&is_full) {
            self.commit();
            done = change(&mut self.store);
        }
        if done.as_ref().is_err_and(&is_full) {
            self.store.checkpoint_if_due();
            done = change(&mut self.store);
        }
        done
    }

    /// Commits what is staged and answers. No answer waits for the checkpoint that may be due then.
    fn commit(&mut self) {
        let result = self.store.commit_staged();
        let mut unanswered = std::mem::take(&mut self.unanswered);
        for (asker, mut completion) in unanswered.drain(..) {
            if let Err(failed) = result {
                completion.reply.spoil(failed);
            }
            self.answer(asker, completion);
        }
        self.unanswered = unanswered;
    }

    fn answer(&self, asker: usize, completion: Completion<W, R>) {
        // A caller that is gone wants no answer; its changes are committed all the same.
        let _ = self.outgoing[asker].send(completion);
    }
}
