//! What the store answered, turned into what clients are told.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::control::{DiskInfo, InfoReply, ListReply};
use towpath_fastpath::digest::DigestReply;
use towpath_fastpath::wire::{ReadHeader, ReadReplyHeader, VERSION};
use towpath_rpc::limits::MESSAGE_BYTES_MAX_DEFAULT;
use towpath_rpc::{Fate, Piece};
use towpath_transport::{Buf, Device, LinkId, Region, Time};

use super::answer::{Answer, chunk_info};
use super::ask::Ask;
use super::errors::{of_change, of_look, of_read, of_suspect};
use super::scrubbing::{ScrubBoard, ScrubProgress};
use super::server::{Asked, ChunkServer, Job};
use super::sketch::sketched;
use super::stops::{Matter, StopReason};
use crate::store::core::Told;
use crate::store::disks::DiskStatus;
use crate::store::{
    ChangeError, ChunkId, ChunkStat, Completion, LookError, ReadDone, ReadError, Reply, StoreStats,
    Ticket,
};

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// What these disks had when their threads ended gets no answer: whether it was done is not
    /// known.
    pub(super) fn abandon_staged(&mut self, ended: u64) {
        for token in self.store.lose(ended) {
            let job = match self.staged.try_remove(token as usize) {
                Some(Asked::Job(job)) => job,
                Some(Asked::Stage { request, .. }) => {
                    self.refuse_begun(request, Answer::Error(ErrorReply::StoreFailed));
                    continue;
                }
                Some(Asked::MayWrite { request }) => {
                    self.refuse_begun(request, Answer::Error(ErrorReply::StoreFailed));
                    continue;
                }
                Some(Asked::Own { request, tokens }) => {
                    self.tenants.done(tokens);
                    self.refuse_begun(request, Answer::Error(ErrorReply::StoreFailed));
                    continue;
                }
                Some(Asked::Unstage) | None => continue,
            };
            self.under_way.sub(&job);
            job.pass.iter().for_each(|pass| pass.end());
            self.tenants.done(job.tokens);
            self.rpc.abandon(&mut self.endpoint, job.responder, Fate::Unknown);
        }
    }

    /// The job that an answer of the store is for; the answer to anything else is taken in.
    fn job_of(&mut self, token: u64, reply: Reply<Piece, Buf>) -> Option<(Job, Reply<Piece, Buf>)> {
        match (self.staged.try_remove(token as usize), reply) {
            (Some(Asked::Job(job)), reply) => return Some((job, reply)),
            (Some(Asked::Stage { request, offset }), Reply::Stage { is_staged, data }) => {
                self.on_stage(request, offset, is_staged, data);
            }
            (Some(Asked::MayWrite { request }), Reply::MayWrite(may)) => {
                self.on_may_write(request, may);
            }
            (Some(Asked::Own { request, tokens }), Reply::Read { result, buf, crcs }) => {
                self.tenants.done(tokens);
                self.on_own(request, result, (buf, crcs));
            }
            (Some(Asked::Unstage), _) => {}
            _ => debug_assert!(false, "the store answers what it was asked, once"),
        }
        None
    }

    pub(super) fn on_completion(&mut self, now: Time, completion: Completion<Piece, Buf>) {
        let Completion { token, reply, flush_ns, blocks_left } = completion;
        let Some((job, reply)) = self.job_of(token, reply) else { return };
        self.under_way.sub(&job);
        if let (Some(control), Ask::Read(_)) = (&mut self.control, &job.ask) {
            control.read(job.class, now.since(job.arrived));
        }
        let Job { responder, deadline, ask, pass, passed, price, tokens, mut trace, .. } = job;
        trace.answer(now, flush_ns);
        pass.iter().for_each(|pass| pass.end());
        self.tenants.done(tokens);
        self.tenants.left_blocks(now, price, blocks_left);
        let place = ask.place().map(|place| (place.chunk, place.offset, place.byte_len));
        let chunk = place.map(|(chunk, ..)| chunk).unwrap_or_default();
        self.follow_put(responder.link(), chunk, (&reply, &ask));
        let answer = match (reply, ask) {
            (Reply::Change(result), _) => done(result.map_err(|error| of_change(chunk, error))),
            (Reply::Digest(digest), _) => digested(digest),
            (Reply::List(stats), Ask::List(_, count)) => Answer::List(list(&stats, count)),
            (Reply::Locate(found), Ask::Locate(chunk, _)) => {
                self.located(responder.link(), chunk, found)
            }
            (Reply::Read { result, buf, crcs }, Ask::Read(header)) => {
                self.on_read(header, result, buf, crcs)
            }
            (Reply::Read { result, buf, crcs }, Ask::Sketch(chunk, _, seed)) => {
                self.policy.spare.put_crcs(crcs);
                sketched(chunk, seed, result, &buf)
            }
            (Reply::Scrub(report), Ask::Scrub(mut scrub)) => {
                scrub.add(&report);
                if scrub.left() > 0 {
                    // Behind whatever waits: a scrub gives way to all others.
                    self.take_in(responder, deadline, Ask::Scrub(scrub), trace, None);
                    return;
                }
                Answer::Scrub(scrub.into_reply())
            }
            (Reply::Stat(stat), Ask::Stat(chunk)) => stated(chunk, stat),
            (Reply::Stats(stats), _) => Answer::Info(Box::new(self.info(responder.link(), &stats))),
            (Reply::Write { result, data, .. }, Ask::Write(header, _, _, mut staged)) => {
                if !matches!(result, Err(ChangeError::NotStaged)) {
                    staged.end();
                }
                // The buffers go back first: their credit leaves with the answer.
                self.policy.spare.put_data(data);
                if result.is_ok() {
                    self.stats.write_bytes += u64::from(header.length);
                }
                done(result.map_err(|error| of_change(header.chunk, error)))
            }
            (reply, ask) => {
                tracing::error!(?reply, ?ask, "the store answered something else");
                // What it did instead, nobody knows.
                Answer::Error(ErrorReply::CommitFailed)
            }
        };
        let unmade = passed.as_ref().and_then(|passed| passed.unmade(&answer));
        if let (Some(kind), Some(place)) = (unmade, place) {
            let matter = Matter { kind, place };
            self.note_stopped(responder.link(), matter, StopReason::Unmade);
        }
        let answer = answer.of_passed(passed.as_ref());
        self.answer_traced(responder, deadline, answer, Some((trace, price.tenant)));
    }

    fn on_read(
        &mut self,
        header: ReadHeader,
        result: Result<ReadDone, ReadError>,
        buf: Buf,
        crcs: Vec<u32>,
    ) -> Answer {
        let ReadHeader { chunk, offset, length, .. } = header;
        match result {
            Ok(ReadDone { unfinished: true, .. }) => {
                self.policy.spare.put_crcs(crcs);
                Answer::Error(ErrorReply::Unfinished { chunk })
            }
            Ok(ReadDone { version: chunk_version, chunk_bytes, .. }) => {
                self.stats.read_bytes += u64::from(length);
                let header = ReadReplyHeader { chunk, offset, length, chunk_bytes, chunk_version };
                Answer::Read(header, crcs, Some(buf))
            }
            Err(error) => {
                self.policy.spare.put_crcs(crcs);
                Answer::Error(of_read(chunk, error))
            }
        }
    }

    fn info(&self, link: LinkId, stats: &StoreStats) -> InfoReply {
        let whole = self.endpoint.whole_bytes_max(link).map_or(0, u64::from);
        InfoReply {
            program_version: String::from(env!("CARGO_PKG_VERSION")),
            protocol_version: VERSION.into(),
            request_bytes_max: whole.min(MESSAGE_BYTES_MAX_DEFAULT as u64),
            stream_bytes_max: MESSAGE_BYTES_MAX_DEFAULT as u64,
            chunks: stats.chunks,
            live_bytes: stats.live_bytes,
            free_bytes: stats.free_bytes,
            capacity_bytes: stats.capacity_bytes,
            writes: stats.writes,
            write_bytes: stats.write_bytes,
            reads: stats.reads,
            read_bytes: stats.read_bytes,
            slices_damaged: stats.slices_corrupt,
            wire_corrupt: stats.wire_corrupt + self.stats.wire_corrupt,
            read_only: stats.failed,
            commits: stats.commits,
            requests_under_way: self.rpc.under_way() as u64,
            resident_bytes: stats.resident_bytes,
            resident_bytes_max: stats.resident_bytes_max,
            uptime_ms: self.endpoint.now().since(self.started).0 / 1_000_000,
            disks: self.disks(),
            handlers: match self.config.time_handlers {
                true => self.stats.handlers.info(),
                false => Vec::new(),
            },
            interference: self.control.as_ref().map(|control| Box::new(control.report())),
        }
    }

    fn disks(&self) -> Vec<DiskInfo> {
        let scrubs = self.scrubbing.iter().map(ScrubBoard::read);
        let scrubs = scrubs.chain(std::iter::repeat(ScrubProgress::default()));
        self.store.status().into_iter().zip(scrubs).map(|(disk, of)| disk_info(disk, of)).collect()
    }
}

