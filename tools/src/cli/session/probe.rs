//! Requests one at a time, each with the time that this side had of it.

use towpath_fastpath::health::{HealthReply, Times};
use towpath_fastpath::{ChunkId, Output};
use towpath_transport::{Device, Nanos, Region};

use super::pace::Pace;
use super::window::{Window, take_buf};
use super::{Session, SessionError};

/// What requests of one kind took, as this side sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probed {
    /// From asking until the answer was here and checked.
    pub(crate) whole: Times,
    /// Of that, while this side worked: making requests, sending, taking answers in.
    pub(crate) client: Times,
    /// Of that, while this side had nothing to do.
    pub(crate) waiting: Times,
    /// The smoothed round-trip time of the link at the end of each.
    pub(crate) round_trip: Times,
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// How the links of the server are, and what the phases of requests took there.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn health_with_times(&mut self) -> Result<HealthReply, SessionError> {
        self.end_of(self.client.health_with_times())
    }

    /// Reads or writes blocks of a chunk one at a time, round and round, for `span`, and once at
    /// least.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn probe(
        &mut self,
        chunk: ChunkId,
        is_write: bool,
        (block, blocks): (usize, u64),
        span: Nanos,
    ) -> Result<Probed, SessionError> {
        let (mut probed, until) = (Probed::default(), self.now() + span);
        for turn in 0.. {
            self.probe_once(
                chunk,
                is_write,
                turn % blocks.max(1) * block as u64,
                block,
                &mut probed,
            )?;
            if self.now() >= until {
                break;
            }
        }
        Ok(probed)
    }

    fn probe_once(
        &mut self,
        chunk: ChunkId,
        is_write: bool,
        offset: u64,
        byte_len: usize,
        probed: &mut Probed,
    ) -> Result<(), SessionError> {
        let mut window = Window::new(1);
        let began = self.now();
        let ticket = loop {
            if !is_write {
                break self.driver.read(chunk, offset, byte_len, false);
            }
            // The one before gives its buffer back.
            if let Some(mut data) = take_buf(self.driver.endpoint(), byte_len) {
                data.fill(offset as u8);
                break self.driver.write(chunk, offset, data);
            }
            self.step()?;
        };
        window.push(ticket, offset as u8);
        let mut client = self.now().since(began);
        let mut is_first = true;
        let output = loop {
            let from = self.now();
            let was_busy = self.driver.turn();
            self.tell_away();
            if was_busy || std::mem::take(&mut is_first) {
                client = client + self.now().since(from);
            } else {
                let due = self.driver.next_due();
                self.pace.idle(self.driver.endpoint_mut(), due)?;
            }
            if let Some((_, result)) = window.next_ended(&mut self.driver) {
                break result?;
            }
            let fill = |byte: &u8, out: &mut [u8]| {
                out.fill(*byte);
                Ok::<(), SessionError>(())
            };
            window.refill(&mut self.driver, |_| byte_len, fill)?;
        };
        let whole = self.now().since(began);
        match output {
            Output::Read(data) if !is_write => data.release(self.driver.endpoint_mut()),
            Output::Changed(..) if is_write => {}
            _ => return Err(SessionError::OtherOutput),
        }
        probed.whole.record(whole.0);
        probed.client.record(client.0);
        probed.waiting.record(whole.0.saturating_sub(client.0));
        if let Some(rtt) = self.rtt() {
            probed.round_trip.record(rtt.0);
        }
        Ok(())
    }
}
