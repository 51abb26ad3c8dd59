//! How far chunks of a path overtake each other, and when one that was overtaken is lost.
//!
//! In the manner of RACK (RFC 8985): a chunk is lost when another one that was sent a while later
//! is acknowledged. On a path that keeps the order that while is nothing. It grows to how late
//! chunks came that had been declared lost, and shrinks again while none does.

use crate::limits::REORDER_SPAN_MAX;
use towpath_base::{Nanos, Time};

/// Acks in a row that show no disorder after which the while shrinks by a quarter.
const DECAY_ACKS: u32 = 256;

/// The order of one path.
#[derive(Debug)]
pub(crate) struct Order {
    /// How much later another chunk must have been sent.
    span: Nanos,
    /// When the newest was sent that is acknowledged, and when that was known.
    newest_sent_at: Time,
    newest_acked_at: Time,
    /// When a chunk that was overtaken counts as lost, if nothing more is heard.
    due: Time,
    acks_in_order: u32,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self {
            span: Nanos::ZERO,
            newest_sent_at: Time::ZERO,
            newest_acked_at: Time::ZERO,
            due: Time::NEVER,
            acks_in_order: 0,
        }
    }

    /// When the newest was sent that is acknowledged.
    pub(crate) fn newest_sent_at(&self) -> Time {
        self.newest_sent_at
    }

    /// The largest number yet is acknowledged, which was sent then.
    #[inline]
    pub(crate) fn on_newest(&mut self, now: Time, sent_at: Time) {
        if sent_at >= self.newest_sent_at {
            (self.newest_sent_at, self.newest_acked_at) = (sent_at, now);
        }
    }

    /// A chunk came although it was declared lost, and another one sent so much later came before.
    pub(crate) fn on_late(&mut self, late: Nanos) {
        // A little more, for the next may be later.
        let span = late + Nanos(late.0 / 4);
        self.span = self.span.max(span).min(REORDER_SPAN_MAX);
        self.acks_in_order = 0;
    }

    /// An ack was taken in, with or without signs of disorder.
    #[inline]
    pub(crate) fn on_ack(&mut self, is_disordered: bool) {
        self.acks_in_order = if is_disordered { 0 } else { self.acks_in_order + 1 };
        if self.acks_in_order >= DECAY_ACKS {
            self.acks_in_order = 0;
            self.span = Nanos(self.span.0 * 3 / 4);
        }
    }

    /// Begins to look for what is lost.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.due = Time::NEVER;
    }

    /// Whether a chunk is lost that was sent then, and overtaken. If not, it is waited for.
    #[inline]
    pub(crate) fn is_lost(&mut self, now: Time, sent_at: Time) -> bool {
        if self.span == Nanos::ZERO {
            return true;
        }
        let due = self.newest_acked_at + (sent_at + self.span).since(self.newest_sent_at);
        if due > now {
            self.due = due;
        }
        due <= now
    }

    /// When to look again, if no ack comes before.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Time {
        Time(micros * 1_000)
    }

    #[test]
    fn on_a_path_in_order_what_was_overtaken_is_lost_at_once() {
        let mut order = Order::new();
        order.on_newest(at(100), at(50));
        order.begin();
        assert!(order.is_lost(at(100), at(50)), "even if both were sent at once");
        assert_eq!(order.due(), Time::NEVER);
    }

    #[test]
    fn after_one_that_was_late_others_are_waited_for_as_long() {
        let mut order = Order::new();
        order.on_late(Nanos::from_micros(40));
        order.on_newest(at(200), at(100));
        order.begin();
        assert!(order.is_lost(at(200), at(50)), "sent 50 us before the newest");
        assert_eq!(order.due(), Time::NEVER);
        assert!(!order.is_lost(at(200), at(80)));
        assert_eq!(order.due(), at(230), "30 of 50 us are left");
        order.begin();
        assert!(order.is_lost(at(230), at(80)), "nothing more was heard");
    }

    #[test]
    fn the_while_is_bounded_and_shrinks_to_nothing_on_a_path_that_is_in_order_again() {
        let mut order = Order::new();
        order.on_late(Nanos::from_secs(5));
        assert_eq!(order.span, REORDER_SPAN_MAX);
        for _ in 0..DECAY_ACKS * 4 {
            order.on_ack(false);
            order.on_ack(true);
        }
        assert_eq!(order.span, REORDER_SPAN_MAX, "it is not");
        (0..DECAY_ACKS * 80).for_each(|_| order.on_ack(false));
        assert_eq!(order.span, Nanos::ZERO);
    }
}
