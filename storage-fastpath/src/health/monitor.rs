//! Links judged window by window. Sans-IO: time and counters are handed in.

use super::link::{Cause, HealthEvent, HealthState, LinkHealth, LinkView};
use std::collections::VecDeque;
use towpath_transport::{
    Carrier, Class, Device, Endpoint, Event, LinkId, LinkStats, Nanos, Region, Time,
};

/// Events that wait to be taken; the oldest goes when there are more. One change of each of a
/// thousand links fits.
const EVENTS_MAX: usize = 1024;

/// Windows in a row without a cause before a link counts as good again: one quiet window in a
/// flapping network means nothing.
const CLEAN_WINDOWS: u32 = 5;

/// Chunks below which a share of them says nothing: so many windows are taken together.
const CHUNKS_MIN: u64 = 50;

/// Chunks that must be lost of those: one or two are lost by chance.
const LOST_MIN: u64 = 3;

/// Round trips below this are no delay, however short the shortest was: a millisecond is what a
/// host that shares its cores takes by itself.
const RTT_LATE_MIN: Nanos = Nanos::from_millis(1);

/// How many times the shortest round trip seen counts as delay.
const RTT_TIMES_MAX: u64 = 10;

/// Windows in a row that must be late: a host that has more to do than cores is late for some.
const DELAY_WINDOWS: u32 = 5;

/// When a link is no longer good, and an I/O is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthConfig {
    slow_after: Nanos,
    window: Nanos,
    loss_max: f64,
    timeouts_max: u64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            slow_after: Nanos::from_secs(1),
            window: Nanos::from_millis(100),
            loss_max: 0.01,
            timeouts_max: 2,
        }
    }
}

impl HealthConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An I/O without an answer for this long is slow. Default 1 s.
    #[must_use]
    pub fn slow_after(mut self, span: impl Into<Nanos>) -> Self {
        self.slow_after = span.into().max(Nanos(1));
        self
    }

    /// How often links are judged, by what they did since the last time. Default 100 ms.
    #[must_use]
    pub fn window(mut self, span: impl Into<Nanos>) -> Self {
        self.window = span.into().max(Nanos(1));
        self
    }

    /// The share of chunks lost that a good link may have. Default 0.01.
    #[must_use]
    pub fn loss_max(mut self, share: f64) -> Self {
        self.loss_max = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
        self
    }

    /// Retransmission timeouts in a window that a good link may have, those left out that were for
    /// nothing. Default 2.
    #[must_use]
    pub fn timeouts_max(mut self, timeouts: u64) -> Self {
        self.timeouts_max = timeouts;
        self
    }

    /// When an I/O is slow.
    #[must_use]
    pub fn slow_limit(&self) -> Nanos {
        self.slow_after
    }
}

/// A count of which some is taken back a little later: what looked lost may only have been late.
#[derive(Clone, Copy, Debug)]
struct Doubtful {
    before: u64,
    judged: u64,
}

impl Doubtful {
    /// What `count` says from now on.
    fn from(count: u64) -> Self {
        Self { before: count, judged: count }
    }

    /// What came between the last two looks before this one, and was not taken back since.
    fn look(&mut self, count: u64) -> u64 {
        let known = core::mem::replace(&mut self.before, count).min(count);
        let news = known.saturating_sub(self.judged);
        self.judged = self.judged.max(known);
        news
    }
}

#[derive(Debug)]
struct Watched {
    health: LinkHealth,
    sent: Doubtful,
    lost: Doubtful,
    timeouts: Doubtful,
    reroutes: Doubtful,
    /// Chunks sent, and those of them that were lost, since a share of them was taken.
    of_share: (u64, u64),
    /// That share was too much.
    is_lossy: bool,
    /// Windows in a row in which something was sent and round trips were late.
    late: u32,
    /// An I/O became slow since the last look, or is so still.
    overdue: bool,
    clean: u32,
    seen: bool,
}

/// Judges links by what they count.
///
/// Its owner calls [`is_due`](Self::is_due) each turn, and when that is so
/// [`look`](Self::look) with every link that is up; [`on_event`](Self::on_event) with the events of
/// its endpoint; [`slow_io`](Self::slow_io) whenever an I/O is found slow; and takes events with
/// [`poll_event`](Self::poll_event).
#[derive(Debug)]
pub struct HealthMonitor {
    config: HealthConfig,
    /// By the dense index of the link.
    links: Vec<Option<Watched>>,
    next_look: Time,
    events: VecDeque<HealthEvent>,
    events_dropped: u64,
    slow: u64,
}

