//! Channels, sends, and buffers that come back.

use super::Endpoint;
use crate::buffers::{AllocError, Buffers, LinkBuffers, SendBuffers};
use crate::class::ClassReport;
use crate::conn::{Conn, Phase};
use crate::error::ChannelError;
use crate::event::Peer;
use crate::ids::{LinkId, SendId};
use crate::message::{Chunk, Message};
use crate::payload::{Payload, Rejected, SendOptions, SubmitError};
use crate::rx::Rx;
use crate::sends::Sends;
use std::hint::cold_path;
use towpath_base::Nanos;
use towpath_memory::{Buf, Region, RegionId};
use towpath_proto::limits::{MESSAGE_BYTES_MAX, SEGMENTS_MAX};
use towpath_proto::{
    CancelError, Carrier, ChannelId, LinkCensus, LinkStats, PathSnapshot, SendKey, SendRequest,
};
use towpath_verbs::{Device, Mtu, QpNum};

/// Where the buffers of an endpoint are; for tests and for finding leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferCensus {
    /// Send buffers in their pools.
    pub send_free: usize,
    /// All send buffers.
    pub send_all: usize,
    /// Receive buffers that are posted.
    pub recv_posted: usize,
    /// Receive buffers that nobody needs now.
    pub recv_free: usize,
    /// All receive buffers; what is neither posted nor free is held by links or the application, or
    /// waits to go home.
    pub recv_all: usize,
}

