//! Token management and reporting: once a tick.

use super::{Action, Engine};
use crate::even;
use crate::rules::Decay;
use crate::words::Report;
use towpath_base::Time;

impl Engine {
    /// Gives up what the client will not use (the counter X of the paper).
    pub(super) fn manage(&mut self, now: Time) {
        let Some(period) = self.period else { return };
        let span = now.since(self.managed_at);
        if span < self.tick {
            return;
        }
        let (reservation, length) = (period.start.reservation, period.start.period);
        let even_then = even::used(reservation, period.passed(self.managed_at), length);
        let even_now = even::used(reservation, period.passed(now), length);
        let (demand, busy) = self.demand.count(now, span, even_now - even_then);
        self.busy = busy;
        self.managed_at = now;
        let kept = match self.rules.decay {
            Decay::Consumption => reservation - even_now,
            Decay::Demand => {
                let unwanted = u64::from(even_now).saturating_sub(demand);
                let unwanted = u32::try_from(unwanted).unwrap_or(u32::MAX);
                let more = unwanted.saturating_sub(self.yielded);
                let kept = self.residual - more.min(self.residual);
                // I/Os with tokens of the pool count as well: what is promised are so many in all.
                // Who wants more now keeps its tokens, and has the pool's beside them.
                let promised = reservation.saturating_sub(self.used);
                if self.demand.is_waiting() { kept } else { kept.min(promised) }
            }
        };
        let kept = if now >= period.end() { 0 } else { kept.min(self.residual) };
        self.yielded += self.residual - kept;
        self.residual = kept;
    }

    /// The silent report, when it is time.
    pub(super) fn report(&mut self, now: Time) -> Option<Action> {
        let period = self.period.filter(|_| self.reports && self.report_at <= now)?;
        // From now on, not from when it was due: a client that was away does not catch up.
        self.report_at = now + period.start.report_every;
        self.beat = !self.beat;
        let report = Report {
            beat: self.beat,
            is_backlogged: self.busy.is_backlogged,
            is_at_server: self.busy.is_at_server,
            held: self.held.saturating_add(self.used.saturating_sub(self.done)),
            residual: self.residual,
            done: self.done,
        };
        let word = report.pack(period.start.epoch, period.start.unit_shift);
        Some(Action::Report { word })
    }
}