fn disk_info(disk: DiskStatus, scrub: ScrubProgress) -> DiskInfo {
    let DiskStatus { name, state, told: Told { stats, reason, .. } } = disk;
    DiskInfo {
        name,
        state: state as u32,
        reason,
        chunks: stats.chunks,
        live_bytes: stats.live_bytes,
        free_bytes: stats.free_bytes,
        capacity_bytes: stats.capacity_bytes,
        scrub_rate_bytes: scrub.rate,
        scrub_checked: scrub.checked,
        scrub_expected: scrub.expected,
        scrub_last_pass_s: scrub.last_pass_s,
        store_id: stats.store_id,
    }
}

fn done(result: Result<Ticket, ErrorReply>) -> Answer {
    result.map_or_else(Answer::Error, |Ticket(version)| Answer::Changed(version))
}

fn digested(digest: Result<DigestReply, LookError>) -> Answer {
    digest.map_or_else(|error| Answer::Error(of_look(error)), Answer::Digest)
}

fn stated(chunk: ChunkId, stat: Option<ChunkStat>) -> Answer {
    match stat {
        None => Answer::Error(ErrorReply::NoSuchChunk { chunk }),
        Some(ChunkStat { suspect: true, chunk, .. }) => Answer::Error(of_suspect(chunk)),
        Some(stat) => Answer::Stat(chunk_info(&stat)),
    }
}

/// The page of a listing that was asked for with one entry too many.
fn list(stats: &[ChunkStat], count: usize) -> ListReply {
    let chunks = stats.iter().take(count).map(chunk_info).collect();
    ListReply { chunks, more: stats.len() > count }
}
