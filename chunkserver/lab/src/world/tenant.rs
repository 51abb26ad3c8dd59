//! A client's tokens: the production engine, whose words the client reaches over its lane.

use super::host::Nic;
use super::plan::{ClientPlan, Manner};
use towpath_base::{Nanos, Time};
use towpath_fastpath::qos::{LaneEngine, LaneEngineStats};
use towpath_proto::Grant;
use towpath_qos::{Engine, FromMonitor, PeriodStart, Refusal, Report, Rules, Ticket};
use towpath_transport::{
    Endpoint, GrantId, LANE_READS_MAX, LaneError, LinkId, OpId, OpOptions, OpOutcome, Place,
};

pub(super) struct Tenant {
    manner: Manner,
    rules: Rules,
    depth: u32,
    pool: Option<GrantId>,
    report: Option<GrantId>,
    /// When both words are granted.
    lane: Option<LaneEngine>,
    /// What the engines before did: it has a new one when it was cut off.
    before: LaneEngineStats,
    link: LinkId,
    tick: Nanos,
    /// What a liar knows of the period, when it lies next, and whether the last lie had the beat.
    lie: Option<(PeriodStart, Time, bool)>,
}

impl Tenant {
    pub(super) fn new(
        plan: &ClientPlan,
        rules: Rules,
        (link, depth, tick): (LinkId, u32, Nanos),
    ) -> Self {
        let (manner, before) = (plan.manner, LaneEngineStats::default());
        let (pool, report, lane, lie) = (None, None, None, None);
        Self { manner, rules, depth, pool, report, lane, before, link, tick, lie }
    }

    /// The server has granted something.
    pub(super) fn on_grant(&mut self, grant: &Grant) {
        if grant.rights.atomic {
            self.pool = Some(grant.id);
        } else if grant.rights.write {
            self.report = Some(grant.id);
        }
        if let (Some(pool), Some(report), None) = (self.pool, self.report, &self.lane) {
            let place = |grant| Place { link: self.link, grant, offset: 0 };
            let engine =
                Engine::new(self.rules).depth(self.depth).at_server(LANE_READS_MAX).tick(self.tick);
            self.lane = Some(LaneEngine::new(engine, place(pool), place(report)));
        }
    }

    /// The server has taken something back. It gives new words later.
    pub(super) fn on_revoked(&mut self, grant: GrantId) {
        if [self.pool, self.report].contains(&Some(grant)) {
            self.before = self.stats();
            (self.pool, self.report, self.lane, self.lie) = (None, None, None, None);
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.lane.is_some()
    }

    pub(super) fn stats(&self) -> LaneEngineStats {
        let mut stats = self.lane.as_ref().map(LaneEngine::stats).unwrap_or_default();
        stats.fetches += self.before.fetches;
        stats.reports += self.before.reports;
        stats
    }

    /// Tokens that it holds, of all kinds.
    pub(super) fn tokens(&self) -> u64 {
        let tokens = self.lane.as_ref().map_or((0, 0), |lane| lane.engine().tokens());
        u64::from(tokens.0) + u64::from(tokens.1)
    }

    pub(super) fn on_message(&mut self, now: Time, bytes: &[u8]) -> Result<(), String> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        if self.manner == Manner::Liar
            && let Ok(FromMonitor::Start(start)) = FromMonitor::parse(bytes)
        {
            self.lie = Some((start, now, false));
        }
        lane.on_message(now, bytes).map_err(|error| error.to_string())
    }

    /// Whether an operation that has ended was for tokens.
    pub(super) fn on_op_done(
        &mut self,
        now: Time,
        op: OpId,
        (outcome, word): (OpOutcome, Option<u64>),
    ) -> bool {
        self.lane.as_mut().is_some_and(|lane| lane.on_op_done(now, op, outcome, word))
    }

    /// So many I/Os are not wanted any more, and so many are asked for.
    pub(super) fn on_work(&mut self, now: Time, (withdrawn, asked): (u32, u32)) {
        let Some(lane) = &mut self.lane else { return };
        let engine = lane.engine_mut();
        if withdrawn > 0 {
            engine.withdrawn(now, withdrawn, withdrawn);
        }
        if asked > 0 {
            engine.arrived(now, asked, asked);
        }
    }

    /// Leave for one I/O; none for one that goes without.
    pub(super) fn admit(&mut self, now: Time) -> Result<Option<Ticket>, Refusal> {
        let lane = self.lane.as_mut().ok_or(Refusal::NoPeriod)?;
        match (self.manner, lane.engine_mut().admit(now, 1)) {
            (_, Ok(ticket)) => Ok(Some(ticket)),
            (Manner::Greedy, Err(_)) => {
                // It goes all the same: for its engine the I/O is gone.
                lane.engine_mut().withdrawn(now, 1, 1);
                Ok(None)
            }
            (_, Err(refusal)) => Err(refusal),
        }
    }

    pub(super) fn done(&mut self, now: Time, ticket: Ticket) {
        if let Some(lane) = &mut self.lane {
            lane.engine_mut().done(now, ticket);
        }
    }

    pub(super) fn drive(&mut self, endpoint: &mut Endpoint<Nic>) -> Result<(), LaneError> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        lane.drive(endpoint)?;
        self.lie(endpoint)
    }

    /// Writes a report that nothing was done and all is still wanted.
    fn lie(&mut self, endpoint: &mut Endpoint<Nic>) -> Result<(), LaneError> {
        let now = endpoint.now();
        let (Some((start, at, beat)), Some(grant)) = (&mut self.lie, self.report) else {
            return Ok(());
        };
        if *at > now {
            return Ok(());
        }
        (*at, *beat) = (now + self.tick, !*beat);
        let report = Report {
            beat: *beat,
            is_backlogged: true,
            is_at_server: false,
            held: 0,
            residual: start.reservation,
            done: 0,
        };
        let word = report.pack(start.epoch, start.unit_shift);
        let place = Place { link: self.link, grant, offset: 0 };
        endpoint.write_word(place, word, OpOptions::new()).map(drop)
    }

    pub(super) fn next_timeout(&self) -> Time {
        let lie = self.lie.as_ref().map_or(Time::NEVER, |lie| lie.1);
        self.lane.as_ref().map_or(Time::NEVER, LaneEngine::next_timeout).min(lie)
    }
}
