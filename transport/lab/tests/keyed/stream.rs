//! The stream of bytes of a link, in virtual time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_base::{Nanos, Time};

/// Bytes under way in one direction at most: what the buffers of a socket hold.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// What streams take for the time; whoever drives them moves it along.
#[derive(Clone, Debug, Default)]
pub struct StreamClock(Arc<AtomicU64>);

impl StreamClock {
    /// It is `now`.
    pub fn set(&self, now: Time) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

/// What is under way in one direction.
#[derive(Debug, Default)]
struct Pipe {
    /// When each piece comes in.
    pieces: VecDeque<(Time, VecDeque<u8>)>,
    bytes: usize,
    is_closed: bool,
}

/// One end of a stream that loses nothing and takes its time.
#[derive(Debug)]
pub struct VirtualStream {
    clock: StreamClock,
    delay: Nanos,
    each_byte: Nanos,
    /// When everything written has left.
    free_at: Time,
    out: Arc<Mutex<Pipe>>,
    into: Arc<Mutex<Pipe>>,
}

/// Both ends of a stream on which a byte leaves each `each_byte`, and comes in `delay` later.
#[must_use]
pub fn stream(
    clock: &StreamClock,
    delay: Nanos,
    each_byte: Nanos,
) -> (VirtualStream, VirtualStream) {
    let [forth, back] = [(); 2].map(|()| Arc::new(Mutex::new(Pipe::default())));
    let end = |out: &Arc<Mutex<Pipe>>, into: &Arc<Mutex<Pipe>>| VirtualStream {
        clock: clock.clone(),
        delay,
        each_byte,
        free_at: Time::ZERO,
        out: out.clone(),
        into: into.clone(),
    };
    (end(&forth, &back), end(&back, &forth))
}

/// A thread that panicked under the lock left whole pieces behind.
fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for VirtualStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (mut pipe, now) = (lock(&self.into), self.clock.now());
        let mut filled = 0;
        while let Some((at, piece)) = pipe.pieces.front_mut().filter(|(at, _)| *at <= now) {
            let read = piece.read(&mut bytes[filled..])?;
            (filled, *at) = (filled + read, now);
            if !piece.is_empty() {
                break;
            }
            pipe.pieces.pop_front();
        }
        pipe.bytes -= filled;
        if filled > 0 || bytes.is_empty() || (pipe.is_closed && pipe.pieces.is_empty()) {
            return Ok(filled);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for VirtualStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut pipe, now) = (lock(&self.out), self.clock.now());
        if pipe.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = bytes.len().min(PIPE_BYTES_MAX - pipe.bytes);
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.bytes += taken;
        self.free_at = self.free_at.max(now) + self.each_byte.saturating_mul(taken as u64);
        let piece = bytes[..taken].iter().copied().collect();
        pipe.pieces.push_back((self.free_at + self.delay, piece));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for VirtualStream {
    fn drop(&mut self) {
        lock(&self.out).is_closed = true;
        lock(&self.into).is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_after_their_delay_and_an_end_is_told() {
        let clock = StreamClock::default();
        let (mut near, mut far) = stream(&clock, Nanos(7), Nanos(1));
        assert_eq!(near.write(b"one").ok(), Some(3));
        clock.set(Time(5));
        assert_eq!(near.write(b"two").ok(), Some(3));
        let mut bytes = [0; 4];
        assert_eq!(far.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        clock.set(Time(10));
        assert_eq!((far.read(&mut bytes).ok(), &bytes[..3]), (Some(3), &b"one"[..]));
        assert_eq!(far.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        clock.set(Time(15));
        assert_eq!((far.read(&mut bytes[..2]).ok(), far.read(&mut bytes).ok()), (Some(2), Some(1)));
        assert_eq!(far.read(&mut bytes).ok(), Some(0));
        assert!(far.write(b"three").is_err());
    }

    #[test]
    fn a_full_stream_takes_no_more_until_something_is_read() {
        let clock = StreamClock::default();
        let (mut near, mut far) = stream(&clock, Nanos(1), Nanos::ZERO);
        assert_eq!(near.write(&vec![7; PIPE_BYTES_MAX + 1]).ok(), Some(PIPE_BYTES_MAX));
        assert_eq!(near.write(&[7]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        clock.set(Time(1));
        assert_eq!(far.read(&mut [0; 100]).ok(), Some(100));
        assert_eq!(near.write(&[7; 200]).ok(), Some(100));
    }
}
