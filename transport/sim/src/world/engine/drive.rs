//! Time: the loop over the events, the timers of hosts, and which hosts have something to do.

use super::Engine;
use super::foresee::EVENTS_FORESEEN;
use crate::world::agenda::Event;
use crate::world::ids::HostId;
use crate::world::routes::{Hop, Routes};
use towpath_base::Time;

impl Engine {
    pub(in crate::world) fn next_event_time(&self) -> Option<Time> {
        self.agenda.next_time()
    }

    pub(in crate::world) fn advance_to(&mut self, time: Time) {
        let mut events = core::mem::take(&mut self.instant);
        while let Some(at) = self.agenda.pop_instant(time, &mut events) {
            self.clock.go_to(at);
            for some in events.chunks(EVENTS_FORESEEN) {
                self.foresee(some);
                some.iter().for_each(|event| self.happen(*event));
            }
            events.clear();
        }
        self.instant = events;
        self.clock.go_to(time);
    }

    pub(in crate::world) fn advance_to_next(
        &mut self,
        limit: Time,
        woken: &mut Vec<HostId>,
    ) -> bool {
        while self.woken.is_empty() {
            let Some(next) = self.agenda.next_time().filter(|next| *next <= limit) else {
                if limit < Time::NEVER {
                    self.clock.go_to(limit);
                }
                return false;
            };
            self.advance_to(next);
        }
        for host in &self.woken {
            self.hosts[host.index()].is_woken = false;
        }
        woken.append(&mut self.woken);
        true
    }

    fn happen(&mut self, event: Event) {
        self.counters.events += 1;
        match event {
            Event::Land { flight } => self.land(flight),
            Event::Arrive { flight } => self.arrive(flight),
            Event::Serve { wire } => self.serve_due(wire),
            Event::Release { wire } => self.release(wire),
            Event::Pause { wire, class, on } => self.pause(wire, class, on),
            Event::Change { number } => self.change_due(number),
            Event::Timer { host } => self.timer_event(HostId(host)),
        }
    }

    pub(super) fn wake(&mut self, host: HostId) {
        let end = &mut self.hosts[host.index()];
        if !end.is_woken {
            end.is_woken = true;
            self.woken.push(host);
        }
    }

    pub(in crate::world) fn set_timer(&mut self, host: HostId, time: Time) {
        let end = &mut self.hosts[host.index()];
        end.timer = time.max(self.clock.now());
        self.watch_timer(host);
    }

    /// Sees to it that an event looks at the timer when it is due, or before.
    fn watch_timer(&mut self, host: HostId) {
        let end = &mut self.hosts[host.index()];
        let earliest = end.timer_events.last().copied().unwrap_or(Time::NEVER);
        if end.timer < earliest {
            end.timer_events.push(end.timer);
            self.agenda.push(end.timer, Event::Timer { host: host.0 });
        }
    }

    fn timer_event(&mut self, host: HostId) {
        let end = &mut self.hosts[host.index()];
        end.timer_events.pop();
        if end.timer <= self.clock.now() {
            end.timer = Time::NEVER;
            self.wake(host);
        }
        self.watch_timer(host);
    }

    pub(super) fn routes(&mut self) -> &Routes {
        if self.routes.is_none() {
            let dests: Vec<bool> = self.switches.iter().map(|switch| switch.has_hosts).collect();
            let hops: Vec<Hop> =
                self.hops.iter().filter(|hop| self.is_usable(hop)).copied().collect();
            self.routes = Some(Routes::new(&dests, &hops));
        }
        self.routes.get_or_insert_default()
    }
}
