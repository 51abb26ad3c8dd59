//! One job: a thread with a link and chunks of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use towpath_base::Prng;
use towpath_fastpath::resident::slots_bytes;
use towpath_fastpath::{ChunkId, ErrorKind, ErrorReply, SLICE_BYTES};
use towpath_status::say;
use towpath_transport::{Nanos, Time};

use super::content::{Content, Versions};
use super::error::StoreError;
use super::offsets::Offsets;
use super::plan::Plan;
use super::work::{Chunks, Draw, Live, Measured, Reads, Window, Work};
use crate::cli::args::ServerArgs;
use crate::cli::chunk::{ClientSession, Room, open_with};
use crate::cli::error::CliError;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::session::{Pipeline, SessionError, Troubles};

/// How chunks are written before the measurement.
const LAYOUT: Pipeline = Pipeline { depth: 16, op_bytes: 128 << 10 };

/// Requests under way while chunks are aged.
const AGE_DEPTH: usize = 32;

/// How long the removal of chunks may take after an interruption.
const REMOVE_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// What all jobs share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    /// Tells this run's contents from those of another one with its seed.
    pub(super) nonce: u64,
    pub(super) live: Live,
    /// A job has failed: the others end.
    pub(super) is_over: AtomicBool,
}

/// What a job tells the thread that waits for all.
pub(super) enum News {
    /// Its chunks are made; so many bytes will be written before the measurement.
    Layout(u64),
    /// It waits for the start.
    Ready,
    /// It has ended.
    Ended(Result<Box<Outcome>, CliError>),
}

/// What a job did.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) measured: Measured,
    pub(super) troubles: Troubles,
    pub(super) chunks_retransmitted: u64,
    pub(super) links_again: u64,
    /// The chunks that are left at the server.
    pub(super) kept: Vec<ChunkId>,
}

/// A job before it runs.
pub(super) struct Job<'a> {
    pub(super) number: u32,
    pub(super) shared: &'a Shared,
    pub(super) server: &'a ServerArgs,
    pub(super) interrupt: &'a Interrupt,
    pub(super) news: Sender<News>,
    /// The start; closed where there is none.
    pub(super) start: Receiver<()>,
}

/// A chunk that the job works on.
#[derive(Clone, Copy, Debug)]
struct Made {
    name: ChunkId,
    /// The job has made it.
    is_own: bool,
    /// Reads find it only after it was finished.
    is_unfinished: bool,
    /// It has fewer bytes than the job works on.
    is_short: bool,
}

