//! Towpath under the adversary: its own endpoints, both ways, through restarts of the link on the
//! same queue pairs.

use super::{Seen, Shard};
use crate::app::Planned;
use crate::failure::{Cause, Failure};
use crate::limits::DRAIN_TURNS;
use crate::oracle::{Ending, Violation};
use crate::pair::{Pair, PairConfig};
use crate::studies::StudyError;
use towpath_base::{Nanos, Prng, Time};
use towpath_sim::FaultPlan;
use towpath_transport::EndpointConfig;
use towpath_verbs::Mtu;

/// Lives of the link, one after the other on the same queue pairs and PSNs: what the wire holds of
/// one comes in the next.
const LIVES: u64 = 8;

/// Channels, so that stale chunks of one meet messages of the other.
const CHANNELS: usize = 2;

/// Messages under way each way.
const DEPTH: usize = 16;

/// Short packets, so that most messages have several: then a late packet may be spliced into
/// another message.
const MTU: Mtu = Mtu::Mtu512;

/// Runs one part.
///
/// # Errors
/// [`StudyError::Run`] when any promise but that of unchanged memory is broken: that is what is
/// measured.
pub(super) fn run(shard: &Shard) -> Result<Seen, StudyError> {
    let mut seen = Seen::default();
    let failed =
        |failure: Failure| StudyError::run(format!("towpath, seed {}", shard.seed), failure);
    let mut pair = open(shard).map_err(failed)?;
    if let Err(failure) = live(shard, &mut pair, &mut seen) {
        let Some((buffers, bytes)) = changed(&failure) else { return Err(failed(failure)) };
        seen.buffers_changed += buffers;
        seen.bytes_changed += bytes;
    }
    for host in 0..2 {
        let faults = pair.host(host).control.counters();
        seen.late += faults.late;
        seen.copies += faults.duplicated;
    }
    let links = pair.totals();
    seen.stale = links.chunks_stale + links.chunks_duplicate;
    seen.messages = pair.oracle.messages_delivered();
    // Each lay in its buffers before it was sent, and again after it had come.
    seen.buffers_looked_at = 2 * seen.messages;
    seen.trace_hash = pair.world().trace_hash();
    Ok(seen)
}

/// Buffers and bytes, when it is that and nothing else.
fn changed(failure: &Failure) -> Option<(u64, u64)> {
    let Cause::Broken(violations) = &failure.cause else { return None };
    violations.iter().try_fold((0, 0), |(buffers, sum), violation| match violation {
        Violation::Changed { bytes, .. } => Some((buffers + 1, sum + bytes)),
        _ => None,
    })
}

fn open(shard: &Shard) -> Result<Pair, Failure> {
    // Few buffers, so that each is used again at once.
    let endpoint = EndpointConfig::new()
        .mtu_max(MTU)
        .links_max(2)
        .chunk_bytes_max(4096)
        .quota_chunks(32)
        .credit_total(32 * CHANNELS as u32)
        .send_pools(&[(shard.bytes_max as usize, 2 * DEPTH)]);
    Pair::new(PairConfig {
        seed: shard.seed,
        wire: Shard::wire(),
        spines: 0,
        endpoint,
        pause: Nanos::ZERO,
    })
}

fn live(shard: &Shard, pair: &mut Pair, seen: &mut Seen) -> Result<(), Failure> {
    let mut prng = Prng::new(!shard.seed);
    for life in 0..LIVES {
        pair.join()?;
        for host in 0..2 {
            pair.host(host).control.set_receive(shard.plan.clone());
        }
        let Some(link) = pair.link(0) else { return Ok(()) };
        for channel in 0..CHANNELS {
            let opened = pair.host_mut(0).endpoint.open_channel(link, channel == 0);
            opened.map_err(|error| pair.failure(error))?;
        }
        pair.run_until("the channels are open", |pair| {
            (0..2).all(|host| pair.host(host).app.channels().len() == CHANNELS)
        })?;
        for host in 0..2u64 {
            let messages = share(share(shard.messages, 2, host), LIVES, life);
            let script: Vec<Planned> =
                (0..messages).map(|number| plan(shard, &mut prng, number)).collect();
            let app = &mut pair.host_mut(host as usize).app;
            app.watch(shard.hold_max, prng.next_u64());
            app.perform(script, DEPTH);
        }
        let this = pair.life();
        pair.run_until("all messages have come and were looked at again", |pair| {
            let rests = |host| pair.host(host).app.is_done() && pair.host(host).app.holds_nothing();
            (0..2).all(rests) && pair.oracle.is_settled(this)
        })?;
        // Both die at once: their queue pairs come back as they were, and so does what is late.
        for host in 0..2 {
            pair.restart(host)?;
        }
        pair.oracle.end_life(this, [Ending::Died; 2]);
        seen.restarts += 1;
    }
    // Nothing is left to hit but devices that nobody uses.
    for host in 0..2 {
        pair.host(host).control.set_receive(FaultPlan::none());
    }
    pair.run_for(Nanos::from_micros(u64::from(DRAIN_TURNS)))
}

/// The part of `number` when `all` is shared among `parts`.
fn share(all: u64, parts: u64, number: u64) -> u64 {
    all / parts + u64::from(number < all % parts)
}

fn plan(shard: &Shard, prng: &mut Prng, number: u64) -> Planned {
    Planned {
        at: Time::ZERO,
        channel: number as usize % CHANNELS,
        len: shard.draw_len(prng),
        segments: 1,
        cancel_after: None,
        deadline_after: None,
    }
}
