//! The packet size of a path: searched and watched in the way of RFC 8899 (docs/protocol.md
//! section 9, "Packet sizes").
//!
//! What interfaces and peers say is the most that is tried. A path begins at [`BASE`] and is asked
//! for more as soon as something longer is to be sent (SEARCHING); what answers is used (SEARCH
//! COMPLETE). A path that swallows packets of its size, and says nothing, shows it by long packets
//! that are lost one after the other; then it is asked for the size in use, and goes back to the
//! base, or below it (ERROR), when only short packets are answered.
//!
//! It is asked by pairs of probes, a short one before one of the size in question. The first long
//! one that is answered says yes. Only many pairs of which the short one alone was answered say no:
//! where each packet is lost with the same chance, whatever that is, so many happen in a row less
//! than once in 4,000 times, and at a loss of 30 % less than once in forty million times. RFC 8899
//! takes three for enough, which at such a loss are wrong once in eighty times.

mod question;

use self::question::{Next, Question};
use crate::config::PacketSizes;
use crate::limits::{
    MTU_DOUBT_INTERVAL, MTU_LOST_MIN, MTU_PAIRS_HINTED, MTU_PAIRS_MIN, MTU_RAISE_FIRST,
    MTU_RAISE_LONGEST,
};
use crate::named;
use alloc::boxed::Box;
use towpath_base::{Nanos, Time};
use towpath_verbs::Mtu;

/// What a path begins with: with its headers it fits the smallest packet that IPv6 carries (1,280
/// bytes), and so whatever is called a network today. It is BASE_PLPMTU of RFC 8899.
pub(crate) const BASE: Mtu = Mtu::Mtu1024;

named! {
    /// Where the search of a path stands, in the words of RFC 8899.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MtuPhase {
        /// Nothing longer than the base was asked for yet.
        Base => "base",
        /// Probes ask for more.
        Searching => "searching",
        /// The largest size that is carried is in use.
        Complete => "complete",
        /// Not even the base is carried: a smaller size is in use.
        Error => "error",
    }
}

named! {
    /// Why the packets of a path are as long as they are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MtuReason {
        /// Both ends and the host's knowledge of the way say so; nothing was asked.
        Agreed => "agreed",
        /// A probe of this size was answered.
        Probed => "probed",
        /// Longer ones are swallowed while short ones get through.
        Swallowed => "swallowed",
    }
}

/// The packet size of a path is another one than was thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuChange {
    pub(crate) from: Mtu,
    pub(crate) to: Mtu,
    pub(crate) why: MtuReason,
    /// Packets of the size before were in use, and were swallowed.
    pub(crate) took_data: bool,
}

/// The packet size of one path, for what we send on it.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    /// What both ends can do.
    most: Mtu,
    /// What is in use.
    size: Mtu,
    sizes: PacketSizes,
    why: MtuReason,
    /// The size that was told last; what is expected until the first search is over.
    told: Mtu,
    /// Since then packets of the size in use were swallowed.
    took_data: bool,
    /// The smallest size above that in use of which the answer was no.
    ceiling: Option<Mtu>,
    question: Option<Box<Question>>,
    /// When it may be asked for more again, and how long after the next answer.
    raise_at: Time,
    raise_after: Nanos,
    changed_at: Time,
    /// Sends that were lost since one as long got through, by the smallest size that holds their
    /// packets, and the bytes of a send that says something of the shortest.
    lost: [u32; Mtu::ALL.len()],
    least_lost: u32,
    /// When the size in use was last asked for.
    doubted_at: Time,
}

impl MtuSearch {
    pub(crate) fn new(most: Mtu, sizes: PacketSizes, now: Time) -> Self {
        // A send that has to fit one packet costs more than what a wrong guess does.
        let begins_low = sizes == PacketSizes::Cut && most > BASE;
        Self {
            most,
            size: if begins_low { BASE } else { most },
            sizes,
            why: MtuReason::Agreed,
            told: most,
            took_data: false,
            ceiling: None,
            question: None,
            raise_at: now,
            raise_after: MTU_RAISE_FIRST,
            changed_at: now,
            lost: [0; Mtu::ALL.len()],
            least_lost: u32::MAX,
            doubted_at: Time::ZERO,
        }
    }

    /// The size in use.
    pub(crate) fn size(&self) -> Mtu {
        self.size
    }

    pub(crate) fn phase(&self) -> MtuPhase {
        if self.size < BASE.min(self.most) {
            MtuPhase::Error
        } else if self.is_searching() {
            MtuPhase::Searching
        } else if self.size < self.most && self.why == MtuReason::Agreed {
            MtuPhase::Base
        } else {
            MtuPhase::Complete
        }
    }

    /// Whether it is asked for more than the size in use.
    fn is_searching(&self) -> bool {
        self.question.as_ref().is_some_and(|question| question.size > self.size)
    }

    pub(crate) fn why(&self) -> MtuReason {
        self.why
    }

