//! Reading and writing the streams of links, as part of an endpoint's turn.

use super::Endpoint;
use super::receive::Pieces;
use crate::ids::LinkId;
use crate::limits::TCP_FRAMES_PER_LOOK;
use crate::links::{Conn, Phase};
use crate::recv::Home;
use crate::tcp::{ByteStream, Frames, FramesError, Tcp};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::wire::{ChunkHeader, FrameTable, Kind};
use towpath_proto::{Arrival, BufToken, PathId, Verdict};
use towpath_verbs::Device;

/// No slot: what has no payload to keep needs none.
const NO_SLOT: BufToken = BufToken(u32::MAX);

/// The links of an endpoint that have a stream, and when the next one is looked at.
#[derive(Default)]
pub(crate) struct Streams {
    links: Vec<u16>,
    due: Option<Time>,
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
    /// Whether a path of a link rides on its set-up connection.
    pub(crate) fn carries_path(&self, link: LinkId) -> bool {
        self.links.find(link).is_some_and(|conn| conn.tcp_path().is_some())
    }

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
                    self.stats.tcp_breaches += 1;
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
            if !self.on_frame((index, tcp.path), header, payload, now) {
                // No buffer: the stream waits, and with it the peer.
                break;
            }
            tcp.frames.take(payload_bytes);
            *count += 1;
        }
        Ok(wrote)
    }

    /// Hands a frame to its link; false when there is no buffer for what it brings. The link checks
    /// header, generation and payload as those of any path.
    fn on_frame(
        &mut self,
        (index, path): (u16, PathId),
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        now: Time,
    ) -> bool {
        let mut slot = None;
        let is_data = header[1] == Kind::Data as u8;
        // A body that fits no buffer is refused for its length.
        let fits = is_data && payload.len() <= self.config.sizes.chunk_bytes_max as usize;
        let share = self.share();
        if fits {
            let conn = self.links.at(index).map(|conn| (conn.class.class, conn.held));
            let (class, held) = conn.unwrap_or_default();
            slot = if held < share { self.spare_slot(class, None) } else { None };
            // What completes a piece that has its buffer brings that home.
            if slot.is_none() && !brings_part(header, payload) {
                return false;
            }
        }
        let body = if is_data && !fits { &[] } else { payload };
        let Self { links, recv, device, unkept, page_crcs, .. } = self;
        let conn = links.at(index).filter(|conn| conn.phase == Phase::Up);
        let Some(Conn { id, link: Some(link), held, class, .. }) = conn else {
            if let Some(slot) = slot {
                recv.put_free(slot);
            }
            return true;
        };
        let home = Home { link: *id, path: path.0 };
        let of = (class.class, home);
        let buf = slot.map_or(NO_SLOT, BufToken);
        let arrival = Arrival { header, body, buf, may_keep: slot.is_some(), received_at: now };
        page_crcs.clear();
        let recv_table = &mut *recv;
        let mut pieces = Pieces { device, recv: recv_table, of, unkept, held, share, page_crcs };
        let verdict = link.handle_chunk(now, path, &arrival, &mut pieces);
        if let Some(number) = slot {
            match (verdict, recv.at(number)) {
                (Verdict::Kept(pieces), Some(slot)) => {
                    let filled = slot.fill(body);
                    debug_assert!(filled, "the slot is free, and the body fits");
                    slot.keep(pieces, home, page_crcs);
                    *held += 1;
                }
                _ => recv.put_free(number),
            }
        }
        while let Some(number) = self.unkept.pop() {
            self.repost(number);
        }
        true
    }
}

/// Whether a chunk of data brings a part of a piece. What breaks a rule is the link's to refuse.
#[cold]
fn brings_part(header: &[u8; HEADER_BYTES], body: &[u8]) -> bool {
    let Ok(header) = ChunkHeader::parse(header) else { return true };
    let Ok(table) = FrameTable::parse(&header, body) else { return true };
    table.first.is_part() || table.others().any(|(frame, _)| frame.is_part())
}
