//! One direction of a link: rate, queue with tail drop, propagation delay; first in, first out.

use super::config::LinkConfig;
use crate::limits::IN_FLIGHT_PACKETS_MAX;
use core::net::SocketAddr;
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};

/// A packet under way, with its bytes in one piece.
pub(super) struct Flight {
    pub(super) source: SocketAddr,
    pub(super) dest: SocketAddr,
    pub(super) source_port: u16,
    pub(super) tclass: u8,
    pub(super) bytes: Vec<u8>,
}

/// The queue of a wire is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

pub(super) struct Wire {
    /// The number of the port at its far end.
    pub(super) to_port: usize,
    rate_bits_per_s: u64,
    delay: Nanos,
    queue_bytes: u64,
    overhead_bytes: u64,
    /// When the last queued packet is wholly sent, and the part of a nanosecond that the division
    /// left over (in 1 / rate ns), so that a long run takes exactly its time.
    free_at: Time,
    remainder: u64,
    departures: VecDeque<(Time, u64)>,
    queued_bytes: u64,
    flights: VecDeque<Flight>,
}

impl Wire {
    pub(super) fn new(config: &LinkConfig, to_port: usize) -> Self {
        Self {
            to_port,
            rate_bits_per_s: config.rate_bits_per_s,
            delay: config.delay,
            queue_bytes: config.queue_bytes,
            overhead_bytes: u64::from(config.overhead_bytes),
            free_at: Time::ZERO,
            remainder: 0,
            departures: VecDeque::new(),
            queued_bytes: 0,
            flights: VecDeque::new(),
        }
    }

    /// Queues room for a packet of `byte_len` and returns when it arrives.
    pub(super) fn reserve(&mut self, now: Time, byte_len: usize) -> Result<Time, QueueFull> {
        while let Some((_, bytes)) = self.departures.pop_front_if(|(departs, _)| *departs <= now) {
            self.queued_bytes -= bytes;
        }
        let wire_bytes = byte_len as u64 + self.overhead_bytes;
        let full = self.queued_bytes + wire_bytes > self.queue_bytes;
        if full || self.flights.len() >= IN_FLIGHT_PACKETS_MAX {
            return Err(QueueFull);
        }
        if self.free_at <= now {
            self.free_at = now;
            self.remainder = 0;
        }
        let sending = self.sending_time(wire_bytes);
        self.free_at += sending;
        if self.free_at > now {
            self.departures.push_back((self.free_at, wire_bytes));
            self.queued_bytes += wire_bytes;
        }
        Ok(self.free_at + self.delay)
    }

    fn sending_time(&mut self, wire_bytes: u64) -> Nanos {
        if self.rate_bits_per_s == 0 {
            return Nanos::ZERO;
        }
        let rate = u128::from(self.rate_bits_per_s);
        let scaled = u128::from(wire_bytes) * 8_000_000_000 + u128::from(self.remainder);
        // The remainder is below the rate, a u64.
        self.remainder = (scaled % rate) as u64;
        Nanos(u64::try_from(scaled / rate).unwrap_or(u64::MAX))
    }

    pub(super) fn launch(&mut self, flight: Flight) {
        self.flights.push_back(flight);
    }

    /// Takes the packet that arrives next: delays are equal, so it is the oldest.
    pub(super) fn land(&mut self) -> Option<Flight> {
        self.flights.pop_front()
    }
}
