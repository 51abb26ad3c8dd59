//! The messages of one row, as one end sees them: posting, taking in, and an end both agree on.

use super::carrier::{Carrier, Turn};
use super::control::{Control, Note};
use super::error::RunError;
use super::limits::{LOST_AFTER, TURNS_PER_LOOK};
use super::quiet::Quiet;
use super::watch::Watch;
use std::time::Instant;

/// One end of a row.
///
/// Both ends do the same: they post (perhaps nothing), take in, and when everything that they
/// posted has completed they say so on the set-up connection, with how many there were. An end is
/// settled when it has said so, has heard the same, and has received as many, as far as it can
/// tell; or, where messages may be lost for good, when no more came for a while.
pub(crate) struct Flow<'a, C> {
    carrier: &'a mut C,
    control: &'a mut Control,
    watch: Watch,
    takes: Takes,
    look_every: u32,
    turns: u32,
    quiet: Quiet,
    posted: u64,
    completed: u64,
    received: u64,
    ended: bool,
    told: bool,
    peer: Option<(u64, u64)>,
}

/// What one end can see of the messages of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    /// It receives messages.
    pub(crate) receives: bool,
    /// Their content is checked.
    pub(crate) validate: bool,
    /// Some may never come.
    pub(crate) lossy: bool,
    /// It does nothing but let the peer act, and sees nothing of that.
    pub(crate) passive: bool,
}

impl<'a, C: Carrier> Flow<'a, C> {
    /// Looks at the set-up connection and the clock every `look_every` turns, and more often while
    /// turns wait.
    pub(crate) fn new(
        carrier: &'a mut C,
        control: &'a mut Control,
        watch: Watch,
        takes: Takes,
        look_every: u32,
    ) -> Self {
        Self {
            carrier,
            control,
            watch,
            takes,
            look_every,
            turns: 0,
            quiet: Quiet::default(),
            posted: 0,
            completed: 0,
            received: 0,
            ended: false,
            told: false,
            peer: None,
        }
    }

    /// Messages posted so far.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Messages posted that have not completed.
    pub(crate) fn under_way(&self) -> u64 {
        self.posted - self.completed
    }

    /// Whether the peer has said that it is done.
    pub(crate) fn peer_is_done(&self) -> bool {
        self.peer.is_some()
    }

    /// Posts up to `count` messages, `list` at a time (0: all), and flushes. Returns how many
    /// were posted.
    #[inline]
    pub(crate) fn fill(&mut self, count: u64, list: u64) -> Result<u64, RunError> {
        let mut left = count;
        loop {
            let want = if list == 0 { left } else { left.min(list) };
            let posted = match want {
                0 => 0,
                _ => self.carrier.post(want, left - want).map_err(RunError::ends_run)?,
            };
            self.carrier.flush().map_err(RunError::ends_run)?;
            self.posted += posted;
            left -= posted;
            if left == 0 || posted == 0 {
                return Ok(count - left);
            }
        }
    }

    /// Nothing more is posted.
    pub(crate) fn end_posting(&mut self) -> Result<(), RunError> {
        self.carrier.end_posting()
    }

