//! Lives of a link one after the other, and how each ends.

use super::draw::Scenario;
use super::faults;
use towpath_base::{Nanos, Prng, Time};
use towpath_lab::app::Planned;
use towpath_lab::failure::Failure;
use towpath_lab::limits::DRAIN_TURNS;
use towpath_lab::oracle::{Ending, Violation};
use towpath_lab::pair::{Happening, Pair, PairConfig, Seals};
use towpath_proto::{DownReason, LinkStats};
use towpath_sim::{FaultCounters, FaultPlan, WorldCounters};

/// Happenings of one life: changes of the weather, stalls, readers that stop.
const HAPPENINGS_MAX: u64 = 6;

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Report {
    /// Over every packet that was delivered or dropped.
    pub trace_hash: u64,
    /// Messages that readers got.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Steps of the driver.
    pub steps: u64,
    /// Virtual time that passed.
    pub time: Time,
    /// Lives of the link.
    pub lives: u32,
    /// The counters of the links, both ends and all lives together.
    pub links: LinkStats,
    /// What the faults did, both ends together.
    pub faults: FaultCounters,
    /// What the wire did by itself.
    pub wire: WorldCounters,
    /// What seals did, both ends and all lives together.
    pub seals: Seals,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All is sent and read; then one host leaves in order, with its channels closed before or not.
    Close { by: usize, channels: bool },
    /// Both hosts die in the middle of it.
    CrashBoth,
    /// One dies; the other learns of it by the next HELLO.
    CrashOne(usize),
    /// The wire goes dead both ways for as long as it takes to notice.
    Silence,
}

impl Scenario {
    /// Runs it.
    ///
    /// # Errors
    /// [`Failure`] when a promise was broken, or the run gets stuck.
    pub fn run(&self) -> Result<Report, Failure> {
        let config = PairConfig {
            seed: self.seed,
            wire: self.wire(),
            spines: self.spines,
            endpoint: self.endpoint(),
            pause: self.pause,
        };
        let mut pair = Pair::new(config)?;
        let mut prng = Prng::new(!self.seed);
        for life in 0..self.lives {
            let end = self.draw_end(&mut prng, life + 1 == self.lives);
            self.live(&mut pair, &mut prng, end)?;
        }
        self.check_devices(&mut pair)?;
        let faults = |host: usize| pair.host(host).control.counters();
        Ok(Report {
            trace_hash: pair.world().trace_hash(),
            messages: pair.oracle.messages_delivered(),
            bytes: pair.oracle.bytes_delivered(),
            steps: pair.steps(),
            time: pair.world().now(),
            lives: self.lives,
            links: pair.totals(),
            faults: faults(0).plus(faults(1)),
            wire: pair.world().counters(),
            seals: pair.seals(),
        })
    }

    fn draw_end(&self, prng: &mut Prng, is_last: bool) -> End {
        let host = prng.below(2) as usize;
        let crash = prng.chance(self.crashes);
        match prng.below(20) {
            _ if crash && !is_last => End::CrashBoth,
            0..3 if !is_last => End::CrashOne(host),
            3 => End::Silence,
            _ => End::Close { by: host, channels: prng.chance(0.3) },
        }
    }

    fn live(&self, pair: &mut Pair, prng: &mut Prng, end: End) -> Result<(), Failure> {
        pair.join()?;
        for host in 0..2 {
            let plan = faults::draw(prng, self.harshness, self.chunk_packets(), self.scribbles);
            pair.host_mut(host).control.set_receive(plan);
        }
        self.open_channels(pair, prng)?;
        for host in 0..2 {
            let depth = 1 << prng.below(6);
            let script = self.draw_script(prng, pair.world().now());
            pair.host_mut(host).app.perform(script, depth);
        }
        self.schedule(pair, prng);
        self.schedule_holes(pair, self.seed ^ u64::from(pair.life()) << 32);
        match end {
            End::Close { by, channels } => close(pair, by, channels),
            End::CrashBoth => self.crash(pair, prng, [true; 2]),
            End::CrashOne(host) => self.crash(pair, prng, [host == 0, host == 1]),
            End::Silence => self.fall_silent(pair, prng),
        }
    }

