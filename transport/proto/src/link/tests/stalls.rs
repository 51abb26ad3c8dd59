//! Black holes that come and go at random: nothing waits for long while there is a way.

use super::paths::{EACH, tick};
use super::*;
use crate::path::{Path, PathState};
use alloc::collections::BTreeMap;

/// Source ports of the device.
const PORTS: u16 = 64;

const MS: Nanos = Nanos::from_millis(1);

/// How long a message waits that is sent, or still waits, while each end has a way
/// (docs/protocol.md section 9, "How long that takes"), and in one case of hundreds.
const TICKS_MAX: u64 = 6;
const TICKS_WORST: u64 = 20;

/// Rounds of silence after so many ticks come up to so many apart.
const TICKS_PROMPT: u64 = 20;
const TICKS_RARE: u64 = 32;

/// What can be done about the source port of a queue pair.
#[derive(Clone, Copy, Debug)]
enum Device {
    /// It is changed while the queue pair runs.
    Changes,
    /// The next queue pair leaves from another.
    Keeps,
    /// There is no other.
    Has1,
}

/// Two ends that send each other something small every millisecond.
struct Rig {
    wire: Wire,
    channel: ChannelId,
    next: u64,
    /// When what is under way was sent, by end.
    sent_at: [BTreeMap<u64, Time>; 2],
    /// Since when what an end sends on a path has got through, and from which port and by which
    /// life of its queue pairs; `NEVER` while it does not.
    open: [Vec<(Time, u16, u32)>; 2],
    longest: Nanos,
}

impl Rig {
    fn new(seed: u64, paths: usize, device: Device) -> Self {
        let tune = |config: LinkConfig| {
            let config = config.spreading(EACH).seed(seed);
            match device {
                Device::Changes => config.source_ports(PORTS),
                Device::Keeps => {
                    config.source_ports(PORTS).keeps_ports(true).spare_paths(paths / 4)
                }
                Device::Has1 => config.spare_paths(paths / 4),
            }
        };
        let mut wire = Wire::with_paths(seed, Faults::default(), paths as u32, tune);
        wire.renews = true;
        let channel = wire.open_channel(0, seed.is_multiple_of(2));
        let open = [0, 1].map(|_| vec![(Time::NEVER, 0, 0); paths]);
        let sent_at = [BTreeMap::new(), BTreeMap::new()];
        let mut rig = Self { wire, channel, next: 0, sent_at, open, longest: Nanos::ZERO };
        rig.run(MS.saturating_mul(100));
        rig
    }

    fn is_down(&self) -> bool {
        self.wire.ends.iter().any(|end| end.down.is_some())
    }

    fn run(&mut self, span: Nanos) {
        let end = self.wire.now + span;
        while self.wire.now < end && !self.is_down() {
            for at in 0..2 {
                // No more than the link takes: what waits, waits.
                if self.wire.ends[at].sending.len() < 200 {
                    let bytes = vec![self.next as u8; 100];
                    self.wire.ends[at].send(self.channel, self.next, bytes, Time::NEVER);
                    self.sent_at[at].insert(self.next, self.wire.now);
                    self.next += 1;
                }
            }
            self.wire.run_for(MS);
            self.look();
        }
    }

    /// Since when both ends have had a way without a break. They need not be on one path.
    fn open_since(&mut self) -> Time {
        let now = self.wire.now;
        let Self { wire, open, .. } = self;
        let mut both_since = Time::ZERO;
        for (at, open) in open.iter_mut().enumerate() {
            for (path, open) in open.iter_mut().enumerate() {
                let ends = [0, 1].map(|at| &wire.ends[at].link.paths[path]);
                let (port, lives) = (wire.ports[at][path], ends.map(|end| end.remake.life()));
                let is_swallowed = wire.holes[1 - at] & 1 << port != 0;
                let has_failed = |end: &&Path| end.condition.state() == PathState::Failed;
                let is_open = !is_swallowed && !ends.iter().any(has_failed);
                let life = lives[0] + lives[1];
                let goes_on = open.0 != Time::NEVER && (open.1, open.2) == (port, life);
                let since = if goes_on { open.0 } else { now };
                *open = (if is_open { since } else { Time::NEVER }, port, life);
            }
            let since = open.iter().map(|&(since, ..)| since).min();
            both_since = both_since.max(since.unwrap_or(Time::NEVER));
        }
        both_since
    }

    /// Notes how long the oldest message of each end has waited in vain. Where it had waited for
    /// long when a way opened, it was to be asked for rarely.
    fn look(&mut self) {
        let (now, open_since) = (self.wire.now, self.open_since());
        for (at, sent_at) in self.sent_at.iter_mut().enumerate() {
            sent_at.retain(|token, _| self.wire.ends[at].sending.contains_key(token));
            let Some((_, &sent)) = sent_at.first_key_value() else { continue };
            if open_since == Time::NEVER {
                continue;
            }
            let is_rare = open_since.since(sent) > tick(TICKS_PROMPT);
            let excused = if is_rare { tick(TICKS_RARE) } else { Nanos::ZERO };
            let waited = now.since(sent.max(open_since));
            self.longest = self.longest.max(Nanos(waited.0.saturating_sub(excused.0)));
        }
    }
}

/// Ports that swallow: none, a few, half, most.
fn holes(prng: &mut Prng) -> u64 {
    match prng.below(5) {
        0 => 0,
        1 => prng.next_u64() & prng.next_u64(),
        2 => prng.next_u64(),
        3 => prng.next_u64() | prng.next_u64(),
        _ => prng.next_u64() | prng.next_u64() | prng.next_u64(),
    }
}

/// The longest wait in a dozen changes of weather.
fn longest_wait(seed: u64, paths: usize, device: Device) -> Nanos {
    let (mut rig, mut prng) = (Rig::new(seed, paths, device), Prng::new(seed));
    for _ in 0..12 {
        let is_alike = prng.chance(0.3);
        let span = MS.saturating_mul(prng.between(20, 3_000));
        rig.wire.holes = match prng.chance(0.3) {
            true => [0; 2],
            false => [holes(&mut prng), holes(&mut prng)],
        };
        if is_alike {
            rig.wire.holes[1] = rig.wire.holes[0];
        }
        rig.run(span);
    }
    rig.longest
}

fn check(seeds: &[u64], ticks: u64) {
    let bound = tick(ticks) + MS;
    for device in [Device::Changes, Device::Keeps, Device::Has1] {
        for paths in [2, 4, 8, 16] {
            let waits = seeds.iter().map(|&seed| (longest_wait(seed, paths, device), seed));
            let (longest, seed) = waits.max().unwrap_or_default();
            println!("{device:?}, {paths} paths: {longest}, seed {seed}");
            assert!(longest <= bound, "{device:?}, {paths} paths, seed {seed}: {longest}");
        }
    }
}

#[test]
fn nothing_waits_longer_than_six_ticks_while_each_end_has_a_way() {
    check(&[3, 14, 23, 25, 26], TICKS_MAX);
}

/// `cargo test --release -p towpath-proto stalls -- --ignored --nocapture`.
#[test]
#[ignore = "minutes"]
fn nothing_waits_longer_than_twenty_ticks_in_hundreds_of_seeds() {
    check(&(0..300).collect::<Vec<_>>(), TICKS_WORST);
}
