//! The wire itself: two threads that carry frames from one TAP device to the other.

use core::num::NonZeroU64;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use towpath_base::{Nanos, Prng, Time};
use towpath_sim::{FrameCounters, FrameWire, Outage};

use super::error::LossyError;
use super::plans::{LaterOutage, Plans};

/// The largest frame of a TAP device, and more.
const FRAME_BYTES_MAX: usize = 1 << 17;

/// Frames that are read before held ones are looked at again, counts published, and the wish to
/// stop heard.
const BATCH_FRAMES: usize = 64;

/// How soon the wish to stop is heard on a quiet wire.
const WAIT_MAX: Nanos = Nanos::from_millis(50);

/// What one direction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) wire: FrameCounters,
    /// Frames that the interface they came out to did not take: damaged ones that are too short.
    pub(super) refused: u64,
    /// The longest time between two frames that came out, one after the other.
    pub(super) quiet: Nanos,
}

/// Two interfaces, joined.
pub(super) struct Bridge {
    began: Instant,
    stop: Arc<AtomicBool>,
    lanes: [Lane; 2],
}

struct Lane {
    tally: Arc<Mutex<Tally>>,
    thread: JoinHandle<Result<(), LossyError>>,
}

/// Bytes of frames that came into the wire, both ways together, and when outages that wait for
/// some of them began: at the same moment in both directions.
#[derive(Debug, Default)]
struct Moved {
    bytes: AtomicU64,
    marks: Vec<(u64, OnceLock<Time>)>,
}

impl Moved {
    fn for_outages(later: &[Vec<LaterOutage>; 2]) -> Self {
        let mut marks: Vec<u64> = later.iter().flatten().map(|outage| outage.moved).collect();
        marks.sort_unstable();
        marks.dedup();
        let marks = marks.into_iter().map(|mark| (mark, OnceLock::new())).collect();
        Self { bytes: AtomicU64::new(0), marks }
    }

    /// So many bytes more came, at `now`.
    fn add(&self, now: Time, bytes: usize) {
        let moved = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        for (mark, at) in &self.marks {
            if *mark <= moved {
                let _ = at.get_or_init(|| now);
            }
        }
    }

    /// When so many bytes had come; `None` before, and where no outage waits for them.
    fn at(&self, bytes: u64) -> Option<Time> {
        let (_, at) = self.marks.iter().find(|(mark, _)| *mark == bytes)?;
        at.get().copied()
    }
}

/// One direction, in its thread.
struct Carrier {
    side: &'static str,
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    wire: FrameWire,
    moved: Arc<Moved>,
    /// Outages that have not begun.
    later: Vec<LaterOutage>,
    began: Instant,
    stop: Arc<AtomicBool>,
    tally: Arc<Mutex<Tally>>,
    out: Out,
}

/// What came out.
#[derive(Debug, Default)]
struct Out {
    refused: u64,
    quiet: Nanos,
    last: Option<Time>,
}