    /// At what size a send is to be cut, if not at the MTU of the queue pair.
    #[inline]
    pub(crate) fn cut_at(&self) -> Option<Mtu> {
        (self.size < self.most && self.sizes == PacketSizes::Cut).then_some(self.size)
    }

    /// The same for the ack of this number. Acks are not acknowledged, so a path that swallows long
    /// ones never shows it: every other one of those leaves in packets that any path carries.
    pub(crate) fn cut_ack_at(&self, bytes: usize, number: u64) -> Option<Mtu> {
        let is_long = bytes > Mtu::Mtu256.bytes() as usize && self.sizes == PacketSizes::Cut;
        if is_long && number.is_multiple_of(2) { Some(Mtu::Mtu256) } else { self.cut_at() }
    }

    /// Bytes of the packets that sends are cut into, headers of chunks included.
    #[inline]
    pub(crate) fn packet_bytes(&self) -> u32 {
        self.size.bytes()
    }

    /// Bytes of the longest send, headers of chunks included.
    #[inline]
    pub(crate) fn send_bytes_max(&self) -> u32 {
        let is_lone = self.size < self.most && self.sizes == PacketSizes::Lone;
        if is_lone { self.size.bytes() } else { u32::MAX }
    }

    /// Whether so many bytes that went out at once are a reason to ask for longer packets now: they
    /// filled one at least.
    #[inline]
    pub(crate) fn wants_more(&self, now: Time, bytes: u64) -> bool {
        self.size < self.most
            && bytes >= u64::from(self.packet_bytes())
            && now >= self.raise_at
            && self.question.is_none()
    }

    /// Asks for longer packets.
    #[cold]
    pub(crate) fn search(&mut self, now: Time) {
        self.ceiling = None;
        self.go_on(now);
    }

    /// Whether a question is open.
    pub(crate) fn is_asked(&self) -> bool {
        self.question.is_some()
    }

    /// When [`on_due`](Self::on_due) has something to do.
    pub(crate) fn due(&self) -> Time {
        self.question.as_ref().map_or(Time::NEVER, |question| question.due())
    }

    /// Bytes of a send whose acknowledgement says that packets get through as long as some that
    /// were lost; more than any has while nothing was.
    #[inline]
    pub(crate) fn least_bytes(&self) -> u32 {
        self.least_lost
    }

    /// The smallest size that holds the packets of a send.
    fn holding(&self, bytes: u32) -> Mtu {
        let fits = |mtu: &Mtu| mtu.bytes() >= bytes;
        Mtu::ALL.into_iter().find(fits).map_or(self.size, |mtu| mtu.min(self.size))
    }

    /// A send of so many bytes was lost.
    pub(crate) fn on_lost(&mut self, bytes: u32) {
        let size = self.holding(bytes);
        // What the smallest packets hold is lost for other reasons.
        let Some(smaller) = Mtu::at_most(size.bytes() - 1) else { return };
        if self.sizes != PacketSizes::Fixed {
            let lost = &mut self.lost[size as usize];
            *lost = lost.saturating_add(1);
            self.least_lost = self.least_lost.min(smaller.bytes() + 1);
        }
    }

    /// A send of so many bytes was acknowledged: packets as long as its own get through.
    #[cold]
    pub(crate) fn on_passed(&mut self, bytes: u32) {
        let size = self.holding(bytes);
        self.lost[..=size as usize].fill(0);
        let next = self.lost.iter().position(|&lost| lost > 0);
        self.least_lost = next.map_or(u32::MAX, |next| Mtu::ALL[next - 1].bytes() + 1);
        if self.question.as_ref().is_some_and(|question| question.size <= size) {
            self.question = None;
        }
    }

    /// Begins to ask for the size of sends that were lost, many in a row, or some while nothing at
    /// all was answered for a timeout. True if so.
    pub(crate) fn suspect(&mut self, now: Time, has_timed_out: bool) -> bool {
        if self.least_lost == u32::MAX {
            return false;
        }
        let enough = if has_timed_out { 1 } else { MTU_LOST_MIN };
        let longest = self.lost.iter().rposition(|&lost| lost >= enough);
        longest.is_some_and(|longest| self.doubt(now, Mtu::ALL[longest], MTU_PAIRS_MIN))
    }

    /// The host was told, or found on another path, that packets longer than `size` are not
    /// carried. Whoever told it may lie: it is a reason to ask, and to believe few probes.
    #[cold]
    pub(crate) fn on_hint(&mut self, now: Time, size: Mtu) -> bool {
        let is_shorter = self.sizes != PacketSizes::Fixed && size < self.size;
        is_shorter && self.doubt(now, self.size, MTU_PAIRS_HINTED)
    }

