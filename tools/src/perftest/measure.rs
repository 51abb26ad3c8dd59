//! The two loops: messages as fast as they go, and one message back and forth.

use super::carrier::Carrier;
use super::error::RunError;
use super::flow::Flow;
use super::limits::SAMPLES_MAX;
use super::meter::Meter;
use super::settings::Goal;
use std::time::Instant;

/// What one end of a bandwidth row measured.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    pub(crate) sent: Meter,
    pub(crate) received: Meter,
}

/// How an end of a bandwidth row behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) goal: Goal,
    pub(crate) sends: bool,
    /// Messages under way.
    pub(crate) depth: u32,
    /// Messages handed over in one go; 0 is all.
    pub(crate) list: u32,
}

/// Keeps `depth` messages under way until the goal is reached, and takes in what comes.
pub(crate) fn bandwidth<C: Carrier>(
    flow: &mut Flow<'_, C>,
    how: Sending,
) -> Result<Bandwidth, RunError> {
    let start = Instant::now();
    let meter = || Meter::new(start, how.goal, how.depth);
    let mut measured = Bandwidth { sent: meter(), received: meter() };
    let mut turn = |flow: &mut Flow<'_, C>| -> Result<Instant, RunError> {
        let turn = flow.turn()?;
        let now = Instant::now();
        measured.sent.add(turn.completed, now);
        measured.received.add(turn.received, now);
        Ok(now)
    };
    if how.sends {
        let mut now = start;
        loop {
            let left = match how.goal {
                Goal::Messages(count) => count - flow.posted(),
                Goal::Span { span, .. } => {
                    if now - start < span {
                        u64::MAX
                    } else {
                        0
                    }
                }
            };
            let room = u64::from(how.depth) - flow.under_way();
            let posted = flow.fill(room.min(left), u64::from(how.list))?;
            // Before a turn, which may wait for an answer that only the end asks for.
            if posted == left {
                break;
            }
            now = turn(flow)?;
        }
        flow.end_posting()?;
    }
    while !flow.settled()? {
        flow.fill(0, 0)?;
        turn(flow)?;
    }
    Ok(measured)
}

/// Latency samples, each half of a round trip or all of it ([`Round`]), in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) samples_ns: Vec<u64>,
    /// Round trips of the measured part, and how long it was, in seconds.
    pub(crate) rounds: u64,
    pub(crate) seconds: f64,
}

/// What ends a round, and how much of it is the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// The peer's answer; half of it is one way.
    Answer,
    /// The completion, which brings what was asked for: all of it counts.
    Fetch,
}

/// Sends a message, waits for the answer, and again. The first round is not counted.
pub(crate) fn ping<C: Carrier>(
    flow: &mut Flow<'_, C>,
    goal: Goal,
    kind: Round,
) -> Result<Rounds, RunError> {
    let mut rounds = Rounds::default();
    if let Goal::Messages(count) = goal {
        rounds.samples_ns.reserve_exact((count as usize).min(SAMPLES_MAX));
    }
    round(flow, kind)?;
    let start = Instant::now();
    let mut before = start;
    loop {
        match goal {
            Goal::Messages(count) if rounds.rounds == count => break,
            Goal::Span { span, .. } if before - start >= span => break,
            _ => {}
        }
        round(flow, kind)?;
        let now = Instant::now();
        let measured = match goal {
            Goal::Messages(_) => true,
            Goal::Span { span, margin } => now >= start + margin && now <= start + span - margin,
        };
        if measured {
            rounds.rounds += 1;
            rounds.seconds += (now - before).as_secs_f64();
            if rounds.samples_ns.len() < SAMPLES_MAX {
                let parts = if kind == Round::Answer { 2 } else { 1 };
                rounds.samples_ns.push((now - before).as_nanos() as u64 / parts);
            }
        }
        before = now;
    }
    settle(flow)?;
    Ok(rounds)
}

fn round<C: Carrier>(flow: &mut Flow<'_, C>, kind: Round) -> Result<(), RunError> {
    while flow.fill(1, 0)? == 0 {
        flow.turn()?;
    }
    loop {
        let turn = flow.turn()?;
        let came = if kind == Round::Answer { turn.received } else { turn.completed };
        if came > 0 {
            return Ok(());
        }
        flow.fill(0, 0)?;
    }
}

/// Lets the peer act until it is done.
pub(crate) fn stand_by<C: Carrier>(flow: &mut Flow<'_, C>) -> Result<(), RunError> {
    settle(flow)
}

/// Answers each message until the peer is done.
pub(crate) fn pong<C: Carrier>(flow: &mut Flow<'_, C>) -> Result<(), RunError> {
    let mut owed = 0;
    while !flow.peer_is_done() {
        owed += flow.turn()?.received;
        owed -= flow.fill(owed, 0)?;
    }
    settle(flow)
}

fn settle<C: Carrier>(flow: &mut Flow<'_, C>) -> Result<(), RunError> {
    while !flow.settled()? {
        flow.fill(0, 0)?;
        flow.turn()?;
    }
    Ok(())
}
