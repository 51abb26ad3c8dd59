//! Towpath as a carrier: an endpoint with one link and its channels.

use super::{Carrier, Counters, RowPlan, Turn};
use crate::perftest::content::Content;
use crate::perftest::error::RunError;
use crate::perftest::limits::{SPARE_PAYLOADS, WHY_WAIT};
use crate::perftest::patience::Patience;
use std::collections::VecDeque;
use std::hint::cold_path;
use std::time::Instant;
use towpath_memory::Region;
use towpath_status::{PathStatus, ProcessStatus, StatusSocket};
use towpath_transport::{
    ChannelError, ChannelId, Chunk, DownReason, Endpoint, Event, LinkId, Message, Nanos, Outcome,
    Payload, Ride, SendOptions,
};
use towpath_verbs::Device;

/// How long an idle end blocks at most before it looks again.
pub(super) const IDLE_WAIT: Nanos = Nanos::from_micros(200);

/// Tells how many packets a device knows to be lost; none where it does not tell.
pub(crate) type PacketsLost<D> = Box<dyn Fn(&D) -> Option<u64>>;

/// Messages over the channels of one link.
pub(crate) struct Towpath<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    link: LinkId,
    channels: Vec<ChannelId>,
    next: usize,
    messages: Messages,
    lost: PacketsLost<D>,
    patience: Patience,
    /// Where others may ask, and as what we answer.
    status: Option<(StatusSocket, &'static str)>,
}

impl<D: Device<Memory = Region>> Towpath<D> {
    /// Over the open `channels` of a link.
    pub(crate) fn new(
        endpoint: Endpoint<D>,
        link: LinkId,
        channels: Vec<ChannelId>,
        lost: PacketsLost<D>,
        idle_polls_max: u32,
    ) -> Self {
        Self {
            endpoint,
            link,
            channels,
            next: 0,
            messages: Messages { free: VecDeque::new(), content: Content::new(1, false), size: 0 },
            lost,
            patience: Patience::new(idle_polls_max),
            status: None,
        }
    }

    /// Answers who asks at `socket` from now on, as `program`.
    pub(crate) fn answer_at(&mut self, socket: StatusSocket, program: &'static str) {
        self.status = Some((socket, program));
    }

    #[cold]
    fn explained(&mut self, error: RunError) -> RunError {
        match error {
            RunError::Outcome(outcome) => self.why(outcome),
            other => other,
        }
    }

    /// Why a message ended as it did. One that has no deadline is given up only with its channel or
    /// its link, which tell of their end behind it.
    #[cold]
    fn why(&mut self, outcome: Outcome) -> RunError {
        let start = Instant::now();
        let mut why = None;
        while why.is_none() && start.elapsed() < WHY_WAIT {
            self.endpoint.turn(|_, event| match event {
                Event::LinkDown { .. } | Event::ChannelClosed { .. } if why.is_none() => {
                    why = Some(event);
                }
                _ => {}
            });
        }
        match why {
            Some(Event::LinkDown { reason, .. }) => link_down(&self.endpoint, reason),
            Some(Event::ChannelClosed { reason, .. }) => ChannelError::Closed(reason).into(),
            _ => RunError::Outcome(outcome),
        }
    }
}

/// The messages of a row at one end: what they are made of, and what they have to be.
struct Messages {
    /// First in, first out, so that all memory is used where there is more than one buffer.
    free: VecDeque<Payload>,
    content: Content,
    size: u32,
}

impl Messages {
    #[inline]
    fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        turn: &mut Turn,
    ) -> Result<(), RunError> {
        match event {
            Event::Sent { payload, outcome: Outcome::Delivered, .. } => {
                self.free.push_back(payload);
                turn.completed += 1;
            }
            Event::Message(message) => {
                self.check_message(&message)?;
                endpoint.release(message);
                turn.received += 1;
            }
            Event::StreamChunk { chunk, message_len, end, .. } => {
                self.check_chunk(&chunk, message_len)?;
                endpoint.release_chunk(chunk);
                turn.received += u64::from(end);
            }
            _ => return on_rare_event(endpoint, &event),
        }
        Ok(())
    }

    fn check_message(&mut self, message: &Message) -> Result<(), RunError> {
        self.check_len(message.len() as u32)?;
        if self.content.checked() { self.check_parts(message) } else { Ok(()) }
    }

    #[inline(never)]
    fn check_parts(&mut self, message: &Message) -> Result<(), RunError> {
        let mut offset = 0;
        for part in message.parts() {
            self.content.check(offset, part)?;
            offset += part.len();
        }
        Ok(())
    }

    fn check_chunk(&mut self, chunk: &Chunk, message_len: u32) -> Result<(), RunError> {
        self.check_len(message_len)?;
        if self.content.checked() {
            self.content.check(chunk.offset() as usize, chunk)?;
        }
        Ok(())
    }

    fn check_len(&self, got: u32) -> Result<(), RunError> {
        let wanted = self.size;
        if got == wanted { Ok(()) } else { Err(RunError::Length { wanted, got }) }
    }

    #[inline(never)]
    fn stamped(&mut self, payload: Payload) -> Payload {
        let mut buf = payload.into_bufs().next().expect("each was made of a buffer of its own");
        self.content.stamp(&mut buf);
        Payload::new(buf)
    }
}

