//! Requests that a load draws, a fixed number of them under way.

use std::time::Duration;

use towpath_fastpath::{ChunkId, Output, ReadData, Ticket};
use towpath_transport::{Device, Region, Time};

use super::pace::WallClock;
use super::window::{Window, take_buf};
use super::{Session, SessionError};

/// How long requests under way may take to end after an interruption.
const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// One read or one write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub is_write: bool,
    pub chunk: ChunkId,
    pub offset: u64,
    pub byte_len: usize,
    /// The load's own number of it.
    pub token: usize,
}

/// What draws requests, and is told of their ends.
pub(crate) trait Load {
    /// What ends it early.
    type Error: From<SessionError>;

    /// The next request; none once there are no more.
    fn next(&mut self, now: Time) -> Option<Io>;

    /// The bytes of a write. It is asked again where the request is made again.
    fn fill(&mut self, io: &Io, out: &mut [u8]);

    /// A request has ended well: `span` is from its first submission until now; `data` is what was
    /// read.
    ///
    /// # Errors
    /// What is wrong with the data.
    fn ended(
        &mut self,
        io: &Io,
        span: (Time, Time),
        data: Option<&ReadData>,
    ) -> Result<(), Self::Error>;

    /// Draws no more: somebody asked to stop.
    fn stop(&mut self);
}

/// What a load met besides requests that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    /// Requests that the server refused as busy, which were made again.
    pub busy: u64,
    /// Requests whose bytes were changed on the way, which were made again.
    pub corrupt: u64,
}

/// A request, and when it was submitted first.
#[derive(Clone, Copy, Debug)]
struct Submitted {
    io: Io,
    at: Time,
}

impl<D: Device<Memory = Region>> Session<D, WallClock> {
    /// Makes the requests of a load, `depth` at a time, until it has no more and all have ended.
    /// An interruption stops the load; what is under way then still ends.
    ///
    /// # Errors
    /// [`SessionError`], or what the load says.
    pub(crate) fn drive<L: Load>(
        &mut self,
        load: &mut L,
        depth: usize,
    ) -> Result<Troubles, L::Error> {
        let before = self.client.stats();
        let mut window = Window::new(depth);
        // The next request, while there is no buffer for it.
        let (mut next, mut is_over, mut is_stopped) = (None, false, false);
        loop {
            let fill = |of: &Submitted, out: &mut [u8]| {
                load.fill(&of.io, out);
                Ok::<(), L::Error>(())
            };
            window.refill(&mut self.driver, |of: &Submitted| of.io.byte_len, fill)?;
            while window.len() < depth {
                if next.is_none() && !is_over {
                    let at = self.now();
                    next = load.next(at).map(|io| Submitted { io, at });
                    is_over = next.is_none();
                }
                let Some(submitted) = next else { break };
                let Some(ticket) = self.submit(load, &submitted.io) else { break };
                window.push(ticket, submitted);
                next = None;
            }
            if window.is_empty() && next.is_none() {
                break;
            }
            match self.step() {
                Err(SessionError::Interrupted(_)) if !is_stopped => {
                    load.stop();
                    (next, is_over, is_stopped) = (None, true, true);
                    self.pace.last_wait(DRAIN_WAIT);
                }
                stepped => stepped?,
            }
            while let Some((Submitted { io, at }, result)) = window.next_ended(&mut self.driver) {
                let span = (at, self.now());
                match result.map_err(SessionError::from)? {
                    Output::Read(data) if !io.is_write => {
                        let ended = load.ended(&io, span, Some(&data));
                        data.release(self.driver.endpoint_mut());
                        ended?;
                    }
                    Output::Changed(..) if io.is_write => load.ended(&io, span, None)?,
                    _ => return Err(SessionError::OtherOutput.into()),
                }
            }
        }
        let after = self.client.stats();
        let (busy, corrupt) = (after.busy - before.busy, after.corrupt - before.corrupt);
        Ok(Troubles { busy, corrupt })
    }

    /// Makes a request; none where there is no buffer for it.
    fn submit<L: Load>(&mut self, load: &mut L, io: &Io) -> Option<Ticket> {
        let Io { is_write, chunk, offset, byte_len, .. } = *io;
        if !is_write {
            return Some(self.driver.read(chunk, offset, byte_len, false));
        }
        // Those that are under way give buffers back.
        let mut data = take_buf(self.driver.endpoint(), byte_len)?;
        load.fill(io, &mut data);
        Some(self.driver.write(chunk, offset, data))
    }
}