impl Bridge {
    /// Joins `a` and `b`; the wire's time begins now.
    ///
    /// # Errors
    /// No thread can be had.
    pub(super) fn start(
        a: &Arc<OwnedFd>,
        b: &Arc<OwnedFd>,
        plans: &Plans,
        seed: u64,
    ) -> Result<Self, LossyError> {
        let mut seeds = Prng::new(seed);
        let (began, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let moved = Arc::new(Moved::for_outages(&plans.later));
        let mut start = |side, (from, to): (&Arc<OwnedFd>, &Arc<OwnedFd>), plan, at: usize| {
            let tally = Arc::new(Mutex::default());
            let carrier = Carrier {
                side,
                from: Arc::clone(from),
                to: Arc::clone(to),
                wire: FrameWire::new(plan, seeds.next_u64()),
                moved: Arc::clone(&moved),
                later: plans.later[at].clone(),
                began,
                stop: Arc::clone(&stop),
                tally: Arc::clone(&tally),
                out: Out::default(),
            };
            let thread = thread::Builder::new().name(format!("wire from {side}"));
            let thread = thread.spawn(move || carrier.carry()).map_err(|_| LossyError::Thread)?;
            Ok::<_, LossyError>(Lane { tally, thread })
        };
        let ab = start("a", (a, b), plans.ab.clone(), 0)?;
        let ba = start("b", (b, a), plans.ba.clone(), 1)?;
        Ok(Self { began, stop, lanes: [ab, ba] })
    }

    /// How long the wire has been there.
    pub(super) fn age(&self) -> Nanos {
        self.began.elapsed().into()
    }

    /// What happened so far, from a to b and from b to a.
    pub(super) fn tallies(&self) -> [Tally; 2] {
        self.lanes.each_ref().map(|lane| *lane.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a direction ended by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.lanes.iter().any(|lane| lane.thread.is_finished())
    }

    /// Cuts the wire.
    ///
    /// # Errors
    /// A direction had ended by itself.
    pub(super) fn stop(self) -> Result<[Tally; 2], LossyError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcome = Ok(());
        let tallies = self.lanes.map(|lane| {
            let ended = lane.thread.join().unwrap_or(Err(LossyError::Thread));
            if outcome.is_ok() {
                outcome = ended;
            }
            *lane.tally.lock().unwrap_or_else(PoisonError::into_inner)
        });
        outcome.map(|()| tallies)
    }
}

impl Carrier {
    fn carry(mut self) -> Result<(), LossyError> {
        // Or a delay of microseconds takes fifty more. Where it is refused, it does.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        while !self.stop.load(Ordering::Relaxed) {
            let is_drained = self.batch(&mut buffer)?;
            let Out { refused, quiet, .. } = self.out;
            let tally = Tally { wire: self.wire.counters(), refused, quiet };
            *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
            if is_drained {
                self.wait();
            }
        }
        Ok(())
    }

    fn now(&self) -> Time {
        Time(Nanos::from(self.began.elapsed()).0)
    }

    /// Takes in frames and hands on what is due; true when no more are there.
    fn batch(&mut self, buffer: &mut [u8]) -> Result<bool, LossyError> {
        for _ in 0..BATCH_FRAMES {
            let read = rustix::io::read(&self.from, &mut *buffer);
            let now = self.now();
            let (out, to) = (&mut self.out, &self.to);
            let mut exit = |_: Time, frame: &[u8]| {
                out.refused += u64::from(rustix::io::write(to, frame) != Ok(frame.len()));
                out.quiet = out.quiet.max(now.since(out.last.unwrap_or(now)));
                out.last = Some(now);
            };
            let len = match read {
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR) => {
                    self.wire.release(now, &mut exit);
                    return Ok(true);
                }
                Err(error) => {
                    return Err(LossyError::Frames { side: self.side, source: error.into() });
                }
            };
            if !self.moved.marks.is_empty() {
                self.moved.add(now, len);
                begin_due(&mut self.later, &self.moved, &mut self.wire);
            }
            self.wire.offer(now, &buffer[..len], &mut exit);
        }
        Ok(false)
    }

    /// Waits for a frame, or until one that is held is due.
    fn wait(&self) {
        let next = self.wire.next_release().unwrap_or(Time::NEVER);
        let span = next.since(self.now()).min(WAIT_MAX);
        let timeout = Timespec { tv_sec: 0, tv_nsec: span.0 as i64 };
        let mut files = [PollFd::new(&*self.from, PollFlags::IN)];
        match poll(&mut files, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            // It is asked of a file that is open with a time that is right.
            Err(error) => drop(io::Error::from(error)),
        }
    }
}

/// Begins the outages whose bytes have come.
fn begin_due(later: &mut Vec<LaterOutage>, moved: &Moved, wire: &mut FrameWire) {
    later.retain(|&LaterOutage { moved: bytes, outage, is_for_udp }| {
        let Some(at) = moved.at(bytes) else { return true };
        wire.add_outage(Outage { after: Nanos(at.0), ..outage }, is_for_udp);
        false
    });
}
