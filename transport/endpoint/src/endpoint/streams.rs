//! Reading and writing the streams of links, as part of an endpoint's turn.

use super::Endpoint;
use crate::conn::Phase;
use crate::ids::LinkId;
use crate::limits::TCP_FRAMES_PER_LOOK;
use crate::tcp::{ByteStream, Frames, FramesError, Tcp};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_verbs::Device;

/// The links of an endpoint that have a stream, and when the next one is looked at.
#[derive(Default)]
pub(crate) struct Streams {
    links: Vec<u16>,
    due: Option<Time>,
    /// Those with news, while they are looked at.
    pub(super) with_news: Vec<u16>,
}

impl Streams {
    /// When the next stream is due.
    pub(crate) fn due(&self) -> Time {
        self.due.unwrap_or(Time::NEVER)
    }

    /// A stream is to be looked at by then.
    pub(super) fn hurry(&mut self, due: Time) {
        self.due = self.due.map(|other| other.min(due));
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Something came on the stream of a link.
    pub(crate) fn hurry_stream(&mut self, index: u16, now: Time) {
        if let Some(tcp) = self.links.at(index).and_then(|conn| conn.tcp.as_mut()) {
            tcp.hurry(now);
            self.streams.hurry(now);
        }
    }

    /// Gives a link its stream, on which `first` is still to be written; gives both back where it
    /// has no path that rides on it. `is_told` says that what comes on it is told of.
    pub(crate) fn give_stream<S: ByteStream + 'static>(
        &mut self,
        link: LinkId,
        stream: S,
        (first, is_told): (Vec<u8>, bool),
    ) -> Option<(S, Vec<u8>)> {
        let now = self.now();
        let chunk_bytes_max = self.config.sizes.chunk_bytes_max as usize;
        let Some(conn) = self.links.find_mut(link) else { return Some((stream, first)) };
        let Some(path) = conn.tcp_path() else { return Some((stream, first)) };
        let stream: Box<dyn ByteStream> = Box::new(stream);
        let frames = Frames::new(stream, first, chunk_bytes_max);
        conn.tcp = Some(Tcp::new(path, frames, is_told, now));
        self.streams.links.push(link.index);
        self.streams.due = Some(now);
        self.links.touch(link.index);
        None
    }

    /// Looks at the streams when it is time to; returns how many frames came.
    #[inline]
    pub(crate) fn poll_streams(&mut self, now: Time) -> usize {
        if now < self.streams.due() { 0 } else { self.look_at_streams(now) }
    }

    #[inline(never)]
    fn look_at_streams(&mut self, now: Time) -> usize {
        let mut streams = std::mem::take(&mut self.streams);
        let mut count = 0;
        let mut due = None;
        streams.links.retain(|&index| {
            let Some(mut tcp) = self.links.at(index).and_then(|conn| conn.tcp.take()) else {
                return false;
            };
            if tcp.due <= now {
                count += self.look_at(index, &mut tcp, now);
            }
            due = Some(due.map_or(tcp.due, |at: Time| at.min(tcp.due)));
            let conn = self.links.at(index).filter(|conn| conn.phase == Phase::Up);
            // A link that is down needs its stream no more.
            conn.map(|conn| conn.tcp = Some(tcp)).is_some()
        });
        streams.due = due;
        self.streams = streams;
        count
    }

    fn look_at(&mut self, index: u16, tcp: &mut Tcp, now: Time) -> usize {
        let mut count = 0;
        match self.exchange(index, tcp, now, &mut count) {
            Ok(wrote) => {
                tcp.look_again(now, count > 0 || wrote);
                if wrote || count > 0 {
                    self.links.touch(index);
                }
            }
            Err(error) => {
                if let FramesError::Length { .. } = error {
                    self.tally.stats.tcp_breaches += 1;
                    tracing::warn!(link = index, %error, "a set-up connection is given up");
                }
                tcp.due = Time::NEVER;
                if let Some(id) = self.links.at(index).map(|conn| conn.id) {
                    self.peer_gone(id);
                }
            }
        }
        count
    }

    /// Writes what waits and takes in what came; whether anything was written.
    fn exchange(
        &mut self,
        index: u16,
        tcp: &mut Tcp,
        now: Time,
        count: &mut usize,
    ) -> Result<bool, FramesError> {
        let wrote = tcp.frames.write()?;
        while *count < TCP_FRAMES_PER_LOOK {
            let Some((header, payload)) = tcp.frames.peek()? else {
                if !tcp.frames.read()? {
                    break;
                }
                continue;
            };
            let payload_bytes = payload.len();
            let at = (&mut self.device, &mut self.links);
            if !self.rx.take_frame(at, (index, tcp.path), (header, payload), now) {
                // No buffer: the stream waits, and with it the peer.
                break;
            }
            tcp.frames.take(payload_bytes);
            *count += 1;
        }
        Ok(wrote)
    }
}
