//! How much of a lossy wire is used.

use crate::app::Planned;
use crate::failure::Failure;
use crate::pair::{Pair, PairConfig};
use towpath_base::{Nanos, Time};
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_sim::{FaultPlan, LinkConfig};
use towpath_transport::EndpointConfig;
use towpath_verbs::Mtu;

/// The wire: 100 Gb/s and 10 us there and back.
const RATE_BITS_PER_S: u64 = 100_000_000_000;
const DELAY: Nanos = Nanos::from_micros(5);
const MTU: Mtu = Mtu::Mtu4096;

/// What a packet takes on the wire beside its share of a chunk: BTH 12, ICRC 4, and what
/// [`LinkConfig::overhead_bytes`] says of the layers below.
const PACKET_OVERHEAD_BYTES: f64 = 12.0 + 4.0 + 66.0;

/// Messages of a study, 1 MiB each: some 30 ms on the wire, so that the chunk size has settled.
const MESSAGES: usize = 384;
const MESSAGE_BYTES: u32 = 1 << 20;

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Study {
    /// Where everything random comes from.
    pub seed: u64,
    /// The probability that a packet is lost, each way.
    pub loss: f64,
    /// The fixed window in bytes. The wire holds 125,000.
    pub window_bytes: u64,
}

impl Study {
    /// With a window of four times what the wire holds: enough that repairs, which take a round
    /// trip or two, do not stop the rest.
    #[must_use]
    pub fn new(seed: u64, loss: f64) -> Self {
        Self { seed, loss, window_bytes: 512 << 10 }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goodput {
    /// Bytes of messages that came, in bits a second of virtual time.
    pub bits_per_s: f64,
    /// The wire's rate, less headers, times the probability that a chunk of the mean size comes
    /// whole: what perfect repair would reach with chunks of this size.
    pub bound_bits_per_s: f64,
    /// Payload of a chunk, on average.
    pub chunk_bytes: f64,
    /// Chunks that were sent again, of all that were sent.
    pub retransmitted: f64,
    /// Chunks sent again that had not been lost, of those sent again.
    pub spurious: f64,
    /// Tail-loss probes and retransmission timeouts.
    pub timeouts: u64,
}

/// Sends 1 MiB messages one way over a virtual wire that loses packets both ways.
///
/// # Errors
/// [`Failure`] when a message does not come once and intact.
pub fn lossy_goodput(study: Study) -> Result<Goodput, Failure> {
    let mut pair = open_pair(study)?;
    for host in 0..2 {
        pair.host(host).control.set_receive(FaultPlan::none().drop(study.loss));
    }
    let begin = pair.world().now();
    let planned = Planned {
        at: Time::ZERO,
        channel: 0,
        len: MESSAGE_BYTES,
        segments: 1,
        cancel_after: None,
        deadline_after: None,
    };
    pair.host_mut(0).app.perform([planned; MESSAGES], 16);
    pair.run_until("all messages have come", |pair| {
        pair.oracle.messages_delivered() == MESSAGES as u64
    })?;
    let span = pair.world().now().since(begin).as_secs_f64();
    pair.count(0);
    Ok(judge(&pair, study.loss, span))
}

/// Two hosts with one channel open, and no faults yet.
fn open_pair(study: Study) -> Result<Pair, Failure> {
    let wire = LinkConfig {
        rate_bits_per_s: RATE_BITS_PER_S,
        delay: DELAY,
        queue_bytes: 16 << 20,
        rx_buffer_bytes: 16 << 20,
        ..LinkConfig::default()
    };
    let window = FixedWindowConfig::new(study.window_bytes).unwrap_or_default();
    let endpoint = EndpointConfig::new()
        .mtu_max(MTU)
        .quota_chunks(1024)
        .credit_total(1024)
        .links_max(1)
        .controller(ControllerConfig::Fixed(window))
        .send_pools(&[(MESSAGE_BYTES as usize, 32)]);
    let mut pair =
        Pair::new(PairConfig { seed: study.seed, wire, spines: 0, endpoint, pause: Nanos(0) })?;
    pair.join()?;
    let opened = pair.link(0).map(|link| pair.host_mut(0).endpoint.open_channel(link, false));
    opened.transpose().map_err(|error| pair.failure(error))?;
    pair.run_until("the channel is open", |pair| {
        (0..2).all(|host| pair.host(host).app.channels().len() == 1)
    })?;
    Ok(pair)
}

fn judge(pair: &Pair, loss: f64, span: f64) -> Goodput {
    let links = pair.totals();
    let chunk_bytes = links.bytes_sent as f64 / links.chunks_sent as f64;
    let packets = ((chunk_bytes + 64.0) / f64::from(MTU.bytes())).ceil();
    let on_wire = chunk_bytes + 64.0 + packets * PACKET_OVERHEAD_BYTES;
    let whole = (1.0 - loss).powf(packets);
    let again = links.chunks_retransmitted as f64;
    Goodput {
        bits_per_s: pair.oracle.bytes_delivered() as f64 * 8.0 / span,
        bound_bits_per_s: RATE_BITS_PER_S as f64 * chunk_bytes / on_wire * whole,
        chunk_bytes,
        retransmitted: again / links.chunks_sent as f64,
        spurious: if again > 0.0 { links.losses_spurious as f64 / again } else { 0.0 },
        timeouts: links.tail_probes + links.rtos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_in_a_thousand_lost_leaves_most_of_the_wire() {
        let seed = 1;
        let goodput = lossy_goodput(Study::new(seed, 1.0 / 1024.0));
        let goodput = goodput.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(goodput.bits_per_s > 0.8 * goodput.bound_bits_per_s, "{goodput:?}");
        assert!(goodput.bits_per_s <= RATE_BITS_PER_S as f64);
    }
}
