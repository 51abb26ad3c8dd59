//! What the store answered, turned into what clients are told.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::control::{DiskInfo, InfoReply, ListReply};
use towpath_fastpath::digest::DigestReply;
use towpath_fastpath::server::StorageRequest;
use towpath_fastpath::wire::{ReadHeader, ReadReplyHeader, VERSION};
use towpath_rpc::limits::MESSAGE_BYTES_MAX_DEFAULT;
use towpath_rpc::{Fate, Piece};
use towpath_transport::{Buf, Device, LinkId, Region, Time};

use super::answer::{Answer, chunk_info};
use super::ask::{Ask, Asked, Job, With, page_of};
use super::clients::Leave;
use super::errors::{of_change, of_look, of_read, of_suspect};
use super::scrubbing::ScrubProgress;
use super::server::ChunkServer;
use super::sketch::sketched;
use super::stops::{Matter, StopReason};
use crate::qos::TenantId;
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
            match self.sched.take(token as usize) {
                Some(Asked::Job(job)) => {
                    self.rpc.abandon(&mut self.endpoint, job.responder, Fate::Unknown);
                }
                Some(
                    Asked::Stage { request, .. }
                    | Asked::MayWrite { request }
                    | Asked::Own { request, .. },
                ) => self.refuse_begun(request, Answer::Error(ErrorReply::StoreFailed)),
                Some(Asked::Unstage) | None => {}
            }
        }
    }

    pub(super) fn on_completion(&mut self, now: Time, completion: Completion<Piece, Buf>) {
        let Completion { token, reply, flush_ns, blocks_left } = completion;
        let Some((asked, tenant)) = self.sched.done(now, token as usize, blocks_left) else {
            return debug_assert!(false, "the store answers what it was asked, once");
        };
        match (asked, reply) {
            (Asked::Job(job), reply) => self.on_reply(job, reply, (now, flush_ns), tenant),
            (Asked::Stage { request, offset }, Reply::Stage { is_staged, data }) => {
                self.on_stage(request, offset, is_staged, data);
            }
            (Asked::MayWrite { request }, Reply::MayWrite(may)) => self.on_may_write(request, may),
            (Asked::Own { request, .. }, Reply::Read { result, buf, crcs }) => {
                self.on_own(request, result, (buf, crcs));
            }
            (Asked::Unstage, _) => {}
            _ => debug_assert!(false, "the store answers what it was asked"),
        }
    }

    /// The store has answered a request of a client.
    fn on_reply(
        &mut self,
        job: Job,
        reply: Reply<Piece, Buf>,
        (now, flush_ns): (Time, u64),
        tenant: TenantId,
    ) {
        let Job { responder, deadline, ask, leave, passed, mut trace } = job;
        trace.answer(now, flush_ns);
        drop(leave);
        let place = ask.place();
        let chunk = place.unwrap_or_default().chunk;
        let (ours, what) = ((&self.endpoint, &self.store), (&reply, &ask.op));
        self.clients.follow_put(ours, responder.link(), what);
        let Ask { op, with } = ask;
        let answer = match (reply, op, with) {
            (Reply::Change(result), ..) => done(result.map_err(|error| of_change(chunk, error))),
            (Reply::Digest(digest), ..) => digested(digest),
            (Reply::List(stats), StorageRequest::List { count_max, .. }, _) => {
                Answer::List(list(&stats, page_of(count_max)))
            }
            (Reply::Locate(found), ..) => self.located(responder.link(), chunk, found),
            (Reply::Read { result, buf, crcs }, StorageRequest::Read(header), _) => {
                self.on_read(header, result, buf, crcs)
            }
            (Reply::Read { result, buf, crcs }, StorageRequest::Sketch { seed, .. }, _) => {
                self.open.spare().put_crcs(crcs);
                sketched(chunk, seed, result, &buf)
            }
            (Reply::Scrub(report), op, With::Found(mut scrub)) => {
                scrub.add(&report);
                if scrub.left() > 0 {
                    // Behind whatever waits: a scrub gives way to all others.
                    let ask = Ask { op, with: With::Found(scrub) };
                    let leave = Leave::default();
                    return self.take_in(Job { responder, deadline, ask, leave, passed, trace });
                }
                Answer::Scrub(scrub.into_reply())
            }
            (Reply::Stat(stat), ..) => stated(chunk, stat),
            (Reply::Stats(stats), ..) => {
                Answer::Info(Box::new(self.info(responder.link(), &stats)))
            }
            (Reply::Write { result, data, .. }, op, With::Data(_, mut staged)) => {
                if !matches!(result, Err(ChangeError::NotStaged)) {
                    staged.end();
                }
                // The buffers go back first: their credit leaves with the answer.
                self.open.spare().put_data(data);
                if let (Ok(_), StorageRequest::Write { header, .. }) = (&result, op) {
                    self.stats.write_bytes += u64::from(header.length);
                }
                done(result.map_err(|error| of_change(chunk, error)))
            }
            (reply, op, _) => {
                tracing::error!(?reply, ?op, "the store answered something else");
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
        self.answer_traced(responder, deadline, answer, Some((trace, tenant)));
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
                self.open.spare().put_crcs(crcs);
                Answer::Error(ErrorReply::Unfinished { chunk })
            }
            Ok(ReadDone { version: chunk_version, chunk_bytes, .. }) => {
                self.stats.read_bytes += u64::from(length);
                let header = ReadReplyHeader { chunk, offset, length, chunk_bytes, chunk_version };
                Answer::Read(header, crcs, Some(buf))
            }
            Err(error) => {
                self.open.spare().put_crcs(crcs);
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
            uptime_ms: self.watch.uptime(self.endpoint.now()).0 / 1_000_000,
            disks: self.disks(),
            handlers: match self.config.time_handlers {
                true => self.stats.handlers.info(),
                false => Vec::new(),
            },
            interference: self.sched.control().map(|control| Box::new(control.report())),
        }
    }

    fn disks(&self) -> Vec<DiskInfo> {
        let scrubs = self.watch.scrubs().chain(std::iter::repeat(ScrubProgress::default()));
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