impl Job<'_> {
    /// Runs it to its end, and tells that.
    pub(super) fn run(self) {
        let outcome = self.connect().and_then(|mut session| self.run_in(&mut session));
        let outcome = outcome.map(Box::new);
        // Who listens ends only after all jobs.
        let _ = self.news.send(News::Ended(outcome));
    }

    fn connect(&self) -> Result<ClientSession, CliError> {
        let plan = &self.shared.plan;
        let depth = plan.depth as usize;
        let layout = (LAYOUT.op_bytes as usize, 2 * LAYOUT.depth);
        let page = (slots_bytes(SLICE_BYTES), 2 * AGE_DEPTH);
        let block = (slots_bytes(plan.block as usize), 2 * depth);
        let mut pools = vec![page, block];
        pools.extend(plan.layout.then_some(layout));
        let mut session =
            open_with(self.server, &Room { pools, op_bytes: plan.block }, self.interrupt)?;
        let most = session.io_bytes_max_of(plan.read_percent < 100)?;
        match plan.block {
            asked if asked > most => Err(StoreError::BlockTooLong { asked, most }.into()),
            _ => Ok(session),
        }
    }

    fn run_in(&self, session: &mut ClientSession) -> Result<Outcome, CliError> {
        let mut made = Vec::new();
        let ran = self.measure(session, &mut made);
        // A first Ctrl-C may be why it has ended; a second one ends the program at once.
        if self.interrupt.check().is_err() {
            session.pace().last_wait(REMOVE_WAIT);
        }
        let left = self.leave(session, &made);
        let (measured, troubles) = ran?;
        let kept = left?;
        let (chunks_retransmitted, links_again) =
            (session.stats().chunks_retransmitted, session.links_again());
        session.close()?;
        Ok(Outcome { measured, troubles, chunks_retransmitted, links_again, kept })
    }

    fn measure(
        &self,
        session: &mut ClientSession,
        made: &mut Vec<Made>,
    ) -> Result<(Measured, Troubles), CliError> {
        let Shared { plan, nonce, .. } = self.shared;
        let chunks = Chunks {
            names: plan.names(self.number),
            chunk_bytes: plan.chunk_bytes,
            page_bytes: plan.page(),
        };
        let page_bytes = chunks.page_bytes as usize;
        let content = Content::new((plan.seed, *nonce), page_bytes, plan.verify);
        let pages = (chunks.size() / chunks.page_bytes) as usize;
        let mut versions = plan.verify.then(|| Versions::new(pages));
        for &name in &chunks.names {
            let found = self.find_or_make(session, name)?;
            made.push(found);
        }
        self.write_before(session, made, (&chunks, content), versions.as_mut())?;
        let _ = self.news.send(News::Ready);
        self.wait_for_start(session)?;
        let from = session.now() + Nanos::from(plan.ramp);
        let until = plan.runtime.map_or(Time::NEVER, |span| from + Nanos::from(span));
        let left = plan.io_bytes.unwrap_or(u64::MAX);
        let mut prng = self.prng();
        let blocks = chunks.size() / plan.block;
        let offsets = match plan.rw.is_random() {
            true => Offsets::random(blocks, prng.fork()),
            false => Offsets::sequential(blocks),
        };
        let (block, read_percent, mix) = (plan.block, plan.read_percent, prng.fork());
        let draw = Draw { block, offsets, read_percent, mix };
        let window = Window { from, until, left };
        self.drive(session, (&chunks, content), versions.as_mut(), (draw, window), plan.depth)
    }

    fn prng(&self) -> Prng {
        Prng::new(self.shared.plan.seed.wrapping_add(u64::from(self.number) << 32))
    }

    fn drive(
        &self,
        session: &mut ClientSession,
        (chunks, content): (&Chunks, Content),
        versions: Option<&mut Versions>,
        (draw, window): (Draw, Window),
        depth: u32,
    ) -> Result<(Measured, Troubles), CliError> {
        let mut work = Work {
            chunks,
            draw,
            window,
            content,
            versions,
            live: &self.shared.live,
            is_over: &self.shared.is_over,
            interrupt: self.interrupt,
            measured: Measured::new()?,
            reads: Reads::default(),
        };
        let troubles = session.drive(&mut work, depth as usize)?;
        Ok((work.measured, troubles))
    }

    /// A chunk that is there with enough bytes, or a fresh one.
    fn find_or_make(&self, session: &mut ClientSession, name: ChunkId) -> Result<Made, CliError> {
        let plan = &self.shared.plan;
        let is_named = !plan.named.is_empty();
        match if is_named { Some(session.stat(name)) } else { None } {
            Some(Ok(info)) => {
                let is_short = info.byte_len < plan.chunk_bytes;
                return Ok(Made { name, is_own: false, is_unfinished: info.unfinished, is_short });
            }
            Some(Err(error)) if !is_missing(&error) => return Err(error.into()),
            _ => {}
        }
        session.create(name, false)?;
        Ok(Made { name, is_own: true, is_unfinished: true, is_short: true })
    }

    /// Writes the bytes that are to be there before the measurement, and ages them.
    fn write_before(
        &self,
        session: &mut ClientSession,
        made: &mut [Made],
        (chunks, content): (&Chunks, Content),
        versions: Option<&mut Versions>,
    ) -> Result<(), CliError> {
        let plan = &self.shared.plan;
        // What others wrote has no content that could be checked.
        let is_due =
            |made: &Made| plan.layout && (plan.verify || made.is_short || made.is_unfinished);
        let due = made.iter().filter(|made| is_due(made)).count() as u64 * plan.chunk_bytes;
        let aged = plan.size() * u64::from(plan.age);
        let _ = self.news.send(News::Layout(due + aged));
        for made in made.iter_mut().filter(|made| is_due(made)) {
            self.write_chunk(session, made.name, content)?;
            if std::mem::take(&mut made.is_unfinished) {
                session.finish(made.name, plan.chunk_bytes)?;
            }
        }
        if aged == 0 {
            return Ok(());
        }
        let mut prng = self.prng().fork();
        let block = chunks.page_bytes;
        let offsets = Offsets::random(chunks.size() / block, prng.fork());
        let draw = Draw { block, offsets, read_percent: 0, mix: prng };
        let window = Window { from: session.now(), until: Time::NEVER, left: aged };
        self.drive(session, (chunks, content), versions, (draw, window), AGE_DEPTH as u32)?;
        Ok(self.interrupt.check()?)
    }

    fn write_chunk(
        &self,
        session: &mut ClientSession,
        name: ChunkId,
        content: Content,
    ) -> Result<(), CliError> {
        let live = &self.shared.live;
        let mut before = 0;
        session.write_range(
            name,
            0..self.shared.plan.chunk_bytes,
            LAYOUT,
            |offset, out| {
                if self.shared.is_over.load(Ordering::Relaxed) {
                    return Err(CliError::Interrupted(Interrupted));
                }
                self.interrupt.check()?;
                content.fill((name, offset), out, |_| 0);
                Ok::<(), CliError>(())
            },
            |bytes| {
                live.bytes.fetch_add(bytes - before, Ordering::Relaxed);
                before = bytes;
            },
        )
    }

    /// Keeps the link alive until all jobs are ready.
    fn wait_for_start(&self, session: &mut ClientSession) -> Result<(), CliError> {
        loop {
            match self.start.try_recv() {
                Ok(()) => return Ok(()),
                Err(TryRecvError::Empty) => session.stay()?,
                // Another job has failed, and says why.
                Err(TryRecvError::Disconnected) => return Err(CliError::Interrupted(Interrupted)),
            }
        }
    }

    /// Removes the chunks that the job has made, or has them kept; gives those that are left.
    fn leave(
        &self,
        session: &mut ClientSession,
        made: &[Made],
    ) -> Result<Vec<ChunkId>, SessionError> {
        let mut kept = Vec::new();
        for &Made { name, is_own, is_unfinished, .. } in made {
            if is_own && !self.shared.plan.keep {
                session.delete(name).inspect_err(|_| {
                    say(format_args!(
                        "towpath: the chunk {name} could not be removed: `towpath rm {name}` \
                         removes it"
                    ));
                })?;
                continue;
            }
            if is_unfinished && is_own {
                let byte_len = session.stat(name)?.byte_len;
                session.finish(name, byte_len)?;
            }
            kept.push(name);
        }
        Ok(kept)
    }
}

/// Whether there is no such chunk.
fn is_missing(error: &SessionError) -> bool {
    matches!(error, SessionError::Client(error)
        if matches!(error.kind, ErrorKind::Refused(ErrorReply::NoSuchChunk { .. })))
}