    /// Takes in what has happened.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<Turn, RunError> {
        let turn = self.carrier.poll().map_err(RunError::ends_run)?;
        self.completed += turn.completed;
        self.received += turn.received;
        self.ended |= turn.ended;
        self.turns += 1;
        if self.is_time_to_look() {
            self.turns = 0;
            self.look().map_err(RunError::ends_run)?;
        }
        Ok(turn)
    }

    /// Where turns wait, the peer may have said long ago that it is done.
    #[inline]
    fn is_time_to_look(&self) -> bool {
        self.turns >= self.look_every || self.turns >= TURNS_PER_LOOK && self.carrier.waits()
    }

    /// Whether this end is done, and knows the same of the peer. Between two calls goes a
    /// [`fill`](Self::fill) of nothing and a [`turn`](Self::turn).
    pub(crate) fn settled(&mut self) -> Result<bool, RunError> {
        if self.completed < self.posted {
            return Ok(false);
        }
        if !self.told {
            let (digest, _) = self.carrier.digests();
            self.control.send(&Note::Done { messages: self.posted, digest })?;
            self.told = true;
        }
        if self.peer.is_none() && (self.ended || !self.takes.receives) {
            if self.carrier.blocks() {
                let note = self.control.recv()?;
                self.hear(&note)?;
            } else {
                self.look()?;
            }
        }
        let Some((messages, digest)) = self.peer else { return Ok(false) };
        if self.received > messages {
            return Err(RunError::Count { sent: messages, received: self.received });
        }
        if !self.takes.receives {
            return Ok(true);
        }
        let all = self.received == messages;
        if all && self.takes.validate && self.carrier.digests().1 != digest {
            return Err(RunError::Digest);
        }
        Ok(all || self.takes.lossy && self.quiet.look(self.received, Instant::now()) > LOST_AFTER)
    }

    /// Messages that never came, once this end has settled; none where it cannot tell.
    pub(crate) fn lost(&self) -> Option<u64> {
        let (sent, _) = self.peer?;
        self.takes.receives.then(|| sent.saturating_sub(self.received))
    }

    #[inline(never)]
    fn look(&mut self) -> Result<(), RunError> {
        // While we wait for what may be lost, the peer goes on to what comes after this row.
        let goes_on = self.takes.lossy && self.peer.is_some();
        if !goes_on && let Some(note) = self.control.try_recv()? {
            self.hear(&note)?;
        }
        if self.takes.passive {
            return Ok(());
        }
        self.watch.look(self.completed.max(self.received), self.completed + self.received)
    }

    fn hear(&mut self, note: &Note) -> Result<(), RunError> {
        match *note {
            Note::Done { messages, digest } if self.peer.is_none() => {
                self.peer = Some((messages, digest));
                Ok(())
            }
            _ => Err(RunError::OutOfTurn { wanted: "Done", got: note.name() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perftest::carrier::{Counters, RowPlan};
    use crate::perftest::control::tests::pair;
    use crate::perftest::limits::LATENCY_TURNS_PER_LOOK;
    use crate::perftest::settings::Goal;

    /// Nothing ever comes.
    struct Silent {
        waits: bool,
    }

    impl Carrier for Silent {
        fn prepare(&mut self, _row: &RowPlan) -> Result<(), RunError> {
            Ok(())
        }

        fn post(&mut self, count: u64, _after: u64) -> Result<u64, RunError> {
            Ok(count)
        }

        fn flush(&mut self) -> Result<(), RunError> {
            Ok(())
        }

        fn end_posting(&mut self) -> Result<(), RunError> {
            Ok(())
        }

        fn poll(&mut self) -> Result<Turn, RunError> {
            Ok(Turn::default())
        }

        fn blocks(&self) -> bool {
            false
        }

        fn waits(&self) -> bool {
            self.waits
        }

        fn digests(&self) -> (u64, u64) {
            (0, 0)
        }

        fn counters(&self) -> Option<Counters> {
            None
        }
    }

    /// Turns until an end of the latency test knows what its peer said before.
    fn turns_until_heard(waits: bool) -> u32 {
        let (mut near, mut far) = pair();
        far.send(&Note::Done { messages: 0, digest: 0 }).expect("the connection stands");
        near.wait_for_a_note();
        let takes = Takes { receives: true, validate: false, lossy: false, passive: false };
        let watch = Watch::new(Goal::Messages(1));
        let mut carrier = Silent { waits };
        let mut flow = Flow::new(&mut carrier, &mut near, watch, takes, LATENCY_TURNS_PER_LOOK);
        let mut turns = 0;
        while !flow.peer_is_done() {
            flow.turn().expect("nothing failed");
            turns += 1;
        }
        turns
    }

    #[test]
    fn an_end_that_waits_hears_soon_that_its_peer_is_done() {
        assert_eq!(turns_until_heard(false), LATENCY_TURNS_PER_LOOK);
        assert_eq!(turns_until_heard(true), TURNS_PER_LOOK);
    }
}