impl HealthMonitor {
    /// A monitor that knows of no link.
    #[must_use]
    pub fn new(config: HealthConfig) -> Self {
        Self {
            config,
            links: Vec::new(),
            next_look: Time::ZERO,
            events: VecDeque::new(),
            events_dropped: 0,
            slow: 0,
        }
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &HealthConfig {
        &self.config
    }

    /// Whether the links are to be looked at.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next_look
    }

    /// When the links are to be looked at next.
    #[must_use]
    pub fn next_look(&self) -> Time {
        self.next_look
    }

    /// Whether all links are good, and have been for so long that only what they do can change
    /// that.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_settled =
            |of: &Watched| of.health.state == HealthState::Good && of.clean >= CLEAN_WINDOWS;
        self.events.is_empty() && self.links.iter().flatten().all(is_settled)
    }

    /// When that is due, notes the I/Os that are slow, as `note_slow` tells them, and looks at the
    /// links of an endpoint.
    pub fn look_when_due<D: Device<Memory = Region>>(
        &mut self,
        now: Time,
        endpoint: &Endpoint<D>,
        note_slow: impl FnOnce(Time, Nanos, &mut dyn FnMut(LinkId, Nanos, bool)),
    ) {
        if !self.is_due(now) {
            return;
        }
        let after = self.config.slow_after;
        note_slow(now, after, &mut |link, age, first| match first {
            true => self.slow_io(link, age),
            false => self.still_slow(link),
        });
        self.look(now, endpoint.links().filter_map(|link| LinkView::of(endpoint, link)));
    }

    /// An event of the endpoint: a link that is up is known at once and not only from the next
    /// look, one that is down is forgotten, and paths that change are told.
    pub fn on_event(&mut self, event: &Event) {
        match *event {
            Event::Accepted { link, peer } | Event::Connected { link, peer, .. } => {
                self.watch(link, peer.class, LinkStats::default());
            }
            Event::LinkDown { link, .. } => {
                let place = self.links.get_mut(link.index());
                if let Some(place) = place {
                    place.take_if(|watched| watched.health.link == link);
                }
            }
            Event::CarrierChanged { link, from, to, why } => {
                self.tell(HealthEvent::CarrierChanged { link, from, to, why });
            }
            Event::PathChanged { link, path, to, signal, .. } => {
                self.tell(HealthEvent::PathChanged { link, path, to, signal });
            }
            _ => {}
        }
    }

    /// What a link did before it was watched, as `stats` count it, is not judged.
    fn watch(&mut self, link: LinkId, class: Class, stats: LinkStats) {
        if self.links.len() <= link.index() {
            self.links.resize_with(link.index() + 1, || None);
        }
        if self.find(link).is_none() {
            self.links[link.index()] = Some(Watched::new(link, class, stats));
        }
    }

    fn find(&mut self, link: LinkId) -> Option<&mut Watched> {
        let place = self.links.get_mut(link.index())?.as_mut();
        place.filter(|watched| watched.health.link == link)
    }

    /// The links that are up. Those that are not among them are forgotten.
    pub fn look(&mut self, now: Time, links: impl Iterator<Item = LinkView>) {
        self.next_look = now + self.config.window;
        self.links.iter_mut().flatten().for_each(|watched| watched.seen = false);
        for view in links {
            self.watch(view.link, view.class, view.stats);
            self.judge(&view);
        }
        for place in &mut self.links {
            *place = place.take().filter(|watched| watched.seen);
        }
    }

    fn judge(&mut self, view: &LinkView) {
        let config = self.config;
        let Some(watched) = self.find(view.link) else { return };
        let counts = watched.count(&view.stats, config.loss_max);
        let Watched { health, overdue, clean, seen, late, .. } = watched;
        let LinkView { stats, rtt, carrier, paths, paths_good, .. } = *view;
        *seen = true;
        (health.paths, health.paths_good) = (paths, paths_good);
        health.dscp_changed = view.dscp_changed;
        health.carrier = carrier;
        health.carrier_best = health.carrier_best.min(carrier);
        let sent = stats.chunks_sent - health.stats.chunks_sent;
        health.stats = stats;
        health.rtt = rtt;
        health.rtt_least = health.rtt_least.into_iter().chain(rtt).min();
        let most = health.rtt_least.map_or(Nanos(u64::MAX), |least| {
            Nanos(least.0.saturating_mul(RTT_TIMES_MAX)).max(RTT_LATE_MIN)
        });
        if sent > 0 {
            *late = if rtt > Some(most) { late.saturating_add(1) } else { 0 };
        }
        let causes = [
            (core::mem::take(overdue), Cause::SlowIo),
            (carrier > health.carrier_best, Cause::Fallback),
            (counts.timeouts > config.timeouts_max, Cause::Timeouts),
            (counts.reroutes > 0, Cause::Rerouted),
            (counts.is_lossy, Cause::Loss),
            (sent > 0 && *late >= DELAY_WINDOWS, Cause::Delay),
        ];
        let cause = causes.into_iter().find_map(|(is_so, cause)| is_so.then_some(cause));
        *clean = if cause.is_some() { 0 } else { *clean + 1 };
        let link = health.link;
        match (health.state, cause) {
            (HealthState::Good, Some(cause)) => {
                health.degradations += 1;
                health.state = HealthState::Degraded(cause);
                self.tell(HealthEvent::Degraded { link, cause });
            }
            (HealthState::Degraded(before), Some(cause)) if cause > before => {
                health.state = HealthState::Degraded(cause);
                self.tell(HealthEvent::Degraded { link, cause });
            }
            (HealthState::Degraded(_), None) if *clean >= CLEAN_WINDOWS => {
                health.state = HealthState::Good;
                watched.is_lossy = false;
                self.tell(HealthEvent::Recovered { link });
            }
            _ => {}
        }
    }

    /// An I/O over `link` has waited for `age`, which is too long; to be called once for each.
    pub fn slow_io(&mut self, link: LinkId, age: Nanos) {
        self.slow += 1;
        if let Some(watched) = self.find(link) {
            watched.health.slow += 1;
            watched.overdue = true;
        }
        self.tell(HealthEvent::SlowIo { link, age });
    }

    /// An I/O over `link` that was told as slow has no answer still; to be called before each look.
    pub fn still_slow(&mut self, link: LinkId) {
        if let Some(watched) = self.find(link) {
            watched.overdue = true;
        }
    }

    fn tell(&mut self, event: HealthEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        self.events.push_back(event);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<HealthEvent> {
        self.events.pop_front()
    }

    /// Events that were lost because nobody took them.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    /// Slow I/Os of all links, those that are down included.
    #[must_use]
    pub fn slow(&self) -> u64 {
        self.slow
    }

    /// How each link was when it was last looked at.
    pub fn links(&self) -> impl Iterator<Item = &LinkHealth> {
        self.links.iter().flatten().map(|watched| &watched.health)
    }

    /// How one link was when it was last looked at; none when it is not known.
    #[must_use]
    pub fn link(&self, link: LinkId) -> Option<&LinkHealth> {
        let watched = self.links.get(link.index())?.as_ref()?;
        Some(&watched.health).filter(|health| health.link == link)
    }
}