/// One path of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// How it stands, and what it has done.
    pub facts: PathSnapshot,
    /// Its queue pair here.
    pub qp_num: QpNum,
    /// Which of the device's source ports it leaves from now.
    pub source_port: u16,
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// An empty buffer for at least `len` bytes, from the smallest send pool that has one.
    ///
    /// # Errors
    /// [`AllocError`]: no buffer is so long, or all that are long enough are out now: see
    /// [`want_buffer`](Self::want_buffer).
    pub fn alloc(&self, len: usize) -> Result<Buf, AllocError> {
        self.buffers.pools().take(len)
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn copy(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        self.buffers.pools().copy(bytes)
    }

    /// The send buffers as a link may have them, for what is sent over it: a peer that takes
    /// nothing in keeps no more than the share of its link from the others. A buffer counts as the
    /// link's until it is back, whoever has it by then.
    #[must_use]
    pub fn buffers_of(&self, link: LinkId) -> LinkBuffers<'_> {
        self.buffers.of(link)
    }

    /// Has [`Event::BufferFree`](crate::Event::BufferFree) tell, once, when a buffer for so many
    /// bytes is free: at once if one is. For those who were refused one with
    /// [`AllocError::AllOut`]. First give back what else the message had taken: it counts, too.
    pub fn want_buffer(&self, bytes: usize) {
        self.buffers.want(bytes);
    }

    /// Opens a channel; [`Event::ChannelOpened`](crate::Event::ChannelOpened) or
    /// [`Event::ChannelClosed`](crate::Event::ChannelClosed) (refused) follows.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn open_channel(&mut self, link: LinkId, ordered: bool) -> Result<ChannelId, ChannelError> {
        // The last message of a channel that was closed may be what its credit waits for.
        self.rx.take_released(&mut self.links);
        let found = self.links.up(link).ok_or(ChannelError::NoSuchLink)?;
        let channel = found.open_channel(ordered)?;
        self.links.touch(link.index);
        Ok(channel)
    }

    /// Sets a channel's weight at this end: channels that are busy share the link's bytes in the
    /// proportion of their weights. 16 by default.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn set_weight(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        weight: u16,
    ) -> Result<(), ChannelError> {
        let found = self.links.up(link).ok_or(ChannelError::NoSuchLink)?;
        Ok(found.set_weight(channel, weight)?)
    }

    /// Closes a channel when everything sent on it has had its outcome.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn close_channel(&mut self, link: LinkId, channel: ChannelId) -> Result<(), ChannelError> {
        let found = self.links.up(link).ok_or(ChannelError::NoSuchLink)?;
        found.close_channel(channel)?;
        self.links.touch(link.index);
        Ok(())
    }

    /// Leaves in order: what is under way is still sent, then the peer is told.
    /// [`Event::LinkDown`](crate::Event::LinkDown) follows.
    pub fn close(&mut self, link: LinkId) {
        if let Some(found) = self.links.up(link) {
            found.goodbye();
            self.links.touch(link.index);
        }
    }

    /// Sends a message without copying it (but for segments of up to 512 bytes, which may be copied
    /// to share a chunk with others): its buffers come back in [`Event::Sent`](crate::Event::Sent).
    /// Nothing leaves before the [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Rejected`] with the message; nothing was sent. After [`SubmitError::Full`]
    /// [`Event::Writable`](crate::Event::Writable) says when to try again.
    pub fn send(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        payload: impl Into<Payload>,
        options: SendOptions,
    ) -> Result<SendId, Rejected> {
        self.send_parts(link, channel, payload.into(), options, None)
    }

    /// Sends a message, of which so many bytes come later.
    #[inline]
    pub(super) fn send_parts(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        payload: Payload,
        options: SendOptions,
        later: Option<u32>,
    ) -> Result<SendId, Rejected> {
        let options = options.counted_from(|| self.device.now());
        let Self { links, buffers, rx, .. } = self;
        let conn = links.find_mut(link).filter(|conn| conn.phase == Phase::Up);
        let sent = match conn {
            Some(conn) => try_send(conn, (buffers, rx), channel, (&payload, later), options),
            None => Err(SubmitError::NoSuchLink),
        };
        match sent {
            Ok((key, lkeys, sends)) => {
                sends.put(key, payload, (lkeys, later.is_some()));
                self.links.touch(link.index);
                Ok(SendId { link, key })
            }
            Err(error) => {
                cold_path();
                if let (SubmitError::Full, Some(conn)) = (error, self.links.find_mut(link)) {
                    conn.is_refused = true;
                }
                Err(Rejected { payload, error })
            }
        }
    }

    /// Sends a message of the endpoint's own, whose outcome the application does not see; none when
    /// there is no room, or no such channel.
    pub(super) fn send_unseen(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        buf: Buf,
        options: SendOptions,
    ) -> Option<SendKey> {
        let payload = Payload::new(buf);
        let Self { links, buffers, rx, .. } = self;
        let conn = links.find_mut(link).filter(|conn| conn.phase == Phase::Up)?;
        let sent = try_send(conn, (buffers, rx), channel, (&payload, None), options);
        let (key, lkeys, sends) = sent.ok()?;
        sends.put(key, payload, (lkeys, false));
        self.links.touch(link.index);
        Some(key)
    }

    /// Gives a message up. Its outcome comes with [`Event::Sent`](crate::Event::Sent) all the same.
    ///
    /// # Errors
    /// [`CancelError`] when it has ended already.
    pub fn cancel(&mut self, send: SendId) -> Result<(), CancelError> {
        let link = self.links.up(send.link).ok_or(CancelError::Ended)?;
        link.cancel(send.key)?;
        self.links.touch(send.link.index);
        Ok(())
    }

    /// Gives a received message's buffers back: faster than dropping it. They go home in the next
    /// [`flush`](Self::flush) or [`poll`](Self::poll). Where the device takes nothing in before a
    /// poll, that is when the first answers have left.
    pub fn release(&mut self, message: Message) {
        self.rx.release(message);
    }

    /// Gives a received chunk's buffer back: faster than dropping it.
    pub fn release_chunk(&mut self, chunk: Chunk) {
        self.rx.release_chunk(&mut self.links, chunk);
    }

    /// The counters of a link; `None` when it is gone.
    #[must_use]
    pub fn stats(&self, link: LinkId) -> Option<LinkStats> {
        Some(self.links.find(link)?.link.as_ref()?.stats())
    }

    /// The counters of all links together, those that are down included.
    #[must_use]
    pub fn stats_of_all_links(&self) -> LinkStats {
        let links = self.links.iter().filter_map(|conn| conn.link.as_ref());
        links.fold(self.tally.ended, |mut sum, link| {
            sum += link.stats();
            sum
        })
    }

    /// The smoothed round-trip time of a link, all its paths together, once there is a sample.
    #[must_use]
    pub fn rtt(&self, link: LinkId) -> Option<Nanos> {
        self.links.find(link)?.link.as_ref()?.srtt()
    }

    /// The newest sample of a link's round trip, of any path, without what it took within the
    /// hosts; `None` before the first.
    #[must_use]
    pub fn rtt_latest(&self, link: LinkId) -> Option<Nanos> {
        self.links.find(link)?.link.as_ref()?.rtt_latest()
    }

    /// What a link may have in flight at present as far as congestion control goes, in bytes;
    /// `None` when it is gone.
    #[must_use]
    pub fn congestion_window_bytes(&self, link: LinkId) -> Option<u64> {
        Some(self.links.find(link)?.link.as_ref()?.window_bytes())
    }

    /// What a link rides on now; `None` when it is gone.
    #[must_use]
    pub fn carrier_of(&self, link: LinkId) -> Option<Carrier> {
        Some(self.links.find(link)?.link.as_ref()?.carrier())
    }

    /// The class of a link, and whether its mark survives the way here; `None` when it is gone.
    #[must_use]
    pub fn class_of(&self, link: LinkId) -> Option<ClassReport> {
        Some(self.links.find(link)?.class)
    }

    /// How each path of a link stands that has a queue pair; none when the link is gone.
    pub fn paths(&self, link: LinkId) -> impl Iterator<Item = PathReport> {
        let conn = self.links.find(link);
        let ways = conn.into_iter().flat_map(|conn| &conn.paths);
        let link = conn.and_then(|conn| conn.link.as_ref());
        let facts = link.into_iter().flat_map(towpath_proto::Link::paths);
        facts.zip(ways).map(|(facts, way)| PathReport {
            facts,
            qp_num: way.qp_num,
            source_port: way.source_port,
        })
    }

    /// The path MTU of a link, in both directions; `None` when the link is gone.
    #[must_use]
    pub fn mtu_of(&self, link: LinkId) -> Option<Mtu> {
        self.links.find(link)?.agreed.mtu
    }

    /// Whether the packets of a link carry no ICRC over UC, as both ends agreed; `None` when the
    /// link is gone.
    #[must_use]
    pub fn omits_icrc(&self, link: LinkId) -> Option<bool> {
        Some(self.links.find(link)?.agreed.omits_icrc)
    }

    /// Messages from the peer up to this length come whole, the same on each link:
    /// [`EndpointConfig::whole_bytes_max`](crate::EndpointConfig::whole_bytes_max), or less where a
    /// channel's quota does not hold that. Longer ones come in pieces, as
    /// [`Event::StreamChunk`](crate::Event::StreamChunk). `None` when the link is gone.
    #[must_use]
    pub fn whole_bytes_max(&self, link: LinkId) -> Option<u32> {
        self.links.find(link)?.link.as_ref().map(towpath_proto::Link::whole_bytes_max)
    }

    /// Whether nothing is queued, outstanding or waiting to be acknowledged or taken on a link.
    #[must_use]
    pub fn is_idle(&self, link: LinkId) -> bool {
        let link = self.links.find(link).and_then(|conn| conn.link.as_ref());
        link.is_none_or(towpath_proto::Link::is_idle)
    }

    /// What a link holds now, for tests and for finding leaks; `None` when it is gone.
    #[must_use]
    pub fn link_census(&self, link: LinkId) -> Option<LinkCensus> {
        Some(self.links.find(link)?.link.as_ref()?.census())
    }

    /// Who is at the other end of a link.
    #[must_use]
    pub fn peer(&self, link: LinkId) -> Option<Peer> {
        self.links.find(link)?.agreed.peer
    }

    /// The links that are up.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.links.iter().filter(|conn| conn.phase == Phase::Up).map(|conn| conn.id)
    }

    /// Where the buffers are.
    #[must_use]
    pub fn buffers(&self) -> BufferCensus {
        let (send_free, send_all) = self.buffers.pools().free_and_all();
        let (recv_all, recv_free, recv_posted) = self.rx.slots().census();
        BufferCensus { send_free, send_all, recv_posted, recv_free, recv_all }
    }
}

