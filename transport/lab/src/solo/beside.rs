//! Applications whose goodput counts, beside one that stalls, dies or floods.

use super::{Application, Poster, ReaderState, Solo, wants_room};
use crate::failure::Cause;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use towpath_base::{Nanos, Prng, Time};
use towpath_handle::{ChannelHandle, LinkHandle, Opening};
use towpath_memory::Region;
use towpath_verbs::Device;

/// Applications begin at random within this span: with the same start for all, all seeds would
/// give one run.
const START_SPREAD: Nanos = Nanos::from_micros(20);

/// How many lives an application that dies waits for room of those before, at most.
const WAITS_MAX: u32 = 2000;

/// What happens on the one channel more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The same as on the others: what the rest is compared with.
    Same,
    /// Its reader gives nothing back.
    Stall,
    /// Application after application dies that has opened a channel and posted to it.
    Death,
    /// Its poster has as many messages under way as its channel takes.
    Flood,
}

impl Beside {
    /// All, the one first that the others are compared with.
    pub const ALL: [Self; 4] = [Self::Same, Self::Stall, Self::Death, Self::Flood];
}

/// Where applications post to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// To channels of their own.
    Own,
    /// All to one channel: first come, first served, one credit, one reader.
    One,
}

/// Who posts what.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// Where everything random comes from.
    pub seed: u64,
    /// Channels whose goodput counts; there is one more.
    pub channels: usize,
    /// Applications that post to them, each to its share of the channels in turn.
    pub applications: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages that each application has under way.
    pub depth: usize,
    /// Messages that the one that floods has under way.
    pub flood: usize,
    /// How long one that dies has its channel.
    pub life: Nanos,
    /// Where they post to.
    pub queues: Queues,
}

impl Lives {
    /// Buffers of a message that they need together.
    #[must_use]
    pub fn buffers(&self) -> usize {
        // One that is refused has one more in its hands; one that is dead has its own for a while.
        self.applications * (self.depth + 1) + 2 * (self.depth.max(self.flood) + 1)
    }

    /// Channels that there may be at a time: those of some that died are being closed.
    #[must_use]
    pub fn channels_max(&self) -> usize {
        self.channels + 9
    }
}

/// An application that keeps its channels busy.
struct Busy {
    poster: Poster,
    channels: Vec<ChannelHandle>,
    next: usize,
    start: Time,
}

impl Busy {
    /// Posts as much as is taken. Says whether anything was.
    fn post(&mut self, now: Time) -> Result<bool, Cause> {
        if now < self.start {
            return Ok(false);
        }
        let mut posted = false;
        while self.poster.try_post(&self.channels[self.next])? {
            posted = true;
            self.next = (self.next + 1) % self.channels.len();
        }
        Ok(posted)
    }
}

/// Where an application is that dies.
enum Stage {
    Waiting(Time),
    Opening(Opening),
    Living(Busy, Time),
    /// What it had posted is still under way: its channel has its share until then.
    Dead(Poster),
}

/// Application after application dies, in the middle of its posts. The next one begins when what
/// the last one posted has arrived: at any time there is one more, as in the other cases.
struct Mortal {
    link: LinkHandle,
    lives: Lives,
    /// Where there is one channel for all.
    shared: Option<ChannelHandle>,
    stage: Stage,
    waits: u32,
}

