//! A link whose two ends and whose applications one thread drives, in turns.
//!
//! One end is what programs have: handles, egress queues, the doorbell and a worker; the other
//! reads and counts. Devices and their time may be real or virtual. With one thread nobody waits
//! for a time slice: what is measured is the code, the queues and the wire.
//!
//! | file | what it holds |
//! |---|---|
//! | `poster` | an application's buffers, its posts and their outcomes |
//! | `reader` | the end that reads and counts |
//! | `beside` | applications whose goodput counts, beside one that stalls, dies or floods |

mod beside;
mod poster;
mod reader;

pub use beside::{Beside, Crowd, Lives, Queues};
pub use poster::Poster;

use crate::failure::Cause;
use reader::Reader;
use towpath_base::{Nanos, Time};
use towpath_handle::{ChannelHandle, EndpointHandle, EndpointWorker, LinkHandle};
use towpath_memory::Region;
use towpath_proto::Side;
use towpath_sim::World;
use towpath_sim::world::HostId;
use towpath_transport::{
    ChannelError, ChannelId, CloseReason, EndpointConfig, EndpointStats, OpenError,
};
use towpath_verbs::Device;

/// How long opening a channel may take.
const OPEN_MAX: Nanos = Nanos::from_secs(10);

/// Turns at one instant of virtual time before the hosts count as stuck.
const TURNS_MAX: u32 = 100_000;

/// Turns of a reader that keeps up, before others have theirs: a full receive buffer takes about
/// ten.
const READS_MAX: u32 = 256;

/// How time goes on.
pub enum Passing {
    /// By itself, whatever anybody does.
    Real,
    /// When nobody has anything to do: to the next thing that happens. The link's ends are the
    /// first two hosts of the world.
    Virtual(World),
}

/// A link, both of its ends, and who drives them.
pub struct Solo<D: Device<Memory = Region>> {
    worker: EndpointWorker<D>,
    /// While there is one the worker goes on.
    _handle: EndpointHandle,
    link: LinkHandle,
    reader: Reader<D>,
    keeps_up: bool,
    passing: Passing,
}

/// When it is somebody's turn.
#[derive(Clone, Copy, Debug)]
pub struct ReaderState {
    /// The devices' time.
    pub now: Time,
    /// Payload bytes that the reader has taken in, of all channels.
    pub bytes_read: u64,
}

/// What takes its turn beside the two ends.
pub trait Application {
    /// Does what can be done now. Says whether that was anything.
    ///
    /// # Errors
    /// [`Cause`].
    fn turn(&mut self, at: ReaderState) -> Result<bool, Cause>;

    /// When it has something to do by itself, after `now`.
    fn next_time(&self, now: Time) -> Time;
}

impl<D: Device<Memory = Region>> Solo<D> {
    /// Joins two devices: the applications' first, then the reader's. The settings of both ends
    /// must differ in their seeds.
    ///
    /// # Errors
    /// [`Cause::Endpoint`], [`Cause::Link`].
    pub fn new(
        [near, far]: [D; 2],
        [near_config, far_config]: [EndpointConfig; 2],
        passing: Passing,
    ) -> Result<Self, Cause> {
        let (handle, mut worker) = EndpointHandle::driven(near, near_config)?;
        let mut reader = Reader::new(far, far_config)?;
        let (near_hello, near_half) = worker.offer()?;
        let far_hello = reader.join(&near_hello)?;
        let link = worker.establish(&handle, near_half, &far_hello, Side::Client)?;
        Ok(Self { worker, _handle: handle, link, reader, keeps_up: true, passing })
    }

    /// Whether the reader takes in all that came when it is its turn, which is so unless somebody
    /// says otherwise. With one poll for each of the sender's it falls behind, and what is under
    /// way stands in its receive buffer.
    pub fn set_keeps_up(&mut self, keeps_up: bool) {
        self.keeps_up = keeps_up;
    }

    /// The link, at the applications' end.
    #[must_use]
    pub fn link(&self) -> &LinkHandle {
        &self.link
    }

    /// The hash of all that was on virtual wires.
    #[must_use]
    pub fn trace_hash(&self) -> Option<u64> {
        match &self.passing {
            Passing::Real => None,
            Passing::Virtual(world) => Some(world.trace_hash()),
        }
    }

    /// The devices' time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.worker.endpoint().now()
    }

    /// From now on the reader keeps what comes on a channel, or on none: then it gives back what it
    /// has.
    pub fn stall(&mut self, channel: Option<ChannelId>) {
        self.reader.stall(channel);
    }

    /// What each end counted.
    #[must_use]
    pub fn stats(&self) -> [EndpointStats; 2] {
        [self.worker.endpoint().endpoint_stats(), self.reader.stats()]
    }

    /// Opens an ordered channel; waits while there are too many that are being closed.
    ///
    /// # Errors
    /// [`Cause::Channel`]; [`Cause::Endless`] when nobody answers.
    pub fn open(&mut self) -> Result<ChannelHandle, Cause> {
        let mut opening = self.link.begin_open(true);
        let until = self.now() + OPEN_MAX;
        while self.now() < until {
            let is_busy = self.worker.turn() | self.reader.turn();
            match opening.poll() {
                Ok(Some(channel)) => return Ok(channel),
                Ok(None) => {}
                Err(error) if wants_room(error) => opening = self.link.begin_open(true),
                Err(error) => return Err(error.into()),
            }
            if !is_busy {
                self.pass(Time::NEVER, until);
            }
        }
        Err(Cause::Endless("a channel is open"))
    }

    /// Has applications and both ends take turns until `end`, or until `is_done` says so.
    ///
    /// # Errors
    /// That of an application; [`Cause::Restless`].
    pub fn run<A: Application>(
        &mut self,
        apps: &mut A,
        end: Time,
        mut is_done: impl FnMut(&A) -> bool,
    ) -> Result<(), Cause> {
        let (mut instant, mut turns) = (self.now(), 0);
        loop {
            let now = self.now();
            if now >= end || is_done(apps) {
                return Ok(());
            }
            turns = if now == instant { turns + 1 } else { 0 };
            instant = now;
            if turns > TURNS_MAX {
                return Err(Cause::Restless(0));
            }
            let at = ReaderState { now, bytes_read: self.reader.bytes() };
            let is_busy = apps.turn(at)? | self.worker.turn() | self.read();
            if !is_busy {
                self.pass(apps.next_time(now), end);
            }
        }
    }

    fn read(&mut self) -> bool {
        let turns = if self.keeps_up { READS_MAX } else { 1 };
        (0..turns).take_while(|_| self.reader.turn()).count() > 0
    }

    /// Lets virtual time go on to what happens next.
    fn pass(&self, next: Time, end: Time) {
        let Passing::Virtual(world) = &self.passing else { return };
        let soonest = world.now() + Nanos(1);
        let near = self.worker.endpoint().next_timeout().min(next);
        for (host, due) in [near, self.reader.next_timeout()].into_iter().enumerate() {
            world.set_timer(HostId(host as u32), due.max(soonest));
        }
        world.advance_to_next(end, &mut Vec::new());
    }
}

/// Whether a channel may be opened when others are closed.
fn wants_room(error: ChannelError) -> bool {
    matches!(
        error,
        ChannelError::Link(OpenError::TooMany | OpenError::NoCredit)
            | ChannelError::Closed(CloseReason::Refused(_))
    )
}