    fn open_channels(&self, pair: &mut Pair, prng: &mut Prng) -> Result<(), Failure> {
        for _ in 0..self.channels {
            let (host, ordered) = (prng.below(2) as usize, prng.chance(0.5));
            let Some(link) = pair.link(host) else { continue };
            let opened = pair.host_mut(host).endpoint.open_channel(link, ordered);
            opened.map_err(|error| pair.failure(error))?;
        }
        let wanted = self.channels as usize;
        pair.run_until("all channels are open", |pair| {
            (0..2).all(|host| pair.host(host).app.channels().len() == wanted)
        })
    }

    fn draw_script(&self, prng: &mut Prng, now: Time) -> Vec<Planned> {
        let count = prng.between(1, self.sizes.messages_max);
        let mut left = self.sizes.bytes_total;
        let mut script = Vec::new();
        let (mut at, spread) = (now, 1 << prng.below(16));
        for _ in 0..count {
            let len = self.draw_len(prng);
            if u64::from(len) > left && !script.is_empty() {
                continue;
            }
            left = left.saturating_sub(u64::from(len));
            at += Nanos(if prng.chance(0.3) { prng.below(spread) } else { 0 });
            let mut soon = |p: f64| prng.chance(p).then(|| Nanos(1 << prng.between(8, 22)));
            let (cancel_after, deadline_after) = (soon(0.08), soon(0.05));
            let channel = prng.below(u64::from(self.channels)) as usize;
            // Above 8 MiB it takes four segments of the largest pool.
            let segments = if len > 8 << 20 { 4 } else { prng.between(2, 4) as u32 };
            let segments = if len < 4096 && prng.chance(0.5) { 1 } else { segments };
            script.push(Planned { at, channel, len, segments, cancel_after, deadline_after });
        }
        script
    }

    fn schedule(&self, pair: &mut Pair, prng: &mut Prng) {
        let now = pair.world().now();
        for _ in 0..prng.below(HAPPENINGS_MAX) {
            let at = now + Nanos(1 << prng.between(12, 24));
            let until = at + Nanos(1 << prng.between(12, 24));
            let what = match prng.below(4) {
                0 | 1 => {
                    let packets = self.chunk_packets();
                    Happening::Faults(faults::draw(prng, self.harshness, packets, self.scribbles))
                }
                2 => Happening::Stall(until),
                _ => Happening::StopReading(until),
            };
            pair.schedule(at, prng.below(2) as usize, what);
        }
    }

    /// Some ways are swallowed for a while, never all of them. From dice of their own.
    fn schedule_holes(&self, pair: &mut Pair, seed: u64) {
        if self.paths == 1 {
            return;
        }
        let mut prng = Prng::new(seed ^ 0x401e);
        let now = pair.world().now();
        // Paths beyond the ports share those.
        let ways = (self.paths as u16).min(self.wire().source_ports);
        for _ in 0..prng.below(HAPPENINGS_MAX) {
            let at = now + Nanos(1 << prng.between(12, 25));
            let alive = prng.below(u64::from(ways)) as u16;
            let share = prng.unit();
            let ports = (0..ways).filter(|&port| port != alive && prng.chance(share));
            let (ports, host) = (ports.collect(), prng.below(2) as usize);
            pair.schedule(at, host, Happening::Holes(ports));
            pair.schedule(
                at + Nanos(1 << prng.between(12, 26)),
                host,
                Happening::Holes(Vec::new()),
            );
        }
    }

    /// Hosts die in the middle of the traffic; their next life begins on the same wire.
    fn crash(&self, pair: &mut Pair, prng: &mut Prng, dies: [bool; 2]) -> Result<(), Failure> {
        pair.run_for(Nanos(1 << prng.between(12, 23)))?;
        pair.clear_agenda();
        let life = pair.life();
        for (host, dies) in dies.into_iter().enumerate() {
            pair.count(host);
            if dies {
                pair.restart(host)?;
            } else {
                pair.host_mut(host).app.forget_script();
            }
        }
        if dies == [true; 2] {
            pair.oracle.end_life(life, [Ending::Died; 2]);
            return Ok(());
        }
        // The survivor learns of it when its peer is back, and then its messages end.
        let survivor = usize::from(dies[0]);
        pair.join()?;
        pair.run_until("the survivor has given the dead link up", |pair| {
            let app = &pair.host(survivor).app;
            app.down(life).is_some() && app.is_done()
        })?;
        let endings = dies.map(|died| if died { Ending::Died } else { Ending::Bereft });
        pair.oracle.end_life(life, endings);
        close(pair, survivor, false)
    }

