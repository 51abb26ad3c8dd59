//! What of its limits a link uses now: for people who look at a running process.

use super::Link;

/// What of its limits a link uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkUsage {
    /// Channels that have a place, whoever opened them.
    pub channels: u32,
    /// The most of them.
    pub channels_max: u32,
    /// Pieces that the peer is allowed to have sent or held here, over all channels.
    pub credit_given: u32,
    /// The most of them.
    pub credit_given_max: u32,
    /// Pieces that we may still send, over all channels: what the peer allows and is not used.
    pub credit_left: u64,
    /// Messages being sent: queued, under way, or with an outcome that was not taken.
    pub sends: usize,
    /// The most of them.
    pub sends_max: usize,
    /// Messages of which something was not sent yet.
    pub messages_queued: usize,
    /// Bytes of those that were not sent yet.
    pub queued_bytes: u64,
    /// Bytes that count as in flight.
    pub in_flight_bytes: u64,
    /// What may be in flight as far as congestion control goes, in bytes.
    pub window_bytes: u64,
}

impl Link {
    /// What of its limits it uses now. Takes time in proportion to its channels and to the messages
    /// that are queued: not for the data path.
    #[must_use]
    pub fn usage(&self) -> LinkUsage {
        let mut usage = LinkUsage {
            channels: self.channels.open,
            channels_max: self.config.limits.channels_max,
            credit_given: self.channels.quota_sum,
            credit_given_max: self.config.limits.credit_total,
            sends: self.sends.len(),
            sends_max: self.config.limits.sends_max,
            in_flight_bytes: self.flow.in_flight_bytes,
            window_bytes: self.window_bytes(),
            ..LinkUsage::default()
        };
        for channel in self.channels.all.iter().flatten() {
            usage.credit_left += channel.tx.granted().saturating_sub(channel.tx.used());
            let sends = channel.tx.queue.iter().filter_map(|send| self.sends.messages.get(send.0));
            let queued = sends.filter(|message| message.is_queued());
            for message in queued {
                usage.messages_queued += 1;
                usage.queued_bytes += u64::from(message.uncut_bytes());
            }
        }
        usage
    }
}
