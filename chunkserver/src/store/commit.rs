//! The commit: two flushes make all that is staged durable, then it becomes visible.

use std::io;

use super::checkpoint::encode_checkpoint;
#[cfg(test)]
use super::engine::Bug;
use super::engine::Store;
use super::error::{CommitStep, FlushFailed};
use super::header::{FileHeader, FileKind};
use super::limits::LOG_CHECKPOINT_SHARE;
use super::media::{Media, MediaError, MediaOp};
use super::record::{Body, Op, Record, parse_record};
use super::residence::Keeper;
use super::slice::ChunkId;

impl<M: Media> Store<M> {
    /// Brings everything staged to stable media and makes it visible.
    ///
    /// The data is flushed before the log records are written, so a record that survives a
    /// crash always finds its data there: a torn slice is never reachable, not even through a
    /// record that was never acknowledged (docs/store-format.md section 7). When enough of the
    /// log is used, a checkpoint follows.
    ///
    /// # Errors
    /// A failed flush says nothing about what is on the medium, and a second try would prove
    /// nothing. So it is final: nothing staged is acknowledged, every later change is refused,
    /// reads go on.
    pub fn commit(&mut self) -> Result<(), FlushFailed> {
        self.commit_staged()?;
        self.checkpoint_if_due();
        Ok(())
    }