#[cold]
fn on_rare_event<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    event: &Event,
) -> Result<(), RunError> {
    match *event {
        Event::Sent { outcome, .. } => Err(RunError::Outcome(outcome)),
        Event::StreamAborted { .. } => Err(RunError::Outcome(Outcome::Abandoned)),
        Event::LinkDown { reason, .. } => Err(link_down(endpoint, reason)),
        Event::ChannelClosed { reason, .. } => Err(ChannelError::Closed(reason).into()),
        _ => Ok(()),
    }
}

#[cold]
pub(super) fn link_down<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    reason: DownReason,
) -> RunError {
    RunError::LinkDown { reason, status: endpoint.endpoint_stats().last_error }
}

/// What a link has counted, and its device.
pub(super) fn counters_of<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    link: LinkId,
    lost: &PacketsLost<D>,
) -> Option<Counters> {
    let stats = endpoint.stats(link)?;
    Some(Counters {
        packets_lost: lost(endpoint.device()),
        chunks_sent: stats.chunks_sent,
        chunks_retransmitted: stats.chunks_retransmitted,
        acks_sent: stats.acks_sent,
        tail_probes: stats.tail_probes,
        rtos: stats.rtos,
        chunks_duplicate: stats.chunks_duplicate,
        reroutes: stats.reroutes(),
        rtt: endpoint.rtt(link),
        window_bytes: endpoint.congestion_window_bytes(link)?,
    })
}

impl<D: Device<Memory = Region>> Carrier for Towpath<D> {
    fn prepare(&mut self, row: &RowPlan) -> Result<(), RunError> {
        let Messages { free, content, size } = &mut self.messages;
        *size = row.size;
        *content = Content::new(row.size, row.validate);
        free.clear();
        // Written, not only sized: pages never written would all be one page of zeroes.
        let filled = || {
            let buf = self.endpoint.copy(content.bytes());
            buf.map_err(|_| RunError::NoBuffer { bytes: row.size })
        };
        let count = row.depth + SPARE_PAYLOADS;
        if row.apart {
            for _ in 0..count {
                free.push_back(filled()?.into());
            }
        } else {
            let common = filled()?.freeze();
            free.extend((0..count).map(|_| Payload::from(common.clone())));
        }
        Ok(())
    }

    fn post(&mut self, count: u64, _after: u64) -> Result<u64, RunError> {
        for posted in 0..count {
            let Some(mut payload) = self.messages.free.pop_front() else { return Ok(posted) };
            if self.messages.content.checked() {
                payload = self.messages.stamped(payload);
            }
            let channel = self.channels[self.next];
            if let Err(rejected) =
                self.endpoint.send(self.link, channel, payload, SendOptions::new())
            {
                cold_path();
                return Err(rejected.error.into());
            }
            self.next += 1;
            if self.next == self.channels.len() {
                self.next = 0;
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), RunError> {
        self.endpoint.flush();
        if self.patience.is_over() {
            self.endpoint.wait(IDLE_WAIT);
        }
        Ok(())
    }

    fn end_posting(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Turn, RunError> {
        let mut turn = Turn::default();
        let Self { endpoint, messages, .. } = self;
        self.patience.note(endpoint.poll() > 0);
        let mut failed = None;
        while failed.is_none()
            && endpoint.take_event(|endpoint, event| {
                failed = messages.on_event(endpoint, event, &mut turn).err();
            })
        {}
        if let Some(error) = failed {
            return Err(self.explained(error));
        }
        if let Some((socket, program)) = &mut self.status {
            socket.answer_when_asked(|| ProcessStatus::of(&self.endpoint, program));
        }
        Ok(turn)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        self.patience.is_over()
    }

    fn digests(&self) -> (u64, u64) {
        (self.messages.content.sent_digest(), self.messages.content.received_digest())
    }

    fn counters(&self) -> Option<Counters> {
        counters_of(&self.endpoint, self.link, &self.lost)
    }

    fn paths(&self) -> Vec<PathStatus> {
        PathStatus::all_of(&self.endpoint, self.link)
    }

    fn rides(&self) -> Vec<Ride> {
        self.endpoint.rides().after(0).copied().collect()
    }
}