impl Mortal {
    fn turn(&mut self, now: Time) -> Result<bool, Cause> {
        let soon = now + self.lives.life;
        match &mut self.stage {
            Stage::Waiting(until) if now < *until => return Ok(false),
            Stage::Waiting(_) => match &self.shared {
                Some(channel) => self.stage = Stage::Living(self.born(channel.clone()), soon),
                None => self.stage = Stage::Opening(self.link.begin_open(true)),
            },
            Stage::Opening(opening) => match opening.poll() {
                Ok(None) => return Ok(false),
                Ok(Some(channel)) => {
                    self.waits = 0;
                    self.stage = Stage::Living(self.born(channel), soon);
                }
                // Those of the dead are closed when what they posted has arrived.
                Err(error) if wants_room(error) && self.waits < WAITS_MAX => {
                    self.waits += 1;
                    self.stage = Stage::Waiting(soon);
                }
                Err(error) => return Err(error.into()),
            },
            Stage::Living(app, until) => {
                let (posted, is_over) = (app.post(now)?, now >= *until);
                if !is_over {
                    return Ok(posted);
                }
                let stage = std::mem::replace(&mut self.stage, Stage::Waiting(now));
                if let Stage::Living(Busy { poster, channels, .. }, _) = stage {
                    die(channels);
                    self.stage = Stage::Dead(poster);
                }
            }
            Stage::Dead(estate) => {
                estate.take_outcomes()?;
                if estate.under_way() > 0 {
                    return Ok(false);
                }
                self.stage = Stage::Waiting(now);
            }
        }
        Ok(true)
    }

    fn born(&self, channel: ChannelHandle) -> Busy {
        let poster = Poster::new(self.lives.bytes, self.lives.depth);
        Busy { poster, channels: vec![channel], next: 0, start: Time::ZERO }
    }

    fn due(&self) -> Time {
        match &self.stage {
            Stage::Waiting(until) | Stage::Living(_, until) => *until,
            Stage::Opening(_) | Stage::Dead(_) => Time::NEVER,
        }
    }
}

/// What it holds is dropped as its stack unwinds, with all that it has posted under way.
fn die(channels: Vec<ChannelHandle>) {
    let dying = AssertUnwindSafe(|| {
        let _held = channels;
        resume_unwind(Box::new("on purpose"))
    });
    // It ends as it should: dead.
    let _: std::thread::Result<()> = catch_unwind(dying);
}

/// Who posts on the one channel more.
enum Other {
    Lasting(Busy),
    /// It never rests: between any two turns of others it has one.
    Flooding(Busy),
    Mortal(Box<Mortal>),
}

/// The applications of a case.
pub struct Crowd {
    counted: Vec<Busy>,
    other: Other,
    first: usize,
    bytes: usize,
    is_leaving: bool,
}

impl Crowd {
    /// Opens the channels, and begins what happens beside.
    ///
    /// # Errors
    /// [`Cause`].
    pub fn gather<D: Device<Memory = Region>>(
        solo: &mut Solo<D>,
        lives: &Lives,
        beside: Beside,
    ) -> Result<Self, Cause> {
        let mut prng = Prng::new(lives.seed);
        let mut start = |now: Time| now + Nanos(prng.below(START_SPREAD.0));
        let one = match lives.queues {
            Queues::One => Some(solo.open()?),
            Queues::Own => None,
        };
        let open = |solo: &mut Solo<D>| one.clone().map_or_else(|| solo.open(), Ok);
        let mut channels =
            (0..lives.channels).map(|_| open(solo)).collect::<Result<Vec<_>, _>>()?;
        let other = if beside == Beside::Death {
            let (link, stage) = (solo.link().clone(), Stage::Waiting(start(solo.now())));
            let (lives, shared) = (*lives, one.clone());
            Other::Mortal(Box::new(Mortal { link, lives, shared, stage, waits: 0 }))
        } else {
            let channel = open(solo)?;
            if beside == Beside::Stall {
                solo.stall(Some(channel.id()));
            }
            let floods = beside == Beside::Flood;
            let depth = if floods { lives.flood } else { lives.depth };
            let (poster, start) = (Poster::new(lives.bytes, depth), start(solo.now()));
            let app = Busy { poster, channels: vec![channel], next: 0, start };
            if floods { Other::Flooding(app) } else { Other::Lasting(app) }
        };
        let each = lives.channels.div_ceil(lives.applications.clamp(1, lives.channels));
        let mut counted = Vec::new();
        while !channels.is_empty() {
            let rest = channels.split_off(each.min(channels.len()));
            let channels = std::mem::replace(&mut channels, rest);
            let (poster, start) = (Poster::new(lives.bytes, lives.depth), start(solo.now()));
            counted.push(Busy { poster, channels, next: 0, start });
        }
        Ok(Self { counted, other, first: 0, bytes: lives.bytes, is_leaving: false })
    }

