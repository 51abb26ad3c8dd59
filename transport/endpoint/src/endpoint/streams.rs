//! Reading and writing the streams of links, as part of an endpoint's turn.

use super::Endpoint;
use crate::conn::Phase;
use crate::ids::LinkId;
use crate::limits::TCP_FRAMES_PER_LOOK;
use crate::tcp::{ByteStream, Frames, FramesError, Tcp};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Something came on the stream of a link.
    pub(super) fn hurry_stream(&mut self, index: u16, now: Time) {
        let Some(conn) = self.links.at(index) else { return };
        if let Some(tcp) = &mut conn.tcp {
            tcp.hurry(now);
            conn.timer = conn.timer.min(now);
            self.links.file_timer(index);
        }
    }

    /// Gives a link its stream, on which `first` is still to be written. `is_told` says that what
    /// comes on it is told of.
    pub(super) fn give_stream(
        &mut self,
        link: LinkId,
        stream: impl ByteStream + 'static,
        (first, is_told): (Vec<u8>, bool),
    ) {
        let now = self.now();
        let chunk_bytes_max = self.config.sizes.chunk_bytes_max as usize;
        let Some(conn) = self.links.find_mut(link) else { return };
        let stream: Box<dyn ByteStream> = Box::new(stream);
        let frames = Frames::new(stream, first, (chunk_bytes_max, conn.seal.is_some()));
        conn.tcp = Some(Tcp::new(conn.tcp_path(), frames, is_told, now));
        self.links.touch(link.index);
    }

    /// Looks at the stream of a link if it is time to; returns how many frames came.
    #[inline(never)]
    pub(super) fn look_at_stream(&mut self, index: u16, now: Time) -> usize {
        let Some(conn) = self.links.at(index) else { return 0 };
        let Some(mut tcp) = conn.tcp.take_if(|tcp| tcp.due <= now) else { return 0 };
        let mut count = 0;
        match self.exchange(index, &mut tcp, now, &mut count) {
            Ok(wrote) => {
                tcp.look_again(now, count > 0 || wrote);
                // A link that is down needs its stream no more.
                if let Some(conn) = self.links.at(index).filter(|conn| conn.phase == Phase::Up) {
                    conn.tcp = Some(tcp);
                }
            }
            Err(error) => {
                if let FramesError::Length { .. } = error {
                    self.tally.stats.tcp_breaches += 1;
                    tracing::warn!(link = index, %error, "a set-up connection is given up");
                }
                // The peer's process is gone.
                if let Some(link) = self.links.at(index).and_then(|conn| conn.link.as_mut()) {
                    link.peer_gone();
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
        let Some(path) = tcp.path else {
            // After the HELLO nothing is sent on it: a byte is as much a breach as an end of file.
            return if tcp.frames.read()? { Err(FramesError::Closed) } else { Ok(wrote) };
        };
        while *count < TCP_FRAMES_PER_LOOK {
            if let Some(seal) = self.links.at(index).and_then(|conn| conn.seal.as_deref_mut()) {
                tcp.frames.open(|header, body| seal.open(now, header, body))?;
            }
            let Some((header, payload)) = tcp.frames.peek()? else {
                if !tcp.frames.read()? {
                    break;
                }
                continue;
            };
            let at = (&mut self.device, &mut self.links);
            if !self.rx.take_frame(at, (index, path), (header, payload), now) {
                // No buffer: the stream waits, and with it the peer.
                break;
            }
            tcp.frames.take();
            *count += 1;
        }
        Ok(wrote)
    }
}
