//! Whether a carrier loses so much, for so long, that it is of no use although it answers.

use crate::limits::{HOPELESS_LOSS, HOPELESS_PACKETS_MIN, HOPELESS_SPANS};
use towpath_base::{Nanos, Time};

/// Counts what is lost in one span after the other, while answers come.
#[derive(Debug)]
pub(crate) struct LossWatch {
    span: Nanos,
    ends_at: Time,
    packets: u64,
    lost: u64,
    /// Spans in a row in which too many were lost.
    bad_spans: u32,
}

impl LossWatch {
    pub(crate) fn new(span: Nanos, now: Time) -> Self {
        Self { span, ends_at: now + span, packets: 0, lost: 0, bad_spans: 0 }
    }

    #[inline]
    pub(crate) fn on_sent(&mut self, packets: u32) {
        self.packets += u64::from(packets);
    }

    /// Chunks were found lost: at least a packet of each.
    pub(crate) fn on_lost(&mut self, chunks: u32) {
        self.lost += u64::from(chunks);
    }

    /// Chunks that were taken for lost have come.
    pub(crate) fn on_spurious(&mut self, chunks: u32) {
        self.lost = self.lost.saturating_sub(u64::from(chunks));
    }

    /// An answer came: whether too much was lost in all of the last spans. A span in which little
    /// was sent goes on for a while, and then says nothing against the carrier.
    pub(crate) fn is_hopeless(&mut self, now: Time) -> bool {
        let is_enough = self.packets >= HOPELESS_PACKETS_MIN;
        let longest = self.span.saturating_mul(u64::from(HOPELESS_SPANS));
        if now >= self.ends_at && (is_enough || now >= self.ends_at + longest) {
            let is_bad = is_enough && self.lost as f64 >= HOPELESS_LOSS * self.packets as f64;
            self.bad_spans = if is_bad { self.bad_spans.saturating_add(1) } else { 0 };
            (self.packets, self.lost, self.ends_at) = (0, 0, now + self.span);
        }
        self.bad_spans >= HOPELESS_SPANS
    }

    /// Whether too much was lost in the last span.
    pub(crate) fn was_bad(&self) -> bool {
        self.bad_spans > 0
    }

    /// Another carrier: what was counted is of the one before.
    pub(crate) fn begin(&mut self, now: Time) {
        *self = Self::new(self.span, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Nanos = Nanos::from_millis(100);

    /// Spans after which it counts as hopeless, with these numbers sent and lost in each.
    fn spans_of(packets: u32, lost: u32) -> Option<u64> {
        let mut watch = LossWatch::new(SPAN, Time::ZERO);
        (1..100).find(|&span| {
            watch.on_sent(packets);
            watch.on_lost(lost);
            watch.is_hopeless(Time::ZERO + SPAN.saturating_mul(span))
        })
    }

    #[test]
    fn only_much_loss_of_many_packets_in_several_spans_in_a_row_is_hopeless() {
        let many = HOPELESS_PACKETS_MIN as u32 * 4;
        assert_eq!(spans_of(many, many / 4), Some(u64::from(HOPELESS_SPANS)));
        assert_eq!(spans_of(many, many / 4 - 1), None, "a little less");
        assert_eq!(spans_of(HOPELESS_PACKETS_MIN as u32 / 8, 1_000), None, "too few to tell");
    }

    #[test]
    fn one_good_span_and_losses_that_were_none_begin_the_count_anew() {
        let mut watch = LossWatch::new(SPAN, Time::ZERO);
        for span in 1..200 {
            watch.on_sent(1_000);
            watch.on_lost(500);
            if span % u64::from(HOPELESS_SPANS) == 0 {
                watch.on_spurious(499);
            }
            assert!(!watch.is_hopeless(Time::ZERO + SPAN.saturating_mul(span)), "{span}");
        }
    }
}