    /// The commit without the checkpoint, which writes the whole map.
    pub(super) fn commit_staged(&mut self) -> Result<(), FlushFailed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if !self.log.staged.is_empty() {
            if let Err((step, error)) = self.flush_staged() {
                let failed = FlushFailed { step, kind: error.kind() };
                self.fail(failed);
                return Err(failed);
            }
            self.publish();
        }
        Ok(())
    }

    /// How many there have been that had something to commit.
    pub(super) fn commits(&self) -> u64 {
        self.counts.commits
    }

    /// Whether a checkpoint follows the next commit.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let is_due = self.log.wants_checkpoint || self.log.end > self.checkpoint_at();
        is_due && self.failed.is_none() && !self.is_lossy
    }

    /// Makes a checkpoint where enough of the log is used. Nothing is staged.
    pub(super) fn checkpoint_if_due(&mut self) {
        if self.checkpoint_is_due() {
            self.checkpoint();
        }
    }

    /// Commits what is staged and seals the log, so that the next opening can tell damage of
    /// any record from an unfinished commit.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn close(mut self) -> Result<(), FlushFailed> {
        if self.is_lossy {
            return Ok(());
        }
        self.commit()?;
        // The checkpoint that follows a commit may have failed.
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.mark();
        self.log.push(ChunkId::default(), &Op::Seal);
        self.flush_staged().map_err(|(step, error)| FlushFailed { step, kind: error.kind() })
    }

    /// Whether records are on stable media of which the mark does not say so.
    pub(super) fn wants_mark(&self) -> bool {
        self.failed.is_none()
            && !self.is_lossy
            && !self.marker.has_failed
            && self.log.durable_sequence > self.marker.durable_sequence
    }

    /// Writes the mark: with it the next opening can tell damage of the last records from an
    /// unfinished commit. It is for moments in which nothing is to be done, since it costs a flush.
    pub fn mark(&mut self) {
        if !self.wants_mark() {
            return;
        }
        let (store_id, durable) = (self.identity.store_id, self.log.durable_sequence);
        if let Err(error) = self.marker.write(&self.media, store_id, durable) {
            // What is acknowledged does not rest on it.
            tracing::warn!(%error, "the mark cannot be written; it is left alone from now on");
            self.marker.has_failed = true;
        }
    }

    /// Refuses all changes from now on.
    pub(crate) fn fail(&mut self, failed: FlushFailed) {
        tracing::error!(%failed, "the store has stopped taking changes");
        self.failed = Some(failed);
        self.forget_staged();
    }

    fn checkpoint_at(&self) -> u64 {
        let share = self.log.size_bytes / LOG_CHECKPOINT_SHARE;
        // A deferred checkpoint is tried again only when a record needs its room.
        if self.log.deferred { u64::MAX } else { share }
    }

    fn flush_staged(&mut self) -> Result<(), (CommitStep, io::Error)> {
        for segment in self.dirty.drain(..) {
            #[cfg(test)]
            if self.bug == Some(Bug::SkipDataFlush) {
                continue;
            }
            let flushed = self.pages.file(segment).and_then(|file| self.media.fdatasync(file));
            flushed.map_err(|e| (CommitStep::DataFlush, e))?;
        }
        for copy in self.log.copies() {
            self.media
                .write_at(&self.log.file, copy + self.log.end, &self.log.staged)
                .map_err(|e| (CommitStep::LogAppend, e))?;
        }
        #[cfg(test)]
        if self.has(Bug::SkipLogFlush) {
            return Ok(());
        }
        self.media.fdatasync(&self.log.file).map_err(|e| (CommitStep::LogFlush, e))
    }

    /// Applies the staged records by the same code that replays them.
    fn publish(&mut self) {
        let mut at = 0;
        while at < self.log.staged.len() {
            let (record, len) = parse_record(&self.log.staged[at..], self.log.key)
                .expect("staged records are encoded here");
            let space = &mut self.space;
            #[cfg(test)]
            let early = self.bug == Some(Bug::ReuseTooEarly);
            let retire = |page| {
                #[cfg(test)]
                if early {
                    return;
                }
                space.retire(page);
            };
            self.map.apply(&record, retire).expect("staging checked that the record fits");
            if let Some(residence) = &mut self.residence {
                let mut keeper = Keeper {
                    pages: &mut self.pages,
                    media: &self.media,
                    scratch: &mut self.scratch[..],
                    residence: &mut **residence,
                };
                keeper.follow(&record, self.map.chunks.get(&record.chunk));
            }
            self.marker.note(record.frame.sequence, record.chunk);
            match record {
                Record { body: Body::Create { .. }, .. } => self.counts.creates += 1,
                Record { body: Body::Write(write), .. } => {
                    self.counts.writes += 1;
                    self.counts.write_bytes += write.byte_len;
                }
                Record { body: Body::Delete, .. } => self.counts.deletes += 1,
                Record { body: Body::Finish | Body::Seal | Body::Void, .. } => {}
            }
            at += len;
        }
        self.log.on_flushed();
        self.space.committed();
        self.say_room();
        self.counts.commits += 1;
        self.forget_staged();
    }

    fn forget_staged(&mut self) {
        self.log.staged.clear();
        self.staged.clear();
        self.pending.clear();
        self.pending_chunks = 0;
        self.promised_slots = 0;
        self.dirty.clear();
    }

    /// Replaces log and map. A full medium only puts it off; any other trouble stops the store,
    /// since what is on the medium is not known then.
    fn checkpoint(&mut self) {
        self.log.wants_checkpoint = false;
        match self.write_checkpoint() {
            Ok(()) => self.counts.checkpoints += 1,
            // What is current is as it was. A flush is never merely full.
            Err(error) if error.is_shortage() && error.op != MediaOp::Flush => {
                self.log.deferred = true;
                self.counts.checkpoints_deferred += 1;
            }
            Err(error) => {
                let step = CommitStep::Checkpoint;
                self.fail(FlushFailed { step, kind: error.source.kind() });
            }
        }
    }

    /// Log and map of the generation before give their files to the new ones. Those are on stable
    /// media, names included, before the rename of the map makes them the current ones.
    fn write_checkpoint(&mut self) -> Result<(), MediaError> {
        let generation = self.log.generation + 1;
        let header = FileHeader {
            number: generation,
            next_sequence: self.log.next_sequence,
            log_nonce: self.media.random(),
            ..self.identity
        };
        let log_header = FileHeader { kind: FileKind::Log, ..header };
        let log_bytes = self.config.log_bytes;
        self.reserve.complete(&self.media, generation, log_bytes)?;
        self.reserve.rename(&self.media, generation)?;
        self.flush_names()?;
        let size_bytes = self.reserve.write_log(&self.media, &log_header, log_bytes)?;
        self.reserve.write_map(&self.media, &encode_checkpoint(header, &self.map))?;
        self.reserve.publish(&self.media, generation)?;
        self.flush_names()?;
        self.reserve.take_turns(&mut self.log.file, generation);
        self.log.begin(&log_header, size_bytes);
        Ok(())
    }

    fn flush_names(&self) -> Result<(), MediaError> {
        #[cfg(test)]
        if self.has(Bug::SkipDirFlush) {
            return Ok(());
        }
        self.media.sync_dir().map_err(MediaError::at(MediaOp::Flush, ".", 0))
    }
}
