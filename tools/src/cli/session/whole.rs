//! Many small chunks under way at a time: each is made, written by one request and finished.

use towpath_fastpath::{ChunkId, ClientError, NewChunk, OpId};
use towpath_rpc::Fate;
use towpath_transport::{Device, Region, Time};

use super::again::is_gone;
use super::transfer::{BUSY_WAIT, TRIES_MAX, is_passing, take_buf};
use super::{Pace, Session, SessionError, fresh_stamp};

/// A chunk that one request holds.
#[derive(Debug)]
pub(crate) struct Whole<T> {
    pub chunk: ChunkId,
    pub bytes: Vec<u8>,
    /// What it is of.
    pub of: T,
}

/// What is done next with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Finish,
}

impl Step {
    /// The step after this one, of a chunk of so many bytes.
    fn next(self, byte_len: usize) -> Option<Self> {
        match self {
            Self::Create if byte_len > 0 => Some(Self::Write),
            Self::Create | Self::Write => Some(Self::Finish),
            Self::Finish => None,
        }
    }
}

/// A chunk that is being stored.
struct Storing<T> {
    whole: Whole<T>,
    step: Step,
    /// While a request is under way.
    op: Option<OpId>,
    tries: u32,
    not_before: Time,
    /// Of its creation: the server knows one that it has made already.
    stamp: u64,
}

/// Chunks that are being stored, and how it goes.
struct Run<T, E> {
    storing: Vec<Storing<T>>,
    resident: bool,
    /// The link over which they were asked for is gone.
    lost: Option<SessionError>,
    /// After this no more are begun.
    failed: Option<E>,
    /// Chunks that were made, and that are not whole.
    broken: Vec<ChunkId>,
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// Stores the chunks that `next` gives, `depth` at a time; `stored` is told of each that is
    /// whole and durable. Chunks that were made and are not whole when it fails are put into
    /// `broken`.
    ///
    /// # Errors
    /// [`SessionError`], or what `next` and `stored` say. After an error of a request or of `next`
    /// no more are begun, and those under way are stored.
    pub(crate) fn store_whole<T, E: From<SessionError>>(
        &mut self,
        depth: usize,
        resident: bool,
        mut next: impl FnMut() -> Result<Option<Whole<T>>, E>,
        mut stored: impl FnMut(Whole<T>) -> Result<(), E>,
        broken: &mut Vec<ChunkId>,
    ) -> Result<(), E> {
        let mut run =
            Run { storing: Vec::new(), resident, lost: None, failed: None, broken: Vec::new() };
        let ended = self.store_on(depth, &mut run, &mut next, &mut stored);
        let made = run.storing.iter().map(|storing| storing.whole.chunk);
        broken.extend(made.chain(run.broken));
        ended?;
        run.failed.map_or(Ok(()), Err)
    }

    fn store_on<T, E: From<SessionError>>(
        &mut self,
        depth: usize,
        run: &mut Run<T, E>,
        next: &mut impl FnMut() -> Result<Option<Whole<T>>, E>,
        stored: &mut impl FnMut(Whole<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut is_last = false;
        loop {
            while !is_last && run.failed.is_none() && run.storing.len() < depth {
                match next() {
                    Ok(Some(whole)) => run.storing.push(Storing {
                        whole,
                        step: Step::Create,
                        op: None,
                        tries: 0,
                        not_before: Time::ZERO,
                        stamp: fresh_stamp(),
                    }),
                    Ok(None) => is_last = true,
                    Err(error) => run.failed = Some(error),
                }
            }
            if run.storing.is_empty() {
                return Ok(());
            }
            if run.lost.is_some() && run.storing.iter().all(|storing| storing.op.is_none()) {
                let lost = run.lost.take();
                lost.map_or(Ok(()), |lost| self.again(lost))?;
            }
            if run.lost.is_none() {
                self.ask_for_all(run);
            }
            self.step()?;
            while let Some(done) = self.client.poll(&mut self.endpoint) {
                let place = run.storing.iter().position(|storing| storing.op == Some(done.op));
                let Some(place) = place else {
                    self.drop_late(done);
                    continue;
                };
                if let Some(whole) = run.ended(place, done.result.map(drop), self.now()) {
                    stored(whole)?;
                }
            }
        }
    }

    /// Makes the requests that are due, as far as there are buffers.
    fn ask_for_all<T, E: From<SessionError>>(&mut self, run: &mut Run<T, E>) {
        let now = self.now();
        let mut place = 0;
        while place < run.storing.len() {
            let storing = &run.storing[place];
            if storing.op.is_some() || storing.not_before > now {
                place += 1;
                continue;
            }
            match self.ask_for(storing, run.resident) {
                Some(Ok(op)) => run.storing[place].op = Some(op),
                // Those that are under way give buffers back.
                None => return,
                // What could not even be asked for leaves its place to the last.
                Some(Err(error)) => {
                    run.ended(place, Err(error), now);
                    if run.lost.is_some() {
                        return;
                    }
                    continue;
                }
            }
            place += 1;
        }
    }

    fn ask_for<T>(
        &mut self,
        storing: &Storing<T>,
        resident: bool,
    ) -> Option<Result<OpId, ClientError>> {
        let Whole { chunk, bytes, .. } = &storing.whole;
        let (endpoint, client) = (&mut self.endpoint, self.client.primary_mut());
        Some(match storing.step {
            Step::Create => {
                let kind = NewChunk { unfinished: true, resident, chain: 0 };
                client.start_create_stamped(endpoint, *chunk, None, kind, storing.stamp)
            }
            Step::Write => {
                let mut data = take_buf(endpoint, bytes.len())?;
                data.copy_from_slice(bytes);
                client.start_write(endpoint, *chunk, 0, data)
            }
            Step::Finish => client.start_finish(endpoint, *chunk, bytes.len() as u64),
        })
    }
}

impl<T, E: From<SessionError>> Run<T, E> {
    /// A request has ended: the chunk goes on to its next step, and is given back when it is whole.
    fn ended(
        &mut self,
        place: usize,
        result: Result<(), ClientError>,
        now: Time,
    ) -> Option<Whole<T>> {
        let storing = &mut self.storing[place];
        storing.op = None;
        match result {
            Ok(()) => match storing.step.next(storing.whole.bytes.len()) {
                Some(step) => (storing.step, storing.tries) = (step, 0),
                None => return Some(self.storing.swap_remove(place).whole),
            },
            // The same step once more, over another link.
            Err(error) if is_gone(&error.kind) => {
                self.lost.get_or_insert(error.into());
            }
            Err(error) if is_passing(&error.kind) && storing.tries < TRIES_MAX => {
                storing.tries += 1;
                storing.not_before = now + BUSY_WAIT;
            }
            Err(error) => {
                let Storing { whole, step, .. } = self.storing.swap_remove(place);
                // A name that somebody else has is not this run's to take away.
                if step != Step::Create || error.kind.fate() != Fate::DidNotHappen {
                    self.broken.push(whole.chunk);
                }
                self.failed.get_or_insert(SessionError::from(error).into());
            }
        }
        None
    }
}