    /// What those that count had delivered in a span after a `warm_up` that does not count: bits,
    /// and how long the span was in the end.
    ///
    /// # Errors
    /// [`Cause`].
    pub fn deliver<D: Device<Memory = Region>>(
        &mut self,
        solo: &mut Solo<D>,
        warm_up: Nanos,
        span: Nanos,
    ) -> Result<(u64, Nanos), Cause> {
        let begin = solo.now() + warm_up;
        solo.run(self, begin, |_| false)?;
        let (begin, before) = (solo.now(), self.delivered());
        solo.run(self, begin + span, |_| false)?;
        let bits = (self.delivered() - before) * self.bytes as u64 * 8;
        Ok((bits, solo.now().since(begin)))
    }

    /// Has nobody post anything more, and the reader give back all that it has; whether all that
    /// was posted is delivered by `limit` from now.
    ///
    /// # Errors
    /// [`Cause`].
    pub fn settle<D: Device<Memory = Region>>(
        &mut self,
        solo: &mut Solo<D>,
        limit: Nanos,
    ) -> Result<bool, Cause> {
        self.is_leaving = true;
        solo.stall(None);
        let end = solo.now() + limit;
        solo.run(self, end, Self::is_settled)?;
        Ok(self.is_settled())
    }

    fn is_settled(&self) -> bool {
        let other = match &self.other {
            Other::Lasting(app) | Other::Flooding(app) => app.poster.under_way(),
            Other::Mortal(mortal) => match &mortal.stage {
                Stage::Living(Busy { poster, .. }, _) | Stage::Dead(poster) => poster.under_way(),
                Stage::Waiting(_) | Stage::Opening(_) => 0,
            },
        };
        other == 0 && self.counted.iter().all(|app| app.poster.under_way() == 0)
    }

    fn posters(&mut self) -> impl Iterator<Item = &mut Poster> {
        let other = match &mut self.other {
            Other::Lasting(app) | Other::Flooding(app) => Some(&mut app.poster),
            Other::Mortal(mortal) => match &mut mortal.stage {
                Stage::Living(Busy { poster, .. }, _) | Stage::Dead(poster) => Some(poster),
                Stage::Waiting(_) | Stage::Opening(_) => None,
            },
        };
        self.counted.iter_mut().map(|app| &mut app.poster).chain(other)
    }

    fn delivered(&self) -> u64 {
        self.counted.iter().map(|app| app.poster.delivered()).sum()
    }
}

impl Application for Crowd {
    /// Everybody's turn; each time another one is first, so that what there is too little of goes
    /// round.
    fn turn(&mut self, at: ReaderState) -> Result<bool, Cause> {
        let now = at.now;
        if self.is_leaving {
            self.posters().try_for_each(Poster::take_outcomes)?;
            return Ok(false);
        }
        let Self { counted, other, first, .. } = self;
        let all = counted.len() + 1;
        *first = (*first + 1) % all;
        let mut busy = false;
        for place in (*first..all).chain(0..*first) {
            if let Other::Flooding(app) = other {
                busy |= app.post(now)?;
            }
            busy |= match (counted.get_mut(place), &mut *other) {
                (Some(app), _) => app.post(now)?,
                (None, Other::Lasting(app) | Other::Flooding(app)) => app.post(now)?,
                (None, Other::Mortal(mortal)) => mortal.turn(now)?,
            };
        }
        Ok(busy)
    }

    fn next_time(&self, now: Time) -> Time {
        let other = match &self.other {
            Other::Lasting(app) | Other::Flooding(app) => app.start,
            Other::Mortal(mortal) => mortal.due(),
        };
        let times = self.counted.iter().map(|app| app.start).chain([other]);
        times.filter(|&time| time > now).min().unwrap_or(Time::NEVER)
    }
}
