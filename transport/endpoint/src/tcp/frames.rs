//! Frames over a stream of bytes: four bytes of length, then a chunk or an ack as on a queue pair.

use std::io::{self, Read, Write};
use std::ops::Range;
use towpath_base::passes::{Pass, note};
use towpath_proto::limits::{ACK_BYTES_MAX, HEADER_BYTES};
use towpath_secure::limits::TAG_BYTES;

use crate::limits::{TCP_OUT_BYTES, TCP_READ_BYTES};

/// Bytes of the length in front of a frame; it counts what follows it.
const LENGTH_BYTES: usize = 4;

/// A header, and the body of a chunk or the rest of an ack behind it.
pub(crate) type Frame<'a> = (&'a [u8; HEADER_BYTES], &'a [u8]);

/// Why a stream carries frames no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FramesError {
    /// The peer has closed it, or its process is gone.
    #[error("the peer closed the connection")]
    Closed,
    /// The system reports an error of the connection.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// The peer breaks the rules: what follows cannot be told apart.
    #[error("the peer announced a frame of {bytes} bytes, and {max} are the most")]
    Length {
        /// What it announced.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// A nonblocking stream, what waits to be written to it, and what has been read of it. Both are
/// bounded: by twice [`TCP_OUT_BYTES`] and a frame, and by [`TCP_READ_BYTES`] and a frame.
pub(crate) struct Frames<S> {
    stream: S,
    out: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    /// How much of `read` is filled, and from where on it has not been taken.
    filled: usize,
    taken: usize,
    frame_bytes_max: usize,
    /// Bytes of the body of the next frame, once it was opened.
    opened: Option<usize>,
}

impl<S: Read + Write> Frames<S> {
    /// Frames over a stream on which `first` is still to be written. The body of a chunk has
    /// `chunk_bytes_max` bytes at most, with its tag where the link is sealed.
    pub(crate) fn new(
        stream: S,
        first: Vec<u8>,
        (chunk_bytes_max, is_sealed): (usize, bool),
    ) -> Self {
        let ack_bytes_max = ACK_BYTES_MAX + if is_sealed { TAG_BYTES } else { 0 };
        let frame_bytes_max = (HEADER_BYTES + chunk_bytes_max).max(ack_bytes_max);
        Self {
            stream,
            out: first,
            written: 0,
            read: Vec::new(),
            filled: 0,
            taken: 0,
            frame_bytes_max,
            opened: None,
        }
    }

    /// Whether chunks may be pushed: as on a queue pair, what is under way is bounded.
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() - self.written < TCP_OUT_BYTES
    }

    /// Whether everything pushed is with the system.
    pub(crate) fn is_drained(&self) -> bool {
        self.written == self.out.len()
    }

    /// Whether nothing waits to be written or to be taken.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_drained() && self.taken == self.filled
    }

    /// Gives up the memory of an idle stream: most streams of a server carry nothing for hours.
    pub(crate) fn rest(&mut self) {
        if self.is_idle() && !(self.read.is_empty() && self.out.is_empty()) {
            (self.read, self.out) = (Vec::new(), Vec::new());
            (self.taken, self.filled, self.written) = (0, 0, 0);
        }
    }

    /// Queues a frame; false where nothing more is held, which is beyond what chunks may take: acks
    /// find room while chunks wait.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.make_room();
        if has_room {
            self.out.extend((bytes.len() as u32).to_le_bytes());
            self.out.extend_from_slice(bytes);
        }
        has_room
    }

    /// Queues a chunk in the same way: `write` appends its body and says what header goes in front;
    /// without one nothing is queued. All is copied: the buffers of a message are free as soon as
    /// this returns.
    pub(crate) fn push_chunk(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Option<[u8; HEADER_BYTES]>,
    ) -> bool {
        if !self.make_room() {
            return false;
        }
        let from = self.out.len();
        self.out.resize(from + LENGTH_BYTES + HEADER_BYTES, 0);
        let Some(header) = write(&mut self.out) else {
            self.out.truncate(from);
            return false;
        };
        let (length, chunk) = self.out[from..].split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(chunk.len() as u32).to_le_bytes());
        if let Some(bytes) = chunk.first_chunk_mut() {
            *bytes = header;
        }
        true
    }

    /// Whether another frame may be queued.
    fn make_room(&mut self) -> bool {
        if self.is_drained() {
            self.out.clear();
            self.written = 0;
        }
        self.out.len() - self.written < 2 * TCP_OUT_BYTES
    }

    /// Writes what the system takes now; whether it took anything.
    pub(crate) fn write(&mut self) -> Result<bool, FramesError> {
        let before = self.written;
        while !self.is_drained() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(FramesError::Closed),
                Ok(written) => {
                    self.written += written;
                    note(Pass::Socket, written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FramesError::Broken(error)),
            }
        }
        let wrote = self.written > before;
        // What was written makes room again.
        if self.written > TCP_OUT_BYTES {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(wrote)
    }

    /// Reads once; whether anything came. Call it when no whole frame is left.
    pub(crate) fn read(&mut self) -> Result<bool, FramesError> {
        self.read.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.read.is_empty() {
            // Nothing is kept ready for what may never come.
            let mut first = [0; LENGTH_BYTES + HEADER_BYTES];
            let read = self.fill(Some(&mut first))?;
            if read > 0 {
                self.make_read_buffer();
                self.read[..read].copy_from_slice(&first[..read]);
                self.filled = read;
            }
            return Ok(read > 0);
        }
        let read = self.fill(None)?;
        self.filled += read;
        Ok(read > 0)
    }

    fn make_read_buffer(&mut self) {
        self.read.resize(LENGTH_BYTES + self.frame_bytes_max + TCP_READ_BYTES, 0);
    }

    /// Reads once into `first`, or behind what there is; how many bytes came.
    fn fill(&mut self, first: Option<&mut [u8]>) -> Result<usize, FramesError> {
        let into = match first {
            Some(first) => first,
            None => &mut self.read[self.filled..],
        };
        loop {
            return match self.stream.read(into) {
                Ok(0) => Err(FramesError::Closed),
                Ok(read) => {
                    note(Pass::Socket, read);
                    Ok(read)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(FramesError::Broken(error)),
            };
        }
    }

    /// Opens the next frame that is whole, if none is open yet: `open` says how many bytes its body
    /// has, and frames that it refuses are taken away. It sees each frame once.
    pub(crate) fn open(
        &mut self,
        mut open: impl FnMut(&mut [u8; HEADER_BYTES], &mut [u8]) -> Option<usize>,
    ) -> Result<(), FramesError> {
        while self.opened.is_none() {
            let Some(place) = self.next_frame()? else { break };
            let Some((header, body)) = self.read[place].split_first_chunk_mut() else { break };
            self.opened = open(header, body);
            if self.opened.is_none() {
                self.take();
            }
        }
        Ok(())
    }

    /// The next frame, if it is whole: a header and what follows it. It stays until
    /// [`take`](Self::take).
    pub(crate) fn peek(&self) -> Result<Option<Frame<'_>>, FramesError> {
        let Some(place) = self.next_frame()? else { return Ok(None) };
        let frame = self.read[place].split_first_chunk::<HEADER_BYTES>();
        Ok(frame.map(|(header, body)| (header, &body[..self.opened.unwrap_or(body.len())])))
    }

    /// Where the next frame lies, if it is whole.
    fn next_frame(&self) -> Result<Option<Range<usize>>, FramesError> {
        let rest = &self.read[self.taken..self.filled];
        let Some(length) = rest.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let bytes = u32::from_le_bytes(*length) as usize;
        if !(HEADER_BYTES..=self.frame_bytes_max).contains(&bytes) {
            return Err(FramesError::Length { bytes, max: self.frame_bytes_max });
        }
        let start = self.taken + LENGTH_BYTES;
        Ok((bytes <= rest.len() - LENGTH_BYTES).then_some(start..start + bytes))
    }

    /// Is done with the next frame.
    pub(crate) fn take(&mut self) {
        if let Ok(Some(place)) = self.next_frame() {
            self.taken = place.end;
        }
        self.opened = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use towpath_base::Prng;

    /// A stream that moves its bytes in pieces, with pauses.
    struct Dribble {
        pipe: VecDeque<u8>,
        prng: Prng,
        closed: bool,
    }

    impl Dribble {
        fn new(seed: u64) -> Self {
            Self { pipe: VecDeque::new(), prng: Prng::new(seed), closed: false }
        }

        fn count(&mut self, most: usize) -> io::Result<usize> {
            match self.prng.below(4) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(self.prng.between(most.min(1) as u64, most as u64) as usize),
            }
        }
    }

    impl Read for Dribble {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = into.len().min(self.pipe.len());
            if most == 0 {
                let quiet = io::ErrorKind::WouldBlock.into();
                return if self.closed { Ok(0) } else { Err(quiet) };
            }
            let count = self.count(most)?;
            for (to, byte) in into.iter_mut().zip(self.pipe.drain(..count)) {
                *to = byte;
            }
            Ok(count)
        }
    }

    impl Write for Dribble {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = self.count(bytes.len())?;
            self.pipe.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_stream_is_cut() {
        let seed = 3;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut frames = Frames::new(Dribble::new(seed ^ 1), Vec::new(), (5_000, false));
        let mut expected: VecDeque<Vec<u8>> = VecDeque::new();
        for _ in 0..4_000 {
            let mut bytes = vec![0; HEADER_BYTES + prng.below(5_001) as usize];
            prng.fill(&mut bytes);
            if frames.has_room() {
                assert!(frames.push(&bytes));
                expected.push_back(bytes);
            }
            frames.write().expect("it is open");
            while let Some((header, payload)) = frames.peek().expect("sound lengths") {
                let got = [&header[..], payload].concat();
                assert_eq!(Some(got), expected.pop_front());
                frames.take();
            }
            frames.read().expect("it is open");
            let bound = LENGTH_BYTES + frames.frame_bytes_max + TCP_READ_BYTES;
            assert!(frames.read.len() <= bound && frames.out.len() <= 3 * TCP_OUT_BYTES + bound);
        }
    }

    #[test]
    fn a_full_outbox_takes_acks_for_a_while_refuses_and_has_room_again_when_it_is_written() {
        let mut frames = Frames::new(Dribble::new(5), Vec::new(), (60_000, false));
        let mut chunks = 0;
        while frames.has_room() {
            assert!(frames.push(&[9; 60_064]));
            chunks += 1;
        }
        assert!(chunks >= 2 && chunks * 60_000 <= TCP_OUT_BYTES + 60_000, "{chunks}");
        assert!(frames.push(&[7; HEADER_BYTES]), "an ack finds room");
        let more = (0..100).take_while(|_| frames.push(&[9; 60_064])).count();
        assert!((1..10).contains(&more), "{more}");
        while !frames.is_drained() {
            frames.write().expect("it is open");
        }
        assert!(frames.has_room() && frames.push(&[7; HEADER_BYTES]));
    }

    #[test]
    fn lengths_that_no_frame_has_end_the_stream_and_allocate_nothing() {
        for bytes in [0, 1, 63, 5_065, 1 << 20, u32::MAX] {
            let mut stream = Dribble::new(1);
            stream.pipe.extend(bytes.to_le_bytes());
            let mut frames = Frames::new(stream, Vec::new(), (5_000, false));
            while !matches!(frames.read(), Ok(true)) || frames.filled < LENGTH_BYTES {}
            let error = frames.peek().expect_err("no frame is so long or so short");
            assert!(matches!(error, FramesError::Length { max: 5_064, .. }), "{error}");
            assert!(frames.read.len() <= 5_064 + LENGTH_BYTES + TCP_READ_BYTES);
        }
    }

    #[test]
    fn an_end_of_file_is_told_apart_from_silence() {
        let mut frames = Frames::new(Dribble::new(2), Vec::new(), (100, false));
        assert!(!frames.read().expect("silence is no error"));
        frames.stream.closed = true;
        assert!(matches!(frames.read(), Err(FramesError::Closed)));
    }
}