    /// Asks for a size that is in use, whatever else is asked.
    fn doubt(&mut self, now: Time, size: Mtu, needed: u32) -> bool {
        let size = size.min(self.size);
        if size == Mtu::Mtu256 {
            return false;
        }
        if let Some(question) = self.question.as_mut().filter(|q| q.size <= self.size) {
            question.needed = question.needed.min(needed);
            return false;
        }
        // Where much is lost of any length, each answer is followed by another doubt.
        let at = now.max(self.doubted_at + MTU_DOUBT_INTERVAL);
        self.doubted_at = at;
        self.question = Some(Box::new(Question::new(size, needed, at)));
        true
    }

    /// What time demands: true when a pair of probes is to be sent, a short one first. Within
    /// `answer` a probe is answered, if it is.
    pub(crate) fn on_due(
        &mut self,
        now: Time,
        answer: Nanos,
        is_acked: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(question) = &mut self.question else { return false };
        question.judge(now, is_acked);
        if question.swallowed >= question.needed {
            let size = question.size;
            self.question = None;
            self.on_swallowed(now, size);
            return false;
        }
        if !question.wants_pair() || now < question.pair_at {
            return false;
        }
        question.pair_at = now + question.spacing(answer);
        question.next = Next::Short;
        true
    }

    /// A short probe went out; true when a long one is to follow.
    pub(crate) fn on_short_probe(&mut self, number: u64) -> bool {
        let Some(question) = &mut self.question else { return false };
        let is_of_pair = question.next == Next::Short;
        if is_of_pair {
            question.next = Next::Long { short: number };
        }
        is_of_pair
    }

    /// How long the next probe is to be, if it is to be a long one.
    pub(crate) fn long_probe_due(&self) -> Option<Mtu> {
        let question = self.question.as_ref()?;
        matches!(question.next, Next::Long { .. }).then_some(question.size)
    }

    /// The long probe went out.
    pub(crate) fn on_long_probe(&mut self, now: Time, answer: Nanos, number: u64) {
        let Some(question) = &mut self.question else { return };
        let Next::Long { short } = question.next else { return };
        question.next = Next::Nothing;
        question.on_pair_sent((short, number), now + answer);
    }

    /// A probe of `size` was answered.
    pub(crate) fn on_long_answered(&mut self, now: Time, size: Mtu) {
        let size = size.min(self.most);
        self.on_passed(size.bytes());
        if size >= self.size {
            self.why = MtuReason::Probed;
        }
        if size <= self.size {
            return;
        }
        (self.size, self.changed_at) = (size, now);
        // An answer that came after it was given up on: nothing is known of what lies between.
        let is_below_ceiling = self.ceiling.is_none_or(|ceiling| size < ceiling);
        self.ceiling = self.ceiling.filter(|_| is_below_ceiling);
        self.question = None;
        self.go_on(now);
    }

    /// Packets of `size` do not get through.
    fn on_swallowed(&mut self, now: Time, size: Mtu) {
        self.ceiling = Some(size);
        if size <= self.size {
            if now > self.changed_at + MTU_RAISE_LONGEST {
                self.raise_after = MTU_RAISE_FIRST;
            }
            self.size = if size > BASE { BASE } else { Mtu::Mtu256 };
            self.changed_at = now;
            (self.lost, self.least_lost) = ([0; Mtu::ALL.len()], u32::MAX);
            (self.why, self.took_data) = (MtuReason::Swallowed, true);
        }
        self.go_on(now);
    }

    /// Asks for the largest size that may be carried, or is content for a while.
    fn go_on(&mut self, now: Time) {
        let below = self.ceiling.map_or(u32::MAX, |ceiling| ceiling.bytes() - 1);
        let next = Mtu::at_most(below.min(self.most.bytes())).filter(|&next| next > self.size);
        if let Some(next) = next {
            self.question = Some(Box::new(Question::new(next, MTU_PAIRS_MIN, now)));
        } else if self.size < self.most {
            self.why = MtuReason::Swallowed;
            self.raise_at = now + self.raise_after;
            self.raise_after = self.raise_after.saturating_mul(2).min(MTU_RAISE_LONGEST);
        }
    }

    /// Gives a question up: the path is not used any more, or not asked.
    pub(crate) fn forget_question(&mut self) {
        self.question = None;
    }

    /// What is to be told: another size is carried than was thought.
    pub(crate) fn poll_change(&mut self) -> Option<MtuChange> {
        let (from, to) = (self.told, self.size);
        let is_known = match self.why {
            MtuReason::Agreed => false,
            MtuReason::Probed => to > from && !self.is_searching(),
            MtuReason::Swallowed => true,
        };
        let took_data = core::mem::take(&mut self.took_data);
        if !is_known || to == from {
            return None;
        }
        self.told = to;
        let why = if to > from { MtuReason::Probed } else { self.why };
        Some(MtuChange { from, to, why, took_data })
    }

    /// The size that chunks are reckoned in: while a search has found nothing, what is expected.
    pub(crate) fn reckoned(&self) -> Mtu {
        self.size.max(self.told)
    }
}

#[cfg(test)]
mod tests;