/// What a link did between the last two looks before this one.
struct Counts {
    timeouts: u64,
    reroutes: u64,
    is_lossy: bool,
}

impl Watched {
    /// Counts what is known now of the window before the last look. Where little was sent a share
    /// that was too much remains so until there is another.
    fn count(&mut self, stats: &LinkStats, loss_max: f64) -> Counts {
        let sent = self.sent.look(stats.transmissions());
        let lost = self.lost.look(stats.lost());
        let timeouts = self.timeouts.look(stats.rtos.saturating_sub(stats.rtos_spurious));
        let reroutes = stats.reroutes().saturating_sub(stats.reroutes_in_vain);
        let reroutes = self.reroutes.look(reroutes);
        self.of_share = (self.of_share.0 + sent, self.of_share.1 + lost);
        if self.of_share.0 >= CHUNKS_MIN {
            let (sent, lost) = core::mem::take(&mut self.of_share);
            self.health.loss = lost.min(sent) as f64 / sent as f64;
            self.is_lossy = self.health.loss > loss_max && lost >= LOST_MIN;
        }
        Counts { timeouts, reroutes, is_lossy: self.is_lossy && sent > 0 }
    }

    fn new(link: LinkId, class: Class, stats: LinkStats) -> Self {
        let health = LinkHealth {
            link,
            state: HealthState::Good,
            rtt: None,
            rtt_least: None,
            loss: 0.0,
            slow: 0,
            degradations: 0,
            carrier: Carrier::Tcp,
            carrier_best: Carrier::Tcp,
            paths: 0,
            paths_good: 0,
            class,
            dscp_changed: 0,
            stats,
        };
        Self {
            health,
            sent: Doubtful::from(stats.transmissions()),
            lost: Doubtful::from(stats.lost()),
            timeouts: Doubtful::from(stats.rtos.saturating_sub(stats.rtos_spurious)),
            reroutes: Doubtful::from(stats.reroutes().saturating_sub(stats.reroutes_in_vain)),
            of_share: (0, 0),
            is_lossy: false,
            late: 0,
            overdue: false,
            clean: 0,
            seen: false,
        }
    }
}

#[cfg(test)]
mod tests;