impl<D: Device<Memory = Region>> SendBuffers for Endpoint<D> {
    fn alloc(&self, len: usize) -> Result<Buf, AllocError> {
        self.buffers.pools().take(len)
    }
}

/// Hands a message to its link: the key of it, those of its segments, and where they go.
#[inline]
fn try_send<'a>(
    conn: &'a mut Conn,
    regions: (&Buffers, &Rx),
    channel: ChannelId,
    (payload, later): (&Payload, Option<u32>),
    options: SendOptions,
) -> Result<(SendKey, [u32; SEGMENTS_MAX], &'a mut Sends), SubmitError> {
    let segments = &payload.segments;
    let (mut lkeys, mut lens) = ([0; SEGMENTS_MAX], [0; SEGMENTS_MAX]);
    for (segment, buf) in segments.iter().take(SEGMENTS_MAX).enumerate() {
        let max = MESSAGE_BYTES_MAX;
        let too_long = |_| SubmitError::TooLong { bytes: payload.byte_len(), max };
        lens[segment] = u32::try_from(buf.len()).map_err(too_long)?;
        let found = lkey_of(regions, buf.region_id());
        lkeys[segment] = found.ok_or(SubmitError::NotRegistered { segment })?;
    }
    // A payload has no more segments than there are places.
    let mut count = segments.len().min(SEGMENTS_MAX);
    if let Some(later) = later {
        let place = lens.get_mut(count).filter(|_| later > 0 && count > 0);
        *place.ok_or(SubmitError::BadGrowth)? = later;
        count += 1;
    }
    let request = SendRequest {
        channel,
        token: options.token,
        segments: &lens[..count],
        deadline: options.deadline,
        at_pages: payload.at_pages,
    };
    let refused = |error| SubmitError::of(error, channel, payload.byte_len());
    let link = conn.link.as_mut().ok_or(SubmitError::NoSuchLink)?;
    let sent = if later.is_some() { link.send_growing(&request) } else { link.send(&request) };
    let key = sent.map_err(refused)?;
    Ok((key, lkeys, &mut conn.sends))
}

/// The key of a region; behind those that were registered come those of what was received.
#[inline]
pub(super) fn lkey_of((buffers, rx): (&Buffers, &Rx), region: RegionId) -> Option<u32> {
    buffers.lkey_of(region).or_else(|| rx.slots().lkey_of(region))
}
