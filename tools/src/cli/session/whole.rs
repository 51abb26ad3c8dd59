//! Many small chunks under way at a time: each is made, written by one request and finished.

use towpath_fastpath::{ChunkId, ClientError, NewChunk, Ticket};
use towpath_rpc::Fate;
use towpath_transport::{Device, Region};

use super::window::{Window, take_buf};
use super::{Pace, Session, SessionError};

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
}

/// Chunks that are being stored, and how it goes.
struct Run<T, E> {
    window: Window<Storing<T>>,
    /// Those whose next step waits for a buffer.
    waiting: Vec<Storing<T>>,
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
        let window = Window::new(depth);
        let mut run = Run { window, waiting: Vec::new(), failed: None, broken: Vec::new() };
        let ended = self.store_on((depth, resident), &mut run, &mut next, &mut stored);
        let made = run.window.into_iter().chain(run.waiting).map(|storing| storing.whole.chunk);
        broken.extend(made.chain(run.broken));
        ended?;
        run.failed.map_or(Ok(()), Err)
    }

    fn store_on<T, E: From<SessionError>>(
        &mut self,
        (depth, resident): (usize, bool),
        run: &mut Run<T, E>,
        next: &mut impl FnMut() -> Result<Option<Whole<T>>, E>,
        stored: &mut impl FnMut(Whole<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut is_last = false;
        loop {
            let fill = |storing: &Storing<T>, out: &mut [u8]| {
                out.copy_from_slice(&storing.whole.bytes);
                Ok::<(), E>(())
            };
            run.window.refill(&mut self.driver, |storing| storing.whole.bytes.len(), fill)?;
            for storing in std::mem::take(&mut run.waiting) {
                self.store_step(run, storing, resident);
            }
            while !is_last && run.failed.is_none() && run.window.len() + run.waiting.len() < depth {
                match next() {
                    Ok(Some(whole)) => {
                        self.store_step(run, Storing { whole, step: Step::Create }, resident);
                    }
                    Ok(None) => is_last = true,
                    Err(error) => run.failed = Some(error),
                }
            }
            if run.window.is_empty() && run.waiting.is_empty() {
                return Ok(());
            }
            self.step()?;
            while let Some((storing, result)) = run.window.next_ended(&mut self.driver) {
                let next = storing.step.next(storing.whole.bytes.len());
                match (result, next) {
                    (Ok(_), Some(step)) => {
                        self.store_step(run, Storing { step, ..storing }, resident);
                    }
                    (Ok(_), None) => stored(storing.whole)?,
                    (Err(error), _) => run.fail(&storing, error),
                }
            }
        }
    }

    /// Begins the next step of a chunk, or has it wait for a buffer.
    fn store_step<T, E>(&mut self, run: &mut Run<T, E>, storing: Storing<T>, resident: bool) {
        match self.begin_step(&storing, resident) {
            Some(ticket) => run.window.push(ticket, storing),
            // Those that are under way give buffers back.
            None => run.waiting.push(storing),
        }
    }

    fn begin_step<T>(&mut self, storing: &Storing<T>, resident: bool) -> Option<Ticket> {
        let Whole { chunk, bytes, .. } = &storing.whole;
        Some(match storing.step {
            Step::Create => {
                self.driver.create(*chunk, NewChunk { unfinished: true, resident, chain: 0 })
            }
            Step::Write => {
                let mut data = take_buf(self.driver.endpoint(), bytes.len())?;
                data.copy_from_slice(bytes);
                self.driver.write(*chunk, 0, data)
            }
            Step::Finish => self.driver.finish(*chunk, bytes.len() as u64),
        })
    }
}

impl<T, E: From<SessionError>> Run<T, E> {
    /// A chunk cannot be stored.
    fn fail(&mut self, Storing { whole, step }: &Storing<T>, error: ClientError) {
        // A name that somebody else has is not this run's to take away.
        if *step != Step::Create || error.kind.fate() != Fate::DidNotHappen {
            self.broken.push(whole.chunk);
        }
        self.failed.get_or_insert(SessionError::from(error).into());
    }
}