    /// Nothing gets through any more: both ends find out, and every message ends.
    fn fall_silent(&self, pair: &mut Pair, prng: &mut Prng) -> Result<(), Failure> {
        pair.run_for(Nanos(1 << prng.between(12, 22)))?;
        pair.clear_agenda();
        for host in 0..2 {
            let host = pair.host_mut(host);
            host.control.set_receive(FaultPlan::none().black_hole(true));
            host.app.forget_script();
        }
        let life = pair.life();
        (0..2).for_each(|host| pair.count(host));
        pair.run_until("both ends notice the silence", |pair| {
            (0..2).all(|host| pair.host(host).app.down(life).is_some())
        })?;
        for host in 0..2 {
            let reason = pair.host(host).app.down(life);
            if !matches!(reason, Some(DownReason::Silent(_)) | None) {
                let reason = reason.unwrap_or(DownReason::PeerGone);
                pair.oracle.report(Violation::WentDown { host, reason });
            }
        }
        pair.oracle.end_life(life, [Ending::Bereft; 2]);
        check_home(pair)
    }

    /// What devices and endpoints counted that must not happen.
    fn check_devices(&self, pair: &mut Pair) -> Result<(), Failure> {
        for host in 0..2 {
            let packets = pair.device_counters(host).no_recv_wqe;
            if packets > 0 {
                pair.oracle.report(Violation::NoReceiveBuffer { host, packets });
            }
            let stats = pair.host(host).endpoint.endpoint_stats();
            if stats.send_errors + stats.posts_refused + stats.strays > 0 {
                pair.oracle.report(Violation::EndpointStats { host, stats });
            }
        }
        verdict(pair)
    }
}

/// Everything is sent and read, then one host leaves.
fn close(pair: &mut Pair, by: usize, channels: bool) -> Result<(), Failure> {
    let life = pair.life();
    pair.run_until("all messages have ended and come", |pair| {
        report_early_ends(pair, life);
        (0..2).all(|host| pair.host(host).app.is_done()) && pair.oracle.is_settled(life)
    })?;
    pair.clear_agenda();
    pair.run_until("all that was kept is read", |pair| {
        (0..2).all(|host| pair.host(host).app.holds_nothing())
    })?;
    pair.run_until("both links are idle", |pair| {
        let idle = |host| pair.link(host).is_none_or(|link| pair.host(host).endpoint.is_idle(link));
        (0..2).all(idle)
    })?;
    (0..2).for_each(|host| pair.count(host));
    (0..2).for_each(|host| pair.host_mut(host).app.expect_closing());
    let Some(link) = pair.link(by) else { return Ok(()) };
    if channels {
        let ids: Vec<_> = pair.host(by).app.channels().collect();
        for id in ids {
            let closed = pair.host_mut(by).endpoint.close_channel(link, id);
            closed.map_err(|error| pair.failure(error))?;
        }
        pair.run_until("all channels are closed", |pair| {
            (0..2).all(|host| pair.host(host).app.channels().len() == 0)
        })?;
    }
    pair.host_mut(by).endpoint.close(link);
    pair.run_until("both links are down", |pair| {
        (0..2).all(|host| pair.host(host).app.down(life).is_some())
    })?;
    pair.oracle.end_life(life, [Ending::Orderly; 2]);
    check_home(pair)
}

fn report_early_ends(pair: &mut Pair, life: u32) {
    for host in 0..2 {
        if let Some(reason) = pair.host(host).app.down(life) {
            pair.oracle.report(Violation::WentDown { host, reason });
        }
    }
}

/// With both links down every buffer is home.
fn check_home(pair: &mut Pair) -> Result<(), Failure> {
    let home = |pair: &Pair, host: usize| {
        let census = pair.host(host).endpoint.buffers();
        let sends = census.send_free == census.send_all;
        (sends && census.recv_posted + census.recv_free == census.recv_all, census)
    };
    pair.run_until("all that was kept is read", |pair| {
        (0..2).all(|host| pair.host(host).app.holds_nothing())
    })?;
    for _ in 0..DRAIN_TURNS {
        pair.run_for(Nanos::from_micros(1))?;
    }
    for host in 0..2 {
        let (is_home, census) = home(pair, host);
        if !is_home {
            pair.oracle.report(Violation::BuffersLeft { host, census });
        }
    }
    verdict(pair)
}

/// Fails if anything was reported since the last step.
fn verdict(pair: &mut Pair) -> Result<(), Failure> {
    pair.run_until("the verdict", |_| true)
}
